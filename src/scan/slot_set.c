/*
 * slot_set.c
 *		A set of slots, in memory that grows with what is in it.
 */
#include "postgres.h"

#include "scan/page_search.h"

#define SLOT_SET_MIN_PLACES	64

static inline uint32
first_place(const SlotSet *set, uint32 slot)
{
	uint32		hash = slot * 0x9E3779B1u;

	return (hash ^ (hash >> 15)) & set->mask;
}

static uint32 *
empty_places(MemoryContext memory, uint32 places)
{
	uint32	   *made = MemoryContextAllocHuge(memory, sizeof(uint32) * (Size) places);

	memset(made, 0xFF, sizeof(uint32) * (Size) places);
	return made;
}

/*
 * An empty set.
 */
SlotSet *
slot_set_create(MemoryContext memory)
{
	SlotSet    *set = MemoryContextAllocZero(memory, sizeof(SlotSet));

	set->memory = memory;
	set->mask = SLOT_SET_MIN_PLACES - 1;
	set->places = empty_places(memory, SLOT_SET_MIN_PLACES);
	return set;
}

/*
 * A set of the same slots.
 */
SlotSet *
slot_set_copy(const SlotSet *set, MemoryContext memory)
{
	SlotSet    *copy = MemoryContextAlloc(memory, sizeof(SlotSet));

	*copy = *set;
	copy->memory = memory;
	copy->places = empty_places(memory, set->mask + 1);
	memcpy(copy->places, set->places, sizeof(uint32) * ((Size) set->mask + 1));
	return copy;
}

/*
 * Whether a slot is in the set.
 */
bool
slot_set_has(const SlotSet *set, uint32 slot)
{
	for (uint32 place = first_place(set, slot); set->places[place] != NO_SLOT;
		 place = (place + 1) & set->mask)
	{
		if (set->places[place] == slot)
			return true;
	}
	return false;
}

/*
 * Insert a slot into a set that has an empty place.
 */
static void
slot_set_put(SlotSet *set, uint32 slot)
{
	uint32		place = first_place(set, slot);

	while (set->places[place] != NO_SLOT)
	{
		if (set->places[place] == slot)
			return;
		place = (place + 1) & set->mask;
	}
	set->places[place] = slot;
	set->count++;
}

/*
 * Add a slot.
 */
void
slot_set_add(SlotSet *set, uint32 slot)
{
	if (set->count >= set->mask / 2)
	{
		uint32	   *old = set->places;
		uint32		places = set->mask + 1;

		set->mask = places * 2 - 1;
		set->places = empty_places(set->memory, places * 2);
		set->count = 0;
		for (uint32 i = 0; i < places; i++)
		{
			if (old[i] != NO_SLOT)
				slot_set_put(set, old[i]);
		}
		pfree(old);
	}
	slot_set_put(set, slot);
}

/*
 * Free a set.
 */
void
slot_set_free(SlotSet *set)
{
	pfree(set->places);
	pfree(set);
}
