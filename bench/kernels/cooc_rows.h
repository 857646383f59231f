/*
 * cooc_rows.h
 *		Lists of pq codes of 16 sub-spaces, and tables of queries, made on the
 *		host: of rows by the engine's training and encoding, or drawn.
 */
#ifndef GPUANN_COOC_ROWS_H
#define GPUANN_COOC_ROWS_H

#include <string.h>

#include "cooc_lists.h"

extern "C"
{
#include "engine/quantizer/lists_train.h"
#include "engine/quantizer/nearest.h"
#include "engine/quantizer/random.h"
}

#define CENTRES 20000u
#define ROUNDS 4u

/* How many rows and queries, and where rows come from (NULL: a mixture). */
struct WantedRows
{
	uint32_t rows, dims, queries;
	const char *base;
};

/* Where codes come from. */
struct Source
{
	const char *name;
	bool codes;
	uint32_t near;
	float noise;
};

static inline void *
need(void *memory)
{
	if (memory == NULL)
	{
		fprintf(stderr, "out of memory\n");
		exit(1);
	}
	return memory;
}

static inline uint32_t
mixed(uint64_t x)
{
	x += 0x9E3779B97F4A7C15ull;
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
	return (uint32_t) ((x ^ (x >> 31)) >> 32);
}

/* About normal: the sum of four uniform numbers. */
static inline float
normal(uint64_t number)
{
	float sum = 0;

	for (uint32_t i = 0; i < 4; i++)
		sum += (float) mixed(number * 4 + i) * 0x1p-32f;
	return (sum - 2) * 1.7320508f;
}

/* All rows: those of the file, or of the mixture. */
static inline std::vector<float>
make_rows(const WantedRows &wanted)
{
	std::vector<float> rows((size_t) wanted.rows * wanted.dims);

	if (wanted.base != NULL)
	{
		FILE *file = fopen(wanted.base, "rb");

		if (file == NULL || fread(rows.data(), sizeof(float), rows.size(), file) != rows.size())
		{
			fprintf(stderr, "cannot read %s, or it is too short\n", wanted.base);
			exit(1);
		}
		fclose(file);
		return rows;
	}
	spread_over(wanted.rows,
				[&](uint32_t row)
				{
					uint32_t centre = mixed(row + 1) % CENTRES;

					for (uint32_t i = 0; i < wanted.dims; i++)
						rows[(size_t) row * wanted.dims + i] =
							normal((uint64_t) centre * 8192 + i) +
							0.7f * normal(((uint64_t) row << 13) + i + ((uint64_t) 1 << 40));
				});
	return rows;
}

/* Make all but the first rows near-duplicates of these. */
static inline void
bring_near(const WantedRows &wanted, const Source &source, std::vector<float> *rows)
{
	spread_over(source.near > 0 ? wanted.rows : 0,
				[&](uint32_t row)
				{
					for (uint32_t i = 0; row >= source.near && i < wanted.dims; i++)
					{
						float *at = &(*rows)[(size_t) row * wanted.dims + i];

						*at = (1 - source.noise) *
								  (*rows)[(size_t) (row % source.near) * wanted.dims + i] +
							  source.noise * *at;
					}
				});
}

/* TrainControl's, by spread_over(). */
static inline void
spread_training(void *, void (*work)(void *, uint32_t), void *argument, uint32_t count)
{
	spread_over(count, [&](uint32_t i) { work(argument, i); });
}

/* Centroids and codebook, from every so manieth row. */
static inline std::vector<float>
train(const WantedRows &wanted, const QuantizerShape &shape, uint32_t lists,
	  const std::vector<float> &rows)
{
	TrainControl control = {spread_training, NULL, NULL};
	ListsTraining training = {shape, lists, ROUNDS, true, &control};
	uint32_t count = std::min(wanted.rows, std::max(65536u, lists * LISTS_TRAIN_ROWS));
	std::vector<float> sample((size_t) count * wanted.dims), floats(lists_floats(&shape, lists));
	double inertia;

	for (uint32_t i = 0; i < count; i++)
		memcpy(&sample[(size_t) i * wanted.dims],
			   &rows[(size_t) ((uint64_t) wanted.rows * i / count) * wanted.dims],
			   wanted.dims * sizeof(float));
	if (lists_train(&training, sample.data(), count, floats.data(), &inertia) != ENGINE_OK)
		need(NULL);
	return floats;
}

/* The nearest centroid of each row. */
static inline std::vector<uint32_t>
assign(const WantedRows &wanted, const std::vector<float> &rows, const float *centroids,
	   uint32_t lists)
{
	Centroids own;
	void *memory = need(aligned_alloc(64, (centroids_bytes(lists, wanted.dims) + 63) / 64 * 64));
	std::vector<uint32_t> nearest(wanted.rows);

	centroids_init(&own, centroids, lists, wanted.dims, memory);
	spread_over((wanted.rows + NEAREST_ROWS - 1) / NEAREST_ROWS,
				[&](uint32_t i)
				{
					uint32_t first = i * NEAREST_ROWS;

					(void) centroids_nearest(&own, &rows[(size_t) first * wanted.dims], wanted.dims,
											 std::min<uint32_t>(NEAREST_ROWS, wanted.rows - first),
											 &nearest[first], NULL);
				});
	free(memory);
	return nearest;
}

/* The tables of queries, which are rows. */
static inline std::vector<uint16_t>
make_tables(const WantedRows &wanted, const Quantizer *quantizer, const QuantizerShape &shape,
			const std::vector<float> &rows)
{
	std::vector<uint16_t> tables((size_t) wanted.queries * PLAIN_ENTRIES);
	size_t bytes = quantizer_table_bytes(&shape), entries = PLAIN_ENTRIES * sizeof(uint16_t);

	spread_over(wanted.queries,
				[&](uint32_t query)
				{
					std::vector<uint32_t> own(bytes / sizeof(uint32_t));
					size_t row = (size_t) ((uint64_t) wanted.rows * query / wanted.queries);

					quantizer_prepare(quantizer, &rows[row * wanted.dims], own.data());
					/* entries are the end of a table */
					memcpy(&tables[(size_t) query * PLAIN_ENTRIES],
						   (const char *) own.data() + (bytes - entries), entries);
				});
	return tables;
}

/* Lists of the codes of rows. */
static inline ListsOfCodes
encode_rows(const WantedRows &wanted, const std::vector<float> &rows, uint32_t lists,
			std::vector<uint16_t> *tables)
{
	QuantizerShape shape = {QUANTIZER_PQ, METRIC_L2, wanted.dims, 8, SCAN_PARTS, 5};
	std::vector<float> floats = train(wanted, shape, lists, rows);
	std::vector<uint32_t> nearest = assign(wanted, rows, floats.data(), lists);
	std::vector<std::vector<uint32_t>> slots(lists);
	Quantizer *quantizer =
		(Quantizer *) need(quantizer_open(&shape, floats.data() + (size_t) lists * wanted.dims));
	ListsOfCodes codes(lists);

	for (uint32_t row = 0; row < wanted.rows; row++)
		slots[nearest[row]].push_back(row);
	spread_over(lists,
				[&](uint32_t list)
				{
					std::vector<unsigned char> code(quantizer_code_bytes(&shape));

					for (uint32_t row : slots[list])
					{
						quantizer_encode(quantizer, &floats[(size_t) list * wanted.dims],
										 &rows[(size_t) row * wanted.dims], 1, code.data());
						codes[list].insert(codes[list].end(), code.begin(),
										   code.begin() + SCAN_PARTS);
					}
				});
	*tables = make_tables(wanted, quantizer, shape, rows);
	quantizer_close(quantizer);
	return codes;
}

/* Lists of codes as bench/cooc.c makes them. */
static inline ListsOfCodes
make_codes(const WantedRows &wanted, float noise, uint32_t lists, std::vector<uint16_t> *tables)
{
	ListsOfCodes codes(lists);

	spread_over(lists,
				[&](uint32_t list)
				{
					uint64_t random = list + 1;

					for (uint32_t i = 0; i < wanted.rows / lists; i++)
					{
						uint64_t group = (uint64_t) (random_fraction(&random) * 40) * 1000003;

						for (uint32_t part = 0; part < SCAN_PARTS; part++)
						{
							double drawn = random_fraction(&group);

							if (random_fraction(&random) < noise)
								drawn = random_fraction(&random);
							codes[list].push_back((unsigned char) (drawn * 256));
						}
					}
				});
	tables->resize((size_t) wanted.queries * PLAIN_ENTRIES);
	for (size_t i = 0; i < tables->size(); i++)
		(*tables)[i] = (uint16_t) mixed(i);
	return codes;
}

#endif /* GPUANN_COOC_ROWS_H */
