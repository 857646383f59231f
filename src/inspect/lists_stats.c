/*
 * lists_stats.c
 *		gpuann_lists(index): how an index's rows are spread over its lists, and
 *		how far rows that came since the build are from their centroids.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "base/signature.h"
#include "base/sql_row.h"
#include "base/sql_index.h"
#include "lists/postings.h"
#include "page/buffer_hints.h"

#define LISTS_COLUMNS	15

/* What the directory says. */
typedef struct ListsSummary
{
	uint64		rows;
	uint32		empty;
	uint32		least;
	uint32		most;
	uint32		used;			/* posting pages */
	uint64		added_rows;
	double		added_distance;
} ListsSummary;

/* Read the directory. */
static void
summarize(Relation index, const ListFormat *lists, ListsSummary *summary)
{
	Buffer		buffer = read_hinted_page(index, directory_block(0), PAGE_DIRECTORY, false);
	const DirectoryPage *first = DirectoryOf(BufferGetPage(buffer));

	memset(summary, 0, sizeof(*summary));
	summary->used = first->used;
	summary->added_rows = first->added_rows;
	summary->added_distance = first->added_distance;
	UnlockReleaseBuffer(buffer);
	summary->least = PG_UINT32_MAX;
	for (uint32 list = 0; list < lists->lists; list++)
	{
		uint32		entries = read_list_head(index, list).entries;

		CHECK_FOR_INTERRUPTS();
		summary->rows += entries;
		summary->empty += entries == 0;
		summary->least = Min(summary->least, entries);
		summary->most = Max(summary->most, entries);
	}
}

/* The mean of squared distances; 0: there are none. */
static double
mean_distance(double sum, uint64 rows)
{
	return rows == 0 ? 0 : sum / rows;
}

static const char *
quantizer_name(uint16 kind)
{
	return kind == QUANTIZER_RABITQ ? "rabitq" : kind == QUANTIZER_PQ ? "pq" : "int8";
}

/* Fill in the row. */
static void
lists_fill_row(const IndexFormat *format, const ListFormat *lists, const ListsSummary *summary,
			   SqlRow *row)
{
	double		built = mean_distance(lists->built_distance, lists->built_rows);
	double		added = mean_distance(summary->added_distance, summary->added_rows);
	bool		compared = built > 0 && summary->added_rows > 0;

	row_put(row, Int32GetDatum((int32) lists->lists));
	row_put(row, Int64GetDatum((int64) summary->rows));
	row_put(row, Int32GetDatum((int32) summary->empty));
	row_put(row, Int64GetDatum(summary->least));
	row_put(row, Float8GetDatum((double) summary->rows / lists->lists));
	row_put(row, Int64GetDatum(summary->most));
	row_put(row, CStringGetTextDatum(quantizer_name(lists->quantizer)));
	row_put(row, Int32GetDatum(lists->bits));
	row_put(row, Int32GetDatum((int32) lists->code_bytes));
	row_put(row, Int64GetDatum((int64) summary->used * BLCKSZ));
	row_put(row, Int64GetDatum((int64) format->seed_pages * BLCKSZ));
	row_put(row, Int64GetDatum((int64) summary->added_rows));
	row_put_if(row, lists->built_rows > 0, Float8GetDatum(built));
	row_put_if(row, summary->added_rows > 0, Float8GetDatum(added));
	row_put_if(row, compared, Float8GetDatum(compared ? added / built - 1 : 0));
}

PG_FUNCTION_INFO_V1(gpuann_lists);

/* gpuann_lists(index): one row about its lists; nulls if it is a graph. */
Datum
gpuann_lists(PG_FUNCTION_ARGS)
{
	SqlIndex	opened;
	const IndexFormat *format;
	ListFormat	lists;
	ListsSummary summary;
	SqlRow		row = {0};

	signature_check(fcinfo, "regclass",
					"int4,int8,int4,int8,float8,int8,text,int4,int4,int8,int8,int8,float8,float8,"
					"float8");
	sql_index_open(PG_GETARG_OID(0), AccessShareLock, SQL_INDEX_WATCH, &opened);
	format = index_format(opened.index);
	if (format_has_lists(format))
	{
		list_format_read(opened.index, format, &lists);
		summarize(opened.index, &lists, &summary);
		lists_fill_row(format, &lists, &summary, &row);
	}
	while (row.count < LISTS_COLUMNS)
		row_put_if(&row, false, (Datum) 0);
	sql_index_close(&opened);
	return row_return(fcinfo, &row);
}
