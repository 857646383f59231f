/*
 * sql_row.h
 *		Rows that functions of the SQL interface return, column by column.
 */
#ifndef GPUANN_SQL_ROW_H
#define GPUANN_SQL_ROW_H

#include "fmgr.h"

#define SQL_ROW_COLUMNS 64		/* at most */

/* A row being built; {0} is empty. */
typedef struct SqlRow
{
	int			count;
	Datum		values[SQL_ROW_COLUMNS];
	bool		nulls[SQL_ROW_COLUMNS];
} SqlRow;

/* Add a column: NULL unless the value is known. */
static inline void
row_put_if(SqlRow *row, bool known, Datum value)
{
	Assert(row->count < SQL_ROW_COLUMNS);
	row->nulls[row->count] = !known;
	row->values[row->count++] = value;
}

static inline void
row_put(SqlRow *row, Datum value)
{
	row_put_if(row, true, value);
}

/*
 * What the function that is being called returns: this row. All its columns
 * have been added.
 */
extern Datum row_return(FunctionCallInfo fcinfo, SqlRow *row);
/* Add the row to its result (InitMaterializedSRF()), and empty it. */
extern void row_add(FunctionCallInfo fcinfo, SqlRow *row);

#endif							/* GPUANN_SQL_ROW_H */
