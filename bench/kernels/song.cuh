/*
 * song.cuh
 *		SONG's graph search with its alternatives, for measuring them: not a
 *		part of the engine (cuda/kernels.md says what takes its place).
 *
 * Paper: SONG, sections IV to VI. A block is a warp and serves one query, or
 * two or four. Three stages a step: *locate* takes the nearest unexpanded
 * vertices from a bounded queue and what they lead to and was not visited;
 * *measure* lets all lanes compute one distance after the other; *maintain*
 * lets in what is good enough. Float rows, L2. Which set of visited vertices,
 * selected insertion, deletion from the set and vertices expanded a step are
 * arguments.
 *
 * Where things live: all of a query's state in shared memory
 * (song_query_bytes): 4 dims + 16 (list + 2) + 8 room + the set. Reads per
 * query: expanded x degree x 4 bytes of graph, distances x 4 dims bytes of
 * rows. Bound: latency of a step, most of it one lane's work.
 *
 * The order of entries is total, so whatever is exact gives the same answer.
 */
#ifndef GPUANN_SONG_CUH
#define GPUANN_SONG_CUH

#include <math.h>

#include "song_sets.cuh"


typedef struct SongSetting
{
	uint32_t list;	 /* places of the queue, and of what is expanded */
	uint32_t steps;	 /* vertices expanded at once */
	bool selected;	 /* what is worse than the list's last is neither visited nor queued */
	bool deletes;	 /* what has left both lists is not visited any more */
	uint32_t places; /* words of the set: a power of two, of a Bloom filter any number; 0: as
					  * song_places says */
	uint32_t hashes; /* of a Bloom filter; 0: as many as its words want */
} SongSetting;

typedef struct SongGraph
{
	const float *rows; /* n x dims */
	const uint32_t *neighbours; /* n x degree; SONG_NONE where there is none */
	const uint32_t *seeds;
	uint32_t n;
	uint32_t dims;
	uint32_t degree;
	uint32_t nseeds;
} SongGraph;

/* What one query did. */
typedef struct SongCounters
{
	uint32_t expanded;
	uint32_t distances;
	uint32_t inserts;
	uint32_t most_visited;
	uint32_t most_queued;
	uint32_t overflows; /* 1: the set was full, and the search ended there; of a cuckoo filter,
						 * vertices that it lost */
} SongCounters;

/*
 * Words of a set that has room for what a setting may put into it, as the
 * authors size it; of a Bloom filter 10 bits for each of 13 x list vertices.
 */
static inline uint32_t
song_places(SongVisited visited, const SongSetting *setting)
{
	uint32_t places = visited == SONG_HASH	  ? (setting->deletes ? 8 : 64) * setting->list
					  : visited == SONG_BLOOM ? setting->list * 13 * 10 / 32
					  : setting->deletes	  ? setting->list
											  : 16 * setting->list;

	return power_of_two(places < 2 * WARP ? 2 * WARP : places);
}

/* Candidates of one step: also as many seeds are taken at once. */
__host__ __device__ static inline uint32_t
song_room(uint32_t steps, uint32_t degree)
{
	uint32_t room = (steps * degree + 1) & ~1u;

	return room < WARP ? WARP : room;
}

/* Shared memory of one query. */
__host__ __device__ static inline size_t
song_query_bytes(const SongSetting *setting, uint32_t dims, uint32_t degree)
{
	return 16 * (size_t) (setting->list + 2) + 8 * (size_t) song_room(setting->steps, degree) +
		   4 * (size_t) setting->places + 4 * (size_t) ((dims + 3) & ~3u);
}

/* --- the search ----------------------------------------------------------- */

/*
 * A query in progress. In a warp of one query all lanes have the same; with
 * more the first lane of each query's share has it.
 */
template <SongVisited VISITED, bool TOGETHER> struct SongSearch
{
	typedef SongLanes<TOGETHER> Lanes;
	SongQueue queue; /* not expanded yet; at most list entries between two stages */
	SongQueue best;	 /* expanded */
	SongSet<VISITED, TOGETHER> visited;
	SongEntry *candidates; /* a vertex each, until it is measured */
	float *vector;
	uint32_t ncandidates;
	bool done;
	SongCounters counters;

	/* Tell lanes that look on what the first one has done to the queues. */
	__device__ void
	share_counts()
	{
		queue.count = Lanes::of_first(queue.count);
		best.count = Lanes::of_first(best.count);
		Lanes::meet();
	}

	/*
	 * Whether what is expanded is as many as wanted, and better than an entry.
	 */
	__device__ bool
	is_late(const SongSetting &setting, SongEntry entry) const
	{
		return best.count == setting.list && entry > best.greatest();
	}

	/* Take the nearest vertex that is worth expanding, or SONG_NONE. */
	__device__ uint32_t
	take_nearest(const SongSetting &setting)
	{
		SongEntry nearest = SONG_NO_ENTRY;
		SongEntry left = SONG_NO_ENTRY;

		if (Lanes::lane() == 0 && queue.count > 0 && !is_late(setting, queue.at[1]))
		{
			nearest = queue.take(1);
			best.insert(nearest);
			if (best.count > setting.list)
				left = best.take_greatest();
		}
		share_counts();
		nearest = Lanes::of_first(nearest);
		left = Lanes::of_first(left);
		if (setting.deletes && left != SONG_NO_ENTRY)
			visited.remove((uint32_t) left);
		return (uint32_t) nearest;
	}

	/* Stage 1: what the nearest vertices lead to. */
	__device__ void
	locate(const SongGraph &graph, const SongSetting &setting)
	{
		ncandidates = 0;
		for (uint32_t step = 0; step < setting.steps; step++)
		{
			uint32_t vertex = take_nearest(setting);

			if (vertex == SONG_NONE)
			{
				done = step == 0;
				break;
			}
			counters.expanded++;
			for (uint32_t base = 0; base < graph.degree; base += Lanes::width)
			{
				uint32_t at = base + Lanes::lane();
				uint32_t own = at < graph.degree
								   ? graph.neighbours[(size_t) vertex * graph.degree + at]
								   : SONG_NONE;

				for (uint32_t i = 0; i < Lanes::width && base + i < graph.degree; i++)
				{
					uint32_t next = TOGETHER ? __shfl_sync(FULL_WARP, own, (int) i) : own;

					if (next >= graph.n || visited.has(next))
						continue;
					if (Lanes::lane() == 0)
						candidates[ncandidates] = next;
					ncandidates++;
				}
			}
		}
		Lanes::meet();
	}

	/*
	 * Whether an entry is in one of the lists: what a filter that forgets does
	 * not say.
	 */
	__device__ bool
	is_listed(SongEntry entry) const
	{
		bool found = false;

		for (uint32_t i = Lanes::lane() + 1; i <= queue.count; i += Lanes::width)
			found |= queue.at[i] == entry;
		for (uint32_t i = Lanes::lane() + 1; i <= best.count; i += Lanes::width)
			found |= best.at[i] == entry;
		return Lanes::votes(found) != 0;
	}

	/* Stage 3: let in what is good enough. */
	__device__ void
	maintain(const SongSetting &setting)
	{
		for (uint32_t i = 0; i < ncandidates; i++)
		{
			SongEntry entry = candidates[i];
			SongEntry left = SONG_NO_ENTRY;

			if (setting.selected && (is_late(setting, entry) ||
									 (queue.count == setting.list && entry > queue.greatest())))
				continue;
			/* of several vertices expanded at once two may lead to the same */
			if ((setting.steps > 1 && visited.has((uint32_t) entry)) ||
				(VISITED == SONG_CUCKOO && is_listed(entry)))
				continue;
			if (!visited.add((uint32_t) entry))
			{
				counters.overflows = 1;
				done = true;
				return;
			}
			counters.inserts++;
			Lanes::meet();
			if (Lanes::lane() == 0)
			{
				queue.insert(entry);
				if (queue.count > setting.list)
					left = queue.take_greatest();
			}
			share_counts();
			counters.most_queued =
				queue.count > counters.most_queued ? queue.count : counters.most_queued;
			left = Lanes::of_first(left);
			if (setting.deletes && left != SONG_NO_ENTRY)
				visited.remove((uint32_t) left);
			counters.most_visited =
				visited.count > counters.most_visited ? visited.count : counters.most_visited;
		}
	}
};

/* Stage 2: all lanes measure one query's candidates, one after the other. */
__device__ static inline void
song_measure(const SongGraph &graph, const float *vector, SongEntry *candidates, uint32_t n)
{
	uint32_t lane = threadIdx.x % WARP;

	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t vertex = (uint32_t) candidates[i];
		const float *row = graph.rows + (size_t) vertex * graph.dims;
		float sum = 0;

		for (uint32_t j = lane; j < graph.dims; j += WARP)
		{
			float difference = __ldg(row + j) - vector[j];

			sum += difference * difference;
		}
		for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
			sum += __shfl_xor_sync(FULL_WARP, sum, (int) distance);
		/* all have read it */
		__syncwarp();
		if (lane == 0)
			candidates[i] = song_entry(sum, vertex);
		__syncwarp();
	}
}

/*
 * A warp's queries, from their seeds to their answers: setting.list vertices
 * each in order, SONG_NONE behind the last. Queries that a share of lanes has
 * are searched as if each were alone, so answers do not depend on QUERIES.
 */
template <SongVisited VISITED, uint32_t QUERIES>
__global__ void
__launch_bounds__(WARP) song_kernel(SongGraph graph, SongSetting setting, const float *queries,
									uint32_t nqueries, uint32_t *answers, SongCounters *counters)
{
	typedef SongSearch<VISITED, QUERIES == 1> Search;
	DYNAMIC_SHARED(memory);
	const uint32_t share = WARP / QUERIES;
	uint32_t lane = threadIdx.x;
	uint32_t room = song_room(setting.steps, graph.degree);
	uint32_t query = blockIdx.x * QUERIES + lane / share;
	bool leads = (QUERIES == 1 || lane % share == 0) && query < nqueries;
	Search search;

	search.queue = {(SongEntry *) (memory + (lane / share) * song_query_bytes(&setting, graph.dims,
																			  graph.degree)),
					0};
	search.best = {search.queue.at + setting.list + 2, 0};
	search.candidates = search.best.at + setting.list + 2;
	search.vector = (float *) (search.candidates + room);
	search.visited.table = (uint32_t *) (search.vector + ((graph.dims + 3) & ~3u));
	search.visited.places = setting.places;
	search.visited.hashes = setting.hashes;
	search.ncandidates = 0;
	search.done = !leads;
	search.counters = {};
	for (uint32_t q = 0; q < QUERIES; q++)
	{
		float *vector =
			(float *) __shfl_sync(FULL_WARP, (unsigned long long) search.vector, (int) (q * share));

		if (blockIdx.x * QUERIES + q < nqueries)
			for (uint32_t j = lane; j < graph.dims; j += WARP)
				vector[j] = queries[(size_t) (blockIdx.x * QUERIES + q) * graph.dims + j];
	}
	if (leads)
		search.visited.empty();
	__syncwarp();
	for (uint32_t first = 0;; first = first < graph.nseeds ? first + room : first)
	{
		/* as long as there are seeds they are the candidates */
		if (first >= graph.nseeds && !search.done)
			search.locate(graph, setting);
		else if (!search.done)
		{
			search.ncandidates = graph.nseeds - first < room ? graph.nseeds - first : room;
			for (uint32_t i = Search::Lanes::lane(); i < search.ncandidates;
				 i += Search::Lanes::width)
				search.candidates[i] = graph.seeds[first + i];
		}
		if (search.done)
			search.ncandidates = 0;
		if (__ballot_sync(FULL_WARP, !search.done) == 0)
			break;
		for (uint32_t q = 0; q < QUERIES; q++)
		{
			int from = (int) (q * share);

			song_measure(
				graph, (float *) __shfl_sync(FULL_WARP, (unsigned long long) search.vector, from),
				(SongEntry *) __shfl_sync(FULL_WARP, (unsigned long long) search.candidates, from),
				__shfl_sync(FULL_WARP, search.ncandidates, from));
		}
		search.counters.distances += search.ncandidates;
		if (!search.done)
			search.maintain(setting);
		__syncwarp();
	}
	if (leads && lane % share == 0)
	{
		uint32_t *own = answers + (size_t) query * setting.list;

		/*
		 * what is queued still may be better than the last expanded if the set
		 * overflowed; else it is not
		 */
		for (uint32_t i = search.best.count; i < setting.list; i++)
			own[i] = SONG_NONE;
		for (uint32_t i = search.best.count; i > 0; i--)
			own[i - 1] = (uint32_t) search.best.take_greatest();
		search.counters.overflows += search.visited.lost;
		counters[query] = search.counters;
	}
}

/* Launch one of the kernels. */
template <SongVisited VISITED>
static cudaError_t
song_launch_visited(uint32_t queries_of_warp, const SongGraph &graph, const SongSetting &setting,
					const float *queries, uint32_t nqueries, uint32_t *answers,
					SongCounters *counters, cudaStream_t stream)
{
	auto kernel = queries_of_warp == 1	 ? song_kernel<VISITED, 1>
				  : queries_of_warp == 2 ? song_kernel<VISITED, 2>
										 : song_kernel<VISITED, 4>;
	size_t bytes = queries_of_warp * song_query_bytes(&setting, graph.dims, graph.degree);
	cudaError_t error = cudaFuncSetAttribute(
		(const void *) kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) bytes);

	if (error != cudaSuccess)
		return error;
	LAUNCH(kernel, (nqueries + queries_of_warp - 1) / queries_of_warp, WARP, bytes, stream, graph,
		   setting, queries, nqueries, answers, counters);
	return cudaGetLastError();
}

/*
 * Search: queries_of_warp is 1, 2 or 4. All pointers are device memory: queries
 * nqueries x dims, answers nqueries x list, counters nqueries. The setting's
 * set gets its size if it has none. An error if the state does not fit into
 * shared_most bytes of shared memory, or a set is to delete that cannot, or
 * what is not selected.
 */
static inline cudaError_t
song_launch(SongVisited visited, uint32_t queries_of_warp, const SongGraph &graph,
			SongSetting *setting, size_t shared_most, const float *queries, uint32_t nqueries,
			uint32_t *answers, SongCounters *counters, cudaStream_t stream)
{
	if (setting->deletes && (visited == SONG_BLOOM || !setting->selected))
		return cudaErrorInvalidValue;
	if (setting->places == 0)
		setting->places = song_places(visited, setting);
	if (setting->hashes == 0)
		setting->hashes = (uint32_t) lround(0.6931 * setting->places * 32 / (13 * setting->list));
	setting->hashes = setting->hashes < 1 ? 1 : setting->hashes;
	if (queries_of_warp * song_query_bytes(setting, graph.dims, graph.degree) > shared_most)
		return cudaErrorInvalidValue;
	return visited == SONG_HASH
			   ? song_launch_visited<SONG_HASH>(queries_of_warp, graph, *setting, queries, nqueries,
												answers, counters, stream)
		   : visited == SONG_BLOOM
			   ? song_launch_visited<SONG_BLOOM>(queries_of_warp, graph, *setting, queries,
												 nqueries, answers, counters, stream)
			   : song_launch_visited<SONG_CUCKOO>(queries_of_warp, graph, *setting, queries,
												  nqueries, answers, counters, stream);
}

#endif /* GPUANN_SONG_CUH */
