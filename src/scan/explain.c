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
#include "commands/explain.h"
#include "scan/scan.h"
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#include "nodes/execnodes.h"
#endif

void
tell_text(const ScanReport *report, const char *word, const char *property, const char *text)
{
	if (report->es != NULL)
		ExplainPropertyText(property, text, report->es);
	else
		appendStringInfo(report->line, " %s=%s", word, text);
}

void
tell_number(const ScanReport *report, const char *word, const char *property, const char *unit,
			uint64 number)
{
	if (report->es != NULL)
		ExplainPropertyUInteger(property, unit, number, report->es);
	else
		appendStringInfo(report->line, " %s=" UINT64_FORMAT "%s", word, number,
						 unit != NULL ? unit : "");
}

#if PG_VERSION_NUM >= 180000

static explain_per_node_hook_type prev_explain_node = NULL;

/* How a scan went. */
static void
report_scan(const LastScan *stats, const ScanReport *report)
{
	const ScanTally *tally = &stats->tally;

	tell_text(report, "path", "Gpuann Path", last_scan_path(stats));
	if (tally->server)
	{
		tell_text(report, "engine", "Gpuann Engine", stats->engine);
		tell_number(report, "batch", "Gpuann Batch", NULL, stats->batch);
	}
	tell_number(report, "visited", "Gpuann Visited", NULL, stats->visited);
	tell_number(report, "pending", "Gpuann Pending", NULL, stats->pending);
	tell_number(report, "dropped", "Gpuann Dropped", NULL, tally->dropped);
	tell_number(report, "continuations", "Gpuann Continuations", NULL, tally->continuations);
	if (tally->why != FALLBACK_NONE)
		tell_text(report, "fallback", "Gpuann Fallback", fallback_reason_name(tally->why));
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
	{
		ExplainIndentText(es);
		appendStringInfoString(es->str, "Gpuann:");
		report_scan(&scan->stats, &(ScanReport){.line = es->str});
		appendStringInfoChar(es->str, '\n');
	}
	else
		report_scan(&scan->stats, &(ScanReport){.es = es});
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
