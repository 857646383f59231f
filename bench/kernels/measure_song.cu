/*
 * measure_song.cu
 *		SONG's graph search by its alternatives (bench/kernels/song.cuh): a
 *		plain program, on a graph that bench/engine has written.
 *
 * song --base FILE --query FILE --graph FILE [-n ROWS] [-d DIMS] [--degree N]
 * [--queries N] [--seeds N] [--list 32,64,128] [-k N] [--truths N]
 *
 * For each way and list: shared memory of a block, recall@k, what a query does,
 * the time of one launch of all queries (median of RUNS after WARM_UPS, by
 * events) and queries per second. Everything is on the device before; float
 * rows, L2. Prints markdown, as bench/results/song-h200.md has it.
 */
#include <algorithm>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include "bench/kernels/select.h"
#include "song.cuh"
#include "device.cuh"

#define WARM_UPS 3
#define RUNS 11
#define TRUTHS_AT_ONCE 32u

static cudaStream_t stream;
static cudaDeviceProp device;

/* What the command line chose. */
static struct
{
	const char *base, *query, *graph;
	uint32_t rows, dims, degree, queries, seeds, k, truths;
	std::vector<uint32_t> lists;
} set = {NULL, NULL, NULL, 1000000, 128, 32, 10000, 256, 10, 1000, {32, 64, 128}};

struct Way
{
	const char *name;
	SongVisited visited;
	uint32_t queries_of_warp;
	SongSetting setting; /* but for the list */
};

static const Way ways[] = {
	{"hash table", SONG_HASH, 1, {0, 1, false, false, 0, 0}},
	{"hash table, selected insertion", SONG_HASH, 1, {0, 1, true, false, 0, 0}},
	{"hash table, selected insertion, deletion", SONG_HASH, 1, {0, 1, true, true, 0, 0}},
	{"Bloom filter", SONG_BLOOM, 1, {0, 1, false, false, 0, 0}},
	{"Bloom filter, selected insertion", SONG_BLOOM, 1, {0, 1, true, false, 0, 0}},
	{"cuckoo filter, selected insertion", SONG_CUCKOO, 1, {0, 1, true, false, 0, 0}},
	{"cuckoo filter, selected insertion, deletion", SONG_CUCKOO, 1, {0, 1, true, true, 0, 0}},
	{"hash table, both, 2 queries a warp", SONG_HASH, 2, {0, 1, true, true, 0, 0}},
	{"hash table, both, 4 queries a warp", SONG_HASH, 4, {0, 1, true, true, 0, 0}},
	{"hash table, both, 2 steps at once", SONG_HASH, 1, {0, 2, true, true, 0, 0}},
	{"hash table, both, 4 steps at once", SONG_HASH, 1, {0, 4, true, true, 0, 0}},
};

/* Some of a file, in device memory. */
template <typename T>
static T *
load(FILE *file, size_t n, const char *name)
{
	std::vector<T> values(n);
	T *at = NULL;

	if (file == NULL || fread(values.data(), sizeof(T), n, file) != n)
	{
		fprintf(stderr, "cannot read %s, or it is too short\n", name);
		exit(1);
	}
	must(cudaMalloc((void **) &at, n * sizeof(T)), "memory");
	must(cudaMemcpy(at, values.data(), n * sizeof(T), cudaMemcpyHostToDevice), "copying");
	return at;
}

template <typename T>
static T *
load_file(const char *name, size_t n)
{
	FILE *file = fopen(name, "rb");
	T *at = load<T>(file, n, name);

	fclose(file);
	return at;
}

/* The graph as bench/engine writes it: the number of seeds, these, the rows. */
static SongGraph
load_graph(const float *rows)
{
	FILE *file = fopen(set.graph, "rb");
	SongGraph graph = {rows, NULL, NULL, set.rows, set.dims, set.degree, set.seeds};
	uint32_t nseeds;

	if (file == NULL || fread(&nseeds, sizeof(nseeds), 1, file) != 1)
	{
		fprintf(stderr, "cannot read %s\n", set.graph);
		exit(1);
	}
	graph.seeds = load<uint32_t>(file, nseeds, set.graph);
	graph.nseeds = std::min(graph.nseeds, nseeds);
	graph.neighbours = load<uint32_t>(file, (size_t) set.rows * set.degree, set.graph);
	fclose(file);
	return graph;
}

/* Squared distances of queries to all rows: a warp each. */
__global__ void
distance_kernel(const float *rows, const float *queries, uint32_t n, uint32_t dims, float *out)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t row = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
	const float *query = queries + (size_t) blockIdx.y * dims;
	float sum = 0;

	if (row >= n)
		return;
	for (uint32_t j = lane; j < dims; j += WARP)
	{
		float difference = rows[(size_t) row * dims + j] - query[j];

		sum += difference * difference;
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		sum += __shfl_xor_sync(FULL_WARP, sum, (int) distance);
	if (lane == 0)
		out[(size_t) blockIdx.y * n + row] = sum;
}

/* The nearest k rows of the first queries. */
static std::vector<uint32_t>
make_truth(const float *rows, const float *queries)
{
	std::vector<uint32_t> truth;
	std::vector<Item> items((size_t) TRUTHS_AT_ONCE * set.k);
	SelectLaunch launch = {};
	float *values;
	Item *out;

	must(select_prepare(&device), "selection");
	must(cudaMalloc((void **) &values, (size_t) TRUTHS_AT_ONCE * set.rows * sizeof(float)),
		 "memory");
	must(cudaMalloc((void **) &out, items.size() * sizeof(Item)), "memory");
	launch.values = values;
	launch.stride = set.rows;
	launch.rows = TRUTHS_AT_ONCE;
	launch.n = set.rows;
	launch.k = set.k;
	launch.way = select_choose(launch.rows, launch.n, launch.k);
	launch.out = out;
	launch.stream = stream;
	must(select_bytes(&launch, &launch.state_bytes), "selection");
	must(cudaMalloc((void **) &launch.state, launch.state_bytes), "memory");
	for (uint32_t first = 0; first < set.truths; first += TRUTHS_AT_ONCE)
	{
		launch.rows = std::min(TRUTHS_AT_ONCE, set.truths - first);
		distance_kernel<<<dim3((set.rows + 7) / 8, launch.rows), 256, 0, stream>>>(
			rows, queries + (size_t) first * set.dims, set.rows, set.dims, values);
		must(select_launch(&launch), "selection");
		must(cudaMemcpyAsync(items.data(), out, items.size() * sizeof(Item), cudaMemcpyDeviceToHost,
							 stream),
			 "copying");
		must(cudaStreamSynchronize(stream), "exact search");
		for (size_t i = 0; i < (size_t) launch.rows * set.k; i++)
			truth.push_back(select_place(items[i]));
	}
	must(cudaFree(launch.state), "free");
	must(cudaFree(values), "free");
	must(cudaFree(out), "free");
	return truth;
}

static double
recall_of(const std::vector<uint32_t> &answers, const std::vector<uint32_t> &truth, uint32_t list)
{
	uint32_t found = 0;

	for (uint32_t query = 0; query < set.truths; query++)
		for (uint32_t i = 0; i < set.k; i++)
			found += std::find(truth.begin() + query * set.k, truth.begin() + (query + 1) * set.k,
							   answers[(size_t) query * list + i]) !=
					 truth.begin() + (query + 1) * set.k;
	return (double) found / truth.size();
}

/* Measure one way with one list. */
static void
measure(const Way &way, const SongGraph &graph, const float *queries,
		const std::vector<uint32_t> &truth, uint32_t list)
{
	SongSetting setting = way.setting;
	std::vector<uint32_t> found((size_t) set.queries * list);
	std::vector<SongCounters> counts(set.queries);
	double sums[3] = {0, 0, 0};
	uint32_t visited = 0,
			 overflows = 0;
	uint32_t *answers;
	SongCounters *counters;
	double microseconds;
	cudaError_t error;

	must(cudaMalloc((void **) &answers, found.size() * sizeof(uint32_t)), "memory");
	must(cudaMalloc((void **) &counters, counts.size() * sizeof(SongCounters)), "memory");
	setting.list = list;
	error =
		song_launch(way.visited, way.queries_of_warp, graph, &setting,
					device.sharedMemPerBlockOptin, queries, set.queries, answers, counters, stream);
	if (error == cudaSuccess)
	{
		microseconds =
			time_of(stream, WARM_UPS, RUNS,
					[&]
					{
						must(song_launch(way.visited, way.queries_of_warp, graph, &setting,
										 device.sharedMemPerBlockOptin, queries, set.queries,
										 answers, counters, stream),
							 "a search");
					});
		must(cudaMemcpy(found.data(), answers, found.size() * sizeof(uint32_t),
						cudaMemcpyDeviceToHost),
			 "copying");
		must(cudaMemcpy(counts.data(), counters, counts.size() * sizeof(SongCounters),
						cudaMemcpyDeviceToHost),
			 "copying");
		for (const SongCounters &count : counts)
		{
			sums[0] += count.expanded;
			sums[1] += count.distances;
			sums[2] += count.inserts;
			visited = std::max(visited, count.most_visited);
			overflows += count.overflows > 0;
		}
		printf("| %u | %s | %zu | %.4f | %.1f | %.0f | %.0f | %u | %u | %.0f | %.0f |\n", list,
			   way.name, way.queries_of_warp * song_query_bytes(&setting, set.dims, set.degree),
			   recall_of(found, truth, list), sums[0] / set.queries, sums[1] / set.queries,
			   sums[2] / set.queries, visited, overflows, microseconds,
			   set.queries / microseconds * 1e6);
	}
	else
		printf("| %u | %s | %zu | does not fit | | | | | | | |\n", list, way.name,
			   way.queries_of_warp * song_query_bytes(&setting, set.dims, set.degree));
	fflush(stdout);
	must(cudaFree(answers), "free");
	must(cudaFree(counters), "free");
}

static void
parse(int argc, char **argv)
{
	static const struct option options[] = {
		{"base", 1, NULL, 'b'},	  {"query", 1, NULL, 'q'},	 {"graph", 1, NULL, 'g'},
		{"degree", 1, NULL, 'D'}, {"queries", 1, NULL, 'Q'}, {"seeds", 1, NULL, 's'},
		{"list", 1, NULL, 'l'},	  {"truths", 1, NULL, 't'},	 {NULL, 0, NULL, 0}};
	int option;

	while ((option = getopt_long(argc, argv, "n:d:k:", options, NULL)) != -1)
		switch (option)
		{
			case 'b': set.base = optarg; break;
			case 'q': set.query = optarg; break;
			case 'g': set.graph = optarg; break;
			case 'D': set.degree = (uint32_t) atoi(optarg); break;
			case 'Q': set.queries = (uint32_t) atoi(optarg); break;
			case 's': set.seeds = (uint32_t) atoi(optarg); break;
			case 't': set.truths = (uint32_t) atoi(optarg); break;
			case 'n': set.rows = (uint32_t) atoi(optarg); break;
			case 'd': set.dims = (uint32_t) atoi(optarg); break;
			case 'k': set.k = (uint32_t) atoi(optarg); break;
			case 'l':
				set.lists.clear();
				for (char *at = optarg; at != NULL && *at != '\0';
					 at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL)
					set.lists.push_back((uint32_t) atoi(at));
				break;
			default: exit(2);
		}
	set.truths = std::min(set.truths, set.queries);
	if (set.base == NULL || set.query == NULL || set.graph == NULL || optind < argc ||
		set.rows == 0 || set.dims == 0 || set.truths == 0 || set.k == 0 || set.lists.empty() ||
		*std::min_element(set.lists.begin(), set.lists.end()) < set.k)
	{
		fprintf(
			stderr,
			"song --base FILE --query FILE --graph FILE [-n ROWS] [-d DIMS] [--degree N] [--queries N] [--seeds N] [--list 32,64,128] [-k N] "
			"[--truths N]; a list is at least k\n");
		exit(2);
	}
}

int
main(int argc, char **argv)
{
	SongGraph graph;
	float *rows, *queries;
	std::vector<uint32_t> truth;

	parse(argc, argv);
	must(cudaGetDeviceProperties(&device, 0), "the device");
	must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	rows = load_file<float>(set.base, (size_t) set.rows * set.dims);
	queries = load_file<float>(set.query, (size_t) set.queries * set.dims);
	graph = load_graph(rows);
	truth = make_truth(rows, queries);
	printf("# SONG's alternatives: %u x %u, degree %u, %u seeds, %u queries a launch, k %u, %s\n\n",
		   set.rows, set.dims, set.degree, graph.nseeds, set.queries, set.k, device.name);
	printf(
		"Bytes: shared memory of a block (a warp). The rest is of a query, but for the most visited of any, and how many overflowed or lost a vertex.\n\n"
		"| list | way | bytes | recall@%u | expanded | distances | inserts | visited | overflows | us | queries/s |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
		set.k);
	for (uint32_t list : set.lists)
		for (const Way &way : ways)
			measure(way, graph, queries, truth, list);
	return 0;
}
