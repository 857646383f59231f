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
#include "random_columns.h"

#define ROWS		150			/* not a multiple of what is evaluated together */
#define ROUNDS		4000

/* Whether a program's steps read only columns whose values are stored whole. */
static bool
is_whole(const Table *table, const Made *made)
{
	for (uint32_t i = 0; i < made->nsteps; i++)
		if (filter_has_values(made->steps[i].op) &&
			table->kinds[made->steps[i].column] >= FILTER_BOUNDS)
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
	Table	   *table = table_create(ROWS, need, below);
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
			table_make(table);
		program_make(table, made);
		if (is_whole(table, made) != whole)
		{
			if (below(20) == 0)
				table_make(table);
			continue;
		}
		run++;
		program = program_of(made);
		filter_record_rows(table->kinds, table->columns, table->records, ROWS, &rows);
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
	free(table->records);
	free(table->null);
	free(table->value);
	free(table);
	free(made);
}

static void
reals_have_an_order(void)
{
	double		tried[TABLE_REALS + 6] = {1e-320, -1e-320, 1e308, -1e308, nextafter(1, 2),
									nextafter(-1, 0)};

	memcpy(tried + 6, table_reals, sizeof(table_reals));
	for (uint32_t i = 0; i < TABLE_REALS + 6; i++)
		for (uint32_t j = 0; j < TABLE_REALS + 6; j++)
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
	report("of columns stored as bounds, hashes or signatures no row is excluded that passes, and none surely passes that does not");
	open_is_neither();
	report("what a program does not express may pass and may fail, and surely does neither");
	faults_are_found();
	report("a program with a fault is refused");
	return promises_end();
}
