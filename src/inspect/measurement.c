/*
 * measurement.c
 *		Measure how many of the true nearest rows an index finds: for
 *		gpuann_recall and gpuann_tune.
 *
 * The queries are vectors of rows of the table itself, drawn from the index's
 * own pages; each is asked through an ordinary scan of this index exactly once,
 * and approximately as often as settings are compared, by the caller's
 * snapshot. The first answers of many queries are requested from the server in
 * one batch. The query's own row counts like any other, because among many
 * equal rows it is the first that a search misses. Rows are drawn by slot, so
 * equal ones as often as they are there. No expression of the index is
 * evaluated. Rows are read without row-level security policies, so if such
 * policies apply to a user, that user must have the privilege to maintain the
 * index (sql_index.c). What is returned are figures, no rows.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "inspect/measurement.h"
#include "page/pending.h"

#define SPARE_SAMPLES	100		/* drawn more, and twice as many: some rows are not visible */
#define BATCH_SAMPLES	128		/* asked about at once */

/* ---- samples ---- */

/*
 * Reservoir sampling of the live slots of one node page: each slot seen so far
 * is in the reservoir with equal probability.
 */
static void
draw_page(Measurement *measurement, uint32 first, uint32 end, BufferAccessStrategy strategy,
		  pg_prng_state *random, Sample *samples, uint32 room, uint64 *met)
{
	Buffer		buffer = read_page_in_bulk(measurement->near.index,
									   node_block(measurement->near.format, first), PAGE_NODE,
									   BUFFER_LOCK_SHARE, true, strategy);
	Page		page = BufferGetPage(buffer);

	for (uint32 slot = first; slot < end && !PageIsNew(page); slot++)
	{
		const NodeRecord *node = node_record(measurement->near.format, page, slot);
		uint64		place;

		if (NodeState(node) != NODE_LIVE)
			continue;
		place = *met < room ? *met : pg_prng_uint64_range(random, 0, *met);
		(*met)++;
		if (place < room)
			samples[place] = (Sample) {.slot = slot, .tid = node->tid};
	}
	UnlockReleaseBuffer(buffer);
}

/* Draw at most room live slots at random, in random order; returns how many. */
static uint32
draw_samples(Measurement *measurement, Sample *samples, uint32 room)
{
	const IndexFormat *format = measurement->near.format;
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	pg_prng_state *random = &pg_global_prng_state;
	MetaPage	meta;
	PendingBounds bounds;
	uint64		met = 0;
	uint32		count;

	pending_bounds(measurement->near.index, format, &meta, &bounds);
	for (uint32 slot = 0, end; slot < bounds.next_fresh; slot = end)
	{
		uint64		superblock_end =
			((uint64) slot_superblock(format, slot) + 1) * format->superblock_slots;

		CHECK_FOR_INTERRUPTS();
		end = Min(Min(superblock_end, (uint64) slot + format->nodes_per_page), bounds.next_fresh);
		draw_page(measurement, slot, end, strategy, random, samples, room, &met);
	}
	measurement->live_rows = met;
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

/* Milliseconds since a moment. */
static double
ms_since(instr_time start)
{
	instr_time	time;

	INSTR_TIME_SET_CURRENT(time);
	INSTR_TIME_SUBTRACT(time, start);
	return INSTR_TIME_GET_MILLISEC(time);
}

/*
 * Ask for the k nearest visible rows of a sample; what a server has said
 * already is in first. An exact answer is noted with the sample. Of another
 * those rows count that are no farther than the last of the exact ones, so
 * equally distant rows may stand for each other; none where that is empty: a
 * damaged index misses the query's own row even exactly.
 */
static void
ask_about(Measurement *measurement, Sample *sample, Datum query, bool exact, FirstAnswer *first,
		  AnswerSums *sums)
{
	GpuannScan *scan = measurement->near.scan->opaque;
	ScanKeyData key;
	ScanRow		row;
	instr_time	start;
	uint32		count = 0;
	uint32		hits = 0;

	CHECK_FOR_INTERRUPTS();
	ScanKeyEntryInitialize(&key, SK_ORDER_BY, 1, GPUANN_STRATEGY_DISTANCE, InvalidOid, InvalidOid,
						   index_getprocid(measurement->near.index, 1, GPUANN_DISTANCE_PROC),
						   query);
	INSTR_TIME_SET_CURRENT(start);
	index_rescan(measurement->near.scan, NULL, 0, &key, 1);
	scan->first = first;
	while (count < measurement->k && scan_next_row(measurement->near.scan, &row))
	{
		measurement->near.scan->xs_heaptid = row.tid;
		if (!index_fetch_heap(measurement->near.scan, measurement->near.row))
			continue;
		count++;
		if (exact)
			sample->farthest = row.distance;
		else if (sample->nearest > 0 && row.distance <= sample->farthest)
			hits++;
	}
	scan->first = NULL;
	sums->ms += ms_since(start);
	ExecClearTuple(measurement->near.row);
	if (exact)
		sample->nearest = count;
	sums->asked++;
	sums->hits += hits;
	sums->wanted += sample->nearest;
	sums->least = Min(sums->least, (double) hits / Max(sample->nearest, 1));
	sums->visited += scan->stats.visited;
	sums->by_server += scan->stats.tally.server;
}

/* Ask about some samples, whose first answers the server gives in one batch. */
static void
ask_batch(Measurement *measurement, Sample *samples, uint32 count, bool exact, AnswerSums *sums)
{
	MemoryContext old = MemoryContextSwitchTo(measurement->query_memory);
	Size		bytes = measurement->near.format->vector_bytes;
	char	   *vectors = palloc_extended(mul_size(count, bytes), MCXT_ALLOC_HUGE);
	FirstAnswer *first = palloc0(sizeof(FirstAnswer) * count);
	instr_time	start;

	for (uint32 i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		read_vector(measurement->near.index, measurement->near.format, samples[i].slot,
					vectors + i * bytes);
	}
	INSTR_TIME_SET_CURRENT(start);
	scan_batch_ask(measurement->near.index, vectors, count, exact ? METHOD_EXACT : METHOD_GRAPH,
				   first);
	sums->ms += ms_since(start);
	for (uint32 i = 0; i < count; i++)
	{
		Datum		query = near_rows_value(&measurement->near, vectors + i * bytes);

		ask_about(measurement, &samples[i], query, exact, &first[i], sums);
		pfree(DatumGetPointer(query));
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(measurement->query_memory);
}

/* Ask about all samples. */
static void
ask_all(Measurement *measurement, bool exact, AnswerSums *sums)
{
	*sums = (AnswerSums) {.least = 1};
	near_rows_set("gpuann.exact", exact ? "on" : "off");
	near_rows_set("gpuann.max_scan_tuples", exact ? "-1" : measurement->max_scan_tuples);
	for (uint32 i = 0; i < measurement->count; i += BATCH_SAMPLES)
		ask_batch(measurement, measurement->samples + i,
				  Min(measurement->count - i, BATCH_SAMPLES), exact, sums);
}

void
measurement_ask(Measurement *measurement, AnswerSums *sums)
{
	ask_all(measurement, false, sums);
}

/* ---- begin and end ---- */

uint32
measurement_argument(const char *name, int32 value, int32 most)
{
	if (value < 1 || value > most)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be between 1 and %d", name, most)));
	return (uint32) value;
}

/* Draw samples: this many visible rows, or as many as there are. */
static void
take_samples(Measurement *measurement, uint32 wanted)
{
	uint32		room = wanted * 2 + SPARE_SAMPLES;
	uint32		drawn;

	measurement->samples = palloc(sizeof(Sample) * room);
	drawn = draw_samples(measurement, measurement->samples, room);
	for (uint32 i = 0; i < drawn && measurement->count < wanted; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (near_rows_visible(&measurement->near, measurement->samples[i].slot,
							  &measurement->samples[i].tid))
			measurement->samples[measurement->count++] = measurement->samples[i];
	}
}

void
measurement_open(Oid index, uint32 k, Measurement *measurement)
{
	memset(measurement, 0, sizeof(*measurement));
	measurement->k = k;
	near_rows_open(&measurement->near, index, SQL_INDEX_READ);
}

void
measurement_begin(Measurement *measurement, uint32 samples)
{
	measurement->max_scan_tuples =
		pstrdup(GetConfigOption("gpuann.max_scan_tuples", false, false));
	measurement->query_memory = AllocSetContextCreate(CurrentMemoryContext, "gpuann recall queries",
													  ALLOCSET_DEFAULT_SIZES);
	take_samples(measurement, samples);
	ask_all(measurement, true, &measurement->exact);
}

void
measurement_end(Measurement *measurement)
{
	near_rows_close(&measurement->near);
}
