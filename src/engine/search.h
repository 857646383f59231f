/*
 * search.h
 *		The graph search: one routine, used over a mirror's arrays and over
 *		relation pages.
 *
 * A best-first search with one list of ef slots ordered by (distance, slot). It
 * starts from the seeds, and from those listed with the nearest of them,
 * expands the nearest unexpanded slot of the list (its graph row is read,
 * distances of slots not seen before are computed, those nearer than the list's
 * last enter), and ends when every slot of the list is expanded, or after
 * max_iterations. Distances of bits and of small integers are often equal: of
 * slots as near as the last of a full list none enters any more, but what it
 * has dropped at that distance is still expanded (as in HNSW). Dead slots route
 * like live ones and take their place in the list; they are left out of the
 * answer. With `admit`, every slot whose distance is computed is offered to it,
 * and the answer is the nearest ef admitted, kept apart from the list.
 *
 * Reference mode is this routine with exact distances while walking: seeds
 * enter in their order, then expansions one at a time, each row in its order.
 * Any engine asked for it must expand the same slots in the same sequence.
 * Otherwise the list is walked in fast distances and the survivors are ranked
 * again by the exact one.
 */
#ifndef GPUANN_SEARCH_H
#define GPUANN_SEARCH_H

#include "engine/engine.h"

/* What a caller knows of a slot when its graph row is read. */
typedef struct SlotState
{
	uint32_t	version;
	bool		live;			/* may be an answer */
} SlotState;

/* Whether a slot is among the first so many. */
static inline bool
slot_is_among(const uint32_t *slots, uint32_t count, uint32_t slot)
{
	for (uint32_t i = 0; i < count; i++)
		if (slots[i] == slot)
			return true;
	return false;
}

/*
 * How the routine reaches a graph. All callbacks get `context`. They may leave
 * by longjmp (PostgreSQL's error) if the allocator of the scratch copes with
 * that.
 */
typedef struct GraphAccess
{
	void	   *context;
	/*
	 * Read a slot's graph row into neighbours (room for ENGINE_MAX_DEGREE), set
	 * *state; returns how many neighbours.
	 */
	uint32_t	(*row) (void *context, uint32_t slot, uint32_t *neighbours, SlotState *state);
	/*
	 * Distances of count slots (at most ENGINE_MAX_DEGREE) while walking: fast,
	 * or exact in reference mode.
	 */
	void (*walk_distances)(void *context, const uint32_t *slots, uint32_t count, double *out);
	/*
	 * Exact distances for the final ranking; NULL if walk_distances is exact
	 * already.
	 */
	void (*exact_distances)(void *context, const uint32_t *slots, uint32_t count, double *out);
	/*
	 * Optional: whether a slot may be an answer, asked when its distance is
	 * computed.
	 */
	bool		(*admit) (void *context, uint32_t slot, uint32_t *version);
	/*
	 * Optional: true makes the search stop early with what it has. Called once
	 * per expansion.
	 */
	bool		(*interrupted) (void *context);
	/*
	 * Optional: a slot's row may be asked for soon; the processor can fetch it
	 * meanwhile.
	 */
	void		(*expect) (void *context, uint32_t slot);
	/*
	 * Optional: the seeds in the list of the query's i-th seed, at most
	 * SEED_LIST_MAX (seeds.h); returns how many.
	 */
	uint32_t	(*seed_list) (void *context, uint32_t i, uint32_t *slots);
} GraphAccess;

#define SEARCH_MAX_EQUAL	64

typedef struct GraphQuery
{
	uint32_t	ef;
	uint32_t	max_iterations; /* 0: none */
	const uint32_t *seeds;		/* start slots, duplicates allowed; all are tried, and what is
								 * listed with the nearest */
	uint32_t	nseeds;
	uint32_t	max_equal;	/* linking: of slots at equal_distance (the row's duplicates) only so
							 * many, at most SEARCH_MAX_EQUAL, are kept, apart from the list and at
							 * random, so that equal vectors do not crowd out all others; 0: no
							 * limit */
	bool		all_expanded;	/* linking: the answer is every live slot expanded, not only the
								 * nearest ef */
	double		equal_distance; /* linking: walking distance of the row to itself */
	uint32_t	salt;			/* linking: varies the duplicates kept; the row's slot */
	bool		has_beyond;		/* only answers after this bound */
	double		beyond_distance;
	uint32_t	beyond_slot;
	bool		resumable;		/* keep what does not enter the list, for graph_search_resume() */
	uint64_t	max_distances;	/* capped after so many; 0: none */
	bool		ties_by_slot;	/* reference mode: the list is the ef first by (distance, slot), and
								 * nothing else is expanded */
	uint32_t   *trace;			/* or NULL */
	uint32_t	trace_room;
} GraphQuery;

/*
 * Grows, shrinks and frees (size 0) memory as realloc does; NULL when there is
 * none left.
 */
typedef struct ScratchAllocator
{
	void	   *(*resize) (void *context, void *old, size_t size);
	void	   *context;
} ScratchAllocator;

/*
 * Working memory of searches, reused from one to the next: the list, the answer
 * and the set of slots seen.
 */
typedef struct SearchScratch SearchScratch;

/* NULL allocator: malloc */
extern SearchScratch *search_scratch_create(const ScratchAllocator *allocator);
extern void search_scratch_free(SearchScratch *scratch);

typedef struct GraphAnswer
{
	const SearchResult *results;	/* in the scratch, ordered by (distance, slot), at most ef;
									 * valid until its next search */
	uint32_t	count;
	uint32_t	traced;
	bool		capped;			/* stopped by max_iterations, max_distances or interrupted */
	bool		full;			/* the list was full: there may be more, however many of its slots
								 * were dead */
	uint32_t	reached;		/* results, in walking distance, no farther than the list's last:
								 * around these everything was looked at */
	SearchCounters counters;
} GraphAnswer;

/*
 * Search a graph. Returns ENGINE_OK or ENGINE_NO_MEMORY. (SONG, sections III
 * and IV: the three-stage search; HNSW's layer search)
 */
extern EngineStatus graph_search(const GraphAccess *access, const GraphQuery *query,
								 SearchScratch *scratch, GraphAnswer *answer);

/*
 * Go on, with a larger ef, where the resumable search that the scratch was used
 * for last ended. The answer is that of a search of this breadth, but no slot
 * is looked at twice: the counters are those of what was added. Neither `admit`
 * nor duplicates (max_equal) nor a bound can be asked for.
 */
extern EngineStatus graph_search_resume(const GraphAccess *access, const GraphQuery *query,
										SearchScratch *scratch, GraphAnswer *answer);

/* How many slots a resumable search has looked at, dead ones too, ... */
extern uint32_t graph_search_seen_count(const SearchScratch *scratch);

/*
 * ... and these, in no order, with their walking distances. Versions are set of
 * those whose row was read only.
 */
extern void graph_search_seen(const SearchScratch *scratch, SearchResult *seen);

#endif							/* GPUANN_SEARCH_H */
