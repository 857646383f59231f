/*
 * unpinned_vectors.h
 *		Vectors that are going to be read without pins: where they are, on their way into the processor's cache.
 *
 * What buffer_hints.h says of reading without a pin holds for them.
 */
#ifndef GPUANN_UNPINNED_VECTORS_H
#define GPUANN_UNPINNED_VECTORS_H

#include "page/buffer_hints.h"
#include "page/pages.h"

#define HOT_VECTORS		16		/* most at once */

/* Where a vector is: the page is NULL if it has to be pinned. */
typedef struct HotVector
{
	VectorPlace place;
	Buffer		hint;
	const char *page;
} HotVector;

/* Find at most HOT_VECTORS vectors, and let the processor fetch them. */
extern void hot_find_vectors(HotBlocks *hot, const IndexFormat *format, const uint32 *slots, uint32 count, HotVector *vectors);

/* Let the processor fetch the beginning of a vector on the page of a buffer. */
extern void hot_prefetch_vector(Buffer buffer, uint32 offset, uint32 bytes);

/* Whether a vector lies on one page that can be read without a pin. */
static inline bool
hot_vector_is_whole(const IndexFormat *format, const HotVector *vector)
{
	return vector->page != NULL && vector->place.offset + format->vector_bytes <= GPUANN_PAYLOAD;
}

/* Its elements. They count only if hot_peeked() says so after they were read. */
static inline const void *
hot_vector_elements(const HotVector *vector)
{
	return VectorBytesOf((Page) vector->page) + vector->place.offset;
}

#endif							/* GPUANN_UNPINNED_VECTORS_H */
