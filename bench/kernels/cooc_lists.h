/*
 * cooc_lists.h
 *		Lists of pq codes as cooc_scan.cuh scans them, made on the host by the
 *		engine's own mining and encoding; items of work.
 */
#ifndef GPUANN_COOC_LISTS_H
#define GPUANN_COOC_LISTS_H

#include <algorithm>
#include <atomic>
#include <functional>
#include <stdio.h>
#include <stdlib.h>
#include <thread>
#include <vector>

#include "cooc_scan.cuh"
#include "../cooc_sorted.h"

typedef std::vector<std::vector<unsigned char>> ListsOfCodes; /* SCAN_PARTS bytes a code */

/* Everything of lists that is on the host. */
struct ScanLists
{
	std::vector<uint32_t> rows;	 /* of each list */
	std::vector<uint32_t> first; /* block of each list, and one more */
	std::vector<uint32_t> nsets;
	std::vector<uint32_t> plain;  /* as they came, */
	std::vector<uint32_t> ranked; /* and in the order of words */
	std::vector<uint32_t> words;
	std::vector<ScanWords> coded;
	std::vector<uint32_t> order;
	std::vector<ScanSet> sets;
	uint64_t all_rows;
	uint64_t all_words;	   /* of codes, */
	uint64_t padded;	   /* and with what fills blocks up */
	uint64_t unsorted;	   /* the same in the order that rows came in */
	uint64_t gated;		   /* rows of lists that `auto` encodes, as they came */
	uint64_t gated_sorted; /* and if codes are sorted by their words */
};

/* Work on items from 0 to before count, on all cores. */
static inline void
spread_over(uint32_t count, const std::function<void(uint32_t)> &work)
{
	std::vector<std::thread> threads;
	std::atomic<uint32_t> next(0);

	for (uint32_t t = 0; t < std::max(1u, std::thread::hardware_concurrency()); t++)
		threads.emplace_back(
			[&]
			{
				for (uint32_t i; (i = next++) < count;)
					work(i);
			});
	for (std::thread &thread : threads)
		thread.join();
}

/* What is made of one list. */
struct ScanList
{
	CoocSets *sets;
	std::vector<uint16_t> words; /* SCAN_PARTS a row */
	std::vector<uint8_t> lengths;
	std::vector<uint32_t> order;
	CoocGain gain, sorted;
};

/* The word of a scan: the place of the entry, times eight. */
static inline uint16_t
scan_word(uint32_t word)
{
	static const uint32_t places[] = {0, 0, 0, 0, 0, 1, 2, 3}; /* of masks */
	uint32_t entry = word;

	if (word >= PLAIN_ENTRIES)
	{
		word -= PLAIN_ENTRIES;
		entry = PLAIN_ENTRIES + word / 8 * SET_ENTRIES + places[word % 8];
	}
	return (uint16_t) (entry * WORD_SCALE);
}

/*
 * Whether a row comes before another: the one of more words, then by
 * combinations, so that neighbours look the same entries up.
 */
static inline bool
comes_before(const ScanList &list, uint32_t a, uint32_t b)
{
	const uint16_t *words_a = &list.words[(size_t) a * SCAN_PARTS],
				   *words_b = &list.words[(size_t) b * SCAN_PARTS];

	if (list.lengths[a] != list.lengths[b])
		return list.lengths[a] > list.lengths[b];
	for (uint32_t i = list.lengths[a]; i-- > 0;)
		if (words_a[i] != words_b[i])
			return words_a[i] < words_b[i];
	return false;
}

/* Mine a list, encode its codes and order them. */
static inline void
make_scan_list(const std::vector<unsigned char> &codes, uint32_t number, ScanList *list)
{
	uint32_t rows = (uint32_t) (codes.size() / SCAN_PARTS);
	CoocMining mining = {};

	mining.codes = codes.data();
	mining.stride = SCAN_PARTS;
	mining.rows = rows;
	mining.parts = SCAN_PARTS;
	mining.seed = number + 1;
	list->sets = cooc_mine(&mining);
	if (list->sets == NULL)
	{
		fprintf(stderr, "out of memory\n");
		exit(1);
	}
	list->gain = cooc_gain(list->sets, codes.data(), SCAN_PARTS, rows);
	list->sorted = cooc_sorted_gain(list->sets, codes.data(), SCAN_PARTS, rows);
	list->words.resize((size_t) rows * SCAN_PARTS);
	for (uint32_t row = 0; row < rows; row++)
	{
		uint16_t words[COOC_MAX_WORDS];
		uint32_t count = cooc_encode(list->sets, &codes[(size_t) row * SCAN_PARTS], words) - 1;

		for (uint32_t i = 0; i < count; i++)
			list->words[(size_t) row * SCAN_PARTS + i] = scan_word(words[i + 1]);
		list->lengths.push_back((uint8_t) count);
		list->order.push_back(row);
	}
	std::stable_sort(list->order.begin(), list->order.end(),
					 [&](uint32_t a, uint32_t b) { return comes_before(*list, a, b); });
}

/* Set the words of a block that are a lane's, which are zero. */
static inline void
set_plain(const unsigned char *code, uint32_t *words)
{
	for (uint32_t i = 0; i < SCAN_PARTS; i++)
		words[i / 4 * LIST_PLACES] |= (uint32_t) code[i] << (i % 4 * 8);
}

/* Append a list's blocks in all forms. */
static inline void
append_blocks(const std::vector<unsigned char> &codes, const ScanList &list, ScanLists *lists)
{
	uint32_t rows = (uint32_t) list.order.size();

	for (uint32_t base = 0; base < rows; base += LIST_PLACES)
	{
		uint32_t length = list.lengths[list.order[base]];
		size_t plain = lists->plain.size(), words = lists->words.size();

		lists->coded.push_back({(uint32_t) (words / LIST_PLACES), length});
		lists->plain.resize(plain + PLAIN_WORDS, 0);
		lists->ranked.resize(plain + PLAIN_WORDS, 0);
		lists->words.resize(words + (length + 1) / 2 * LIST_PLACES,
							NOTHING_ENTRY * WORD_SCALE * 0x10001u);
		for (uint32_t lane = 0; lane < LIST_PLACES; lane++)
		{
			uint32_t row = base + lane < rows ? list.order[base + lane] : 0;

			lists->order.push_back(row);
			if (base + lane >= rows)
				continue;
			set_plain(&codes[(size_t) (base + lane) * SCAN_PARTS], &lists->plain[plain + lane]);
			set_plain(&codes[(size_t) row * SCAN_PARTS], &lists->ranked[plain + lane]);
			for (uint32_t i = 0; i < list.lengths[row]; i++)
			{
				uint32_t *both = &lists->words[words + i / 2 * LIST_PLACES + lane];

				*both = (*both & (i % 2 == 0 ? 0xFFFF0000u : 0xFFFFu)) |
						(uint32_t) list.words[(size_t) row * SCAN_PARTS + i] << (i % 2 * 16);
			}
		}
	}
}

/* Make both forms of all lists. */
static inline ScanLists
make_scan_lists(const ListsOfCodes &codes)
{
	ScanLists lists = {};
	std::vector<ScanList> each(codes.size());

	spread_over((uint32_t) codes.size(),
				[&](uint32_t i) { make_scan_list(codes[i], i, &each[i]); });
	lists.first.push_back(0);
	for (size_t i = 0; i < codes.size(); i++)
	{
		const ScanList &list = each[i];
		uint32_t rows = (uint32_t) list.order.size();

		append_blocks(codes[i], list, &lists);
		lists.rows.push_back(rows);
		lists.first.push_back((uint32_t) lists.coded.size());
		lists.nsets.push_back(list.sets->count);
		for (uint32_t s = 0; s < COOC_SETS; s++)
		{
			ScanSet set = {};

			for (uint32_t j = 0; s < list.sets->count && j < COOC_LENGTH; j++)
				set.entry[j] =
					(uint16_t) (list.sets->sets[s].columns[j] * 256 + list.sets->sets[s].codes[j]);
			lists.sets.push_back(set);
		}
		lists.all_rows += rows;
		lists.all_words += list.gain.words;
		lists.padded += list.sorted.padded;
		lists.unsorted += list.gain.padded;
		lists.gated += cooc_pays(&list.gain) ? rows : 0;
		lists.gated_sorted += cooc_pays(&list.sorted) ? rows : 0;
		free(list.sets);
	}
	return lists;
}

/*
 * Items of all lists, each probed by so many queries, `group` of them and up to
 * `blocks` blocks an item. Pairs and kept sums are numbered list by list.
 */
static inline std::vector<ScanItem>
make_items(const ScanLists &lists, uint32_t queries, uint32_t group, uint32_t blocks)
{
	std::vector<ScanItem> items;
	uint64_t sums = 0;

	for (uint32_t list = 0; list < lists.rows.size(); list++)
	{
		for (uint32_t begin = lists.first[list]; begin < lists.first[list + 1]; begin += blocks)
			for (uint32_t pair = 0; pair < queries; pair += group)
				items.push_back({list, lists.nsets[list], lists.rows[list], lists.first[list],
								 begin, std::min(begin + blocks, lists.first[list + 1]),
								 list * queries + pair, std::min(group, queries - pair),
								 sums + (uint64_t) pair * lists.rows[list]});
		sums += (uint64_t) queries * lists.rows[list];
	}
	return items;
}

#endif /* GPUANN_COOC_LISTS_H */
