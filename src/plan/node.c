/*
 * node.c
 *		Execution of the plan node: opening the index, rows, rescans.
 *
 * The node fetches rows from the table itself and evaluates the quals, so it
 * knows which rows count; ExecScan only projects.
 */
#include "plan/plan.h"

#include <float.h>
#include <math.h>

#include "access/genam.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "pgstat.h"
#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* How far a limit may be off, absolutely where it is small. */
#define LIMIT_ROUNDING	(4 * DBL_EPSILON)

/* A threshold, compiled. */
typedef struct NodeThreshold
{
	Threshold	threshold;
	ExprState  *limit;
	Oid			type;			/* of the limit */
	ExprState  *query;			/* NULL: it is the node's */
} NodeThreshold;

/*
 * Make the state of a node.
 */
Node *
gpuann_create_node(CustomScan *plan)
{
	GpuannNode *node = palloc0(sizeof(GpuannNode));
	List	   *oids = plan->custom_private;

	NodeSetTag(node, T_CustomScanState);
	node->css.methods = &gpuann_node_methods;
	node->index_oid = linitial_oid(oids);
	node->kind = lsecond_oid(oids);
	node->as_found = lthird_oid(oids);
	node->junk_is_unused = lfourth_oid(oids);
	node->few = list_nth_oid(oids, 4);
	node->secret = list_nth_oid(oids, 5);
	node->distance = linitial_node(OpExpr, plan->custom_exprs);
	node->threshold_lists = lthird(plan->custom_exprs);
	node->filter_clauses = lfourth(plan->custom_exprs);
	node->columns_share =
		DatumGetFloat8(castNode(Const, list_nth(plan->custom_exprs, 4))->constvalue);
	node->fetched_slot = NO_SLOT;
	return (Node *) node;
}

/*
 * The scan slot is the table's kind of slot, and expressions are compiled for
 * it; the quals are the node's to evaluate, not ExecScan's.
 */
static void
compile_for_table(GpuannNode *node, EState *estate)
{
	ScanState  *ss = &node->css.ss;
	CustomScan *plan = castNode(CustomScan, ss->ps.plan);

	ExecInitScanTupleSlot(estate, ss, RelationGetDescr(ss->ss_currentRelation),
						  table_slot_callbacks(ss->ss_currentRelation));
	ss->ps.subPlan = NIL;
	ExecAssignScanProjectionInfoWithVarno(ss, plan->scan.scanrelid);
	node->row_filter = node->filter = ExecInitQual(plan->scan.plan.qual, &ss->ps);
	ss->ps.qual = NULL;
}

/*
 * Compile the thresholds.
 */
static void
begin_thresholds(GpuannNode *node)
{
	ListCell   *cell;

	foreach(cell, node->threshold_lists)
	{
		NodeThreshold *compiled = palloc0(sizeof(NodeThreshold));

		threshold_read_limit(lfirst_node(List, cell), &compiled->threshold);
		compiled->limit = ExecInitExpr((Expr *) compiled->threshold.limit, &node->css.ss.ps);
		compiled->query = ExecInitExpr((Expr *) compiled->threshold.query, &node->css.ss.ps);
		compiled->type = exprType(compiled->threshold.limit);
		node->thresholds = lappend(node->thresholds, compiled);
	}
}

void
node_begin_limit(NodeLimit *limit, List *expressions, PlanState *state)
{
	limit->count = ExecInitExpr(linitial(expressions), state);
	limit->offset = ExecInitExpr(lsecond(expressions), state);
}

/*
 * The value of an expression of a LIMIT. The Limit above has refused what is
 * negative. False: it is NULL.
 */
static bool
limit_value(ExprState *expression, ExprContext *context, int64 *value)
{
	bool		isnull = true;

	*value = 0;
	if (expression != NULL)
		*value = DatumGetInt64(ExecEvalExprSwitchContext(expression, context, &isnull));
	return !isnull;
}

uint64
node_read_limit(const NodeLimit *limit, ExprContext *context, uint64 *skipped)
{
	int64		count;
	int64		offset;

	*skipped = 0;
	if (!limit_value(limit->count, context, &count) || count > PG_INT32_MAX)
		return 0;
	if (!limit_value(limit->offset, context, &offset))
		offset = 0;
	if (offset > PG_INT32_MAX)
		return 0;
	if (count > 0)
		*skipped = (uint64) offset;
	return (uint64) (offset + count);
}

/*
 * Begin: all but the scan.
 */
static void
node_begin(CustomScanState *css, EState *estate, int eflags)
{
	GpuannNode *node = (GpuannNode *) css;
	Scan	   *plan = &castNode(CustomScan, css->ss.ps.plan)->scan;
	LOCKMODE	lock;

	compile_for_table(node, estate);
	/* Rows that EvalPlanQual puts in place of ours have values of their own. */
	if (estate->es_epq_active == NULL)
		node_take_values(node);
	/* Under EXPLAIN alone the index need not be there any more. */
	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	node->query = ExecInitExpr((Expr *) lsecond(node->distance->args), &css->ss.ps);
	begin_thresholds(node);
	node_begin_limit(&node->limit, lsecond(castNode(CustomScan, css->ss.ps.plan)->custom_exprs),
					 &css->ss.ps);
	lock = exec_rt_fetch(plan->scanrelid, estate)->rellockmode;
	node->index = index_open(node->index_oid, lock);
	node->index_filter = index_filter_begin(node->filter_clauses, node->index, plan->scanrelid,
											&css->ss.ps);
	node->runtime = CreateExprContext(estate);
	node->memory =
		AllocSetContextCreate(estate->es_query_cxt, "gpuann node", ALLOCSET_SMALL_SIZES);
}

/*
 * The query vector: of the parameters as they are now.
 */
static void
evaluate_query(GpuannNode *node)
{
	MemoryContext old = MemoryContextSwitchTo(node->memory);
	Datum		value;

	ResetExprContext(node->runtime);
	value = ExecEvalExprSwitchContext(node->query, node->runtime, &node->query_is_null);
	node->query_value =
		node->query_is_null ? (Datum) 0 : PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
	MemoryContextSwitchTo(old);
}

/*
 * Whether a threshold is one of the distance from the node's query. Vectors of
 * the same bytes have the same distances; others that do, with a zero of
 * another sign, need not be found. *isnull: its query is NULL.
 */
static bool
threshold_is_of_query(GpuannNode *node, const NodeThreshold *limit, bool *isnull)
{
	MemoryContext old;
	Datum		value;
	bool		equal = false;

	*isnull = node->query_is_null;
	if (limit->query == NULL)
		return true;
	old = MemoryContextSwitchTo(node->runtime->ecxt_per_tuple_memory);
	value = ExecEvalExpr(limit->query, node->runtime, isnull);
	if (!*isnull && !node->query_is_null)
	{
		const struct varlena *query = PG_DETOAST_DATUM(value);
		const struct varlena *own = (const struct varlena *) DatumGetPointer(node->query_value);

		equal = VARSIZE(query) == VARSIZE(own) && memcmp(query, own, VARSIZE(own)) == 0;
	}
	MemoryContextSwitchTo(old);
	return equal;
}

/*
 * The greatest of the operator's values that the thresholds let pass. False:
 * limit or query of one is NULL, so no row passes.
 */
static bool
greatest_value(GpuannNode *node, double *most)
{
	ListCell   *cell;

	*most = get_float8_nan();
	node->bounded = false;
	foreach(cell, node->thresholds)
	{
		const NodeThreshold *limit = lfirst(cell);
		bool		isnull;
		Datum		value = ExecEvalExprSwitchContext(limit->limit, node->runtime, &isnull);
		bool		holds;
		double		bound;

		if (isnull)
			return false;
		bound = threshold_limit(&limit->threshold, value, limit->type);
		holds = threshold_is_of_query(node, limit, &isnull);
		if (isnull)
			return false;
		if (!holds)
			continue;
		node->bounded = true;
		if (value_not_after(bound, *most))
			*most = bound;
	}
	return true;
}

/*
 * Whether gpuann.max_scan_tuples keeps a scan from every row of the index.
 */
static bool
visits_are_limited(const GpuannNode *node)
{
	PendingBounds bounds;

	if (gpuann_max_scan_tuples == GPUANN_UNSET)
		return false;
	pending_end(node->index, index_format(node->index), &bounds);
	return scan_is_limited(&bounds, gpuann_max_scan_tuples);
}

/*
 * Which share of the rows judged the planner expects to pass. What is beyond
 * thresholds is not judged, and of the others it is not known here.
 */
static double
share_expected(const GpuannNode *node)
{
	double		rows = node->index->rd_rel->reltuples;

	if (node->filter == NULL || node->bounded || rows <= 0)
		return 1;
	return Min(Max(node->css.ss.ps.plan->plan_rows, 1) / rows, 1);
}

/*
 * The breadth of the first graph round, and whether rows are gathered in steps:
 * those of a page that an OFFSET skips to, unless so broad a search costs more
 * than comparing everything.
 *
 * Pages of the same size have to come of the same searches, or a row that the
 * broader one has found besides moves all others on by one: one row comes on
 * two pages. So breadths are the first page's times a power of two.
 */
static uint32
first_breadth(GpuannNode *node, double as_set, bool lists)
{
	/* One more shows where ties end. */
	double		wanted = (double) node->wanted + (node->kind == NODE_TIES);
	double		page = wanted - (double) node->skipped;
	double		share = node->merge == NULL ? node->expected : 1;	/* siblings ask for the same */
	double		needed = scan_first_ef(wanted, scan_rows_needed(wanted, share), as_set);
	double		first = scan_first_ef(page, scan_rows_needed(page, share), as_set);
	double		ef = Max(first, as_set);

	node->in_steps = false;
	if (node->skipped == 0)
		return (uint32) first;
	while (ef < needed)
		ef *= 2;
	ef = Min(ef, ENGINE_MAX_EF);
	/* Only where the LIMIT skips rows of this node, in its order. */
	if (node->kind != NODE_LIMIT || node->merge != NULL ||
		scan_graph_is_dearer((uint32) ef, node->index->rd_rel->reltuples,
							 !lists && !client_would_answer(node->index)))
		return (uint32) ef;
	node->in_steps = true;
	return (uint32) first;
}

/*
 * How the node has its scan go about it (README.md, "Modes").
 */
static ScanKind
scan_kind(const GpuannNode *node, bool limited)
{
	if (gpuann_exact || (node->wanted == 0 && node->kind != NODE_STREAM))
		return SCAN_EXACT;
	switch ((GpuannIterativeScan) gpuann_iterative_scan)
	{
		case GPUANN_ITERATIVE_OFF:
			return SCAN_FIRST;
		case GPUANN_ITERATIVE_STRICT:
			return SCAN_ORDERED;
		case GPUANN_ITERATIVE_RELAXED:
			if (node->as_found)
				return SCAN_AS_FOUND;
			break;
		default:
			break;
	}
	if (node->wanted > 0)
		return SCAN_GATHER;
	return node->bounded && !limited ? SCAN_EXACT : SCAN_ORDERED;
}

/*
 * Whether a row in the scan slot passes that the table gave, not the index.
 */
static bool
row_passes(void *caller)
{
	GpuannNode *node = caller;
	ExprContext *econtext = node->css.ss.ps.ps_ExprContext;

	node->fetched_slot = NO_SLOT;
	node->judged++;
	ResetExprContext(econtext);
	econtext->ecxt_scantuple = node->css.ss.ss_ScanTupleSlot;
	if (!ExecQual(node->row_filter, econtext))
	{
		InstrCountFiltered1(node, 1);
		return false;
	}
	node->passed_count++;
	return true;
}

/*
 * What columns exclude, with the values that the filter has now.
 */
static ColumnFilter
column_filter(const GpuannNode *node)
{
	/* What a page lacks must not decide which rounds come before it. */
	ColumnFilter columns = {.share = node->columns_share,
							.wanted = node->wanted - node->skipped,
							.secret = node->secret};
	MemoryContext old;

	if (node->index_filter == NULL)
		return columns;
	old = MemoryContextSwitchTo(node->memory);
	columns.program = index_filter_bind(node->index_filter, node->runtime);
	MemoryContextSwitchTo(old);
	return columns;
}

/*
 * Whether a server is to evaluate what columns exclude. Not for a scan that
 * ends with its first answer, which would have other rows then; nor where rows
 * visited are limited, because a server's are not those of a walk over pages.
 */
static bool
columns_are_sent(const ScanWants *wants)
{
	return wants->columns.program != NULL && client_takes_program(wants->columns.program) &&
		wants->kind != SCAN_FIRST &&
		(wants->kind == SCAN_EXACT || gpuann_max_scan_tuples == GPUANN_UNSET);
}

double
node_share_sent(const GpuannNode *node)
{
	return Min(node->expected / node->columns_share, 1);
}

/*
 * What the node wants of its scan.
 */
static ScanWants
scan_wants(GpuannNode *node)
{
	bool		limited = visits_are_limited(node);
	bool		lists = format_has_lists(index_format(node->index));
	double		as_set = gpuann_effective_ef_search(node->index, lists);
	double		needed;
	ScanWants	wants = {.set = true,
						 .kind = scan_kind(node, limited),
						 .few = node->few,
						 .most_distance = node->most_distance,
						 .columns = column_filter(node)};

	needed = scan_rows_needed((double) node->wanted, node->expected);
	wants.columns.sent = columns_are_sent(&wants);
	wants.columns.late = scan_sends_late(needed, as_set, node->index->rd_rel->reltuples);
	if (wants.columns.sent && !wants.columns.late && client_would_answer(node->index))
	{
		node->expected = node_share_sent(node);
		needed = scan_rows_needed((double) node->wanted, node->expected);
	}
	wants.rows = (uint64) Min(needed, ENGINE_MAX_SLOTS);
	wants.ef = first_breadth(node, as_set, lists);
	if (node->kind == NODE_RANGE)
		wants.rows = (uint64) Min(2 * node->css.ss.ps.plan->plan_rows, ENGINE_MAX_SLOTS);
	if (node->wanted > 0 && node->filter != NULL &&
		(wants.kind == SCAN_GATHER || wants.kind == SCAN_EXACT))
		wants.filter = (ScanFilter) {row_passes, node, node->css.ss.ss_currentRelation,
									 node->css.ss.ss_ScanTupleSlot};
	/*
	 * Elsewhere the first answer is as broad as is set; so it is where rows
	 * visited are limited, because the limit does not end a first answer.
	 */
	if (wants.kind != SCAN_GATHER || limited)
	{
		wants.ef = 0;
		node->in_steps = false;
	}
	return wants;
}

/*
 * Open the scan, if that was not done.
 */
static void
open_scan(GpuannNode *node)
{
	EState	   *estate = node->css.ss.ps.state;
	MemoryContext old;

	if (node->desc != NULL)
		return;
	old = MemoryContextSwitchTo(estate->es_query_cxt);
#if PG_VERSION_NUM >= 180000
	node->desc = index_beginscan(node->css.ss.ss_currentRelation, node->index, estate->es_snapshot,
								 NULL, 0, 1);
#else
	node->desc = index_beginscan(node->css.ss.ss_currentRelation, node->index, estate->es_snapshot,
								 0, 1);
#endif
	node->scan = node->desc->opaque;
	MemoryContextSwitchTo(old);
}

/*
 * The threshold as a distance.
 */
static double
most_distance(const GpuannNode *node, double value)
{
	const IndexFormat *format = index_format(node->index);
	const GpuannTypeInfo *type = gpuann_type_info(node->index);
	PendingBounds bounds;
	OperatorBounds of_value;

	if (isnan(value))
		return get_float8_infinity();
	/* A limit may be the result of a subtraction, the qual that of another. */
	if (!isinf(value))
		value += LIMIT_ROUNDING * (1 + fabs(value));
	gpuann_check_query_dims(type, format->dims, DatumGetPointer(node->query_value));
	pending_end(node->index, format, &bounds);
	operator_bounds_set(&of_value, type, format->dims,
						type->elements(DatumGetPointer(node->query_value)), bounds.least_norm,
						bounds.most_norm);
	return operator_distance_most(&of_value, value);
}

void
node_prepare(GpuannNode *node)
{
	ScanKeyData key;
	double		most_value;

	if (node->prepared)
		return;
	open_scan(node);
	evaluate_query(node);
	ScanKeyEntryInitialize(&key, SK_ORDER_BY | (node->query_is_null ? SK_ISNULL : 0), 1,
						   GPUANN_STRATEGY_DISTANCE, InvalidOid, node->distance->inputcollid,
						   node->distance->opfuncid, node->query_value);
	index_rescan(node->desc, NULL, 0, &key, 1);
	node->prepared = true;
	node->wanted = node_read_limit(&node->limit, node->runtime, &node->skipped);
	node->nothing_passes = !greatest_value(node, &most_value);
	if (node->nothing_passes)
		return;
	node->most_distance = node->bounded ? most_distance(node, most_value) : get_float8_infinity();
	node->expected = share_expected(node);
	node->scan->wants = scan_wants(node);
	node->scan->first = &node->first;
}

/*
 * Begin a scan: the first row since the node was begun, or began again.
 */
static void
begin_scan(GpuannNode *node)
{
	if (!node->prepared)
		ask_with_siblings(node);
	node_prepare(node);
	node->begun = true;
	node->streamed = node->given = 0;
	node->order = (RowOrder){.next = next_passing, .source = node};
	if (node->nothing_passes)
	{
		/* As if it had been gathered. */
		node->gathered = true;
		return;
	}
	node->in_order = node->kind != NODE_RANGE && node->scan->wants.kind != SCAN_AS_FOUND;
	node->judged_before = node->judged;
	node->excluded_before = node->excluded;
	node->gathered = node->scan->wants.kind == SCAN_GATHER && gather_rows(node);
}

void
node_keep(GpuannNode *node)
{
	ScanState  *ss = &node->css.ss;
	int			i = node->kept_count;

	if (i == GPUANN_KEPT_TUPLES)
		return;
	if (node->kept[i] == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(ss->ps.state->es_query_cxt);

		node->kept[i] = ExecInitExtraTupleSlot(
			ss->ps.state, ss->ss_ScanTupleSlot->tts_tupleDescriptor, ss->ss_ScanTupleSlot->tts_ops);
		MemoryContextSwitchTo(old);
	}
	ExecCopySlot(node->kept[i], ss->ss_ScanTupleSlot);
	node->kept_slots[i] = node->fetched_slot;
	node->kept_count++;
}

/*
 * Take a tuple that was kept. Its pin goes over to the scan slot.
 */
static bool
take_kept(GpuannNode *node, uint32 slot)
{
	for (int i = 0; i < node->kept_count; i++)
	{
		if (node->kept_slots[i] != slot)
			continue;
		ExecCopySlot(node->css.ss.ss_ScanTupleSlot, node->kept[i]);
		ExecClearTuple(node->kept[i]);
		node->kept_slots[i] = NO_SLOT;
		node->fetched_slot = slot;
		return true;
	}
	return false;
}

/*
 * Forget the tuples kept.
 */
static void
drop_kept(GpuannNode *node)
{
	while (node->kept_count > 0)
		ExecClearTuple(node->kept[--node->kept_count]);
}

bool
node_fetch(GpuannNode *node, const ItemPointerData *tid, uint32 slot)
{
	if (node->fetched_slot == slot || take_kept(node, slot))
		return true;
	node->desc->xs_heaptid = *tid;
	node->desc->xs_heap_continue = false;
	node->fetched_slot = NO_SLOT;
	if (!index_fetch_heap(node->desc, node->css.ss.ss_ScanTupleSlot))
	{
		check_row_age(node->desc);
		return false;
	}
	node->fetched_slot = slot;
	return true;
}

/*
 * Let the expressions of a row find it, and its distance.
 */
static void
show_row(GpuannNode *node, const ScanRow *row)
{
	ExprContext *econtext = node->css.ss.ps.ps_ExprContext;

	econtext->ecxt_scantuple = node->css.ss.ss_ScanTupleSlot;
	econtext->caseValue_datum = Float8GetDatum(row->value);
	econtext->caseValue_isNull = !row->valued;
}

bool
node_judge(GpuannNode *node, ScanRow *row)
{
	ExprContext *econtext = node->css.ss.ps.ps_ExprContext;

	pgstat_count_index_tuples(node->index, 1);
	if (node->scan->wants.columns.program != NULL && !scan_slot_may_pass(node->scan, row->slot))
	{
		InstrCountFiltered1(node, 1);
		node->judged++;
		node->excluded++;
		return false;
	}
	if (!node_fetch(node, &row->tid, row->slot))
		return false;
	node->judged++;
	if (node->filter != NULL)
	{
		ResetExprContext(econtext);
		if (node->filter_has_value)
			scan_row_value(node->desc, row);
		show_row(node, row);
		if (!ExecQual(node->filter, econtext))
		{
			InstrCountFiltered1(node, 1);
			return false;
		}
	}
	node->passed_count++;
	return true;
}

/*
 * Whether the next row has its place by the operator's value. Settled ones,
 * which the LIMIT skips, have theirs.
 */
static bool
next_has_order(const GpuannNode *node)
{
	return node->in_order && node->passed.first >= node->passed.settled;
}

/*
 * Whether a row comes after those that the LIMIT wants, and is not equal to the
 * last of them. Values are computed from that one on.
 */
static bool
is_beyond_ties(GpuannNode *node, ScanRow *row)
{
	if (node->kind != NODE_TIES || node->wanted == 0 || ++node->given < node->wanted)
		return false;
	scan_row_value(node->desc, row);
	/* All are equal to a query that is NULL. */
	if (node->given > node->wanted && row->valued && !value_not_after(row->value, node->last_value))
		return true;
	node->last_value = row->value;
	return false;
}

/*
 * The next row, in the scan slot.
 */
static TupleTableSlot *
node_next(ScanState *ss)
{
	GpuannNode *node = (GpuannNode *) ss;
	ScanRow		row;
	double		following;

	if (!node->begun)
		begin_scan(node);
	while (next_has_order(node) ? scan_next_in_order(node->desc, &node->order, &row)
								: next_passing(node, &row, &following))
	{
		CHECK_FOR_INTERRUPTS();
		if (!node_fetch(node, &row.tid, row.slot))
			continue;
		if (is_beyond_ties(node, &row))
			break;
		if (node->output_has_value)
			scan_row_value(node->desc, &row);
		show_row(node, &row);
		return ss->ss_ScanTupleSlot;
	}
	drop_kept(node);
	return ExecClearTuple(ss->ss_ScanTupleSlot);
}

/*
 * Whether a row that EvalPlanQual puts in place of one of ours passes.
 */
static bool
node_recheck(ScanState *ss, TupleTableSlot *slot)
{
	GpuannNode *node = (GpuannNode *) ss;

	ResetExprContext(ss->ps.ps_ExprContext);
	ss->ps.ps_ExprContext->ecxt_scantuple = slot;
	return ExecQual(node->filter, ss->ps.ps_ExprContext);
}

/*
 * The next row, projected.
 */
static TupleTableSlot *
node_execute(CustomScanState *css)
{
	GpuannNode *node = (GpuannNode *) css;
	bool		first = !node->begun;
	TupleTableSlot *slot;
	instr_time	start;
	instr_time	end;

	if (gpuann_log_min_duration < 0 && !first)
		return ExecScan(&css->ss, node_next, node_recheck);
	INSTR_TIME_SET_CURRENT(start);
	slot = ExecScan(&css->ss, node_next, node_recheck);
	if (first && node->scan != NULL)
		scan_note_first_row(node->scan, start);
	if (gpuann_log_min_duration < 0)
		return slot;
	INSTR_TIME_SET_CURRENT(end);
	INSTR_TIME_ACCUM_DIFF(node->spent, end, start);
	return slot;
}

/*
 * A scan is over: log it if it was slow.
 */
static void
log_slow(GpuannNode *node)
{
	double		ms = INSTR_TIME_GET_MILLISEC(node->spent);
	StringInfoData line;

	INSTR_TIME_SET_ZERO(node->spent);
	if (!node->begun || gpuann_log_min_duration < 0 || ms < gpuann_log_min_duration)
		return;
	initStringInfo(&line);
	describe_scan(node, &line);
	ereport(LOG, (errmsg("gpuann scan of index \"%s\" took %.3f ms:%s",
						 RelationGetRelationName(node->index), ms, line.data)));
	pfree(line.data);
}

/*
 * Begin again.
 */
static void
node_rescan(CustomScanState *css)
{
	GpuannNode *node = (GpuannNode *) css;

	log_slow(node);
	drop_kept(node);
	ExecScanReScan(&css->ss);
	node->prepared = node->begun = node->gathered = node->pushed_back = false;
	node->first.set = false;
	node->fetched_slot = NO_SLOT;
	node->passed = (ScanRows){0};
	node->settled_slots = NULL;
	if (node->memory != NULL)
		MemoryContextReset(node->memory);
}

static void
node_end(CustomScanState *css)
{
	GpuannNode *node = (GpuannNode *) css;

	log_slow(node);
	if (node->desc != NULL)
		index_endscan(node->desc);
	if (node->index != NULL)
		index_close(node->index, NoLock);
}

const CustomExecMethods gpuann_node_methods = {
	.CustomName = GPUANN_NODE_NAME,
	.BeginCustomScan = node_begin,
	.ExecCustomScan = node_execute,
	.EndCustomScan = node_end,
	.ReScanCustomScan = node_rescan,
	.ExplainCustomScan = gpuann_explain_custom,
};
