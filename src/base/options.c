/*
 * options.c
 *		Index options, the settings of scans and inserts, and what an index is
 *		of.
 */
#include "base/base.h"

#include "access/amapi.h"
#include "access/reloptions.h"
#include "fmgr.h"
#include "utils/guc.h"

int			gpuann_ef_search = GPUANN_UNSET;
bool		gpuann_exact = false;
int			gpuann_iterative_scan = GPUANN_ITERATIVE_COMPLETE;
int			gpuann_max_scan_tuples = GPUANN_UNSET;
int			gpuann_log_min_duration = -1;
int			gpuann_pending_limit = GPUANN_DEFAULT_PENDING_LIMIT;
bool		gpuann_plan_node = true;
bool		gpuann_server = true;
bool		gpuann_debug_unpinned_distances = true;

static relopt_kind gpuann_relopt_kind;

static const struct config_enum_entry iterative_scan_options[] = {
	{"complete", GPUANN_ITERATIVE_COMPLETE, false},
	{"strict_order", GPUANN_ITERATIVE_STRICT, false},
	{"relaxed_order", GPUANN_ITERATIVE_RELAXED, false},
	{"off", GPUANN_ITERATIVE_OFF, false},
	{NULL, 0, false}
};

static relopt_enum_elt_def method_options[] = {
	{"graph", GPUANN_METHOD_GRAPH},
	{"ivfpq", GPUANN_METHOD_IVFPQ},
	{(const char *) NULL}
};

/*
 * Refuse 0 where GPUANN_UNSET and positive numbers mean something.
 */
static bool
check_not_zero(int *value, void **extra, GucSource source)
{
	if (*value != 0)
		return true;
	GUC_check_errdetail("The value must be -1 or a positive number.");
	return false;
}

/*
 * Declare the developer settings. Each turns off one shortcut of the page path,
 * so that a failure can be bisected; answers are the same.
 */
static void
define_developer_settings(void)
{
	DefineCustomBoolVariable(
		"gpuann.debug_unpinned_distances",
		"Reads vectors without a pin where their distances are ranked again.",
		"A developer setting: when off, every vector is read under pin and lock.",
		&gpuann_debug_unpinned_distances, true, PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
}

/*
 * Declare the settings of the access method.
 */
static void
define_scan_settings(void)
{
	DefineCustomIntVariable(
		"gpuann.ef_search", "Sets how broadly the graph is searched.",
		"More finds more of the nearest rows and takes longer. -1 takes the index's option ef_search.",
		&gpuann_ef_search, GPUANN_UNSET, GPUANN_UNSET, GPUANN_MAX_EF_SEARCH, PGC_USERSET, 0,
		check_not_zero, NULL, NULL);
	DefineCustomBoolVariable(
		"gpuann.exact", "Lets scans compare all rows of the index.",
		"The answer is exact and in order, at the price of reading every vector.", &gpuann_exact,
		false, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable(
		"gpuann.iterative_scan",
		"Sets what a scan does when more rows are wanted than it found at first.",
		"complete gathers as many rows as are wanted before it gives any; strict_order goes on in order and drops what "
		"was found too late, relaxed_order gives rows as they are found, off stops.",
		&gpuann_iterative_scan, GPUANN_ITERATIVE_COMPLETE, iterative_scan_options, PGC_USERSET, 0,
		NULL, NULL, NULL);
	DefineCustomIntVariable(
		"gpuann.max_scan_tuples",
		"Sets how many rows a scan may visit to find more than it found at first.",
		"The scan then ends, whether it has given every row or not. -1 sets no limit.",
		&gpuann_max_scan_tuples, GPUANN_UNSET, GPUANN_UNSET, GPUANN_MAX_MAX_SCAN_TUPLES,
		PGC_USERSET, 0, check_not_zero, NULL, NULL);
	DefineCustomIntVariable("gpuann.log_min_duration",
							"Sets the time from which on a scan by the plan node is logged.",
							"0 logs every scan, -1 none.", &gpuann_log_min_duration, -1, -1,
							INT_MAX, PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomBoolVariable(
		"gpuann.plan_node", "Lets queries scan indexes by the custom scan node.",
		"It knows the query's LIMIT and filters. When off, indexes are scanned by plain index scans.",
		&gpuann_plan_node, true, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("gpuann.pending_limit",
							"Sets how many rows may wait to be linked before an insert links some.",
							"It matters where no mirror worker links the index's rows.",
							&gpuann_pending_limit, GPUANN_DEFAULT_PENDING_LIMIT,
							GPUANN_MIN_PENDING_LIMIT, GPUANN_MAX_PENDING_LIMIT, PGC_USERSET, 0,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("gpuann.server", "Lets this session ask the server.",
							 "When off, scans are answered from the index's pages.",
							 &gpuann_server, true, PGC_USERSET, 0, NULL, NULL, NULL);
	define_developer_settings();
}

/*
 * Declare the index options and the settings.
 */
void
gpuann_options_init(void)
{
	gpuann_relopt_kind = add_reloption_kind();
	add_int_reloption(gpuann_relopt_kind, "m", "Half the number of edges of a row of the graph",
					  GPUANN_DEFAULT_M, GPUANN_MIN_M, GPUANN_MAX_M, AccessExclusiveLock);
	add_int_reloption(gpuann_relopt_kind, "ef_construction", "Breadth of the search for neighbours",
					  GPUANN_DEFAULT_EF_CONSTRUCTION, GPUANN_MIN_EF_CONSTRUCTION,
					  GPUANN_MAX_EF_CONSTRUCTION, AccessExclusiveLock);
	add_enum_reloption(gpuann_relopt_kind, "method", "How the index is organised", method_options,
					   GPUANN_METHOD_GRAPH, gettext_noop("Valid values are \"graph\"."),
					   AccessExclusiveLock);

	/* These say how scans go about it, and change nothing in the pages. */
	add_int_reloption(gpuann_relopt_kind, "ef_search",
					  "Breadth of the search, unless gpuann.ef_search is set", GPUANN_UNSET,
					  GPUANN_MIN_EF_SEARCH, GPUANN_MAX_EF_SEARCH, ShareUpdateExclusiveLock);
	add_bool_reloption(gpuann_relopt_kind, "mirror",
					   "Lets the server hold a copy of the index and answer from it", true,
					   ShareUpdateExclusiveLock);
	define_scan_settings();
}

/*
 * Say what to do instead of an option of ivfflat's. Any other name that is not
 * ours is refused by build_reloptions.
 */
static void
refuse_lists(Datum reloptions)
{
	ListCell   *cell;

	foreach(cell, untransformRelOptions(reloptions))
	{
		if (strcmp(((DefElem *) lfirst(cell))->defname, "lists") == 0)
			ereport(
				ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized parameter \"lists\""),
				 errdetail("A gpuann index is a graph; it has no lists."),
				 errhint(
					 "Leave it out. The options m and ef_construction say how the graph is built, "
					 "ef_search how broadly it is searched.")));
	}
}

/*
 * Parse the index options.
 */
bytea *
gpuann_parse_options(Datum reloptions, bool validate)
{
	static const relopt_parse_elt options[] = {
		{.optname = "m", .opttype = RELOPT_TYPE_INT, .offset = offsetof(GpuannOptions, m)},
		{.optname = "ef_construction",
		 .opttype = RELOPT_TYPE_INT,
		 .offset = offsetof(GpuannOptions, ef_construction)},
		{.optname = "ef_search",
		 .opttype = RELOPT_TYPE_INT,
		 .offset = offsetof(GpuannOptions, ef_search)},
		{.optname = "method",
		 .opttype = RELOPT_TYPE_ENUM,
		 .offset = offsetof(GpuannOptions, method)},
		{.optname = "mirror",
		 .opttype = RELOPT_TYPE_BOOL,
		 .offset = offsetof(GpuannOptions, mirror)},
	};
	GpuannOptions *parsed;

	if (validate)
		refuse_lists(reloptions);
	parsed = build_reloptions(reloptions, validate, gpuann_relopt_kind, sizeof(GpuannOptions),
							  options, lengthof(options));
	if (validate && parsed != NULL && parsed->method != GPUANN_METHOD_GRAPH)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("method \"ivfpq\" is reserved and not supported by this version of gpuann"),
				 errhint("Use method = graph, or leave the option out.")));
	return (bytea *) parsed;
}

/*
 * The option m of an index.
 */
int
gpuann_option_m(Relation index)
{
	const GpuannOptions *options = (const GpuannOptions *) index->rd_options;

	return options ? options->m : GPUANN_DEFAULT_M;
}

/*
 * The option ef_construction of an index.
 */
int
gpuann_option_ef_construction(Relation index)
{
	const GpuannOptions *options = (const GpuannOptions *) index->rd_options;

	return options ? options->ef_construction : GPUANN_DEFAULT_EF_CONSTRUCTION;
}

/*
 * Whether the server may hold a copy of an index.
 */
bool
gpuann_option_mirror(Relation index)
{
	const GpuannOptions *options = (const GpuannOptions *) index->rd_options;

	return options ? options->mirror : true;
}

/*
 * How broadly a scan of an index searches first.
 */
int
gpuann_effective_ef_search(Relation index)
{
	const GpuannOptions *options = (const GpuannOptions *) index->rd_options;

	if (gpuann_ef_search != GPUANN_UNSET)
		return gpuann_ef_search;
	return options && options->ef_search != GPUANN_UNSET ? options->ef_search
														 : GPUANN_DEFAULT_EF_SEARCH;
}

/*
 * What an index is of: asked of its operator class.
 */
const GpuannTypeInfo *
gpuann_type_info(Relation index)
{
	FmgrInfo   *proc = index_getprocinfo(index, 1, GPUANN_TYPE_PROC);

	return (const GpuannTypeInfo *) DatumGetPointer(
		FunctionCall1Coll(proc, InvalidOid, PointerGetDatum(NULL)));
}

/*
 * Whether an open relation is an index of this access method: known by a
 * callback, so without a look at the catalogs.
 */
bool
is_gpuann_index(Relation relation)
{
	return relation->rd_rel->relkind == RELKIND_INDEX && relation->rd_indam != NULL &&
		relation->rd_indam->amoptions == gpuann_parse_options;
}
