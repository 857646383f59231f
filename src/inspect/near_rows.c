/*
 * near_rows.c
 *		The nearest visible rows of many vectors, by one index.
 *
 * Each vector has an ordinary scan of the index, so an answer has what a query
 * with ORDER BY and LIMIT would have; the server gives the first answers of
 * many in one batch, which is what is gained. Without a server, scans ask the
 * pages. No expression of the index is evaluated.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "utils/float.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "inspect/near_rows.h"

#define MAX_BATCH	1024

void
near_rows_set(const char *setting, const char *value)
{
	(void) set_config_option(setting, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
}

void
near_rows_open(NearRows *near, Oid index, SqlIndexUse use)
{
	memset(near, 0, sizeof(*near));
	sql_index_open(index, AccessShareLock, use, &near->opened);
	near->index = near->opened.index;
	near->format = index_format(near->index);
	near->type = gpuann_type_info(near->index);
	near->snapshot = RegisterSnapshot(GetActiveSnapshot());
	sql_index_require_usable(&near->opened, near->snapshot);
#if PG_VERSION_NUM >= 180000
	near->scan = index_beginscan(near->opened.heap, near->index, near->snapshot, NULL, 0, 1);
#else
	near->scan = index_beginscan(near->opened.heap, near->index, near->snapshot, 0, 1);
#endif
	near->row = table_slot_create(near->opened.heap, NULL);
}

/*
 * What the settings say of a scan whose caller gathers rows and sorts them, as
 * for a LIMIT (plan/node.c).
 */
static ScanKind
kind_as_set(void)
{
	if (gpuann_exact)
		return SCAN_EXACT;
	if (gpuann_iterative_scan == GPUANN_ITERATIVE_OFF)
		return SCAN_FIRST;
	return gpuann_iterative_scan == GPUANN_ITERATIVE_STRICT ? SCAN_ORDERED : SCAN_GATHER;
}

/* The function of the index's operator, which gives the distances of SQL. */
static Oid
distance_function(Relation index)
{
	Oid			type = index->rd_opcintype[0];

	return get_opcode(
		get_opfamily_member(index->rd_opfamily[0], type, type, GPUANN_STRATEGY_DISTANCE));
}

void
near_rows_want(NearRows *near, uint32 wanted)
{
	bool		lists = format_has_lists(near->format);
	uint32		ef = (uint32) gpuann_effective_ef_search(near->index, lists);

	/* As broad as a LIMIT has it; also what the server is asked in a batch. */
	if (ef < wanted)
		near_rows_set("gpuann.ef_search",
					  psprintf("%u", Min(wanted, GPUANN_MAX_EF_SEARCH)));
	near->wanted = wanted;
	near->kind = kind_as_set();
	fmgr_info(distance_function(near->index), &near->distance);
}

void
near_rows_close(NearRows *near)
{
	ExecDropSingleTupleTableSlot(near->row);
	index_endscan(near->scan);
	UnregisterSnapshot(near->snapshot);
	sql_index_close(&near->opened);
}

uint32
near_rows_batch(const NearRows *near)
{
	bool		lists = format_has_lists(near->format);
	uint32		results = near->kind == SCAN_EXACT
		? scan_exact_room(EXACT_FIRST_ROOM)
		: (uint32) gpuann_effective_ef_search(near->index, lists);
	Size		each = near->format->vector_bytes + sizeof(FirstAnswer) + sizeof(ServerAnswer) +
		results * sizeof(SearchResult);

	return (uint32) Max(Min((Size) work_mem * 1024 / 2 / each, MAX_BATCH), 1);
}

bool
near_rows_visible(NearRows *near, uint32 slot, ItemPointer tid)
{
	IndexFetchTableData *fetch = table_index_fetch_begin(near->opened.heap);
	bool		again = false;
	bool		all_dead = false;
	bool		visible;

	check_row_place(near->index, near->opened.heap, &near->heap_blocks,
					node_block(near->format, slot), tid);
	visible = table_index_fetch_tuple(fetch, tid, near->snapshot, near->row, &again, &all_dead);
	if (visible)
		*tid = near->row->tts_tid;
	ExecClearTuple(near->row);
	table_index_fetch_end(fetch);
	return visible;
}

Datum
near_rows_value(const NearRows *near, const void *elements)
{
	void	   *value = palloc0(gpuann_value_bytes(near->type, near->format->dims));

	memcpy(gpuann_value_begin(near->type, near->format->dims, value), elements,
		   near->format->vector_bytes);
	return PointerGetDatum(value);
}

void
near_rows_ask(const NearRows *near, const void *vectors, uint32 count, FirstAnswer *first)
{
	scan_batch_ask(near->index, vectors, count,
				   near->kind == SCAN_EXACT ? METHOD_EXACT : METHOD_GRAPH, first);
}

/*
 * Whether as many rows as wanted were found, and nothing that the current
 * answer is still to propose can have a smaller value than the last of them, or
 * the same one.
 */
static bool
found_enough(const NearRows *near, const GpuannScan *scan, const ScanRows *found)
{
	const OperatorBounds *bounds = &scan->bounds_of_value;
	double		distance;

	if (found->count < near->wanted)
		return false;
	return !scan_peek(scan, &distance) ||
		   !value_not_after(operator_least(bounds, distance),
							operator_most(bounds, found->rows[near->wanted - 1].distance));
}

/*
 * Take rows of the scan until there are enough. Rounds of the graph give rows
 * that rounds before have missed; where an exact pass follows, it gives all of
 * them anew (SCAN_GATHER).
 */
static void
find_rows(NearRows *near, GpuannScan *scan, ScanRows *found)
{
	bool		anew = near->kind == SCAN_GATHER;
	ScanRow		row;

	while (!found_enough(near, scan, found))
	{
		if (!scan_next_in_answer(near->scan, &row) &&
			(found->count >= near->wanted || !scan_next_row(near->scan, &row)))
			break;
		if (scan->stage == STAGE_EXACT && anew)
		{
			found->count = 0;
			anew = false;
		}
		near->scan->xs_heaptid = row.tid;
		if (!index_fetch_heap(near->scan, near->row))
			continue;
		row.tid = near->row->tts_tid;
		scan_rows_insert(scan, found, &row);
	}
	ExecClearTuple(near->row);
}

/* The order of answers: by value, then by slot. */
static int
compare_rows(const void *a, const void *b)
{
	const ScanRow *x = a;
	const ScanRow *y = b;

	int			order = float8_cmp_internal(x->value, y->value);

	return order != 0 ? order : x->slot < y->slot ? -1 : x->slot > y->slot;
}

const ScanRow *
near_rows_find(NearRows *near, Datum query, FirstAnswer *first, uint32 *count)
{
	GpuannScan *scan = near->scan->opaque;
	ScanRows	found = {0};
	ScanKeyData key;

	ScanKeyEntryInitializeWithInfo(&key, SK_ORDER_BY, 1, GPUANN_STRATEGY_DISTANCE, InvalidOid,
								   near->index->rd_indcollation[0], &near->distance, query);
	index_rescan(near->scan, NULL, 0, &key, 1);
	scan->wants = (ScanWants){
		.set = true, .kind = near->kind, .rows = near->wanted, .most_distance = INFINITY};
	scan->first = first;
	find_rows(near, scan, &found);
	scan->first = NULL;
	for (uint64 i = 0; i < found.count; i++)
		scan_row_value(near->scan, &found.rows[i]);
	if (found.count > 1)
		qsort(found.rows, found.count, sizeof(ScanRow), compare_rows);
	*count = (uint32) Min(found.count, near->wanted);
	return found.rows;
}
