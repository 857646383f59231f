/*
 * search.h
 *		Graph search over callbacks, used for mirrors and for index pages.
 *
 * A best-first search with one list of ef slots, ordered by (distance, slot).
 * It starts from the seeds and from those in the lists of the nearest of them.
 * Then it expands the nearest unexpanded slot of the list: reads its graph row
 * and computes the distances of neighbours not visited before, which enter the
 * list if they are nearer than its last. It ends when all slots of the list are
 * expanded, or after max_iterations.
 *
 * Equal rows count once: of the slots visited that have the same vector only
 * the lowest, their representative, takes a place in the list, so that copies
 * of a row cannot displace all others. Copies among the nearest ef slots are
 * expanded too, and the result is the nearest ef slots, copies included.
 *
 * Distances of bit vectors and of small integers are often equal: a full list
 * takes no more slots at the distance of its last, but slots it dropped at that
 * distance are still expanded, as in HNSW. Dead slots are expanded like live
 * ones and take places in the list, but are not returned. With `admit`, every
 * slot visited is offered to it, and the result is the nearest ef slots
 * admitted, collected apart from the list.
 *
 * Reference mode uses exact distances throughout: seeds are visited in order,
 * then slots are expanded one at a time, the neighbours in the row's order.
 * Every engine must expand the same slots in the same order. In other modes the
 * walk uses fast distances, and the results are ranked by exact ones.
 */
#ifndef GPUANN_SEARCH_H
#define GPUANN_SEARCH_H

#include "engine/engine.h"

/* State of a slot, returned with its graph row. */
typedef struct SlotState
{
	uint32_t	version;
	bool		live;			/* may be a result */
} SlotState;

/* Whether a slot is among the first count of slots. */
static inline bool
slot_is_among(const uint32_t *slots, uint32_t count, uint32_t slot)
{
	for (uint32_t i = 0; i < count; i++)
		if (slots[i] == slot)
			return true;
	return false;
}

/*
 * Access to the graph. All callbacks get `context`. They may longjmp (ereport)
 * if the scratch's allocator allows it.
 */
typedef struct GraphAccess
{
	void	   *context;
	/*
	 * Read a slot's graph row into neighbours (room for ENGINE_MAX_DEGREE) and
	 * set *state. Returns the number of neighbours.
	 */
	uint32_t	(*row) (void *context, uint32_t slot, uint32_t *neighbours, SlotState *state);
	/*
	 * Distances of count slots (at most ENGINE_MAX_DEGREE) for the walk: fast,
	 * or exact in reference mode.
	 */
	void (*walk_distances)(void *context, const uint32_t *slots, uint32_t count, double *out);
	/*
	 * Exact distances for the final ranking; NULL if walk_distances is exact.
	 */
	void (*exact_distances)(void *context, const uint32_t *slots, uint32_t count, double *out);
	/* Optional: whether a slot may be a result; called when it is visited. */
	bool		(*admit) (void *context, uint32_t slot, uint32_t *version);
	/*
	 * Optional: returns true to stop the search with what it has. Called once
	 * per expansion.
	 */
	bool		(*interrupted) (void *context);
	/*
	 * Optional: a slot's row will probably be read soon, and may be prefetched.
	 */
	void		(*expect) (void *context, uint32_t slot);
	/*
	 * Optional: the seeds in the list of the query's i-th seed, at most
	 * SEED_LIST_MAX (seeds.h). Returns how many.
	 */
	uint32_t	(*seed_list) (void *context, uint32_t i, uint32_t *slots);
	/*
	 * Optional: whether two slots have the same vector; called for slots at the
	 * same walking distance. NULL: copies are not recognised. A wrong answer
	 * costs recall or time only.
	 */
	bool		(*equal) (void *context, uint32_t slot_a, uint32_t slot_b);
	/*
	 * Optional, with `equal`: a value that slots with the same vector share,
	 * and hardly any others. Called where slots at the same walking distance
	 * turn out to differ. For vectors that often_tied says it of, whose
	 * distances are few, it is called for all slots at once, and needed.
	 */
	uint32_t	(*sketch) (void *context, uint32_t slot);
	bool		often_tied;
} GraphAccess;

#define SEARCH_MAX_EQUAL	64

typedef struct GraphQuery
{
	uint32_t	ef;
	uint32_t	max_iterations; /* 0: none */
	const uint32_t *seeds;		/* start slots, duplicates allowed; all are visited, and the lists
								 * of the nearest */
	uint32_t	nseeds;
	uint32_t	max_equal;	/* linking: keep at most this many slots at equal_distance (duplicates
							 * of the row), at most SEARCH_MAX_EQUAL, chosen at random and apart
							 * from the list, so that duplicates do not displace all others; 0: no
							 * limit */
	bool		all_expanded;	/* linking: the result is every live slot expanded, not only the
								 * nearest ef; copies are not expanded */
	double		equal_distance; /* linking: walking distance of the row to itself */
	uint32_t	salt;			/* linking: seed of that random choice, the row's slot */
	bool		has_beyond;		/* only results after this bound */
	double		beyond_distance;
	uint32_t	beyond_slot;
	bool		resumable;		/* keep what does not enter the list, for graph_search_resume() */
	uint64_t	max_distances;	/* stop after this many; 0: no limit */
	bool		ties_by_slot;	/* reference mode: the list is strictly the first ef by (distance,
								 * slot), and no other slots but copies are expanded */
} GraphQuery;

/*
 * Allocates, resizes and frees (size 0) memory as realloc does. Returns NULL if
 * out of memory.
 */
typedef struct ScratchAllocator
{
	void	   *(*resize) (void *context, void *old, size_t size);
	void	   *context;
} ScratchAllocator;

/* Working memory of searches, reused from one to the next. */
typedef struct SearchScratch SearchScratch;

/* NULL allocator: malloc */
extern SearchScratch *search_scratch_create(const ScratchAllocator *allocator);
extern void search_scratch_free(SearchScratch *scratch);

typedef struct GraphAnswer
{
	const SearchResult *results;	/* in the scratch, ordered by (distance, slot), at most ef;
									 * valid until the scratch is used again */
	uint32_t	count;
	bool		capped;			/* stopped by max_iterations, max_distances or interrupted */
	bool		full;			/* the list was full, so there may be more results, even if many of
								 * its slots were dead */
	uint32_t	reached;		/* results whose walking distance is no more than that of the list's
								 * last: up to there the search was complete */
	SearchCounters counters;
} GraphAnswer;

/*
 * Search a graph. Returns ENGINE_OK or ENGINE_NO_MEMORY. (SONG, sections III
 * and IV: the three-stage search; HNSW's layer search)
 */
extern EngineStatus graph_search(const GraphAccess *access, const GraphQuery *query,
								 SearchScratch *scratch, GraphAnswer *answer);

/*
 * Continue, with a larger ef, the resumable search that used the scratch last.
 * The result is that of a search with this ef, but no slot is visited twice;
 * counters count the additional work only. Not available with `admit`,
 * max_equal or a bound.
 */
extern EngineStatus graph_search_resume(const GraphAccess *access, const GraphQuery *query,
										SearchScratch *scratch, GraphAnswer *answer);

/*
 * Number of slots that a resumable search has visited, dead ones included, ...
 */
extern uint32_t graph_search_seen_count(const SearchScratch *scratch);

/*
 * ... and these slots, unordered, with their walking distances. Versions are
 * set only where the row was read.
 */
extern void graph_search_seen(const SearchScratch *scratch, SearchResult *seen);

#endif							/* GPUANN_SEARCH_H */
