/*
 * limits.c
 *		Limits that every engine checks: mirror specifications, arguments of
 *		jobs and of queries.
 */
#include "engine/engine.h"

/* Check what a mirror's method asks of its specification. */
static EngineStatus
check_method(const MirrorSpec *spec, EngineError *error)
{
	if (spec->method == METHOD_GRAPH)
	{
		if (spec->degree >= 4 && spec->degree <= ENGINE_MAX_DEGREE)
			return ENGINE_OK;
		return engine_error(error, ENGINE_INVALID, "degree %u is not between 4 and %d",
							spec->degree, ENGINE_MAX_DEGREE);
	}
	if (spec->type == ELEMENT_BIT || spec->metric > METRIC_COSINE ||
		spec->dims > ENGINE_MAX_LIST_DIMS)
		return engine_error(error, ENGINE_UNSUPPORTED,
							"no lists of element type %d, metric %d and %u dimensions",
							(int) spec->type, (int) spec->metric, spec->dims);
	if (spec->lists.cooc > COOC_OFF || (spec->lists.cooc == COOC_ON &&
		(spec->lists.quantizer != QUANTIZER_PQ || spec->lists.bits != 8)))
		return engine_error(error, ENGINE_INVALID,
							"co-occurrence codes (mode %d) are of pq codes of 8 bits only",
							(int) spec->lists.cooc);
	if (spec->degree == 1 && spec->lists.lists >= 1 && spec->lists.lists <= ENGINE_MAX_LISTS)
		return ENGINE_OK;
	return engine_error(error, ENGINE_INVALID,
						"%u lists are not between 1 and %d, or degree %u is not 1",
						spec->lists.lists, ENGINE_MAX_LISTS, spec->degree);
}

/* Check a mirror's specification. */
EngineStatus
engine_check_spec(const MirrorSpec *spec, EngineError *error)
{
	if (!engine_has_distance(spec->type, spec->metric))
		return engine_error(error, ENGINE_UNSUPPORTED,
							"no distance for element type %d and metric %d", (int) spec->type,
							(int) spec->metric);
	if (spec->dims < 1 || spec->dims > engine_max_dims(spec->type) ||
		spec->capacity > ENGINE_MAX_SLOTS)
		return engine_error(error, ENGINE_INVALID, "dimensions %u or capacity %u out of range",
							spec->dims, spec->capacity);
	if ((spec->method != METHOD_GRAPH && spec->method != METHOD_IVFPQ) ||
		(spec->residency != RESIDENCY_FULL && spec->residency != RESIDENCY_COMPRESSED) ||
		spec->placement != PLACEMENT_SINGLE)
		return engine_error(error, ENGINE_UNSUPPORTED,
							"method %d, residency %d or placement %d is not supported",
							(int) spec->method, (int) spec->residency, (int) spec->placement);
	if (spec->columns > FILTER_MAX_COLUMNS ||
		filter_record_bytes(spec->column_kinds, spec->columns) == 0)
		return engine_error(error, ENGINE_INVALID,
							"%u columns are more than %d, or one is of no kind", spec->columns,
							FILTER_MAX_COLUMNS);
	return check_method(spec, error);
}

/* Check that the counts requested are those of the mirror's lists. */
EngineStatus
engine_check_lists(uint32_t lists, uint32_t count, EngineError *error)
{
	if (lists > 0 && lists == count)
		return ENGINE_OK;
	return engine_error(error, ENGINE_INVALID,
						"counts of %u lists are asked for of a mirror with %u", count, lists);
}

/* Check that a job brings the arrays that its kind needs. */
static EngineStatus
check_arrays(const EngineJob *job, const MirrorSpec *spec, EngineError *error)
{
	JobKind		kind = job->kind;
	bool		slots = kind != JOB_APPEND && kind != JOB_CODEBOOK && kind != JOB_DROP &&
				!engine_job_links(kind);
	bool		versions = kind == JOB_APPEND || kind == JOB_OVERWRITE || kind == JOB_DEAD;
	bool		vectors = kind == JOB_APPEND || kind == JOB_OVERWRITE || kind == JOB_CODEBOOK;
	bool		columns = spec->columns > 0 && vectors && kind != JOB_CODEBOOK;

	if (job->count > 0 &&
		((slots && job->slots == NULL) || (versions && job->versions == NULL) ||
		 (vectors && job->vectors == NULL) || (columns && job->columns == NULL) ||
		 (kind == JOB_GRAPH && job->rows == NULL)))
		return engine_error(error, ENGINE_INVALID, "a job of kind %d lacks its arrays",
							(int) kind);
	return ENGINE_OK;
}

/*
 * Check a job's arguments; spec is its mirror's. Slots are checked when it
 * runs.
 */
EngineStatus
engine_check_job(const EngineJob *job, const MirrorSpec *spec, EngineError *error)
{
	bool		lists = spec->method == METHOD_IVFPQ;
	bool		links = engine_job_links(job->kind);

	if (job->kind < JOB_APPEND || job->kind > JOB_TRAIN)
		return engine_error(error, ENGINE_INVALID, "no job is of kind %d", (int) job->kind);
	if (lists ? job->kind == JOB_SEEDS || job->kind == JOB_REPAIR
			  : job->kind == JOB_CODEBOOK || job->kind == JOB_TRAIN)
		return engine_error(error, ENGINE_INVALID, "a job of kind %d is not for a mirror %s",
							(int) job->kind, lists ? "with lists" : "with a graph");
	if (links && job->threads < 0)
		return engine_error(error, ENGINE_INVALID, "%d threads are none", job->threads);
	if (!lists && links && (job->ef_construction < 4 || job->ef_construction > 1000))
		return engine_error(error, ENGINE_INVALID, "ef_construction %u is not between 4 and 1000",
							job->ef_construction);
	return check_arrays(job, spec, error);
}

/* Check a query's arguments; spec is its mirror's. */
EngineStatus
engine_check_query(const EngineQuery *query, const MirrorSpec *spec, EngineError *error)
{
	const char *fault = NULL;

	if (query->method != spec->method && query->method != METHOD_EXACT)
		return engine_error(error, ENGINE_UNSUPPORTED, "search method %d is not supported",
							(int) query->method);
	if (query->k < 1 || query->vector == NULL || query->results == NULL)
		return engine_error(error, ENGINE_INVALID,
							"a query needs k, a vector and room for results");
	if (query->method == METHOD_GRAPH &&
		(query->ef < 1 || query->ef > ENGINE_MAX_EF || query->k > ENGINE_MAX_EF))
		return engine_error(error, ENGINE_INVALID, "ef %u or k %u is not between 1 and %d",
							query->ef, query->k, ENGINE_MAX_EF);
	if (query->method == METHOD_IVFPQ && (query->probes < 1 || query->k > ENGINE_MAX_EF))
		return engine_error(error, ENGINE_INVALID,
							"%u probes are none, or k %u is not between 1 and %d", query->probes,
							query->k, ENGINE_MAX_EF);
	if (query->program != NULL && spec->columns == 0)
		fault = "the mirror has no columns";
	else if (query->program != NULL)
		fault = filter_fault(query->program, spec->column_kinds, spec->columns);
	if (fault != NULL)
		return engine_error(error, ENGINE_INVALID, "a query's condition is invalid: %s", fault);
	return ENGINE_OK;
}
