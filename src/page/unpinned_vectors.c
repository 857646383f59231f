/*
 * unpinned_vectors.c
 *		Locate and prefetch vectors that are read without pins.
 */
#include "postgres.h"

#include "page/unpinned_vectors.h"

#define PREFETCH_BYTES	1024	/* prefetched of each vector */
#define CACHE_LINE		64

/* Prefetch the beginning of a vector. */
void
unpinned_prefetch(Buffer buffer, uint32 offset, uint32 bytes)
{
	const char *start = (const char *) VectorBytesOf(BufferGetPage(buffer)) + offset;

	for (uint32 at = 0; at < Min(bytes, PREFETCH_BYTES); at += CACHE_LINE)
		__builtin_prefetch(start + at);
}

/*
 * Locate vectors, and prefetch them.
 *
 * Each vector is also read from, because processors may ignore prefetches that
 * miss the TLB, as accesses to shared buffers mostly do. Here the TLB misses of
 * several vectors overlap; during the computation of distances they would be
 * serial (a seventh of the time of a search).
 */
void
unpinned_find(BufferHints *hints, const IndexFormat *format, const uint32 *slots, uint32 count,
			  UnpinnedVector *vectors)
{
	char		touched = 0;

	Assert(count <= UNPINNED_MAX);
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
	hints->touched = touched;		/* keep the compiler from removing the reads */
	for (uint32 i = 0; i < count; i++)
	{
		if (vectors[i].page != NULL)
			unpinned_prefetch(vectors[i].hint, vectors[i].place.offset, format->vector_bytes);
	}
}
