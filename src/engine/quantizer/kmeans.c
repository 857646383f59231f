/*
 * kmeans.c
 *		k-means: seeds by their distance from each other, exact assignment, and
 *		lists without rows seeded anew.
 *
 * Work is cut into items that threads share: blocks of rows when distances are
 * computed, blocks of lists when means are. No sum crosses an item, but for the
 * inertia and the weights of seeds, which one thread adds up.
 *
 * A list without rows takes a row of the list that has most as its centroid.
 * That adds a centroid and moves none, so the inertia falls. (Moving the large
 * list's centroid by a little to both sides, as is common, lets it rise.)
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quantizer/kmeans.h"
#include "engine/quantizer/nearest.h"
#include "engine/quantizer/random.h"

#define ROWS_OF_ITEM	64		/* 4,000 lists of 128 dimensions: 1 ms, for which all may wait */
#define LISTS_OF_ITEM	16
#define DIMS_OF_SUM		512		/* of a mean, summed at once */

/* A training in progress. */
typedef struct Kmeans
{
	const KmeansTask *task;
	float	   *centroids;
	Centroids	set;
	void	   *tiles;			/* memory of the set */
	const DistanceKernels *kernels;
	uint64_t	random;
	uint32_t   *list;			/* of each row */
	uint32_t   *members;		/* rows in the order of their lists */
	double	   *distance;		/* of each row to its centroid; of a row of the sample to the seeds */
	uint32_t   *first;			/* lists + 1: where the members of each begin */
	uint32_t	sampled;
	uint32_t	seeds;			/* chosen */
	double		inertia;		/* of the last round */
	bool		settled;		/* it is that of the round before: nothing moves any more */
	_Atomic bool interrupted;
} Kmeans;

static const float *
kmeans_row_of(const Kmeans *kmeans, uint32_t row)
{
	return kmeans->task->rows + row * kmeans->task->stride;
}

/* Centroid of a list, to be written. */
static float *
centroid_of(const Kmeans *kmeans, uint32_t list)
{
	return kmeans->centroids + (size_t) list * kmeans->task->dims;
}

/* Whether to stop; once it is to be, for good. */
static bool
interrupted(Kmeans *kmeans)
{
	const TrainControl *control = kmeans->task->control;

	if (!kmeans->interrupted && control != NULL && control->interrupted != NULL &&
		control->interrupted(control->context))
		kmeans->interrupted = true;
	return kmeans->interrupted;
}

/* Run items of work; false: interrupted. */
static bool
spread(Kmeans *kmeans, void (*work) (void *kmeans, uint32_t item), uint32_t count,
	   uint32_t of_item)
{
	const TrainControl *control = kmeans->task->control;
	uint32_t	items = (uint32_t) (((uint64_t) count + of_item - 1) / of_item);

	if (control != NULL && control->spread != NULL && items > 1)
		control->spread(control->context, work, kmeans, items);
	else
		for (uint32_t item = 0; item < items; item++)
			work(kmeans, item);
	return !kmeans->interrupted;
}

static uint32_t
least(uint64_t a, uint64_t b)
{
	return (uint32_t) (a < b ? a : b);
}

/* The sum of distances, in the order of rows. */
static double
sum_distances(const double *distance, uint32_t count)
{
	double		sum = 0;

	for (uint32_t i = 0; i < count; i++)
		sum += distance[i];
	return sum;
}

/* ---- seeds ---- */

/* Draw rows without repetition into the beginning of members. */
static void
draw_sample(Kmeans *kmeans)
{
	uint32_t	count = kmeans->task->count;

	kmeans->sampled = least(count, (uint64_t) kmeans->task->lists * KMEANS_SEEDS_SAMPLE);
	for (uint32_t i = 0; i < count; i++)
		kmeans->members[i] = i;
	random_draw(&kmeans->random, kmeans->members, count, kmeans->sampled);
	for (uint32_t i = 0; i < kmeans->sampled; i++)
		kmeans->distance[i] = INFINITY;
}

/* Let the last seed be the nearest of those rows of the sample to which it is. */
static void
measure_seed(void *argument, uint32_t item)
{
	Kmeans	   *kmeans = argument;
	const float *seed = centroid_of(kmeans, kmeans->seeds - 1);
	uint32_t	end = least(kmeans->sampled, ((uint64_t) item + 1) * ROWS_OF_ITEM);

	if (interrupted(kmeans))
		return;
	for (uint32_t i = item * ROWS_OF_ITEM; i < end; i++)
	{
		double		distance = kmeans->kernels->exact(kmeans_row_of(kmeans, kmeans->members[i]), seed,
													  kmeans->task->dims);

		if (distance < kmeans->distance[i])
			kmeans->distance[i] = distance;
	}
}

/*
 * Draw a row of the sample with a probability that grows with its squared
 * distance from all seeds. Rounding may leave the mark behind the last row that
 * is no seed.
 */
static uint32_t
draw_seed(Kmeans *kmeans)
{
	double		sum = sum_distances(kmeans->distance, kmeans->sampled);
	double		mark;
	uint32_t	at = 0;

	if (!(sum > 0) || !isfinite(sum))
		return kmeans->members[kmeans->seeds % kmeans->sampled];
	mark = random_fraction(&kmeans->random) * sum;
	for (uint32_t i = 0; i < kmeans->sampled && mark >= 0; i++)
	{
		mark -= kmeans->distance[i];
		if (kmeans->distance[i] > 0)
			at = i;
	}
	return kmeans->members[at];
}

/*
 * Choose the first centroids (k-means++ over a sample: Arthur, Vassilvitskii
 * 2007). False: interrupted.
 */
static bool
choose_seeds(Kmeans *kmeans)
{
	size_t		bytes = kmeans->task->dims * sizeof(float);

	draw_sample(kmeans);
	for (kmeans->seeds = 0; kmeans->seeds < kmeans->task->lists;)
	{
		uint32_t	row = kmeans->seeds == 0 ? kmeans->members[0] : draw_seed(kmeans);

		memcpy(centroid_of(kmeans, kmeans->seeds), kmeans_row_of(kmeans, row), bytes);
		kmeans->seeds++;
		if (!spread(kmeans, measure_seed, kmeans->sampled, ROWS_OF_ITEM))
			return false;
	}
	return true;
}

/* ---- rounds ---- */

/* Find the nearest centroid of a block of rows. */
static void
assign_rows(void *argument, uint32_t item)
{
	Kmeans	   *kmeans = argument;
	uint32_t	begin = item * ROWS_OF_ITEM;

	if (!interrupted(kmeans))
		centroids_nearest(&kmeans->set, kmeans_row_of(kmeans, begin), kmeans->task->stride,
						  least(kmeans->task->count - begin, ROWS_OF_ITEM), kmeans->list + begin,
						  kmeans->distance + begin);
}

/* Sort rows by their lists, and within a list by number. */
static void
sort_members(Kmeans *kmeans)
{
	const KmeansTask *task = kmeans->task;
	uint32_t	begin = 0;

	memset(kmeans->first, 0, ((size_t) task->lists + 1) * sizeof(uint32_t));
	for (uint32_t row = 0; row < task->count; row++)
		kmeans->first[kmeans->list[row]]++;
	for (uint32_t list = 0; list < task->lists; list++)
	{
		uint32_t	size = kmeans->first[list];

		kmeans->first[list] = begin;
		begin += size;
	}
	for (uint32_t row = 0; row < task->count; row++)
		kmeans->members[kmeans->first[kmeans->list[row]]++] = row;
	memmove(kmeans->first + 1, kmeans->first, (size_t) task->lists * sizeof(uint32_t));
	kmeans->first[0] = 0;
}

/* Move a list's centroid to the mean of its rows. */
static void
move_centroid(Kmeans *kmeans, uint32_t list)
{
	double		sum[DIMS_OF_SUM];
	uint32_t	begin = kmeans->first[list];
	uint32_t	end = kmeans->first[list + 1];

	for (uint32_t from = 0; from < kmeans->task->dims && begin < end; from += DIMS_OF_SUM)
	{
		uint32_t	dims = least(kmeans->task->dims - from, DIMS_OF_SUM);

		memset(sum, 0, sizeof(sum));
		for (uint32_t i = begin; i < end; i++)
		{
			const float *row = kmeans_row_of(kmeans, kmeans->members[i]) + from;

			for (uint32_t d = 0; d < dims; d++)
				sum[d] += row[d];
		}
		for (uint32_t d = 0; d < dims; d++)
			centroid_of(kmeans, list)[from + d] = (float) (sum[d] / (end - begin));
	}
}

static void
move_centroids(void *argument, uint32_t item)
{
	Kmeans	   *kmeans = argument;
	uint32_t	end = least(kmeans->task->lists, ((uint64_t) item + 1) * LISTS_OF_ITEM);

	for (uint32_t list = item * LISTS_OF_ITEM; list < end && !interrupted(kmeans); list++)
		move_centroid(kmeans, list);
}

/* A row of a list that is not its centroid, from a random one on; NULL: none. */
static const float *
kmeans_row_apart(Kmeans *kmeans, uint32_t list)
{
	uint32_t	begin = kmeans->first[list];
	uint32_t	size = kmeans->first[list + 1] - begin;
	uint32_t	from = random_below(&kmeans->random, size);

	for (uint32_t i = 0; i < size; i++)
	{
		uint32_t	row = kmeans->members[begin + (from + i) % size];

		if (kmeans->distance[row] > 0)
			return kmeans_row_of(kmeans, row);
	}
	return NULL;
}

/*
 * Give a list a new centroid in the largest list. weight has the sizes of
 * lists, halved where a row was taken, 0 where there is none to take.
 */
static void
kmeans_seed_list(Kmeans *kmeans, uint32_t list, uint32_t *weight)
{
	for (;;)
	{
		uint32_t	largest = 0;
		const float *row;

		for (uint32_t other = 1; other < kmeans->task->lists; other++)
			if (weight[other] > weight[largest])
				largest = other;
		if (weight[largest] < 2)
			return;
		row = kmeans_row_apart(kmeans, largest);
		weight[largest] = row != NULL ? weight[largest] / 2 : 0;
		if (row == NULL)
			continue;
		memcpy(centroid_of(kmeans, list), row, kmeans->task->dims * sizeof(float));
		return;
	}
}

/*
 * Seed lists without rows anew; with balance those with few too, but for the
 * last round.
 */
static void
seed_lists(Kmeans *kmeans, bool last)
{
	const KmeansTask *task = kmeans->task;
	uint32_t   *weight = kmeans->list;	/* is made anew by the next assignment */
	uint32_t	enough = 1;

	if (task->lists > task->count)
		return;
	if (task->balance && !last && task->count / task->lists / KMEANS_SMALL_LIST > 1)
		enough = task->count / task->lists / KMEANS_SMALL_LIST;
	for (uint32_t list = 0; list < task->lists; list++)
		weight[list] = kmeans->first[list + 1] - kmeans->first[list];
	for (uint32_t list = 0; list < task->lists; list++)
		if (kmeans->first[list + 1] - kmeans->first[list] < enough)
			kmeans_seed_list(kmeans, list, weight);
}

/* Assign rows, move centroids and seed lists anew; false: interrupted. */
static bool
run_round(Kmeans *kmeans, uint32_t round)
{
	const KmeansTask *task = kmeans->task;
	double		before = kmeans->inertia;

	centroids_init(&kmeans->set, kmeans->centroids, task->lists, task->dims, kmeans->tiles);
	if (!spread(kmeans, assign_rows, task->count, ROWS_OF_ITEM))
		return false;
	kmeans->inertia = sum_distances(kmeans->distance, task->count);
	kmeans->settled = round > 0 && kmeans->inertia == before;
	sort_members(kmeans);
	if (!spread(kmeans, move_centroids, task->lists, LISTS_OF_ITEM))
		return false;
	seed_lists(kmeans, round + 1 == task->rounds);
	return true;
}

/* Bytes of the parts of a training's memory, each rounded up to 64. */
typedef struct KmeansMemory
{
	size_t		tiles;
	size_t		rows;			/* numbers of 4 bytes */
	size_t		distances;
	size_t		first;
} KmeansMemory;

static size_t
kmeans_round_up(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

static KmeansMemory
memory_of(const KmeansTask *task)
{
	KmeansMemory memory;

	memory.tiles = kmeans_round_up(centroids_bytes(task->lists, task->dims));
	memory.rows = kmeans_round_up(task->count * sizeof(uint32_t));
	memory.distances = kmeans_round_up(task->count * sizeof(double));
	memory.first = kmeans_round_up(((size_t) task->lists + 1) * sizeof(uint32_t));
	return memory;
}

size_t
kmeans_bytes(const KmeansTask *task)
{
	KmeansMemory memory = memory_of(task);

	return memory.tiles + 2 * memory.rows + memory.distances + memory.first;
}

EngineStatus
kmeans_run(const KmeansTask *task, float *centroids)
{
	Kmeans		kmeans = {.task = task, .centroids = centroids, .random = task->seed};
	KmeansMemory memory = memory_of(task);
	char	   *at = aligned_alloc(64, kmeans_bytes(task));
	bool		going;

	if (at == NULL)
		return ENGINE_NO_MEMORY;
	kmeans.kernels = distance_kernels(ELEMENT_FLOAT, METRIC_L2, SIMD_BEST);
	kmeans.tiles = at;
	kmeans.list = (uint32_t *) (void *) (at + memory.tiles);
	kmeans.members = (uint32_t *) (void *) (at + memory.tiles + memory.rows);
	kmeans.distance = (double *) (void *) (at + memory.tiles + 2 * memory.rows);
	kmeans.first = (uint32_t *) (void *) ((char *) kmeans.distance + memory.distances);
	going = choose_seeds(&kmeans);
	for (uint32_t round = 0; round < task->rounds && going; round++)
	{
		if (!kmeans.settled)
			going = run_round(&kmeans, round);
		if (task->inertia != NULL)
			task->inertia[round] = kmeans.inertia;
	}
	free(kmeans.tiles);
	return going ? ENGINE_OK : ENGINE_CANCELLED;
}
