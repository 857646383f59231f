/*
 * products.cuh
 *		Products of 16 rows and 16 queries by a warp, as they lie in shared
 *		memory, by tensor cores (mma.sync) with nearly single precision.
 *
 * A lane loads the same 16 bytes of two rows and of two queries, and takes
 * their words as operands of two steps. So elements are added in another order
 * than they are stored in, rows need no other layout than in global memory, and
 * no load has more than two bank conflicts; none if vectors are an odd multiple
 * of 64 bytes apart. Queries are the 16 of a step, and rows twice its 8.
 *
 * Halves are multiplied exactly. A float is the sum of two tf32, and three of
 * the four products of these are added, the two small ones apart from the large
 * one, so little remains but the truncation of sums.
 *
 * In the emulation products are loops.
 */
#ifndef GPUANN_CUDA_PRODUCTS_CUH
#define GPUANN_CUDA_PRODUCTS_CUH

#include "cuda/exact/tensor.cuh"

#define PRODUCT_ROWS 16u
#define PRODUCT_QUERIES 16u
#define CELL 4u /* units that a warp takes of each vector at a time */

/* Rows and queries in shared memory, and the bytes from one to the next. */
struct ProductVectors
{
	const unsigned char *rows;
	const unsigned char *queries; /* single precision */
	uint32_t row_stride;
	uint32_t query_stride;
};

/*
 * Products of a warp's rows and queries: at [n][2 h + c] of a lane that of row
 * 8 n + 2 (lane % 4) + c and query lane / 4 + 8 h. `rest` are the products with
 * the smaller parts of floats.
 */
struct Products
{
	float whole[PRODUCT_ROWS / 8][4];
	float rest[PRODUCT_ROWS / 8][4];
};

/* Row (of a group) and query of a lane's product. */
__device__ static inline uint32_t
product_row(uint32_t lane, uint32_t n, uint32_t c)
{
	return n * 8 + lane % 4 * 2 + c;
}

__device__ static inline uint32_t
product_query(uint32_t lane, uint32_t h)
{
	return lane / 4 + h * 8;
}

/*
 * Bound of the error of these products, relative to the lengths of both
 * vectors: that of sums is tensor_error()'s. Of floats the smaller parts, each
 * less than a unit in 10 bits, are cut to 10 bits, and not multiplied with each
 * other; sums of their products are smaller by as much.
 */
static inline double
products_error(ElementType type, uint32_t dims)
{
	double sums = tensor_error(ELEMENT_HALF, dims);

	return type == ELEMENT_FLOAT ? sums * (1 + 4.0 / 1024) + 4.0 / 1048576 : sums;
}

#ifndef EMULATED

/* A unit of a query, in the type of the rows. */
__device__ static inline uint4
query_unit(const unsigned char *query, uint32_t unit, const float *)
{
	return ((const uint4 *) query)[unit];
}

__device__ static inline uint4
query_unit(const unsigned char *query, uint32_t unit, const __half *)
{
	float4 low = ((const float4 *) query)[2 * unit];
	float4 high = ((const float4 *) query)[2 * unit + 1];
	alignas(16) __half2 words[4] = {__floats2half2_rn(low.x, low.y), __floats2half2_rn(low.z, low.w),
						__floats2half2_rn(high.x, high.y), __floats2half2_rn(high.z, high.w)};

	return *(const uint4 *) words;
}

/* What is left of a float without the bits that tf32 has. */
__device__ static inline uint32_t
small_part(uint32_t bits)
{
	return __float_as_uint(__uint_as_float(bits) - __uint_as_float(bits & 0xFFFFE000u));
}

/*
 * Add the products of two words of each vector: of two queries of a lane, and
 * of the n-th row. Tensor cores ignore the bits that tf32 has not.
 */
__device__ static inline void
multiply_words(Products *sums, uint32_t n, const uint32_t (&query)[4], const uint32_t (&row)[2],
			   const __half *type)
{
	multiply(sums->whole[n], query, row, type);
}

__device__ static inline void
multiply_words(Products *sums, uint32_t n, const uint32_t (&query)[4], const uint32_t (&row)[2],
			   const float *type)
{
	uint32_t small_query[4] = {small_part(query[0]), small_part(query[1]), small_part(query[2]),
							   small_part(query[3])};
	uint32_t small_row[2] = {small_part(row[0]), small_part(row[1])};

	multiply(sums->whole[n], query, row, type);
	multiply(sums->rest[n], small_query, row, type);
	multiply(sums->rest[n], query, small_row, type);
}

/*
 * Add the products of rows and queries over so many units of a row. Called by a
 * warp.
 */
template <typename T>
__device__ static inline void
multiply_units(Products *sums, const ProductVectors &vectors, uint32_t units)
{
	const uint4 NOTHING = {0, 0, 0, 0};
	uint32_t lane = threadIdx.x % WARP;
	const unsigned char *query = vectors.queries + lane / 4 * vectors.query_stride;
	const uint4 *row = (const uint4 *) (vectors.rows + lane / 4 * vectors.row_stride);

#pragma unroll 2
	for (uint32_t unit = lane % CELL; unit - lane % CELL < units; unit += CELL)
	{
		bool there = unit < units;
		uint4 near = there ? query_unit(query, unit, (const T *) 0) : NOTHING;
		uint4 far = there ? query_unit(query + 8 * vectors.query_stride, unit, (const T *) 0)
						  : NOTHING;
		uint32_t first[4] = {near.x, far.x, near.y, far.y};
		uint32_t second[4] = {near.z, far.z, near.w, far.w};
		uint4 raw[PRODUCT_ROWS / 8];

#pragma unroll
		for (uint32_t n = 0; n < PRODUCT_ROWS / 8; n++)
			raw[n] = there ? row[n * vectors.row_stride / 2 + unit] : NOTHING;
#pragma unroll
		for (uint32_t n = 0; n < PRODUCT_ROWS / 8; n++)
		{
			uint32_t words[2] = {raw[n].x, raw[n].y};
			uint32_t more[2] = {raw[n].z, raw[n].w};

			multiply_words(sums, n, first, words, (const T *) 0);
			multiply_words(sums, n, second, more, (const T *) 0);
		}
	}
}

#else

template <typename T>
static inline void
multiply_units(Products *sums, const ProductVectors &vectors, uint32_t units)
{
	uint32_t lane = threadIdx.x % WARP;

	for (uint32_t n = 0; n < PRODUCT_ROWS / 8; n++)
		for (uint32_t i = 0; i < 4; i++)
		{
			const T *row =
				(const T *) (vectors.rows + product_row(lane, n, i % 2) * vectors.row_stride);
			const float *query = (const float *) (vectors.queries + product_query(lane, i / 2) *
																		vectors.query_stride);

			for (uint32_t e = 0; e < units * TILE_UNIT / sizeof(T); e++)
				sums->whole[n][i] += (float) row[e] * query[e];
		}
}

#endif

#endif /* GPUANN_CUDA_PRODUCTS_CUH */
