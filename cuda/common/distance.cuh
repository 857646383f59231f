/*
 * distance.cuh
 *		Distances between a query in shared memory and stored rows: the exact
 *		one of I10, and a fast one for graph traversal.
 *
 * Exact: two threads per row. Thread t takes elements 8 j + 4 t .. 8 j + 4 t +
 * 3, so its four sums are the accumulators 4 t .. 4 t + 3 of the definition,
 * each filled in its order; 16 bytes of float (8 of half) per load, a sector
 * per row and step. Products and sums are rounded separately. Bound: memory
 * while one query reads a row (two conversions and three double operations per
 * element against 4 bytes), arithmetic when many queries share it.
 *
 * Fast: a team of 8, 16 or 32 threads per row, 16 bytes per load, single
 * precision with fused multiply-add.
 *
 * Bits: 16 bytes per load and thread, population counts; a team of two threads
 * for the exact distance, for the fast one as above. Bound: memory.
 *
 * The query is held in single precision, which represents float and half
 * exactly, or as bits, and is padded with zeros to a multiple of 8 elements;
 * rows are padded with zeros to 16 bytes. Padding adds +0 to sums, which
 * changes no bit of them.
 */
#ifndef GPUANN_CUDA_DISTANCE_CUH
#define GPUANN_CUDA_DISTANCE_CUH

#include <cuda_fp16.h>

#include "cuda/common/view.h"

#ifdef EMULATED
#define CALLED inline
#else
#define CALLED __noinline__ /* rarely, so it is not to cost its caller registers */
#endif

#define EXACT_TEAM 2u
#define EXACT_LANES 8u /* threads per row where few rows are measured and latency counts */

/*
 * What a pair of elements adds to a distance's sum. Kernels are instantiated
 * per element type and term.
 */
enum Term
{
	TERM_PRODUCT = 0,	/* inner product, cosine */
	TERM_SQUARE = 1,	/* L2 */
	TERM_ABSOLUTE = 2,	/* L1 */
	TERM_BITS = 3		/* Hamming, Jaccard: of Bits only */
};

/* The term of a metric. */
__host__ __device__ static inline int
term_of(Metric metric)
{
	switch (metric)
	{
		case METRIC_L2:
			return TERM_SQUARE;
		case METRIC_L1:
			return TERM_ABSOLUTE;
		case METRIC_HAMMING:
		case METRIC_JACCARD:
			return TERM_BITS;
		default:
			return TERM_PRODUCT;
	}
}

/* 16 bytes of a bit vector: the element type of kernels for bits. */
struct alignas(16) Bits
{
	uint32_t word[4];
};

/*
 * All pairs of an element type and a term that have kernels: of(T, TERM) for
 * each, to fill a table; type_and_term() gives a mirror's index in it.
 */
#define TYPES_AND_TERMS(of) \
	{ \
		of(float, TERM_PRODUCT), of(float, TERM_SQUARE), of(float, TERM_ABSOLUTE), \
			of(__half, TERM_PRODUCT), of(__half, TERM_SQUARE), of(__half, TERM_ABSOLUTE), \
			of(Bits, TERM_BITS) \
	}

#define TYPES_AND_TERMS_COUNT 7

/* Index of a pair in TYPES_AND_TERMS. */
static inline int
type_and_term(ElementType type, Metric metric)
{
	return type == ELEMENT_BIT ? 6 : (type == ELEMENT_HALF ? 3 : 0) + term_of(metric);
}

/*
 * Bytes that a query takes in shared memory: single precision, or bits, padded
 * with zeros to a multiple of 16.
 */
__host__ __device__ static inline uint32_t
query_bytes(const MirrorView &mirror)
{
	if (mirror.type == ELEMENT_BIT)
		return mirror.stride;
	return (mirror.dims + 7) / 8 * 8 * (uint32_t) sizeof(float);
}

/* Four consecutive elements, converted to single precision. */
__device__ static inline float4
load4(const float *row, uint32_t element)
{
	return *(const float4 *) (row + element);
}

__device__ static inline float4
load4(const __half *row, uint32_t element)
{
	uint2 raw = *(const uint2 *) (row + element);
	float2 low = __half22float2(*(const __half2 *) &raw.x);
	float2 high = __half22float2(*(const __half2 *) &raw.y);

	return make_float4(low.x, low.y, high.x, high.y);
}

/*
 * sum + a * b, product and sum rounded separately: the CPU's result to the bit
 */
__device__ static inline double
add_product(double sum, double a, double b)
{
	return __dadd_rn(sum, __dmul_rn(a, b));
}

template <int TERM>
__device__ static inline void
add_term(double *sum, float a, float b)
{
	if (TERM == TERM_ABSOLUTE)
		*sum = __dadd_rn(*sum, fabs(__dsub_rn((double) a, (double) b)));
	else if (TERM == TERM_SQUARE)
	{
		double difference = __dsub_rn((double) a, (double) b);

		*sum = add_product(*sum, difference, difference);
	}
	else
		*sum = add_product(*sum, (double) a, (double) b);
}

/*
 * The exact sum (of squared or absolute differences or of products) over the
 * elements of two vectors, in both threads of a pair: lane is threadIdx.x & 1.
 * Called by whole warps; a pair without a row passes active = false.
 */
template <typename T, int TERM, typename Q>
__device__ static inline double
exact_sum(const Q *query, const T *row, uint32_t dims, bool active)
{
	double sum0 = 0,
		   sum1 = 0,
		   sum2 = 0,
		   sum3 = 0;

	if (active)
	{
#pragma unroll 4
		for (uint32_t i = (threadIdx.x & 1) * 4; i < dims; i += 8)
		{
			float4 q = load4(query, i);
			float4 r = load4(row, i);

			add_term<TERM>(&sum0, q.x, r.x);
			add_term<TERM>(&sum1, q.y, r.y);
			add_term<TERM>(&sum2, q.z, r.z);
			add_term<TERM>(&sum3, q.w, r.w);
		}
	}
	/*
	 * (0+4), (1+5), (2+6), (3+7): addition commutes, so both threads of the
	 * pair compute the same bits
	 */
	sum0 = __dadd_rn(sum0, __shfl_xor_sync(FULL_WARP, sum0, 1));
	sum1 = __dadd_rn(sum1, __shfl_xor_sync(FULL_WARP, sum1, 1));
	sum2 = __dadd_rn(sum2, __shfl_xor_sync(FULL_WARP, sum2, 1));
	sum3 = __dadd_rn(sum3, __shfl_xor_sync(FULL_WARP, sum3, 1));
	return __dadd_rn(__dadd_rn(sum0, sum2), __dadd_rn(sum1, sum3));
}

/*
 * The sum over eight lanes, each of which has one of I10's accumulators; every
 * lane gets it. Whole warps.
 */
__device__ static inline double
sum_of_eight(double sum)
{
	/* addition commutes, so all eight lanes compute the same bits */
	sum = __dadd_rn(sum, __shfl_xor_sync(FULL_WARP, sum, 4));
	sum = __dadd_rn(sum, __shfl_xor_sync(FULL_WARP, sum, 2));
	return __dadd_rn(sum, __shfl_xor_sync(FULL_WARP, sum, 1));
}

/* The exact distance from a sum; squared norms are used for cosine only. */
__device__ static inline double
exact_finish(Metric metric, double sum, double query_norm, double row_norm)
{
	if (metric == METRIC_IP)
		sum = -sum;
	else if (metric == METRIC_COSINE)
	{
		double norms = __dsqrt_rn(__dmul_rn(query_norm, row_norm));

		if (norms == 0)
			return HUGE_VAL;
		sum = __dsub_rn(1.0, __ddiv_rn(sum, norms));
	}
	return sum; /* key_of() turns NaN into infinity */
}

/* Bits set in both of two vectors, and bits set in exactly one. */
struct CudaBitCounts
{
	uint32_t both;
	uint32_t one;
};

__device__ static inline void
count_bits(CudaBitCounts *counts, const uint4 &a, const uint4 &b)
{
	counts->both += __popc(a.x & b.x) + __popc(a.y & b.y) + __popc(a.z & b.z) + __popc(a.w & b.w);
	counts->one += __popc(a.x ^ b.x) + __popc(a.y ^ b.y) + __popc(a.z ^ b.z) + __popc(a.w ^ b.w);
}

/*
 * The bit counts of a query and a row, in every thread of a team that reads 16
 * bytes each per step. ON_CHIP: the row is in shared memory, else it is read
 * through the read-only cache. Called by whole warps.
 */
template <bool ON_CHIP = false>
__device__ static inline CudaBitCounts
team_counts(const uint4 *query, const uint4 *row, uint32_t stride, bool active, uint32_t team)
{
	CudaBitCounts counts = {0, 0};

	/* unroll 2, not 4: at 4 graph_search.cu runs out of registers */
	if (active)
#pragma unroll 2
		for (uint32_t chunk = threadIdx.x & (team - 1); chunk < stride / 16; chunk += team)
			count_bits(&counts, query[chunk], ON_CHIP ? row[chunk] : __ldg(row + chunk));
	for (uint32_t distance = team / 2; distance > 0; distance >>= 1)
	{
		counts.both += __shfl_xor_sync(FULL_WARP, counts.both, distance);
		counts.one += __shfl_xor_sync(FULL_WARP, counts.one, distance);
	}
	return counts;
}

/* The exact distance from bit counts. */
__device__ static inline double
bits_finish(Metric metric, CudaBitCounts counts)
{
	if (metric == METRIC_HAMMING)
		return (double) counts.one;
	if (counts.both == 0)
		return 1.0;
	return __dsub_rn(1.0, __ddiv_rn((double) counts.both, (double) (counts.both + counts.one)));
}

/* A query in shared memory, ready to be compared with rows. */
struct QueryVector
{
	const float *elements; /* or, of bits, their bytes */
	double norm;		  /* squared, as I10 sums it; cosine only */
	float inverse_length; /* cosine only */
};

template <typename T>
__device__ static inline void
widen_query(const MirrorView &mirror, const T *stored, float *elements)
{
	for (uint32_t i = threadIdx.x; i < query_bytes(mirror) / sizeof(float); i += blockDim.x)
		elements[i] = i < mirror.dims ? (float) stored[i] : 0.0f;
}

__device__ static inline void
widen_query(const MirrorView &mirror, const Bits *stored, float *elements)
{
	unsigned char *bytes = (unsigned char *) elements;

	for (uint32_t i = threadIdx.x; i < query_bytes(mirror); i += blockDim.x)
		bytes[i] = i < (mirror.dims + 7) / 8 ? ((const unsigned char *) stored)[i] : 0;
}

/*
 * Describe a query whose elements are in shared memory, after a barrier;
 * computes its squared norm for cosine. All threads of the block; norm_place is
 * a shared double.
 */
__device__ static inline QueryVector
query_of(const MirrorView &mirror, const float *elements, double *norm_place)
{
	QueryVector query = {elements, 0, 0};

	if (mirror.metric == METRIC_COSINE)
	{
		if (threadIdx.x < WARP)
		{
			double norm = exact_sum<float, TERM_PRODUCT>(elements, elements, mirror.dims,
														 threadIdx.x < EXACT_TEAM);

			if (threadIdx.x == 0)
				*norm_place = norm;
		}
		__syncthreads();
		query.norm = *norm_place;
		query.inverse_length = rsqrtf((float) query.norm);
	}
	return query;
}

/*
 * Copy a query to shared memory, converted to single precision and padded; then
 * as query_of().
 */
template <typename T>
__device__ static inline QueryVector
load_query(const MirrorView &mirror, const unsigned char *stored, float *elements,
		   double *norm_place)
{
	widen_query(mirror, (const T *) stored, elements);
	__syncthreads();
	return query_of(mirror, elements, norm_place);
}

template <typename T>
__device__ static inline const T *
row_of(const MirrorView &mirror, uint32_t slot)
{
	return (const T *) (mirror.vectors + (size_t) slot * mirror.stride);
}

/* The exact distance of float and half rows. */
template <typename T, int TERM>
struct ExactMeasure
{
	__device__ static inline double
	distance(const MirrorView &mirror, const QueryVector &query, uint32_t slot, bool active)
	{
		double sum = exact_sum<T, TERM>(query.elements, row_of<T>(mirror, active ? slot : 0),
										mirror.dims, active);

		if (TERM != TERM_PRODUCT)
			return sum;
		return exact_finish(mirror.metric, sum, query.norm,
							active && mirror.metric == METRIC_COSINE ? mirror.norms[slot] : 0);
	}
};

/* The exact distance of bits. */
template <>
struct ExactMeasure<Bits, TERM_BITS>
{
	__device__ static inline double
	distance(const MirrorView &mirror, const QueryVector &query, uint32_t slot, bool active)
	{
		return bits_finish(mirror.metric,
						   team_counts((const uint4 *) query.elements,
									   (const uint4 *) row_of<Bits>(mirror, active ? slot : 0),
									   mirror.stride, active, EXACT_TEAM));
	}
};

/*
 * The exact distance of a slot's row as a key, in both threads of a pair.
 * Called by whole warps.
 */
template <typename T, int TERM>
__device__ static inline Key
exact_key(const MirrorView &mirror, const QueryVector &query, uint32_t slot, bool active)
{
	return key_of(ExactMeasure<T, TERM>::distance(mirror, query, slot, active));
}

/*
 * The exact sum over the elements of a query and a row, which lie STEP and
 * ROW_STEP elements apart, by eight lanes with one of I10's accumulators each;
 * every lane gets it. Whole warps.
 */
template <int TERM, uint32_t STEP, uint32_t ROW_STEP, int UNROLLED, typename T>
__device__ static inline double
wide_sum(const float *query, const T *row, uint32_t dims, bool active)
{
	double sum = 0;

	if (active)
	{
#pragma unroll (UNROLLED)
		for (uint32_t i = threadIdx.x % EXACT_LANES; i < dims; i += EXACT_LANES)
			add_term<TERM>(&sum, query[i * STEP], (float) row[i * ROW_STEP]);
	}
	return sum_of_eight(sum);
}

/*
 * The exact key of a row in global or (ON_CHIP) shared memory, by eight lanes;
 * every lane gets it. With few rows this has less latency than pairs of
 * threads, whose strength is throughput. Whole warps.
 */
template <typename T, int TERM, bool ON_CHIP, uint32_t STEP = 1>
struct WideMeasure
{
	__device__ static inline Key key(const MirrorView &mirror, const QueryVector &query,
									 const unsigned char *stored, uint32_t slot, bool active)
	{
		double sum = wide_sum<TERM, STEP, 1, ON_CHIP ? 4 : 8>(
			query.elements, (const T *) stored, mirror.dims, active);

		if (TERM == TERM_PRODUCT)
			sum = exact_finish(mirror.metric, sum, query.norm,
							   active && mirror.metric == METRIC_COSINE ? mirror.norms[slot] : 0);
		return key_of(sum);
	}
};

template <bool ON_CHIP>
struct WideMeasure<Bits, TERM_BITS, ON_CHIP, 1>
{
	__device__ static inline Key key(const MirrorView &mirror, const QueryVector &query,
									 const unsigned char *stored, uint32_t, bool active)
	{
		return key_of(
			bits_finish(mirror.metric,
						team_counts<ON_CHIP>((const uint4 *) query.elements, (const uint4 *) stored,
											 mirror.stride, active, EXACT_LANES)));
	}
};

/*
 * Threads per row for the fast distance: enough to read long rows in few steps,
 * few enough that no lane idles on short ones.
 */
__host__ __device__ static inline uint32_t
fast_team(uint32_t row_bytes)
{
	return row_bytes <= 1024 ? 8 : row_bytes <= 2048 ? 16 : 32;
}

template <int TERM>
__device__ static inline float
fast_term(float sum, float q, float r)
{
	if (TERM == TERM_ABSOLUTE)
		return sum + fabsf(q - r);
	if (TERM == TERM_SQUARE)
	{
		float difference = q - r;

		return fmaf(difference, difference, sum);
	}
	return fmaf(q, r, sum);
}

template <int TERM>
__device__ static inline float
fast_chunk(float sum, const float *query, const uint4 &raw, const float *)
{
	float4 q = *(const float4 *) query;

	sum = fast_term<TERM>(sum, q.x, __uint_as_float(raw.x));
	sum = fast_term<TERM>(sum, q.y, __uint_as_float(raw.y));
	sum = fast_term<TERM>(sum, q.z, __uint_as_float(raw.z));
	return fast_term<TERM>(sum, q.w, __uint_as_float(raw.w));
}

template <int TERM>
__device__ static inline float
fast_pair(float sum, float q0, float q1, uint32_t raw)
{
	float2 r = __half22float2(*(const __half2 *) &raw);

	return fast_term<TERM>(fast_term<TERM>(sum, q0, r.x), q1, r.y);
}

template <int TERM>
__device__ static inline float
fast_chunk(float sum, const float *query, const uint4 &raw, const __half *)
{
	float4 q0 = *(const float4 *) query;
	float4 q1 = *(const float4 *) (query + 4);

	sum = fast_pair<TERM>(sum, q0.x, q0.y, raw.x);
	sum = fast_pair<TERM>(sum, q0.z, q0.w, raw.y);
	sum = fast_pair<TERM>(sum, q1.x, q1.y, raw.z);
	return fast_pair<TERM>(sum, q1.z, q1.w, raw.w);
}

/* The sum of a fast distance, in every thread of a team. Whole warps. */
template <typename T, int TERM>
__device__ static inline float
fast_sum(const MirrorView &mirror, const QueryVector &query, uint32_t slot, bool active,
		 uint32_t team)
{
	const uint32_t per_chunk = 16 / sizeof(T);
	uint32_t chunks = (mirror.dims + per_chunk - 1) / per_chunk;
	const uint4 *row = (const uint4 *) row_of<T>(mirror, active ? slot : 0);
	float sum = 0;

	if (active)
	{
#pragma unroll 4
		for (uint32_t chunk = threadIdx.x & (team - 1); chunk < chunks; chunk += team)
			sum = fast_chunk<TERM>(sum, query.elements + chunk * per_chunk, __ldg(row + chunk),
								   (const T *) 0);
	}
	for (uint32_t distance = team / 2; distance > 0; distance >>= 1)
		sum += __shfl_xor_sync(FULL_WARP, sum, distance);
	return sum;
}

/* The fast distance of float and half rows. */
template <typename T, int TERM>
struct FastMeasure
{
	__device__ static inline float distance(const MirrorView &mirror, const QueryVector &query,
											uint32_t slot, bool active, uint32_t team)
	{
		float sum = fast_sum<T, TERM>(mirror, query, slot, active, team);

		if (TERM != TERM_PRODUCT)
			return sum;
		if (mirror.metric == METRIC_COSINE)
		{
			float row_norm = active ? (float) mirror.norms[slot] : 0.0f;

			return 1.0f - sum * query.inverse_length * rsqrtf(row_norm);
		}
		return -sum;
	}
};

/* The fast distance of bits: the exact one in single precision. */
template <>
struct FastMeasure<Bits, TERM_BITS>
{
	__device__ static inline float distance(const MirrorView &mirror, const QueryVector &query,
											uint32_t slot, bool active, uint32_t team)
	{
		CudaBitCounts counts = team_counts((const uint4 *) query.elements,
									   (const uint4 *) row_of<Bits>(mirror, active ? slot : 0),
									   mirror.stride, active, team);

		if (mirror.metric == METRIC_HAMMING)
			return (float) counts.one;
		return counts.both == 0 ? 1.0f
								: 1.0f - (float) counts.both / (float) (counts.both + counts.one);
	}
};

/* The fast distance of a slot's row, in every thread of a team. Whole warps. */
template <typename T, int TERM>
__device__ static inline float
fast_distance(const MirrorView &mirror, const QueryVector &query, uint32_t slot, bool active,
			  uint32_t team)
{
	return FastMeasure<T, TERM>::distance(mirror, query, slot, active, team);
}

/*
 * A fast distance as an unsigned integer of the same order: -0 equals +0, NaN
 * counts as infinity.
 */
__device__ static inline uint32_t
fast_key(float distance)
{
	uint32_t bits;

	distance = distance != distance ? HUGE_VALF : distance == 0 ? 0.0f : distance;
	bits = __float_as_uint(distance);
	return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The distance that a fast key stands for. */
__device__ static inline float
distance_of_key(uint32_t key)
{
	return __uint_as_float(key >> 31 ? key & 0x7FFFFFFFu : ~key);
}

#endif /* GPUANN_CUDA_DISTANCE_CUH */
