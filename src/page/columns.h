/*
 * columns.h
 *		Columns that an index includes (INCLUDE): their table on the metapage,
 *		and their values on column pages.
 *
 * A slot has a record on a column page: the TID of its row, which of the
 * columns are NULL, then the values, in their order, without padding. Records
 * are a multiple of 4 bytes long; one without a TID has never been used.
 *
 * A record is written before the one that makes its row exist, under the append
 * lock, and a slot keeps its row, and these values, while some snapshot sees
 * the row. So whoever has read the end of the pending list after taking a
 * snapshot can read the values of every row that this snapshot sees; what it
 * reads of other slots may be of a row that is gone, or of one to come.
 */
#ifndef GPUANN_COLUMNS_H
#define GPUANN_COLUMNS_H

#include "engine/filter.h"
#include "page/pages.h"

#define GPUANN_MAX_COLUMNS		FILTER_MAX_COLUMNS
#define GPUANN_MAX_COLUMN_BYTES 128 /* of the values of a row */

typedef struct StoredColumn
{
	uint16		kind;			/* FilterKind */
	uint16		offset;			/* in a record */
} StoredColumn;

/* Fixed at build time: stored on the metapage. */
struct ColumnTable
{
	uint32		count;
	uint32		row_bytes;		/* of a record: IndexFormat's column_bytes */
	StoredColumn columns[GPUANN_MAX_COLUMNS];
};

typedef struct ColumnRecord
{
	ItemPointerData tid;
	uint16		nulls;			/* bit i: column i is NULL */
	char		values[FLEXIBLE_ARRAY_MEMBER];
} ColumnRecord;

#define GPUANN_MAX_RECORD_BYTES (offsetof(ColumnRecord, values) + GPUANN_MAX_COLUMN_BYTES)

#define ColumnTableOf(page)		((ColumnTable *) (PageGetContents(page) + GPUANN_META_COLUMNS))

/* The kinds of the columns. */
static inline void
column_kinds(const ColumnTable *table, FilterKind *kinds)
{
	for (uint32 i = 0; i < table->count; i++)
		kinds[i] = (FilterKind) table->columns[i].kind;
}

/* A slot's record on its page. */
static inline ColumnRecord *
column_record(const IndexFormat *format, Page page, uint32 slot)
{
	return (ColumnRecord *) (PageGetContents(page) +
							 (Size) column_index(format, slot) * format->column_bytes);
}

/* How values of a type are stored; FILTER_NO_KIND: they cannot be. */
extern FilterKind column_kind(Oid type);

/*
 * Lay out the columns that an index includes, by its definition; count and
 * row_bytes are 0 if there are none. Raises an error if they are too many, too
 * long, or of a type that cannot be stored.
 */
extern void column_table_plan(Relation index, ColumnTable *table);

/* The same of columns of these types, for an index that is not there yet. */
extern void column_table_of(const Oid *types, int count, ColumnTable *table);

/* Write the table to a metapage that is being made. */
extern void column_table_write(Page page, const ColumnTable *table);

/*
 * The table of an index that includes columns, cached; checked when it is read
 * from the metapage.
 */
extern const ColumnTable *index_columns(Relation index);

/*
 * The same for the planner: NULL, and no error, if there is none or it is
 * damaged.
 */
extern const ColumnTable *peek_columns(Relation index);

/*
 * Fill the record of a row, of table->row_bytes bytes; values and isnull are
 * those of the index's columns, the vector first. Memory may be allocated in
 * the current context.
 */
extern void column_record_form(Relation index, const ColumnTable *table, const Datum *values,
							   const bool *isnull, const ItemPointerData *tid,
							   ColumnRecord *record);

/*
 * Copy the records of `count` slots of one superblock, from `first` on, that
 * have been used.
 */
extern void read_columns(Relation index, const IndexFormat *format, uint32 first, uint32 count,
						 void *records);

/* Two doubles between which a numeric lies; equal if it is one. */
extern void numeric_bounds(Datum value, double bounds[2]);

/* A text, as filter_text() has it. */
extern void text_bytes(Datum value, unsigned char to[16]);

/* The number by which an element of this type is known in a set of tags. */
extern uint32 tag_number(Oid type, Datum value);

#endif							/* GPUANN_COLUMNS_H */
