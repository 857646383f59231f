/*
 * link_half.c
 *		Half-precision copies of the rows for the walks of a long link: walks
 *		are bound by memory latency and bandwidth, and the copies are half as
 *		long.
 *
 * Only walks read the copies. The results of a walk are measured from the
 * original rows, so pruning and reverse edges are not affected. During a walk,
 * rows so near to the row being linked that rounding could change their order
 * or make two of them equal are measured from the original rows as well. For
 * cosine the copies are normalized, so that a distance reads no separate norm.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/link.h"

#define COPY_ROWS			1024	/* rows per item of the copying phase */
#define ROUNDING			0x1p-11	/* the rounding error of a row is at most this part of its
									 * length (more for subnormal halves) */
#define SAMPLE				64		/* this many rows are measured to as many others */
#define NOISE				1e-4	/* limit of the variance that rounding adds, relative to the
									 * variance of these distances */
#define NEAR_L2				64		/* times the distance of a row to its own copy: rows within that
									 * are measured from the original rows */
#define NEAR_L1				8
#define NEAR_COSINE			ROUNDING
#define NEAR_DIVISOR		8		/* halves save nothing if more than this part of the distances
									 * is measured from the original rows */
#define NEAR_MIN_MEASURED	100000	/* decided after this many distances */
#define PREFETCH_AHEAD		12		/* prefetch distance, in copies; 8 to 16 perform alike */

/*
 * Convert to half precision, round to nearest even; infinity beyond its range.
 */
static inline uint16_t
half_of(float number)
{
	uint32_t	bits;
	uint32_t	sign;

	memcpy(&bits, &number, sizeof(bits));
	sign = bits >> 16 & 0x8000;
	bits &= 0x7FFFFFFF;
	if (bits >= (127u + 16) << 23)
		return (uint16_t) (sign | 0x7C00);
	if (bits < (127u - 14) << 23)
	{
		/*
		 * subnormal: multiples of 2^-24, which are the last bits of numbers
		 * from 0.5 on
		 */
		number = fabsf(number) + 0.5f;
		memcpy(&bits, &number, sizeof(bits));
		return (uint16_t) (sign | (bits - (126u << 23)));
	}
	bits += 0xFFF + (bits >> 13 & 1);
	return (uint16_t) (sign | (bits - ((127u - 15) << 23)) >> 13);
}

static inline void *
half_copy_of(const HalfRows *halves, uint32_t slot)
{
	return halves->vectors + (size_t) slot * halves->stride;
}

/*
 * Fast distance to a copy. The scale is that of the query alone, because copies
 * are normalized.
 */
static inline float
copy_distance(const Mirror *mirror, const HalfRows *halves, const WideVector *wide,
			  const void *copy)
{
	return halves->kernels->fast(wide->elements, copy, mirror->spec.dims, wide->scale);
}

/* Copy one row. Returns false if half precision does not hold it well. */
static bool
copy_row(const Linking *linking, uint32_t slot, LinkScratch *scratch)
{
	const Mirror *mirror = linking->mirror;
	const HalfRows *halves = &linking->halves;
	const float *row = mirror_vector(mirror, slot);
	uint32_t	dims = mirror->spec.dims;
	float	   *elements = scratch->wide.elements;
	float		factor = mirror->spec.metric == METRIC_COSINE ? mirror_scale(mirror, slot) : 1.0f;
	uint16_t   *copy = half_copy_of(halves, slot);

	if (mirror_word(mirror, slot) & WORD_ABSENT)
		return true;
	/*
	 * A zero vector is infinitely far from all others, as without copies: 0 *
	 * infinity is NaN.
	 */
	for (uint32_t i = 0; i < dims; i++)
		elements[i] = row[i] * factor;
	for (uint32_t i = 0; i < dims; i++)
		copy[i] = isinf(factor) ? 0x7E00 : half_of(elements[i]);
	if (isinf(factor))
		return true;
	halves->kernels->widen(copy, dims, scratch->pair.elements);
	return factor > 0 && distance_kernels(ELEMENT_FLOAT, METRIC_L2, SIMD_BEST)
								 ->exact(elements, scratch->pair.elements, dims) <=
							 ROUNDING * ROUNDING *
								 -distance_kernels(ELEMENT_FLOAT, METRIC_IP, SIMD_BEST)
									  ->exact(elements, elements, dims);
}

/* One item of the copying phase. */
static void
copy_rows(void *context, uint32_t item, CpuWorker *worker)
{
	Linking    *linking = context;
	uint32_t end =
		linking->rows - item * COPY_ROWS < COPY_ROWS ? linking->rows : (item + 1) * COPY_ROWS;
	bool		fit = link_scratch_reserve(&worker->link, 0, linking->mirror->spec.dims);

	for (uint32_t slot = item * COPY_ROWS; fit && slot < end; slot++)
		fit = copy_row(linking, slot, &worker->link);
	if (!fit)
		atomic_store(&linking->halves.unfit, true);
}

/* Accumulates the sum of squared deviations from the mean of finite numbers. */
typedef struct Variation
{
	double		first;
	double		sum;
	double		squares;
	uint32_t	count;
} Variation;

static void
variation_add(Variation *variation, double number)
{
	if (variation->count++ == 0)
		variation->first = number;
	variation->sum += number - variation->first;
	variation->squares += (number - variation->first) * (number - variation->first);
}

static double
variation_of(const Variation *variation)
{
	return variation->count == 0
			   ? 0
			   : variation->squares - variation->sum * variation->sum / variation->count;
}

/*
 * Whether rounding changes the distances of a sample little, compared to how
 * much these differ from each other. It changes them a lot if all rows are far
 * from the origin, or in nearly one direction.
 */
static bool
sample_is_accurate(Linking *linking, CpuWorker *worker)
{
	const Mirror *mirror = linking->mirror;
	WideVector *wide = &worker->link.wide;
	double		spread = 0;
	double		noise = 0;

	for (uint64_t i = 0; i < SAMPLE; i++)
	{
		uint32_t	others[SAMPLE];
		double		distances[SAMPLE];
		Variation	between = {0};
		Variation	rounding = {0};
		PruneRule	rule;

		for (uint64_t j = 0; j < SAMPLE; j++)
			others[j] = linking->slots[(2 * j + 1) * linking->count / (2 * SAMPLE)];
		if (!link_begin_slot(linking, &worker->link, linking->slots[i * linking->count / SAMPLE],
							 true, &rule))
			return false;
		mirror_fast_many(mirror, wide, others, SAMPLE, distances);
		for (uint32_t j = 0; j < SAMPLE; j++)
		{
			float rounded = copy_distance(mirror, &linking->halves, wide,
										  half_copy_of(&linking->halves, others[j]));

			if (!isfinite(distances[j]))
				continue;
			variation_add(&between, distances[j]);
			variation_add(&rounding, rounded - distances[j]);
		}
		spread += variation_of(&between);
		noise += variation_of(&rounding);
	}
	return noise <= NOISE * spread;
}

void
link_half_end(Linking *linking)
{
	free(linking->halves.vectors);
	atomic_fetch_sub(&linking->mirror->budget->state, linking->halves.bytes);
	linking->halves.vectors = NULL;
	linking->halves.bytes = 0;
}

void
link_half_begin(Linking *linking, CpuWorker *worker, int threads)
{
	Mirror	   *mirror = linking->mirror;
	HalfRows   *halves = &linking->halves;
	WorkerPhase copy = {.work = copy_rows,
				  .context = linking,
				  .count = (linking->rows + COPY_ROWS - 1) / COPY_ROWS};

	if (linking->repairs || linking->count == 0 || mirror->spec.type != ELEMENT_FLOAT)
		return;
	halves->stride = align_up(engine_vector_bytes(ELEMENT_HALF, mirror->spec.dims));
	halves->kernels = distance_kernels(ELEMENT_HALF, mirror->spec.metric, worker->engine->level);
	if (halves->kernels == NULL || mirror->vector_bytes <= halves->stride)
		return;					/* no fewer cache lines */
	halves->bytes = (uint64_t) linking->rows * halves->stride;
	atomic_fetch_add(&mirror->budget->state, halves->bytes);
	if (budget_used(mirror->budget) <= mirror->budget->limit)
		halves->vectors = mirror_memory(halves->bytes);
	if (halves->vectors != NULL)
		phase_run(worker, &copy, threads);
	if (halves->vectors == NULL || atomic_load(&halves->unfit) ||
		atomic_load(&linking->job->watch.cancelled) || !sample_is_accurate(linking, worker))
		link_half_end(linking);
}

void
link_half_check(Linking *linking)
{
	HalfRows   *halves = &linking->halves;
	uint64_t	measured = atomic_load(&halves->measured);

	if (halves->vectors != NULL && measured >= NEAR_MIN_MEASURED &&
		atomic_load(&halves->near) > measured / NEAR_DIVISOR)
		link_half_end(linking);
}

/* Begin a walk for a slot, whose vector is widened in the worker's scratch. */
void
link_half_walk_begin(const LinkAccess *access, uint32_t slot, double equal_distance)
{
	const Linking *linking = access->linking;
	LinkScratch *scratch = &access->worker->link;
	double self = copy_distance(linking->mirror, &linking->halves, &scratch->wide,
								half_copy_of(&linking->halves, slot));
	double		off = fabs(self - equal_distance);

	scratch->near_centre = equal_distance;
	switch (linking->mirror->spec.metric)
	{
		case METRIC_L2:
			scratch->near_radius = NEAR_L2 * off;
			break;
		case METRIC_L1:
			scratch->near_radius = NEAR_L1 * off;
			break;
		case METRIC_COSINE:
			scratch->near_radius = off > NEAR_COSINE ? off : NEAR_COSINE;
			break;
		default:
			scratch->near_radius = off;
			break;
	}
	scratch->measured = scratch->near = 0;
}

/* Add a finished walk to the statistics that link_half_check() checks. */
void
link_half_walk_end(const LinkAccess *access)
{
	HalfRows   *halves = (HalfRows *) &access->linking->halves;

	atomic_fetch_add_explicit(&halves->measured, access->worker->link.measured,
							  memory_order_relaxed);
	atomic_fetch_add_explicit(&halves->near, access->worker->link.near, memory_order_relaxed);
}

/*
 * GraphAccess: distances to the copies, or to the rows themselves for near
 * rows.
 */
void
link_half_distances(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	const LinkAccess *access = context;
	const Mirror *mirror = access->linking->mirror;
	const HalfRows *halves = &access->linking->halves;
	LinkScratch *scratch = &access->worker->link;
	uint32_t	near[ENGINE_MAX_DEGREE];
	uint32_t	places[ENGINE_MAX_DEGREE];
	double		distances[ENGINE_MAX_DEGREE];
	uint32_t	nnear = 0;

	for (uint32_t i = 0; i < count + PREFETCH_AHEAD; i++)
	{
		uint32_t	ready = i - PREFETCH_AHEAD;

		if (i < count)
			prefetch_bytes(half_copy_of(halves, slots[i]), halves->stride);
		if (i < PREFETCH_AHEAD)
			continue;
		out[ready] =
			copy_distance(mirror, halves, &scratch->wide, half_copy_of(halves, slots[ready]));
		near[nnear] = slots[ready];
		places[nnear] = ready;
		nnear += fabs(out[ready] - scratch->near_centre) <= scratch->near_radius;
	}
	scratch->measured += count;
	scratch->near += nnear;
	if (nnear == 0)
		return;
	mirror_fast_many(mirror, &scratch->wide, near, nnear, distances);
	for (uint32_t i = 0; i < nnear; i++)
		out[places[i]] = distances[i];
}
