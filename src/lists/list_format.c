/*
 * list_format.c
 *		The format of an index with lists: planned by its options, read and
 *		checked.
 */
#include "postgres.h"

#include <math.h>

#include "lists/postings.h"

#include "page/buffer_hints.h"
#include "page/columns.h"

#define CENTROID_DIVISOR	16		/* divisor: centroids take at most 1/16 of the vectors' bytes */
#define POSTING_RESERVE	1.5		/* factor over the posting pages needed for the expected rows: with
								 * fewer rows there are fewer superblocks */
#define PQ_PART_DIMS	8		/* dimensions of a sub-space, unless pq_m is given */

/*
 * Defaults for an index served by a GPU. It compares centroids at little cost,
 * so with more lists a search reads fewer codes. Its searches of codes of 4
 * bits are a third faster than of one bit, which has more rows re-ranked, and
 * take 7 % longer than of int8, whose codes take twice the room
 * (bench/results/lists-h100.md).
 */
#define SERVED_LISTS	4		/* times the square root of the rows */
#define SERVED_BITS		4		/* of rabitq */

QuantizerShape
list_shape(const IndexFormat *format, const ListFormat *lists)
{
	return (QuantizerShape) {.kind = (QuantizerKind) lists->quantizer,
							 .metric = (Metric) format->metric,
							 .dims = format->dims,
							 .bits = lists->bits,
							 .parts = lists->parts,
							 .seed = lists->seed};
}

/* Number of pages for this many bytes. */
static uint32
pages_of(Size bytes)
{
	return (uint32) ((bytes + GPUANN_PAYLOAD - 1) / GPUANN_PAYLOAD);
}

/* Compute the pages of directory and centroids for this many lists. */
static void
layout_head(const IndexFormat *format, ListFormat *lists, uint32 room)
{
	QuantizerShape shape = list_shape(format, lists);

	lists->code_bytes = (uint32) quantizer_code_bytes(&shape);
	lists->page_entries = (GPUANN_PAYLOAD - offsetof(PostingPage, entries)) /
		(sizeof(PostingEntry) + lists->code_bytes);
	lists->directory_pages = (room + DIRECTORY_HEADS - 1) / DIRECTORY_HEADS;
	lists->centroid_pages = pages_of((Size) room * format->dims * sizeof(float));
	lists->codebook_pages = pages_of(quantizer_codebook_bytes(&shape));
}

/* Raise an error for types, metrics and dimensions that have no codes. */
static void
check_can_have_lists(Relation index, const GpuannTypeInfo *info, uint32 dims)
{
	if (info->type != ELEMENT_FLOAT && info->type != ELEMENT_HALF)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("method \"ivfpq\" supports types vector and halfvec only"),
						errhint("Use method = graph, or leave the option out.")));
	if (info->metric != METRIC_L2 && info->metric != METRIC_IP && info->metric != METRIC_COSINE)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("method \"ivfpq\" supports L2 distance, inner product and cosine "
							   "distance only"),
						errhint("Use method = graph, or leave the option out.")));
	if (dims > QUANTIZER_MAX_DIMS)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("method \"ivfpq\" supports at most %d dimensions",
							   QUANTIZER_MAX_DIMS),
						errhint("Use method = graph, or leave the option out.")));
}

/* Set the quantizer's parameters from the options. */
static void
plan_codes(const GpuannOptions *options, uint32 dims, bool served, ListFormat *lists)
{
	static const QuantizerKind kinds[] = {[GPUANN_QUANTIZER_RABITQ] = QUANTIZER_RABITQ,
										  [GPUANN_QUANTIZER_PQ] = QUANTIZER_PQ,
										  [GPUANN_QUANTIZER_INT8] = QUANTIZER_INT8};
	int			bits = options != NULL ? options->code_bits : GPUANN_UNSET;
	int			parts = options != NULL ? options->pq_m : GPUANN_UNSET;

	lists->quantizer = kinds[options != NULL ? options->quantizer : GPUANN_QUANTIZER_RABITQ];
	if (bits != GPUANN_UNSET)
		lists->bits = bits;
	else if (lists->quantizer == QUANTIZER_RABITQ)
		lists->bits = served ? SERVED_BITS : 1;
	else
		lists->bits = 8;
	if (lists->quantizer != QUANTIZER_PQ)
		return;
	if (parts != GPUANN_UNSET && (uint32) parts > dims)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("pq_m must not be greater than the number of dimensions, %u", dims)));
	lists->parts = parts != GPUANN_UNSET ? (uint32) parts : Max(dims / PQ_PART_DIMS, 1);
}

uint32
list_format_most(const IndexFormat *format, double rows)
{
	double		most = rows * format->vector_bytes /
		((double) CENTROID_DIVISOR * format->dims * sizeof(float));

	return (uint32) Max(Min(most, GPUANN_MAX_LISTS), 1);
}

/*
 * Set the number of posting pages per superblock: enough for the entries of its
 * slots, and its share of one partly filled page per list.
 */
static void
plan_postings(const GpuannTypeInfo *info, uint32 dims, uint32 columns, double rows,
			  IndexFormat *format, ListFormat *lists)
{
	uint32		head;

	for (uint32 postings = 1; postings < GPUANN_SUPERBLOCK_PAGES; postings++)
	{
		double		needed;

		layout_head(format, lists, lists->lists);
		head = lists->directory_pages + lists->centroid_pages + lists->codebook_pages;
		if (!format_compute_lists(format, info, dims, columns, postings, head))
			break;
		needed = (double) format->superblock_slots / lists->page_entries +
			lists->lists * Min(POSTING_RESERVE * format->superblock_slots / Max(rows, 1), 1);
		if (needed <= postings)
			return;
	}
	elog(ERROR, "no page layout for %u dimensions", dims);
}

void
list_format_plan(Relation index, const GpuannTypeInfo *info, uint32 dims, double expected_rows,
				 uint64 seed, bool served, IndexFormat *format, ListFormat *lists)
{
	const GpuannOptions *options = (const GpuannOptions *) index->rd_options;
	ColumnTable columns;

	column_table_plan(index, &columns);
	check_can_have_lists(index, info, dims);
	memset(lists, 0, sizeof(*lists));
	lists->seed = seed;
	plan_codes(options, dims, served, lists);
	if (!format_compute_lists(format, info, dims, columns.row_bytes, 1, 1))
		elog(ERROR, "no page layout for %u dimensions", dims);
	lists->lists = (uint32) Max(sqrt(expected_rows), 1);
	if (served)
		lists->lists = (uint32) Min(SERVED_LISTS * sqrt(expected_rows), ENGINE_MAX_LISTS);
	if (options != NULL && options->lists != GPUANN_UNSET)
		lists->lists = options->lists;
	lists->lists = Min(lists->lists, list_format_most(format, expected_rows));
	plan_postings(info, dims, columns.row_bytes, expected_rows, format, lists);
}

/* Whether a format is one that a build can have written. */
static bool
list_format_is_right(const IndexFormat *format, const ListFormat *lists)
{
	QuantizerShape shape = list_shape(format, lists);
	ListFormat	layout = *lists;

	if (!quantizer_shape_valid(&shape) || lists->lists < 1 || lists->lists > GPUANN_MAX_LISTS ||
		!(lists->built_distance >= 0))
		return false;
	layout_head(format, &layout, lists->lists);
	return layout.code_bytes == lists->code_bytes && layout.page_entries == lists->page_entries &&
		   layout.directory_pages <= lists->directory_pages &&
		   layout.centroid_pages <= lists->centroid_pages &&
		   layout.codebook_pages == lists->codebook_pages &&
		   (uint64) lists->directory_pages + lists->centroid_pages + lists->codebook_pages ==
			   format->seed_pages;
}

void
list_format_read(Relation index, const IndexFormat *format, ListFormat *lists)
{
	Buffer		buffer = read_hinted_page(index, GPUANN_META_BLOCK, PAGE_META, false);

	*lists = *ListFormatOf(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	if (!list_format_is_right(format, lists))
		report_corrupt(index, GPUANN_META_BLOCK, "the format of the lists is not consistent");
}

bool
list_format_peek(Relation index, const IndexFormat *format, ListFormat *lists)
{
	Buffer		buffer =
		peek_page(index, RelationGetNumberOfBlocks(index), GPUANN_META_BLOCK, PAGE_META);

	if (!BufferIsValid(buffer))
		return false;
	*lists = *ListFormatOf(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	return list_format_is_right(format, lists);
}
