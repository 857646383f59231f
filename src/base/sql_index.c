/*
 * sql_index.c
 *		Open the index that a SQL function was given: privilege checks, and the
 *		user as whom its expressions are evaluated.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "optimizer/optimizer.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/syscache.h"

#include "base/sql_index.h"

/* Error out: the index was dropped before it was locked. */
static void
report_dropped(Oid index)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("index with OID %u was dropped", index),
			 errhint("REINDEX CONCURRENTLY may have put another in its place: try again.")));
}

/*
 * Whether the user owns the index, or may maintain its table (PostgreSQL 17 and
 * newer).
 */
static bool
may_maintain(Oid index, Oid heap)
{
#if PG_VERSION_NUM >= 170000
	if (pg_class_aclcheck(heap, GetUserId(), ACL_MAINTAIN) == ACLCHECK_OK)
		return true;
#endif
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(RelationRelationId, index, GetUserId());
#else
	return pg_class_ownercheck(index, GetUserId());
#endif
}

/*
 * Add the columns of an attribute of pg_index that holds an expression tree, as
 * it is stored: evaluating nothing.
 */
static void
add_columns_of(HeapTuple tuple, AttrNumber attribute, Bitmapset **columns)
{
	bool		isnull;
	Datum		tree = SysCacheGetAttr(INDEXRELID, tuple, attribute, &isnull);

	if (!isnull)
		pull_varattnos((Node *) stringToNode(TextDatumGetCString(tree)), 1, columns);
}

/*
 * The columns that an index is made of, its predicate's too, offset as
 * pull_varattnos does.
 */
static Bitmapset *
columns_of_index(Oid oid)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(oid));
	Form_pg_index form;
	Bitmapset  *columns = NULL;

	if (!HeapTupleIsValid(tuple))
		report_dropped(oid);
	form = (Form_pg_index) GETSTRUCT(tuple);
	for (int i = 0; i < form->indnatts; i++)
		if (form->indkey.values[i] != 0)
			columns = bms_add_member(columns,
									 form->indkey.values[i] - FirstLowInvalidHeapAttributeNumber);
	add_columns_of(tuple, Anum_pg_index_indexprs, &columns);
	add_columns_of(tuple, Anum_pg_index_indpred, &columns);
	ReleaseSysCache(tuple);
	return columns;
}

/* Whether the user may read all that an index is made of. */
static bool
may_read(Oid index, Oid heap)
{
	Bitmapset  *columns;
	int			column = -1;

	if (pg_class_aclcheck(heap, GetUserId(), ACL_SELECT) == ACLCHECK_OK)
		return true;
	columns = columns_of_index(index);
	while ((column = bms_next_member(columns, column)) >= 0)
	{
		AttrNumber	attribute = column + FirstLowInvalidHeapAttributeNumber;

		/* A whole-row reference needs the table's privilege. */
		if (attribute == InvalidAttrNumber ||
			pg_attribute_aclcheck(heap, attribute, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
			return false;
	}
	return true;
}

/* Error out unless the user may use the index so. */
static void
check_privileges(Oid index, Oid heap, SqlIndexUse use)
{
	switch (use)
	{
		case SQL_INDEX_READ:
		case SQL_INDEX_ROWS:
			if (!may_read(index, heap))
				aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, get_rel_name(heap));
			if (check_enable_rls(heap, InvalidOid, true) == RLS_ENABLED &&
				(use == SQL_INDEX_ROWS || !may_maintain(index, heap)))
				ereport(
					ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("row-level security of table \"%s\" applies to the current user",
							get_rel_name(heap)),
					 errdetail("Index \"%s\" would be read past the table's policies.",
							   get_rel_name(index)),
					 errhint(
						 "Call it as the table's owner, or as a role that bypasses row-level security.")));
			return;
		case SQL_INDEX_WATCH:
			if (has_privs_of_role(GetUserId(), ROLE_PG_STAT_SCAN_TABLES))
				return;
			break;
		case SQL_INDEX_MAINTAIN:
			break;
	}
	if (may_maintain(index, heap))
		return;
	if (use == SQL_INDEX_WATCH)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of index %s", get_rel_name(index)),
				 errhint("Members of pg_stat_scan_tables may look at the indexes of others.")));
	aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX, get_rel_name(index));
}

/* Become the table's owner, in a security-restricted operation. */
static void
become_owner(SqlIndex *opened)
{
	GetUserIdAndSecContext(&opened->user, &opened->security);
	SetUserIdAndSecContext(opened->heap->rd_rel->relowner,
						   opened->security | SECURITY_RESTRICTED_OPERATION);
	opened->guc_level = NewGUCNestLevel();
#if PG_VERSION_NUM >= 170000
	RestrictSearchPath();
#endif
}

/*
 * Open and lock table and index. The table is locked first, the lock order of
 * PostgreSQL; privileges are checked before any lock that could block other
 * sessions.
 */
void
sql_index_open(Oid oid, LOCKMODE mode, SqlIndexUse use, SqlIndex *opened)
{
	Oid			heap = IndexGetRelation(oid, true);

	if (!OidIsValid(heap))
	{
		const char *name = get_rel_name(oid);

		if (name == NULL)
			report_dropped(oid);
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("\"%s\" is not an index", name)));
	}
	check_privileges(oid, heap, use);

	opened->mode = mode;
	opened->heap = try_table_open(heap, mode);
	if (opened->heap == NULL)
		report_dropped(oid);
	/* Before opening the index, which may evaluate its expressions. */
	become_owner(opened);
	opened->index = try_relation_open(oid, mode);
	if (opened->index == NULL)
		report_dropped(oid);
	if (!is_gpuann_index(opened->index))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a gpuann index", RelationGetRelationName(opened->index))));
	if (RELATION_IS_OTHER_TEMP(opened->index))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot access temporary tables of other sessions")));
	if (!opened->index->rd_index->indisvalid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not valid", RelationGetRelationName(opened->index))));
	if (RecoveryInProgress() && !RelationIsPermanent(opened->index))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("unlogged index \"%s\" cannot be read during recovery",
							   RelationGetRelationName(opened->index))));

	/*
	 * The index may have been dropped and its OID given to another table's
	 * while we had no lock.
	 */
	if (IndexGetRelation(oid, true) != heap)
		report_dropped(oid);
}

/* Close the index, and restore the calling user. */
void
sql_index_close(SqlIndex *opened)
{
	AtEOXact_GUC(false, opened->guc_level);
	SetUserIdAndSecContext(opened->user, opened->security);
	index_close(opened->index, opened->mode);
	table_close(opened->heap, opened->mode);
}

/* Errors out if the snapshot is older than the index may be used with. */
void
sql_index_require_usable(const SqlIndex *opened, Snapshot snapshot)
{
	if (!IsolationUsesXactSnapshot() || !opened->index->rd_index->indcheckxmin)
		return;
	if (!TransactionIdPrecedes(HeapTupleHeaderGetXmin(opened->index->rd_indextuple->t_data),
							   snapshot->xmin))
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						errmsg("index \"%s\" is newer than this transaction's snapshot",
							   RelationGetRelationName(opened->index)),
						errhint("Start a new transaction, or use READ COMMITTED.")));
}
