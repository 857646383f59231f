/*
 * recall.c
 *		gpuann_recall(index, samples, k, ef): how many of the true nearest rows
 *		the index finds.
 *
 * The queries are vectors of rows of the table itself, drawn from the index's
 * own pages; each is asked through an ordinary scan of this index twice,
 * approximately and exactly, by the caller's snapshot. The first answers of
 * many queries are requested from the server in one batch. The query's own row
 * counts like any other, because among many equal rows it is the first that a
 * search misses. Rows are drawn by slot, so equal ones as often as they are
 * there. No expression of the index is evaluated. Rows are read without
 * row-level security policies, so if such policies apply to a user, that user
 * must have the privilege to maintain the index (sql_index.c). The function
 * returns figures, no rows.
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "common/pg_prng.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "base/signature.h"
#include "base/sql_row.h"
#include "inspect/near_rows.h"

#define MAX_SAMPLES		100000
#define MAX_K			ENGINE_MAX_EF
#define SPARE_SAMPLES	100		/* drawn more, and twice as many: some rows are not visible */
#define BATCH_SAMPLES	128		/* asked about at once */

/* A row drawn as a query. */
typedef struct Sample
{
	uint32		slot;
	ItemPointerData tid;
} Sample;

/* One answer: the distances of the k nearest. */
typedef struct Neighbours
{
	double	   *distances;
	uint32		count;
	uint64		visited;
	bool		server;
	double		ms;
} Neighbours;

/* Samples whose rows are visible, asked about together. */
typedef struct SampleBatch
{
	uint32		count;
	char	   *vectors;		/* one after another */
	FirstAnswer found[BATCH_SAMPLES];
	FirstAnswer exact[BATCH_SAMPLES];
	double		found_ms;		/* of the batch, for each of them */
	double		exact_ms;
} SampleBatch;

typedef struct Recall
{
	NearRows	near;
	uint32		k;
	const char *max_scan_tuples;	/* the caller's */
	MemoryContext query_memory;

	/* sums */
	uint32		asked;
	uint64		hits;
	uint64		wanted;
	double		least;			/* recall of the worst query */
	double		visited;
	double		ms;
	double		exact_ms;
	uint32		by_server;
} Recall;

/* ---- samples ---- */

/*
 * Reservoir sampling of the live slots of one node page: each slot seen so far
 * is in the reservoir with equal probability.
 */
static void
draw_page(Recall *recall, uint32 first, uint32 end, BufferAccessStrategy strategy,
		  pg_prng_state *random, Sample *samples, uint32 room, uint64 *met)
{
	Buffer		buffer = read_page_in_bulk(recall->near.index,
									   node_block(recall->near.format, first), PAGE_NODE,
									   BUFFER_LOCK_SHARE, true, strategy);
	Page		page = BufferGetPage(buffer);

	for (uint32 slot = first; slot < end && !PageIsNew(page); slot++)
	{
		const NodeRecord *node = node_record(recall->near.format, page, slot);
		uint64		place;

		if (NodeState(node) != NODE_LIVE)
			continue;
		place = *met < room ? *met : pg_prng_uint64_range(random, 0, *met);
		(*met)++;
		if (place < room)
			samples[place] = (Sample) {slot, node->tid};
	}
	UnlockReleaseBuffer(buffer);
}

/* Draw at most room live slots at random, in random order; returns how many. */
static uint32
draw_samples(Recall *recall, Sample *samples, uint32 room)
{
	const IndexFormat *format = recall->near.format;
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	pg_prng_state *random = &pg_global_prng_state;
	MetaPage	meta;
	PendingBounds bounds;
	uint64		met = 0;
	uint32		count;

	pending_bounds(recall->near.index, format, &meta, &bounds);
	for (uint32 slot = 0, end; slot < bounds.next_fresh; slot = end)
	{
		uint64		superblock_end =
			((uint64) slot_superblock(format, slot) + 1) * format->superblock_slots;

		CHECK_FOR_INTERRUPTS();
		end = Min(Min(superblock_end, (uint64) slot + format->nodes_per_page), bounds.next_fresh);
		draw_page(recall, slot, end, strategy, random, samples, room, &met);
	}
	count = Min(met, room);
	for (uint32 i = count; i > 1; i--)
	{
		uint32		j = pg_prng_uint64_range(random, 0, i - 1);
		Sample		sample = samples[i - 1];

		samples[i - 1] = samples[j];
		samples[j] = sample;
	}
	FreeAccessStrategy(strategy);
	return count;
}

/* ---- asking ---- */

/* Whether the following scans are to be exact. */
static void
set_exact(const Recall *recall, bool exact)
{
	near_rows_set("gpuann.exact", exact ? "on" : "off");
	near_rows_set("gpuann.max_scan_tuples", exact ? "-1" : recall->max_scan_tuples);
}

/* Milliseconds since a moment. */
static double
ms_since(instr_time start)
{
	instr_time	time;

	INSTR_TIME_SET_CURRENT(time);
	INSTR_TIME_SUBTRACT(time, start);
	return INSTR_TIME_GET_MILLISEC(time);
}

/* Have a server give the first answers of a batch; milliseconds for each. */
static double
ask_batch(Recall *recall, const SampleBatch *batch, bool exact, FirstAnswer *first)
{
	instr_time	start;

	set_exact(recall, exact);
	INSTR_TIME_SET_CURRENT(start);
	scan_batch_ask(recall->near.index, batch->vectors, batch->count,
				   exact ? METHOD_EXACT : METHOD_GRAPH, first);
	return ms_since(start) / batch->count;
}

/*
 * Ask for the k nearest visible rows; what a server has said already is in
 * first.
 */
static void
recall_ask(Recall *recall, Datum query, bool exact, FirstAnswer *first, Neighbours *found)
{
	GpuannScan *scan = recall->near.scan->opaque;
	ScanKeyData key;
	ScanRow		row;
	instr_time	start;

	set_exact(recall, exact);
	ScanKeyEntryInitialize(&key, SK_ORDER_BY, 1, GPUANN_STRATEGY_DISTANCE, InvalidOid, InvalidOid,
						   index_getprocid(recall->near.index, 1, GPUANN_DISTANCE_PROC), query);
	found->count = 0;
	INSTR_TIME_SET_CURRENT(start);
	index_rescan(recall->near.scan, NULL, 0, &key, 1);
	scan->first = first;
	while (found->count < recall->k && scan_next_row(recall->near.scan, &row))
	{
		recall->near.scan->xs_heaptid = row.tid;
		if (index_fetch_heap(recall->near.scan, recall->near.row))
			found->distances[found->count++] = row.distance;
	}
	scan->first = NULL;
	found->ms = ms_since(start);
	found->visited = scan->stats.visited;
	found->server = scan->stats.tally.server;
	ExecClearTuple(recall->near.row);
}

/*
 * Compare the approximate answer with the exact one: a row counts if it is no
 * farther than the last of the exact ones, so equally distant rows may stand
 * for each other.
 */
static void
recall_compare(Recall *recall, const Neighbours *found, const Neighbours *exact)
{
	uint32		hits = 0;

	/*
	 * count 0 only in a damaged index, which misses the query's own row even in
	 * an exact scan
	 */
	for (uint32 i = 0; i < found->count && exact->count > 0; i++)
		hits += found->distances[i] <= exact->distances[exact->count - 1];
	recall->asked++;
	recall->hits += hits;
	recall->wanted += exact->count;
	recall->least = Min(recall->least, (double) hits / Max(exact->count, 1));
	recall->visited += found->visited;
	recall->ms += found->ms;
	recall->exact_ms += exact->ms;
	recall->by_server += found->server;
}

/* Ask about one row of a batch. */
static void
ask_about(Recall *recall, SampleBatch *batch, uint32 i)
{
	const char *elements = batch->vectors + (Size) i * recall->near.format->vector_bytes;
	Neighbours	found,
				exact;
	Datum		query = near_rows_value(&recall->near, elements);

	CHECK_FOR_INTERRUPTS();
	found.distances = palloc(sizeof(double) * recall->k);
	exact.distances = palloc(sizeof(double) * recall->k);
	recall_ask(recall, query, false, &batch->found[i], &found);
	recall_ask(recall, query, true, &batch->exact[i], &exact);
	found.ms += batch->found_ms;
	exact.ms += batch->exact_ms;
	recall_compare(recall, &found, &exact);
	pfree(found.distances);
	pfree(exact.distances);
	pfree(DatumGetPointer(query));
}

/*
 * Search for the next visible rows of those drawn, at most this many; returns
 * where to continue.
 */
static uint32
ask_some(Recall *recall, Sample *drawn, uint32 count, uint32 from, uint32 most)
{
	MemoryContext old = MemoryContextSwitchTo(recall->query_memory);
	SampleBatch *batch = palloc0(sizeof(SampleBatch));

	batch->vectors = palloc_extended(mul_size(BATCH_SAMPLES, recall->near.format->vector_bytes),
									 MCXT_ALLOC_HUGE);
	for (; from < count && batch->count < Min(most, BATCH_SAMPLES); from++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!near_rows_visible(&recall->near, drawn[from].slot, &drawn[from].tid))
			continue;
		read_vector(recall->near.index, recall->near.format, drawn[from].slot,
					batch->vectors + (Size) batch->count * recall->near.format->vector_bytes);
		batch->count++;
	}
	if (batch->count > 0)
	{
		batch->found_ms = ask_batch(recall, batch, false, batch->found);
		batch->exact_ms = ask_batch(recall, batch, true, batch->exact);
	}
	for (uint32 i = 0; i < batch->count; i++)
		ask_about(recall, batch, i);
	MemoryContextSwitchTo(old);
	MemoryContextReset(recall->query_memory);
	return from;
}

/* Search for this many rows, or as many as there are. */
static void
ask_all(Recall *recall, uint32 samples)
{
	uint32		room = samples * 2 + SPARE_SAMPLES;
	Sample	   *drawn = palloc(sizeof(Sample) * room);
	uint32		count = draw_samples(recall, drawn, room);

	recall->query_memory = AllocSetContextCreate(CurrentMemoryContext, "gpuann recall queries",
												 ALLOCSET_DEFAULT_SIZES);
	for (uint32 next = 0; next < count && recall->asked < samples;)
		next = ask_some(recall, drawn, count, next, samples - recall->asked);
}

/* Whether an argument is between 1 and most. */
static uint32
recall_argument(const char *name, int32 value, int32 most)
{
	if (value < 1 || value > most)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be between 1 and %d", name, most)));
	return (uint32) value;
}

PG_FUNCTION_INFO_V1(gpuann_recall);

/* gpuann_recall(index, samples, k, ef): recall, and what it took. */
Datum
gpuann_recall(PG_FUNCTION_ARGS)
{
	Recall		recall = {.least = 1};
	SqlRow		row = {0};
	uint32		samples;
	bool		any;

	signature_check(fcinfo, "regclass,int4,int4,int4",
					"int4,float8,float8,float8,float8,float8,float8");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("index, samples and k must not be null")));
	samples = recall_argument("samples", PG_GETARG_INT32(1), MAX_SAMPLES);
	recall.k = recall_argument("k", PG_GETARG_INT32(2), MAX_K);

	near_rows_open(&recall.near, PG_GETARG_OID(0), SQL_INDEX_READ);
	if (!PG_ARGISNULL(3))
		near_rows_set("gpuann.ef_search",
				   psprintf("%u", recall_argument("ef", PG_GETARG_INT32(3), GPUANN_MAX_EF_SEARCH)));
	recall.max_scan_tuples = pstrdup(GetConfigOption("gpuann.max_scan_tuples", false, false));
	ask_all(&recall, samples);
	near_rows_close(&recall.near);

	any = recall.asked > 0;
	row_put(&row, Int32GetDatum((int32) recall.asked));
	row_put_if(&row, any, Float8GetDatum((double) recall.hits / Max(recall.wanted, 1)));
	row_put_if(&row, any, Float8GetDatum(recall.least));
	row_put_if(&row, any, Float8GetDatum(any ? recall.visited / recall.asked : 0));
	row_put_if(&row, any, Float8GetDatum(any ? recall.ms / recall.asked : 0));
	row_put_if(&row, any, Float8GetDatum(any ? recall.exact_ms / recall.asked : 0));
	row_put_if(&row, any, Float8GetDatum(any ? (double) recall.by_server / recall.asked : 0));
	return row_return(fcinfo, &row);
}
