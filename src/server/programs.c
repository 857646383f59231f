/*
 * programs.c
 *		Programs that queries name: copied out of the area, then checked.
 *
 * The copy comes first, because the client could change a program after the
 * check; and a byte of it that is not what its type allows is refused before it
 * is read as that type.
 */
#include <string.h>

#include "server/server.h"

/* Whether the steps have flags that are flags. */
static bool
flags_are_right(const unsigned char *steps, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (steps[i * sizeof(FilterStep) + offsetof(FilterStep, has_null)] > 1)
			return false;
	return true;
}

EngineStatus
program_take(const QueryRequest *request, const void *from, void *room, FilterProgram *program,
			 EngineError *error)
{
	size_t		values = (size_t) request->program_values * sizeof(FilterValue);

	*program = (FilterProgram) {0};
	if (request->program_steps == 0)
		return ENGINE_OK;
	if (program_bytes_of(request->program_steps, request->program_values) > PROGRAM_BYTES)
		return engine_error(error, ENGINE_INVALID, "a program of %u steps and %u values is too long",
							request->program_steps, request->program_values);
	memcpy(room, from, program_bytes_of(request->program_steps, request->program_values));
	if (!flags_are_right((const unsigned char *) room + values, request->program_steps))
		return engine_error(error, ENGINE_INVALID, "a step of a program has an invalid flag");
	*program = (FilterProgram) {
		.values = room,
		.steps = (const void *) ((const unsigned char *) room + values),
		.nvalues = request->program_values,
		.nsteps = request->program_steps,
	};
	return ENGINE_OK;
}

EngineStatus
program_restrict(const HeldMirror *mirror, const FilterProgram *program, EngineQuery *query,
				 EngineError *error)
{
	const char *fault;

	if (program->nsteps == 0)
		return ENGINE_OK;
	fault = filter_fault(program, mirror->spec.column_kinds, mirror->spec.columns);
	if (fault != NULL)
		return engine_error(error, ENGINE_INVALID, "the program is invalid: %s", fault);
	query->program = program;
	return ENGINE_OK;
}
