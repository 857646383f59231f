/*
 * pq_nearest.cuh
 *		The nearest codeword of each piece of residuals, exactly: for encoding
 *		and for training codebooks.
 *
 * pq_nearest_kernel
 *		grid	(blocks of 128 rows, sub-spaces), 128 threads
 *		work	a thread per row. 32 products with codewords are in registers
 *				at a time; codewords are read by all threads at once, 16 bytes
 *				each. Values (half the codeword's squared norm less the
 *				product, in single precision) decide unless another is within
 *				twice their error, as in src/engine/quantizer/nearest.c; if one
 *				row of a block is left undecided, the block makes its values
 *				once more, and what they leave open is measured in double.
 *		shared	32 dimensions of the pieces (16 KB) and of 32 codewords
 *		global	reads rows once, for pieces of up to 32 dimensions; longer ones
 *				once for 32 codewords
 * Bound: reads of shared memory, 9 of them for 32 multiplications.
 *
 * A distance that is not a number counts as infinite.
 */
#ifndef GPUANN_CUDA_PQ_NEAREST_CUH
#define GPUANN_CUDA_PQ_NEAREST_CUH

#include "cuda/quantizer/encode.cuh"

extern "C"
{
#include "engine/distance.h"
}

#define PIECE_ROWS 128u
#define PIECE_DIMS 32u
#define PIECE_WORDS 32u
#define PIECE_PITCH 36u	  /* floats from one dimension of codewords to the next */
#define PIECE_FAR 1e18 /* norms beyond it may overflow products */

/*
 * What is assigned, and where it goes: to codes, or to numbers and distances.
 */
struct PqPieces
{
	const float *rows;
	size_t stride;			 /* floats from one row to the next */
	const uint32_t *numbers; /* of the rows' lists, NO_SLOT: none; NULL: rows are residuals */
	const float *centroids;
	const float *codebook;
	uint32_t dims;
	uint32_t parts;
	uint32_t bits;
	uint32_t first_part; /* that of blockIdx.y = 0 */
	uint32_t count;
	uint32_t *codes; /* code_words each, zeros; or NULL */
	uint32_t code_words;
	uint32_t *nearest; /* count for each sub-space from first_part on */
	double *distances; /* likewise */
};

/* A piece of a row, less that of its centroid. */
struct PieceOf
{
	const float *row;
	const float *centroid; /* or NULL */

	__device__ inline float
	element(uint32_t i) const
	{
		return centroid != NULL ? row[i] - centroid[i] : row[i];
	}
};

__device__ static inline PieceOf
piece_of(const PqPieces &pieces, uint32_t row, uint32_t begin)
{
	PieceOf piece = {pieces.rows + row * pieces.stride + begin, NULL};

	if (pieces.numbers != NULL)
		piece.centroid = pieces.centroids + (size_t) pieces.numbers[row] * pieces.dims + begin;
	return piece;
}

/* The exact squared distance of a piece and a codeword, by one thread. */
__device__ static inline double
piece_distance(const PieceOf piece, const float *word, uint32_t dims)
{
	double sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
	uint32_t i = 0;

#pragma unroll 1
	for (; i + 8 <= dims; i += 8)
#pragma unroll
		for (uint32_t j = 0; j < 8; j++)
			add_term<TERM_SQUARE>(&sum[j], piece.element(i + j), word[i + j]);
#pragma unroll
	for (uint32_t j = 0; j < 7; j++)
		if (i + j < dims)
			add_term<TERM_SQUARE>(&sum[j], piece.element(i + j), word[i + j]);
	return __dadd_rn(__dadd_rn(__dadd_rn(sum[0], sum[4]), __dadd_rn(sum[2], sum[6])),
					 __dadd_rn(__dadd_rn(sum[1], sum[5]), __dadd_rn(sum[3], sum[7])));
}

/* Shared memory of a block. */
struct PieceMemory
{
	float piece[PIECE_DIMS][PIECE_ROWS];
	alignas(16) float words[PIECE_DIMS][PIECE_PITCH];
	float half[PIECE_WORDS];
};

/* What a row knows of the codewords so far. */
struct PieceBest
{
	float least;
	float second;
	float longest; /* half squared norm */
	uint32_t at;
};

/* Bring some dimensions of the block's pieces into shared memory. */
__device__ static inline void
bring_pieces(const PqPieces &pieces, PieceMemory *memory, uint32_t begin, uint32_t dims)
{
	uint32_t first = blockIdx.x * PIECE_ROWS;

	for (uint32_t at = threadIdx.x; at < PIECE_ROWS * dims; at += PIECE_ROWS)
	{
		uint32_t row = first + at / dims;
		float value = 0;

		if (row < pieces.count && (pieces.numbers == NULL || pieces.numbers[row] != NO_SLOT))
			value = piece_of(pieces, row, begin).element(at % dims);
		memory->piece[at % dims][at / dims] = value;
	}
}

/*
 * Make the products of all pieces and 32 codewords from `word` on, and half the
 * squared norms of these. All threads; ends with a barrier. Pieces are brought
 * if asked for, or if one time does not do.
 */
__device__ static inline void
piece_products(const PqPieces &pieces, PieceMemory *memory, uint32_t begin, uint32_t dims,
			   uint32_t word, bool bring, float (&products)[PIECE_WORDS], float *norm)
{
	const float *words = pieces.codebook + ((size_t) begin << pieces.bits) + (size_t) word * dims;
	uint32_t some = (1u << pieces.bits) - word < PIECE_WORDS ? (1u << pieces.bits) - word
															 : PIECE_WORDS;
	double half = 0;

#pragma unroll
	for (uint32_t w = 0; w < PIECE_WORDS; w++)
		products[w] = 0;
	*norm = 0;
	for (uint32_t from = 0; from < dims; from += PIECE_DIMS)
	{
		uint32_t n = dims - from < PIECE_DIMS ? dims - from : PIECE_DIMS;

		__syncthreads();
		if (bring || dims > PIECE_DIMS)
			bring_pieces(pieces, memory, begin + from, n);
		for (uint32_t at = threadIdx.x; at < PIECE_WORDS * n; at += PIECE_ROWS)
			memory->words[at % n][at / n] =
				at / n < some ? words[(size_t) (at / n) * dims + from + at % n] : 0;
		__syncthreads();
#pragma unroll 2
		for (uint32_t i = 0; i < n; i++)
		{
			float x = memory->piece[i][threadIdx.x];

			*norm = fmaf(x, x, *norm);
#pragma unroll
			for (uint32_t w = 0; w < PIECE_WORDS; w += 4)
			{
				float4 four = *(const float4 *) &memory->words[i][w];

				products[w] = fmaf(x, four.x, products[w]);
				products[w + 1] = fmaf(x, four.y, products[w + 1]);
				products[w + 2] = fmaf(x, four.z, products[w + 2]);
				products[w + 3] = fmaf(x, four.w, products[w + 3]);
			}
		}
		for (uint32_t i = threadIdx.x % 4; i < n; i += 4)
			half += (double) memory->words[i][threadIdx.x / 4] * memory->words[i][threadIdx.x / 4];
	}
	half += __shfl_xor_sync(FULL_WARP, half, 1);
	half += __shfl_xor_sync(FULL_WARP, half, 2);
	if (threadIdx.x % 4 == 0)
		memory->half[threadIdx.x / 4] =
			threadIdx.x / 4 < some ? (float) (half / 2) : HUGE_VALF;
	__syncthreads();
}

/* Let 32 codewords compete. */
__device__ static inline void
piece_track(const PieceMemory *memory, const float (&products)[PIECE_WORDS], uint32_t word,
			uint32_t words, PieceBest *best)
{
#pragma unroll
	for (uint32_t w = 0; w < PIECE_WORDS; w++)
	{
		float half = memory->half[w];
		float value = half - products[w];
		bool nearer = value < best->least;

		best->second = nearer ? best->least : fminf(value, best->second);
		best->least = nearer ? value : best->least;
		best->at = nearer ? word + w : best->at;
		best->longest = word + w < words ? fmaxf(best->longest, half) : best->longest;
	}
}

/*
 * The value beyond which no codeword is nearest; infinity if values say
 * nothing. As lanes_decide() of nearest.c.
 */
__device__ static inline float
piece_limit(const PieceBest &best, float square, uint32_t dims)
{
	double relative = 2 * ((double) dims + FAST_EXTRA_ROUNDINGS) * FAST_UNIT_ROUNDOFF;
	double absolute = ((double) dims + FAST_EXTRA_ROUNDINGS) * FAST_SMALLEST;
	double norm = sqrt((double) square) * 1.001;
	double longest = sqrt(2 * (double) best.longest) * 1.001;
	double error = 1.001 * relative * longest * (norm + longest) + absolute +
				   ((double) dims + FAST_EXTRA_ROUNDINGS) * 0x1p-53 * (norm + longest) *
					   (norm + longest);
	float limit = (float) (best.least + 2.5 * error);

	return is_finite(limit) && norm + longest < PIECE_FAR ? limit : HUGE_VALF;
}

/* Which of 32 codewords values leave open. */
__device__ static inline uint32_t
pieces_left(const float *half, const float (&products)[PIECE_WORDS], float limit)
{
	uint32_t left = 0;

#pragma unroll
	for (uint32_t w = 0; w < PIECE_WORDS; w++)
		left |= (uint32_t) !(half[w] - products[w] > limit) << w;
	return left;
}

static __global__ void __launch_bounds__(PIECE_ROWS) pq_nearest_kernel(const PqPieces pieces)
{
	__shared__ PieceMemory memory;
	uint32_t part = pieces.first_part + blockIdx.y;
	uint32_t begin = pq_part_begin(pieces.dims, pieces.parts, part);
	uint32_t dims = pq_part_begin(pieces.dims, pieces.parts, part + 1) - begin;
	const float *words = pieces.codebook + ((size_t) begin << pieces.bits);
	uint32_t row = blockIdx.x * PIECE_ROWS + threadIdx.x;
	bool live = row < pieces.count && (pieces.numbers == NULL || pieces.numbers[row] != NO_SLOT);
	PieceBest best = {HUGE_VALF, HUGE_VALF, 0, 0};
	PieceOf piece = live ? piece_of(pieces, row, begin) : PieceOf{NULL, NULL};
	float products[PIECE_WORDS];
	float norm,
		limit;
	double least = HUGE_VAL;
	uint32_t left;
	bool open;

	for (uint32_t word = 0; word < 1u << pieces.bits; word += PIECE_WORDS)
	{
		piece_products(pieces, &memory, begin, dims, word, word == 0, products, &norm);
		piece_track(&memory, products, word, 1u << pieces.bits, &best);
	}
	limit = piece_limit(best, norm, dims);
	open = live && !(best.second > limit);
	if (__syncthreads_or(open))
	{
		best.at = open ? 0 : best.at;
		for (uint32_t word = 0; word < 1u << pieces.bits; word += PIECE_WORDS)
		{
			piece_products(pieces, &memory, begin, dims, word, false, products, &norm);
			left = open ? pieces_left(memory.half, products, limit) : 0;
			for (; left != 0; left &= left - 1)
			{
				uint32_t at = word + (uint32_t) __ffs((int) left) - 1;
				double distance = HUGE_VAL;

				if (at < 1u << pieces.bits)
					distance = piece_distance(piece, words + (size_t) at * dims, dims);
				best.at = distance < least ? at : best.at;
				least = distance < least ? distance : least;
			}
		}
	}
	if (!live)
		return;
	if (pieces.codes != NULL)
		atomicOr(&pieces.codes[(size_t) row * pieces.code_words + part * pieces.bits / 32],
				 best.at << (part * pieces.bits % 32));
	if (pieces.nearest != NULL)
		pieces.nearest[(size_t) blockIdx.y * pieces.count + row] = best.at;
	if (pieces.distances != NULL)
		pieces.distances[(size_t) blockIdx.y * pieces.count + row] =
			piece_distance(piece, words + (size_t) best.at * dims, dims);
}

/* Launch it for `parts` sub-spaces from pieces->first_part on. */
static inline cudaError_t
pq_nearest(const PqPieces *pieces, uint32_t parts, cudaStream_t stream)
{
	if (pieces->count == 0 || parts == 0)
		return cudaSuccess;
	LAUNCH(pq_nearest_kernel, dim3((pieces->count + PIECE_ROWS - 1) / PIECE_ROWS, parts),
		   PIECE_ROWS, 0, stream, *pieces);
	return cudaGetLastError();
}

#endif /* GPUANN_CUDA_PQ_NEAREST_CUH */
