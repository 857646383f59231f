/*
 * list_units.c
 *		gpuann_list_placement(index, units, ...): predict how evenly the work of
 *		an index's lists could be distributed over several units
 *		(src/engine/units), which need not exist.
 *
 * Numbers of probes are given by the caller, or counted by the server, or else
 * assumed to be proportional to the lists' rows.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "base/signature.h"
#include "base/sql_row.h"
#include "engine/units/placement.h"
#include "inspect/list_work.h"

#define UNIT_NUMBERS	4
#define UNIT_LOADS		3
#define UNCOUNTED		0.5		/* probes beside those counted, times lists: none is never probed */
#define MAX_EFFORT		UINT64CONST(100000000)	/* units tried for each copy of each list */

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
	int64		numbers[UNIT_NUMBERS];
	double		loads[UNIT_LOADS];	/* over the mean: as placed, and as compared with; NaN: null */
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

/*
 * Refuse arguments with which placement would take seconds: for each copy of a
 * list it examines all units.
 */
static void
check_effort(const UnitsCall *call)
{
	uint64		copies = call->copies == COPIES_SPARE ? call->units : 1;
	double		work = 0;

	if (copies * call->lists * call->units > MAX_EFFORT)
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
	if (PG_ARGISNULL(1) || PG_GETARG_INT32(1) < 1 || PG_GETARG_INT32(1) > UNITS_MAX)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("units must be between 1 and %u", UNITS_MAX)));
	memset(call, 0, sizeof(*call));
	call->caught = palloc0(sizeof(CaughtInterrupt));
	call->caught->memory = CurrentMemoryContext;
	call->units = (uint32) PG_GETARG_INT32(1);
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

static void
return_rows(FunctionCallInfo fcinfo, const UnitRow *rows, uint32 units)
{
	SqlRow		row = {0};

	InitMaterializedSRF(fcinfo, 0);
	for (uint32 unit = 0; unit < units; unit++)
	{
		row_put(&row, Int32GetDatum((int32) unit));
		for (int i = 0; i < UNIT_NUMBERS; i++)
			row_put(&row, Int64GetDatum(rows[unit].numbers[i]));
		for (int i = 0; i < UNIT_LOADS; i++)
			row_put_if(&row, !isnan(rows[unit].loads[i]), Float8GetDatum(rows[unit].loads[i]));
		row_add(fcinfo, &row);
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
	return_rows(fcinfo, rows, call.units);
	PG_RETURN_NULL();
}

PG_FUNCTION_INFO_V1(gpuann_list_schedule);

/*
 * Removed in version 0.3. The SQL of version 0.2 declares it: a database that
 * was not updated still has it, and PostgreSQL demands the symbol where that
 * SQL is run on the way to a later version.
 */
Datum
gpuann_list_schedule(PG_FUNCTION_ARGS)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("gpuann_list_schedule was removed in version 0.3 of gpuann"),
					errhint("Use gpuann_list_placement; ALTER EXTENSION gpuann UPDATE drops the function.")));
}
