/*
 * index_filter.c
 *		Quals as a program over the columns that an index includes.
 *
 * Operators are known by the btree family of the column's type, so is what they
 * mean. A clause is compiled as far as its parts are known; the others are
 * "open", which excludes no row. Constants, parameters and whatever else does
 * not depend on the row are computed when a scan begins, as the keys of other
 * indexes are. The quals themselves stay in the plan.
 */
#include "postgres.h"

#include "plan/index_filter.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "page/columns.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/date.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"
#include "utils/uuid.h"

/* A value of a step: known when a scan begins. */
typedef struct LateValue
{
	uint32		step;
	Expr	   *expression;
	ExprState  *state;
	Oid			type;			/* of the value, or of an array's elements */
	bool		is_array;
	Oid			column;			/* type of the column */
	FilterKind	kind;
	Oid			function;		/* enums have an order of their own: the operator's */
} LateValue;

struct IndexFilter
{
	/* what the columns are */
	const PlannerInfo *root;	/* NULL: in the executor */
	Index		relid;
	uint32		columns;
	AttrNumber	attnos[FILTER_MAX_COLUMNS];
	FilterKind	kinds[FILTER_MAX_COLUMNS];	/* as they are stored */

	uint32		alternatives;	/* ORs and NOTs around what is being compiled */

	/* the program, but for its values */
	FilterStep *steps;
	uint32		nsteps;
	uint32		room;
	List	   *values;			/* LateValues, in the order of their steps */
};

/* What a compiled expression can exclude: rows that pass it, rows that fail. */
typedef struct Excludes
{
	bool		passing;
	bool		failing;
} Excludes;

static Excludes compile(IndexFilter *filter, Node *node);

/* ---- steps ---- */

static FilterStep *
add_step(IndexFilter *filter, FilterOp op)
{
	if (filter->nsteps == filter->room)
	{
		filter->room = Max(filter->room * 2, 16);
		filter->steps = filter->steps == NULL
							? palloc(sizeof(FilterStep) * filter->room)
							: repalloc(filter->steps, sizeof(FilterStep) * filter->room);
	}
	filter->steps[filter->nsteps] = (FilterStep) {.op = (uint8) op};
	return &filter->steps[filter->nsteps++];
}

/* What no step expresses. */
static Excludes
add_open(IndexFilter *filter)
{
	add_step(filter, FILTER_OPEN);
	return (Excludes) {false, false};
}

static Excludes
add_not(IndexFilter *filter, Excludes of)
{
	add_step(filter, FILTER_NOT);
	return (Excludes) {of.failing, of.passing};
}

static Excludes
add_both(IndexFilter *filter, FilterOp op, Excludes a, Excludes b)
{
	add_step(filter, op);
	if (op == FILTER_AND)
		return (Excludes) {a.passing || b.passing, a.failing && b.failing};
	return (Excludes) {a.passing && b.passing, a.failing || b.failing};
}

/* A test of a column that needs no value but this one, if it has any. */
static Excludes
add_test(IndexFilter *filter, FilterOp op, int column)
{
	add_step(filter, op)->column = (uint8) column;
	return (Excludes) {true, true};
}

/* ---- columns and values ---- */

/*
 * The column that an expression is, as a value of *type, its own or that below
 * a domain; -1: it is none, or is not stored as values of that type are.
 */
static int
column_of(const IndexFilter *filter, Node *node, Oid *type)
{
	const Var  *var;

	*type = getBaseType(exprType(node));
	while (IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	var = (const Var *) node;
	if (!IsA(node, Var) || (Index) var->varno != filter->relid || var->varlevelsup != 0 ||
		getBaseType(var->vartype) != *type)
		return -1;
	for (uint32 i = 0; i < filter->columns; i++)
		if (filter->attnos[i] == var->varattno)
			return column_kind(*type) == filter->kinds[i] ? (int) i : -1;
	return -1;
}

/*
 * Whether an expression can be computed without calling a function.
 */
static bool
is_plain(Node *node)
{
	ListCell   *cell;

	switch (nodeTag(node))
	{
		case T_Const:
		case T_Param:
			return true;
		case T_RelabelType:
			return is_plain((Node *) ((RelabelType *) node)->arg);
		case T_ArrayExpr:
			foreach(cell, ((ArrayExpr *) node)->elements)
				if (!is_plain(lfirst(cell)))
					return false;
			return true;
		default:
			return false;
	}
}

/*
 * Whether an expression can be computed when a scan begins: it has one value
 * then. Beside an OR others may keep it from being computed, and from failing.
 * The executor sees parameters where the planner sees other relations' columns.
 */
static bool
is_fixed(const IndexFilter *filter, Node *node)
{
	if (contain_subplans(node) || contain_volatile_functions(node) ||
		(filter->alternatives > 0 && !is_plain(node)))
		return false;
	if (filter->root == NULL)
		return !contain_var_clause(node);
	return !bms_is_member((int) filter->relid,
						  pull_varnos(unconstify(PlannerInfo *, filter->root), node));
}

/*
 * Whether a column is compared with values of another type as PostgreSQL does:
 * what is converted is the value.
 */
static bool
is_comparable(Oid column, Oid type, bool is_array)
{
	if (column == type)
		return true;
	switch (column)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
			return type == INT2OID || type == INT4OID || type == INT8OID;
		case FLOAT4OID:
		case FLOAT8OID:
			return type == FLOAT4OID || type == FLOAT8OID;
		case DATEOID:
			return (type == TIMESTAMPOID || type == TIMESTAMPTZOID) && !is_array;
		case TIMESTAMPOID:
			return type == DATEOID;
		case TIMESTAMPTZOID:
			return type == DATEOID || type == TIMESTAMPOID;
		default:
			return false;
	}
}

/*
 * The comparison that an operator makes of values of a type. False: none.
 */
static bool
comparison_of(Oid operator, Oid type, FilterOp *op)
{
	static const FilterOp ops[] = {
		[BTLessStrategyNumber] = FILTER_LT, [BTLessEqualStrategyNumber] = FILTER_LE,
		[BTEqualStrategyNumber] = FILTER_EQ, [BTGreaterEqualStrategyNumber] = FILTER_GE,
		[BTGreaterStrategyNumber] = FILTER_GT
	};
	Oid			family = lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY)->btree_opf;
	int			strategy = OidIsValid(operator) ? get_op_opfamily_strategy(operator, family) : 0;
	Oid			negator;

	if (strategy >= BTLessStrategyNumber && strategy <= BTGreaterStrategyNumber)
	{
		*op = ops[strategy];
		return true;
	}
	negator = OidIsValid(operator) ? get_negator(operator) : InvalidOid;
	*op = FILTER_NE;
	return OidIsValid(negator) &&
		   get_op_opfamily_strategy(negator, family) == BTEqualStrategyNumber;
}

/*
 * Compile the comparison of a column with a value, or with those of an array.
 */
static Excludes
compile_comparison(IndexFilter *filter, int column, Oid column_type, Oid operator, Node *value,
				   bool is_array)
{
	Oid			type = getBaseType(exprType(value));
	LateValue  *late;
	FilterOp	op;

	if (is_array && OidIsValid(get_element_type(type)))
		type = getBaseType(get_element_type(type));
	if (!is_fixed(filter, value) || !is_comparable(column_type, type, is_array) ||
		!comparison_of(operator, column_type, &op))
		return add_open(filter);
	late = palloc0(sizeof(LateValue));
	late->step = filter->nsteps;
	late->expression = (Expr *) value;
	late->type = type;
	late->is_array = is_array;
	late->column = column_type;
	late->kind = filter->kinds[column];
	if (type_is_enum(column_type))
		late->function = get_opcode(operator);
	filter->values = lappend(filter->values, late);
	return add_test(filter, is_array ? FILTER_IN : op, column);
}

/* ---- expressions ---- */

static Excludes
compile_operator(IndexFilter *filter, const OpExpr *expression)
{
	Node	   *left;
	Node	   *right;
	Oid			type;
	int			column;

	if (list_length(expression->args) != 2)
		return add_open(filter);
	left = linitial(expression->args);
	right = lsecond(expression->args);
	column = column_of(filter, left, &type);
	if (column >= 0)
		return compile_comparison(filter, column, type, expression->opno, right, false);
	column = column_of(filter, right, &type);
	if (column >= 0)
		return compile_comparison(filter, column, type, get_commutator(expression->opno), left,
								  false);
	return add_open(filter);
}

/*
 * = ANY of an array, and <> ALL: the contrary.
 */
static Excludes
compile_array(IndexFilter *filter, const ScalarArrayOpExpr *expression)
{
	Oid			type;
	int			column = column_of(filter, linitial(expression->args), &type);
	FilterOp	op;
	Excludes	in;

	if (column < 0 || !comparison_of(expression->opno, type, &op) ||
		op != (expression->useOr ? FILTER_EQ : FILTER_NE))
		return add_open(filter);
	in = compile_comparison(filter, column, type, expression->opno, lsecond(expression->args),
							true);
	return expression->useOr ? in : add_not(filter, in);
}

/*
 * A boolean column by itself.
 */
static Excludes
compile_boolean(IndexFilter *filter, Node *node)
{
	Oid			type;
	int			column = column_of(filter, node, &type);
	LateValue  *late;

	if (column < 0 || type != BOOLOID)
		return add_open(filter);
	late = palloc0(sizeof(LateValue));
	late->step = filter->nsteps;
	late->expression = (Expr *) makeBoolConst(true, false);
	late->type = late->column = BOOLOID;
	late->kind = filter->kinds[column];
	filter->values = lappend(filter->values, late);
	return add_test(filter, FILTER_EQ, column);
}

/*
 * IS [NOT] TRUE, FALSE or UNKNOWN of a boolean column.
 */
static Excludes
compile_boolean_test(IndexFilter *filter, const BooleanTest *test)
{
	bool		is_false = test->booltesttype == IS_FALSE || test->booltesttype == IS_NOT_FALSE;
	bool		is_null = test->booltesttype == IS_UNKNOWN || test->booltesttype == IS_NOT_UNKNOWN;
	bool		is_not = test->booltesttype == IS_NOT_TRUE ||
		test->booltesttype == IS_NOT_FALSE || test->booltesttype == IS_NOT_UNKNOWN;
	Oid			type;
	int			column = column_of(filter, (Node *) test->arg, &type);
	Excludes	excludes;

	if (column < 0 || type != BOOLOID)
		return add_open(filter);
	if (is_null)
		excludes = add_test(filter, FILTER_IS_NULL, column);
	else
	{
		/* What is NULL is neither, and the test of it is false. */
		excludes = compile_boolean(filter, (Node *) test->arg);
		if (is_false)
			excludes = add_not(filter, excludes);
		excludes = add_both(filter, FILTER_AND, excludes,
							add_not(filter, add_test(filter, FILTER_IS_NULL, column)));
	}
	return is_not ? add_not(filter, excludes) : excludes;
}

static Excludes
compile_null_test(IndexFilter *filter, const NullTest *test)
{
	Oid			type;
	int			column = column_of(filter, (Node *) test->arg, &type);
	Excludes	excludes;

	if (column < 0 || test->argisrow)
		return add_open(filter);
	excludes = add_test(filter, FILTER_IS_NULL, column);
	return test->nulltesttype == IS_NULL ? excludes : add_not(filter, excludes);
}

/*
 * A constant condition.
 */
static Excludes
compile_constant(IndexFilter *filter, const Const *value)
{
	if (value->constisnull)
		add_step(filter, FILTER_NULL);
	else
		add_step(filter, DatumGetBool(value->constvalue) ? FILTER_TRUE : FILTER_FALSE);
	return (Excludes) {value->constisnull || !DatumGetBool(value->constvalue),
					   value->constisnull || DatumGetBool(value->constvalue)};
}

static Excludes
compile_list(IndexFilter *filter, FilterOp op, List *list)
{
	Excludes	all = {false, false};
	ListCell   *cell;

	foreach(cell, list)
	{
		Excludes	one = compile(filter, lfirst(cell));

		all = cell == list_head(list) ? one : add_both(filter, op, all, one);
	}
	return all;
}

/*
 * AND, OR, NOT. The parts of an AND below an OR or a NOT are alternatives, too.
 */
static Excludes
compile_junction(IndexFilter *filter, const BoolExpr *expression)
{
	Excludes	excludes;

	if (expression->boolop == AND_EXPR)
		return compile_list(filter, FILTER_AND, expression->args);
	filter->alternatives++;
	if (expression->boolop == OR_EXPR)
		excludes = compile_list(filter, FILTER_OR, expression->args);
	else
		excludes = add_not(filter, compile(filter, linitial(expression->args)));
	filter->alternatives--;
	return excludes;
}

/*
 * Compile an expression: what it can exclude.
 */
static Excludes
compile(IndexFilter *filter, Node *node)
{
	check_stack_depth();
	switch (nodeTag(node))
	{
		case T_OpExpr:
			return compile_operator(filter, (OpExpr *) node);
		case T_ScalarArrayOpExpr:
			return compile_array(filter, (ScalarArrayOpExpr *) node);
		case T_NullTest:
			return compile_null_test(filter, (NullTest *) node);
		case T_BooleanTest:
			return compile_boolean_test(filter, (BooleanTest *) node);
		case T_Var:
		case T_RelabelType:
			return compile_boolean(filter, node);
		case T_Const:
			return compile_constant(filter, (Const *) node);
		case T_BoolExpr:
			return compile_junction(filter, (BoolExpr *) node);
		default:
			return add_open(filter);
	}
}

/*
 * Whether the steps make a program: one that is not too deep.
 */
static bool
is_program(const IndexFilter *filter)
{
	FilterProgram program = {.steps = filter->steps, .nsteps = filter->nsteps};
	FilterStep *steps = palloc(sizeof(FilterStep) * Max(filter->nsteps, 1));
	bool		fault;

	/* Its values are not known yet. */
	memcpy(steps, filter->steps, sizeof(FilterStep) * filter->nsteps);
	for (uint32 i = 0; i < filter->nsteps; i++)
		if (steps[i].op <= FILTER_IN)
			steps[i].op = FILTER_IS_NULL;
	program.steps = steps;
	fault = filter_fault(&program, filter->kinds, filter->columns) != NULL;
	pfree(steps);
	return !fault;
}

/* ---- planning ---- */

List *
index_filter_clauses(PlannerInfo *root, const RelOptInfo *rel, const IndexOptInfo *index,
					 List *clauses)
{
	IndexFilter filter = {.root = root, .relid = rel->relid};
	const ColumnTable *table;
	Relation	relation;
	List	   *found = NIL;
	ListCell   *cell;

	if (index->ncolumns == index->nkeycolumns || clauses == NIL)
		return NIL;
	relation = index_open(index->indexoid, NoLock);
	table = peek_columns(relation);
	index_close(relation, NoLock);
	if (table == NULL || table->count != (uint32) (index->ncolumns - index->nkeycolumns))
		return NIL;
	filter.columns = table->count;
	for (uint32 i = 0; i < table->count; i++)
	{
		filter.attnos[i] = (AttrNumber) index->indexkeys[index->nkeycolumns + i];
		filter.kinds[i] = (FilterKind) table->columns[i].kind;
	}
	foreach(cell, clauses)
	{
		RestrictInfo *restriction = lfirst_node(RestrictInfo, cell);

		filter.nsteps = 0;
		if (!restriction->pseudoconstant &&
			compile(&filter, (Node *) restriction->clause).passing && is_program(&filter))
			found = lappend(found, restriction);
	}
	return found;
}

/* ---- execution ---- */

IndexFilter *
index_filter_begin(List *clauses, Relation index, Index relid, PlanState *state)
{
	IndexFilter *filter;
	const ColumnTable *table;
	int			keys = IndexRelationGetNumberOfKeyAttributes(index);
	ListCell   *cell;

	if (clauses == NIL || index_format(index)->column_bytes == 0)
		return NULL;
	table = index_columns(index);
	filter = palloc0(sizeof(IndexFilter));
	filter->relid = relid;
	filter->columns = table->count;
	for (uint32 i = 0; i < table->count; i++)
	{
		filter->attnos[i] = index->rd_index->indkey.values[keys + i];
		filter->kinds[i] = (FilterKind) table->columns[i].kind;
	}
	compile_list(filter, FILTER_AND, clauses);
	if (!is_program(filter))
		return NULL;
	foreach(cell, filter->values)
	{
		LateValue  *late = lfirst(cell);

		late->state = ExecInitExpr(late->expression, state);
	}
	return filter;
}

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
	switch (late->type)
	{
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
	/* Of no elements none is equal to NULL either. */
	if (count == 0)
		step->op = FILTER_FALSE;
	else if (step->count > 0)
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
