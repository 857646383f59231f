/*
 * codes_test_cooc.c
 *		Co-occurrence codes: the paper's example, codes that come back, sums
 *		that are equal, planted sets that are found. (MemANNS)
 */
#include "codes_test.h"
#include "engine/quantizer/cooc.h"
#include "engine/quantizer/sums.h"

static const uint32_t all_parts[] = {8, 16, 20, 32, 64};
#define KINDS_OF_PARTS	(sizeof(all_parts) / sizeof(all_parts[0]))

/* Decode a row; false: these are not words of a row. */
static bool
cooc_decode(const CoocSets *sets, const uint16_t *words, unsigned char *code)
{
	uint64_t	covered = 0;
	uint64_t	all = sets->parts == 64 ? UINT64_MAX : (UINT64_C(1) << sets->parts) - 1;

	for (uint32_t i = 1; i <= words[0] && i < COOC_MAX_WORDS; i++)
	{
		uint32_t	address = words[i];
		uint64_t	columns;

		if (address < sets->parts * 256)
		{
			columns = UINT64_C(1) << address / 256;
			code[address / 256] = (unsigned char) address;
		}
		else
		{
			const CoocSet *set;

			address -= sets->parts * 256;
			if (address >> 3 >= sets->count)
				return false;
			set = &sets->sets[address >> 3];
			columns = 0;
			for (int j = 0; j < COOC_LENGTH; j++)
				if (address >> j & 1)
				{
					columns |= UINT64_C(1) << set->columns[j];
					code[set->columns[j]] = set->codes[j];
				}
		}
		if (covered & columns)
			return false;
		covered |= columns;
	}
	return covered == all && words[0] < COOC_MAX_WORDS;
}

/* The sum over the words of a row. */
static uint32_t
cooc_sum(const uint32_t *extended, const uint16_t *words)
{
	uint32_t	sum = 0;

	for (uint32_t i = 1; i <= words[0]; i++)
		sum += extended[words[i]];
	return sum;
}

static void
test_example(void)
{
	static const CoocSet example[] = {{{0, 1, 2}, {1, 15, 26}}, {{3, 4, 5}, {79, 25, 77}},
		{{6, 7, 8}, {2, 14, 31}}};
	unsigned char code[16] = {1, 15, 26, 79, 25, 77, 3, 14, 31, 9, 8, 7, 6, 5, 4, 255};
	unsigned char decoded[16];
	CoocSets   *sets = need(sizeof(CoocSets) + sizeof(example));
	uint16_t	words[COOC_MAX_WORDS];
	uint32_t	count;

	sets->parts = 16;
	sets->count = 3;
	memcpy(sets->sets, example, sizeof(example));
	count = cooc_encode(sets, code, words);
	CHECK(count == 12 && words[0] == 11);
	CHECK(words[1] == 6 * 256 + 3 && words[8] == 15 * 256 + 255);
	CHECK(words[9] == 4096 + 7 && words[9] == 4103);
	CHECK(words[10] == 4096 + 15 && words[11] == 4096 + 22);
	CHECK(cooc_decode(sets, words, decoded) && memcmp(code, decoded, 16) == 0);
	/* what is no row's */
	words[11] = words[10];
	CHECK(!cooc_decode(sets, words, decoded));
	words[11] = 4096 + 3 * 8 + 7;
	CHECK(!cooc_decode(sets, words, decoded));
	words[0] = 10;
	CHECK(!cooc_decode(sets, words, decoded));
	words[0] = UINT16_MAX;
	CHECK(!cooc_decode(sets, words, decoded));
	free(sets);
	report("co-occurrence codes of the paper's example: 7, 15, 22, 4103, 12 words");
}

/* Codes of rows in groups, each with codes of its own but for some noise. */
static unsigned char *
make_codes(uint32_t rows, uint32_t parts, uint32_t groups, double noise)
{
	unsigned char *codes = need((size_t) rows * parts);

	for (uint32_t i = 0; i < rows; i++)
	{
		uint64_t	group = (uint64_t) (random_fraction(&random_state) * groups) * 1000003;

		for (uint32_t j = 0; j < parts; j++)
		{
			double		drawn = random_fraction(&group);

			if (groups == 0 || random_fraction(&random_state) < noise)
				drawn = random_fraction(&random_state);
			codes[(size_t) i * parts + j] = (unsigned char) (drawn * 256);
		}
	}
	return codes;
}

static CoocSets *
mine(const unsigned char *codes, uint32_t rows, uint32_t parts, uint32_t most)
{
	CoocMining	mining = {.codes = codes, .stride = parts, .rows = rows, .parts = parts,
						  .most = most, .seed = 7};

	return cooc_mine(&mining);
}

/* Every row comes back, and sums are those of its codes. */
static void
check_rows(const CoocSets *sets, const unsigned char *codes, uint32_t rows, uint16_t most)
{
	uint32_t	parts = sets->parts;
	uint16_t   *table = need(parts * 256 * sizeof(uint16_t));
	uint32_t   *extended = need(cooc_table_entries(sets) * sizeof(uint32_t));
	uint16_t	words[COOC_MAX_WORDS];
	uint16_t	block[COOC_MAX_WORDS * QUANTIZER_BLOCK] __attribute__((aligned(64)));
	unsigned char decoded[COOC_MAX_PARTS];

	for (uint32_t i = 0; i < parts * 256; i++)
		table[i] = (uint16_t) (most - (uint32_t) (random_fraction(&random_state) * 3000));
	cooc_extend(sets, table, extended);
	for (uint32_t i = 0; i < rows; i++)
	{
		const unsigned char *code = codes + (size_t) i * parts;
		uint32_t	count = cooc_encode(sets, code, words);

		CHECK(count >= 1 + parts / 3 && count <= parts + 1 && words[0] == count - 1);
		CHECK(cooc_decode(sets, words, decoded) && memcmp(code, decoded, parts) == 0);
		CHECK(cooc_sum(extended, words) == (uint32_t) sum_lookups8(table, code, parts));
	}
	for (uint32_t i = 0; i + QUANTIZER_BLOCK <= rows; i += QUANTIZER_BLOCK)
	{
		const unsigned char *code = codes + (size_t) i * parts;
		uint32_t	length = cooc_block_length(sets, code, parts);
		uint32_t	sums[QUANTIZER_BLOCK];

		cooc_block_set(sets, code, parts, length, block);
		cooc_block_sums(extended, block, length, sums);
		for (uint32_t j = 0; j < QUANTIZER_BLOCK; j++)
			CHECK(sums[j] == (uint32_t) sum_lookups8(table, code + (size_t) j * parts, parts));
	}
	free(table);
	free(extended);
}

static void
test_rows(void)
{
	for (uint32_t i = 0; i < KINDS_OF_PARTS; i++)
		for (int world = 0; world < 4; world++)
		{
			uint32_t	rows = 700;
			unsigned char *codes =
				make_codes(rows, all_parts[i], 20 * (uint32_t) world, .05 * world);
			CoocSets   *sets = mine(codes, rows, all_parts[i], 0);

			CHECK(sets != NULL && sets->count <= COOC_SETS);
			if (sets != NULL)
				check_rows(sets, codes, rows, UINT16_MAX);
			free(sets);
			free(codes);
		}
	report("co-occurrence codes decode to their rows, and sums are equal to the bit");
}

static bool
has_set(const CoocSets *sets, const CoocSet *wanted)
{
	for (uint32_t i = 0; i < sets->count; i++)
		if (memcmp(&sets->sets[i], wanted, sizeof(*wanted)) == 0)
			return true;
	return false;
}

static void
test_planted(void)
{
	for (uint32_t i = 0; i < KINDS_OF_PARTS; i++)
	{
		uint32_t	parts = all_parts[i];
		uint32_t	rows = 6000;
		unsigned char *codes = make_codes(rows, parts, 0, 0);
		CoocSets   *none = mine(codes, rows, parts, 0);
		CoocSets   *found[2];
		CoocSet		planted[4];
		CoocGain	gain;

		CHECK(none != NULL && none->count == 0);
		gain = cooc_gain(none, codes, parts, rows);
		CHECK(gain.gain == 0 && gain.words == (uint64_t) rows * parts && !cooc_pays(&gain));
		for (uint32_t set = 0; set < 4; set++)
		{
			for (uint32_t j = 0; j < COOC_LENGTH; j++)
			{
				planted[set].columns[j] = (uint8_t) (set + j * parts / 4 % parts);
				planted[set].codes[j] = (uint8_t) (set * 60 + j);
			}
			for (uint32_t row = set; row < rows; row += 50 + 10 * set)
				for (uint32_t j = 0; j < COOC_LENGTH; j++)
					codes[(size_t) row * parts + planted[set].columns[j]] = planted[set].codes[j];
		}
		for (int turn = 0; turn < 2; turn++)
		{
			found[turn] = mine(codes, rows, parts, 0);
			CHECK(found[turn] != NULL && found[turn]->count >= 4);
			for (uint32_t set = 0; found[turn] != NULL && set < 4; set++)
				CHECK(has_set(found[turn], &planted[set]));
		}
		CHECK(memcmp(found[0], found[1],
					 sizeof(CoocSets) + found[0]->count * sizeof(CoocSet)) == 0);
		free(none);
		free(found[0]);
		free(found[1]);
		free(codes);
	}
	report("planted sets are found, uniform codes yield none, and mining is deterministic");
}

static void
test_gate(void)
{
	unsigned char *near = make_codes(8000, 16, 40, .03);
	unsigned char *loose = make_codes(8000, 16, 40, .6);
	CoocSets   *of_near = mine(near, 8000, 16, 0);
	CoocSets   *of_loose = mine(loose, 8000, 16, 0);
	CoocGain	gain = cooc_gain(of_near, near, 16, 8000);
	CoocGain	other = cooc_gain(of_loose, loose, 16, 8000);

	printf("# near-duplicates: %.2f of words saved, %.2f after padding; loose groups %.2f\n",
		   1 - (double) gain.words / (8000 * 16), gain.gain, other.gain);
	CHECK(cooc_pays(&gain) && gain.padded >= gain.words);
	CHECK(!cooc_pays(&other));
	gain = cooc_gain(of_near, near, 16, 3999);
	CHECK(!cooc_pays(&gain));
	free(near);
	free(loose);
	free(of_near);
	free(of_loose);
	report("the gate opens for near-duplicates and stays closed for loose groups and short lists");
}

static void
test_samples(void)
{
	uint32_t	rows = 80000;
	unsigned char *codes = make_codes(rows, 16, 30, .1);
	CoocSets   *sets = mine(codes, rows, 16, 700);
	CoocGain	gain;

	CHECK(sets != NULL && sets->count > 100 && sets->count <= 700);
	gain = cooc_gain(sets, codes, 16, rows);
	CHECK(1 - (double) gain.words / (rows * 16.0) > .3);
	free(sets);
	free(codes);
	report("sets of a sample serve a list of many rows");
}

/* Give up at the so-manieth question. */
static bool
give_up(void *context)
{
	uint32_t   *left = context;

	return *left > 0 && --*left == 0;
}

static void
test_stop(void)
{
	unsigned char *codes = make_codes(3000, 16, 30, .1);
	uint32_t	left = 0;
	CoocMining	mining = {.codes = codes, .stride = 16, .rows = 3000, .parts = 16, .seed = 7,
						  .stop = give_up, .context = &left};
	CoocSets   *sets = cooc_mine(&mining);

	CHECK(sets != NULL && sets->count > 100);
	free(sets);
	for (uint32_t at = 1; at < 4000; at = at * 3 / 2 + 1)
	{
		left = at;
		sets = cooc_mine(&mining);
		CHECK((sets == NULL) == (left == 0));
		free(sets);
	}
	free(codes);
	report("mining stops when it is told to");
}

void
test_cooc(void)
{
	test_example();
	test_rows();
	test_planted();
	test_gate();
	test_samples();
	test_stop();
}
