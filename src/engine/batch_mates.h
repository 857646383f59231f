/*
 * batch_mates.h
 *		Candidates of a row among the rows of its own batch, which the graph
 *		does not lead to yet. By the CPU engine, and over pages.
 */
#ifndef GPUANN_BATCH_MATES_H
#define GPUANN_BATCH_MATES_H

#include "engine/prune.h"
#include "engine/search.h"
#include "engine/select.h"

#define BATCH_MATES_MAX 64

typedef struct BatchMates
{
	uint32_t	slot;			/* of the row */
	uint32_t	room;			/* of nearest[], at most BATCH_MATES_MAX */
	uint32_t	equal_room;		/* of equals[], at most SEARCH_MAX_EQUAL */
	double		equal_distance; /* of the row to its duplicates */
	double		bound;			/* rows beyond this distance are no candidates */
	uint32_t	nnearest;
	uint32_t	nequals;
	SearchResult nearest[BATCH_MATES_MAX];	/* a heap, farthest first; all different */
	SearchResult equals[SEARCH_MAX_EQUAL];	/* a random selection of the duplicates: a heap by
											 * random rank, which is in distance, highest first */
} BatchMates;

/*
 * Offer another row of the batch. Returns true if it is within the bound, or a
 * duplicate.
 */
static inline bool
batch_mates_offer(BatchMates *mates, uint32_t other, double distance, SlotsEqual equal,
				  void *context)
{
	if (distance == mates->equal_distance)
		(void) farthest_offer(mates->equals, &mates->nequals, mates->equal_room,
							  (SearchResult) {equal_rank(other, mates->slot), other, 0});
	else if (distance <= mates->bound)
		(void) farthest_offer_distinct(mates->nearest, &mates->nnearest, mates->room,
									   (SearchResult) {distance, other, 0}, equal, context);
	else
		return false;
	return true;
}

/* Append them to the row's candidates. */
static inline void
batch_mates_append(const BatchMates *mates, Candidate *candidates, uint32_t *count)
{
	for (uint32_t i = 0; i < mates->nnearest; i++)
		candidates[(*count)++] = (Candidate) {mates->nearest[i].distance, mates->nearest[i].slot,
											  mates->nearest[i].slot};
	for (uint32_t i = 0; i < mates->nequals; i++)
		candidates[(*count)++] =
			(Candidate) {mates->equal_distance, mates->equals[i].slot, mates->equals[i].slot};
}

#endif							/* GPUANN_BATCH_MATES_H */
