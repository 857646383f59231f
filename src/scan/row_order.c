/*
 * row_order.c
 *		Rows in the order of the operator's values.
 *
 * The index orders by double-precision distances, but the operator returns
 * single precision: rows whose distances differ by no more than rounding may
 * have their values in reverse order. A row is returned when its value is at
 * most the least value that any row after it can have
 * (engine/operator_bounds.h). So the operator is called only for neighbours
 * that are this near; on the elements stored in the index, which are those of
 * the table.
 */
#include "base/base.h"

#include "access/relscan.h"
#include "scan/scan.h"
#include "utils/float.h"
#include "utils/memutils.h"

/* A row that waits, in the order's heap. */
typedef struct HeldRow
{
	pairingheap_node node;
	ScanRow		row;
} HeldRow;

/*
 * Put a row into its place: mostly the last.
 */
void
scan_rows_insert(GpuannScan *scan, ScanRows *rows, const ScanRow *row)
{
	uint64		at;

	if (rows->count == rows->allocated)
	{
		rows->allocated = Max(rows->allocated * 2, 16);
		rows->rows = rows->rows == NULL
						 ? MemoryContextAllocHuge(scan->memory, rows->allocated * sizeof(ScanRow))
						 : repalloc_huge(rows->rows, rows->allocated * sizeof(ScanRow));
	}
	for (at = rows->count++;
		 at > rows->settled &&
		 engine_before(row->distance, row->slot, rows->rows[at - 1].distance,
					   rows->rows[at - 1].slot);
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

/* Heap order: by value, then by slot. */
static int
compare_held(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	const ScanRow *x = &pairingheap_const_container(HeldRow, node, a)->row;
	const ScanRow *y = &pairingheap_const_container(HeldRow, node, b)->row;
	int			order = float8_cmp_internal(y->value, x->value);

	return order != 0 ? order : x->slot < y->slot ? 1 : x->slot > y->slot ? -1 : 0;
}

/* Let a row wait. */
static void
hold(GpuannScan *scan, RowOrder *order, const ScanRow *row)
{
	MemoryContext old = MemoryContextSwitchTo(scan->memory);
	HeldRow    *held = palloc(sizeof(HeldRow));

	if (order->held == NULL)
		order->held = pairingheap_allocate(compare_held, NULL);
	held->row = *row;
	pairingheap_add(order->held, &held->node);
	MemoryContextSwitchTo(old);
}

/* Whether rows wait. */
static bool
holds_any(const RowOrder *order)
{
	return order->held != NULL && !pairingheap_is_empty(order->held);
}

/*
 * Return the first of the waiting rows, if no row after it can have a lesser
 * value.
 */
static bool
release(RowOrder *order, ScanRow *row)
{
	HeldRow    *first;

	if (!holds_any(order))
		return false;
	first = pairingheap_container(HeldRow, node, pairingheap_first(order->held));
	if (!order->drained && !value_not_after(first->row.value, order->least))
		return false;
	*row = first->row;
	pairingheap_remove_first(order->held);
	pfree(first);
	return true;
}

/*
 * The next row in the order of the operator's values.
 */
bool
scan_next_in_order(IndexScanDesc desc, RowOrder *order, ScanRow *row)
{
	GpuannScan *scan = desc->opaque;
	const OperatorBounds *bounds = &scan->bounds_of_value;
	double		following;

	for (;;)
	{
		if (release(order, row))
			return true;
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
		if (!holds_any(order) &&
			value_not_after(operator_most(bounds, row->distance), order->least))
			return true;
		scan_row_value(desc, row);
		hold(scan, order, row);
	}
}
