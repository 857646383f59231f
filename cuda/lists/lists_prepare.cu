/*
 * lists_prepare.cu
 *		Prepares queries for the kernels of a search of lists: converted to
 *		single precision, for cosine normalised to length one, and as tables of
 *		integers.
 *
 * The tables equal those of src/engine/quantizer to the bit: scalar_prepare()
 * and pq_prepare(). One block per query.
 *		scalar	128 to 512 threads. Shared memory: the query, scratch for its
 *				rotation, residuals of the integers as doubles. Bound: barriers
 *				of the rotation, and eight lanes that add the residuals
 *		pq		256 threads: a warp takes a sub-space, a lane its codewords;
 *				their products are computed twice, in double. Reads the
 *				codebook, from L2
 * Bytes written: a query's vector, tables (int8: 2 a dimension; pq: 512 or 16 a
 * sub-space) and ListsQuery.
 */
#include "cuda/lists/lists_estimate.cuh"
#include "cuda/quantizer/rotated.cuh"

#define SCALAR_THREADS 512u /* at most, and at most twice the number of dimensions */
#define PQ_THREADS 256u
#define LEFT_SUMS 8u
#define LOADS_IN_FLIGHT 8u /* per thread: queries may be in host memory, whose latency is high */
#define TINY_ELEMENT 1e-30f /* TINY of scalar.h */

/* Shared memory of a block besides the query. */
struct PrepareShared
{
	DeviceQuery asked;
	double norm;
	float largest[SCALAR_THREADS / WARP];
	int32_t sums[SCALAR_THREADS / WARP];
};

/* Set the fields of ListsQuery that follow from what the query asks. */
__device__ static inline void
begin_query(const ListsView &lists, const DeviceQuery &asked, ListsQuery *query)
{
	bool all = asked.rerank > LISTS_MAX_RERANK; /* larger than any number of rows to rerank:
												  * includes ENGINE_RERANK_ALL */
	bool hold = lists.shape.kind != QUANTIZER_RABITQ; /* quantizer_bounds_hold() */

	query->limit = HUGE_VALF;
	query->found = 0;
	query->need = asked.k;
	query->probes = asked.probes < lists.lists ? asked.probes : lists.lists;
	query->estimated = 0;
	if (all && !hold)
		query->choice = LISTS_ALL;
	else if (all || asked.rerank == 0)
		query->choice = LISTS_BY_BOUND;
	else
	{
		query->choice = LISTS_BY_ESTIMATE;
		query->need = asked.rerank;
	}
	if (query->choice == LISTS_ALL)
		query->found = FOUND_TOO_MANY; /* no buffer holds all rows: lists_answer.cu reads the
									    * codes */
}

/*
 * Load elements into shared memory, converted and padded. Ends with a barrier.
 */
template <typename T>
__device__ static inline void
load_elements(const MirrorView &mirror, const T *stored, float *elements)
{
	uint32_t n = query_bytes(mirror) / (uint32_t) sizeof(float);

	for (uint32_t base = threadIdx.x; base < n; base += LOADS_IN_FLIGHT * blockDim.x)
	{
		float some[LOADS_IN_FLIGHT];

#pragma unroll
		for (uint32_t j = 0; j < LOADS_IN_FLIGHT; j++)
		{
			uint32_t i = base + j * blockDim.x;

			some[j] = i < mirror.dims ? (float) stored[i] : 0.0f;
		}
#pragma unroll
		for (uint32_t j = 0; j < LOADS_IN_FLIGHT; j++)
			if (base + j * blockDim.x < n)
				elements[base + j * blockDim.x] = some[j];
	}
	__syncthreads();
}

/*
 * Load a block's query into shared memory, store it, and set its length; for
 * cosine also normalised to length one. Ends with a barrier.
 */
template <typename T>
__device__ static inline void
load_vector(const MirrorView &mirror, const BatchView &batch, const ListsPart &part,
			 float *elements, PrepareShared *shared, ListsQuery *query)
{
	uint32_t number = part.first + blockIdx.x;
	float *stored = part.vectors + (size_t) blockIdx.x * part.vector_stride;
	float *raw = part.raw + (size_t) blockIdx.x * part.vector_stride;
	QueryVector vector;

	for (uint32_t i = threadIdx.x; i < sizeof(DeviceQuery) / sizeof(uint32_t); i += blockDim.x)
		((uint32_t *) &shared->asked)[i] = ((const uint32_t *) &batch.queries[number])[i];
	__syncthreads();
	load_elements(mirror, (const T *) (batch.vectors + shared->asked.vector), elements);
	for (uint32_t i = threadIdx.x; i < part.vector_stride; i += blockDim.x)
		raw[i] = elements[i];
	vector = query_of(mirror, elements, &shared->norm);
	if (mirror.metric == METRIC_COSINE)
	{
		double length = __dsqrt_rn(vector.norm);

		if (length > 0 && length < HUGE_VAL)
			for (uint32_t i = threadIdx.x; i < mirror.dims; i += blockDim.x)
				elements[i] = (float) __ddiv_rn((double) elements[i], length);
		__syncthreads();
	}
	if (stored != raw)
		for (uint32_t i = threadIdx.x; i < part.vector_stride; i += blockDim.x)
			stored[i] = elements[i];
	if (threadIdx.x == 0)
		part.asked[blockIdx.x] = shared->asked;
	if (threadIdx.x == 0 && blockIdx.x == 0)
		*part.again = {};
	if (threadIdx.x < WARP)
	{
		double square = exact_sum<float, TERM_PRODUCT>(elements, elements, mirror.dims,
													   threadIdx.x < EXACT_TEAM);

		query->length = not_below_of(__dsqrt_rn(square));
		query->has_length = (float) vector.norm > 0 && (float) vector.norm < HUGE_VALF;
	}
	__syncthreads();
}

/* Round to the nearest integer, ties to even, for |x| < 2^22. */
__device__ static inline float
whole_of(float x)
{
	return x + 0x1.8p23f - 0x1.8p23f;
}

/*
 * Rotate a query as its kind of code does; returns the array that holds the
 * result, after a barrier.
 */
__device__ static inline float *
rotate_query(const ListsView &lists, float *values, float *room)
{
	uint32_t dims = lists.shape.dims;
	float *rotated = rotate<RotatingBlock>(lists.rotation, dims, values, room);
	float *other = rotated == values ? room : values;

	__syncthreads();
	if (lists.shape.kind != QUANTIZER_RABITQ)
		return rotated;
	/* the even elements and then the odd ones (dealt() of scalar.c) */
	for (uint32_t i = threadIdx.x; i < dims; i += blockDim.x)
	{
		uint32_t even = (dims + 1) / 2;

		other[i] = rotated[i < even ? 2 * i : 2 * (i - even) + 1];
	}
	__syncthreads();
	rotated = rotate<RotatingBlock>(lists.rotation + dims, dims, other, rotated);
	__syncthreads();
	return rotated;
}

/* The largest absolute value of the elements, in all threads. */
__device__ static inline float
largest_of(const float *values, uint32_t dims, PrepareShared *shared)
{
	float most = 0;

	for (uint32_t i = threadIdx.x; i < dims; i += blockDim.x)
		most = fmaxf(most, fabsf(values[i]));
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, (int) distance));
	if (threadIdx.x % WARP == 0)
		shared->largest[threadIdx.x / WARP] = most;
	__syncthreads();
	for (uint32_t i = 0; i < blockDim.x / WARP; i++)
		most = fmaxf(most, shared->largest[i]);
	return most;
}

/*
 * Quantise a rotated query to integers: words of upper and of lower bytes
 * alternate in the table; residuals go to `left`. Returns the sum of the
 * integers, in all threads.
 */
__device__ static inline int32_t
make_integers(const ListsPart &part, const float *values, uint32_t dims, float steps, float factor,
			  float step, double *left, PrepareShared *shared)
{
	uint32_t *table = part.tables + (size_t) blockIdx.x * part.table_words;
	int32_t sum = 0;

	for (uint32_t w = threadIdx.x; w < part.table_words / 2; w += blockDim.x)
	{
		uint32_t upper = 0,
				 lower = 0;

		for (uint32_t j = 0; j < 4 && w * 4 + j < dims; j++)
		{
			uint32_t i = w * 4 + j;
			float integer = whole_of(values[i] * factor);
			int32_t number;

			integer = integer > steps ? steps : integer >= -steps ? integer : -steps;
			number = (int32_t) integer;
			sum += number;
			upper |= ((uint32_t) number >> 8 & 255) << (8 * j);
			lower |= ((uint32_t) number & 255) << (8 * j);
			left[i] = fabs(__dsub_rn((double) values[i], __dmul_rn((double) step, integer)));
		}
		table[2 * w] = upper;
		table[2 * w + 1] = lower;
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		sum += __shfl_xor_sync(FULL_WARP, sum, (int) distance);
	if (threadIdx.x % WARP == 0)
		shared->sums[threadIdx.x / WARP] = sum;
	__syncthreads();
	sum = 0;
	for (uint32_t i = 0; i < blockDim.x / WARP; i++)
		sum += shared->sums[i];
	return sum;
}

/*
 * The sum of the residuals (int8), or their Euclidean length (sum_of_left() of
 * scalar.c). One warp, of which eight lanes add.
 */
__device__ static inline float
error_of(bool int8, const double *left, uint32_t dims)
{
	double sum = 0;

	if (threadIdx.x < LEFT_SUMS)
#pragma unroll 8
		for (uint32_t i = threadIdx.x; i < dims; i += LEFT_SUMS)
			sum = __dadd_rn(sum, int8 ? left[i] : __dmul_rn(left[i], left[i]));
	sum = sum_of_eight(sum);
	if (!int8)
		sum = __dsqrt_rn(sum);
	return not_below_of(sum != sum ? HUGE_VAL : sum);
}

template <typename T>
__global__ void __launch_bounds__(SCALAR_THREADS)
	lists_scalar_kernel(const MirrorView mirror, const BatchView batch, const ListsView lists,
						const ListsPart part)
{
	DYNAMIC_SHARED(memory);
	__shared__ PrepareShared shared;
	uint32_t dims = mirror.dims;
	uint32_t padded = query_bytes(mirror) / (uint32_t) sizeof(float);
	double *left = (double *) memory;
	float *elements = (float *) (left + (dims + 1) / 2 * 2);
	float *values;
	ListsQuery query;
	uint32_t steps = (uint32_t) INT32_MAX / (code_most(lists.shape) * dims);
	uint32_t most_steps = lists.shape.kind == QUANTIZER_RABITQ ? 16383 : 32767;
	float most,
		factor,
		step;

	load_vector<T>(mirror, batch, part, elements, &shared, &query);
	begin_query(lists, shared.asked, &query);
	values = rotate_query(lists, elements, elements + padded);
	most = largest_of(values, dims, &shared);
	steps = steps < most_steps ? steps : most_steps;
	factor = most < TINY_ELEMENT ? 0 : (float) steps / most;
	step = most < TINY_ELEMENT ? 0 : most / (float) steps;
	query.sum = make_integers(part, values, dims, (float) steps, factor, step, left, &shared);
	query.scale = lists.shape.metric == METRIC_L2 ? -2 * step : -step;
	query.offset = 0;
	if (threadIdx.x >= WARP)
		return;
	query.error = error_of(lists.shape.kind == QUANTIZER_INT8, left, dims);
	if (threadIdx.x == 0)
		part.query[blockIdx.x] = query;
}

/* ---- pq ---- */

/* The first dimension of a sub-space (part_begin() of pq.c). */
__device__ static inline uint32_t
subspace_begin(const QuantizerShape &shape, uint32_t part)
{
	uint32_t longer = shape.dims % shape.parts;

	return part * (shape.dims / shape.parts) + (part < longer ? part : longer);
}

/* The product of a query's sub-vector and a codeword, times a factor. */
__device__ static inline double
word_product(const float *piece, const float *word, uint32_t dims, double factor)
{
	double sum = 0;

	for (uint32_t i = 0; i < dims; i++)
		sum = add_product(sum, (double) piece[i], (double) word[i]);
	return __dmul_rn(factor, sum);
}

/* A sub-space's least product, and its range; later the largest residual. */
struct Subspace
{
	double least;
	double wide; /* range, then largest residual */
};

/* The range of a sub-space's products. One warp. */
__device__ static inline Subspace
find_range(const ListsView &lists, const float *elements, uint32_t number, double factor)
{
	uint32_t begin = subspace_begin(lists.shape, number),
			 dims = subspace_begin(lists.shape, number + 1) - begin;
	uint32_t words = 1u << lists.shape.bits;
	const float *codebook = lists.codebook + (size_t) words * begin;
	double least = HUGE_VAL,
		   most = -HUGE_VAL;

	for (uint32_t word = threadIdx.x % WARP; word < words; word += WARP)
	{
		double product = word_product(elements + begin, codebook + word * dims, dims, factor);

		least = product < least ? product : least;
		most = product > most ? product : most;
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
	{
		least = fmin(least, __shfl_xor_sync(FULL_WARP, least, (int) distance));
		most = fmax(most, __shfl_xor_sync(FULL_WARP, most, (int) distance));
	}
	return {least, most - least};
}

/*
 * Write a sub-space's quantised products; returns the largest residual. One
 * warp.
 */
__device__ static inline double
write_integers(const ListsView &lists, const float *elements, uint32_t number, double factor,
			   double least, double scale, unsigned char *table)
{
	uint32_t begin = subspace_begin(lists.shape, number),
			 dims = subspace_begin(lists.shape, number + 1) - begin;
	uint32_t words = 1u << lists.shape.bits;
	const float *codebook = lists.codebook + (size_t) words * begin;
	double limit = lists.shape.bits == 8 ? UINT16_MAX : UINT8_MAX;
	double inverse = scale > 0 ? __ddiv_rn(1.0, scale) : 0;
	double error = 0;

	for (uint32_t word = threadIdx.x % WARP; word < words; word += WARP)
	{
		double above =
			word_product(elements + begin, codebook + word * dims, dims, factor) - least;
		double steps = __dadd_rn(__dmul_rn(above, inverse), 0.5);
		uint16_t integer = (uint16_t) (steps < limit ? steps : limit);
		double left = fabs(__dsub_rn(above, __dmul_rn((double) integer, scale)));

		error = left > error ? left : error;
		if (lists.shape.bits == 8)
			((uint16_t *) table)[(size_t) number * words + word] = integer;
		else
			table[(size_t) number * words + word] = (uint8_t) integer;
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		error = fmax(error, __shfl_xor_sync(FULL_WARP, error, (int) distance));
	return error;
}

template <typename T>
__global__ void __launch_bounds__(PQ_THREADS)
	lists_pq_kernel(const MirrorView mirror, const BatchView batch, const ListsView lists,
					const ListsPart part)
{
	DYNAMIC_SHARED(memory);
	__shared__ PrepareShared shared;
	__shared__ double offset;
	__shared__ float scale;
	const QuantizerShape &shape = lists.shape;
	Subspace *spaces = (Subspace *) memory;
	float *elements = (float *) (spaces + shape.parts);
	unsigned char *table =
		(unsigned char *) (part.tables + (size_t) blockIdx.x * part.table_words);
	double factor = shape.metric == METRIC_L2 ? -2 : -1;
	double limit = shape.bits == 8 ? UINT16_MAX : UINT8_MAX;
	ListsQuery query;
	uint32_t warp = threadIdx.x / WARP;

	load_vector<T>(mirror, batch, part, elements, &shared, &query);
	begin_query(lists, shared.asked, &query);
	for (uint32_t i = warp; i < shape.parts; i += PQ_THREADS / WARP)
	{
		Subspace space = find_range(lists, elements, i, factor);

		if (threadIdx.x % WARP == 0)
			spaces[i] = space;
	}
	__syncthreads();
	if (threadIdx.x == 0)
	{
		double widest = 0;

		offset = 0;
		for (uint32_t i = 0; i < shape.parts; i++)
		{
			widest = spaces[i].wide > widest ? spaces[i].wide : widest;
			offset = __dadd_rn(offset, spaces[i].least);
		}
		scale = widest > 0 ? not_below_of(__ddiv_rn(widest, limit)) : 0;
	}
	__syncthreads();
	for (uint32_t i = warp; i < shape.parts; i += PQ_THREADS / WARP)
	{
		double error = write_integers(lists, elements, i, factor, spaces[i].least, scale, table);

		if (threadIdx.x % WARP == 0)
			spaces[i].wide = error;
	}
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	double error = 0;

	for (uint32_t i = 0; i < shape.parts; i++)
		error = __dadd_rn(error, spaces[i].wide);
	query.scale = scale;
	query.offset = (float) offset;
	query.error = not_below_of(__dadd_rn(error, fabs(__dsub_rn(offset, (double) query.offset))));
	query.sum = 0;
	part.query[blockIdx.x] = query;
}

typedef void (*PrepareKernel)(const MirrorView, const BatchView, const ListsView, const ListsPart);

static PrepareKernel
prepare_kernel(const ListsLaunch *launch)
{
	bool half = launch->mirror.type == ELEMENT_HALF;

	if (launch->lists.shape.kind == QUANTIZER_PQ)
		return half ? lists_pq_kernel<__half> : lists_pq_kernel<float>;
	return half ? lists_scalar_kernel<__half> : lists_scalar_kernel<float>;
}

static size_t
prepare_bytes(const ListsLaunch *launch)
{
	const QuantizerShape *shape = &launch->lists.shape;
	size_t vector = query_bytes(launch->mirror);

	if (shape->kind == QUANTIZER_PQ)
		return shape->parts * sizeof(Subspace) + vector;
	return (shape->dims + 1) / 2 * 2 * sizeof(double) + 2 * vector;
}

cudaError_t
lists_prepare_launch(const ListsStep *step)
{
	const ListsLaunch *launch = step->launch;
	uint32_t dims = launch->lists.shape.dims;
	uint32_t threads = launch->lists.shape.kind == QUANTIZER_PQ ? PQ_THREADS
					   : dims <= SCALAR_THREADS / 4			? SCALAR_THREADS / 4
					   : dims <= SCALAR_THREADS / 2			? SCALAR_THREADS / 2
																: SCALAR_THREADS;

	LAUNCH(prepare_kernel(launch), step->part.queries, threads,
		   prepare_bytes(launch), launch->stream, launch->mirror, launch->batch, launch->lists,
		   step->part);
	return cudaGetLastError();
}

cudaError_t
lists_prepare_allow(const cudaDeviceProp *device)
{
	const PrepareKernel kernels[] = {lists_pq_kernel<__half>, lists_pq_kernel<float>,
									 lists_scalar_kernel<__half>, lists_scalar_kernel<float>};

	return allow_shared(kernels, device->sharedMemPerBlockOptin - 4096);
}
