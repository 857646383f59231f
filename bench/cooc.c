/*
 * cooc.c
 *		What co-occurrence codes give and cost on this processor: words saved,
 *		mining, sums of a block beside those of plain codes.
 *
 *	cooc [rows] [parts]
 *
 * Codes of one list: of groups of near-duplicates, whose codes differ with the
 * probability that the first column says; with 1 they are uniform. A scan is
 * that of one list for one query; the best of five.
 */
#include "program.h"
#include "cooc_sorted.h"
#include "engine/quantizer/random.h"
#include "engine/quantizer/sums.h"

#define REPEATS	5

static unsigned char *
make_codes(uint32_t rows, uint32_t parts, double noise)
{
	unsigned char *codes = malloc((size_t) rows * parts);
	uint64_t	random = 1;

	for (uint32_t i = 0; i < rows; i++)
	{
		uint64_t	group = (uint64_t) (random_fraction(&random) * 40) * 1000003;

		for (uint32_t j = 0; j < parts; j++)
		{
			double		drawn = random_fraction(&group);

			if (random_fraction(&random) < noise)
				drawn = random_fraction(&random);
			codes[(size_t) i * parts + j] = (unsigned char) (drawn * 256);
		}
	}
	return codes;
}

/* Of this thread on a processor: the machine may do other work too. */
static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

/* A list in both forms. */
typedef struct Forms
{
	uint32_t	rows;			/* a multiple of QUANTIZER_BLOCK */
	uint32_t	parts;
	const unsigned char *codes;
	const CoocSets *sets;
	uint16_t   *words;
	uint32_t   *lengths;		/* of blocks */
	const uint16_t *table;
	uint32_t   *extended;
	uint64_t	sink;
} Forms;

/* Scan the plain codes. */
static void
scan_plain(Forms *forms)
{
	for (uint32_t i = 0; i < forms->rows; i++)
		forms->sink += (uint32_t) sum_lookups8(
			forms->table, forms->codes + (size_t) i * forms->parts, forms->parts);
}

/* Make the sums that only this query and list have, and scan words. */
static void
scan_words(Forms *forms)
{
	const uint16_t *words = forms->words;

	cooc_extend(forms->sets, forms->table, forms->extended);
	for (uint32_t i = 0; i < forms->rows / QUANTIZER_BLOCK; i++)
	{
		uint32_t	sums[QUANTIZER_BLOCK];

		cooc_block_sums(forms->extended, words, forms->lengths[i], sums);
		for (uint32_t j = 0; j < QUANTIZER_BLOCK; j++)
			forms->sink += sums[j];
		words += forms->lengths[i] * QUANTIZER_BLOCK;
	}
}

/* Millions of rows a second, the best of some. */
static double
rate(Forms *forms, bool plain)
{
	uint32_t	turns = 1 + (1u << 22) / forms->rows;
	double		best = 0;

	for (int repeat = 0; repeat < REPEATS; repeat++)
	{
		double		begin = seconds();
		double		found;

		for (uint32_t turn = 0; turn < turns; turn++)
		{
			if (plain)
				scan_plain(forms);
			else
				scan_words(forms);
		}
		found = (double) turns * forms->rows / (seconds() - begin) / 1e6;
		best = found > best ? found : best;
	}
	return best;
}

static void
encode(Forms *forms)
{
	uint32_t	blocks = forms->rows / QUANTIZER_BLOCK;
	uint16_t   *at;

	forms->lengths = need(malloc(blocks * sizeof(uint32_t)));
	at = forms->words = need(malloc((size_t) forms->rows * forms->parts * sizeof(uint16_t)));
	for (uint32_t i = 0; i < blocks; i++)
	{
		const unsigned char *codes =
			forms->codes + (size_t) i * QUANTIZER_BLOCK * forms->parts;

		forms->lengths[i] = cooc_block_length(forms->sets, codes, forms->parts);
		cooc_block_set(forms->sets, codes, forms->parts, forms->lengths[i], at);
		at += forms->lengths[i] * QUANTIZER_BLOCK;
	}
}

static void
measure(uint32_t rows, uint32_t parts, double noise)
{
	Forms		forms = {.rows = rows, .parts = parts};
	unsigned char *codes = need(make_codes(rows, parts, noise));
	CoocMining	mining = {.codes = codes, .stride = parts, .rows = rows, .parts = parts, .seed = 1};
	double		begin = seconds();
	CoocSets   *sets = need(cooc_mine(&mining));
	double		mined = seconds() - begin;
	CoocGain	gain = cooc_gain(sets, codes, parts, rows);
	CoocGain	sorted = cooc_sorted_gain(sets, codes, parts, rows);
	uint16_t   *table = need(malloc(parts * 256 * sizeof(uint16_t)));
	uint64_t	random = 5;
	double		encoded;

	for (uint32_t i = 0; i < parts * 256; i++)
		table[i] = (uint16_t) (random_fraction(&random) * 65536);
	forms.codes = codes;
	forms.sets = sets;
	forms.table = table;
	forms.extended = need(malloc(cooc_table_entries(sets) * sizeof(uint32_t)));
	begin = seconds();
	encode(&forms);
	encoded = seconds() - begin;
	printf("| %.2f | %u | %u | %u | %.2f | %.2f | %.2f | %.1f | %.1f |", noise, rows, parts,
		   sets->count, 1 - (double) gain.words / ((double) rows * parts), gain.gain, sorted.gain,
		   mined * 1e3, encoded * 1e3);
	printf(" %.0f |", rate(&forms, true));
	printf(" %.0f |", rate(&forms, false));
	printf("\n");
	fflush(stdout);
	if (forms.sink == 1)
		printf("\n");
	free(codes);
	free(sets);
	free(table);
	free(forms.extended);
	free(forms.words);
	free(forms.lengths);
}

int
main(int argc, char **argv)
{
	static const double noises[] = {0, .03, .1, .2, .4, 1};
	uint32_t	rows = argc > 1 ? (uint32_t) atoi(argv[1]) : 8192;
	uint32_t	parts = argc > 2 ? (uint32_t) atoi(argv[2]) : 16;

	rows -= rows % QUANTIZER_BLOCK;
	if (rows < QUANTIZER_BLOCK || parts < COOC_LENGTH || parts > COOC_MAX_PARTS)
	{
		fprintf(stderr, "usage: cooc [rows] [parts]\n");
		return 1;
	}
	printf("| noise | rows | parts | sets | saved | in blocks | sorted | mining ms | encoding ms | "
		   "plain M/s | words M/s |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
	for (size_t i = 0; i < sizeof(noises) / sizeof(noises[0]); i++)
		measure(rows, parts, noises[i]);
	return 0;
}
