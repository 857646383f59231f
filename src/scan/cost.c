/*
 * cost.c
 *		What the planner is told: the price of the path that a scan would take
 *		now (README.md, "Cost").
 *
 * A scan's price is no line through its rows: a first answer costs a graph
 * search, further ones broader searches, and at some point a pass over the
 * whole index begins. Where the planner has said how many rows it wants, the
 * line between the first row and the last is laid so that it meets the true
 * price there. Without an order to follow the index can do nothing.
 */
#include "base/handler.h"

#include <math.h>

#include "access/genam.h"
#include "client/client.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "scan/scan.h"
#include "utils/float.h"
#include "utils/selfuncs.h"
#include "utils/spccache.h"

/*
 * Rows that a search visits: m for each of ef, and so many times m log n on the
 * way there. Neighbours are met again, the more the smaller the table is: of n
 * rows, x visits meet n (1 - exp(-x / n)). Within 15 % of what searches of
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

static const StepPrices page_prices = {.expand = 7.5, .visit = 5, .compare = 5};
static const StepPrices cpu_prices = {
	.round_trip = 2000, .expand = 4, .visit = 3, .compare = 18, .result = 16};
/*
 * A lone search of 1M x 128 takes an H200 63 us, and 0.7 us for each further
 * ef; comparing all of them 217 us, of 1M x 768 928 us.
 */
static const StepPrices cuda_prices = {
	.round_trip = 2400, .expand = 0.8, .visit = 0.1, .compare = 0.01, .result = 12};

/*
 * A distance costs this much, and as much more as the vector is long: together
 * 1 at the length that the steps were measured with.
 */
#define DISTANCE_BASE			0.6
#define DISTANCE_BYTES			512

/*
 * Fetching a vector that the table has out of line, measured at 768 dimensions.
 * Every other plan does it for each row that passes the filters, before it can
 * sort, and no plan is charged for it.
 */
#define DETOAST_OPERATORS		100
#define DETOAST_KB_OPERATORS	50
#define LEAST_SHARE				0.05	/* of our price that is left when it is taken off */

#define START_OPERATORS			800 /* metapage, end of the pending list, seeds */
#define CONFIRM_OPERATORS		8	/* the page of a row that is an answer */

/* The planner's price of an index that cannot be used. */
#define COST_NEVER	get_float8_infinity()

/* What a price depends on. */
typedef struct PricedIndex
{
	double		rows;
	double		pages;
	double		table_pages;
	double		random_page;
	double		sequential_page;
	double		vector_bytes;
	bool		out_of_line;	/* are the table's vectors */
	int			m;
	int			ef;				/* of the first search */
	bool		server;			/* answers now */
	const StepPrices *step;
} PricedIndex;

/*
 * Bytes of an indexed vector. 0: unknown.
 */
static double
vector_bytes_of(Relation relation)
{
	int32		dims = TupleDescAttr(RelationGetDescr(relation), 0)->atttypmod;

	return dims > 0 ? (double) engine_vector_bytes(gpuann_type_info(relation)->type, (uint32) dims)
					: 0;
}

/*
 * Fill in what the price of an index depends on.
 */
static void
examine_index(const IndexOptInfo *info, PricedIndex *index)
{
	Relation	relation;

	index->rows = Max(info->tuples, 1);
	index->pages = Max(info->pages, 1);
	index->table_pages = Max(info->rel->pages, 1);
	get_tablespace_page_costs(info->reltablespace, &index->random_page, &index->sequential_page);
	if (info->hypothetical)
	{
		index->vector_bytes = DISTANCE_BYTES;
		index->out_of_line = false;
		index->m = GPUANN_DEFAULT_M;
		index->ef = gpuann_ef_search != GPUANN_UNSET ? gpuann_ef_search : GPUANN_DEFAULT_EF_SEARCH;
		index->server = false;
		index->step = &page_prices;
		return;
	}
	relation = index_open(info->indexoid, NoLock);
	index->vector_bytes = vector_bytes_of(relation);
	index->out_of_line =
		(double) info->rel->pages * BLCKSZ < info->rel->tuples * index->vector_bytes;
	index->m = gpuann_option_m(relation);
	index->ef = gpuann_effective_ef_search(relation);
	index->server = client_would_answer(relation);
	index->step = !index->server			? &page_prices
				  : client_engine_is_cuda() ? &cuda_prices
											: &cpu_prices;
	index_close(relation, NoLock);
}

/*
 * The price of so many distances, each of which costs so much at the length
 * that was measured.
 */
static double
distances_price(const PricedIndex *index, double count, double each)
{
	return count * each *
		   (DISTANCE_BASE + (1 - DISTANCE_BASE) * index->vector_bytes / DISTANCE_BYTES) *
		   cpu_operator_cost;
}

/*
 * The price of reading the pages of so many visited rows.
 *
 * Rows near each other share no pages, but what is in the cache costs nothing;
 * so the pages are those rows' share of the index, and where the index is
 * larger than the cache, a page a row for the rest. The more of the index a
 * search visits, the more of what it needs do others keep in memory: so the
 * price approaches that of reading everything in order, from below. Vectors of
 * a table may be out of line, and then the planner does not know that a
 * sequential scan reads them: so that the two compare, no more pages are
 * charged than the table has.
 */
static double
reading_price(const PricedIndex *index, double visited)
{
	double		share = visited / index->rows;
	double		uncached = 1 - Min((double) effective_cache_size / index->pages, 1);

	if (index->server)
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

	return index->rows * (1 - exp(-visits / index->rows));
}

/*
 * The price of a graph search of breadth ef that goes on from one of breadth
 * `before` (0: there was none); *read is what has been paid for reading pages,
 * in this search and those before.
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
 * reads the whole index, which may be far more than the planner charges for the
 * table.
 */
static double
exact_price(const PricedIndex *index, double room)
{
	double		pages = index->out_of_line ? index->pages : Min(index->pages, index->table_pages);
	double		reading = index->server ? 0 : pages * index->sequential_page;

	return reading +
		   (index->step->round_trip + Min(room, index->rows) * index->step->result) *
			   cpu_operator_cost +
		   distances_price(index, index->rows, index->step->compare);
}

/*
 * The price of so many rows, by the rounds that scan_rounds.c would go through.
 */
static double
scan_price(const PricedIndex *index, double wanted)
{
	double		price = START_OPERATORS * cpu_operator_cost;
	double		read = 0;
	double		had = 0;
	uint32		room = scan_exact_room(gpuann_exact ? EXACT_FIRST_ROOM : EXACT_NEXT_ROOM);

	wanted = Min(wanted, index->rows);
	if (!gpuann_exact)
	{
		uint32		ef = (uint32) index->ef;

		had = ef;
		price += graph_price(index, 0, ef, &read);
		while (had < wanted && ef < ENGINE_MAX_EF && !scan_graph_is_dearer(ef * 2, index->rows))
		{
			uint32		before = ef;

			ef = Min(ef * 2, ENGINE_MAX_EF);
			had = ef;
			/*
			 * Over pages a search goes on, if it has the memory; a server
			 * begins anew.
			 */
			if (index->server || rows_visited(index, ef) > scan_walk_room())
				before = 0;
			price += graph_price(index, before, ef, &read);
		}
	}
	while (had < wanted)
	{
		uint32		next = scan_exact_room((uint64) room * 8);
		/* Rooms that do not grow any more are counted at once. */
		double		rounds = next > room ? 1 : ceil((wanted - had) / room);

		price += rounds * exact_price(index, room);
		had += rounds * room;
		room = next;
	}
	/* Each row's record in the index is read before it is given. */
	return price + wanted * (cpu_index_tuple_cost + CONFIRM_OPERATORS * cpu_operator_cost);
}

/*
 * What is to be taken off a price so that it compares with those of plans that
 * sort: what they are not charged for.
 */
static double
comparable_price(const PricedIndex *index, const RelOptInfo *rel, double price)
{
	double		row =
		(DETOAST_OPERATORS + DETOAST_KB_OPERATORS * index->vector_bytes / 1024) * cpu_operator_cost;

	if (!index->out_of_line)
		return price;
	return Max(price - rel->rows * row, price * LEAST_SHARE);
}

/*
 * Which share of the relation's rows that pass its filters the query wants, if
 * it says so and reads nothing else; else 0.
 *
 * An unknown LIMIT and a cursor have a share too, but that is the planner's
 * guess, and too large a one for nearest rows.
 */
static double
wanted_share(PlannerInfo *root, const RelOptInfo *rel)
{
	if (root->limit_tuples <= 0 || bms_membership(root->all_baserels) != BMS_SINGLETON)
		return 0;
	/*
	 * Of a partition or child table the query wants the share that it wants of
	 * the whole.
	 */
	if (rel->top_parent_relids != NULL)
		rel = find_base_rel(root, bms_singleton_member(rel->top_parent_relids));
	return Min(root->limit_tuples / Max(rel->rows, 1), 1);
}

/*
 * Price a scan.
 */
void
gpuanncostestimate(PlannerInfo *root, IndexPath *path, double loop_count, Cost *startup,
				   Cost *total, Selectivity *selectivity, double *correlation, double *pages)
{
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
		 * Costs alone do not keep it from being chosen when everything else is
		 * disabled.
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
	*startup = comparable_price(&index, path->indexinfo->rel, scan_price(&index, 1));
	*total = comparable_price(&index, path->indexinfo->rel, scan_price(&index, index.rows));
	share = wanted_share(root, path->indexinfo->rel);
	if (share > 0)
	{
		/*
		 * Index rows are wanted in the proportion in which they pass the
		 * filters.
		 */
		double		price = comparable_price(&index, path->indexinfo->rel,
										scan_price(&index, ceil(share * index.rows)));

		*total = *startup + (price - *startup) / share;
	}
}
