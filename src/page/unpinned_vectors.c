/*
 * unpinned_vectors.c
 *		Vectors that are going to be read without pins.
 */
#include "postgres.h"

#include "page/unpinned_vectors.h"

#define PREFETCH_BYTES	1024	/* of each vector, before it is read */
#define CACHE_LINE		64

/* Let the processor fetch the beginning of a vector. */
void
unpinned_prefetch(Buffer buffer, uint32 offset, uint32 bytes)
{
	const char *start = (const char *) VectorBytesOf(BufferGetPage(buffer)) + offset;

	for (uint32 at = 0; at < Min(bytes, PREFETCH_BYTES); at += CACHE_LINE)
		__builtin_prefetch(start + at);
}

/*
 * Find out where vectors are, and let the processor fetch them.
 *
 * Each is read from, besides being asked for: a processor may ignore the wish
 * for memory whose address it has yet to translate, which for buffers is nearly
 * always so. These reads wait for each other's translations side by side; done
 * as distances are computed they would wait one after the other (a seventh of a
 * search).
 */
void
unpinned_find(BufferHints *hints, const IndexFormat *format, const uint32 *slots, uint32 count,
			  UnpinnedVector *vectors)
{
	char		touched = 0;

	Assert(count <= UNPINNED_MOST);
	for (uint32 i = 0; i < count; i++)
	{
		vectors[i].place = vector_place(format, slots[i]);
		vectors[i].hint = hint_of(hints, vectors[i].place.block);
		if (vectors[i].hint != InvalidBuffer)
			__builtin_prefetch(GetBufferDescriptor(vectors[i].hint - 1));
	}
	for (uint32 i = 0; i < count; i++)
	{
		vectors[i].page = hints_peek(hints, vectors[i].place.block, vectors[i].hint);
		if (vectors[i].page != NULL)
			touched += *(const char *) hints_vector_elements(&vectors[i]);
	}
	hints->touched = touched;		/* so that the compiler does not leave the reads out */
	for (uint32 i = 0; i < count; i++)
	{
		if (vectors[i].page != NULL)
			unpinned_prefetch(vectors[i].hint, vectors[i].place.offset, format->vector_bytes);
	}
}
