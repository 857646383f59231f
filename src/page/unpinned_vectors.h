/*
 * unpinned_vectors.h
 *		Vectors that are going to be read without pins: where they are, on their
 *		way into the processor's cache.
 *
 * What buffer_hints.h says of reading without a pin holds for them.
 */
#ifndef GPUANN_UNPINNED_VECTORS_H
#define GPUANN_UNPINNED_VECTORS_H

#include "page/buffer_hints.h"
#include "page/pages.h"

#define UNPINNED_MOST		16		/* most at once */

/* Where a vector is: the page is NULL if it has to be pinned. */
typedef struct UnpinnedVector
{
	VectorPlace place;
	Buffer		hint;
	const char *page;
} UnpinnedVector;

/* Find at most UNPINNED_MOST vectors, and let the processor fetch them. */
extern void unpinned_find(BufferHints *hints, const IndexFormat *format, const uint32 *slots,
						  uint32 count, UnpinnedVector *vectors);

/* Let the processor fetch the beginning of a vector on the page of a buffer. */
extern void unpinned_prefetch(Buffer buffer, uint32 offset, uint32 bytes);

/* Whether a vector lies on one page that can be read without a pin. */
static inline bool
hints_vector_is_whole(const IndexFormat *format, const UnpinnedVector *vector)
{
	return vector->page != NULL && vector->place.offset + format->vector_bytes <= GPUANN_PAYLOAD;
}

/*
 * Its elements. They count only if hints_peeked() says so after they were read.
 */
static inline const void *
hints_vector_elements(const UnpinnedVector *vector)
{
	return VectorBytesOf((Page) vector->page) + vector->place.offset;
}

#endif							/* GPUANN_UNPINNED_VECTORS_H */
