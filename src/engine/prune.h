/*
 * prune.h
 *		Select the neighbours of a slot among candidates. Used by the engines'
 *		linking and by the page path.
 */
#ifndef GPUANN_PRUNE_H
#define GPUANN_PRUNE_H

#include "engine/engine.h"

typedef struct Candidate
{
	double		distance;		/* to the slot whose neighbours are chosen */
	uint32_t	slot;
	uint32_t	index;			/* the caller's index of its vector */
} Candidate;

/* Distance between two candidates' vectors, by their index. */
typedef double (*PairDistance) (void *context, uint32_t index_a, uint32_t index_b);

/*
 * Inner product of a candidate's vector with itself, by index; METRIC_IP only.
 */
typedef double (*PairSquare) (void *context, uint32_t index);

typedef struct PruneRule
{
	uint32_t	degree;			/* maximum number of neighbours */
	uint32_t	self;			/* the slot whose neighbours are chosen; never its own neighbour */
	double		equal_distance; /* distance of the slot to itself: 0, or the negated square for
								 * METRIC_IP */
	uint32_t	max_equal;		/* maximum number of the slot's duplicates among them, chosen at
								 * random */
	Metric		metric;
	PairSquare	square;			/* with PairDistance's context; METRIC_IP only */
} PruneRule;

/*
 * Margin added to the distance between a candidate and a neighbour before it is
 * compared with the distance between the candidate and the slot. A neighbour
 * hides a candidate if the sum is less. The margin is 0; for METRIC_IP it is
 * half of what the neighbour's square exceeds the slot's by, if it does.
 *
 * By inner product alone a long neighbour is nearer to every candidate than a
 * short slot is, and would hide them all. So a neighbour hides a candidate only
 * if it is nearer both by inner product and by squared difference: |c - n|^2 <
 * |c - s|^2 is -cn + (nn - ss) / 2 < -cs. Inner product alone leaves rows with
 * edges to a few hubs; squared difference alone removes edges to long rows,
 * which queries look for, from rows of many dimensions.
 */
static inline double
prune_margin(const PruneRule *rule, void *context, uint32_t neighbour)
{
	double		excess;

	if (rule->metric != METRIC_IP)
		return 0;
	excess = rule->square(context, neighbour) + rule->equal_distance;
	return excess > 0 ? excess / 2 : 0;
}

/*
 * Index of the fill entry, nearest first, to remove from a row that overflows.
 * The nearest are expanded next by a search, but a far one may be the only path
 * to another cluster, so a quarter of the places is for the farthest.
 */
static inline uint32_t
prune_surplus(uint32_t nfill)
{
	return nfill * 3 / 4;
}

/*
 * Sort candidates by (distance, slot), remove repeated slots, and write the
 * neighbours chosen in the order of the row; the first *kept of them are kept,
 * the others are fill.
 *
 * A candidate is kept if no kept one is nearer to it than the slot is
 * (prune_margin()). The remaining places are filled with the nearest of the
 * others, duplicates of kept ones last. chosen has room for rule->degree;
 * returns how many. (Vamana's robust prune with alpha 1; HNSW's heuristic,
 * algorithm 4)
 *
 * Order of the row: the kept, nearest first; the farthest of the fill; the rest
 * of the fill, nearest first. So row_kept() can tell from the distances where
 * the fill begins, and it need not be stored. The farthest comes first because
 * all fill may be farther than the kept ones, as for rows along a line.
 */
extern uint32_t prune_choose(const PruneRule *rule, Candidate *candidates, uint32_t count,
							 PairDistance pair, void *context, Candidate *chosen, uint32_t *kept);

/*
 * Number of kept neighbours of a row, from distances in the row's order: these
 * descend after the fill's farthest entry, or, if that is nearer than the last
 * kept one, before and after it. With one or two fill entries the farthest may
 * be counted as kept.
 */
extern uint32_t row_kept(const double *distances, uint32_t count);

/*
 * Number of seeds of a graph: linked / SLOTS_PER_SEED, at most room, and at
 * least 1 if any slot is linked.
 */
extern uint32_t seed_count(uint32_t linked, uint32_t room);

/*
 * Where below n slots to look for the i-th seed. The places of any prefix 0, 1,
 * 2, ... are spread over all slots.
 */
extern uint32_t seed_place(uint32_t i, uint32_t n);

#define SEEDS_MAX			65536
#define SLOTS_PER_SEED			64		/* one seed per this many slots */

/* Share of a row that duplicates may take. */
#define PRUNE_MAX_EQUAL(degree) ((degree) / 4 > 0 ? (degree) / 4 : 1)

#endif							/* GPUANN_PRUNE_H */
