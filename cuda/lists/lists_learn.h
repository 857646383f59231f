/*
 * lists_learn.h
 *		Training of lists on the device: k-means by exact assignment, then the
 *		codebook of the quantizer from residuals.
 *
 * The steps are those of src/engine/quantizer/lists_train.h. The floats are not
 * those of the CPU engine, but as good on average over seeds and samples (the
 * README has the figures). The inertia of one training differs from the CPU
 * engine's as that of one seed does from another's. The same sample and seed
 * give the same floats on a device.
 */
#ifndef GPUANN_CUDA_LISTS_LEARN_H
#define GPUANN_CUDA_LISTS_LEARN_H

#include "cuda/lists/lists_code.h"

extern "C"
{
#include "engine/quantizer/lists_train.h"
}

/* A training in progress; its own. */
struct ListsLearn;

/* Bytes of device memory for a sample of count rows, with the sample. */
extern size_t lists_learn_bytes(const ListsTraining *training, uint32_t count);

/*
 * Begin: memory is device memory of lists_learn_bytes(), which begins with the
 * sample (count x dims floats, to be there when the stream has done what was
 * launched before; under pq its rows become residuals). NULL: no memory on the
 * host. training->control is unused. lists_code_prepare() has been called.
 */
extern ListsLearn *lists_learn_begin(const ListsTraining *training, void *memory, uint32_t count,
									 const ListsLimits *limits, cudaStream_t stream);

/*
 * Launch the next few milliseconds of work. To be called again when the stream
 * has done it; *over: all has been done, and this call launched nothing. *done
 * counts steps, of *total.
 */
extern cudaError_t lists_learn_step(ListsLearn *learn, bool *over, uint32_t *done,
									uint32_t *total);

/*
 * When it is over: the floats (device memory, lists_floats() of them:
 * centroids, then codebook), and behind them, at lists_learn_inertia(), the
 * inertia as lists_train() tells it, a double. They lie in the memory of the
 * training, which lists_learn_end() does not free; a training may be ended
 * early when the stream has done its work.
 */
extern const float *lists_learn_floats(const ListsLearn *learn);
extern void lists_learn_end(ListsLearn *learn);

/* Where the inertia is among the floats: aligned, it takes two of them. */
static inline size_t
lists_learn_inertia(size_t nfloats)
{
	return (nfloats + 1) / 2 * 2;
}

#endif /* GPUANN_CUDA_LISTS_LEARN_H */
