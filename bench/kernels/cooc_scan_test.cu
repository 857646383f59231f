/*
 * cooc_scan_test.cu
 *		Tests of sums over co-occurrence words and plain codes (cooc_scan.cuh)
 *		on a device, or on a processor that stands for one: all of them, and
 *		the least of each pair, beside sums made here.
 *
 * Prints TAP.
 */
#include <string>

#include "cooc_lists.h"
#include "cuda/tests/testing.cuh"

#define PAIRS 7u /* of a list: no multiple of a group */
#define QUERIES 11u

static cudaStream_t stream;

/* A copy of values in device memory. */
template <typename T>
static T *
on_device(const std::vector<T> &values)
{
	T *at = NULL;

	must(cudaMalloc((void **) &at, values.size() * sizeof(T) + 16), "memory");
	must(cudaMemcpy(at, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
		 "copying");
	return at;
}

template <typename T>
static std::vector<T>
from_device(const T *at, size_t n)
{
	std::vector<T> values(n);

	must(cudaMemcpy(values.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost), "copying");
	return values;
}

/* What a form is tested with. */
struct Case
{
	ListsOfCodes codes;
	ScanLists lists;
	ScanView view;
	std::vector<uint32_t> pairs;
	std::vector<uint32_t> all;	 /* sums as they should be */
	std::vector<uint32_t> least; /* of each pair */
};

/* Lists of few groups of codes, of which some are replaced. */
static ListsOfCodes
make_codes(uint32_t percent)
{
	static const uint32_t sizes[] = {1, 31, 32, 33, 500, 2000};
	ListsOfCodes codes;

	for (uint32_t size : sizes)
	{
		std::vector<unsigned char> list;

		for (uint32_t i = 0; i < size; i++)
		{
			uint32_t group = random_below(20);

			for (uint32_t part = 0; part < SCAN_PARTS; part++)
				list.push_back((unsigned char) (random_below(100) < percent
													? random_below(256)
													: (group * 37 + part * 11) % 256));
		}
		codes.push_back(list);
	}
	return codes;
}

/* Make a case of entries up to most; every third query has no other. */
static Case
make_case(uint32_t percent, uint32_t most)
{
	Case made = {};
	std::vector<uint16_t> tables;

	made.codes = make_codes(percent);
	made.lists = make_scan_lists(made.codes);
	for (uint32_t query = 0; query < QUERIES; query++)
		for (uint32_t i = 0; i < PLAIN_ENTRIES; i++)
			tables.push_back((uint16_t) (query % 3 == 0 ? most : random_below(most + 1)));
	for (uint32_t list = 0; list < made.codes.size(); list++)
		for (uint32_t i = 0; i < PAIRS; i++)
		{
			uint32_t query = random_below(QUERIES);

			made.pairs.push_back(query);
			made.least.push_back(UINT32_MAX);
			for (uint32_t row = 0; row < made.lists.rows[list]; row++)
			{
				uint32_t sum = 0;

				for (uint32_t part = 0; part < SCAN_PARTS; part++)
					sum += tables[query * PLAIN_ENTRIES + part * 256 +
								  made.codes[list][row * SCAN_PARTS + part]];
				made.all.push_back(sum);
				made.least.back() = std::min(made.least.back(), sum);
			}
		}
	made.view.lists.shape = {QUANTIZER_PQ, METRIC_L2, SCAN_PARTS, 8, SCAN_PARTS, 1};
	made.view.ranked = most == 65535;
	made.view.plain = on_device(made.view.ranked ? made.lists.ranked : made.lists.plain);
	made.view.words = on_device(made.lists.words);
	made.view.coded = on_device(made.lists.coded);
	made.view.order = on_device(made.lists.order);
	made.view.sets = on_device(made.lists.sets);
	made.view.pairs = on_device(made.pairs);
	made.view.tables = (const uint32_t *) on_device(tables);
	return made;
}

static void
free_case(const Case &made)
{
	for (const void *at : {(const void *) made.view.plain, (const void *) made.view.words,
						   (const void *) made.view.coded, (const void *) made.view.order,
						   (const void *) made.view.sets, (const void *) made.view.pairs,
						   (const void *) made.view.tables})
		must(cudaFree((void *) at), "memory");
}

/*
 * Run a kernel on items of so many blocks; sums are replaced by what is there
 * then.
 */
template <class FORM, int G, ScanMode MODE>
static void
run(const Case &made, uint32_t blocks, std::vector<uint32_t> *all, std::vector<uint32_t> *least,
	unsigned long long *unequal)
{
	const void *kernel = (const void *) cooc_scan_kernel<FORM, G, MODE>;
	std::vector<ScanItem> items = make_items(made.lists, PAIRS, G, blocks);
	ScanItem *own = on_device(items);
	ScanOut out = {on_device(*least), on_device(*all), NULL};

	out.unequal = on_device(std::vector<unsigned long long>(1, 0));
	must(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
							  (int) FORM::bytes),
		 "shared memory");
	LAUNCH((cooc_scan_kernel<FORM, G, MODE>), dim3((unsigned int) items.size()), SCAN_THREADS,
		   FORM::bytes, stream, made.view, own, out);
	must(cudaStreamSynchronize(stream), "a kernel");
	*all = from_device(out.all, all->size());
	*least = from_device(out.least, least->size());
	*unequal = from_device(out.unequal, 1)[0];
	for (void *at : {(void *) own, (void *) out.least, (void *) out.all, (void *) out.unequal})
		must(cudaFree(at), "memory");
}

template <class FORM, int G>
static void
test_form(const Case &made, const std::string &name)
{
	for (uint32_t blocks : {64u, 3u})
	{
		std::vector<uint32_t> all(made.all.size(), 77), wrong(made.all),
			least(made.least.size(), UINT32_MAX), unused(made.least.size(), UINT32_MAX);
		std::string what = name + ", groups of " + std::to_string(G) + ", items of " +
						   std::to_string(blocks) + " blocks: ";
		unsigned long long unequal;

		run<FORM, G, SCAN_KEEP>(made, blocks, &all, &unused, &unequal);
		say(all == made.all, (what + "all sums").c_str());
		run<FORM, G, SCAN_MIN>(made, blocks, &all, &least, &unequal);
		say(least == made.least, (what + "the least of each pair").c_str());
		wrong[wrong.size() / 2]++;
		wrong[0]++;
		run<FORM, G, SCAN_COMPARE>(made, blocks, &wrong, &unused, &unequal);
		say(unequal == 2, (what + "two sums that are others are found").c_str());
	}
}

template <int G>
static void
test_group(const Case &made, bool summed, const std::string &name)
{
	test_form<PlainForm<G, false>, G>(made, name + "plain");
	test_form<PlainForm<G, true>, G>(made, name + "plain, unrolled");
	test_form<WordsForm<G, uint32_t>, G>(made, name + "words, sums of 32 bits");
	if (summed)
		test_form<WordsForm<G, uint16_t>, G>(made, name + "words, sums of 16 bits");
}

/* Codes of which so many in a hundred are replaced. */
static void
test_codes(uint32_t percent)
{
	for (uint32_t most : {65535u, 65535u / 3})
	{
		Case made = make_case(percent, most);
		std::string name =
			std::to_string(percent) + " % noise, entries up to " + std::to_string(most) + ", ";
		uint64_t words = 0;

		for (uint32_t i = 0; i < made.lists.coded.size(); i++)
			words += made.lists.coded[i].length;
		say(made.lists.all_words <= made.lists.padded && made.lists.padded <= words * LIST_PLACES &&
				made.lists.padded <= made.lists.all_rows * SCAN_PARTS,
			(name + "blocks have the words that they should").c_str());
		say(percent == 100 ? made.lists.all_words == made.lists.all_rows * SCAN_PARTS
						   : made.lists.all_words < made.lists.all_rows * SCAN_PARTS,
			(name + "words are saved where codes occur together").c_str());
		test_group<1>(made, most < 65535, name);
		test_group<2>(made, most < 65535, name);
		test_group<4>(made, most < 65535, name);
		free_case(made);
	}
}

int
main(void)
{
	must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	test_codes(0);
	test_codes(20);
	test_codes(100);
	must(cudaStreamDestroy(stream), "the stream");
	printf("1..%u\n", tests);
	return failures > 0;
}
