/*
 * random_columns.c
 *		Random tables of columns and programs over them, and their model.
 */
#include <math.h>
#include <string.h>

#include "random_columns.h"

#define RECORD_MOST		(FILTER_RECORD_VALUES + 16 * FILTER_MAX_COLUMNS)

static uint32_t (*below) (uint32_t limit);

/* Values that matter, as quarters: what is stored between bounds may be any. */
const double table_reals[TABLE_REALS] = {-INFINITY, -2.5, -1, -0.25, -0.0,	0.0,
							   0.25,	  0.5,	1,	2.5,   INFINITY, NAN};

/* A value that a kind can have. */
static double
random_value(FilterKind kind)
{
	switch (kind)
	{
		case FILTER_U8:
		case FILTER_U32:
			return below(4);
		case FILTER_F32:
		case FILTER_F64:
		case FILTER_BOUNDS:
			return table_reals[below(TABLE_REALS)];
		default:
			return (double) below(5) - 2;
	}
}

/* Write a value as a kind is stored; `to` has room for 16 bytes. */
static void
store(FilterKind kind, double value, unsigned char *to)
{
	uint8_t		u8 = (uint8_t) (isfinite(value) && value >= 0 ? value : 0);
	int64_t		number = isfinite(value) ? (int64_t) value : 0;
	float		single = (float) value;
	double		bounds[2] = {isfinite(value) ? floor(value) : value,
							 isfinite(value) ? ceil(value) : value};

	memset(to, 0, 16);
	switch (kind)
	{
		case FILTER_U8:
			memcpy(to, &u8, 1);
			break;
		case FILTER_F32:
			memcpy(to, &single, 4);
			break;
		case FILTER_F64:
			memcpy(to, &value, 8);
			break;
		case FILTER_BYTES16:
			to[15] = (unsigned char) (number + 2);
			break;
		case FILTER_BOUNDS:
			memcpy(to, bounds, 16);
			break;
		default:
			memcpy(to, &number, filter_width(kind));	/* of a machine with low bytes first */
	}
}

/* A constant of a program. */
static FilterValue
constant_of(FilterKind kind, double value)
{
	FilterValue made;

	memset(&made, 0, sizeof(made));
	if (kind == FILTER_BYTES16)
		store(kind, value, made.bytes);
	else if (kind == FILTER_BOUNDS)
	{
		made.low = filter_real(isfinite(value) ? floor(value) : value);
		made.high = filter_real(isfinite(value) ? ceil(value) : value);
	}
	else
		made.low = made.high = kind == FILTER_F32 || kind == FILTER_F64 ? filter_real(value)
																		: (int64_t) value;
	return made;
}

Table *
table_create(uint32_t rows, void *(*allocate) (size_t bytes), uint32_t (*random) (uint32_t limit))
{
	Table	   *table = allocate(sizeof(Table));

	below = random;
	table->rows = rows;
	table->records = allocate((size_t) rows * RECORD_MOST);
	table->null = allocate(rows * sizeof(*table->null));
	table->value = allocate(rows * sizeof(*table->value));
	table_make(table);
	return table;
}

void
table_make_row(Table *table, uint32_t row)
{
	unsigned char *record = table->records + (size_t) row * table->record_bytes;
	unsigned char *to = record + FILTER_RECORD_VALUES;
	uint16_t	nulls = 0;

	memset(record, 0xA5, table->record_bytes);
	for (uint32_t c = 0; c < table->columns; c++)
	{
		unsigned char stored[16];

		table->null[row][c] = below(5) == 0;
		table->value[row][c] = random_value(table->kinds[c]);
		nulls |= (uint16_t) (table->null[row][c] << c);
		store(table->kinds[c], table->value[row][c], stored);
		memcpy(to, stored, filter_width(table->kinds[c]));
		to += filter_width(table->kinds[c]);
	}
	memcpy(record + FILTER_RECORD_NULLS, &nulls, sizeof(nulls));
}

void
table_make(Table *table)
{
	table->columns = 1 + below(FILTER_MAX_COLUMNS);
	for (uint32_t c = 0; c < table->columns; c++)
		table->kinds[c] = 1 + below(FILTER_KINDS - 1);
	table->record_bytes = filter_record_bytes(table->kinds, table->columns);
	for (uint32_t r = 0; r < table->rows; r++)
		table_make_row(table, r);
}

/* Add a step that needs no result before it. */
static void
add_leaf(const Table *table, Made *made)
{
	FilterStep *step = &made->steps[made->nsteps++];
	FilterKind	kind;

	*step = (FilterStep) {.op = (uint8_t) below(FILTER_OPEN),
						  .column = (uint8_t) below(table->columns),
						  .value = made->nvalues};
	kind = table->kinds[step->column];
	made->depth++;
	if (step->op > FILTER_IN)
		return;
	step->count = step->op == FILTER_IN ? below(PROGRAM_LIST + 1) : 1;
	step->has_null = step->op == FILTER_IN && below(4) == 0;
	for (uint32_t i = 0; i < step->count; i++)
	{
		double		value = random_value(kind);

		made->constants[made->nvalues] = value;
		made->values[made->nvalues++] = constant_of(kind, value);
	}
	if (step->op == FILTER_IN)
		filter_sort(kind, made->values + step->value, step->count);
}

void
program_make(const Table *table, Made *made)
{
	uint32_t	leaves = 1 + below(8);

	made->nsteps = made->nvalues = made->depth = 0;
	while (leaves > 0 || made->depth > 1)
	{
		uint32_t	choice = below(4);

		if (leaves > 0 && (made->depth < 2 || choice == 0))
		{
			add_leaf(table, made);
			leaves--;
		}
		else if (made->nsteps < PROGRAM_STEPS - 20 && choice == 1)
			made->steps[made->nsteps++] = (FilterStep) {.op = FILTER_NOT};
		else if (made->depth >= 2)
		{
			made->steps[made->nsteps++] = (FilterStep) {.op = choice == 2 ? FILTER_AND : FILTER_OR};
			made->depth--;
		}
	}
}

/* ---- the model ---- */

/* PostgreSQL's order of floats: NaN is equal to itself, and the last. */
int
order_of(double a, double b)
{
	if (isnan(a) || isnan(b))
		return isnan(a) - isnan(b);
	return (a > b) - (a < b);
}

static Truth
leaf_truth(const Table *table, const Made *made, const FilterStep *step, uint32_t row)
{
	bool		null = table->null[row][step->column];
	double		value = table->value[row][step->column];
	int			order;

	switch ((FilterOp) step->op)
	{
		case FILTER_TRUE:
			return IS_TRUE;
		case FILTER_FALSE:
			return IS_FALSE;
		case FILTER_NULL:
			return IS_NULL;
		case FILTER_IS_NULL:
			return null ? IS_TRUE : IS_FALSE;
		case FILTER_IN:
			if (null)
				return IS_NULL;
			for (uint32_t i = 0; i < step->count; i++)
				if (order_of(value, made->constants[step->value + i]) == 0)
					return IS_TRUE;
			return step->has_null ? IS_NULL : IS_FALSE;
		default:
			if (null)
				return IS_NULL;
	}
	order = order_of(value, made->constants[step->value]);
	switch ((FilterOp) step->op)
	{
		case FILTER_LT:
			return order < 0 ? IS_TRUE : IS_FALSE;
		case FILTER_LE:
			return order <= 0 ? IS_TRUE : IS_FALSE;
		case FILTER_EQ:
			return order == 0 ? IS_TRUE : IS_FALSE;
		case FILTER_NE:
			return order != 0 ? IS_TRUE : IS_FALSE;
		case FILTER_GE:
			return order >= 0 ? IS_TRUE : IS_FALSE;
		default:
			return order > 0 ? IS_TRUE : IS_FALSE;
	}
}

FilterProgram
program_of(const Made *made)
{
	return (FilterProgram) {made->steps, made->values, made->nsteps, made->nvalues};
}

Truth
truth_of(const Table *table, const Made *made, uint32_t row)
{
	Truth		stack[PROGRAM_STEPS];
	uint32_t	depth = 0;

	for (uint32_t i = 0; i < made->nsteps; i++)
	{
		const FilterStep *step = &made->steps[i];
		Truth		last = depth > 0 ? stack[depth - 1] : IS_NULL;

		if (step->op == FILTER_NOT)
			stack[depth - 1] = IS_TRUE - last;
		else if (step->op == FILTER_AND || step->op == FILTER_OR)
		{
			Truth		before = stack[depth-- - 2];
			bool		least = step->op == FILTER_AND;

			stack[depth - 1] = (last < before) == least ? last : before;
		}
		else
			stack[depth++] = leaf_truth(table, made, step, row);
	}
	return stack[0];
}
