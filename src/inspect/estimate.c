/*
 * estimate.c
 *		gpuann_estimate(rows, dims, type, options, metric, include): estimate
 *		size and build time of an index.
 *
 * Bytes are the format's and the engine's own arithmetic, for rows appended in
 * order: a build. The time is a model: as many distances per row as builds of
 * random vectors were measured to cost, at the price of one distance on this
 * machine, which is measured on the spot.
 */
#include "postgres.h"

#include <math.h>

#include "access/amapi.h"
#include "access/htup_details.h"
#include "access/reloptions.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "build/build.h"
#include "engine/distance.h"
#include "engine/prune.h"
#include "client/mirror_table.h"
#include "link/local_engine.h"
#include "page/columns.h"
#include "base/signature.h"
#include "base/sql_row.h"
#include "utils/array.h"

#define ESTIMATE_ARGUMENTS	"int8,int4,regtype,_text,text"
#define ESTIMATE_ARGUMENTS_0_1	5	/* without include: as version 0.1 declares them */

/*
 * Measuring one distance: over so many bytes of vectors, which stay in a cache,
 * of so many elements, so often; the best run counts.
 */
#define SAMPLE_BYTES		(256 * 1024)
#define SAMPLE_ELEMENTS		1000000	/* some hundred microseconds, because reading the clock may take
									 * one */
#define SAMPLE_RUNS			20

/*
 * The model, fitted to builds of 8,000 to 40,000 random vectors of 32 and 384
 * dimensions, m 8 and 16, ef_construction 40 to 128, one thread. Distances of a
 * row: some to begin with, then for each step of its search the neighbours that
 * were not met before, fewer of them the more a step has; the rest of linking
 * is proportional. A distance costs the kernel, more than once because vectors
 * come from memory, and its place in the search.
 */
#define FIRST_DISTANCES		350
#define STEP_DISTANCES		2.55	/* times ef_construction times degree ^ STEP_POWER */
#define STEP_POWER			0.7
#define KERNEL_TIMES		2.5
#define PLACE_NS			40
#define MODEL_ROWS			40000	/* where the growth with the logarithm of the rows is 1 */

/*
 * Fitted to builds of 200,000 and 1,000,000 rows of 128 dimensions with 16
 * threads: threads share a cache, and rows are copied, logged, written.
 */
#define THREADS_POWER		0.85
#define LOAD_ROW_NS			800
#define LOAD_BYTE_NS		1.5

/*
 * The type that is asked about, by its name: pgvector's may be in any schema.
 */
static ElementType
element_type(Oid type)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	ElementType found = 0;

	if (HeapTupleIsValid(tuple))
	{
		const char *name = NameStr(((Form_pg_type) GETSTRUCT(tuple))->typname);

		found = strcmp(name, "vector") == 0	   ? ELEMENT_FLOAT
				: strcmp(name, "halfvec") == 0 ? ELEMENT_HALF
				: strcmp(name, "bit") == 0	   ? ELEMENT_BIT
											   : 0;
		ReleaseSysCache(tuple);
	}
	if (found == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("type %s cannot be indexed by gpuann",
						format_type_extended(type, -1, FORMAT_TYPE_ALLOW_INVALID)),
				 errhint("Types are vector, halfvec and bit.")));
	return found;
}

/* The metric that is asked about: vectors have four, bits two. */
static Metric
metric_of(const char *name, ElementType type)
{
	static const struct
	{
		const char *name;
		Metric		metric;
		bool		bits;
	} metrics[] = {{"l2", METRIC_L2, false},		  {"ip", METRIC_IP, false},
				   {"cosine", METRIC_COSINE, false},  {"l1", METRIC_L1, false},
				   {"hamming", METRIC_HAMMING, true}, {"jaccard", METRIC_JACCARD, true}};

	for (Size i = 0; i < lengthof(metrics); i++)
		if (strcmp(name, metrics[i].name) == 0 && metrics[i].bits == (type == ELEMENT_BIT))
			return metrics[i].metric;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("metric \"%s\" is not one of the type's", name),
			 errhint("Metrics are l2, ip, cosine and l1, of bits hamming and jaccard.")));
}

/*
 * The format that a build would choose; options as pg_class.reloptions has
 * them.
 */
static void
estimate_format(IndexFormat *format, const GpuannTypeInfo *info, int64 rows, int32 dims,
				Datum options, uint32 column_bytes)
{
	IndexAmRoutine *am = GetIndexAmRoutineByAmId(get_index_am_oid("gpuann", false), false);
	const GpuannOptions *parsed = (const GpuannOptions *) am->amoptions(options, true);
	int			m = parsed ? parsed->m : GPUANN_DEFAULT_M;
	int			ef_construction = parsed ? parsed->ef_construction : GPUANN_DEFAULT_EF_CONSTRUCTION;

	if (parsed && parsed->method != GPUANN_METHOD_GRAPH)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("gpuann_estimate knows indexes of method \"graph\" only")));
	if (rows < 0 || rows > ENGINE_MAX_SLOTS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("rows must be between 0 and %u", ENGINE_MAX_SLOTS)));
	if (dims < 1 || dims > info->max_dims)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("dims must be between 1 and %d", info->max_dims)));
	format_compute(format, info, dims, m, ef_construction, column_bytes, (double) rows);
}

/*
 * The columns of a row: their types are given.
 */
static void
included_columns(FunctionCallInfo fcinfo, ColumnTable *table)
{
	Datum	   *elements;
	bool	   *nulls;
	Oid		   *types;
	int			count;

	*table = (ColumnTable) {0};
	if (PG_NARGS() == ESTIMATE_ARGUMENTS_0_1)
		return;
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(5), REGTYPEOID, sizeof(Oid), true, TYPALIGN_INT,
					  &elements, &nulls, &count);
	types = palloc0(sizeof(Oid) * Max(count, 1));
	for (int i = 0; i < count; i++)
		types[i] = nulls[i] ? InvalidOid : DatumGetObjectId(elements[i]);
	column_table_of(types, count, table);
}

/*
 * Bytes of the file: whole superblocks, and of the last its pending page, its
 * column pages, the node pages and the vector pages begun.
 */
static uint64
index_bytes(const IndexFormat *format, uint64 rows)
{
	uint64		full = rows / format->superblock_slots;
	uint64		rest = rows % format->superblock_slots;
	uint64		pages = 1 + (uint64) format->seed_pages + full * format->superblock_pages;

	if (rest > 0)
		pages += 1 + format_column_pages(format) +
			(rest + format->nodes_per_page - 1) / format->nodes_per_page +
			(rest * format->vector_bytes + GPUANN_PAYLOAD - 1) / GPUANN_PAYLOAD;
	else if (rows == 0)
		pages += 1;
	if (pages > MaxBlockNumber)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("an index cannot hold so many rows of %u dimensions", format->dims),
				 errhint("Partition the table.")));
	return pages * BLCKSZ;
}

/* Bytes of a mirror on the CPU engine, as a worker loads it. */
static uint64
mirror_bytes(const IndexFormat *format, const ColumnTable *columns, uint32 rows)
{
	MirrorSpec	spec = {
		.columns = columns->count,
		.dims = format->dims, .type = (ElementType) format->type, .metric = (Metric) format->metric,
		.method = METHOD_GRAPH, .degree = format->degree, .capacity = mirror_capacity(rows),
		.residency = RESIDENCY_FULL, .placement = PLACEMENT_SINGLE, .device = -1
	};

	column_kinds(columns, spec.column_kinds);
	return cpu_engine_mirror_bytes(&spec);
}

/*
 * Nanoseconds that one distance takes on this machine, vectors read from all
 * over a cache: the best of some short runs.
 */
static double
measure_distance(const IndexFormat *format)
{
	const DistanceKernels *kernels =
		distance_kernels((ElementType) format->type, (Metric) format->metric, SIMD_BEST);
	uint32		count = Max(SAMPLE_BYTES / format->vector_bytes, 2);
	char	   *vectors =
		palloc_extended((Size) count * format->vector_bytes, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	float	   *query = palloc0(sizeof(float) * format->dims);
	double		sum = 0;
	uint32		times = SAMPLE_ELEMENTS / format->dims + 1;
	double		best = INFINITY;
	uint32		at = 0;

	if (kernels == NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("gpuann has no distance for type %d and metric %d", format->type,
							   format->metric)));
	kernels->widen(vectors, format->dims, query);
	for (int run = 0; run < SAMPLE_RUNS; run++)
	{
		instr_time	start,
					now;

		INSTR_TIME_SET_CURRENT(start);
		for (uint32 i = 0; i < times; i++)
		{
			at = (uint32) (((uint64) at * 1664525 + 1013904223) % count);
			sum +=
				kernels->fast(query, vectors + (Size) at * format->vector_bytes, format->dims, 1);
		}
		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, start);
		/* use the sum, or the compiler removes the computation */
		__asm__ volatile("" : : "m" (sum));
		best = Min(best, (double) INSTR_TIME_GET_MICROSEC(now) * 1000 / times);
	}
	pfree(vectors);
	pfree(query);
	return best;
}

/*
 * Seconds of a build in memory with the threads that
 * max_parallel_maintenance_workers and the processors allow.
 */
static double
build_seconds(const IndexFormat *format, uint64 rows)
{
	double		price = measure_distance(format) * KERNEL_TIMES + PLACE_NS;
	double		growth = log2(Max((double) rows, 1024)) / log2(MODEL_ROWS);
	double		distances = FIRST_DISTANCES +
		STEP_DISTANCES * format->ef_construction * pow(format->degree, STEP_POWER) * growth;

	return rows * (distances * price / pow(local_engine_threads(), THREADS_POWER) +
				   LOAD_ROW_NS + LOAD_BYTE_NS * format->vector_bytes) / 1e9;
}

PG_FUNCTION_INFO_V1(gpuann_estimate);

/*
 * gpuann_estimate(rows, dims, type, options, metric, include): bytes of index,
 * mirror and build, and its time.
 */
Datum
gpuann_estimate(PG_FUNCTION_ARGS)
{
	int64		rows;
	GpuannTypeInfo info = {0};
	IndexFormat format;
	ColumnTable columns;
	SqlRow		row = {0};

	signature_check(fcinfo,
					PG_NARGS() == ESTIMATE_ARGUMENTS_0_1 ? ESTIMATE_ARGUMENTS
														 : ESTIMATE_ARGUMENTS ",_regtype",
					"int8,int8,int8,float8,int4");
	rows = PG_GETARG_INT64(0);
	info.type = element_type(PG_GETARG_OID(2));
	info.metric = metric_of(text_to_cstring(PG_GETARG_TEXT_PP(4)), info.type);
	info.max_dims = (int) engine_max_dims(info.type);
	included_columns(fcinfo, &columns);
	estimate_format(&format, &info, rows, PG_GETARG_INT32(1), PG_GETARG_DATUM(3),
					columns.row_bytes);
	row_put(&row, Int64GetDatum((int64) index_bytes(&format, rows)));
	row_put(&row, Int64GetDatum((int64) mirror_bytes(&format, &columns, (uint32) rows)));
	row_put(&row, Int64GetDatum((int64) build_memory(&format, (double) rows)));
	row_put(&row, Float8GetDatum(build_seconds(&format, rows)));
	row_put(&row, Int32GetDatum(local_engine_threads()));
	return row_return(fcinfo, &row);
}
