/*
 * coarse.c
 *		What choosing the lists nearest to a query costs: all centroids are
 *		measured, or those of the nearest groups alone, made by k-means.
 *
 *	coarse --base base.f32 --query query.f32 -n LISTS -d DIMS [-q QUERIES]
 *		[--measured TIMES]
 *
 * Rows of base stand for centroids. By probes: microseconds of the processor a
 * query of both, the centroids that the second measures, and which share of the
 * lists that the first chooses it chooses too. TIMES: lists measured for each
 * that is probed (4).
 */
#include <math.h>
#include <string.h>

#include "program.h"
#include "engine/distance.h"
#include "engine/quantizer/kmeans.h"
#include "engine/quantizer/nearest.h"
#include "engine/select.h"

#define ROUNDS	10

/* Groups of centroids near each other: ranges of their sorted array. */
typedef struct ListGroups
{
	uint32_t	count;
	float	   *centroids;		/* count x dims */
	uint32_t   *begins;			/* count + 1: the first of each, and the end */
} ListGroups;

static uint32_t lists;
static uint32_t dims;
static uint32_t queries = 100;
static uint32_t times = 4;
static ListGroups groups;
static float *sorted;			/* centroids in the order of groups */
static const DistanceKernels *kernels;

static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

static float *
read_floats(const char *path, size_t count)
{
	float	   *floats = need(aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64));
	FILE	   *file = path != NULL ? fopen(path, "rb") : NULL;

	if (file == NULL || fread(floats, sizeof(float), count, file) != count)
	{
		fprintf(stderr, "%s does not have %zu floats\n", path != NULL ? path : "no file", count);
		exit(1);
	}
	fclose(file);
	return floats;
}

/* Copy centroids in the order of groups; group[i] is that of centroid i. */
static void
sort_centroids(const float *centroids, const uint32_t *group)
{
	uint32_t   *begins = groups.begins;

	for (uint32_t i = 0; i < lists; i++)
		begins[group[i] + 1]++;
	for (uint32_t i = 0; i < groups.count; i++)
		begins[i + 1] += begins[i];
	for (uint32_t i = 0; i < lists; i++)
		memcpy(sorted + (size_t) begins[group[i]]++ * dims, centroids + (size_t) i * dims,
			   dims * sizeof(float));
	/* each begins where the one before has ended */
	memmove(begins + 1, begins, groups.count * sizeof(uint32_t));
	begins[0] = 0;
}

/* Make groups, as many as each has members. */
static void
make_groups(const float *centroids)
{
	uint32_t	count = (uint32_t) ceil(sqrt(lists));
	KmeansTask	task = {.rows = centroids, .stride = dims, .count = lists, .dims = dims,
						.lists = count, .rounds = ROUNDS, .seed = 1};
	uint32_t   *group = need(malloc(lists * sizeof(uint32_t)));
	void	   *tiles = need(aligned_alloc(64, (centroids_bytes(count, dims) + 63) / 64 * 64));
	EngineError error = {0};
	Centroids	set;

	groups.count = count;
	groups.centroids = need(malloc((size_t) count * dims * sizeof(float)));
	groups.begins = need(calloc(count + 1, sizeof(uint32_t)));
	sorted = need(malloc((size_t) lists * dims * sizeof(float)));
	must(kmeans_run(&task, groups.centroids), &error, "grouping");
	centroids_init(&set, groups.centroids, count, dims, tiles);
	(void) centroids_nearest(&set, centroids, dims, lists, group, NULL);
	sort_centroids(centroids, group);
	free(group);
	free(tiles);
}

/* Offer centroids [first, end) of an array as the nearest. */
static void
offer(const float *query, const float *centroids, uint32_t first, uint32_t end,
	  SearchResult *nearest, uint32_t *count, uint32_t room)
{
	for (uint32_t i = first; i < end; i++)
	{
		SearchResult entry = {kernels->fast(query, centroids + (size_t) i * dims, dims, 0), i, 0};

		(void) farthest_offer(nearest, count, room, entry);
	}
}

/* Choose by groups; returns how many centroids were measured. */
static uint32_t
choose_by_groups(const float *query, uint32_t probes, SearchResult *nearest, SearchResult *order)
{
	uint32_t	ngroups = 0;
	uint32_t	count = 0;
	uint32_t	measured = 0;

	offer(query, groups.centroids, 0, groups.count, order, &ngroups, groups.count);
	sort_results(order, ngroups);
	for (uint32_t i = 0; i < ngroups && measured < probes * times; i++)
	{
		uint32_t	first = groups.begins[order[i].slot];
		uint32_t	end = groups.begins[order[i].slot + 1];

		offer(query, sorted, first, end, nearest, &count, probes);
		measured += end - first;
	}
	sort_results(nearest, count);
	return measured + groups.count;
}

/* Compare both ways for so many probes. */
static void
compare(const float *query, uint32_t probes, unsigned char *chosen)
{
	SearchResult *all = need(malloc(probes * sizeof(SearchResult)));
	SearchResult *some = need(malloc(probes * sizeof(SearchResult)));
	SearchResult *order = need(malloc(groups.count * sizeof(SearchResult)));
	double		flat = 0;
	double		grouped = 0;
	uint64_t	measured = 0;
	uint64_t	same = 0;

	for (uint32_t q = 0; q < queries; q++)
	{
		const float *vector = query + (size_t) q * dims;
		uint32_t	count = 0;
		double		begun = seconds();

		offer(vector, sorted, 0, lists, all, &count, probes);
		sort_results(all, count);
		flat += seconds() - begun;
		begun = seconds();
		measured += choose_by_groups(vector, probes, some, order);
		grouped += seconds() - begun;
		memset(chosen, 0, lists);
		for (uint32_t i = 0; i < probes; i++)
			chosen[all[i].slot] = 1;
		for (uint32_t i = 0; i < probes; i++)
			same += chosen[some[i].slot];
	}
	printf("| %u | %u | %u | %.0f | %.0f | %llu | %.4f |\n", lists, dims, probes,
		   flat / queries * 1e6, grouped / queries * 1e6,
		   (unsigned long long) (measured / queries), (double) same / queries / probes);
	free(all);
	free(some);
	free(order);
}

int
main(int argc, char **argv)
{
	const char *base = NULL;
	const char *query_path = NULL;
	float	   *centroids;
	float	   *query;
	double		begun;

	for (int i = 1; i + 1 < argc; i += 2)
	{
		uint32_t	number = (uint32_t) strtoul(argv[i + 1], NULL, 10);

		if (strcmp(argv[i], "--base") == 0)
			base = argv[i + 1];
		else if (strcmp(argv[i], "--query") == 0)
			query_path = argv[i + 1];
		else if (strcmp(argv[i], "-n") == 0)
			lists = number;
		else if (strcmp(argv[i], "-d") == 0)
			dims = number;
		else if (strcmp(argv[i], "-q") == 0)
			queries = number;
		else if (strcmp(argv[i], "--measured") == 0)
			times = number;
	}
	if (lists < 2 || dims < 1 || queries < 1)
	{
		fprintf(stderr, "coarse --base F --query F -n LISTS -d DIMS [-q N] [--measured N]\n");
		return 2;
	}
	kernels = distance_kernels(ELEMENT_FLOAT, METRIC_L2, SIMD_BEST);
	centroids = read_floats(base, (size_t) lists * dims);
	query = read_floats(query_path, (size_t) queries * dims);
	begun = seconds();
	make_groups(centroids);
	printf("%u groups of %u lists: %.2f s\n\n", groups.count, lists, seconds() - begun);
	printf("| lists | dims | probes | all, us | by groups, us | measured | same |\n"
		   "|---|---|---|---|---|---|---|\n");
	for (uint32_t probes = 16; probes <= 1024; probes *= 4)
		compare(query, probes, need(calloc(lists, 1)));
	return 0;
}
