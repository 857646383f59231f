/*
 * query_fast.cu
 *		Queries that need no tasks: from submit straight into batch streams, and
 *		from there straight back to their callers.
 *
 * What is asked most are graph searches over codes, or searches of lists, that
 * differ in their vectors only: same mirror, k and ef, no bitmap, no bound.
 * Where nothing waits before such and batch streams are free, each is read
 * once, its description and vector are staged as it is read, and nothing of it
 * is kept but its address; its answer is written to it in poll, where it lies
 * in pinned memory. A task (query_task.cu) is another four lines of memory,
 * gone through five times. Of thousands at once the pool does a part, chunk by
 * chunk, of staging and of handing back: one thread is slower at that than the
 * device at searching. The first batch stream gets few, so that the device
 * begins early, and the last, so that little is left to do when it ends.
 */
#include <string.h>

#include "cuda/query/cuda_engine.h"
#include "cuda/query/query_fast.h"

#ifdef EMULATED
#define CHUNK 16u
#define POOL_MIN 128u /* so that tests have a pool */
#else
#define CHUNK 64u		 /* queries that a thread stages, or hands back, at a time */
#define POOL_MIN 1024u /* fewer are done before the pool would have come */
#endif
#define LOOKAHEAD 4u	   /* queries whose memory is asked for ahead */
#define PARTS 16u		   /* of many queries, what batch streams get of so many parts (size_of) */
#define FIRST_PART TUNED("P0", 1)
#define SECOND_PART TUNED("P1", 3)
#define LAST_PART TUNED("P3", 2)
#define EDGE_BESIDE 4u /* queries for each processor of the device, as walk_launch counts them */
#define PREFETCHED 512u	   /* bytes of a vector */

/* The queries of one batch stream. */
struct Share
{
	BatchStream *bstream;
	uint32_t first; /* of all */
	uint32_t count;
	uint32_t staged; /* atomic */
	bool odd;		 /* atomic: one of them is not like the others, or is not valid */
};

/* What is staged in one submit. */
struct Staging
{
	EngineQuery *const *queries;
	const CudaMirror *mirror;
	DeviceQuery like; /* what all are described by */
	BatchKind kind;
	Share shares[BATCH_STREAMS];
	uint32_t nshares;
	uint32_t count; /* in these */
	bool grows;		/* they are of several sizes */
};

/* Whether a query wants nothing that only tasks have. */
static inline bool
is_plain(const EngineQuery *query)
{
	return query->method != METHOD_EXACT &&
		   (query->method != METHOD_GRAPH || !query->reference) && !query->has_beyond &&
		   query->exclude == NULL && query->filter == NULL && query->program == NULL &&
		   query->vector != NULL && query->results != NULL;
}

/* Whether one differs from the first in its vector only. */
static inline bool
is_like(const EngineQuery *query, const EngineQuery *first)
{
	if (!is_plain(query) || query->mirror != first->mirror || query->k != first->k ||
		query->method != first->method)
		return false;
	if (first->method == METHOD_IVFPQ)
		return query->probes == first->probes && query->rerank == first->rerank;
	return query->ef == first->ef && query->seeds == first->seeds &&
		   query->max_iterations == first->max_iterations;
}

/* Bytes before a batch's vectors. */
static inline size_t
described_bytes(uint32_t count)
{
	return round_up(count * sizeof(DeviceQuery), 256);
}

/* Bring a query's memory nearer: what is staged of it. */
static inline void
prefetch_asked(const EngineQuery *query, uint32_t bytes)
{
	for (uint32_t at = 0; at < bytes && at < PREFETCHED; at += 64)
		__builtin_prefetch((const char *) query->vector + at);
}

/* Stage some queries of a share. */
static void
fast_stage(const Staging *staging, Share *share, uint32_t from, uint32_t end)
{
	BatchStream *bstream = share->bstream;
	EngineQuery *const *queries = staging->queries + share->first;
	const EngineQuery *first = staging->queries[0];
	uint32_t bytes = staging->mirror->vector_bytes;
	uint32_t stride = staging->mirror->stride;

	for (uint32_t i = from; i < end; i++)
	{
		EngineQuery *query = queries[i];
		DeviceQuery *described = &bstream->queries[i];

		if (i + 2 * LOOKAHEAD < end)
		{
			__builtin_prefetch(queries[i + 2 * LOOKAHEAD]);
			__builtin_prefetch(&queries[i + 2 * LOOKAHEAD]->results);
		}
		if (i + LOOKAHEAD < end)
			prefetch_asked(queries[i + LOOKAHEAD], bytes);
		if (!is_like(query, first))
		{
			__atomic_store_n(&share->odd, true, __ATOMIC_RELAXED);
			return;
		}
		bstream->asked[i] = query;
		*described = staging->like;
		described->vector = (uint64_t) i * stride;
		described->results = i * staging->like.k;
		memcpy(bstream->vectors + described->vector, query->vector, bytes);
	}
}

/*
 * One chunk of all queries: its share is a whole number of chunks, but for the
 * last.
 */
static void
stage_chunk(void *arg, uint32_t chunk)
{
	Staging *staging = (Staging *) arg;
	Share *share = staging->shares;
	uint32_t from = chunk * CHUNK;
	uint32_t end;

	while (from >= share->first + share->count)
		share++;
	from -= share->first;
	end = at_most(from + CHUNK, share->count);
	fast_stage(staging, share, from, end);
	__atomic_fetch_add(&share->staged, end - from, __ATOMIC_RELEASE);
}

/*
 * How many queries each of the batch streams gets, if all are free and there is
 * a pool: the device is to begin soon, to have enough to do while more are
 * staged, and to leave little to be handed back when it ends.
 */
static uint32_t
size_of(uint32_t share, uint32_t count)
{
	const uint32_t parts[BATCH_STREAMS] = {FIRST_PART, SECOND_PART,
								   PARTS - FIRST_PART - SECOND_PART - LAST_PART, LAST_PART};

	return count * parts[share] / PARTS;
}

/* Share queries out among the batch streams that are free. */
static void
share_out(CudaEngine *engine, Staging *staging, uint32_t count, bool pool)
{
	uint32_t most =
		at_most(STREAM_QUERIES, at_most((uint32_t) (VECTOR_ROOM / staging->mirror->stride),
									  RESULT_ROOM / staging->like.k)) /
		CHUNK * CHUNK;
	uint32_t even = count > CHUNK ? queries_of_share(staging->mirror, count) : count;
	uint32_t streams = 0;
	bool grows;

	for (uint32_t i = 0; i < BATCH_STREAMS; i++)
		streams += !engine->streams[i].busy;
	grows = pool && streams == BATCH_STREAMS && TUNED("SHARE", 0) == 0 &&
			size_of(2, count) + CHUNK <= most;
	for (uint32_t i = 0; i < BATCH_STREAMS && staging->count < count; i++)
	{
		BatchStream *bstream = &engine->streams[i];
		Share *next = &staging->shares[staging->nshares];
		uint32_t wanted = (grows ? size_of(staging->nshares, count) : even) + CHUNK - 1;

		if (bstream->busy)
			continue;
		next->bstream = bstream;
		next->first = staging->count;
		next->count = at_most(at_most(wanted / CHUNK * CHUNK, most), count - staging->count);
		if (next->count == 0)
			return;
		staging->count += next->count;
		staging->nshares++;
	}
	staging->grows = grows;
}

/* Let a batch stream have a share. */
static void
fast_begin(const Staging *staging, const Share *share, uint64_t now)
{
	BatchStream *bstream = share->bstream;

	batch_begin(bstream);
	bstream->mirror = (CudaMirror *) staging->mirror;
	bstream->kind = staging->kind;
	bstream->ntasks = share->count;
	bstream->nasked = share->count;
	bstream->nback = 0;
	bstream->ended = false;
	bstream->k = staging->like.k;
	bstream->rows = staging->mirror->rows;
	bstream->position = staging->mirror->position;
	bstream->submitted_us = now;
	bstream->nresults = share->count * bstream->k;
	bstream->at_once = false;
	bstream->vectors = bstream->input + described_bytes(share->count);
	bstream->view.vectors =
		(const unsigned char *) bstream->view.queries + described_bytes(share->count);
}

/* Launch a share that is staged. */
static bool
fast_launch(CudaEngine *engine, const Staging *staging, const Share *share)
{
	/*
	 * the first find the device empty, and the last leave it so: as few queries
	 * as get more warps each
	 */
	uint32_t edge = at_most(engine->nqueries,
							EDGE_BESIDE * (uint32_t) engine->device.properties.multiProcessorCount);
	BatchFill fill;

	memset(&fill, 0, sizeof(fill));
	fill.vectors = (size_t) share->count * staging->mirror->stride;
	fill.results = share->bstream->nresults;
	fill.max_k = staging->like.k;
	if (staging->kind == BATCH_LISTS)
		fill_lists(&fill, staging->like.probes, staging->like.rerank);
	else
		fill.max_ef = staging->like.ef;
	share->bstream->mirror->queries += share->count;
	share->bstream->beside = engine->nqueries;
	if (staging->grows && share == staging->shares)
		share->bstream->beside = TUNED("FIRST", edge);
	if (staging->grows && share == staging->shares + BATCH_STREAMS - 1)
		share->bstream->beside = TUNED("LAST", edge);
	return batch_launch_staged(engine, share->bstream, &fill,
							   described_bytes(share->count) + fill.vectors);
}

/* A batch stream has no batch after all, or its answers are back. */
static void
fast_leave(BatchStream *bstream)
{
	bstream->busy = false;
	bstream->nasked = 0;
	bstream->ended = false;
}

/*
 * Stage and launch one share after the other, up to one that has an odd query.
 * Returns how many queries were taken.
 */
static uint32_t
run_shares(CudaEngine *engine, Staging *staging, bool pool, uint64_t now)
{
	uint32_t taken = 0;
	uint32_t chunk = 0;
	uint32_t s;

	for (s = 0; s < staging->nshares && pool; s++)
		fast_begin(staging, &staging->shares[s], now);
	if (pool)
		host_pool_begin(&engine->pool, stage_chunk, staging, (staging->count + CHUNK - 1) / CHUNK);
	for (s = 0; s < staging->nshares; s++)
	{
		Share *share = &staging->shares[s];

		if (!pool)
			fast_begin(staging, share, now);
		while (__atomic_load_n(&share->staged, __ATOMIC_ACQUIRE) < share->count)
		{
			if (!pool)
				stage_chunk(staging, chunk++);
			else if (!host_pool_step(&engine->pool))
				host_pool_pause();
		}
		if (__atomic_load_n(&share->odd, __ATOMIC_RELAXED))
			break;
		taken += share->count;
		if (!fast_launch(engine, staging, share))
			break; /* the engine has failed: they are its */
	}
	if (pool)
		host_pool_end(&engine->pool);
	for (s = engine->device.failure.failed ? staging->nshares : s; s < staging->nshares; s++)
		fast_leave(staging->shares[s].bstream);
	return taken;
}

/* Describe searches of lists like the first; false: it takes a task. */
static bool
is_of_lists(const CudaMirror *mirror, const EngineQuery *first, Staging *staging)
{
	staging->kind = BATCH_LISTS;
	staging->like.probes = first->probes;
	staging->like.rerank = first->rerank;
	return lists_answer(mirror, first);
}

/* The same of graph searches. */
static bool
is_walk(CudaEngine *engine, const CudaMirror *mirror, const EngineQuery *first, uint32_t rows,
		Staging *staging)
{
	DeviceQuery *like = &staging->like;

	staging->kind = BATCH_WALK;
	like->ef = at_most(first->ef > first->k ? first->ef : first->k, rows);
	like->seeds = first->seeds > 0 ? first->seeds : ENGINE_SEEDS_TRIED;
	like->max_iterations = first->max_iterations;
	return graph_kind(engine, mirror, like->k, like->ef, false) == BATCH_WALK;
}

uint32_t
fast_submit(CudaEngine *engine, EngineQuery *const *queries, uint32_t count, uint64_t now)
{
	const EngineQuery *first = count > 0 ? queries[0] : NULL;
	CudaMirror *mirror = first != NULL ? device_mirror(&engine->device, first->mirror) : NULL;
	bool pool = count >= POOL_MIN && engine->pool.nthreads > 0;
	Staging staging;
	uint32_t rows;

	if (mirror == NULL || mirror->dropping || engine->first_waiting != NULL || !is_plain(first) ||
		engine_check_query(first, &mirror->spec, NULL) != ENGINE_OK)
		return 0;
	rows = mirror->rows > 0 ? mirror->rows : 1;
	memset(&staging, 0, sizeof(staging));
	staging.queries = queries;
	staging.mirror = mirror;
	staging.like.beyond_key = key_of(0);
	staging.like.k = at_most(first->k, rows);
	if (!(mirror->lists != NULL ? is_of_lists(mirror, first, &staging)
								: is_walk(engine, mirror, first, rows, &staging)))
		return 0;
	share_out(engine, &staging, count, pool);
	return run_shares(engine, &staging, pool, now);
}

void
fast_end(CudaEngine *engine, BatchStream *bstream)
{
	bstream->ended = true;
	bstream->mirror->queries -= bstream->nasked;
	bstream->mirror = NULL;
	engine->nqueries -= bstream->nasked;
}

/* Some queries of a batch stream on their way back. */
struct Return
{
	const BatchStream *bstream;
	EngineQuery **completed;
	uint32_t first;
	uint32_t count;
};

/* Bring a query's answer nearer, and where it goes. */
static inline void
prefetch_answer(const BatchStream *bstream, uint32_t i)
{
	const EngineQuery *query = bstream->asked[i];
	const SearchResult *results = bstream->results + (size_t) i * bstream->k;

	__builtin_prefetch(&bstream->heads[i]);
	for (uint32_t at = 0; at < bstream->k && at < PREFETCHED / sizeof(SearchResult);
		 at += 64 / sizeof(SearchResult))
	{
		__builtin_prefetch(results + at);
		__builtin_prefetch(query->results + at, 1);
	}
}

/* Write a query's outputs. */
static void
fast_answer(const BatchStream *bstream, uint32_t i)
{
	EngineQuery *query = bstream->asked[i];
	const DeviceHead *head = &bstream->heads[i];
	uint32_t count = at_most(head->count, bstream->k);

	memcpy(query->results, bstream->results + (size_t) i * bstream->k,
		   count * sizeof(SearchResult));
	query->status = ENGINE_OK;
	query->count = count;
	query->position = bstream->position;
	query->rows = bstream->rows;
	query->counters.expanded = head->expanded;
	query->counters.distances = head->distances;
	query->counters.iterations = head->iterations;
	query->counters.pending = head->pending;
	query->counters.queue_us = (uint32_t) (bstream->started_us - bstream->submitted_us);
	query->counters.engine_us = (uint32_t) (bstream->ended_us - bstream->started_us);
	query->error.status = ENGINE_OK;
	query->error.text[0] = 0;
}

/* Hand back one chunk. */
static void
answer_chunk(void *arg, uint32_t chunk)
{
	const Return *back = (const Return *) arg;
	const BatchStream *bstream = back->bstream;
	uint32_t end = at_most((chunk + 1) * CHUNK, back->count);

	for (uint32_t i = chunk * CHUNK; i < end; i++)
	{
		uint32_t at = back->first + i;

		if (i + 2 * LOOKAHEAD < end)
		{
			const EngineQuery *later = bstream->asked[at + 2 * LOOKAHEAD];

			__builtin_prefetch(&later->results);
			__builtin_prefetch(&later->status, 1);
			__builtin_prefetch(&later->error, 1);
		}
		if (i + LOOKAHEAD < end)
			prefetch_answer(bstream, at + LOOKAHEAD);
		fast_answer(bstream, at);
		back->completed[i] = bstream->asked[at];
	}
}

uint32_t
fast_poll(CudaEngine *engine, EngineQuery **completed, uint32_t room)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < BATCH_STREAMS && count < room; i++)
	{
		BatchStream *bstream = &engine->streams[i];
		Return back = {bstream, completed + count, bstream->nback,
					   at_most(bstream->nasked - bstream->nback, room - count)};
		uint32_t chunks = (back.count + CHUNK - 1) / CHUNK;

		if (!bstream->busy || !bstream->ended)
			continue;
		if (back.count >= POOL_MIN && engine->pool.nthreads > 0)
		{
			host_pool_begin(&engine->pool, answer_chunk, &back, chunks);
			host_pool_end(&engine->pool);
		}
		for (uint32_t chunk = 0;
			 chunk < chunks && (back.count < POOL_MIN || engine->pool.nthreads == 0); chunk++)
			answer_chunk(&back, chunk);
		bstream->nback += back.count;
		count += back.count;
		if (bstream->nback == bstream->nasked)
			fast_leave(bstream);
	}
	return count;
}
