/*
 * latency_stats.c
 *		How long scans took: pg_stat_gpuann_latency.
 */
#include "base/base.h"

#include "client/latency.h"
#include "client/mirror_table.h"
#include "base/signature.h"
#include "base/sql_row.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(gpuann_stat_latency);

/* A copy of one histogram. */
typedef struct Latencies
{
	uint64		counts[LATENCY_BUCKETS];
	uint64		total;
} Latencies;

static void
latencies_copy(int entry, LatencyPath path, Latencies *latencies)
{
	latencies->total = 0;
	for (int i = 0; i < LATENCY_BUCKETS; i++)
	{
		latencies->counts[i] =
			atomic_load_explicit(&mirror_latency(entry)->counts[path][i], memory_order_relaxed);
		latencies->total += latencies->counts[i];
	}
}

/*
 * The time that a share of the scans took at most, in milliseconds; as if the
 * scans of a bucket were spread over it evenly. There are scans.
 */
static double
percentile(const Latencies *latencies, double share)
{
	double		rank = share * (double) latencies->total;
	double		before = 0;
	int			bucket = 0;
	double		begin;

	while (bucket < LATENCY_BUCKETS - 1 && before + (double) latencies->counts[bucket] < rank)
		before += (double) latencies->counts[bucket++];
	begin = latency_bucket_begin(bucket);
	return (begin + (latency_bucket_begin(bucket + 1) - begin) * (rank - before) /
						Max((double) latencies->counts[bucket], 1)) / 1000;
}

/* Add one path of an index, unless no scan took it. */
static void
put_path(FunctionCallInfo fcinfo, int entry, const MirrorKey *key, LatencyPath path)
{
	SqlRow		row = {0};
	Latencies	latencies;

	latencies_copy(entry, path, &latencies);
	if (latencies.total == 0)
		return;
	row_put(&row, ObjectIdGetDatum(key->index));
	row_put(&row, ObjectIdGetDatum(key->relfile));
	row_put(&row, CStringGetTextDatum(path == LATENCY_SERVER ? "server" : "pages"));
	row_put(&row, Int64GetDatum((int64) latencies.total));
	row_put(&row, Float8GetDatum(percentile(&latencies, 0.5)));
	row_put(&row, Float8GetDatum(percentile(&latencies, 0.95)));
	row_put(&row, Float8GetDatum(percentile(&latencies, 0.99)));
	row_add(fcinfo, &row);
}

/* A row for each index of this database and each path that its scans took. */
Datum
gpuann_stat_latency(PG_FUNCTION_ARGS)
{
	signature_check(fcinfo, "", "oid,oid,text,int8,float8,float8,float8");
	InitMaterializedSRF(fcinfo, 0);
	for (uint32 i = 0; gpuann_area != NULL && i < gpuann_control->high_water; i++)
	{
		MirrorKey	key;

		if (!mirror_key_of((int) i, &key) || key.database != MyDatabaseId)
			continue;
		for (int path = 0; path < LATENCY_PATHS; path++)
			put_path(fcinfo, (int) i, &key, path);
	}
	return (Datum) 0;
}
