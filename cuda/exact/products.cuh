/*
 * products.cuh
 *		Products of 16 rows and 16 queries by a warp, as they lie in shared
 *		memory, by tensor cores (mma.sync) with nearly single precision.
 *
 * A lane loads 16 bytes of two rows, and takes their words as operands of two
 * steps. So elements are added in another order than they are stored in, and
 * rows need no other layout than in global memory; loads have at most two bank
 * conflicts. Queries g and g + 8, widened to single precision, lie element by
 * element side by side, as a lane's registers want them. They are the 16 of a
 * step, and rows twice its 8.
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
#define PRODUCT_STEP 2u /* from one element of a query to the next */
#define CELL 4u			/* units that a warp takes of each row at a time */

/* Rows and queries in shared memory, and the bytes from one to the next. */
struct ProductVectors
{
	const unsigned char *rows;
	const unsigned char *queries;
	uint32_t row_stride;
	uint32_t query_stride; /* see product_query_stride() */
};

/* Bytes for a query of so many in single precision: pairs have no conflicts. */
__host__ __device__ static inline uint32_t
product_query_stride(uint32_t bytes)
{
	return (bytes + 63) / 64 * 64 + 8;
}

/* The first element of a query. */
__device__ static inline float *
product_query_at(unsigned char *queries, uint32_t stride, uint32_t query)
{
	return (float *) (queries + query % 8 * PRODUCT_STEP * stride) + query / 8;
}

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

/*
 * Two words of both queries of a lane, in the type of the rows: those of half
 * `half` of a unit.
 */
__device__ static inline void
query_words(uint32_t (&words)[4], const unsigned char *pair, uint32_t half, const float *)
{
	uint4 both = ((const uint4 *) pair)[half];

	words[0] = both.x;
	words[1] = both.y;
	words[2] = both.z;
	words[3] = both.w;
}

__device__ static inline uint32_t
half_word(float low, float high)
{
	__half2 word = __floats2half2_rn(low, high);

	return *(const uint32_t *) &word;
}

__device__ static inline void
query_words(uint32_t (&words)[4], const unsigned char *pair, uint32_t half, const __half *)
{
	float4 low = ((const float4 *) pair)[2 * half];
	float4 high = ((const float4 *) pair)[2 * half + 1];

	words[0] = half_word(low.x, low.z);
	words[1] = half_word(low.y, low.w);
	words[2] = half_word(high.x, high.z);
	words[3] = half_word(high.y, high.w);
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
	uint32_t lane = threadIdx.x % WARP;
	const unsigned char *pair = vectors.queries + lane / 4 * PRODUCT_STEP * vectors.query_stride;
	const uint4 *row = (const uint4 *) (vectors.rows + lane / 4 * vectors.row_stride);

#pragma unroll 2
	for (uint32_t unit = lane % CELL; unit - lane % CELL < units; unit += CELL)
	{
		uint32_t query[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
		uint4 raw[PRODUCT_ROWS / 8] = {{0, 0, 0, 0}, {0, 0, 0, 0}};

		if (unit < units)
		{
			query_words(query[0], pair, 2 * unit, (const T *) 0);
			query_words(query[1], pair, 2 * unit + 1, (const T *) 0);
#pragma unroll
			for (uint32_t n = 0; n < PRODUCT_ROWS / 8; n++)
				raw[n] = row[n * vectors.row_stride / 2 + unit];
		}
#pragma unroll
		for (uint32_t n = 0; n < PRODUCT_ROWS / 8; n++)
		{
			uint32_t first[2] = {raw[n].x, raw[n].y};
			uint32_t second[2] = {raw[n].z, raw[n].w};

			multiply_words(sums, n, query[0], first, (const T *) 0);
			multiply_words(sums, n, query[1], second, (const T *) 0);
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
			const float *query =
				product_query_at((unsigned char *) vectors.queries, vectors.query_stride,
								 product_query(lane, i / 2));

			for (uint32_t e = 0; e < units * TILE_UNIT / sizeof(T); e++)
				sums->whole[n][i] += (float) row[e] * query[e * PRODUCT_STEP];
		}
}

#endif

#endif /* GPUANN_CUDA_PRODUCTS_CUH */
