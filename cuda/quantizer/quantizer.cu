/*
 * quantizer.cu
 *		Making codes: ranges of values, encoding, and the judgement whether
 *		codes serve a mirror.
 *
 * Kernels, launched by quantizer_jobs.cu and job_upload.cu on the job stream:
 * 256 threads.
 *		measure		a warp per 256 rows, each lane an element at a time: reads
 *					every row once, two atomics per warp and element
 *		encode		a warp per row, a lane makes four codes: reads every row
 *					once, writes a quarter (half: half) of it
 *		rotate		the same of rotated codes: a warp rotates its row in 8 x
 *					dims bytes of shared memory. Bound: shared memory
 *		judge		a warp per sampled row: reads its neighbours once
 * Bound: memory. A launch takes at most LAUNCH_BYTES of rows (some 30 µs), so
 * that searches, whose streams come first, need not wait.
 */
#include <math.h>

#include <vector>

#include "cuda/quantizer/rotated.cuh"

#define THREADS 256u
#define WARPS (THREADS / WARP)
#define MEASURED_ROWS 256u
#define LAUNCH_BYTES ((size_t) 64 << 20)
#define RANGE_SLACK 1.04f	  /* room that a scale leaves beyond the values it is made from */
#define ROTATING_BYTES 32768u /* of shared memory, of a block that rotates rows */
#define BLUR_ALLOWED 0.04f /* variance of codes' errors, of the variance of the distances among a
						    * row's neighbours */

/* A float as an unsigned number of the same order. */
__host__ __device__ static inline uint32_t
ordered(float value)
{
	union
	{
		float value;
		uint32_t bits;
	} as;

	as.value = value;
	return as.bits >> 31 ? ~as.bits : as.bits | 0x80000000u;
}

static inline float
of_ordered(uint32_t key)
{
	union
	{
		float value;
		uint32_t bits;
	} as;

	as.bits = key >> 31 ? key & 0x7FFFFFFFu : ~key;
	return as.value;
}

/* What a row's elements are multiplied with before they are encoded. */
__device__ static inline float
row_factor(const CudaCodedRows &rows, uint32_t slot)
{
	float norm;

	if (rows.metric != METRIC_COSINE)
		return 1;
	norm = (float) rows.norms[slot];
	return norm > 0 ? rsqrtf(norm) : 0;
}

/* Element i of a slot's row, as it is encoded. */
template <typename T>
__device__ static inline float
element_of(const CudaCodedRows &rows, uint32_t slot, uint32_t i, float factor)
{
	return (float) ((const T *) (rows.vectors + (size_t) slot * rows.stride))[i] * factor;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
	measure_kernel(const CudaCodedRows rows, const uint32_t *slots, uint32_t first, uint32_t count)
{
	uint32_t warp = blockIdx.x * WARPS + threadIdx.x / WARP;
	uint32_t from = warp * MEASURED_ROWS;
	uint32_t to = from + MEASURED_ROWS < count ? from + MEASURED_ROWS : count;

	for (uint32_t i = threadIdx.x % WARP; i < rows.dims && from < to; i += WARP)
	{
		float least = HUGE_VALF,
			  greatest = -HUGE_VALF;

		for (uint32_t row = from; row < to; row++)
		{
			uint32_t slot = slots != NULL ? slots[row] : first + row;
			float value = element_of<T>(rows, slot, i, row_factor(rows, slot));

			least = value < least ? value : least;
			greatest = value > greatest ? value : greatest;
		}
		atomicMin(&rows.least[i], ordered(least));
		atomicMax(&rows.greatest[i], ordered(greatest));
	}
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
	encode_kernel(const CudaCodedRows rows, const uint32_t *slots, uint32_t first, uint32_t count)
{
	uint32_t row = blockIdx.x * WARPS + threadIdx.x / WARP;
	uint32_t slot;
	float factor;

	if (row >= count)
		return;
	slot = slots != NULL ? slots[row] : first + row;
	factor = row_factor(rows, slot);
	for (uint32_t word = threadIdx.x % WARP; word < rows.code_stride / 4; word += WARP)
	{
		uint32_t packed = 0;

		for (uint32_t j = 0; j < 4; j++)
		{
			uint32_t i = word * 4 + j;
			float value = 0;

			if (i < rows.dims)
				value = (element_of<T>(rows, slot, i, factor) - rows.offsets[i]) * rows.steps;
			packed |= ((uint32_t) code_of(value) & 0xFF) << (8 * j);
		}
		((uint32_t *) (rows.codes + (size_t) slot * rows.code_stride))[word] = packed;
	}
}

/*
 * What a row's elements are multiplied with before they are rotated: as the
 * host does, where row_factor() is close.
 */
__device__ static inline float
rotated_row_factor(const CudaCodedRows &rows, uint32_t slot)
{
	float norm;

	if (rows.metric != METRIC_COSINE)
		return 1;
	norm = (float) rows.norms[slot];
	return norm > 0 ? 1.0f / sqrtf(norm) : 0;
}

/* Write a row's rotated codes, and its scale. One warp. */
__device__ static inline void
write_rotated(const CudaCodedRows &rows, uint32_t slot, const float *values, float most)
{
	float factor = rotated_factor(most),
		  step = rotated_step(most);
	int squares = 0;
	float term = HUGE_VALF;

	for (uint32_t word = threadIdx.x % WARP; word < rows.code_stride / 4; word += WARP)
	{
		uint32_t packed = 0;

		for (uint32_t i = word * 4; i < word * 4 + 4 && i < rows.dims && factor > 0; i++)
			packed |= ((uint32_t) code_of(values[i] * factor) & 0xFF) << (8 * (i % 4));
		((uint32_t *) (rows.codes + (size_t) slot * rows.code_stride))[word] = packed;
		squares = __dp4a((int) packed, (int) packed, squares);
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		squares += __shfl_xor_sync(FULL_WARP, squares, (int) distance);
	if (rows.metric != METRIC_L2)
		term = most < INT8_FAR ? -offset_products(rows.offsets, values, rows.dims).other : 0;
	else if (most < INT8_FAR)
		term = step * step * (float) squares;
	if (threadIdx.x % WARP == 0)
		rows.scales[slot] = make_float2(step, term);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
	rotate_kernel(const CudaCodedRows rows, const uint32_t *slots, uint32_t first, uint32_t count)
{
	DYNAMIC_SHARED(memory);
	uint32_t row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
	float *values = (float *) memory + 2 * rows.dims * (threadIdx.x / WARP);
	uint32_t slot;
	float factor,
		most = 0;

	if (row >= count)
		return;
	slot = slots != NULL ? slots[row] : first + row;
	factor = rotated_row_factor(rows, slot);
	for (uint32_t i = threadIdx.x % WARP; i < rows.dims; i += WARP)
		values[i] = element_of<T>(rows, slot, i, factor);
	values = rotate<RotatingWarp>(rows.rotation, rows.dims, values, values + rows.dims);
	for (uint32_t i = threadIdx.x % WARP; i < rows.dims; i += WARP)
	{
		values[i] -= rows.offsets[i];
		most = fmaxf(most, rotated_size(values[i]));
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, (int) distance));
	__syncwarp();
	write_rotated(rows, slot, values, most);
}

/* The sum of a value over a warp, in every lane. */
__device__ static inline float
warp_sum(float value)
{
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		value += __shfl_xor_sync(FULL_WARP, value, (int) distance);
	return value;
}

/* The distance of two rows: from the rows, and from their codes. */
struct JudgedDistance
{
	float stored;
	float coded;
};

/* The distance between two rows as the walk's order has it, by plain codes. */
template <typename T>
__device__ static inline JudgedDistance
plain_distance(const CudaCodedRows &rows, uint32_t a, uint32_t b)
{
	float factor_a = row_factor(rows, a),
		  factor_b = row_factor(rows, b);
	const signed char *codes_a = (const signed char *) rows.codes + (size_t) a * rows.code_stride;
	const signed char *codes_b = (const signed char *) rows.codes + (size_t) b * rows.code_stride;
	float sum = 0,
		  coded_sum = 0;

	for (uint32_t i = threadIdx.x % WARP; i < rows.dims; i += WARP)
	{
		float value_a = element_of<T>(rows, a, i, factor_a) * rows.steps;
		float value_b = element_of<T>(rows, b, i, factor_b) * rows.steps;
		float code_a = (float) codes_a[i];
		float code_b = (float) codes_b[i];

		if (rows.metric == METRIC_L2)
		{
			sum += (value_a - value_b) * (value_a - value_b);
			coded_sum += (code_a - code_b) * (code_a - code_b);
		}
		else if (rows.metric == METRIC_L1)
		{
			sum += fabsf(value_a - value_b);
			coded_sum += fabsf(code_a - code_b);
		}
		else
		{
			/* a stands for the query, which has no offset */
			sum -= value_a * value_b;
			coded_sum -= (rintf(code_a + rows.offsets[i] * rows.steps)) *
						 (code_b + rows.offsets[i] * rows.steps);
		}
	}
	return {warp_sum(sum), warp_sum(coded_sum)};
}

/*
 * The same of rotated codes, but for what all rows have in common. Of products
 * row a is the query, as offsets and codes have it: the factor of terms follows
 * from its own term.
 */
template <typename T>
__device__ static inline JudgedDistance
rotated_distance(const CudaCodedRows &rows, uint32_t a, uint32_t b)
{
	float factor_a = row_factor(rows, a),
		  factor_b = row_factor(rows, b);
	const signed char *codes_a = (const signed char *) rows.codes + (size_t) a * rows.code_stride;
	const signed char *codes_b = (const signed char *) rows.codes + (size_t) b * rows.code_stride;
	float2 scale_a = rows.scales[a],
		   scale_b = rows.scales[b];
	float sum = 0,
		  coded = 0,
		  offset_sum = 0,
		  squares = 0,
		  share;

	for (uint32_t i = threadIdx.x % WARP; i < rows.dims; i += WARP)
	{
		float value_a = element_of<T>(rows, a, i, factor_a);
		float value_b = element_of<T>(rows, b, i, factor_b);
		float code_a = scale_a.x * (float) codes_a[i];
		float code_b = scale_b.x * (float) codes_b[i];

		if (rows.metric == METRIC_L2)
		{
			sum += (value_a - value_b) * (value_a - value_b);
			coded += (code_a - code_b) * (code_a - code_b);
		}
		else
		{
			sum -= value_a * value_b;
			coded -= code_a * code_b;
			offset_sum += rows.offsets[i] * code_b;
			squares += rows.offsets[i] * rows.offsets[i];
		}
	}
	sum = warp_sum(sum);
	coded = warp_sum(coded);
	if (rows.metric == METRIC_L2)
		return {sum, coded};
	offset_sum = warp_sum(offset_sum);
	squares = warp_sum(squares);
	share = squares > 0 ? scale_a.y / squares : 1;
	return {sum, coded + (1 - share) * scale_b.y - share * offset_sum};
}

template <typename T>
__global__ void
__launch_bounds__(THREADS) judge_kernel(const CudaCodedRows rows, const uint32_t *slots,
										uint32_t count, QuantizerVerdict *verdict)
{
	uint32_t sample = blockIdx.x * WARPS + threadIdx.x / WARP;
	uint32_t place = (uint32_t) ((uint64_t) sample * count / CODE_SAMPLES);
	uint32_t slot = slots != NULL ? slots[place] : place;
	double sum = 0,
		   squares = 0,
		   error_sum = 0,
		   error_squares = 0,
		   spread,
		   blur;
	uint32_t n = 0;

	for (uint32_t j = 0; j < rows.degree && sample < CODE_SAMPLES; j++)
	{
		uint32_t neighbour = rows.graph[(size_t) slot * rows.degree + j];
		JudgedDistance distance;
		double error;

		if (neighbour >= rows.rows)
			break;
		distance = rows.scales != NULL ? rotated_distance<T>(rows, slot, neighbour)
									   : plain_distance<T>(rows, slot, neighbour);
		n++;
		error = distance.coded - distance.stored;
		sum += distance.stored;
		squares += (double) distance.stored * distance.stored;
		error_sum += error;
		error_squares += error * error;
	}
	if (n < 2 || threadIdx.x % WARP != 0)
		return;
	spread = squares - sum * sum / n;
	blur = error_squares - error_sum * error_sum / n;
	/* where all neighbours are equally far there is no order to blur */
	atomicAdd(blur <= BLUR_ALLOWED * spread || spread <= 1e-9 * squares ? &verdict->good
																		: &verdict->bad,
			  1u);
}

/* A warp for each row of a sample. */
__global__ void __launch_bounds__(THREADS)
	sample_kernel(const CudaCodedRows rows, unsigned char *to, uint32_t count)
{
	uint32_t i = blockIdx.x * WARPS + threadIdx.x / WARP;
	uint32_t slot = (uint32_t) ((uint64_t) i * rows.rows / count);
	const uint32_t *from = (const uint32_t *) (rows.vectors + (size_t) slot * rows.stride);

	for (uint32_t word = threadIdx.x % WARP; i < count && word < rows.stride / 4; word += WARP)
		((uint32_t *) (to + (size_t) i * rows.stride))[word] = from[word];
}

cudaError_t
quantizer_sample(const CudaCodedRows *rows, unsigned char *to, uint32_t count, cudaStream_t stream)
{
	LAUNCH(sample_kernel, (count + WARPS - 1) / WARPS, THREADS, 0, stream, *rows, to, count);
	return cudaGetLastError();
}

cudaError_t
quantizer_clear_ranges(const CudaCodedRows *rows, cudaStream_t stream)
{
	cudaError_t error = cudaMemsetAsync(rows->least, 0xFF, rows->dims * sizeof(uint32_t), stream);

	return error == cudaSuccess
			   ? cudaMemsetAsync(rows->greatest, 0, rows->dims * sizeof(uint32_t), stream)
			   : error;
}

/* Rows that one launch takes. */
static uint32_t
launch_rows(const CudaCodedRows *rows, uint32_t count)
{
	size_t most = LAUNCH_BYTES / rows->stride + 1;

	return count < most ? count : (uint32_t) most;
}

typedef void (*RowsKernel)(const CudaCodedRows, const uint32_t *, uint32_t, uint32_t);

/*
 * Launch a kernel over rows, a block of so many threads and bytes of shared
 * memory for so many rows.
 */
static cudaError_t
over_rows(RowsKernel kernel, uint32_t of_block, uint32_t threads, size_t bytes,
		  const CudaCodedRows *rows, const uint32_t *slots, uint32_t first, uint32_t count,
		  cudaStream_t stream)
{
	for (uint32_t done = 0; done < count;)
	{
		uint32_t n = launch_rows(rows, count - done);

		LAUNCH(kernel, (n + of_block - 1) / of_block, threads, bytes, stream, *rows,
			   slots != NULL ? slots + done : NULL, first + done, n);
		done += n;
	}
	return cudaGetLastError();
}

cudaError_t
codes_measure(const CudaCodedRows *rows, const uint32_t *slots, uint32_t first, uint32_t count,
			  cudaStream_t stream)
{
	RowsKernel kernel = rows->type == ELEMENT_HALF ? measure_kernel<__half> : measure_kernel<float>;

	return over_rows(kernel, MEASURED_ROWS * WARPS, THREADS, 0, rows, slots, first, count, stream);
}

cudaError_t
quantizer_encode(const CudaCodedRows *rows, const uint32_t *slots, uint32_t first, uint32_t count,
			 cudaStream_t stream)
{
	RowsKernel kernel = rows->type == ELEMENT_HALF ? encode_kernel<__half> : encode_kernel<float>;
	RowsKernel rotate = rows->type == ELEMENT_HALF ? rotate_kernel<__half> : rotate_kernel<float>;
	uint32_t row_bytes = 2 * rows->dims * (uint32_t) sizeof(float);
	uint32_t warps = ROTATING_BYTES / row_bytes < WARPS ? ROTATING_BYTES / row_bytes : WARPS;

	if (rows->scales == NULL)
		return over_rows(kernel, WARPS, THREADS, 0, rows, slots, first, count, stream);
	return over_rows(rotate, warps, warps * WARP, warps * row_bytes, rows, slots, first, count,
					 stream);
}

cudaError_t
quantizer_judge(const CudaCodedRows *rows, const uint32_t *slots, uint32_t count,
				QuantizerVerdict *verdict, cudaStream_t stream)
{
	cudaError_t error = cudaMemsetAsync(verdict, 0, sizeof(*verdict), stream);

	if (error != cudaSuccess || count == 0)
		return error;
	if (rows->type == ELEMENT_HALF)
		LAUNCH(judge_kernel<__half>, CODE_SAMPLES / WARPS, THREADS, 0, stream, *rows, slots, count,
			   verdict);
	else
		LAUNCH(judge_kernel<float>, CODE_SAMPLES / WARPS, THREADS, 0, stream, *rows, slots, count,
			   verdict);
	return cudaGetLastError();
}

/* Half of an element's range, 0 if there is none. */
static float
half_range(uint32_t least, uint32_t greatest)
{
	return least <= greatest ? (of_ordered(greatest) - of_ordered(least)) / 2 : 0;
}

float
quantizer_parameters(const uint32_t *least, const uint32_t *greatest, uint32_t dims, float *offsets)
{
	float most = 0;

	for (uint32_t i = 0; i < dims; i++)
	{
		float half = half_range(least[i], greatest[i]);

		offsets[i] =
			least[i] <= greatest[i] ? of_ordered(least[i]) / 2 + of_ordered(greatest[i]) / 2 : 0;
		most = half > most ? half : most;
	}
	if (!(most > 1e-30f) || !(most < 1e30f))
		return 0;
	return 127.0f / (most * RANGE_SLACK);
}

/* A row of a sample as it is rotated. */
template <typename T>
static void
sampled_row(const CudaCodedRows *rows, const T *elements, float *values)
{
	double norm = 0;
	float factor = 1;

	for (uint32_t i = 0; i < rows->dims; i++)
		norm += (double) (float) elements[i] * (double) (float) elements[i];
	if (rows->metric == METRIC_COSINE)
		factor = norm > 0 ? 1.0f / sqrtf((float) norm) : 0;
	for (uint32_t i = 0; i < rows->dims; i++)
		values[i] = (float) elements[i] * factor;
}

void
quantizer_rotated_offsets(const CudaCodedRows *rows, const uint32_t *rotation,
						  const unsigned char *sample, uint32_t count, float *offsets)
{
	std::vector<float> values((size_t) count * rows->dims);
	std::vector<float> room(rows->dims + INT8_SAMPLE);

	for (uint32_t row = 0; row < count; row++)
	{
		const unsigned char *stored = sample + (size_t) row * rows->stride;
		float *to = values.data() + (size_t) row * rows->dims;

		if (rows->type == ELEMENT_HALF)
			sampled_row(rows, (const __half *) stored, to);
		else
			sampled_row(rows, (const float *) stored, to);
	}
	int8_train(rotation, rows->dims, values.data(), count, offsets, room.data());
}

bool
quantizer_hold(const uint32_t *least, const uint32_t *greatest, uint32_t dims, const float *offsets,
		   float steps)
{
	for (uint32_t i = 0; i < dims; i++)
		if (least[i] <= greatest[i] && ((of_ordered(greatest[i]) - offsets[i]) * steps > 127.5f ||
										(of_ordered(least[i]) - offsets[i]) * steps < -127.5f))
			return false;
	return true;
}
