/*
 * filter.c
 *		Evaluation of programs over columns: 64 rows at a time, a step of the
 *		program for all of them, so that a result is one word.
 */
#include "engine/filter_value.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK	64				/* rows that are evaluated together */

#define TEXT_PREFIX		7		/* bytes of a long text beside its hash */
#define MANY_TAGS		(FILTER_TAGS_WHOLE + 1)

/* The result of a step for a block of rows: a bit for each. */
typedef struct FilterResult
{
	uint64_t	pass;
	uint64_t	fail;
} FilterResult;

/* A block of rows under evaluation. */
typedef struct FilterBlock
{
	const FilterProgram *program;
	const FilterRows *rows;
	uint32_t	first;
	uint32_t	count;
	FilterMode	mode;
} FilterBlock;

uint32_t
filter_width(FilterKind kind)
{
	static const uint8_t widths[FILTER_KINDS] = {
		[FILTER_U8] = 1, [FILTER_I16] = 2, [FILTER_I32] = 4, [FILTER_I64] = 8, [FILTER_U32] = 4,
		[FILTER_F32] = 4, [FILTER_F64] = 8, [FILTER_BYTES16] = 16, [FILTER_BOUNDS] = 16,
		[FILTER_TEXT] = 16, [FILTER_TAGS] = sizeof(uint32_t) * FILTER_TAG_WORDS
	};

	return (uint32_t) kind < FILTER_KINDS ? widths[kind] : 0;
}

uint32_t
filter_record_bytes(const FilterKind *kinds, uint32_t columns)
{
	uint32_t	bytes = FILTER_RECORD_VALUES;

	for (uint32_t i = 0; i < columns; i++)
	{
		if (filter_width(kinds[i]) == 0)
			return 0;
		bytes += filter_width(kinds[i]);
	}
	return (bytes + 3) & ~3u;
}

void
filter_record_rows(const FilterKind *kinds, uint32_t columns, const void *records, uint32_t count,
				   FilterRows *rows)
{
	const char *values = (const char *) records + FILTER_RECORD_VALUES;
	uint32_t	stride = filter_record_bytes(kinds, columns);

	rows->count = count;
	rows->columns = columns;
	rows->nulls = (const char *) records + FILTER_RECORD_NULLS;
	rows->nulls_stride = stride;
	for (uint32_t i = 0; i < columns; i++)
	{
		rows->column[i].kind = kinds[i];
		rows->column[i].values = values;
		rows->column[i].stride = stride;
		values += filter_width(kinds[i]);
	}
}

int64_t
filter_real(double value)
{
	return filter_ordered(value);
}

/* ---- texts and sets ---- */

/* Kinds whose values are 16 bytes that are compared as such. */
static inline bool
is_bytes(FilterKind kind)
{
	return kind == FILTER_BYTES16 || kind == FILTER_TEXT;
}

void
filter_text(const char *text, size_t bytes, uint64_t hash, unsigned char to[16])
{
	memset(to, 0, 16);
	if (bytes <= FILTER_TEXT_WHOLE)
	{
		to[0] = (unsigned char) bytes;
		memcpy(to + 1, text, bytes);
		return;
	}
	to[0] = FILTER_LONG_TEXT;
	memcpy(to + 1, text, TEXT_PREFIX);
	memcpy(to + 1 + TEXT_PREFIX, &hash, sizeof(hash));
}

static int
compare_tags(const void *a, const void *b)
{
	uint32_t	x = *(const uint32_t *) a;
	uint32_t	y = *(const uint32_t *) b;

	return (x > y) - (x < y);
}

void
filter_tags(uint32_t *tags, uint32_t count, bool has_null, unsigned char to[32])
{
	uint32_t	words[FILTER_TAG_WORDS] = {0};
	uint32_t	kept = 0;

	if (count > 1)
		qsort(tags, count, sizeof(uint32_t), compare_tags);
	for (uint32_t i = 0; i < count; i++)
		if (kept == 0 || tags[kept - 1] != tags[i])
			tags[kept++] = tags[i];
	words[0] = (kept < MANY_TAGS ? kept : MANY_TAGS) | (has_null ? FILTER_NULL_TAG : 0);
	for (uint32_t i = 0; i < kept; i++)
	{
		uint32_t	bits[2];

		if (kept <= FILTER_TAGS_WHOLE)
		{
			words[1 + i] = tags[i];
			continue;
		}
		filter_signature_bits(tags[i], bits);
		for (int j = 0; j < 2; j++)
			words[1 + bits[j] / 32] |= UINT32_C(1) << bits[j] % 32;
	}
	memcpy(to, words, sizeof(words));
}

/* ---- values ---- */

/* The order of two values of 16 bytes. */
static inline int
order_of_bytes(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

static int
compare_bytes(const void *a, const void *b)
{
	return order_of_bytes(((const FilterValue *) a)->bytes, ((const FilterValue *) b)->bytes);
}

static int
compare_numbers(const void *a, const void *b)
{
	const FilterValue *x = a;
	const FilterValue *y = b;

	if (x->low != y->low)
		return x->low < y->low ? -1 : 1;
	return (x->high > y->high) - (x->high < y->high);
}

void
filter_sort(FilterKind kind, FilterValue *values, uint32_t count)
{
	if (count > 1)
		qsort(values, count, sizeof(FilterValue),
			  is_bytes(kind) ? compare_bytes : compare_numbers);
	/*
	 * Binary search needs upper bounds that rise, too. Wider ones leave a
	 * condition open that would have had an answer, and no more.
	 */
	for (uint32_t i = 1; kind == FILTER_BOUNDS && i < count; i++)
		if (values[i].high < values[i - 1].high)
			values[i].high = values[i - 1].high;
}

/* ---- loading ---- */

#define LOAD(type, expression) \
	for (uint32_t i = 0; i < block->count; i++, at += stride) \
	{ \
		type		value; \
		\
		memcpy(&value, at, sizeof(value)); \
		numbers[i] = (expression); \
	}

/* Where a column's values of a block begin. */
static const char *
column_start(const FilterBlock *block, uint32_t column)
{
	return (const char *) block->rows->column[column].values +
		   (size_t) block->first * block->rows->column[column].stride;
}

/*
 * A column's values as numbers; of bounds those at this offset.
 */
static void
load_numbers(const FilterBlock *block, uint32_t column, uint32_t offset, int64_t *numbers)
{
	const char *at = column_start(block, column) + offset;
	uint32_t	stride = block->rows->column[column].stride;

	switch (block->rows->column[column].kind)
	{
		case FILTER_U8:
			LOAD(uint8_t, value);
			break;
		case FILTER_I16:
			LOAD(int16_t, value);
			break;
		case FILTER_I32:
			LOAD(int32_t, value);
			break;
		case FILTER_U32:
			LOAD(uint32_t, value);
			break;
		case FILTER_F32:
			LOAD(float, filter_ordered(value));
			break;
		case FILTER_F64:
		case FILTER_BOUNDS:
			LOAD(double, filter_ordered(value));
			break;
		default:
			LOAD(int64_t, value);
	}
}

/*
 * Values of 16 bytes: their order relative to one.
 */
static void
load_orders(const FilterBlock *block, uint32_t column, const FilterValue *value, int64_t *numbers)
{
	const char *at = column_start(block, column);

	for (uint32_t i = 0; i < block->count; i++, at += block->rows->column[column].stride)
		numbers[i] = order_of_bytes(at, value->bytes);
}

static uint64_t
load_nulls(const FilterBlock *block, uint32_t column)
{
	const char *at =
		(const char *) block->rows->nulls + (size_t) block->first * block->rows->nulls_stride;
	uint64_t	word = 0;

	for (uint32_t i = 0; i < block->count; i++, at += block->rows->nulls_stride)
	{
		uint16_t	nulls;

		memcpy(&nulls, at, sizeof(nulls));
		word |= (uint64_t) (nulls >> column & 1) << i;
	}
	return word;
}

/* ---- comparing ---- */

#define WORD(condition) \
	for (uint32_t i = 0; i < count; i++) \
		word |= (uint64_t) (condition) << i

/*
 * Which numbers stand in this relation to a value.
 */
static uint64_t
word_of(FilterOp op, const int64_t *numbers, uint32_t count, int64_t value)
{
	uint64_t	word = 0;

	switch (op)
	{
		case FILTER_LT:
			WORD(numbers[i] < value);
			break;
		case FILTER_LE:
			WORD(numbers[i] <= value);
			break;
		case FILTER_EQ:
			WORD(numbers[i] == value);
			break;
		case FILTER_NE:
			WORD(numbers[i] != value);
			break;
		case FILTER_GE:
			WORD(numbers[i] >= value);
			break;
		default:
			WORD(numbers[i] > value);
	}
	return word;
}

/*
 * Bounds compared with bounds. The condition surely holds where it holds for
 * every two numbers between them.
 */
static FilterResult
compare_bounds(FilterOp op, const int64_t *low, const int64_t *high, uint32_t count,
			   const FilterValue *value)
{
	FilterResult result;

	switch (op)
	{
		case FILTER_LT:
			result.pass = word_of(FILTER_LT, low, count, value->high);
			result.fail = word_of(FILTER_GE, high, count, value->low);
			break;
		case FILTER_LE:
			result.pass = word_of(FILTER_LE, low, count, value->high);
			result.fail = word_of(FILTER_GT, high, count, value->low);
			break;
		case FILTER_EQ:
			result.pass = word_of(FILTER_LE, low, count, value->high) &
						  word_of(FILTER_GE, high, count, value->low);
			/* Both are one and the same number. */
			result.fail = word_of(FILTER_LT, low, count, value->high) |
						  word_of(FILTER_GT, high, count, value->low);
			break;
		default:
			/* The contrary of one of these. */
			result = compare_bounds(op == FILTER_NE	  ? FILTER_EQ
									: op == FILTER_GE ? FILTER_LT
													  : FILTER_LE,
									low, high, count, value);
			return (FilterResult) {result.fail, result.pass};
	}
	return result;
}

/*
 * Which rows of a block have one of a step's values.
 */
static FilterResult
find_in_list(const FilterBlock *block, const FilterStep *step, const int64_t *low,
			 const int64_t *high)
{
	const FilterValue *values = block->program->values + step->value;
	FilterResult result = {0, 0};

	for (uint32_t i = 0; i < block->count; i++)
	{
		uint32_t	at = filter_first_from(values, step->count, low[i]);
		bool		pass = at < step->count && values[at].low <= high[i];
		bool		same = pass && low[i] == high[i] && values[at].low == values[at].high;

		result.pass |= (uint64_t) pass << i;
		result.fail |= (uint64_t) !same << i;
	}
	return result;
}

static FilterResult
find_bytes_in_list(const FilterBlock *block, const FilterStep *step)
{
	const FilterValue *values = block->program->values + step->value;
	const char *at = column_start(block, step->column);
	FilterResult result = {0, 0};

	for (uint32_t i = 0; i < block->count; i++, at += block->rows->column[step->column].stride)
	{
		FilterValue wanted;
		bool		found;

		memcpy(wanted.bytes, at, sizeof(wanted.bytes));
		found = bsearch(&wanted, values, step->count, sizeof(FilterValue), compare_bytes) != NULL;
		result.pass |= (uint64_t) found << i;
		result.fail |= (uint64_t) !found << i;
	}
	return result;
}

/*
 * Which texts are equal to what is so: of long ones only the hashes are.
 */
static FilterResult
leave_hashes_open(const FilterBlock *block, uint32_t column, FilterResult equal)
{
	const char *at = column_start(block, column);

	for (uint32_t i = 0; i < block->count; i++, at += block->rows->column[column].stride)
		equal.fail |= (uint64_t) (*(const unsigned char *) at == FILTER_LONG_TEXT) << i;
	return equal;
}

static FilterResult
compare_texts(const FilterBlock *block, const FilterStep *step)
{
	const FilterValue *value = block->program->values + step->value;
	FilterResult result;
	int64_t		orders[BLOCK];

	if (step->op == FILTER_IN)
		return leave_hashes_open(block, step->column, find_bytes_in_list(block, step));
	load_orders(block, step->column, value, orders);
	result.pass = word_of(FILTER_EQ, orders, block->count, 0);
	result.fail = ~result.pass;
	result = leave_hashes_open(block, step->column, result);
	return step->op == FILTER_EQ ? result : (FilterResult) {result.fail, result.pass};
}

/*
 * Which sets have one of a step's values, or all. That they do is always left
 * open. `x = ANY (set)` is NULL where x is not in a set with a NULL.
 */
static FilterResult
find_in_sets(const FilterBlock *block, const FilterStep *step)
{
	const FilterValue *values = block->program->values + step->value;
	const char *at = column_start(block, step->column);
	FilterResult result = {0, UINT64_MAX};

	for (uint32_t i = 0; i < block->count; i++, at += block->rows->column[step->column].stride)
	{
		bool		all = step->op == FILTER_ALL_TAGS;
		uint32_t	words[FILTER_TAG_WORDS];
		uint32_t	j = 0;

		memcpy(words, at, sizeof(words));
		while (j < step->count && filter_may_have(words, (uint32_t) values[j].low) == all)
			j++;
		result.pass |= (uint64_t) ((j == step->count) == all) << i;
		if (block->mode == FILTER_SURELY && (words[0] & FILTER_NULL_TAG) != 0)
			result.fail &= ~(UINT64_C(1) << i);
	}
	return result;
}

/*
 * A step that compares a column.
 */
static FilterResult
compare_column(const FilterBlock *block, const FilterStep *step)
{
	const FilterValue *value = block->program->values + step->value;
	FilterKind	kind = block->rows->column[step->column].kind;
	int64_t		low[BLOCK];
	int64_t		high[BLOCK];
	FilterResult result;

	if (kind == FILTER_TAGS)
		return find_in_sets(block, step);
	if (kind == FILTER_TEXT)
		return compare_texts(block, step);
	if (kind == FILTER_BYTES16)
	{
		if (step->op == FILTER_IN)
			return find_bytes_in_list(block, step);
		load_orders(block, step->column, value, low);
		result.pass = word_of(step->op, low, block->count, 0);
		result.fail = ~result.pass;
		return result;
	}
	load_numbers(block, step->column, 0, low);
	if (kind == FILTER_BOUNDS)
		load_numbers(block, step->column, sizeof(double), high);
	if (step->op == FILTER_IN)
		return find_in_list(block, step, low, kind == FILTER_BOUNDS ? high : low);
	if (kind == FILTER_BOUNDS)
		return compare_bounds(step->op, low, high, block->count, value);
	result.pass = word_of(step->op, low, block->count, value->low);
	result.fail = ~result.pass;
	return result;
}

/* ---- running ---- */

/*
 * A step of a column.
 */
static FilterResult
run_column(const FilterBlock *block, const FilterStep *step)
{
	uint64_t	nulls = load_nulls(block, step->column);
	FilterResult result;
	uint64_t	open;

	if (step->op == FILTER_IS_NULL)
		return (FilterResult) {nulls, ~nulls};
	result = compare_column(block, step);
	/* What is in a list is; what is not may be equal to a NULL of it. */
	if (step->op == FILTER_IN && step->has_null)
		result.fail &= result.pass;
	open = block->mode == FILTER_SURELY ? result.pass & result.fail : 0;
	result.pass &= ~(nulls | open);
	result.fail &= ~(nulls | open);
	return result;
}

/*
 * A step without a column.
 */
static FilterResult
run_constant(FilterOp op, FilterMode mode)
{
	uint64_t	open = op == FILTER_OPEN && mode == FILTER_MAY ? UINT64_MAX : 0;

	return (FilterResult) {op == FILTER_TRUE ? UINT64_MAX : open,
						   op == FILTER_FALSE ? UINT64_MAX : open};
}

static uint64_t
run_block(const FilterBlock *block)
{
	FilterResult stack[FILTER_MAX_DEPTH];
	FilterResult *top = stack - 1;

	for (uint32_t i = 0; i < block->program->nsteps; i++)
	{
		const FilterStep *step = &block->program->steps[i];

		switch ((FilterOp) step->op)
		{
			case FILTER_AND:
				top--;
				top->pass &= top[1].pass;
				top->fail |= top[1].fail;
				break;
			case FILTER_OR:
				top--;
				top->pass |= top[1].pass;
				top->fail &= top[1].fail;
				break;
			case FILTER_NOT:
				*top = (FilterResult) {top->fail, top->pass};
				break;
			case FILTER_TRUE:
			case FILTER_FALSE:
			case FILTER_NULL:
			case FILTER_OPEN:
				*++top = run_constant(step->op, block->mode);
				break;
			default:
				*++top = run_column(block, step);
		}
	}
	return block->count == BLOCK ? top->pass
								 : top->pass & ((UINT64_C(1) << block->count) - 1);
}

void
filter_run(const FilterProgram *program, const FilterRows *rows, FilterMode mode, uint64_t *passes)
{
	FilterBlock block = {.program = program, .rows = rows, .mode = mode};

	for (; block.first < rows->count; block.first += BLOCK)
	{
		uint32_t	left = rows->count - block.first;

		block.count = left < BLOCK ? left : BLOCK;
		passes[block.first / BLOCK] = run_block(&block);
	}
}

/* ---- checking ---- */

/*
 * What is wrong with a step that compares a column, or NULL.
 */
static const char *
column_fault(const FilterProgram *program, const FilterStep *step, const FilterKind *kinds,
			 uint32_t columns)
{
	bool		of_sets = step->op == FILTER_ANY_TAG || step->op == FILTER_ALL_TAGS;
	bool		of_texts = step->op == FILTER_EQ || step->op == FILTER_NE || step->op == FILTER_IN;
	uint32_t	count = step->op == FILTER_IN || of_sets	? step->count
						: step->op == FILTER_IS_NULL ? 0 : 1;

	if (step->column >= columns || filter_width(kinds[step->column]) == 0)
		return "a step is of a column that does not exist";
	if (filter_has_values(step->op) &&
		(of_sets != (kinds[step->column] == FILTER_TAGS) ||
		 (kinds[step->column] == FILTER_TEXT && !of_texts)))
		return "a step compares what its column does not have";
	if (step->value > program->nvalues || count > program->nvalues - step->value)
		return "a step has more values than the program";
	return NULL;
}

const char *
filter_fault(const FilterProgram *program, const FilterKind *kinds, uint32_t columns)
{
	uint32_t	depth = 0;

	if (columns > FILTER_MAX_COLUMNS)
		return "there are too many columns";
	for (uint32_t i = 0; i < program->nsteps; i++)
	{
		const FilterStep *step = &program->steps[i];
		uint32_t	taken = step->op == FILTER_NOT ? 1
							: step->op == FILTER_AND || step->op == FILTER_OR ? 2 : 0;
		const char *fault = NULL;

		if (step->op >= FILTER_OPS)
			return "a step is unknown";
		if (depth < taken)
			return "a step lacks a result before it";
		if (step->op <= FILTER_IS_NULL)
			fault = column_fault(program, step, kinds, columns);
		if (fault != NULL)
			return fault;
		depth += 1 - taken;
		if (depth > FILTER_MAX_DEPTH)
			return "too many results wait for a step";
	}
	return depth == 1 ? NULL : "the program does not have one result";
}
