/*
 * database_hook.c
 *		Have mirror workers leave a database that is about to be dropped,
 *		renamed, moved or copied.
 *
 * Such commands fail while other sessions are connected to the database, and
 * users should not have to care about our workers. Until the transaction of the
 * command ends the database is barred, that is, no worker is started in it.
 * (Several RENAMEs may be in one transaction.) On a standby, replay terminates
 * the worker like any backend.
 *
 * Workers serve all users of the database, so privileges are checked before
 * asking them to exit, by PostgreSQL's rules for the statement. PostgreSQL
 * checks them again afterwards, and reports the error. If it refuses the
 * statement for other reasons (other sessions, an encoding, a subscription),
 * the workers have exited, and are started again at once.
 */
#include "base/base.h"

#include "client/shmem.h"
#include "client/database_hook.h"
#include "client/mirror_table.h"

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "catalog/pg_tablespace.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/tablespace.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/procarray.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/syscache.h"

#define LEAVE_MS	5000		/* maximum wait for workers to exit, the same as core's for other
								 * sessions */
#define LEAVE_POLL_MS 5

/* A statement that needs a database without other sessions. */
typedef struct DatabaseStatement
{
	NodeTag		tag;
	const char *name;			/* NULL: it needs none */
	const char *new_name;		/* of a copy, or after RENAME */
	const char *owner;			/* of a copy; NULL: the current user */
	const char *tablespace;		/* of SET TABLESPACE */
	Oid			database;
} DatabaseStatement;

static ProcessUtility_hook_type prev_ProcessUtility = NULL;

/* Whether this transaction has barred databases. */
static bool bars_any = false;

/*
 * Whether a bar is in effect. The backend's process is checked too, because one
 * that was killed could not lift it.
 */
static bool
bar_holds(const BarredDatabase *bar)
{
	return OidIsValid(bar->database) && BackendPidGetProc(bar->pid) != NULL;
}

bool
database_barred(Oid database)
{
	for (uint32 i = 0; i < gpuann_layout.slots; i++)
	{
		if (gpuann_barred[i].database == database && bar_holds(&gpuann_barred[i]))
			return true;
	}
	return false;
}

/* ---- privileges, by PostgreSQL's rules ---- */

/* The value of an option of a statement; NULL: it has none, or DEFAULT. */
static const char *
option_value(List *options, const char *name)
{
	const char *value = NULL;
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = (DefElem *) lfirst(cell);

		if (strcmp(option->defname, name) == 0 && option->arg != NULL)
			value = defGetString(option);
	}
	return value;
}

/*
 * Whether a statement needs a database without other sessions; fills
 * *statement.
 */
static bool
read_statement(Node *node, DatabaseStatement *statement)
{
	memset(statement, 0, sizeof(*statement));
	statement->tag = nodeTag(node);
	switch (statement->tag)
	{
		case T_DropdbStmt:
			statement->name = ((DropdbStmt *) node)->dbname;
			break;
		case T_RenameStmt:
			if (((RenameStmt *) node)->renameType != OBJECT_DATABASE)
				return false;
			statement->name = ((RenameStmt *) node)->subname;
			statement->new_name = ((RenameStmt *) node)->newname;
			break;
		case T_AlterDatabaseStmt:
			statement->tablespace =
				option_value(((AlterDatabaseStmt *) node)->options, "tablespace");
			if (statement->tablespace == NULL)
				return false;
			statement->name = ((AlterDatabaseStmt *) node)->dbname;
			break;
		case T_CreatedbStmt:
			statement->name = option_value(((CreatedbStmt *) node)->options, "template");
			if (statement->name == NULL)
				statement->name = "template1";
			statement->new_name = ((CreatedbStmt *) node)->dbname;
			statement->owner = option_value(((CreatedbStmt *) node)->options, "owner");
			break;
		default:
			return false;
	}
	statement->database = get_database_oid(statement->name, true);
	return OidIsValid(statement->database);
}

/* Whether the current user owns a database, directly or by role membership. */
static bool
owns_database(Oid database)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(DatabaseRelationId, database, GetUserId());
#else
	return pg_database_ownercheck(database, GetUserId());
#endif
}

static bool
may_create_in_tablespace(Oid tablespace)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(TableSpaceRelationId, tablespace, GetUserId(), ACL_CREATE) ==
		ACLCHECK_OK;
#else
	return pg_tablespace_aclcheck(tablespace, GetUserId(), ACL_CREATE) == ACLCHECK_OK;
#endif
}

/* Whether the current user may create a database owned by this role. */
static bool
may_give_to(const char *owner)
{
	Oid			role = get_role_oid(owner, true);

#if PG_VERSION_NUM >= 160000
	return OidIsValid(role) && member_can_set_role(GetUserId(), role);
#else
	return OidIsValid(role) && is_member_of_role(GetUserId(), role);
#endif
}

static bool
may_create_databases(void)
{
	HeapTuple	tuple;
	bool		may;

	if (superuser())
		return true;
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	may = HeapTupleIsValid(tuple) && ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return may;
}

static bool
is_template(Oid database)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool		template = HeapTupleIsValid(tuple) &&
		((Form_pg_database) GETSTRUCT(tuple))->datistemplate;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return template;
}

/*
 * Whether PostgreSQL lets the current user do this to this database. It may
 * refuse more: a copy's encoding, locale or tablespace, a database with
 * replication slots or subscriptions. That is not checked: a user who gets this
 * far could have the workers exit anyway, by a statement that succeeds.
 */
static bool
is_allowed(const DatabaseStatement *statement, bool in_block)
{
	Oid			database = statement->database;
	Oid			tablespace;

	/*
	 * Only RENAME may run in a transaction block; none may run in a read-only
	 * transaction, in parallel mode or during recovery.
	 */
	if (XactReadOnly || IsInParallelMode() || (in_block && statement->tag != T_RenameStmt))
		return false;
	switch (statement->tag)
	{
		case T_DropdbStmt:
			return owns_database(database) && !is_template(database) && database != MyDatabaseId;
		case T_RenameStmt:
			return owns_database(database) && may_create_databases() && database != MyDatabaseId &&
				!OidIsValid(get_database_oid(statement->new_name, true));
		case T_AlterDatabaseStmt:
			tablespace = get_tablespace_oid(statement->tablespace, true);
			return owns_database(database) && database != MyDatabaseId && OidIsValid(tablespace) &&
				tablespace != GLOBALTABLESPACE_OID && may_create_in_tablespace(tablespace);
		default:
			return may_create_databases() && (is_template(database) || owns_database(database)) &&
				(statement->owner == NULL || may_give_to(statement->owner)) &&
				!OidIsValid(get_database_oid(statement->new_name, true));
	}
}

/* ---- barring ---- */

/*
 * Bar a database until this subtransaction ends. If this backend bars it
 * already, that was done by this or an outer subtransaction, and remains. There
 * is room for one bar per request slot; without room the database is not
 * barred, and a worker that is started waits for the database lock.
 */
static void
database_bar(Oid database)
{
	BarredDatabase *place = NULL;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	for (uint32 i = 0; i < gpuann_layout.slots; i++)
	{
		BarredDatabase *other = &gpuann_barred[i];

		if (!bar_holds(other))
			place = place != NULL ? place : other;
		else if (other->pid == MyProcPid && other->database == database)
		{
			place = NULL;
			break;
		}
	}
	if (place != NULL)
		*place = (BarredDatabase) {database, MyProcPid, GetCurrentSubTransactionId()};
	LWLockRelease(gpuann_mirror_lock());
	bars_any = true;
}

/*
 * Lift the bars of a subtransaction, or pass them to its parent; without a
 * subtransaction, lift all of this backend.
 */
static void
pass_bars(SubTransactionId subid, SubTransactionId parent)
{
	bool		lifted = false;

	if (!bars_any)
		return;
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	for (uint32 i = 0; i < gpuann_layout.slots; i++)
	{
		BarredDatabase *mine = &gpuann_barred[i];

		if (mine->pid != MyProcPid || !OidIsValid(mine->database) ||
			(subid != InvalidSubTransactionId && mine->subid != subid))
			continue;
		if (parent != InvalidSubTransactionId)
			mine->subid = parent;
		else
		{
			mine->database = InvalidOid;
			lifted = true;
		}
	}
	LWLockRelease(gpuann_mirror_lock());
	if (lifted)
		launcher_wake();
}

static void
database_hook_at_transaction_end(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	pass_bars(InvalidSubTransactionId, InvalidSubTransactionId);
	bars_any = false;
}

static void
database_hook_at_subtransaction_end(SubXactEvent event, SubTransactionId subid,
									SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		pass_bars(subid, InvalidSubTransactionId);
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
		pass_bars(subid, parent);
}

/*
 * Ask the workers of a database to exit; true if there are any. Called after
 * database_bar(): the launcher checks bars under the same lock before it starts
 * a worker, so none is missed.
 */
static bool
ask_to_leave(Oid database)
{
	bool		any = false;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	for (int i = 0; i < GPUANN_MAX_WORKERS; i++)
	{
		WorkerSlot *slot = &gpuann_control->workers[i];

		if (!slot->in_use || slot->database != database)
			continue;
		any = true;
		if (!slot->leave && slot->latch != NULL)
			SetLatch(slot->latch);
		slot->leave = true;
	}
	/* Readers exit when they find the database barred. */
	for (int i = 0; i < GPUANN_MAX_READERS; i++)
	{
		if (gpuann_control->readers[i].database != database)
			continue;
		any = true;
		SetLatch(gpuann_control->readers[i].latch);
	}
	LWLockRelease(gpuann_mirror_lock());
	return any;
}

/*
 * Wait until no worker is connected to a database. After LEAVE_MS the statement
 * continues, and core reports the remaining sessions.
 */
static void
await_leave(Oid database)
{
	int64		until = monotonic_ms() + LEAVE_MS;

	while (ask_to_leave(database) && monotonic_ms() < until)
		shmem_sleep(LEAVE_POLL_MS, SHMEM_WAIT_LEAVE);
}

/* ProcessUtility hook: run a statement after workers have left its database. */
static void
gpuann_ProcessUtility(PlannedStmt *planned, const char *text, bool read_only_tree,
					  ProcessUtilityContext context, ParamListInfo parameters,
					  QueryEnvironment *environment, DestReceiver *destination,
					  QueryCompletion *completion)
{
	ProcessUtility_hook_type next =
		prev_ProcessUtility ? prev_ProcessUtility : standard_ProcessUtility;
	bool		in_block = IsInTransactionBlock(context == PROCESS_UTILITY_TOPLEVEL);
	DatabaseStatement statement;

	if (gpuann_area == NULL || !read_statement(planned->utilityStmt, &statement) ||
		!is_allowed(&statement, in_block))
	{
		next(planned, text, read_only_tree, context, parameters, environment, destination,
			 completion);
		return;
	}
	database_bar(statement.database);
	await_leave(statement.database);
	next(planned, text, read_only_tree, context, parameters, environment, destination, completion);
	if (statement.tag == T_DropdbStmt)
		mirrors_forget_database(statement.database);
}

void
database_hook_init(void)
{
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = gpuann_ProcessUtility;
	RegisterXactCallback(database_hook_at_transaction_end, NULL);
	RegisterSubXactCallback(database_hook_at_subtransaction_end, NULL);
}
