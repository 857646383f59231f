/*
 * measure_cooc.cu
 *		Whether co-occurrence words pay on a device: sums over them beside sums
 *		over the plain pq codes, as the engine scans these (cooc_scan.cuh).
 *
 * cooc_scan [-n ROWS] [-d DIMS] [--base FILE] [--pairs N] [--queries N]
 * [--sizes 1000,4000,16000] [--runs N] [--only rows|codes]
 *
 * Rows: of a mixture of normal distributions, or of a file of floats; then with
 * all but the first NEAR made near-duplicates of these. Lists and codebook by
 * lists_train(), codes and words by src/engine/quantizer, on all cores. Codes:
 * made as bench/cooc.c makes them. Each list is probed by the same number of
 * queries. Before anything is timed all sums of all pairs are compared, to the
 * bit; the first pair's of each list with the host's too. Exits with 1 where
 * one is another.
 *
 * Forms: plain, as the engine scans; unrolled, for 16 sub-spaces; ranked, that
 * with codes in the order of words, where neighbours look the same entries up;
 * words with sums of 16 bits and of 32.
 *
 * Times are medians by events, of everything on the device; tables: the same
 * items without codes. Look-ups a second are those of the rest; one serves all
 * queries of a group. Prints markdown, and the cost model of MemANNS' gate with
 * the constants measured.
 */
#include <chrono>
#include <getopt.h>
#include <string>

#include "cooc_rows.h"
#include "device.cuh"

#define SUMMED 3 /* entries whose sum is to fit into 16 bits */

/* What the command line chose. */
static struct
{
	WantedRows wanted;
	uint32_t pairs;
	int runs;
	std::vector<uint32_t> sizes;
	std::string only;
} set = {{262144, 128, 1024, NULL}, 512, 5, {1000, 4000, 16000}, ""};

static const Source sources[] = {
	{"rows as they are", false, 0, 0},
	{"near 2,000 rows, 0.02", false, 2000, 0.02f},
	{"near 300 rows, 0.02", false, 300, 0.02f},
	{"near 300 rows, 0.1", false, 300, 0.1f},
	{"near 300 rows, 0.3", false, 300, 0.3f},
	{"codes, noise 0", true, 0, 0},
	{"codes, noise .03", true, 0, 0.03f},
	{"codes, noise .1", true, 0, 0.1f},
	{"codes, noise .2", true, 0, 0.2f},
	{"codes, noise .4", true, 0, 0.4f},
	{"codes, noise 1", true, 0, 1},
};

static cudaStream_t stream;
static cudaDeviceProp device;

/* ---- the device ---- */

/* Lists on the device. */
struct OnDevice
{
	ScanView full;	 /* with the tables as they are, */
	ScanView summed; /* and with entries of which three fit into 16 bits; */
	ScanView ranked; /* with these, and plain codes in the order of words */
	ScanOut out;
};

static OnDevice
bring_lists(const ScanLists &lists, const std::vector<uint16_t> &tables)
{
	OnDevice on = {};
	std::vector<uint16_t> less(tables);
	std::vector<uint32_t> pairs;
	ScanView *view = &on.full;

	for (uint16_t &entry : less)
		entry = (uint16_t) (entry / SUMMED);
	for (uint32_t list = 0; list < lists.rows.size(); list++)
		for (uint32_t i = 0; i < set.pairs; i++)
			pairs.push_back((list * 37 + i * (set.wanted.queries / set.pairs)) %
							set.wanted.queries);
	view->lists.shape = {QUANTIZER_PQ, METRIC_L2, set.wanted.dims, 8, SCAN_PARTS, 5};
	view->plain = to_device(lists.plain);
	view->words = to_device(lists.words);
	view->coded = to_device(lists.coded);
	view->order = to_device(lists.order);
	view->sets = to_device(lists.sets);
	view->pairs = to_device(pairs);
	view->tables = (const uint32_t *) to_device(tables);
	on.summed = on.full;
	on.summed.tables = (const uint32_t *) to_device(less);
	on.ranked = on.summed;
	on.ranked.ranked = true;
	on.ranked.plain = to_device(lists.ranked);
	on.out.least = device_memory<uint32_t>(pairs.size());
	on.out.all = device_memory<uint32_t>(lists.all_rows * set.pairs);
	on.out.unequal = device_memory<unsigned long long>(1);
	must(cudaMemset(on.out.unequal, 0, sizeof(unsigned long long)), "memory");
	return on;
}

static void
free_lists(const OnDevice &on)
{
	for (const void *memory :
		 {(const void *) on.full.plain, (const void *) on.full.words, (const void *) on.full.coded,
		  (const void *) on.full.order, (const void *) on.full.sets, (const void *) on.full.pairs,
		  (const void *) on.full.tables, (const void *) on.summed.tables,
		  (const void *) on.ranked.plain, (const void *) on.out.least, (const void *) on.out.all,
		  (const void *) on.out.unequal})
		must(cudaFree((void *) memory), "memory");
}

/* Allow a kernel its tables, and launch it. */
template <class FORM, int G, ScanMode MODE>
static void
scan(const ScanView &view, const ScanItem *items, size_t count, const ScanOut &out)
{
	LAUNCH((cooc_scan_kernel<FORM, G, MODE>), dim3((unsigned int) count), SCAN_THREADS, FORM::bytes,
		   stream, view, items, out);
	must(cudaGetLastError(), "a launch");
}

template <class FORM, int G>
static void
allow()
{
	for (const void *kernel : {(const void *) cooc_scan_kernel<FORM, G, SCAN_MIN>,
							   (const void *) cooc_scan_kernel<FORM, G, SCAN_KEEP>,
							   (const void *) cooc_scan_kernel<FORM, G, SCAN_COMPARE>})
		must(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
								  (int) FORM::bytes),
			 "shared memory");
}

/* Allow a form's kernels their tables, and print what they take. */
template <class FORM, int G>
static void
prepare(const char *name)
{
	allow<FORM, G>();
#ifndef EMULATED
	cudaFuncAttributes attributes;
	int blocks;

	must(cudaFuncGetAttributes(&attributes, (const void *) cooc_scan_kernel<FORM, G, SCAN_MIN>),
		 "attributes");
	must(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
			 &blocks, (const void *) cooc_scan_kernel<FORM, G, SCAN_MIN>, (int) SCAN_THREADS,
			 FORM::bytes),
		 "occupancy");
	printf("| %s | %d | %u | %d | %d | %zu |\n", name, G, FORM::bytes, attributes.numRegs, blocks,
		   attributes.localSizeBytes);
#endif
}

template <int G>
static void
prepare_group()
{
	prepare<PlainForm<G, false>, G>("plain");
	prepare<PlainForm<G, true>, G>("plain, unrolled");
	prepare<WordsForm<G, uint16_t>, G>("words, sums of 16 bits");
	prepare<WordsForm<G, uint32_t>, G>("words, sums of 32 bits");
}

/* ---- equality ---- */

/* Count the sums of a form that are others than those that are kept. */
template <class FORM, int G>
static void
compare(const ScanLists &lists, const ScanView &view, const OnDevice &on, const char *what)
{
	std::vector<ScanItem> items = make_items(lists, set.pairs, G, 64);
	ScanItem *own = to_device(items);
	unsigned long long unequal;

	scan<FORM, G, SCAN_COMPARE>(view, own, items.size(), on.out);
	must(cudaStreamSynchronize(stream), what);
	must(cudaMemcpy(&unequal, on.out.unequal, sizeof(unequal), cudaMemcpyDeviceToHost), what);
	must(cudaFree(own), "memory");
	if (unequal == 0)
		return;
	fprintf(stderr, "%s, groups of %d: %llu sums are others\n", what, G, unequal);
	exit(1);
}

/* Compare what is kept of each list's first pair with the host's sums. */
static void
compare_host(const ScanLists &lists, const ListsOfCodes &codes, const std::vector<uint16_t> &tables,
			 uint32_t part, const OnDevice &on)
{
	uint64_t at = 0;

	for (uint32_t list = 0; list < lists.rows.size(); list++)
	{
		const uint16_t *table = &tables[(size_t) (list * 37 % set.wanted.queries) * PLAIN_ENTRIES];
		std::vector<uint32_t> sums(lists.rows[list]);

		must(cudaMemcpy(sums.data(), on.out.all + at, sums.size() * sizeof(uint32_t),
						cudaMemcpyDeviceToHost),
			 "sums");
		for (uint32_t row = 0; row < lists.rows[list]; row++)
		{
			uint32_t sum = 0;

			for (uint32_t i = 0; i < SCAN_PARTS; i++)
				sum += table[i * 256 + codes[list][(size_t) row * SCAN_PARTS + i]] / part;
			if (sum == sums[row])
				continue;
			fprintf(stderr, "list %u, row %u: %u, on the device %u\n", list, row, sum, sums[row]);
			exit(1);
		}
		at += (uint64_t) set.pairs * lists.rows[list];
	}
}

template <int G>
static void
compare_group(const ScanLists &lists, const OnDevice &on, bool summed)
{
	const ScanView &view = summed ? on.summed : on.full;

	compare<PlainForm<G, false>, G>(lists, view, on, "plain");
	compare<PlainForm<G, true>, G>(lists, view, on, "plain, unrolled");
	if (summed)
	{
		compare<PlainForm<G, true>, G>(lists, on.ranked, on, "plain, ranked");
		compare<WordsForm<G, uint16_t>, G>(lists, view, on, "words, sums of 16 bits");
	}
	compare<WordsForm<G, uint32_t>, G>(lists, view, on, "words, sums of 32 bits");
}

/* Compare all sums of all forms; returns how many sums each one made. */
static uint64_t
compare_all(const ScanLists &lists, const ListsOfCodes &codes, const std::vector<uint16_t> &tables,
			const OnDevice &on)
{
	std::vector<ScanItem> items = make_items(lists, set.pairs, SCAN_GROUP, 64);
	ScanItem *own = to_device(items);

	for (bool summed : {false, true})
	{
		scan<PlainForm<SCAN_GROUP, false>, SCAN_GROUP, SCAN_KEEP>(summed ? on.summed : on.full, own,
																  items.size(), on.out);
		must(cudaStreamSynchronize(stream), "sums");
		compare_host(lists, codes, tables, summed ? SUMMED : 1, on);
		compare_group<1>(lists, on, summed);
		compare_group<2>(lists, on, summed);
		compare_group<4>(lists, on, summed);
	}
	must(cudaFree(own), "memory");
	return lists.all_rows * set.pairs;
}

/* ---- times ---- */

/* Of a form: everything, and tables alone, in microseconds. */
struct Times
{
	double all, tables;
};

/* What a group's scans take; of an item, for the model. */
struct Point
{
	double items, look_ups[2], plain, unrolled, ranked, words, wide;
};

static std::vector<Point> points;

/* Items in both ways, on the device. */
struct Work
{
	ScanItem *items;
	ScanItem *empty;
	size_t count;
};

template <class FORM, int G>
static Times
time_form(const ScanView &view, const Work &work, const ScanOut &out)
{
	auto time = [&](const ScanItem *items)
	{
		return time_of(stream, 1, set.runs,
					   [&] { scan<FORM, G, SCAN_MIN>(view, items, work.count, out); });
	};

	return {time(work.items), time(work.empty)};
}

/* Millions of millions of look-ups a second, tables left out. */
static double
rate(double look_ups, const Times &times)
{
	return look_ups / std::max(times.all - times.tables, 0.01) / 1e6;
}

template <int G>
static void
measure_group(const ScanLists &lists, const OnDevice &on, uint32_t blocks)
{
	std::vector<ScanItem> items = make_items(lists, set.pairs, G, blocks);
	Work work = {to_device(items), NULL, items.size()};
	uint32_t groups = (set.pairs + G - 1) / G;
	double plain_bytes = 4.0 * groups * (double) lists.plain.size(),
		   words_bytes = groups * (4.0 * (double) lists.words.size() +
								   (double) sizeof(ScanWords) * (double) lists.coded.size());
	double look_ups[2] = {(double) groups * (double) lists.all_rows * SCAN_PARTS,
						  (double) groups * (double) lists.padded};

	for (ScanItem &item : items)
		item.end = item.begin;
	work.empty = to_device(items);

	Times plain = time_form<PlainForm<G, false>, G>(on.summed, work, on.out),
		  unrolled = time_form<PlainForm<G, true>, G>(on.summed, work, on.out),
		  ranked = time_form<PlainForm<G, true>, G>(on.ranked, work, on.out),
		  words = time_form<WordsForm<G, uint16_t>, G>(on.summed, work, on.out),
		  wide = time_form<WordsForm<G, uint32_t>, G>(on.summed, work, on.out);

	printf(
		"| %d | %u | %.3f | %.3f | %.2f | %.0f | %.3f | %.3f | %.3f | %.3f | %.2f | %.0f | %.3f | "
		"%.3f | %.2f | %.2f | %.2f | %.2f | %.2f |\n",
		G, blocks * LIST_PLACES, plain.all / 1e3, plain.tables / 1e3, rate(look_ups[0], plain),
		plain_bytes / plain.all / 1e3, unrolled.all / 1e3, ranked.all / 1e3, words.all / 1e3,
		words.tables / 1e3, rate(look_ups[1], words), words_bytes / words.all / 1e3, wide.all / 1e3,
		wide.tables / 1e3, rate(look_ups[1], wide), plain.all / words.all, unrolled.all / words.all,
		ranked.all / words.all, plain.all / wide.all);
	fflush(stdout);
	if (G == SCAN_GROUP)
		points.push_back({(double) work.count,
						  {look_ups[0], look_ups[1]},
						  plain.all,
						  unrolled.all,
						  ranked.all,
						  words.all,
						  wide.all});
	must(cudaFree(work.items), "memory");
	must(cudaFree(work.empty), "memory");
}

/* The columns of measure_group(). */
static const char head[] =
	"| group | item | plain ms | tables | T/s | GB/s | unrolled ms | ranked ms | words 16 ms "
	"| tables | T/s | GB/s | words 32 ms | tables | T/s | plain / words 16 | unrolled / words 16 "
	"| ranked / words 16 | plain / words 32 |\n"
	"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";

static double
now()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
		.count();
}

static void
measure(const Source &source, const std::vector<float> &rows, uint32_t size)
{
	uint32_t lists = std::max(1u, set.wanted.rows / size);
	std::vector<uint16_t> tables;
	double begin = now();
	ListsOfCodes codes = source.codes ? make_codes(set.wanted, source.noise, lists, &tables)
									  : encode_rows(set.wanted, rows, lists, &tables);
	double coded = now();
	ScanLists made = make_scan_lists(codes);
	double worded = now();
	OnDevice on = bring_lists(made, tables);
	uint64_t compared = compare_all(made, codes, tables, on);
	double sets = 0, all = (double) made.all_rows;

	for (uint32_t count : made.nsets)
		sets += count;
	printf("\n%s, %u lists of %.0f codes (the longest of %u), %.0f sets each; words of a code: "
		   "%.2f, in blocks %.2f, sorted %.2f; `auto` encodes %.0f %% of the rows, sorted %.0f %%; "
		   "%llu sums equal in each form; codes made in %.1f s, words in %.1f s\n\n%s",
		   source.name, lists, all / lists, *std::max_element(made.rows.begin(), made.rows.end()),
		   sets / lists, (double) made.all_words / all, (double) made.unsorted / all,
		   (double) made.padded / all, 100 * (double) made.gated / all,
		   100 * (double) made.gated_sorted / all, (unsigned long long) compared, coded - begin,
		   worded - coded, head);
	for (uint32_t blocks : {64u, 256u})
	{
		measure_group<4>(made, on, blocks);
		measure_group<2>(made, on, blocks);
		measure_group<1>(made, on, blocks);
	}
	free_lists(on);
}

/* ---- the model ---- */

/* Device-wide: of an item, and of a look-up, in microseconds. */
struct Cost
{
	double item, look_up, farthest;
};

/* The line through all points, by least squares of relative errors. */
static Cost
fit(uint32_t form, double Point::*time)
{
	double w = 0, x = 0, y = 0, xx = 0, xy = 0;
	Cost cost = {};

	for (const Point &point : points)
	{
		double at = point.look_ups[form] / point.items, took = point.*time / point.items,
			   weight = 1 / (took * took);

		w += weight;
		x += weight * at;
		y += weight * took;
		xx += weight * at * at;
		xy += weight * at * took;
	}
	cost.look_up = (w * xy - x * y) / (w * xx - x * x);
	cost.item = (y - cost.look_up * x) / w;
	for (const Point &point : points)
	{
		double took = point.*time / point.items;

		cost.farthest = std::max(
			cost.farthest,
			fabs((cost.item + cost.look_up * point.look_ups[form] / point.items) / took - 1));
	}
	return cost;
}

/* Print the model's constants, and from which words on they pay. */
static void
print_model()
{
	static const uint32_t sizes[] = {1000, 2048, 4000, 8192, 16000};
	Cost plain = fit(0, &Point::plain), unrolled = fit(0, &Point::unrolled),
		 ranked = fit(0, &Point::ranked), words = fit(1, &Point::words),
		 wide = fit(1, &Point::wide);

	printf(
		"\nGroups of 4, time of an item = a + look-ups / r:\n\n| form | a, ns | r, T/s | farthest "
		"point |\n|---|---|---|---|\n");
	for (auto &[name, cost] : {std::pair<const char *, Cost>("plain", plain),
							   {"plain, unrolled", unrolled},
							   {"plain, unrolled, in the order of words", ranked},
							   {"words, sums of 16 bits", words},
							   {"words, sums of 32 bits", wide}})
		printf("| %s | %.2f | %.2f | %.0f %% |\n", name, cost.item * 1e3, 1e-6 / cost.look_up,
			   cost.farthest * 100);
	printf(
		"\nWords of a code, in sorted blocks, below which a scan of an item is as fast as one of "
		"plain codes, and 1.1 times as fast:\n\n| codes of an item | 16 bits | 1.1 | 16 bits, "
		"beside unrolled, ranked | 1.1 | 32 bits | 1.1 |\n|---|---|---|---|---|---|---|\n");
	for (uint32_t size : sizes)
	{
		auto least = [&](const Cost &of, const Cost &than, double times)
		{
			return ((than.item + than.look_up * SCAN_PARTS * size) / times - of.item) /
				   (of.look_up * size);
		};

		printf("| %u | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n", size, least(words, plain, 1),
			   least(words, plain, 1.1), least(words, ranked, 1), least(words, ranked, 1.1),
			   least(wide, plain, 1), least(wide, plain, 1.1));
	}
}

/* ---- the command line ---- */

static std::vector<uint32_t>
numbers_of(const char *text)
{
	std::vector<uint32_t> numbers;

	for (char *at = (char *) text; at != NULL && *at != '\0'; at += *at == ',')
	{
		char *begin = at;

		numbers.push_back((uint32_t) strtoul(at, &at, 10));
		if (at == begin || numbers.back() == 0)
			return {};
	}
	return numbers;
}

static int
usage()
{
	fprintf(stderr, "usage: cooc_scan [-n ROWS] [-d DIMS] [--base FILE] [--pairs N] "
					"[--queries N] [--sizes 1000,4000,16000] [--runs N] [--only rows|codes]\n");
	return 2;
}

static bool
parse(int argc, char **argv)
{
	static const struct option options[] = {{"base", required_argument, NULL, 'b'},
											{"pairs", required_argument, NULL, 'p'},
											{"queries", required_argument, NULL, 'q'},
											{"sizes", required_argument, NULL, 's'},
											{"runs", required_argument, NULL, 't'},
											{"only", required_argument, NULL, 'o'},
											{NULL, 0, NULL, 0}};
	int option;

	while ((option = getopt_long(argc, argv, "n:d:", options, NULL)) != -1)
		if (option == 'b')
			set.wanted.base = optarg;
		else if (option == 's')
			set.sizes = numbers_of(optarg);
		else if (option == 'o')
			set.only = optarg;
		else if (option == 't')
			set.runs = atoi(optarg);
		else if (strchr("ndpq", option) != NULL)
			*(option == 'n'	  ? &set.wanted.rows
			  : option == 'd' ? &set.wanted.dims
			  : option == 'p' ? &set.pairs
							  : &set.wanted.queries) = (uint32_t) strtoul(optarg, NULL, 10);
		else
			return false;
	return set.wanted.rows >= 1024 && set.wanted.dims >= SCAN_PARTS &&
		   set.wanted.dims <= QUANTIZER_MAX_DIMS && set.pairs > 0 &&
		   set.wanted.queries >= set.pairs && set.runs > 0 && !set.sizes.empty() &&
		   (set.only == "" || set.only == "rows" || set.only == "codes");
}

int
main(int argc, char **argv)
{
	std::vector<float> rows;

	if (!parse(argc, argv))
		return usage();
	must(cudaGetDeviceProperties(&device, 0), "the device");
	must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	printf("%s, %u rows of %u elements%s%s, %u queries a list\n\n", device.name, set.wanted.rows,
		   set.wanted.dims, set.wanted.base != NULL ? " of " : "",
		   set.wanted.base != NULL ? set.wanted.base : "", set.pairs);
	printf("| form | group | shared bytes | registers | blocks of an SM | spilled bytes "
		   "|\n|---|---|---|---|---|---|\n");
	prepare_group<4>();
	prepare_group<2>();
	prepare_group<1>();
	if (set.only != "codes")
		rows = make_rows(set.wanted);
	for (const Source &source : sources)
	{
		std::vector<float> near;

		if (set.only != "" && (set.only == "codes") != source.codes)
			continue;
		if (!source.codes)
			near = rows;
		if (!source.codes)
			bring_near(set.wanted, source, &near);
		for (uint32_t size : set.sizes)
			measure(source, near, size);
	}
	if (set.sizes.size() > 1) /* of one size there is no line */
		print_model();
	must(cudaStreamDestroy(stream), "the stream");
	return 0;
}
