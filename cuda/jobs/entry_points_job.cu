/*
 * entry_points_job.cu
 *		When lists of entries are made (cuda/graph/entry_points.h): a stage of
 *		the jobs that bring graph rows or seeds, and before batches of a link.
 */
#include "cuda/jobs/entry_points_job.h"
#include "cuda/memory/mirror_seeds.h"

#define RELINKED_DIVISOR 4u /* lists are rebuilt when 1 / this of the linked rows is new */
#ifdef EMULATED
#define MIN_SAMPLE 128u /* entries of a link's lists, at least: fewer are no better than seeds */
#else
#define MIN_SAMPLE 512u
#endif
#define LINKED_DIVISOR 4u	  /* 1 / this of the rows linked so far are entries of a link's lists */

uint64_t
entry_points_sum(const uint32_t *seeds, uint32_t nseeds)
{
	uint64_t sum = 14695981039346656037ull;

	for (uint32_t i = 0; i < nseeds && i < ENTRIES_MAX; i++)
		sum = (sum ^ seeds[i]) * 1099511628211ull;
	return sum;
}

/*
 * How many entries a mirror is to have that will have so many seeds; 0: no
 * lists.
 */
static uint32_t
entry_points_wanted(const CudaMirror *mirror, uint32_t nseeds)
{
	bool bits = mirror->spec.type == ELEMENT_BIT;
	uint32_t most = entry_points_max(mirror->rows);

	/* bits in host memory would be read as often as there are pivots */
	if (nseeds <= ENGINE_SEEDS_TRIED ||
		(bits ? mirror_device_rows(mirror) < mirror->rows : !mirror->codes_good))
		return 0;
	return nseeds < most ? nseeds : most;
}

/*
 * The lists of a buffer (entry_points_of). While queries are in flight the
 * kernels that make them have one block per SM, which leaves queries the rest.
 */
static EntryPoints
lists_of(const CudaEngine *engine, const CudaMirror *mirror, uint32_t side, const uint32_t *entries,
		 uint32_t nentries, uint32_t npivots)
{
	EntryPoints lists = entry_points_of(mirror, side, entries, nentries, npivots);

	lists.blocks =
		queries_active(engine) ? (uint32_t) engine->device.properties.multiProcessorCount : 0;
	return lists;
}

/* Build the buffer that no later batch reads; those in flight may. */
static bool
entry_points_send(CudaEngine *engine, CudaMirror *mirror, const uint32_t *entries, uint32_t count)
{
	MirrorView view = entry_points_view(mirror);
	EntryPoints lists = lists_of(engine, mirror, mirror->entries_side ^ 1, entries, count,
								 entry_points_pivots(count));

	return batch_streams_wait(engine, mirror) &&
		   GPU(&engine->device.failure,
			   entry_points_make(&view, &lists, engine->device.job_stream));
}

/* --- for links ------------------------------------------------------------ */

bool
entry_points_may_be(const CudaMirror *mirror)
{
	if (mirror->spec.type == ELEMENT_BIT)
		return mirror_device_rows(mirror) >= mirror->rows;
	return mirror->has_code_room && mirror->code_steps != 0 && mirror->coded == mirror->rows;
}

/*
 * How many entries a link's lists have, and how many of these are seeds: as
 * many as rows that were linked before it, if there are.
 */
static uint32_t
sample_size(const CudaMirror *mirror, uint32_t count, uint32_t linked, uint32_t *of_seeds)
{
	uint32_t most = entry_points_max(mirror->rows);
	uint32_t wanted = linked / LINKED_DIVISOR < most ? linked / LINKED_DIVISOR : most;

	*of_seeds = linked > 0 ? (uint32_t) ((uint64_t) wanted * (linked - count) / linked) : 0;
	*of_seeds = *of_seeds < mirror->nseeds ? *of_seeds : mirror->nseeds;
	return count < wanted - *of_seeds ? *of_seeds + count : wanted;
}

bool
entry_points_are_enough(const CudaMirror *mirror, uint32_t count, uint32_t linked)
{
	uint32_t of_seeds;

	return sample_size(mirror, count, linked, &of_seeds) >= MIN_SAMPLE;
}

uint32_t
entry_points_make_of(CudaEngine *engine, CudaMirror *mirror, const uint32_t *slots, uint32_t count,
				uint32_t linked)
{
	uint32_t *entries = (uint32_t *) mirror->seeds.base + (mirror->seeds_side ^ 1) * SEEDS_ROOM;
	const uint32_t *seeds = (const uint32_t *) mirror->seeds.base + mirror->seeds_side * SEEDS_ROOM;
	uint32_t of_seeds;
	uint32_t wanted = sample_size(mirror, count, linked, &of_seeds);

	if (!batch_streams_wait(engine, mirror))
		return 0;
	return GPU(&engine->device.failure,
			   entry_points_sample_launch(entries, wanted, seeds, of_seeds, slots, count,
										  engine->device.job_stream)) &&
				   entry_points_send(engine, mirror, entries, wanted)
			   ? entry_points_pivots(wanted)
			   : 0;
}

const uint32_t *
entry_points_choose(CudaEngine *engine, CudaMirror *mirror, uint32_t made, const uint32_t *slots,
			   uint32_t count, uint32_t *near)
{
	MirrorView view = entry_points_view(mirror);
	uint32_t side = made > 0 ? mirror->entries_side ^ 1 : mirror->entries_side;
	EntryPoints lists =
		lists_of(engine, mirror, side, slots, count, made > 0 ? made : view.npivots);

	lists.choices = near;
	return GPU(&engine->device.failure,
			   entry_points_choose_launch(&view, &lists, engine->device.job_stream))
			   ? lists.pivots + lists.npivots
			   : NULL;
}

/* --- the stage ------------------------------------------------------------ */

bool
entry_points_stage(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	uint64_t sum = job->has_seeds ? entry_points_sum(job->seeds, job->nseeds) : mirror->seeds_sum;
	uint32_t wanted = entry_points_wanted(mirror, job->has_seeds ? job->nseeds : mirror->nseeds);
	const uint32_t *seeds =
		(const uint32_t *) mirror->seeds.base +
		(job->has_seeds ? mirror->seeds_side ^ 1 : mirror->seeds_side) * SEEDS_ROOM;
	Piece *piece;

	if (wanted == mirror->nentries &&
		(wanted == 0 || (sum == mirror->entry_points_sum &&
						 mirror->relinked <= mirror->linked / RELINKED_DIVISOR)))
		return true;
	if (wanted > 0)
	{
		piece = piece_free(engine);
		if (piece == NULL || !entry_points_send(engine, mirror, seeds, wanted) ||
			!piece_send(engine, job, piece))
			return false;
	}
	job->has_entries = true;
	job->nentries = wanted;
	job->entry_points_sum = sum;
	mirror->relinked = 0;
	return true;
}
