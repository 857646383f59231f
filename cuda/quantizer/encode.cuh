/*
 * encode.cuh
 *		Codes of residuals on the device: the bytes that quantizer_encode() of
 *		src/engine/quantizer makes. The comments there say why.
 *
 * A warp makes a code. Sums in double are those of I10: eight lanes, one of the
 * definition's accumulators each, so that the four teams of a warp have four
 * sums at once. Every product and sum is rounded by itself (--fmad=false).
 */
#ifndef GPUANN_CUDA_ENCODE_CUH
#define GPUANN_CUDA_ENCODE_CUH

#include "cuda/quantizer/rotated.cuh"

extern "C"
{
#include "engine/quantizer/scalar.h"
}

#define ENCODE_TEAM 8u /* lanes that make a sum */

/*
 * The sum over the elements of a vector, by eight lanes; in all of them. term
 * adds element i to an accumulator. Called by whole warps.
 */
template <class Add>
__device__ static inline double
exact_team_sum(uint32_t dims, const Add &add)
{
	double sum = 0;

#pragma unroll 4
	for (uint32_t i = threadIdx.x % ENCODE_TEAM; i < dims; i += ENCODE_TEAM)
		add(&sum, i);
	return sum_of_eight(sum);
}

/* not_below() of quantizer_private.h. */
__device__ static inline float
device_not_below(double x)
{
	return nextafterf((float) x, HUGE_VALF);
}

__device__ static inline bool
is_finite(float x)
{
	return fabsf(x) < HUGE_VALF;
}

/* ---- int8 and rabitq ----------------------------------------------------- */

/*
 * Rotate a vector as codes are: once, or twice with the elements dealt out
 * between. values and room are in shared memory; thread t has written elements
 * t, t + 32, ... of values. Returns where the vector is then, after a barrier.
 */
__device__ static inline float *
rotate_coded(const uint32_t *rotation, bool twice, uint32_t dims, float *values, float *room)
{
	float *once = rotate<RotatingWarp>(rotation, dims, values, room);
	float *other = once == values ? room : values;

	if (twice)
	{
		for (uint32_t i = threadIdx.x % WARP; i < dims; i += WARP)
			other[i % 2 == 0 ? i / 2 : (dims + 1) / 2 + i / 2] = once[i];
		__syncwarp();
		once = rotate<RotatingWarp>(rotation + dims, dims, other, once);
	}
	__syncwarp();
	return once;
}

/* The whole numbers of a code, made of a rotated residual. */
struct WholeNumbers
{
	const float *residual; /* rotated; NULL: all numbers are 0 */
	float factor;
	float middle; /* rabitq */
	float last;

	/* The unsigned number of rabitq. */
	__device__ inline uint32_t
	bits(uint32_t i) const
	{
		float number = residual[i] * factor + middle;

		number = number < 0 ? 0 : number > last ? last : number;
		return (uint32_t) number;
	}

	template <bool RABITQ>
	__device__ inline float
	number(uint32_t i) const
	{
		float number;

		if (residual == NULL)
			return 0;
		if (RABITQ)
			return (float) (2 * bits(i)) - last;
		number = residual[i] * factor + 0x1.8p23f - 0x1.8p23f;
		return number > INT8_CODE_MAX	 ? INT8_CODE_MAX
			   : number < -INT8_CODE_MAX ? -INT8_CODE_MAX
										 : number;
	}
};

/*
 * Steps of the best uniform quantizers of a normal variable, as scalar.c has
 * them.
 */
__device__ static inline double
normal_step(uint32_t bits)
{
	switch (bits)
	{
		case 1:
			return 1.5958;
		case 2:
			return 0.9957;
		case 3:
			return 0.5860;
		case 4:
			return 0.3352;
		case 5:
			return 0.1881;
		case 6:
			return 0.1041;
		case 7:
			return 0.0569;
		default:
			return 0.0308;
	}
}

/* How numbers follow from a rotated residual of this squared length. */
template <bool RABITQ>
__device__ static inline WholeNumbers
whole_numbers(const QuantizerShape &shape, const float *residual, double square)
{
	WholeNumbers whole = {residual, 0, 0, 0};
	float most = 0;

	for (uint32_t i = threadIdx.x % WARP; i < shape.dims; i += WARP)
		most = fmaxf(most, fabsf(residual[i]));
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, (int) distance));
	if (!(square < HUGE_VAL) || most < TINY)
	{
		whole.residual = NULL;
		return whole;
	}
	if (!RABITQ)
	{
		whole.factor = (float) INT8_CODE_MAX / most;
		whole.last = most / (float) INT8_CODE_MAX; /* the scale */
		return whole;
	}
	whole.middle = (float) (1 << (shape.bits - 1));
	whole.last = (float) ((1u << shape.bits) - 1);
	whole.factor = (float) (sqrt((double) shape.dims / square) / normal_step(shape.bits));
	if (whole.factor < whole.middle / most)
		whole.factor = whole.middle / most;
	return whole;
}

/* Write the words of a code before its numbers. */
template <bool RABITQ>
__device__ static inline void
write_whole(const QuantizerShape &shape, const WholeNumbers &whole, uint32_t *code)
{
	uint32_t words = (shape.dims + SUMS_LANES - 1) / SUMS_LANES;

	if (RABITQ)
		for (uint32_t word = 0; word < words; word++)
		{
			uint32_t i = word * SUMS_LANES + threadIdx.x % WARP;
			uint32_t bits = whole.residual != NULL && i < shape.dims ? whole.bits(i) : 0;
			uint32_t mine = 0;

			for (uint32_t plane = 0; plane < shape.bits; plane++)
			{
				uint32_t packed = __ballot_sync(FULL_WARP, bits >> (shape.bits - 1 - plane) & 1);

				mine = threadIdx.x % WARP == plane ? packed : mine;
			}
			if (threadIdx.x % WARP < shape.bits)
				code[threadIdx.x % WARP * words + word] = mine;
		}
	else
		for (uint32_t word = threadIdx.x % WARP; word < (shape.dims + 3) / 4; word += WARP)
		{
			uint32_t packed = 0;

			for (uint32_t i = word * 4; i < word * 4 + 4 && i < shape.dims; i++)
				packed |= ((uint32_t) (int) whole.number<false>(i) & 0xFF) << (i % 4 * 8);
			code[word] = packed;
		}
}

/*
 * Products of a code's numbers w: with the residual, themselves, the centroid.
 */
struct WholeProducts
{
	double residual;
	double own;
	double centroid;
};

template <bool RABITQ>
__device__ static inline WholeProducts
whole_products(uint32_t dims, const WholeNumbers &whole, const float *centroid)
{
	uint32_t team = threadIdx.x % WARP / ENCODE_TEAM;
	double sum = exact_team_sum(dims, [&](double *at, uint32_t i) {
		float number = whole.number<RABITQ>(i);
		float other = number;

		if (team == 0)
			other = whole.residual != NULL ? whole.residual[i] : 0;
		else if (team == 2)
			other = centroid != NULL ? centroid[i] : 0;
		add_term<TERM_PRODUCT>(at, other, number);
	});

	return {__shfl_sync(FULL_WARP, sum, 0), __shfl_sync(FULL_WARP, sum, ENCODE_TEAM),
			__shfl_sync(FULL_WARP, sum, 2 * ENCODE_TEAM)};
}

/*
 * The numbers of a code (row_numbers() of scalar.c), in all lanes. residual and
 * centroid (NULL: the metric has no term) are rotated.
 */
template <bool RABITQ>
__device__ static inline CodeNumbers
whole_code_numbers(const QuantizerShape &shape, const float *residual, double square,
				   const WholeNumbers &whole, const float *centroid)
{
	WholeProducts products = whole_products<RABITQ>(shape.dims, whole, centroid);
	CodeNumbers numbers = {0, 0, 0};
	double left;

	if (!(square < HUGE_VAL))
		return {0, HUGE_VALF, 0};
	if (!RABITQ)
		numbers.scale = whole.last;
	else if (products.residual > 0)
		numbers.scale = (float) (square / products.residual);
	if (shape.metric == METRIC_L2)
	{
		double term = RABITQ ? square : (double) numbers.scale * numbers.scale * products.own;

		term += 2 * (double) numbers.scale * products.centroid;
		numbers.term = (float) term;
	}
	left = exact_team_sum(shape.dims, [&](double *at, uint32_t i) {
		add_term<TERM_SQUARE>(at, residual[i], numbers.scale * whole.number<RABITQ>(i));
	});
	numbers.error = device_not_below(sqrt(left));
	if (RABITQ)
		numbers.error =
			device_not_below(numbers.error / sqrt((double) (shape.dims > 1 ? shape.dims - 1 : 1)));
	else
		numbers.error =
			device_not_below(numbers.error * (1 + 0x1p-20) +
							 sqrt(square) * (ROTATION_ROUNDING + RESIDUAL_ROUNDING));
	if (square == 0)
		numbers.error = 0;
	if (!is_finite(numbers.error) || !is_finite(numbers.term) || !is_finite(numbers.scale))
		return {0, HUGE_VALF, 0};
	return numbers;
}

/*
 * Write the code of a rotated residual, of code_words words. One warp, after a
 * barrier.
 */
template <bool RABITQ>
__device__ static inline void
encode_rotated(const QuantizerShape &shape, const float *residual, const float *centroid,
			   uint32_t *code, uint32_t code_words)
{
	double square = exact_team_sum(shape.dims, [&](double *at, uint32_t i) {
		add_term<TERM_PRODUCT>(at, residual[i], residual[i]);
	});
	WholeNumbers whole = whole_numbers<RABITQ>(shape, residual, square);
	CodeNumbers numbers;

	write_whole<RABITQ>(shape, whole, code);
	numbers = whole_code_numbers<RABITQ>(shape, residual, square, whole, centroid);
	if (threadIdx.x % WARP == 0)
	{
		code[code_words - 3] = __float_as_uint(numbers.term);
		code[code_words - 2] = __float_as_uint(numbers.error);
		code[code_words - 1] = __float_as_uint(numbers.scale);
	}
}

/* ---- pq ------------------------------------------------------------------ */

/* Where a sub-space begins. */
__host__ __device__ static inline uint32_t
pq_part_begin(uint32_t dims, uint32_t parts, uint32_t part)
{
	uint32_t longer = dims % parts;

	return part * (dims / parts) + (part < longer ? part : longer);
}

/* The sub-space of an element. */
__device__ static inline uint32_t
pq_part_of(uint32_t dims, uint32_t parts, uint32_t i)
{
	uint32_t each = dims / parts,
			 longer = dims % parts;

	return i < longer * (each + 1) ? i / (each + 1) : longer + (i - longer * (each + 1)) / each;
}

/* The element i that a code of pq stands for. */
__device__ static inline float
pq_decoded(const QuantizerShape &shape, const float *codebook, const uint32_t *code, uint32_t i)
{
	uint32_t part = pq_part_of(shape.dims, shape.parts, i);
	uint32_t begin = pq_part_begin(shape.dims, shape.parts, part);
	uint32_t dims = pq_part_begin(shape.dims, shape.parts, part + 1) - begin;
	uint32_t each = 32 / shape.bits;
	uint32_t word = code[part / each] >> (part % each * shape.bits) & ((1u << shape.bits) - 1);

	return codebook[((size_t) begin << shape.bits) + (size_t) word * dims + (i - begin)];
}

/*
 * The numbers of a code of pq (finish_code() of pq.c) from residual, decoded
 * residual and centroid, in lane 0. One warp, after a barrier.
 */
__device__ static inline CodeNumbers
pq_code_numbers(const QuantizerShape &shape, const float *residual, const float *decoded,
				const float *centroid)
{
	uint32_t team = threadIdx.x % WARP / ENCODE_TEAM;
	const float *a = team == 0 ? decoded : team == 1 ? centroid : residual;
	const float *b = team == 3 ? residual : decoded;
	CodeNumbers numbers = {0, 0, 0};
	double sum = exact_team_sum(shape.dims, [&](double *at, uint32_t i) {
		if (team == 2)
			add_term<TERM_SQUARE>(at, a[i], b[i]);
		else
			add_term<TERM_PRODUCT>(at, a[i], b[i]);
	});
	double product = __shfl_sync(FULL_WARP, sum, ENCODE_TEAM);
	double left = __shfl_sync(FULL_WARP, sum, 2 * ENCODE_TEAM);
	double square = __shfl_sync(FULL_WARP, sum, 3 * ENCODE_TEAM);

	if (shape.metric == METRIC_L2)
		numbers.term = (float) (sum + 2 * product);
	numbers.error = device_not_below((sqrt(left) + sqrt(square) * 0x1p-23) * (1 + 0x1p-20));
	if (!is_finite(numbers.error) || !is_finite(numbers.term))
		return {0, HUGE_VALF, 0};
	return numbers;
}

#endif /* GPUANN_CUDA_ENCODE_CUH */
