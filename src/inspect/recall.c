/*
 * recall.c
 *		gpuann_recall(index, samples, k, ef): how many of the true nearest rows
 *		the index finds.
 */
#include "postgres.h"

#include "fmgr.h"

#include "base/signature.h"
#include "base/sql_row.h"
#include "inspect/measurement.h"

PG_FUNCTION_INFO_V1(gpuann_recall);

/* gpuann_recall(index, samples, k, ef): recall, and what it took. */
Datum
gpuann_recall(PG_FUNCTION_ARGS)
{
	Measurement measurement;
	AnswerSums	found;
	SqlRow		row = {0};
	const char *ef = NULL;
	uint32		samples;
	uint32		k;
	bool		any;

	signature_check(fcinfo, "regclass,int4,int4,int4",
					"int4,float8,float8,float8,float8,float8,float8");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("index, samples and k must not be null")));
	samples = measurement_argument("samples", PG_GETARG_INT32(1), MAX_SAMPLES);
	k = measurement_argument("k", PG_GETARG_INT32(2), NEAR_ROWS_MAX_K);
	if (!PG_ARGISNULL(3))
		ef = psprintf("%u", measurement_argument("ef", PG_GETARG_INT32(3), GPUANN_MAX_EF_SEARCH));

	measurement_open(PG_GETARG_OID(0), k, &measurement);
	measurement_begin(&measurement, samples);
	if (ef != NULL)
		near_rows_set("gpuann.ef_search", ef);
	measurement_ask(&measurement, &found);
	measurement_end(&measurement);

	any = found.asked > 0;
	row_put(&row, Int32GetDatum((int32) found.asked));
	row_put_if(&row, any, Float8GetDatum(answer_recall(&found)));
	row_put_if(&row, any, Float8GetDatum(found.least));
	row_put_if(&row, any, Float8GetDatum(answer_mean(&found, found.visited)));
	row_put_if(&row, any, Float8GetDatum(answer_mean(&found, found.ms)));
	row_put_if(&row, any,
			   Float8GetDatum(answer_mean(&measurement.exact, measurement.exact.ms)));
	row_put_if(&row, any, Float8GetDatum(answer_mean(&found, found.by_server)));
	return row_return(fcinfo, &row);
}
