/*
 * insert.c
 *		aminsert: append the row, wake the mirror's worker, and link pending
 *		rows if no other process does. No graph search.
 */
#include "base/handler.h"

#include "client/client.h"
#include "link/link.h"
#include "page/pages.h"
#include "page/pending.h"

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
		append_row(index, format, elements, tid);
		client_note_change(index);
		link_if_crowded(index, format);
	}
	if (copy != NULL)
		pfree(copy);
	return false;
}
