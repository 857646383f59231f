/*
 * link_repair.c
 *		Repair: choose new neighbours for live rows that name dead slots, and
 *		replace dead seeds.
 *
 * First the rows to repair are collected. Then they go through batches as
 * pending rows do (link.c): repair_row.c chooses the neighbours, the rows are
 * written, and new neighbours are offered reverse edges. Until a row is
 * repaired it keeps its edges to dead slots, through which searches continue.
 */
#include <stdlib.h>

#include "engine/cpu/link.h"

/* A row being repaired. */
typedef struct RowRepair
{
	LinkAccess	access;
	PruneRule	rule;
} RowRepair;

/* RepairAccess */
static uint32_t
repair_read_row(void *context, uint32_t slot, uint32_t *neighbours)
{
	const Linking *linking = ((RowRepair *) context)->access.linking;

	return mirror_read_row(linking->mirror, slot, linking->rows, neighbours);
}

static bool
repair_is_dead(void *context, uint32_t slot)
{
	return mirror_is_dead(((RowRepair *) context)->access.linking->mirror, slot);
}

static void
repair_distances(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	const LinkAccess *access = &((RowRepair *) context)->access;

	for (uint32_t i = 0; i < count; i += ENGINE_MAX_DEGREE)
		mirror_fast_many(access->linking->mirror, &access->worker->link.wide, slots + i,
						 count - i < ENGINE_MAX_DEGREE ? count - i : ENGINE_MAX_DEGREE, out + i);
}

static uint32_t
repair_search(void *context, Candidate *candidates)
{
	RowRepair  *repair = context;
	GraphAnswer answer;
	uint32_t	most = REPAIR_SEARCHED(repair->access.linking->job->in.ef_construction);
	uint32_t	count;

	if (link_find_candidates(&repair->access, repair->rule.self, repair->rule.equal_distance,
							 &answer) != ENGINE_OK)
	{
		atomic_store(&((Linking *) repair->access.linking)->no_memory, true);
		return 0;
	}
	count = answer.count < most ? answer.count : most;
	for (uint32_t i = 0; i < count; i++)
		candidates[i] =
			(Candidate){answer.results[i].distance, answer.results[i].slot, answer.results[i].slot};
	return count;
}

static uint32_t
repair_choose(void *context, Candidate *candidates, uint32_t count, Candidate *chosen,
			  uint32_t *kept)
{
	RowRepair  *repair = context;

	return prune_choose(&repair->rule, candidates, count, link_pair_distance, &repair->access,
						chosen, kept);
}

/* The callbacks of repair_row.c. */
static RepairAccess
repair_access(RowRepair *repair)
{
	return (RepairAccess){.context = repair,
						  .row = repair_read_row,
						  .dead = repair_is_dead,
						  .distances = repair_distances,
						  .search = repair_search,
						  .choose = repair_choose};
}

/* Allocate a worker's memory for repairs of this degree and ef. */
static bool
repair_reserve(LinkScratch *scratch, uint32_t degree, uint32_t ef)
{
	if (scratch->repair_memory != NULL && scratch->repair.degree == degree &&
		scratch->repair.ef == ef)
		return true;
	free(scratch->repair_memory);
	scratch->repair_memory = malloc(repair_scratch_bytes(degree, ef));
	if (scratch->repair_memory != NULL)
		repair_scratch_init(&scratch->repair, scratch->repair_memory, degree, ef);
	return scratch->repair_memory != NULL;
}

/* Choose new neighbours for one row of the batch. */
void
link_repair_row(void *context, uint32_t item, CpuWorker *worker)
{
	Linking    *linking = context;
	LinkScratch *scratch = &worker->link;
	uint32_t	slot = linking->slots[linking->first + item];
	uint32_t	degree = linking->rule.degree;
	RowRepair	repair = {.access = {linking, worker}, .rule = linking->rule};
	RepairAccess access = repair_access(&repair);
	Candidate	row[ENGINE_MAX_DEGREE + 1];
	uint32_t	before[ENGINE_MAX_DEGREE];
	uint32_t	nbefore = mirror_read_row(linking->mirror, slot, linking->rows, before);
	uint32_t	count;
	uint32_t	kept;

	linking->nchosen[item] = 0;
	if (!link_begin_slot(linking, scratch, slot, true, &repair.rule))
		return;
	if (!repair_reserve(scratch, degree, linking->job->in.ef_construction))
	{
		atomic_store(&linking->no_memory, true);
		return;
	}
	count = repair_row(&access, &scratch->repair, slot, repair.rule.equal_distance, row, &kept);
	for (uint32_t i = 0; i < count; i++)
	{
		bool		fresh = true;

		for (uint32_t j = 0; j < nbefore && fresh; j++)
			fresh = before[j] != row[i].slot;
		linking->chosen[(size_t) item * degree + i] =
			(Chosen){row[i].slot, (float) row[i].distance, fresh};
	}
	linking->nchosen[item] = count;
	linking->nkept[item] = (uint8_t) kept;
}

/* Whether a slot's row needs repair. */
static bool
needs_repair(RowRepair *repair, uint32_t slot)
{
	RepairAccess access = repair_access(repair);
	uint32_t	row[ENGINE_MAX_DEGREE];

	return (mirror_word(repair->access.linking->mirror, slot) &
			(WORD_LINKED | WORD_PENDING | WORD_DEAD)) == WORD_LINKED &&
		   repair_needed(&access, row, repair_read_row(repair, slot, row));
}

/*
 * Collect the rows to repair, among the slots named or all, each once. The
 * bitmap of changed rows, still empty, serves to find duplicates, and is
 * cleared again.
 */
bool
link_collect_repairs(Linking *linking)
{
	const EngineJob *in = &linking->job->in;
	RowRepair	repair = {.access = {linking, NULL}};
	JobWatch   *watch = &linking->job->watch;
	uint32_t	most = in->slots != NULL ? in->count : linking->rows;

	linking->slots = malloc((size_t) most * sizeof(uint32_t) + 1);
	for (uint32_t i = 0; linking->slots != NULL && i < most &&
						 !atomic_load_explicit(&watch->cancelled, memory_order_relaxed);
		 i++)
	{
		uint32_t	slot = in->slots != NULL ? in->slots[i] : i;

		if (i % 4096 == 4095 && watch->yield != NULL)
			watch->yield(watch->context);
		if (slot >= linking->rows || bit64_is_set(linking->changed, slot) ||
			!needs_repair(&repair, slot))
			continue;
		bit64_set(linking->changed, slot);
		linking->slots[linking->count++] = slot;
	}
	for (uint32_t i = 0; i < linking->count; i++)
		linking->changed[linking->slots[i] / 64] = 0;
	return linking->slots != NULL;
}
