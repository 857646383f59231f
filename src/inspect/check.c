/*
 * check.c
 *		gpuann_check(index, heapallindexed): verify an index's format, and its
 *		agreement with the table.
 *
 * On a primary the linker is kept out, so edges, deaths and the trimming of the
 * list stand still; inserts go on, and every rule is written to hold among them
 * (README, gpuann_check). On a standby nothing can be kept out: when something
 * looks wrong and replay has linked or vacuumed since the check began, the
 * check starts again.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"
#include "utils/wait_event.h"

#include "inspect/check.h"
#include "base/signature.h"

#define STANDBY_TRIES		30		/* checks restarted because replay changed the index */
#define STANDBY_SAME		6		/* the same violation found this many times in a row is damage,
									 * because violations caused by concurrent replay move */
#define STANDBY_PAUSE_MS	100
#define STANDBY_MAX_PAUSE_MS	5000

/* Allocate the per-slot arrays. */
static void
prepare_slots(IndexCheck *check)
{
	Oid			less = lookup_type_cache(UUIDOID, TYPECACHE_LT_OPR)->lt_opr;

	check->node = palloc(check->format->node_bytes);
	check->list_seen = palloc0(sizeof(bool) * check->append.superblocks);
	check->superblock_seq = palloc0(sizeof(uint64) * check->append.superblocks);
	check->slots =
		palloc_extended(Max(check->append.next_fresh, 1), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	check->rows = tuplesort_begin_datum(UUIDOID, less, InvalidOid, false, maintenance_work_mem,
										NULL, TUPLESORT_NONE);
}

/*
 * Run all checks, in an order in which each relies only on what earlier ones
 * have verified.
 */
static bool
check_parts(IndexCheck *check)
{
	if (!check_metapage(check) || !check_pending_chain(check) || !check_append_point(check))
		return false;
	prepare_slots(check);
	return check_pending_entries(check) && check_spare_pending(check) && check_nodes(check) &&
		   check_late_entries(check) && check_free_list(check) && check_rows(check) &&
		   (format_has_lists(check->format) ? check_lists(check) : check_seeds(check)) &&
		   check_vectors(check) && check_columns(check) && check_heap(check);
}

/* Error out with the violation. */
static void
report_violation(const IndexCheck *check)
{
	const char *name = RelationGetRelationName(check->index);

	if (check->bad_slot != NO_SLOT)
		ereport(ERROR, (errcode(ERRCODE_INDEX_CORRUPTED),
						errmsg("index \"%s\" is corrupted at block %u, slot %u: %s", name,
							   check->bad_block, check->bad_slot, check->what)));
	if (check->bad_block != InvalidBlockNumber)
		ereport(ERROR, (errcode(ERRCODE_INDEX_CORRUPTED),
						errmsg("index \"%s\" is corrupted at block %u: %s", name, check->bad_block,
							   check->what)));
	ereport(ERROR, (errcode(ERRCODE_INDEX_CORRUPTED),
					errmsg("index \"%s\" is corrupted: %s", name, check->what),
					errdetail("The row's TID is (%u,%u).",
							  ItemPointerGetBlockNumberNoCheck(&check->bad_row),
							  ItemPointerGetOffsetNumberNoCheck(&check->bad_row))));
}

/*
 * On a standby: the last violation that concurrent replay may have caused, and
 * how often in a row it was found.
 */
typedef struct Suspicion
{
	BlockNumber block;
	uint32		slot;
	ItemPointerData row;
	const char *what;
	int			times;
} Suspicion;

/* Count a violation found; whether it has been found often enough. */
static bool
check_suspect(Suspicion *suspicion, const IndexCheck *check)
{
	if (suspicion->what != check->what || suspicion->block != check->bad_block ||
		suspicion->slot != check->bad_slot ||
		memcmp(&suspicion->row, &check->bad_row, sizeof(ItemPointerData)) != 0)
		suspicion->times = 0;
	suspicion->what = check->what;
	suspicion->block = check->bad_block;
	suspicion->slot = check->bad_slot;
	suspicion->row = check->bad_row;
	return ++suspicion->times >= STANDBY_SAME;
}

/*
 * Run all checks once. Returns true if they pass, false if concurrent replay
 * may have caused a violation. Raises an error on damage.
 */
static bool
check_once(const SqlIndex *opened, bool replaying, bool heapallindexed, Suspicion *suspicion)
{
	MemoryContext memory =
		AllocSetContextCreate(CurrentMemoryContext, "gpuann check", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	IndexCheck	check = {0};
	bool		right;

	check.index = opened->index;
	check.heap = opened->heap;
	check.strategy = GetAccessStrategy(BAS_BULKREAD);
	check.page = palloc(BLCKSZ);
	if (heapallindexed)
	{
		check.snapshot = RegisterSnapshot(GetTransactionSnapshot());
		sql_index_require_usable(opened, check.snapshot);
	}
	check.blocks = RelationGetNumberOfBlocks(check.index);
	right = check_parts(&check);
	if (!right && (!replaying || check_suspect(suspicion, &check) || check_was_quiet(&check)))
		report_violation(&check);
	if (check.rows != NULL)
		tuplesort_end(check.rows);
	if (heapallindexed)
		UnregisterSnapshot(check.snapshot);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(memory);
	return right;
}

/* Sleep before the next try, longer with every try (backoff). */
static void
pause_for_replay(int tries)
{
	int			pause = Min(STANDBY_PAUSE_MS << Min(tries, 10), STANDBY_MAX_PAUSE_MS);

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, pause,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

PG_FUNCTION_INFO_V1(gpuann_check);

/* gpuann_check(index, heapallindexed): errors out at the first violation. */
Datum
gpuann_check(PG_FUNCTION_ARGS)
{
	bool		replaying = RecoveryInProgress();
	SqlIndex	opened;
	Suspicion	suspicion = {0};
	int			tries = 0;

	signature_check(fcinfo, "regclass,bool", "void");
	sql_index_open(PG_GETARG_OID(0), AccessShareLock, SQL_INDEX_WATCH, &opened);
	if (!replaying)
		(void) linker_lock(opened.index, true, false);
	while (!check_once(&opened, replaying, PG_GETARG_BOOL(1), &suspicion))
	{
		if (++tries == STANDBY_TRIES)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
							errmsg("index \"%s\" changed whenever it was checked",
								   RelationGetRelationName(opened.index)),
							errhint("Check it while the primary neither links nor vacuums it.")));
		pause_for_replay(tries);
	}
	if (!replaying)
		linker_unlock(opened.index, false);
	sql_index_close(&opened);
	PG_RETURN_VOID();
}
