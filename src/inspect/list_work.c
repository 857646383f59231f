/*
 * list_work.c
 *		gpuann_list_stats(index): what each list of an index holds, and how
 *		often it is probed.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

#include "base/base.h"
#include "base/signature.h"
#include "base/sql_row.h"
#include "client/list_counts.h"
#include "inspect/list_work.h"
#include "lists/postings.h"


void
list_work_open(Oid oid, SqlIndex *opened)
{
	sql_index_open(oid, AccessShareLock, SQL_INDEX_WATCH, opened);
	if (!format_has_lists(index_format(opened->index)))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("index \"%s\" has no lists",
							   RelationGetRelationName(opened->index)),
						errhint("Indexes with method = ivfpq have lists.")));
}

void
list_work_read(Relation index, ListWork *work)
{
	MetaPage	meta;
	uint32		lists;

	list_format_read(index, index_format(index), &work->lists);
	lists = work->lists.lists;
	work->rows = palloc(sizeof(uint32) * lists);
	work->probes = palloc(sizeof(double) * lists);
	work->counted = 0;
	for (uint32 list = 0; list < lists; list++)
	{
		CHECK_FOR_INTERRUPTS();
		work->rows[list] = read_list_head(index, list).entries;
	}
	read_meta(index, &meta);
	if (!client_list_counts(index, meta.nonce, lists, work->probes))
		work->probes = NULL;
	for (uint32 list = 0; work->probes != NULL && list < lists; list++)
		work->counted += work->probes[list];
}

bool
interrupt_caught(void *context)
{
	CaughtInterrupt *caught = context;

	if (caught->error != NULL)
		return true;
	PG_TRY();
	{
		CHECK_FOR_INTERRUPTS();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(caught->memory);
		caught->error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	return caught->error != NULL;
}

void
interrupt_rethrow(const CaughtInterrupt *caught)
{
	if (caught->error != NULL)
		ReThrowError(caught->error);
}

PG_FUNCTION_INFO_V1(gpuann_list_stats);

/* gpuann_list_stats(index): a row for each list. */
Datum
gpuann_list_stats(PG_FUNCTION_ARGS)
{
	SqlIndex	opened;
	ListWork	work;
	SqlRow		row = {0};
	double		total = 0;

	signature_check(fcinfo, "regclass", "int4,int8,int8,float8,float8");
	list_work_open(PG_GETARG_OID(0), &opened);
	list_work_read(opened.index, &work);
	sql_index_close(&opened);
	for (uint32 list = 0; work.counted > 0 && list < work.lists.lists; list++)
		total += work.probes[list] * list_probe_cost(work.rows[list]);
	InitMaterializedSRF(fcinfo, 0);
	for (uint32 list = 0; list < work.lists.lists; list++)
	{
		double		probes = work.probes == NULL ? 0 : work.probes[list];
		double		cost = probes * list_probe_cost(work.rows[list]);

		row_put(&row, Int32GetDatum((int32) list));
		row_put(&row, Int64GetDatum(work.rows[list]));
		row_put(&row, Int64GetDatum((int64) list_work_bytes(&work, list)));
		row_put_if(&row, work.probes != NULL, Float8GetDatum(probes));
		row_put_if(&row, total > 0, Float8GetDatum(total > 0 ? cost / total : 0));
		row_add(fcinfo, &row);
	}
	PG_RETURN_NULL();
}
