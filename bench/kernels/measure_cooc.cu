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
 * bit; the first pair's of each list with the host's too. Exits with 1 where one
 * is another.
 *
 * Times are medians by events, of everything on the device; tables: the same
 * items without codes. Look-ups a second are those of the rest; one serves all
 * queries of a group. Prints markdown, and the cost model of MemANNS' gate with
 * the constants measured.
 */
#include <getopt.h>
#include <string.h>
#include <string>

#include "cooc_lists.h"
#include "device.cuh"

extern "C"
{
#include "engine/quantizer/lists_train.h"
#include "engine/quantizer/nearest.h"
#include "engine/quantizer/random.h"
}

#define CENTRES 20000u
#define ROUNDS 4u
#define SUMMED_ENTRY (65535u / 3) /* three of them fit into 16 bits */

/* What the command line chose. */
static struct
{
	uint32_t rows, dims, pairs, queries;
	int runs;
	std::vector<uint32_t> sizes;
	std::string only;
	const char *base;
} set = {262144, 128, 512, 1024, 5, {1000, 4000, 16000}, "", NULL};

/* Where codes come from. */
struct Source
{
	const char *name;
	bool codes;
	uint32_t near;
	float noise;
};

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

/* ---- rows and codes, on the host ---- */

static void *
need(void *memory)
{
	if (memory == NULL)
	{
		fprintf(stderr, "out of memory\n");
		exit(1);
	}
	return memory;
}

static uint32_t
mixed(uint64_t x)
{
	x += 0x9E3779B97F4A7C15ull;
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
	return (uint32_t) ((x ^ (x >> 31)) >> 32);
}

/* About normal: the sum of four uniform numbers. */
static float
normal(uint64_t number)
{
	float sum = 0;

	for (uint32_t i = 0; i < 4; i++)
		sum += (float) mixed(number * 4 + i) * 0x1p-32f;
	return (sum - 2) * 1.7320508f;
}

/* All rows: those of the file, or of the mixture. */
static std::vector<float>
make_rows()
{
	std::vector<float> rows((size_t) set.rows * set.dims);

	if (set.base != NULL)
	{
		FILE *file = fopen(set.base, "rb");

		if (file == NULL || fread(rows.data(), sizeof(float), rows.size(), file) != rows.size())
		{
			fprintf(stderr, "cannot read %s, or it is too short\n", set.base);
			exit(1);
		}
		fclose(file);
		return rows;
	}
	spread_over(set.rows, [&](uint32_t row) {
		uint32_t centre = mixed(row + 1) % CENTRES;

		for (uint32_t i = 0; i < set.dims; i++)
			rows[(size_t) row * set.dims + i] =
				normal((uint64_t) centre * 8192 + i) +
				0.7f * normal(((uint64_t) row << 13) + i + ((uint64_t) 1 << 40));
	});
	return rows;
}

/* Make all but the first rows near-duplicates of these. */
static void
bring_near(const Source &source, std::vector<float> *rows)
{
	spread_over(source.near > 0 ? set.rows : 0, [&](uint32_t row) {
		for (uint32_t i = 0; row >= source.near && i < set.dims; i++)
		{
			float *at = &(*rows)[(size_t) row * set.dims + i];

			*at = (1 - source.noise) * (*rows)[(size_t) (row % source.near) * set.dims + i] +
				  source.noise * *at;
		}
	});
}

/* TrainControl's, by spread_over(). */
static void
spread_training(void *, void (*work)(void *, uint32_t), void *argument, uint32_t count)
{
	spread_over(count, [&](uint32_t i) { work(argument, i); });
}

/* Centroids and codebook, from every so manieth row. */
static std::vector<float>
train(const QuantizerShape &shape, uint32_t lists, const std::vector<float> &rows)
{
	TrainControl control = {spread_training, NULL, NULL};
	ListsTraining training = {shape, lists, ROUNDS, true, &control};
	uint32_t count = std::min(set.rows, std::max(65536u, lists * LISTS_TRAIN_ROWS));
	std::vector<float> sample((size_t) count * set.dims),
		floats(lists_floats(&shape, lists));
	double inertia;

	for (uint32_t i = 0; i < count; i++)
		memcpy(&sample[(size_t) i * set.dims],
			   &rows[(size_t) ((uint64_t) set.rows * i / count) * set.dims],
			   set.dims * sizeof(float));
	if (lists_train(&training, sample.data(), count, floats.data(), &inertia) != ENGINE_OK)
		need(NULL);
	return floats;
}

/* The nearest centroid of each row. */
static std::vector<uint32_t>
assign(const std::vector<float> &rows, const float *centroids, uint32_t lists)
{
	Centroids own;
	void *memory = need(aligned_alloc(64, (centroids_bytes(lists, set.dims) + 63) / 64 * 64));
	std::vector<uint32_t> nearest(set.rows);

	centroids_init(&own, centroids, lists, set.dims, memory);
	spread_over((set.rows + NEAREST_ROWS - 1) / NEAREST_ROWS, [&](uint32_t i) {
		uint32_t first = i * NEAREST_ROWS;

		(void) centroids_nearest(&own, &rows[(size_t) first * set.dims], set.dims,
								 std::min<uint32_t>(NEAREST_ROWS, set.rows - first),
								 &nearest[first], NULL);
	});
	free(memory);
	return nearest;
}

/* The tables of queries, which are rows. */
static std::vector<uint16_t>
make_tables(const Quantizer *quantizer, const QuantizerShape &shape, const std::vector<float> &rows)
{
	std::vector<uint16_t> tables((size_t) set.queries * PLAIN_ENTRIES);
	size_t bytes = quantizer_table_bytes(&shape),
		   entries = PLAIN_ENTRIES * sizeof(uint16_t);

	spread_over(set.queries, [&](uint32_t query) {
		std::vector<uint32_t> own(bytes / sizeof(uint32_t));
		size_t row = (size_t) ((uint64_t) set.rows * query / set.queries);

		quantizer_prepare(quantizer, &rows[row * set.dims], own.data());
		/* entries are the end of a table */
		memcpy(&tables[(size_t) query * PLAIN_ENTRIES],
			   (const char *) own.data() + (bytes - entries), entries);
	});
	return tables;
}

/* Lists of the codes of rows. */
static ListsOfCodes
encode_rows(const std::vector<float> &rows, uint32_t lists, std::vector<uint16_t> *tables)
{
	QuantizerShape shape = {QUANTIZER_PQ, METRIC_L2, set.dims, 8, SCAN_PARTS, 5};
	std::vector<float> floats = train(shape, lists, rows);
	std::vector<uint32_t> nearest = assign(rows, floats.data(), lists);
	std::vector<std::vector<uint32_t>> slots(lists);
	Quantizer *quantizer = (Quantizer *) need(
		quantizer_open(&shape, floats.data() + (size_t) lists * set.dims));
	ListsOfCodes codes(lists);

	for (uint32_t row = 0; row < set.rows; row++)
		slots[nearest[row]].push_back(row);
	spread_over(lists, [&](uint32_t list) {
		std::vector<unsigned char> code(quantizer_code_bytes(&shape));

		for (uint32_t row : slots[list])
		{
			quantizer_encode(quantizer, &floats[(size_t) list * set.dims],
							 &rows[(size_t) row * set.dims], 1, code.data());
			codes[list].insert(codes[list].end(), code.begin(), code.begin() + SCAN_PARTS);
		}
	});
	*tables = make_tables(quantizer, shape, rows);
	quantizer_close(quantizer);
	return codes;
}

/* Lists of codes as bench/cooc.c makes them. */
static ListsOfCodes
make_codes(float noise, uint32_t lists, std::vector<uint16_t> *tables)
{
	ListsOfCodes codes(lists);

	spread_over(lists, [&](uint32_t list) {
		uint64_t random = list + 1;

		for (uint32_t i = 0; i < set.rows / lists; i++)
		{
			uint64_t group = (uint64_t) (random_fraction(&random) * 40) * 1000003;

			for (uint32_t part = 0; part < SCAN_PARTS; part++)
			{
				double drawn = random_fraction(&group);

				if (random_fraction(&random) < noise)
					drawn = random_fraction(&random);
				codes[list].push_back((unsigned char) (drawn * 256));
			}
		}
	});
	tables->resize((size_t) set.queries * PLAIN_ENTRIES);
	for (size_t i = 0; i < tables->size(); i++)
		(*tables)[i] = (uint16_t) mixed(i);
	return codes;
}

/* ---- the device ---- */

template <typename T>
static T *
device_memory(size_t count)
{
	T *memory;

	must(cudaMalloc((void **) &memory, count * sizeof(T) + 256), "memory");
	return memory;
}

template <typename T>
static T *
to_device(const std::vector<T> &from)
{
	T *memory = device_memory<T>(from.size());

	must(cudaMemcpy(memory, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
	return memory;
}

/* Lists on the device. */
struct OnDevice
{
	ScanView full;	 /* with the tables as they are, */
	ScanView summed; /* and with entries of which three fit into 16 bits */
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
		entry = (uint16_t) (entry / 3);
	for (uint32_t list = 0; list < lists.rows.size(); list++)
		for (uint32_t i = 0; i < set.pairs; i++)
			pairs.push_back((list * 37 + i * (set.queries / set.pairs)) % set.queries);
	view->lists.shape = {QUANTIZER_PQ, METRIC_L2, set.dims, 8, SCAN_PARTS, 5};
	view->plain = to_device(lists.plain);
	view->words = to_device(lists.words);
	view->coded = to_device(lists.coded);
	view->order = to_device(lists.order);
	view->sets = to_device(lists.sets);
	view->pairs = to_device(pairs);
	view->tables = (const uint32_t *) to_device(tables);
	on.summed = on.full;
	on.summed.tables = (const uint32_t *) to_device(less);
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
		  (const void *) on.out.least, (const void *) on.out.all, (const void *) on.out.unequal})
		must(cudaFree((void *) memory), "memory");
}

/* Allow a kernel its tables, and launch it. */
template <class FORM, int G, ScanMode MODE>
static void
scan(const ScanView &view, const ScanItem *items, size_t count, const ScanOut &out)
{
	LAUNCH((cooc_scan_kernel<FORM, G, MODE>), dim3((unsigned int) count), SCAN_THREADS,
		   FORM::bytes, stream, view, items, out);
	must(cudaGetLastError(), "a launch");
}

template <class FORM, int G>
static void
allow()
{
	for (const void *kernel : {(const void *) cooc_scan_kernel<FORM, G, SCAN_LEAST>,
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

	must(cudaFuncGetAttributes(&attributes,
							   (const void *) cooc_scan_kernel<FORM, G, SCAN_LEAST>),
		 "attributes");
	must(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
			 &blocks, (const void *) cooc_scan_kernel<FORM, G, SCAN_LEAST>, (int) SCAN_THREADS,
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
compare_host(const ScanLists &lists, const ListsOfCodes &codes,
			 const std::vector<uint16_t> &tables, uint32_t part, const OnDevice &on)
{
	uint64_t at = 0;

	for (uint32_t list = 0; list < lists.rows.size(); list++)
	{
		const uint16_t *table =
			&tables[(size_t) (list * 37 % set.queries) * PLAIN_ENTRIES];
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
		compare<WordsForm<G, uint16_t>, G>(lists, view, on, "words, sums of 16 bits");
	compare<WordsForm<G, uint32_t>, G>(lists, view, on, "words, sums of 32 bits");
}

/* Compare all sums of all forms; returns how many sums each one made. */
static uint64_t
compare_all(const ScanLists &lists, const ListsOfCodes &codes,
			const std::vector<uint16_t> &tables, const OnDevice &on)
{
	std::vector<ScanItem> items = make_items(lists, set.pairs, SCAN_GROUP, 64);
	ScanItem *own = to_device(items);

	for (bool summed : {false, true})
	{
		scan<PlainForm<SCAN_GROUP, false>, SCAN_GROUP, SCAN_KEEP>(summed ? on.summed : on.full, own,
																 items.size(), on.out);
		must(cudaStreamSynchronize(stream), "sums");
		compare_host(lists, codes, tables, summed ? 3 : 1, on);
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
	double items, look_ups[2], plain, unrolled, words, wide;
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
	auto time = [&](const ScanItem *items) {
		return time_of(stream, 2, set.runs,
					   [&] { scan<FORM, G, SCAN_LEAST>(view, items, work.count, out); });
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
		  words = time_form<WordsForm<G, uint16_t>, G>(on.summed, work, on.out),
		  wide = time_form<WordsForm<G, uint32_t>, G>(on.summed, work, on.out);

	printf("| %d | %u | %.3f | %.3f | %.2f | %.0f | %.3f | %.3f | %.3f | %.2f | %.0f | %.3f | %.3f | "
		   "%.2f | %.2f | %.2f | %.2f |\n",
		   G, blocks * LIST_PLACES, plain.all / 1e3, plain.tables / 1e3, rate(look_ups[0], plain),
		   plain_bytes / plain.all / 1e3, unrolled.all / 1e3, words.all / 1e3, words.tables / 1e3,
		   rate(look_ups[1], words), words_bytes / words.all / 1e3, wide.all / 1e3,
		   wide.tables / 1e3, rate(look_ups[1], wide), plain.all / words.all,
		   unrolled.all / words.all, plain.all / wide.all);
	fflush(stdout);
	if (G == SCAN_GROUP)
		points.push_back({(double) work.count, {look_ups[0], look_ups[1]}, plain.all, unrolled.all,
						  words.all, wide.all});
	must(cudaFree(work.items), "memory");
	must(cudaFree(work.empty), "memory");
}

static void
measure(const Source &source, const std::vector<float> &rows, uint32_t size)
{
	uint32_t lists = std::max(1u, set.rows / size);
	std::vector<uint16_t> tables;
	ListsOfCodes codes = source.codes ? make_codes(source.noise, lists, &tables)
									  : encode_rows(rows, lists, &tables);
	ScanLists made = make_scan_lists(codes);
	OnDevice on = bring_lists(made, tables);
	uint64_t compared = compare_all(made, codes, tables, on);
	double sets = 0,
		   all = (double) made.all_rows;

	for (uint32_t count : made.nsets)
		sets += count;
	printf("\n%s, %u lists of %.0f codes (the longest of %u), %.0f sets each; words of a code: "
		   "%.2f, in blocks %.2f, sorted %.2f; `auto` encodes %.0f %% of the rows, sorted %.0f %%; "
		   "%llu sums equal in each form\n\n",
		   source.name, lists, all / lists, *std::max_element(made.rows.begin(), made.rows.end()),
		   sets / lists, (double) made.all_words / all, (double) made.unsorted / all,
		   (double) made.padded / all, 100 * (double) made.gated / all,
		   100 * (double) made.gated_sorted / all, (unsigned long long) compared);
	printf("| group | item | plain ms | tables | T/s | GB/s | unrolled ms | words 16 ms | tables | T/s "
		   "| GB/s | words 32 ms | tables | T/s | plain / words 16 | unrolled / words 16 | plain / "
		   "words 32 |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
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
		double at = point.look_ups[form] / point.items,
			   took = point.*time / point.items,
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
	Cost plain = fit(0, &Point::plain),
		 unrolled = fit(0, &Point::unrolled),
		 words = fit(1, &Point::words),
		 wide = fit(1, &Point::wide);

	printf("\nGroups of 4, time of an item = a + look-ups / r:\n\n| form | a, ns | r, T/s | farthest "
		   "point |\n|---|---|---|---|\n");
	for (auto &[name, cost] : {std::pair<const char *, Cost>("plain", plain),
							   {"plain, unrolled", unrolled},
							   {"words, sums of 16 bits", words},
							   {"words, sums of 32 bits", wide}})
		printf("| %s | %.2f | %.2f | %.0f %% |\n", name, cost.item * 1e3, 1e-6 / cost.look_up,
			   cost.farthest * 100);
	printf("\nWords of a code, in sorted blocks, below which a scan of an item is as fast as one of "
		   "plain codes, and 1.1 times as fast:\n\n| codes of an item | 16 bits | 1.1 | 16 bits, "
		   "beside unrolled | 1.1 | 32 bits | 1.1 |\n|---|---|---|---|---|---|---|\n");
	for (uint32_t size : sizes)
	{
		auto least = [&](const Cost &of, const Cost &than, double times) {
			return ((than.item + than.look_up * SCAN_PARTS * size) / times - of.item) /
				   (of.look_up * size);
		};

		printf("| %u | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n", size, least(words, plain, 1),
			   least(words, plain, 1.1), least(words, unrolled, 1), least(words, unrolled, 1.1),
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
			set.base = optarg;
		else if (option == 's')
			set.sizes = numbers_of(optarg);
		else if (option == 'o')
			set.only = optarg;
		else if (option == 't')
			set.runs = atoi(optarg);
		else if (strchr("ndpq", option) != NULL)
			*(option == 'n' ? &set.rows : option == 'd' ? &set.dims
									  : option == 'p'	? &set.pairs
														: &set.queries) =
				(uint32_t) strtoul(optarg, NULL, 10);
		else
			return false;
	return set.rows >= 1024 && set.dims >= SCAN_PARTS && set.dims <= QUANTIZER_MOST_DIMS &&
		   set.pairs > 0 && set.queries >= set.pairs && set.runs > 0 && !set.sizes.empty() &&
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
	printf("%s, %u rows of %u elements%s%s, %u queries a list\n\n", device.name, set.rows, set.dims,
		   set.base != NULL ? " of " : "", set.base != NULL ? set.base : "", set.pairs);
	printf("| form | group | shared bytes | registers | blocks of an SM | spilled bytes "
		   "|\n|---|---|---|---|---|---|\n");
	prepare_group<4>();
	prepare_group<2>();
	prepare_group<1>();
	if (set.only != "codes")
		rows = make_rows();
	for (const Source &source : sources)
	{
		std::vector<float> near;

		if (set.only != "" && (set.only == "codes") != source.codes)
			continue;
		if (!source.codes)
			near = rows;
		if (!source.codes)
			bring_near(source, &near);
		for (uint32_t size : set.sizes)
			measure(source, near, size);
	}
	print_model();
	must(cudaStreamDestroy(stream), "the stream");
	return 0;
}
