/*
 * lists_train.c
 *		Training of lists: k-means, then the quantizer on what it leaves.
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quantizer/lists_train.h"
#include "engine/quantizer/nearest.h"
#include "engine/quantizer/random.h"

#define PIECE_ROWS	1024		/* whose residuals are made at once */

/* Rows that become residuals. */
typedef struct Residuals
{
	const ListsTraining *training;
	const Centroids *set;
	float	   *rows;
	uint32_t	count;
} Residuals;

size_t
lists_floats(const QuantizerShape *shape, uint32_t lists)
{
	return (size_t) lists * shape->dims + quantizer_codebook_bytes(shape) / sizeof(float);
}

static KmeansTask
kmeans_task(const ListsTraining *training, const float *sample, uint32_t count)
{
	return (KmeansTask) {.rows = sample,
						 .stride = training->shape.dims,
						 .count = count,
						 .dims = training->shape.dims,
						 .lists = training->lists,
						 .rounds = training->rounds,
						 .seed = training->shape.seed,
						 .balance = training->balance,
						 .control = training->control};
}

/* Bytes of the centroids as assignment reads them. */
static size_t
set_bytes(const ListsTraining *training)
{
	return (centroids_bytes(training->lists, training->shape.dims) + 63) / 64 * 64;
}

size_t
lists_train_bytes(const ListsTraining *training, uint32_t count)
{
	KmeansTask	task = kmeans_task(training, NULL, count);
	size_t		centroids = kmeans_bytes(&task) + training->rounds * sizeof(double);
	size_t		codebook = quantizer_train_bytes(&training->shape, count);

	if (codebook < set_bytes(training))
		codebook = set_bytes(training);
	return centroids > codebook ? centroids : codebook;
}

/* The most rows, up to `most`, whose training takes no more than a limit. */
static uint32_t
rows_under(const ListsTraining *training, uint32_t most, uint64_t limit,
		   size_t (*bytes) (const ListsTraining *, uint32_t))
{
	uint32_t	least = 0;		/* so many do fit */

	if (bytes(training, most) <= limit)
		return most;
	while (most - least > 1)
	{
		uint32_t	middle = least + (most - least) / 2;

		if (bytes(training, middle) <= limit)
			least = middle;
		else
			most = middle;
	}
	return least;
}

EngineStatus
lists_size_sample(const ListsTraining *training, uint32_t wanted, uint32_t live, uint64_t limit,
				  size_t (*bytes) (const ListsTraining *, uint32_t), uint32_t *most,
				  EngineError *error)
{
	uint64_t	rows = wanted > 0 ? wanted : (uint64_t) training->lists * LISTS_TRAIN_ROWS;
	uint32_t	needed = live < training->lists ? live : training->lists;

	*most = rows_under(training, rows < live ? (uint32_t) rows : live, limit, bytes);
	if (*most >= needed || *most == rows)
		return ENGINE_OK;
	return engine_error(error, ENGINE_NO_MEMORY,
						"training of %u lists takes %llu bytes or more, not %llu", training->lists,
						(unsigned long long) bytes(training, needed), (unsigned long long) limit);
}

uint32_t
lists_draw_sample(uint64_t seed, uint32_t rows, uint32_t most,
				  bool (*take) (void *context, uint32_t row), void *context)
{
	uint64_t	random = seed;
	uint32_t	taken = 0;

	for (uint32_t i = 0; i < most; i++)
	{
		uint32_t	begin = (uint32_t) ((uint64_t) rows * i / most);
		uint32_t	length = (uint32_t) ((uint64_t) rows * (i + 1) / most) - begin;
		uint32_t	offset = (uint32_t) (random_fraction(&random) * length);
		uint32_t	tried = 0;

		while (tried < length && !take(context, begin + (offset + tried) % length))
			tried++;
		taken += tried < length;
	}
	return taken;
}

/*
 * Take a centroid off a row. One that overflows has no code: it becomes zero,
 * so that it teaches nothing.
 */
static void
make_residual(float *row, const float *centroid, uint32_t dims)
{
	bool		finite = true;

	for (uint32_t i = 0; i < dims; i++)
	{
		row[i] -= centroid[i];
		finite &= isfinite(row[i]) != 0;
	}
	if (!finite)
		memset(row, 0, dims * sizeof(float));
}

/* TrainControl: make residuals of a piece of the sample. */
static void
make_residuals(void *argument, uint32_t piece)
{
	const Residuals *work = argument;
	uint32_t	dims = work->training->shape.dims;
	uint32_t	end = (piece + 1) * PIECE_ROWS < work->count ? (piece + 1) * PIECE_ROWS : work->count;
	const TrainControl *control = work->training->control;
	uint32_t	nearest[NEAREST_ROWS];

	if (control != NULL && control->interrupted != NULL && control->interrupted(control->context))
		return;					/* training the quantizer stops then too */
	for (uint32_t first = piece * PIECE_ROWS; first < end; first += NEAREST_ROWS)
	{
		uint32_t	count = end - first < NEAREST_ROWS ? end - first : NEAREST_ROWS;
		float	   *row = work->rows + (size_t) first * dims;

		centroids_nearest(work->set, row, dims, count, nearest, NULL);
		for (uint32_t i = 0; i < count; i++, row += dims)
			make_residual(row, work->set->centroids + (size_t) nearest[i] * dims, dims);
	}
}

/* Take the nearest centroids off the rows of the sample. */
static EngineStatus
subtract_centroids(const ListsTraining *training, float *sample, uint32_t count,
				   const float *centroids)
{
	const TrainControl *control = training->control;
	void	   *memory = aligned_alloc(64, set_bytes(training));
	uint32_t	pieces = (count + PIECE_ROWS - 1) / PIECE_ROWS;
	Centroids	set;
	Residuals	work = {training, &set, sample, count};

	if (memory == NULL)
		return ENGINE_NO_MEMORY;
	centroids_init(&set, centroids, training->lists, training->shape.dims, memory);
	if (control != NULL && control->spread != NULL)
		control->spread(control->context, make_residuals, &work, pieces);
	else
		for (uint32_t piece = 0; piece < pieces; piece++)
			make_residuals(&work, piece);
	free(memory);
	return ENGINE_OK;
}

EngineStatus
lists_train(const ListsTraining *training, float *sample, uint32_t count, float *floats,
			double *inertia)
{
	KmeansTask	task = kmeans_task(training, sample, count);
	double	   *inertias = calloc(training->rounds + 1, sizeof(double));
	EngineStatus status;

	if (inertias == NULL)
		return ENGINE_NO_MEMORY;
	task.inertia = inertias;
	status = kmeans_run(&task, floats);
	*inertia = training->rounds > 0 ? inertias[training->rounds - 1] : 0;
	free(inertias);
	if (status != ENGINE_OK || quantizer_codebook_bytes(&training->shape) == 0)
		return status;
	status = subtract_centroids(training, sample, count, floats);
	if (status != ENGINE_OK)
		return status;
	return quantizer_train(&training->shape, sample, count, training->control,
						   floats + (size_t) training->lists * training->shape.dims);
}
