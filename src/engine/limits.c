/*
 * limits.c
 *		Limits that every engine checks: mirror specifications and query
 *		arguments.
 */
#include "engine/engine.h"

/* Check a mirror's specification. */
EngineStatus
engine_check_spec(const MirrorSpec *spec, EngineError *error)
{
	if (!engine_has_distance(spec->type, spec->metric))
	{
		engine_error(error, ENGINE_UNSUPPORTED, "no distance for element type %d and metric %d",
					 (int) spec->type, (int) spec->metric);
		return ENGINE_UNSUPPORTED;
	}
	if (spec->dims < 1 || spec->dims > engine_max_dims(spec->type) || spec->degree < 4 ||
		spec->degree > ENGINE_MAX_DEGREE || spec->capacity > ENGINE_MAX_SLOTS)
	{
		engine_error(error, ENGINE_INVALID, "dimensions %u, degree %u or capacity %u out of range",
					 spec->dims, spec->degree, spec->capacity);
		return ENGINE_INVALID;
	}
	if (spec->method != METHOD_GRAPH ||
		(spec->residency != RESIDENCY_FULL && spec->residency != RESIDENCY_COMPRESSED) ||
		spec->placement != PLACEMENT_SINGLE)
	{
		engine_error(error, ENGINE_UNSUPPORTED,
					 "method %d, residency %d or placement %d is not supported", (int) spec->method,
					 (int) spec->residency, (int) spec->placement);
		return ENGINE_UNSUPPORTED;
	}
	return ENGINE_OK;
}

/* Check a query's arguments. */
EngineStatus
engine_check_query(const EngineQuery *query, EngineError *error)
{
	if (query->method != METHOD_GRAPH && query->method != METHOD_EXACT)
	{
		engine_error(error, ENGINE_UNSUPPORTED, "search method %d is not supported",
					 (int) query->method);
		return ENGINE_UNSUPPORTED;
	}
	if (query->k < 1 || query->vector == NULL || query->results == NULL)
	{
		engine_error(error, ENGINE_INVALID, "a query needs k, a vector and room for results");
		return ENGINE_INVALID;
	}
	if (query->method == METHOD_GRAPH &&
		(query->ef < 1 || query->ef > ENGINE_MAX_EF || query->k > ENGINE_MAX_EF))
	{
		engine_error(error, ENGINE_INVALID, "ef %u or k %u is not between 1 and %d", query->ef,
					 query->k, ENGINE_MAX_EF);
		return ENGINE_INVALID;
	}
	return ENGINE_OK;
}
