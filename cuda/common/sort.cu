/*
 * sort.cu
 *		Sorting entries by CUB's radix sort: about ten passes of 24 bytes by
 *		key, five by slot. Bound: memory.
 *
 * Called by exact.cu for many results, by link.cu for edges back.
 */
#include <math.h>

#ifdef EMULATED
#include <emulate_sort.h>
#else
#include <cub/device/device_radix_sort.cuh>
#endif

#include "cuda/common/sort.h"

/* Sort n entries of two sides; work NULL measures. */
static cudaError_t
sort_sides(void *work, size_t *bytes, cub::DoubleBuffer<Key> *keys,
		   cub::DoubleBuffer<uint32_t> *slots, uint32_t n, bool by_slot, cudaStream_t stream)
{
	return by_slot ? cub::DeviceRadixSort::SortPairs(work, *bytes, *slots, *keys, (int) n, 0, 32,
													 stream)
				   : cub::DeviceRadixSort::SortPairs(work, *bytes, *keys, *slots, (int) n, 0, 64,
													 stream);
}

cudaError_t
entry_sort_bytes(uint32_t n, bool by_slot, size_t *bytes)
{
	cub::DoubleBuffer<Key> keys((Key *) NULL, (Key *) NULL);
	cub::DoubleBuffer<uint32_t> slots((uint32_t *) NULL, (uint32_t *) NULL);

	*bytes = 0;
	return sort_sides(NULL, bytes, &keys, &slots, n, by_slot, NULL);
}

cudaError_t
entry_sort(EntrySort *sort, uint32_t n, bool by_slot, cudaStream_t stream)
{
	const Entries &now = sort->side[sort->current],
				  &next = sort->side[sort->current ^ 1];
	cub::DoubleBuffer<Key> keys(now.key, next.key);
	cub::DoubleBuffer<uint32_t> slots(now.slot, next.slot);
	size_t bytes = sort->work_bytes;
	cudaError_t error = sort_sides(sort->work, &bytes, &keys, &slots, n, by_slot, stream);

	/* keys and slots move together */
	if (error == cudaSuccess && keys.Current() != now.key)
		sort->current ^= 1;
	return error;
}
