/*
 * scratch.c
 *		Memory contexts as allocators of the engine's routines. See scratch.h.
 */
#include "base/scratch.h"

#include "utils/memutils.h"

static void *
resize_in_context(void *context, void *old, size_t size)
{
	if (size == 0)
	{
		if (old != NULL)
			pfree(old);
		return NULL;
	}
	if (old == NULL)
		return MemoryContextAllocHuge((MemoryContext) context, size);
	return repalloc_huge(old, size);
}

ScratchAllocator
scratch_in(MemoryContext context)
{
	return (ScratchAllocator) {resize_in_context, context};
}
