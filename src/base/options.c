/*
 * options.c
 *		Index options, the settings of scans and inserts, and the type
 *		information of an index.
 */
#include "base/base.h"

#include "access/amapi.h"
#include "access/reloptions.h"
#include "fmgr.h"
#include "utils/guc.h"

int			gpuann_ef_search = GPUANN_UNSET;
int			gpuann_probes = GPUANN_UNSET;
int			gpuann_rerank = GPUANN_UNSET;
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

static relopt_enum_elt_def quantizer_options[] = {
	{"rabitq", GPUANN_QUANTIZER_RABITQ},
	{"pq", GPUANN_QUANTIZER_PQ},
	{"int8", GPUANN_QUANTIZER_INT8},
	{(const char *) NULL}
};

static relopt_enum_elt_def cooc_options[] = {
	{"auto", COOC_AUTO},
	{"on", COOC_ON},
	{"off", COOC_OFF},
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
 * Declare the settings of scans of indexes with lists.
 */
static void
define_lists_settings(void)
{
	DefineCustomIntVariable(
		"gpuann.probes", "Sets how many lists of an index with method ivfpq are searched first.",
		"More find more of the nearest rows and take longer; more than there are mean all. -1 takes the index's option probes.",
		&gpuann_probes, GPUANN_UNSET, GPUANN_UNSET, INT_MAX, PGC_USERSET, 0, check_not_zero, NULL,
		NULL);
	DefineCustomIntVariable(
		"gpuann.rerank",
		"Sets how many rows are compared exactly for each row wanted of an index with method ivfpq.",
		"-1 compares those of which the codes leave open whether they are among the nearest; of pq 20.",
		&gpuann_rerank, GPUANN_UNSET, GPUANN_UNSET, GPUANN_MAX_RERANK, PGC_USERSET, 0,
		check_not_zero, NULL, NULL);
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
	define_lists_settings();
	define_developer_settings();
}

/*
 * Declare the options of indexes with lists.
 */
static void
add_lists_options(void)
{
	add_int_reloption(gpuann_relopt_kind, "lists", "Number of lists of method ivfpq", GPUANN_UNSET,
					  GPUANN_MIN_LISTS, GPUANN_MAX_LISTS, AccessExclusiveLock);
	add_enum_reloption(gpuann_relopt_kind, "quantizer", "How method ivfpq shortens vectors",
					   quantizer_options, GPUANN_QUANTIZER_RABITQ,
					   gettext_noop("Valid values are \"rabitq\", \"pq\" and \"int8\"."),
					   AccessExclusiveLock);
	add_int_reloption(gpuann_relopt_kind, "code_bits",
					  "Bits a dimension (rabitq) or a sub-space (pq)", GPUANN_UNSET,
					  GPUANN_MIN_CODE_BITS, GPUANN_MAX_CODE_BITS, AccessExclusiveLock);
	add_int_reloption(gpuann_relopt_kind, "pq_m", "Number of sub-spaces (pq)", GPUANN_UNSET,
					  GPUANN_MIN_PQ_M, GPUANN_MAX_PQ_M, AccessExclusiveLock);
	add_int_reloption(gpuann_relopt_kind, "probes",
					  "Number of lists searched first, unless gpuann.probes is set", GPUANN_UNSET,
					  GPUANN_MIN_PROBES, GPUANN_MAX_PROBES, ShareUpdateExclusiveLock);
	add_enum_reloption(gpuann_relopt_kind, "cooc",
					   "Lets mirrors scan pq codes by items that occur together", cooc_options,
					   COOC_OFF, gettext_noop("Valid values are \"auto\", \"on\" and \"off\"."),
					   ShareUpdateExclusiveLock);
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
					   GPUANN_METHOD_GRAPH, gettext_noop("Valid values are \"graph\" and \"ivfpq\"."),
					   AccessExclusiveLock);

	/* Options of scans, which do not affect pages. */
	add_int_reloption(gpuann_relopt_kind, "ef_search",
					  "Breadth of the search, unless gpuann.ef_search is set", GPUANN_UNSET,
					  GPUANN_MIN_EF_SEARCH, GPUANN_MAX_EF_SEARCH, ShareUpdateExclusiveLock);
	add_bool_reloption(gpuann_relopt_kind, "mirror",
					   "Lets the server hold a copy of the index and answer from it", true,
					   ShareUpdateExclusiveLock);
	add_lists_options();
	define_scan_settings();
}

/*
 * Refuse an option that the method does not have. Any name that is not ours is
 * refused by build_reloptions.
 */
static void
refuse_option(const char *name, bool lists)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("option \"%s\" is not one of method \"%s\"", name, lists ? "ivfpq" : "graph"),
			 lists ? errhint("Leave it out. The options lists, quantizer, code_bits and pq_m say how "
							 "the lists are built, probes how many are searched.")
				   : errhint("Leave it out, or add method = ivfpq. The options m and "
							 "ef_construction say how the graph is built, ef_search how broadly "
							 "it is searched.")));
}

/*
 * Check that options are those of the method, by their names.
 */
static void
check_option_names(Datum reloptions, bool lists)
{
	static const char *const of_graph[] = {"m", "ef_construction"};
	static const char *const of_lists[] = {"lists", "quantizer", "code_bits", "pq_m", "probes",
											"cooc"};
	const char *const *refused = lists ? of_graph : of_lists;
	int			count = lists ? lengthof(of_graph) : lengthof(of_lists);
	ListCell   *cell;

	foreach(cell, untransformRelOptions(reloptions))
	{
		const char *name = ((DefElem *) lfirst(cell))->defname;

		for (int i = 0; i < count; i++)
			if (strcmp(name, refused[i]) == 0)
				refuse_option(name, lists);
	}
}

/*
 * Check the options of a quantizer.
 */
static void
check_quantizer(const GpuannOptions *options)
{
	bool		pq = options->quantizer == GPUANN_QUANTIZER_PQ;

	if (options->quantizer == GPUANN_QUANTIZER_INT8 && options->code_bits != GPUANN_UNSET &&
		options->code_bits != 8)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("codes of quantizer \"int8\" have 8 bits a dimension"),
						errhint("Leave code_bits out, or use quantizer = rabitq.")));
	if (pq && options->code_bits != GPUANN_UNSET && options->code_bits != 4 &&
		options->code_bits != 8)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("codes of quantizer \"pq\" have 4 or 8 bits a sub-space"),
						errhint("pq_m says how many sub-spaces there are.")));
	if (!pq && options->pq_m != GPUANN_UNSET)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("option \"pq_m\" is one of quantizer \"pq\" only"),
						errhint("Leave it out, or add quantizer = pq.")));
	if (options->cooc == COOC_ON && (!pq || options->code_bits == 4))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("option \"cooc\" is one of quantizer \"pq\" with 8 bits only"),
						errhint("Leave it out, or use quantizer = pq, code_bits = 8.")));
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
		{.optname = "lists", .opttype = RELOPT_TYPE_INT, .offset = offsetof(GpuannOptions, lists)},
		{.optname = "quantizer",
		 .opttype = RELOPT_TYPE_ENUM,
		 .offset = offsetof(GpuannOptions, quantizer)},
		{.optname = "code_bits",
		 .opttype = RELOPT_TYPE_INT,
		 .offset = offsetof(GpuannOptions, code_bits)},
		{.optname = "pq_m", .opttype = RELOPT_TYPE_INT, .offset = offsetof(GpuannOptions, pq_m)},
		{.optname = "probes",
		 .opttype = RELOPT_TYPE_INT,
		 .offset = offsetof(GpuannOptions, probes)},
		{.optname = "cooc",
		 .opttype = RELOPT_TYPE_ENUM,
		 .offset = offsetof(GpuannOptions, cooc)},
	};
	GpuannOptions *parsed;

	parsed = build_reloptions(reloptions, validate, gpuann_relopt_kind, sizeof(GpuannOptions),
							  options, lengthof(options));
	if (validate && parsed != NULL)
	{
		check_option_names(reloptions, parsed->method == GPUANN_METHOD_IVFPQ);
		check_quantizer(parsed);
	}
	return (bytea *) parsed;
}

/*
 * The option method of an index: of its next build, if it was altered.
 */
GpuannMethod
gpuann_option_method(Relation index)
{
	const GpuannOptions *options = (const GpuannOptions *) index->rd_options;

	return options ? (GpuannMethod) options->method : GPUANN_METHOD_GRAPH;
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
 * How broadly a scan of an index searches first. What was built decides the
 * default: the option method may have been altered since.
 */
int
gpuann_effective_ef_search(Relation index, bool lists)
{
	const GpuannOptions *options = (const GpuannOptions *) index->rd_options;

	if (gpuann_ef_search != GPUANN_UNSET)
		return gpuann_ef_search;
	if (options && options->ef_search != GPUANN_UNSET)
		return options->ef_search;
	return lists ? GPUANN_DEFAULT_LISTS_EF : GPUANN_DEFAULT_EF_SEARCH;
}

/*
 * How many of an index's lists a scan probes. By itself six times the
 * square root, for a recall of about .95 (docs/choosing.md).
 */
uint32
gpuann_effective_probes(Relation index, uint32 lists, double ef)
{
	const GpuannOptions *options = (const GpuannOptions *) index->rd_options;
	double		probes = ceil(6 * sqrt(lists));

	if (gpuann_probes != GPUANN_UNSET)
		probes = gpuann_probes;
	else if (options && options->probes != GPUANN_UNSET)
		probes = options->probes;
	probes *= Max(ef / Max(gpuann_effective_ef_search(index, true), GPUANN_DEFAULT_EF_SEARCH), 1);
	return (uint32) Min(ceil(probes), (double) lists);
}

/*
 * The type information of an index, from support function 2 of its operator
 * class.
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
