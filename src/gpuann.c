/*
 * gpuann.c
 *		The module: _PG_init() and the access method's handler.
 */
#include "base/handler.h"

#include "commands/progress.h"
#include "commands/vacuum.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "build/build.h"
#include "base/faults.h"

PG_MODULE_MAGIC;

/*
 * Initialise the module.
 */
PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	gpuann_options_init();
#ifdef GPUANN_TEST_FAULTS
	faults_define_setting();
#endif
	gpuann_shmem_init();
	if (process_shared_preload_libraries_in_progress)
		mirror_feed_init();
	gpuann_explain_init();
	gpuann_plan_init();
	index_hook_init();
	MarkGUCPrefixReserved("gpuann");
}

/*
 * Name a phase of the build for pg_stat_progress_create_index.
 */
static char *
gpuannbuildphasename(int64 phase)
{
	switch (phase)
	{
		case PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE:
			return "initializing";
		case BUILD_PHASE_LOAD:
			return "loading tuples";
		case BUILD_PHASE_LINK:
			return "linking";
		case BUILD_PHASE_WRITE:
			return "writing graph";
		case BUILD_PHASE_LOG:
			return "writing WAL";
		case BUILD_PHASE_PAGES:
			return "linking over pages";
		case BUILD_PHASE_MIRROR:
			return "loading mirror";
		case BUILD_PHASE_TRAIN:
			return "training lists";
		case BUILD_PHASE_LISTS:
			return "filling lists";
		default:
			return NULL;
	}
}

/*
 * Properties of a column that PostgreSQL cannot find out by itself: the first
 * one can be ordered by its distance from a query.
 */
static bool
gpuannproperty(Oid index, int attribute, IndexAMProperty property, const char *name, bool *result,
			   bool *isnull)
{
	if (attribute != 1 || property != AMPROP_DISTANCE_ORDERABLE)
		return false;
	*result = true;
	*isnull = false;
	return true;
}

/*
 * The access method.
 *
 * A scan gives rows in order of distance, forward, one at a time: no bitmap, no
 * marks. It needs no qual (amoptionalkey). An approximate scan may miss rows,
 * so predicate locks on what it returned would not detect all conflicts; a
 * serializable transaction locks the whole index (ampredlocks false).
 */
PG_FUNCTION_INFO_V1(gpuannhandler);
Datum
gpuannhandler(PG_FUNCTION_ARGS)
{
	IndexAmRoutine *am = makeNode(IndexAmRoutine);

	am->amstrategies = 0;
	am->amsupport = GPUANN_NUM_PROCS;
	am->amoptsprocnum = 0;
	am->amcanorder = false;
	am->amcanorderbyop = true;
	am->amcanbackward = false;
	am->amcanunique = false;
	am->amcanmulticol = false;
	am->amoptionalkey = true;
	am->amsearcharray = false;
	am->amsearchnulls = false;
	am->amstorage = false;
	am->amclusterable = false;
	am->ampredlocks = false;
	am->amcanparallel = false;
	am->amcaninclude = true;
	am->amusemaintenanceworkmem = true;
#if PG_VERSION_NUM >= 160000
	am->amsummarizing = false;
#endif
#if PG_VERSION_NUM >= 170000
	am->amcanbuildparallel = true;
#endif
	/*
	 * One process vacuums an index. Cleanup links pending rows, which is worth
	 * a parallel worker if no bulk deletion came before.
	 */
	am->amparallelvacuumoptions =
		VACUUM_OPTION_PARALLEL_BULKDEL | VACUUM_OPTION_PARALLEL_COND_CLEANUP;
	am->amkeytype = InvalidOid;

	am->ambuild = gpuannbuild;
	am->ambuildempty = gpuannbuildempty;
	am->aminsert = gpuanninsert;
	am->ambulkdelete = gpuannbulkdelete;
	am->amvacuumcleanup = gpuannvacuumcleanup;
	am->amcanreturn = NULL;
	am->amcostestimate = gpuanncostestimate;
	am->amoptions = gpuann_parse_options;
	am->amproperty = gpuannproperty;
	am->ambuildphasename = gpuannbuildphasename;
	am->amvalidate = gpuannvalidate;
	am->amadjustmembers = NULL;
	am->ambeginscan = gpuannbeginscan;
	am->amrescan = gpuannrescan;
	am->amgettuple = gpuanngettuple;
	am->amgetbitmap = NULL;
	am->amendscan = gpuannendscan;
	am->ammarkpos = NULL;
	am->amrestrpos = NULL;

	PG_RETURN_POINTER(am);
}
