/*
 * lists_products.cuh
 *		Sums of a block's codes with up to 16 queries by tensor cores, for
 *		integer codes (int8, rabitq); the same as code_sums().
 *
 * In mma.m16n8k32 lane 4 g + t holds, of each 32 elements, 4 from 4 t on and 4
 * from 16 + 4 t on, of rows g and 8 + g and of column g. The assignment of
 * codes to rows is arbitrary: rows g and 8 + g of two products are the codes at
 * places 4 g to 4 g + 3, so that a lane loads 16 bytes of a word. A step is 32
 * elements: 8 words of int8, one word of each of rabitq's planes, whose bits
 * are expanded to bytes in the lane that multiplies them.
 *
 * Columns are queries. Their tables are laid out in shared memory in the order
 * in which lanes load them: per step and 8 queries 16 bytes a lane, the upper
 * bytes of elements 4 t and 16 + 4 t on, then the lower ones. In the emulator
 * loops replace mma.
 */
#ifndef GPUANN_CUDA_LISTS_PRODUCTS_CUH
#define GPUANN_CUDA_LISTS_PRODUCTS_CUH

#include "cuda/lists/lists_estimate.cuh"

#define COLUMNS 8u
#define STEP_WORDS 8u /* of four elements */

/* Number of steps of a code. */
__host__ __device__ static inline uint32_t
product_steps(const QuantizerShape &shape)
{
	return (shape.dims + 4 * STEP_WORDS - 1) / (4 * STEP_WORDS);
}

/* Words of G queries' tables in this layout. */
__host__ __device__ static inline uint32_t
product_words(const QuantizerShape &shape, uint32_t g)
{
	return product_steps(shape) * STEP_WORDS * 2 * g;
}

/* Index of word w, of upper or lower bytes, of a query's table. */
__device__ static inline uint32_t
product_place(uint32_t w, uint32_t low, uint32_t query, uint32_t g)
{
	uint32_t lane = query % COLUMNS * 4 + w % 4;

	return ((w / STEP_WORDS * (g / COLUMNS) + query / COLUMNS) * WARP + lane) * 4 + 2 * low +
		   w % STEP_WORDS / 4;
}

/*
 * Copy the tables of up to G queries to shared memory, a warp each. All
 * threads; the caller synchronises. In the input words of upper and lower bytes
 * alternate. Columns of missing queries multiply undefined memory; their sums
 * are not read.
 */
template <int G>
__device__ static inline void
load_product_tables(const QuantizerShape &shape, const uint32_t *tables, uint32_t table_words,
					 const uint32_t *numbers, uint32_t count, uint32_t *to)
{
	uint32_t words = product_steps(shape) * STEP_WORDS * 2;

	for (uint32_t g = threadIdx.x / WARP; g < count; g += blockDim.x / WARP)
	{
		const uint32_t *table = tables + (size_t) numbers[g] * table_words;

#pragma unroll 4
		for (uint32_t w = threadIdx.x % WARP; w < words; w += WARP)
			to[product_place(w / 2, w % 2, g, G)] = w < table_words ? table[w] : 0;
	}
}

/* Word w of the codes at places 4 g to 4 g + 3. */
__device__ static inline uint4
four_words(const uint32_t *codes, uint32_t w)
{
	return __ldg((const uint4 *) (codes + w * LIST_PLACES) + threadIdx.x % WARP / 4);
}

#ifndef EMULATED

/* Add the products of 16 codes and 8 queries. SIGNED: codes are signed. */
template <bool SIGNED>
__device__ static inline void
multiply_step(int *upper, int *lower, const uint32_t *a, const uint4 &b)
{
	if (SIGNED)
	{
		asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
			: "+r"(upper[0]), "+r"(upper[1]), "+r"(upper[2]), "+r"(upper[3])
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
		asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
			: "+r"(lower[0]), "+r"(lower[1]), "+r"(lower[2]), "+r"(lower[3])
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.z), "r"(b.w));
		return;
	}
	asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+r"(upper[0]), "+r"(upper[1]), "+r"(upper[2]), "+r"(upper[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
	asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+r"(lower[0]), "+r"(lower[1]), "+r"(lower[2]), "+r"(lower[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.z), "r"(b.w));
}

/*
 * A lane's elements of a step, for four codes: from 4 t on, then from 16 + 4 t
 * on.
 */
struct StepCodes
{
	uint32_t first[4];
	uint32_t second[4];
};

/*
 * Load a step of int8 codes. Words behind the last are replaced by zero,
 * because there may be no memory.
 */
__device__ static inline void
read_step(const QuantizerShape &shape, const uint32_t *codes, uint32_t step, StepCodes *read)
{
	uint32_t w = step * STEP_WORDS + threadIdx.x % 4;
	uint32_t words = (shape.dims + 3) / 4;

	*(uint4 *) read->first = w < words ? four_words(codes, w) : make_uint4(0, 0, 0, 0);
	*(uint4 *) read->second = w + 4 < words ? four_words(codes, w + 4) : make_uint4(0, 0, 0, 0);
}

/* Load a step of rabitq codes: BITS planes; 0: as in the shape. */
template <uint32_t BITS>
__device__ static inline void
gather_step(const QuantizerShape &shape, const uint32_t *codes, uint32_t step, StepCodes *read)
{
	uint32_t of_plane = product_steps(shape);
	uint32_t bits = BITS != 0 ? BITS : shape.bits;
	uint32_t at = threadIdx.x % 4 * 4;

#pragma unroll
	for (uint32_t i = 0; i < 4; i++)
		read->first[i] = read->second[i] = 0;
#pragma unroll
	for (uint32_t plane = 0; plane < (BITS != 0 ? BITS : 8); plane++)
		if (BITS != 0 || plane < bits)
		{
			uint4 some = four_words(codes, plane * of_plane + step);
			uint32_t words[4] = {some.x, some.y, some.z, some.w};

#pragma unroll
			for (uint32_t i = 0; i < 4; i++)
			{
				read->first[i] = 2 * read->first[i] + spread_bits(words[i] >> at);
				read->second[i] = 2 * read->second[i] + spread_bits(words[i] >> (at + 16));
			}
		}
}

template <int KIND, uint32_t BITS, int G>
__device__ static inline void
product_sums_of(const ListsView &lists, const uint32_t *codes, const uint32_t *tables, int *sums)
{
	const int N = G / (int) COLUMNS;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t steps = product_steps(lists.shape);
	int upper[2][N][4] = {},
		lower[2][N][4] = {};

#pragma unroll 2
	for (uint32_t step = 0; step < steps; step++)
	{
		StepCodes read;

		if (KIND == CODE_INT8)
			read_step(lists.shape, codes, step, &read);
		else
			gather_step<BITS>(lists.shape, codes, step, &read);
#pragma unroll
		for (int n = 0; n < N; n++)
		{
			uint4 b = ((const uint4 *) tables)[(step * N + n) * WARP + lane];

#pragma unroll
			for (int m = 0; m < 2; m++)
			{
				uint32_t a[4] = {read.first[2 * m], read.first[2 * m + 1], read.second[2 * m],
								 read.second[2 * m + 1]};

				multiply_step<KIND == CODE_INT8>(upper[m][n], lower[m][n], a, b);
			}
		}
	}
	/*
	 * result i of a product is row i / 2 of its rows g and 8 + g, column 2 t +
	 * i % 2
	 */
#pragma unroll
	for (int n = 0; n < N; n++)
#pragma unroll
		for (int m = 0; m < 2; m++)
#pragma unroll
			for (uint32_t i = 0; i < 4; i++)
			{
				uint32_t place = lane / 4 * 4 + 2 * m + i / 2,
						 query = n * COLUMNS + lane % 4 * 2 + i % 2;

				sums[place * (G + 1) + query] =
					(int) ((uint32_t) upper[m][n][i] * 256 + (uint32_t) lower[m][n][i]);
			}
}

#endif /* not EMULATED */

/*
 * The sums of a block's codes with G queries: sums[place * (G + 1) + query], in
 * the warp's shared memory. One warp; visible to all its lanes at the end.
 */
template <int KIND, int G>
__device__ static inline void
product_sums(const ListsView &lists, const uint32_t *codes, const uint32_t *tables, int *sums)
{
	__syncwarp();
#ifdef EMULATED
	uint32_t lane = threadIdx.x % WARP;
	uint32_t words = KIND == CODE_INT8 ? (lists.shape.dims + 3) / 4
									   : product_steps(lists.shape) * STEP_WORDS;

	for (uint32_t g = 0; g < G; g++)
	{
		int upper = 0,
			lower = 0;

		for (uint32_t w = 0; w < words; w++)
		{
			uint32_t table[2] = {tables[product_place(w, 0, g, G)],
								 tables[product_place(w, 1, g, G)]};
			uint32_t code = 0;

			if (KIND == CODE_INT8)
				code = codes[w * LIST_PLACES + lane];
			else
				for (uint32_t plane = 0; plane < lists.shape.bits; plane++)
					code = 2 * code +
						   spread_bits(codes[(plane * product_steps(lists.shape) + w / 8) *
												 LIST_PLACES + lane] >> (w % 8 * 4));
			add_word<1, KIND == CODE_INT8>(table, code, &upper, &lower);
		}
		sums[lane * (G + 1) + g] = (int) ((uint32_t) upper * 256 + (uint32_t) lower);
	}
#else
	if (KIND == CODE_INT8)
		product_sums_of<KIND, 0, G>(lists, codes, tables, sums);
	else if (lists.shape.bits == 1)
		product_sums_of<KIND, 1, G>(lists, codes, tables, sums);
	else if (lists.shape.bits == 4)
		product_sums_of<KIND, 4, G>(lists, codes, tables, sums);
	else
		product_sums_of<KIND, 0, G>(lists, codes, tables, sums);
#endif
	__syncwarp();
}

#endif /* GPUANN_CUDA_LISTS_PRODUCTS_CUH */
