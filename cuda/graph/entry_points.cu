/*
 * entry_points.cu
 *		Making pivots and lists of entries (entry_points.h).
 *
 * Kernels, on the job stream: 256 threads.
 *		begin		a block per pivot: one of the entries to begin with
 *		choose		a warp, an entry at a time: eight lanes measure a pivot; the
 *					nearest few are taken from shared memory, 4 x PIVOTS_MAX
 *					bytes a warp
 *		mean		a pivot at a time: the entries that chose it, at most
 *					MEMBERS, are listed in shared memory, a thread adds up a
 *					byte of their codes
 *		place		a warp per pivot, one launch per choice: takes the entries
 *					whose choice it is, in their order, while its list has room
 *		sample		a thread per entry of a link's lists; the rows of its
 *					batches choose as entries do
 * Reads: (ROUNDS + 1) x entries x pivots x code stride, all but the first of a
 * pivot from L2; a launch of choose has LAUNCH_BYTES of that, some 50 us.
 * Bound: L2.
 *
 * The order of entries decides who finds room, and means are of whole numbers:
 * so the lists are the same wherever and however often they are made.
 */
#include "cuda/quantizer/quantizer.h"
#include "cuda/graph/entry_points.h"
#include "cuda/graph/graph_search.cuh"

#define THREADS 256u
#define WARPS (THREADS / WARP)
#define LAUNCH_BYTES ((uint64_t) 256 << 20)
#define ROUNDS 6u		  /* of k-means */
#define MEMBERS 1024u	  /* entries that a mean is made of, at most */
#define AHEAD 8u		  /* a warp that looks for entries of a pivot has so many times 32 on their
						   * way */

/* Begin with entries spread over all of them: any prefix of the seeds is. */
__global__ void __launch_bounds__(THREADS)
	begin_kernel(const MirrorView mirror, const EntryPoints lists)
{
	uint32_t slot = lists.entries[blockIdx.x];

	for (uint32_t i = threadIdx.x; i < mirror.code_stride; i += THREADS)
		lists.codes[(size_t) blockIdx.x * mirror.code_stride + i] =
			slot < lists.rows ? mirror.codes[(size_t) slot * mirror.code_stride + i]
							  : (signed char) 0;
	if (threadIdx.x == 0)
		lists.pivots[blockIdx.x] = blockIdx.x;
	if (threadIdx.x == 0 && lists.scales != NULL)
		lists.scales[blockIdx.x] =
			slot < lists.rows ? mirror.code_scales[slot] : make_float2(0, 0);
}

/*
 * The key of the squared distance of a row of rotated codes and a pivot, in
 * every lane of a team.
 */
__device__ static inline uint32_t
rotated_pivot_key(const MirrorView &mirror, const EntryPoints &lists, float step,
				  const uint4 *codes, uint32_t pivot)
{
	const uint4 *other = (const uint4 *) (lists.codes + (size_t) pivot * mirror.code_stride);
	float scale = lists.scales[pivot].x;
	int product = 0,
		squares = 0;

	for (uint32_t chunk = threadIdx.x % CODE_LANES; chunk < mirror.code_stride / 16;
		 chunk += CODE_LANES)
	{
		uint4 x = __ldcg(other + chunk);

		product = dot16(x, __ldcg(codes + chunk), product);
		squares = dot16(x, x, squares);
	}
#pragma unroll
	for (uint32_t distance = CODE_LANES / 2; distance > 0; distance >>= 1)
	{
		product += __shfl_xor_sync(FULL_WARP, product, (int) distance);
		squares += __shfl_xor_sync(FULL_WARP, squares, (int) distance);
	}
	return fast_key(scale * (scale * (float) squares - 2 * step * (float) product));
}

/*
 * The nearest `choices` pivots of an entry, by codes; own: its distances. One
 * warp.
 */
template <int TERM, bool ROTATED>
__device__ static inline void
choose_for(const MirrorView &mirror, const EntryPoints &lists, uint32_t choices, uint32_t entry,
		   uint32_t *own)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t slot = lists.entries[entry];
	bool active = slot < lists.rows;
	const uint4 *codes =
		(const uint4 *) (mirror.codes + (size_t) (active ? slot : 0) * mirror.code_stride);
	float step = ROTATED && active ? mirror.code_scales[slot].x : 0;
	Entry last = 0;

	for (uint32_t base = 0; base < lists.npivots; base += WARP / CODE_LANES)
	{
		uint32_t p = base + lane / CODE_LANES;
		bool measures = active && p < lists.npivots;
		uint32_t key = ROTATED ? rotated_pivot_key(mirror, lists, step, codes, measures ? p : 0)
							   : code_key<TERM>(mirror, 2, codes, lists.codes, p, measures);

		if (p < lists.npivots && lane % CODE_LANES == 0)
			own[p] = active ? key : NO_SLOT;
	}
	__syncwarp();
	for (uint32_t choice = 0; choice < choices; choice++)
	{
		Entry nearest = ~0ull;

		for (uint32_t p = lane; p < lists.npivots; p += WARP)
		{
			/* none is 0, which stands for what is before all */
			Entry other = ((Entry) own[p] << 32 | p) + 1;

			if (own[p] != NO_SLOT && other > last && other < nearest)
				nearest = other;
		}
		for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		{
			Entry other = __shfl_xor_sync(FULL_WARP, nearest, (int) distance);

			nearest = other < nearest ? other : nearest;
		}
		last = nearest;
		if (lane == 0)
			lists.choices[(size_t) choice * lists.nentries + entry] =
				nearest == ~0ull ? NO_SLOT : (uint32_t) (nearest - 1);
	}
}

/* The nearest `choices` pivots of entries from `first` up to `end`. */
template <int TERM, bool ROTATED>
__global__ void
__launch_bounds__(THREADS) choose_kernel(const MirrorView mirror, const EntryPoints lists,
										 uint32_t choices, uint32_t first, uint32_t end)
{
	__shared__ uint32_t keys[WARPS][PIVOTS_MAX];

	for (uint32_t entry = first + blockIdx.x * WARPS + threadIdx.x / WARP; entry < end;
		 entry += gridDim.x * WARPS)
	{
		choose_for<TERM, ROTATED>(mirror, lists, choices, entry, keys[threadIdx.x / WARP]);
		__syncwarp();
	}
}

/*
 * What entries chose: this lane's of AHEAD times 32 of them; NO_SLOT behind the
 * last.
 */
__device__ static inline void
choices_ahead(const uint32_t *choices, uint32_t nentries, uint32_t first, uint32_t *ahead)
{
#pragma unroll
	for (uint32_t i = 0; i < AHEAD; i++)
		ahead[i] = first + i * WARP < nentries ? choices[first + i * WARP] : NO_SLOT;
}

/*
 * List the entries that chose a pivot, in their order; returns how many. The
 * first warp of a block.
 */
__device__ static inline uint32_t
list_members(const EntryPoints &lists, uint32_t pivot, uint32_t *members)
{
	uint32_t n = 0;

	for (uint32_t base = 0; base < lists.nentries && n < MEMBERS; base += AHEAD * WARP)
	{
		uint32_t choices[AHEAD];

		choices_ahead(lists.choices, lists.nentries, base + threadIdx.x, choices);
#pragma unroll
		for (uint32_t i = 0; i < AHEAD; i++)
		{
			bool comes = choices[i] == pivot;
			uint32_t ballot = __ballot_sync(FULL_WARP, comes);
			uint32_t place = n + (uint32_t) __popc(ballot & ((1u << threadIdx.x) - 1));

			if (comes && place < MEMBERS)
				members[place] = lists.entries[base + i * WARP + threadIdx.x];
			n += (uint32_t) __popc(ballot);
		}
	}
	return n < MEMBERS ? n : MEMBERS;
}

/* Byte `at` of the mean of rows of codes, rounded. */
__device__ static inline signed char
mean_code(const MirrorView &mirror, const uint32_t *members, uint32_t n, uint32_t at)
{
	int sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += mirror.codes[(size_t) members[i] * mirror.code_stride + at];
	return (signed char) ((sum + (sum < 0 ? -1 : 1) * (int) (n / 2)) / (int) n);
}

/* The same of rows of bits: what most have. */
__device__ static inline signed char
mean_bits(const MirrorView &mirror, const uint32_t *members, uint32_t n, uint32_t at)
{
	uint32_t counts[8] = {0};
	uint32_t mean = 0;

	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t bits = (unsigned char) mirror.codes[(size_t) members[i] * mirror.code_stride + at];

		for (uint32_t j = 0; j < 8; j++)
			counts[j] += bits >> j & 1;
	}
	for (uint32_t j = 0; j < 8; j++)
		mean |= (uint32_t) (2 * counts[j] > n) << j;
	return (signed char) mean;
}

/*
 * Move pivots to the mean of those that chose them; who was chosen by none
 * stays where it is.
 */
template <int TERM>
__global__ void __launch_bounds__(THREADS)
	mean_kernel(const MirrorView mirror, const EntryPoints lists)
{
	__shared__ uint32_t members[MEMBERS];
	__shared__ uint32_t count;

	for (uint32_t pivot = blockIdx.x; pivot < lists.npivots; pivot += gridDim.x)
	{
		if (threadIdx.x < WARP)
		{
			uint32_t n = list_members(lists, pivot, members);

			if (threadIdx.x == 0)
				count = n;
		}
		__syncthreads();
		for (uint32_t at = threadIdx.x; count > 0 && at < mirror.code_stride; at += THREADS)
			lists.codes[(size_t) pivot * mirror.code_stride + at] =
				TERM == TERM_BITS ? mean_bits(mirror, members, count, at)
								  : mean_code(mirror, members, count, at);
		__syncthreads();
	}
}

/* Element `at` of the mean of rows of rotated codes, without the offsets. */
__device__ static inline float
mean_value(const MirrorView &mirror, const uint32_t *members, uint32_t n, uint32_t at)
{
	float sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += mirror.code_scales[members[i]].x *
			   (float) mirror.codes[(size_t) members[i] * mirror.code_stride + at];
	return sum / (float) n;
}

/* The product of the offsets with codes, in every lane. One warp. */
__device__ static inline float
offsets_with_codes(const MirrorView &mirror, const signed char *codes)
{
	float sum = 0;

	for (uint32_t i = threadIdx.x; i < mirror.dims; i += WARP)
		sum += mirror.code_offsets[i] * (float) codes[i];
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		sum += __shfl_xor_sync(FULL_WARP, sum, (int) distance);
	return sum;
}

/* The same as mean_kernel, of rotated codes: means are encoded as rows are. */
__global__ void __launch_bounds__(THREADS)
	rotated_mean_kernel(const MirrorView mirror, const EntryPoints lists)
{
	__shared__ uint32_t members[MEMBERS];
	__shared__ uint32_t count,
		most;
	__shared__ int squares;

	for (uint32_t pivot = blockIdx.x; pivot < lists.npivots; pivot += gridDim.x)
	{
		signed char *codes = lists.codes + (size_t) pivot * mirror.code_stride;
		float factor;

		if (threadIdx.x < WARP)
		{
			uint32_t n = list_members(lists, pivot, members);

			if (threadIdx.x == 0)
			{
				count = n;
				most = 0;
				squares = 0;
			}
		}
		__syncthreads();
		for (uint32_t at = threadIdx.x; count > 0 && at < mirror.dims; at += THREADS)
			atomicMax(&most,
					  __float_as_uint(rotated_size(mean_value(mirror, members, count, at))));
		__syncthreads();
		factor = rotated_factor(__uint_as_float(most));
		for (uint32_t at = threadIdx.x; count > 0 && at < mirror.dims; at += THREADS)
		{
			int code =
				factor > 0 ? code_of(mean_value(mirror, members, count, at) * factor) : 0;

			codes[at] = (signed char) code;
			atomicAdd(&squares, code * code);
		}
		__syncthreads();
		if (threadIdx.x < WARP && count > 0)
		{
			float step = rotated_step(__uint_as_float(most));
			float term = mirror.metric == METRIC_L2
							 ? step * step * (float) squares
							 : -step * offsets_with_codes(mirror, codes);

			if (threadIdx.x == 0)
				lists.scales[pivot] = make_float2(step, term);
		}
		__syncthreads();
	}
}

/* Let entries into the lists of their n-th choices, counted from 0. */
__global__ void __launch_bounds__(THREADS)
	place_kernel(const MirrorView mirror, const EntryPoints lists, uint32_t choice)
{
	uint32_t pivot = (blockIdx.x * THREADS + threadIdx.x) / WARP;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t *list = lists.pivots + lists.npivots + (size_t) pivot * mirror.degree;
	uint32_t n = 0;

	if (pivot >= lists.npivots)
		return;
	for (uint32_t base = 0; base < mirror.degree; base += WARP)
		n += (uint32_t) __popc(
			__ballot_sync(FULL_WARP, base + lane < mirror.degree && list[base + lane] != NO_SLOT));
	for (uint32_t base = 0; base < lists.nentries && n < mirror.degree; base += AHEAD * WARP)
	{
		uint32_t choices[AHEAD];

		choices_ahead(lists.choices + (size_t) choice * lists.nentries, lists.nentries, base + lane,
					  choices);
#pragma unroll
		for (uint32_t i = 0; i < AHEAD; i++)
		{
			uint32_t entry = base + i * WARP + lane;
			bool comes = choices[i] == pivot && lists.placed[entry] < lists.copies;
			uint32_t ballot = __ballot_sync(FULL_WARP, comes);
			uint32_t place = n + (uint32_t) __popc(ballot & ((1u << lane) - 1));

			if (comes && place < mirror.degree)
			{
				list[place] = lists.entries[entry];
				lists.placed[entry]++;
			}
			n += (uint32_t) __popc(ballot);
		}
	}
	/* no list is empty, or a walk might start nowhere */
	if (n == 0 && choice == ENTRY_CHOICES - 1 && lane == 0)
		list[0] = lists.entries[pivot];
}

typedef void (*ChooseKernel)(const MirrorView, const EntryPoints, uint32_t, uint32_t, uint32_t);

/*
 * The kernel that measures: of products too by squared differences, which say
 * who is near whom.
 */
static ChooseKernel
choose_kernel_of(const MirrorView *mirror)
{
	if (mirror->type == ELEMENT_BIT)
		return choose_kernel<TERM_BITS, false>;
	if (mirror->code_scales != NULL)
		return choose_kernel<TERM_SQUARE, true>;
	return mirror->metric == METRIC_L1 ? choose_kernel<TERM_ABSOLUTE, false>
									   : choose_kernel<TERM_SQUARE, false>;
}

/* Blocks of a kernel that has work for so many. */
static uint32_t
blocks_of(const EntryPoints *lists, uint32_t blocks)
{
	return lists->blocks == 0 || blocks < lists->blocks ? blocks : lists->blocks;
}

/* Let entries choose among the pivots. */
static void
choose_pivots(const MirrorView *mirror, const EntryPoints *lists, uint32_t choices,
					  cudaStream_t stream)
{
	uint64_t of_launch = LAUNCH_BYTES / ((uint64_t) lists->npivots * mirror->code_stride) + 1;

	for (uint32_t first = 0; first < lists->nentries;)
	{
		uint32_t left = lists->nentries - first;
		uint32_t n = left < of_launch ? left : (uint32_t) of_launch;

		LAUNCH(choose_kernel_of(mirror), blocks_of(lists, (n + WARPS - 1) / WARPS), THREADS, 0,
			   stream, *mirror, *lists, choices, first, first + n);
		first += n;
	}
}

cudaError_t
entry_points_make(const MirrorView *mirror, const EntryPoints *lists, cudaStream_t stream)
{
	uint32_t *places = lists->pivots + lists->npivots;
	cudaError_t error = cudaMemsetAsync(
		places, 0xFF, (size_t) lists->npivots * mirror->degree * sizeof(uint32_t), stream);

	if (error == cudaSuccess)
		error = cudaMemsetAsync(lists->placed, 0, lists->nentries * sizeof(uint32_t), stream);
	if (error != cudaSuccess)
		return error;
	LAUNCH(begin_kernel, lists->npivots, THREADS, 0, stream, *mirror, *lists);
	for (uint32_t round = 0; round < ROUNDS; round++)
	{
		choose_pivots(mirror, lists, 1, stream);
		if (mirror->type == ELEMENT_BIT)
			LAUNCH(mean_kernel<TERM_BITS>, blocks_of(lists, lists->npivots), THREADS, 0, stream,
				   *mirror, *lists);
		else if (mirror->code_scales != NULL)
			LAUNCH(rotated_mean_kernel, blocks_of(lists, lists->npivots), THREADS, 0, stream,
				   *mirror, *lists);
		else
			LAUNCH(mean_kernel<TERM_SQUARE>, blocks_of(lists, lists->npivots), THREADS, 0, stream,
				   *mirror, *lists);
	}
	choose_pivots(mirror, lists, ENTRY_CHOICES, stream);
	for (uint32_t choice = 0; choice < ENTRY_CHOICES; choice++)
		LAUNCH(place_kernel, (lists->npivots + WARPS - 1) / WARPS, THREADS, 0, stream, *mirror,
			   *lists, choice);
	return cudaGetLastError();
}

cudaError_t
entry_points_choose_launch(const MirrorView *mirror, const EntryPoints *lists, cudaStream_t stream)
{
	choose_pivots(mirror, lists, ENTRY_CHOICES, stream);
	return cudaGetLastError();
}

/*
 * Take entries of seeds and of a link's slots, by turns, so that any first of
 * them are a sample of both.
 */
__global__ void
__launch_bounds__(THREADS) sample_kernel(uint32_t *entries, uint32_t count, const uint32_t *seeds,
										 uint32_t of_seeds, const uint32_t *slots, uint32_t nslots)
{
	uint32_t i = blockIdx.x * THREADS + threadIdx.x;
	uint32_t seed = (uint32_t) ((uint64_t) i * of_seeds / count);

	if (i >= count)
		return;
	if ((uint32_t) ((uint64_t) (i + 1) * of_seeds / count) > seed)
		entries[i] = seeds[seed];
	else
		entries[i] = slots[(uint64_t) __brev(i - seed) * nslots >> 32];
}

cudaError_t
entry_points_sample_launch(uint32_t *entries, uint32_t count, const uint32_t *seeds,
						   uint32_t of_seeds, const uint32_t *slots, uint32_t nslots,
						   cudaStream_t stream)
{
	LAUNCH(sample_kernel, (count + THREADS - 1) / THREADS, THREADS, 0, stream, entries, count,
		   seeds, of_seeds, slots, nslots);
	return cudaGetLastError();
}
