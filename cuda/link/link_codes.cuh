/*
 * link_codes.cuh
 *		Distances between rows by their codes (quantizer.h), as linking compares
 *		them: whole numbers, the same in any order of summation.
 *
 * The distance of rows a and b is term(a) + term(b) - factor x (products of
 * their codes, summed). For L2 a term is the squared length of the codes and
 * the factor
 * 2. Else the factor is 1, and a term is what the offsets add to a product,
 *    negated; what they add to all products alike is left out. Terms are made
 *    once
 * per link, four bytes a row. Bound of any of these numbers: 2^28 each
 * (link_codes_serve), so none overflows.
 *
 * Many products at a time are made by tensor cores: sixteen rows and 8 N
 * others, straight from memory to registers. In mma.m16n8k32 lane 4 g + t
 * holds, of each 32 elements, 4 from 4 t on and 4 from 16 + 4 t on, of row g
 * (and 8 + g), and of column g. A sum does not ask for the order of its
 * elements, so a lane loads 16 bytes from 16 t on instead, of every 64, and has
 * the operands of two steps. A processor (EMULATED) has loops.
 */
#ifndef GPUANN_CUDA_LINK_CODES_CUH
#define GPUANN_CUDA_LINK_CODES_CUH

#include "cuda/link/link_measure.cuh"
#include "cuda/graph/graph_search_codes.cuh"

/* Pairs of a type and a term that have codes. */
#define CODED_PAIRS_COUNT 4
#define CODED_PAIRS(of) \
	{ \
		of(float, TERM_PRODUCT), of(float, TERM_SQUARE), of(__half, TERM_PRODUCT), \
			of(__half, TERM_SQUARE) \
	}

static inline int
coded_pair(const MirrorView *mirror)
{
	return (mirror->type == ELEMENT_HALF ? 2 : 0) + (mirror->metric == METRIC_L2);
}

/* The key of a distance by codes. */
template <int TERM>
__device__ static inline uint32_t
code_key(int term_a, int term_b, int product)
{
	return (uint32_t) (term_a + term_b - (TERM == TERM_SQUARE ? 2 : 1) * product) ^ 0x80000000u;
}

__device__ static inline const uint4 *
code_row(const MirrorView &mirror, uint32_t slot)
{
	return (const uint4 *) (mirror.codes + (size_t) slot * mirror.code_stride);
}

/* The margin of hiding_key() in distances by codes; it is below 2^30. */
template <int TERM>
__device__ static inline int
code_margin(const MirrorView &mirror, uint32_t self, uint32_t neighbour)
{
	double margin;

	if (TERM != TERM_PRODUCT || mirror.metric != METRIC_IP)
		return 0;
	margin = 0.5 * (mirror.norms[neighbour] - mirror.norms[self]) * mirror.code_steps *
			 mirror.code_steps;
	return (int) (margin > (1 << 29) ? (1 << 29) : margin < 0 ? 0 : margin);
}

/* The key of a row's distance to itself by codes, in every lane of a warp. */
template <int TERM>
__device__ static inline uint32_t
code_equal_key(const MirrorView &mirror, const LinkBatch &batch, uint32_t slot)
{
	int sum = 0;

	/* of squares all cancels */
	for (uint32_t chunk = threadIdx.x % WARP;
		 TERM != TERM_SQUARE && chunk < mirror.code_stride / 16; chunk += WARP)
	{
		uint4 x = __ldg(code_row(mirror, slot) + chunk);

		sum = dot16(x, x, sum);
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		sum += __shfl_xor_sync(FULL_WARP, sum, (int) distance);
	return TERM == TERM_SQUARE
			   ? code_key<TERM>(0, 0, 0)
			   : code_key<TERM>(batch.code_terms[slot], batch.code_terms[slot], sum);
}

/*
 * The key of a row that is as near to another as that is to itself, by codes:
 * of a duplicate it stays, of another row it becomes the next. Asked of whole
 * warps; seldom anything is to be done.
 */
template <typename T, int TERM>
__device__ static inline uint32_t
tell_duplicates(const MirrorView &mirror, uint32_t self, uint32_t equal_key, uint32_t exact_key,
				bool has, uint32_t slot, uint32_t key)
{
	uint32_t ask = __ballot_sync(FULL_WARP, has && key == equal_key);

	for (; ask != 0; ask &= ask - 1)
	{
		int from = __ffs((int) ask) - 1;
		uint32_t exact = pair_key<T, TERM>(mirror, self, __shfl_sync(FULL_WARP, slot, from), true,
										   fast_team(mirror.stride));

		if ((int) (threadIdx.x % WARP) == from && exact != exact_key)
			key = equal_key + 1;
	}
	return key;
}

#ifndef EMULATED

/*
 * Add one step's products: sums[0, 1] are of row g and columns 2 t, 2 t + 1,
 * sums[2, 3] of row 8 + g.
 */
__device__ static inline void
multiply_codes(int *sums, uint32_t low_a, uint32_t low_b, uint32_t high_a, uint32_t high_b,
			   uint32_t low, uint32_t high)
{
	asm volatile(
		"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
		: "r"(low_a), "r"(low_b), "r"(high_a), "r"(high_b), "r"(low), "r"(high));
}

/*
 * Products of sixteen rows with 8 N others, and, if OWN, with each other (the
 * last two of `sums`): sums[n][2 h + e] is of row 8 h + lane / 4 and column 8 n
 * + 2 (lane % 4) + e. A lane names rows lane / 4 and 8 + lane / 4, and columns
 * 8 n + lane / 4. One warp.
 */
template <int N, bool OWN>
__device__ static inline void
code_products(const MirrorView &mirror, const uint32_t *rows, const uint32_t *columns,
			  int (*sums)[4])
{
	uint32_t chunks = mirror.code_stride / 16;

#pragma unroll
	for (int n = 0; n < N + 2 * OWN; n++)
		sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0;
#pragma unroll 1
	for (uint32_t chunk = threadIdx.x % 4; chunk / 4 * 4 < chunks; chunk += 4)
	{
		uint4 a[2],
			b[N];

#pragma unroll
		for (int h = 0; h < 2; h++)
			a[h] =
				chunk < chunks ? __ldg(code_row(mirror, rows[h]) + chunk) : make_uint4(0, 0, 0, 0);
#pragma unroll
		for (int n = 0; n < N; n++)
			b[n] = chunk < chunks ? __ldg(code_row(mirror, columns[n]) + chunk)
								  : make_uint4(0, 0, 0, 0);
#pragma unroll
		for (int n = 0; n < N + 2 * OWN; n++)
		{
			const uint4 &other = n < N ? b[n < N ? n : 0] : a[n < N ? 0 : n - N];

			multiply_codes(sums[n], a[0].x, a[1].x, a[0].y, a[1].y, other.x, other.y);
			multiply_codes(sums[n], a[0].z, a[1].z, a[0].w, a[1].w, other.z, other.w);
		}
	}
}

#else

template <int N, bool OWN>
static inline void
code_products(const MirrorView &mirror, const uint32_t *rows, const uint32_t *columns,
			  int (*sums)[4])
{
	for (int n = 0; n < N + 2 * OWN; n++)
		for (int i = 0; i < 4; i++)
		{
			uint32_t column =
				__shfl_sync(FULL_WARP, n < N ? columns[n < N ? n : 0] : rows[n < N ? 0 : n - N],
							(int) (2 * (threadIdx.x % 4) + i % 2) * 4);

			sums[n][i] = 0;
			for (uint32_t chunk = 0; chunk < mirror.code_stride / 16; chunk++)
				sums[n][i] = dot16(code_row(mirror, rows[i / 2])[chunk],
								   code_row(mirror, column)[chunk], sums[n][i]);
		}
}

#endif /* EMULATED */

/* Rows and columns that a warp multiplies in one code_products(). */
#define TILE_ROWS 16u
#define TILE_COLUMNS 32u
#define COLUMN_TILES 4

/* Sixteen rows that meet others, as code_products has them. */
struct TileRows
{
	uint32_t slots[2];
	uint32_t keys[2];
	int terms[2];
	int margins[2]; /* of newcomers */
};

/* Four bits of a ballot, every second place of a byte. */
__device__ static inline uint32_t
spread_bits(uint32_t ballot, uint32_t row)
{
	uint32_t bits = ballot >> (4 * row) & 15;

	return (bits & 1) | (bits & 2) << 1 | (bits & 4) << 2 | (bits & 8) << 3;
}

/*
 * Of eight columns, what a row of the sixteen holds true: `is` as code_products
 * has its sums. Bit j: of column j. Whole warps; a lane asks for the row it
 * likes.
 */
__device__ static inline uint32_t
row_of_bits(const bool *is, uint32_t row)
{
	uint32_t bits = 0;

#pragma unroll
	for (int e = 0; e < 2; e++)
	{
		uint32_t upper = __ballot_sync(FULL_WARP, is[e]);
		uint32_t lower = __ballot_sync(FULL_WARP, is[2 + e]);

		bits |= spread_bits(row < 8 ? upper : lower, row % 8) << e;
	}
	return bits;
}

#endif /* GPUANN_CUDA_LINK_CODES_CUH */
