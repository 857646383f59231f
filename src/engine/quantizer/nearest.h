/*
 * nearest.h
 *		Which of a set of centroids is nearest to a row: exactly, for many rows
 *		at once.
 *
 * Nearest is the centroid of the least squared distance as distance.h defines
 * it (I10), the first of those that are equally near: so every SIMD level and
 * every engine finds the same one. Products of blocks in single precision, with
 * half the centroids' squared norms taken off, make a shortlist, and where their
 * error leaves it open the exact distances decide.
 */
#ifndef GPUANN_NEAREST_H
#define GPUANN_NEAREST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/distance.h"

#define NEAREST_TILE	32		/* centroids whose products are made at once */
#define NEAREST_ROWS	64		/* rows that share a tile while it is in the cache */

/*
 * Centroids as the kernels read them. The caller's array of centroids must stay
 * as it is.
 */
typedef struct Centroids
{
	uint32_t	count;
	uint32_t	dims;
	const float *centroids;		/* count x dims */
	float	   *tiles;			/* tile by tile, dims x NEAREST_TILE; the last filled up */
	float	   *half_norms;		/* half the squared norms; infinity behind the last */
	double		longest;		/* the greatest norm */
	SimdLevel	level;
	const DistanceKernels *kernels;
} Centroids;

/* Bytes of memory that centroids_init() wants beside the centroids. */
extern size_t centroids_bytes(uint32_t count, uint32_t dims);

/* Prepare centroids, at least one; memory has centroids_bytes(), aligned to 64. */
extern void centroids_init(Centroids *set, const float *centroids, uint32_t count, uint32_t dims,
						   void *memory);

/*
 * Find the nearest centroids of count rows, whose beginnings are stride floats
 * apart. distances, if not NULL, gets the exact squared distances. Returns for
 * how many rows exact distances decided.
 */
extern size_t centroids_nearest(const Centroids *set, const float *rows, size_t stride,
								size_t count, uint32_t *nearest, double *distances);

/* Floats from the values of one row to those of the next. */
extern size_t centroids_stride(const Centroids *set);

/*
 * Write half of each centroid's squared norm less its product with a row, in
 * single precision, of count rows: the lists nearest to a query have the least
 * values, and those of the greatest products the least when the half norms are
 * taken off. A value does not depend on the rows beside its own.
 */
extern void centroids_values(const Centroids *set, const float *const *rows, uint32_t count,
							 float *values);

#endif							/* GPUANN_NEAREST_H */
