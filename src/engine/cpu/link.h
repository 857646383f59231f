/*
 * link.h
 *		State of linking, shared by link*.c. Private to the CPU engine.
 */
#ifndef GPUANN_ENGINE_LINK_H
#define GPUANN_ENGINE_LINK_H

#include "engine/bits.h"
#include "engine/cpu/cpu.h"

#define BATCH_SMALL			512		/* a larger batch needs a larger graph */
#define BATCH_MAX			2048	/* limit then; fewer batches, so threads wait less often for the
									 * last row of one */

/*
 * Targets are grouped into ranges of slots; one thread updates a range. A range
 * has at least 64 slots, so that no two threads write to the same word of the
 * bitmap of changed rows.
 */
#define RANGES_MAX			1024
#define RANGE_MIN_SHIFT		6

/*
 * A reverse edge to add: from target to a row of the batch. For targets that
 * are in the batch themselves an entry says to write their own row.
 */
typedef struct BackEdge
{
	uint32_t	target;
	int32_t		item;			/* index in the batch; ~index: write the target's own row */
	float		distance;		/* fast distance between the two, which is symmetric to the bit */
} BackEdge;

/* A neighbour chosen for a row, in the order of the row. */
typedef struct Chosen
{
	uint32_t	slot;
	float		distance;
	bool		fresh;			/* new in this row: offered a reverse edge */
} Chosen;

/*
 * Cached distances of rows to their neighbours, for a long link. Without them
 * every reverse edge would need the distances of all neighbours again, which is
 * half the work of linking.
 */
typedef struct DistanceCache
{
	float	   *distances;		/* rows * degree, in the order of each row; NULL: no cache */
	uint8_t    *kept;			/* per row: number of kept neighbours, the rest are fill;
								 * NOT_CACHED: not cached yet */
	uint64_t	bytes;			/* taken from the budget */
} DistanceCache;

#define NOT_CACHED			0xFF	/* more than ENGINE_MAX_DEGREE */

/*
 * Half-precision copies of the rows, read by the walks of a long link
 * (link_half.c).
 */
typedef struct HalfRows
{
	char	   *vectors;		/* rows * stride; NULL: walks read the rows themselves */
	size_t		stride;			/* a multiple of the cache line */
	uint64_t	bytes;			/* taken from the budget */
	const DistanceKernels *kernels;
	_Atomic bool unfit;			/* a row cannot be represented in half precision */
	_Atomic uint64_t measured;	/* distances computed by walks */
	_Atomic uint64_t near;		/* how many of them were measured from the original rows */
} HalfRows;

/* A link in progress. */
typedef struct Linking
{
	CpuJob	   *job;
	Mirror	   *mirror;
	PruneRule	rule;
	bool		repairs;		/* JOB_REPAIR: rows that name dead slots; else pending rows */
	uint32_t	rows;			/* published when the link began */
	uint32_t   *slots;			/* to link or repair, in order */
	uint32_t	count;
	uint32_t	first;			/* the current batch: slots[first .. first + batch - 1] */
	uint32_t	batch;
	uint32_t	batch_most;
	bool		only_tried_ordered;	/* only the tried seeds have been ordered, not the lists */
	Chosen	   *chosen;			/* batch * degree */
	uint32_t   *nchosen;
	uint8_t    *nkept;			/* number of kept ones among them */
	DistanceCache cache;
	HalfRows	halves;
	BackEdge   *edges;			/* sorted by range of targets */
	uint32_t	range_shift;	/* slots of a range: 1 << range_shift */
	uint32_t	ranges[RANGES_MAX + 1]; /* where each range's edges begin, and the end */
	uint32_t   *seeds;			/* start slots of candidate searches */
	uint32_t	nseeds;
	uint64_t   *changed;		/* bitmap of rows */
	_Atomic bool no_memory;
} Linking;

/* Context of the callbacks of candidate searches and pruning. */
typedef struct LinkAccess
{
	const Linking *linking;
	CpuWorker  *worker;
} LinkAccess;

/*
 * link_slot.c: begin work on a slot: set it in the rule and, if `wide`, widen
 * its vector into the scratch. Returns false if cancelled or out of memory.
 */
extern bool link_begin_slot(Linking *linking, LinkScratch *scratch, uint32_t slot, bool wide,
							PruneRule *rule);

/* PairDistance over a LinkAccess; candidates are identified by slot. */
extern double link_pair_distance(void *access, uint32_t slot_a, uint32_t slot_b);

/* PairSquare over a LinkAccess, likewise. */
extern double link_square(void *access, uint32_t slot);

/* Make room for candidates and widened vectors in a worker's scratch. */
extern bool link_scratch_reserve(LinkScratch *scratch, uint32_t candidates, uint32_t dims);

/*
 * link_row.c: search the graph for candidates of a slot, whose vector is
 * widened in the worker's scratch.
 */
extern EngineStatus link_find_candidates(LinkAccess *access, uint32_t slot, double equal_distance,
										 GraphAnswer *answer);

/*
 * link_half.c: copy all rows in half precision, if that makes them shorter,
 * loses little precision, and fits into the budget; drop the copies between
 * batches if most distances have to be measured from the rows anyway; free
 * them.
 */
extern void link_half_begin(Linking *linking, CpuWorker *worker, int threads);
extern void link_half_check(Linking *linking);
extern void link_half_end(Linking *linking);
/* Begin a walk over the copies; measure distances; end the walk. */
extern void link_half_walk_begin(const LinkAccess *access, uint32_t slot, double equal_distance);
extern void link_half_distances(void *access, const uint32_t *slots, uint32_t count, double *out);
extern void link_half_walk_end(const LinkAccess *access);

/* link_repair.c */
extern bool link_collect_repairs(Linking *linking);

/*
 * link_seeds.c: choose seeds if the mirror has none, or the graph has grown by
 * 1/share beyond them. Between batches only the tried seeds are ordered,
 * because walks of a link use no seed lists; at the end all are. Replace dead
 * seeds by other linked slots, as far as there are any.
 */
extern EngineStatus link_renew_seeds(Linking *linking, uint32_t share, bool at_end);
extern EngineStatus link_replace_dead_seeds(Linking *linking);

/*
 * link_connectivity.c: make every row reachable, at the end of a link that is
 * not small or of a repair of all rows.
 */
extern EngineStatus link_connect(Linking *linking, CpuWorker *worker);

/* Record that a row has changed. */
static inline void
link_mark_changed(Linking *linking, uint32_t slot)
{
	bit64_set(linking->changed, slot);
}

/* Items of a batch's two phases: a row of it, a range of targets. */
extern void link_choose_row(void *linking, uint32_t item, CpuWorker *worker);
extern void link_repair_row(void *linking, uint32_t item, CpuWorker *worker);
extern void link_update_range(void *linking, uint32_t range, CpuWorker *worker);

#endif							/* GPUANN_ENGINE_LINK_H */
