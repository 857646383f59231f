/*
 * cooc_mine.c
 *		Mining items that occur together. (MemANNS)
 *
 * Pairs of items are counted for each pair of columns; those that are frequent
 * are edges. Of each row the triangles of its edges are counted in a table.
 * Then sets are accepted, the most frequent first: a set counts only rows in
 * which none of its items belongs to an accepted set, counted anew when its turn
 * comes, since counts only fall (lazy greedy). The paper takes the most frequent
 * ones, which overlap.
 *
 * Rows beyond a sample are passed over evenly. Memory is bounded: once half of
 * the table's places have triples, further ones are not counted.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/quantizer/cooc.h"
#include "engine/quantizer/random.h"

#define SAMPLE_MAX		65536	/* rows */
#define SAMPLE_MIN	4096
#define TRIANGLES_MAX	(1u << 26)	/* of all rows of a sample, if there are enough rows */
#define TRIPLES_MAX	(1u << 20)	/* places for different ones; powers of two */
#define TRIPLES_MIN	(1u << 14)
#define TRIPLES_OF_ROW	64			/* places for each row of the sample */
#define SUPPORT_MIN	6		/* uniform codes have no triple so often */
#define SUPPORT_PART	4000	/* a set is in at least this part of the rows */
#define LANES			8
#define COVERED			256		/* no code */

typedef uint16_t Codes __attribute__((vector_size(16), may_alias));

typedef struct Triple
{
	uint64_t	key;			/* columns, then codes; 0: empty */
	uint32_t	count;
} Triple;

typedef struct Mine
{
	const CoocMining *in;
	uint32_t	rows;			/* of the sample, */
	uint32_t	room;			/* filled up to a multiple of LANES */
	uint32_t	support;
	uint16_t   *columns;		/* codes of the sample by column; COVERED once they are */
	uint64_t   *edges;			/* a bitmap of 65536 for each pair of columns */
	Triple	   *triples;		/* a table; then a heap */
	uint32_t	ntriples;
	uint32_t	places;			/* of the table */
	bool		stopped;
} Mine;

static uint32_t
pairs_of(uint32_t parts)
{
	return parts * (parts - 1) / 2;
}

static uint32_t
pair_number(uint32_t a, uint32_t b)
{
	return b * (b - 1) / 2 + a;
}

static uint32_t
sample_rows(const CoocMining *in)
{
	uint64_t	triangles = (uint64_t) in->parts * (in->parts - 1) * (in->parts - 2) / 6;
	uint64_t	rows = TRIANGLES_MAX / triangles;

	rows = rows > SAMPLE_MAX ? SAMPLE_MAX : rows < SAMPLE_MIN ? SAMPLE_MIN : rows;
	return in->rows < rows ? in->rows : (uint32_t) rows;
}

static size_t
columns_bytes(const CoocMining *in)
{
	return (size_t) (sample_rows(in) + LANES) * in->parts * sizeof(uint16_t);
}

static size_t
edges_bytes(const CoocMining *in)
{
	return (size_t) pairs_of(in->parts) * (65536 / 8);
}

/* Places of the table of triples: some for each row. */
static uint32_t
table_places(const CoocMining *in)
{
	uint32_t	places = TRIPLES_MIN;

	while (places < TRIPLES_MAX && places < (uint64_t) sample_rows(in) * TRIPLES_OF_ROW)
		places *= 2;
	return places;
}

size_t
cooc_mine_bytes(const CoocMining *in)
{
	return columns_bytes(in) + edges_bytes(in) + table_places(in) * sizeof(Triple) +
		65536 * sizeof(uint32_t) + COOC_MAX_SETS * sizeof(CoocSet) + sizeof(CoocSets);
}

/* Copy the sample, by columns. */
static void
take_sample(Mine *mine)
{
	const CoocMining *in = mine->in;
	uint64_t	random = in->seed;

	for (uint32_t i = 0; i < mine->room; i++)
	{
		uint32_t	row = i;

		if (i < mine->rows && mine->rows < in->rows)
		{
			uint32_t	begin = (uint32_t) ((uint64_t) in->rows * i / mine->rows);
			uint32_t	end = (uint32_t) ((uint64_t) in->rows * (i + 1) / mine->rows);

			row = begin + (uint32_t) (random_fraction(&random) * (end - begin));
		}
		for (uint32_t column = 0; column < in->parts; column++)
			mine->columns[(size_t) column * mine->room + i] =
				i < mine->rows ? in->codes[row * in->stride + column] : COVERED;
	}
}

/* Whether to give up. */
static bool
cooc_is_stopped(Mine *mine)
{
	if (!mine->stopped && mine->in->stop != NULL)
		mine->stopped = mine->in->stop(mine->in->context);
	return mine->stopped;
}

/* Find the frequent pairs of items; counts has 65536 places, zero before and after. */
static void
find_edges(Mine *mine, uint32_t *counts)
{
	for (uint32_t b = 1; b < mine->in->parts && !cooc_is_stopped(mine); b++)
		for (uint32_t a = 0; a < b; a++)
		{
			const uint16_t *codes_a = mine->columns + (size_t) a * mine->room;
			const uint16_t *codes_b = mine->columns + (size_t) b * mine->room;
			uint64_t   *edges = mine->edges + (size_t) pair_number(a, b) * (65536 / 64);

			for (uint32_t i = 0; i < mine->rows; i++)
			{
				uint32_t	pair = (uint32_t) codes_a[i] * 256 + codes_b[i];

				if (++counts[pair] == mine->support)
					edges[pair / 64] |= UINT64_C(1) << pair % 64;
			}
			for (uint32_t i = 0; i < mine->rows; i++)
				counts[(uint32_t) codes_a[i] * 256 + codes_b[i]] = 0;
		}
}

/* Count a triple. */
static void
count_triple(Mine *mine, uint64_t key)
{
	uint64_t	place = key * UINT64_C(0x9E3779B97F4A7C15) >> 44;
	Triple	   *triple;

	for (;; place++)
	{
		triple = &mine->triples[place % mine->places];
		if (triple->key == key)
			break;
		if (triple->key == 0)
		{
			if (mine->ntriples >= mine->places / 2)
				return;
			mine->ntriples++;
			triple->key = key;
			break;
		}
	}
	triple->count++;
}

static uint64_t
triple_key(const Mine *mine, uint32_t row, uint32_t a, uint32_t b, uint32_t c)
{
	uint64_t	columns = (uint64_t) (a << 16 | b << 8 | c) << 24;

	return columns | (uint64_t) mine->columns[(size_t) a * mine->room + row] << 16 |
		(uint64_t) mine->columns[(size_t) b * mine->room + row] << 8 |
		mine->columns[(size_t) c * mine->room + row];
}

/* Count the triangles of each row's edges. */
static void
count_triangles(Mine *mine)
{
	uint32_t	parts = mine->in->parts;

	for (uint32_t row = 0; row < mine->rows && !cooc_is_stopped(mine); row++)
	{
		uint64_t	above[COOC_MAX_PARTS] = {0};	/* columns beyond one, with an edge to it */

		for (uint32_t b = 1; b < parts; b++)
			for (uint32_t a = 0; a < b; a++)
			{
				uint32_t	pair = (uint32_t) mine->columns[(size_t) a * mine->room + row] * 256 +
					mine->columns[(size_t) b * mine->room + row];

				if (mine->edges[(size_t) pair_number(a, b) * (65536 / 64) + pair / 64] >> pair % 64 & 1)
					above[a] |= UINT64_C(1) << b;
			}
		for (uint32_t a = 0; a < parts; a++)
			for (uint64_t left = above[a]; left != 0; left &= left - 1)
			{
				uint32_t	b = (uint32_t) __builtin_ctzll(left);

				for (uint64_t third = above[a] & above[b]; third != 0; third &= third - 1)
					count_triple(mine, triple_key(mine, row, a, b,
												  (uint32_t) __builtin_ctzll(third)));
			}
	}
}

/* The more frequent triple, of equally frequent ones the lower key. */
static bool
triple_before(const Triple *a, const Triple *b)
{
	return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static void
sift_down(Triple *heap, uint32_t count, uint32_t place)
{
	Triple		entry = heap[place];

	for (uint32_t child; (child = 2 * place + 1) < count; place = child)
	{
		if (child + 1 < count && triple_before(&heap[child + 1], &heap[child]))
			child++;
		if (!triple_before(&heap[child], &entry))
			break;
		heap[place] = heap[child];
	}
	heap[place] = entry;
}

/* Make a heap of the frequent triples. */
static void
make_heap(Mine *mine)
{
	uint32_t	count = 0;

	for (uint32_t i = 0; i < mine->places; i++)
		if (mine->triples[i].key != 0 && mine->triples[i].count >= mine->support)
			mine->triples[count++] = mine->triples[i];
	mine->ntriples = count;
	for (uint32_t i = count / 2; i-- > 0;)
		sift_down(mine->triples, count, i);
}

static CoocSet
set_of(uint64_t key)
{
	CoocSet		set;

	for (int i = 0; i < COOC_LENGTH; i++)
	{
		set.columns[i] = (uint8_t) (key >> (40 - 8 * i));
		set.codes[i] = (uint8_t) (key >> (16 - 8 * i));
	}
	return set;
}

/* Rows that have all items of a set, uncovered; which are covered, if asked to. */
static uint32_t
count_set(Mine *mine, const CoocSet *set, bool cover)
{
	uint32_t	count = 0;
	uint16_t   *columns[COOC_LENGTH];

	for (int j = 0; j < COOC_LENGTH; j++)
		columns[j] = mine->columns + (size_t) set->columns[j] * mine->room;
	for (uint32_t i = 0; i < mine->room; i += LANES)
	{
		Codes		hit = *(const Codes *) (columns[0] + i) == set->codes[0];

		hit &= *(const Codes *) (columns[1] + i) == set->codes[1];
		hit &= *(const Codes *) (columns[2] + i) == set->codes[2];
		for (int lane = 0; lane < LANES; lane++)
			count += hit[lane] & 1;
		for (int j = 0; cover && j < COOC_LENGTH; j++)
		{
			Codes	   *codes = (Codes *) (columns[j] + i);

			*codes = (*codes & ~hit) | (hit & (uint16_t) COVERED);
		}
	}
	return count;
}

/* Accept sets. */
static void
accept(Mine *mine, uint32_t most, CoocSets *sets)
{
	while (sets->count < most && mine->ntriples > 0 && !cooc_is_stopped(mine))
	{
		Triple	   *top = &mine->triples[0];
		CoocSet		set = set_of(top->key);
		uint32_t	count = count_set(mine, &set, false);

		if (count == top->count)
		{
			sets->sets[sets->count++] = set;
			(void) count_set(mine, &set, true);
			count = 0;
		}
		top->count = count;
		if (count < mine->support)
			*top = mine->triples[--mine->ntriples];
		if (mine->ntriples > 0)
			sift_down(mine->triples, mine->ntriples, 0);
	}
}

CoocSets *
cooc_mine(const CoocMining *in)
{
	Mine		mine = {.in = in, .rows = sample_rows(in)};
	uint32_t	most = in->most > 0 ? in->most : COOC_SETS;
	CoocSets   *sets = calloc(1, sizeof(CoocSets) + most * sizeof(CoocSet));
	uint32_t   *counts = calloc(65536, sizeof(uint32_t));

	mine.room = (mine.rows + LANES - 1) / LANES * LANES;
	mine.support = mine.rows / SUPPORT_PART > SUPPORT_MIN ? mine.rows / SUPPORT_PART
		: SUPPORT_MIN;
	mine.columns = aligned_alloc(64, (columns_bytes(in) + 63) / 64 * 64);
	mine.edges = calloc(edges_bytes(in), 1);
	mine.places = table_places(in);
	mine.triples = calloc(mine.places, sizeof(Triple));
	if (sets != NULL && counts != NULL && mine.columns != NULL && mine.edges != NULL &&
		mine.triples != NULL)
	{
		sets->parts = in->parts;
		take_sample(&mine);
		find_edges(&mine, counts);
		count_triangles(&mine);
		make_heap(&mine);
		accept(&mine, most, sets);
	}
	else
		mine.stopped = true;
	if (mine.stopped)
	{
		free(sets);
		sets = NULL;
	}
	free(counts);
	free(mine.columns);
	free(mine.edges);
	free(mine.triples);
	return sets;
}
