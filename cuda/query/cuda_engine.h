/*
 * cuda_engine.h
 *		The engine: state shared by queries (cuda/query) and jobs (cuda/jobs).
 *
 * All of it belongs to the engine's owner thread. Other threads are CUDA's
 * callback thread, which runs the host functions at the end of pieces (they
 * wake the owner) and stages bitmaps, the poller (poller.h), and the pool
 * (host_pool.h), which works only while the owner is within submit or poll.
 */
#ifndef GPUANN_CUDA_ENGINE_H
#define GPUANN_CUDA_ENGINE_H

#include "cuda/memory/device.h"
#include "cuda/query/batch.h"
#include "cuda/query/conditions.h"
#include "cuda/query/host_pool.h"
#include "cuda/query/host_rows.h"
#include "cuda/query/poller.h"

struct CudaJobs;

struct CudaEngine
{
	EngineConfig config;
	CudaDevice device;
	RowStream stream;

	BatchStream streams[BATCH_STREAMS];
	unsigned char *pinned; /* pinned memory of all batch streams */
	CudaTask *first_waiting;
	CudaTask *last_waiting;
	CudaTask *first_ended;
	CudaTask *last_ended;
	CudaTask **free_tasks; /* a stack of free tasks; an array, so that the next ones can be
						    * prefetched */
	uint32_t nfree_tasks;
	uint32_t nqueries; /* submitted and not ended */
	uint64_t asked_us; /* when queries were last submitted; 0: never */
	uint32_t free_room; /* capacity of free_tasks */
	KindCache kinds;
	Conditions conditions;
	HostPool pool;

	Poller poller;
	CudaJobs *jobs; /* state of cuda/jobs, opaque here */
};

#endif /* GPUANN_CUDA_ENGINE_H */
