/*
 * lists_work.h
 *		Rows on their way into lists: what a JOB_LINK or JOB_GRAPH of a mirror
 *		with lists is at. Private to lists_jobs.cu and lists_places.cu.
 */
#ifndef GPUANN_CUDA_LISTS_WORK_H
#define GPUANN_CUDA_LISTS_WORK_H

#include "cuda/jobs/job.h"
#include "cuda/lists/lists_code.h"

#define ROW_WORDS 6u /* what a piece says of a row: slot, list, place, place left, index and slot of
					  * a pending one */

typedef enum ListsPhase
{
	LISTS_SEND,		 /* a link: assign and encode a pass, */
	LISTS_FETCH,	 /* and copy the result to the host */
	LISTS_PLAN,		 /* choose places */
	LISTS_DIRECTORY, /* copy the directory to the device */
	LISTS_PLACE,	 /* write codes to their places */
	LISTS_OVER
} ListsPhase;

struct ListsWork
{
	ListsPhase phase;
	bool links;
	const uint32_t *slots; /* of all rows */
	uint32_t *numbers;	   /* of their lists; a load's own */
	unsigned char *codes;  /* a link's result */
	uint32_t count;
	uint32_t most;	/* maximum rows of a pass */
	uint32_t first; /* of the pass */
	uint32_t rows;
	uint32_t sent; /* rows of the pass whose copies were sent, */
	uint32_t got;  /* and have arrived */
	uint32_t ahead; /* rows of the next pass, if it was sent ahead */
	Fetch fetches[PIECES]; /* rows of the pass */

	/* of the pass, on the host */
	uint32_t *places; /* NO_SLOT: left out */
	uint32_t *left;	  /* places that rows leave for others */
	uint32_t nleft;
	uint32_t *more; /* rows of each list */
	double *distances; /* a link's, from their centroids */
	uint32_t *directory;
	uint32_t nwords;
	uint32_t words_room;

	/* a link's, on the device */
	Range memory;
	float *device_rows;
	uint32_t *device_slots; /* of the pass, on a side; the next pass has the other */
	uint32_t *device_numbers;
	uint32_t *device_codes;
	double *device_distances;
	uint32_t *side_slots[2];
	uint32_t *side_codes[2];
	uint32_t side;
	void *scratch;
};

/* lists_places.cu */

/*
 * Choose the places of the pass. False: no memory; then nothing has changed but
 * that lists may have more blocks.
 */
extern bool lists_plan_pass(CudaEngine *engine, CudaJob *job);
/*
 * Write the pass to its places. All of it is in the job stream before it is
 * published, and later batches wait for it. False: not now.
 */
extern bool lists_place_pass(CudaEngine *engine, CudaJob *job);

#endif /* GPUANN_CUDA_LISTS_WORK_H */
