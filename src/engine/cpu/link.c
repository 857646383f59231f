/*
 * link.c
 *		Linking: choose graph rows for pending slots, and add reverse edges.
 *		Repair (link_repair.c) uses the same batches.
 *
 * Every row of a batch searches the graph as it was before the batch, so the
 * result does not depend on threads. Its candidates are the result of that
 * search and the nearest rows of its own batch; pruning selects its neighbours
 * among them. Then reverse edges are grouped by target, and each target takes
 * them in, pruned again on overflow. (Vamana's robust prune and batch insertion
 * as in ParlayANN; HNSW's heuristic)
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/link.h"
#include "engine/connectivity.h"
#include "engine/link_order.h"

#define BATCH_DIVISOR			16		/* a small batch is at most this part of the linked rows */
#define LARGE_BATCH_DIVISOR			64		/* a large one is at most this part */
#define RENEW_DIVISOR			4		/* between batches seeds are chosen again when the graph has
									 * grown by this part; at the end, by REACH_DIVISOR */
#define LINK_SEEDS			256		/* seeds a candidate search starts from */
#define CACHE_DIVISOR			4		/* a link of at least this part of the rows caches distances */
#define QUERIES_ABOUT_US	10000	/* this long after the last query, linking uses all threads
									 * again */

/*
 * Sort the batch's reverse edges by range of targets (counting sort). Within a
 * range the thread that updates it sorts them by target.
 */
static void
collect_edges(Linking *linking)
{
	uint32_t	degree = linking->rule.degree;
	uint32_t   *ranges = linking->ranges;
	uint32_t	shift = linking->range_shift;

	memset(ranges, 0, sizeof(linking->ranges));
	for (uint32_t i = 0; i < linking->batch; i++)
	{
		ranges[linking->slots[linking->first + i] >> shift]++;
		for (uint32_t j = 0; j < linking->nchosen[i]; j++)
			ranges[linking->chosen[(size_t) i * degree + j].slot >> shift] +=
				linking->chosen[(size_t) i * degree + j].fresh;
	}
	for (uint32_t i = 1; i <= RANGES_MAX; i++)
		ranges[i] += ranges[i - 1];
	/*
	 * Fill each range from its end, so that ranges[] ends up with where they
	 * begin.
	 */
	for (uint32_t i = linking->batch; i-- > 0;)
	{
		const Chosen *chosen = linking->chosen + (size_t) i * degree;
		uint32_t	slot = linking->slots[linking->first + i];

		for (uint32_t j = 0; j < linking->nchosen[i]; j++)
			if (chosen[j].fresh)
				linking->edges[--ranges[chosen[j].slot >> shift]] =
					(BackEdge){chosen[j].slot, (int32_t) i, chosen[j].distance};
		linking->edges[--ranges[slot >> shift]] = (BackEdge) {slot, ~(int32_t) i, 0};
	}
}

/*
 * Finish a batch whose rows are written: mark them linked, or, if it was
 * stopped, empty their graph rows.
 */
static void
end_batch(Linking *linking, bool stopped)
{
	if (!stopped && atomic_load(&linking->mirror->nseeds) == 0)	/* rows that leave the pending map
																 * must be reachable */
		(void) mirror_set_seeds(linking->mirror, linking->slots + linking->first, linking->batch,
								NULL);
	for (uint32_t i = 0; i < linking->batch; i++)
	{
		uint32_t	slot = linking->slots[linking->first + i];

		if (stopped)
			mirror_write_row(linking->mirror, slot, NULL, 0);
		else
			mirror_mark_linked(linking->mirror, slot);
		link_mark_changed(linking, slot);
	}
}

/*
 * Link one batch. A batch that is stopped leaves its rows pending with empty
 * graph rows; targets already updated keep edges to them, which lead nowhere
 * until they are linked. Repaired rows are written completely or not at all.
 */
static EngineStatus
link_batch(Linking *linking, CpuWorker *worker, int threads)
{
	WorkerPhase choose = {.work = linking->repairs ? link_repair_row : link_choose_row,
					.context = linking,
					.count = linking->batch};
	WorkerPhase update = {.work = link_update_range,
					.context = linking,
					.count = ((linking->rows - 1) >> linking->range_shift) + 1};
	bool		stopped;

	phase_run(worker, &choose, threads);
	if (atomic_load(&linking->no_memory))
		return ENGINE_NO_MEMORY;
	if (atomic_load(&linking->job->watch.cancelled))
		return ENGINE_CANCELLED;
	collect_edges(linking);
	phase_run(worker, &update, threads);
	stopped = atomic_load(&linking->no_memory) || atomic_load(&linking->job->watch.cancelled);
	if (!linking->repairs)
		end_batch(linking, stopped);
	if (!stopped)
		return ENGINE_OK;
	return atomic_load(&linking->no_memory) ? ENGINE_NO_MEMORY : ENGINE_CANCELLED;
}

/*
 * Set the slots that candidate searches start from: the mirror's first seeds,
 * and while these are few, the rows linked first.
 */
static void
update_link_seeds(Linking *linking)
{
	uint32_t	have = atomic_load(&linking->mirror->nseeds);

	if (have >= LINK_SEEDS)
		linking->nseeds = 0;
	if (linking->nseeds == 0)
		for (uint32_t i = 0; i < have && linking->nseeds < LINK_SEEDS; i++)
			linking->seeds[linking->nseeds++] = atomic_load(&linking->mirror->seeds[i]);
	for (uint32_t i = 0; i < linking->batch && linking->nseeds < LINK_SEEDS; i++)
		linking->seeds[linking->nseeds++] = linking->slots[linking->first + i];
}

/* Collect the slots to link, each once. */
static bool
collect_slots(Linking *linking)
{
	const EngineJob *in = &linking->job->in;

	if (linking->repairs)
		return link_collect_repairs(linking);
	linking->slots = mirror_collect_pending(linking->mirror, in->slots, in->count, linking->rows,
											&linking->count);
	if (linking->slots == NULL)
		return false;
	link_shuffle(linking->slots, linking->count);
	return true;
}

/*
 * Upper limit of the batch size, given by the graph's size when all rows are
 * linked.
 */
static uint32_t
largest_batch(const Linking *linking)
{
	uint32_t	large = linking->rows / LARGE_BATCH_DIVISOR;
	uint32_t	most = large < BATCH_MAX ? large : BATCH_MAX;

	return linking->repairs || most < BATCH_SMALL ? BATCH_SMALL : most;
}

/* Number of rows in the next batch. */
static uint32_t
next_batch(const Linking *linking)
{
	uint32_t	linked = atomic_load(&linking->mirror->linked);
	uint32_t	left = linking->count - linking->first;
	uint32_t	most = linked / BATCH_DIVISOR;

	if (linking->repairs || most > BATCH_SMALL)
		most = BATCH_SMALL;
	if (!linking->repairs && most < linked / LARGE_BATCH_DIVISOR)
		most = linked / LARGE_BATCH_DIVISOR;
	if (most > linking->batch_most)
		most = linking->batch_most;
	if (most > left)
		most = left;
	return most > 1 ? most : 1;
}

/* Allocate memory for batches. */
static bool
link_allocate(Linking *linking)
{
	size_t		most = linking->batch_most = largest_batch(linking);
	size_t		chosen = most * linking->rule.degree;

	linking->chosen = malloc(chosen * sizeof(Chosen));
	linking->nchosen = malloc(most * sizeof(uint32_t));
	linking->nkept = malloc(most);
	linking->edges = malloc((chosen + most) * sizeof(BackEdge));
	linking->seeds = malloc(LINK_SEEDS * sizeof(uint32_t));
	linking->changed = calloc((size_t) linking->rows / 64 + 1, sizeof(uint64_t));
	return linking->chosen != NULL && linking->nchosen != NULL && linking->nkept != NULL &&
		   linking->edges != NULL && linking->seeds != NULL && linking->changed != NULL &&
		   collect_slots(linking);
}

/* Free the cache of distances. */
static void
cache_end(Linking *linking)
{
	free(linking->cache.distances);
	free(linking->cache.kept);
	atomic_fetch_sub(&linking->mirror->budget->state, linking->cache.bytes);
	memset(&linking->cache, 0, sizeof(linking->cache));
}

/*
 * Cache distances if the link will visit most rows several times and the budget
 * allows it. Results are the same without.
 */
static void
cache_begin(Linking *linking)
{
	DistanceCache *cache = &linking->cache;
	MemoryBudget *budget = linking->mirror->budget;

	if (linking->count < linking->rows / CACHE_DIVISOR)
		return;
	cache->bytes = (uint64_t) linking->rows * (linking->rule.degree * sizeof(float) + 1);
	atomic_fetch_add(&budget->state, cache->bytes);
	if (budget_used(budget) <= budget->limit)
	{
		cache->distances = malloc((size_t) linking->rows * linking->rule.degree * sizeof(float));
		cache->kept = malloc(linking->rows);
	}
	if (cache->distances != NULL && cache->kept != NULL)
		memset(cache->kept, NOT_CACHED, linking->rows);
	else
		cache_end(linking);
}

static void
link_release(Linking *linking)
{
	free(linking->slots);
	free(linking->chosen);
	free(linking->nchosen);
	free(linking->nkept);
	free(linking->edges);
	free(linking->seeds);
	free(linking->changed);
}

/*
 * Keep what a repair has changed for the result of a later one, or take over
 * what earlier ones kept. Without memory to keep it, or if it is much, it is in
 * this one's result.
 */
static void
settle_deferred(Linking *linking, bool defers)
{
	Mirror	   *mirror = linking->mirror;
	size_t		words = (size_t) linking->rows / 64 + 1;
	uint32_t	count = 0;

	if (defers && mirror->deferred_slots < linking->rows)
	{
		uint64_t   *more = calloc(words, sizeof(uint64_t));

		if (more == NULL)
			return;
		if (mirror->deferred != NULL)
			memcpy(more, mirror->deferred,
				   ((size_t) mirror->deferred_slots / 64 + 1) * sizeof(uint64_t));
		free(mirror->deferred);
		mirror->deferred = more;
		mirror->deferred_slots = linking->rows;
	}
	if (mirror->deferred == NULL)
		return;
	for (size_t i = 0; i <= mirror->deferred_slots / 64; i++)
	{
		linking->changed[i] |= mirror->deferred[i];
		count += (uint32_t) __builtin_popcountll(linking->changed[i]);
	}
	if (defers && count <= ENGINE_DEFERRED_MAX)
	{
		memcpy(mirror->deferred, linking->changed,
			   ((size_t) mirror->deferred_slots / 64 + 1) * sizeof(uint64_t));
		memset(linking->changed, 0, ((size_t) mirror->deferred_slots / 64 + 1) * sizeof(uint64_t));
		return;
	}
	free(mirror->deferred);
	mirror->deferred = NULL;
	mirror->deferred_slots = 0;
}

/* Copy the changed rows and the seeds into the job's result. */
static EngineStatus
make_result(Linking *linking)
{
	CpuJob	   *job = linking->job;
	Mirror	   *mirror = linking->mirror;
	uint32_t	degree = linking->rule.degree;
	uint32_t	count = 0;
	uint32_t	nseeds = atomic_load(&mirror->nseeds);
	uint32_t   *slots;
	uint32_t   *rows;
	uint32_t   *seeds;
	uint64_t   *linked;

	for (uint32_t i = 0; i <= linking->rows / 64; i++)
		count += (uint32_t) __builtin_popcountll(linking->changed[i]);
	job->link.slots = slots = malloc((size_t) count * sizeof(uint32_t) + 1);
	job->link.rows = rows = malloc((size_t) count * degree * sizeof(uint32_t) + 1);
	job->link.seeds = seeds = malloc((size_t) nseeds * sizeof(uint32_t) + 1);
	job->link.linked = linked = calloc((size_t) count / 64 + 1, sizeof(uint64_t));
	if (slots == NULL || rows == NULL || seeds == NULL || linked == NULL)
		return ENGINE_NO_MEMORY;
	job->link_bytes = (size_t) count * (degree + 1) * sizeof(uint32_t) + nseeds * sizeof(uint32_t);
	atomic_fetch_add(&mirror->budget->state, job->link_bytes);
	for (uint32_t i = 0; i <= linking->rows / 64; i++)
		for (uint64_t bits = linking->changed[i]; bits != 0; bits &= bits - 1)
		{
			uint32_t   *row = rows + (size_t) job->link.count * degree;
			uint32_t	slot = i * 64 + (uint32_t) __builtin_ctzll(bits);

			for (uint32_t n = mirror_read_row(mirror, slot, linking->rows, row); n < degree; n++)
				row[n] = NO_SLOT;
			if (mirror_word(mirror, slot) & WORD_LINKED)
				bit64_set(linked, job->link.count);
			slots[job->link.count++] = slot;
		}
	for (; job->link.nseeds < nseeds; job->link.nseeds++)
		seeds[job->link.nseeds] = atomic_load(&mirror->seeds[job->link.nseeds]);
	return ENGINE_OK;
}

/*
 * Number of threads that link. While queries arrive it is a quarter: queries
 * take precedence between rows, but one that finds all threads working on a row
 * waits for that row, and linking competes with client backends for processors.
 */
static int
linking_threads(const CpuJob *job, CpuEngine *engine)
{
	int64_t		last = atomic_load_explicit(&engine->last_query_us, memory_order_relaxed);

	if (job->in.threads > 0)
		return job->in.threads;
	if (last == 0 || monotonic_us() > last + QUERIES_ABOUT_US)
		return engine->nthreads;
	return (engine->nthreads + 3) / 4;
}

/* Link all batches. */
static EngineStatus
link_all(Linking *linking, CpuWorker *worker)
{
	CpuJob	   *job = linking->job;
	EngineStatus status = ENGINE_OK;

	if (atomic_load(&linking->mirror->linked) > 0 &&
		(!linking->repairs || atomic_load(&linking->mirror->nseeds) == 0))
		status = link_renew_seeds(linking, RENEW_DIVISOR, false);	/* rows loaded from pages may lack
																 * seeds */
	update_link_seeds(linking);
	atomic_store(&job->watch.total, linking->count);
	while (status == ENGINE_OK && linking->first < linking->count)
	{
		linking->batch = next_batch(linking);
		status = link_batch(linking, worker, linking_threads(job, worker->engine));
		if (status != ENGINE_OK)
			break;
		if (!linking->repairs)
		{
			status = link_renew_seeds(linking, RENEW_DIVISOR, false); /* searches run concurrently */
			update_link_seeds(linking);
		}
		link_half_check(linking);
		linking->first += linking->batch;
		atomic_store(&job->watch.done, linking->first);
	}
	if (status == ENGINE_OK && linking->repairs)
		status = link_replace_dead_seeds(linking);
	if (status != ENGINE_OK || (linking->repairs ? job->in.slots != NULL : linking->count == 0))
		return status;
	return link_connect(linking, worker);
}

/*
 * Link a mirror's pending slots, or repair its rows. Fills job->link, after a
 * failure too, with what was done before.
 */
EngineStatus
link_run(CpuJob *job, CpuWorker *worker)
{
	Mirror	   *mirror = job->entry->mirror;
	Linking linking = {.job = job,
					   .mirror = mirror,
					   .repairs = job->in.kind == JOB_REPAIR,
					   .rows = atomic_load(&mirror->rows)};
	const char *what = linking.repairs ? "repair" : "linking";
	EngineStatus status;
	EngineStatus result;

	linking.rule.degree = mirror->spec.degree;
	linking.rule.max_equal = PRUNE_MAX_EQUAL(mirror->spec.degree);
	linking.rule.metric = mirror->spec.metric;
	linking.rule.square = link_square;
	linking.range_shift = RANGE_MIN_SHIFT;
	while (linking.rows >> linking.range_shift >= RANGES_MAX)
		linking.range_shift++;
	status = ENGINE_NO_MEMORY;
	if (link_allocate(&linking))
	{
		atomic_fetch_add(&worker->engine->links, 1);
		cache_begin(&linking);
		if (linking.cache.distances != NULL)
			link_half_begin(&linking, worker, linking_threads(job, worker->engine));
		status = link_all(&linking, worker);
		link_half_end(&linking);
		cache_end(&linking);
		atomic_fetch_sub(&worker->engine->links, 1);
	}
	if (linking.changed != NULL)
	{
		result = linking.repairs ? ENGINE_OK : link_renew_seeds(&linking, REACH_DIVISOR, true);
		if (linking.repairs)
			settle_deferred(&linking, job->in.defers && status == ENGINE_OK);
		if (result == ENGINE_OK)
			result = make_result(&linking);
		if (status == ENGINE_OK)
			status = result;
	}
	if (status == ENGINE_CANCELLED)
		engine_error(&job->error, status, "%s was cancelled after %u of %u rows", what,
					 linking.first, linking.count);
	else if (status != ENGINE_OK)
		engine_error(&job->error, status, "out of memory for %s of %u rows", what, linking.count);
	link_release(&linking);
	return status;
}
