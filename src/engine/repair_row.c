/*
 * repair_row.c
 *		Choose new neighbours for a graph row that names dead slots.
 *
 * The row's live neighbours stay as far as there is room: rows chosen again by
 * distance alone lost the few edges between clusters. For the same reason each
 * dead neighbour is replaced by its nearest live neighbour, which then counts
 * as the row's own.
 */
#include <string.h>

#include "engine/repair_row.h"
#include "engine/select.h"

#define CANDIDATES_DIVISOR 2		/* a graph search adds candidates if there are fewer than degree
									 * / CANDIDATES_DIVISOR, ... */
#define SMALL_DEGREE		12		/* ... and always if the degree is at most this */
#define NEAR_DEGREES		2		/* at least degree times this of the slots around a row are
									 * candidates, even if ef is small */
#define SEEN_BITS			12		/* hash table of twice REPAIR_AROUND entries */

/* Take bytes from memory; with memory NULL only count them. */
static void *
repair_carve(unsigned char *memory, size_t *used, size_t bytes)
{
	void	   *place = memory != NULL ? memory + *used : NULL;

	*used += bytes;
	return place;
}

/*
 * Number of candidates taken from the slots around a row; rows linked with a
 * small ef need a sufficient choice too.
 */
static uint32_t
near_room(uint32_t degree, uint32_t ef)
{
	return ef > degree * NEAR_DEGREES ? ef : degree * NEAR_DEGREES;
}

/*
 * Lay out the arrays, those with the largest elements first. Returns their size
 * in bytes.
 */
static size_t
repair_lay_out(RepairScratch *scratch, unsigned char *memory, uint32_t degree, uint32_t ef)
{
	size_t		used = 0;

	scratch->candidates = repair_carve(
		memory, &used, sizeof(Candidate) * (REPAIR_AROUND + REPAIR_SEARCHED((size_t) ef)));
	scratch->near = repair_carve(memory, &used, sizeof(SearchResult) * near_room(degree, ef));
	scratch->distances = repair_carve(memory, &used, sizeof(double) * REPAIR_AROUND);
	scratch->found = repair_carve(memory, &used, sizeof(uint32_t) * REPAIR_AROUND);
	scratch->seen_places = repair_carve(memory, &used, sizeof(uint32_t) * REPAIR_AROUND);
	scratch->seen = repair_carve(memory, &used, sizeof(uint32_t) << SEEN_BITS);
	scratch->expanded = repair_carve(memory, &used, sizeof(uint32_t) * 2 * degree);
	return used;
}

size_t
repair_scratch_bytes(uint32_t degree, uint32_t ef)
{
	RepairScratch scratch;

	return repair_lay_out(&scratch, NULL, degree, ef);
}

void
repair_scratch_init(RepairScratch *scratch, void *memory, uint32_t degree, uint32_t ef)
{
	(void) repair_lay_out(scratch, memory, degree, ef);
	scratch->degree = degree;
	scratch->ef = ef;
	scratch->near_room = near_room(degree, ef);
	scratch->nfound = 0;
	memset(scratch->seen, 0xFF, sizeof(uint32_t) << SEEN_BITS);
}

/* Note a live slot near the row under way; false if it is noted already. */
static bool
note_found(RepairScratch *scratch, uint32_t slot)
{
	uint32_t	place = slot * UINT32_C(0x9E3779B1) >> (32 - SEEN_BITS);

	for (; scratch->seen[place] != NO_SLOT; place = (place + 1) % (1 << SEEN_BITS))
		if (scratch->seen[place] == slot)
			return false;
	scratch->seen[place] = slot;
	scratch->seen_places[scratch->nfound] = place;
	scratch->found[scratch->nfound++] = slot;
	return true;
}

/* Clear found[], and its entries in the hash table. */
static void
forget_found(RepairScratch *scratch)
{
	for (uint32_t i = 0; i < scratch->nfound; i++)
		scratch->seen[scratch->seen_places[i]] = NO_SLOT;
	scratch->nfound = 0;
}

/*
 * Collect the live neighbours of a row, then the live slots reached through
 * dead slots only, breadth first. Returns how many of those found are the row's
 * own, which come first: its live neighbours and the replacements of its dead
 * ones.
 */
static uint32_t
collect_around(const RepairAccess *access, RepairScratch *scratch, uint32_t slot)
{
	uint32_t	row[ENGINE_MAX_DEGREE];
	uint32_t	most_expanded = 2 * scratch->degree;
	uint32_t	nexpanded = 0;
	uint32_t	next = 0;
	uint32_t	own = 0;
	uint32_t	own_dead = 0;
	uint32_t	current = slot;

	forget_found(scratch);
	for (;;)
	{
		uint32_t	nrow = access->row(access->context, current, row);
		bool		wants_replacement = current != slot && next <= own_dead;

		for (uint32_t i = 0; i < nrow && scratch->nfound < REPAIR_AROUND; i++)
		{
			if (row[i] == slot)
				continue;
			if (!access->dead(access->context, row[i]))
			{
				if (note_found(scratch, row[i]) && wants_replacement)
				{
					scratch->found[scratch->nfound - 1] = scratch->found[own];
					scratch->found[own++] = row[i];
					wants_replacement = false;
				}
			}
			else if (nexpanded < most_expanded &&
					 !slot_is_among(scratch->expanded, nexpanded, row[i]))
				scratch->expanded[nexpanded++] = row[i];
		}
		if (current == slot)
		{
			own = scratch->nfound;
			own_dead = nexpanded;
		}
		if (next == nexpanded || scratch->nfound >= REPAIR_AROUND)
			return own;
		current = scratch->expanded[next++];
	}
}

static void
set_candidate(Candidate *candidate, uint32_t slot, double distance)
{
	candidate->slot = candidate->index = slot;
	candidate->distance = distance;
}

/* Collect the candidates, the row's own first. Returns how many. */
static uint32_t
collect_candidates(const RepairAccess *access, RepairScratch *scratch, uint32_t slot, uint32_t *own)
{
	uint32_t	near = 0;
	uint32_t	count;

	*own = collect_around(access, scratch, slot);
	access->distances(access->context, scratch->found, scratch->nfound, scratch->distances);
	for (uint32_t i = 0; i < scratch->nfound; i++)
	{
		SearchResult found = {.slot = scratch->found[i], .distance = scratch->distances[i]};

		if (i >= *own)
			(void) farthest_offer(scratch->near, &near, scratch->near_room, found);
		else
			set_candidate(&scratch->candidates[i], found.slot, found.distance);
	}
	for (uint32_t i = 0; i < near; i++)
		set_candidate(&scratch->candidates[*own + i], scratch->near[i].slot,
					  scratch->near[i].distance);
	count = *own + near;
	if (count < scratch->degree / CANDIDATES_DIVISOR || scratch->degree <= SMALL_DEGREE)
		count += access->search(access->context, scratch->candidates + count);
	return count;
}

/* Whether a slot is among the candidates. */
static bool
has_candidate(const Candidate *candidates, uint32_t count, uint32_t slot)
{
	for (uint32_t i = 0; i < count; i++)
		if (candidates[i].slot == slot)
			return true;
	return false;
}

/* Insert a candidate into the fill, which is ordered by distance. */
static void
repair_fill_row(Candidate *row, uint32_t kept, uint32_t *count, Candidate other)
{
	uint32_t	place = (*count)++;

	for (; place > kept && row[place - 1].distance > other.distance; place--)
		row[place] = row[place - 1];
	row[place] = other;
}

bool
repair_needed(const RepairAccess *access, const uint32_t *row, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (access->dead(access->context, row[i]))
			return true;
	return false;
}

uint32_t
repair_row(const RepairAccess *access, RepairScratch *scratch, uint32_t slot, double equal_distance,
		   Candidate *row, uint32_t *kept)
{
	uint32_t	degree = scratch->degree;
	Candidate	own[ENGINE_MAX_DEGREE];
	Candidate	chosen[ENGINE_MAX_DEGREE];
	uint32_t	nown;
	uint32_t	count = collect_candidates(access, scratch, slot, &nown);
	uint32_t	nchosen;
	uint32_t	nrow;

	memcpy(own, scratch->candidates, nown * sizeof(Candidate));
	nchosen = access->choose(access->context, scratch->candidates, count, chosen, kept);
	memcpy(row, chosen, *kept * sizeof(Candidate));
	nrow = *kept;
	for (uint32_t i = 0; i < nown; i++)
	{
		if (own[i].distance == equal_distance || has_candidate(chosen, *kept, own[i].slot))
			continue;
		repair_fill_row(row, *kept, &nrow, own[i]);
		/* as in incremental_take() */
		if (nrow > degree)
		{
			memmove(&row[*kept], &row[*kept + 1], (degree - *kept) * sizeof(Candidate));
			nrow = degree;
		}
	}
	/* the first fill entry of chosen[] is its farthest: take it last */
	for (uint32_t i = *kept + 1; i <= nchosen && nrow < degree; i++)
		if (!has_candidate(row + *kept, nrow - *kept, chosen[i < nchosen ? i : *kept].slot))
			repair_fill_row(row, *kept, &nrow, chosen[i < nchosen ? i : *kept]);
	if (nrow > *kept)
	{
		Candidate	farthest = row[nrow - 1];

		memmove(&row[*kept + 1], &row[*kept], (nrow - 1 - *kept) * sizeof(Candidate));
		row[*kept] = farthest;
	}
	return nrow;
}
