/*
 * cost.c
 *		Cost estimates of the path that a scan would take now, by the plan
 *		node or as a plain index scan (README.md, "Cost").
 *
 * The cost of a stream is not linear in its rows: a first answer costs a graph
 * search, further ones broader searches, and at some point a pass over the
 * whole index. The planner interpolates linearly between first and last row, so
 * where it has said how many rows it wants, the line is laid so that it meets
 * the estimate there. A node that gathers rows has all its cost before the
 * first row.
 */
#include "base/handler.h"

#include <float.h>
#include <math.h>

#include "access/genam.h"
#include "client/client.h"
#include "lists/lists.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "scan/cost.h"
#include "scan/scan.h"
#include "utils/float.h"
#include "utils/selfuncs.h"
#include "utils/spccache.h"

/*
 * Rows that a search visits: m for each of ef, plus this many times m log n to
 * get there. Neighbours are met again, the more often the smaller the table: of
 * n rows, x visits meet n (1 - exp(-x / n)). Within 15 % of what searches of
 * 1,000 to 100,000 rows with ef 10 to 160 visited.
 */
#define VISITED_ON_THE_WAY	1.6

/*
 * What steps cost, in units of cpu_operator_cost: measured against sequential
 * scans of the same tables.
 */
typedef struct StepPrices
{
	double		round_trip;		/* to the server and back */
	double		expand;			/* each edge of a row that is expanded, whether its other end was
								 * visited before or not */
	double		visit;			/* a row's distance, in a graph search */
	double		compare;		/* ... in an exact pass */
	double		result;			/* each row that a search has room for: sorting, copying,
								 * checking */
} StepPrices;

static const StepPrices page_prices = {.expand = 6, .visit = 5, .compare = 5};
/*
 * The CPU engine's processor time is taken from other queries, as a backend's
 * is, so it is what counts. An exact pass reads rows in order, and is charged
 * by its time alone.
 */
static const StepPrices cpu_prices = {
	.round_trip = 2000, .expand = 4, .visit = 3, .compare = 15, .result = 8};
/*
 * A lone search of 1M x 128 takes an H200 63 us, and 0.7 us for each further
 * ef; comparing all of them 217 us, of 1M x 768 928 us.
 */
static const StepPrices cuda_prices = {
	.round_trip = 2400, .expand = 0.8, .visit = 0.1, .compare = 0.01, .result = 12};

/*
 * A distance costs this much, plus a part proportional to the length of the
 * vector: together 1 at the length at which the steps were measured.
 */
#define DISTANCE_BASE			0.6
#define DISTANCE_BYTES			512

/*
 * Costs of a search of lists beside the rows that it compares (this many for
 * each of ef): the estimate of a code and the distance of a centroid, in units
 * of cpu_operator_cost. Codes take a negligible share of the index's pages.
 */
#define LIST_ROWS_COMPARED		15
#define CODE_OPERATORS			0.3
#define CENTROID_OPERATORS		0.5
#define CODE_PAGE_SHARE			0.08

/* Beginning a scan: metapage, end of the list, seeds. */
#define START_OPERATORS			800

#define CONFIRM_OPERATORS		8	/* the page of a row that is an answer */
#define FETCH_OPERATORS			100 /* its tuple, anywhere in the table, even if that is cached */
#define HEAP_ORDER_OPERATORS	4	/* reading and sorting a TID */
#define COLUMN_OPERATORS		1	/* evaluating a row's columns among those of all rows, */
#define COLUMN_FETCH_OPERATORS	15	/* ... or those of one row, */
#define ENGINE_COLUMN_OPERATORS	0.2	/* ... or of all rows by a server */

/*
 * What other plans pay for a distance and its comparison, however long the
 * vectors are.
 */
#define ROW_OPERATORS	2

/* A stream loses what it misses: these are to cost less than an exact pass. */
#define FEW_ROUNDS	4

/* Rounds that are less likely count as none. */
#define MIN_LIKELY	0.01

/* Cost that makes the planner avoid an index that cannot be used. */
#define COST_NEVER	get_float8_infinity()

/* What a price depends on. */
struct PricedIndex
{
	const RelOptInfo *rel;
	double		rows;
	double		pages;
	double		table_pages;
	double		random_page;
	double		sequential_page;
	double		vector_bytes;
	double		column_bytes;	/* of the columns that it includes */
	int			m;
	int			ef;				/* of the first search */
	double		lists;			/* 0: it is a graph */
	double		probes;			/* of the first search */
	bool		readable;		/* the metapage is */
	bool		server;			/* answers now */
	bool		paged;			/* graph searches are charged for pages */
	const StepPrices *step;
};

/*
 * What was built, as the metapage says: options may have been altered since.
 */
static void
examine_format(Relation relation, PricedIndex *index)
{
	const IndexFormat *format = peek_format(relation);
	bool		has_lists = format != NULL && format_has_lists(format);
	ListFormat	lists;

	index->ef = gpuann_effective_ef_search(relation, has_lists);
	index->m = format != NULL ? format->m : GPUANN_DEFAULT_M;
	index->readable = format != NULL;
	index->vector_bytes = format != NULL ? format->vector_bytes : 0;
	index->column_bytes = format != NULL ? format->column_bytes : 0;
	if (!has_lists || !list_format_peek(relation, format, &lists))
		return;
	index->lists = lists.lists;
	index->probes = gpuann_effective_probes(relation, lists.lists, 1);
}

/*
 * Fill in what the price of an index depends on.
 */
static void
examine_index(const IndexOptInfo *info, PricedIndex *index)
{
	Relation	relation;

	*index = (PricedIndex){
		.rel = info->rel,
		.rows = Max(info->tuples, 1),
		.pages = Max(info->pages, 1),
		.table_pages = Max(info->rel->pages, 1),
		.vector_bytes = DISTANCE_BYTES,
		.m = GPUANN_DEFAULT_M,
		.ef = gpuann_ef_search != GPUANN_UNSET ? gpuann_ef_search : GPUANN_DEFAULT_EF_SEARCH,
		.paged = true,
		.step = &page_prices,
	};
	get_tablespace_page_costs(info->reltablespace, &index->random_page, &index->sequential_page);
	if (info->hypothetical)
		return;
	relation = index_open(info->indexoid, NoLock);
	examine_format(relation, index);
	index->server = client_would_answer(relation);
	index->paged = !index->server || !client_engine_is_cuda();
	index->step = !index->paged ? &cuda_prices : index->server ? &cpu_prices : &page_prices;
	index_close(relation, NoLock);
}

/*
 * Charge no more for a vector than the table has, for each row that passes the
 * filters, which is a share of all. For vectors out of line the planner charges
 * no plan for reading them. Every other plan reads them for each row that
 * passes the filters, so that is how the two are compared; a join may leave
 * those plans fewer rows.
 */
static void
charge_no_more_than_others(PricedIndex *index, const RelOptInfo *rel, double passing)
{
	index->vector_bytes =
		Min(index->vector_bytes, index->table_pages * BLCKSZ / Max(rel->tuples * passing, 1));
}

/*
 * The cost of a number of distances, where each costs this much at the measured
 * length.
 */
static double
distances_price(const PricedIndex *index, double count, double each)
{
	return count * each *
		   (DISTANCE_BASE + (1 - DISTANCE_BASE) * index->vector_bytes / DISTANCE_BYTES) *
		   cpu_operator_cost;
}

/*
 * The cost of reading the pages of the rows visited.
 *
 * Rows near each other share no pages, but cached pages cost nothing; so the
 * pages are those rows' share of the index, and where the index is larger than
 * the cache, one page per row for the rest. The more of the index a search
 * visits, the more of its pages are kept in memory by other searches: the cost
 * approaches that of a sequential read from below.
 *
 * Vectors of a table may be out of line, and then the planner does not know
 * that a sequential scan reads them. To keep the two comparable, no more pages
 * are charged than the table has.
 *
 * A server's mirror is in memory. Other plans are charged for pages that are,
 * too: so the CPU engine is, for its processor time is as long.
 */
static double
reading_price(const PricedIndex *index, double visited)
{
	double		share = visited / index->rows;
	double		uncached =
		index->server ? 0 : 1 - Min((double) effective_cache_size / index->pages, 1);

	if (!index->paged)
		return 0;
	return uncached * visited * index->random_page +
		Min(Min(share * index->pages, index->table_pages) * index->random_page,
			Min(index->pages, index->table_pages) * sqrt(sqrt(share)) * index->sequential_page);
}

/*
 * How many rows a graph search of breadth ef visits.
 */
static double
rows_visited(const PricedIndex *index, double ef)
{
	double		visits = ef == 0 ? 0 : index->m * (ef + VISITED_ON_THE_WAY * log2(index->rows + 1));

	if (index->lists > 0)
		return Min(ef * LIST_ROWS_COMPARED, index->rows);
	return index->rows * (1 - exp(-visits / index->rows));
}

/*
 * The price of a search of lists for ef rows, with as many lists as a round of
 * that breadth probes (list_search.c).
 */
static double
lists_price(const PricedIndex *index, double ef, double *read)
{
	double		more = Max(ef / Max(index->ef, GPUANN_DEFAULT_EF_SEARCH), 1);
	double		probes = Min(index->probes * more, index->lists);
	double		codes = index->rows * probes / index->lists;
	double		visited = rows_visited(index, ef);
	double		reading =
		Max(reading_price(index, Min(visited + codes * CODE_PAGE_SHARE, index->rows)), *read);
	double		price = reading - *read +
		(codes * CODE_OPERATORS + index->lists * CENTROID_OPERATORS) * cpu_operator_cost +
		distances_price(index, visited, index->step->visit);

	*read = reading;
	return price;
}

/*
 * The cost of a graph search of breadth ef that continues one of breadth
 * `before` (0: there was none); *read is what has been charged for reading
 * pages, by this search and those before.
 */
static double
graph_price(const PricedIndex *index, double before, double ef, double *read)
{
	double		visited = rows_visited(index, ef);
	double		reading = Max(reading_price(index, visited), *read);
	double		price;

	ef = Min(ef, index->rows);
	before = Min(before, ef);
	price = reading - *read +
			(index->step->round_trip + (ef - before) * index->m * index->step->expand +
			 ef * index->step->result) *
				cpu_operator_cost +
			distances_price(index, visited - rows_visited(index, before), index->step->visit);
	*read = reading;
	return price;
}

/*
 * The price of comparing all rows, to keep as many as there is room for. It
 * reads the whole index; for that, too, no more is charged than for the table.
 */
static double
exact_price(const PricedIndex *index, double room)
{
	double		pages = index->server ? 0 : Min(index->pages, index->table_pages);

	return pages * index->sequential_page +
		   (index->step->round_trip + Min(room, index->rows) * index->step->result) *
			   cpu_operator_cost +
		   distances_price(index, index->rows, index->step->compare);
}

/*
 * The price of the wanted rows by exact passes: the first has the given room,
 * each further one more.
 */
static double
exact_passes_price(const PricedIndex *index, double wanted, uint32 room)
{
	double		price = 0;

	while (wanted > 0)
	{
		uint32		next = scan_exact_room((uint64) room * 8);
		/* Rounds after the room has reached its limit are alike. */
		double		passes = next > room ? 1 : ceil(wanted / room);

		price += passes * exact_price(index, room);
		wanted -= passes * room;
		room = next;
	}
	return price;
}

/* The graph rounds of a scan, so far. */
typedef struct GraphRounds
{
	uint32		ef;				/* of the last; 0: there was none */
	double		read;			/* paid for reading pages */
	double		price;
	bool		reads_once;		/* a page is charged once, as to other plans, by the server too */
} GraphRounds;

/*
 * Add a round of breadth ef. Over pages a search continues where it ended, if
 * it has the memory; a server starts again.
 */
static void
add_graph_round(const PricedIndex *index, GraphRounds *rounds, uint32 ef)
{
	uint32		before = rounds->ef;

	if (index->server || rows_visited(index, ef) > scan_walk_room())
		before = 0;
	if (index->server && !rounds->reads_once)
		rounds->read = 0;
	rounds->price += index->lists > 0 ? lists_price(index, ef, &rounds->read)
		: graph_price(index, before, ef, &rounds->read);
	rounds->ef = ef;
}

/*
 * Whether a scan compares, or judges, all rows instead of a round of this
 * breadth; `leap`: that is far broader than the last one, for a filter's sake.
 */
static bool
is_too_broad(const PricedIndex *index, double ef, bool leap)
{
	return ef > ENGINE_MAX_EF ||
		   scan_graph_is_dearer((uint32) ef, index->rows,
								!index->server && index->lists == 0 && !leap);
}

/*
 * The price of the wanted rows as a stream: graph rounds, each twice as broad
 * as the one before, then exactly.
 */
static double
stream_price(const PricedIndex *index, double wanted, uint32 first_exact_room)
{
	GraphRounds rounds = {.price = START_OPERATORS * cpu_operator_cost, .reads_once = true};

	wanted = Min(wanted, index->rows);
	if (gpuann_exact)
		return rounds.price + exact_passes_price(index, wanted, first_exact_room);
	add_graph_round(index, &rounds, index->ef);
	while (rounds.ef < wanted && !is_too_broad(index, (double) rounds.ef * 2, false))
		add_graph_round(index, &rounds, rounds.ef * 2);
	return rounds.price +
		   exact_passes_price(index, wanted - rounds.ef, scan_exact_room(EXACT_NEXT_ROOM));
}

/*
 * The rows of a stream that only its first exact pass finds: as many as the
 * graph round would have found that it replaces.
 */
static double
rows_of_first_pass(const PricedIndex *index)
{
	double		ef = index->ef;

	while (!is_too_broad(index, ef * 2, false))
		ef *= 2;
	return Min(ef * 2, index->rows);
}

/*
 * The probability that of `rows` rows fewer than wanted pass: the binomial
 * distribution, approximated by the normal one.
 */
static double
chance_of_fewer(double rows, double wanted, double passing)
{
	double		deviation = sqrt(rows * passing * (1 - passing));
	double		missing = wanted - 0.5 - rows * passing;

	if (deviation <= 0)
		return missing > 0 ? 1 : 0;
	return 0.5 * erfc(-missing / (deviation * M_SQRT2));
}

/*
 * The breadth of the round that follows one that had too few rows.
 */
static double
foreseen_ef(const NodeDemand *demand, double ef)
{
	double		passed = Min(ef * demand->passing, demand->wanted - 1);
	double		share = scan_share_seen(Max(passed, 0), ef, demand->passing);

	return Max(ef * 2, scan_rows_needed(demand->wanted, Min(share, 1)));
}

/*
 * The price of confirming rows that were found: the node record of each is read
 * before the row is given.
 */
static double
confirming_price(double rows)
{
	return rows * (cpu_index_tuple_cost + CONFIRM_OPERATORS * cpu_operator_cost);
}

/*
 * The cost of fetching proposed rows from the table and evaluating its filters
 * on them. Cached pages are charged in proportion, as those of the index are.
 */
static double
judging_price(const PricedIndex *index, double rows)
{
	const RelOptInfo *rel = index->rel;
	double		uncached = 1 - Min((double) effective_cache_size / index->table_pages, 1);
	double		share = Min(rows / Max(rel->tuples, 1), 1);
	double		random_page;

	get_tablespace_page_costs(rel->reltablespace, &random_page, NULL);
	return confirming_price(rows) +
		   (uncached * rows + share * index->table_pages) * random_page +
		   rel->baserestrictcost.startup +
		   rows * (FETCH_OPERATORS * cpu_operator_cost + cpu_tuple_cost +
				   rel->baserestrictcost.per_tuple);
}

/*
 * The price of judging proposed rows, of which columns exclude some before they
 * are fetched.
 */
static double
proposals_price(const PricedIndex *index, const NodeDemand *demand, double rows)
{
	if (demand->columns >= 1)
		return judging_price(index, rows);
	return rows * COLUMN_FETCH_OPERATORS * cpu_operator_cost +
		   judging_price(index, rows * demand->columns);
}

/*
 * The price of a server's choice: it evaluates the columns of all rows, and
 * compares those that they let pass or searches the graph for some of them.
 */
static double
server_chosen_price(const PricedIndex *index, double chosen, double proposals)
{
	double		compare = (index->step->round_trip + proposals * index->step->result) *
		cpu_operator_cost + distances_price(index, chosen, index->step->compare);
	double		ef = Max(proposals, index->ef);
	GraphRounds rounds = {0};

	if (!is_too_broad(index, ef, false))
	{
		add_graph_round(index, &rounds, (uint32) ef);
		compare = Min(compare, rounds.price);
	}
	return index->rows * ENGINE_COLUMN_OPERATORS * cpu_operator_cost + compare;
}

/*
 * The price of evaluating the columns of all rows, ranking those that they let
 * pass, and judging as many of these as are wanted to pass (scan_columns.c).
 */
static double
chosen_price(const PricedIndex *index, const NodeDemand *demand, double wanted)
{
	double		chosen = Max(index->rows * demand->columns, 1);
	double		pass = Min(demand->within * demand->passing / demand->columns, 1);
	double		column_pages = index->rows * index->column_bytes / BLCKSZ;
	double		proposals = Min(wanted / Max(pass, 1 / chosen), chosen);

	if (index->server)
		return server_chosen_price(index, chosen, proposals) + judging_price(index, proposals);
	return index->rows * COLUMN_OPERATORS * cpu_operator_cost +
		   Min(column_pages, index->pages) * index->sequential_page +
		   reading_price(index, chosen) + distances_price(index, chosen, page_prices.compare) +
		   judging_price(index, proposals);
}

/*
 * Whether a scan begins with what columns let pass: a server does whatever
 * their share, pages do if not too many pass.
 */
static bool
chooses_first(const PricedIndex *index, const NodeDemand *demand)
{
	return index->server ? demand->columns < 1 : demand->columns <= MOST_CHOSEN;
}

/*
 * Whether a scan has columns choose rows rather than search the graph with this
 * breadth.
 */
static bool
choosing_is_cheaper(const PricedIndex *index, const NodeDemand *demand, double ef)
{
	return demand->columns < 1 &&
		   scan_columns_are_cheaper(ef, index->rows, demand->columns, index->server);
}

/*
 * The price of judging all rows in heap order, and of ranking those that pass
 * (scan_judge.c).
 */
static double
heap_order_price(const PricedIndex *index, double passing)
{
	const RelOptInfo *rel = index->rel;
	double		pass = index->rows * passing;
	double		sequential_page;

	get_tablespace_page_costs(rel->reltablespace, NULL, &sequential_page);
	return index->table_pages * sequential_page + rel->baserestrictcost.startup +
		   index->rows * HEAP_ORDER_OPERATORS * cpu_operator_cost +
		   rel->tuples * (cpu_tuple_cost + rel->baserestrictcost.per_tuple) +
		   reading_price(index, pass) + distances_price(index, pass, page_prices.compare);
}

/*
 * The price of what follows the graph rounds of a scan that gathers rows, or
 * stands in their place: exact passes, in which `proposals` rows are judged.
 */
static double
exact_stage_price(const PricedIndex *index, const NodeDemand *demand, double proposals,
				  double needed, bool after_rounds)
{
	if (after_rounds ? demand->columns < 1 : chooses_first(index, demand))
		return chosen_price(index, demand, demand->wanted);
	if (index->rel->baserestrictinfo != NIL &&
		!scan_is_small_part(index->rows, index->rel->tuples) &&
		(after_rounds || needed * JUDGE_ROW_COST > index->rows))
		return heap_order_price(index, demand->within * demand->passing);
	return exact_passes_price(index, proposals, scan_room_for(needed)) +
		   judging_price(index, proposals);
}

/*
 * The cost of gathering rows until as many have passed as are wanted: graph
 * rounds as broad as the node foresees, or an exact pass (plan/gather.c), each
 * weighted by the probability that the scan gets there.
 */
static double
gather_price(const PricedIndex *index, const NodeDemand *demand)
{
	double		within = demand->within * index->rows;
	double		needed = scan_rows_needed(demand->wanted, demand->passing);
	double		first = scan_first_ef(demand->wanted, needed, index->ef);
	double		proposals = Max(Min(demand->wanted / demand->passing, within), 1);
	double		ef = Max(index->ef, first);
	double		price = START_OPERATORS * cpu_operator_cost;
	double		likely = 1;
	bool		filtered = index->rel->baserestrictinfo != NIL;
	GraphRounds rounds = {0};

	if (index->server && demand->columns < 1 && !scan_sends_late(needed, index->ef, index->rows))
		return price + chosen_price(index, demand, demand->wanted);
	if (first >= index->ef &&
		(is_too_broad(index, first, false) || choosing_is_cheaper(index, demand, needed)))
		return price + exact_stage_price(index, demand, proposals, needed, false);
	do
	{
		double		before = rounds.price;

		add_graph_round(index, &rounds, (uint32) ef);
		price += likely * (rounds.price - before);
		/* A round that goes beyond a threshold is the last. */
		if (demand->within < 1 && rounds.ef > within)
			return price + proposals_price(index, demand, proposals);
		likely = chance_of_fewer(Min(ef, within), demand->wanted, demand->passing);
		ef = foreseen_ef(demand, ef);
	} while (likely > MIN_LIKELY && rounds.ef < within &&
			 !choosing_is_cheaper(index, demand, ef) &&
			 !is_too_broad(index, ef, filtered && scan_is_leap(rounds.ef, ef)));
	return price + (1 - likely) * proposals_price(index, demand, proposals) +
		   likely * exact_stage_price(index, demand, proposals, Max(ef, EXACT_NEXT_ROOM), true);
}

/*
 * The cost of the node's stream up to a number of proposed rows.
 */
static double
judged_stream_price(const PricedIndex *index, double rows)
{
	return stream_price(index, rows, scan_exact_room(EXACT_NEXT_ROOM)) +
		   judging_price(index, rows);
}

/*
 * The linear cost from the first row through the cost of a share of all rows.
 */
static Cost
end_of_line(Cost startup, Cost price, double share)
{
	return startup + (price - startup) / share;
}

const PricedIndex *
gpuann_examine(const IndexOptInfo *info)
{
	PricedIndex *index = palloc(sizeof(PricedIndex));

	examine_index(info, index);
	return index;
}

bool
gpuann_few_are_wanted(const PlannerInfo *root)
{
	return root->limit_tuples > 0 && root->limit_tuples <= EXACT_FIRST_ROOM;
}

/*
 * Price a scan by the node: as node.c has it run. gpuann.max_scan_tuples does
 * not make it cheaper: a scan that ends early is no way to read everything.
 */
void
gpuann_price(PlannerInfo *root, const PricedIndex *examined, const NodeDemand *demand,
			 Cost *startup, Cost *total)
{
	const RelOptInfo *rel = examined->rel;
	bool		complete = gpuann_iterative_scan == GPUANN_ITERATIVE_COMPLETE;
	PricedIndex index = *examined;
	uint32		room = scan_exact_room(gpuann_few_are_wanted(root) ? EXACT_FIRST_ROOM
																   : EXACT_NEXT_ROOM);
	double		within;
	double		first;

	if (demand->within < 1 || bms_membership(root->all_baserels) == BMS_SINGLETON)
		charge_no_more_than_others(&index, rel, demand->passing);
	within = Min(Max(demand->within * index.rows, 1), index.rows);
	first = Min(1 / Max(demand->passing, 1 / index.rows), within);
	if (demand->kind == DEMAND_ALL ||
		(demand->kind == DEMAND_STREAM && (gpuann_exact || (complete && demand->within < 1))))
	{
		double		begin = START_OPERATORS * cpu_operator_cost;

		if (chooses_first(&index, demand))
		{
			*startup = begin + chosen_price(&index, demand, 1);
			*total = begin + chosen_price(&index, demand, within * demand->passing);
			return;
		}
		*startup = begin + exact_price(&index, room) + judging_price(&index, first);
		*total =
			begin + exact_passes_price(&index, within, room) + judging_price(&index, within);
	}
	else if (demand->kind == DEMAND_BOUND && complete && !gpuann_exact)
	{
		double		proposals = Max(Min(demand->wanted * first, within), 1);
		double		exact = chooses_first(&index, demand)
			? chosen_price(&index, demand, demand->wanted)
			: exact_price(&index, room) + judging_price(&index, proposals);

		*total = gather_price(&index, demand);
		/*
		 * A graph search by the CPU engine is charged for pages, an exact pass
		 * is not: the two compare with other plans, and not with each other.
		 * And an exact path cannot judge in heap order: it is far dearer where
		 * a filter lets fewer rows pass than expected.
		 */
		if ((index.server && index.paged) || rel->baserestrictinfo != NIL)
			*total = Min(*total,
						 0.98 * (START_OPERATORS * cpu_operator_cost + exact));
		*startup = *total;
	}
	else
	{
		/*
		 * Beyond the rows wanted the line has no meaning. A LIMIT above
		 * probably wants few rows: not many more than the graph finds.
		 */
		double		wanted = demand->kind == DEMAND_BOUND ? demand->wanted * first
							 : demand->wanted > 0			 ? rows_of_first_pass(&index)
															 : within;

		wanted = Min(Max(wanted, 2 * first), within);
		*startup = judged_stream_price(&index, first);
		*total = end_of_line(*startup, judged_stream_price(&index, wanted), wanted / within);
	}
}

/*
 * Where vectors are out of line the table looks small, and no other plan is
 * charged for fetching the vectors of the rows that it compares. So that the
 * prices can be compared, here no more pages are charged than the table has,
 * and those of its rows at the price of a sequential scan.
 */
Cost
gpuann_range_price(PlannerInfo *root, const PricedIndex *index, double rows, double loops)
{
	double		fetched = index_pages_fetched(rows * loops, index->rel->pages, index->pages, root);
	bool		out_of_line = index->table_pages * BLCKSZ < index->rows * index->vector_bytes;
	double		compare = ROW_OPERATORS * index->rows * cpu_operator_cost +
		Min(index->pages, index->table_pages) * index->sequential_page / loops;

	if (index->server)
		compare = exact_price(index, rows);
	return START_OPERATORS * cpu_operator_cost + compare +
		   fetched * (out_of_line ? index->sequential_page : index->random_page) / loops +
		   rows * (cpu_index_tuple_cost + cpu_tuple_cost);
}

bool
gpuann_exact_is_near(const PricedIndex *examined)
{
	PricedIndex index = *examined;
	GraphRounds rounds = {0};

	/* A server's exact passes are not charged for pages. */
	index.paged = index.paged && !index.server;
	for (int i = 0; i < FEW_ROUNDS; i++)
		add_graph_round(&index, &rounds, (uint32) index.ef << i);
	return exact_price(&index, rounds.ef) <= rounds.price;
}

bool
gpuann_is_readable(const PricedIndex *index)
{
	return index->readable;
}

/*
 * The share of the relation's passing rows that the query wants, if the query
 * has a LIMIT and reads nothing else; else 0. An unknown LIMIT and a cursor
 * have a share too, but that is the planner's default, and too large for
 * nearest rows.
 */
static double
wanted_share(PlannerInfo *root, const RelOptInfo *rel)
{
	if (root->limit_tuples <= 0 || bms_membership(root->all_baserels) != BMS_SINGLETON)
		return 0;
	/*
	 * A partition or child table has the share of the whole.
	 */
	if (rel->top_parent_relids != NULL)
		rel = find_base_rel(root, bms_singleton_member(rel->top_parent_relids));
	return Min(root->limit_tuples / Max(rel->rows, 1), 1);
}

/*
 * The cost of a plain index scan of a number of rows, without fetching them,
 * which the planner adds.
 */
static double
plain_price(const PricedIndex *index, double rows)
{
	return stream_price(index, rows, scan_exact_room(EXACT_FIRST_ROOM)) +
		   confirming_price(Min(rows, index->rows));
}

/*
 * Price a plain index scan.
 */
void
gpuanncostestimate(PlannerInfo *root, IndexPath *path, double loop_count, Cost *startup,
				   Cost *total, Selectivity *selectivity, double *correlation, double *pages)
{
	const RelOptInfo *rel = path->indexinfo->rel;
	GenericCosts costs;
	PricedIndex index;
	double		share;

	if (path->indexorderbys == NIL)
	{
		*startup = *total = COST_NEVER;
		*selectivity = 0;
		*correlation = 0;
		*pages = 0;
#if PG_VERSION_NUM >= 180000
		/*
		 * Cost alone does not prevent it from being chosen when everything else
		 * is disabled.
		 */
		path->path.disabled_nodes = 2;
#endif
		return;
	}

	/*
	 * Of the generic estimate: the selectivity, which is that of a partial
	 * index's predicate.
	 */
	MemSet(&costs, 0, sizeof(costs));
	costs.numIndexTuples = path->indexinfo->tuples;
	genericcostestimate(root, path, loop_count, &costs);
	*selectivity = costs.indexSelectivity;
	*correlation = 0;
	*pages = costs.numIndexPages;

	examine_index(path->indexinfo, &index);
	if (bms_membership(root->all_baserels) == BMS_SINGLETON)
		charge_no_more_than_others(&index, rel, rel->rows / Max(rel->tuples, 1));
	*startup = plain_price(&index, 1);
	*total = plain_price(&index, index.rows);
	share = wanted_share(root, rel);
	/*
	 * Index rows are wanted in the proportion in which they pass the filters.
	 */
	if (share > 0)
		*total = end_of_line(*startup, plain_price(&index, ceil(share * index.rows)), share);
	/*
	 * The planner looks for parameters that workers do not have in quals and
	 * targets only; an ORDER BY on a vector of an outer query has one, too.
	 */
	if (!is_parallel_safe(root, (Node *) path->indexorderbys))
		path->path.parallel_safe = false;
}
