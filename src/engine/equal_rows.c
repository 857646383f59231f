/*
 * equal_rows.c
 *		The representatives of a graph search, by distance and sketch.
 */
#include <string.h>

#include "engine/equal_rows.h"

#define PLACES_PER_EF	8		/* a walk takes in about five times ef slots */
#define PLACES_MIN_BITS	8
#define MAX_UNEQUAL		64		/* unequal slots compared before sketches are made */

#define PLACE_FREE		UINT64_MAX

/* Empty the table, with 2^bits places. */
static bool
set_places(EqualRows *rows, const ScratchAllocator *allocator, uint32_t bits)
{
	size_t		places = (size_t) 1 << bits;

	if (rows->room < places)
	{
		void	   *memory = allocator->resize(allocator->context, rows->places,
											   places * sizeof(uint64_t));

		if (memory == NULL)
			return false;
		rows->places = memory;
		rows->room = places;
	}
	rows->shift = 32 - bits;
	rows->mask = (uint32_t) (places - 1);
	rows->count = 0;
	memset(rows->places, 0xFF, places * sizeof(uint64_t));
	return true;
}

/* Empty the table. */
bool
equal_rows_reset(EqualRows *rows, const GraphAccess *access, const ScratchAllocator *allocator,
				 uint32_t ef)
{
	uint32_t	bits = PLACES_MIN_BITS;

	while (((uint64_t) 1 << bits) < (uint64_t) ef * PLACES_PER_EF)
		bits++;
	rows->unequal = 0;
	rows->sketched = access->often_tied;
	return set_places(rows, allocator, bits);
}

/* What slots at one distance have in common. */
static inline uint32_t
distance_tag(double distance)
{
	uint64_t	bits;

	memcpy(&bits, &distance, sizeof(bits));
	bits ^= bits >> 29;
	return (uint32_t) ((bits * UINT64_C(0x9E3779B97F4A7C15)) >> 32);
}

/* What of these, slots with one vector have in common. */
static inline uint32_t
sketched_tag(const GraphAccess *access, uint32_t slot, uint32_t tag)
{
	uint64_t	both = tag ^ access->sketch(access->context, slot);

	return (uint32_t) ((both * UINT64_C(0x9E3779B97F4A7C15)) >> 32);
}

/* Look for a slot's representative. */
EqualPlace
equal_rows_find(EqualRows *rows, const GraphAccess *access, uint32_t slot, double distance)
{
	uint32_t	tag = distance_tag(distance);
	EqualPlace	at;

	if (rows->sketched)
		tag = sketched_tag(access, slot, tag);
	at = (EqualPlace) {tag, tag >> rows->shift, NO_SLOT};

	for (; rows->places[at.place] != PLACE_FREE; at.place = (at.place + 1) & rows->mask)
	{
		uint32_t	other = (uint32_t) rows->places[at.place];

		if (rows->places[at.place] >> 32 != tag)
			continue;
		if (other != slot && !access->equal(access->context, other, slot))
		{
			rows->unequal++;
			continue;
		}
		at.slot = other;
		break;
	}
	return at;
}

/*
 * Move all slots into a table of 2^bits places, with other tags if access is
 * given: those of sketches too.
 */
static bool
move_places(EqualRows *rows, const ScratchAllocator *allocator, uint32_t bits,
			const GraphAccess *access)
{
	EqualRows	old = *rows;

	rows->places = NULL;
	rows->room = 0;
	if (!set_places(rows, allocator, bits))
	{
		*rows = old;
		return false;
	}
	for (uint32_t i = 0; i <= old.mask; i++)
	{
		uint32_t	tag = (uint32_t) (old.places[i] >> 32);
		uint32_t	slot = (uint32_t) old.places[i];
		uint32_t	place;

		if (old.places[i] == PLACE_FREE)
			continue;
		if (access != NULL)
			tag = sketched_tag(access, slot, tag);
		for (place = tag >> rows->shift; rows->places[place] != PLACE_FREE;)
			place = (place + 1) & rows->mask;
		rows->places[place] = (uint64_t) tag << 32 | slot;
	}
	rows->count = old.count;
	(void) allocator->resize(allocator->context, old.places, 0);
	return true;
}

/* Make a slot the representative at a place. */
bool
equal_rows_put(EqualRows *rows, const GraphAccess *access, const ScratchAllocator *allocator,
			   EqualPlace at, uint32_t slot)
{
	uint32_t	bits = 32 - rows->shift;

	rows->places[at.place] = (uint64_t) at.tag << 32 | slot;
	rows->count += at.slot == NO_SLOT;
	if (!rows->sketched && access->sketch != NULL && rows->unequal > MAX_UNEQUAL)
	{
		rows->sketched = true;
		return move_places(rows, allocator, bits, access);
	}
	return rows->count <= rows->mask / 2 || move_places(rows, allocator, bits + 1, NULL);
}
