/*
 * row_order.c
 *		Rows in the order of the operator's values.
 *
 * The index orders by double-precision distances, the operator returns single
 * precision: rows whose distances lie within rounding of each other may have
 * their values the other way round. A row is given when its value is at most
 * the least value that any row after it can have (engine/operator_bounds.h). So
 * the operator is called only where neighbours are that near; on the elements
 * stored in the index, which are the table's.
 */
#include "base/base.h"

#include "access/relscan.h"
#include "scan/scan.h"
#include "utils/float.h"
#include "utils/memutils.h"

/*
 * Whether a row comes before another.
 */
static bool
row_before(const ScanRow *a, const ScanRow *b, bool by_value)
{
	if (!by_value)
		return engine_before(a->distance, a->slot, b->distance, b->slot);
	if (float8_eq(a->value, b->value))
		return a->slot < b->slot;
	return float8_lt(a->value, b->value);
}

/*
 * Put a row into its place: mostly the last.
 */
void
scan_rows_insert(GpuannScan *scan, ScanRows *rows, const ScanRow *row, bool by_value)
{
	uint64		at;

	if (rows->count == rows->allocated)
	{
		rows->allocated = Max(rows->allocated * 2, 16);
		rows->rows = rows->rows == NULL
						 ? MemoryContextAllocHuge(scan->memory, rows->allocated * sizeof(ScanRow))
						 : repalloc_huge(rows->rows, rows->allocated * sizeof(ScanRow));
	}
	if (rows->first > rows->count / 2)
	{
		rows->count -= rows->first;
		memmove(rows->rows, rows->rows + rows->first, rows->count * sizeof(ScanRow));
		rows->first = 0;
	}
	for (at = rows->count++; at > rows->first && row_before(row, &rows->rows[at - 1], by_value);
		 at--)
		rows->rows[at] = rows->rows[at - 1];
	rows->rows[at] = *row;
}

/*
 * Call the operator on the stored elements of a row.
 */
void
scan_row_value(IndexScanDesc desc, ScanRow *row)
{
	GpuannScan *scan = desc->opaque;
	const IndexFormat *format = scan->format;
	ScanKey		key = &desc->orderByData[0];

	if (row->valued || (key->sk_flags & SK_ISNULL))
		return;
	if (scan->value == NULL)
	{
		scan->value =
			MemoryContextAllocZero(scan->memory, gpuann_value_bytes(scan->type, format->dims));
		scan->elements = gpuann_value_begin(scan->type, format->dims, scan->value);
	}
	if (scan->value_slot != row->slot)
		read_vector(desc->indexRelation, format, row->slot, scan->elements);
	scan->value_slot = row->slot;
	row->value = DatumGetFloat8(FunctionCall2Coll(
		&key->sk_func, key->sk_collation, PointerGetDatum(scan->value), key->sk_argument));
	row->valued = true;
}

/*
 * The next row in the order of the operator's values.
 */
bool
scan_next_in_order(IndexScanDesc desc, RowOrder *order, ScanRow *row)
{
	GpuannScan *scan = desc->opaque;
	const OperatorBounds *bounds = &scan->bounds_of_value;
	ScanRows   *held = &order->held;
	double		following;

	for (;;)
	{
		if (held->first < held->count &&
			(order->drained || value_not_after(held->rows[held->first].value, order->least)))
		{
			*row = held->rows[held->first++];
			return true;
		}
		if (order->drained)
			return false;
		if (!order->next(order->source, row, &following))
		{
			order->drained = true;
			continue;
		}
		/* All are equal to a query that is NULL or has no direction. */
		if (scan->query.vector == NULL)
			return true;
		order->least = operator_least(bounds, following);
		if (held->first == held->count)
		{
			held->first = held->count = 0;
			if (value_not_after(operator_most(bounds, row->distance), order->least))
				return true;
		}
		scan_row_value(desc, row);
		scan_rows_insert(scan, held, row, true);
	}
}
