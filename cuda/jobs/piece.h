/*
 * piece.h
 *		Pieces of jobs: pinned and device memory for what is staged, copied and
 *		applied at once.
 */
#ifndef GPUANN_CUDA_PIECE_H
#define GPUANN_CUDA_PIECE_H

#include "cuda/query/cuda_engine.h"

struct CudaJob;

#define PIECES 4u						/* pieces of jobs in flight */
#define PIECE_BYTES ((size_t) 4 << 20)	/* of a job, staged at once */
#define BUSY_PIECE_BYTES ((size_t) 1 << 20) /* the same while queries are in flight */

/* Pinned and device memory for one piece of a job. */
struct Piece
{
	CudaEngine *engine;
	CudaJob *job; /* whose piece is in flight; NULL: not in flight */
	bool held;	  /* not free, though it is not in flight: see piece_hold() */
	unsigned char *staged;
	unsigned char *device;
	cudaEvent_t done;
};

/* The part of a job's device-to-host copy that is in a piece, in units. */
struct Fetch
{
	uint32_t first;
	uint32_t count; /* 0: nothing */
};

/*
 * Send one piece of a job; false when there is no free piece, or the engine
 * failed.
 */
extern bool piece_append(CudaEngine *engine, CudaJob *job);
extern bool piece_overwrite(CudaEngine *engine, CudaJob *job);
extern bool piece_dead(CudaEngine *engine, CudaJob *job);
extern bool piece_graph(CudaEngine *engine, CudaJob *job);
extern bool piece_slots(CudaEngine *engine, CudaJob *job, const uint32_t *slots, uint32_t count,
						uint32_t *to);
extern bool piece_gap(CudaEngine *engine, CudaJob *job);
/* Rows of row_bytes each that a piece holds, at most `left`. */
extern uint32_t rows_of_piece(const CudaEngine *engine, size_t row_bytes, uint32_t left);
/* Copy to the device, on the job stream. */
extern bool upload_copy_in(CudaEngine *engine, void *to, const void *from, size_t bytes);
/* Set words of an array, at the indexes named; both are device memory. */
extern bool upload_words(CudaEngine *engine, uint32_t *to, const uint32_t *indexes,
						 const uint32_t *words, uint32_t count);
/*
 * Make batches of a mirror that start later wait for all that is in the job
 * stream now.
 */
extern bool hold_later_batches(CudaEngine *engine, CudaMirror *mirror);
extern void pieces_end(CudaEngine *engine);
/*
 * Take a piece, until piece_release(), into which the device writes; NULL: none
 * is free.
 */
extern Piece *piece_hold(CudaEngine *engine, CudaJob *job);
extern void piece_release(CudaJob *job);
/*
 * Send a piece without memory, whose completion implies that of all launches in
 * the job stream; false: not now.
 */
extern bool piece_send_fence(CudaEngine *engine, CudaJob *job);
/* A piece that is neither in flight nor held; NULL: there is none. */
extern Piece *piece_free(CudaEngine *engine);
/* Cancel pending device-to-host fetches, one for each piece. */
extern void pieces_let_go(CudaEngine *engine, const Fetch *fetches);
/* Record in the job stream that a piece's launches end here. */
extern bool piece_send(CudaEngine *engine, CudaJob *job, Piece *piece);

#endif /* GPUANN_CUDA_PIECE_H */
