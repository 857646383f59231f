/*
 * distance.c
 *		How long a distance takes: every type, metric and SIMD level, from the
 *		first cache and from memory.
 *
 *	distance [--rounds N] [--dims N] [--far]
 *
 * Levels take turns in short slices, and the best slice counts, so that what
 * else the machine does cancels out. Rows lie in the first two caches (32 of
 * them), or with --far are spread over 256 MB in random order, which is how a
 * graph search meets them. Prints ns per distance, and how many times faster
 * the last level is than the one before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/distance.h"

#define LEVELS		3
#define NEAR_ROWS	32
#define FAR_BYTES	((size_t) 256 << 20)
#define SLICE		2000		/* distances measured in one go, at most */

static const SimdLevel levels[LEVELS] = {SIMD_PORTABLE, SIMD_AVX2, SIMD_AVX512};
static const char *const type_names[] = {"", "float", "half", "bit"};
static const char *const metric_names[] = {"", "l2", "ip", "cosine", "l1", "hamming", "jaccard"};

typedef struct Rows
{
	char	   *bytes;
	size_t		stride;
	uint32_t	count;
	uint32_t	order[SLICE];
} Rows;

static int	rounds = 200;
static int	only_dims;
static bool far;
static volatile double sink;

static uint64_t
next_random(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Rows of small finite numbers, or of any bits. */
static void
make_rows(Rows *rows, ElementType type, uint32_t dims)
{
	size_t		bytes = engine_vector_bytes(type, dims);

	rows->stride = (bytes + 63) / 64 * 64;
	rows->count = far ? (uint32_t) (FAR_BYTES / rows->stride) : NEAR_ROWS;
	rows->bytes = aligned_alloc(64, rows->stride * rows->count);
	if (rows->bytes == NULL)
		exit(2);
	for (size_t i = 0; i < rows->stride * rows->count / 8; i++)
	{
		uint64_t	r = next_random();

		if (type == ELEMENT_FLOAT)
			r = (r & UINT64_C(0x803FFFFF803FFFFF)) | UINT64_C(0x3F0000003F000000);
		else if (type == ELEMENT_HALF)
			r = (r & UINT64_C(0x83FF83FF83FF83FF)) | UINT64_C(0x3800380038003800);
		((uint64_t *) (void *) rows->bytes)[i] = r;
	}
	for (uint32_t i = 0; i < SLICE; i++)
		rows->order[i] = (uint32_t) (next_random() % rows->count);
}

static double
clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec * 1e9 + (double) now.tv_nsec;
}

/* One slice: ns per distance. */
static double
slice(const DistanceKernels *kernels, const Rows *rows, uint32_t dims, const float *wide,
	  bool exact)
{
	uint32_t	count = SLICE * 64 / (dims < 64 ? 64 : dims) + 64;
	double		start,
				sum = 0;

	count = count < SLICE ? count : SLICE;
	start = clock_ns();
	for (uint32_t i = 0; i < count; i++)
	{
		const void *row = rows->bytes + rows->order[i] * rows->stride;

		sum += exact ? kernels->exact(rows->bytes, row, dims)
					 : (double) kernels->fast(wide, row, dims, 1);
	}
	sink = sum;
	return (clock_ns() - start) / count;
}

static void
measure(ElementType type, Metric metric, uint32_t dims, bool exact)
{
	Rows		rows;
	double		best[LEVELS] = {1e30, 1e30, 1e30};
	float	   *wide = wide_alloc(dims);

	make_rows(&rows, type, dims);
	for (int round = 0; round < rounds; round++)
		for (int i = 0; i < LEVELS; i++)
		{
			const DistanceKernels *kernels = distance_kernels(type, metric, levels[i]);
			double		ns;

			if (kernels == NULL)
				continue;
			if (round == 0)
				kernels->widen(rows.bytes, dims, wide);
			if (far)
				for (uint32_t j = 0; j < SLICE; j++)
					rows.order[j] = (uint32_t) (next_random() % rows.count);
			ns = slice(kernels, &rows, dims, wide, exact);
			best[i] = ns < best[i] ? ns : best[i];
		}
	printf("%-6s %-8s %-6s %6u", type_names[type], metric_names[metric], exact ? "exact" : "fast",
		   dims);
	for (int i = 0; i < LEVELS; i++)
		if (best[i] < 1e30)
			printf(" %9.1f", best[i]);
		else
			printf(" %9s", "-");
	if (best[2] < 1e30)
		printf(" %7.2f", best[1] / best[2]);
	printf("\n");
	fflush(stdout);
	free(rows.bytes);
	free(wide);
}

int
main(int argc, char **argv)
{
	static const uint32_t dims[] = {32, 100, 128, 384, 768, 1536, 3072};

	for (int i = 1; i < argc; i++)
	{
		if (strcmp(argv[i], "--far") == 0)
			far = true;
		else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
			rounds = atoi(argv[++i]);
		else if (strcmp(argv[i], "--dims") == 0 && i + 1 < argc)
			only_dims = atoi(argv[++i]);
		else
		{
			fprintf(stderr, "usage: distance [--rounds N] [--dims N] [--far]\n");
			return 2;
		}
	}
	printf("%-6s %-8s %-6s %6s %9s %9s %9s %7s\n", "type", "metric", "kind", "dims", "portable",
		   "avx2", "avx512", "gain");
	for (int type = ELEMENT_FLOAT; type <= ELEMENT_BIT; type++)
		for (int metric = METRIC_L2; metric <= METRIC_JACCARD; metric++)
			for (int exact = 0; exact < 2; exact++)
				for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
					if (engine_has_distance((ElementType) type, (Metric) metric) &&
						(only_dims == 0 || only_dims == (int) dims[i]))
						measure((ElementType) type, (Metric) metric, dims[i], exact);
	return 0;
}
