/*
 * filter_program.c
 *		Copies of programs.
 */
#include "engine/filter_program.h"

#include <stdlib.h>
#include <string.h>

void
program_write(const FilterProgram *program, void *to)
{
	size_t		values = program->nvalues * sizeof(FilterValue);

	if (values > 0)
		memcpy(to, program->values, values);
	memcpy((char *) to + values, program->steps, program->nsteps * sizeof(FilterStep));
}

FilterProgram *
program_copy(const FilterProgram *program)
{
	FilterProgram *copy = malloc(sizeof(*copy) + program_bytes(program));

	if (copy == NULL)
		return NULL;
	*copy = *program;
	copy->values = (const FilterValue *) (copy + 1);
	copy->steps = (const FilterStep *) (copy->values + program->nvalues);
	program_write(program, copy + 1);
	return copy;
}

bool
program_same(const FilterProgram *a, const FilterProgram *b)
{
	if (a->nsteps != b->nsteps || a->nvalues != b->nvalues ||
		(a->nvalues > 0 && memcmp(a->values, b->values, a->nvalues * sizeof(FilterValue)) != 0))
		return false;
	/* Not as bytes: those between fields may be any. */
	for (uint32_t i = 0; i < a->nsteps; i++)
	{
		const FilterStep *x = &a->steps[i];
		const FilterStep *y = &b->steps[i];

		if (x->op != y->op || x->column != y->column || x->has_null != y->has_null ||
			x->value != y->value || x->count != y->count)
			return false;
	}
	return true;
}
