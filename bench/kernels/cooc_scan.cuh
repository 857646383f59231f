/*
 * cooc_scan.cuh
 *		Sums over pq codes of 8 bits and 16 sub-spaces, as the engine scans them
 *		and by co-occurrence words. (MemANNS, section 4.3; cooc.h)
 *
 * A block of 256 threads takes an item: blocks of 32 codes of one list, and up
 * to G queries whose tables lie side by side in shared memory; a warp takes a
 * block of codes at a time, a lane a code.
 *
 *		plain	four codes a word of 32 bits; the engine's own loop (pq_sums),
 *				or one for 16 sub-spaces with all loads before the look-ups
 *		words	two a word of 32 bits, as many for all codes of a block; behind
 *				the tables lie the sums of the list's combinations, which the
 *				block makes for each item
 *
 * A word is the place of a table entry times eight. The places are those of
 * cooc.h, but that a set has four, of the masks with two items and three, and
 * that the entry of nothing is the last: 5,121 entries, so an offset fits into
 * 16 bits.
 *
 * Entries have 16 bits, and then the sum of a combination's three must fit
 * (tables of up to 21,845), or 32.
 */
#ifndef GPUANN_COOC_SCAN_CUH
#define GPUANN_COOC_SCAN_CUH

#include "cuda/lists/lists_estimate.cuh"

extern "C"
{
#include "engine/quantizer/cooc.h"
}

#define SCAN_THREADS 256u
#define SCAN_PARTS 16u
#define SCAN_GROUP 4u /* queries of an item, at most */
#define PLAIN_ENTRIES (SCAN_PARTS * 256u)
#define PLAIN_WORDS (SCAN_PARTS / 4 * LIST_PLACES) /* of a block */
#define SET_ENTRIES 4u
#define NOTHING_ENTRY (PLAIN_ENTRIES + COOC_SETS * SET_ENTRIES)
#define WORDS_ENTRIES (NOTHING_ENTRY + 1)
#define WORD_SCALE 8u

/* Where the words of a block are, and how many each of its codes has. */
struct ScanWords
{
	uint32_t at; /* times 32, in words of 32 bits */
	uint32_t length;
};

/* The places of a set's three entries. */
struct alignas(8) ScanSet
{
	uint16_t entry[4];
};

/* Codes of all lists; blocks are numbered through. Device memory. */
struct ScanView
{
	ListsView lists;	   /* of it the shape */
	const uint32_t *plain; /* PLAIN_WORDS a block */
	bool ranked;		   /* these are in the order of words */
	const uint32_t *words;
	const ScanWords *coded; /* of blocks */
	const uint32_t
		*order;			 /* the code's place among the plain ones as they came, by block and lane */
	const ScanSet *sets; /* COOC_SETS of each list */
	const uint32_t *tables; /* PLAIN_ENTRIES / 2 of each query */
	const uint32_t *pairs;	/* queries, list by list */
};

/* What a block does. */
struct ScanItem
{
	uint32_t list;
	uint32_t nsets;
	uint32_t rows;	/* of the list */
	uint32_t first; /* block of the list */
	uint32_t begin; /* blocks */
	uint32_t end;
	uint32_t pair; /* the first one */
	uint32_t pairs;
	uint64_t sums; /* the first pair's place in `all`, for those that keep sums */
};

/* What comes out. */
struct ScanOut
{
	uint32_t *least;			 /* of each pair */
	uint32_t *all;				 /* of each pair, a sum of each code; or NULL */
	unsigned long long *unequal; /* sums that are others than `all` says */
};

enum ScanMode
{
	SCAN_MIN,
	SCAN_KEEP,
	SCAN_COMPARE
};

/* Plain codes; UNROLLED: the number of sub-spaces is known. */
template <int G, bool UNROLLED> struct PlainForm
{
	static const uint32_t bytes = PLAIN_ENTRIES * 2 * G;

	/* Bring tables. All threads; a barrier is to follow. */
	__device__ static inline void bring(const ScanView &view, const ScanItem &item,
										const uint32_t *numbers, uint32_t *tables)
	{
		load_tables<CODE_PQ8, G>(view.tables, PLAIN_ENTRIES / 2, numbers, item.pairs, tables);
	}

	__device__ static inline void sums(const ScanView &view, uint32_t block, uint32_t lane,
									   const uint32_t *tables, int *sums)
	{
		const uint32_t *words = view.plain + (size_t) block * PLAIN_WORDS + lane;

		if (!UNROLLED)
		{
			pq_sums<G, uint16_t, 8>(view.lists, words, tables, sums);
			return;
		}
		const EntriesOf<G, uint16_t> *entries = (const EntriesOf<G, uint16_t> *) tables;
		uint32_t codes[SCAN_PARTS / 4];

#pragma unroll
		for (uint32_t w = 0; w < SCAN_PARTS / 4; w++)
			codes[w] = __ldg(words + w * LIST_PLACES);
#pragma unroll
		for (uint32_t part = 0; part < SCAN_PARTS; part++)
		{
			EntriesOf<G, uint16_t> found =
				entries[part * 256 + (codes[part / 4] >> (part % 4 * 8) & 255)];

#pragma unroll
			for (int g = 0; g < G; g++)
				sums[g] += found.entry[g];
		}
	}

	__device__ static inline uint32_t row(const ScanView &view, const ScanItem &item,
										  uint32_t block, uint32_t lane)
	{
		return view.ranked ? view.order[block * LIST_PLACES + lane]
						   : (block - item.first) * LIST_PLACES + lane;
	}
};

/* The offset of a word's entry of BYTES bytes: the lower or the upper word. */
template <uint32_t BYTES, bool UPPER>
__device__ static inline uint32_t
word_offset(uint32_t words)
{
	const uint32_t most = 65535u / WORD_SCALE * BYTES;

	if (BYTES == WORD_SCALE)
		return UPPER ? words >> 16 : words & 65535;
	if (BYTES > WORD_SCALE)
		return (UPPER ? words >> 15 : words << 1) & most;
	return words >> ((UPPER ? 16 : 0) + (BYTES == 4 ? 1 : 2)) & most;
}

/* The sums over LENGTH words of a lane's code. */
template <int G, typename E, int LENGTH>
__device__ static inline void
sum_words(const uint32_t *words, const unsigned char *table, int *sums)
{
	typedef EntriesOf<G, E> Found;
	uint32_t both[(LENGTH + 1) / 2];

#pragma unroll
	for (int w = 0; w < (LENGTH + 1) / 2; w++)
		both[w] = __ldg(words + w * LIST_PLACES);
#pragma unroll
	for (int i = 0; i < LENGTH; i++)
	{
		uint32_t offset = i % 2 == 0 ? word_offset<sizeof(Found), false>(both[i / 2])
									 : word_offset<sizeof(Found), true>(both[i / 2]);
		Found found = *(const Found *) (table + offset);

#pragma unroll
		for (int g = 0; g < G; g++)
			sums[g] += (int) found.entry[g];
	}
}

/* Co-occurrence words; E: an entry's type. */
template <int G, typename E> struct WordsForm
{
	typedef EntriesOf<G, E> Entries;

	static const uint32_t bytes = (WORDS_ENTRIES * sizeof(Entries) + 15) / 16 * 16;

	/* Bring tables, and make sums. All threads; a barrier is to follow. */
	__device__ static inline void bring(const ScanView &view, const ScanItem &item,
										const uint32_t *numbers, uint32_t *tables)
	{
		Entries *entries = (Entries *) tables;

		if (sizeof(E) == 2)
			load_tables<CODE_PQ8, G>(view.tables, PLAIN_ENTRIES / 2, numbers, item.pairs, tables);
		else
			for (uint32_t i = threadIdx.x; i < PLAIN_ENTRIES / 2 * G; i += blockDim.x)
			{
				uint32_t g = i / (PLAIN_ENTRIES / 2), w = i % (PLAIN_ENTRIES / 2);
				uint32_t word =
					g < item.pairs ? view.tables[(size_t) numbers[g] * (PLAIN_ENTRIES / 2) + w] : 0;

				entries[2 * w].entry[g] = (E) (word & 65535);
				entries[2 * w + 1].entry[g] = (E) (word >> 16);
			}
		__syncthreads();
		for (uint32_t i = threadIdx.x; i < item.nsets; i += blockDim.x)
		{
			ScanSet set = view.sets[item.list * COOC_SETS + i];
			Entries first = entries[set.entry[0]], second = entries[set.entry[1]],
					third = entries[set.entry[2]], sums[SET_ENTRIES];

#pragma unroll
			for (int g = 0; g < G; g++)
			{
				sums[0].entry[g] = (E) (first.entry[g] + second.entry[g]);
				sums[1].entry[g] = (E) (first.entry[g] + third.entry[g]);
				sums[2].entry[g] = (E) (second.entry[g] + third.entry[g]);
				sums[3].entry[g] = (E) (sums[0].entry[g] + third.entry[g]);
			}
#pragma unroll
			for (uint32_t j = 0; j < SET_ENTRIES; j++)
				entries[PLAIN_ENTRIES + i * SET_ENTRIES + j] = sums[j];
		}
		if (threadIdx.x == 0)
			entries[NOTHING_ENTRY] = Entries{};
	}

	__device__ static inline void sums(const ScanView &view, uint32_t block, uint32_t lane,
									   const uint32_t *tables, int *sums)
	{
		ScanWords coded = view.coded[block];
		const uint32_t *words = view.words + (size_t) coded.at * LIST_PLACES + lane;
		const unsigned char *table = (const unsigned char *) tables;

		switch (coded.length)
		{
#define LENGTH(n) \
	case n: \
		sum_words<G, E, n>(words, table, sums); \
		break;
			LENGTH(1)
			LENGTH(2)
			LENGTH(3)
			LENGTH(4)
			LENGTH(5)
			LENGTH(6)
			LENGTH(7)
			LENGTH(8)
			LENGTH(9)
			LENGTH(10)
			LENGTH(11)
			LENGTH(12)
			LENGTH(13)
			LENGTH(14)
			LENGTH(15)
			LENGTH(16)
#undef LENGTH
		}
	}

	__device__ static inline uint32_t row(const ScanView &view, const ScanItem &, uint32_t block,
										  uint32_t lane)
	{
		return view.order[block * LIST_PLACES + lane];
	}
};

/* What becomes of the sums of a lane's code. */
template <class FORM, int G, ScanMode MODE>
__device__ static inline void
use_sums(const ScanView &view, const ScanItem &item, uint32_t block, const int *sums,
		 const ScanOut &out, uint32_t *least)
{
	uint32_t lane = threadIdx.x % WARP;
	bool there = (block - item.first) * LIST_PLACES + lane < item.rows;

#pragma unroll
	for (int g = 0; g < G; g++)
	{
		uint32_t sum = there ? (uint32_t) sums[g] : UINT32_MAX;

		if (MODE == SCAN_MIN)
			least[g] = sum < least[g] ? sum : least[g];
		else if (there && g < (int) item.pairs)
		{
			uint32_t *place =
				out.all + item.sums + (size_t) g * item.rows + FORM::row(view, item, block, lane);

			if (MODE == SCAN_KEEP)
				*place = sum;
			else if (*place != sum)
				atomicAdd(out.unequal, 1ull);
		}
	}
}

/* The least of all lanes' sums. Whole warps. */
template <int G>
__device__ static inline void
store_least(const ScanItem &item, const ScanOut &out, uint32_t *least)
{
#pragma unroll
	for (int g = 0; g < G; g++)
	{
		for (int distance = WARP / 2; distance > 0; distance >>= 1)
		{
			uint32_t other = __shfl_xor_sync(FULL_WARP, least[g], distance);

			least[g] = other < least[g] ? other : least[g];
		}
		if (threadIdx.x % WARP == 0 && g < (int) item.pairs)
			atomicMin(&out.least[item.pair + g], least[g]);
	}
}

template <class FORM, int G, ScanMode MODE>
__global__ void
__launch_bounds__(SCAN_THREADS, 3)
	cooc_scan_kernel(const ScanView view, const ScanItem *items, const ScanOut out)
{
	DYNAMIC_SHARED(memory);
	__shared__ ScanItem item;
	__shared__ uint32_t numbers[G];
	uint32_t *tables = (uint32_t *) memory;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t least[G];

	if (threadIdx.x < G)
	{
		const ScanItem &own = items[blockIdx.x];

		numbers[threadIdx.x] = view.pairs[own.pair + (threadIdx.x < own.pairs ? threadIdx.x : 0)];
		if (threadIdx.x == 0)
			item = own;
	}
	__syncthreads();
	FORM::bring(view, item, numbers, tables);
	__syncthreads();
#pragma unroll
	for (int g = 0; g < G; g++)
		least[g] = UINT32_MAX;
	for (uint32_t block = item.begin + threadIdx.x / WARP; block < item.end;
		 block += SCAN_THREADS / WARP)
	{
		int sums[G] = {};

		FORM::sums(view, block, lane, tables, sums);
		use_sums<FORM, G, MODE>(view, item, block, sums, out, least);
	}
	if (MODE == SCAN_MIN)
		store_least<G>(item, out, least);
}

#endif /* GPUANN_COOC_SCAN_CUH */
