/*
 * filter.cu
 *		Evaluation of a program over the columns of all rows.
 *
 * filter_kernel: grid rows / 256, block 256, a thread for each row. Steps and
 * values are read by all threads alike, from L1; a thread reads the parts of
 * its record that the steps name, whole sectors of 32 bytes from HBM, and a
 * warp writes a word of the bitmap. The results that wait for a further step
 * are two words of a thread, a bit for each. Bound: bytes of records, at most
 * 136 a row; 1M rows of 24 bytes are 24 MB. Launched by
 * cuda/query/conditions.cu.
 *
 * and_kernel: a thread for each word.
 *
 * Records may be overwritten meanwhile; the outcome of such a row is then not
 * used (conditions.cu).
 */
#include <string.h>

#define FILTER_INLINE __device__ static inline

#include "cuda/filter/filter.h"

extern "C"
{
#include "engine/filter_value.h"
}

#define THREADS 256u
#define VALUE_WORDS FILTER_TAG_WORDS /* of the widest value */

/* Results that wait for a further step: bit d is that at depth d. */
struct Stack
{
	uint32_t pass;
	uint32_t fail;
	uint32_t depth;
};

__device__ static inline void
push(Stack *stack, bool pass, bool fail)
{
	uint32_t bit = 1u << stack->depth++;

	stack->pass = pass ? stack->pass | bit : stack->pass & ~bit;
	stack->fail = fail ? stack->fail | bit : stack->fail & ~bit;
}

/*
 * Copy a value of `width` bytes, in any alignment, out of a record of aligned
 * words; the last word of a narrow one has bytes of its neighbour as well.
 * Nothing is read behind the value's last word.
 */
__device__ static void
load_value(const uint32_t *record, uint32_t offset, uint32_t width, uint32_t *value)
{
	uint32_t shift = offset % 4 * 8;
	uint32_t last = (offset + width - 1) / 4;

	for (uint32_t i = 0; i < (width + 3) / 4; i++)
	{
		uint32_t at = offset / 4 + i;
		uint64_t both = record[at];

		if (at < last)
			both |= (uint64_t) record[at + 1] << 32;
		value[i] = (uint32_t) (both >> shift);
	}
}

/* A number of a kind, from its bytes. */
__device__ static int64_t
number_of(FilterKind kind, const uint32_t *value)
{
	uint64_t both = (uint64_t) value[1] << 32 | value[0];
	float single;
	double real;

	switch (kind)
	{
		case FILTER_U8:
			return (uint8_t) value[0];
		case FILTER_I16:
			return (int16_t) value[0];
		case FILTER_I32:
			return (int32_t) value[0];
		case FILTER_U32:
			return value[0];
		case FILTER_F32:
			memcpy(&single, value, sizeof(single));
			return filter_ordered(single);
		case FILTER_F64:
		case FILTER_BOUNDS:
			memcpy(&real, &both, sizeof(real));
			return filter_ordered(real);
		default:
			return (int64_t) both;
	}
}

/* The order of 16 bytes relative to a value: below 0, 0, above 0. */
__device__ static int
order_of_bytes(const uint32_t *words, const FilterValue *value)
{
	for (uint32_t i = 0; i < 16; i++)
	{
		int byte = (int) (words[i / 4] >> (i % 4 * 8) & 255);

		if (byte != value->bytes[i])
			return byte - value->bytes[i];
	}
	return 0;
}

__device__ static bool
relates(uint8_t op, int64_t number, int64_t value)
{
	switch (op)
	{
		case FILTER_LT:
			return number < value;
		case FILTER_LE:
			return number <= value;
		case FILTER_EQ:
			return number == value;
		case FILTER_NE:
			return number != value;
		case FILTER_GE:
			return number >= value;
		default:
			return number > value;
	}
}

/*
 * Bounds compared with bounds. The condition surely holds where it holds for
 * every two numbers between them.
 */
__device__ static void
compare_bounds(uint8_t op, int64_t low, int64_t high, const FilterValue *value, bool *pass,
			   bool *fail)
{
	bool contrary = op == FILTER_NE || op == FILTER_GE || op == FILTER_GT;
	bool may;
	bool may_not;

	if (op == FILTER_LT || op == FILTER_GE)
	{
		may = low < value->high;
		may_not = high >= value->low;
	}
	else if (op == FILTER_LE || op == FILTER_GT)
	{
		may = low <= value->high;
		may_not = high > value->low;
	}
	else
	{
		may = low <= value->high && high >= value->low;
		/* both are one and the same number */
		may_not = low < value->high || high > value->low;
	}
	*pass = contrary ? may_not : may;
	*fail = contrary ? may : may_not;
}

/* Whether sorted values have these 16 bytes. */
__device__ static bool
has_bytes(const FilterValue *values, uint32_t count, const uint32_t *words)
{
	uint32_t least = 0;

	while (least < count)
	{
		uint32_t middle = least + (count - least) / 2;
		int order = order_of_bytes(words, &values[middle]);

		if (order == 0)
			return true;
		if (order > 0)
			least = middle + 1;
		else
			count = middle;
	}
	return false;
}

/* Whether a set may have one of a step's values, or all. */
__device__ static bool
has_tags(const FilterStep &step, const FilterValue *values, const uint32_t *words)
{
	bool all = step.op == FILTER_ALL_TAGS;
	uint32_t i = 0;

	while (i < step.count && filter_may_have(words, (uint32_t) values[i].low) == all)
		i++;
	return (i == step.count) == all;
}

/* A step that compares a column that is not NULL. */
__device__ static void
compare_column(const FilterView &view, const FilterStep &step, const uint32_t *record, bool *pass,
			   bool *fail)
{
	const FilterValue *values = view.values + step.value;
	FilterKind kind = (FilterKind) view.kinds[step.column];
	uint32_t words[VALUE_WORDS] = {0};
	int64_t low;
	int64_t high;

	load_value(record, view.offsets[step.column], view.widths[step.column], words);
	if (kind == FILTER_TAGS)
	{
		*pass = has_tags(step, values, words);
		*fail = true;
		return;
	}
	if (kind == FILTER_BYTES16 || kind == FILTER_TEXT)
	{
		*pass = step.op == FILTER_IN ? has_bytes(values, step.count, words)
									 : relates(step.op, order_of_bytes(words, values), 0);
		*fail = !*pass;
		/* two texts of equal hashes may differ */
		if (kind == FILTER_TEXT && (words[0] & 255) == FILTER_LONG_TEXT)
			*(step.op == FILTER_NE ? pass : fail) = true;
		return;
	}
	low = number_of(kind, words);
	high = kind == FILTER_BOUNDS ? number_of(kind, words + 2) : low;
	if (step.op == FILTER_IN)
	{
		uint32_t at = filter_first_from(values, step.count, low);

		*pass = at < step.count && values[at].low <= high;
		*fail = !(*pass && low == high && values[at].low == values[at].high);
	}
	else if (kind == FILTER_BOUNDS)
		compare_bounds(step.op, low, high, values, pass, fail);
	else
	{
		*pass = relates(step.op, low, values->low);
		*fail = !*pass;
	}
}

/* A step of a column. */
__device__ static void
run_column(const FilterView &view, const FilterStep &step, const uint32_t *record, Stack *stack)
{
	bool null = record[FILTER_RECORD_NULLS / 4] >> (16 + step.column) & 1;
	bool pass = false;
	bool fail = false;

	if (step.op == FILTER_IS_NULL)
	{
		push(stack, null, !null);
		return;
	}
	if (!null)
		compare_column(view, step, record, &pass, &fail);
	/* what is in a list is; what is not may be equal to a NULL of it */
	if (step.op == FILTER_IN && step.has_null)
		fail = fail && pass;
	push(stack, pass, fail);
}

/* A step of the results before it. */
__device__ static void
combine(uint8_t op, Stack *stack)
{
	uint32_t last = stack->depth - 1;
	bool pass = stack->pass >> last & 1;
	bool fail = stack->fail >> last & 1;
	bool before_pass;
	bool before_fail;

	if (op == FILTER_NOT)
	{
		stack->depth--;
		push(stack, fail, pass);
		return;
	}
	before_pass = stack->pass >> (last - 1) & 1;
	before_fail = stack->fail >> (last - 1) & 1;
	stack->depth -= 2;
	if (op == FILTER_AND)
		push(stack, before_pass && pass, before_fail || fail);
	else
		push(stack, before_pass || pass, before_fail && fail);
}

/* Whether a row may pass. */
__device__ static bool
row_passes(const FilterView &view, const uint32_t *record)
{
	Stack stack = {0, 0, 0};

	for (uint32_t i = 0; i < view.nsteps; i++)
	{
		const FilterStep step = view.steps[i];

		if (step.op <= FILTER_IS_NULL)
			run_column(view, step, record, &stack);
		else if (step.op >= FILTER_AND)
			combine(step.op, &stack);
		else
			push(&stack, step.op == FILTER_TRUE || step.op == FILTER_OPEN,
				 step.op == FILTER_FALSE || step.op == FILTER_OPEN);
	}
	return stack.pass & 1;
}

__global__ void
__launch_bounds__(THREADS) filter_kernel(const FilterView view)
{
	uint32_t slot = blockIdx.x * THREADS + threadIdx.x;
	bool pass = slot < view.rows &&
				row_passes(view, view.records + (size_t) slot * view.record_words);
	uint32_t word = __ballot_sync(FULL_WARP, pass);

	if (threadIdx.x % WARP != 0 || slot >= view.rows)
		return;
	view.bits[slot / WARP] = word;
	if (word != 0)
		atomicAdd(view.passing, (uint32_t) __popc(word));
}

__global__ void
__launch_bounds__(THREADS) and_kernel(uint32_t *words, const uint32_t *bits, uint32_t count)
{
	uint32_t i = blockIdx.x * THREADS + threadIdx.x;

	if (i < count)
		words[i] &= bits[i];
}

void
filter_columns(FilterView *view, const MirrorSpec *spec)
{
	uint32_t offset = FILTER_RECORD_VALUES;

	view->record_words = filter_record_bytes(spec->column_kinds, spec->columns) / 4;
	for (uint32_t i = 0; i < spec->columns; i++)
	{
		view->kinds[i] = (uint8_t) spec->column_kinds[i];
		view->widths[i] = (uint8_t) filter_width(spec->column_kinds[i]);
		view->offsets[i] = (uint16_t) offset;
		offset += filter_width(spec->column_kinds[i]);
	}
}

cudaError_t
filter_launch(const FilterView *view, cudaStream_t stream)
{
	cudaError_t error = cudaMemsetAsync(view->passing, 0, sizeof(uint32_t), stream);

	if (error != cudaSuccess || view->rows == 0)
		return error;
	LAUNCH(filter_kernel, (view->rows + THREADS - 1) / THREADS, THREADS, 0, stream, *view);
	return cudaGetLastError();
}

cudaError_t
filter_and_launch(uint32_t *words, const uint32_t *bits, uint32_t count, cudaStream_t stream)
{
	if (count == 0)
		return cudaSuccess;
	LAUNCH(and_kernel, (count + THREADS - 1) / THREADS, THREADS, 0, stream, words, bits, count);
	return cudaGetLastError();
}
