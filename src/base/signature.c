/*
 * signature.c
 *		Refuses calls that were declared for another version of the library.
 *
 * The library that is loaded and the extension's SQL version can differ: a
 * preloaded library stays until PostgreSQL is restarted, though ALTER EXTENSION
 * UPDATE was run, and a new one serves databases where it was not. A C function
 * that reads arguments or fills columns that its declaration lacks crashes the
 * backend, so each function checks its declaration first.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

#include "base/signature.h"

/* Append a type's name to a list. */
static void
append_type(StringInfo list, Oid type)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));

	if (list->len > 0)
		appendStringInfoChar(list, ',');
	if (HeapTupleIsValid(tuple))
	{
		appendStringInfoString(list, NameStr(((Form_pg_type) GETSTRUCT(tuple))->typname));
		ReleaseSysCache(tuple);
	}
	else
		appendStringInfo(list, "%u", type);
}

/* The types of a function's arguments and results, as SQL has them. */
static void
signature_declared(HeapTuple function, StringInfo arguments, StringInfo results)
{
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(function);
	Oid		   *types;
	char	  **names;
	char	   *modes;
	int			count = get_func_arg_info(function, &types, &names, &modes);

	for (int i = 0; i < form->pronargs; i++)
		append_type(arguments, form->proargtypes.values[i]);
	for (int i = 0; modes != NULL && i < count; i++)
		if (modes[i] == PROARGMODE_OUT || modes[i] == PROARGMODE_INOUT ||
			modes[i] == PROARGMODE_TABLE)
			append_type(results, types[i]);
	if (results->len == 0)
		append_type(results, form->prorettype);
}

void
signature_check(FunctionCallInfo fcinfo, const char *arguments, const char *results)
{
	FmgrInfo   *info = fcinfo->flinfo;
	HeapTuple	function;
	StringInfoData declared_arguments;
	StringInfoData declared_results;

	if (info->fn_extra != NULL)
		return;
	function = SearchSysCache1(PROCOID, ObjectIdGetDatum(info->fn_oid));
	if (!HeapTupleIsValid(function))
		elog(ERROR, "cache lookup failed for function %u", info->fn_oid);
	initStringInfo(&declared_arguments);
	initStringInfo(&declared_results);
	signature_declared(function, &declared_arguments, &declared_results);
	ReleaseSysCache(function);
	if (strcmp(declared_arguments.data, arguments) != 0 ||
		strcmp(declared_results.data, results) != 0)
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("function %s was declared for another version of the gpuann library",
					format_procedure(info->fn_oid)),
			 errdetail("The library that is loaded takes (%s) and returns (%s).", arguments,
					   results),
			 errhint(
				 "If the extension has been updated, restart PostgreSQL to load its new library; "
				 "if the library has been, run ALTER EXTENSION gpuann UPDATE.")));
	pfree(declared_arguments.data);
	pfree(declared_results.data);
	info->fn_extra = info;		/* no need to look again */
}
