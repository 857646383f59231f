/*
 * measure_lists_code.cu
 *		What it costs to build lists of codes (cuda/lists): widening,
 *		assignment, encoding, placing, training. A plain program, on clustered
 *		rows that it makes from a seed.
 *
 * lists_code [-n ROWS] [-d 128,768] [--lists N] [--rounds N] [--runs N]
 *
 * Times are of the device, by events, all launches of a step in one stream:
 * medians of RUNS after a warm-up; a training is measured once, by the clock of
 * the host, from its first step until it is over. Everything is on the device
 * before. Prints markdown.
 */
#include <chrono>
#include <cmath>
#include <getopt.h>
#include <string>

#include "cuda/lists/lists_learn.h"
#include "device.cuh"

static cudaStream_t stream;
static cudaDeviceProp device;
static ListsLimits limits;

/* What the command line chose. */
static struct
{
	uint32_t rows, lists, rounds, clusters;
	int runs;
	std::vector<uint32_t> dims;
} set = {1000000, 4096, 10, 20000, 5, {128, 768}};

__device__ static inline uint32_t
hashed(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	return (uint32_t) ((z ^ (z >> 31)) >> 32);
}

/* About normal, from a place. */
__device__ static inline float
normal_at(uint64_t place)
{
	float sum = 0;

	for (uint32_t i = 0; i < 4; i++)
		sum += (float) (int32_t) hashed((place * 4 + i + 1) * 0x9E3779B97F4A7C15ull);
	return sum * (0.87f / 2147483648.0f);
}

/* Rows around centres, all of them away from the origin. */
__global__ void
make_rows_kernel(float *rows, uint32_t count, uint32_t dims, uint32_t clusters)
{
	uint32_t row = blockIdx.x;
	uint32_t cluster = hashed((row + 7) * 0x9E3779B97F4A7C15ull) % clusters;

	for (uint32_t i = threadIdx.x; i < dims; i += blockDim.x)
		rows[(size_t) row * dims + i] = 1 + normal_at((uint64_t) cluster * dims + i) +
										0.7f * normal_at(((uint64_t) row + 1000000) * dims + i);
}

static void
print_time(const char *what, uint32_t dims, double microseconds, double bytes, double products)
{
	printf("| %s | %u | %.2f |", what, dims, microseconds / 1000);
	if (products > 0)
		printf(" %.0f T/s |\n", products / microseconds / 1e6);
	else if (bytes > 0)
		printf(" %.2f TB/s |\n", bytes / microseconds / 1e6);
	else
		printf(" |\n");
	fflush(stdout);
}

/* One training, and its rows per second. */
static void
measure_training(const char *what, const ListsTraining &training, uint32_t clusters)
{
	uint32_t dims = training.shape.dims;
	unsigned char *memory = device_memory<unsigned char>(lists_learn_bytes(&training, set.rows));
	ListsLearn *learn;
	double inertia,
		longest = 0;
	uint32_t done,
		total;
	bool over = false;

	make_rows_kernel<<<set.rows, 128, 0, stream>>>((float *) memory, set.rows, dims, clusters);
	must(cudaStreamSynchronize(stream), "the device");

	auto begin = std::chrono::steady_clock::now();

	learn = lists_learn_begin(&training, memory, set.rows, &limits, stream);
	if (learn == NULL)
		exit(1);
	while (!over)
	{
		auto before = std::chrono::steady_clock::now();
		std::chrono::duration<double> step;

		must(lists_learn_step(learn, &over, &done, &total), "a step");
		must(cudaStreamSynchronize(stream), "the device");
		step = std::chrono::steady_clock::now() - before;
		longest = step.count() > longest ? step.count() : longest;
	}

	std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;

	must(cudaMemcpy(&inertia,
					lists_learn_floats(learn) +
						lists_learn_inertia(lists_floats(&training.shape, training.lists)),
					sizeof(inertia), cudaMemcpyDeviceToHost),
		 "the inertia");
	lists_learn_end(learn);
	printf("| %s | %u | %.2f | %u steps, the longest %.2f ms; inertia %.6g |\n", what, dims,
		   took.count() * 1000, total, longest * 1000, inertia);
	fflush(stdout);
	must(cudaFree(memory), "memory");
}

/* Encode all rows by a quantizer, piece by piece. */
static void
measure_codes(const char *what, const QuantizerShape &shape, const float *rows,
			  const float *centroids, const uint32_t *nearest)
{
	uint32_t piece = (uint32_t) (LISTS_PIECE / shape.dims);
	std::vector<uint32_t> rotation(2 * shape.dims);
	uint32_t *on_device = device_memory<uint32_t>(rotation.size());
	ListsView view = {};
	uint32_t *codes,
		*memory,
		*places;
	std::vector<uint32_t> of_rows(piece);

	for (uint32_t at = 0; at < 2; at++)
		rotation_make(shape.seed + at, shape.dims, &rotation[at * shape.dims]);
	must(cudaMemcpy(on_device, rotation.data(), rotation.size() * 4, cudaMemcpyHostToDevice),
		 "a copy");
	view.shape = shape;
	view.lists = set.lists;
	view.code_words = (uint32_t) (quantizer_code_bytes(&shape) / 4);
	view.block_words = LIST_PLACES * (view.code_words + 1);
	view.centroids = centroids;
	view.codebook = rows; /* as good as another */
	view.rotation = on_device;
	codes = device_memory<uint32_t>((size_t) piece * view.code_words);
	memory = device_memory<uint32_t>((size_t) (piece / LIST_PLACES + 1) * view.block_words);
	places = device_memory<uint32_t>(piece);
	for (uint32_t i = 0; i < piece; i++)
		of_rows[i] = i;
	must(cudaMemcpy(places, of_rows.data(), piece * 4, cudaMemcpyHostToDevice), "a copy");
	print_time(what, shape.dims, time_of(stream, 1, set.runs, [&] {
				   for (uint32_t at = 0; at < set.rows; at += piece)
				   {
					   uint32_t n = set.rows - at < piece ? set.rows - at : piece;

					   must(lists_encode(&view, rows + (size_t) at * shape.dims, nearest + at, n,
										 codes, stream),
							"encoding");
				   }
			   }),
			   4.0 * set.rows * shape.dims, 0);
	print_time((std::string(what) + ", placed").c_str(), shape.dims,
			   time_of(stream, 1, set.runs, [&] {
				   for (uint32_t at = 0; at < set.rows; at += piece)
					   must(lists_place(&view, memory, codes, places, places,
										set.rows - at < piece ? set.rows - at : piece, stream),
							"placing");
			   }),
			   8.0 * set.rows * view.code_words, 0);
	must(cudaFree(codes), "memory");
	must(cudaFree(memory), "memory");
	must(cudaFree(places), "memory");
	must(cudaFree(on_device), "memory");
}

/* Assign all rows to centroids that are rows. */
static void
measure_assignment(const char *what, uint32_t dims, const float *rows, const float *centroids,
				   uint32_t *nearest, double *distances)
{
	ListsAssign assign = {};

	assign.centroids = centroids;
	assign.lists = set.lists;
	assign.dims = dims;
	assign.rows = rows;
	assign.count = set.rows;
	assign.nearest = nearest;
	assign.distances = distances;
	assign.scratch = device_memory<unsigned char>(lists_assign_bytes(set.lists, dims, set.rows));
	assign.limits = &limits;
	assign.stream = stream;
	print_time(what, dims,
			   time_of(stream, 1, set.runs, [&] { must(lists_assign(&assign), "assignment"); }), 0,
			   2.0 * set.rows * set.lists * dims);
	must(cudaFree(assign.scratch), "memory");
}

static void
measure(uint32_t dims)
{
	float *rows = device_memory<float>((size_t) set.rows * dims);
	float *half_norms = device_memory<float>(set.lists);
	uint32_t *nearest = device_memory<uint32_t>(set.rows);
	double *distances = device_memory<double>(set.rows);
	uint32_t parts = dims / 8;
	ListsTraining training = {
		{QUANTIZER_RABITQ, METRIC_L2, dims, 1, 0, 1}, set.lists, set.rounds, false, NULL};

	make_rows_kernel<<<set.rows, 128, 0, stream>>>(rows, set.rows, dims, set.clusters);
	must(cudaStreamSynchronize(stream), "the device");
	print_time("half norms", dims, time_of(stream, 1, set.runs, [&] {
				   must(lists_half_norms(rows, set.lists, dims, half_norms, stream), "norms");
			   }),
			   4.0 * set.lists * dims, 0);
	measure_assignment("assignment with distances", dims, rows, rows, nearest, distances);
	measure_assignment("assignment", dims, rows, rows, nearest, NULL);
	measure_codes("int8", {QUANTIZER_INT8, METRIC_L2, dims, 8, 0, 1}, rows, rows, nearest);
	measure_codes("rabitq, 1 bit", {QUANTIZER_RABITQ, METRIC_L2, dims, 1, 0, 1}, rows, rows,
				  nearest);
	measure_codes("rabitq, 4 bits", {QUANTIZER_RABITQ, METRIC_L2, dims, 4, 0, 1}, rows, rows,
				  nearest);
	measure_codes("pq, 8 bits", {QUANTIZER_PQ, METRIC_L2, dims, 8, parts, 1}, rows, rows, nearest);
	measure_codes("pq, 4 bits", {QUANTIZER_PQ, METRIC_L2, dims, 4, 2 * parts, 1}, rows, rows,
				  nearest);
	must(cudaFree(rows), "memory");
	measure_training("training, rabitq", training, set.clusters);
	measure_training("training, few tight clusters", training, 300);
	training.balance = true;
	measure_training("training, balanced", training, set.clusters);
	training.balance = false;
	training.shape = {QUANTIZER_PQ, METRIC_L2, dims, 8, parts, 1};
	measure_training("training, pq of 8 bits", training, set.clusters);
	training.shape = {QUANTIZER_PQ, METRIC_L2, dims, 4, 2 * parts, 1};
	measure_training("training, pq of 4 bits", training, set.clusters);
	must(cudaFree(half_norms), "memory");
	must(cudaFree(nearest), "memory");
	must(cudaFree(distances), "memory");
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {{"lists", required_argument, NULL, 'l'},
											{"rounds", required_argument, NULL, 'r'},
											{"runs", required_argument, NULL, 't'},
											{NULL, 0, NULL, 0}};
	int option;

	while ((option = getopt_long(argc, argv, "n:d:", options, NULL)) != -1)
		switch (option)
		{
			case 'n':
				set.rows = (uint32_t) atoi(optarg);
				break;
			case 'd':
				set.dims.clear();
				for (char *at = optarg; at != NULL && *at != '\0'; at += *at == ',')
					set.dims.push_back((uint32_t) strtoul(at, &at, 10));
				break;
			case 'l':
				set.lists = (uint32_t) atoi(optarg);
				break;
			case 'r':
				set.rounds = (uint32_t) atoi(optarg);
				break;
			case 't':
				set.runs = atoi(optarg);
				break;
			default:
				fprintf(stderr, "usage: lists_code [-n ROWS] [-d 128,768] [--lists N] "
								"[--rounds N] [--runs N]\n");
				return 2;
		}
	must(cudaGetDeviceProperties(&device, 0), "the device");
	must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	must(lists_code_prepare(&device, &limits), "shared memory");
	printf("%s, %u rows, %u lists, %u rounds\n\n", device.name, set.rows, set.lists, set.rounds);
	printf("| what | dimensions | ms | |\n|---|---|---|---|\n");
	for (uint32_t dims : set.dims)
		measure(dims);
	return 0;
}
