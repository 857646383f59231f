/*
 * link_connectivity.c
 *		The end of a link: make every row of the mirror's graph reachable, see
 *		connectivity.h.
 */
#include <math.h>
#include <stdlib.h>

#include "engine/cpu/link.h"
#include "engine/connectivity.h"

/* GraphAccess and ReachAccess: read a row. */
static uint32_t
read_row(void *context, uint32_t slot, uint32_t *neighbours)
{
	const Linking *linking = ((LinkAccess *) context)->linking;

	return mirror_read_row(linking->mirror, slot, linking->rows, neighbours);
}

#define ROWS_AHEAD		16		/* prefetch distance */

/* ReachAccess: read rows, prefetching them ROWS_AHEAD in advance. */
static void
connect_read_rows(void *context, const uint32_t *slots, uint32_t count, uint32_t *neighbours,
		  uint32_t *counts)
{
	const Linking *linking = ((LinkAccess *) context)->linking;

	for (uint32_t i = 0; i < count + ROWS_AHEAD; i++)
	{
		if (i < count)
			mirror_prefetch_row(linking->mirror, slots[i]);
		if (i >= ROWS_AHEAD)
			counts[i - ROWS_AHEAD] =
				read_row(context, slots[i - ROWS_AHEAD],
						 neighbours + (size_t) (i - ROWS_AHEAD) * linking->rule.degree);
	}
}

static uint32_t
connect_search_row(void *context, uint32_t slot, uint32_t *neighbours, SlotState *state)
{
	uint64_t	word = mirror_word(((LinkAccess *) context)->linking->mirror, slot);

	state->version = WORD_VERSION(word);
	state->live = !(word & WORD_DEAD);
	return read_row(context, slot, neighbours);
}

/*
 * Walking distances. For METRIC_IP: squared differences (see ReachAccess), less
 * the square of the vector searched for, which is constant.
 */
static void
connect_search_distances(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	const LinkAccess *access = context;
	const Mirror *mirror = access->linking->mirror;

	mirror_fast_many(mirror, &access->worker->link.wide, slots, count, out);
	for (uint32_t i = 0; mirror->spec.metric == METRIC_IP && i < count; i++)
	{
		out[i] = 2 * out[i] + mirror_square(mirror, slots[i]);
		if (isnan(out[i]))
			out[i] = INFINITY;
	}
}

static bool
connect_search_equal(void *context, uint32_t slot_a, uint32_t slot_b)
{
	return mirror_equal(((const LinkAccess *) context)->linking->mirror, slot_a, slot_b);
}

static uint32_t
connect_search_sketch(void *context, uint32_t slot)
{
	return mirror_sketch(((const LinkAccess *) context)->linking->mirror, slot);
}

static bool
connect_is_wanted(void *context, uint32_t slot)
{
	return mirror_in_graph(((LinkAccess *) context)->linking->mirror, slot);
}

/* ReachAccess: search the graph for a slot's vector. */
static uint32_t
find_near(void *context, uint32_t slot, const SearchResult **found)
{
	LinkAccess *access = context;
	Linking    *linking = (Linking *) access->linking;
	const GraphAccess graph = {
		.context = access, .row = connect_search_row, .walk_distances = connect_search_distances,
		.equal = connect_search_equal, .sketch = connect_search_sketch};
	uint32_t	seeds[REACH_SEEDS];
	GraphQuery	query = {.ef = linking->job->in.ef_construction, .seeds = seeds};
	PruneRule	rule;
	GraphAnswer answer;

	for (uint32_t i = 0; i < linking->nseeds && i < REACH_SEEDS; i++)
		if (linking->seeds[i] != slot)
			seeds[query.nseeds++] = linking->seeds[i];
	if (!link_begin_slot(linking, &access->worker->link, slot, true, &rule))
		return 0;
	if (graph_search(&graph, &query, access->worker->search, &answer) != ENGINE_OK)
		return 0;
	*found = answer.results;
	return answer.count;
}

static void
write_row(void *context, uint32_t slot, const uint32_t *neighbours, uint32_t count)
{
	Linking    *linking = (Linking *) ((LinkAccess *) context)->linking;

	mirror_write_row(linking->mirror, slot, neighbours, count);
	link_mark_changed(linking, slot);
}

static bool
connect_interrupted(void *context)
{
	JobWatch   *watch = &((LinkAccess *) context)->linking->job->watch;

	if (watch->yield != NULL)
		watch->yield(watch->context);
	return atomic_load_explicit(&watch->cancelled, memory_order_relaxed);
}

static void *
connectivity_resize(void *context, void *old, size_t size)
{
	if (size > 0)
		return realloc(old, size);
	free(old);
	return NULL;
}

/*
 * Make every linked row reachable from the mirror's first seeds. Skipped
 * without error if there is no memory for it.
 */
EngineStatus
link_connect(Linking *linking, CpuWorker *worker)
{
	static const ScratchAllocator allocator = {connectivity_resize, NULL};
	LinkAccess	context = {linking, worker};
	ReachAccess access = {.context = &context,
						  .row = read_row,
						  .rows = connect_read_rows,
						  .wanted = connect_is_wanted,
						  .near = find_near,
						  .set = write_row,
						  .interrupted = connect_interrupted};
	ReachGraph graph = {
		.rows = linking->rows, .degree = linking->rule.degree, .seeds = linking->seeds};
	uint32_t	have = atomic_load(&linking->mirror->nseeds);
	uint32_t	left;
	EngineStatus status;

	if (!linking->repairs &&
		(uint64_t) linking->count * REACH_DIVISOR < atomic_load(&linking->mirror->linked))
		return ENGINE_OK;
	linking->nseeds = have < REACH_SEEDS ? have : REACH_SEEDS;
	for (uint32_t i = 0; i < linking->nseeds; i++)
		linking->seeds[i] = atomic_load(&linking->mirror->seeds[i]);
	graph.nseeds = linking->nseeds;
	status = graph_connect(&access, &graph, &allocator, &left);
	return status == ENGINE_NO_MEMORY ? ENGINE_OK : status;
}
