/*
 * row_vectors.h
 *		Vectors for linking over pages and for VACUUM's repair: distances
 *		between slots, in single precision.
 *
 * They select edges, not answers, so pages read without a pin are not checked.
 */
#ifndef GPUANN_ROW_VECTORS_H
#define GPUANN_ROW_VECTORS_H

#include "page/pages.h"
#include "engine/distance.h"

typedef struct RowVectors RowVectors;

/*
 * Begin, in the current memory context, with a cache of this many bytes for
 * vectors of slots below next_fresh.
 */
extern RowVectors *row_vectors_begin(Relation index, const IndexFormat *format, uint32 next_fresh,
									 Size memory);
extern void row_vectors_end(RowVectors *vectors);

/*
 * A slot's vector, valid until the next call, and 1 / |vector| for cosine, else
 * 0.
 */
extern const void *row_vectors_get(RowVectors *vectors, uint32 slot, float *inverse_norm);

/* Whether two slots have the same vector. */
extern bool row_vectors_equal(RowVectors *vectors, uint32 slot_a, uint32 slot_b);

/* Set the slot from which the following distances are computed. */
extern void row_vectors_from(RowVectors *vectors, uint32 slot);

/*
 * Prefetch these slots, or the first few of them.
 */
extern void row_vectors_expect(RowVectors *vectors, const uint32 *slots, uint32 count);

/* The distances of slots from the one set by row_vectors_from(). */
/* the inner product of a slot's vector with itself */
extern double row_vectors_square(RowVectors *vectors, uint32 slot);
/* of a vector in memory */
extern double row_vectors_distance(const RowVectors *vectors, const void *elements,
								   float inverse_norm);
extern void row_vectors_distances(RowVectors *vectors, const uint32 *slots, uint32 count,
								  double *out);

#endif							/* GPUANN_ROW_VECTORS_H */
