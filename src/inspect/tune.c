/*
 * tune.c
 *		gpuann_tune(index, recall, k, samples, apply): find the least ef_search,
 *		or probes, with which an index reaches a recall, and set that option.
 *
 * It measures as gpuann_recall does, without the settings that a session has
 * in place of the option, since the option is for all sessions. All values are
 * compared by the same queries, whose exact answers are asked for once.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "base/signature.h"
#include "base/sql_row.h"
#include "inspect/measurement.h"
#include "lists/lists.h"

#define TUNE_STEP	16			/* the value found is this part of itself from the least, at most */

/* A value of the option, and what it does. */
typedef struct Tried
{
	uint32		value;
	AnswerSums	sums;
} Tried;

typedef struct Tuning
{
	Measurement measurement;
	double		recall;			/* wanted */
	const char *name;			/* of the index */
	bool		lists;
	const char *option;			/* "ef_search" or "probes" */
	const char *setting;		/* that goes before it in a session */
	uint32		least;
	uint32		most;
	bool		overridden;		/* this session has that setting */
	Tried		before;
	Tried		found;			/* the least that reaches the recall, else the greatest */
	bool		reached;
} Tuning;

static bool
reaches(const Tuning *tuning, const Tried *tried)
{
	return answer_recall(&tried->sums) >= tuning->recall;
}

/* Measure a value of the option. */
static void
try_value(Tuning *tuning, uint32 value, Tried *tried)
{
	tried->value = value;
	near_rows_set(tuning->setting, psprintf("%u", value));
	measurement_ask(&tuning->measurement, &tried->sums);
}

/* Find out which option counts, what it is now, and how far it may be. */
static void
choose_option(Tuning *tuning)
{
	Measurement *measurement = &tuning->measurement;

	tuning->name = pstrdup(RelationGetRelationName(measurement->near.index));
	tuning->lists = format_has_lists(measurement->near.format);
	tuning->overridden = gpuann_ef_search != GPUANN_UNSET;
	near_rows_set("gpuann.ef_search", "-1");
	if (tuning->lists)
	{
		ListFormat	lists;

		list_format_read(measurement->near.index, measurement->near.format, &lists);
		tuning->option = "probes";
		tuning->setting = "gpuann.probes";
		tuning->overridden = gpuann_probes != GPUANN_UNSET;
		near_rows_set(tuning->setting, "-1");
		tuning->before.value = gpuann_effective_probes(measurement->near.index, lists.lists, 0);
		tuning->least = 1;
		tuning->most = lists.lists;
	}
	else
	{
		tuning->option = "ef_search";
		tuning->setting = "gpuann.ef_search";
		tuning->before.value = gpuann_effective_ef_search(measurement->near.index, false);
		tuning->least = measurement->k;
		tuning->most = Min(Max(measurement->live_rows, measurement->k), GPUANN_MAX_EF_SEARCH);
	}
}

/*
 * Find the value: double it until it reaches the recall, then halve the range.
 */
static void
find_value(Tuning *tuning)
{
	Tried		tried = {0};
	uint32		low = tuning->least - 1;	/* does not reach it, or is no value */
	uint32		value = tuning->least;

	for (;;)
	{
		try_value(tuning, value, &tuning->found);
		tuning->reached = reaches(tuning, &tuning->found);
		if (tuning->reached || value == tuning->most)
			break;
		low = value;
		value = Min(value * 2, tuning->most);
	}
	while (tuning->reached && tuning->found.value - low > Max(tuning->found.value / TUNE_STEP, 1))
	{
		try_value(tuning, low + (tuning->found.value - low) / 2, &tried);
		if (reaches(tuning, &tried))
			tuning->found = tried;
		else
			low = tried.value;
	}
}

/* Error out unless the caller may alter the index, now. */
static void
check_may_alter(const SqlIndex *opened)
{
	Oid			index = RelationGetRelid(opened->index);

#if PG_VERSION_NUM >= 160000
	if (object_ownercheck(RelationRelationId, index, opened->user))
		return;
#else
	if (pg_class_ownercheck(index, opened->user))
		return;
#endif
	ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					errmsg("must be owner of index %s", RelationGetRelationName(opened->index)),
					errhint("With apply => false the value is reported, and not set.")));
}

/*
 * Set the option by ALTER INDEX, as the caller, who may. The lock is the one of
 * that command; with it the index keeps its name until the command is run.
 */
static void
alter_index(Oid index, const Tuning *tuning)
{
	char	   *command;
	char	   *name;

	LockRelationOid(index, ShareUpdateExclusiveLock);
	name = get_rel_name(index);
	if (name == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("index with OID %u was dropped", index)));
	command = psprintf("ALTER INDEX %s SET (%s = %u)",
					   quote_qualified_identifier(
						   get_namespace_name(get_rel_namespace(index)), name),
					   tuning->option, tuning->found.value);
	SPI_connect();
	if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not run: %s", command);
	SPI_finish();
}

/* Tell the caller what hinders: the index, or a setting. */
static void
report_hindrance(const Tuning *tuning, bool apply)
{
	if (!tuning->reached)
		ereport(WARNING,
				(errmsg("index \"%s\" does not reach a recall of %g", tuning->name, tuning->recall),
				 errdetail("With %s = %u, the greatest, it is %.4f.", tuning->option,
						   tuning->found.value, answer_recall(&tuning->found.sums)),
				 tuning->lists
					 ? errhint("Raise gpuann.rerank, or build it with more code_bits.")
					 : errhint("Build it with a larger m or ef_construction.")));
	else if (apply && tuning->overridden)
		ereport(NOTICE, (errmsg("this session goes on with its own \"%s\"", tuning->setting)));
}

/* The result: NULL what was not measured, because there are no rows. */
static Datum
tuning_row(FunctionCallInfo fcinfo, const Tuning *tuning, bool applied)
{
	const AnswerSums *exact = &tuning->measurement.exact;
	const AnswerSums *before = &tuning->before.sums;
	const AnswerSums *found = &tuning->found.sums;
	bool		any = exact->asked > 0;
	SqlRow		row = {0};

	row_put(&row, CStringGetTextDatum(tuning->option));
	row_put(&row, Int32GetDatum((int32) tuning->before.value));
	row_put_if(&row, any, Float8GetDatum(answer_recall(before)));
	row_put_if(&row, any, Float8GetDatum(answer_mean(before, before->ms)));
	row_put_if(&row, any, Int32GetDatum((int32) tuning->found.value));
	row_put_if(&row, any, Float8GetDatum(answer_recall(found)));
	row_put_if(&row, any, Float8GetDatum(answer_mean(found, found->ms)));
	row_put_if(&row, any, Float8GetDatum(answer_mean(exact, exact->ms)));
	row_put(&row, Int32GetDatum((int32) exact->asked));
	row_put_if(&row, any, Float8GetDatum(answer_mean(found, found->by_server)));
	row_put_if(&row, any, BoolGetDatum(tuning->reached));
	row_put(&row, BoolGetDatum(applied));
	return row_return(fcinfo, &row);
}

/* Read the arguments; returns the number of samples. */
static uint32
tune_arguments(FunctionCallInfo fcinfo, Tuning *tuning, uint32 *k)
{
	for (int i = 0; i < 5; i++)
		if (PG_ARGISNULL(i))
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("arguments of gpuann_tune must not be null")));
	tuning->recall = PG_GETARG_FLOAT8(1);
	if (!(tuning->recall > 0 && tuning->recall <= 1))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("recall must be greater than 0 and at most 1")));
	*k = measurement_argument("k", PG_GETARG_INT32(2), NEAR_ROWS_MAX_K);
	return measurement_argument("samples", PG_GETARG_INT32(3), MAX_SAMPLES);
}

PG_FUNCTION_INFO_V1(gpuann_tune);

/*
 * gpuann_tune(index, recall, k, samples, apply): the option, before and after.
 */
Datum
gpuann_tune(PG_FUNCTION_ARGS)
{
	Tuning		tuning = {0};
	uint32		k;
	uint32		samples;
	bool		apply;

	signature_check(fcinfo, "regclass,float8,int4,int4,bool",
					"text,int4,float8,float8,int4,float8,float8,float8,int4,float8,bool,bool");
	samples = tune_arguments(fcinfo, &tuning, &k);
	apply = PG_GETARG_BOOL(4);
	if (apply)
	{
		PreventCommandDuringRecovery("gpuann_tune()");
		PreventCommandIfReadOnly("gpuann_tune()");
	}

	measurement_open(PG_GETARG_OID(0), k, &tuning.measurement);
	if (apply)
		check_may_alter(&tuning.measurement.near.opened);
	measurement_begin(&tuning.measurement, samples);
	choose_option(&tuning);
	if (tuning.measurement.count > 0)
	{
		try_value(&tuning, tuning.before.value, &tuning.before);
		find_value(&tuning);
	}
	measurement_end(&tuning.measurement);

	if (tuning.measurement.count > 0)
		report_hindrance(&tuning, apply);
	apply = apply && tuning.reached;
	if (apply)
		alter_index(PG_GETARG_OID(0), &tuning);
	return tuning_row(fcinfo, &tuning, apply);
}
