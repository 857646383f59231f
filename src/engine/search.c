/*
 * search.c
 *		Graph search over callbacks (GraphAccess): a mirror's arrays or index
 *		pages.
 *
 * The list of the nearest ef rows is kept as two heaps: `list`, farthest first,
 * decides which slots enter; `frontier`, nearest first, which slot is expanded
 * next. Slots dropped from the list are not removed from the frontier, but sort
 * after all that are still in it, so the search ends at the first of them.
 * Expanded slots are logged with their state.
 *
 * The list has one slot of each row, its representative. Once a copy is met a
 * third heap has the nearest ef slots, copies included. Until then that would
 * be the list itself, so searches that meet no copies pay for a look into a
 * hash table only. The result is the part of the log that is not after the
 * farthest of the nearest slots.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/equal_rows.h"
#include "engine/search.h"
#include "engine/seeds.h"
#include "engine/select.h"

#define VISITED_MIN_BITS	8
#define VISITED_PER_EF		32		/* initial visited set; twice exceeds a work_mem */
#define OUTSIDE_FIRST		1024	/* room for slots outside, of ef 40 */
#define VISITED_FULL(mask)	((mask) / 4 * 3)	/* entries at which the set grows */
#define EQUAL_EXPANSIONS	4	/* duplicates expanded while linking, per duplicate kept */

/* A growing array. */
typedef struct ResultArray
{
	SearchResult *results;
	uint32_t	count;
	uint32_t	room;
} ResultArray;

/* Set of visited slots: open addressing, NO_SLOT marks free places. */
typedef struct VisitedSet
{
	uint32_t   *slots;
	size_t		room;			/* allocated entries */
	uint32_t	mask;			/* entries in use - 1 */
	uint32_t	shift;			/* from the hash to a place */
	uint32_t	count;
} VisitedSet;

/* A duplicate of the row being linked. */
typedef struct EqualSlot
{
	uint32_t	rank;			/* pseudo-random */
	uint32_t	slot;
	bool		expanded;
} EqualSlot;

struct SearchScratch
{
	ScratchAllocator allocator;
	ResultArray list;			/* of the nearest ef rows a slot each, farthest first */
	ResultArray nearest;		/* once copies were met: the nearest slots, farthest first */
	ResultArray frontier;		/* not yet expanded, nearest first */
	ResultArray expanded;		/* in order of expansion */
	ResultArray outside;		/* resumable: slots too far for the list, unordered */
	ResultArray answer;
	uint8_t    *live;			/* per entry of expanded: may be a result */
	uint32_t	live_room;
	VisitedSet	visited;
	EqualRows	representatives;	/* of what entered the list */
	EqualSlot	equals[SEARCH_MAX_EQUAL];
	uint32_t	equal_count;
	uint32_t	equal_expanded;
	uint32_t	fresh;
	uint32_t	slots[ENGINE_MAX_DEGREE];	/* the slots visited first by the last search_visit():
											 * the first `fresh` */
	double		distances[ENGINE_MAX_DEGREE];
	uint32_t	neighbours[ENGINE_MAX_DEGREE];
};

/* A search in progress. */
typedef struct Search
{
	const GraphAccess *access;
	const GraphQuery *query;
	SearchScratch *scratch;
	GraphAnswer *answer;
	uint32_t	ef;
	bool		apart;			/* results are collected apart from the list */
	bool		copies;			/* some were met */
	SearchResult nearest_seeds[SEED_LISTS_TRIED];	/* heap, farthest first; slot is the index among
													 * the query's seeds */
	uint32_t	nnearest_seeds;
} Search;

static void *
resize_with_malloc(void *context, void *old, size_t size)
{
	if (size == 0)
	{
		free(old);
		return NULL;
	}
	return realloc(old, size);
}

/* Allocate working memory; NULL if out of memory. */
SearchScratch *
search_scratch_create(const ScratchAllocator *allocator)
{
	static const ScratchAllocator with_malloc = {resize_with_malloc, NULL};
	SearchScratch *scratch;

	if (allocator == NULL)
		allocator = &with_malloc;
	scratch = allocator->resize(allocator->context, NULL, sizeof(*scratch));
	if (scratch == NULL)
		return NULL;
	memset(scratch, 0, sizeof(*scratch));
	scratch->allocator = *allocator;
	return scratch;
}

static void
search_release(const ScratchAllocator *allocator, void *memory)
{
	if (memory != NULL)
		(void) allocator->resize(allocator->context, memory, 0);
}

/* Free working memory. */
void
search_scratch_free(SearchScratch *scratch)
{
	ScratchAllocator allocator;

	if (scratch == NULL)
		return;
	allocator = scratch->allocator;
	search_release(&allocator, scratch->list.results);
	search_release(&allocator, scratch->nearest.results);
	search_release(&allocator, scratch->frontier.results);
	search_release(&allocator, scratch->expanded.results);
	search_release(&allocator, scratch->outside.results);
	search_release(&allocator, scratch->answer.results);
	search_release(&allocator, scratch->live);
	search_release(&allocator, scratch->visited.slots);
	search_release(&allocator, scratch->representatives.places);
	search_release(&allocator, scratch);
}

/* Make room for a number of entries. Returns false if out of memory. */
static bool
search_reserve(SearchScratch *scratch, ResultArray *array, uint32_t room)
{
	void	   *results;

	if (room <= array->room)
		return true;
	if (room < array->room * 2)
		room = array->room * 2;
	results = scratch->allocator.resize(scratch->allocator.context, array->results,
										(size_t) room * sizeof(SearchResult));
	if (results == NULL)
		return false;
	array->results = results;
	array->room = room;
	return true;
}

/* Make room in the log of expanded slots, and for their states. */
static bool
reserve_log(SearchScratch *scratch, uint32_t room)
{
	void	   *live;

	if (!search_reserve(scratch, &scratch->expanded, room))
		return false;
	if (scratch->live_room >= scratch->expanded.room)
		return true;
	live = scratch->allocator.resize(scratch->allocator.context, scratch->live,
									 scratch->expanded.room);
	if (live == NULL)
		return false;
	scratch->live = live;
	scratch->live_room = scratch->expanded.room;
	return true;
}

/*
 * Add slots to the set, which has room for them. Those not in it yet are copied
 * to fresh; returns how many. Whether a slot is new is unpredictable, so there
 * is no branch on it: a slot already present is written again.
 */
static inline uint32_t
visited_add(VisitedSet *visited, const uint32_t *slots, uint32_t count, uint32_t *fresh)
{
	const VisitedSet set = *visited;
	uint32_t	added = 0;

	for (uint32_t i = 0; i < count; i++)
	{
		uint32_t	slot = slots[i];
		uint32_t	place = (slot * UINT32_C(2654435769)) >> set.shift;

		while (set.slots[place] != slot && set.slots[place] != NO_SLOT)
			place = (place + 1) & set.mask;
		fresh[added] = slot;
		added += set.slots[place] != slot;
		set.slots[place] = slot;
	}
	visited->count += added;
	return added;
}

/* Empty the set and give it 2^bits places. */
static bool
visited_reset(SearchScratch *scratch, uint32_t bits)
{
	VisitedSet *visited = &scratch->visited;
	size_t		places = (size_t) 1 << bits;

	if (visited->room < places)
	{
		void *slots = scratch->allocator.resize(scratch->allocator.context, visited->slots,
												places * sizeof(uint32_t));

		if (slots == NULL)
			return false;
		visited->slots = slots;
		visited->room = places;
	}
	visited->mask = (uint32_t) (places - 1);
	visited->shift = 32 - bits;
	visited->count = 0;
	memset(visited->slots, 0xFF, places * sizeof(uint32_t));
	return true;
}

/* Grow the set until `more` slots fit, keeping its contents. */
static bool
visited_reserve(SearchScratch *scratch, uint32_t more)
{
	VisitedSet *visited = &scratch->visited;

	while (visited->count + more > VISITED_FULL(visited->mask))
	{
		VisitedSet	old = *visited;
		uint32_t	bits = 32 - old.shift + 1;
		void	   *slots;
		uint32_t	added;

		if (bits > 31)
			return false;
		slots = scratch->allocator.resize(scratch->allocator.context, NULL,
										  ((size_t) 1 << bits) * sizeof(uint32_t));
		if (slots == NULL)
			return false;
		visited->slots = slots;
		visited->room = (size_t) 1 << bits;
		(void) visited_reset(scratch, bits);	/* room is there */
		for (uint32_t place = 0; place <= old.mask; place++)
			if (old.slots[place] != NO_SLOT)
				(void) visited_add(visited, &old.slots[place], 1, &added);
		search_release(&scratch->allocator, old.slots);
	}
	return true;
}

/*
 * Offer a duplicate: the max_equal with the lowest random ranks are kept.
 * Random choice makes a class of equal vectors one connected graph; by slot,
 * all of them would choose the same few.
 */
static void
offer_equal(Search *search, uint32_t slot)
{
	SearchScratch *scratch = search->scratch;
	EqualSlot	entry = {equal_rank(slot, search->query->salt), slot, false};
	uint32_t	worst = 0;

	if (scratch->equal_count < search->query->max_equal)
	{
		scratch->equals[scratch->equal_count++] = entry;
		return;
	}
	for (uint32_t i = 1; i < scratch->equal_count; i++)
		if (scratch->equals[i].rank > scratch->equals[worst].rank)
			worst = i;
	if (entry.rank < scratch->equals[worst].rank)
		scratch->equals[worst] = entry;
}

/* Keep a slot that did not enter the list, for graph_search_resume(). */
static bool
keep_outside(SearchScratch *scratch, SearchResult entry)
{
	if (scratch->outside.count == scratch->outside.room &&
		!search_reserve(scratch, &scratch->outside, scratch->outside.count + 1))
		return false;
	scratch->outside.results[scratch->outside.count++] = entry;
	return true;
}

/*
 * Whether a slot at this distance may enter a list. A full list takes no more
 * slots at the distance of its last, so that the search ends among many equal
 * rows.
 */
static inline bool
list_takes(const Search *search, const ResultArray *list, double distance)
{
	return search->query->ties_by_slot || list->count < search->ef ||
		   distance < list->results[0].distance;
}

/*
 * Whether a slot of the frontier has been dropped from a list. A slot at the
 * same distance as the list's last does not count as dropped.
 */
static inline bool
list_dropped(const Search *search, const ResultArray *list, const SearchResult *entry)
{
	if (list->count < search->ef)
		return false;
	return search->query->ties_by_slot ? result_before(&list->results[0], entry)
									   : list->results[0].distance < entry->distance;
}

/* The nearest slots, copies included. */
static inline const ResultArray *
nearest_slots(const Search *search)
{
	return search->copies ? &search->scratch->nearest : &search->scratch->list;
}

/*
 * The first copy is met: so far the nearest slots are those of the list. They
 * are not kept while linking, which has no use for copies.
 */
static bool
begin_copies(Search *search)
{
	SearchScratch *scratch = search->scratch;

	search->copies = true;
	scratch->nearest.count = 0;
	if (search->query->all_expanded)
		return true;
	if (!search_reserve(scratch, &scratch->nearest, search->ef))
		return false;
	scratch->nearest.count = scratch->list.count;
	memcpy(scratch->nearest.results, scratch->list.results,
		   scratch->list.count * sizeof(SearchResult));
	return true;
}

/* Whether a slot is its row's representative. */
static bool
is_representative(const Search *search, const SearchResult *entry)
{
	EqualPlace	at = equal_rows_find(&search->scratch->representatives, search->access,
									 entry->slot, entry->distance);

	return at.slot == entry->slot;
}

/*
 * Put a lower slot in the place of its row's representative. Returns false if
 * the list had dropped that.
 */
static bool
list_replace(ResultArray *list, uint32_t slot, SearchResult entry)
{
	for (uint32_t i = 0; i < list->count; i++)
	{
		if (list->results[i].slot != slot)
			continue;
		farthest_sift_down(list->results, list->count, i, entry);
		return true;
	}
	return false;
}

/*
 * Offer a slot that list_takes() to the list, and to the nearest slots. *enters
 * is whether it is to be expanded. Returns false if out of memory.
 *
 * That the lowest slot stands for its row makes the list depend on the slots
 * visited alone, not on the order of visits within a round, which differs
 * between engines.
 */
static bool
list_offer(Search *search, SearchResult entry, bool *enters)
{
	SearchScratch *scratch = search->scratch;
	ResultArray *list = &scratch->list;
	ResultArray *nearest = &scratch->nearest;
	bool		stands = true;	/* for its row */

	*enters = false;
	if (search->access->equal != NULL)
	{
		EqualPlace	at = equal_rows_find(&scratch->representatives, search->access, entry.slot,
										 entry.distance);

		if (at.slot != NO_SLOT && !search->copies && !begin_copies(search))
			return false;
		stands = entry.slot < at.slot;	/* or there is none */
		if (stands && at.slot != NO_SLOT && list_replace(list, at.slot, entry))
			*enters = true;
		if (stands &&
			!equal_rows_put(&scratch->representatives, search->access, &scratch->allocator, at,
							entry.slot))
			return false;
	}
	if (stands && !*enters)
		*enters = farthest_offer(list->results, &list->count, search->ef, entry);
	if (search->copies && !search->query->all_expanded &&
		list_takes(search, nearest, entry.distance) &&
		farthest_offer(nearest->results, &nearest->count, search->ef, entry))
		*enters = true;
	return true;
}

/*
 * Add a slot with its walking distance to the list, if it is near enough.
 * Returns false if out of memory.
 */
static bool
search_enter(Search *search, uint32_t slot, double distance)
{
	SearchScratch *scratch = search->scratch;
	SearchResult entry = {distance, slot, 0};
	bool		enters = false;

	if (search->query->max_equal > 0 && distance == search->query->equal_distance)
	{
		offer_equal(search, slot);
		return true;
	}
	if (list_takes(search, &scratch->list, distance) && !list_offer(search, entry, &enters))
		return false;
	if (!enters)
		return !search->query->resumable || keep_outside(scratch, entry);
	if (!search_reserve(scratch, &scratch->frontier, scratch->frontier.count + 1))
		return false;
	nearest_push(scratch->frontier.results, &scratch->frontier.count, entry);
	if (scratch->frontier.results[0].slot == slot && search->access->expect != NULL)
		search->access->expect(search->access->context, slot);
	return true;
}

/*
 * Offer slots with their walking distances to the results that are collected
 * apart.
 */
static void
search_admit(Search *search, const uint32_t *slots, const double *distances, uint32_t count)
{
	const GraphQuery *query = search->query;
	ResultArray *answer = &search->scratch->answer;

	for (uint32_t i = 0; i < count; i++)
	{
		SearchResult entry = {distances[i], slots[i], 0};

		if (!search->access->admit(search->access->context, slots[i], &entry.version))
			continue;
		if (query->has_beyond)
		{
			/* the bound is exact, so compare it with the exact distance */
			if (search->access->exact_distances != NULL)
				search->access->exact_distances(search->access->context, &slots[i], 1,
												&entry.distance);
			if (!engine_before(query->beyond_distance, query->beyond_slot, entry.distance,
							   entry.slot))
				continue;
		}
		(void) farthest_offer(answer->results, &answer->count, search->ef, entry);
	}
}

/*
 * Visit slots, at most ENGINE_MAX_DEGREE: compute the distances of those not
 * visited before, and let them enter the list.
 */
static bool
search_visit(Search *search, const uint32_t *slots, uint32_t count)
{
	SearchScratch *scratch = search->scratch;
	uint32_t	fresh;

	scratch->fresh = 0;
	if (!visited_reserve(scratch, count))
		return false;
	scratch->fresh = fresh = visited_add(&scratch->visited, slots, count, scratch->slots);
	if (fresh == 0)
		return true;
	if (scratch->frontier.count > 0 && search->access->expect != NULL)
		search->access->expect(search->access->context, scratch->frontier.results[0].slot);
	search->access->walk_distances(search->access->context, scratch->slots, fresh,
								   scratch->distances);
	search->answer->counters.distances += fresh;
	for (uint32_t i = 0; i < fresh; i++)
		if (!search_enter(search, scratch->slots[i], scratch->distances[i]))
			return false;
	if (search->apart)
		search_admit(search, scratch->slots, scratch->distances, fresh);
	return true;
}

/* Expand a slot: read its row, log its state, visit its neighbours. */
static bool
search_expand(Search *search, SearchResult entry)
{
	SearchScratch *scratch = search->scratch;
	GraphAnswer *answer = search->answer;
	SlotState	state = {0, false};
	uint32_t	count;

	count = search->access->row(search->access->context, entry.slot, scratch->neighbours, &state);
	if (!reserve_log(scratch, scratch->expanded.count + 1))
		return false;
	entry.version = state.version;
	scratch->live[scratch->expanded.count] = state.live;
	scratch->expanded.results[scratch->expanded.count++] = entry;
	answer->counters.expanded++;
	answer->counters.iterations++;
	return search_visit(search, scratch->neighbours, count);
}

/* The duplicate to expand next, or NULL. */
static EqualSlot *
next_equal(Search *search)
{
	SearchScratch *scratch = search->scratch;

	if (scratch->equal_expanded >= search->query->max_equal * EQUAL_EXPANSIONS)
		return NULL;
	for (uint32_t i = 0; i < scratch->equal_count; i++)
		if (!scratch->equals[i].expanded)
			return &scratch->equals[i];
	return NULL;
}

/*
 * Whether a slot of the frontier is neither among the nearest slots nor the
 * representative of one of the nearest rows. It is before the list's last.
 */
static bool
is_surplus_copy(const Search *search, const SearchResult *entry)
{
	return search->copies &&
		   (search->query->all_expanded || list_dropped(search, nearest_slots(search), entry)) &&
		   !is_representative(search, entry);
}

/*
 * Take the next slot to expand. Returns false if all of the list is expanded,
 * or with *failed set if out of memory.
 */
static bool
next_slot(Search *search, SearchResult *entry, bool *failed)
{
	SearchScratch *scratch = search->scratch;
	EqualSlot  *equal = next_equal(search);

	if (equal != NULL)
	{
		equal->expanded = true;
		scratch->equal_expanded++;
		*entry = (SearchResult) {search->query->equal_distance, equal->slot, 0};
		return true;
	}
	while (scratch->frontier.count > 0)
	{
		if (list_dropped(search, &scratch->list, &scratch->frontier.results[0]))
			return false;
		*entry = nearest_pop(scratch->frontier.results, &scratch->frontier.count);
		if (!is_surplus_copy(search, entry))
			return true;
		*failed = search->query->resumable && !keep_outside(scratch, *entry);
		if (*failed)
			return false;
	}
	return false;
}

/*
 * Among seeds just visited, which begin at index `first`, remember those
 * nearest to the query.
 */
static void
note_seeds(Search *search, uint32_t first, uint32_t count)
{
	const SearchScratch *scratch = search->scratch;
	uint32_t	next = 0;

	/* fresh slots are in the order of the seeds */
	for (uint32_t i = first; i < first + count && next < scratch->fresh; i++)
		if (scratch->slots[next] == search->query->seeds[i])
			(void) farthest_offer(search->nearest_seeds, &search->nnearest_seeds, SEED_LISTS_TRIED,
								  (SearchResult){scratch->distances[next++], i, 0});
}

/* Visit the seeds in the lists of the nearest tried ones. */
static bool
visit_seed_lists(Search *search)
{
	uint32_t	slots[ENGINE_MAX_DEGREE];
	uint32_t	count = 0;

	for (uint32_t i = 0; i < search->nnearest_seeds; i++)
	{
		if (count + SEED_LIST_MAX > ENGINE_MAX_DEGREE)
		{
			if (!search_visit(search, slots, count))
				return false;
			count = 0;
		}
		count += search->access->seed_list(search->access->context, search->nearest_seeds[i].slot,
										   slots + count);
	}
	return search_visit(search, slots, count);
}

/* Visit the seeds. */
static bool
search_visit_seeds(Search *search)
{
	const GraphQuery *query = search->query;

	for (uint32_t first = 0; first < query->nseeds; first += ENGINE_MAX_DEGREE)
	{
		uint32_t	count = query->nseeds - first;

		if (count > ENGINE_MAX_DEGREE)
			count = ENGINE_MAX_DEGREE;
		if (!search_visit(search, query->seeds + first, count))
			return false;
		if (search->access->seed_list != NULL)
			note_seeds(search, first, count);
	}
	return search->access->seed_list == NULL || visit_seed_lists(search);
}

/*
 * Expand until all of the list is expanded, or a limit is reached. Returns
 * false if out of memory.
 */
static bool
search_walk(Search *search)
{
	const GraphQuery *query = search->query;
	SearchResult entry;
	bool		failed = false;

	for (;;)
	{
		if ((query->max_iterations > 0 &&
			 search->answer->counters.iterations >= query->max_iterations) ||
			(query->max_distances > 0 &&
			 search->answer->counters.distances >= query->max_distances) ||
			(search->access->interrupted != NULL &&
			 search->access->interrupted(search->access->context)))
		{
			search->answer->capped = true;
			return true;
		}
		if (!next_slot(search, &entry, &failed))
			return !failed;
		if (!search_expand(search, entry))
			return false;
	}
}

/* Whether an expanded duplicate is among those kept. */
static bool
equal_kept(const SearchScratch *scratch, uint32_t slot)
{
	for (uint32_t i = 0; i < scratch->equal_count; i++)
		if (scratch->equals[i].slot == slot)
			return true;
	return false;
}

/*
 * Collect the results: expanded slots of the list, and in a capped search also
 * those not expanded.
 */
static bool
answer_from_list(Search *search)
{
	SearchScratch *scratch = search->scratch;
	ResultArray *answer = &scratch->answer;
	const GraphQuery *query = search->query;
	const ResultArray *nearest = nearest_slots(search);
	bool		full = nearest->count == search->ef;

	if (!search_reserve(scratch, answer,
						scratch->expanded.count + search->ef + scratch->equal_count))
		return false;
	for (uint32_t i = 0; i < scratch->expanded.count; i++)
	{
		const SearchResult *entry = &scratch->expanded.results[i];

		if (!scratch->live[i])
			continue;
		if (query->max_equal > 0 && entry->distance == query->equal_distance)
		{
			if (!equal_kept(scratch, entry->slot))
				continue;
		}
		else if (full && !query->all_expanded && result_before(&nearest->results[0], entry))
			continue;
		answer->results[answer->count++] = *entry;
	}
	if (!search->answer->capped)
		return true;
	for (uint32_t i = 0; i < scratch->frontier.count; i++)
	{
		SearchResult entry = scratch->frontier.results[i];
		SlotState	state = {0, false};

		if (full && result_before(&nearest->results[0], &entry))
			continue;
		(void) search->access->row(search->access->context, entry.slot, scratch->neighbours,
								   &state);
		entry.version = state.version;
		if (state.live)
			answer->results[answer->count++] = entry;
	}
	return true;
}

/* Replace walking distances by exact ones. */
static void
rank_exactly(Search *search)
{
	SearchScratch *scratch = search->scratch;
	ResultArray *answer = &scratch->answer;

	for (uint32_t first = 0; first < answer->count; first += ENGINE_MAX_DEGREE)
	{
		uint32_t	count = answer->count - first;

		if (count > ENGINE_MAX_DEGREE)
			count = ENGINE_MAX_DEGREE;
		for (uint32_t i = 0; i < count; i++)
			scratch->slots[i] = answer->results[first + i].slot;
		search->access->exact_distances(search->access->context, scratch->slots, count,
										scratch->distances);
		for (uint32_t i = 0; i < count; i++)
			answer->results[first + i].distance = scratch->distances[i];
	}
}

/* Number of results no farther than the last of the nearest slots. */
static uint32_t
count_reached(const Search *search)
{
	const SearchScratch *scratch = search->scratch;
	const ResultArray *nearest = nearest_slots(search);
	uint32_t	reached = 0;

	if (nearest->count < search->ef)
		return scratch->answer.count;
	for (uint32_t i = 0; i < scratch->answer.count; i++)
		reached += !result_before(&nearest->results[0], &scratch->answer.results[i]);
	return reached;
}

/* Drop results that are not after the bound. */
static void
drop_until_bound(const GraphQuery *query, ResultArray *answer)
{
	uint32_t	kept = 0;

	for (uint32_t i = 0; i < answer->count; i++)
	{
		SearchResult entry = answer->results[i];

		if (engine_before(query->beyond_distance, query->beyond_slot, entry.distance, entry.slot))
			answer->results[kept++] = entry;
	}
	answer->count = kept;
}

static bool
reset_representatives(Search *search)
{
	SearchScratch *scratch = search->scratch;

	return search->access->equal == NULL ||
		   equal_rows_reset(&scratch->representatives, search->access, &scratch->allocator,
							search->ef);
}

/* Reset the working memory for a search. */
static bool
search_prepare(Search *search)
{
	SearchScratch *scratch = search->scratch;
	uint32_t	bits = VISITED_MIN_BITS;
	uint32_t	last = scratch->visited.count;	/* of the previous search, which is probably
												 * similar */

	scratch->list.count = 0;
	scratch->frontier.count = 0;
	scratch->expanded.count = 0;
	scratch->outside.count = 0;
	scratch->answer.count = 0;
	scratch->equal_count = 0;
	scratch->equal_expanded = 0;
	while (bits < 24 && ((uint32_t) 1 << bits) < search->ef * VISITED_PER_EF)
		bits++;
	while (((size_t) 2 << bits) <= scratch->visited.room &&
		   last + ENGINE_MAX_DEGREE > VISITED_FULL(((uint32_t) 1 << bits) - 1))
		bits++;
	return visited_reset(scratch, bits) && search_reserve(scratch, &scratch->list, search->ef) &&
		search_reserve(scratch, &scratch->answer, search->ef) &&
		reset_representatives(search) &&
		(!search->query->resumable || search_reserve(scratch, &scratch->outside, OUTSIDE_FIRST));
}

/* Make the result of a finished walk. */
static EngineStatus
search_conclude(Search *search)
{
	const GraphAccess *access = search->access;
	const GraphQuery *query = search->query;
	SearchScratch *scratch = search->scratch;
	GraphAnswer *answer = search->answer;

	if (!search->apart && !answer_from_list(search))
		return ENGINE_NO_MEMORY;
	answer->full = nearest_slots(search)->count == search->ef;
	answer->reached = count_reached(search);
	if (access->exact_distances != NULL && !(search->apart && query->has_beyond))
		rank_exactly(search);
	if (query->has_beyond)
		drop_until_bound(query, &scratch->answer);
	sort_results(scratch->answer.results, scratch->answer.count);
	answer->results = scratch->answer.results;
	answer->count = scratch->answer.count;
	return ENGINE_OK;
}

/* Search a graph. */
EngineStatus
graph_search(const GraphAccess *access, const GraphQuery *query, SearchScratch *scratch,
			 GraphAnswer *answer)
{
	Search search = {.access = access,
					 .query = query,
					 .scratch = scratch,
					 .answer = answer,
					 .ef = query->ef > 0 ? query->ef : 1,
					 .apart = access->admit != NULL};

	assert(query->max_equal <= SEARCH_MAX_EQUAL);
	memset(answer, 0, sizeof(*answer));
	if (!search_prepare(&search) || !search_visit_seeds(&search) || !search_walk(&search))
		return ENGINE_NO_MEMORY;
	return search_conclude(&search);
}

/* Offer slots visited before to the list. */
static bool
list_offer_again(Search *search, const ResultArray *slots)
{
	bool		enters;

	for (uint32_t i = 0; i < slots->count; i++)
		if (list_takes(search, &search->scratch->list, slots->results[i].distance) &&
			!list_offer(search, slots->results[i], &enters))
			return false;
	return true;
}

/*
 * Refill the list, for a larger ef, from all slots visited. Slots not expanded
 * go to the frontier, whether they are in the list or not.
 */
static bool
widen_list(Search *search)
{
	SearchScratch *scratch = search->scratch;
	ResultArray *outside = &scratch->outside;
	ResultArray *frontier = &scratch->frontier;

	scratch->list.count = 0;
	scratch->answer.count = 0;
	if (!search_reserve(scratch, &scratch->list, search->ef) || !reset_representatives(search) ||
		!search_reserve(scratch, frontier, frontier->count + outside->count))
		return false;
	for (uint32_t i = 0; i < outside->count; i++)
		nearest_push(frontier->results, &frontier->count, outside->results[i]);
	search_release(&scratch->allocator, outside->results);
	memset(outside, 0, sizeof(*outside));
	/* what was expanded is nearer, so that most of the frontier is not taken */
	return list_offer_again(search, &scratch->expanded) && list_offer_again(search, frontier);
}

/* Continue a resumable search with a larger ef. */
EngineStatus
graph_search_resume(const GraphAccess *access, const GraphQuery *query, SearchScratch *scratch,
					GraphAnswer *answer)
{
	Search search = {
		.access = access, .query = query, .scratch = scratch, .answer = answer, .ef = query->ef};

	assert(query->resumable && access->admit == NULL && query->max_equal == 0 &&
		   !query->has_beyond);
	memset(answer, 0, sizeof(*answer));
	if (!widen_list(&search) || !search_walk(&search))
		return ENGINE_NO_MEMORY;
	return search_conclude(&search);
}

/* Number of slots that a resumable search has visited. */
uint32_t
graph_search_seen_count(const SearchScratch *scratch)
{
	return scratch->expanded.count + scratch->frontier.count + scratch->outside.count;
}

/* Copy those slots. */
void
graph_search_seen(const SearchScratch *scratch, SearchResult *seen)
{
	const ResultArray *parts[] = {&scratch->expanded, &scratch->frontier, &scratch->outside};

	for (int i = 0; i < 3; i++)
	{
		if (parts[i]->count > 0)
			memcpy(seen, parts[i]->results, parts[i]->count * sizeof(SearchResult));
		seen += parts[i]->count;
	}
}
