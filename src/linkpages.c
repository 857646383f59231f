/*
 * linkpages.c
 *		Computing a pass of the linker over pages, in this process.
 *
 * Rows are linked in batches. Candidates of a row are what a graph search finds, and its nearest within the batch, whose rows
 * the graph cannot lead to yet. Then rows are pruned, and reverse edges given. A batch is at most a quarter of the graph
 * so far: the first rows, far apart, get the edges that connect what comes later.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "miscadmin.h"

#include "rowedits.h"

#define BATCH_MOST			1024
#define BATCH_LEAST			16

/* A row of the batch near to another. */
typedef struct NearRow
{
	float		distance;
	uint32		other;			/* index in the batch */
} NearRow;

/* The rows of one batch and what each has found among the others. */
typedef struct Batch
{
	RowEdits   *edits;
	const IndexFormat *format;
	const uint32 *slots;
	uint32		count;
	uint32		room;			/* rows it can hold */
	char	   *vectors;
	float	   *inverse_norms;
	float	   *query;			/* one row, widened */
	uint32		near_room;		/* per row */
	NearRow    *near;			/* per row a heap, farthest first */
	uint32	   *near_count;
	uint32		equal_room;		/* per row: a sample of its duplicates */
	uint32	   *equal;
	uint32	   *equal_seen;
	Candidate  *candidates;
	pg_prng_state random;
} Batch;

/* The seeds as the pass goes on: a sample of the linked slots, in random order. */
typedef struct SeedSample
{
	uint32	   *seeds;
	uint32		count;
	uint32		room;
	uint32		sampled;		/* linked slots when the sample was last renewed */
	bool		renewed;
	pg_prng_state random;
} SeedSample;

/* Allocate a batch for at most an eighth of memory, whose changes fit into half of what is there for rows. */
static Batch *
make_batch(RowEdits *edits, const IndexFormat *format, Size memory)
{
	Batch	   *batch = palloc0(sizeof(Batch));
	Size		row_bytes;

	batch->edits = edits;
	batch->format = format;
	batch->near_room = format->ef_construction;
	batch->equal_room = PRUNE_MAX_EQUAL(format->degree);
	row_bytes = format->vector_bytes + batch->near_room * sizeof(NearRow) + batch->equal_room * sizeof(uint32);
	batch->room = Min(memory / 8 / row_bytes, row_edits_capacity(format, memory) / 2 / (format->degree + 1));
	batch->room = Max(Min(batch->room, BATCH_MOST), BATCH_LEAST);
	batch->vectors = palloc_extended((Size) batch->room * format->vector_bytes, MCXT_ALLOC_HUGE);
	batch->inverse_norms = palloc(sizeof(float) * batch->room);
	batch->query = palloc(sizeof(float) * format->dims);
	batch->near = palloc(sizeof(NearRow) * batch->room * batch->near_room);
	batch->near_count = palloc(sizeof(uint32) * batch->room);
	batch->equal = palloc(sizeof(uint32) * batch->room * batch->equal_room);
	batch->equal_seen = palloc(sizeof(uint32) * batch->room);
	batch->candidates = palloc(sizeof(Candidate) *
							   (ROW_EDITS_FOUND(format->ef_construction) + batch->near_room + batch->equal_room + format->degree));
	pg_prng_seed(&batch->random, 1);
	return batch;
}

static const char *
batch_vector(const Batch *batch, uint32 i)
{
	return batch->vectors + (Size) i * batch->format->vector_bytes;
}

/* Note a duplicate of row i: each of those seen is in the sample with equal chance. */
static void
note_equal(Batch *batch, uint32 i, uint32 other)
{
	uint32	   *sample = batch->equal + (Size) i * batch->equal_room;
	uint32		seen = batch->equal_seen[i]++;

	if (seen < batch->equal_room)
		sample[seen] = other;
	else
	{
		uint64		place = pg_prng_uint64_range(&batch->random, 0, seen);

		if (place < batch->equal_room)
			sample[place] = other;
	}
}

/* Note a row near to row i, if it is nearer than the farthest noted. */
static void
note_near(Batch *batch, uint32 i, float distance, uint32 other)
{
	NearRow    *heap = batch->near + (Size) i * batch->near_room;
	uint32		place;

	if (batch->near_count[i] < batch->near_room)
	{
		for (place = batch->near_count[i]++; place > 0 && heap[(place - 1) / 2].distance < distance; place = (place - 1) / 2)
			heap[place] = heap[(place - 1) / 2];
	}
	else
	{
		uint32		child;

		if (distance >= heap[0].distance)
			return;
		for (place = 0; (child = 2 * place + 1) < batch->near_room; place = child)
		{
			if (child + 1 < batch->near_room && heap[child + 1].distance > heap[child].distance)
				child++;
			if (heap[child].distance <= distance)
				break;
			heap[place] = heap[child];
		}
	}
	heap[place].distance = distance;
	heap[place].other = other;
}

/* Load the batch's vectors, and find each row's nearest among the others. */
static void
compare_batch(Batch *batch)
{
	const DistanceKernels *kernels = row_edits_kernels(batch->edits);
	const IndexFormat *format = batch->format;

	for (uint32 i = 0; i < batch->count; i++)
	{
		memcpy(batch->vectors + (Size) i * format->vector_bytes,
			   row_edits_vector(batch->edits, batch->slots[i], &batch->inverse_norms[i]), format->vector_bytes);
		batch->near_count[i] = batch->equal_seen[i] = 0;
	}
	for (uint32 i = 1; i < batch->count; i++)
	{
		const char *vector = batch_vector(batch, i);

		link_pause();
		kernels->widen(vector, format->dims, batch->query);
		for (uint32 j = 0; j < i; j++)
		{
			const char *other = batch_vector(batch, j);
			float		distance;

			if (memcmp(vector, other, format->vector_bytes) == 0)
			{
				note_equal(batch, i, j);
				note_equal(batch, j, i);
				continue;
			}
			distance = kernels->fast(batch->query, other, format->dims,
									 batch->inverse_norms[i] * batch->inverse_norms[j]);
			note_near(batch, i, distance, j);
			note_near(batch, j, distance, i);
		}
	}
}

/* Add row `other` of the batch to the candidates of a row. */
static void
add_candidate(const Batch *batch, uint32 other, double distance, Candidate *candidate)
{
	candidate->slot = batch->slots[other];
	candidate->index = candidate->slot;
	candidate->distance = distance;
}

/* Choose the row of one slot of the batch. */
static void
link_row(Batch *batch, uint32 i)
{
	uint32		slot = batch->slots[i];
	uint32		count = row_edits_search(batch->edits, slot, batch->format->ef_construction, batch->candidates);
	double		equal_distance = row_edits_distance(batch->edits, slot, slot);
	uint32		old[ENGINE_MAX_DEGREE];
	double		old_distances[ENGINE_MAX_DEGREE];
	SlotState	state;
	uint32		nold;

	for (uint32 n = 0; n < batch->near_count[i]; n++)
	{
		const NearRow *near = &batch->near[(Size) i * batch->near_room + n];

		add_candidate(batch, near->other, near->distance, &batch->candidates[count++]);
	}
	for (uint32 n = 0; n < Min(batch->equal_seen[i], batch->equal_room); n++)
		add_candidate(batch, batch->equal[(Size) i * batch->equal_room + n], equal_distance, &batch->candidates[count++]);

	/* A row that a pass cut short has written already keeps what it has as candidates. */
	nold = row_edits_get(batch->edits, slot, old, &state);
	row_edits_distances(batch->edits, slot, old, nold, old_distances);
	for (uint32 n = 0; n < nold; n++)
	{
		batch->candidates[count].slot = batch->candidates[count].index = old[n];
		batch->candidates[count++].distance = old_distances[n];
	}
	row_edits_choose(batch->edits, slot, batch->candidates, count);
}

/* Put the seeds in random order: whoever takes the first few has a sample. */
static void
shuffle(uint32 *slots, uint32 count, pg_prng_state *random)
{
	for (uint32 i = count; i > 1; i--)
	{
		uint32		j = pg_prng_uint64_range(random, 0, i - 1);
		uint32		slot = slots[i - 1];

		slots[i - 1] = slots[j];
		slots[j] = slot;
	}
}

/* Renew the sample, if the graph has grown by a twentieth, from what was linked since; linked is its size now. */
static void
renew_seeds(SeedSample *sample, const uint32 *slots, uint32 count, uint32 linked)
{
	uint32		wanted = seed_count(linked, sample->room);
	uint32		kept = Min(sample->count, (uint32) ((uint64) wanted * sample->sampled / linked));
	uint32		taken = 0;

	shuffle(sample->seeds, sample->count, &sample->random);
	if (kept + count < wanted)
		kept = Min(sample->count, wanted - count);
	for (uint32 i = 0; i < count && kept + taken < wanted; i++)
	{
		/* Take each with the chance that leaves as many as are needed. */
		if (pg_prng_uint64_range(&sample->random, 0, count - i - 1) < wanted - kept - taken)
			sample->seeds[kept + taken++] = slots[i];
	}
	sample->count = kept + taken;
	sample->sampled = linked;
	sample->renewed = true;
	shuffle(sample->seeds, sample->count, &sample->random);
}

/* Start the sample with the seeds that the index has. */
static void
load_seeds(SeedSample *sample, Relation index, const IndexFormat *format, const MetaPage *meta, uint32 next_fresh)
{
	uint32	   *seeds;

	memset(sample, 0, sizeof(*sample));
	pg_prng_seed(&sample->random, meta->change_seq);
	sample->room = Min(format->seed_pages * (uint32) GPUANN_SEEDS_PER_PAGE, SEEDS_MAX);
	sample->seeds = palloc(sizeof(uint32) * sample->room);
	sample->count = read_seeds(index, format, meta, sample->room, &seeds);
	for (uint32 i = 0; i < sample->count; i++)
		if (seeds[i] >= next_fresh)
			report_corrupt(index, 1 + i / GPUANN_SEEDS_PER_PAGE, "a seed does not exist");
	memcpy(sample->seeds, seeds, sizeof(uint32) * sample->count);
	sample->sampled = sample->count > 0 ? meta->linked_slots : 0;
	shuffle(sample->seeds, sample->count, &sample->random);
	pfree(seeds);
}

/* Link one batch. */
static void
link_batch(Batch *batch)
{
	compare_batch(batch);
	for (uint32 i = 0; i < batch->count; i++)
	{
		link_pause();
		link_row(batch, i);
	}
	row_edits_apply_offers(batch->edits);
}

/* Compute a pass, or with may_stop as much of it as memory allows; returns how many of its slots were linked. */
static uint32
compute_pass(Relation index, const IndexFormat *format, const LinkPass *pass, bool may_stop, LinkedRows *rows)
{
	MetaPage	meta;
	ListBounds	bounds;
	RowEdits   *edits;
	Batch	   *batch;
	SeedSample	sample;
	uint32		done = 0;
	uint32		renewed_at = 0;

	list_bounds(index, format, &meta, &bounds);
	edits = row_edits_begin(index, format, bounds.next_fresh, link_memory());
	batch = make_batch(edits, format, link_memory());
	load_seeds(&sample, index, format, &meta, bounds.next_fresh);
	while (done < pass->count)
	{
		uint64		linked = (uint64) meta.linked_slots + done;

		batch->slots = pass->slots + done;
		batch->count = Min(Min(batch->room, pass->count - done), Max(linked / 4, BATCH_LEAST));
		if (may_stop && done > 0 && !row_edits_have_room(edits, batch->count * (format->degree + 1)))
			break;
		row_edits_seeds(edits, sample.seeds, sample.count);
		link_batch(batch);
		done += batch->count;
		linked += batch->count;
		if (sample.count == 0 || linked - sample.sampled >= sample.sampled / 20)
		{
			renew_seeds(&sample, pass->slots + renewed_at, done - renewed_at, linked);
			renewed_at = done;
		}
	}

	row_edits_seeds(edits, sample.seeds, sample.count);
	if (done == pass->count)
		row_edits_connect(edits, done, link_memory());
	row_edits_take(edits, rows);
	if (sample.renewed)
	{
		rows->nseeds = sample.count;
		rows->seeds = sample.seeds;
	}
	row_edits_end(edits);
	return done;
}

/* Compute a pass over pages. */
void
link_over_pages(Relation index, const IndexFormat *format, const LinkPass *pass, LinkedRows *rows)
{
	(void) compute_pass(index, format, pass, false, rows);
}

/* The same, ending the pass where memory is used up. */
void
link_part_over_pages(Relation index, const IndexFormat *format, LinkPass *pass, LinkedRows *rows)
{
	uint32		done = compute_pass(index, format, pass, true, rows);

	if (done < pass->count)
		pass->to = pass->from + pass->offsets[done];
	pass->count = pass->live = done;
}
