/*
 * synthetic.c
 *		Clustered vectors of low intrinsic dimension, made from a seed, with
 *		their exact nearest neighbours.
 *
 * The distribution: max(64, sqrt(n)) Gaussian centres; around each, by its
 * number, one of 16 random 24-dimensional subspaces; noise in all dimensions. A
 * vector is 0.6 centre + 24 Gaussians through the subspace's basis + 0.1 noise.
 *
 * The same arguments give the same bytes on every machine: random numbers are
 * 64-bit integers (SplitMix64, one sequence per row, so rows may be made in any
 * order by any number of threads); a Gaussian is a sum of twelve 16-bit
 * integers, exact in a float; the rest are IEEE additions, multiplications, one
 * division and one square root, each rounded by itself. Must be compiled
 * without contraction and without -ffast-math.
 *
 * The truth is computed from the floats in double, with the sums in the order
 * that gpuann defines; ties by row.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__FAST_MATH__) || (defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0)
#error "the same bytes everywhere need plain IEEE arithmetic"
#endif

/*
 * The loops over dimensions are worth vector instructions, whatever the
 * makefile asks for; the results are the same.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define SUBSPACES		16
#define RANK			24
#define MIN_CENTRES		64
#define CENTRE_WEIGHT	0.6f
#define NOISE_WEIGHT	0.1f

#define MAX_DIMS		16000
#define MAX_ROWS		INT32_MAX
#define MAX_NEAREST		1000
#define MAX_THREADS		256

#define BLOCK_ROWS		4096	/* rows made and written at a time, per thread */
#define TILE_ROWS		32		/* rows of the base widened to double at a time */
#define TILE_QUERIES	16		/* queries that share them */

#define ARRAY_ELEMENT_INT4 23	/* type oid of the elements of an int4[] */

/*
 * What a sequence of random numbers is for: sequences of different purposes
 * never meet.
 */
typedef enum Purpose
{
	PURPOSE_CENTRES = 1,
	PURPOSE_BASES,
	PURPOSE_BASE,
	PURPOSE_QUERIES
} Purpose;

typedef struct Settings
{
	int64_t		rows;
	int			dims;
	int			queries;
	int			nearest;		/* of truth */
	uint64_t	seed;
	int			threads;
} Settings;

/* What rows are drawn from. */
typedef struct Model
{
	const Settings *settings;
	int64_t		centre_count;
	float	   *centres;		/* centre_count x dims */
	float	   *bases;			/* SUBSPACES x RANK x dims */
} Model;

typedef struct Neighbour
{
	double		distance;
	int32_t		row;
} Neighbour;

/* One thread's share of drawing rows. */
typedef struct DrawTask
{
	const Model *model;
	Purpose		purpose;
	int64_t		first;
	int64_t		count;
	float	   *out;
} DrawTask;

/* What the threads that compute the truth share. */
typedef struct TruthTask
{
	const Settings *settings;
	const float *base;
	const float *queries;
	Neighbour  *found;			/* queries x nearest */
	int			next;			/* first query that no thread has taken; under lock */
	pthread_mutex_t lock;
} TruthTask;

/* The tiles one thread works on. */
typedef struct Tile
{
	double	   *queries;		/* TILE_QUERIES x dims */
	double	   *rows;			/* TILE_ROWS x dims */
	double		distances[TILE_ROWS];
} Tile;

/* Say why and end. */
static void
die(const char *what)
{
	fprintf(stderr, "synthetic: %s\n", what);
	exit(1);
}

/* Allocate count elements of size bytes or end. */
static void *
allocate(size_t count, size_t size)
{
	void	   *memory = NULL;

	if (size != 0 && count > SIZE_MAX / size)
		die("too large for this machine");
	if (posix_memalign(&memory, 64, count * size + 64) != 0)
		die("out of memory");
	return memory;
}

/* The next number of a SplitMix64 sequence. */
static inline uint64_t
next_random(uint64_t *state)
{
	uint64_t	z = (*state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

/* Where the sequence for one row begins. */
static uint64_t
sequence(uint64_t seed, Purpose purpose, uint64_t row)
{
	uint64_t	state = seed;

	state = next_random(&state) + (uint64_t) purpose;
	state = next_random(&state) + row;
	return next_random(&state);
}

/*
 * A Gaussian, near enough: the sum of twelve uniform numbers has variance 1.
 *
 * As an integer below 2^20 over 2^16 it is exact in a float.
 */
static inline float
next_gaussian(uint64_t *state)
{
	const uint64_t even = UINT64_C(0x0000FFFF0000FFFF);
	uint64_t	sums = 0;
	int32_t		total;

	for (int i = 0; i < 3; i++)
	{
		uint64_t	bits = next_random(state);

		sums += (bits & even) + ((bits >> 16) & even);
	}
	total = (int32_t) ((sums & 0xFFFFFFFF) + (sums >> 32));
	return (float) (total - 6 * 65535) / 65536.0f;
}

/* The largest integer whose square is at most n. */
static int64_t
integer_root(int64_t n)
{
	int64_t		root = 0;

	for (int64_t bit = INT64_C(1) << 20; bit > 0; bit >>= 1)
	{
		if ((root + bit) * (root + bit) <= n)
			root += bit;
	}
	return root;
}

/* Draw centres and bases. */
static void
make_model(Model *model, const Settings *settings)
{
	float		scale = 1.0f / sqrtf((float) RANK);
	int			dims = settings->dims;

	model->settings = settings;
	model->centre_count = integer_root(settings->rows);
	if (model->centre_count < MIN_CENTRES)
		model->centre_count = MIN_CENTRES;
	model->centres = allocate((size_t) model->centre_count * dims, sizeof(float));
	model->bases = allocate((size_t) SUBSPACES * RANK * dims, sizeof(float));

	for (int64_t c = 0; c < model->centre_count; c++)
	{
		uint64_t	state = sequence(settings->seed, PURPOSE_CENTRES, c);

		for (int i = 0; i < dims; i++)
			model->centres[c * dims + i] = next_gaussian(&state);
	}
	for (int b = 0; b < SUBSPACES * RANK; b++)
	{
		uint64_t	state = sequence(settings->seed, PURPOSE_BASES, b);

		for (int i = 0; i < dims; i++)
			model->bases[(size_t) b * dims + i] = next_gaussian(&state) * scale;
	}
}

/* Draw one row. */
static void
draw_row(const Model *model, Purpose purpose, int64_t row, float *out)
{
	int			dims = model->settings->dims;
	uint64_t	state = sequence(model->settings->seed, purpose, row);
	int64_t c = (int64_t) (((next_random(&state) >> 32) * (uint64_t) model->centre_count) >> 32);
	const float *centre = model->centres + c * dims;
	const float *basis = model->bases + (size_t) (c % SUBSPACES) * RANK * dims;

	for (int i = 0; i < dims; i++)
		out[i] = CENTRE_WEIGHT * centre[i];
	for (int r = 0; r < RANK; r++)
	{
		float		z = next_gaussian(&state);

		for (int i = 0; i < dims; i++)
			out[i] += z * basis[(size_t) r * dims + i];
	}
	for (int i = 0; i < dims; i++)
		out[i] += NOISE_WEIGHT * next_gaussian(&state);
}

/* A thread: draw its share. */
static void *
draw_share(void *arg)
{
	DrawTask   *task = arg;

	for (int64_t i = 0; i < task->count; i++)
		draw_row(task->model, task->purpose, task->first + i,
				 task->out + i * task->model->settings->dims);
	return NULL;
}

/* Draw count rows from first on, with all threads. */
static void
draw_rows(const Model *model, Purpose purpose, int64_t first, int64_t count, float *out)
{
	int			threads = model->settings->threads;
	pthread_t	thread[MAX_THREADS];
	DrawTask	task[MAX_THREADS];

	for (int t = 0; t < threads; t++)
	{
		int64_t		from = count * t / threads;

		task[t] = (DrawTask) {model, purpose, first + from, count * (t + 1) / threads - from,
			out + from * model->settings->dims};
		if (pthread_create(&thread[t], NULL, draw_share, &task[t]) != 0)
			die("cannot start a thread");
	}
	for (int t = 0; t < threads; t++)
		pthread_join(thread[t], NULL);
}

/*
 * The square of the distance, summed in eight channels as gpuann defines it;
 * the compiler may use them as one register.
 */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("default", "avx2", "avx512f")))
#endif
static void
tile_distances(const double *query, const double *rows, int count, int dims, double *out)
{
	for (int r = 0; r < count; r++)
	{
		const double *row = rows + (size_t) r * dims;
		double		channel[8] = {0};
		int			i = 0;

		for (; i + 8 <= dims; i += 8)
		{
			for (int j = 0; j < 8; j++)
			{
				double		difference = query[i + j] - row[i + j];

				channel[j] += difference * difference;
			}
		}
		for (int j = 0; i + j < dims; j++)
		{
			double		difference = query[i + j] - row[i + j];

			channel[j] += difference * difference;
		}
		out[r] = ((channel[0] + channel[4]) + (channel[2] + channel[6])) +
				 ((channel[1] + channel[5]) + (channel[3] + channel[7]));
	}
}

/* The order of answers: by distance, then by row. */
static inline bool
before(Neighbour a, Neighbour b)
{
	return a.distance < b.distance || (a.distance == b.distance && a.row < b.row);
}

/* Compare for qsort. */
static int
compare(const void *a, const void *b)
{
	return before(*(const Neighbour *) a, *(const Neighbour *) b) ? -1 : 1;
}

/*
 * Put a neighbour in the place of the last of a heap of size neighbours, whose
 * last is on top.
 */
static void
replace_top(Neighbour *heap, int size, Neighbour new)
{
	int			hole = 0;

	for (;;)
	{
		int			child = 2 * hole + 1;

		if (child >= size)
			break;
		if (child + 1 < size && before(heap[child], heap[child + 1]))
			child++;
		if (!before(new, heap[child]))
			break;
		heap[hole] = heap[child];
		hole = child;
	}
	heap[hole] = new;
}

/*
 * Find the nearest rows of the queries from first to before last, at most
 * TILE_QUERIES.
 */
static void
search_tile(TruthTask *task, Tile *tile, int first, int last)
{
	int			dims = task->settings->dims;
	int			nearest = task->settings->nearest;

	for (size_t i = 0; i < (size_t) (last - first) * dims; i++)
		tile->queries[i] = task->queries[(size_t) first * dims + i];
	for (int64_t row = 0; row < task->settings->rows; row += TILE_ROWS)
	{
		int64_t		left = task->settings->rows - row;
		int			count = left < TILE_ROWS ? (int) left : TILE_ROWS;

		for (size_t i = 0; i < (size_t) count * dims; i++)
			tile->rows[i] = task->base[row * dims + i];
		for (int query = first; query < last; query++)
		{
			Neighbour  *heap = task->found + (size_t) query * nearest;

			tile_distances(tile->queries + (size_t) (query - first) * dims, tile->rows, count, dims,
						   tile->distances);
			for (int r = 0; r < count; r++)
			{
				Neighbour	new = {tile->distances[r], (int32_t) (row + r)};

				if (before(new, heap[0]))
					replace_top(heap, nearest, new);
			}
		}
	}
	for (int query = first; query < last; query++)
		qsort(task->found + (size_t) query * nearest, nearest, sizeof(Neighbour), compare);
}

/* A thread: take tiles of queries until none is left. */
static void *
search_share(void *arg)
{
	TruthTask  *task = arg;
	int			total = task->settings->queries;
	Tile		tile;

	tile.queries = allocate((size_t) TILE_QUERIES * task->settings->dims, sizeof(double));
	tile.rows = allocate((size_t) TILE_ROWS * task->settings->dims, sizeof(double));
	for (;;)
	{
		int			first;

		pthread_mutex_lock(&task->lock);
		first = task->next;
		task->next += TILE_QUERIES;
		pthread_mutex_unlock(&task->lock);
		if (first >= total)
			break;
		search_tile(task, &tile, first,
					first + TILE_QUERIES < total ? first + TILE_QUERIES : total);
	}
	free(tile.queries);
	free(tile.rows);
	return NULL;
}

/*
 * Find the nearest rows of every query, exactly; the caller frees the queries x
 * nearest neighbours.
 */
static Neighbour *
find_truth(const Model *model)
{
	const Settings *settings = model->settings;
	size_t		places = (size_t) settings->queries * settings->nearest;
	float	   *base = allocate((size_t) settings->rows * settings->dims, sizeof(float));
	float	   *queries = allocate((size_t) settings->queries * settings->dims, sizeof(float));
	TruthTask task = {
		settings, base, queries, allocate(places, sizeof(Neighbour)), 0, PTHREAD_MUTEX_INITIALIZER};
	pthread_t	thread[MAX_THREADS];

	draw_rows(model, PURPOSE_BASE, 0, settings->rows, base);
	draw_rows(model, PURPOSE_QUERIES, 0, settings->queries, queries);
	for (size_t i = 0; i < places; i++)
		task.found[i] = (Neighbour) {INFINITY, INT32_MAX};
	for (int t = 0; t < settings->threads; t++)
	{
		if (pthread_create(&thread[t], NULL, search_share, &task) != 0)
			die("cannot start a thread");
	}
	for (int t = 0; t < settings->threads; t++)
		pthread_join(thread[t], NULL);
	free(base);
	free(queries);
	return task.found;
}

/* Write bytes to standard output or end. */
static void
put(const void *bytes, size_t size)
{
	if (fwrite(bytes, 1, size, stdout) != size)
		die(strerror(errno));
}

/* Write a 16-bit integer, most significant byte first. */
static void
put16(int value)
{
	unsigned char bytes[2] = {(unsigned char) (value >> 8), (unsigned char) value};

	put(bytes, sizeof(bytes));
}

/* Write a 32-bit integer, most significant byte first. */
static void
put32(uint32_t value)
{
	unsigned char bytes[4] = {value >> 24, (value >> 16) & 0xFF, (value >> 8) & 0xFF, value & 0xFF};

	put(bytes, sizeof(bytes));
}

/* Begin a binary COPY file. */
static void
put_copy_head(void)
{
	put("PGCOPY\n\377\r\n\0", 11);
	put32(0);
	put32(0);
}

/* Write a row (id integer, v vector) as binary COPY has it. */
static void
put_copy_row(int64_t id, const float *row, int dims)
{
	static uint32_t buffer[MAX_DIMS];

	put16(2);
	put32(4);
	put32((uint32_t) id);
	put32(4 + 4 * (uint32_t) dims);
	put16(dims);
	put16(0);
	for (int i = 0; i < dims; i++)
	{
		uint32_t	bits;

		memcpy(&bits, &row[i], sizeof(bits));
		buffer[i] = __builtin_bswap32(bits);
	}
	put(buffer, 4 * (size_t) dims);
}

/* Write count rows, raw or as binary COPY. */
static void
write_rows(const Model *model, Purpose purpose, int64_t count, bool copy)
{
	int			dims = model->settings->dims;
	int64_t		block = (int64_t) BLOCK_ROWS * model->settings->threads;
	float	   *rows = allocate((size_t) block * dims, sizeof(float));

	if (copy)
		put_copy_head();
	for (int64_t first = 0; first < count; first += block)
	{
		int64_t		size = count - first < block ? count - first : block;

		draw_rows(model, purpose, first, size, rows);
		if (!copy)
			put(rows, (size_t) size * dims * sizeof(float));
		for (int64_t i = 0; copy && i < size; i++)
			put_copy_row(first + i, rows + i * dims, dims);
	}
	if (copy)
		put16(-1);
	free(rows);
}

/* Write the truth, raw or as binary COPY of (id integer, nearest integer[]). */
static void
write_truth(const Model *model, bool copy)
{
	const Settings *settings = model->settings;
	Neighbour  *found = find_truth(model);

	if (copy)
		put_copy_head();
	for (int query = 0; query < settings->queries; query++)
	{
		if (copy)
		{
			put16(2);
			put32(4);
			put32(query);
			put32(20 + 8 * (uint32_t) settings->nearest);
			put32(1);
			put32(0);
			put32(ARRAY_ELEMENT_INT4);
			put32(settings->nearest);
			put32(1);
		}
		for (int i = 0; i < settings->nearest; i++)
		{
			int32_t		row = found[(size_t) query * settings->nearest + i].row;

			if (copy)
			{
				put32(4);
				put32((uint32_t) row);
			}
			else
				put(&row, sizeof(row));
		}
	}
	if (copy)
		put16(-1);
	free(found);
}

/* Read an integer argument between two bounds or end. */
static int64_t
read_integer(const char *text, int64_t low, int64_t high)
{
	char	   *end;
	long long	value;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || value < low || value > high)
	{
		fprintf(stderr, "synthetic: %s is not between %lld and %lld\n", text, (long long) low,
				(long long) high);
		exit(1);
	}
	return value;
}

/* Say how it is called and end. */
static void
usage(void)
{
	fputs(
		"usage: synthetic [-n rows] [-d dimensions] [-q queries] [-k nearest] [-s seed] [-t threads] WHAT\n"
		"WHAT goes to standard output: base.f32, query.f32, truth.i32 (raw, little-endian),\n"
		"base.copy, query.copy (id integer, v vector), truth.copy (id integer, nearest integer[]) as binary COPY.\n",
		stderr);
	exit(1);
}

/* Read the options; returns what to write. */
static const char *
read_arguments(int argc, char **argv, Settings *settings)
{
	long		online = sysconf(_SC_NPROCESSORS_ONLN);
	int			option;

	*settings = (Settings){.rows = 1000000,
						   .dims = 128,
						   .queries = 1000,
						   .nearest = 100,
						   .seed = 1,
						   .threads = online < 1			 ? 1
									  : online > MAX_THREADS ? MAX_THREADS
															 : (int) online};
	while ((option = getopt(argc, argv, "n:d:q:k:s:t:")) != -1)
	{
		switch (option)
		{
			case 'n':
				settings->rows = read_integer(optarg, 1, MAX_ROWS);
				break;
			case 'd':
				settings->dims = (int) read_integer(optarg, 1, MAX_DIMS);
				break;
			case 'q':
				settings->queries = (int) read_integer(optarg, 1, 10000000);
				break;
			case 'k':
				settings->nearest = (int) read_integer(optarg, 1, MAX_NEAREST);
				break;
			case 's':
				settings->seed = (uint64_t) read_integer(optarg, 0, INT64_MAX);
				break;
			case 't':
				settings->threads = (int) read_integer(optarg, 1, MAX_THREADS);
				break;
			default:
				usage();
		}
	}
	if (optind + 1 != argc)
		usage();
	return argv[optind];
}

/* Write what is asked for. */
int
main(int argc, char **argv)
{
	Settings	settings;
	Model		model;
	const char *what = read_arguments(argc, argv, &settings);
	bool		copy = strstr(what, ".copy") != NULL;

	make_model(&model, &settings);
	if (strcmp(what, "base.f32") == 0 || strcmp(what, "base.copy") == 0)
		write_rows(&model, PURPOSE_BASE, settings.rows, copy);
	else if (strcmp(what, "query.f32") == 0 || strcmp(what, "query.copy") == 0)
		write_rows(&model, PURPOSE_QUERIES, settings.queries, copy);
	else if (strcmp(what, "truth.i32") == 0 || strcmp(what, "truth.copy") == 0)
	{
		if (settings.nearest > settings.rows)
			die("there are fewer rows than nearest ones wanted");
		write_truth(&model, copy);
	}
	else
		usage();
	if (fflush(stdout) != 0)
		die(strerror(errno));
	free(model.centres);
	free(model.bases);
	return 0;
}
