/*
 * sql_row.c
 *		Rows that functions of the SQL interface return.
 */
#include "postgres.h"

#include "base/sql_row.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "nodes/execnodes.h"
#include "utils/tuplestore.h"

Datum
row_return(FunctionCallInfo fcinfo, SqlRow *row)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	Assert(row->count == desc->natts);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), row->values, row->nulls));
}

void
row_add(FunctionCallInfo fcinfo, SqlRow *row)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	Assert(row->count == result->setDesc->natts);
	tuplestore_putvalues(result->setResult, result->setDesc, row->values, row->nulls);
	row->count = 0;
}
