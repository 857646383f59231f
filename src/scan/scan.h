/*
 * scan.h
 *		A scan: its rows (scan.c), its stages (scan_rounds.c) and where its
 *		answers come from (scan_source.c).
 */
#ifndef GPUANN_SCAN_H
#define GPUANN_SCAN_H

#include <math.h>

#include "client/client.h"
#include "page/buffer_hints.h"
#include "scan/operator_value.h"

#include "engine/filter.h"
#include "lib/pairingheap.h"
#include "scan/page_search.h"

#include "access/genam.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "portability/instr_time.h"

#define EXACT_FIRST_ROOM	1024	/* rows selected by the first exact round of an exact scan
									 * ... */
#define EXACT_NEXT_ROOM		16384	/* ... and after the graph; each further round takes eight
									 * times as many */
#define GRAPH_ROW_COST		60		/* distances of an exact search by the server that cost
									 * as much as one more of ef, ... */
#define PAGE_GRAPH_ROW_COST 25		/* ... and over pages */
#define JUDGE_ROW_COST		5		/* rows judged in heap order that cost as much as one
									 * judged in order of distance */
#define COLUMN_ROWS			200		/* rows whose columns are evaluated in the time of one more of
									 * ef over pages, ... */
#define SERVER_COLUMN_ROWS	100 	/* ... and by a server */
#define SENT_COLUMN_ROWS	3200	/* rows whose columns a server evaluates in four times the time
									 * of one more of ef */
#define CHOSEN_ROW_COST		24		/* columns evaluated in the time in which pages rank a row that
									 * they have let pass */
#define MOST_CHOSEN			0.5		/* a larger share is not worth being chosen from the start */
#define EXPECTED_WEIGHT		4		/* the share that the planner expects to pass weighs as much
									 * as this many rows that passed */
#define FIRST_EF_FACTOR		4		/* the first round of a caller that gathers rows is at most
									 * this many times as broad as without the filter, because
									 * the planner's estimate may be wrong */
#define VISITED_ROOM		1024	/* rows of a round of STAGE_VISITED */
#define WALK_ROW_BYTES		128		/* memory of a walk over pages, per row visited */

/* Rows of an exact round: what half of work_mem holds, at most. */
static inline uint32
scan_exact_room(uint64 wanted)
{
	uint64		most = Max((uint64) work_mem * 1024 / 2 / sizeof(SearchResult), EXACT_FIRST_ROOM);

	return (uint32) Min(Min(wanted, most), ENGINE_MAX_SLOTS);
}

/*
 * Rows of an exact round for a caller that looks for this many: a few more,
 * because a further round would compare all rows again.
 */
static inline uint32
scan_room_for(double needed)
{
	return scan_exact_room((uint64) Min(Max(needed * 5 / 4, EXACT_FIRST_ROOM), ENGINE_MAX_SLOTS));
}

/* Rows of a range of STAGE_RANGE: what a quarter of work_mem holds. */
static inline uint32
scan_range_room(void)
{
	return (uint32) Min((uint64) work_mem * 1024 / 4 / sizeof(SearchResult), ENGINE_MAX_SLOTS);
}

/* Rows that a walk over pages may visit: what half of work_mem holds. */
static inline uint64
scan_walk_room(void)
{
	return (uint64) work_mem * 1024 / 2 / WALK_ROW_BYTES;
}

/*
 * Whether searching the graph, or lists, with this breadth costs more than
 * comparing every row; or, where a filter lets so few rows pass that the next
 * round is to be several times as broad, so much that judging every row in heap
 * order costs less than the risk that it fails too. `walk`: it is a graph over
 * pages, and there is no such leap.
 */
static inline bool
scan_graph_is_dearer(uint32 ef, double rows, bool walk)
{
	return (double) ef * (walk ? PAGE_GRAPH_ROW_COST : GRAPH_ROW_COST) > rows;
}

/*
 * Whether a round is to be more than twice as broad as the one before; 0: it is
 * the first.
 */
static inline bool
scan_is_leap(double before, double ef)
{
	return before > 0 && ef > 2 * before;
}

/*
 * Whether an index has so few of its table's rows (it is partial, or the column
 * is mostly NULL) that reading the table costs more than fetching them.
 */
static inline bool
scan_is_small_part(double rows, double table_rows)
{
	return rows * JUDGE_ROW_COST < table_rows;
}

/*
 * Whether evaluating the columns of all rows, and ranking the share that they
 * let pass, costs less than a graph search of this breadth.
 */
static inline bool
scan_columns_are_cheaper(double ef, double rows, double share, bool server)
{
	return ef * (server ? SERVER_COLUMN_ROWS : COLUMN_ROWS) > rows * (1 + share * CHOSEN_ROW_COST);
}

/*
 * Whether the first round is to be searched without the columns' program though
 * it could be sent: it is as broad as without a filter, or so narrow that its
 * price is little beside that of evaluating the columns of all rows.
 */
static inline bool
scan_sends_late(double needed, double as_set, double rows)
{
	return needed <= as_set || needed * SENT_COLUMN_ROWS <= rows;
}

/*
 * How many rows a caller that gathers rows looks for, of which a share passes:
 * one standard deviation more than it takes on average, so one time in six they
 * are too few.
 */
static inline double
scan_rows_needed(double wanted, double share)
{
	return (wanted + sqrt(wanted * (1 - share))) / share;
}

/*
 * The breadth of the first graph round of a caller that gathers rows: it may be
 * less than is set.
 */
static inline uint32
scan_first_ef(double wanted, double needed, double as_set)
{
	double		most = Max(wanted, as_set) * FIRST_EF_FACTOR;

	return (uint32) Min(Max(wanted, Min(needed, most)), ENGINE_MAX_EF);
}

/*
 * The share that passes, by the rows judged and by what was expected, which
 * weighs more while few rows were judged.
 */
static inline double
scan_share_seen(double passed, double judged, double expected)
{
	return (passed + EXPECTED_WEIGHT) / (judged + EXPECTED_WEIGHT / expected);
}

/*
 * Whether a scan that may visit this many rows (gpuann.max_scan_tuples) may not
 * visit all rows of an index. Some of its slots may hold rows that are dead by
 * now.
 */
static inline bool
scan_is_limited(const PendingBounds *bounds, int max_visited)
{
	return max_visited != GPUANN_UNSET &&
		   bounds->next_fresh - Min(bounds->free_count, bounds->next_fresh) > (uint32) max_visited;
}

/*
 * How a scan treats rows that the graph finds too late to be returned in order,
 * and what follows its rounds (architecture.md, I4).
 */
typedef enum ScanKind
{
	SCAN_ORDERED,				/* dropped and counted; then exactly, beyond the last */
	SCAN_AS_FOUND,				/* returned as found; then exactly, what was not returned */
	SCAN_GATHER,				/* returned as found, because the caller gathers rows and sorts
								 * them; then exactly, every row from the nearest on */
	SCAN_FIRST,					/* the first answer, nothing more */
	SCAN_EXACT					/* exactly from the start */
} ScanKind;

/* A row that a scan proposes and its node record confirms. */
typedef struct ScanRow
{
	double		distance;
	double		value;			/* the operator's, if valued */
	bool		valued;
	uint32		slot;
	ItemPointerData tid;
} ScanRow;

/*
 * A caller's filter that may be evaluated for all rows of the table before any
 * is ranked: whether the one in the slot passes. NULL: there is none.
 */
typedef struct ScanFilter
{
	bool		(*passes) (void *caller);
	void	   *caller;
	Relation	table;
	TupleTableSlot *row;
} ScanFilter;

/*
 * A condition on columns that the index includes, as a part of the caller's
 * filter: what it excludes does not pass. NULL: there is none. It does not
 * stand for the filter, which all rows returned are still to be shown.
 */
typedef struct ColumnFilter
{
	const FilterProgram *program;
	bool		sent;			/* a server that answers gets it, and evaluates it, ... */
	bool		late;			/* ... but not with the first graph round */
	double		share;			/* of the rows that the planner expects it to let pass */
	uint64		wanted;			/* rows that pass the caller's filter, of a page; 0: unknown */
	bool		secret;			/* how many rows pass is not told to who asks */
} ColumnFilter;

/* What a caller wants of a scan, instead of what the settings say. */
typedef struct ScanWants
{
	bool		set;
	ScanKind	kind;
	uint32		ef;				/* breadth of the first graph round; 0: as set */
	uint64		rows;			/* rows that are likely to be asked for; 0: unknown, */
	bool		few;			/* ... but probably fewer than EXACT_FIRST_ROOM */
	double		most_distance;	/* farther rows are not wanted; only exact rounds over pages leave
								 * them out */
	ScanFilter	filter;
	ColumnFilter columns;
} ScanWants;

/* What a scan is doing. */
typedef enum ScanStage
{
	STAGE_GRAPH,				/* answers of the graph, broader from round to round */
	STAGE_VISITED,				/* ended by gpuann.max_scan_tuples: rows visited and not returned */
	STAGE_RANGE,				/* exactly, as many other rows as may still be visited, range by
								 * range of slots */
	STAGE_EXACT,				/* exactly: everything, or what is beyond the graph's rows */
	STAGE_ANY,					/* no order: the query is NULL or has no direction */
	STAGE_DONE
} ScanStage;

/* Ordered answers, not yet checked against their node records. */
typedef struct ScanAnswer
{
	SearchResult *results;		/* palloc'd in the scan's memory */
	uint32		count;
	bool		more;			/* a further round may find more */
	uint32		end_slot;		/* exact over pages: as PageAnswer's */
	uint32		before;			/* exact over pages: as PageAnswer's; from the server: unknown, so
								 * PG_UINT32_MAX */
	bool		by_columns;		/* of rows that their columns let pass */
	bool		of_server;		/* from a mirror that had received, when it was asked: */
	uint64		changes;		/* changes of pages up to this, */
	uint64		position;		/* and list entries before this */
} ScanAnswer;

/* What gpuann_last_scan() tells. */
typedef struct LastScan
{
	bool		any;
	bool		exact;
	char		engine[16];		/* of the server, if it answered first */
	uint32		batch;			/* queries in that answer's batch */
	uint64		visited;		/* rows; those that a further search visits again count once */
	uint64		pending;
	uint32		ef;				/* of the last graph round */
	uint32		probes;			/* lists that it searched, if the index has lists */
	uint32		graph_rounds;
	uint32		exact_passes;
	uint64		heap_order;		/* rows judged in heap order; ... */
	bool		by_columns;		/* rows were chosen by columns, here or by the server: ... */
	uint64		chosen;			/* ... so many may pass; ... */
	bool		server_ranked;	/* ... the server has ranked them */
	bool		secret;			/* ColumnFilter's */
	uint64		queue_us;		/* at the server, before its engine began */
	uint64		engine_us;
	ScanTally	tally;
} LastScan;

/*
 * The server's first answer to a scan, requested in a batch with those of
 * others.
 */
typedef struct FirstAnswer
{
	bool		set;
	MirrorRef	mirror;
	ServerQuery query;			/* but for its vector */
	uint64		changes;		/* client_changes() as it was asked for */
	ServerAnswer answer;
} FirstAnswer;

/* Rows by distance. */
typedef struct ScanRows
{
	ScanRow    *rows;
	uint64		first;			/* rows before it have been taken */
	uint64		settled;		/* rows before it keep their places, whatever is inserted later */
	uint64		count;
	uint64		allocated;
} ScanRows;

/*
 * Rows being sorted by the operator's values; initially all zero but for its
 * source.
 */
typedef struct RowOrder
{
	/*
	 * The next row by distance; *following is a distance that no row after it
	 * is nearer than. False: there are no more.
	 */
	bool		(*next) (void *source, ScanRow *row, double *following);
	void	   *source;
	pairingheap *held;			/* until no smaller value can follow, the least first; NULL: there
								 * were none */
	double		least;			/* the least value that rows still to come can have */
	bool		drained;		/* no more rows come */
} RowOrder;

/* Slots that exact rounds are restricted to (passing.c). */
typedef struct PassingSlots PassingSlots;

typedef struct GpuannScan
{
	const IndexFormat *format;
	const GpuannTypeInfo *type;
	MemoryContext memory;		/* of the scan from one rescan to the next */
	bool		started;
	ScanStage	stage;
	ScanWants	wants;			/* set by a caller before the first row */
	ScanKind	kind;

	/* where answers come from */
	Snapshot	snapshot;		/* the executor's */
	OperatorBounds bounds_of_value; /* of the operator's value, for a distance */
	PageQuery	query;
	MetaPage	meta;
	bool		meta_read;		/* page searches need more of it than the nonce */
	PendingBounds bounds;			/* the list's begin is missing until then */
	MirrorRef	mirror;
	bool		ask_server;
	bool		answered;		/* there was a first answer */
	FirstAnswer *first;			/* requested in a batch, or NULL */

	/* the current answer, and what has been emitted */
	ScanAnswer	answer;
	uint32		next;			/* in answer.results */
	uint32		first_ef;		/* of the first graph round */
	uint32		ef;				/* of the last graph round; 0: there was none */
	uint32		least_ef;		/* of the next one, as far as a caller foresees */
	WalkRound	round;			/* this round */
	PageWalk	walk;			/* the graph rounds over pages */
	bool		walks;			/* graph rounds are over pages from here on, though a server may be
								 * asked */
	int			max_visited;	/* gpuann.max_scan_tuples as set when the scan began */
	PassingSlots *passing;		/* STAGE_EXACT: only these are ranked; NULL: all */
	bool		chosen;			/* by the columns, or that was tried */
	bool		judged;			/* they have passed the filter, in heap order */
	bool		compared_all;	/* an exact round has compared every row */
	uint32		range_next;		/* the first slot that no range of STAGE_RANGE has had */
	SlotSet    *emitted;		/* in STAGE_GRAPH and STAGE_VISITED */
	SearchBound last;			/* the farthest emitted in these */
	SearchBound cursor;			/* the last answer of an exact stage, or of STAGE_ANY */
	SearchBound round_cursor;	/* cursor before the exact round under way, */
	bool		round_first;	/* and whether that is the first of its stage */
	uint32		room;			/* of an exact round */
	RowOrder	order;			/* of a plain index scan */
	void	   *value;			/* what the operator is called on, ... */
	void	   *elements;		/* ... and where in it the elements of a row belong */
	uint32		value_slot;		/* whose they are; NO_SLOT: of none */
	BlockNumber heap_blocks;	/* of the table, as last asked */

	LastScan	stats;
} GpuannScan;

/*
 * Whether the server is sent the columns' program with queries, and so chooses,
 * itself and by how many rows pass, what it ranks.
 */
static inline bool
scan_sends_program(const GpuannScan *scan)
{
	return scan->ask_server && scan->wants.columns.sent && scan->passing == NULL;
}

/*
 * The next row; begins the scan if it has not begun. False: there are no more.
 */
extern bool scan_next_row(IndexScanDesc desc, ScanRow *row);

/*
 * The next row without a further round. False: none of the answer's results
 * that are left is a row that is there and was not returned before.
 */
extern bool scan_next_in_answer(IndexScanDesc desc, ScanRow *row);

/*
 * The least distance that rows after the last one may have, as far as that is
 * known without a further round. False: the answer has no more results.
 */
extern bool scan_peek(const GpuannScan *scan, double *distance);

/*
 * Insert a row by (distance, slot): in memory of the scan, from one rescan to
 * the next.
 */
extern void scan_rows_insert(GpuannScan *scan, ScanRows *rows, const ScanRow *row);

/*
 * Note how long it has taken since `begun` until a scan's first row was there,
 * or until it was known that there is none: for pg_stat_gpuann_latency.
 */
extern void scan_note_first_row(GpuannScan *scan, instr_time begun);

/* The next row in the order of the operator's values. */
extern bool scan_next_in_order(IndexScanDesc desc, RowOrder *order, ScanRow *row);

/*
 * Compute the operator's value of a row from the stored elements, if not done
 * yet.
 */
extern void scan_row_value(IndexScanDesc desc, ScanRow *row);

/*
 * Skip the rest of the current answer and further graph rounds: all further
 * rows are too far.
 */
extern void scan_end_answer(GpuannScan *scan);

/*
 * Error out if the table may have lost the row at desc->xs_heaptid, which an
 * old snapshot should see.
 */
extern void check_row_age(IndexScanDesc desc);

/*
 * Whether an exact round had better wait until all rows are judged: there is a
 * filter, and most rows are likely to be judged, or fewer passed than expected.
 */
extern bool scan_should_judge(const GpuannScan *scan);

/*
 * Judge the rows of the index in the order of the table; from here on exact
 * rounds rank those that passed. It does nothing where that cannot be.
 */
extern void scan_judge(GpuannScan *scan);

/*
 * Whether an exact round had better be restricted to what the columns let pass:
 * reading these costs less than ranking, or judging, rows that they exclude.
 */
extern bool scan_should_choose(const GpuannScan *scan);

/* The same of a graph round of this breadth. */
extern bool scan_choosing_is_cheaper(const GpuannScan *scan, double ef);

/* Have exact rounds rank only rows that the columns let pass, from here on. */
extern void scan_choose(GpuannScan *scan);

/* Whether the columns of a slot let its row pass; there is such a filter. */
extern bool scan_columns_pass(const GpuannScan *scan, uint32 slot);

/* The same of a row of the current answer, which may be known to pass. */
static inline bool
scan_slot_may_pass(const GpuannScan *scan, uint32 slot)
{
	return scan->passing != NULL || scan->answer.by_columns || scan_columns_pass(scan, slot);
}

/* Begin a set, empty; add a slot below bounds.next_fresh; how many it has. */
extern PassingSlots *passing_begin(GpuannScan *scan);
extern void passing_add(PassingSlots *passing, uint32 slot);
extern uint64 passing_count(const PassingSlots *passing);

/* The nearest of a range among the scan's set. */
extern void passing_rank(GpuannScan *scan, const ExactRange *range, PageAnswer *answer);

/*
 * The set that the server ranks in place of the pages, which it is sent when it
 * is first asked for. *set is NULL where it is empty, or the server does not
 * take it, for the reason returned: then the scan stays with the pages.
 */
extern FallbackReason passing_send(GpuannScan *scan, const SetName **set);

/* Keep those of some slots that are in the set; returns how many. */
extern uint32 passing_keep(GpuannScan *scan, uint32 *slots, uint32 count);

/* Forget the set, if there is one. */
extern void passing_end(GpuannScan *scan);

/* Get further answers. False: there are no more rows. */
extern bool scan_next_round(GpuannScan *scan);

/*
 * The answer is false: repeat the round over pages, from the row on that was
 * not confirmed.
 */
extern void scan_redo_round(GpuannScan *scan);

/* "exact", "server" or "pages". */
static inline const char *
last_scan_path(const LastScan *stats)
{
	return stats->exact ? "exact" : stats->tally.server ? "server" : "pages";
}

/* Whether how many rows were compared tells how many are chosen, a secret. */
static inline bool
last_scan_hides_rows(const LastScan *stats)
{
	return stats->by_columns && stats->secret;
}

/* Where a scan's figures go: a line for a person, or properties of a node. */
typedef struct ScanReport
{
	struct ExplainState *es;	/* NULL: */
	StringInfo	line;			/* each after a space */
} ScanReport;

extern void tell_text(const ScanReport *report, const char *word, const char *property,
					  const char *text);
extern void tell_number(const ScanReport *report, const char *word, const char *property,
						const char *unit, uint64 number);

/*
 * Ask for the graph round that was set up: the server if it is to be asked,
 * else pages.
 */
extern void source_by_graph(GpuannScan *scan, ScanAnswer *answer);

/*
 * Get a further part of the rows that the walk over pages has visited and the
 * scan has not emitted.
 */
extern void source_by_visited(GpuannScan *scan, ScanAnswer *answer);

/* Search a range exactly. If it limits the rows compared, pages answer. */
extern void source_exactly(GpuannScan *scan, const ExactRange *range, ScanAnswer *answer);

/*
 * Request the first answers of `count` scans, whose vectors are stored one
 * after another, in batches from the server. A caller that begins such a scan
 * sets its `first`; without an answer the scan asks by itself.
 */
extern void scan_batch_ask(Relation index, const void *vectors, uint32 count, SearchMethod method,
						   FirstAnswer *first);

/*
 * Request the first answers of scans of several indexes, none of which has
 * begun, in one batch from the server: of those that begin with a graph round
 * like the first one's. An answer's results are in memory of its scan.
 */
extern void scan_batch_ask_several(IndexScanDesc *scans, uint32 count, FirstAnswer **first);

/*
 * What the first round of a scan that has not begun asks for, if it is a graph
 * round. Memory is palloc'd.
 */
extern bool scan_first_query(IndexScanDesc desc, ServerQuery *query);

/* Read the metapage, unless that was done: before pages are searched. */
extern void scan_read_meta(GpuannScan *scan);

/*
 * The nearest rows of the list entries [from, end), exactly, without those
 * after a bound: what a mirror that covers `from` has not seen. False: those
 * are more than a session keeps.
 */
extern bool scan_unmirrored_search(GpuannScan *scan, uint64 from, const SearchBound *until,
								   PageAnswer *answer);

/* Find out whether the server is to be asked. */
extern void source_begin(GpuannScan *scan);

/*
 * If the index has lists, make a query of the graph stage one of lists; *lists:
 * how many there are.
 */
extern void source_plan_query(Relation index, const IndexFormat *format, ServerQuery *query,
							  uint32 *lists);

/* Take the page path from here on. */
extern void source_leave_server(GpuannScan *scan, FallbackReason why);

/*
 * Errors out if a row that the node page at block names cannot be in the table.
 * heap_blocks: its length as last asked, 0 at first.
 */
extern void check_row_place(Relation index, Relation heap, BlockNumber *heap_blocks,
							BlockNumber block, const ItemPointerData *tid);

#endif							/* GPUANN_SCAN_H */
