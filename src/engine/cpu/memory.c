/*
 * memory.c
 *		Memory of the CPU engine: what is in use of the budget, and aligned
 *		allocations.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "engine/cpu/mirror.h"

#define HUGE_PAGE			((size_t) 2 << 20)	/* searches access memory randomly: fewer TLB
												 * misses */

/* Bytes in use, of all kinds. */
uint64_t
budget_used(MemoryBudget *budget)
{
	return atomic_load(&budget->vectors) + atomic_load(&budget->graph) +
		   atomic_load(&budget->norms) + atomic_load(&budget->state);
}

void *
mirror_memory(size_t bytes)
{
	void	   *memory;

	if (posix_memalign(&memory, bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT, bytes) != 0)
		return NULL;
	if (bytes >= HUGE_PAGE)
		(void) madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
	return memory;
}
