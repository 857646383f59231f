/*
 * measure_select.cu
 *		How fast k-selection is, by way: a plain program over
 *		bench/kernels/select.h, on numbers that are on the device.
 *
 * select [--quick] [--seconds N] [--shapes 1x100000000,...] [--k 10,128,...]
 * [--parts 5,10,...]: for each (rows, n, k) of a grid every way that can do it,
 * 10 warm-ups and at least 10 runs by events; median, and the share of the read
 * bandwidth that reading every number once stands for (measured first, by
 * summing). The fastest way is marked, and the answer of every way compared to
 * the first one's. Then orders that are bad for queues, parts of one row, and
 * what select_choose takes beside the fastest. Prints markdown, as
 * bench/results/select-h200.md has it. Shapes and k that are named are measured
 * instead of the grid's; with numbers of parts only these, of each shape and k,
 * by sample. Stops after a number of seconds (240) with what it has.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vector>

#include "bench/kernels/select.h"
#include "device.cuh"

#define WARM_UPS 10
#define RUNS 11

static cudaStream_t stream;
static double seconds = 240;
static double started;
static double bandwidth; /* bytes per second */
static float *numbers;
static size_t numbers_room;
static unsigned char *memory;
static size_t memory_room;
static Item *found;
static Item *first_found;
static size_t found_room;

static double
now()
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

static bool
time_is_up()
{
	return now() - started > seconds;
}

enum Order
{
	AT_RANDOM,
	ASCENDING,
	DESCENDING,
	SAWTOOTH,
	EQUAL,
	DISTANCES, /* as squared distances are: few of them small, highest bits alike */
	ORDERS
};

static const char *const order_names[ORDERS] = {"random",	"ascending", "descending",
												"sawtooth", "equal",	 "distances"};

__global__ void
fill_kernel(float *values, size_t total, uint32_t n, int order)
{
	for (size_t i = blockIdx.x * (size_t) blockDim.x + threadIdx.x; i < total;
		 i += (size_t) gridDim.x * blockDim.x)
	{
		uint64_t x = i * 0x9E3779B97F4A7C15ull + 1;
		uint32_t at = (uint32_t) (i % n);
		float uniform;

		x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
		x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
		x ^= x >> 31;
		uniform = (float) (x >> 40) / 16777216.0f;
		values[i] = order == ASCENDING	  ? (float) at
					: order == DESCENDING ? (float) (n - at)
					: order == SAWTOOTH	  ? (float) (n - at) + (float) (at % 1000) * 16
					: order == EQUAL	  ? 1.0f
					: order == DISTANCES
						? 100.0f + 20.0f * (uniform + (float) (x & 0xFFFFFF) / 16777216.0f)
						: uniform;
	}
}

__global__ void
sum_kernel(const float4 *values, size_t n, float *out)
{
	float sum = 0;

	for (size_t i = blockIdx.x * (size_t) blockDim.x * 8 + threadIdx.x; i < n;
		 i += (size_t) gridDim.x * blockDim.x * 8)
	{
		float4 v[8];

#pragma unroll
		for (int j = 0; j < 8; j++)
			v[j] = i + j * blockDim.x < n ? __ldg(values + i + j * blockDim.x)
										  : make_float4(0, 0, 0, 0);
#pragma unroll
		for (int j = 0; j < 8; j++)
			sum += v[j].x + v[j].y + v[j].z + v[j].w;
	}
	if (sum == 12345.678f)
		*out = sum;
}

static void
fill(size_t total, uint32_t n, int order)
{
	fill_kernel<<<2048, 256, 0, stream>>>(numbers, total, n, order);
	must(cudaGetLastError(), "fill_kernel");
}

/*
 * Time one way; less than 0: there is no memory for it. *equal says whether it
 * found what the first did.
 */
static double
time_way(SelectWay way, uint32_t rows, uint32_t n, uint32_t k, uint32_t parts, bool first,
		 bool *equal)
{
	SelectLaunch launch;
	size_t results = (size_t) rows * k;
	double us;

	memset(&launch, 0, sizeof(launch));
	launch.values = numbers;
	launch.stride = n;
	launch.rows = rows;
	launch.n = n;
	launch.k = k;
	launch.way = way;
	launch.parts = parts;
	launch.out = first ? first_found : found;
	launch.stream = stream;
	must(select_bytes(&launch, &launch.state_bytes), "select_bytes");
	if (launch.state_bytes > memory_room || results > found_room)
		return -1;
	launch.state = memory;
	us = time_of(stream, WARM_UPS, RUNS, [&] { must(select_launch(&launch), "select_launch"); });
	*equal = true;
	if (!first && results <= (1u << 24))
	{
		std::vector<Item> a(results),
			b(results);

		must(cudaMemcpy(a.data(), first_found, results * sizeof(Item), cudaMemcpyDeviceToHost),
			 "copying");
		must(cudaMemcpy(b.data(), found, results * sizeof(Item), cudaMemcpyDeviceToHost),
			 "copying");
		*equal = a == b;
	}
	return us;
}

static void
print_header(const char *first)
{
	printf("| %s |", first);
	for (int way = SELECT_ARGMIN; way < SELECT_WAYS; way++)
		printf(" %s |", select_name((SelectWay) way));
	printf(" fastest | chosen | its share of bandwidth |\n|---|");
	for (int way = SELECT_ARGMIN; way < SELECT_WAYS; way++)
		printf("---|");
	printf("---|---|---|\n");
}

/* One line of a table: every way. */
static void
measure(const char *label, uint32_t rows, uint32_t n, uint32_t k, int order)
{
	double least = -1,
		   chosen_us = -1;
	SelectWay fastest = SELECT_CHOOSE,
			  chosen = select_choose(rows, n, k);
	bool first = true;

	if (time_is_up())
		return;
	fill((size_t) rows * n, n, order);
	printf("| %s |", label);
	for (int way = SELECT_ARGMIN; way < SELECT_WAYS; way++)
	{
		bool equal = true;
		double us;

		/* a sort per row is no way for many rows */
		if (!select_can((SelectWay) way, n, k) ||
			(way == SELECT_SORT && (rows > 128 || n > 20000000)))
		{
			printf(" |");
			continue;
		}
		us = time_way((SelectWay) way, rows, n, k, 0, first, &equal);
		if (us < 0)
		{
			printf(" – |");
			continue;
		}
		first = false;
		printf(" %.1f%s |", us, equal ? "" : " WRONG");
		if (least < 0 || us < least)
		{
			least = us;
			fastest = (SelectWay) way;
		}
		if (way == chosen)
			chosen_us = us;
	}
	printf(" %s | %s%s | %.1f %% |\n", select_name(fastest), select_name(chosen),
		   chosen == fastest || (chosen_us > 0 && chosen_us < least * 1.03) ? "" : " (!)",
		   chosen_us > 0 ? (double) rows * n * 4 / (chosen_us * 1e-6) / bandwidth * 100 : 0);
	fflush(stdout);
}

/* Ways with rows cut into more and fewer parts. */
static void
measure_parts(const std::vector<SelectWay> &ways, uint32_t rows, uint32_t n, uint32_t k,
			  const std::vector<uint32_t> &parts)
{
	for (SelectWay way : ways)
	{
		if (!select_can(way, n, k) || time_is_up())
			continue;
		printf("| %u x %u, %u | %s |", rows, n, k, select_name(way));
		for (uint32_t some : parts)
		{
			bool equal;
			double us = time_way(way, rows, n, k, some, true, &equal);

			printf(us < 0 ? " – |" : " %.1f |", us);
		}
		printf("\n");
		fflush(stdout);
	}
}

static void
print_parts_header(const std::vector<uint32_t> &parts)
{
	printf("| rows x n, k | way |");
	for (uint32_t some : parts)
		printf(" %u |", some);
	printf("\n|---|---|");
	for (size_t i = 0; i < parts.size(); i++)
		printf("---|");
	printf("\n");
}

static void
open_memory(bool quick)
{
	size_t available,
		total;

	must(cudaMemGetInfo(&available, &total), "memory");
	numbers_room = quick ? (size_t) 16 << 20 : (size_t) 256 << 20;
	must(cudaMalloc((void **) &numbers, numbers_room * sizeof(float)), "memory for numbers");
	found_room = numbers_room / 4;
	must(cudaMalloc((void **) &found, found_room * sizeof(Item)), "memory for results");
	must(cudaMalloc((void **) &first_found, found_room * sizeof(Item)), "memory for results");
	memory_room = quick ? (size_t) 1 << 30 : (size_t) 6 << 30;
	must(cudaMalloc((void **) &memory, memory_room), "memory for state");
}

struct Size
{
	uint32_t rows;
	uint32_t n;
};

/*
 * ROWSxN,... and K,... as they were named; nothing of what is not understood.
 */
static std::vector<Size>
named_shapes(const char *text)
{
	std::vector<Size> shapes;
	Size shape;
	int length;

	for (; sscanf(text, "%ux%u%n", &shape.rows, &shape.n, &length) == 2;
		 text += length + (text[length] == ','))
		shapes.push_back(shape);
	return shapes;
}

static std::vector<uint32_t>
named_numbers(const char *text)
{
	std::vector<uint32_t> numbers;
	uint32_t number;
	int length;

	for (; sscanf(text, "%u%n", &number, &length) == 1; text += length + (text[length] == ','))
		numbers.push_back(number);
	return numbers;
}

static void
measure_shapes(const std::vector<Size> &shapes, const std::vector<uint32_t> &ks, bool quick)
{
	char label[100];

	print_header("rows x n, k");
	for (const Size &shape : shapes)
		for (uint32_t k : ks)
		{
			if (k > shape.n || (size_t) shape.rows * shape.n > numbers_room ||
				(quick && k != 10 && k != 128 && k != 2048))
				continue;
			/* few large answers of many rows */
			if ((size_t) shape.rows * k > found_room / 4)
				continue;
			snprintf(label, sizeof(label), "%u x %u, %u", shape.rows, shape.n, k);
			measure(label, shape.rows, shape.n, k, AT_RANDOM);
		}
}

static void
measure_orders()
{
	char label[100];

	printf("\nOrders, 16 x 1,000,000:\n\n");
	print_header("order, k");
	for (int order = 0; order < ORDERS; order++)
		for (uint32_t k : {10u, 128u, 1024u})
		{
			snprintf(label, sizeof(label), "%s, %u", order_names[order], k);
			measure(label, 16, 1000000, k, order);
		}
}

/* One row in more and fewer parts. */
static void
measure_one_row()
{
	static const std::vector<SelectWay> ways = {SELECT_THREAD_QUEUES, SELECT_WARP_QUEUES,
												SELECT_BLOCK_QUEUES, SELECT_RADIX, SELECT_SAMPLE};
	static const std::vector<uint32_t> parts = {64, 132, 264, 528, 660, 1056, 1320, 2112, 2640};

	printf("\nParts of one row:\n\n");
	print_parts_header(parts);
	for (uint32_t n : {1000000u, 10000000u, 100000000u})
		if (n <= numbers_room)
		{
			fill(n, n, AT_RANDOM);
			for (uint32_t k : {10u, 128u})
				measure_parts(ways, 1, n, k, parts);
		}
}

int
main(int argc, char **argv)
{
	std::vector<uint32_t> ks = {1,	 10,   32,	 64,	100,	128,	256,
								512, 1024, 2048, 10000, 100000, 1000000};
	std::vector<Size> shapes = {{1, 10000},		{1, 100000},   {1, 1000000},  {1, 10000000},
								{1, 100000000}, {16, 100000},  {128, 10000},  {128, 100000},
								{128, 1000000}, {1000, 1000},  {1000, 10000}, {1000, 100000},
								{10000, 1000},	{10000, 10000}};
	std::vector<uint32_t> parts;
	cudaDeviceProp device;
	bool quick = false;

	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--quick") == 0)
			quick = true;
		else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
			seconds = atof(argv[++i]);
		else if (strcmp(argv[i], "--shapes") == 0 && i + 1 < argc)
			shapes = named_shapes(argv[++i]);
		else if (strcmp(argv[i], "--k") == 0 && i + 1 < argc)
			ks = named_numbers(argv[++i]);
		else if (strcmp(argv[i], "--parts") == 0 && i + 1 < argc)
			parts = named_numbers(argv[++i]);
		else
		{
			fprintf(
				stderr,
				"usage: select [--quick] [--seconds N] [--shapes ROWSxN,...] [--k K,...] [--parts PARTS,...]\n");
			return 2;
		}
	started = now();
	must(cudaGetDeviceProperties(&device, 0), "the device");
	must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	must(select_prepare(&device), "select_prepare");
	open_memory(quick);
	fill(numbers_room, 1000, AT_RANDOM);
	bandwidth = numbers_room * 4.0 /
				(time_of(stream, WARM_UPS, RUNS,
						 [&]
						 {
							 sum_kernel<<<device.multiProcessorCount * 8, 256, 0, stream>>>(
								 (float4 *) numbers, numbers_room / 4, (float *) found);
						 }) *
				 1e-6);
	printf(
		"# k-selection on %s\n\nRead bandwidth %.2f TB/s (sum of %zu numbers). Microseconds on the device, median of %d after %d; random numbers. \"(!)\": the chosen way is not the "
		"fastest.\n\n",
		device.name, bandwidth / 1e12, numbers_room, RUNS, WARM_UPS);
	if (parts.empty())
	{
		measure_shapes(shapes, ks, quick);
		measure_orders();
		measure_one_row();
	}
	else
	{
		print_parts_header(parts);
		for (const Size &shape : shapes)
		{
			if ((size_t) shape.rows * shape.n > numbers_room)
				continue;
			fill((size_t) shape.rows * shape.n, shape.n, AT_RANDOM);
			for (uint32_t k : ks)
				measure_parts({SELECT_SAMPLE}, shape.rows, shape.n, k, parts);
		}
	}
	printf("\n%.0f s%s\n", now() - started,
		   time_is_up() ? ": time was up, the rest is left out" : "");
	return 0;
}
