/*
 * filter_test.c
 *		Programs over columns: random ones, beside a model in three-valued
 *		logic, for every kind of column. No row that passes is excluded, and
 *		where values are stored whole no other row is let pass.
 */
#include <math.h>
#include <string.h>

#include "engine/filter.h"
#include "promises.h"

#define ROWS		150			/* not a multiple of what is evaluated together */
#define ROUNDS		4000
#define MAX_STEPS	64
#define MAX_LIST	6
#define ROW_BYTES	(2 + 16 * FILTER_MAX_COLUMNS)

/* Values that matter, as quarters: what is stored between bounds may be any. */
static const double reals[] = {-INFINITY, -2.5, -1, -0.25, -0.0,	0.0,
							   0.25,	  0.5,	1,	2.5,   INFINITY, NAN};

#define REALS	(sizeof(reals) / sizeof(reals[0]))

typedef enum Truth
{
	IS_FALSE,
	IS_NULL,
	IS_TRUE
} Truth;

/* A table, once as it is stored and once as the model knows it. */
typedef struct Table
{
	FilterKind	kinds[FILTER_MAX_COLUMNS];
	uint32_t	columns;
	unsigned char stored[ROWS][ROW_BYTES];
	bool		null[ROWS][FILTER_MAX_COLUMNS];
	double		value[ROWS][FILTER_MAX_COLUMNS];
} Table;

/* A program, and its constants as the model knows them. */
typedef struct Made
{
	FilterStep	steps[MAX_STEPS];
	FilterValue values[MAX_STEPS * MAX_LIST];
	double		constants[MAX_STEPS * MAX_LIST];
	uint32_t	nsteps;
	uint32_t	nvalues;
	uint32_t	depth;
} Made;

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
			return reals[below(REALS)];
		default:
			return (double) below(5) - 2;
	}
}

/* Write a value as a kind is stored. */
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

static void
make_table(Table *table)
{
	table->columns = 1 + below(FILTER_MAX_COLUMNS);
	for (uint32_t c = 0; c < table->columns; c++)
		table->kinds[c] = 1 + below(FILTER_KINDS - 1);
	for (uint32_t r = 0; r < ROWS; r++)
	{
		uint16_t	nulls = 0;

		for (uint32_t c = 0; c < table->columns; c++)
		{
			table->null[r][c] = below(5) == 0;
			table->value[r][c] = random_value(table->kinds[c]);
			nulls |= (uint16_t) (table->null[r][c] << c);
			store(table->kinds[c], table->value[r][c], table->stored[r] + 2 + 16 * c);
		}
		memcpy(table->stored[r], &nulls, 2);
	}
}

static void
describe_rows(const Table *table, FilterRows *rows)
{
	*rows = (FilterRows) {.count = ROWS, .columns = table->columns, .nulls = table->stored,
						  .nulls_stride = ROW_BYTES};
	for (uint32_t c = 0; c < table->columns; c++)
	{
		rows->column[c].kind = table->kinds[c];
		rows->column[c].values = table->stored[0] + 2 + 16 * c;
		rows->column[c].stride = ROW_BYTES;
	}
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
	step->count = step->op == FILTER_IN ? below(MAX_LIST + 1) : 1;
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

static void
make_program(const Table *table, Made *made)
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
		else if (made->nsteps < MAX_STEPS - 20 && choice == 1)
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
static int
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

static Truth
truth_of(const Table *table, const Made *made, uint32_t row)
{
	Truth		stack[MAX_STEPS];
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

/* ---- promises ---- */

/* Whether a program's steps read only columns whose values are stored whole. */
static bool
is_whole(const Table *table, const Made *made)
{
	for (uint32_t i = 0; i < made->nsteps; i++)
		if (made->steps[i].op <= FILTER_IN && table->kinds[made->steps[i].column] == FILTER_BOUNDS)
			return false;
	return true;
}

static bool
has(const uint64_t *words, uint32_t row)
{
	return words[row / 64] >> (row % 64) & 1;
}

static void
random_programs(bool whole)
{
	Table	   *table = need(sizeof(Table));
	Made	   *made = need(sizeof(Made));
	uint32_t	passed = 0;
	uint32_t	run = 0;

	while (run < ROUNDS)
	{
		FilterProgram program;
		FilterRows	rows;
		uint64_t	may[(ROWS + 63) / 64];
		uint64_t	surely[(ROWS + 63) / 64];

		if (run % 10 == 0)
			make_table(table);
		make_program(table, made);
		if (is_whole(table, made) != whole)
		{
			if (below(20) == 0)
				make_table(table);
			continue;
		}
		run++;
		program = (FilterProgram) {made->steps, made->values, made->nsteps, made->nvalues};
		describe_rows(table, &rows);
		CHECK(filter_fault(&program, table->kinds, table->columns) == NULL);
		filter_run(&program, &rows, FILTER_MAY, may);
		filter_run(&program, &rows, FILTER_SURELY, surely);
		CHECK(may[ROWS / 64] >> (ROWS % 64) == 0 && surely[ROWS / 64] >> (ROWS % 64) == 0);
		for (uint32_t row = 0; row < ROWS; row++)
		{
			bool		passes = truth_of(table, made, row) == IS_TRUE;

			passed += passes;
			CHECK(!passes || has(may, row));
			CHECK(passes || !has(surely, row));
			CHECK(!whole || (has(may, row) == passes && has(surely, row) == passes));
		}
	}
	CHECK(passed > ROUNDS * ROWS / 10 && passed < ROUNDS * ROWS / 10 * 9);
	free(table);
	free(made);
}

static void
reals_have_an_order(void)
{
	double		tried[REALS + 6] = {1e-320, -1e-320, 1e308, -1e308, nextafter(1, 2),
									nextafter(-1, 0)};

	memcpy(tried + 6, reals, sizeof(reals));
	for (uint32_t i = 0; i < REALS + 6; i++)
		for (uint32_t j = 0; j < REALS + 6; j++)
		{
			int64_t		a = filter_real(tried[i]);
			int64_t		b = filter_real(tried[j]);

			CHECK(order_of(tried[i], tried[j]) == (a > b) - (a < b));
		}
}

/* What is open may pass and may fail, and surely does neither. */
static void
open_is_neither(void)
{
	FilterStep	steps[4] = {
		{.op = FILTER_OPEN}, {.op = FILTER_NOT}, {.op = FILTER_TRUE}, {.op = FILTER_AND}};
	FilterProgram program = {.steps = steps};
	FilterRows	rows = {.count = 3};

	for (program.nsteps = 1; program.nsteps <= 4; program.nsteps++)
	{
		uint64_t	word = 0;

		if (program.nsteps == 3)
			continue;
		CHECK(filter_fault(&program, NULL, 0) == NULL);
		filter_run(&program, &rows, FILTER_MAY, &word);
		CHECK(word == 7);
		filter_run(&program, &rows, FILTER_SURELY, &word);
		CHECK(word == 0);
	}
}

static void
faults_are_found(void)
{
	const FilterKind kinds[1] = {FILTER_I32};
	const FilterStep wrong[][2] = {
		{{.op = FILTER_OPS}},
		{{.op = FILTER_NOT}},
		{{.op = FILTER_TRUE}, {.op = FILTER_AND}},
		{{.op = FILTER_EQ, .column = 1}, {.op = FILTER_NOT}},
		{{.op = FILTER_EQ, .value = 1}, {.op = FILTER_NOT}},
		{{.op = FILTER_IN, .count = 2}, {.op = FILTER_NOT}},
		{{.op = FILTER_IN, .value = UINT32_MAX, .count = 2}, {.op = FILTER_NOT}},
		{{.op = FILTER_TRUE}, {.op = FILTER_TRUE}}
	};
	FilterValue value = {.low = 1, .high = 1};
	FilterStep	deep[FILTER_MAX_DEPTH + 1];
	FilterProgram program = {.values = &value, .nvalues = 1};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
	{
		program.steps = wrong[i];
		program.nsteps = i < 2 ? 1 : 2;
		CHECK(filter_fault(&program, kinds, 1) != NULL);
	}
	for (uint32_t i = 0; i <= FILTER_MAX_DEPTH; i++)
		deep[i] = (FilterStep) {.op = FILTER_TRUE};
	program.steps = deep;
	program.nsteps = FILTER_MAX_DEPTH + 1;
	CHECK(filter_fault(&program, kinds, 1) != NULL);
	program.nsteps = 0;
	CHECK(filter_fault(&program, kinds, 1) != NULL);
}

int
main(void)
{
	promises_of = "filter";
	reals_have_an_order();
	report("floats are compared in PostgreSQL's order");
	random_programs(true);
	report("of columns stored whole exactly the rows pass that the model lets pass");
	random_programs(false);
	report("of columns stored as bounds no row is excluded that passes, and none surely passes that does not");
	open_is_neither();
	report("what a program does not express may pass and may fail, and surely does neither");
	faults_are_found();
	report("a program with a fault is refused");
	return promises_end();
}
