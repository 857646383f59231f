/*
 * dbhook.c
 *		Sends mirror workers out of a database that is about to be dropped, moved or copied.
 *
 * Such commands fail while anybody is connected to the database, and nobody should have to know that we are. While the command runs
 * the database is barred: no worker is started in it. On a standby replay ends the worker itself, as any backend.
 */
#include "gpuann.h"

#include "area.h"
#include "dbhook.h"
#include "mirrors.h"

#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/procarray.h"
#include "tcop/utility.h"

#define LEAVE_MS	5000		/* how long the command waits for them at most, as core does for other sessions */
#define LEAVE_POLL_MS 5

static ProcessUtility_hook_type prev_ProcessUtility = NULL;

bool
database_barred(Oid database)
{
	for (uint32 i = 0; i < gpuann_layout.slots; i++)
	{
		/* A backend that was terminated in the middle could not unbar it. */
		if (gpuann_barred[i].database == database && BackendPidGetProc(gpuann_barred[i].pid) != NULL)
			return true;
	}
	return false;
}

/* The database that a statement needs for itself; InvalidOid: none. */
static Oid
database_wanted_alone(Node *statement)
{
	const char *name = NULL;
	ListCell   *cell;

	switch (nodeTag(statement))
	{
		case T_DropdbStmt:
			name = ((DropdbStmt *) statement)->dbname;
			break;
		case T_RenameStmt:
			if (((RenameStmt *) statement)->renameType == OBJECT_DATABASE)
				name = ((RenameStmt *) statement)->subname;
			break;
		case T_AlterDatabaseStmt:
			foreach(cell, ((AlterDatabaseStmt *) statement)->options)
			{
				if (strcmp(((DefElem *) lfirst(cell))->defname, "tablespace") == 0)
					name = ((AlterDatabaseStmt *) statement)->dbname;
			}
			break;
		case T_CreatedbStmt:
			name = "template1";
			foreach(cell, ((CreatedbStmt *) statement)->options)
			{
				DefElem    *option = (DefElem *) lfirst(cell);

				if (strcmp(option->defname, "template") == 0 && option->arg != NULL)
					name = defGetString(option);
			}
			break;
		default:
			break;
	}
	return name != NULL ? get_database_oid(name, true) : InvalidOid;
}

/* Bar a database, for this backend; InvalidOid: none. */
static void
bar(Oid database)
{
	int			slot = area_my_slot();

	if (slot < 0)
		return;
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	gpuann_barred[slot].database = database;
	gpuann_barred[slot].pid = MyProcPid;
	LWLockRelease(gpuann_mirror_lock());
}

/* Ask the workers of a database to leave; true if there are any. */
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
	LWLockRelease(gpuann_mirror_lock());
	return any;
}

/* Wait until no worker is in a database. After LEAVE_MS the command goes on, and core says what it thinks. */
static void
await_leave(Oid database)
{
	int64		until = monotonic_ms() + LEAVE_MS;

	while (ask_to_leave(database) && monotonic_ms() < until)
	{
		CHECK_FOR_INTERRUPTS();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LEAVE_POLL_MS,
						 area_wait_event(AREA_WAIT_LEAVE));
		ResetLatch(MyLatch);
	}
}

/* Run a statement with its database to itself. */
static void
gpuann_ProcessUtility(PlannedStmt *planned, const char *text, bool read_only_tree, ProcessUtilityContext context,
					  ParamListInfo parameters, QueryEnvironment *environment, DestReceiver *destination,
					  QueryCompletion *completion)
{
	ProcessUtility_hook_type volatile next = prev_ProcessUtility ? prev_ProcessUtility : standard_ProcessUtility;
	Oid			database = gpuann_area != NULL ? database_wanted_alone(planned->utilityStmt) : InvalidOid;

	if (database == InvalidOid)
	{
		next(planned, text, read_only_tree, context, parameters, environment, destination, completion);
		return;
	}
	bar(database);
	PG_TRY();
	{
		await_leave(database);
		next(planned, text, read_only_tree, context, parameters, environment, destination, completion);
		if (IsA(planned->utilityStmt, DropdbStmt))
			mirrors_forget_database(database);
	}
	PG_FINALLY();
	{
		bar(InvalidOid);
		launcher_wake();
	}
	PG_END_TRY();
}

void
dbhook_init(void)
{
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = gpuann_ProcessUtility;
}
