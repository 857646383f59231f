/*
 * unpinned_vectors.h
 *		Locate and prefetch vectors that are read without pins.
 *
 * See buffer_hints.h for why such reads are safe.
 */
#ifndef GPUANN_UNPINNED_VECTORS_H
#define GPUANN_UNPINNED_VECTORS_H

#include "page/buffer_hints.h"
#include "page/pages.h"

#define UNPINNED_MAX		16		/* maximum number per call */

/* Location of a vector. page is NULL if it must be pinned. */
typedef struct UnpinnedVector
{
	VectorPlace place;
	Buffer		hint;
	const char *page;
} UnpinnedVector;

/* Locate at most UNPINNED_MAX vectors, and prefetch them. */
extern void unpinned_find(BufferHints *hints, const IndexFormat *format, const uint32 *slots,
						  uint32 count, UnpinnedVector *vectors);

/* Prefetch the beginning of a vector on a buffer's page. */
extern void unpinned_prefetch(Buffer buffer, uint32 offset, uint32 bytes);

/* Whether a vector is on one page that can be read without a pin. */
static inline bool
hints_vector_is_whole(const IndexFormat *format, const UnpinnedVector *vector)
{
	return vector->page != NULL && vector->place.offset + format->vector_bytes <= GPUANN_PAYLOAD;
}

/*
 * Its elements. They are valid only if hints_peeked() returns true after they
 * were read.
 */
static inline const void *
hints_vector_elements(const UnpinnedVector *vector)
{
	return VectorBytesOf((Page) vector->page) + vector->place.offset;
}

#endif							/* GPUANN_UNPINNED_VECTORS_H */
