/*
 * link_pages.c
 *		Computing a pass of the linker over pages, in this process.
 *
 * Rows are linked in batches. Candidates of a row are the results of a graph
 * search, and the nearest rows of its own batch, which the search cannot reach
 * yet. Then rows are pruned, and reverse edges added. A batch is at most a
 * quarter of the graph, so that the first rows, which are far apart, get the
 * long edges that connect later ones.
 */
#include "postgres.h"

#include <math.h>

#include "common/pg_prng.h"

#include "client/mirror_table.h"
#include "link/graph_edits.h"
#include "engine/batch_mates.h"
#include "engine/connectivity.h"

#define BATCH_ROWS_MAX		1024
#define BATCH_ROWS_MIN		16
#define SLICE_BATCH			64		/* rows of a batch, if the pass has a time limit */
#define RENEW_DIVISOR		20		/* divisor: between batches, seeds are renewed when the graph
									 * has grown by 1/20 */

/*
 * Maximum number of candidates of one row: results of the search, nearest and
 * equal rows of the batch, and present neighbours.
 */
#define MAX_CANDIDATES \
	(ROW_EDITS_FOUND(GPUANN_MAX_EF_CONSTRUCTION) + BATCH_MATES_MAX + SEARCH_MAX_EQUAL + \
	 ENGINE_MAX_DEGREE)

/* The rows of one batch, and the neighbours chosen for each. */
typedef struct PageLinkBatch
{
	GraphEdits *edits;
	const IndexFormat *format;
	const uint32 *slots;
	uint32		count;
	uint32		room;			/* rows it can hold */
	char	   *vectors;
	float	   *inverse_norms;
	Candidate  *chosen;			/* degree per row */
	uint32	   *nchosen;
} PageLinkBatch;

/*
 * Seeds during a pass: a sample of the linked slots; searches start from the
 * first ones (engine/seeds.h).
 */
typedef struct SeedSample
{
	uint32	   *seeds;
	uint32		count;
	uint32		room;
	uint32		sampled;		/* number of linked slots when the sample was last renewed, */
	uint32		sampled_of_pass;	/* and how many of them were linked by this pass */
	bool		renewed;
	pg_prng_state random;
} SeedSample;

/*
 * Allocate a batch that takes at most an eighth of memory, and whose changed
 * rows fit into half of the memory for changed rows.
 */
static PageLinkBatch *
make_batch(GraphEdits *edits, const IndexFormat *format, Size memory)
{
	PageLinkBatch *batch = palloc0(sizeof(PageLinkBatch));
	Size		row_bytes = format->vector_bytes + format->degree * sizeof(Candidate);

	batch->edits = edits;
	batch->format = format;
	batch->room = Min(memory / 8 / row_bytes,
					  graph_edits_capacity(format, memory) / 2 / (format->degree + 1));
	batch->room = Max(Min(batch->room, BATCH_ROWS_MAX), BATCH_ROWS_MIN);
	batch->vectors = palloc_extended((Size) batch->room * format->vector_bytes, MCXT_ALLOC_HUGE);
	batch->inverse_norms = palloc(sizeof(float) * batch->room);
	batch->chosen = palloc(sizeof(Candidate) * batch->room * format->degree);
	batch->nchosen = palloc(sizeof(uint32) * batch->room);
	return batch;
}

static const char *
batch_vector(const PageLinkBatch *batch, uint32 i)
{
	return batch->vectors + (Size) i * batch->format->vector_bytes;
}

/* Load the batch's vectors. */
static void
load_batch(PageLinkBatch *batch)
{
	for (uint32 i = 0; i < batch->count; i++)
		memcpy(batch->vectors + (Size) i * batch->format->vector_bytes,
			   row_vectors_get(graph_edits_vectors(batch->edits), batch->slots[i],
							   &batch->inverse_norms[i]),
			   batch->format->vector_bytes);
}

/*
 * Offer another row of the batch to row i, from which distances are computed.
 */
static void
consider_mate(const PageLinkBatch *batch, uint32 mate, BatchMates *mates)
{
	double		distance = row_vectors_distance(graph_edits_vectors(batch->edits),
										   batch_vector(batch, mate), batch->inverse_norms[mate]);

	(void) batch_mates_offer(mates, batch->slots[mate], distance, graph_edits_equal, batch->edits);
}

/*
 * Search the batch for candidates, which the graph does not lead to yet. All
 * rows are compared, because the pending list is in insertion order, where
 * neighbours are often similar.
 */
static void
search_own_batch(const PageLinkBatch *batch, uint32 i, BatchMates *mates)
{
	row_vectors_from(graph_edits_vectors(batch->edits), batch->slots[i]);
	for (uint32 n = 1; n < batch->count; n++)
		consider_mate(batch, (i + n) % batch->count, mates);
}

/* Choose the row of one slot of the batch. */
static void
link_row(PageLinkBatch *batch, uint32 i)
{
	GraphEdits *edits = batch->edits;
	uint32		slot = batch->slots[i];
	uint32		ef = batch->format->ef_construction;
	Candidate	candidates[MAX_CANDIDATES];
	uint32		count;
	BatchMates	mates = {.slot = slot,
						 .room = BATCH_MATES_MAX,
						 .equal_room = Min(PRUNE_MAX_EQUAL(batch->format->degree),
										   SEARCH_MAX_EQUAL)};
	uint32		old[ENGINE_MAX_DEGREE];
	double		old_distances[ENGINE_MAX_DEGREE];
	SlotState	state;
	uint32		nold;
	uint32		kept;

	link_pause();
	count = graph_edits_search(edits, slot, ef, false, candidates);
	mates.equal_distance = graph_edits_distance(edits, slot, slot);
	/*
	 * Rows of the batch that are farther than the search's results would be
	 * kept for their direction, and displace near neighbours.
	 */
	mates.bound = count >= ef ? candidates[ef - 1].distance : INFINITY;
	search_own_batch(batch, i, &mates);
	batch_mates_append(&mates, candidates, &count);

	/*
	 * The neighbours of a row written by an interrupted pass are candidates
	 * too.
	 */
	nold = graph_edits_get(edits, slot, old, &state);
	graph_edits_distances(edits, slot, old, nold, old_distances);
	for (uint32 n = 0; n < nold; n++)
		candidates[count++] = (Candidate) {old_distances[n], old[n], old[n]};
	batch->nchosen[i] = graph_edits_choose(edits, slot, candidates, count,
										   batch->chosen + (Size) i * batch->format->degree, &kept);
}

/*
 * Shuffle the seeds, because only the first ones are ordered afterwards. Those
 * from which all rows are reachable keep their places.
 */
static void
pages_shuffle(uint32 *slots, uint32 count, pg_prng_state *random)
{
	for (uint32 i = count; i > REACH_SEEDS + 1; i--)
	{
		uint32		j = pg_prng_uint64_range(random, REACH_SEEDS, i - 1);
		uint32		slot = slots[i - 1];

		slots[i - 1] = slots[j];
		slots[j] = slot;
	}
}

/*
 * If the graph has grown by 1/share, add rows linked since the last renewal to
 * the sample; `linked` slots are linked now, `done` of them by this pass.
 * Returns whether the sample changed. As long as there is room no seed is
 * removed: with one seed in 64 rows, losing one to rounding in each small pass
 * would leave the first rows without seeds.
 */
static bool
renew_seeds(SeedSample *sample, const LinkPass *pass, uint32 done, uint32 linked, uint32 share)
{
	const uint32 *slots = pass->slots + sample->sampled_of_pass;
	uint32		count = done - sample->sampled_of_pass;
	uint32		wanted = seed_count(linked, sample->room);
	uint32		added = 0;
	uint32		kept;

	if (linked - sample->sampled < sample->sampled / share)
		return false;
	if (wanted > sample->count)
		added = Min(wanted - sample->count, count);
	else if (sample->count == sample->room && linked > sample->sampled)
		added = Min((uint32) ((uint64) wanted * (linked - sample->sampled) / linked), count);
	if (added == 0)
		return false;
	pages_shuffle(sample->seeds, sample->count, &sample->random);
	kept = Min(sample->count, wanted - added);
	/*
	 * Evenly spaced, because random choice would leave out whole clusters of
	 * rows that are inserted cluster by cluster.
	 */
	for (uint32 i = 0; i < added; i++)
		sample->seeds[kept + i] = slots[(2 * (uint64) i + 1) * count / (2 * (uint64) added)];
	sample->count = kept + added;
	sample->sampled = linked;
	sample->sampled_of_pass = done;
	sample->renewed = true;
	pages_shuffle(sample->seeds, sample->count, &sample->random);
	return true;
}

/* Initialize the sample with the index's seeds. */
static void
sample_load_seeds(SeedSample *sample, Relation index, const IndexFormat *format,
				  const MetaPage *meta, uint32 next_fresh)
{
	uint32	   *seeds;

	memset(sample, 0, sizeof(*sample));
	pg_prng_seed(&sample->random, meta->change_seq);
	sample->room = Min(format->seed_pages * (uint32) GPUANN_SEEDS_PER_PAGE, SEEDS_MAX);
	sample->seeds = palloc(sizeof(uint32) * sample->room);
	sample->count = read_seeds(index, meta, sample->room, &seeds);
	for (uint32 i = 0; i < sample->count; i++)
		if (seeds[i] >= next_fresh)
			report_corrupt(index, 1 + i / GPUANN_SEEDS_PER_PAGE, "a seed does not exist");
	memcpy(sample->seeds, seeds, sizeof(uint32) * sample->count);
	/*
	 * Count rows linked by earlier passes too, so that a graph that grows in
	 * small passes gets new seeds as well.
	 */
	sample->sampled = sample->count < sample->room
						  ? Min((uint64) sample->count * SLOTS_PER_SEED, meta->linked_slots)
						  : meta->linked_slots;
	pfree(seeds);
}

/* Link one batch. */
static void
link_page_batch(PageLinkBatch *batch)
{
	link_pause();
	load_batch(batch);
	for (uint32 i = 0; i < batch->count; i++)
		link_row(batch, i);
	for (uint32 i = 0; i < batch->count; i++)
		graph_edits_set_chosen(batch->edits, batch->slots[i],
							   batch->chosen + (Size) i * batch->format->degree, batch->nchosen[i]);
	graph_edits_apply_offers(batch->edits);
}

/* Whether a pass that began then has used up its time. */
static bool
time_is_up(int64 began_ms, const LinkManner *manner)
{
	return manner->slice_ms > 0 && monotonic_ms() - began_ms >= manner->slice_ms;
}

/*
 * Compute a pass, or with may_stop as much of it as memory and time allow;
 * returns the number of its slots linked.
 */
static uint32
compute_pass(Relation index, const IndexFormat *format, const LinkPass *pass, bool may_stop,
			 const LinkManner *manner, LinkedRows *rows)
{
	MetaPage	meta;
	PendingBounds bounds;
	GraphEdits *edits;
	PageLinkBatch *batch;
	SeedSample	sample;
	int64		began_ms = monotonic_ms();
	uint32		done = 0;

	pending_bounds(index, format, &meta, &bounds);
	edits = graph_edits_begin(index, format, bounds.next_fresh, link_memory());
	batch = make_batch(edits, format, link_memory());
	if (manner->slice_ms > 0)
		batch->room = Min(batch->room, SLICE_BATCH);
	sample_load_seeds(&sample, index, format, &meta, bounds.next_fresh);
	for (;;)
	{
		uint64		linked = (uint64) meta.linked_slots + done;
		bool		ends = done == pass->count;

		batch->slots = pass->slots + done;
		batch->count = Min(Min(batch->room, pass->count - done), Max(linked / 4, BATCH_ROWS_MIN));
		if (may_stop && done > 0 &&
			(time_is_up(began_ms, manner) ||
			 !graph_edits_have_room(edits, batch->count * (format->degree + 1))))
			ends = true;
		/* at the end seeds are ordered when they are written */
		if (renew_seeds(&sample, pass, done, linked, ends ? REACH_DIVISOR : RENEW_DIVISOR) && !ends)
			order_seeds(index, format, sample.seeds, sample.count);
		graph_edits_seeds(edits, sample.seeds, sample.count);
		if (ends)
			break;
		link_page_batch(batch);
		done += batch->count;
		if (manner->tell != NULL)
			manner->tell(manner->before + done);
	}
	if (done == pass->count)
		graph_edits_connect(edits, done, link_memory());
	graph_edits_take(edits, rows);
	if (sample.renewed)
	{
		rows->nseeds = sample.count;
		rows->seeds = sample.seeds;
	}
	graph_edits_end(edits);
	return done;
}

/* Compute a pass over pages. */
void
link_over_pages(Relation index, const IndexFormat *format, const LinkPass *pass, LinkedRows *rows)
{
	const LinkManner manner = {0};

	(void) compute_pass(index, format, pass, false, &manner, rows);
}

/* The same, ending the pass where memory or time is used up. */
void
link_part_over_pages(Relation index, const IndexFormat *format, LinkPass *pass,
					 const LinkManner *manner, LinkedRows *rows)
{
	uint32		done = compute_pass(index, format, pass, true, manner, rows);

	if (done == pass->count)
		return;
	pass->to = pass->from + pass->places[done].offset;
	pass->live = pass->places[done].live;
	pass->count = done;
}
