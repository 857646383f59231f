/*
 * lists_learn.h
 *		Training of lists on the device: k-means by exact assignment, then the
 *		codebook of the quantizer from residuals.
 *
 * The steps are those of src/engine/quantizer/lists_train.h and make the same
 * floats: assignment is exact, means are summed in double in the order of rows,
 * distances in runs of KMEANS_RUN, seeds and restarts follow from the seed.
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

/* Bytes of pinned memory, of any training. */
#define LISTS_LEARN_SHARED ((size_t) 264 << 10)

/*
 * Begin: memory is device memory of lists_learn_bytes(), which begins with the
 * sample (count x dims floats, to be there when the stream has done what was
 * launched before; under pq its rows become residuals); shared is pinned memory
 * of LISTS_LEARN_SHARED bytes: to take some now would make other streams wait.
 * NULL: no memory on the host. training->control is unused.
 * lists_code_prepare() has been called.
 */
extern ListsLearn *lists_learn_begin(const ListsTraining *training, void *memory, void *shared,
									 uint32_t count, const ListsLimits *limits,
									 cudaStream_t stream);

/*
 * Launch the next few milliseconds of work. To be called again when the stream
 * has done it; *over: all has been done, and this call launched nothing. *done
 * counts steps, of *total. cudaErrorMemoryAllocation: no memory on the host.
 */
extern cudaError_t lists_learn_step(ListsLearn *learn, bool *over, uint32_t *done,
									uint32_t *total);

/*
 * When it is over: the floats (device memory, lists_floats() of them:
 * centroids, then codebook), and the inertia as lists_train() tells it. They
 * lie in the memory of the training, which lists_learn_end() does not free; a
 * training may be ended early when the stream has done its work.
 */
extern const float *lists_learn_floats(const ListsLearn *learn, double *inertia);
extern void lists_learn_end(ListsLearn *learn);

#endif /* GPUANN_CUDA_LISTS_LEARN_H */
