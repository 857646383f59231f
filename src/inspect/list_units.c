/*
 * list_units.c
 *		gpuann_list_placement(index, units, ...), gpuann_list_schedule(index,
 *		units, ...): how even the work of an index's lists would be on several
 *		units (src/engine/units), which need not be there.
 *
 * How often a list is probed is the caller's to say, or what the server has
 * counted, or follows from its rows: queries are then supposed to be where rows
 * are.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "base/signature.h"
#include "engine/distance.h"
#include "engine/quantizer/random.h"
#include "engine/select.h"
#include "engine/units/schedule.h"
#include "inspect/list_work.h"
#include "lists/list_codes.h"

#define UNIT_COLUMNS	8
#define UNCOUNTED		0.5		/* probes beside those counted, times lists: none is never probed */
#define MOST_QUERIES	100000
#define MOST_PAIRS		10000000
#define MOST_EFFORT		UINT64CONST(100000000)	/* looks at a unit for each copy of each list */

/* What a call asks about. */
typedef struct UnitsCall
{
	SqlIndex	opened;
	ListWork	work;
	uint32		lists;			/* how many */
	uint32		units;
	CopyRule	copies;
	uint64		capacity;		/* bytes of a unit, or 0 */
	ListLoad   *loads;			/* of lists */
	ListLoad   *by_rows;		/* the same, were lists probed in proportion to their rows */
	CaughtInterrupt *caught;	/* while lists are placed */
} UnitsCall;

/* What is said of a unit. */
typedef struct UnitRow
{
	int64		numbers[4];
	double		loads[3];		/* over the mean: as placed, and as compared with; NaN: null */
} UnitRow;

static CopyRule
copy_rule(const char *name)
{
	if (strcmp(name, "one") == 0)
		return COPIES_ONE;
	if (strcmp(name, "work") == 0)
		return COPIES_BY_WORK;
	if (strcmp(name, "spare") == 0)
		return COPIES_SPARE;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("there is no rule \"%s\" for copies of lists", name),
					errhint("Rules are one, work and spare.")));
}

/* Read an argument that is a whole number in a range. */
static uint32
number_argument(FunctionCallInfo fcinfo, int argument, const char *name, uint32 most)
{
	int32		number = PG_ARGISNULL(argument) ? 0 : PG_GETARG_INT32(argument);

	if (number < 1 || number > (int64) most)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must be between 1 and %u", name, most)));
	return (uint32) number;
}

/* The numbers of probes that the caller gives, one for each list. */
static void
read_probes(UnitsCall *call, ArrayType *array)
{
	Datum	   *values;
	bool	   *nulls;
	int			count;

	deconstruct_array(array, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &values,
					  &nulls, &count);
	if (count != (int) call->lists)
		ereport(ERROR, (errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
						errmsg("probes of %d lists are given, and the index has %u", count,
							   call->lists)));
	for (int i = 0; i < count; i++)
	{
		if (nulls[i] || !(DatumGetFloat8(values[i]) >= 0) || isinf(DatumGetFloat8(values[i])))
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("probes of list %d are no number from 0 on", i)));
		call->loads[i].probes = DatumGetFloat8(values[i]);
	}
}

/* Refuse what would take seconds: each copy of a list looks at all units. */
static void
check_effort(const UnitsCall *call)
{
	uint64		copies = call->copies == COPIES_SPARE ? call->units : 1;
	double		work = 0;

	if (copies * call->lists * call->units > MOST_EFFORT)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("%u lists are too many to be copied to %u units",
							   call->lists, call->units),
						errhint("Take fewer units, or another rule for copies.")));
	for (uint32 list = 0; list < call->lists; list++)
		work += call->loads[list].probes * call->loads[list].cost;
	if (isinf(work))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("probes of all lists together are too many")));
}

/*
 * What is known of each list, but for what the caller says. What was counted
 * may be one probe of long ago, so that lists are probed by their rows besides.
 */
static void
read_loads(UnitsCall *call)
{
	const ListWork *work = &call->work;
	double		rows = 0;

	list_work_read(call->opened.index, &call->work);
	for (uint32 list = 0; list < work->lists.lists; list++)
		rows += work->rows[list];
	call->lists = work->lists.lists;
	call->loads = palloc(sizeof(ListLoad) * call->lists);
	call->by_rows = palloc(sizeof(ListLoad) * call->lists);
	for (uint32 list = 0; list < call->lists; list++)
	{
		ListLoad   *load = &call->loads[list];

		load->probes = work->rows[list];
		load->cost = list_probe_cost(work->rows[list]);
		load->bytes = list_work_bytes(work, list);
		call->by_rows[list] = *load;
		if (work->counted > 0)
			load->probes = work->probes[list] +
				(rows > 0 ? UNCOUNTED * call->lists * work->rows[list] / rows : UNCOUNTED);
	}
}

/* Open the index of a call and read its lists; the probes are argument 4. */
static void
call_begin(FunctionCallInfo fcinfo, UnitsCall *call)
{
	if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("index and copies must not be null")));
	memset(call, 0, sizeof(*call));
	call->caught = palloc0(sizeof(CaughtInterrupt));
	call->caught->memory = CurrentMemoryContext;
	call->units = number_argument(fcinfo, 1, "units", UNITS_MOST);
	call->copies = copy_rule(text_to_cstring(PG_GETARG_TEXT_PP(2)));
	if (!PG_ARGISNULL(3) && PG_GETARG_INT64(3) < 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("capacity must be positive, or null")));
	call->capacity = PG_ARGISNULL(3) ? 0 : (uint64) PG_GETARG_INT64(3);
	list_work_open(PG_GETARG_OID(0), &call->opened);
	read_loads(call);
	if (!PG_ARGISNULL(4))
		read_probes(call, PG_GETARG_ARRAYTYPE_P(4));
	check_effort(call);
}

/*
 * Place lists of these loads; the rule compared with has no capacity. NULL, if
 * that is allowed: lists do not fit.
 */
static UnitPlacement *
place(const UnitsCall *call, const ListLoad *loads, CopyRule rule, bool may_not_fit)
{
	PlacementSpec spec = {.lists = loads,
						  .nlists = call->lists,
						  .units = call->units,
						  .capacity = rule == COPIES_SCATTERED ? 0 : call->capacity,
						  .copies = rule,
						  .interrupted = interrupt_caught,
						  .context = call->caught};
	EngineError error;
	UnitPlacement *placement = placement_create(&spec, &error);

	interrupt_rethrow(call->caught);
	if (placement == NULL && !(may_not_fit && error.status == ENGINE_UNSUPPORTED))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_RESOURCES), errmsg("%s", error.text)));
	return placement;
}

/* Return the rows of units, which have so many numbers and loads. */
static void
return_rows(FunctionCallInfo fcinfo, const UnitRow *rows, uint32 units, int numbers, int loads)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (uint32 unit = 0; unit < units; unit++)
	{
		Datum		values[UNIT_COLUMNS];
		bool		nulls[UNIT_COLUMNS] = {false};
		int			column = 0;

		values[column++] = Int32GetDatum((int32) unit);
		for (int i = 0; i < numbers; i++)
			values[column++] = Int64GetDatum(rows[unit].numbers[i]);
		for (int i = 0; i < loads; i++)
		{
			nulls[column] = isnan(rows[unit].loads[i]);
			values[column++] = Float8GetDatum(rows[unit].loads[i]);
		}
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
}

/* A load over the mean; 1 if there is no work. */
static double
relative(double load, double mean)
{
	return mean > 0 ? load / mean : 1;
}

/*
 * Place lists by a rule and the loads that are expected; tell each unit's load
 * with those that there are. NULL: lists that are not what they are expected to
 * be do not fit so, and loads are null.
 */
static UnitPlacement *
place_and_tell(const UnitsCall *call, const ListLoad *expected, CopyRule rule, UnitRow *rows,
			   int column)
{
	bool		as_is = expected == call->loads;
	UnitPlacement *placement = place(call, expected, rule, !as_is);

	if (placement != NULL && !as_is && !placement_predict(placement, call->loads))
	{
		placement_free(placement);
		interrupt_rethrow(call->caught);
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	}
	for (uint32 unit = 0; unit < call->units; unit++)
		rows[unit].loads[column] =
			placement == NULL ? NAN : relative(placement->load[unit], placement->mean);
	return placement;
}

PG_FUNCTION_INFO_V1(gpuann_list_placement);

/* gpuann_list_placement(index, units, copies, capacity, probes) */
Datum
gpuann_list_placement(PG_FUNCTION_ARGS)
{
	UnitsCall	call;
	UnitRow    *rows;
	UnitPlacement *placement;

	signature_check(fcinfo, "regclass,int4,text,int8,_float8",
					"int4,int8,int8,int8,int8,float8,float8,float8");
	call_begin(fcinfo, &call);
	rows = palloc0(sizeof(UnitRow) * call.units);
	placement_free(place_and_tell(&call, call.by_rows, call.copies, rows, 1));
	placement_free(place_and_tell(&call, call.loads, COPIES_SCATTERED, rows, 2));
	placement = place_and_tell(&call, call.loads, call.copies, rows, 0);
	for (uint32 list = 0; list < call.lists; list++)
	{
		const ListUnits *at = &placement->lists[list];

		for (uint32 i = 0; i < at->count; i++)
		{
			UnitRow    *row = &rows[at->units[i]];

			row->numbers[0]++;
			row->numbers[1] += at->count > 1;
			row->numbers[2] += (int64) call.work.rows[list];
			row->numbers[3] += (int64) call.loads[list].bytes;
		}
	}
	placement_free(placement);
	sql_index_close(&call.opened);
	return_rows(fcinfo, rows, call.units, 4, 3);
	PG_RETURN_NULL();
}

/* ---- schedules ---- */

/* Draws the lists that queries probe. */
typedef struct Draw
{
	const UnitsCall *call;
	MemoryContext memory;		/* of the lists near each */
	CentroidReader reader;
	const DistanceKernels *squares;
	uint32		dims;
	uint32		probes;
	double	   *sums;			/* of probes up to each list */
	uint32	  **near;			/* of each list that was drawn: itself and the nearest */
	float	   *centre;
	SearchResult *heap;
	uint64		random;
} Draw;

static void
draw_begin(Draw *draw, const UnitsCall *call, uint32 probes, uint64 seed)
{
	const IndexFormat *format = index_format(call->opened.index);
	double		sum = 0;

	draw->call = call;
	draw->memory = AllocSetContextCreate(CurrentMemoryContext, "draws of lists",
										 ALLOCSET_DEFAULT_SIZES);
	draw->dims = format->dims;
	draw->squares = distance_kernels(ELEMENT_FLOAT, METRIC_L2, SIMD_BEST);
	draw->probes = Min(probes, call->lists);
	draw->sums = palloc(sizeof(double) * call->lists);
	draw->near = palloc0(sizeof(uint32 *) * call->lists);
	draw->centre = palloc(sizeof(float) * draw->dims);
	draw->heap = palloc(sizeof(SearchResult) * draw->probes);
	draw->random = seed;
	for (uint32 list = 0; list < call->lists; list++)
		draw->sums[list] = sum += call->loads[list].probes;
	centroid_reader_begin(&draw->reader, call->opened.index, format, &call->work.lists);
}

static void
draw_end(Draw *draw)
{
	centroid_reader_end(&draw->reader);
	MemoryContextDelete(draw->memory);
}

/* The list whose share of all probes a random number falls into. */
static uint32
draw_list(Draw *draw)
{
	uint32		low = 0;
	uint32		high = draw->call->lists - 1;
	double		at = random_fraction(&draw->random) * draw->sums[high];

	while (low < high)
	{
		uint32		middle = (low + high) / 2;

		if (draw->sums[middle] > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* The lists nearest to a list's centroid. */
static const uint32 *
near_lists(Draw *draw, uint32 list)
{
	uint32		count = 0;

	if (draw->near[list] != NULL)
		return draw->near[list];
	memcpy(draw->centre, centroid_of(&draw->reader, list), sizeof(float) * draw->dims);
	for (uint32 other = 0; other < draw->call->lists; other++)
	{
		SearchResult entry = {.slot = other};

		CHECK_FOR_INTERRUPTS();
		entry.distance = other == list ? -1 :
			draw->squares->exact(draw->centre, centroid_of(&draw->reader, other), draw->dims);
		(void) farthest_offer(draw->heap, &count, draw->probes, entry);
	}
	draw->near[list] = MemoryContextAlloc(draw->memory, sizeof(uint32) * count);
	for (uint32 i = 0; i < count; i++)
		draw->near[list][i] = draw->heap[i].slot;
	return draw->near[list];
}

/* The pairs of a batch. */
static UnitPair *
draw_batch(Draw *draw, uint32 queries)
{
	UnitPair   *pairs = palloc_extended(sizeof(UnitPair) * queries * draw->probes,
										MCXT_ALLOC_HUGE);

	for (uint32 query = 0; query < queries; query++)
	{
		const uint32 *near = near_lists(draw, draw_list(draw));

		for (uint32 i = 0; i < draw->probes; i++)
			pairs[(Size) query * draw->probes + i] = (UnitPair) {query, near[i]};
	}
	return pairs;
}

/* Count how often a batch probes lists: what a placement expects. */
static void
learn(UnitsCall *call, const UnitPair *pairs, uint64 count)
{
	for (uint32 list = 0; list < call->lists; list++)
		call->loads[list].probes = 0.5;
	for (uint64 i = 0; i < count; i++)
		call->loads[pairs[i].list].probes++;
}

/* Schedule a batch; rows get loads, or those of the scattered placement. */
static void
schedule_batch(const UnitsCall *call, CopyRule rule, const UnitPair *pairs, uint32 count,
			   UnitRow *rows)
{
	UnitPlacement *placement = place(call, call->loads, rule, false);
	EngineError error;
	Schedule   *schedule = schedule_create(placement, call->loads, pairs, count, &error);
	double		total = 0;

	placement_free(placement);
	if (schedule == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("%s", error.text)));
	for (uint32 unit = 0; unit < call->units; unit++)
		total += schedule->load[unit];
	for (uint32 unit = 0; unit < call->units; unit++)
	{
		double		load = relative(schedule->load[unit], total / call->units);

		if (rule == COPIES_SCATTERED)
		{
			rows[unit].loads[1] = load;
			continue;
		}
		rows[unit].loads[0] = load;
		rows[unit].numbers[0] = schedule->begins[unit + 1] - schedule->begins[unit];
		for (uint32 i = schedule->begins[unit]; i < schedule->begins[unit + 1]; i++)
		{
			uint32		list = schedule->pairs[i].list;

			rows[unit].numbers[1] += i == schedule->begins[unit] ||
				schedule->pairs[i - 1].list != list;
			rows[unit].numbers[2] += (int64) call->work.rows[list];
		}
	}
	schedule_free(schedule);
}

PG_FUNCTION_INFO_V1(gpuann_list_schedule);

/*
 * gpuann_list_schedule(index, units, copies, capacity, probes, queries, lists,
 * seed)
 */
Datum
gpuann_list_schedule(PG_FUNCTION_ARGS)
{
	UnitsCall	call;
	Draw		draw;
	UnitRow    *rows;
	UnitPair   *pairs;
	uint32		queries;
	uint32		probed;
	uint64		count;

	signature_check(fcinfo, "regclass,int4,text,int8,_float8,int4,int4,int4",
					"int4,int8,int8,int8,float8,float8");
	queries = number_argument(fcinfo, 5, "queries", MOST_QUERIES);
	probed = number_argument(fcinfo, 6, "lists", GPUANN_MAX_LISTS);
	call_begin(fcinfo, &call);
	rows = palloc0(sizeof(UnitRow) * call.units);
	draw_begin(&draw, &call, probed, PG_ARGISNULL(7) ? 1 : (uint64) PG_GETARG_INT32(7));
	count = (uint64) queries * draw.probes;
	/* A pair looks at all copies of its list. */
	if (count * (call.copies == COPIES_SPARE ? call.units : 1) > MOST_PAIRS)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%u queries of %u lists each on %u units are too many", queries,
							   draw.probes, call.units),
						errdetail("Pairs of a query and a list, times the copies that \"spare\" "
								  "may make of each, are at most %d.",
								  MOST_PAIRS)));
	pairs = draw_batch(&draw, queries);
	learn(&call, pairs, count);
	/* A batch may be 80 MB: no two are kept. */
	pfree(pairs);
	pairs = draw_batch(&draw, queries);
	draw_end(&draw);
	schedule_batch(&call, COPIES_SCATTERED, pairs, (uint32) count, rows);
	schedule_batch(&call, call.copies, pairs, (uint32) count, rows);
	sql_index_close(&call.opened);
	return_rows(fcinfo, rows, call.units, 3, 2);
	PG_RETURN_NULL();
}
