/*
 * select_radix.cu
 *		Selection by radix, from the highest bits down, of rows of numbers; any
 *		k up to their length.
 *
 * A pass counts the next (at most eleven) bits of the items whose higher bits
 * equal the k-th's known so far; its last block finds the value of these bits
 * in the k-th. Passes end when all items with the known bits are among the k,
 * at the latest after the last bit: no two items are equal, because the place
 * is part of them. So ties are broken by place, there are exactly k results,
 * and no order or equality of the numbers costs more than all passes. When the
 * items with the known bits first fit into a buffer, a pass copies them there,
 * and items before them to the results; later passes read the buffer. At the
 * end a filter writes the remaining results. Results are unordered.
 *
 * grid    rows x parts, 256 threads
 * shared  2,048 counters
 * global  counters and a state per row, two buffers each. Numbers are read
 *         twice if a pass leaves an eighth of them; three times or more if
 *         their highest bits are similar
 * bound   memory, unless few counters get most numbers
 *
 * Launched by select_ways.cu.
 */
#include <math.h>

#include "bench/kernels/select.cuh"

#define THREADS 256u
#define DIGITS 2048u
#define READS 4u
#define BUFFER_DIVISOR 8u	   /* a buffer has room for n / this */
#define BUFFER_MIN 1024u

/* --- bits, counted from the highest --------------------------------------- */

/*
 * Number of bits decided after a number of passes. A pass ends with the last
 * bit of the key.
 */
__host__ __device__ constexpr uint32_t
bits_after(const Item *, uint32_t passes)
{
	return passes < 3 ? 11 * passes : passes == 3 ? 32 : passes < 6 ? 32 + 11 * (passes - 3) : 64;
}

#define NARROW_PASSES 6

__device__ static INLINE Item
high_bits(Item item, uint32_t bits)
{
	return bits == 0 ? 0 : item >> (64 - bits);
}

/* Compare the highest bits of an item and the k-th. */
__device__ static INLINE int
compare_bits(Item item, Item kth, uint32_t bits)
{
	Item a = high_bits(item, bits),
		 b = high_bits(kth, bits);

	return a < b ? -1 : a > b;
}

/* Bits [from, to), counted from the highest. */
__device__ static INLINE uint32_t
digit_of(Item item, uint32_t from, uint32_t to)
{
	return (uint32_t) (item >> (64 - to)) & ((1u << (to - from)) - 1);
}

/* Set the bits that end at `to`. */
__device__ static inline void
set_digit(Item *item, uint32_t digit, uint32_t to)
{
	*item |= (Item) digit << (64 - to);
}

/* --- what is selected from ------------------------------------------------ */

/* Rows of numbers, and the destination of their items. */
struct NarrowSource
{
	typedef Item Kind;
	static const uint32_t PASSES = NARROW_PASSES;

	NumberRows rows;
	uint32_t n;
	Item *out; /* rows x k */
	uint32_t k;
	Item *buffers; /* rows x 2 x room */
	uint32_t room;

	__device__ INLINE Item
	buffered(uint32_t row, uint32_t side, uint32_t i) const
	{
		return buffers[((size_t) row * 2 + side) * room + i];
	}

	__device__ INLINE void
	buffer(uint32_t row, uint32_t side, uint32_t i, Item item) const
	{
		buffers[((size_t) row * 2 + side) * room + i] = item;
	}

	__device__ INLINE void
	give(uint32_t row, uint32_t i, Item item) const
	{
		if (i < k)
			out[(size_t) row * k + i] = item;
	}

	/* Call act(item, exists) for a part of a row, in whole warps. */
	template <class Act>
	__device__ INLINE void
	each(uint32_t row, uint32_t part, uint32_t parts, const Act &act) const
	{
		const uint32_t TILE = THREADS * AT_A_TIME * READS;
		uint32_t tiles = (uint32_t) (((uint64_t) n + TILE - 1) / TILE);

#pragma unroll 1
		for (uint32_t tile = part; tile < tiles; tile += parts)
		{
			uint32_t first = tile * TILE + threadIdx.x * AT_A_TIME;
			NumberRows::Four four[READS];

#pragma unroll
			for (uint32_t r = 0; r < READS; r++)
				four[r] = rows.read(row, first + r * THREADS * AT_A_TIME, n);
#pragma unroll
			for (uint32_t r = 0; r < READS; r++)
#pragma unroll
				for (uint32_t j = 0; j < AT_A_TIME; j++)
				{
					uint32_t i = first + r * THREADS * AT_A_TIME + j;

					act(select_item(four[r].value[j], i), i < n);
				}
		}
	}
};

/*
 * State of a row. A pass reads what the last block of the previous pass wrote;
 * the counters at the end change during a pass.
 */
template <class Kind>
struct RadixRow
{
	Kind kth;			/* its known bits */
	uint32_t bits;		/* number of known bits */
	uint32_t left;		/* results among the items with these bits */
	uint32_t finished;
	uint32_t buffering; /* this pass copies items with these bits to a buffer */
	uint32_t buffered;	/* passes read the buffer of `side`, which has `stored` items */
	uint32_t side;
	uint32_t stored;
	uint32_t given;
	uint32_t written;
	uint32_t blocks; /* number of blocks that have finished */
};

/* The plan of a selection. */
template <class Source>
struct RadixPlan
{
	Source source;
	RadixRow<typename Source::Kind> *rows;
	uint32_t *counts; /* DIGITS of each row */
	uint32_t parts;
	SelectEvents *events;
};

/*
 * Number the lanes that have something, with one atomic addition per warp.
 * Called by whole warps.
 */
__device__ static INLINE uint32_t
warp_numbers(uint32_t *counter, bool has)
{
	uint32_t ballot = __ballot_sync(FULL_WARP, has);
	uint32_t lane = threadIdx.x % WARP;
	uint32_t first = 0;

	if (ballot == 0)
		return 0;
	if (lane == 0)
		first = atomicAdd(counter, (uint32_t) __popc(ballot));
	return __shfl_sync(FULL_WARP, first, 0) + (uint32_t) __popc(ballot & ((1u << lane) - 1));
}

/* Initialize the rows. */
template <class Source>
__global__ void __launch_bounds__(THREADS) radix_begin_kernel(const RadixPlan<Source> plan)
{
	typedef typename Source::Kind Kind;
	RadixRow<Kind> *row = &plan.rows[blockIdx.x];

	for (uint32_t i = threadIdx.x; i < DIGITS; i += THREADS)
		plan.counts[(size_t) blockIdx.x * DIGITS + i] = 0;
	if (threadIdx.x == 0)
	{
		memset((void *) row, 0, sizeof(*row));
		row->left = plan.source.k;
	}
}

/* Shared memory of the last block of a row. */
struct DigitSearch
{
	uint32_t sums[THREADS];
	uint32_t digit;
	uint32_t before;
	uint32_t count;
};

/* Find the digit of the left-th item counted. Called by all threads. */
__device__ static inline void
find_digit(uint32_t *counts, uint32_t left, DigitSearch *search)
{
	const uint32_t EACH = DIGITS / THREADS;
	uint32_t own[EACH];
	uint32_t sum = 0,
			 before;

	for (uint32_t i = 0; i < EACH; i++)
	{
		/* bypasses the L1 cache, which does not see atomics of other blocks */
		own[i] = atomicAdd(&counts[threadIdx.x * EACH + i], 0u);
		sum += own[i];
	}
	search->sums[threadIdx.x] = sum;
	__syncthreads();
	for (uint32_t distance = 1; distance < THREADS; distance *= 2)
	{
		uint32_t more = threadIdx.x >= distance ? search->sums[threadIdx.x - distance] : 0;

		__syncthreads();
		search->sums[threadIdx.x] += more;
		__syncthreads();
	}
	before = search->sums[threadIdx.x] - sum;
	for (uint32_t i = 0; i < EACH; i++)
	{
		if (before < left && left <= before + own[i])
		{
			search->digit = threadIdx.x * EACH + i;
			search->before = before;
			search->count = own[i];
		}
		before += own[i];
		counts[threadIdx.x * EACH + i] = 0;
	}
	__syncthreads();
}

/*
 * Record the result of a pass for the next one. Called by all threads of the
 * last block of a row.
 */
template <class Source>
__device__ static inline void
end_pass(const RadixPlan<Source> &plan, RadixRow<typename Source::Kind> *row, uint32_t *counts,
		 uint32_t pass, DigitSearch *search)
{
	typedef typename Source::Kind Kind;

	find_digit(counts, row->left, search);
	if (threadIdx.x != 0)
		return;
	row->bits = bits_after((const Kind *) 0, pass + 1);
	set_digit(&row->kth, search->digit, row->bits);
	row->left -= search->before;
	row->finished = search->count == row->left || pass + 1 == Source::PASSES;
	if (row->buffering)
	{
		row->side = row->buffered ? row->side ^ 1 : 0;
		row->buffered = 1;
		row->stored = *(volatile uint32_t *) &row->written;
		row->written = 0;
	}
	else
		row->buffering = search->count <= plan.source.room;
	row->blocks = 0;
}

/* Call act(item, exists) for everything that a pass reads. */
template <class Source, class Act>
__device__ static INLINE void
each_of(const RadixPlan<Source> &plan, const RadixRow<typename Source::Kind> &row, uint32_t number,
		uint32_t part, const Act &act)
{
	if (!row.buffered)
	{
		plan.source.each(number, part, plan.parts, act);
		return;
	}
#pragma unroll 1
	for (uint32_t base = part * THREADS; base < row.stored; base += plan.parts * THREADS)
	{
		uint32_t i = base + threadIdx.x;

		act(plan.source.buffered(number, row.side, i < row.stored ? i : 0), i < row.stored);
	}
}

template <class Source>
__global__ void
__launch_bounds__(THREADS, 3) radix_pass_kernel(const RadixPlan<Source> plan, uint32_t pass)
{
	typedef typename Source::Kind Kind;
	__shared__ uint32_t counters[DIGITS];
	__shared__ DigitSearch search;
	__shared__ bool last;
	uint32_t number = blockIdx.x / plan.parts,
			 part = blockIdx.x % plan.parts;
	RadixRow<Kind> *row = &plan.rows[number];
	const RadixRow<Kind> known = *row;
	uint32_t *counts = plan.counts + (size_t) number * DIGITS;
	const uint32_t to = bits_after((const Kind *) 0, pass + 1);
	const uint32_t side = known.buffered ? known.side ^ 1 : 0;

	if (known.finished)
		return;
	for (uint32_t i = threadIdx.x; i < DIGITS; i += THREADS)
		counters[i] = 0;
	__syncthreads();
	each_of(plan, known, number, part, [&](const Kind &item, bool there) {
		int order = compare_bits(item, known.kth, known.bits);
		bool is_one = there && order == 0;

		if (is_one)
			atomicAdd(&counters[digit_of(item, known.bits, to)], 1u);
		if (known.buffering)
		{
			bool gives = there && order < 0;
			uint32_t place = warp_numbers(&row->given, gives);

			if (gives)
				plan.source.give(number, place, item);
			place = warp_numbers(&row->written, is_one);
			if (is_one)
				plan.source.buffer(number, side, place, item);
		}
	});
	if (threadIdx.x == 0 && part == 0)
		COUNT(plan.events, read, known.buffered ? known.stored : plan.source.n);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < DIGITS; i += THREADS)
		if (counters[i] != 0)
			atomicAdd(&counts[i], counters[i]);
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0)
		last = atomicAdd(&row->blocks, 1u) == plan.parts - 1;
	__syncthreads();
	if (!last)
		return;
	__threadfence();
	end_pass(plan, row, counts, pass, &search);
}

/*
 * Write the items with the bits of the k-th, and, if no pass has, those before.
 */
template <class Source>
__global__ void __launch_bounds__(THREADS, 3) radix_filter_kernel(const RadixPlan<Source> plan)
{
	typedef typename Source::Kind Kind;
	uint32_t number = blockIdx.x / plan.parts,
			 part = blockIdx.x % plan.parts;
	RadixRow<Kind> *row = &plan.rows[number];
	const RadixRow<Kind> known = *row;

	each_of(plan, known, number, part, [&](const Kind &item, bool there) {
		bool gives = there && compare_bits(item, known.kth, known.bits) <= 0;
		uint32_t place = warp_numbers(&row->given, gives);

		if (gives)
			plan.source.give(number, place, item);
	});
	if (threadIdx.x == 0 && part == 0)
		COUNT(plan.events, read, known.buffered ? known.stored : plan.source.n);
}

/* --- launching ------------------------------------------------------------ */

template <class Source>
static cudaError_t
passes_launch(const RadixPlan<Source> &plan, uint32_t rows, cudaStream_t stream)
{
	LAUNCH((radix_begin_kernel<Source>), rows, THREADS, 0, stream, plan);
	for (uint32_t pass = 0; pass < Source::PASSES; pass++)
		LAUNCH((radix_pass_kernel<Source>), rows * plan.parts, THREADS, 0, stream, plan, pass);
	LAUNCH((radix_filter_kernel<Source>), rows * plan.parts, THREADS, 0, stream, plan);
	return cudaGetLastError();
}

static uint32_t
buffer_room(uint32_t n)
{
	uint32_t room = n / BUFFER_DIVISOR;

	return room > BUFFER_MIN ? room : n < BUFFER_MIN ? n : BUFFER_MIN;
}

size_t
radix_bytes(const SelectLaunch *launch)
{
	return launch->rows * (round_up(sizeof(RadixRow<Item>), 16) + DIGITS * sizeof(uint32_t) +
						   2 * (size_t) buffer_room(launch->n) * sizeof(Item)) + 512;
}

cudaError_t
radix_launch(const SelectLaunch *launch, uint32_t parts)
{
	RadixPlan<NarrowSource> plan;
	unsigned char *at = launch->state;

	plan.source.rows.values = launch->values;
	plan.source.rows.stride = launch->stride;
	plan.source.n = launch->n;
	plan.source.out = launch->out;
	plan.source.k = launch->k;
	plan.source.room = buffer_room(launch->n);
	plan.source.buffers = (Item *) at;
	at += round_up(2 * (size_t) plan.source.room * launch->rows * sizeof(Item), 256);
	plan.counts = (uint32_t *) at;
	at += round_up((size_t) launch->rows * DIGITS * sizeof(uint32_t), 256);
	plan.rows = (RadixRow<Item> *) at;
	plan.parts = parts;
	plan.events = launch->events;
	return passes_launch(plan, launch->rows, launch->stream);
}
