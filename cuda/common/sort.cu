/*
 * sort.cu
 *		Sorting entries with CUB's radix sort: about ten passes of 24 bytes per
 *		entry. Bound: memory.
 *
 * Called by exact.cu for more than 1,024 results, by link_rows.cu for reverse
 * edges, and by lists_means.cu for the rows of lists.
 */
#include <math.h>

#ifdef EMULATED
#include <emulate_sort.h>
#else
#include <cub/device/device_radix_sort.cuh>
#endif

#include "cuda/common/sort.h"

cudaError_t
entry_sort_bytes(uint32_t n, size_t *bytes)
{
	cub::DoubleBuffer<Key> keys((Key *) NULL, (Key *) NULL);
	cub::DoubleBuffer<uint32_t> slots((uint32_t *) NULL, (uint32_t *) NULL);

	*bytes = 0;
	return cub::DeviceRadixSort::SortPairs(NULL, *bytes, keys, slots, (int) n, 0, 64, NULL);
}

cudaError_t
entry_sort(EntrySort *sort, uint32_t n, cudaStream_t stream)
{
	const Entries &now = sort->side[sort->current],
				  &next = sort->side[sort->current ^ 1];
	cub::DoubleBuffer<Key> keys(now.key, next.key);
	cub::DoubleBuffer<uint32_t> slots(now.slot, next.slot);
	size_t bytes = sort->work_bytes;
	cudaError_t error = cub::DeviceRadixSort::SortPairs(sort->work, bytes, keys, slots, (int) n, 0,
														64, stream);

	/* keys and slots move together */
	if (error == cudaSuccess && keys.Current() != now.key)
		sort->current ^= 1;
	return error;
}
