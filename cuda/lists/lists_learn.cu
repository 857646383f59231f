/*
 * lists_learn.cu
 *		Training of lists, step by step: k-means of whole rows, then of the
 *		sub-spaces of pq. The kernels are in lists_seeds.cu, lists_means.cu,
 *		lists_assign.cu and cuda/quantizer/pq_nearest.cuh.
 *
 * The host reads nothing of it: all rounds are run, also where nothing moves
 * any more.
 *
 * Memory: the sample, the floats, then what k-means of whole rows needs; the
 * same memory serves the sub-spaces afterwards, LEARN_PARTS of them at a time.
 */
#include <stdlib.h>

#include "cuda/lists/lists_assign.h"
#include "cuda/lists/lists_learn.h"
#include "cuda/lists/lists_means.h"
#include "cuda/quantizer/pq_nearest.cuh"

#define SEEDS_OF_STEP 256u
#define PRODUCTS_OF_STEP ((uint64_t) 1 << 37) /* of an assignment */
#define LEARN_PARTS 16u
#define PART_ROUNDS 16u /* of k-means, and */
#define PART_ROWS 256u	/* rows of a codeword, as pq.c has them */

/* What is next. */
enum LearnPhase
{
	LEARN_SEEDS,
	LEARN_ROUND,	 /* of whole rows, some at a time, or of sub-spaces */
	LEARN_RESIDUALS, /* likewise */
	LEARN_OVER
};

struct ListsLearn
{
	ListsTraining training;
	uint32_t count;
	const ListsLimits *limits;
	cudaStream_t stream;
	float *sample;
	float *floats;
	unsigned char *scratch; /* of the k-means that is run */
	MeansView view;
	EntrySort sort;
	void *assign_scratch;
	LearnPhase phase;
	uint32_t at; /* of the phase: a seed, a row */
	uint32_t round;
	uint32_t done;
};

/* Lay out what a k-means needs, in the scratch; returns where that ends. */
static unsigned char *
lay_out_means(ListsLearn *learn)
{
	unsigned char *at = learn->scratch;
	MeansView *view = &learn->view;
	EntrySort *sort = &learn->sort;
	uint64_t wanted = (uint64_t) view->lists * KMEANS_SEEDS_SAMPLE;
	size_t rows = (size_t) view->some * view->count;
	size_t lists = (size_t) view->some * view->lists;

	view->sampled = view->count < wanted ? view->count : (uint32_t) wanted;
	view->nearness = carve<double>(&at, (size_t) view->some * view->sampled);
	view->winners = carve<unsigned long long>(&at, lists);
	view->nearest = carve<uint32_t>(&at, rows);
	view->distances = carve<double>(&at, rows);
	view->weights = carve<uint32_t>(&at, lists);
	view->first = carve<uint32_t>(&at, lists + 1);
	for (int side = 0; side < 2; side++)
	{
		sort->side[side].key = carve<Key>(&at, rows);
		sort->side[side].slot = carve<uint32_t>(&at, rows);
	}
	if (entry_sort_bytes((uint32_t) rows, &sort->work_bytes) != cudaSuccess)
		sort->work_bytes = rows * 16;
	sort->work = carve(&at, sort->work_bytes);
	return at;
}

/* Begin k-means of whole rows (kmeans_task() of lists_train.c). */
static unsigned char *
begin_whole(ListsLearn *learn)
{
	const ListsTraining &training = learn->training;
	MeansView *view = &learn->view;
	unsigned char *at;

	view->rows = learn->sample;
	view->stride = view->dims = training.shape.dims;
	view->count = learn->count;
	view->parts = view->some = 1;
	view->lists = training.lists;
	view->centroids = learn->floats;
	view->seed = training.shape.seed;
	view->balance = training.balance;
	at = lay_out_means(learn);
	learn->assign_scratch =
		carve(&at, lists_assign_bytes(training.lists, view->dims, learn->count));
	return at;
}

/* Begin k-means of some sub-spaces (part_task() of pq.c). */
static unsigned char *
begin_parts(ListsLearn *learn, uint32_t first_part)
{
	const QuantizerShape &shape = learn->training.shape;
	uint32_t words = 1u << shape.bits;
	uint32_t most = words * PART_ROWS;
	uint32_t step = learn->count / most > 1 ? learn->count / most : 1;
	uint32_t left = shape.parts - first_part;
	MeansView *view = &learn->view;

	view->stride = (size_t) shape.dims * step;
	view->count = learn->count / step;
	view->parts = shape.parts;
	view->first_part = first_part;
	view->some = left < LEARN_PARTS ? left : LEARN_PARTS;
	view->lists = words;
	view->centroids = learn->floats + (size_t) learn->training.lists * shape.dims;
	view->balance = false;
	return lay_out_means(learn);
}

/* Lay out the memory of a training, and begin it; returns its bytes. */
static size_t
lay_out_learn(ListsLearn *learn, unsigned char *memory)
{
	const ListsTraining &training = learn->training;
	size_t floats = lists_learn_inertia(lists_floats(&training.shape, training.lists)) + 2;
	unsigned char *at = memory;
	unsigned char *whole,
		*parts = NULL;

	learn->sample = carve<float>(&at, (size_t) learn->count * training.shape.dims);
	learn->floats = carve<float>(&at, floats);
	learn->scratch = at;
	if (training.shape.kind == QUANTIZER_PQ)
		parts = begin_parts(learn, 0);
	learn->view = {};
	whole = begin_whole(learn);
	return (size_t) ((parts > whole ? parts : whole) - memory);
}

size_t
lists_learn_bytes(const ListsTraining *training, uint32_t count)
{
	ListsLearn learn = {};

	learn.training = *training;
	learn.count = count;
	return lay_out_learn(&learn, NULL);
}

ListsLearn *
lists_learn_begin(const ListsTraining *training, void *memory, uint32_t count,
				  const ListsLimits *limits, cudaStream_t stream)
{
	ListsLearn *learn = (ListsLearn *) calloc(1, sizeof(ListsLearn));

	if (learn == NULL)
		return NULL;
	learn->training = *training;
	learn->count = count;
	learn->limits = limits;
	learn->stream = stream;
	(void) lay_out_learn(learn, (unsigned char *) memory);
	return learn;
}

/* ---- steps --------------------------------------------------------------- */

/* Whether k-means of whole rows has not ended. */
static bool
is_whole(const ListsLearn *learn)
{
	return learn->view.centroids == learn->floats;
}

/* Rows that a step assigns. */
static uint32_t
assigned_rows(const ListsLearn *learn)
{
	uint32_t dims = learn->training.shape.dims;
	uint64_t rows = PRODUCTS_OF_STEP / ((uint64_t) learn->training.lists * dims);
	uint32_t wave = learn->limits->processors * ASSIGN_BLOCKS * ASSIGN_ROWS;

	rows = rows < wave ? wave : rows / wave * wave;
	return rows < learn->count ? (uint32_t) rows : learn->count;
}

/* Assign the next whole rows; whether they were the last ones. */
static cudaError_t
assign_whole(ListsLearn *learn, bool distances, bool *last)
{
	const MeansView &view = learn->view;
	uint32_t rows = assigned_rows(learn);
	ListsAssign assign = {};

	rows = learn->count - learn->at < rows ? learn->count - learn->at : rows;
	assign.centroids = view.centroids;
	assign.lists = view.lists;
	assign.dims = view.dims;
	assign.rows = learn->sample + (size_t) learn->at * view.dims;
	assign.count = rows;
	assign.nearest = view.nearest + learn->at;
	assign.distances = distances ? view.distances + learn->at : NULL;
	assign.scratch = learn->assign_scratch;
	assign.limits = learn->limits;
	assign.stream = learn->stream;
	learn->at += rows;
	*last = learn->at == learn->count;
	return lists_assign(&assign);
}

/* Assign all rows of the sub-spaces that go on together. */
static cudaError_t
assign_parts(ListsLearn *learn)
{
	const MeansView &view = learn->view;
	PqPieces pieces = {};

	pieces.rows = view.rows;
	pieces.stride = view.stride;
	pieces.codebook = view.centroids;
	pieces.dims = view.dims;
	pieces.parts = view.parts;
	pieces.bits = learn->training.shape.bits;
	pieces.first_part = view.first_part;
	pieces.count = view.count;
	pieces.nearest = view.nearest;
	pieces.distances = view.distances;
	return pq_nearest(&pieces, view.some, learn->stream);
}

/* Go to the next phase, from its beginning. */
static void
go_to(ListsLearn *learn, LearnPhase phase)
{
	learn->phase = phase;
	learn->at = learn->round = 0;
}

/* What follows the rounds: residuals, the next sub-spaces, or nothing. */
static void
after_rounds(ListsLearn *learn)
{
	bool pq = learn->training.shape.kind == QUANTIZER_PQ;
	uint32_t next = learn->view.first_part + learn->view.some;

	if (is_whole(learn))
		go_to(learn, pq ? LEARN_RESIDUALS : LEARN_OVER);
	else if (next == learn->view.parts)
		go_to(learn, LEARN_OVER);
	else
	{
		(void) begin_parts(learn, next);
		go_to(learn, LEARN_SEEDS);
	}
}

/* Launch some seeds. */
static cudaError_t
step_seeds(ListsLearn *learn)
{
	uint32_t lists = learn->view.lists;
	uint32_t to = lists - learn->at < SEEDS_OF_STEP ? lists : learn->at + SEEDS_OF_STEP;
	cudaError_t error = seeds_launch(&learn->view, learn->at, to, learn->stream);

	learn->at = to;
	if (to == lists)
		go_to(learn, LEARN_ROUND);
	return error;
}

/* Launch a round, or of whole rows a part of it. */
static cudaError_t
step_round(ListsLearn *learn)
{
	bool whole = is_whole(learn);
	uint32_t rounds = whole ? learn->training.rounds : PART_ROUNDS;
	bool last = learn->round + 1 == rounds;
	bool assigned = true;
	cudaError_t error = whole ? assign_whole(learn, true, &assigned) : assign_parts(learn);

	if (!assigned || error != cudaSuccess)
		return error;
	if (whole && last)
	{
		size_t floats = lists_floats(&learn->training.shape, learn->training.lists);

		error = means_inertia(&learn->view,
							  (double *) (learn->floats + lists_learn_inertia(floats)),
							  learn->stream);
	}
	if (error == cudaSuccess)
		error = means_move(&learn->view, &learn->sort, learn->round, last, learn->stream);
	learn->at = 0;
	learn->round++;
	if (last)
		after_rounds(learn);
	return error;
}

/* Launch residuals; after the last ones sub-spaces are next. */
static cudaError_t
step_residuals(ListsLearn *learn)
{
	bool last;
	cudaError_t error = assign_whole(learn, false, &last);

	if (!last || error != cudaSuccess)
		return error;
	error = means_residuals(learn->sample, learn->floats, learn->view.nearest, learn->count,
							learn->view.dims, learn->stream);
	(void) begin_parts(learn, 0);
	go_to(learn, LEARN_SEEDS);
	return error;
}

/* Steps in all. */
static uint32_t
all_steps(const ListsLearn *learn)
{
	const QuantizerShape &shape = learn->training.shape;
	uint32_t rows = assigned_rows(learn);
	uint32_t assigns = (learn->count + rows - 1) / rows;
	uint32_t steps = (learn->training.lists + SEEDS_OF_STEP - 1) / SEEDS_OF_STEP +
					 learn->training.rounds * assigns;

	if (shape.kind == QUANTIZER_PQ)
		steps += assigns + (shape.parts + LEARN_PARTS - 1) / LEARN_PARTS * (1 + PART_ROUNDS);
	return steps;
}

cudaError_t
lists_learn_step(ListsLearn *learn, bool *over, uint32_t *done, uint32_t *total)
{
	cudaError_t error = cudaSuccess;

	*over = learn->phase == LEARN_OVER;
	if (learn->phase == LEARN_SEEDS)
		error = step_seeds(learn);
	else if (learn->phase == LEARN_ROUND)
		error = step_round(learn);
	else if (learn->phase == LEARN_RESIDUALS)
		error = step_residuals(learn);
	learn->done += !*over;
	*done = learn->done;
	*total = all_steps(learn);
	return error;
}

const float *
lists_learn_floats(const ListsLearn *learn)
{
	return learn->floats;
}

void
lists_learn_end(ListsLearn *learn)
{
	free(learn);
}
