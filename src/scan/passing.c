/*
 * passing.c
 *		The set of slots that exact rounds of a scan are restricted to: those
 *		whose rows have passed the caller's filter (scan_judge.c), or may pass
 *		it by the columns that the index includes (scan_columns.c).
 *
 * It is a bitmap. The server is sent it as a set of rows, and ranks them; or
 * pages do.
 */
#include "postgres.h"

#include "engine/bits.h"
#include "port/pg_bitutils.h"
#include "scan/scan.h"
#include "utils/memutils.h"

/* The slots: */
struct PassingSlots
{
	uint64	   *bits;			/* one for each slot, whatever work_mem is */
	uint32		slots;			/* bits of it */
	uint32		next;			/* the first that was not read */
	uint64		count;
	bool		sent;			/* to the server, or that was tried */
	SetName		set;			/* as the server knows them; id 0: it does not */
	MemoryContextCallback ended;	/* releases the set, also after an error */
};

/*
 * The scan's memory goes, perhaps because of an error.
 */
static void
release_set(void *arg)
{
	client_set_release(&((PassingSlots *) arg)->set);
}

PassingSlots *
passing_begin(GpuannScan *scan)
{
	PassingSlots *passing = MemoryContextAllocZero(scan->memory, sizeof(PassingSlots));

	passing->slots = scan->bounds.next_fresh;
	passing->bits =
		MemoryContextAllocExtended(scan->memory, Max(bits64_bytes(passing->slots), 1),
								   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	passing->ended = (MemoryContextCallback) {.func = release_set, .arg = passing};
	MemoryContextRegisterResetCallback(scan->memory, &passing->ended);
	return passing;
}

void
passing_add(PassingSlots *passing, uint32 slot)
{
	bit64_set(passing->bits, slot);
	passing->count++;
}

uint64
passing_count(const PassingSlots *passing)
{
	return passing->count;
}

/*
 * The next slots that passed.
 */
static uint32
next_slots(void *state, uint32 *slots, uint32 most)
{
	PassingSlots *passing = state;
	uint32		count = 0;

	while (count < most && passing->next < passing->slots)
	{
		uint64		word = passing->bits[passing->next / 64] >> (passing->next % 64);

		if (word == 0)
			passing->next = (passing->next / 64 + 1) * 64;
		else
		{
			passing->next += (uint32) pg_rightmost_one_pos64(word);
			slots[count++] = passing->next++;
		}
	}
	return count;
}

FallbackReason
passing_send(GpuannScan *scan, const SetName **set)
{
	PassingSlots *passing = scan->passing;
	FallbackReason why = FALLBACK_NONE;

	if (!passing->sent && passing->count > 0)
	{
		passing->sent = true;
		passing->next = 0;
		why = client_set_send(scan->mirror, scan->bounds.next_fresh, passing->count,
							  next_slots, passing, &passing->set);
	}
	*set = passing->set.id != 0 ? &passing->set : NULL;
	return why;
}

uint32
passing_keep(GpuannScan *scan, uint32 *slots, uint32 count)
{
	const PassingSlots *passing = scan->passing;
	uint32		kept = 0;

	for (uint32 i = 0; i < count; i++)
		if (slots[i] < passing->slots && bit64_is_set(passing->bits, slots[i]))
			slots[kept++] = slots[i];
	return kept;
}

void
passing_rank(GpuannScan *scan, const ExactRange *range, PageAnswer *answer)
{
	scan->passing->next = 0;
	page_chosen_search(&scan->query, next_slots, scan->passing, range, answer);
}

void
passing_end(GpuannScan *scan)
{
	if (scan->passing == NULL)
		return;
	client_set_release(&scan->passing->set);
	pfree(scan->passing->bits);
	scan->passing->bits = NULL;
	scan->passing = NULL;
}
