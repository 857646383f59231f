/*
 * nearest.c
 *		The nearest of many centroids, by products of blocks.
 *
 * A block is NEAREST_ROWS rows; a tile of 32 centroids stays in the first cache
 * while they pass. Registers hold the products of 8 rows and 32 centroids with
 * AVX-512, 4 and 16 with AVX2. Each lane of a tile keeps its least value and the
 * one after it, so that at the end it is known whether another centroid's value
 * is within twice the error of single precision.
 */
#include <math.h>
#include <string.h>

#include "engine/quantizer/nearest.h"

#if defined(__x86_64__)
#define NEAREST_HAVE_X86 1
#include <immintrin.h>
#endif

#define NEAREST_INLINE	static inline __attribute__((always_inline))
#define NEAREST_GROUP	8		/* rows are taken in such groups at every level */
#define NEAREST_FAR		1e18	/* norms beyond it may overflow products */

/* The least values of a row that each lane has met. */
typedef struct LaneBest
{
	float		least[NEAREST_TILE];
	float		second[NEAREST_TILE];
	int32_t		at[NEAREST_TILE];	/* the tile's first centroid, of the least */
} LaneBest;

#define LEVEL(name)		name##_portable
#define TARGET
#define LANES			4
#define ROWS			4
#define FUSED(a, b, c)	((a) * (b) + (c))
#include "engine/quantizer/nearest_tile.h"

#ifdef NEAREST_HAVE_X86
#define LEVEL(name)		name##_avx2
#define TARGET			__attribute__((target("avx2,fma")))
#define LANES			8
#define ROWS			4
#define FUSED(a, b, c)	((Floats_avx2) _mm256_fmadd_ps((__m256) (a), (__m256) (b), (__m256) (c)))
#include "engine/quantizer/nearest_tile.h"

#define LEVEL(name)		name##_avx512
#define TARGET			__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define LANES			16
#define ROWS			8
#define FUSED(a, b, c)	((Floats_avx512) _mm512_fmadd_ps((__m512) (a), (__m512) (b), (__m512) (c)))
#include "engine/quantizer/nearest_tile.h"
#endif

/* Whole tiles of so many centroids. */
static size_t
whole_tiles(uint32_t count)
{
	return ((size_t) count + NEAREST_TILE - 1) / NEAREST_TILE * NEAREST_TILE;
}

size_t
centroids_bytes(uint32_t count, uint32_t dims)
{
	return whole_tiles(count) * ((size_t) dims + 1) * sizeof(float);
}

void
centroids_init(Centroids *set, const float *centroids, uint32_t count, uint32_t dims, void *memory)
{
	size_t		places = whole_tiles(count);

	set->count = count;
	set->dims = dims;
	set->centroids = centroids;
	set->tiles = memory;
	set->half_norms = set->tiles + places * dims;
	set->longest = 0;
	set->level = simd_within(SIMD_BEST);
	set->kernels = distance_kernels(ELEMENT_FLOAT, METRIC_L2, SIMD_BEST);
	for (size_t at = 0; at < places; at++)
	{
		float	   *column = set->tiles + at / NEAREST_TILE * NEAREST_TILE * dims + at % NEAREST_TILE;
		const float *centroid = centroids + at * dims;
		double		square = 0;

		for (uint32_t i = 0; i < dims; i++)
		{
			float		x = at < count ? centroid[i] : 0;

			column[(size_t) i * NEAREST_TILE] = x;
			square += (double) x * x;
		}
		set->half_norms[at] = at < count ? (float) (square / 2) : INFINITY;
		set->longest = fmax(set->longest, sqrt(square));
	}
}

/*
 * The nearest centroid by exact distances. `first` is a good guess. A centroid
 * is measured exactly if its fast distance leaves it a chance.
 */
static uint32_t
nearest_exactly(const Centroids *set, const float *row, uint32_t first, double *distance)
{
	double		relative = fast_error_relative(set->dims);
	double		absolute = fast_error_absolute(set->dims);
	uint32_t	nearest = first;
	double		least = set->kernels->exact(row, set->centroids + (size_t) first * set->dims,
											set->dims);

	for (uint32_t at = 0; at < set->count; at++)
	{
		const float *centroid = set->centroids + (size_t) at * set->dims;
		double		fast = set->kernels->fast(row, centroid, set->dims, 0);
		double		exact;

		if (fast * (1 - relative) - absolute > least && isfinite(fast))
			continue;
		exact = set->kernels->exact(row, centroid, set->dims);
		if (exact < least || (exact == least && at < nearest))
		{
			nearest = at;
			least = exact;
		}
	}
	*distance = least;
	return nearest;
}

/*
 * Whether the least value of a row's lanes is that of the nearest centroid for
 * certain; which centroid that is.
 *
 * The error of a value is bounded like that of a fast distance, by the norms'
 * product and half the squared norm; the second part is what exact distances,
 * which decide, are themselves rounded by. It counts for rows that are very far.
 */
static bool
lanes_decide(const Centroids *set, const LaneBest *best, double norm, uint32_t *nearest)
{
	double		reach = norm + set->longest;
	double		error = fast_error_relative(set->dims) * set->longest * reach +
		(set->dims + FAST_EXTRA_ROUNDINGS) * 0x1p-53 * reach * reach +
		fast_error_absolute(set->dims);
	float		least[4];		/* so that four chains of minima run at once */
	float		limit;
	int			within = 0;
	int			lane = 0;

	memcpy(least, best->least, sizeof(least));
	for (int i = 4; i < NEAREST_TILE; i += 4)
		for (int j = 0; j < 4; j++)
			least[j] = best->least[i + j] < least[j] ? best->least[i + j] : least[j];
	for (int j = 1; j < 4; j++)
		least[0] = least[j] < least[0] ? least[j] : least[0];
	/* a little more than twice, for the roundings here */
	limit = (float) (least[0] + 2.5 * error);
	for (int i = 0; i < NEAREST_TILE; i++)
	{
		within += best->least[i] <= limit;
		lane = best->least[i] == least[0] ? i : lane;
	}
	*nearest = (uint32_t) (best->at[lane] + lane);
	return within == 1 && best->second[lane] > limit && isfinite(limit) &&
		norm + set->longest < NEAREST_FAR;
}

/* Up to NEAREST_ROWS rows. */
static size_t
chunk_nearest(const Centroids *set, const float *rows, size_t stride, uint32_t count,
			  uint32_t *nearest, double *distances)
{
	LaneBest	best[NEAREST_ROWS] __attribute__((aligned(64)));
	const float *row[NEAREST_ROWS];
	uint32_t	groups = (count + NEAREST_GROUP - 1) / NEAREST_GROUP;
	size_t		undecided = 0;

	for (uint32_t i = 0; i < groups * NEAREST_GROUP; i++)
	{
		row[i] = rows + (i < count ? i : count - 1) * stride;
		for (int lane = 0; lane < NEAREST_TILE; lane++)
		{
			best[i].least[lane] = best[i].second[lane] = INFINITY;
			best[i].at[lane] = 0;
		}
	}
#ifdef NEAREST_HAVE_X86
	if (set->level == SIMD_AVX512)
		chunk_avx512(set, row, groups, best);
	else if (set->level == SIMD_AVX2)
		chunk_avx2(set, row, groups, best);
	else
#endif
		chunk_portable(set, row, groups, best);
	for (uint32_t i = 0; i < count; i++)
	{
		double		norm = sqrt((double) set->kernels->squared_norm(row[i], set->dims)) * 1.001;
		double		distance;

		if (lanes_decide(set, &best[i], norm, &nearest[i]))
		{
			if (distances != NULL)
				distances[i] = set->kernels->exact(
					row[i], set->centroids + (size_t) nearest[i] * set->dims, set->dims);
			continue;
		}
		undecided++;
		if (nearest[i] >= set->count)
			nearest[i] = 0;
		nearest[i] = nearest_exactly(set, row[i], nearest[i], &distance);
		if (distances != NULL)
			distances[i] = distance;
	}
	return undecided;
}

size_t
centroids_nearest(const Centroids *set, const float *rows, size_t stride, size_t count,
				  uint32_t *nearest, double *distances)
{
	size_t		undecided = 0;

	for (size_t at = 0; at < count; at += NEAREST_ROWS)
	{
		size_t		left = count - at;

		undecided += chunk_nearest(set, rows + at * stride, stride,
								   (uint32_t) (left < NEAREST_ROWS ? left : NEAREST_ROWS),
								   nearest + at, distances != NULL ? distances + at : NULL);
	}
	return undecided;
}

size_t
centroids_stride(const Centroids *set)
{
	return whole_tiles(set->count);
}

void
centroids_values(const Centroids *set, const float *const *rows, uint32_t count, float *values)
{
	size_t		stride = centroids_stride(set);

#ifdef NEAREST_HAVE_X86
	if (set->level == SIMD_AVX512)
		values_avx512(set, rows, count, values, stride);
	else if (set->level == SIMD_AVX2)
		values_avx2(set, rows, count, values, stride);
	else
#endif
		values_portable(set, rows, count, values, stride);
}
