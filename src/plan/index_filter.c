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

#include "plan/index_filter_private.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "page/columns.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

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
 * The type as which values of a type are compared: that below a domain, and
 * text for character varying.
 */
static Oid
compared_type(Oid type)
{
	type = getBaseType(type);
	if (type == VARCHAROID)
		return TEXTOID;
	return type == VARCHARARRAYOID ? TEXTARRAYOID : type;
}

/*
 * The column that an expression is, as a value of *type, its own as it is
 * compared; -1: it is none, or is not stored as values of that type are.
 */
static int
column_of(const IndexFilter *filter, Node *node, Oid *type)
{
	const Var  *var;

	*type = compared_type(exprType(node));
	while (IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	var = (const Var *) node;
	if (!IsA(node, Var) || (Index) var->varno != filter->relid || var->varlevelsup != 0 ||
		compared_type(var->vartype) != *type)
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
 * Add a step that compares a column, or its elements, of this type, with a
 * value, or with those of an array.
 */
static Excludes
add_comparison(IndexFilter *filter, FilterOp op, int column, Oid column_type, Node *value,
			   bool is_array, Oid function)
{
	Oid			type = compared_type(exprType(value));
	LateValue  *late;

	if (is_array && OidIsValid(get_element_type(type)))
		type = compared_type(get_element_type(type));
	if (!is_fixed(filter, value) || !is_comparable(column_type, type, is_array))
		return add_open(filter);
	late = palloc0(sizeof(LateValue));
	late->step = filter->nsteps;
	late->expression = (Expr *) value;
	late->type = type;
	late->is_array = is_array;
	late->column = column_type;
	late->kind = filter->kinds[column];
	late->function = function;
	filter->values = lappend(filter->values, late);
	return add_test(filter, op, column);
}

/*
 * Whether equal values of a type are equal byte by byte under a collation, as
 * texts are stored and compared.
 */
static bool
is_bytewise(Oid collation)
{
	return !OidIsValid(collation) || get_collation_isdeterministic(collation);
}

/*
 * Compile the comparison of a column with a value, or with those of an array.
 */
static Excludes
compile_comparison(IndexFilter *filter, int column, Oid column_type, Oid operator, Oid collation,
				   Node *value, bool is_array)
{
	bool		is_text = filter->kinds[column] == FILTER_TEXT;
	FilterOp	op;

	if (filter->kinds[column] == FILTER_TAGS || !comparison_of(operator, column_type, &op) ||
		(is_text && ((op != FILTER_EQ && op != FILTER_NE) || !is_bytewise(collation))))
		return add_open(filter);
	return add_comparison(filter, is_array ? FILTER_IN : op, column, column_type, value, is_array,
						  type_is_enum(column_type) ? get_opcode(operator) : InvalidOid);
}

/*
 * Compile && and @> of a set and an array.
 */
static Excludes
compile_sets(IndexFilter *filter, int column, Oid type, Oid operator, Oid collation, Node *value)
{
	if ((operator != OID_ARRAY_OVERLAP_OP && operator != OID_ARRAY_CONTAINS_OP) ||
		!is_bytewise(collation))
		return add_open(filter);
	return add_comparison(filter,
						  operator == OID_ARRAY_OVERLAP_OP ? FILTER_ANY_TAG : FILTER_ALL_TAGS,
						  column, compared_type(get_element_type(type)), value, true, InvalidOid);
}

/* ---- expressions ---- */

static Excludes
compile_operator(IndexFilter *filter, const OpExpr *expression)
{
	Node	   *left;
	Node	   *right;
	Oid			type;
	Oid			operator = expression->opno;
	int			column;

	if (list_length(expression->args) != 2)
		return add_open(filter);
	left = linitial(expression->args);
	right = lsecond(expression->args);
	column = column_of(filter, left, &type);
	if (column < 0)
	{
		column = column_of(filter, right, &type);
		right = left;
		operator = get_commutator(operator);
	}
	if (column < 0)
		return add_open(filter);
	if (filter->kinds[column] == FILTER_TAGS)
		return compile_sets(filter, column, type, operator, expression->inputcollid, right);
	return compile_comparison(filter, column, type, operator, expression->inputcollid, right,
							  false);
}

/*
 * Compile value = ANY (set).
 */
static Excludes
compile_element(IndexFilter *filter, int column, Oid type, const ScalarArrayOpExpr *expression)
{
	Node	   *value = linitial(expression->args);
	Oid			element = compared_type(get_element_type(type));
	FilterOp	op;

	if (!expression->useOr || !comparison_of(expression->opno, element, &op) || op != FILTER_EQ ||
		!is_bytewise(expression->inputcollid) || compared_type(exprType(value)) != element)
		return add_open(filter);
	return add_comparison(filter, FILTER_ANY_TAG, column, element, value, false, InvalidOid);
}

/*
 * = ANY of an array, and <> ALL: the contrary.
 */
static Excludes
compile_array(IndexFilter *filter, const ScalarArrayOpExpr *expression)
{
	Oid			type;
	int			column = column_of(filter, lsecond(expression->args), &type);
	FilterOp	op;
	Excludes	in;

	if (column >= 0 && filter->kinds[column] == FILTER_TAGS)
		return compile_element(filter, column, type, expression);
	column = column_of(filter, linitial(expression->args), &type);
	if (column < 0 || !comparison_of(expression->opno, type, &op) ||
		op != (expression->useOr ? FILTER_EQ : FILTER_NE))
		return add_open(filter);
	in = compile_comparison(filter, column, type, expression->opno, expression->inputcollid,
							lsecond(expression->args), true);
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
		if (filter_has_values(steps[i].op))
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
