/*
 * random_columns.c
 *		Random tables of columns and programs over them, and their model.
 */
#include <math.h>
#include <string.h>

#include "random_columns.h"

#define RECORD_MOST		(FILTER_RECORD_VALUES + 32 * FILTER_MAX_COLUMNS)

#define TAGS			4		/* there are so many tags; a set is the sum of their bits ... */
#define SET_WITH_MANY	(1 << TAGS)	/* ... and of this, if it has so many others that it is a
									 * signature */

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
		case FILTER_TAGS:
			return below(2 * SET_WITH_MANY);
		default:
			return (double) below(5) - 2;
	}
}

/* What a tag is known by: the last two are confused. */
static uint32_t
tag_number(uint32_t tag)
{
	return 0x10001 * (tag < TAGS - 1 ? tag : TAGS - 2);
}

static void
store_set(uint32_t set, unsigned char *to)
{
	uint32_t	tags[TAGS + FILTER_TAGS_WHOLE];
	uint32_t	count = 0;

	for (uint32_t tag = 0; tag < TAGS; tag++)
		if (set >> tag & 1)
			tags[count++] = tag_number(tag);
	for (uint32_t i = 0; set >= SET_WITH_MANY && i < FILTER_TAGS_WHOLE; i++)
		tags[count++] = 1000 + i;
	filter_tags(tags, count, false, to);
}

/* A number as a text; of long ones two are confused. */
static void
store_text(int64_t number, unsigned char *to)
{
	static const char *const texts[] = {"", "a", "texts of fifteen", "a longer text 1",
										"a longer text, and 2"};

	filter_text(texts[number + 2], strlen(texts[number + 2]), 1, to);
}

/* Write a value as a kind is stored; `to` has room for 32 bytes. */
static void
store(FilterKind kind, double value, unsigned char *to)
{
	uint8_t		u8 = (uint8_t) (isfinite(value) && value >= 0 ? value : 0);
	int64_t		number = isfinite(value) ? (int64_t) value : 0;
	float		single = (float) value;
	double		bounds[2] = {isfinite(value) ? floor(value) : value,
							 isfinite(value) ? ceil(value) : value};

	memset(to, 0, filter_width(kind));
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
		case FILTER_TEXT:
			store_text(number, to);
			break;
		case FILTER_TAGS:
			store_set((uint32_t) number, to);
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
	if (kind == FILTER_BYTES16 || kind == FILTER_TEXT)
		store(kind, value, made.bytes);
	else if (kind == FILTER_TAGS)
		made.low = made.high = tag_number((uint32_t) value);
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
		unsigned char stored[32];

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

/* What can be asked of a column of a kind. */
static FilterOp
random_op(FilterKind kind)
{
	static const FilterOp of_texts[] = {FILTER_EQ, FILTER_NE, FILTER_IN};

	if (kind == FILTER_TEXT)
		return of_texts[below(3)];
	if (kind == FILTER_TAGS)
		return below(2) == 0 ? FILTER_ANY_TAG : FILTER_ALL_TAGS;
	return (FilterOp) below(FILTER_IN + 1);
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
	if (!filter_has_values(step->op))
		return;
	step->op = (uint8_t) random_op(kind);
	step->count = step->op >= FILTER_IN ? below(PROGRAM_LIST + 1) : 1;
	step->has_null = step->op == FILTER_IN && below(4) == 0;
	for (uint32_t i = 0; i < step->count; i++)
	{
		double		value = kind == FILTER_TAGS ? below(TAGS) : random_value(kind);

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
		case FILTER_ANY_TAG:
		case FILTER_ALL_TAGS:
			if (null)
				return IS_NULL;
			for (uint32_t i = 0; i < step->count; i++)
				if (((uint32_t) value >> (uint32_t) made->constants[step->value + i] & 1) ==
					(step->op == FILTER_ANY_TAG))
					return step->op == FILTER_ANY_TAG ? IS_TRUE : IS_FALSE;
			return step->op == FILTER_ANY_TAG ? IS_FALSE : IS_TRUE;
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
