/*
 * index_filter_bind.c
 *		The values that a compiled filter compares columns with, as they are
 *		when a scan begins.
 */
#include "postgres.h"

#include "plan/index_filter_private.h"

#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "page/columns.h"
#include "utils/array.h"
#include "utils/catcache.h"
#include "utils/date.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/*
 * A timestamp that a conversion has given. What is beyond all timestamps is not
 * infinite.
 */
static int64
timestamp_within(Timestamp value, int overflow)
{
	if (overflow == 0)
		return value;
	return overflow > 0 ? DT_NOEND - 1 : DT_NOBEGIN + 1;
}

/*
 * A value as a column of its type or another is compared with it.
 */
static void
convert(const LateValue *late, Datum value, FilterValue *to)
{
	int			overflow = 0;
	double		bounds[2];

	*to = (FilterValue) {0};
	if (late->kind == FILTER_TAGS)
	{
		to->low = to->high = tag_number(late->type, value);
		return;
	}
	switch (late->type)
	{
		case TEXTOID:
			text_bytes(value, to->bytes);
			return;
		case BOOLOID:
			to->low = DatumGetBool(value);
			break;
		case CHAROID:
			to->low = DatumGetUInt8(value);
			break;
		case INT2OID:
			to->low = DatumGetInt16(value);
			break;
		case INT4OID:
			to->low = DatumGetInt32(value);
			break;
		case DATEOID:
			to->low = DatumGetDateADT(value);
			if (late->column == TIMESTAMPOID)
				to->low = date2timestamp_opt_overflow(DatumGetDateADT(value), &overflow);
			else if (late->column == TIMESTAMPTZOID)
				to->low = date2timestamptz_opt_overflow(DatumGetDateADT(value), &overflow);
			to->low = timestamp_within(to->low, overflow);
			break;
		case TIMESTAMPOID:
			to->low = DatumGetTimestamp(value);
			if (late->column == TIMESTAMPTZOID)
				to->low = timestamp2timestamptz_opt_overflow(DatumGetTimestamp(value), &overflow);
			to->low = timestamp_within(to->low, overflow);
			break;
		case INT8OID:
		case TIMEOID:
		case TIMESTAMPTZOID:
			to->low = DatumGetInt64(value);
			break;
		case FLOAT4OID:
			to->low = filter_real(DatumGetFloat4(value));
			break;
		case FLOAT8OID:
			to->low = filter_real(DatumGetFloat8(value));
			break;
		case UUIDOID:
			memcpy(to->bytes, DatumGetUUIDP(value)->data, UUID_LEN);
			return;
		case NUMERICOID:
			numeric_bounds(value, bounds);
			to->low = filter_real(bounds[0]);
			to->high = filter_real(bounds[1]);
			return;
		default:				/* oid, enums */
			to->low = DatumGetUInt32(value);
	}
	to->high = to->low;
}

/*
 * A comparison of a date, as PostgreSQL makes it with the beginning of its day,
 * with a timestamp: with the date of that. False: no such comparison says the
 * same.
 */
static bool
convert_to_date(const LateValue *late, Datum value, FilterStep *step, FilterValue *to)
{
	bool		zoned = late->type == TIMESTAMPTZOID;
	Timestamp	time = DatumGetTimestamp(value);
	int			overflow = 0;
	DateADT		date;
	Timestamp	begin;

	if (TIMESTAMP_NOT_FINITE(time))
	{
		to->low = to->high = TIMESTAMP_IS_NOEND(time) ? DATEVAL_NOEND : DATEVAL_NOBEGIN;
		return true;
	}
	date = DatumGetDateADT(DirectFunctionCall1(zoned ? timestamptz_date : timestamp_date, value));
	begin = zoned ? date2timestamptz_opt_overflow(date, &overflow)
				  : date2timestamp_opt_overflow(date, &overflow);
	/* A day may begin later, where clocks are put forward at midnight. */
	if (overflow != 0 || begin > time)
		return false;
	to->low = to->high = date;
	if (begin == time)
		return true;
	if (step->op == FILTER_LT)
		step->op = FILTER_LE;
	else if (step->op == FILTER_GE)
		step->op = FILTER_GT;
	else if (step->op == FILTER_EQ || step->op == FILTER_NE)
		to->low = to->high = PG_INT64_MAX;	/* no date's */
	return true;
}

/* A program that is being bound. */
typedef struct Binding
{
	const IndexFilter *filter;
	FilterStep *steps;
	FilterValue *values;
	uint32		nvalues;
	uint32		room;
} Binding;

static FilterValue *
add_value(Binding *binding)
{
	if (binding->nvalues == binding->room)
	{
		binding->room = Max(binding->room * 2, 16);
		binding->values =
			binding->values == NULL
				? palloc_extended(sizeof(FilterValue) * (Size) binding->room, MCXT_ALLOC_HUGE)
				: repalloc_huge(binding->values, sizeof(FilterValue) * (Size) binding->room);
	}
	return &binding->values[binding->nvalues++];
}

/*
 * Bind an array: its elements, sorted.
 */
static void
bind_array(Binding *binding, const LateValue *late, Datum value)
{
	FilterStep *step = &binding->steps[late->step];
	ArrayType  *array = DatumGetArrayTypeP(value);
	int16		length;
	bool		by_value;
	char		align;
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &length, &by_value, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), length, by_value, align, &elements, &nulls,
					  &count);
	step->value = binding->nvalues;
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			step->has_null = true;
		else
			convert(late, elements[i], add_value(binding));
	}
	step->count = binding->nvalues - step->value;
	/* All of no elements are in any set; NULL is in none. */
	if (late->kind == FILTER_TAGS && (step->count == 0 || step->has_null))
		step->op = FILTER_OPEN;
	/* Of no elements none is equal to NULL either. */
	else if (count == 0)
		step->op = FILTER_FALSE;
	else if (step->count > 0 && step->op == FILTER_IN)
		filter_sort(late->kind, binding->values + step->value, step->count);
}

/*
 * Bind a comparison with a value of an enum: the values of the enum that stand
 * in this relation to it, by PostgreSQL's own operator.
 */
static void
bind_enum(Binding *binding, const LateValue *late, Datum value)
{
	FilterStep *step = &binding->steps[late->step];
	CatCList   *members =
		SearchSysCacheList1(ENUMTYPOIDNAME, ObjectIdGetDatum(late->column));
	FmgrInfo	compare;

	fmgr_info(late->function, &compare);
	step->value = binding->nvalues;
	for (int i = 0; i < members->n_members; i++)
	{
		Oid			member = ((Form_pg_enum) GETSTRUCT(&members->members[i]->tuple))->oid;

		if (!DatumGetBool(FunctionCall2(&compare, ObjectIdGetDatum(member), value)))
			continue;
		*add_value(binding) = (FilterValue) {{{member, member}}};
	}
	ReleaseCatCacheList(members);
	step->op = FILTER_IN;
	step->count = binding->nvalues - step->value;
	if (step->count > 0)
		filter_sort(late->kind, binding->values + step->value, step->count);
}

/*
 * Bind a value.
 */
static void
bind_value(Binding *binding, const LateValue *late, ExprContext *context)
{
	FilterStep *step = &binding->steps[late->step];
	bool		isnull;
	Datum		value = ExecEvalExpr(late->state, context, &isnull);
	FilterValue converted;

	/* Operators of btree families are strict. */
	if (isnull)
		step->op = FILTER_NULL;
	else if (late->is_array)
		bind_array(binding, late, value);
	else if (OidIsValid(late->function) && step->op != FILTER_EQ && step->op != FILTER_NE)
		bind_enum(binding, late, value);
	else if (late->column != DATEOID || late->type == DATEOID)
	{
		step->value = binding->nvalues;
		step->count = 1;
		convert(late, value, add_value(binding));
	}
	else if (convert_to_date(late, value, step, &converted))
	{
		step->value = binding->nvalues;
		*add_value(binding) = converted;
	}
	else
		step->op = FILTER_OPEN;
}

const FilterProgram *
index_filter_bind(const IndexFilter *filter, ExprContext *context)
{
	Binding		binding = {.filter = filter};
	FilterProgram *program = palloc(sizeof(FilterProgram));
	ListCell   *cell;

	binding.steps = palloc(sizeof(FilterStep) * filter->nsteps);
	memcpy(binding.steps, filter->steps, sizeof(FilterStep) * filter->nsteps);
	foreach(cell, filter->values)
		bind_value(&binding, lfirst(cell), context);
	*program = (FilterProgram) {.steps = binding.steps, .values = binding.values,
								.nsteps = filter->nsteps, .nvalues = binding.nvalues};
	return filter_fault(program, filter->kinds, filter->columns) == NULL ? program : NULL;
}
