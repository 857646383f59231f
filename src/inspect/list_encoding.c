/*
 * list_encoding.c
 *		gpuann_list_encoding(index): report how co-occurrence codes would
 *		compress each list (src/engine/quantizer/cooc.h).
 *
 * Lists are read from pages, one after the other, mined and encoded as the CPU
 * engine does it with a mirror; it keeps places in another order, so that its
 * sample, and blocks, are others.
 */
#include "postgres.h"

#include <stdlib.h>

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

#include "base/base.h"
#include "base/signature.h"
#include "base/sql_row.h"
#include "engine/quantizer/cooc.h"
#include "inspect/list_work.h"
#include "lists/postings.h"

#define ROWS_AT_ONCE		(QUANTIZER_BLOCK * 64)	/* rows encoded between checks for interrupts */

/* The codes of a list, without what follows their words. */
typedef struct ListCodes
{
	const ListFormat *lists;
	uint32		list;
	unsigned char *codes;		/* lists->parts bytes each */
	uint64		count;
	uint64		most;			/* that there is memory for */
	uint64		room;			/* at most a page's more */
} ListCodes;

/* The result for a list. */
typedef struct ListEncoding
{
	uint64		rows;
	uint32		sets;
	uint64		padded;			/* words */
	bool		pays;
} ListEncoding;

/* ListVisitor.begin: start a list, or restart it after a concurrent change. */
static void
forget_codes(void *context)
{
	((ListCodes *) context)->count = 0;
}

/* Error out if a list's codes are more than maintenance_work_mem. */
static void
check_memory(const ListCodes *codes, uint64 count)
{
	if (count > codes->most)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("codes of list %u need more than maintenance_work_mem", codes->list),
				 errdetail("The list has " UINT64_FORMAT " codes of %u bytes or more.", count,
						   codes->lists->parts),
				 errhint("Raise maintenance_work_mem to " UINT64_FORMAT " MB at least.",
						 count * codes->lists->parts / (1024 * 1024) + 1)));
}

/* Make room for the entries of one more page. */
static void
codes_make_room(void *context)
{
	ListCodes  *codes = context;

	check_memory(codes, codes->count);
	if (codes->room - codes->count >= codes->lists->page_entries)
		return;
	codes->room = Min(codes->room + codes->room / 2, codes->most) + codes->lists->page_entries;
	codes->codes = repalloc_huge(codes->codes, codes->room * codes->lists->parts);
}

/* Copy the codes of a page. */
static void
take_codes(void *context, const PostingEntry *entries, const unsigned char *from, uint32 count)
{
	ListCodes  *codes = context;
	uint32		parts = codes->lists->parts;

	for (uint32 i = 0; i < count && codes->count < codes->room; i++)
		memcpy(codes->codes + codes->count++ * parts,
			   from + (Size) i * codes->lists->code_bytes, parts);
}

/* Read the codes of a list. */
static void
read_codes(Relation index, const ListFormat *lists, uint32 list, ListCodes *codes)
{
	ListVisitor visitor = {.begin = forget_codes,
						   .take = take_codes,
						   .taken = codes_make_room,
						   .context = codes};
	uint32		entries = read_list_head(index, list).entries;

	codes->lists = lists;
	codes->list = list;
	codes->most = (uint64) maintenance_work_mem * 1024 / lists->parts;
	check_memory(codes, entries);
	codes->room = (uint64) entries + lists->page_entries;
	codes->codes = MemoryContextAllocHuge(CurrentMemoryContext, codes->room * lists->parts);
	list_visit(index, index_format(index), lists, list, &visitor);
}

/*
 * Copy the blocks of a list from which sets are mined; returns how many rows
 * they have.
 */
static uint32
sample_codes(const ListCodes *codes, unsigned char *sample)
{
	Size		bytes = (Size) QUANTIZER_BLOCK * codes->lists->parts;
	uint32		blocks = (uint32) (codes->count / QUANTIZER_BLOCK);
	uint32		taken = 0;

	for (uint32 block = 0; block < blocks; block += cooc_mined_step(blocks))
		memcpy(sample + taken++ * bytes, codes->codes + block * bytes, bytes);
	return taken * QUANTIZER_BLOCK;
}

/* Mine sets, interruptibly. */
static CoocSets *
mine_interruptibly(CoocMining *mining)
{
	CaughtInterrupt caught = {.memory = CurrentMemoryContext};
	CoocSets   *sets;

	mining->stop = interrupt_caught;
	mining->context = &caught;
	sets = cooc_mine(mining);
	interrupt_rethrow(&caught);
	if (sets == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"),
						errdetail("Failed on mining %zu bytes of codes.",
								  (Size) mining->rows * mining->parts)));
	return sets;
}

/* Mine sets of a list's codes, and decide as `auto` does. */
static CoocSets *
mine_sets(const ListCodes *codes, uint64 seed, ListEncoding *encoding)
{
	uint32		parts = codes->lists->parts;
	unsigned char *sample = palloc((Size) COOC_MINED_BLOCKS * QUANTIZER_BLOCK * parts);
	CoocMining	mining = {.codes = sample, .stride = parts, .parts = parts, .seed = seed,
						  .rows = sample_codes(codes, sample)};
	CoocSets   *sets = mine_interruptibly(&mining);

	encoding->sets = sets->count;
	if (sets->count > 0)
	{
		CoocGain	gain = cooc_gain(sets, sample, parts, mining.rows);

		gain.rows = codes->count;
		encoding->pays = cooc_takes(COOC_AUTO, parts) && cooc_pays(&gain);
	}
	pfree(sample);
	return sets;
}

/* Count the words of a list. The sets are not palloc'd; frees them. */
static void
count_words(const ListCodes *codes, CoocSets *sets, ListEncoding *encoding)
{
	PG_TRY();
	{
		for (uint64 first = 0; first < codes->count; first += ROWS_AT_ONCE)
		{
			uint32		rows = (uint32) Min(codes->count - first, ROWS_AT_ONCE);

			CHECK_FOR_INTERRUPTS();
			encoding->padded += cooc_gain(sets, codes->codes + first * sets->parts,
										  sets->parts, rows).padded;
		}
	}
	PG_FINALLY();
	{
		free(sets);
	}
	PG_END_TRY();
}

/* What encoding a list would give; one that has no whole block stays plain. */
static ListEncoding
measure_encoding(Relation index, const ListFormat *lists, uint32 list)
{
	ListEncoding encoding = {0};
	ListCodes	codes;

	read_codes(index, lists, list, &codes);
	encoding.rows = codes.count;
	if (codes.count >= cooc_least_rows(COOC_ON))
		count_words(&codes, mine_sets(&codes, lists->seed + list, &encoding), &encoding);
	else
		encoding.padded = codes.count * lists->parts;
	return encoding;
}

/* Errors out unless lists have codes that can be encoded. */
static void
check_codes(Relation index, const ListFormat *lists)
{
	if (lists->quantizer != QUANTIZER_PQ || lists->bits != 8)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("codes of index \"%s\" are not those of quantizer \"pq\" with 8 bits",
							   RelationGetRelationName(index)),
						errhint("Only these can be scanned by items that occur together.")));
	if (!cooc_takes(COOC_ON, lists->parts))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("codes of index \"%s\" have %u sub-spaces",
							   RelationGetRelationName(index), lists->parts),
						errhint("Codes of %d to %d can be scanned by items that occur together.",
								COOC_LENGTH, COOC_MAX_PARTS)));
}

/* Whether mirrors encode a list, by the index's option. */
static bool
is_encoded(const ListEncoding *encoding, CoocMode mode)
{
	return mode == COOC_ON ? encoding->sets > 0 : mode == COOC_AUTO && encoding->pays;
}

static const char *
mode_name(CoocMode mode)
{
	return mode == COOC_ON ? "on" : mode == COOC_OFF ? "off" : "auto";
}

/* Fill in the row of a list. */
static void
encoding_fill_row(const ListFormat *lists, const ListEncoding *encoding, uint32 list, CoocMode mode,
				  SqlRow *row)
{
	double		plain = (double) encoding->rows * lists->parts;
	bool		empty = encoding->rows == 0;

	row_put(row, Int32GetDatum((int32) list));
	row_put(row, Int64GetDatum((int64) encoding->rows));
	row_put(row, Int32GetDatum((int32) encoding->sets));
	row_put(row, Int32GetDatum((int32) lists->parts));
	row_put_if(row, !empty,
			   Float8GetDatum(empty ? 0 : (double) encoding->padded / (double) encoding->rows));
	row_put(row, Int64GetDatum((int64) (encoding->rows * lists->parts)));
	row_put(row, Int64GetDatum((int64) (encoding->padded * sizeof(uint16))));
	row_put_if(row, !empty, Float8GetDatum(empty ? 0 : 1 - (double) encoding->padded / plain));
	row_put(row, BoolGetDatum(encoding->pays));
	row_put(row, CStringGetTextDatum(mode_name(mode)));
	row_put(row, BoolGetDatum(is_encoded(encoding, mode)));
}

PG_FUNCTION_INFO_V1(gpuann_list_encoding);

/* gpuann_list_encoding(index): a row for each list. */
Datum
gpuann_list_encoding(PG_FUNCTION_ARGS)
{
	SqlRow		row = {0};
	SqlIndex	opened;
	ListFormat	lists;
	ListEncoding *encodings;
	CoocMode	mode = COOC_OFF;
	MemoryContext of_list;

	signature_check(fcinfo, "regclass",
					"int4,int8,int4,int4,float8,int8,int8,float8,bool,text,bool");
	/* first, because it raises an error if the caller cannot accept a set */
	InitMaterializedSRF(fcinfo, 0);
	list_work_open(PG_GETARG_OID(0), &opened);
	list_format_read(opened.index, index_format(opened.index), &lists);
	check_codes(opened.index, &lists);
	if (opened.index->rd_options != NULL)
		mode = (CoocMode) ((const GpuannOptions *) opened.index->rd_options)->cooc;
	encodings = palloc(sizeof(ListEncoding) * lists.lists);
	of_list = AllocSetContextCreate(CurrentMemoryContext, "gpuann list encoding",
									ALLOCSET_DEFAULT_SIZES);
	for (uint32 list = 0; list < lists.lists; list++)
	{
		MemoryContext before = MemoryContextSwitchTo(of_list);

		CHECK_FOR_INTERRUPTS();
		encodings[list] = measure_encoding(opened.index, &lists, list);
		MemoryContextSwitchTo(before);
		MemoryContextReset(of_list);
	}
	sql_index_close(&opened);
	for (uint32 list = 0; list < lists.lists; list++)
	{
		encoding_fill_row(&lists, &encodings[list], list, mode, &row);
		row_add(fcinfo, &row);
	}
	PG_RETURN_NULL();
}
