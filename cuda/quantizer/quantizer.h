/*
 * quantizer.h
 *		Codes: a byte per element beside the stored rows, for walking a graph
 *		with a quarter (of half: half) of the reads.
 *
 * Plain codes: code i of a row is (element i - offset i) x steps, rounded to
 * -127 .. 127; of a cosine mirror the element is divided by the row's length
 * first. One scale for all elements, an offset for each: so the L2 order of
 * codes is that of rows, but for rounding. Offsets and scale come from the
 * least and greatest value of each element among the rows. They are made when
 * rows are linked, and again, with all codes, when the rows' range has outgrown
 * them.
 *
 * Whether codes are good enough for a mirror is measured on its graph: rows
 * whose neighbours' distances they blur too much speak against them. If these
 * are many, a few large elements or a few long rows may have taken the scale:
 * then codes are made of rotated rows, each with a scale of its own
 * (src/engine/quantizer/int8.h). If these are no better, the mirror is walked
 * in stored rows. Codes only choose which slots are visited; every answer is
 * ranked by its exact distance (I10).
 */
#ifndef GPUANN_CUDA_QUANTIZER_H
#define GPUANN_CUDA_QUANTIZER_H

#include "cuda/common/view.h"

extern "C"
{
#include "engine/quantizer/int8.h"
}

/* What encoding needs of a mirror. All pointers are device memory. */
struct CudaCodedRows
{
	const unsigned char *vectors;
	const double *norms; /* cosine only */
	const uint32_t *graph;
	unsigned char *codes;
	uint32_t *least;	/* per element, as ordered keys (see quantizer.cu) */
	uint32_t *greatest;
	float *offsets;
	float steps; /* 1 of rotated codes */
	float2 *scales; /* of rotated codes; NULL: plain ones */
	const uint32_t *rotation;
	uint32_t stride;
	uint32_t code_stride;
	uint32_t dims;
	uint32_t degree;
	uint32_t rows; /* there are */
	ElementType type;
	Metric metric;
};

/* How many sampled rows codes serve well enough, and how many not. */
struct QuantizerVerdict
{
	uint32_t good;
	uint32_t bad;
};

#define CODE_SAMPLES 1024u

/* The code of an element in steps. */
__device__ static inline int
code_of(float value)
{
	value = rintf(value);
	return value > 127 ? 127 : value < -127 ? -127 : (int) value;
}

/* Bytes of a row of codes: whole sectors where rows are that long. */
static inline uint32_t
code_stride(uint32_t dims)
{
	return (uint32_t) round_up(dims, dims > 32 ? 32 : 16);
}

/* Empty the ranges of values. */
extern cudaError_t quantizer_clear_ranges(const CudaCodedRows *rows, cudaStream_t stream);
/* Widen them by rows: those named, or count from first on. */
extern cudaError_t codes_measure(const CudaCodedRows *rows, const uint32_t *slots, uint32_t first,
								 uint32_t count, cudaStream_t stream);
/*
 * Make the offsets (host memory) and return the steps, from ranges that were
 * copied to the host.
 */
extern float quantizer_parameters(const uint32_t *least, const uint32_t *greatest, uint32_t dims,
							  float *offsets);
/* Whether rows may have rotated codes. */
static inline bool
may_be_rotated(uint32_t dims, Metric metric)
{
	return dims <= ROTATION_MAX_DIMS && metric != METRIC_L1;
}

/*
 * Copy `count` rows, spread evenly over all, to `to`: device memory, strides as
 * the mirror's.
 */
extern cudaError_t quantizer_sample(const CudaCodedRows *rows, unsigned char *to, uint32_t count,
									cudaStream_t stream);
/*
 * Make the offsets of rotated codes (host memory) from rows (host memory,
 * strides as the mirror's), at most INT8_SAMPLE of them.
 */
extern void quantizer_rotated_offsets(const CudaCodedRows *rows, const uint32_t *rotation,
									  const unsigned char *sample, uint32_t count,
									  float *offsets);
/* Whether codes of these parameters still hold the ranges. */
extern bool quantizer_hold(const uint32_t *least, const uint32_t *greatest, uint32_t dims,
					   const float *offsets, float steps);
/* Encode rows: those named, or count from first on. */
extern cudaError_t quantizer_encode(const CudaCodedRows *rows, const uint32_t *slots,
									uint32_t first, uint32_t count, cudaStream_t stream);
/*
 * Judge codes by a sample of the slots named (NULL: of those below rows->rows),
 * as many as count; *verdict (device memory) starts at zero.
 */
extern cudaError_t quantizer_judge(const CudaCodedRows *rows, const uint32_t *slots, uint32_t count,
							   QuantizerVerdict *verdict, cudaStream_t stream);

#endif /* GPUANN_CUDA_QUANTIZER_H */
