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
 * Add a slot.
 */
void
slot_set_add(SlotSet *set, uint32 slot)
{
	uint32		place;

	if (set->count >= set->mask / 2)
	{
		SlotSet		old = *set;

		set->mask = old.mask * 2 + 1;
		set->places = empty_places(set->memory, set->mask + 1);
		set->count = 0;
		slot_set_add_all(set, &old);
		pfree(old.places);
	}
	for (place = first_place(set, slot); set->places[place] != NO_SLOT;
		 place = (place + 1) & set->mask)
		if (set->places[place] == slot)
			return;
	set->places[place] = slot;
	set->count++;
}

/*
 * Add the slots of another set.
 */
void
slot_set_add_all(SlotSet *set, const SlotSet *others)
{
	for (uint32 i = 0; i <= others->mask; i++)
		if (others->places[i] != NO_SLOT)
			slot_set_add(set, others->places[i]);
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
