/*
 * codes_test_kmeans.c
 *		Nearest centroids, and k-means.
 */
#include <pthread.h>

#include "codes_test.h"

/* ---- nearest centroids ---- */

static void
check_nearest(uint32_t dims, uint32_t count, uint32_t rows, double grid, double far)
{
	float	   *centroids = need((size_t) count * dims * sizeof(float));
	float	   *row = need((size_t) rows * (dims + 3) * sizeof(float));
	void	   *memory = need(centroids_bytes(count, dims));
	uint32_t   *nearest = need(rows * sizeof(uint32_t));
	double	   *distances = need(rows * sizeof(double));
	const DistanceKernels *kernels = distance_kernels(ELEMENT_FLOAT, METRIC_L2, SIMD_PORTABLE);
	Centroids	set;

	for (size_t i = 0; i < (size_t) count * dims; i++)
		centroids[i] = (float) (grid > 0 ? rint(normal()) * grid : normal());
	for (size_t i = 0; i < (size_t) rows * (dims + 3); i++)
		row[i] = (float) (grid > 0 ? rint(normal() * 2) / 2 * grid : normal() * far);
	centroids_init(&set, centroids, count, dims, memory);
	for (SimdLevel level = SIMD_PORTABLE; level <= SIMD_AVX512; level++)
	{
		if (!simd_available(level))
			continue;
		set.level = level;
		centroids_nearest(&set, row, dims + 3, rows, nearest, distances);
		for (uint32_t i = 0; i < rows; i++)
		{
			uint32_t	best = 0;
			double		least = INFINITY;

			for (uint32_t c = 0; c < count; c++)
			{
				double		d = kernels->exact(row + i * (dims + 3), centroids + c * dims, dims);

				best = d < least ? c : best;
				least = d < least ? d : least;
			}
			if (nearest[i] != best || !(distances[i] == least))
				case_fails("level %d, %u dimensions, %u centroids, row %u: %u at %g, not %u at %g",
					 (int) level, dims, count, i, nearest[i], distances[i], best, least);
		}
	}
	free(centroids);
	free(row);
	free(memory);
	free(nearest);
	free(distances);
}

static void
test_nearest(void)
{
	static const uint32_t dims[] = {1, 3, 8, 64, 127, 128, 768};
	static const uint32_t counts[] = {1, 31, 33, 256};

	for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
		for (size_t j = 0; j < sizeof(counts) / sizeof(counts[0]); j++)
		{
			check_nearest(dims[i], counts[j], 1 + (uint32_t) (37 * i + j), 0, 1);
			check_nearest(dims[i], counts[j], 40, 1, 1);
			check_nearest(dims[i], counts[j], 3, 1e19, 1);
			check_nearest(dims[i], counts[j], 3, 1e38, 1);
			check_nearest(dims[i], counts[j], 3, 1e-40, 1);
		}
	report("the nearest centroid is the one of least exact distance, at every level");
}

/*
 * Rows so far from all centroids that exact distances are all but equal, and
 * their own roundings decide. What follows gets the random numbers it had.
 */
static void
test_far(void)
{
	static const uint32_t dims[] = {3, 64, 500};
	uint64_t	state = random_state;

	for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
		for (double far = 1e6; far < 1e16; far *= 100)
			check_nearest(dims[i], 256, 20, 0, far);
	random_state = state;
	report("the nearest centroid is that of least exact distance for rows that are far from all");
}

/* ---- k-means ---- */

#define KMEANS_ROWS		3000
#define KMEANS_DIMS		16
#define KMEANS_LISTS	60
#define KMEANS_ROUNDS	12

static float kmeans_rows[KMEANS_ROWS * KMEANS_DIMS];
static float kmeans_found[2][KMEANS_LISTS * KMEANS_DIMS];

static KmeansTask
kmeans_task(void)
{
	return (KmeansTask) {.rows = kmeans_rows,
						 .stride = KMEANS_DIMS,
						 .count = KMEANS_ROWS,
						 .dims = KMEANS_DIMS,
						 .lists = KMEANS_LISTS,
						 .rounds = KMEANS_ROUNDS,
						 .seed = 42};
}

/* Work shared by threads. */
typedef struct Share
{
	void		(*work) (void *argument, uint32_t item);
	void	   *argument;
	uint32_t	count;
	_Atomic uint32_t next;
} Share;

static void *
take_items(void *context)
{
	Share	   *share = context;
	uint32_t	item;

	while ((item = share->next++) < share->count)
		share->work(share->argument, item);
	return NULL;
}

static void
spread_over_threads(void *context, void (*work) (void *argument, uint32_t item), void *argument,
					uint32_t count)
{
	Share		share = {work, argument, count, 0};
	pthread_t	threads[3];

	for (int i = 0; i < 3; i++)
		if (pthread_create(&threads[i], NULL, take_items, &share) != 0)
			exit(2);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
}

static void
spread_backwards(void *context, void (*work) (void *argument, uint32_t item), void *argument,
				 uint32_t count)
{
	while (count-- > 0)
		work(argument, count);
}

static void
check_inertia(const double *inertia, uint32_t rounds)
{
	for (uint32_t i = 1; i < rounds; i++)
		if (!(inertia[i] <= inertia[i - 1] * (1 + 1e-7)))
			case_fails("round %u: %.17g after %.17g", i, inertia[i], inertia[i - 1]);
}

static void
test_kmeans_inertia(void)
{
	double		inertia[KMEANS_ROUNDS];
	KmeansTask	task = kmeans_task();

	task.inertia = inertia;
	for (uint64_t seed = 1; seed <= 10; seed++)
	{
		task.seed = seed;
		task.lists = seed % 2 ? KMEANS_LISTS : 7;
		CHECK(kmeans_run(&task, kmeans_found[0]) == ENGINE_OK);
		check_inertia(inertia, KMEANS_ROUNDS);
		CHECK(inertia[KMEANS_ROUNDS - 1] < inertia[0]);
	}
	report("the inertia does not rise from round to round");
}

/* Few different rows: every list that can has a row of its own. */
static void
test_kmeans_equal_rows(void)
{
	static float rows[500 * 4];
	float		found[40 * 4];
	double		inertia[KMEANS_ROUNDS];
	KmeansTask	task = {.rows = rows, .stride = 4, .count = 500, .dims = 4, .lists = 40,
						.rounds = KMEANS_ROUNDS, .seed = 3, .inertia = inertia};

	for (uint32_t i = 0; i < 500 * 4; i++)
		rows[i] = (float) ((i / 4) % 20 * (i % 4 + 1));
	CHECK(kmeans_run(&task, found) == ENGINE_OK);
	check_inertia(inertia, KMEANS_ROUNDS);
	CHECK(inertia[KMEANS_ROUNDS - 1] == 0);
	task.count = 7;
	CHECK(kmeans_run(&task, found) == ENGINE_OK);
	CHECK(inertia[KMEANS_ROUNDS - 1] == 0);
	task.count = task.lists = 1;
	CHECK(kmeans_run(&task, found) == ENGINE_OK);
	CHECK(memcmp(found, rows, sizeof(float) * 4) == 0);
	report("k-means of equal rows, of fewer rows than lists, of one row");
}

void
test_kmeans_threads(void)
{
	TrainControl threads = {.spread = spread_over_threads};
	TrainControl backwards = {.spread = spread_backwards};
	KmeansTask	task = kmeans_task();

	make_clusters(kmeans_rows, KMEANS_ROWS, KMEANS_DIMS, 25, 0.3);
	for (int balance = 0; balance <= 1; balance++)
	{
		task.balance = balance;
		task.control = NULL;
		CHECK(kmeans_run(&task, kmeans_found[0]) == ENGINE_OK);
		CHECK(kmeans_run(&task, kmeans_found[1]) == ENGINE_OK);
		CHECK(memcmp(kmeans_found[0], kmeans_found[1], sizeof(kmeans_found[0])) == 0);
		task.control = &threads;
		CHECK(kmeans_run(&task, kmeans_found[1]) == ENGINE_OK);
		CHECK(memcmp(kmeans_found[0], kmeans_found[1], sizeof(kmeans_found[0])) == 0);
		task.control = &backwards;
		CHECK(kmeans_run(&task, kmeans_found[1]) == ENGINE_OK);
		CHECK(memcmp(kmeans_found[0], kmeans_found[1], sizeof(kmeans_found[0])) == 0);
	}
	task.seed++;
	CHECK(kmeans_run(&task, kmeans_found[1]) == ENGINE_OK);
	CHECK(memcmp(kmeans_found[0], kmeans_found[1], sizeof(kmeans_found[0])) != 0);
	report("k-means finds the same centroids with any threads, others with another seed");
}

/* What probes of one list read, over what they would if all were equal. */
static double
imbalance(const float *centroids)
{
	void	   *memory = need(centroids_bytes(KMEANS_LISTS, KMEANS_DIMS));
	static uint32_t list[KMEANS_ROWS];
	double		sizes[KMEANS_LISTS] = {0};
	double		sum = 0;
	Centroids	set;

	centroids_init(&set, centroids, KMEANS_LISTS, KMEANS_DIMS, memory);
	centroids_nearest(&set, kmeans_rows, KMEANS_DIMS, KMEANS_ROWS, list, NULL);
	for (uint32_t row = 0; row < KMEANS_ROWS; row++)
		sizes[list[row]]++;
	for (uint32_t i = 0; i < KMEANS_LISTS; i++)
		sum += sizes[i] * sizes[i];
	free(memory);
	return sum * KMEANS_LISTS / KMEANS_ROWS / KMEANS_ROWS;
}

static void
test_kmeans_balance(void)
{
	KmeansTask	task = kmeans_task();
	double		before = 0;
	double		after = 0;

	for (task.seed = 1; task.seed <= 5; task.seed++)
	{
		task.balance = false;
		CHECK(kmeans_run(&task, kmeans_found[0]) == ENGINE_OK);
		before += imbalance(kmeans_found[0]) / 5;
		task.balance = true;
		CHECK(kmeans_run(&task, kmeans_found[0]) == ENGINE_OK);
		after += imbalance(kmeans_found[0]) / 5;
	}
	printf("# imbalance %.3f, with balance %.3f\n", before, after);
	CHECK(after < before);
	report("balance makes lists more equal");
}

static bool
count_down(void *context)
{
	return --*(int *) context < 0;
}

/* pq's training too. */
static void
test_train_interrupt(const TrainControl *control)
{
	static float codebook[16 * KMEANS_DIMS];
	QuantizerShape shape = {QUANTIZER_PQ, METRIC_L2, KMEANS_DIMS, 4, 4, 1};

	CHECK(quantizer_codebook_bytes(&shape) == sizeof(codebook));
	*(int *) control->context = 200;
	CHECK(quantizer_train(&shape, kmeans_rows, KMEANS_ROWS, control, codebook) ==
		  ENGINE_CANCELLED);
	*(int *) control->context = 1000000;
	CHECK(quantizer_train(&shape, kmeans_rows, KMEANS_ROWS, control, codebook) == ENGINE_OK);
}

static void
test_kmeans_interrupt(void)
{
	int			left;
	TrainControl control = {.interrupted = count_down, .context = &left};
	KmeansTask	task = kmeans_task();

	task.control = &control;
	for (int calls = 0; calls < 80; calls += 7)
	{
		left = calls;
		CHECK(kmeans_run(&task, kmeans_found[0]) == ENGINE_CANCELLED);
		CHECK(left == -1);
	}
	left = 1000000;
	CHECK(kmeans_run(&task, kmeans_found[0]) == ENGINE_OK);
	CHECK(kmeans_bytes(&task) >= (size_t) KMEANS_ROWS * 16);
	test_train_interrupt(&control);
	report("training ends at once when it is interrupted");
}

/* Four points, two lists, by hand. */
static void
test_kmeans_golden(void)
{
	static const float rows[] = {0, 0, 0, 2, 10, 0, 10, 4};
	float		found[4];
	double		inertia[4];
	KmeansTask	task = {.rows = rows, .stride = 2, .count = 4, .dims = 2, .lists = 2, .rounds = 4,
						.seed = 1, .inertia = inertia};

	CHECK(kmeans_run(&task, found) == ENGINE_OK);
	CHECK(inertia[3] == 10);
	CHECK((found[0] == 0 && found[1] == 1 && found[2] == 10 && found[3] == 2) ||
		  (found[0] == 10 && found[1] == 2 && found[2] == 0 && found[3] == 1));
	report("k-means of four points");
}

/* All but test_kmeans_threads(), which makes the rows. */
void
test_kmeans(void)
{
	test_nearest();
	test_far();
	test_kmeans_golden();
	test_kmeans_inertia();
	test_kmeans_equal_rows();
	test_kmeans_balance();
	test_kmeans_interrupt();
}
