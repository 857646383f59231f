/*
 * select.h
 *		k-selection as a unit: the k least numbers of each of several rows,
 *		ordered, with their places.
 *
 * An *item* is a number's key and its place in the row, in 64 bits whose
 * unsigned order is the order of answers: by number, then by place; -0 equals
 * +0, NaN is infinity. NO_ITEM is behind every item. So no two items of a row
 * are equal, and every way gives the same answer.
 *
 * Ways, whose sources are in README.md; select_choose says which is taken for
 * what:
 *		argmin			k = 1: the least item, no queue
 *		thread queues	each lane keeps a short queue of its own, a warp merges
 *						them into the k best (select_queue.cu)
 *		warp queues		a warp collects what is before the k-th in shared memory
 *						and merges it when 32 x QUEUE have come together
 *		block queues	a block does so, with k items to a queue
 *						(select_block.cu)
 *		radix			eleven bits at a time from the highest, until what is
 *						left are the k least (select_radix.cu); k up to the
 *						row's length
 *		sort			the whole row, by CUB
 *		sample			a threshold from a sample of the row, one pass that
 *						keeps what is before it, the k least of that
 *						(select_sample.cu)
 */
#ifndef GPUANN_BENCH_SELECT_H
#define GPUANN_BENCH_SELECT_H

#include "cuda/common/order.cuh"

typedef unsigned long long Item;

#define NO_ITEM 0xFFFFFFFFFFFFFFFFull

typedef enum SelectWay
{
	SELECT_CHOOSE,
	SELECT_ARGMIN,
	SELECT_THREAD_QUEUES,
	SELECT_WARP_QUEUES,
	SELECT_BLOCK_QUEUES,
	SELECT_RADIX,
	SELECT_SORT,
	SELECT_SAMPLE,
	SELECT_WAYS
} SelectWay;

#define SELECT_THREAD_MAX 1024u /* k, of thread queues */
#define SELECT_WARP_MAX 256u
#define SELECT_BLOCK_MAX 2048u
#define SELECT_SAMPLE_MAX 1024u
#define SELECT_SAMPLE_MIN 4096u /* numbers in a row; shorter rows are left to block queues */

/*
 * Event counts of a selection, accumulated in builds with GPUANN_COUNTING only.
 */
struct SelectEvents
{
	unsigned long long groups;	/* groups of 32 numbers that thread queues processed */
	unsigned long long inserts; /* thread queues: groups of which some lane took one; others: items
								 * put into queues; sample: items kept */
	unsigned long long merges;	/* of queues into the k best; sample: rounds of bins */
	unsigned long long read;	/* numbers and items read by passes of radix, or sample */
	unsigned long long rescues; /* rows whose sample was not usable */
};

/* One selection. All pointers are device memory. */
struct SelectLaunch
{
	const float *values; /* rows x n */
	size_t stride;		 /* elements from one row to the next */
	uint32_t rows;
	uint32_t n;
	uint32_t k;
	SelectWay way;
	uint32_t parts; /* of a row, a block each; 0: enough to keep the device busy */
	uint32_t places; /* of a row, for what a sample lets pass; 0: enough. Tests let it fail by
					  * few */
	Item *out;		/* rows x k, ordered; NO_ITEM behind the last of a row shorter than k */
	unsigned char *state;
	size_t state_bytes;
	SelectEvents *events; /* NULL: none are wanted */
	cudaStream_t stream;
};

/* The key of a number; ordered like numbers, and never that of NO_ITEM. */
__host__ __device__ static inline uint32_t
select_key(float value)
{
	union
	{
		float value;
		uint32_t bits;
	} as;

	as.value = value != value ? HUGE_VALF : value == 0 ? 0.0f : value;
	return (as.bits >> 31) ? ~as.bits : as.bits | 0x80000000u;
}

__host__ __device__ static inline Item
select_item(float value, uint32_t place)
{
	return (Item) select_key(value) << 32 | place;
}

/* The number of an item; of NO_ITEM it is NaN. */
__host__ __device__ static inline float
select_value(Item item)
{
	union
	{
		float value;
		uint32_t bits;
	} as;
	uint32_t key = (uint32_t) (item >> 32);

	as.bits = (key >> 31) ? key & 0x7FFFFFFFu : ~key;
	return as.value;
}

__host__ __device__ static inline uint32_t
select_place(Item item)
{
	return (uint32_t) item;
}

/* The method chosen for this many rows of n numbers. */
extern SelectWay select_choose(uint32_t rows, uint32_t n, uint32_t k);
/* Whether a method supports these sizes. */
extern bool select_can(SelectWay way, uint32_t n, uint32_t k);
extern const char *select_name(SelectWay way);
/*
 * Bytes of state for a selection; *launch must be complete but for state and
 * its size.
 */
extern cudaError_t select_bytes(const SelectLaunch *launch, size_t *bytes);
/* Set the shared memory limits of the kernels. */
extern cudaError_t select_prepare(const cudaDeviceProp *device);
extern cudaError_t select_launch(const SelectLaunch *launch);

#endif /* GPUANN_BENCH_SELECT_H */
