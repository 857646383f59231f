/*
 * reference.cu
 *		Reference mode of the graph search (src/engine/search.h): the slots that
 *		the CPU engine expands, in its order, by the rounds that shipped kernels
 *		make.
 *
 * An engine with this object in it has reference mode: cuda_emulated.so, and on
 * a GPU gpuann_cuda_test.so. A list has entries of 128 bits, with exact
 * distances.
 */
#include "cuda/graph/graph_search_kernel.cuh"

/*
 * Reduce a list, into which a round's candidates were merged, to what reference
 * mode keeps (src/engine/search.h): the first ef slots, and of the others the
 * first of each vector while fewer than ef of these precede it. All threads,
 * after a barrier; ends with one. The list has room for 2 ef entries and a
 * round's candidates.
 */
__device__ static inline void
keep_rows_and_copies(const ComparedRows &compared, WalkOf<ExactEntry> *walk, WalkShared *shared)
{
	uint32_t kept = 0,
			 rows = 0;

	for (uint32_t i = threadIdx.x; i < walk->count; i += blockDim.x)
	{
		bool copy = false;

		for (uint32_t j = i; j > 0 && !copy && is_same_key(walk->list[j - 1], walk->list[i]); j--)
			copy = is_same_row(compared, slot_of(walk->list[j - 1]), slot_of(walk->list[i]));
		walk->other[i] = copy;
	}
	__syncthreads();
	for (uint32_t base = 0; threadIdx.x < WARP && base < walk->count; base += WARP)
	{
		uint32_t i = base + threadIdx.x;
		uint32_t below = (1u << threadIdx.x) - 1;
		ExactEntry entry = i < walk->count ? walk->list[i] : 0;
		bool first = i < walk->count && walk->other[i] == 0;
		uint32_t firsts = __ballot_sync(FULL_WARP, first);
		bool keeps = i < walk->count && (i < walk->ef || first) &&
					 (i < walk->ef || rows + (uint32_t) __popc(firsts & below) < walk->ef);
		uint32_t keeping = __ballot_sync(FULL_WARP, keeps);

		if (keeps)
			walk->list[kept + (uint32_t) __popc(keeping & below)] = entry;
		rows += (uint32_t) __popc(firsts);
		kept += (uint32_t) __popc(keeping);
		__syncwarp();
	}
	if (threadIdx.x == 0)
	{
		shared->live = kept;
		shared->gathered = rows;
		if (kept < walk->count)
			shared->open_from = 0;
	}
	__syncthreads();
	walk->count = shared->live;
	walk->room = shared->gathered < walk->ef ? ~0u : walk->count;
}

/* By stored rows, exactly. */
template <typename T, int TERM>
struct ByExact
{
	typedef ExactEntry Listed;
	static const GraphMeasure MEASURE = MEASURE_EXACT;
	static const int BLOCKS = ROWS_BLOCKS;

	__device__ static inline uint32_t
	lanes(const MirrorView &)
	{
		return EXACT_TEAM;
	}

	__device__ static inline Key
	key(const MirrorView &mirror, const MeasuredQuery &query, int, bool, uint32_t slot, bool active)
	{
		return exact_key<T, TERM>(mirror, query.vector, slot, active);
	}

	__device__ static inline void
	keep(const ComparedRows &compared, WalkOf<ExactEntry> *walk, WalkShared *shared)
	{
		keep_rows_and_copies(compared, walk, shared);
	}
};

#define EXACT_KERNEL(T, TERM) graph_search_kernel<T, TERM, ByExact<T, TERM>>

static const GraphKernel reference_kernels[TYPES_AND_TERMS_COUNT] = TYPES_AND_TERMS(EXACT_KERNEL);

/* Give the engine these kernels when it is loaded. */
struct ReferenceMode
{
	ReferenceMode()
	{
		graph_reference_kernels = reference_kernels;
	}
};

extern ReferenceMode reference_mode;
ReferenceMode reference_mode;
