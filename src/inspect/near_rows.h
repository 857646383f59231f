/*
 * near_rows.h
 *		The nearest visible rows of many vectors, by one index, for SQL
 *		functions.
 */
#ifndef GPUANN_NEAR_ROWS_H
#define GPUANN_NEAR_ROWS_H

#include "scan/scan.h"
#include "base/sql_index.h"

#define NEAR_ROWS_MAX_K	ENGINE_MAX_EF

/* An index that is searched, by the caller's snapshot. */
typedef struct NearRows
{
	SqlIndex	opened;
	Relation	index;
	const IndexFormat *format;
	const GpuannTypeInfo *type;
	Snapshot	snapshot;
	IndexScanDesc scan;
	TupleTableSlot *row;		/* of the table */
	BlockNumber heap_blocks;	/* as last asked */
	FmgrInfo	distance;		/* the operator's function */
	uint32		wanted;
	ScanKind	kind;
} NearRows;

/*
 * Open an index for a function that uses it so. Settings made until
 * near_rows_close() last no longer.
 */
extern void near_rows_open(NearRows *near, Oid index, SqlIndexUse use);
extern void near_rows_close(NearRows *near);
extern void near_rows_set(const char *setting, const char *value);

/* From here on find this many rows, with the settings as they are now. */
extern void near_rows_want(NearRows *near, uint32 wanted);

/* How many vectors to ask about at once: what half of work_mem holds. */
extern uint32 near_rows_batch(const NearRows *near);

/*
 * Whether the snapshot sees the row of a slot: the one at this TID, or a later
 * version in its HOT chain, whose TID *tid becomes.
 */
extern bool near_rows_visible(NearRows *near, uint32 slot, ItemPointer tid);

/* A value of the indexed type from its elements; palloc'd. */
extern Datum near_rows_value(const NearRows *near, const void *elements);

/*
 * Have a server give the first answers of vectors that are consecutive;
 * answers are palloc'd.
 */
extern void near_rows_ask(const NearRows *near, const void *vectors, uint32 count,
						  FirstAnswer *first);

/*
 * Find the nearest visible rows: those wanted, fewer if there are fewer, in the
 * order of the operator's values, then of slots. TIDs are of the versions that
 * the snapshot sees. They are valid until the next call.
 */
extern const ScanRow *near_rows_find(NearRows *near, Datum query, FirstAnswer *first,
									 uint32 *count);

#endif							/* GPUANN_NEAR_ROWS_H */
