/*
 * link_seeds.c
 *		Choose seeds for a mirror, evenly spread over its slots, and order them
 *		(seeds.h).
 */
#include <stdlib.h>

#include "engine/cpu/link.h"
#include "engine/connectivity.h"
#include "engine/seeds.h"

/* Context of measure_seeds(), for at most 4,096 x 1,024 distances. */
typedef struct MeasuredSeeds
{
	const Mirror *mirror;
	const DistanceKernels *kernels;
	const uint32_t *seeds;
	uint32_t	pool;
	float	   *wide;
	JobWatch   *watch;
} MeasuredSeeds;

/* SeedMeasure; runs waiting queries in between. */
static void
measure_mirror_seeds(void *context, uint32_t seed, float *out)
{
	const MeasuredSeeds *measured = context;
	const Mirror *mirror = measured->mirror;
	const void *vector = mirror_vector(mirror, measured->seeds[seed]);
	bool		cosine = mirror->spec.metric == METRIC_COSINE;
	float		scale = cosine ? mirror_vector_scale(mirror, vector) : 1.0f;

	measured->kernels->widen(vector, mirror->spec.dims, measured->wide);
	for (uint32_t i = 0; i < measured->pool; i++)
		out[i] = measured->kernels->fast(
			measured->wide, mirror_vector(mirror, measured->seeds[i]), mirror->spec.dims,
			cosine ? scale * mirror_scale(mirror, measured->seeds[i]) : 1.0f);
	if (measured->watch->yield != NULL)
		measured->watch->yield(measured->watch->context);
}

/*
 * Order the seeds, or only those that are tried. Without memory they stay as
 * they are.
 */
static void
order_seeds(const Mirror *mirror, uint32_t *seeds, uint32_t count, bool tried_only, JobWatch *watch)
{
	MeasuredSeeds measured = {mirror, seeds_kernels(mirror->spec.type, mirror->spec.metric),
							  seeds,  count < SEEDS_ORDERED ? count : SEEDS_ORDERED,
							  NULL,	  watch};
	const SeedMeasure measure = {&measured, measure_mirror_seeds, measured.pool, tried_only};
	void	   *memory;

	if (count <= ENGINE_SEEDS_TRIED)
		return;
	memory = malloc(seeds_order_bytes());
	measured.wide = wide_alloc(mirror->spec.dims);
	if (memory != NULL && measured.wide != NULL)
		seeds_order(seeds, count, &measure, memory);
	free(memory);
	free(measured.wide);
}

/*
 * Append seeds that are spread over the linked slots, as is any prefix of them;
 * taken is a bitmap of seeds in use. Returns the new number of seeds.
 */
static uint32_t
choose_mirror_seeds(const Mirror *mirror, uint32_t rows, uint32_t want, uint64_t *taken, uint32_t *seeds,
			 uint32_t count)
{
	for (uint64_t i = 0; i < (uint64_t) want * 4 && count < want; i++)
	{
		uint32_t	start = seed_place((uint32_t) i, rows);

		for (uint32_t j = 0; j < SLOTS_PER_SEED && start + j < rows; j++)
		{
			uint32_t	slot = start + j;

			if (!mirror_in_graph(mirror, slot) || bit64_is_set(taken, slot))
				continue;
			bit64_set(taken, slot);
			seeds[count++] = slot;
			break;
		}
	}
	return count;
}

EngineStatus
link_renew_seeds(Linking *linking, uint32_t share, bool at_end)
{
	Mirror	   *mirror = linking->mirror;
	uint32_t	rows = linking->rows;
	uint32_t	want = seed_count(atomic_load(&mirror->linked), SEEDS_MAX);
	uint32_t	have = atomic_load(&mirror->nseeds);
	uint64_t   *taken;
	uint32_t   *seeds;
	EngineStatus status = ENGINE_NO_MEMORY;

	if (have > 0 && want <= have + have / share && !(at_end && linking->only_tried_ordered))
		return ENGINE_OK;
	taken = calloc(((size_t) rows + 63) / 64 + 1, sizeof(uint64_t));
	seeds = malloc((size_t) want * sizeof(uint32_t) + 1);
	if (taken != NULL && seeds != NULL)
	{
		uint32_t	kept = 0;

		/*
		 * Keep the first seeds: every row is reachable from them, and perhaps
		 * from no others.
		 */
		for (uint32_t i = 0; i < have && i < REACH_SEEDS && kept < want; i++)
		{
			uint32_t	slot = atomic_load(&mirror->seeds[i]);

			if (!mirror_in_graph(mirror, slot))
				continue;
			bit64_set(taken, slot);
			seeds[kept++] = slot;
		}
		want = choose_mirror_seeds(mirror, rows, want, taken, seeds, kept);
		order_seeds(mirror, seeds, want, !at_end, &linking->job->watch);
		linking->only_tried_ordered = !at_end;
		status = mirror_set_seeds(mirror, seeds, want, NULL);
	}
	free(taken);
	free(seeds);
	return status;
}

EngineStatus
link_replace_dead_seeds(Linking *linking)
{
	Mirror	   *mirror = linking->mirror;
	uint32_t	have = atomic_load(&mirror->nseeds);
	uint64_t   *taken = calloc((size_t) linking->rows / 64 + 1, sizeof(uint64_t));
	uint32_t   *seeds = malloc(2 * (size_t) have * sizeof(uint32_t) + 1);
	uint32_t	dead = 0;
	uint32_t	kept = 0;
	uint32_t	used = 0;
	uint32_t	nfresh;
	EngineStatus status = taken != NULL && seeds != NULL ? ENGINE_OK : ENGINE_NO_MEMORY;

	for (uint32_t i = 0; status == ENGINE_OK && i < have; i++)
	{
		seeds[i] = atomic_load(&mirror->seeds[i]);
		dead += mirror_is_dead(mirror, seeds[i]);
		bit64_set(taken, seeds[i]);
	}
	if (status == ENGINE_OK && dead > 0)
	{
		nfresh = choose_mirror_seeds(mirror, linking->rows, dead, taken, seeds + have, 0);
		for (uint32_t i = 0; i < have; i++)
			if (!mirror_is_dead(mirror, seeds[i]))
				seeds[kept++] = seeds[i];
			else if (used < nfresh)
				seeds[kept++] = seeds[have + used++];
		order_seeds(mirror, seeds, kept, false, &linking->job->watch);
		status = mirror_set_seeds(mirror, seeds, kept, NULL);
	}
	free(taken);
	free(seeds);
	return status;
}
