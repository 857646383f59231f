/*
 * validate.c
 *		amvalidate: whether an operator class has the operators and support
 *		functions that the access method needs, with the right signatures.
 */
#include "base/handler.h"

#include "access/amvalidate.h"
#include "access/htup_details.h"
#include "catalog/pg_am.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_amproc.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

/* An operator class under examination. */
typedef struct Examined
{
	Oid			opclass;
	Oid			family;
	Oid			type;			/* the type it indexes */
	char	   *name;
	bool		valid;
	Oid			operator;		/* for its own type */
	Oid			type_proc;		/* support function 2 for its own type, of the right signature */
	bool		has_proc[GPUANN_NUM_PROCS + 1];
} Examined;

/*
 * Report a defect.
 */
#define INVALID(examined, ...) \
	do { \
		ereport(INFO, \
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION), \
				 errmsg(__VA_ARGS__))); \
		(examined)->valid = false; \
	} while (0)

/*
 * Examine an operator of the family.
 */
static void
examine_operator(Examined *examined, const FormData_pg_amop *operator)
{
	char	   *name = format_operator(operator->amopopr);

	if (operator->amopstrategy != GPUANN_STRATEGY_DISTANCE)
		INVALID(
			examined,
			"operator family of class \"%s\" of access method gpuann contains operator %s with invalid strategy number %d",
			examined->name, name, operator->amopstrategy);
	if (operator->amoppurpose != AMOP_ORDER)
		INVALID(
			examined,
			"operator family of class \"%s\" of access method gpuann contains operator %s that is not for ordering",
			examined->name, name);
	else if (get_op_rettype(operator->amopopr) != FLOAT8OID ||
			 !opfamily_can_sort_type(operator->amopsortfamily, FLOAT8OID))
		INVALID(
			examined,
			"operator family of class \"%s\" of access method gpuann contains incorrect ORDER BY specification for operator %s",
			examined->name, name);
	if (!check_amop_signature(operator->amopopr,
							  FLOAT8OID, operator->amoplefttype, operator->amoprighttype) ||
		operator->amoplefttype != operator->amoprighttype)
		INVALID(
			examined,
			"operator family of class \"%s\" of access method gpuann contains operator %s with wrong signature",
			examined->name, name);
	if (operator->amoplefttype == examined->type && operator->amoprighttype == examined->type)
		examined->operator = operator->amopopr;
}

/*
 * Examine a support function of the family.
 */
static void
examine_proc(Examined *examined, const FormData_pg_amproc *proc)
{
	char	   *name = format_procedure(proc->amproc);
	bool		right;

	switch (proc->amprocnum)
	{
		case GPUANN_DISTANCE_PROC:
			right = check_amproc_signature(proc->amproc, FLOAT8OID, true, 2, 2,
										   proc->amproclefttype, proc->amproclefttype);
			break;
		case GPUANN_TYPE_PROC:
			right = check_amproc_signature(proc->amproc, INTERNALOID, true, 1, 1, INTERNALOID);
			break;
		default:
			INVALID(
				examined,
				"operator family of class \"%s\" of access method gpuann contains function %s with invalid support number %d",
				examined->name, name, proc->amprocnum);
			return;
	}
	if (!right || proc->amproclefttype != proc->amprocrighttype)
		INVALID(
			examined,
			"operator family of class \"%s\" of access method gpuann contains function %s with wrong signature for support number %d",
			examined->name, name, proc->amprocnum);
	if (proc->amproclefttype == examined->type && proc->amprocrighttype == examined->type)
	{
		examined->has_proc[proc->amprocnum] = true;
		if (right && proc->amprocnum == GPUANN_TYPE_PROC)
			examined->type_proc = proc->amproc;
	}
}

/*
 * Examine everything in the family.
 */
static void
examine_family(Examined *examined)
{
	CatCList   *operators = SearchSysCacheList1(AMOPSTRATEGY, ObjectIdGetDatum(examined->family));
	CatCList   *procs = SearchSysCacheList1(AMPROCNUM, ObjectIdGetDatum(examined->family));

	for (int i = 0; i < operators->n_members; i++)
		examine_operator(examined, (FormData_pg_amop *) GETSTRUCT(&operators->members[i]->tuple));
	for (int i = 0; i < procs->n_members; i++)
		examine_proc(examined, (FormData_pg_amproc *) GETSTRUCT(&procs->members[i]->tuple));
	ReleaseCatCacheList(procs);
	ReleaseCatCacheList(operators);
}

/*
 * Examine whether operator and type are those that support function 2
 * describes; others would be interpreted wrongly.
 */
static void
examine_meaning(Examined *examined)
{
	static const char *const types[] = {
		[ELEMENT_FLOAT] = "vector", [ELEMENT_HALF] = "halfvec", [ELEMENT_BIT] = "bit"};
	static const char *const operators[] = {
		[METRIC_L2] = "<->", [METRIC_IP] = "<#>", [METRIC_COSINE] = "<=>",
		[METRIC_L1] = "<+>", [METRIC_HAMMING] = "<~>", [METRIC_JACCARD] = "<%>"
	};
	const GpuannTypeInfo *info;
	HeapTuple	tuple;
	char	   *operator;

	if (!examined->valid)
		return;
	info = (const GpuannTypeInfo *) DatumGetPointer(
		OidFunctionCall1(examined->type_proc, PointerGetDatum(NULL)));
	operator = get_opname(examined->operator);
	if (info->metric >= lengthof(operators) || operators[info->metric] == NULL ||
		strcmp(operator, operators[info->metric]) != 0)
		INVALID(
			examined,
			"operator class \"%s\" of access method gpuann has operator %s, but its support function %d is of another distance",
			examined->name, operator, GPUANN_TYPE_PROC);

	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(examined->type));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for type %u", examined->type);
	if (info->type >= lengthof(types) || types[info->type] == NULL ||
		strcmp(NameStr(((Form_pg_type) GETSTRUCT(tuple))->typname), types[info->type]) != 0)
		INVALID(
			examined,
			"operator class \"%s\" of access method gpuann is for type %s, but its support function %d is of another",
			examined->name, format_type_be(examined->type), GPUANN_TYPE_PROC);
	ReleaseSysCache(tuple);
}

/*
 * Whether an operator class is complete and right.
 */
bool
gpuannvalidate(Oid opclass)
{
	HeapTuple	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclass));
	Form_pg_opclass form;
	Examined	examined = {.opclass = opclass, .valid = true};

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u", opclass);
	form = (Form_pg_opclass) GETSTRUCT(tuple);
	examined.family = form->opcfamily;
	examined.type = form->opcintype;
	examined.name = pstrdup(NameStr(form->opcname));
	if (OidIsValid(form->opckeytype) && form->opckeytype != form->opcintype)
		INVALID(&examined, "operator class \"%s\" of access method gpuann stores another type",
				examined.name);
	ReleaseSysCache(tuple);

	examine_family(&examined);
	if (!OidIsValid(examined.operator))
		INVALID(&examined,
				"operator class \"%s\" of access method gpuann is missing its ordering operator",
				examined.name);
	for (int i = 1; i <= GPUANN_NUM_PROCS; i++)
	{
		if (!examined.has_proc[i])
			INVALID(&examined,
					"operator class \"%s\" of access method gpuann is missing support function %d",
					examined.name, i);
	}
	examine_meaning(&examined);
	return examined.valid;
}
