/*
 * quantizer.h
 *		Codes: a row in few bytes, from which its distance to a query is
 *		estimated.
 *
 * A row x of a list with centroid c is encoded by its residual r = x - c. Every
 * quantizer splits the squared distance in the same way (three terms: Johnson,
 * Douze, Jegou 2017, section 5.2):
 *
 *		|q - x|^2 = |q - c|^2 + (|r|^2 + 2<c,r>) - 2<q,r>
 *
 * The first term is the query's and the list's, the second a number that is
 * stored with the code, the third comes from tables that are the query's alone,
 * whatever the list. For inner products -<q,x> = -<q,c> - <q,r>. Cosine is the
 * inner product of rows and queries of length one; who calls makes them so.
 *
 * Codes only shortlist: who ranks or returns rows does so by the distances of
 * distance.h (I10). The same shape, codebook and rows give the same codes in
 * every engine; estimates by integer tables are equal too.
 *
 * Vectors are float32, dims elements each, one after the other. Nothing here
 * keeps a pointer that it was given, but for the codebook of an open quantizer.
 */
#ifndef GPUANN_QUANTIZER_H
#define GPUANN_QUANTIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "engine/quantizer/kmeans.h"
#include "engine/quantizer/rotation.h"

#define QUANTIZER_MAX_DIMS	ROTATION_MAX_DIMS

/* What a quantizer is made by. The codebook's bytes mean nothing without it. */
typedef struct QuantizerShape
{
	QuantizerKind kind;
	Metric		metric;			/* L2, inner product or cosine */
	uint32_t	dims;
	uint32_t	bits;			/* rabitq: a dimension; pq: a sub-space; int8: 8 */
	uint32_t	parts;			/* pq: sub-spaces, 1 to dims, the first dims % parts of them
								 * one dimension longer; else 0 */
	uint64_t	seed;			/* of rotations and of training */
} QuantizerShape;

/* The quantizer of a mirror with lists. */
static inline QuantizerShape
quantizer_shape_of(const MirrorSpec *spec)
{
	return (QuantizerShape) {.kind = spec->lists.quantizer,
							 .metric = spec->metric,
							 .dims = spec->dims,
							 .bits = spec->lists.bits,
							 .parts = spec->lists.parts,
							 .seed = spec->lists.seed};
}

/* An open quantizer: what encoding and estimating need, in memory. */
typedef struct Quantizer Quantizer;

/* Whether there is such a quantizer. */
extern bool quantizer_shape_valid(const QuantizerShape *shape);

/*
 * Check what a mirror is asked to be (engine_check_spec()), and that there is
 * the quantizer of its lists.
 */
extern EngineStatus quantizer_check_spec(const MirrorSpec *spec, EngineError *error);

/*
 * Bytes of the codebook (floats; int8 and rabitq have none), of one row's code
 * with its numbers (a multiple of 4), of a query's tables.
 */
extern size_t quantizer_codebook_bytes(const QuantizerShape *shape);
extern size_t quantizer_code_bytes(const QuantizerShape *shape);
extern size_t quantizer_table_bytes(const QuantizerShape *shape);

/*
 * Make the codebook from residuals (count x dims, at least one). The same
 * residuals in the same order give the same bytes. Where nothing is learned
 * (int8, rabitq) there is nothing to do. ENGINE_NO_MEMORY, or ENGINE_CANCELLED
 * by the control, which may be NULL. quantizer_train_bytes: what it allocates.
 */
extern EngineStatus quantizer_train(const QuantizerShape *shape, const float *residuals,
									uint32_t count, const TrainControl *control, void *codebook);
extern size_t quantizer_train_bytes(const QuantizerShape *shape, uint32_t count);

/*
 * Open a codebook, which must stay. NULL: out of memory. Any number of threads
 * may use an open quantizer. quantizer_open_bytes: what it allocates.
 */
extern size_t quantizer_open_bytes(const QuantizerShape *shape);
extern Quantizer *quantizer_open(const QuantizerShape *shape, const void *codebook);
extern void quantizer_close(Quantizer *quantizer);

/* Encode rows (count x dims) of a list with this centroid (dims; NULL: the origin). */
extern void quantizer_encode(const Quantizer *quantizer, const float *centroid, const float *rows,
							 size_t count, unsigned char *codes);

/*
 * Whether codes, which may be unaligned, end in numbers that an encoder writes:
 * with any other, bounds would exclude rows that they must not.
 */
extern bool quantizer_codes_valid(const QuantizerShape *shape, const unsigned char *codes,
								  size_t count);

/* Make the tables of a query (dims). tables is aligned to 4. */
extern void quantizer_prepare(const Quantizer *quantizer, const float *query, void *tables);

/*
 * Estimate the distances of a query to the rows of codes (aligned to 4):
 * squared for L2, the negative product otherwise. base is |q - c|^2, or -<q,c>.
 * lower, if not NULL, gets numbers below the distances: always for int8 and pq,
 * provided that base is within a few roundings; for rabitq of all rows but 3 in
 * 100 (QUANTIZER_RABITQ_SURE standard deviations). A row that cannot be encoded
 * (its squared length overflows) has a lower bound below all distances.
 *
 * An estimate is a sum of integers times a scale plus an offset, rounded step
 * by step, so that engines give the same bits.
 */
#define QUANTIZER_RABITQ_SURE	1.9f

extern void quantizer_estimate(const Quantizer *quantizer, const void *tables, float base,
							   const unsigned char *codes, size_t count, float *estimates,
							   float *lower);

/* Whether bounds always hold. */
static inline bool
quantizer_bounds_hold(QuantizerKind kind)
{
	return kind != QUANTIZER_RABITQ;
}

/*
 * Divide a row by its length, as rows and queries are under cosine; one without
 * length stays as it is.
 */
extern void quantizer_make_unit(float *row, uint32_t dims);

#endif							/* GPUANN_QUANTIZER_H */
