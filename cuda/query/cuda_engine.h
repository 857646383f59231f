/*
 * cuda_engine.h
 *		The engine, as what serves queries and what runs jobs share it.
 *
 * All of it belongs to the engine's owner thread. Others exist: CUDA's, which
 * runs the functions that end a piece's work (they wake the owner), the poller
 * (poller.h), and the pool (host_pool.h), which works only while the owner is
 * within submit or poll.
 */
#ifndef GPUANN_CUDA_ENGINE_H
#define GPUANN_CUDA_ENGINE_H

#include "cuda/memory/device.h"
#include "cuda/query/batch.h"
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
	unsigned char *pinned; /* of all batch streams */
	CudaTask *first_waiting;
	CudaTask *last_waiting;
	CudaTask *first_ended;
	CudaTask *last_ended;
	CudaTask **free_tasks; /* an array, so that it is known which come next */
	uint32_t nfree_tasks;
	uint32_t nqueries; /* taken, not ended */
	uint64_t asked_us; /* when queries were last submitted */
	bool borrows;	   /* the vectors of tasks that are taken now are copied at the end of submit,
					    * if they wait then */
	uint32_t free_room; /* of free_tasks */
	KindCache kinds;
	HostPool pool;

	Poller poller;
	CudaJobs *jobs; /* what cuda/jobs has; known there */
};

#endif /* GPUANN_CUDA_ENGINE_H */
