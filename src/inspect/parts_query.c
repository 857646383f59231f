/*
 * parts_query.c
 *		gpuann_parts_query(relation, distance, k, columns, condition, without):
 *		write the query for the nearest rows of a partitioned table, part by
 *		part.
 *
 * postgres_fdw does not send the LIMIT of a query over several partitions to
 * their servers, and a MergeAppend, which keeps their order, asks one after the
 * other. With the LIMIT written into each part, servers get it, and an Append
 * below a Sort asks all at once (docs/scaling.md). The function only writes
 * text: rights are checked when that is run.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "foreign/foreign.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"

#include "base/signature.h"

/* The column of the distance in the query that is written. */
#define DISTANCE_COLUMN	"distance"

/* What is written into each part. */
typedef struct PartsQuery
{
	const char *columns;
	const char *distance;
	const char *condition;		/* NULL: none */
	int32		k;
	List	   *without;		/* OIDs of servers */
} PartsQuery;

/*
 * The names of a table's columns, in its order: parts may have another. The
 * query has one more, by which it sorts.
 */
static char *
column_names(Relation table)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; i < RelationGetNumberOfAttributes(table); i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(table), i);

		if (column->attisdropped)
			continue;
		if (strcmp(NameStr(column->attname), DISTANCE_COLUMN) == 0)
			ereport(ERROR, (errcode(ERRCODE_DUPLICATE_COLUMN),
							errmsg("table \"%s\" has a column \"%s\", as the query would",
								   RelationGetRelationName(table), DISTANCE_COLUMN),
							errhint("Name the columns wanted, that one by another name.")));
		appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "",
						 quote_identifier(NameStr(column->attname)));
	}
	return names.data;
}

/* The servers named; errors out on one that is unknown. */
static List *
servers_named(ArrayType *names)
{
	List	   *servers = NIL;
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	deconstruct_array(names, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
		if (!nulls[i])
			servers = lappend_oid(
				servers, get_foreign_server_oid(TextDatumGetCString(elements[i]), false));
	return servers;
}

/* Whether a part has rows of its own, and is not on a server left out. */
static bool
is_asked(const PartsQuery *query, Oid part)
{
	switch (get_rel_relkind(part))
	{
		case RELKIND_RELATION:
			return true;
		case RELKIND_FOREIGN_TABLE:
			return !list_member_oid(query->without, GetForeignTable(part)->serverid);
		default:
			return false;
	}
}

/* Write the query of one part. */
static void
write_part(StringInfo text, const PartsQuery *query, Oid part)
{
	appendStringInfo(
		text, "\t(SELECT %s, %s AS " DISTANCE_COLUMN " FROM ONLY %s%s%s%s ORDER BY %s LIMIT %d)",
		query->columns, query->distance,
		quote_qualified_identifier(get_namespace_name(get_rel_namespace(part)),
								   get_rel_name(part)),
		query->condition != NULL ? " WHERE (" : "",
		query->condition != NULL ? query->condition : "", query->condition != NULL ? ")" : "",
		query->distance, query->k);
}

/*
 * Write the whole query. OFFSET 0 keeps its Sort apart from the parts' own
 * order: a MergeAppend would ask one server after the other.
 */
static char *
write_query(Relation table, const PartsQuery *query)
{
	StringInfoData text;
	ListCell   *cell;
	int			parts = 0;

	initStringInfo(&text);
	appendStringInfoString(&text, "SELECT * FROM (\n");
	foreach(cell, find_all_inheritors(RelationGetRelid(table), AccessShareLock, NULL))
	{
		if (!is_asked(query, lfirst_oid(cell)))
			continue;
		if (parts++ > 0)
			appendStringInfoString(&text, "\n\tUNION ALL\n");
		write_part(&text, query, lfirst_oid(cell));
	}
	if (parts == 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("no part of table \"%s\" is left", RelationGetRelationName(table)),
						errhint("It has no partitions, or all are on servers to be left out.")));
	appendStringInfo(&text, "\n\tOFFSET 0) AS parts\nORDER BY " DISTANCE_COLUMN " LIMIT %d", query->k);
	return text.data;
}

/*
 * Policies of a partitioned table do not hold for its partitions when they are
 * read by their own names.
 */
static void
check_no_policies(Relation table)
{
	if (check_enable_rls(RelationGetRelid(table), InvalidOid, true) != RLS_ENABLED)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("row-level security of table \"%s\" applies to the current user",
					RelationGetRelationName(table)),
			 errdetail("Its policies do not hold for its parts, which the query would name."),
			 errhint("Query the table itself.")));
}

PG_FUNCTION_INFO_V1(gpuann_parts_query);

/*
 * gpuann_parts_query(relation, distance, k, columns, condition, without): the
 * query's text.
 */
Datum
gpuann_parts_query(PG_FUNCTION_ARGS)
{
	PartsQuery	query = {0};
	Relation	table;
	char	   *written;

	signature_check(fcinfo, "regclass,text,int4,text,text,_text", "text");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("relation, distance and k must not be null")));
	query.distance = text_to_cstring(PG_GETARG_TEXT_PP(1));
	query.k = PG_GETARG_INT32(2);
	if (query.k < 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("k must be at least 1")));
	if (!PG_ARGISNULL(4))
		query.condition = text_to_cstring(PG_GETARG_TEXT_PP(4));
	if (!PG_ARGISNULL(5))
		query.without = servers_named(PG_GETARG_ARRAYTYPE_P(5));

	table = relation_open(PG_GETARG_OID(0), AccessShareLock);
	if (table->rd_rel->relkind != RELKIND_PARTITIONED_TABLE &&
		table->rd_rel->relkind != RELKIND_RELATION &&
		table->rd_rel->relkind != RELKIND_FOREIGN_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", RelationGetRelationName(table)),
				 errhint("Name a partitioned table, or one that others inherit from.")));
	check_no_policies(table);
	query.columns =
		PG_ARGISNULL(3) ? column_names(table) : text_to_cstring(PG_GETARG_TEXT_PP(3));
	written = write_query(table, &query);
	relation_close(table, AccessShareLock);
	PG_RETURN_TEXT_P(cstring_to_text(written));
}
