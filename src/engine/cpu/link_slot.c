/*
 * link_slot.c
 *		A worker's memory for linking: the slot at hand, widened, and distances
 *		between candidates.
 */
#include <stdlib.h>

#include "engine/cpu/link.h"

/* Free a worker's memory for linking. */
void
link_scratch_free(LinkScratch *scratch)
{
	free(scratch->candidates);
	free(scratch->wide.elements);
	free(scratch->pair.elements);
	free(scratch->repair_memory);
}

/* Make room for candidates and widened vectors. */
bool
link_scratch_reserve(LinkScratch *scratch, uint32_t candidates, uint32_t dims)
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
		scratch->wide.elements = wide_alloc(dims);
		scratch->pair.elements = wide_alloc(dims);
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

/* Widened elements of a slot and its scale. Only halves need to be copied. */
static const float *
wide_slot(const Mirror *mirror, uint32_t slot, WideVector *wide)
{
	if (mirror->spec.type != ELEMENT_HALF)
	{
		wide->scale = mirror_scale(mirror, slot);
		return mirror_vector(mirror, slot);
	}
	widen_slot(mirror, slot, wide);
	return wide->elements;
}

/*
 * PairDistance: candidates are identified by slot; the first one stays widened
 * while it is compared with others.
 */
double
link_pair_distance(void *context, uint32_t slot_a, uint32_t slot_b)
{
	const LinkAccess *access = context;
	const Mirror *mirror = access->linking->mirror;
	LinkScratch *scratch = &access->worker->link;

	if (scratch->pair_slot != slot_a)
	{
		scratch->pair_elements = wide_slot(mirror, slot_a, &scratch->pair);
		scratch->pair_slot = slot_a;
	}
	return mirror->kernels->fast(scratch->pair_elements, mirror_vector(mirror, slot_b),
								 mirror->spec.dims,
								 scratch->pair.scale * mirror_scale(mirror, slot_b));
}

/* PairSquare, for METRIC_IP. */
double
link_square(void *context, uint32_t slot)
{
	return mirror_square(((const LinkAccess *) context)->linking->mirror, slot);
}

/*
 * Begin work on a slot: set it in the rule and, if `wide`, widen its vector
 * into the scratch. Returns false if cancelled or out of memory.
 */
bool
link_begin_slot(Linking *linking, LinkScratch *scratch, uint32_t slot, bool wide, PruneRule *rule)
{
	Metric		metric = linking->mirror->spec.metric;

	if (atomic_load_explicit(&linking->job->watch.cancelled, memory_order_relaxed))
		return false;
	if (!link_scratch_reserve(scratch, 0, linking->mirror->spec.dims))
	{
		atomic_store(&linking->no_memory, true);
		return false;
	}
	scratch->pair_slot = NO_SLOT;
	rule->self = slot;
	rule->equal_distance = 0;
	if (!wide && (metric == METRIC_L2 || metric == METRIC_L1))
		return true;			/* the distance is 0, no need to fetch the vector for it */
	widen_slot(linking->mirror, slot, &scratch->wide);
	rule->equal_distance = mirror_fast(linking->mirror, &scratch->wide, slot);
	return true;
}
