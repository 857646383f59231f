/*
 * search.c
 *		gpuann_search(index, vectors, k, ef): the nearest rows of many vectors;
 *		gpuann_knn_graph(index, k, ef, exact): those of each row of the index.
 *
 * Rows are told by TID, so they are of the calling query's snapshot only.
 * Results go into a tuplestore, batch by batch; memory stays within work_mem.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/memutils.h"

#include "base/signature.h"
#include "base/sql_row.h"
#include "inspect/near_rows.h"

/* A vector that is asked about. */
typedef struct BatchQuery
{
	int32		number;			/* gpuann_search: place in the array, from 1 on */
	uint32		slot;			/* gpuann_knn_graph: of the row, */
	ItemPointerData tid;		/* ... which the snapshot sees here */
} BatchQuery;

/* Vectors that are asked about together. */
typedef struct Batch
{
	NearRows	near;
	uint32		k;
	MemoryContext memory;		/* of a batch */
	MemoryContext old;
	uint32		room;
	uint32		count;
	BatchQuery *queries;
	char	   *vectors;		/* their elements, one after another */
	FirstAnswer *first;
} Batch;

/* An argument between 1 and most. */
static uint32
batch_argument(const char *name, int32 value, int32 most)
{
	if (value < 1 || value > most)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must be between 1 and %d", name, most)));
	return (uint32) value;
}

/* Open the index, with arguments k and ef; `wanted` rows of each vector. */
static void
batch_begin(FunctionCallInfo fcinfo, int ef, bool exact, uint32 wanted, Batch *batch)
{
	if (!PG_ARGISNULL(ef))
		(void) batch_argument("ef", PG_GETARG_INT32(ef), GPUANN_MAX_EF_SEARCH);
	InitMaterializedSRF(fcinfo, 0);
	near_rows_open(&batch->near, PG_GETARG_OID(0), SQL_INDEX_ROWS);
	if (!PG_ARGISNULL(ef))
		near_rows_set("gpuann.ef_search", psprintf("%d", PG_GETARG_INT32(ef)));
	if (exact)
		near_rows_set("gpuann.exact", "on");
	near_rows_want(&batch->near, wanted);
	batch->room = near_rows_batch(&batch->near);
	batch->queries = palloc(sizeof(BatchQuery) * batch->room);
	batch->first = palloc(sizeof(FirstAnswer) * batch->room);
	batch->vectors =
		palloc_extended(mul_size(batch->room, batch->near.format->vector_bytes), MCXT_ALLOC_HUGE);
	batch->memory =
		AllocSetContextCreate(CurrentMemoryContext, "gpuann batch", ALLOCSET_DEFAULT_SIZES);
}

static void
batch_end(Batch *batch)
{
	near_rows_close(&batch->near);
	MemoryContextDelete(batch->memory);
}

static char *
batch_vector(const Batch *batch, uint32 i)
{
	return batch->vectors + (Size) i * batch->near.format->vector_bytes;
}

/* Add a row of the result. */
static void
put_row(FunctionCallInfo fcinfo, const Batch *batch, const BatchQuery *query, int32 rank,
		const ScanRow *found)
{
	SqlRow		row = {0};

	if (query->slot == NO_SLOT)
	{
		row_put(&row, Int32GetDatum(query->number));
		row_put(&row, Int32GetDatum(rank));
	}
	else
		row_put(&row, PointerGetDatum(&query->tid));
	row_put(&row, PointerGetDatum(&found->tid));
	row_put(&row, Float8GetDatum(found->value));
	row_add(fcinfo, &row);
}

/* Answer the batch, and empty it. A row is not its own neighbour. */
static void
batch_answer(FunctionCallInfo fcinfo, Batch *batch)
{
	MemoryContext old = MemoryContextSwitchTo(batch->memory);

	near_rows_ask(&batch->near, batch->vectors, batch->count, batch->first);
	for (uint32 i = 0; i < batch->count; i++)
	{
		const BatchQuery *query = &batch->queries[i];
		Datum		value = near_rows_value(&batch->near, batch_vector(batch, i));
		uint32		count;
		const ScanRow *rows;
		uint32		rank = 0;

		CHECK_FOR_INTERRUPTS();
		rows = near_rows_find(&batch->near, value, &batch->first[i], &count);
		for (uint32 j = 0; j < count && rank < batch->k; j++)
			if (rows[j].slot != query->slot)
				put_row(fcinfo, batch, query, (int32) ++rank, &rows[j]);
		pfree(DatumGetPointer(value));
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(batch->memory);
	batch->count = 0;
}

/*
 * Error out unless the array's elements are what the index is of. Types are not
 * named: how, would depend on the search_path, which is a safe one by now.
 */
static void
check_element_type(Relation index, Oid type)
{
	if (type == index->rd_opcintype[0])
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("index \"%s\" is of another type than the array's elements",
					RelationGetRelationName(index)),
			 errhint("Cast the array to the type of the column or expression that is indexed.")));
}

/*
 * Add a vector of the array to the batch: but one that is NULL, or has no
 * direction.
 */
static void
batch_add(Batch *batch, int32 number, Datum value, bool isnull)
{
	const NearRows *near = &batch->near;
	Pointer		detoasted;

	if (isnull)
		return;
	detoasted = (Pointer) PG_DETOAST_DATUM(value);
	gpuann_check_query_dims(near->type, near->format->dims, detoasted);
	if (near->type->metric != METRIC_COSINE ||
		!gpuann_all_zero(near->type, near->format->dims, near->type->elements(detoasted)))
	{
		memcpy(batch_vector(batch, batch->count), near->type->elements(detoasted),
			   near->format->vector_bytes);
		batch->queries[batch->count++] = (BatchQuery){.number = number, .slot = NO_SLOT};
	}
	if (detoasted != DatumGetPointer(value))
		pfree(detoasted);
}

PG_FUNCTION_INFO_V1(gpuann_search);

/* gpuann_search(index, vectors, k, ef): query, rank, TID, distance. */
Datum
gpuann_search(PG_FUNCTION_ARGS)
{
	Batch		batch = {0};
	ArrayType  *vectors;
	ArrayIterator iterator;
	Datum		value;
	bool		isnull;

	signature_check(fcinfo, "regclass,anyarray,int4,int4", "int4,int4,tid,float8");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("index, vectors and k must not be null")));
	batch.k = batch_argument("k", PG_GETARG_INT32(2), NEAR_ROWS_MAX_K);
	vectors = PG_GETARG_ARRAYTYPE_P(1);
	batch_begin(fcinfo, 3, false, batch.k, &batch);
	check_element_type(batch.near.index, ARR_ELEMTYPE(vectors));
	iterator = array_create_iterator(vectors, 0, NULL);
	for (int32 number = 1; array_iterate(iterator, &value, &isnull); number++)
	{
		batch_add(&batch, number, value, isnull);
		if (batch.count == batch.room)
			batch_answer(fcinfo, &batch);
	}
	batch_answer(fcinfo, &batch);
	array_free_iterator(iterator);
	batch_end(&batch);
	return (Datum) 0;
}

/*
 * Copy the live slots of one node page, from a slot on; returns the slot after
 * them.
 */
static uint32
live_slots(const NearRows *near, uint32 first, uint32 end, BufferAccessStrategy strategy,
		   BatchQuery *found, uint32 *count)
{
	const IndexFormat *format = near->format;
	uint64		superblock_end =
		((uint64) slot_superblock(format, first) + 1) * format->superblock_slots;
	BlockNumber block = node_block(format, first);
	Buffer		buffer = read_page_in_bulk(near->index, block, PAGE_NODE, BUFFER_LOCK_SHARE, true,
										   strategy);
	Page		page = BufferGetPage(buffer);
	uint32		slot = first;

	*count = 0;
	end = (uint32) Min(superblock_end, end);
	for (; slot < end && node_block(format, slot) == block; slot++)
	{
		const NodeRecord *node;

		if (PageIsNew(page))
			continue;
		node = node_record(format, page, slot);
		if (NodeState(node) == NODE_LIVE)
			found[(*count)++] = (BatchQuery){.slot = slot, .tid = node->tid};
	}
	UnlockReleaseBuffer(buffer);
	return slot;
}

/* Ask about the rows of one node page that the snapshot sees. */
static void
ask_about_rows(FunctionCallInfo fcinfo, Batch *batch, BatchQuery *rows, uint32 count)
{
	for (uint32 i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!near_rows_visible(&batch->near, rows[i].slot, &rows[i].tid))
			continue;
		read_vector(batch->near.index, batch->near.format, rows[i].slot,
					batch_vector(batch, batch->count));
		batch->queries[batch->count++] = rows[i];
		if (batch->count == batch->room)
			batch_answer(fcinfo, batch);
	}
}

PG_FUNCTION_INFO_V1(gpuann_knn_graph);

/* gpuann_knn_graph(index, k, ef, exact): TID, neighbour's TID, distance. */
Datum
gpuann_knn_graph(PG_FUNCTION_ARGS)
{
	Batch		batch = {0};
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	PendingBounds bounds;
	BatchQuery *rows;
	uint32		count;

	signature_check(fcinfo, "regclass,int4,int4,bool", "tid,tid,float8");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(3))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("index, k and exact must not be null")));
	batch.k = batch_argument("k", PG_GETARG_INT32(1), NEAR_ROWS_MAX_K - 1);
	batch_begin(fcinfo, 2, PG_GETARG_BOOL(3), batch.k + 1, &batch);
	rows = palloc(sizeof(BatchQuery) * batch.near.format->nodes_per_page);
	/* Rows that come later are of no snapshot that was taken before. */
	pending_end(batch.near.index, batch.near.format, &bounds);
	for (uint32 slot = 0; slot < bounds.next_fresh;)
	{
		slot = live_slots(&batch.near, slot, bounds.next_fresh, strategy, rows, &count);
		ask_about_rows(fcinfo, &batch, rows, count);
	}
	batch_answer(fcinfo, &batch);
	FreeAccessStrategy(strategy);
	batch_end(&batch);
	return (Datum) 0;
}
