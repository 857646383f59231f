/*
 * link.h
 *		Linking, between its batches (link.c) and its rows (link_row.c). Private
 *		to the CPU engine.
 */
#ifndef GPUANN_ENGINE_LINK_H
#define GPUANN_ENGINE_LINK_H

#include "engine/bits.h"
#include "engine/cpu.h"

#define BATCH_SMALL			512		/* a batch is larger only in a graph that is large, */
#define BATCH_MAX			2048	/* up to this: less often all threads wait for the last one */

/*
 * Where a target's slot lies: targets of one range are updated by one thread.
 * At least 64 slots, so that no two threads write to one word of the bitmap of
 * changed rows.
 */
#define RANGES_MAX			1024
#define RANGE_MIN_SHIFT		6

/*
 * An edge back: target shall know a row of the batch. Of a target that is of
 * the batch itself, its own row is to be written.
 */
typedef struct BackEdge
{
	uint32_t	target;
	int32_t		item;			/* of the batch; ~item: the target itself */
	float		distance;		/* between them: the fast distance is symmetric to the bit */
} BackEdge;

/* A neighbour chosen for a row, in the row's order. */
typedef struct Chosen
{
	uint32_t	slot;
	float		distance;
	bool		fresh;			/* the row did not have it: it is to have an edge back */
} Chosen;

/*
 * What a long link remembers of rows beside their neighbours. Taking in one
 * edge back would else mean to compute the distances of all neighbours anew,
 * which is half the work of linking.
 */
typedef struct RowMemory
{
	float	   *distances;		/* rows * degree: of the neighbours, in the row's order; NULL:
								 * nothing is remembered */
	uint8_t    *kept;			/* per row: so many neighbours are kept, the others fill;
								 * ROW_UNKNOWN: not remembered yet */
	uint64_t	bytes;			/* taken from the budget */
} RowMemory;

#define ROW_UNKNOWN			0xFF	/* more than ENGINE_MAX_DEGREE */

/*
 * Copies of the rows as halves, which the walks of a long link read
 * (link_half.c).
 */
typedef struct HalfRows
{
	char	   *vectors;		/* rows * stride; NULL: walks read the rows */
	size_t		stride;			/* whole cache lines */
	uint64_t	bytes;			/* taken from the budget */
	const DistanceKernels *kernels;
	_Atomic bool unfit;			/* a row was met that halves cannot hold */
	_Atomic uint64_t met;		/* distances of walks, */
	_Atomic uint64_t near;		/* and how many of them were measured from the rows */
} HalfRows;

/* A link under way. */
typedef struct Linking
{
	CpuJob	   *job;
	Mirror	   *mirror;
	PruneRule	rule;
	bool		repairs;		/* rows that name dead slots; else pending ones */
	uint32_t	rows;			/* published when it began */
	uint32_t   *slots;			/* to link or repair, in order */
	uint32_t	count;
	uint32_t	first;			/* the batch */
	uint32_t	batch;
	uint32_t	batch_most;
	bool		seeds_tried_only;	/* in order are only those that are tried */
	Chosen	   *chosen;			/* batch * degree */
	uint32_t   *nchosen;
	uint8_t    *nkept;			/* of them kept */
	RowMemory	memory;
	HalfRows	halves;
	BackEdge   *edges;			/* by range of targets */
	uint32_t	range_shift;	/* slots of a range: 1 << range_shift */
	uint32_t	ranges[RANGES_MAX + 1]; /* where each range's edges begin, and the end */
	uint32_t   *seeds;			/* of the candidate searches */
	uint32_t	nseeds;
	uint64_t   *changed;		/* bitmap of rows */
	_Atomic bool no_memory;
} Linking;

/* What the callbacks of a candidate search and of pruning need. */
typedef struct LinkAccess
{
	const Linking *linking;
	Worker	   *worker;
} LinkAccess;

/*
 * Make a slot the one that is worked on: known to the rule and, if wanted, wide
 * in the scratch. False: cancelled, or no memory.
 */
extern bool link_begin_slot(Linking *linking, LinkScratch *scratch, uint32_t slot, bool wide,
							PruneRule *rule);

/* PairDistance over a LinkAccess: candidates are known by their slots. */
extern double link_pair_distance(void *access, uint32_t slot_a, uint32_t slot_b);

/* PairSquare over a LinkAccess, likewise. */
extern double link_square(void *access, uint32_t slot);

/*
 * Search the graph for candidates of a slot, which is wide in the worker's
 * scratch.
 */
extern EngineStatus link_find_candidates(LinkAccess *access, uint32_t slot, double equal_distance,
										 GraphAnswer *answer);

/* Make room in a worker's scratch for candidates and wide vectors. */
extern bool link_scratch_reserve(LinkScratch *scratch, uint32_t candidates, uint32_t dims);

/*
 * link_half.c: copy all rows as halves, if these are shorter, hold them well
 * enough, and the budget has room; give the copies up if it turns out, between
 * batches, that most of what walks meet is nearer than they tell; free them.
 */
extern void link_half_begin(Linking *linking, Worker *worker, int threads);
extern void link_half_review(Linking *linking);
extern void link_half_end(Linking *linking);
/* One walk over the copies: before, during, and after it. */
extern void link_half_aim(const LinkAccess *access, uint32_t slot, double equal_distance);
extern void link_half_distances(void *access, const uint32_t *slots, uint32_t count, double *out);
extern void link_half_note(const LinkAccess *access);

/* link_repair.c */
extern bool link_collect_broken(Linking *linking);

/*
 * link_seeds.c: give the mirror seeds if it has none, or has grown by that part
 * beyond those it has; between the batches of a link only those that are tried
 * are put in order, for walks of a link look at no lists; in order at the end,
 * if they are not yet. Replace the seeds that are dead by other slots of the
 * graph, as far as there are any.
 */
extern EngineStatus link_renew_seeds(Linking *linking, uint32_t share, bool at_end);
extern EngineStatus link_replace_dead_seeds(Linking *linking);

/*
 * link_connectivity.c: the end of a link that is not small, or of a repair of
 * all rows: every row can be reached.
 */
extern EngineStatus link_connect(Linking *linking, Worker *worker);

/* Note that a row has changed. */
static inline void
link_mark_changed(Linking *linking, uint32_t slot)
{
	bit64_set(linking->changed, slot);
}

/* Items of the two phases of a batch: a row of it, a range of targets. */
extern void link_choose_row(void *linking, uint32_t item, Worker *worker);
extern void link_repair_row(void *linking, uint32_t item, Worker *worker);
extern void link_update_range(void *linking, uint32_t range, Worker *worker);

#endif							/* GPUANN_ENGINE_LINK_H */
