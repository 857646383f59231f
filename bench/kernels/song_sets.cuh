/*
 * song_sets.cuh
 *		What SONG's search keeps of a query: the bounded queue with two ends,
 *		and the sets of visited vertices (song.cuh).
 *
 * All of them are in memory that the caller has; a queue is one lane's work, a
 * set that of a whole warp or, where lanes have queries of their own, of one.
 */
#ifndef GPUANN_SONG_SETS_CUH
#define GPUANN_SONG_SETS_CUH

#include "cuda/common/gpu.h"

#define SONG_NONE 0xFFFFFFFFu
#define SONG_NO_ENTRY 0xFFFFFFFFFFFFFFFFull
#define SONG_CUCKOO_TRIES 64u

/*
 * A distance's bits above the vertex: ordered as distances are, ties by vertex.
 */
typedef unsigned long long SongEntry;

typedef enum SongVisited
{
	SONG_HASH,	/* open addressing, with deletion */
	SONG_BLOOM, /* never deletes */
	SONG_CUCKOO /* four fingerprints of a byte in a bucket */
} SongVisited;

__device__ static inline SongEntry
song_entry(float distance, uint32_t vertex)
{
	return (SongEntry) __float_as_uint(distance) << 32 | vertex;
}

__device__ static inline uint32_t
song_hash(uint32_t vertex, uint32_t seed)
{
	uint32_t x = vertex + seed * 0x9E3779B9u;

	x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
	x = (x ^ (x >> 13)) * 0xC2B2AE35u;
	return x ^ (x >> 16);
}

/* --- queues: one lane's work ---------------------------------------------- */

/*
 * A symmetric min-max heap (SONG, section IV-C): at[1] is the least, at[2] the
 * greatest; a node's children are at 2 i + 1 and 2 i + 2.
 */
struct SongQueue
{
	SongEntry *at; /* room for list + 2: at[0] is not used */
	uint32_t count;

	__device__ void
	swap(uint32_t a, uint32_t b)
	{
		SongEntry entry = at[a];

		at[a] = at[b];
		at[b] = entry;
	}

	/* Order a node and its sibling; where the node's entry is now. */
	__device__ uint32_t
	order_siblings(uint32_t node)
	{
		uint32_t left = (node - 1) | 1;

		if (left + 1 > count || at[left] <= at[left + 1])
			return node;
		swap(left, left + 1);
		return node == left ? left + 1 : left;
	}

	__device__ void
	insert(SongEntry entry)
	{
		uint32_t node = ++count;

		at[node] = entry;
		for (;;)
		{
			uint32_t left;

			node = order_siblings(node);
			if (node <= 2)
				return;
			left = 2 * ((node - 3) / 4) + 1;
			if (at[left] > at[node])
			{
				swap(left, node);
				node = left;
			}
			else if (at[left + 1] < at[node])
			{
				swap(left + 1, node);
				node = left + 1;
			}
			else
				return;
		}
	}

	/* Take the entry of node 1 or 2. */
	__device__ SongEntry
	take(uint32_t node)
	{
		SongEntry taken = at[node];

		at[node] = at[count--];
		if (node > count)
			return taken;
		for (;;)
		{
			bool least = node & 1;
			uint32_t left = least ? node : node - 1;
			uint32_t a = 2 * left + (least ? 1 : 2);
			uint32_t b = a + 2;

			order_siblings(node);
			if (a > count)
				return taken;
			if (b <= count && (least ? at[b] < at[a] : at[b] > at[a]))
				a = b;
			if (least ? at[a] >= at[node] : at[a] <= at[node])
				return taken;
			swap(a, node);
			node = a;
		}
	}

	__device__ SongEntry
	greatest() const
	{
		return at[count > 1 ? 2 : 1];
	}

	__device__ SongEntry
	take_greatest()
	{
		return take(count > 1 ? 2 : 1);
	}
};

/* --- sets of visited vertices: by all lanes, or a set for each ------------ */

/*
 * How many lanes work at one set together: their votes, and which of them
 * writes.
 */
template <bool TOGETHER> struct SongLanes
{
	static const uint32_t width = TOGETHER ? WARP : 1;

	__device__ static uint32_t
	lane()
	{
		return TOGETHER ? threadIdx.x % WARP : 0;
	}

	__device__ static uint32_t
	votes(bool vote)
	{
		return TOGETHER ? __ballot_sync(FULL_WARP, vote) : vote;
	}

	__device__ static void
	meet()
	{
		if (TOGETHER)
			__syncwarp();
	}

	template <typename T>
	__device__ static T
	of_first(T value)
	{
		return TOGETHER ? __shfl_sync(FULL_WARP, value, 0) : value;
	}
};

template <SongVisited VISITED, bool TOGETHER> struct SongSet;

/*
 * Open addressing with linear probing; deletion moves back what follows, so
 * there are no tombstones.
 */
template <bool TOGETHER> struct SongSet<SONG_HASH, TOGETHER>
{
	typedef SongLanes<TOGETHER> Lanes;
	uint32_t *table;
	uint32_t places;
	uint32_t count;
	uint32_t hashes; /* not used */
	uint32_t lost;	 /* not used */

	__device__ void
	empty()
	{
		for (uint32_t i = Lanes::lane(); i < places; i += Lanes::width)
			table[i] = SONG_NONE;
		count = lost = 0;
		Lanes::meet();
	}

	/* The place of a vertex, or SONG_NONE and the place where it would be. */
	__device__ uint32_t
	find(uint32_t vertex, uint32_t *free_place) const
	{
		*free_place = SONG_NONE;
		for (uint32_t base = song_hash(vertex, 0);; base += Lanes::width)
		{
			uint32_t found = table[(base + Lanes::lane()) & (places - 1)];
			uint32_t same = Lanes::votes(found == vertex);
			uint32_t none = Lanes::votes(found == SONG_NONE);

			if (same != 0 && (none == 0 || __ffs((int) same) < __ffs((int) none)))
				return (base + (uint32_t) __ffs((int) same) - 1) & (places - 1);
			if (none != 0)
			{
				*free_place = (base + (uint32_t) __ffs((int) none) - 1) & (places - 1);
				return SONG_NONE;
			}
		}
	}

	__device__ bool
	has(uint32_t vertex) const
	{
		uint32_t place;

		return find(vertex, &place) != SONG_NONE;
	}

	/* False if there is no room. A place stays free: searches end there. */
	__device__ bool
	add(uint32_t vertex)
	{
		uint32_t place;

		if (find(vertex, &place) != SONG_NONE)
			return true;
		if (count + 1 >= places)
			return false;
		Lanes::meet();
		if (Lanes::lane() == 0)
			table[place] = vertex;
		count++;
		Lanes::meet();
		return true;
	}

	__device__ void
	remove(uint32_t vertex)
	{
		uint32_t hole,
			place;

		hole = find(vertex, &place);
		if (hole == SONG_NONE)
			return;
		count--;
		Lanes::meet();
		if (Lanes::lane() == 0)
		{
			for (uint32_t at = (hole + 1) & (places - 1); table[at] != SONG_NONE;
				 at = (at + 1) & (places - 1))
			{
				uint32_t home = song_hash(table[at], 0) & (places - 1);

				/* what would be before its home stays */
				if (((at - home) & (places - 1)) < ((at - hole) & (places - 1)))
					continue;
				table[hole] = table[at];
				hole = at;
			}
			table[hole] = SONG_NONE;
		}
		Lanes::meet();
	}
};

/*
 * A Bloom filter: a vertex may seem visited that is not, never the other way
 * round.
 */
template <bool TOGETHER> struct SongSet<SONG_BLOOM, TOGETHER>
{
	typedef SongLanes<TOGETHER> Lanes;
	uint32_t *table;
	uint32_t places;
	uint32_t count;
	uint32_t hashes;
	uint32_t lost; /* not used */

	__device__ void
	empty()
	{
		for (uint32_t i = Lanes::lane(); i < places; i += Lanes::width)
			table[i] = 0;
		count = lost = 0;
		Lanes::meet();
	}

	/* The n-th bit of a vertex. */
	__device__ uint32_t
	bit(uint32_t vertex, uint32_t n) const
	{
		return (uint32_t) ((uint64_t) (song_hash(vertex, 1) + n * song_hash(vertex, 2)) *
							   (places * 32) >>
						   32);
	}

	__device__ bool
	has(uint32_t vertex) const
	{
		bool missing = false;

		for (uint32_t n = Lanes::lane(); n < hashes; n += Lanes::width)
			missing |= (table[bit(vertex, n) / 32] >> (bit(vertex, n) % 32) & 1) == 0;
		return Lanes::votes(missing) == 0;
	}

	__device__ bool
	add(uint32_t vertex)
	{
		Lanes::meet();
		for (uint32_t n = Lanes::lane(); n < hashes; n += Lanes::width)
			atomicOr(&table[bit(vertex, n) / 32], 1u << bit(vertex, n) % 32);
		count++;
		Lanes::meet();
		return true;
	}

	__device__ void
	remove(uint32_t)
	{
	}
};

/*
 * A cuckoo filter: a fingerprint is in one of two buckets, each of which leads
 * to the other. One lane works, whoever looks on.
 */
template <bool TOGETHER> struct SongSet<SONG_CUCKOO, TOGETHER>
{
	typedef SongLanes<TOGETHER> Lanes;
	uint32_t *table; /* a bucket of four fingerprints a word; 0 is none */
	uint32_t places;
	uint32_t count;
	uint32_t hashes; /* not used */
	uint32_t lost;	 /* fingerprints that found no place: their vertices may be visited again */

	__device__ void
	empty()
	{
		for (uint32_t i = Lanes::lane(); i < places; i += Lanes::width)
			table[i] = 0;
		count = lost = 0;
		Lanes::meet();
	}

	__device__ static uint32_t
	print_of(uint32_t vertex)
	{
		return song_hash(vertex, 3) % 255 + 1;
	}

	__device__ uint32_t
	other(uint32_t bucket, uint32_t print) const
	{
		return (bucket ^ song_hash(print, 4)) & (places - 1);
	}

	/* Where a fingerprint is in a bucket; 4 if it is not. */
	__device__ uint32_t
	within(uint32_t bucket, uint32_t print) const
	{
		uint32_t i = 0;

		while (i < 4 && (table[bucket] >> 8 * i & 0xFF) != print)
			i++;
		return i;
	}

	__device__ void
	put(uint32_t bucket, uint32_t i, uint32_t print)
	{
		table[bucket] = (table[bucket] & ~(0xFFu << 8 * i)) | print << 8 * i;
	}

	__device__ bool
	has(uint32_t vertex) const
	{
		uint32_t print = print_of(vertex);
		uint32_t bucket = song_hash(vertex, 5) & (places - 1);

		return within(bucket, print) < 4 || within(other(bucket, print), print) < 4;
	}

	/* Place a fingerprint, driving out others; false if one was lost. */
	__device__ bool
	place(uint32_t bucket, uint32_t print)
	{
		for (uint32_t tries = 0; tries < SONG_CUCKOO_TRIES; tries++)
		{
			uint32_t i = within(bucket, 0);
			uint32_t second = other(bucket, print);
			uint32_t driven;

			if (i < 4)
			{
				put(bucket, i, print);
				return true;
			}
			i = within(second, 0);
			if (i < 4)
			{
				put(second, i, print);
				return true;
			}
			driven = table[second] >> 8 * (tries % 4) & 0xFF;
			put(second, tries % 4, print);
			print = driven;
			bucket = other(second, driven);
		}
		return false;
	}

	__device__ bool
	add(uint32_t vertex)
	{
		bool placed = true;

		Lanes::meet();
		if (Lanes::lane() == 0)
			placed = place(song_hash(vertex, 5) & (places - 1), print_of(vertex));
		lost += !Lanes::of_first((uint32_t) placed);
		count++;
		Lanes::meet();
		return true;
	}

	__device__ void
	remove(uint32_t vertex)
	{
		uint32_t print = print_of(vertex);
		uint32_t bucket = song_hash(vertex, 5) & (places - 1);

		if (within(bucket, print) == 4)
			bucket = other(bucket, print);
		if (within(bucket, print) == 4)
			return;
		count--;
		Lanes::meet();
		if (Lanes::lane() == 0)
			put(bucket, within(bucket, print), 0);
		Lanes::meet();
	}
};

#endif /* GPUANN_SONG_SETS_CUH */
