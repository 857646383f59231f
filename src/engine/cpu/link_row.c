/*
 * link_row.c
 *		Choose the neighbours of a new row.
 */
#include <math.h>

#include "engine/cpu/link.h"
#include "engine/batch_mates.h"

#define BATCH_CANDIDATES	32		/* nearest rows of its own batch that a row considers */
#define BATCH_SAMPLE		32		/* a sample of the batch decides whether to measure the rest */

/* GraphAccess: read a row and the slot's state. */
static uint32_t
link_access_row(void *context, uint32_t slot, uint32_t *neighbours, SlotState *state)
{
	const LinkAccess *access = context;
	uint64_t	word = mirror_word(access->linking->mirror, slot);

	state->version = WORD_VERSION(word);
	state->live = !(word & WORD_DEAD);
	return mirror_read_row(access->linking->mirror, slot, access->linking->rows, neighbours);
}

/* GraphAccess: fast distances to the row being linked. */
static void
link_access_fast(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	const LinkAccess *access = context;

	mirror_fast_many(access->linking->mirror, &access->worker->link.wide, slots, count, out);
}

/* GraphAccess: prefetch a row that is probably expanded next. */
static void
link_access_expect(void *context, uint32_t slot)
{
	mirror_prefetch_row(((LinkAccess *) context)->linking->mirror, slot);
}

/* GraphAccess: whether two slots have the same vector. */
static bool
link_access_equal(void *context, uint32_t slot_a, uint32_t slot_b)
{
	return mirror_equal(((const LinkAccess *) context)->linking->mirror, slot_a, slot_b);
}

/* GraphAccess: a sketch of a slot's vector. */
static uint32_t
link_access_sketch(void *context, uint32_t slot)
{
	return mirror_sketch(((const LinkAccess *) context)->linking->mirror, slot);
}

/*
 * Search the graph for candidates of a slot, whose vector is widened in the
 * worker's scratch. Seed lists are not used: walks that start near the row meet
 * fewer rows of other clusters, and later searches need the edges to these.
 */
EngineStatus
link_find_candidates(LinkAccess *access, uint32_t slot, double equal_distance, GraphAnswer *answer)
{
	const Linking *linking = access->linking;
	bool		halves = linking->halves.vectors != NULL;
	const GraphAccess graph = {.context = access,
							   .row = link_access_row,
							   .walk_distances = halves ? link_half_distances : link_access_fast,
							   .exact_distances = halves ? link_access_fast : NULL,
							   .expect = link_access_expect,
							   .equal = link_access_equal,
							   .sketch = link_access_sketch,
							   .often_tied = linking->mirror->spec.type == ELEMENT_BIT};
	const GraphQuery query = {
		.ef = linking->job->in.ef_construction,
		.seeds = linking->seeds,
		.nseeds = linking->nseeds,
		.max_equal = linking->rule.max_equal,
		.equal_distance = equal_distance,
		.salt = slot,
		.all_expanded = true
	};
	EngineStatus status;

	if (halves)
		link_half_walk_begin(access, slot, equal_distance);
	status = graph_search(&graph, &query, access->worker->search, answer);
	if (halves)
		link_half_walk_end(access);
	return status;
}

/*
 * Search the row's own batch, for rows within the bound. Rows in random order
 * are hardly ever that near to each other: if none of a sample of the following
 * rows is, the rest is skipped. Rows inserted cluster by cluster are.
 */
static void
search_batch(LinkAccess *access, uint32_t item, BatchMates *mates)
{
	const Linking *linking = access->linking;
	const uint32_t *batch = linking->slots + linking->first;
	bool		near = false;

	for (uint32_t done = 1; done < linking->batch && (done == 1 || near); done += BATCH_SAMPLE)
	{
		uint32_t	others[BATCH_SAMPLE];
		double		distances[BATCH_SAMPLE];
		uint32_t count =
			linking->batch - done < BATCH_SAMPLE ? linking->batch - done : BATCH_SAMPLE;

		for (uint32_t i = 0; i < count; i++)
			others[i] = batch[(item + done + i) % linking->batch];
		mirror_fast_many(linking->mirror, &access->worker->link.wide, others, count, distances);
		for (uint32_t i = 0; i < count; i++)
			near |= batch_mates_offer(mates, others[i], distances[i], link_access_equal, access);
	}
}

/* Choose the neighbours of one row of the batch. */
void
link_choose_row(void *context, uint32_t item, CpuWorker *worker)
{
	Linking    *linking = context;
	LinkScratch *scratch = &worker->link;
	uint32_t	slot = linking->slots[linking->first + item];
	uint32_t	ef = linking->job->in.ef_construction;
	LinkAccess	access = {linking, worker};
	PruneRule	rule = linking->rule;
	BatchMates	mates = {.slot = slot, .room = BATCH_CANDIDATES, .equal_room = rule.max_equal};
	GraphAnswer answer;
	Candidate	chosen[ENGINE_MAX_DEGREE];
	uint32_t	count = 0;
	uint32_t	kept;

	linking->nchosen[item] = 0;
	if (!link_begin_slot(linking, scratch, slot, true, &rule))
		return;
	if (link_find_candidates(&access, slot, rule.equal_distance, &answer) != ENGINE_OK ||
		!link_scratch_reserve(scratch, answer.count + BATCH_CANDIDATES + SEARCH_MAX_EQUAL,
							  linking->mirror->spec.dims))
	{
		atomic_store(&linking->no_memory, true);
		return;
	}
	for (uint32_t i = 0; i < answer.count; i++)
		scratch->candidates[count++] = (Candidate) {
			answer.results[i].distance, answer.results[i].slot, answer.results[i].slot};
	mates.equal_distance = rule.equal_distance;
	mates.bound = answer.count >= ef ? answer.results[ef - 1].distance : INFINITY;
	search_batch(&access, item, &mates);
	batch_mates_append(&mates, scratch->candidates, &count);
	count =
		prune_choose(&rule, scratch->candidates, count, link_pair_distance, &access, chosen, &kept);
	for (uint32_t i = 0; i < count; i++)
		linking->chosen[(size_t) item * rule.degree + i] =
			(Chosen){chosen[i].slot, (float) chosen[i].distance, true};
	linking->nchosen[item] = count;
	linking->nkept[item] = (uint8_t) kept;
}
