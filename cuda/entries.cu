/*
 * entries.cu
 *		Making lists of entries (entries.h), and when that is done: a stage of the jobs that bring graph rows or seeds.
 *
 * Kernels, on the job stream: 256 threads.
 *		choose		a warp per entry: eight lanes measure a pivot; the nearest few are taken from shared memory, 4 x PIVOTS bytes a warp
 *		place		a warp per pivot, one launch per choice: takes the entries whose choice it is, in their order, while its list has room
 * Reads: entries x pivots x code stride, all but the first of a pivot from L2; a launch of choose has LAUNCH_BYTES of that, some 30 µs. Bound: L2.
 *
 * The order of entries decides who finds room, nothing else: so the lists are the same wherever and however often they are made.
 */
#include "codes.h"
#include "entries.h"
#include "internal.h"
#include "wide.cuh"

#define THREADS 256u
#define WARPS (THREADS / WARP)
#define LAUNCH_BYTES ((uint64_t) 256 << 20)
#define RELINKED_SHARE 4u /* lists are made again when one linked row in so many is new */

/* The nearest pivots of `count` entries from `first` on, by codes. */
template <int TERM>
__global__ void __launch_bounds__(THREADS)
	choose_kernel(const MirrorView mirror, const EntryLists lists, uint32_t first, uint32_t count)
{
	__shared__ uint32_t keys[WARPS][PIVOTS];
	uint32_t *own = keys[threadIdx.x / WARP];
	uint32_t lane = threadIdx.x % WARP;
	uint32_t i = blockIdx.x * WARPS + threadIdx.x / WARP;
	uint32_t entry = first + i;
	uint32_t slot = i < count ? lists.seeds[lists.npivots + entry] : NO_SLOT;
	Entry last = 0;
	Walk walk;

	/* whole warps have nothing to do: there is no barrier of the block */
	if (i >= count)
		return;
	walk.scale = 2;
	for (uint32_t base = 0; base < lists.npivots; base += WARP / WIDE_LANES)
	{
		uint32_t p = base + lane / WIDE_LANES;
		uint32_t pivot = p < lists.npivots ? lists.pivots[p] : NO_SLOT;
		bool active = slot < lists.rows && pivot < lists.rows;
		const uint4 *codes = (const uint4 *) (mirror.codes + (size_t) (active ? slot : 0) * mirror.code_stride);
		uint32_t key = wide_key<TERM>(mirror, walk, codes, pivot, active);

		if (p < lists.npivots && lane % WIDE_LANES == 0)
			own[p] = active ? key : NO_SLOT;
	}
	__syncwarp();
	for (uint32_t choice = 0; choice < ENTRY_CHOICES; choice++)
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
			lists.choices[(size_t) choice * lists.nentries + entry] = nearest == ~0ull ? NO_SLOT : (uint32_t) (nearest - 1);
	}
}

/* Let entries into the lists of their n-th choices. */
__global__ void __launch_bounds__(THREADS)
	place_kernel(const MirrorView mirror, const EntryLists lists, uint32_t choice)
{
	uint32_t pivot = (blockIdx.x * THREADS + threadIdx.x) / WARP;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t *list = lists.pivots + lists.npivots + (size_t) pivot * mirror.degree;
	uint32_t n = 0;

	if (pivot >= lists.npivots)
		return;
	for (uint32_t base = 0; base < mirror.degree; base += WARP)
		n += (uint32_t) __popc(__ballot_sync(FULL_WARP, base + lane < mirror.degree && list[base + lane] != NO_SLOT));
	for (uint32_t base = 0; base < lists.nentries && n < mirror.degree; base += WARP)
	{
		uint32_t entry = base + lane;
		bool comes = entry < lists.nentries && lists.choices[(size_t) choice * lists.nentries + entry] == pivot &&
					 lists.placed[entry] < lists.copies;
		uint32_t ballot = __ballot_sync(FULL_WARP, comes);
		uint32_t place = n + (uint32_t) __popc(ballot & ((1u << lane) - 1));

		if (comes && place < mirror.degree)
		{
			list[place] = lists.seeds[lists.npivots + entry];
			lists.placed[entry]++;
		}
		n += (uint32_t) __popc(ballot);
	}
}

/* The kernel that measures: of products too by squared differences, which say who is near whom. */
static void (*choose_kernel_of(const MirrorView *mirror))(const MirrorView, const EntryLists, uint32_t, uint32_t)
{
	if (mirror->type == ELEMENT_BIT)
		return choose_kernel<TERM_BITS>;
	return mirror->metric == METRIC_L1 ? choose_kernel<TERM_ABSOLUTE> : choose_kernel<TERM_SQUARE>;
}

cudaError_t
entries_make(const MirrorView *mirror, const EntryLists *lists, cudaStream_t stream)
{
	size_t places = (size_t) (lists->npivots + 1) * mirror->degree;
	uint64_t of_launch = LAUNCH_BYTES / ((uint64_t) lists->npivots * mirror->code_stride) + 1;
	cudaError_t error = cudaMemcpyAsync(lists->pivots, lists->seeds, lists->npivots * sizeof(uint32_t), cudaMemcpyDeviceToDevice, stream);

	if (error == cudaSuccess)
		error = cudaMemsetAsync(lists->pivots + lists->npivots, 0xFF, places * sizeof(uint32_t), stream);
	if (error == cudaSuccess)
		error = cudaMemsetAsync(lists->placed, 0, lists->nentries * sizeof(uint32_t), stream);
	if (error != cudaSuccess)
		return error;
	for (uint32_t first = 0; first < lists->nentries;)
	{
		uint32_t left = lists->nentries - first;
		uint32_t n = left < of_launch ? left : (uint32_t) of_launch;

		LAUNCH(choose_kernel_of(mirror), (n + WARPS - 1) / WARPS, THREADS, 0, stream, *mirror, *lists, first, n);
		first += n;
	}
	for (uint32_t choice = 0; choice < ENTRY_CHOICES; choice++)
		LAUNCH(place_kernel, (lists->npivots + WARPS - 1) / WARPS, THREADS, 0, stream, *mirror, *lists, choice);
	return cudaGetLastError();
}

/* --- the stage ---------------------------------------------------------------------------------------------------- */

/* Words of one side: pivots, their lists, the empty one. */
static size_t
side_words(const MirrorSpec *spec)
{
	return PIVOTS + (size_t) (PIVOTS + 1) * spec->degree;
}

size_t
entries_room(const MirrorSpec *spec)
{
	return (2 * side_words(spec) + (size_t) (ENTRY_CHOICES + 1) * ENTRIES_MOST) * sizeof(uint32_t);
}

/* A side of the lists, behind the seeds and what codes are made with. */
static uint32_t *
side_of(const CudaMirror *mirror, uint32_t side)
{
	unsigned char *room = (unsigned char *) mirror->seeds.base + 2 * SEEDS_ROOM * sizeof(uint32_t) + codes_room(&mirror->spec);

	return (uint32_t *) room + side * side_words(&mirror->spec);
}

const uint32_t *
entries_published(const CudaMirror *mirror)
{
	return side_of(mirror, mirror->entries_side);
}

uint32_t
entries_pivots(const CudaMirror *mirror)
{
	return mirror->nentries > 0 ? TUNED("PIVOTS", PIVOTS) : 0;
}

uint64_t
entries_sum(const uint32_t *seeds, uint32_t nseeds)
{
	uint64_t sum = 14695981039346656037ull;

	for (uint32_t i = 0; i < nseeds && i < ENTRIES_MOST; i++)
		sum = (sum ^ seeds[i]) * 1099511628211ull;
	return sum;
}

/* How many pivots and entries a mirror is to have that will have so many seeds: half of the lists' places at most; 0: none. */
static uint32_t
entries_wanted(const CudaMirror *mirror, uint32_t nseeds)
{
	uint32_t npivots = TUNED("PIVOTS", PIVOTS);
	uint32_t most = npivots + npivots * mirror->spec.degree / 2;
	uint32_t room = TUNED("ENTRIES", ENTRIES_MOST);
	bool bits = mirror->spec.type == ELEMENT_BIT;

	/* bits in host memory would be read as often as there are pivots */
	if (nseeds <= PIVOTS || room <= npivots || (bits ? mirror_near_rows(mirror) < mirror->rows : !mirror->codes_good))
		return 0;
	most = most < room ? most : room;
	return nseeds < most ? nseeds : most;
}

/* Make the side that no batch reads from now on; those in flight may. */
static bool
send_entries(CudaEngine *engine, CudaJob *job, uint32_t wanted)
{
	CudaMirror *mirror = job->mirror;
	MirrorView view = mirror_view(mirror);
	uint32_t side = job->has_seeds ? mirror->seeds_side ^ 1 : mirror->seeds_side;
	EntryLists lists;

	if (view.type == ELEMENT_BIT)
	{
		view.codes = (const signed char *) view.vectors;
		view.code_stride = view.stride;
	}
	lists.seeds = (const uint32_t *) mirror->seeds.base + side * SEEDS_ROOM;
	lists.npivots = TUNED("PIVOTS", PIVOTS);
	lists.nentries = wanted - lists.npivots;
	lists.rows = view.type == ELEMENT_BIT ? mirror->rows : mirror->coded;
	lists.pivots = side_of(mirror, mirror->entries_side ^ 1);
	lists.choices = side_of(mirror, 2);
	lists.placed = lists.choices + (size_t) ENTRY_CHOICES * lists.nentries;
	/* lists are half full on the average */
	lists.copies = lists.npivots * mirror->spec.degree / 2 / lists.nentries;
	lists.copies = lists.copies < 1 ? 1 : lists.copies;
	return lanes_wait(engine, mirror) && GPU(&engine->failure, entries_make(&view, &lists, engine->job_stream));
}

bool
entries_stage(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	uint64_t sum = job->has_seeds ? entries_sum(job->seeds, job->nseeds) : mirror->seeds_sum;
	uint32_t wanted = entries_wanted(mirror, job->has_seeds ? job->nseeds : mirror->nseeds);
	Piece *piece;

	if (wanted == mirror->nentries && (wanted == 0 || (sum == mirror->entries_sum && mirror->relinked <= mirror->linked / RELINKED_SHARE)))
		return true;
	if (wanted > 0)
	{
		piece = piece_free(engine);
		if (piece == NULL || !send_entries(engine, job, wanted) || !piece_send(engine, job, piece))
			return false;
	}
	job->has_entries = true;
	job->nentries = wanted;
	job->entries_sum = sum;
	mirror->relinked = 0;
	return true;
}
