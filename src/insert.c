/*
 * insert.c
 *		aminsert: append the row, wake the mirror's worker, and link pending
 *		rows if no other process does. No graph search.
 */
#include "base/handler.h"

#include "client/client.h"
#include "link/link.h"
#include "page/columns.h"
#include "page/pending.h"

/*
 * Append a row of these elements, with the columns that the index includes.
 */
static void
append(Relation index, const IndexFormat *format, const void *elements, const Datum *values,
	   const bool *isnull, ItemPointer tid)
{
	union
	{
		ColumnRecord record;
		char		bytes[GPUANN_MAX_RECORD_BYTES];
	}			columns;

	if (format->column_bytes > 0)
		column_record_form(index, index_columns(index), values, isnull, tid, &columns.record);
	append_row(index, format, elements, format->column_bytes > 0 ? &columns.record : NULL, tid);
}

/*
 * Insert a row. NULL and, for cosine, zero vectors are not indexed.
 */
bool
gpuanninsert(Relation index, Datum *values, bool *isnull, ItemPointer tid, Relation heap,
			 IndexUniqueCheck unique, bool unchanged, IndexInfo *info)
{
	const IndexFormat *format = index_format(index);
	const void *elements;
	Pointer		copy;

	if (gpuann_value_elements(gpuann_type_info(index), format->dims, values[0], isnull[0],
							  &elements, &copy))
	{
		append(index, format, elements, values, isnull, tid);
		client_note_change(index);
		link_if_crowded(index, format);
	}
	if (copy != NULL)
		pfree(copy);
	return false;
}
