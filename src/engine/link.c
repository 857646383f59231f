/*
 * link.c
 *		Linking: pending rows get graph rows, and their neighbours edges back.
 *
 * Rows are linked in batches. Every row of a batch searches the graph as it stood before the batch, so the outcome does not
 * depend on threads; its candidates are what the search found and the nearest of its own batch. They are pruned to the row's
 * neighbours; then edges back are grouped by target, and each target takes them in, pruned again where they overflow.
 * (Vamana's robust prune and batch insertion as in ParlayANN; HNSW's heuristic)
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "select.h"

#define BATCH_SHARE			16		/* a batch is at most this part of what is linked */
#define BATCH_MAX			512
#define BATCH_CANDIDATES	32		/* nearest of the own batch that a row considers */
#define LINK_SEEDS			64		/* seeds a candidate search starts from */
#define SHUFFLE_FROM		1024	/* links of more rows are made in random order */

/* An edge back: target shall know source. */
typedef struct BackEdge
{
	uint32_t	target;
	uint32_t	source;
} BackEdge;

/* A link under way. */
typedef struct Linking
{
	CpuJob	   *job;
	Mirror	   *mirror;
	PruneRule	rule;
	uint32_t	rows;			/* published when it began */
	uint32_t   *slots;			/* to link, in order */
	uint32_t	count;
	uint32_t	first;			/* the batch */
	uint32_t	batch;
	uint32_t   *chosen;			/* batch * degree */
	uint32_t   *nchosen;
	BackEdge   *edges;
	BackEdge   *sorted;
	uint32_t	nedges;
	uint32_t   *groups;			/* where each target's edges begin, and the end */
	uint32_t	ngroups;
	uint32_t   *seeds;			/* of the candidate searches */
	uint32_t	nseeds;
	uint64_t   *changed;		/* bitmap of rows */
	_Atomic bool no_memory;
} Linking;

/* What the callbacks of a candidate search need. */
typedef struct LinkAccess
{
	const Linking *linking;
	Worker	   *worker;
} LinkAccess;

/* Free what a worker keeps for linking. */
void
link_scratch_free(LinkScratch *scratch)
{
	free(scratch->candidates);
	free(scratch->wide.elements);
	free(scratch->pair.elements);
}

/* Make room for candidates and wide vectors. */
static bool
scratch_reserve(LinkScratch *scratch, uint32_t candidates, uint32_t dims)
{
	if (scratch->room < candidates)
	{
		void	   *grown = realloc(scratch->candidates, candidates * sizeof(Candidate));

		if (grown == NULL)
			return false;
		scratch->candidates = grown;
		scratch->room = candidates;
	}
	if (scratch->dims < dims)
	{
		free(scratch->wide.elements);
		free(scratch->pair.elements);
		scratch->wide.elements = malloc(dims * sizeof(float));
		scratch->pair.elements = malloc(dims * sizeof(float));
		scratch->dims = scratch->wide.elements != NULL && scratch->pair.elements != NULL ? dims : 0;
	}
	return scratch->dims >= dims;
}

static void
widen_slot(const Mirror *mirror, uint32_t slot, WideVector *wide)
{
	mirror->kernels->widen(mirror_vector(mirror, slot), mirror->spec.dims, wide->elements);
	wide->scale = mirror_scale(mirror, slot);
}

/* PairDistance: candidates are known by their slots; the first one stays wide while it meets the others. */
static double
pair_distance(void *context, uint32_t slot_a, uint32_t slot_b)
{
	const LinkAccess *access = context;
	LinkScratch *scratch = &access->worker->link;

	if (scratch->pair_slot != slot_a)
	{
		widen_slot(access->linking->mirror, slot_a, &scratch->pair);
		scratch->pair_slot = slot_a;
	}
	return mirror_fast(access->linking->mirror, &scratch->pair, slot_b);
}

/* GraphAccess: read a row and the slot's state. */
static uint32_t
access_row(void *context, uint32_t slot, uint32_t *neighbours, SlotState *state)
{
	const LinkAccess *access = context;
	uint64_t	word = mirror_word(access->linking->mirror, slot);

	state->version = WORD_VERSION(word);
	state->live = !(word & WORD_DEAD);
	return mirror_read_row(access->linking->mirror, slot, access->linking->rows, neighbours);
}

/* GraphAccess: fast distances to the row that is linked. */
static void
access_fast(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	const LinkAccess *access = context;
	const Mirror *mirror = access->linking->mirror;

	if (count > 0)
		mirror_prefetch(mirror, slots[0]);
	for (uint32_t i = 0; i < count; i++)
	{
		if (i + 1 < count)
			mirror_prefetch(mirror, slots[i + 1]);
		out[i] = mirror_fast(mirror, &access->worker->link.wide, slots[i]);
	}
}

/* Search the graph for candidates of a slot, which is wide in the worker's scratch. */
static EngineStatus
find_candidates(LinkAccess *access, uint32_t slot, double equal_distance, GraphAnswer *answer)
{
	const Linking *linking = access->linking;
	const GraphAccess graph = {access, access_row, access_fast, NULL, NULL, NULL};
	const GraphQuery query = {
		.ef = linking->job->in.ef_construction,
		.seeds = linking->seeds,
		.nseeds = linking->nseeds,
		.max_equal = linking->rule.max_equal,
		.equal_distance = equal_distance,
		.salt = slot
	};

	return graph_search(&graph, &query, access->worker->search, answer);
}

/* The nearest of a row's own batch, farthest first, and its duplicates there, a few at random. */
typedef struct BatchNearest
{
	SearchResult nearest[BATCH_CANDIDATES];
	uint32_t	count;
	SearchResult equals[SEARCH_MAX_EQUAL];	/* distance is the random rank, highest first */
	uint32_t	nequals;
} BatchNearest;

/* Look through the batch; `bound` is the farthest that is of use. */
static void
search_batch(const LinkAccess *access, uint32_t item, double bound, double equal_distance, BatchNearest *found)
{
	const Linking *linking = access->linking;
	const uint32_t *batch = linking->slots + linking->first;
	uint32_t	slot = batch[item];

	found->count = found->nequals = 0;
	for (uint32_t i = 0; i < linking->batch; i++)
	{
		SearchResult entry = {0, batch[i], 0};

		if (i == item)
			continue;
		entry.distance = mirror_fast(linking->mirror, &access->worker->link.wide, batch[i]);
		if (entry.distance == equal_distance)
		{
			entry.distance = equal_rank(batch[i], slot);
			(void) farthest_offer(found->equals, &found->nequals, linking->rule.max_equal, entry);
		}
		else if (entry.distance <= bound)
			(void) farthest_offer(found->nearest, &found->count, BATCH_CANDIDATES, entry);
	}
}

static void
add_candidate(LinkScratch *scratch, uint32_t *count, double distance, uint32_t slot)
{
	scratch->candidates[(*count)++] = (Candidate) {distance, slot, slot};
}

/* Choose the neighbours of one row of the batch. */
static void
choose_row(void *context, uint32_t item, Worker *worker)
{
	Linking    *linking = context;
	LinkScratch *scratch = &worker->link;
	uint32_t	slot = linking->slots[linking->first + item];
	uint32_t	ef = linking->job->in.ef_construction;
	LinkAccess	access = {linking, worker};
	PruneRule	rule = linking->rule;
	BatchNearest batch;
	GraphAnswer answer;
	uint32_t	count = 0;

	linking->nchosen[item] = 0;
	if (atomic_load_explicit(&linking->job->watch.cancelled, memory_order_relaxed))
		return;
	if (!scratch_reserve(scratch, ef + BATCH_CANDIDATES + 2 * SEARCH_MAX_EQUAL, linking->mirror->spec.dims))
	{
		atomic_store(&linking->no_memory, true);
		return;
	}
	scratch->pair_slot = NO_SLOT;
	widen_slot(linking->mirror, slot, &scratch->wide);
	rule.self = slot;
	rule.equal_distance = mirror_fast(linking->mirror, &scratch->wide, slot);
	if (find_candidates(&access, slot, rule.equal_distance, &answer) != ENGINE_OK)
	{
		atomic_store(&linking->no_memory, true);
		return;
	}
	for (uint32_t i = 0; i < answer.count; i++)
		add_candidate(scratch, &count, answer.results[i].distance, answer.results[i].slot);
	search_batch(&access, item, answer.count >= ef ? answer.results[answer.count - 1].distance : INFINITY,
				 rule.equal_distance, &batch);
	for (uint32_t i = 0; i < batch.count; i++)
		add_candidate(scratch, &count, batch.nearest[i].distance, batch.nearest[i].slot);
	for (uint32_t i = 0; i < batch.nequals; i++)
		add_candidate(scratch, &count, rule.equal_distance, batch.equals[i].slot);
	linking->nchosen[item] = prune_candidates(&rule, scratch->candidates, count, pair_distance, &access,
											  linking->chosen + (size_t) item * rule.degree);
}

/* Add the sources of a group that a target's row lacks; returns how many neighbours there are then. */
static uint32_t
unite_row(const Linking *linking, uint32_t group, uint32_t target, uint32_t *neighbours)
{
	uint32_t	count = mirror_read_row(linking->mirror, target, linking->rows, neighbours);
	uint32_t	before = count;

	for (uint32_t i = linking->groups[group]; i < linking->groups[group + 1]; i++)
	{
		uint32_t	source = linking->sorted[i].source;
		bool		known = false;

		for (uint32_t j = 0; j < before && !known; j++)
			known = neighbours[j] == source;
		if (!known)
			neighbours[count++] = source;
	}
	return count;
}

/* Give one target the edges back of a batch. */
static void
update_target(void *context, uint32_t group, Worker *worker)
{
	Linking    *linking = context;
	LinkScratch *scratch = &worker->link;
	uint32_t	target = linking->sorted[linking->groups[group]].target;
	LinkAccess	access = {linking, worker};
	PruneRule	rule = linking->rule;
	uint32_t	neighbours[ENGINE_MAX_DEGREE + BATCH_MAX];
	uint32_t	count;

	if (atomic_load_explicit(&linking->job->watch.cancelled, memory_order_relaxed))
		return;
	count = unite_row(linking, group, target, neighbours);
	if (count > rule.degree)
	{
		uint32_t	candidates = 0;

		if (!scratch_reserve(scratch, ENGINE_MAX_DEGREE + BATCH_MAX, linking->mirror->spec.dims))
		{
			atomic_store(&linking->no_memory, true);
			return;
		}
		scratch->pair_slot = NO_SLOT;
		widen_slot(linking->mirror, target, &scratch->wide);
		rule.self = target;
		rule.equal_distance = mirror_fast(linking->mirror, &scratch->wide, target);
		for (uint32_t i = 0; i < count; i++)
			add_candidate(scratch, &candidates, mirror_fast(linking->mirror, &scratch->wide, neighbours[i]), neighbours[i]);
		count = prune_candidates(&rule, scratch->candidates, candidates, pair_distance, &access, neighbours);
	}
	mirror_write_row(linking->mirror, target, neighbours, count);
}

/* Sort a batch's edges by target, keeping the order of sources (three passes over 11 bits of the slot). */
static void
sort_edges(Linking *linking)
{
	uint32_t	starts[2048];
	BackEdge   *sorted;

	for (int shift = 0; shift < 32; shift += 11)
	{
		BackEdge   *from = linking->edges;
		uint32_t	at = 0;

		memset(starts, 0, sizeof(starts));
		for (uint32_t i = 0; i < linking->nedges; i++)
			starts[from[i].target >> shift & 2047]++;
		for (uint32_t i = 0; i < 2048; i++)
		{
			uint32_t	n = starts[i];

			starts[i] = at;
			at += n;
		}
		for (uint32_t i = 0; i < linking->nedges; i++)
			linking->sorted[starts[from[i].target >> shift & 2047]++] = from[i];
		linking->edges = linking->sorted;
		linking->sorted = from;
	}
	/* each pass left the edges in `edges` */
	sorted = linking->edges;
	linking->edges = linking->sorted;
	linking->sorted = sorted;
}

/* Publish the batch's rows, and group the edges back by target. */
static void
collect_edges(Linking *linking)
{
	uint32_t	degree = linking->rule.degree;

	linking->nedges = linking->ngroups = 0;
	for (uint32_t i = 0; i < linking->batch; i++)
	{
		uint32_t	slot = linking->slots[linking->first + i];
		const uint32_t *chosen = linking->chosen + (size_t) i * degree;

		mirror_write_row(linking->mirror, slot, chosen, linking->nchosen[i]);
		for (uint32_t j = 0; j < linking->nchosen[i]; j++)
			linking->edges[linking->nedges++] = (BackEdge) {chosen[j], slot};
	}
	sort_edges(linking);
	for (uint32_t i = 0; i < linking->nedges; i++)
		if (i == 0 || linking->sorted[i].target != linking->sorted[i - 1].target)
			linking->groups[linking->ngroups++] = i;
	linking->groups[linking->ngroups] = linking->nedges;
}

static void
mark_changed(Linking *linking, uint32_t slot)
{
	linking->changed[slot / 64] |= UINT64_C(1) << (slot % 64);
}

/*
 * Link one batch. One that is cut short leaves its rows pending with empty graph rows; targets already updated keep their edges, which
 * lead to slots that route nowhere until they are linked.
 */
static EngineStatus
link_batch(Linking *linking, Worker *worker, int threads)
{
	Phase		choose = {.work = choose_row, .context = linking, .count = linking->batch};
	Phase		update = {.work = update_target, .context = linking};
	bool		stopped;

	phase_run(worker, &choose, threads);
	if (atomic_load(&linking->no_memory))
		return ENGINE_NO_MEMORY;
	if (atomic_load(&linking->job->watch.cancelled))
		return ENGINE_CANCELLED;
	collect_edges(linking);
	update.count = linking->ngroups;
	phase_run(worker, &update, threads);
	stopped = atomic_load(&linking->no_memory) || atomic_load(&linking->job->watch.cancelled);
	for (uint32_t i = 0; i < linking->ngroups; i++)
		mark_changed(linking, linking->sorted[linking->groups[i]].target);
	for (uint32_t i = 0; i < linking->batch; i++)
	{
		uint32_t	slot = linking->slots[linking->first + i];

		if (stopped)
			mirror_write_row(linking->mirror, slot, NULL, 0);
		else
			mirror_mark_linked(linking->mirror, slot);
		mark_changed(linking, slot);
	}
	if (!stopped)
		return ENGINE_OK;
	return atomic_load(&linking->no_memory) ? ENGINE_NO_MEMORY : ENGINE_CANCELLED;
}

/* The fraction whose binary digits are those of i in reverse: each prefix of 0, 1, 2, ... is spread over [0, 1). */
static double
radical_inverse(uint32_t i)
{
	double		value = 0;
	double		digit = 0.5;

	for (; i != 0; i >>= 1, digit /= 2)
		if (i & 1)
			value += digit;
	return value;
}

/* Choose seeds spread over the linked slots, any prefix of them too; returns how many. */
static uint32_t
choose_seeds(const Mirror *mirror, uint32_t rows, uint32_t want, uint64_t *taken, uint32_t *seeds)
{
	uint32_t	count = 0;

	for (uint64_t i = 0; i < (uint64_t) want * 4 && count < want; i++)
	{
		uint32_t	start = (uint32_t) (radical_inverse((uint32_t) i) * rows);

		for (uint32_t j = 0; j < SEED_SHARE && start + j < rows; j++)
		{
			uint32_t	slot = start + j;

			if ((mirror_word(mirror, slot) & (WORD_LINKED | WORD_DEAD)) != WORD_LINKED ||
				(taken[slot / 64] >> (slot % 64) & 1))
				continue;
			taken[slot / 64] |= UINT64_C(1) << (slot % 64);
			seeds[count++] = slot;
			break;
		}
	}
	return count;
}

/* Give the mirror seeds if it has none, or has grown well beyond those it has. */
static EngineStatus
renew_seeds(Mirror *mirror, uint32_t rows)
{
	uint32_t	want = seed_count(atomic_load(&mirror->linked), SEEDS_MAX);
	uint32_t	have = atomic_load(&mirror->nseeds);
	uint64_t   *taken;
	uint32_t   *seeds;
	EngineStatus status = ENGINE_NO_MEMORY;

	if (have > 0 && want <= have + have / 4)
		return ENGINE_OK;
	taken = calloc(((size_t) rows + 63) / 64 + 1, sizeof(uint64_t));
	seeds = malloc((size_t) want * sizeof(uint32_t) + 1);
	if (taken != NULL && seeds != NULL)
		status = mirror_set_seeds(mirror, seeds, choose_seeds(mirror, rows, want, taken, seeds), NULL);
	free(taken);
	free(seeds);
	return status;
}

/* The slots to start candidate searches from: the mirror's seeds, and while they are few the first rows linked. */
static void
update_link_seeds(Linking *linking)
{
	uint32_t	have = atomic_load(&linking->mirror->nseeds);

	if (linking->nseeds == 0)
		for (uint32_t i = 0; i < have && linking->nseeds < LINK_SEEDS; i++)
			linking->seeds[linking->nseeds++] = atomic_load(&linking->mirror->seeds[i]);
	for (uint32_t i = 0; i < linking->batch && linking->nseeds < LINK_SEEDS; i++)
		linking->seeds[linking->nseeds++] = linking->slots[linking->first + i];
}

static int
compare_slots(const void *left, const void *right)
{
	uint32_t	a = *(const uint32_t *) left;
	uint32_t	b = *(const uint32_t *) right;

	return a < b ? -1 : a > b;
}

static bool
add_slot(void *context, uint32_t slot)
{
	Linking    *linking = context;

	linking->slots[linking->count++] = slot;
	return true;
}

/* Collect what the job links, each slot once; many are put in random order, for neighbours in a table are often alike. */
static bool
collect_slots(Linking *linking)
{
	const EngineJob *in = &linking->job->in;
	uint32_t	room = in->slots != NULL ? in->count : atomic_load(&linking->mirror->pending);
	uint64_t	random = 88172645463325252u;

	linking->slots = malloc((size_t) room * sizeof(uint32_t) + 1);
	if (linking->slots == NULL)
		return false;
	if (in->slots == NULL)
		mirror_visit_pending(linking->mirror, linking->rows, add_slot, linking);
	for (uint32_t i = 0; in->slots != NULL && i < in->count; i++)
		if (in->slots[i] < linking->rows && (mirror_word(linking->mirror, in->slots[i]) & WORD_PENDING))
			linking->slots[linking->count++] = in->slots[i];
	if (in->slots != NULL)
	{
		uint32_t	kept = 0;

		qsort(linking->slots, linking->count, sizeof(uint32_t), compare_slots);
		for (uint32_t i = 0; i < linking->count; i++)
			if (i == 0 || linking->slots[i] != linking->slots[i - 1])
				linking->slots[kept++] = linking->slots[i];
		linking->count = kept;
	}
	for (uint32_t i = linking->count; i > 1 && linking->count >= SHUFFLE_FROM; i--)
	{
		uint32_t	other;
		uint32_t	slot = linking->slots[i - 1];

		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		other = (uint32_t) (random % i);
		linking->slots[i - 1] = linking->slots[other];
		linking->slots[other] = slot;
	}
	return true;
}

/* Allocate what batches need. */
static bool
allocate(Linking *linking)
{
	size_t		edges = (size_t) BATCH_MAX * linking->rule.degree;

	linking->chosen = malloc(edges * sizeof(uint32_t));
	linking->nchosen = malloc(BATCH_MAX * sizeof(uint32_t));
	linking->edges = malloc(edges * sizeof(BackEdge));
	linking->sorted = malloc(edges * sizeof(BackEdge));
	linking->groups = malloc((edges + 1) * sizeof(uint32_t));
	linking->seeds = malloc(LINK_SEEDS * sizeof(uint32_t));
	linking->changed = calloc((size_t) linking->rows / 64 + 1, sizeof(uint64_t));
	return linking->chosen != NULL && linking->nchosen != NULL && linking->edges != NULL && linking->sorted != NULL &&
		linking->groups != NULL && linking->seeds != NULL && linking->changed != NULL && collect_slots(linking);
}

static void
release(Linking *linking)
{
	free(linking->slots);
	free(linking->chosen);
	free(linking->nchosen);
	free(linking->edges);
	free(linking->sorted);
	free(linking->groups);
	free(linking->seeds);
	free(linking->changed);
}

/* Copy the changed rows and the seeds out. */
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

	for (uint32_t i = 0; i <= linking->rows / 64; i++)
		count += (uint32_t) __builtin_popcountll(linking->changed[i]);
	job->link.slots = slots = malloc((size_t) count * sizeof(uint32_t) + 1);
	job->link.rows = rows = malloc((size_t) count * degree * sizeof(uint32_t) + 1);
	job->link.seeds = seeds = malloc((size_t) nseeds * sizeof(uint32_t) + 1);
	if (slots == NULL || rows == NULL || seeds == NULL)
		return ENGINE_NO_MEMORY;
	job->link_bytes = (size_t) count * (degree + 1) * sizeof(uint32_t) + nseeds * sizeof(uint32_t);
	atomic_fetch_add(&mirror->budget->state, job->link_bytes);
	for (uint32_t slot = 0; slot < linking->rows; slot++)
	{
		uint32_t   *row = rows + (size_t) job->link.count * degree;

		if (!(linking->changed[slot / 64] >> (slot % 64) & 1))
			continue;
		for (uint32_t n = mirror_read_row(mirror, slot, linking->rows, row); n < degree; n++)
			row[n] = NO_SLOT;
		slots[job->link.count++] = slot;
	}
	for (; job->link.nseeds < nseeds; job->link.nseeds++)
		seeds[job->link.nseeds] = atomic_load(&mirror->seeds[job->link.nseeds]);
	return ENGINE_OK;
}

/* Link batch after batch. */
static EngineStatus
link_all(Linking *linking, Worker *worker)
{
	CpuJob	   *job = linking->job;
	int			threads = job->in.threads > 0 ? job->in.threads : worker->engine->nthreads;
	EngineStatus status = ENGINE_OK;

	if (atomic_load(&linking->mirror->linked) > 0)
		status = renew_seeds(linking->mirror, linking->rows);	/* rows from pages may have come without any */
	update_link_seeds(linking);
	atomic_store(&job->watch.total, linking->count);
	while (status == ENGINE_OK && linking->first < linking->count)
	{
		uint32_t	most = atomic_load(&linking->mirror->linked) / BATCH_SHARE;

		linking->batch = most < 1 ? 1 : most < BATCH_MAX ? most : BATCH_MAX;
		if (linking->batch > linking->count - linking->first)
			linking->batch = linking->count - linking->first;
		status = link_batch(linking, worker, threads);
		if (status != ENGINE_OK)
			break;
		update_link_seeds(linking);
		linking->first += linking->batch;
		atomic_store(&job->watch.done, linking->first);
	}
	return status;
}

/* Link a mirror's pending slots; fills job->link, also with what was linked before a failure. */
EngineStatus
link_run(CpuJob *job, Worker *worker)
{
	Mirror	   *mirror = job->entry->mirror;
	Linking		linking = {.job = job, .mirror = mirror, .rows = atomic_load(&mirror->rows)};
	EngineStatus status;
	EngineStatus result;

	linking.rule.metric = mirror->spec.metric;
	linking.rule.degree = mirror->spec.degree;
	linking.rule.max_equal = PRUNE_MAX_EQUAL(mirror->spec.degree);
	status = allocate(&linking) ? link_all(&linking, worker) : ENGINE_NO_MEMORY;
	if (linking.changed != NULL)
	{
		result = renew_seeds(mirror, linking.rows);
		if (result == ENGINE_OK)
			result = make_result(&linking);
		if (status == ENGINE_OK)
			status = result;
	}
	if (status == ENGINE_CANCELLED)
		engine_error(&job->error, status, "linking was cancelled after %u of %u rows", linking.first, linking.count);
	else if (status != ENGINE_OK)
		engine_error(&job->error, status, "out of memory for linking %u rows", linking.count);
	release(&linking);
	return status;
}
