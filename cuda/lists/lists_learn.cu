/*
 * lists_learn.cu
 *		Training of lists, step by step: k-means of whole rows, then of the
 *		sub-spaces of pq. The kernels are in lists_seeds.cu, lists_means.cu,
 *		lists_assign.cu and cuda/quantizer/pq_nearest.cuh.
 *
 * The host knows of each round its inertia only, which ends the rounds when it
 * stays as it is. Which rows seeds are chosen from is drawn here.
 *
 * Memory: the sample, the floats, then what k-means of whole rows needs; the
 * same memory serves the sub-spaces afterwards, LEARN_PARTS of them at a time.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/common/sort.h"
#include "cuda/lists/lists_assign.h"
#include "cuda/lists/lists_learn.h"
#include "cuda/lists/lists_means.h"
#include "cuda/quantizer/pq_nearest.cuh"

extern "C"
{
#include "engine/quantizer/random.h"
}

#define SEEDS_OF_STEP 256u
#define PRODUCTS_OF_STEP ((uint64_t) 1 << 37) /* of an assignment */
#define LEARN_PARTS 64u
#define PART_ROUNDS 16u /* of k-means, and */
#define PART_ROWS 256u	/* rows of a codeword, as pq.c has them */
#define ROUNDS_OF_STEP 2u

/* What is next. */
enum LearnPhase
{
	LEARN_SEEDS,
	LEARN_ASSIGN, /* rows of a round, some at a time */
	LEARN_MOVE,
	LEARN_RESIDUALS,
	LEARN_PART_SEEDS,
	LEARN_PART_ROUNDS,
	LEARN_OVER
};

/* What the host reads and writes while the device works: pinned. */
struct LearnShared
{
	double inertia;
	unsigned long long random[LEARN_PARTS];
	uint32_t sample[1]; /* of all sub-spaces that go on together */
};
static_assert(sizeof(LearnShared) + ENGINE_MAX_LISTS * KMEANS_SEEDS_SAMPLE * sizeof(uint32_t) <=
				  LISTS_LEARN_SHARED,
			  "samples of as many lists as there may be");
static_assert(sizeof(LearnShared) + LEARN_PARTS * 256 * KMEANS_SEEDS_SAMPLE * sizeof(uint32_t) <=
				  LISTS_LEARN_SHARED,
			  "samples of sub-spaces");

struct ListsLearn
{
	ListsTraining training;
	uint32_t count;
	const ListsLimits *limits;
	cudaStream_t stream;
	float *sample;
	float *floats;
	void *assign_scratch;
	MeansView whole;
	MeansView part;
	EntrySort sort;
	LearnShared *shared;
	LearnPhase phase;
	uint32_t at; /* of the phase: a seed, a row, a round */
	uint32_t round;
	bool assigned; /* `shared` has the inertia of this round */
	double inertia;
	uint32_t done;
};

/* What k-means of some sub-spaces, or of whole rows, has for each. */
static void
lay_out_means(unsigned char **at, MeansView *view)
{
	uint32_t most = view->count > view->sampled ? view->count : view->sampled;

	view->run_room = (most + KMEANS_RUN - 1) / KMEANS_RUN;
	view->sample = carve<uint32_t>(at, (size_t) view->some * view->sampled);
	view->nearness = carve<double>(at, (size_t) view->some * view->sampled);
	view->runs = carve<double>(at, (size_t) view->some * view->run_room);
	view->random = carve<unsigned long long>(at, view->some);
	view->ended = carve<uint32_t>(at, view->some);
	view->chosen = carve<uint32_t>(at, view->some);
	view->nearest = carve<uint32_t>(at, (size_t) view->some * view->count);
	view->distances = carve<double>(at, (size_t) view->some * view->count);
	view->sizes = carve<uint32_t>(at, (size_t) view->some * view->lists);
	view->weights = carve<uint32_t>(at, (size_t) view->some * view->lists);
	view->inertia = carve<double>(at, view->some);
	view->last_round = carve<uint32_t>(at, view->some);
}

static uint32_t
sampled_of(uint32_t count, uint32_t lists)
{
	uint64_t wanted = (uint64_t) lists * KMEANS_SEEDS_SAMPLE;

	return count < wanted ? count : (uint32_t) wanted;
}

/* k-means of whole rows (kmeans_task() of lists_train.c). */
static void
shape_whole(ListsLearn *learn)
{
	const ListsTraining &training = learn->training;
	MeansView *view = &learn->whole;

	view->rows = learn->sample;
	view->stride = training.shape.dims;
	view->count = learn->count;
	view->dims = training.shape.dims;
	view->parts = view->some = 1;
	view->lists = training.lists;
	view->centroids = learn->floats;
	view->balance = training.balance;
	view->sampled = sampled_of(learn->count, training.lists);
}

/* k-means of sub-spaces (part_task() of pq.c). */
static void
shape_parts(ListsLearn *learn)
{
	const QuantizerShape &shape = learn->training.shape;
	uint32_t words = 1u << shape.bits;
	uint32_t most = words * PART_ROWS;
	uint32_t step = learn->count / most > 1 ? learn->count / most : 1;
	MeansView *view = &learn->part;

	view->rows = learn->sample;
	view->stride = (size_t) shape.dims * step;
	view->count = learn->count / step;
	view->dims = shape.dims;
	view->parts = shape.parts;
	view->some = shape.parts < LEARN_PARTS ? shape.parts : LEARN_PARTS;
	view->lists = words;
	view->centroids = learn->floats + (size_t) learn->training.lists * shape.dims;
	view->sampled = sampled_of(view->count, words);
}

/* Lay out the memory of a training; returns its bytes. */
static size_t
lay_out_learn(ListsLearn *learn, unsigned char *memory)
{
	const ListsTraining &training = learn->training;
	uint32_t dims = training.shape.dims;
	unsigned char *at = memory;
	unsigned char *begin,
		*whole;

	learn->sample = carve<float>(&at, (size_t) learn->count * dims);
	learn->floats = carve<float>(&at, lists_floats(&training.shape, training.lists));
	begin = at;
	shape_whole(learn);
	lay_out_means(&at, &learn->whole);
	learn->whole.first = carve<uint32_t>(&at, (size_t) training.lists + 1);
	for (int side = 0; side < 2; side++)
	{
		learn->sort.side[side].key = carve<Key>(&at, learn->count);
		learn->sort.side[side].slot = carve<uint32_t>(&at, learn->count);
	}
	if (entry_sort_bytes(learn->count, &learn->sort.work_bytes) != cudaSuccess)
		learn->sort.work_bytes = (size_t) learn->count * 16;
	learn->sort.work = carve(&at, learn->sort.work_bytes);
	learn->assign_scratch = carve(&at, lists_assign_bytes(training.lists, dims, learn->count));
	whole = at;
	if (training.shape.kind != QUANTIZER_PQ)
		return (size_t) (whole - memory);
	at = begin;
	shape_parts(learn);
	lay_out_means(&at, &learn->part);
	return (size_t) ((at > whole ? at : whole) - memory);
}

size_t
lists_learn_bytes(const ListsTraining *training, uint32_t count)
{
	ListsLearn learn = {};

	learn.training = *training;
	learn.count = count;
	return lay_out_learn(&learn, NULL);
}

/* Draw a sample's rows, as kmeans.c does; `order` is as it was afterwards. */
static void
draw_sample(uint64_t *random, uint32_t count, uint32_t sampled, uint32_t *order, uint32_t *sample)
{
	random_draw(random, order, count, sampled);
	memcpy(sample, order, sampled * sizeof(uint32_t));
	/* what was put behind the sample lies in the places that rows of it had */
	for (uint32_t i = 0; i < sampled; i++)
		order[sample[i]] = sample[i];
	for (uint32_t i = 0; i < sampled; i++)
		order[i] = i;
}

/* Begin k-means of `some` sub-spaces, whose seeds are these. */
static cudaError_t
begin_means(ListsLearn *learn, MeansView *view, uint64_t seed)
{
	LearnShared *shared = learn->shared;
	uint32_t *order = (uint32_t *) malloc((size_t) view->count * sizeof(uint32_t));
	cudaError_t error;

	if (order == NULL)
		return cudaErrorMemoryAllocation;
	for (uint32_t i = 0; i < view->count; i++)
		order[i] = i;
	for (uint32_t at = 0; at < view->some; at++)
	{
		uint64_t random = seed + at;

		draw_sample(&random, view->count, view->sampled, order,
					shared->sample + (size_t) at * view->sampled);
		shared->random[at] = random;
	}
	free(order);
	error = cudaMemcpyAsync((void *) view->sample, shared->sample,
							(size_t) view->some * view->sampled * sizeof(uint32_t),
							cudaMemcpyHostToDevice, learn->stream);
	if (error == cudaSuccess)
		error = cudaMemcpyAsync(view->random, shared->random,
								view->some * sizeof(unsigned long long), cudaMemcpyHostToDevice,
								learn->stream);
	if (error == cudaSuccess)
		error = cudaMemsetAsync(view->ended, 0, view->some * sizeof(uint32_t), learn->stream);
	if (error == cudaSuccess)
		error = cudaMemsetAsync(view->last_round, 0xFF, view->some * sizeof(uint32_t),
								learn->stream);
	return error;
}

ListsLearn *
lists_learn_begin(const ListsTraining *training, void *memory, void *shared, uint32_t count,
				  const ListsLimits *limits, cudaStream_t stream)
{
	ListsLearn *learn = (ListsLearn *) calloc(1, sizeof(ListsLearn));

	if (learn == NULL)
		return NULL;
	learn->training = *training;
	learn->count = count;
	learn->limits = limits;
	learn->stream = stream;
	learn->shared = (LearnShared *) shared;
	(void) lay_out_learn(learn, (unsigned char *) memory);
	return learn;
}

/* ---- steps --------------------------------------------------------------- */

/* Rows that a step assigns. */
static uint32_t
assigned_rows(const ListsLearn *learn)
{
	uint64_t rows = PRODUCTS_OF_STEP / ((uint64_t) learn->training.lists * learn->whole.dims);
	uint32_t wave = learn->limits->processors * ASSIGN_BLOCKS * ASSIGN_ROWS;

	rows = rows < wave ? wave : rows / wave * wave;
	return rows < learn->count ? (uint32_t) rows : learn->count;
}

/* Assign the next rows; whether they were the last ones. */
static cudaError_t
assign_some(ListsLearn *learn, bool distances, bool *last)
{
	const MeansView &view = learn->whole;
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

/* After the assignment of a round of whole rows. */
static cudaError_t
move_whole(ListsLearn *learn)
{
	MeansView *view = &learn->whole;
	EntrySort *sort = &learn->sort;
	bool last = learn->round + 1 == learn->training.rounds;
	cudaError_t error;

	sort->current = 0;
	error = means_inertia(view, learn->round, learn->stream);
	if (error == cudaSuccess)
		error = cudaMemcpyAsync(&learn->shared->inertia, view->inertia, sizeof(double),
								cudaMemcpyDeviceToHost, learn->stream);
	if (error == cudaSuccess)
		error = means_keys(view, sort->side[0].key, sort->side[0].slot, learn->stream);
	if (error == cudaSuccess)
		error = entry_sort(sort, view->count, learn->stream);
	view->members = sort->side[sort->current].slot;
	if (error == cudaSuccess)
		error = means_move(view, sort->side[sort->current].key, learn->round, learn->stream);
	if (error == cudaSuccess)
		error = means_seed_lists(view, learn->round, last, learn->stream);
	return error;
}

/* Rounds of the sub-spaces that go on together. */
static cudaError_t
part_round(ListsLearn *learn, uint32_t round)
{
	const MeansView &view = learn->part;
	PqPieces pieces = {};
	cudaError_t error;

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
	error = pq_nearest(&pieces, view.some, learn->stream);
	if (error == cudaSuccess)
		error = means_inertia(&view, round, learn->stream);
	if (error == cudaSuccess)
		error = means_move(&view, NULL, round, learn->stream);
	if (error == cudaSuccess)
		error = means_seed_lists(&view, round, round + 1 == PART_ROUNDS, learn->stream);
	return error;
}

/* Go to the next phase, from its beginning. */
static void
go_to(ListsLearn *learn, LearnPhase phase)
{
	learn->phase = phase;
	learn->at = 0;
}

/* What follows the rounds of whole rows. */
static void
after_rounds(ListsLearn *learn)
{
	go_to(learn, learn->training.shape.kind == QUANTIZER_PQ ? LEARN_RESIDUALS : LEARN_OVER);
}

/*
 * Look at the inertia of the round that the device has ended. As kmeans_run()
 * does it, the rounds end after two of the same.
 */
static void
end_round(ListsLearn *learn)
{
	bool settled = learn->round > 0 && learn->shared->inertia == learn->inertia;

	learn->assigned = false;
	learn->inertia = learn->shared->inertia;
	learn->round++;
	if (settled || learn->round == learn->training.rounds)
		after_rounds(learn);
}

/* Launch a step of seeds; whether they were the last ones. */
static cudaError_t
seed_some(ListsLearn *learn, MeansView *view, uint64_t seed, bool *last)
{
	uint32_t to = view->lists - learn->at < SEEDS_OF_STEP ? view->lists : learn->at + SEEDS_OF_STEP;
	cudaError_t error = learn->at == 0 ? begin_means(learn, view, seed) : cudaSuccess;

	if (error == cudaSuccess)
		error = seeds_launch(view, learn->at, to, learn->stream);
	learn->at = to;
	*last = to == view->lists;
	return error;
}

/* Rounds of sub-spaces; after the last one the next of them begin. */
static cudaError_t
step_parts(ListsLearn *learn)
{
	MeansView *view = &learn->part;
	cudaError_t error = cudaSuccess;

	for (uint32_t i = 0; i < ROUNDS_OF_STEP && learn->at < PART_ROUNDS && error == cudaSuccess; i++)
		error = part_round(learn, learn->at++);
	if (learn->at < PART_ROUNDS)
		return error;
	view->first_part += view->some;
	if (view->parts - view->first_part < view->some)
		view->some = view->parts - view->first_part;
	go_to(learn, view->some > 0 ? LEARN_PART_SEEDS : LEARN_OVER);
	return error;
}

/* Launch the work of a phase. */
static cudaError_t
step_phase(ListsLearn *learn)
{
	const QuantizerShape &shape = learn->training.shape;
	bool last = false;
	cudaError_t error = cudaSuccess;

	switch (learn->phase)
	{
		case LEARN_SEEDS:
			error = seed_some(learn, &learn->whole, shape.seed, &last);
			if (last && learn->training.rounds > 0)
				go_to(learn, LEARN_ASSIGN);
			else if (last)
				after_rounds(learn);
			break;
		case LEARN_ASSIGN:
			error = assign_some(learn, true, &last);
			if (last)
				go_to(learn, LEARN_MOVE);
			break;
		case LEARN_MOVE:
			error = move_whole(learn);
			learn->assigned = true;
			go_to(learn, LEARN_ASSIGN);
			break;
		case LEARN_RESIDUALS:
			error = assign_some(learn, false, &last);
			if (last && error == cudaSuccess)
				error = means_residuals(learn->sample, learn->floats, learn->whole.nearest,
										learn->count, shape.dims, learn->stream);
			if (last)
				go_to(learn, LEARN_PART_SEEDS);
			break;
		case LEARN_PART_SEEDS:
			error = seed_some(learn, &learn->part, shape.seed + learn->part.first_part, &last);
			if (last)
				go_to(learn, LEARN_PART_ROUNDS);
			break;
		case LEARN_PART_ROUNDS:
			error = step_parts(learn);
			break;
		case LEARN_OVER:
			break;
	}
	return error;
}

/* Steps in all, if no rounds are left out. */
static uint32_t
all_steps(const ListsLearn *learn)
{
	uint32_t rows = assigned_rows(learn);
	uint32_t assigns = (learn->count + rows - 1) / rows;
	uint32_t steps = (learn->training.lists + SEEDS_OF_STEP - 1) / SEEDS_OF_STEP +
					 learn->training.rounds * (assigns + 1);

	if (learn->training.shape.kind == QUANTIZER_PQ)
		steps += assigns + (learn->part.parts + LEARN_PARTS - 1) / LEARN_PARTS *
							   (1 + PART_ROUNDS / ROUNDS_OF_STEP);
	return steps;
}

cudaError_t
lists_learn_step(ListsLearn *learn, bool *over, uint32_t *done, uint32_t *total)
{
	cudaError_t error = cudaSuccess;

	if (learn->assigned)
		end_round(learn);
	*over = learn->phase == LEARN_OVER;
	if (!*over)
	{
		error = step_phase(learn);
		learn->done++;
	}
	*total = all_steps(learn);
	*done = *over ? *total : learn->done;
	return error;
}

const float *
lists_learn_floats(const ListsLearn *learn, double *inertia)
{
	*inertia = learn->inertia;
	return learn->floats;
}

void
lists_learn_end(ListsLearn *learn)
{
	free(learn);
}
