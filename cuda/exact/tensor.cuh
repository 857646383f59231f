/*
 * tensor.cuh
 *		Tiles of vectors in shared memory, and their products by tensor cores
 *		(mma.sync).
 *
 * A tile contains 128 bytes of each of its vectors (32 floats or 64 halves): 8
 * units of 16 bytes, unit u of vector v at place u ^ (v & 7), so that neither
 * storing a row nor loading a column of units causes bank conflicts. Both types
 * have the same byte layout in registers: a step takes 32 bytes of 16 rows and
 * of 8 queries. Floats become tf32, rounded to nearest by an addition here and
 * the truncation in the tensor core; halves are used as they are. Sums are
 * single precision, truncated rather than rounded (tensor_error()).
 *
 * In the emulation the same tiles are multiplied by loops, without rounding
 * elements.
 */
#ifndef GPUANN_CUDA_TENSOR_CUH
#define GPUANN_CUDA_TENSOR_CUH

#include <cuda_fp16.h>

#include "cuda/common/gpu.h"

#define TILE_BYTES 128u /* of each vector */
#define TILE_UNIT 16u
#define TILE_STEPS 4u	/* per product, 32 bytes each */

/* Offset of a unit of a tile's vector. */
__device__ static inline uint32_t
tile_place(uint32_t vector, uint32_t unit)
{
	return vector * TILE_BYTES + ((unit ^ (vector & 7)) * TILE_UNIT);
}

/*
 * Bound of the error of a product summed by tensor cores, relative to the
 * lengths of the two vectors. Floats: half a unit in 10 bits for the query,
 * which is rounded before; a whole unit for the row, which warp groups
 * (wgmma.cuh) truncate without rounding, and whose rounding here relies on the
 * truncation of its low bits. Each step adds 8 or 16 products to a sum, all
 * aligned and truncated at 22 bits after the largest or later (25 by warp
 * groups, and 23 of the sum); none exceeds the product of the lengths. Measured
 * by tests/products_test.cu.
 */
static inline double
tensor_error(ElementType type, uint32_t dims)
{
	double elements = type == ELEMENT_FLOAT ? 3.1 / 2048 : 0;
	double sums = (dims / 8.0 + 1) * 18 / 4194304;

	return elements + sums;
}

#ifndef EMULATED

/* Copy 16 bytes to shared memory, or zeros. */
__device__ static inline void
copy_unit(void *to, const void *from, bool there)
{
	uint32_t at = (uint32_t) __cvta_generic_to_shared(to);

	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
				 "r"(there ? 16 : 0)
				 : "memory");
}

/* Copy 8 bytes to shared memory, or zeros. */
__device__ static inline void
copy_double(double *to, const double *from, bool there)
{
	uint32_t at = (uint32_t) __cvta_generic_to_shared(to);

	asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(at), "l"(from),
				 "r"(there ? 8 : 0)
				 : "memory");
}

/* Make a group of the copies issued so far. */
__device__ static inline void
copies_close()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Wait until at most N groups of this thread's copies are incomplete. */
template <int N>
__device__ static inline void
copies_wait()
{
	asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

__device__ static inline void
load_matrices(uint32_t *registers, const unsigned char *at)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
				 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
				 : "r"((uint32_t) __cvta_generic_to_shared(at)));
}

__device__ static inline void
multiply(float *sum, const uint32_t *rows, const uint32_t *queries, const float *)
{
	asm volatile(
		"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
		"{%0, %1, %2, %3};"
		: "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
		: "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(queries[0]), "r"(queries[1]));
}

__device__ static inline void
multiply(float *sum, const uint32_t *rows, const uint32_t *queries, const __half *)
{
	asm volatile(
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
		"{%0, %1, %2, %3};"
		: "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
		: "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(queries[0]), "r"(queries[1]));
}

/* Add half of the unit that tf32 truncation removes. */
__device__ static inline uint32_t
add_half_unit(uint32_t bits, const float *)
{
	return bits + 0x1000u;
}

__device__ static inline uint32_t
add_half_unit(uint32_t bits, const __half *)
{
	return bits;
}

/*
 * Add the products of a warp's rows and queries over one tile to its sums:
 * sums[m][n][2 h + c] is for row 16 m + 8 h + lane / 4 and query 8 n + 2 (lane
 * % 4) + c, counted from the warp's first of each (multiples of 8).
 */
template <typename T, int M, int N>
__device__ static inline void
multiply_tiles(float (*sums)[N][4], const unsigned char *rows, uint32_t first_row,
			   const unsigned char *queries, uint32_t first_query)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t matrix = lane / 8;
	uint32_t row = first_row + (matrix & 1) * 8 + lane % 8;
	uint32_t query = first_query + (matrix >> 1) * 8 + lane % 8;

#pragma unroll
	for (uint32_t step = 0; step < TILE_STEPS; step++)
	{
		uint32_t a[M][4];

#pragma unroll
		for (int m = 0; m < M; m++)
		{
			load_matrices(a[m], rows + tile_place(row + m * 16, 2 * step + (matrix >> 1)));
#pragma unroll
			for (int i = 0; i < 4; i++)
				a[m][i] = add_half_unit(a[m][i], (const T *) 0);
		}
#pragma unroll
		for (int n = 0; n < N; n += 2)
		{
			uint32_t b[4];

			load_matrices(b, queries + tile_place(query + n * 8, 2 * step + (matrix & 1)));
#pragma unroll
			for (int m = 0; m < M; m++)
			{
				multiply(sums[m][n], a[m], b, (const T *) 0);
				multiply(sums[m][n + 1], a[m], b + 2, (const T *) 0);
			}
		}
	}
}

#else

__device__ static inline void
copy_unit(void *to, const void *from, bool there)
{
	if (there)
		memcpy(to, from, 16);
	else
		memset(to, 0, 16);
}

__device__ static inline void
copy_double(double *to, const double *from, bool there)
{
	*to = there ? *from : 0;
}

__device__ static inline void
copies_close()
{
}

template <int N>
__device__ static inline void
copies_wait()
{
}

template <typename T>
static inline float
tile_element(const unsigned char *tile, uint32_t vector, uint32_t element)
{
	uint32_t byte = element * (uint32_t) sizeof(T);

	return (float) *(const T *) (tile + tile_place(vector, byte / TILE_UNIT) + byte % TILE_UNIT);
}

/* Each element is converted once: the emulated engine spends its time here. */
template <typename T, int M, int N>
static inline void
multiply_tiles(float (*sums)[N][4], const unsigned char *rows, uint32_t first_row,
			   const unsigned char *queries, uint32_t first_query)
{
	uint32_t lane = threadIdx.x % WARP;
	float products[2 * M][2 * N];

	for (uint32_t i = 0; i < 2 * M; i++)
		for (uint32_t j = 0; j < 2 * N; j++)
			products[i][j] = sums[i / 2][j / 2][i % 2 * 2 + j % 2];
	for (uint32_t e = 0; e < TILE_BYTES / sizeof(T); e++)
	{
		float values[2 * N];

		for (uint32_t j = 0; j < 2 * N; j++)
			values[j] = tile_element<T>(queries, first_query + j / 2 * 8 + lane % 4 * 2 + j % 2, e);
		for (uint32_t i = 0; i < 2 * M; i++)
		{
			float value = tile_element<T>(rows, first_row + i * 8 + lane / 4, e);

			for (uint32_t j = 0; j < 2 * N; j++)
				products[i][j] += value * values[j];
		}
	}
	for (uint32_t i = 0; i < 2 * M; i++)
		for (uint32_t j = 0; j < 2 * N; j++)
			sums[i / 2][j / 2][i % 2 * 2 + j % 2] = products[i][j];
}

#endif /* EMULATED */

#endif /* GPUANN_CUDA_TENSOR_CUH */
