/*
 * prune.h
 *		Which candidates become a slot's graph row: used by the engines' linking
 *		and by the page path's.
 */
#ifndef GPUANN_PRUNE_H
#define GPUANN_PRUNE_H

#include "engine/engine.h"

typedef struct Candidate
{
	double		distance;		/* to the slot whose row is chosen */
	uint32_t	slot;
	uint32_t	index;			/* where the caller keeps its vector */
} Candidate;

/* Distance between two candidates' vectors, by their index. */
typedef double (*PairDistance) (void *context, uint32_t index_a, uint32_t index_b);

/*
 * The inner product of a candidate's vector with itself, by its index; of
 * METRIC_IP only.
 */
typedef double (*PairSquare) (void *context, uint32_t index);

typedef struct PruneRule
{
	uint32_t	degree;			/* most neighbours kept */
	uint32_t	self;			/* the slot whose row is chosen; never its own neighbour */
	double		equal_distance; /* the slot's distance to itself: 0, or the negated square for
								 * METRIC_IP */
	uint32_t	max_equal;		/* most neighbours kept that are equal to the slot itself (its
								 * duplicates), at random */
	Metric		metric;
	PairSquare	square;			/* with PairDistance's context; called for METRIC_IP only */
} PruneRule;

/*
 * What is added to the distance between a candidate and a neighbour of the row
 * before it is compared with that between the candidate and the row's slot: the
 * less is the nearer. 0, or for METRIC_IP half of what the neighbour's square
 * exceeds the slot's by.
 *
 * By inner product alone a long neighbour is nearer to every candidate than a
 * short slot is, and would hide them all. So a neighbour hides a candidate only
 * if it is nearer both by inner product and by squared difference:
 * |c - n|^2 < |c - s|^2 is -cn + (nn - ss) / 2 < -cs. The first alone leaves
 * rows with edges to a few hubs; the second alone takes edges to long rows,
 * which are what queries ask for, from rows of many dimensions.
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
 * Which of the fill, nearest first, goes from a row that overflows. The
 * nearest is what a search asks for next; a far one may be the only way to
 * another cluster. So of four places one is for the farthest.
 */
static inline uint32_t
prune_surplus(uint32_t nfill)
{
	return nfill * 3 / 4;
}

/*
 * Sort candidates by (distance, slot), drop duplicates of a slot, and write
 * those that are chosen in the order of the row; the first *kept of them are
 * kept, the others fill.
 *
 * A candidate is kept if no kept one is nearer to it than the slot is
 * (prune_margin()); places left are filled with the nearest of the others,
 * duplicates of kept ones last. chosen has room for rule->degree; returns how
 * many. (Vamana's robust prune with alpha 1; HNSW's heuristic, algorithm 4)
 *
 * The order: the kept, nearest first, then the farthest of the fill, then the
 * others of it, nearest first. So distances tell where the fill begins, see
 * row_kept(): whoever updates a row later need not have it stored. The farthest
 * goes first because all the fill may lie beyond the kept ones, as along a
 * line.
 */
extern uint32_t prune_choose(const PruneRule *rule, Candidate *candidates, uint32_t count,
							 PairDistance pair, void *context, Candidate *chosen, uint32_t *kept);

/*
 * How many of a row's neighbours are kept, by their distances in the row's
 * order: distances fall behind the fill's farthest, or, where that is nearer
 * than the last kept one, at it and behind it. Of fill of one or two the
 * farthest may be taken for kept.
 */
extern uint32_t row_kept(const double *distances, uint32_t count);

/*
 * How many seeds a graph of n linked slots has: at most room, n / 64, at least
 * 1 if n is.
 */
extern uint32_t seed_count(uint32_t linked, uint32_t room);

/*
 * Where below n slots to look for the i-th seed: the places of each prefix 0,
 * 1, 2, ... are spread over all slots.
 */
extern uint32_t seed_place(uint32_t i, uint32_t n);

#define SEEDS_MAX			65536
#define SEED_SHARE			64		/* one seed per this many slots */

/* Share of a row that duplicates may take. */
#define PRUNE_MAX_EQUAL(degree) ((degree) / 4 > 0 ? (degree) / 4 : 1)

#endif							/* GPUANN_PRUNE_H */
