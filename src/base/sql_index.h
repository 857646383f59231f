/*
 * sql_index.h
 *		Open the index that a SQL function was given: privilege checks, and the
 *		user as whom its expressions are evaluated.
 */
#ifndef GPUANN_SQL_INDEX_H
#define GPUANN_SQL_INDEX_H

#include "base/base.h"

#include "utils/snapshot.h"

/*
 * How a function uses an index, which determines the privileges that it needs.
 */
typedef enum SqlIndexUse
{
	SQL_INDEX_MAINTAIN,			/* write or load: the owner, MAINTAIN on the table, pg_maintain */
	SQL_INDEX_WATCH,			/* read it as a whole: those, and pg_stat_scan_tables */
	SQL_INDEX_READ,				/* measure answers: SELECT on what is indexed, and no row-level
								 * security that applies, unless the user may maintain it */
	SQL_INDEX_ROWS				/* tell rows: SELECT on what is indexed, and no row-level security
								 * that applies */
} SqlIndexUse;

typedef struct SqlIndex
{
	Relation	heap;
	Relation	index;
	LOCKMODE	mode;

	/* of the caller, while we are the table's owner */
	Oid			user;
	int			security;
	int			guc_level;
} SqlIndex;

/*
 * Open and lock table and index; errors out unless it is a valid gpuann index
 * that the user may use so. Until it is closed the table's owner is the current
 * user, in a security-restricted operation and, from version 17 on, with a safe
 * search_path: what the index's expressions call can do no more than its owner
 * could, and settings last no longer.
 */
extern void sql_index_open(Oid oid, LOCKMODE mode, SqlIndexUse use, SqlIndex *opened);
extern void sql_index_close(SqlIndex *opened);

/*
 * Errors out if a transaction snapshot is older than the index may be used with
 * (it was built over broken HOT chains).
 */
extern void sql_index_require_usable(const SqlIndex *opened, Snapshot snapshot);

#endif							/* GPUANN_SQL_INDEX_H */
