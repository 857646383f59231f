/*
 * lists_train.h
 *		Centroids of lists, and the codebook by which their rows are encoded,
 *		from a sample of rows.
 *
 * Both are one array of floats, as pages and mirrors keep it: centroids (lists x
 * dims), then the quantizer's codebook. The same sample and numbers give the
 * same floats, whatever the number of threads and the processor.
 */
#ifndef GPUANN_LISTS_TRAIN_H
#define GPUANN_LISTS_TRAIN_H

#include "engine/quantizer/quantizer.h"

#define LISTS_TRAIN_ROUNDS	10		/* of k-means, unless it is said otherwise */
#define LISTS_TRAIN_ROWS	256		/* of the sample, for each list */

typedef struct ListsTraining
{
	QuantizerShape shape;
	uint32_t	lists;
	uint32_t	rounds;
	bool		balance;		/* as KmeansTask */
	const TrainControl *control; /* or NULL */
} ListsTraining;

/* Floats of centroids and codebook. */
extern size_t lists_floats(const QuantizerShape *shape, uint32_t lists);

/* Bytes that lists_train() allocates for a sample of count rows. */
extern size_t lists_train_bytes(const ListsTraining *training, uint32_t count);

/*
 * Rows that the sample of a mirror with so many live ones has at most: those
 * wanted (0: LISTS_TRAIN_ROWS for each list), or as many as a limit allows, a
 * row of each list at least. `bytes` says what a training takes.
 */
extern EngineStatus lists_size_sample(const ListsTraining *training, uint32_t wanted, uint32_t live,
									  uint64_t limit,
									  size_t (*bytes) (const ListsTraining *, uint32_t),
									  uint32_t *most, EngineError *error);

/*
 * Draw the sample of a mirror's rows: these are cut into as many ranges as the
 * sample has rows, and of each one that `take` takes (true) is drawn by the
 * seed; it leaves out those that are dead. Returns how many rows it took.
 */
extern uint32_t lists_draw_sample(uint64_t seed, uint32_t rows, uint32_t most,
								  bool (*take) (void *context, uint32_t row), void *context);

/*
 * Train from a sample (count x dims, at least one row; of length one under
 * cosine), whose rows become residuals. inertia gets the sum of squared
 * distances from the centroids of the last round but one. ENGINE_NO_MEMORY, or
 * ENGINE_CANCELLED by the control.
 */
extern EngineStatus lists_train(const ListsTraining *training, float *sample, uint32_t count,
								float *floats, double *inertia);

#endif							/* GPUANN_LISTS_TRAIN_H */
