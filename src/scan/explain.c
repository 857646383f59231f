/*
 * explain.c
 *		What EXPLAIN (ANALYZE) adds to an index scan, from PostgreSQL 18 on:
 *		which path answered, and at what price.
 *
 * Before 18 a module cannot add to a plan's node; there is gpuann_last_scan().
 * A scan that was begun more than once shows its last time.
 */
#include "base/handler.h"

#include "access/relscan.h"
#include "scan/scan.h"

#if PG_VERSION_NUM >= 180000

#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#include "nodes/execnodes.h"

static explain_per_node_hook_type prev_explain_node = NULL;

/* One line, for text formats. */
static void
explain_text(const LastScan *stats, ExplainState *es)
{
	const ScanTally *tally = &stats->tally;

	ExplainIndentText(es);
	appendStringInfo(es->str, "Gpuann: path=%s", last_scan_path(stats));
	if (tally->server)
		appendStringInfo(es->str, " engine=%s batch=%u", stats->engine, stats->batch);
	appendStringInfo(
		es->str, " visited=" UINT64_FORMAT " pending=" UINT64_FORMAT " dropped=%u continuations=%u",
		stats->visited, stats->pending, tally->dropped, tally->continuations);
	if (tally->why != FALLBACK_NONE)
		appendStringInfo(es->str, " fallback=%s", fallback_reason_name(tally->why));
	appendStringInfoChar(es->str, '\n');
}

/* The same as properties, for other formats. */
static void
index_scan_properties(const LastScan *stats, ExplainState *es)
{
	const ScanTally *tally = &stats->tally;

	ExplainPropertyText("Gpuann Path", last_scan_path(stats), es);
	if (tally->server)
	{
		ExplainPropertyText("Gpuann Engine", stats->engine, es);
		ExplainPropertyUInteger("Gpuann Batch", NULL, stats->batch, es);
	}
	ExplainPropertyUInteger("Gpuann Visited", NULL, stats->visited, es);
	ExplainPropertyUInteger("Gpuann Pending", NULL, stats->pending, es);
	ExplainPropertyUInteger("Gpuann Dropped", NULL, tally->dropped, es);
	ExplainPropertyUInteger("Gpuann Continuations", NULL, tally->continuations, es);
	if (tally->why != FALLBACK_NONE)
		ExplainPropertyText("Gpuann Fallback", fallback_reason_name(tally->why), es);
}

static void
gpuann_explain_node(PlanState *planstate, List *ancestors, const char *relationship,
					const char *plan_name, ExplainState *es)
{
	IndexScanDesc desc;
	const GpuannScan *scan;

	if (prev_explain_node)
		prev_explain_node(planstate, ancestors, relationship, plan_name, es);
	if (!es->analyze || !IsA(planstate, IndexScanState))
		return;
	desc = castNode(IndexScanState, planstate)->iss_ScanDesc;
	if (desc == NULL || !is_gpuann_index(desc->indexRelation))
		return;
	scan = desc->opaque;
	if (!scan->stats.any)
		return;
	if (es->format == EXPLAIN_FORMAT_TEXT)
		explain_text(&scan->stats, es);
	else
		index_scan_properties(&scan->stats, es);
}

void
gpuann_explain_init(void)
{
	prev_explain_node = explain_per_node_hook;
	explain_per_node_hook = gpuann_explain_node;
}

#else

void
gpuann_explain_init(void)
{
}

#endif
