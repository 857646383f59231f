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
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"

/*
 * What bounds the rows of the node, as a word.
 */
static const char *
bound_name(const GpuannNode *node)
{
	switch (node->kind)
	{
		case NODE_LIMIT:
			return "limit";
		case NODE_TIES:
			return "ties";
		case NODE_STREAM:
			return "stream";
		default:
			return "none";
	}
}

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
		ExplainPropertyText("Bound", bound_name(node), es);
	if (node->threshold_lists != NIL)
		explain_limits(node, context, prefix, es);
}

/*
 * How the last scan went, in one line for a person.
 */
void
describe_scan(const GpuannNode *node, StringInfo line)
{
	const LastScan *stats = &node->scan->stats;
	const ScanTally *tally = &stats->tally;

	appendStringInfo(line, "path=%s bound=%s", last_scan_path(stats), bound_name(node));
	if (node->wanted > 0)
		appendStringInfo(line, " wanted=" UINT64_FORMAT, node->wanted);
	if (tally->server)
		appendStringInfo(
			line, " engine=%s batch=%u queue=" UINT64_FORMAT "us engine_time=" UINT64_FORMAT "us",
			stats->engine, stats->batch, stats->queue_us, stats->engine_us);
	appendStringInfo(line,
					 " ef=%u rounds=%u exact=%u visited=" UINT64_FORMAT " judged=" UINT64_FORMAT
					 " passed=" UINT64_FORMAT " pending=" UINT64_FORMAT " missed=%u",
					 stats->ef, stats->graph_rounds, stats->exact_passes, stats->visited,
					 node->judged, node->passed_count, stats->pending, tally->dropped);
	if (stats->heap_order > 0)
		appendStringInfo(line, " in_heap_order=" UINT64_FORMAT " ranked_by=%s", stats->heap_order,
						 stats->server_ranked ? "server" : "pages");
	if (stats->probes > 0)
		appendStringInfo(line, " probes=%u", stats->probes);
	if (tally->why != FALLBACK_NONE)
		appendStringInfo(line, " fallback=%s", fallback_reason_name(tally->why));
}

/*
 * The same for a program.
 */
static void
explain_properties(const GpuannNode *node, const LastScan *stats, ExplainState *es)
{
	const ScanTally *tally = &stats->tally;

	ExplainPropertyText("Gpuann Path", last_scan_path(stats), es);
	ExplainPropertyText("Gpuann Bound", bound_name(node), es);
	if (node->wanted > 0)
		ExplainPropertyUInteger("Gpuann Wanted", NULL, node->wanted, es);
	if (tally->server)
	{
		ExplainPropertyText("Gpuann Engine", stats->engine, es);
		ExplainPropertyUInteger("Gpuann Batch", NULL, stats->batch, es);
		ExplainPropertyUInteger("Gpuann Queue Time", "us", stats->queue_us, es);
		ExplainPropertyUInteger("Gpuann Engine Time", "us", stats->engine_us, es);
	}
	ExplainPropertyUInteger("Gpuann Ef", NULL, stats->ef, es);
	if (stats->probes > 0)
		ExplainPropertyUInteger("Gpuann Probes", NULL, stats->probes, es);
	ExplainPropertyUInteger("Gpuann Rounds", NULL, stats->graph_rounds, es);
	ExplainPropertyUInteger("Gpuann Exact Passes", NULL, stats->exact_passes, es);
	ExplainPropertyUInteger("Gpuann Visited", NULL, stats->visited, es);
	ExplainPropertyUInteger("Gpuann Judged", NULL, node->judged, es);
	if (stats->heap_order > 0)
	{
		ExplainPropertyUInteger("Gpuann In Heap Order", NULL, stats->heap_order, es);
		ExplainPropertyText("Gpuann Ranked By", stats->server_ranked ? "server" : "pages", es);
	}
	ExplainPropertyUInteger("Gpuann Passed", NULL, node->passed_count, es);
	ExplainPropertyUInteger("Gpuann Pending", NULL, stats->pending, es);
	ExplainPropertyUInteger("Gpuann Missed", NULL, tally->dropped, es);
	if (tally->why != FALLBACK_NONE)
		ExplainPropertyText("Gpuann Fallback", fallback_reason_name(tally->why), es);
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
		appendStringInfoString(es->str, "Gpuann: ");
		describe_scan(node, es->str);
		appendStringInfoChar(es->str, '\n');
	}
	else
		explain_properties(node, &node->scan->stats, es);
}
