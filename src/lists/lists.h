/*
 * lists.h
 *		Lists of codes: their format, and the shape of their codes.
 *
 * An index with lists (method ivfpq) has its rows in node and vector pages like
 * any other. Beside these each row has an entry in the list of its nearest
 * centroid: slot, version, and a code from which its distance is estimated.
 */
#ifndef GPUANN_LISTS_H
#define GPUANN_LISTS_H

#include "page/pages.h"

#include "engine/quantizer/quantizer.h"

/*
 * Fixed at build time: stored on the metapage, behind MetaPage. Blocks 1 to
 * format->seed_pages are directory, then centroids (float, dims each), then the
 * codebook.
 */
typedef struct ListFormat
{
	uint32		lists;
	uint16		quantizer;		/* QuantizerKind */
	uint16		bits;
	uint32		parts;			/* pq: sub-spaces */
	uint32		code_bytes;
	uint32		page_entries;	/* entries of a posting page */
	uint32		directory_pages;
	uint32		centroid_pages;
	uint32		codebook_pages;
	uint64		seed;
	uint64		built_rows;		/* rows in lists after the build, ... */
	double		built_distance;	/* ... and the sum of their squared distances from their
								 * centroids */
} ListFormat;

#define ListFormatOf(page) \
	((ListFormat *) (PageGetContents(page) + MAXALIGN(sizeof(MetaPage))))
#define LIST_FORMAT_END		(MAXALIGN(sizeof(MetaPage)) + sizeof(ListFormat))

/*
 * Lay out an index for this many expected rows by its options; defaults depend
 * on whether a GPU serves it. The number of lists may be lowered after the rows
 * have been counted. Raises an error for types that cannot be in lists.
 */
extern void list_format_plan(Relation index, const GpuannTypeInfo *info, uint32 dims,
							 double expected_rows, uint64 seed, bool served,
							 IndexFormat *format, ListFormat *lists);

/*
 * Maximum number of lists for this many rows: centroids take at most 1/16 of
 * the vectors' bytes.
 */
extern uint32 list_format_most(const IndexFormat *format, double rows);

/* Read it from the metapage, and check it. */
extern void list_format_read(Relation index, const IndexFormat *format, ListFormat *lists);

/*
 * The same for the planner: returns false, without an error, if the page is
 * damaged.
 */
extern bool list_format_peek(Relation index, const IndexFormat *format, ListFormat *lists);

/* The shape of its codes. */
extern QuantizerShape list_shape(const IndexFormat *format, const ListFormat *lists);

/* Where centroids and the codebook begin. */
static inline BlockNumber
centroid_start(const ListFormat *lists)
{
	return 1 + lists->directory_pages;
}

static inline BlockNumber
codebook_start(const ListFormat *lists)
{
	return 1 + lists->directory_pages + lists->centroid_pages;
}

#endif							/* GPUANN_LISTS_H */
