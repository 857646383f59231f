/*
 * song_test.cu
 *		Tests of SONG's structures and search (song.cuh) on a device, or on a
 *		processor that stands for one: queue and sets against an oracle, and
 *		what of the search's switches may change the answer.
 *
 * Prints TAP. song_test [--quick]: less of it, for a sanitizer on a device.
 */
#include <algorithm>
#include <set>
#include <string.h>
#include <vector>

#include "song.cuh"
#include "cuda/tests/testing.cuh"

static uint32_t noperations = 100000;
static cudaStream_t stream;
static cudaDeviceProp device;

/* A copy of values in device memory. */
template <typename T>
static T *
on_device(const std::vector<T> &values)
{
	T *at = NULL;

	must(cudaMalloc((void **) &at, values.size() * sizeof(T)), "memory");
	must(cudaMemcpyAsync(at, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice,
						 stream),
		 "copying");
	must(cudaStreamSynchronize(stream), "copying");
	return at;
}

template <typename T>
static std::vector<T>
from_device(const T *at, size_t n)
{
	std::vector<T> values(n);

	must(cudaMemcpyAsync(values.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost, stream),
		 "copying");
	must(cudaStreamSynchronize(stream), "a kernel");
	return values;
}

/* --- structures ----------------------------------------------------------- */

typedef enum Action
{
	ADD,
	ASK,
	REMOVE
} Action;

struct Operation
{
	uint32_t action;
	uint32_t vertex;
	uint32_t answer; /* of ASK: 1 if it is there; of ADD: 1 if there was room */
};

/* One warp does what it is told with a set. */
template <SongVisited VISITED, bool TOGETHER>
__global__ void
set_kernel(uint32_t places, uint32_t hashes, Operation *operations, uint32_t n, uint32_t *lost)
{
	DYNAMIC_SHARED(memory);
	SongSet<VISITED, TOGETHER> set;

	set.table = (uint32_t *) memory;
	set.places = places;
	set.hashes = hashes;
	if (!TOGETHER && threadIdx.x > 0)
		return;
	set.empty();
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t vertex = operations[i].vertex;
		uint32_t answer = 0;

		if (operations[i].action == ADD)
			answer = set.add(vertex);
		else if (operations[i].action == ASK)
			answer = set.has(vertex);
		else
			set.remove(vertex);
		if (threadIdx.x == 0)
			operations[i].answer = answer;
	}
	if (threadIdx.x == 0)
		*lost = set.lost;
}

struct SetResult
{
	uint32_t missed; /* asked for and not found although there */
	uint32_t wrong;	 /* found although not there */
	uint32_t asked_absent;
	uint32_t lost;
	bool had_room;
};

/* Do operations, and compare with an oracle. */
template <SongVisited VISITED, bool TOGETHER>
static SetResult
run_set(uint32_t places, uint32_t hashes, const std::vector<Operation> &operations)
{
	Operation *done = on_device(operations);
	uint32_t *lost = on_device(std::vector<uint32_t>(1, 0));
	std::multiset<uint32_t> there;
	SetResult result = {0, 0, 0, 0, true};

	LAUNCH((set_kernel<VISITED, TOGETHER>), 1, WARP, places * sizeof(uint32_t), stream, places,
		   hashes, done, (uint32_t) operations.size(), lost);
	for (const Operation &operation : from_device(done, operations.size()))
	{
		bool is_there = there.count(operation.vertex) > 0;

		if (operation.action == ADD)
		{
			result.had_room &= operation.answer != 0;
			if (!is_there && operation.answer != 0)
				there.insert(operation.vertex);
		}
		else if (operation.action == REMOVE)
			there.erase(operation.vertex);
		else
		{
			result.missed += is_there && operation.answer == 0;
			result.wrong += !is_there && operation.answer != 0;
			result.asked_absent += !is_there;
		}
	}
	result.lost = from_device(lost, 1)[0];
	must(cudaFree(done), "free");
	must(cudaFree(lost), "free");
	return result;
}

/*
 * Random operations on so many vertices that at most `most` are in the set at
 * once; each is added only when it is not there.
 */
static std::vector<Operation>
random_operations(uint32_t vertices, uint32_t most)
{
	std::vector<Operation> operations;
	std::set<uint32_t> there;

	for (uint32_t i = 0; i < noperations; i++)
	{
		uint32_t vertex = random_below(vertices);
		uint32_t action = random_below(3);

		if (action == ADD && (there.count(vertex) > 0 || there.size() == most))
			action = there.count(vertex) > 0 ? REMOVE : ASK;
		else if (action == REMOVE && there.count(vertex) == 0)
			action = ASK;
		if (action == ADD)
			there.insert(vertex);
		else if (action == REMOVE)
			there.erase(vertex);
		operations.push_back({action, vertex, 0});
	}
	return operations;
}

template <bool TOGETHER>
static void
test_sets(const char *who)
{
	std::vector<Operation> half = random_operations(1000, 128);
	std::vector<Operation> thousand;
	SetResult result = run_set<SONG_HASH, TOGETHER>(256, 0, half);
	char what[120];

	snprintf(what, sizeof(what), "hash table, half full, %s: as the oracle", who);
	say(result.missed == 0 && result.wrong == 0 && result.had_room, what);
	result = run_set<SONG_HASH, TOGETHER>(64, 0, random_operations(1000, 63));
	snprintf(what, sizeof(what), "hash table, full but for one place, %s: as the oracle", who);
	say(result.missed == 0 && result.wrong == 0 && result.had_room, what);
	result = run_set<SONG_HASH, TOGETHER>(64, 0, random_operations(1000, 100));
	snprintf(what, sizeof(what), "hash table, too small, %s: says that it has no room", who);
	say(result.missed == 0 && result.wrong == 0 && !result.had_room, what);

	for (uint32_t i = 0; i < 1000; i++)
		thousand.push_back({ADD, i * 7919, 0});
	for (uint32_t i = 0; i < 1000; i++)
		thousand.push_back({ASK, i * 7919, 0});
	for (uint32_t i = 0; i < 20000; i++)
		thousand.push_back({ASK, 100000000 + i, 0});
	result = run_set<SONG_BLOOM, TOGETHER>(300, 7, thousand);
	snprintf(what, sizeof(what),
			 "Bloom filter, %s: none missed, %u of %u seem visited of 1,000 in 9,600 bits", who,
			 result.wrong, result.asked_absent);
	say(result.missed == 0 && result.wrong <= 0.013 * result.asked_absent, what);

	result = run_set<SONG_CUCKOO, TOGETHER>(64, 0, random_operations(20000, 128));
	snprintf(what, sizeof(what),
			 "cuckoo filter, half full, %s: none missed, %u of %u seem visited, with deletion", who,
			 result.wrong, result.asked_absent);
	say(result.missed == 0 && result.lost == 0 && result.wrong <= 0.03 * result.asked_absent, what);
	result = run_set<SONG_CUCKOO, TOGETHER>(16, 0, random_operations(20000, 128));
	snprintf(what, sizeof(what),
			 "cuckoo filter, twice as many as fit, %s: says how many it lost (%u)", who,
			 result.lost);
	say(result.lost > 0, what);
}

/*
 * One lane inserts numbers below `limit`, takes the least where they are
 * `limit`, the greatest where above.
 */
__global__ void
queue_kernel(const uint64_t *operations, uint32_t n, uint64_t limit, SongEntry *taken)
{
	DYNAMIC_SHARED(memory);
	SongQueue queue = {(SongEntry *) memory, 0};

	if (threadIdx.x > 0)
		return;
	for (uint32_t i = 0; i < n; i++)
		if (operations[i] < limit)
			queue.insert(operations[i]);
		else
			taken[i] = operations[i] == limit ? queue.take(1) : queue.take_greatest();
}

static void
test_queue()
{
	const uint64_t limit = 1000;
	std::vector<uint64_t> operations;
	std::multiset<uint64_t> oracle;
	std::vector<uint64_t> expected;
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < noperations; i++)
	{
		uint32_t action = random_below(oracle.size() < 150 ? 5 : 2);
		uint64_t operation =
			action > 1 || oracle.empty() ? random_below((uint32_t) limit) : limit + action;

		expected.push_back(SONG_NO_ENTRY);
		if (operation < limit)
			oracle.insert(operation);
		else
		{
			auto at = operation == limit ? oracle.begin() : std::prev(oracle.end());

			expected[i] = *at;
			oracle.erase(at);
		}
		operations.push_back(operation);
	}

	uint64_t *asked = on_device(operations);
	SongEntry *taken = on_device(std::vector<SongEntry>(noperations, SONG_NO_ENTRY));

	LAUNCH(queue_kernel, 1, WARP, 256 * sizeof(SongEntry), stream, asked, noperations, limit,
		   taken);
	std::vector<SongEntry> found = from_device(taken, noperations);
	for (uint32_t i = 0; i < noperations; i++)
		wrong += found[i] != expected[i];
	must(cudaFree(asked), "free");
	must(cudaFree(taken), "free");
	say(wrong == 0, "the queue gives its least and its greatest, as a sorted set");
}

/* --- the search ----------------------------------------------------------- */

#define ROWS 1500u
#define DIMS 19u
#define DEGREE 13u
#define SEEDS 45u
#define QUERIES 37u

static std::vector<float> rows,
	queries;
static std::vector<uint32_t> neighbours,
	seeds;

/* A distance as the kernel sums it: 32 lanes, then pairs of them. */
static SongEntry
entry_of(uint32_t query, uint32_t row)
{
	float sums[WARP] = {0};
	uint32_t bits;

	for (uint32_t j = 0; j < DIMS; j++)
	{
		float difference = rows[row * DIMS + j] - queries[query * DIMS + j];

		sums[j % WARP] += difference * difference;
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		for (uint32_t lane = 0; lane < distance; lane++)
			sums[lane] += sums[lane + distance];
	memcpy(&bits, &sums[0], sizeof(bits));
	return (SongEntry) bits << 32 | row;
}

/*
 * Rows in clusters, the nearest of each as neighbours and some others, as real
 * graphs have them.
 */
static void
make_graph()
{
	for (uint32_t i = 0; i < (ROWS + QUERIES) * DIMS; i++)
	{
		uint32_t of = i / DIMS < ROWS ? i / DIMS : random_below(ROWS);
		float value = (float) (of % 7 * (i % DIMS) % 5) + (float) random_below(1000) / 500.0f;

		(i / DIMS < ROWS ? rows : queries).push_back(value);
	}
	for (uint32_t row = 0; row < ROWS; row++)
	{
		std::vector<std::pair<float, uint32_t>> others;
		std::set<uint32_t> taken;

		for (uint32_t other = 0; other < ROWS; other++)
		{
			float sum = 0;

			for (uint32_t j = 0; j < DIMS; j++)
				sum += (rows[row * DIMS + j] - rows[other * DIMS + j]) *
					   (rows[row * DIMS + j] - rows[other * DIMS + j]);
			if (other != row)
				others.push_back({sum, other});
		}
		std::partial_sort(others.begin(), others.begin() + DEGREE, others.end());
		for (uint32_t i = 0; i < DEGREE; i++)
		{
			uint32_t other = i < 9 ? others[i].second : random_below(ROWS);

			neighbours.push_back(other == row || !taken.insert(other).second ? SONG_NONE : other);
		}
	}
	for (uint32_t i = 0; i < SEEDS; i++)
		seeds.push_back(i * (ROWS / SEEDS));
}

/*
 * Best-first search with sets that never end (SONG, algorithm 1), from seeds.
 */
static std::vector<uint32_t>
reference(uint32_t query, uint32_t list)
{
	std::set<SongEntry> queue,
		best;
	std::set<uint32_t> visited(seeds.begin(), seeds.end());
	std::vector<uint32_t> answer;

	for (uint32_t seed : seeds)
		queue.insert(entry_of(query, seed));
	while (!queue.empty())
	{
		SongEntry nearest = *queue.begin();

		queue.erase(queue.begin());
		if (best.size() == list && nearest > *best.rbegin())
			break;
		best.insert(nearest);
		if (best.size() > list)
			best.erase(std::prev(best.end()));
		for (uint32_t i = 0; i < DEGREE; i++)
		{
			uint32_t next = neighbours[(uint32_t) nearest * DEGREE + i];

			if (next < ROWS && visited.insert(next).second)
				queue.insert(entry_of(query, next));
		}
	}
	for (SongEntry entry : best)
		answer.push_back((uint32_t) entry);
	answer.resize(list, SONG_NONE);
	return answer;
}

/* The nearest rows, exactly. */
static std::vector<uint32_t>
nearest(uint32_t query, uint32_t list)
{
	std::vector<SongEntry> entries;
	std::vector<uint32_t> answer;

	for (uint32_t row = 0; row < ROWS; row++)
		entries.push_back(entry_of(query, row));
	std::partial_sort(entries.begin(), entries.begin() + list, entries.end());
	for (uint32_t i = 0; i < list; i++)
		answer.push_back((uint32_t) entries[i]);
	return answer;
}

struct Searched
{
	std::vector<uint32_t> answers;
	std::vector<SongCounters> counters;
	cudaError_t error;
};

static Searched
search(SongVisited visited, uint32_t queries_of_warp, SongSetting setting)
{
	static SongGraph graph = {
		on_device(rows), on_device(neighbours), on_device(seeds), ROWS, DIMS, DEGREE, SEEDS};
	static float *asked = on_device(queries);
	uint32_t *answers = on_device(std::vector<uint32_t>((size_t) QUERIES * setting.list, 12345678));
	SongCounters *counters = on_device(std::vector<SongCounters>(QUERIES));
	Searched result;

	result.error =
		song_launch(visited, queries_of_warp, graph, &setting, device.sharedMemPerBlockOptin, asked,
					QUERIES, answers, counters, stream);
	result.answers = from_device(answers, (size_t) QUERIES * setting.list);
	result.counters = from_device(counters, QUERIES);
	must(cudaFree(answers), "free");
	must(cudaFree(counters), "free");
	return result;
}

/* The greatest of a counter over queries. */
static uint32_t
most(const Searched &result, uint32_t SongCounters::*counter)
{
	uint32_t greatest = 0;

	for (const SongCounters &counters : result.counters)
		greatest = std::max(greatest, counters.*counter);
	return greatest;
}

/*
 * Which share of the nearest rows answers have; 0 if one of them has a row
 * twice.
 */
static double
recall_of(const std::vector<uint32_t> &answers, const std::vector<uint32_t> &truth, uint32_t list)
{
	uint32_t found = 0;

	for (uint32_t query = 0; query < QUERIES; query++)
	{
		std::set<uint32_t> wanted(truth.begin() + query * list, truth.begin() + (query + 1) * list);
		std::set<uint32_t> got;

		for (uint32_t i = 0; i < list; i++)
		{
			uint32_t row = answers[query * list + i];

			if (row != SONG_NONE && !got.insert(row).second)
				return 0;
			found += wanted.count(row) > 0;
		}
	}
	return (double) found / (QUERIES * list);
}

/*
 * Exact sets: the switches of insertion, deletion and of queries in a warp
 * change nothing but the counters.
 */
static void
test_exact(uint32_t list, const std::vector<uint32_t> &expected)
{
	char what[120];

	for (uint32_t queries_of_warp = 1; queries_of_warp <= 4; queries_of_warp *= 2)
	{
		Searched plain = search(SONG_HASH, queries_of_warp, {list, 1, false, false, 0, 0});
		Searched selected = search(SONG_HASH, queries_of_warp, {list, 1, true, false, 0, 0});
		Searched deleting = search(SONG_HASH, queries_of_warp, {list, 1, true, true, 0, 0});
		bool fewer = true;

		for (uint32_t i = 0; i < QUERIES; i++)
			fewer &= selected.counters[i].inserts <= plain.counters[i].inserts &&
					 selected.counters[i].distances >= plain.counters[i].distances &&
					 deleting.counters[i].distances >= selected.counters[i].distances;
		snprintf(
			what, sizeof(what),
			"list %u, %u queries a warp: the reference's answers, whatever is selected and deleted",
			list, queries_of_warp);
		say(plain.answers == expected && selected.answers == expected &&
				deleting.answers == expected,
			what);
		snprintf(what, sizeof(what),
				 "list %u, %u queries a warp: selecting inserts no more, and measures no less",
				 list, queries_of_warp);
		say(fewer, what);
		snprintf(
			what, sizeof(what),
			"list %u, %u queries a warp: at most %u visited when deleting (%u), never more queued than the list",
			list, queries_of_warp, 2 * list, most(deleting, &SongCounters::most_visited));
		say(most(deleting, &SongCounters::most_visited) <= 2 * list &&
				most(plain, &SongCounters::most_queued) <= list &&
				most(plain, &SongCounters::overflows) == 0,
			what);
	}
}

/* What is not exact: no answer twice, and hardly one lost. */
static void
test_others(uint32_t list, const std::vector<uint32_t> &truth, double recall)
{
	struct
	{
		const char *name;
		SongVisited visited;
		SongSetting setting;
	} const ways[] = {
		{"Bloom filter", SONG_BLOOM, {list, 1, false, false, 0, 0}},
		{"Bloom filter, selected insertion", SONG_BLOOM, {list, 1, true, false, 0, 0}},
		{"cuckoo filter, selected insertion", SONG_CUCKOO, {list, 1, true, false, 0, 0}},
		{"cuckoo filter, selected insertion, deletion", SONG_CUCKOO, {list, 1, true, true, 0, 0}},
		{"cuckoo filter, far too small", SONG_CUCKOO, {list, 1, true, true, 8, 0}},
		{"two steps at once", SONG_HASH, {list, 2, true, true, 0, 0}},
		{"five steps at once, nothing selected", SONG_HASH, {list, 5, false, false, 0, 0}},
	};
	char what[160];

	for (const auto &way : ways)
		for (uint32_t queries_of_warp = 1; queries_of_warp <= 4; queries_of_warp += 3)
		{
			Searched result = search(way.visited, queries_of_warp, way.setting);
			double found = result.error == cudaSuccess ? recall_of(result.answers, truth, list) : 0;

			snprintf(
				what, sizeof(what),
				"list %u, %u queries a warp, %s: recall %.3f, the reference's %.3f; no row twice",
				list, queries_of_warp, way.name, found, recall);
			say(found >= recall - 0.05, what);
		}
}

static void
test_search(uint32_t nlists)
{
	const uint32_t lists[] = {10, 40};
	Searched result;

	make_graph();
	for (uint32_t i = 0; i < nlists; i++)
	{
		const uint32_t list = lists[i];
		std::vector<uint32_t> expected,
			truth;

		for (uint32_t query = 0; query < QUERIES; query++)
		{
			for (uint32_t row : reference(query, list))
				expected.push_back(row);
			for (uint32_t row : nearest(query, list))
				truth.push_back(row);
		}
		test_exact(list, expected);
		test_others(list, truth, recall_of(expected, truth, list));
	}
	result = search(SONG_HASH, 1, {40, 1, false, false, 64, 0});
	say(most(result, &SongCounters::overflows) == 1,
		"a hash table that is too small ends the search, and says so");
	say(search(SONG_BLOOM, 1, {10, 1, true, true, 0, 0}).error != cudaSuccess,
		"a Bloom filter that is to delete is refused");
	say(search(SONG_HASH, 1, {10, 1, false, true, 0, 0}).error != cudaSuccess,
		"deletion without selection is refused");
	say(search(SONG_HASH, 1, {10, 1, true, true, 1 << 20, 0}).error != cudaSuccess,
		"state beyond shared memory is refused");
}

int
main(int argc, char **argv)
{
	bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;

	if (quick)
		noperations = 3000;
	must(cudaGetDeviceProperties(&device, 0), "the device");
	must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	test_queue();
	test_sets<true>("a warp together");
	test_sets<false>("a lane alone");
	test_search(quick ? 1 : 2);
	must(cudaStreamDestroy(stream), "the stream");
	printf("1..%u\n", tests);
	return failures > 0;
}
