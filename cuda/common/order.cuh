/*
 * order.cuh
 *		The order of answers on the device: keys, and sorted lists kept by a
 *		block.
 *
 * A distance becomes a 64-bit key whose unsigned order is the order of
 * distances: -0 equals +0, infinity is last, NaN counts as infinity. NO_KEY
 * sorts after every distance and fills unused places. Entries are ordered by
 * (key, slot), as in engine_before().
 *
 * Block routines are called by all threads of a block, with equal arguments,
 * and end with a barrier. Lists live in shared or global memory. Sorting n =
 * 2^p entries takes p (p + 1) / 2 rounds, up to 128 entries two; merging m
 * sorted entries into n takes two binary searches per entry and one barrier.
 */
#ifndef GPUANN_CUDA_ORDER_CUH
#define GPUANN_CUDA_ORDER_CUH

#include "cuda/common/gpu.h"

typedef unsigned long long Key;

#define NO_KEY 0xFFFFFFFFFFFFFFFFull
#define SLOT_MASK 0x7FFFFFFFu /* slots are below 2^31: the bit above may mark entries and takes no
							   * part in their order */

/* The key of a distance. */
__host__ __device__ static inline Key
key_of(double distance)
{
	union
	{
		double value;
		Key bits;
	} as;

	as.value = distance != distance ? HUGE_VAL : distance == 0 ? 0.0 : distance;
	return (as.bits >> 63) ? ~as.bits : as.bits | 0x8000000000000000ull;
}

/* The distance of a key. */
__host__ __device__ static inline double
distance_of(Key key)
{
	union
	{
		double value;
		Key bits;
	} as;

	as.bits = (key >> 63) ? key & 0x7FFFFFFFFFFFFFFFull : ~key;
	return as.value;
}

__host__ __device__ static inline bool
entry_before(Key key_a, uint32_t slot_a, Key key_b, uint32_t slot_b)
{
	return key_a != key_b ? key_a < key_b : slot_a < slot_b;
}

/* Parallel arrays of entries: keys and their values, usually slots. */
struct Entries
{
	Key *key;
	uint32_t *slot;
};

/* The number of n sorted entries that come before (key, slot). */
__host__ __device__ static inline uint32_t
entries_before(const Entries &entries, uint32_t n, Key key, uint32_t slot)
{
	uint32_t low = 0,
			 high = n;

	while (low < high)
	{
		uint32_t middle = (low + high) / 2;

		if (entry_before(entries.key[middle], entries.slot[middle] & SLOT_MASK, key, slot))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

#define SORT_BY_COUNTING 128u /* up to this many, one per thread, counting ranks takes fewer steps
							   * than a sorting network has barriers */

/*
 * Sort n entries, at most one per thread: an entry's place is the number of
 * entries before it.
 */
__device__ static inline void
block_sort_few(const Entries &entries, uint32_t n)
{
	uint32_t i = threadIdx.x;
	uint32_t place = 0;
	Key key = NO_KEY;
	uint32_t slot = NO_SLOT;

	if (i < n)
	{
		key = entries.key[i];
		slot = entries.slot[i];
#pragma unroll 4
		for (uint32_t j = 0; j < n; j++)
		{
			Key other = entries.key[j];
			uint32_t other_slot = entries.slot[j];

			/* only fillers of unused places are duplicates */
			place += entry_before(other, other_slot, key, slot) ||
					 (other == key && other_slot == slot && j < i);
		}
	}
	__syncthreads();
	if (i < n)
	{
		entries.key[place] = key;
		entries.slot[place] = slot;
	}
	__syncthreads();
}

/* Sort n = 2^p entries by (key, slot). (bitonic sort) */
__device__ static inline void
block_sort(const Entries &entries, uint32_t n)
{
	if (n <= SORT_BY_COUNTING && n <= blockDim.x)
	{
		block_sort_few(entries, n);
		return;
	}
	for (uint32_t size = 2; size <= n; size <<= 1)
		for (uint32_t stride = size >> 1; stride > 0; stride >>= 1)
		{
			for (uint32_t i = threadIdx.x; i < n / 2; i += blockDim.x)
			{
				uint32_t a = 2 * i - (i & (stride - 1));
				uint32_t b = a + stride;
				bool ascending = (a & size) == 0;
				Key key_a = entries.key[a],
					key_b = entries.key[b];
				uint32_t slot_a = entries.slot[a],
						 slot_b = entries.slot[b];

				if (entry_before(key_b, slot_b, key_a, slot_a) == ascending)
				{
					entries.key[a] = key_b;
					entries.key[b] = key_a;
					entries.slot[a] = slot_b;
					entries.slot[b] = slot_a;
				}
			}
			__syncthreads();
		}
}

/* Fill places [from, to) with entries that sort last. No barrier. */
__device__ static inline void
block_fill(const Entries &entries, uint32_t from, uint32_t to)
{
	for (uint32_t i = from + threadIdx.x; i < to; i += blockDim.x)
	{
		entries.key[i] = NO_KEY;
		entries.slot[i] = NO_SLOT;
	}
}

/*
 * Merge two sorted lists without common entries into `out`, which overlaps
 * neither, and keep the first `room` of them; returns the number kept.
 */
__device__ static inline uint32_t
block_merge(const Entries &list, uint32_t nlist, const Entries &add, uint32_t nadd,
			const Entries &out, uint32_t room)
{
	for (uint32_t i = threadIdx.x; i < nlist; i += blockDim.x)
	{
		Key key = list.key[i];
		uint32_t slot = list.slot[i];
		uint32_t place = i + entries_before(add, nadd, key, slot & SLOT_MASK);

		if (place < room)
		{
			out.key[place] = key;
			out.slot[place] = slot;
		}
	}
	for (uint32_t i = threadIdx.x; i < nadd; i += blockDim.x)
	{
		Key key = add.key[i];
		uint32_t slot = add.slot[i];
		uint32_t place = i + entries_before(list, nlist, key, slot & SLOT_MASK);

		if (place < room)
		{
			out.key[place] = key;
			out.slot[place] = slot;
		}
	}
	__syncthreads();
	return nlist + nadd < room ? nlist + nadd : room;
}

/*
 * A sorted list of the best `room` entries, double-buffered: a merge reads
 * `now`, writes `next` and swaps the two.
 */
struct BestList
{
	Entries now; /* the best so far, sorted */
	Entries next;
	uint32_t count;
	uint32_t room;

	/* Whether an entry would be among the best `room`. */
	__device__ bool
	takes(Key key, uint32_t slot) const
	{
		if (key == NO_KEY)
			return false;
		return count < room ||
			   entry_before(key, slot, now.key[count - 1], now.slot[count - 1] & SLOT_MASK);
	}

	/*
	 * Merge n sorted entries, none of which is in the list, into it. All
	 * threads of the block, after a barrier behind the writes of `add`.
	 */
	__device__ void
	merge(const Entries &add, uint32_t n)
	{
		Entries old = now;

		count = block_merge(now, count, add, n, next, room);
		now = next;
		next = old;
	}
};

/* Bytes of n entries in memory. */
__host__ __device__ static inline size_t
entries_bytes(uint32_t n)
{
	return (size_t) n * (sizeof(Key) + sizeof(uint32_t));
}

/*
 * Lay n entries out at *at, which advances; n is even, so that keys behind them
 * stay aligned.
 */
__device__ static inline Entries
entries_at(unsigned char **at, uint32_t n)
{
	Entries entries;

	entries.key = (Key *) *at;
	entries.slot = (uint32_t *) (*at + (size_t) n * sizeof(Key));
	*at += entries_bytes(n);
	return entries;
}

#endif /* GPUANN_CUDA_ORDER_CUH */
