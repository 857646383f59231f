/*
 * select_ways.cu
 *		Selection: which way it goes, in how many parts, and the sorts of CUB.
 *
 * Borders between ways are in one table, `regions`, in the order in which they
 * are asked: those that were measured on an H200 (bench/results/select-h200.md;
 * bench/build/select prints what to put there for another device). Between
 * measured sizes they are round numbers.
 */
#include <math.h>
#include <string.h>

#ifdef EMULATED
#include <emulate_sort.h>
#else
#include <cub/device/device_radix_sort.cuh>
#endif

#include "bench/kernels/select.cuh"

#define THREADS 256u
#define BLOCKS_PER_SM 8u
#define RESCUE_PER_SM 4u
#define PART_MIN 8192u	  /* numbers that are worth a block */
#define JOINED_MAX 32768u /* items of parts that one block merges */

/* What is taken for so many rows, numbers in a row, and results, at most. */
struct Region
{
	uint32_t rows;
	uint32_t n;
	uint32_t k;
	SelectWay way;
};

#define ANY 0xFFFFFFFFu

/* The first that holds a selection; radix or a sort takes what none does. */
static const Region regions[] = {
	{ANY, ANY, 1, SELECT_ARGMIN},
	/* short rows: no sample is worth its time */
	{ANY, SELECT_SAMPLE_MIN, SELECT_WARP_MAX, SELECT_WARP_QUEUES},
	{ANY, SELECT_SAMPLE_MIN, SELECT_BLOCK_MAX, SELECT_BLOCK_QUEUES},
	{ANY, ANY, 256, SELECT_SAMPLE},
	{1, 16384, 512, SELECT_RADIX},
	{ANY, 16384, 512, SELECT_BLOCK_QUEUES}, /* a sample would leave too much of it */
	{ANY, ANY, 512, SELECT_SAMPLE},
	{ANY, 65536, SELECT_BLOCK_MAX, SELECT_RADIX}, /* sorting a thousand numbers and more costs a
												    * sample more than reading all */
	{256, 262144, SELECT_BLOCK_MAX, SELECT_RADIX},
	{32, 4194304, SELECT_BLOCK_MAX, SELECT_RADIX},
	{ANY, ANY, SELECT_SAMPLE_MAX, SELECT_SAMPLE},
	{ANY, ANY, SELECT_BLOCK_MAX, SELECT_RADIX},
};

#define SORTED_DIVISOR 3u /* of a row: a third and more of it is sorted whole (Hanák 2023, 5); of
						 * all of it radix leaves nothing but the sort */

SelectWay
select_choose(uint32_t rows, uint32_t n, uint32_t k)
{
	for (const Region &region : regions)
		if (rows <= region.rows && n <= region.n && k <= region.k)
			return region.way;
	return k > n / SORTED_DIVISOR && k < n ? SELECT_SORT : SELECT_RADIX;
}

bool
select_can(SelectWay way, uint32_t n, uint32_t k)
{
	if (k == 0)
		return false;
	switch (way)
	{
		case SELECT_ARGMIN:
			return k == 1;
		case SELECT_THREAD_QUEUES:
			return k <= SELECT_THREAD_MAX;
		case SELECT_WARP_QUEUES:
			return k <= SELECT_WARP_MAX;
		case SELECT_BLOCK_QUEUES:
			return k <= SELECT_BLOCK_MAX;
		case SELECT_SAMPLE:
			return k <= SELECT_SAMPLE_MAX;
		case SELECT_RADIX:
		case SELECT_SORT:
			return n > 0;
		default:
			return false;
	}
}

const char *
select_name(SelectWay way)
{
	static const char *const names[SELECT_WAYS] = {"choose",	  "argmin",		  "thread queues",
												   "warp queues", "block queues", "radix",
												   "sort",		  "sample"};

	return names[way];
}

static uint32_t processors = 1;

cudaError_t
select_prepare(const cudaDeviceProp *device)
{
	processors = (uint32_t) device->multiProcessorCount;
	return sample_prepare();
}

/* A launch with nothing left to choose; k no more than a row has. */
static SelectLaunch
decided(const SelectLaunch *launch)
{
	SelectLaunch all = *launch;
	uint32_t most = (launch->n + PART_MIN - 1) / PART_MIN;
	uint32_t rows = launch->rows > 0 ? launch->rows : 1;

	if (all.way == SELECT_CHOOSE)
		all.way = select_choose(launch->rows, launch->n, launch->k);
	if (all.way == SELECT_SAMPLE && !sample_serves(all.n, all.k))
		all.way = SELECT_BLOCK_QUEUES;
	if (all.parts == 0 && all.way == SELECT_SAMPLE)
		all.parts = sample_parts(rows, all.n, processors);
	else if (all.parts == 0)
	{
		all.parts = processors * BLOCKS_PER_SM / rows;
		all.parts = all.parts < most ? all.parts : most;
	}
	all.parts = all.parts > 0 ? all.parts : 1;
	return all;
}

/* How many blocks a row gets whose sample was no good. */
static uint32_t
rescue_parts(const SelectLaunch *launch)
{
	uint32_t most = (launch->n + PART_MIN - 1) / PART_MIN;
	uint32_t parts = processors * RESCUE_PER_SM / (launch->rows > 0 ? launch->rows : 1);

	parts = parts < most ? parts : most;
	return parts > 0 ? parts : 1;
}

/* How many parts the items of so many parts are merged in. */
static uint32_t
joining_parts(uint32_t parts, uint32_t k)
{
	uint64_t items = (uint64_t) parts * k;
	uint32_t joining = (uint32_t) ((items + JOINED_MAX - 1) / JOINED_MAX);

	/* each must make it fewer */
	return joining * 4 <= parts ? joining : (parts + 3) / 4;
}

static size_t
sort_bytes(uint32_t n)
{
	size_t bytes = 0;

	item_sort(NULL, &bytes, NULL, NULL, n, NULL, NULL);
	return round_up(bytes, 256);
}

/* Whether radix leaves rows that blocks can sort. */
static bool
sorted_by_blocks(const SelectLaunch *launch)
{
	return launch->k <= SELECT_BLOCK_MAX;
}

cudaError_t
select_bytes(const SelectLaunch *launch, size_t *bytes)
{
	SelectLaunch all = decided(launch);
	size_t items = (size_t) all.rows * all.parts * all.k;

	*bytes = 256;
	if (all.way == SELECT_SORT)
		*bytes += 2 * round_up(all.n * sizeof(Item), 256) + sort_bytes(all.n);
	else if (all.way == SELECT_RADIX)
		*bytes +=
			round_up(radix_bytes(&all), 256) +
			(sorted_by_blocks(&all) ? 0 : round_up(all.k * sizeof(Item), 256) + sort_bytes(all.k));
	else if (all.way == SELECT_SAMPLE)
		*bytes += sample_bytes(&all, rescue_parts(&all));
	else if (all.way != SELECT_ARGMIN && all.parts > 1)
		*bytes += round_up(all.rows * sizeof(Item), 256) + 2 * round_up(items * sizeof(Item), 256);
	return cudaSuccess;
}

/* One launch of queues. */
static cudaError_t
queues_launch(const SelectLaunch *launch, const Item *items, const QueuePlan *plan)
{
	if (items != NULL)
		return plan->k <= SELECT_WARP_MAX ? warp_queues_launch(launch, items, plan)
										   : block_queues_launch(launch, items, plan);
	if (launch->way == SELECT_THREAD_QUEUES)
		return thread_queues_launch(launch, plan);
	return launch->way == SELECT_WARP_QUEUES ? warp_queues_launch(launch, NULL, plan)
											 : block_queues_launch(launch, NULL, plan);
}

/* Parts by queues, then their items, until one part is left. */
static cudaError_t
by_queues(const SelectLaunch *launch)
{
	Item *bounds = (Item *) launch->state;
	Item *sides[2];
	const Item *items = NULL;
	QueuePlan plan = {launch->n, launch->k, launch->parts, launch->out, NULL, launch->events};
	cudaError_t error = cudaSuccess;
	int side = 0;

	sides[0] = (Item *) (launch->state + round_up(launch->rows * sizeof(Item), 256));
	sides[1] = sides[0] + round_up((size_t) launch->rows * launch->parts * launch->k, 32);
	while (plan.parts > 1 && error == cudaSuccess)
	{
		plan.out = sides[side];
		plan.bounds = items == NULL ? bounds : NULL;
		if (plan.bounds != NULL)
			error = cudaMemsetAsync(bounds, 0xFF, launch->rows * sizeof(Item), launch->stream);
		if (error == cudaSuccess)
			error = queues_launch(launch, items, &plan);
		items = plan.out;
		plan.n = plan.parts * launch->k;
		plan.parts = joining_parts(plan.parts, launch->k);
		side ^= 1;
	}
	plan.out = launch->out;
	plan.bounds = NULL;
	return error == cudaSuccess ? queues_launch(launch, items, &plan) : error;
}

/* The items of one row of numbers; of `rest` places behind them none. */
__global__ void
__launch_bounds__(THREADS) items_kernel(const float *values, uint32_t n, uint32_t room, Item *items)
{
	uint32_t i = blockIdx.x * THREADS + threadIdx.x;

	if (i < room)
		items[i] = i < n ? select_item(values[i], i) : NO_ITEM;
}

static uint32_t
blocks_of(uint32_t n)
{
	return (n + THREADS - 1) / THREADS;
}

cudaError_t
item_sort(unsigned char *work, size_t *bytes, Item *items, Item *other, uint32_t n, Item **sorted,
		  cudaStream_t stream)
{
	cub::DoubleBuffer<Item> keys(items, other);
	cudaError_t error = cub::DeviceRadixSort::SortKeys(work, *bytes, keys, (int) n, 0, 64, stream);

	if (work != NULL)
		*sorted = keys.Current();
	return error;
}

/* All of each row sorted. */
static cudaError_t
by_sort(const SelectLaunch *launch)
{
	size_t side_bytes = round_up(launch->n * sizeof(Item), 256);
	size_t work_bytes = launch->state_bytes - 2 * side_bytes;
	Item *first = (Item *) launch->state;
	Item *second = (Item *) (launch->state + side_bytes);
	uint32_t given = launch->k < launch->n ? launch->k : launch->n;
	cudaError_t error = cudaSuccess;

	for (uint32_t row = 0; row < launch->rows && error == cudaSuccess; row++)
	{
		Item *out = launch->out + (size_t) row * launch->k;
		Item *sorted = first;

		LAUNCH(items_kernel, blocks_of(launch->n), THREADS, 0, launch->stream,
			   launch->values + row * launch->stride, launch->n, launch->n, first);
		error = item_sort(launch->state + 2 * side_bytes, &work_bytes, first, second, launch->n,
						  &sorted, launch->stream);
		if (error == cudaSuccess)
			error = cudaMemcpyAsync(out, sorted, given * sizeof(Item), cudaMemcpyDeviceToDevice,
									launch->stream);
		if (error == cudaSuccess && given < launch->k)
			error = cudaMemsetAsync(out + given, 0xFF, (launch->k - given) * sizeof(Item),
									launch->stream);
	}
	return error;
}

/* By radix, then the k of each row sorted. */
static cudaError_t
by_radix(const SelectLaunch *launch)
{
	SelectLaunch narrowed = *launch;
	unsigned char *at = launch->state + round_up(radix_bytes(launch), 256);
	Item *other = (Item *) at;
	unsigned char *work = at + round_up(launch->k * sizeof(Item), 256);
	size_t work_bytes = sort_bytes(launch->k);
	cudaError_t error;

	if (launch->k >= launch->n)
	{
		/* all of them: nothing is left to choose */
		for (uint32_t row = 0; row < launch->rows; row++)
			LAUNCH(items_kernel, blocks_of(launch->k), THREADS, 0, launch->stream,
				   launch->values + row * launch->stride, launch->n, launch->k,
				   launch->out + (size_t) row * launch->k);
		error = cudaGetLastError();
	}
	else
		error = radix_launch(&narrowed, launch->parts);
	if (error != cudaSuccess)
		return error;
	if (sorted_by_blocks(launch))
		return block_sort_launch(launch->out, launch->rows, launch->k, launch->stream);
	for (uint32_t row = 0; row < launch->rows && error == cudaSuccess; row++)
	{
		Item *items = launch->out + (size_t) row * launch->k;
		Item *sorted = items;

		error = item_sort(work, &work_bytes, items, other, launch->k, &sorted, launch->stream);
		if (error == cudaSuccess && sorted != items)
			error = cudaMemcpyAsync(items, sorted, launch->k * sizeof(Item),
									cudaMemcpyDeviceToDevice, launch->stream);
	}
	return error;
}

cudaError_t
select_launch(const SelectLaunch *launch)
{
	SelectLaunch all = decided(launch);

	if (launch->rows == 0)
		return cudaSuccess;
	if (!select_can(all.way, launch->n, launch->k))
		/*
		 * a row without numbers has no least: as many places as were asked for,
		 * all empty
		 */
		return launch->n == 0 ? cudaMemsetAsync(launch->out, 0xFF,
												(size_t) launch->rows * launch->k * sizeof(Item),
												launch->stream)
							  : cudaErrorInvalidValue;
	switch (all.way)
	{
		case SELECT_ARGMIN:
			return argmin_launch(&all, all.parts);
		case SELECT_RADIX:
			return by_radix(&all);
		case SELECT_SORT:
			return by_sort(&all);
		case SELECT_SAMPLE:
			return sample_launch(&all, rescue_parts(&all));
		default:
			return by_queues(&all);
	}
}
