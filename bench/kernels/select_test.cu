/*
 * select_test.cu
 *		Tests of the selection unit on a device, or on a processor that stands
 *		for one: networks, queues and merges, every way against an oracle, and
 *		how often queues are filled and merged beside what the papers expect.
 *
 * Prints TAP. select_test [--seed N]. Counters are there in a build with
 * GPUANN_COUNTING.
 */
#include <algorithm>
#include <math.h>
#include <string.h>
#include <vector>

#include "select_block.cuh"
#include "cuda/tests/testing.cuh"

#ifdef GPUANN_SANITIZED
#define SHORT true /* some of it: a sanitizer makes it slow */
#else
#define SHORT false
#endif
#define GUARD 64u /* items behind results that must stay as they are */
#define GUARD_ITEM 0x5555AAAA5555AAAAull

static cudaStream_t stream;

/*
 * Device memory with a copy of some values. Copies go through the stream that
 * works on them: one that does not would end whenever it does, for the stream
 * waits for no other.
 */
template <typename T>
struct Buffer
{
	T *at;
	size_t n;

	explicit Buffer(size_t count) : at(NULL), n(count)
	{
		must(cudaMalloc((void **) &at, (n > 0 ? n : 1) * sizeof(T)), "memory");
	}
	explicit Buffer(const std::vector<T> &values) : Buffer(values.size())
	{
		if (n > 0)
			must(cudaMemcpyAsync(at, values.data(), n * sizeof(T), cudaMemcpyHostToDevice, stream),
				 "copying");
		must(cudaStreamSynchronize(stream), "copying");
	}
	~Buffer()
	{
		cudaFree(at);
	}
	std::vector<T>
	values() const
	{
		std::vector<T> all(n);

		if (n > 0)
			must(cudaMemcpyAsync(all.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost, stream),
				 "copying back");
		must(cudaStreamSynchronize(stream), "what was launched");
		return all;
	}
};

/* --- networks ------------------------------------------------------------- */

/* Sort 32 x N items by the network, a warp per block. */
template <int N>
__global__ void
sort_kernel(Item *items)
{
	Item x[N];

#pragma unroll
	for (int i = 0; i < N; i++)
		x[i] = items[(blockIdx.x * N + i) * WARP + threadIdx.x];
	sort_items<0, N>(x);
#pragma unroll
	for (int i = 0; i < N; i++)
		items[(blockIdx.x * N + i) * WARP + threadIdx.x] = x[i];
}

/* Merge 32 x N and 32 x M items, in place; or only take the least N of them. */
template <int N, int M>
__global__ void
merge_kernel(Item *items, bool take)
{
	Item x[N];
	Item y[M];
	Item *at = items + (size_t) blockIdx.x * (N + M) * WARP + threadIdx.x;

#pragma unroll
	for (int i = 0; i < N; i++)
		x[i] = at[i * WARP];
#pragma unroll
	for (int i = 0; i < M; i++)
		y[i] = at[(N + i) * WARP];
	if (take)
		take_items(x, y);
	else
		merge_items(x, y);
#pragma unroll
	for (int i = 0; i < N; i++)
		at[i * WARP] = x[i];
#pragma unroll
	for (int i = 0; i < M; i++)
		at[(N + i) * WARP] = y[i];
}

/* Whether rows of items are what sorting them makes of them. */
static bool
is_sorted_copy(const std::vector<Item> &before, const std::vector<Item> &after, size_t row)
{
	for (size_t at = 0; at < before.size(); at += row)
	{
		std::vector<Item> expected(before.begin() + (long) at, before.begin() + (long) (at + row));

		std::sort(expected.begin(), expected.end());
		if (!std::equal(expected.begin(), expected.end(), after.begin() + (long) at))
			return false;
	}
	return true;
}

/*
 * Items of rows: random, of few values, equal, ascending, descending, all
 * empty.
 */
static std::vector<Item>
item_rows(size_t rows, size_t row)
{
	std::vector<Item> items(rows * row);

	for (size_t i = 0; i < items.size(); i++)
	{
		size_t kind = i / row % 6;
		Item key = kind == 0   ? random_below(0xFFFFFFFF)
				   : kind == 1 ? random_below(3)
				   : kind == 2 ? 7
				   : kind == 3 ? i
							   : row - i % row;

		items[i] = kind == 5 ? NO_ITEM : key << 32 | (uint32_t) (kind == 2 ? 0 : i % row);
	}
	return items;
}

template <int N>
static void
test_sort()
{
	std::vector<Item> before = item_rows(24, 32 * N);
	Buffer<Item> items(before);
	char what[80];

	LAUNCH(sort_kernel<N>, 24, WARP, 0, stream, items.at);
	must(cudaGetLastError(), "sort_kernel");
	snprintf(what, sizeof(what), "network: %d items of a warp are sorted", 32 * N);
	say(is_sorted_copy(before, items.values(), 32 * N), what);
}

/*
 * By the 0-1 principle a network that merges all pairs of sorted zeros and ones
 * merges everything: all counts of zeros (for large sizes some). With several
 * equal ones, as queues are before they are full.
 */
template <int N, int M>
static void
test_merge()
{
	const size_t A = 32 * N,
				 B = 32 * M;
	size_t step = (A + 1) * (B + 1) > 5000 ? 13 : 1;
	std::vector<Item> before;
	char what[100];
	bool good = true;

	for (size_t zeros = 0; zeros <= A; zeros += step)
		for (size_t more = 0; more <= B; more += step)
		{
			for (size_t i = 0; i < A; i++)
				before.push_back(i >= zeros);
			for (size_t i = 0; i < B; i++)
				before.push_back(i >= more);
		}
	{
		Buffer<Item> items(before);
		std::vector<Item> after;

		LAUNCH((merge_kernel<N, M>), (uint32_t) (before.size() / (A + B)), WARP, 0, stream,
			   items.at, false);
		must(cudaGetLastError(), "merge_kernel");
		after = items.values();
		/*
		 * both stay where they are: the first has the least, the second the
		 * rest
		 */
		for (size_t at = 0; at < before.size() && good; at += A + B)
		{
			std::vector<Item> row(after.begin() + (long) at, after.begin() + (long) (at + A + B));

			good = std::is_sorted(row.begin(), row.end()) &&
				   std::count(row.begin(), row.end(), 0ull) ==
					   std::count(before.begin() + (long) at, before.begin() + (long) (at + A + B),
								  0ull);
		}
	}
	{
		std::vector<Item> random = item_rows(12, A + B);

		for (size_t at = 0; at < random.size(); at += A + B)
		{
			std::sort(random.begin() + (long) at, random.begin() + (long) (at + A));
			std::sort(random.begin() + (long) (at + A), random.begin() + (long) (at + A + B));
		}
		Buffer<Item> items(random);
		Buffer<Item> taken(random);

		LAUNCH((merge_kernel<N, M>), 12, WARP, 0, stream, items.at, false);
		LAUNCH((merge_kernel<N, M>), 12, WARP, 0, stream, taken.at, true);
		good = good && is_sorted_copy(random, items.values(), A + B);

		std::vector<Item> all = items.values(),
						  least = taken.values();

		for (size_t at = 0; at < all.size() && good; at += A + B)
			good = std::equal(all.begin() + (long) at, all.begin() + (long) (at + A),
							  least.begin() + (long) at);
	}
	snprintf(what, sizeof(what), "network: %d and %d sorted items of a warp are merged", 32 * N,
			 32 * M);
	say(good, what);
}

static void
test_block_sort()
{
	std::vector<uint32_t> sizes;
	char what[100];
	bool good = true;

	for (uint32_t n = 1; n <= 66; n++)
		sizes.push_back(n);
	for (uint32_t size = 128; size <= SELECT_BLOCK_MAX; size *= 2)
	{
		sizes.push_back(size - 1);
		sizes.push_back(size);
		if (size < SELECT_BLOCK_MAX)
			sizes.push_back(size + 1);
	}
	for (uint32_t size : sizes)
	{
		std::vector<Item> before = item_rows(6, size);
		Buffer<Item> items(before);

		must(block_sort_launch(items.at, 6, size, stream), "block_sort_launch");

		std::vector<Item> after = items.values();

		if (is_sorted_copy(before, after, size))
			continue;
		printf("# rows of %u items: %s\n", size,
			   before == after ? "as they were" : "not sorted, or not those that were given");
		good = false;
	}
	snprintf(what, sizeof(what), "network: rows of 1 to %u items are sorted by a block",
			 SELECT_BLOCK_MAX);
	say(good, what);
}

/* --- ways ----------------------------------------------------------------- */

enum Shape
{
	RANDOM,
	TIES,
	EQUAL,
	ASCENDING,
	DESCENDING,
	SPECIAL,
	SAWTOOTH,
	INFINITE, /* but for one in 701 */
	SHAPES
};

static const char *const shape_names[SHAPES] = {
	"random",	  "few values",			  "equal",	  "ascending",
	"descending", "zeros, infinity, NaN", "sawtooth", "mostly infinity"};

static float
number(Shape shape, uint32_t i, uint32_t n)
{
	static const float special[] = {0.0f,	-0.0f,	 INFINITY, -INFINITY, NAN,
									1e-42f, -1e-42f, 3.4e38f,  -3.4e38f,  1.0f};

	switch (shape)
	{
		case RANDOM:
			return ((float) random_below(1u << 30) - 5e8f) / 1e6f;
		case TIES:
			return (float) random_below(4);
		case EQUAL:
			return 2.5f;
		case ASCENDING:
			return (float) i;
		case DESCENDING:
			return (float) (n - i);
		case SAWTOOTH:
			return (float) (n - i) + (float) (i % 1000) * 16;
		case INFINITE:
			return i % 701 == 3 ? (float) random_below(1000) : i % 2 == 0 ? INFINITY : NAN;
		default:
			return random_below(3) == 0 ? (float) random_below(100) - 50.0f
										: special[random_below(10)];
	}
}

struct Numbers
{
	std::vector<float> values;
	uint32_t rows;
	uint32_t n;
	size_t stride;
	size_t skip; /* before the first row */
};

static Numbers
make_numbers(Shape shape, uint32_t rows, uint32_t n, size_t padding, size_t skip)
{
	Numbers numbers = {{}, rows, n, n + padding, skip};

	/* padding, nearer than all: a kernel that reads it answers wrongly */
	numbers.values.assign(skip + rows * numbers.stride, -1e38f);
	for (uint32_t row = 0; row < rows; row++)
		for (uint32_t i = 0; i < n; i++)
			numbers.values[skip + row * numbers.stride + i] = number(shape, i, n);
	return numbers;
}

/* What a selection should find. Written without the unit's items. */
static std::vector<Item>
oracle(const Numbers &numbers, uint32_t row, uint32_t k)
{
	const float *values = numbers.values.data() + numbers.skip + row * numbers.stride;
	std::vector<uint32_t> order(numbers.n);
	std::vector<Item> expected;

	for (uint32_t i = 0; i < numbers.n; i++)
		order[i] = i;
	std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
		float x = isnan(values[a]) ? INFINITY : values[a];
		float y = isnan(values[b]) ? INFINITY : values[b];

		return x < y;
	});
	for (uint32_t i = 0; i < k; i++)
		expected.push_back(i < numbers.n ? select_item(values[order[i]], order[i]) : NO_ITEM);
	return expected;
}

/* Select, and compare to the oracle. */
static bool
way_is_right(SelectWay way, const Numbers &numbers, uint32_t k, uint32_t parts,
			 SelectEvents *events, uint32_t places = 0)
{
	Buffer<float> values(numbers.values);
	Buffer<Item> out(std::vector<Item>((size_t) numbers.rows * k + GUARD, GUARD_ITEM));
	SelectLaunch launch;
	std::vector<Item> found;

	memset(&launch, 0, sizeof(launch));
	launch.values = values.at + numbers.skip;
	launch.stride = numbers.stride;
	launch.rows = numbers.rows;
	launch.n = numbers.n;
	launch.k = k;
	launch.way = way;
	launch.parts = parts;
	launch.places = places;
	launch.out = out.at;
	launch.events = events;
	launch.stream = stream;
	must(select_bytes(&launch, &launch.state_bytes), "select_bytes");

	Buffer<unsigned char> memory(launch.state_bytes);

	launch.state = memory.at;
	must(select_launch(&launch), "select_launch");
	found = out.values();
	for (uint32_t row = 0; row < numbers.rows; row++)
	{
		std::vector<Item> expected = oracle(numbers, row, k);

		for (uint32_t i = 0; i < k; i++)
			if (found[(size_t) row * k + i] != expected[i])
			{
				Item item = found[(size_t) row * k + i];

				printf(
					"# %s, n %u, k %u, parts %u, row %u: result %u is %g at %u, not %g at %u%s\n",
					select_name(way), numbers.n, k, parts, row, i, select_value(item),
					select_place(item), select_value(expected[i]), select_place(expected[i]),
					item == GUARD_ITEM ? ": nothing was written there" : "");
				return false;
			}
	}
	for (size_t i = 0; i < GUARD; i++)
		if (found[(size_t) numbers.rows * k + i] != GUARD_ITEM)
		{
			printf("# %s, n %u, k %u, parts %u: written behind the results\n", select_name(way),
				   numbers.n, k, parts);
			return false;
		}
	return true;
}

/* One way at sizes around its borders. */
static void
test_way(SelectWay way, Shape shape)
{
	static const uint32_t ks[] = {1,   2,	31,	 32,   33,	 64,   100,	 128,  129,
								  256, 257, 512, 1000, 1024, 1025, 2048, 2049, 5000};
	char what[100];
	bool good = true;
	uint32_t done = 0;

	for (uint32_t k : ks)
	{
		uint32_t ns[] = {0, 1, 31, k - 1, k, k + 1, 3 * k + 517, 9001};
		/* one of them each time, all for small k */
		uint32_t from = k <= 33 ? 0 : (k + (uint32_t) shape) % 8,
				 to = k <= 33 ? 8 : from + 1;

		for (uint32_t j = from; j < to && good; j++)
			if (select_can(way, ns[j], k) || (ns[j] == 0 && select_can(way, 1, k)))
			{
				uint32_t parts = j % 3 == 2 ? 3 : 1;
				Numbers numbers = make_numbers(shape, 2, ns[j], j % 4, j % 2);

				good = way_is_right(way, numbers, k, parts, NULL);
				done++;
			}
	}
	snprintf(what, sizeof(what), "%s: %s, %u pairs of n and k, as the oracle says",
			 select_name(way), shape_names[shape], done);
	say(good, what);
}

/*
 * Rows that are long enough for a sample, at any alignment, in any number of
 * parts; places for what it lets pass that do not suffice.
 */
static void
test_sample(Shape shape)
{
	static const uint32_t ks[] = {1, 2, 10, 32, 100, 128, 256, 1000, 1024};
	static const uint32_t ns[] = {SELECT_SAMPLE_MIN, SELECT_SAMPLE_MIN + 3, 50001, 150000};
	char what[100];
	bool good = true;
	uint32_t done = 0;

	for (uint32_t i = 0; i < sizeof(ks) / sizeof(ks[0]); i++)
		for (uint32_t j = 0; j < 4 && good; j++)
		{
			uint32_t parts[] = {0, 1, 5},
					 places[] = {0, 0, ks[i], 1};
			Numbers numbers = make_numbers(shape, 1 + (i + j) % 3, ns[j], (i + j) % 4, i % 4);

			if (SHORT && (i + j) % 3 != 0)
				continue;
			good = way_is_right(SELECT_SAMPLE, numbers, ks[i], parts[(i + j) % 3], NULL,
								places[(i + j) % 4]);
			done++;
		}
	snprintf(what, sizeof(what), "sample: %s, %u long rows, as the oracle says", shape_names[shape],
			 done);
	say(good, what);
}

static void
test_chosen()
{
	char what[80];
	bool good = true;

	for (uint32_t k : {1u, 10u, 257u, 1000u, 3000u, 20000u, 40000u})
	{
		Numbers numbers = make_numbers(RANDOM, 3, 40000, 0, 0);
		SelectWay way = select_choose(3, 40000, k);

		good =
			good && select_can(way, 40000, k) && way_is_right(SELECT_CHOOSE, numbers, k, 0, NULL);
	}
	for (uint32_t rows : {1u, 2u, 32u, 33u, 256u, 257u, 1000u})
		for (uint32_t n : {1u, 4096u, 4097u, 16384u, 16385u, 65536u, 65537u, 262144u, 262145u,
						   4194304u, 4194305u, 100000000u})
			for (uint32_t k : {1u, 2u, 256u, 257u, 512u, 513u, 1024u, 1025u, 2048u, 2049u, 100000u})
				good = good && (k > n || select_can(select_choose(rows, n, k), n, k));
	snprintf(what, sizeof(what), "the chosen way can do it, at every border, and is right");
	say(good, what);
}

/* --- how often ------------------------------------------------------------ */

#ifdef GPUANN_COUNTING

/*
 * The events of selecting from one row by one warp's or block's worth of parts,
 * averaged over a few runs.
 */
static SelectEvents
events_of(SelectWay way, Shape shape, uint32_t n, uint32_t k, uint32_t runs, uint32_t places = 0)
{
	Buffer<unsigned char> counted(std::vector<unsigned char>(sizeof(SelectEvents), 0));
	SelectEvents events;
	std::vector<unsigned char> bytes;

	for (uint32_t run = 0; run < runs; run++)
		if (!way_is_right(way, make_numbers(shape, 1, n, 0, 0), k, 1, (SelectEvents *) counted.at,
						  places))
			printf("# wrong while counting\n");
	bytes = counted.values();
	memcpy(&events, bytes.data(), sizeof(events));
	events.groups /= runs;
	events.inserts /= runs;
	events.merges /= runs;
	events.read /= runs;
	return events; /* rescues are of all runs */
}

static bool
is_near(double found, double expected, double share)
{
	return found >= expected * (1 - share) && found <= expected * (1 + share);
}

/*
 * Thread queues of four warps: each sees a quarter of the row as one of its
 * own, so what the paper's model (Johnson, Douze, Jégou 2017, 4.3 and appendix)
 * says of a quarter, four times. The sums here are of its formula for
 * insertions, (k + t) ln(groups) beyond the first groups, and of merges from a
 * simulation (select_model below).
 */
struct Model
{
	double inserts;
	double merges;
};

/* The algorithm of the paper's 4.2, one lane after the other. */
static Model
select_model(uint32_t n, uint32_t k, uint32_t t, uint32_t runs)
{
	Model model = {0, 0};

	for (uint32_t run = 0; run < runs; run++)
	{
		std::vector<Item> best(k, NO_ITEM);
		std::vector<std::vector<Item>> queues(32, std::vector<Item>(t, NO_ITEM));

		for (uint32_t group = 0; group < n / 32; group++)
		{
			bool inserted = false,
				 broken = false;

			for (uint32_t lane = 0; lane < 32; lane++)
			{
				Item item = select_item((float) random_below(1u << 24), group * 32 + lane);

				if (item >= queues[lane][0])
					continue;
				inserted = true;
				queues[lane][0] = item;
				std::sort(queues[lane].begin(), queues[lane].end(),
						  [](Item a, Item b) { return a > b; });
			}
			for (uint32_t lane = 0; lane < 32; lane++)
				broken = broken || queues[lane][0] < best[k - 1];
			model.inserts += inserted;
			if (!broken)
				continue;
			model.merges++;

			std::vector<Item> all = best;

			for (uint32_t lane = 0; lane < 32; lane++)
				all.insert(all.end(), queues[lane].begin(), queues[lane].end());
			std::sort(all.begin(), all.end());
			/*
			 * what is left behind K, not k, stays in the network's first array:
			 * the queues get what follows it
			 */
			best.assign(all.begin(), all.begin() + k);
			for (uint32_t i = 0; i < 32 * t; i++)
				queues[i % 32][t - 1 - i / 32] = all[k + i];
		}
	}
	model.inserts /= runs;
	model.merges = model.merges / runs + 1;
	return model;
}

static void
test_thread_counts()
{
	static const uint32_t cases[][3] = {{40000, 32, 2}, {131072, 128, 3}, {131072, 256, 4}};

	for (const uint32_t *one : cases)
	{
		SelectEvents events = events_of(SELECT_THREAD_QUEUES, RANDOM, one[0], one[1], 3);
		Model model = select_model(one[0] / 4, one[1], one[2], 4);
		char what[160];

		printf(
			"# thread queues, n %u, k %u: groups %llu, with an insertion %llu (model %.0f), merges %llu (model %.1f)\n",
			one[0], one[1], events.groups, events.inserts, 4 * model.inserts, events.merges,
			4 * model.merges);
		snprintf(what, sizeof(what),
				 "thread queues: events of n %u, k %u, t %u are those of the paper's algorithm",
				 one[0], one[1], one[2]);
		say(is_near((double) events.groups, one[0] / 32, 0.01) &&
				is_near((double) events.inserts, 4 * model.inserts, 0.15) &&
				is_near((double) events.merges, 4 * model.merges, 0.15),
			what);
	}
	/* and the model's are those of another simulation of the algorithm */
	Model known = select_model(128000, 256, 4, 2);

	printf("# model, n 128000, k 256, t 4: %.0f insertions, %.1f merges\n", known.inserts,
		   known.merges);
	say(is_near(known.inserts, 1092, 0.15) && is_near(known.merges, 44.4, 0.15),
		"thread queues: the model counts what the algorithm does");
}

/*
 * Hanák 2023, 4: insertions <= 2 k (1 + H_n - H_2k), merges <= 1 + 2 (1 + H_n -
 * H_2k) for queues of k items.
 */
static void
test_block_counts()
{
	static const uint32_t cases[][2] = {{32768, 128}, {131072, 128}, {131072, 2048}};

	for (const uint32_t *one : cases)
	{
		SelectEvents events = events_of(SELECT_BLOCK_QUEUES, RANDOM, one[0], one[1], 2);
		double harmonic = log((double) one[0] / (2.0 * one[1]));
		double inserts = 2 * one[1] * (1 + harmonic),
			   merges = 1 + 2 * (1 + harmonic);
		char what[160];

		printf(
			"# block queues, n %u, k %u: %llu insertions (bound %.0f), %llu merges (bound %.1f)\n",
			one[0], one[1], events.inserts, inserts, events.merges, merges);
		/*
		 * a tile is 2,048 numbers or more: those of the first have nothing to
		 * be compared to but what was merged meanwhile
		 */
		snprintf(what, sizeof(what),
				 "block queues: events of n %u, k %u stay within the paper's bounds", one[0],
				 one[1]);
		say((double) events.inserts <= inserts + 4096 &&
				(double) events.merges <= merges + 2048.0 / one[1] + 1,
			what);
	}
}

/*
 * An order that is the worst for a scan from the first to the last number is
 * not for ours.
 */
static void
test_adverse_counts()
{
	for (SelectWay way : {SELECT_THREAD_QUEUES, SELECT_WARP_QUEUES, SELECT_BLOCK_QUEUES})
	{
		uint32_t n = 131072,
				 k = 128;
		SelectEvents random = events_of(way, RANDOM, n, k, 1);
		SelectEvents descending = events_of(way, DESCENDING, n, k, 1);
		SelectEvents ascending = events_of(way, ASCENDING, n, k, 1);
		char what[120];

		printf(
			"# %s, n %u, k %u: merges %llu at random, %llu descending, %llu ascending; %u without another order of tiles\n",
			select_name(way), n, k, random.merges, descending.merges, ascending.merges, n / k);
		/*
		 * a tile of the block's is many queues long, and each of those that
		 * hold the least so far fills as many
		 */
		snprintf(what, sizeof(what),
				 "%s: descending numbers take at most eight times the merges of random ones",
				 select_name(way));
		say(descending.merges <= 8 * random.merges && ascending.merges <= 2 * random.merges, what);
	}
}

/*
 * Radix reads a row twice, and what is left of it, whatever is in it; where all
 * is equal it goes down to the places.
 */
static void
test_radix_counts()
{
	SelectEvents random = events_of(SELECT_RADIX, RANDOM, 100000, 1000, 1);
	SelectEvents equal = events_of(SELECT_RADIX, EQUAL, 100000, 1000, 1);

	printf("# radix, n 100000, k 1000: %llu read at random, %llu of equal numbers\n", random.read,
		   equal.read);
	say(random.read <= 350000 && equal.read <= 700000,
		"radix: numbers read are bounded by its passes");
}

/*
 * What a sample lets pass is a few times k, or a few strata where neighbours
 * (or, of equal numbers, places) are in order. No simple order is for the
 * rescue; too few places are, and too few finite numbers.
 */
static void
test_sample_counts()
{
	const uint32_t n = 500000;
	bool good = true;

	for (uint32_t k : {10u, 128u, 1024u})
		for (Shape shape : {RANDOM, TIES, EQUAL, ASCENDING, DESCENDING, SAWTOOTH, INFINITE})
		{
			SelectEvents events = events_of(SELECT_SAMPLE, shape, n, k, 1);
			uint32_t rescues = shape == INFINITE && k > n / 701 + 1;

			printf("# sample, n %u, k %u, %s: %llu kept, %llu rounds, %llu read, %llu rescues\n", n,
				   k, shape_names[shape], events.inserts, events.merges, events.read,
				   events.rescues);
			good = good && events.rescues == rescues && events.read <= n + n / 50;
			if (rescues == 0)
				good = good && events.inserts >= k && events.merges <= 8 &&
					   events.inserts <= (shape == RANDOM ? 4 * k + 2500 : 32 * k + 12000);
		}
	say(good, "sample: no simple order is for the rescue, and few numbers are kept");

	SelectEvents few = events_of(SELECT_SAMPLE, RANDOM, n, 128, 1, 100);

	say(few.rescues == 1, "sample: a row that has too few places is selected from anew");
}

#endif

int
main(int argc, char **argv)
{
	cudaDeviceProp device;
	static const SelectWay ways[] = {SELECT_ARGMIN,		  SELECT_THREAD_QUEUES, SELECT_WARP_QUEUES,
									 SELECT_BLOCK_QUEUES, SELECT_RADIX,			SELECT_SORT,
									 SELECT_SAMPLE};

	if (argc == 3 && strcmp(argv[1], "--seed") == 0)
		random_state = strtoull(argv[2], NULL, 10);
	must(cudaGetDeviceProperties(&device, 0), "the device");
	must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	must(select_prepare(&device), "select_prepare");
	test_sort<1>();
	test_sort<2>();
	test_sort<3>();
	test_sort<4>();
	test_sort<5>();
	test_sort<8>();
	test_merge<1, 1>();
	test_merge<1, 2>();
	test_merge<2, 3>();
	test_merge<3, 2>();
	test_merge<4, 3>();
	if (!SHORT)
	{
		test_merge<5, 1>();
		test_merge<8, 4>();
		test_merge<8, 8>();
	}
	test_block_sort();
	for (SelectWay way : ways)
		for (int shape = 0; shape < SHAPES; shape++)
			if (!SHORT || shape == TIES || shape == SPECIAL)
				test_way(way, (Shape) shape);
	for (int shape = 0; shape < SHAPES; shape++)
		test_sample((Shape) shape);
	test_chosen();
#ifdef GPUANN_COUNTING
	test_thread_counts();
	test_block_counts();
	test_adverse_counts();
	test_radix_counts();
	test_sample_counts();
#endif
	must(cudaStreamDestroy(stream), "the stream");
	printf("1..%u\n", tests);
	return failures > 0;
}
