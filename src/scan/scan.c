/*
 * scan.c
 *		Index scans: rows in order of distance, as many as the executor wants.
 *
 * Which answers it asks for is in scan_rounds.c. Every answer is only a
 * proposal: a row is emitted after its node record has been read, as of one
 * moment, and found live and of the same version (architecture.md, I2).
 */
#include "base/handler.h"

#include "access/relscan.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "scan/scan.h"
#include "base/signature.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* What the page says about a result. */
typedef enum AnswerVerdict
{
	ANSWER_GOOD,				/* the row is there */
	ANSWER_STALE,				/* it was until recently */
	ANSWER_REUSED,				/* its slot has another row: false unless that came since */
	ANSWER_FALSE				/* the server's mirror had been updated otherwise */
} AnswerVerdict;

static LastScan last_scan;

static bool next_by_distance(void *source, ScanRow *row, double *following);

/*
 * Begin a scan.
 */
IndexScanDesc
gpuannbeginscan(Relation index, int nkeys, int norderbys)
{
	IndexScanDesc desc = RelationGetIndexScan(index, nkeys, norderbys);
	GpuannScan *scan = palloc0(sizeof(GpuannScan));

	scan->type = gpuann_type_info(index);
	scan->memory =
		AllocSetContextCreate(CurrentMemoryContext, "gpuann scan", ALLOCSET_DEFAULT_SIZES);
	desc->opaque = scan;
	return desc;
}

/*
 * A scan is over, or begins again: count it.
 */
static void
scan_finish(GpuannScan *scan)
{
	if (!scan->started)
		return;
	passing_end(scan);
	client_count_scan(scan->mirror, &scan->stats.tally);
	last_scan = scan->stats;
	scan->started = false;
}

/*
 * Begin (again), with other keys.
 */
void
gpuannrescan(IndexScanDesc desc, ScanKey keys, int nkeys, ScanKey orderbys, int norderbys)
{
	GpuannScan *scan = desc->opaque;

	scan_finish(scan);
	MemoryContextReset(scan->memory);
	memset(&scan->answer, 0, sizeof(scan->answer));
	scan->next = 0;
	scan->answered = false;
	if (keys != NULL && desc->numberOfKeys > 0)
		memmove(desc->keyData, keys, desc->numberOfKeys * sizeof(ScanKeyData));
	if (orderbys != NULL && desc->numberOfOrderBys > 0)
		memmove(desc->orderByData, orderbys, desc->numberOfOrderBys * sizeof(ScanKeyData));
}

/*
 * End a scan.
 */
void
gpuannendscan(IndexScanDesc desc)
{
	GpuannScan *scan = desc->opaque;

	scan_finish(scan);
	MemoryContextDelete(scan->memory);
	pfree(scan);
	desc->opaque = NULL;
}

/*
 * The query's elements; NULL if it has none, or (cosine) no direction.
 */
static void *
query_elements(GpuannScan *scan, const ScanKeyData *key)
{
	Pointer		value;
	void	   *elements;

	if (key->sk_flags & SK_ISNULL)
		return NULL;
	value = (Pointer) PG_DETOAST_DATUM(key->sk_argument);
	gpuann_check_query_dims(scan->type, scan->format->dims, value);
	if (scan->type->metric == METRIC_COSINE &&
		gpuann_all_zero(scan->type, scan->format->dims, scan->type->elements(value)))
		return NULL;
	/* A copy: the key belongs to the executor, and later rounds need it too. */
	elements = palloc(scan->format->vector_bytes);
	memcpy(elements, scan->type->elements(value), scan->format->vector_bytes);
	return elements;
}

/*
 * What the settings say of a scan whose caller does not gather rows: complete
 * means the same as strict_order there.
 */
static ScanKind
kind_as_set(void)
{
	if (gpuann_exact)
		return SCAN_EXACT;
	switch ((GpuannIterativeScan) gpuann_iterative_scan)
	{
		case GPUANN_ITERATIVE_RELAXED:
			return SCAN_AS_FOUND;
		case GPUANN_ITERATIVE_OFF:
			return SCAN_FIRST;
		default:
			return SCAN_ORDERED;
	}
}

/*
 * The breadth of the first graph round.
 */
static uint32
first_ef(Relation index, const ScanWants *wants)
{
	return Max((uint32) gpuann_effective_ef_search(index,
												   format_has_lists(index_format(index))),
			   wants->ef);
}

/*
 * What the first round of a scan that has not begun asks for, if it is a graph
 * round.
 */
bool
scan_first_query(IndexScanDesc desc, ServerQuery *query)
{
	GpuannScan *scan = desc->opaque;
	ScanKind	kind = scan->wants.set ? scan->wants.kind : kind_as_set();
	double		rows = desc->indexRelation->rd_rel->reltuples;
	uint32		lists;

	scan->format = index_format(desc->indexRelation);
	*query = (ServerQuery){.vector = query_elements(scan, &desc->orderByData[0]),
						   .vector_bytes = scan->format->vector_bytes,
						   .method = METHOD_GRAPH};
	if (scan->wants.columns.sent && !scan->wants.columns.late)
		query->program = scan->wants.columns.program;
	query->k = query->ef = first_ef(desc->indexRelation, &scan->wants);
	/* As graph_round() does, but with the catalog's number of rows. */
	if (scan->wants.ef == query->ef &&
		(scan_graph_is_dearer(query->ef, rows, false) ||
		 (scan->wants.columns.program != NULL && !scan->wants.columns.sent &&
		  scan_columns_are_cheaper((double) scan->wants.rows, rows, scan->wants.columns.share,
								   true))))
		return false;
	source_plan_query(desc->indexRelation, scan->format, query, &lists);
	return query->vector != NULL && kind != SCAN_EXACT;
}

/*
 * Rows selected by the first exact round.
 */
static uint32
first_room(const GpuannScan *scan)
{
	if (scan->wants.rows > 0)
		return scan_room_for((double) scan->wants.rows);
	return scan_exact_room(scan->kind == SCAN_EXACT && (scan->wants.few || !scan->wants.set)
							   ? EXACT_FIRST_ROOM
							   : EXACT_NEXT_ROOM);
}

/*
 * Reset the scan's state and capture its query and the index's bounds, in this
 * order: the snapshot, then the bounds.
 */
static void
scan_start(IndexScanDesc desc)
{
	GpuannScan *scan = desc->opaque;
	Relation	index = desc->indexRelation;
	ScanKind	kind = scan->wants.set ? scan->wants.kind : kind_as_set();
	MemoryContext old;

	/*
	 * Without a pin on what we return, only a snapshot keeps TIDs from meaning
	 * another row.
	 */
	if (!IsMVCCSnapshot(desc->xs_snapshot))
		elog(ERROR, "non-MVCC snapshots are not supported with gpuann");
	if (desc->numberOfOrderBys != 1)
		elog(ERROR, "cannot scan gpuann index without order");

	pgstat_count_index_scan(index);
#if PG_VERSION_NUM >= 180000
	if (desc->instrument)
		desc->instrument->nsearches++;
#endif

	old = MemoryContextSwitchTo(scan->memory);
	*scan = (GpuannScan) {
		.format = index_format(index),
		.type = scan->type,
		.memory = scan->memory,
		.wants = scan->wants,
		.kind = kind,
		.snapshot = desc->xs_snapshot,
		.mirror.entry = -1,
		.first = scan->first,
		.order = {.next = next_by_distance, .source = desc},
		.value_slot = NO_SLOT,
		.first_ef = first_ef(index, &scan->wants),
		.max_visited = kind == SCAN_EXACT ? GPUANN_UNSET : gpuann_max_scan_tuples,
		.heap_blocks = scan->heap_blocks,
		.stats = {.any = true, .secret = scan->wants.columns.secret},
	};
	scan->query = (PageQuery) {
		.index = index,
		.format = scan->format,
		.vector = query_elements(scan, &desc->orderByData[0]),
		.meta = &scan->meta,
		.bounds = &scan->bounds,
		.memory = scan->memory,
	};
	pending_end(index, scan->format, &scan->bounds);
	scan->meta.nonce = index_cached_nonce(index);
	if (scan->meta.nonce == 0)
		scan_read_meta(scan);

	if (scan->query.vector == NULL)
	{
		scan->stage = STAGE_ANY;
		scan->cursor.slot = NO_SLOT;
	}
	else
	{
		scan->stage = scan->kind == SCAN_EXACT ? STAGE_EXACT : STAGE_GRAPH;
		scan->stats.exact = scan->kind == SCAN_EXACT;
		scan->emitted = scan->kind == SCAN_EXACT ? NULL : slot_set_create(scan->memory);
		operator_bounds_set(&scan->bounds_of_value, scan->type, scan->format->dims,
							scan->query.vector, scan->bounds.least_norm, scan->bounds.most_norm);
		source_begin(scan);
	}
	scan->room = first_room(scan);
	scan->started = true;
	MemoryContextSwitchTo(old);
}

/*
 * Get further answers, and update gpuann_last_scan(). False: there are no more
 * rows.
 */
static bool
next_round(GpuannScan *scan)
{
	bool		more = scan_next_round(scan);

	last_scan = scan->stats;
	return more;
}

/*
 * Whether this stage may find rows too late to be returned in order.
 */
static inline bool
comes_in_order(const GpuannScan *scan)
{
	return scan->stage == STAGE_GRAPH || scan->stage == STAGE_VISITED || scan->stage == STAGE_RANGE;
}

/*
 * Judge a result by the node record of its slot, whose page is locked.
 *
 * A mirror lags a little, so it may name a row that has died since: the row is
 * dropped, and nothing is missing. A result is false if it contradicts changes
 * that the mirror had received before the query was posted: it takes the place
 * of a row that should have been returned. Page changes up to answer.changes
 * had reached the mirror; a slot dies with such a change, and gets another row
 * with a pending entry. Linking changes pages too, so if the slot has another
 * live row, a changed page proves nothing: its entry must be newer.
 */
static AnswerVerdict
answer_verify(const GpuannScan *scan, const SearchResult *result, Page page, const NodeRecord *node)
{
	if (!PageIsNew(page) && NodeState(node) == NODE_LIVE && node->version == result->version)
		return ANSWER_GOOD;
	if (!scan->answer.of_server)
		return ANSWER_STALE;
	if (PageIsNew(page) || (int32) (result->version - node->version) > 0)
		return ANSWER_FALSE;
	if (NodeState(node) == NODE_LIVE)
		return ANSWER_REUSED;
	return PageTailOf(page)->change_seq > scan->answer.changes ? ANSWER_STALE : ANSWER_FALSE;
}

/*
 * Read the node record of a result under its page's lock.
 */
static AnswerVerdict
read_record(const GpuannScan *scan, const SearchResult *result, ItemPointer tid)
{
	BlockNumber block = node_block(scan->format, result->slot);
	Buffer		buffer = read_hinted_page(scan->query.index, block, PAGE_NODE, true);
	Page		page = BufferGetPage(buffer);
	const NodeRecord *node = node_record(scan->format, page, result->slot);
	AnswerVerdict verdict = answer_verify(scan, result, page, node);

	if (verdict == ANSWER_GOOD)
		*tid = node->tid;
	UnlockReleaseBuffer(buffer);
	/* A row that is dropped here may have been there for the snapshot. */
	if (verdict != ANSWER_GOOD)
		check_snapshot_age(scan->query.index, scan->snapshot);
	if (verdict == ANSWER_GOOD && !ItemPointerIsValid(tid))
		report_corrupt(scan->query.index, block, "a live slot has no row");
	return verdict;
}

/*
 * Whether an answer is to be emitted now, if its row is there.
 */
static bool
is_wanted(GpuannScan *scan, const SearchResult *result)
{
	ItemPointerData tid;

	if (scan->emitted != NULL && slot_set_has(scan->emitted, result->slot))
		return false;
	if (!comes_in_order(scan) || scan->kind == SCAN_AS_FOUND || scan->kind == SCAN_GATHER)
		return true;
	if (!scan->last.set || result->distance >= scan->last.distance)
		return true;
	/*
	 * Found too late: dropped, once. Of a row that is not there any more the
	 * slot may have another one by now, which is not too late.
	 */
	scan->stats.tally.dropped++;
	if (scan->stage != STAGE_RANGE && read_record(scan, result, &tid) == ANSWER_GOOD)
		slot_set_add(scan->emitted, result->slot);
	return false;
}

/*
 * Whether a slot is among the pending entries that the answer's mirror had not
 * seen; true as well if they can no longer be read.
 */
static bool
slot_came_since(const GpuannScan *scan, uint32 slot)
{
	Relation	index = scan->query.index;
	uint64		from = scan->answer.position;
	MetaPage	meta;
	PendingBounds now;
	uint32	   *slots;
	uint32		count;
	bool		found = false;

	pending_bounds(index, scan->format, &meta, &now);
	if (now.end <= from)
		return false;
	if (!pending_read(index, scan->format, &now, from, now.end, &slots, &count))
		return true;
	for (uint32 i = 0; i < count && !found; i++)
		found = slots[i] == slot;
	if (slots != NULL)
		pfree(slots);
	return found;
}

/*
 * The row of a result. False: it is dead, or another row. After a false result
 * the round is repeated over pages.
 */
static bool
scan_confirm(GpuannScan *scan, const SearchResult *result, ItemPointer tid)
{
	AnswerVerdict verdict = read_record(scan, result, tid);

	scan->stats.tally.proposed++;
	if (verdict == ANSWER_GOOD)
		return true;
	scan->stats.tally.dropped++;
	if (verdict == ANSWER_FALSE ||
		(verdict == ANSWER_REUSED && !slot_came_since(scan, result->slot)))
		scan_redo_round(scan);
	return false;
}

/*
 * Remember that an answer was emitted.
 */
static void
note_emitted(GpuannScan *scan, const SearchResult *result)
{
	/* Ranges have each slot once. */
	if (scan->stage == STAGE_GRAPH || scan->stage == STAGE_VISITED)
		slot_set_add(scan->emitted, result->slot);
	if (comes_in_order(scan) &&
		(!scan->last.set ||
		 engine_before(scan->last.distance, scan->last.slot, result->distance, result->slot)))
		scan->last = (SearchBound) {true, result->distance, result->slot};
}

bool
scan_next_in_answer(IndexScanDesc desc, ScanRow *row)
{
	GpuannScan *scan = desc->opaque;

	while (scan->next < scan->answer.count)
	{
		const SearchResult result = scan->answer.results[scan->next];

		/*
		 * There may be no other check between many rows that are not wanted,
		 * here or by the table.
		 */
		CHECK_FOR_INTERRUPTS();
		scan->next++;
		if (!is_wanted(scan, &result) || !scan_confirm(scan, &result, &row->tid))
			continue;
		check_row_place(desc->indexRelation, desc->heapRelation, &scan->heap_blocks,
						node_block(scan->format, result.slot), &row->tid);
		note_emitted(scan, &result);
		row->distance = result.distance;
		row->slot = result.slot;
		row->valued = false;
		return true;
	}
	return false;
}

bool
scan_next_row(IndexScanDesc desc, ScanRow *row)
{
	GpuannScan *scan = desc->opaque;

	if (!scan->started)
		scan_start(desc);
	do
	{
		if (scan_next_in_answer(desc, row))
			return true;
		CHECK_FOR_INTERRUPTS();
	} while (next_round(scan));
	return false;
}

/*
 * The distance of the answer's next result.
 */
bool
scan_peek(const GpuannScan *scan, double *distance)
{
	if (scan->next == scan->answer.count)
		return false;
	*distance = scan->answer.results[scan->next].distance;
	return true;
}

/*
 * Skip the rest of the answer and further graph rounds.
 */
void
scan_end_answer(GpuannScan *scan)
{
	scan->next = scan->answer.count;
	scan->answer.more = scan->answer.more && scan->stage != STAGE_GRAPH;
}

/*
 * The next row by distance.
 */
static bool
next_by_distance(void *source, ScanRow *row, double *following)
{
	IndexScanDesc desc = source;

	if (!scan_next_row(desc, row))
		return false;
	if (!scan_peek(desc->opaque, following))
		*following = row->distance;
	return true;
}

void
scan_note_first_row(GpuannScan *scan, instr_time begun)
{
	instr_time	time;

	if (!scan->started)
		return;
	INSTR_TIME_SET_CURRENT(time);
	INSTR_TIME_SUBTRACT(time, begun);
	scan->stats.tally.first_us = INSTR_TIME_GET_MICROSEC(time);
	scan->stats.tally.timed = true;
}

/*
 * The next row of a plain index scan.
 *
 * It is not left to the executor to put rows in the order of the operator's
 * values (xs_recheckorderby): a row that passes through the executor's queue
 * loses its TID, so FOR UPDATE and WHERE CURRENT OF would take another one.
 */
bool
gpuanngettuple(IndexScanDesc desc, ScanDirection direction)
{
	GpuannScan *scan = desc->opaque;
	ScanRow		row;
	bool		first = !scan->started;
	bool		found;
	instr_time	begun;

	Assert(ScanDirectionIsForward(direction));
	if (first)
	{
		INSTR_TIME_SET_CURRENT(begun);
		scan_start(desc);
	}
	else
		check_row_age(desc);
	found = scan->kind == SCAN_AS_FOUND ? scan_next_row(desc, &row)
										: scan_next_in_order(desc, &scan->order, &row);
	if (first)
		scan_note_first_row(scan, begun);
	if (!found)
		return false;
	desc->xs_heaptid = row.tid;
	desc->xs_recheck = false;
	desc->xs_recheckorderby = false;
	return true;
}

/*
 * What this backend's last scan did.
 */
PG_FUNCTION_INFO_V1(gpuann_last_scan);
Datum
gpuann_last_scan(PG_FUNCTION_ARGS)
{
	const ScanTally *tally = &last_scan.tally;
	TupleDesc	desc;
	Datum		values[8];
	bool		nulls[8];

	signature_check(fcinfo, "", "text,text,int8,int8,int8,int8,int4,text");
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	memset(nulls, !last_scan.any, sizeof(nulls));
	memset(values, 0, sizeof(values));
	if (last_scan.any)
	{
		values[0] = CStringGetTextDatum(last_scan_path(&last_scan));
		values[1] = CStringGetTextDatum(last_scan.engine);
		nulls[1] = last_scan.engine[0] == '\0';
		nulls[2] = nulls[3] = last_scan_hides_rows(&last_scan);
		values[2] = Int64GetDatum(last_scan.visited);
		values[3] = Int64GetDatum(last_scan.pending);
		values[4] = Int64GetDatum(tally->proposed);
		values[5] = Int64GetDatum(tally->dropped);
		values[6] = Int32GetDatum(tally->continuations);
		values[7] = CStringGetTextDatum(fallback_reason_name(tally->why));
		nulls[7] = tally->why == FALLBACK_NONE;
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
