/*
 * products_test.cu
 *		Tests the assumptions of exact search by tensor cores: which rows the
 *		boxes of a phase contain; the error of products of tiles against
 *		tensor_error(), by warps (mma) and by warp groups (wgmma, where the
 *		device has them), on vectors that are hard for rounding, truncation and
 *		alignment; and the error of the products of the fused search against
 *		products_error().
 *
 * Prints TAP, and for each form the largest error found relative to its bound.
 * On a processor products are loops, whose error is checked all the same.
 */
#include <math.h>
#include <string.h>
#include <vector>

#include "cuda/exact/exact_tiles.h"
#include "cuda/exact/products.cuh"
#include "cuda/exact/wgmma.cuh"
#include "cuda/tests/testing.cuh"

#define ROWS_AT_ONCE 64u /* a case multiplies this many rows by 2 x 64, 128 or 256 queries */
#define DIMS_MAX 2000u
#define PASS_BYTES 512u /* bytes of each row per step */

/* Which implementation multiplies. */
typedef enum
{
	WARPS,
	PASS,
	WARP_GROUPS
} Form;

static const char *const forms[] = {"warps", "a pass", "warp groups"};

static cudaStream_t stream;

static void
skip(const char *what, const char *why)
{
	tests++;
	printf("ok %u - %s # skip %s\n", tests, what, why);
}

/* Uniform in [-1, 1). */
static float
random_value()
{
	return (float) ((int32_t) random_bits() * (1.0 / 2147483648.0));
}

/* --- boxes of rows -------------------------------------------------------- */

/*
 * Every row of a phase is in exactly one tile, and no other row is in any; no
 * copy begins more than one tile behind the end of the map.
 */
static bool
boxes_are_right(uint32_t rows, uint32_t step, uint32_t growth, uint32_t least)
{
	RowBoxes boxes = row_boxes(rows, step, growth, least);
	std::vector<unsigned char> seen(rows, 0);
	uint64_t found = 0,
			 wanted = 0;

	for (uint32_t tile = 0; tile < boxes.tiles; tile++)
		for (uint32_t row = 0; row < BOXED_ROWS; row++)
		{
			uint32_t slot = boxed_slot(boxes, tile, boxed_offset(boxes, row));

			if (slot == NO_SLOT)
				continue;
			if (slot >= rows || slot % step != 0 || slot % (step * growth) == 0 ||
				seen[slot]++ != 0)
				return false;
			found++;
		}
	for (uint32_t slot = 0; slot < rows; slot += step)
		wanted += slot % (step * growth) != 0;
	return found == wanted && boxes.box * boxes.boxes <= BOXED_ROWS &&
		   (uint64_t) boxes.first + (uint64_t) boxes.count * boxes.step < (1ull << 32);
}

static void
test_boxes()
{
	static const uint32_t rows[] = {1, 2, 63, 64, 65, 1000, 1024, 4095, 4096, 4097, 100003};
	bool good = true;

	for (uint32_t n : rows)
		for (uint32_t step = 1; step <= 512; step *= 2)
			for (uint32_t growth = 2; growth <= 64; growth *= 2)
				for (uint32_t least = 1; least < 100; least += 6)
					if (!boxes_are_right(n, step, growth, least))
					{
						printf("# %u rows, step %u, growth %u, boxes of at least %u\n", n, step,
							   growth, least);
						good = false;
					}
	say(good, "boxes hold the rows of a phase, each once");
}

/* --- vectors -------------------------------------------------------------- */

typedef enum
{
	UNIFORM,
	WORST_CUT, /* just below what rounds up, or is not truncated: every product loses as much as
			    * possible, always with the same sign */
	CANCELLING, /* large products that cancel, small ones between them */
	SPREAD,	   /* magnitudes far apart, within a vector and between vectors */
	ONE_LARGE, /* next to one product all others are aligned away */
	RISING,	   /* sums grow from step to step */
	LONGEST,   /* norms at the border of the range that is used */
	SHORTEST,
	SHAPES
} Shape;

static const char *const shapes[] = {"uniform",			 "worst cut",		 "cancelling",
									 "spread",			 "one large",		 "rising",
									 "longest of norms", "shortest of norms"};

/*
 * Element i of vector v, a row or a query, within the range of half precision
 * if `half`.
 */
static float
element(Shape shape, uint32_t v, uint32_t i, uint32_t dims, bool query, bool half)
{
	float value = random_value();

	switch (shape)
	{
		case WORST_CUT:
			return half ? 1.9990234f : query ? 1.0004882f : 1.0009764f;
		case CANCELLING:
			return i % 2 ? value * 1e-3f : ((i / 2 + v) % 2 ? -1.0009765f : 1.0009765f) * 1.2345f;
		case SPREAD:
			return ldexpf(value,
						  half ? (int) (random_bits() % 20) - 8 : (int) (random_bits() % 40) - 20);
		case ONE_LARGE:
			return i == dims / 2 ? 1.9999f : fabsf(value) * (half ? 0.001f : 0.0001f);
		case RISING:
			return (half ? 0.01f : 1.2345678f) * (float) (i + 1) / 7;
		case LONGEST:
			return half ? value * 60000 : value * (float) (9e14 / sqrt((double) dims));
		case SHORTEST:
			return half ? value * 6e-5f : value * (float) (2e-15 / sqrt((double) dims));
		default:
			return value;
	}
}

static inline double
number(float x)
{
	return x;
}

static inline double
number(__half x)
{
	return (float) x;
}

static inline void
set(float *to, float value)
{
	*to = value;
}

/*
 * Approximate rounding to nearest, for values whose half is normal; others
 * become 0.
 */
static inline void
set(__half *to, float value)
{
	uint32_t bits;
	uint16_t half;

	memcpy(&bits, &value, sizeof(bits));
	half = (uint16_t) (bits >> 16 & 0x8000);
	if ((bits & 0x7FFFFFFF) >= 113u << 23)
		half |= (uint16_t) (((bits & 0x7FFFFFFF) + 0xFFF - (112u << 23)) >> 13);
	memcpy((void *) to, &half, sizeof(half));
}

/* A query element as tensor cores get it: prepared by exact_begin_kernel. */
static inline float
prepared(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	bits = (bits + 0x1000u) & 0xFFFFE000u;
	memcpy(&x, &bits, sizeof(bits));
	return x;
}

static inline __half
prepared(__half x)
{
	return x;
}

/* Vectors of one case: whole tiles, padded with zeros. */
template <typename T>
struct Vectors
{
	uint32_t stride; /* elements */
	std::vector<T> rows;
	std::vector<T> queries; /* as given */
	std::vector<T> given;	/* as tensor cores get them */
	uint32_t nqueries;

	Vectors(Shape shape, uint32_t dims, uint32_t n) : nqueries(n)
	{
		uint32_t in_tile = TILE_BYTES / sizeof(T);

		stride = (dims + in_tile - 1) / in_tile * in_tile;
		rows.resize((size_t) ROWS_AT_ONCE * stride);
		queries.resize((size_t) n * stride);
		given.resize((size_t) n * stride);
		memset((void *) rows.data(), 0, rows.size() * sizeof(T));
		memset((void *) queries.data(), 0, queries.size() * sizeof(T));
		memset((void *) given.data(), 0, given.size() * sizeof(T));
		for (uint32_t v = 0; v < ROWS_AT_ONCE; v++)
			for (uint32_t i = 0; i < dims; i++)
				set(&rows[(size_t) v * stride + i],
					element(shape, v, i, dims, false, sizeof(T) == 2));
		for (uint32_t v = 0; v < n; v++)
			for (uint32_t i = 0; i < dims; i++)
			{
				set(&queries[(size_t) v * stride + i],
					element(shape, v + 1, i, dims, true, sizeof(T) == 2));
				given[(size_t) v * stride + i] = prepared(queries[(size_t) v * stride + i]);
			}
	}

	/*
	 * The largest error of products[row][query] relative to its bound, which is
	 * relative to lengths; only multiples of `every` queries were computed.
	 */
	double worst(const float *products, uint32_t dims, double bound, uint32_t every) const
	{
		double most = 0;

		for (uint32_t r = 0; r < ROWS_AT_ONCE; r++)
			for (uint32_t q = 0; q < nqueries; q += every)
			{
				double sum = 0,
					   row = 0,
					   query = 0;

				for (uint32_t i = 0; i < dims; i++)
				{
					double x = number(rows[(size_t) r * stride + i]);
					double y = number(queries[(size_t) q * stride + i]);

					sum += x * y;
					row += x * x;
					query += y * y;
				}

				double share = (fabs((double) products[(size_t) r * nqueries + q] - sum) - TINY) /
							   (bound * sqrt(row) * sqrt(query) + 1e-300);

				if (!(share <= most))
					most = isnan(share) ? HUGE_VAL : share;
			}
		return most;
	}
};

/* --- products ------------------------------------------------------------- */

/* A warp's products of 32 rows and 16 queries. Shared: a tile of each. */
template <typename T>
__global__ void
mma_kernel(const T *rows, const T *queries, uint32_t stride, uint32_t nqueries, float *products)
{
	DYNAMIC_SHARED(memory);
	uint32_t lane = threadIdx.x;
	uint32_t first_row = blockIdx.x * 32;
	uint32_t first_query = blockIdx.y * 16;
	float sums[2][2][4];

	memset(sums, 0, sizeof(sums));
	for (uint32_t at = 0; at < stride; at += TILE_BYTES / sizeof(T))
	{
		for (uint32_t i = lane; i < 48 * 8; i += WARP)
		{
			uint32_t v = i / 8;
			const T *from = v < 32 ? rows + (size_t) (first_row + v) * stride
								   : queries + (size_t) (first_query + v - 32) * stride;

			copy_unit(memory + (v < 32 ? 0 : 32 * TILE_BYTES) + tile_place(v % 32, i % 8),
					  (const unsigned char *) (from + at) + i % 8 * TILE_UNIT, true);
		}
		copies_close();
		copies_wait<0>();
		__syncthreads();
		multiply_tiles<T, 2, 2>(sums, memory, 0, memory + 32 * TILE_BYTES, 0);
		__syncthreads();
	}
	for (uint32_t i = 0; i < 16; i++)
	{
		uint32_t m = i / 8,
				 n = i / 4 % 2,
				 h = i / 2 % 2,
				 c = i % 2;

		products[(size_t) (first_row + m * 16 + h * 8 + lane / 4) * nqueries + first_query + n * 8 +
				 lane % 4 * 2 + c] = sums[m][n][i % 4];
	}
}

/* A warp's products of 16 rows and 16 queries. Shared: a part of each. */
template <typename T>
__global__ void
pass_kernel(const T *rows, const T *queries, uint32_t stride, uint32_t dims, uint32_t nqueries,
			float *products)
{
	const uint32_t PART = PASS_BYTES / sizeof(T);
	DYNAMIC_SHARED(memory);
	T *some_rows = (T *) memory;
	unsigned char *some_queries = memory + PRODUCT_ROWS * PASS_BYTES;
	uint32_t query_stride = product_query_stride(PART * sizeof(float));
	uint32_t lane = threadIdx.x;
	uint32_t first_row = blockIdx.x * PRODUCT_ROWS;
	uint32_t first_query = blockIdx.y * PRODUCT_QUERIES;
	Products sums;

	memset(&sums, 0, sizeof(sums));
	for (uint32_t at = 0; at < dims; at += PART)
	{
		uint32_t left = (dims - at < PART ? dims - at : PART) * (uint32_t) sizeof(T);

		for (uint32_t i = lane; i < PRODUCT_ROWS * PART; i += WARP)
		{
			uint32_t v = i / PART,
					 e = at + i % PART;

			if (e >= stride)
				continue; /* not read by the comparison */
			some_rows[i] = rows[(size_t) (first_row + v) * stride + e];
			product_query_at(some_queries, query_stride, v)[i % PART * PRODUCT_STEP] =
				(float) queries[(size_t) (first_query + v) * stride + e];
		}
		__syncthreads();
		multiply_units<T>(&sums, {memory, some_queries, PASS_BYTES, query_stride},
						  (left + TILE_UNIT - 1) / TILE_UNIT);
		__syncthreads();
	}
	for (uint32_t i = 0; i < 8; i++)
	{
		uint32_t row = first_row + product_row(lane, i / 4, i % 2);
		uint32_t query = first_query + product_query(lane, i / 2 % 2);

		products[(size_t) row * nqueries + query] =
			sums.whole[i / 4][i % 4] + sums.rest[i / 4][i % 4];
	}
}

#if defined(HAVE_TENSOR_MAPS) && !defined(EMULATED)

/* A warp group's products of 64 rows and 2 x SUMS queries. */
template <typename T, int SUMS>
__global__ void
__launch_bounds__(GROUP)
	wgmma_kernel(const __grid_constant__ CUtensorMap rows_map,
				 const __grid_constant__ CUtensorMap queries_map, uint32_t chunks, float *products)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	__shared__ uint64_t barrier;
	extern __shared__ __align__(1024) unsigned char tiles[];
	unsigned char *rows = tiles;
	unsigned char *queries = tiles + GROUP_ROWS * TILE_BYTES;
	uint32_t lane = threadIdx.x % WARP;
	float sums[SUMS];

	if (threadIdx.x == 0)
	{
		barrier_begin(&barrier, 1);
		barriers_begun();
	}
	__syncthreads();
	for (uint32_t c = 0; c < chunks; c++)
	{
		if (threadIdx.x == 0)
		{
			barrier_expect(&barrier, (GROUP_ROWS + 2 * SUMS) * TILE_BYTES);
			copy_box(rows, &rows_map, c * (TILE_BYTES / sizeof(T)), 0, &barrier);
			copy_box(queries, &queries_map, c * (TILE_BYTES / sizeof(T)), 0, &barrier);
		}
		barrier_wait(&barrier, c % 2);
		begin_products<T>(sums, rows, queries, c == 0);
		products_end(sums);
		__syncthreads();
	}
	for (uint32_t i = 0; i < SUMS; i++)
		products[(size_t) (threadIdx.x / WARP * 16 + i / 2 % 2 * 8 + lane / 4) * 2 * SUMS +
				 i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
#endif
}

template <typename T>
static CUtensorMap
map_of(const T *at, uint32_t stride, uint32_t vectors)
{
	static decltype(&cuTensorMapEncodeTiled) encode;
	cudaDriverEntryPointQueryResult result;
	CUtensorMap map;
	cuuint64_t dims[2] = {stride, vectors};
	cuuint64_t strides[1] = {stride * sizeof(T)};
	cuuint32_t box[2] = {TILE_BYTES / sizeof(T), vectors};
	cuuint32_t steps[2] = {1, 1};

#if CUDART_VERSION >= 12050
	must(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **) &encode, 12000,
										  cudaEnableDefault, &result),
		 "the driver");
#else
	must(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", (void **) &encode, cudaEnableDefault,
								 &result),
		 "the driver");
#endif
	if (encode(&map,
			   sizeof(T) == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_UINT32, 2,
			   (void *) at, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
			   CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
			   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
		must(cudaErrorInvalidValue, "a tensor map");
	return map;
}

template <typename T, int SUMS>
static void
multiply_by_groups(const T *rows, const T *queries, uint32_t stride, float *products)
{
	int bytes = (GROUP_ROWS + 2 * SUMS) * TILE_BYTES;

	must(cudaFuncSetAttribute((const void *) wgmma_kernel<T, SUMS>,
							  cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
		 "shared memory");
	LAUNCH((wgmma_kernel<T, SUMS>), 1, GROUP, bytes, stream, map_of(rows, stride, ROWS_AT_ONCE),
		   map_of(queries, stride, 2 * SUMS), stride * (uint32_t) sizeof(T) / TILE_BYTES, products);
}

#endif

/* Whether the device supports wgmma. */
static bool
has_groups()
{
	int major = 0,
		minor = 0;

#if defined(HAVE_TENSOR_MAPS) && !defined(EMULATED)
	must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "the device");
	must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "the device");
#endif
	return major == 9 && minor == 0;
}

/*
 * Run one case on the device; queries by 64, 128 or 256 with warp groups, else
 * by 16. Returns the largest error relative to its bound.
 */
template <typename T>
static double
share_of(Shape shape, uint32_t dims, uint32_t nqueries, Form form)
{
	const ElementType TYPE = sizeof(T) == 2 ? ELEMENT_HALF : ELEMENT_FLOAT;
	double bound = form == PASS ? products_error(TYPE, dims) : tensor_error(TYPE, dims);
	Vectors<T> vectors(shape, dims, nqueries);
	const std::vector<T> &given = form == PASS ? vectors.queries : vectors.given;
	std::vector<float> products((size_t) ROWS_AT_ONCE * nqueries);
	T *rows,
		*queries;
	float *out;

	must(cudaMalloc((void **) &rows, vectors.rows.size() * sizeof(T)), "memory");
	must(cudaMalloc((void **) &queries, given.size() * sizeof(T)), "memory");
	must(cudaMalloc((void **) &out, products.size() * sizeof(float)), "memory");
	must(cudaMemcpyAsync(rows, vectors.rows.data(), vectors.rows.size() * sizeof(T),
						 cudaMemcpyHostToDevice, stream),
		 "copying");
	must(cudaMemcpyAsync(queries, given.data(), given.size() * sizeof(T),
						 cudaMemcpyHostToDevice, stream),
		 "copying");
	must(cudaMemsetAsync(out, 0xFF, products.size() * sizeof(float), stream), "memory");
	if (form == PASS)
		LAUNCH(pass_kernel<T>, dim3(ROWS_AT_ONCE / PRODUCT_ROWS, nqueries / PRODUCT_QUERIES), WARP,
			   PRODUCT_ROWS * (PASS_BYTES + product_query_stride(PASS_BYTES / sizeof(T) * 4)),
			   stream, rows, queries, vectors.stride, dims, nqueries, out);
	else if (form == WARPS)
		LAUNCH(mma_kernel<T>, dim3(ROWS_AT_ONCE / 32, nqueries / 16), WARP, 48 * TILE_BYTES, stream,
			   rows, queries, vectors.stride, nqueries, out);
#if defined(HAVE_TENSOR_MAPS) && !defined(EMULATED)
	else if (nqueries == 64)
		multiply_by_groups<T, 32>(rows, queries, vectors.stride, out);
	else if (nqueries == 128)
		multiply_by_groups<T, 64>(rows, queries, vectors.stride, out);
	else
		multiply_by_groups<T, 128>(rows, queries, vectors.stride, out);
#endif
	must(cudaGetLastError(), "multiplying");
	must(cudaMemcpyAsync(products.data(), out, products.size() * sizeof(float),
						 cudaMemcpyDeviceToHost, stream),
		 "multiplying");
	must(cudaStreamSynchronize(stream), "multiplying");
	must(cudaFree(rows), "memory");
	must(cudaFree(queries), "memory");
	must(cudaFree(out), "memory");
	return vectors.worst(products.data(), dims, bound, dims > 500 ? 7 : 1);
}

template <typename T>
static void
test_form(Form form, uint32_t nqueries)
{
	static const uint32_t dims[] = {1, 3, 7, 8, 31, 32, 33, 64, 100, 128, 200, 768, DIMS_MAX};
	double most = 0;
	char what[200];

	snprintf(what, sizeof(what),
			 "products of %s by %s, %u queries: within the bound of their error",
			 sizeof(T) == 2 ? "halves" : "floats", forms[form], nqueries);
	if (form == WARP_GROUPS && !has_groups())
	{
		skip(what, "no such device");
		return;
	}
	for (int shape = 0; shape < SHAPES; shape++)
	{
		double of_shape = 0;

		for (uint32_t n : dims)
			of_shape = fmax(of_shape, share_of<T>((Shape) shape, n, nqueries, form));
		printf("# %s: %.4f of the bound\n", shapes[shape], of_shape);
		most = fmax(most, of_shape);
	}
	say(most <= 1, what);
}

int
main()
{
	test_boxes();
	must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	test_form<float>(WARPS, 16);
	test_form<__half>(WARPS, 16);
	test_form<float>(PASS, 16);
	test_form<__half>(PASS, 16);
	for (uint32_t nqueries = 64; nqueries <= 256; nqueries *= 2)
	{
		test_form<float>(WARP_GROUPS, nqueries);
		test_form<__half>(WARP_GROUPS, nqueries);
	}
	must(cudaStreamDestroy(stream), "the stream");
	printf("1..%u\n", tests);
	return failures == 0 ? 0 : 1;
}
