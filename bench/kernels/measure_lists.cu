/*
 * measure_lists.cu
 *		How fast searches of lists are, by stage and as a whole: a plain program
 *		over cuda/lists, without an engine.
 *
 * lists [--rows N] [--dims N] [--lists N] [--bits 8|1..7] [--probes a,b,...]
 * [--batches a,b,...] [--rerank N] [--products N]: rows of a mixture of normal
 * distributions, made on the device; centroids by some rounds of k-means on all
 * rows; codes by src/engine/quantizer on all cores (8 bits: int8, else rabitq);
 * from N queries on tensor cores choose lists (0: by default). Recall@10 is
 * that of 256 queries against an exact scan. Times are host to host, with
 * queries copied in and answers in pinned memory, medians of 11 runs after 3;
 * stages by events, of the first part of a batch. Prints markdown.
 */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <stdio.h>
#include <stdlib.h>

#include "bench/kernels/device.cuh"
#include "cuda/lists/lists_code.h"
#include "cuda/lists/lists_estimate.cuh"

extern "C"
{
#include "engine/quantizer/quantizer.h"
}

#define K 10u
#define CENTRES 20000u
#define ROUNDS 4u
#define SAMPLE 256u
#define RUNS 11
#define STATE_BYTES ((size_t) 64 << 20)
#define THREADS 256u

static uint32_t rows = 1000000,
				dims = 128,
				lists = 4096,
				bits = 8,
				rerank = 0;
static std::vector<uint32_t> all_probes = {8, 16, 32, 64},
							 batches = {1, 64, 256, 2560, 10000};
static cudaStream_t stream;

static double
now()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
		.count();
}

/* ---- rows, lists ---- */

__device__ static inline uint32_t
mixed(uint64_t x)
{
	x += 0x9E3779B97F4A7C15ull;
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
	return (uint32_t) ((x ^ (x >> 31)) >> 32);
}

/* About normal: the sum of four uniform numbers. */
__device__ static inline float
normal(uint64_t number)
{
	float sum = 0;

	for (uint32_t i = 0; i < 4; i++)
		sum += (float) mixed(number * 4 + i) * 0x1p-32f;
	return (sum - 2) * 1.7320508f;
}

/* Make rows near centres; rows of another seed are of the same mixture. */
__global__ void
make_kernel(float *to, uint32_t count, uint32_t dims, uint64_t seed)
{
	size_t total = (size_t) count * dims;

	for (size_t i = (size_t) blockIdx.x * blockDim.x + threadIdx.x; i < total;
		 i += (size_t) gridDim.x * blockDim.x)
	{
		uint32_t row = (uint32_t) (i / dims),
				 element = (uint32_t) (i % dims);
		uint32_t centre = mixed(seed + row) % CENTRES;

		to[i] = normal((uint64_t) centre * 8192 + element) +
				0.7f * normal((seed << 20) + i + ((uint64_t) 1 << 40));
	}
}

/* The nearest centroid of each row, of 64 rows a block, about. */
__global__ void __launch_bounds__(THREADS)
	assign_kernel(const float *from, uint32_t count, uint32_t dims, const float *centroids,
				  const float *half_norms, uint32_t lists, uint32_t *nearest)
{
	__shared__ float a[16][65],
		b[16][65];
	__shared__ unsigned long long best[64];
	uint32_t first = blockIdx.x * 64;
	uint32_t x = threadIdx.x % 16,
			 y = threadIdx.x / 16;

	if (threadIdx.x < 64)
		best[threadIdx.x] = ~0ull;
	for (uint32_t list = 0; list < lists; list += 64)
	{
		float sums[4][4] = {};

		for (uint32_t at = 0; at < dims; at += 16)
		{
			__syncthreads();
			for (uint32_t i = threadIdx.x; i < 1024; i += THREADS)
			{
				uint32_t row = i / 16,
						 e = i % 16;

				a[e][row] = first + row < count && at + e < dims
								? from[(size_t) (first + row) * dims + at + e]
								: 0;
				b[e][row] = list + row < lists && at + e < dims
								? centroids[(size_t) (list + row) * dims + at + e]
								: 0;
			}
			__syncthreads();
			for (uint32_t e = 0; e < 16; e++)
				for (uint32_t m = 0; m < 4; m++)
					for (uint32_t n = 0; n < 4; n++)
						sums[m][n] = fmaf(a[e][y + 16 * m], b[e][x + 16 * n], sums[m][n]);
		}
		for (uint32_t m = 0; m < 4; m++)
			for (uint32_t n = 0; n < 4; n++)
				if (list + x + 16 * n < lists)
				{
					float value = half_norms[list + x + 16 * n] - sums[m][n];

					atomicMin(&best[y + 16 * m],
							  (unsigned long long) fast_key(value) << 32 | (list + x + 16 * n));
				}
	}
	__syncthreads();
	if (threadIdx.x < 64 && first + threadIdx.x < count)
		nearest[first + threadIdx.x] = (uint32_t) best[threadIdx.x];
}

__global__ void
sum_kernel(const float *from, uint32_t count, uint32_t dims, const uint32_t *nearest, float *sums,
		   float *counts)
{
	for (uint32_t row = blockIdx.x; row < count; row += gridDim.x)
	{
		for (uint32_t i = threadIdx.x; i < dims; i += blockDim.x)
			atomicAdd(&sums[(size_t) nearest[row] * dims + i], from[(size_t) row * dims + i]);
		if (threadIdx.x == 0)
			atomicAdd(&counts[nearest[row]], 1.0f);
	}
}

/*
 * New centroids, where a list has rows, and half their squared norms. A block
 * each.
 */
__global__ void
mean_kernel(const float *sums, const float *counts, uint32_t dims, float *centroids,
			float *half_norms)
{
	uint32_t list = blockIdx.x;

	for (uint32_t i = threadIdx.x; i < dims && counts[list] > 0; i += blockDim.x)
		centroids[(size_t) list * dims + i] = sums[(size_t) list * dims + i] / counts[list];
	__syncthreads();
	if (threadIdx.x == 0)
	{
		double square = 0;

		for (uint32_t i = 0; i < dims; i++)
			square += (double) centroids[(size_t) list * dims + i] *
					  centroids[(size_t) list * dims + i];
		half_norms[list] = (float) (square / 2);
	}
}

/* The k nearest of each warp's rows, for a query a block: an oracle. */
__global__ void __launch_bounds__(THREADS)
	oracle_kernel(const float *from, uint32_t count, uint32_t dims, const float *queries,
				  unsigned long long *found)
{
	__shared__ unsigned long long best[THREADS / 32][K];
	const float *query = queries + (size_t) blockIdx.x * dims;
	uint32_t warp = threadIdx.x / 32,
			 lane = threadIdx.x % 32;

	if (lane < K)
		best[warp][lane] = ~0ull;
	__syncwarp();
	for (uint32_t row = warp; row < count; row += THREADS / 32)
	{
		float sum = 0;

		for (uint32_t i = lane; i < dims; i += 32)
		{
			float difference = query[i] - from[(size_t) row * dims + i];

			sum = fmaf(difference, difference, sum);
		}
		for (uint32_t distance = 16; distance > 0; distance >>= 1)
			sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
		if (lane == 0)
		{
			unsigned long long entry = (unsigned long long) fast_key(sum) << 32 | row;
			int at = K - 1;

			if (entry < best[warp][at])
			{
				for (; at > 0 && best[warp][at - 1] > entry; at--)
					best[warp][at] = best[warp][at - 1];
				best[warp][at] = entry;
			}
		}
	}
	__syncwarp();
	if (lane < K)
		found[((size_t) blockIdx.x * (THREADS / 32) + warp) * K + lane] = best[warp][lane];
}

/* Everything that a search reads. */
struct Data
{
	float *vectors; /* device */
	std::vector<float> host;
	MirrorView mirror;
	ListsView view;
	ListHalves halves;
};

/* Run k-means; returns each row's list. */
static std::vector<uint32_t>
make_lists(Data *data)
{
	float *centroids = device_memory<float>((size_t) lists * dims),
		  *half_norms = device_memory<float>(lists),
		  *sums = device_memory<float>((size_t) lists * dims),
		  *counts = device_memory<float>(lists);
	uint32_t *nearest = device_memory<uint32_t>(rows);
	std::vector<uint32_t> numbers(rows);

	must(cudaMemset(counts, 0, lists * sizeof(float)), "counts");
	must(cudaMemcpy(centroids, data->vectors, (size_t) lists * dims * sizeof(float),
					cudaMemcpyDeviceToDevice),
		 "seeds");
	mean_kernel<<<lists, THREADS>>>(sums, counts, dims, centroids, half_norms);
	for (uint32_t round = 0; round <= ROUNDS; round++)
	{
		assign_kernel<<<(rows + 63) / 64, THREADS>>>(data->vectors, rows, dims, centroids,
													 half_norms, lists, nearest);
		if (round == ROUNDS)
			break;
		must(cudaMemset(sums, 0, (size_t) lists * dims * sizeof(float)), "sums");
		must(cudaMemset(counts, 0, lists * sizeof(float)), "counts");
		sum_kernel<<<4096, 128>>>(data->vectors, rows, dims, nearest, sums, counts);
		mean_kernel<<<lists, THREADS>>>(sums, counts, dims, centroids, half_norms);
	}
	must(cudaMemcpy(numbers.data(), nearest, rows * sizeof(uint32_t), cudaMemcpyDeviceToHost),
		 "k-means");
	data->view.centroids = centroids;
	data->view.half_norms = half_norms;
	data->halves = lists_halves_at(
		device_memory<unsigned char>(lists_halves_bytes(lists, dims)), lists, dims);
	for (void *memory : {(void *) sums, (void *) counts, (void *) nearest})
		must(cudaFree(memory), "free");
	return numbers;
}

/* Encode rows on all cores and lay the lists out. */
static void
encode(Data *data, const std::vector<uint32_t> &numbers)
{
	ListsView *view = &data->view;
	std::vector<std::vector<uint32_t>> slots(lists);
	std::vector<float> centroids((size_t) lists * dims);
	std::vector<uint32_t> first(1, 0),
		blocks,
		rotation(2 * dims),
		memory;
	std::vector<std::thread> threads;
	std::atomic<uint32_t> next(0);
	Quantizer *quantizer;

	view->shape = {bits == 8 ? QUANTIZER_INT8 : QUANTIZER_RABITQ, METRIC_L2, dims, bits, 0, 5};
	view->lists = lists;
	view->code_words = (uint32_t) quantizer_code_bytes(&view->shape) / 4;
	view->block_words = LIST_PLACES * (1 + view->code_words);
	quantizer = quantizer_open(&view->shape, NULL);
	must(lists_make_halves(view, &data->halves, stream), "lists_make_halves");
	must(cudaMemcpy(centroids.data(), view->centroids, centroids.size() * sizeof(float),
					cudaMemcpyDeviceToHost),
		 "centroids");
	for (uint32_t row = 0; row < rows; row++)
		slots[numbers[row]].push_back(row);
	for (const std::vector<uint32_t> &at : slots)
	{
		uint32_t count = (uint32_t) (at.size() + LIST_PLACES - 1) / LIST_PLACES;

		view->longest = std::max(view->longest, count);
		first.push_back(first.back() + count);
	}
	for (uint32_t i = 0; i < first.back(); i++)
		blocks.push_back(i);
	memory.assign((size_t) first.back() * view->block_words, NO_SLOT);
	for (uint32_t t = 0; t < std::max(1u, std::thread::hardware_concurrency()); t++)
		threads.emplace_back([&] {
			std::vector<uint32_t> code(view->code_words);

			for (uint32_t list; (list = next++) < lists;)
				for (uint32_t i = 0; i < slots[list].size(); i++)
				{
					uint32_t *block =
						&memory[(size_t) (first[list] + i / LIST_PLACES) * view->block_words];

					quantizer_encode(quantizer, &centroids[(size_t) list * dims],
									 &data->host[(size_t) slots[list][i] * dims], 1,
									 (unsigned char *) code.data());
					block[i % LIST_PLACES] = slots[list][i];
					for (uint32_t w = 0; w < view->code_words; w++)
						block[LIST_PLACES * (1 + w) + i % LIST_PLACES] = code[w];
				}
		});
	for (std::thread &thread : threads)
		thread.join();
	for (uint32_t i = 0; i < 2; i++)
		rotation_make(view->shape.seed + i, dims, &rotation[i * dims]);
	view->rotation = to_device(rotation);
	view->first = to_device(first);
	view->blocks = to_device(blocks);
	view->memory = to_device(memory);
	quantizer_close(quantizer);
}

static void
make_data(Data *data)
{
	double begin = now();

	data->vectors = device_memory<float>((size_t) rows * dims);
	make_kernel<<<4096, THREADS>>>(data->vectors, rows, dims, 1);
	data->host.resize((size_t) rows * dims);
	must(cudaMemcpy(data->host.data(), data->vectors, data->host.size() * sizeof(float),
					cudaMemcpyDeviceToHost),
		 "rows");
	std::vector<uint32_t> numbers = make_lists(data);
	double assigned = now();

	encode(data, numbers);
	data->mirror.vectors = (const unsigned char *) data->vectors;
	data->mirror.versions = to_device(std::vector<uint32_t>(rows, 1));
	data->mirror.dead = to_device(std::vector<uint32_t>(rows / 32 + 1, 0));
	data->mirror.rows = rows;
	data->mirror.stride = dims * (uint32_t) sizeof(float);
	data->mirror.dims = dims;
	data->mirror.type = ELEMENT_FLOAT;
	data->mirror.metric = METRIC_L2;
	printf("\n%u x %u, %u lists (the longest of %u blocks), %s %u bits; k-means %.1f s, codes %.1f s\n\n",
		   rows, dims, lists, data->view.longest, bits == 8 ? "int8" : "rabitq", bits,
		   assigned - begin, now() - assigned);
}

/* ---- searches ---- */

/* Queries in pinned memory, and where they go. */
struct Queries
{
	std::vector<float> vectors;
	std::vector<std::vector<uint32_t>> truth; /* of the first SAMPLE */
	float *pinned_vectors;
	DeviceQuery *pinned;
	DeviceHead *heads;
	SearchResult *results;
	ListsLaunch launch;
	uint32_t most;
};

template <typename T>
static T *
pinned_memory(size_t count)
{
	void *memory;

	must(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocMapped), "pinned memory");
	return (T *) memory;
}

static void
find_truth(const Data &data, const float *vectors, Queries *queries)
{
	size_t of_query = THREADS / 32 * K;
	unsigned long long *found = device_memory<unsigned long long>(SAMPLE * of_query);
	std::vector<unsigned long long> copy(SAMPLE * of_query);

	oracle_kernel<<<SAMPLE, THREADS>>>(data.vectors, rows, dims, vectors, found);
	must(cudaMemcpy(copy.data(), found, copy.size() * sizeof(copy[0]), cudaMemcpyDeviceToHost),
		 "the oracle");
	for (uint32_t i = 0; i < SAMPLE; i++)
	{
		std::vector<uint32_t> nearest;

		std::sort(&copy[i * of_query], &copy[i * of_query] + of_query);
		for (uint32_t j = 0; j < K; j++)
			nearest.push_back((uint32_t) copy[i * of_query + j]);
		queries->truth.push_back(nearest);
	}
	must(cudaFree(found), "free");
}

static void
make_queries(const Data &data, Queries *queries)
{
	ListsLaunch *launch = &queries->launch;
	float *vectors;

	queries->most = std::max(SAMPLE, *std::max_element(batches.begin(), batches.end()));
	vectors = device_memory<float>((size_t) queries->most * dims);
	make_kernel<<<4096, THREADS>>>(vectors, queries->most, dims, 99);
	find_truth(data, vectors, queries);
	queries->pinned_vectors = pinned_memory<float>((size_t) queries->most * dims);
	must(cudaMemcpy(queries->pinned_vectors, vectors,
					(size_t) queries->most * dims * sizeof(float), cudaMemcpyDeviceToHost),
		 "queries");
	queries->pinned = pinned_memory<DeviceQuery>(queries->most);
	queries->heads = pinned_memory<DeviceHead>(queries->most);
	queries->results = pinned_memory<SearchResult>((size_t) queries->most * K);
	launch->mirror = data.mirror;
	launch->lists = data.view;
	launch->halves = data.halves;
	launch->batch.vectors = (unsigned char *) vectors;
	launch->batch.queries = device_memory<DeviceQuery>(queries->most);
	launch->batch.heads = queries->heads;
	launch->batch.results = queries->results;
	launch->batch.state = device_memory<unsigned char>(STATE_BYTES);
	launch->state_bytes = STATE_BYTES;
	launch->max_k = K;
	launch->max_rerank = rerank == ENGINE_RERANK_ALL ? 0 : rerank;
	launch->stream = stream;
}

static void
set_probes(Queries *queries, uint32_t probes)
{
	for (uint32_t i = 0; i < queries->most; i++)
	{
		DeviceQuery query = {};

		query.k = K;
		query.probes = probes;
		query.rerank = rerank;
		query.vector = (uint64_t) i * dims * sizeof(float);
		query.results = i * K;
		queries->pinned[i] = query;
	}
	queries->launch.max_probes = std::min(probes, lists);
}

/* Search the first so many queries, from host to host. */
static void
search(Queries *queries, uint32_t count)
{
	ListsLaunch *launch = &queries->launch;

	launch->queries = count;
	must(cudaMemcpyAsync((void *) launch->batch.queries, queries->pinned,
						 count * sizeof(DeviceQuery), cudaMemcpyHostToDevice, stream),
		 "queries");
	must(cudaMemcpyAsync((void *) launch->batch.vectors, queries->pinned_vectors,
						 (size_t) count * dims * sizeof(float), cudaMemcpyHostToDevice, stream),
		 "vectors");
	must(lists_search_launch(launch), "launch");
	must(cudaStreamSynchronize(stream), "search");
}

/* Print what the stages of the first part take. */
static void
print_stages(Queries *queries, uint32_t count)
{
	static const struct
	{
		const char *name;
		cudaError_t (*launch)(const ListsStep *);
	} stages[] = {{"prepare", lists_prepare_launch},
				  {"coarse", lists_coarse_launch},
				  {"probe", lists_probe_launch},
				  {"scan", lists_scan_launch},
				  {"answer", lists_answer_launch}};
	ListsStep step;
	const uint32_t count_of_stages = sizeof(stages) / sizeof(stages[0]);
	cudaEvent_t events[count_of_stages + 1];

	queries->launch.queries = count;
	(void) lists_take_part(&queries->launch, 0, &step);
	for (cudaEvent_t &event : events)
		must(cudaEventCreate(&event), "event");
	must(cudaEventRecord(events[0], stream), "event");
	for (uint32_t i = 0; i < count_of_stages; i++)
	{
		must(stages[i].launch(&step), stages[i].name);
		must(cudaEventRecord(events[i + 1], stream), "event");
	}
	must(cudaStreamSynchronize(stream), "stages");
	printf(" %u |", step.part.queries);
	for (uint32_t i = 0; i < count_of_stages; i++)
	{
		float ms;

		must(cudaEventElapsedTime(&ms, events[i], events[i + 1]), "time");
		printf(" %.1f |", ms * 1e3);
	}
	printf("\n");
	for (cudaEvent_t &event : events)
		must(cudaEventDestroy(event), "event");
}

static double
recall_of(const Queries &queries)
{
	uint32_t hits = 0;

	for (uint32_t i = 0; i < SAMPLE; i++)
		for (uint32_t j = 0; j < queries.heads[i].count; j++)
			hits += std::count(queries.truth[i].begin(), queries.truth[i].end(),
							   queries.results[i * K + j].slot) > 0;
	return (double) hits / (SAMPLE * K);
}

static void
measure(Queries *queries, uint32_t probes)
{
	set_probes(queries, probes);
	search(queries, SAMPLE);
	printf("| probes %u, recall@10 %.4f, measured %.1f of %.0f codes ||||||||\n", probes,
		   recall_of(*queries), queries->heads[0].distances * 1.0,
		   queries->heads[0].iterations * 1.0);
	for (uint32_t count : batches)
	{
		std::vector<double> times;

		for (int run = -3; run < RUNS; run++)
		{
			double begin = now();

			search(queries, count);
			if (run >= 0)
				times.push_back(now() - begin);
		}
		std::sort(times.begin(), times.end());
		printf("| %u | %.1f | %.3f |", count, times[RUNS / 2] * 1e6,
			   count / times[RUNS / 2] / 1e6);
		print_stages(queries, count);
	}
	fflush(stdout);
}

static std::vector<uint32_t>
numbers_of(const char *text)
{
	std::vector<uint32_t> numbers;

	for (const char *at = text; at != NULL && *at != 0; at = strchr(at, ','))
	{
		at += *at == ',';
		numbers.push_back((uint32_t) strtoul(at, NULL, 10));
	}
	return numbers;
}

int
main(int argc, char **argv)
{
	cudaDeviceProp device;
	Data data = {};
	Queries queries = {};
	ListsLimits limits;

	for (int i = 1; i + 1 < argc; i += 2)
	{
		uint32_t number = (uint32_t) strtoul(argv[i + 1], NULL, 10);

		if (strcmp(argv[i], "--rows") == 0)
			rows = number;
		else if (strcmp(argv[i], "--dims") == 0)
			dims = number / 4 * 4;
		else if (strcmp(argv[i], "--lists") == 0)
			lists = number;
		else if (strcmp(argv[i], "--products") == 0)
			queries.launch.products_queries = number;
		else if (strcmp(argv[i], "--bits") == 0)
			bits = number;
		else if (strcmp(argv[i], "--rerank") == 0)
			rerank = number;
		else if (strcmp(argv[i], "--probes") == 0)
			all_probes = numbers_of(argv[i + 1]);
		else if (strcmp(argv[i], "--batches") == 0)
			batches = numbers_of(argv[i + 1]);
	}
	must(cudaGetDeviceProperties(&device, 0), "a device");
	must(lists_code_prepare(&device, &limits), "lists_code_prepare");
	must(lists_search_prepare(&device), "lists_search_prepare");
	must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	printf("%s\n", device.name);
	make_data(&data);
	make_queries(data, &queries);
	must(cudaDeviceSynchronize(), "queries");
	queries.launch.processors = (uint32_t) device.multiProcessorCount;
	queries.launch.stages = limits.stages;
	printf("| queries | µs, host to host | M queries/s | queries of a part | prepare, µs | coarse | probe | scan | answer |\n");
	printf("|---|---|---|---|---|---|---|---|---|\n");
	for (uint32_t probes : all_probes)
		measure(&queries, probes);
	return 0;
}
