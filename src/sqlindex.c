/*
 * sqlindex.c
 *		Opening the index that a SQL function was given.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"

#include "sqlindex.h"

/* Whether the user owns the index, or may maintain its table (PostgreSQL 17 and newer). */
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
 * Open and lock table and index. The table first, as everybody else does; privileges before any lock that could disturb others.
 */
void
sql_index_open(Oid oid, LOCKMODE mode, SqlIndex *opened)
{
	Oid			heap = IndexGetRelation(oid, true);

	if (!OidIsValid(heap))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("relation with OID %u is not an index", oid)));
	if (!may_maintain(oid, heap))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX, get_rel_name(oid));

	opened->mode = mode;
	opened->heap = table_open(heap, mode);
	opened->index = index_open(oid, mode);
	if (opened->index->rd_rel->relkind != RELKIND_INDEX || opened->index->rd_indam->amgettuple != gpuanngettuple)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a gpuann index", RelationGetRelationName(opened->index))));
	if (RELATION_IS_OTHER_TEMP(opened->index))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("cannot access temporary tables of other sessions")));
	if (!opened->index->rd_index->indisvalid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not valid", RelationGetRelationName(opened->index))));

	/* The index may have been dropped and its OID given to another table's while we had no lock. */
	if (IndexGetRelation(oid, true) != heap)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("index with OID %u was dropped", oid)));
}

void
sql_index_close(SqlIndex *opened)
{
	index_close(opened->index, opened->mode);
	table_close(opened->heap, opened->mode);
}
