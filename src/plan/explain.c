/*
 * explain.c
 *		What EXPLAIN says of the node.
 */
#include "plan/plan.h"

#include "commands/explain.h"
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif
#include "nodes/makefuncs.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"

/* What bounds the rows of the node, by its kind. */
static const char *const bound_names[] = {
	[NODE_RANGE] = "none",
	[NODE_EXACT] = "none",
	[NODE_LIMIT] = "limit",
	[NODE_TIES] = "ties",
	[NODE_STREAM] = "stream",
};

/*
 * Up to which distance.
 */
static void
explain_limits(GpuannNode *node, List *context, bool prefix, ExplainState *es)
{
	List	   *limits = NIL;
	ListCell   *cell;

	foreach(cell, node->threshold_lists)
	{
		Threshold	threshold;
		char	   *limit;

		threshold_read_limit(lfirst_node(List, cell), &threshold);
		limit = deparse_expression(threshold.limit, context, prefix, false);
		if (threshold.falling)
			limit = psprintf("(%g - %s)", threshold.from, limit);
		limits = lappend(limits, limit);
	}
	ExplainPropertyList("Within", limits, es);
}

/*
 * Which index is scanned, and by which distance.
 */
static void
explain_plan(GpuannNode *node, List *ancestors, ExplainState *es)
{
	List	   *context =
		set_deparse_context_plan(es->deparse_cxt, node->css.ss.ps.plan, ancestors);
	bool		prefix = list_length(es->rtable) > 1 || es->verbose;

	ExplainPropertyText("Index", get_rel_name(node->index_oid), es);
	if (node->kind != NODE_RANGE)
		ExplainPropertyText("Order By",
							deparse_expression((Node *) node->distance, context, prefix, false),
							es);
	if (node->kind > NODE_EXACT)
		ExplainPropertyText("Bound", bound_names[node->kind], es);
	if (node->filter_clauses != NIL)
		ExplainPropertyText(
			"Index Filter",
			deparse_expression((Node *) make_ands_explicit(node->filter_clauses), context, prefix,
							   false),
			es);
	if (node->threshold_lists != NIL)
		explain_limits(node, context, prefix, es);
}

/*
 * How the last scan went.
 */
static void
report_scan(const GpuannNode *node, const ScanReport *report)
{
	const LastScan *stats = &node->scan->stats;
	const ScanTally *tally = &stats->tally;

	tell_text(report, "path", "Gpuann Path", last_scan_path(stats));
	tell_text(report, "bound", "Gpuann Bound", bound_names[node->kind]);
	if (node->wanted > 0)
		tell_number(report, "wanted", "Gpuann Wanted", NULL, node->wanted);
	if (tally->server)
	{
		tell_text(report, "engine", "Gpuann Engine", stats->engine);
		tell_number(report, "batch", "Gpuann Batch", NULL, stats->batch);
		tell_number(report, "queue", "Gpuann Queue Time", "us", stats->queue_us);
		tell_number(report, "engine_time", "Gpuann Engine Time", "us", stats->engine_us);
	}
	tell_number(report, "ef", "Gpuann Ef", NULL, stats->ef);
	tell_number(report, "rounds", "Gpuann Rounds", NULL, stats->graph_rounds);
	tell_number(report, "exact", "Gpuann Exact Passes", NULL, stats->exact_passes);
	if (!last_scan_hides_rows(stats))
		tell_number(report, "visited", "Gpuann Visited", NULL, stats->visited);
	tell_number(report, "judged", "Gpuann Judged", NULL, node->judged);
	tell_number(report, "passed", "Gpuann Passed", NULL, node->passed_count);
	if (node->excluded > 0 && !node->secret)
		tell_number(report, "excluded", "Gpuann Excluded", NULL, node->excluded);
	if (!last_scan_hides_rows(stats))
		tell_number(report, "pending", "Gpuann Pending", NULL, stats->pending);
	tell_number(report, "missed", "Gpuann Missed", NULL, tally->dropped);
	if (stats->heap_order > 0)
		tell_number(report, "in_heap_order", "Gpuann In Heap Order", NULL, stats->heap_order);
	if (stats->by_columns && !stats->secret)
		tell_number(report, "chosen", "Gpuann Chosen", NULL, stats->chosen);
	if (stats->heap_order > 0 || stats->by_columns)
		tell_text(report, "ranked_by", "Gpuann Ranked By",
				  stats->server_ranked ? "server" : "pages");
	if (stats->probes > 0)
		tell_number(report, "probes", "Gpuann Probes", NULL, stats->probes);
	if (tally->why != FALLBACK_NONE)
		tell_text(report, "fallback", "Gpuann Fallback", fallback_reason_name(tally->why));
}

void
describe_scan(const GpuannNode *node, StringInfo line)
{
	report_scan(node, &(ScanReport){.line = line});
}

void
gpuann_explain_custom(CustomScanState *css, List *ancestors, ExplainState *es)
{
	GpuannNode *node = (GpuannNode *) css;

	explain_plan(node, ancestors, es);
	if (!es->analyze || node->scan == NULL || !node->scan->stats.any)
		return;
	if (es->format == EXPLAIN_FORMAT_TEXT)
	{
		appendStringInfoSpaces(es->str, es->indent * 2);
		appendStringInfoString(es->str, "Gpuann:");
		describe_scan(node, es->str);
		appendStringInfoChar(es->str, '\n');
	}
	else
		report_scan(node, &(ScanReport){.es = es});
}
