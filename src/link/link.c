/*
 * link.c
 *		The linker: its lock, collecting unlinked rows, and scheduling passes.
 *
 * The holder of the linker lock is the only writer of edges, of dead and
 * detached states, of the seed area and of the metapage's positions. Inserts
 * continue meanwhile: they write only free and fresh slots, to which no edge
 * leads.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "client/client.h"
#include "base/faults.h"
#include "link/link_lists.h"
#include "link/link_write.h"
#include "client/mirror_table.h"
#include "link/graph_edits.h"
#include "base/signature.h"
#include "base/sql_index.h"

#define SLICE_MIN_MS		50		/* duration of an inserter's slice just above the pending limit,
									 */
#define SLICE_MAX_MS		1000	/* and at twice the limit: linking more rows in a pass costs
									 * less per row */
#define SLICE_ROWS_MS		8		/* rows that can be linked over pages in a millisecond, at
									 * most */
#define FAR_TOO_MANY		4		/* above this many times the limit, inserters that cannot take
									 * the lock back off */
#define WAIT_MS				10		/* duration of a backoff, */
#define WAIT_FOR_MS			2000	/* unless no row was linked for this long: then the lock's
									 * holder is not linking */
#define SERVER_ROWS			16384	/* limit of a pass whose rows the server assigns to lists */
#define COLLECTED_DIVISOR	64		/* divisor of the memory limit in bytes, giving the maximum
									 * number of slots collected for a pass */
#define COLLECT_CHUNK		65536	/* list entries read at once */

/* ---- the lock ---- */

/*
 * The lock tag of the linker lock. It uses the identity that lmgr.c uses for
 * relation locks, rd_lockInfo, which is only read here. It is an object lock on
 * the index (sub-object 1) rather than a heavyweight page lock, because lmgr
 * does not allow taking other locks while a page lock is held, and a worker's
 * slices take relation locks.
 */
static void
linker_locktag(Relation index, LOCKTAG *tag)
{
	SET_LOCKTAG_OBJECT(*tag, index->rd_lockInfo.lockRelId.dbId, RelationRelationId,
					   index->rd_lockInfo.lockRelId.relId, 1);
}

/* Take the linker lock. */
bool
linker_lock(Relation index, bool wait, bool session)
{
	LOCKTAG		tag;

	linker_locktag(index, &tag);
	return LockAcquire(&tag, ExclusiveLock, session, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

void
linker_unlock(Relation index, bool session)
{
	LOCKTAG		tag;

	linker_locktag(index, &tag);
	LockRelease(&tag, ExclusiveLock, session);
}

/*
 * Whether another process waits for the linker lock, which this process holds.
 */
bool
linker_lock_wanted(Relation index, bool session)
{
	LOCKTAG		tag;

	linker_locktag(index, &tag);
	return LockHasWaiters(&tag, ExclusiveLock, session);
}

/* ---- collecting ---- */

/*
 * Whether a listed slot is live, and whether it has to be linked. Rows that a
 * pass wrote before it yielded to another process are complete, and are
 * skipped. Rows of a pass that was interrupted by a crash or an error have the
 * change sequence of a slice that never ended, and are linked again.
 */
static bool
look_at_listed(Relation index, const IndexFormat *format, uint32 slot, uint64 change_seq,
			   bool *to_link)
{
	Buffer buffer = read_page(index, node_block(format, slot), PAGE_NODE, BUFFER_LOCK_SHARE, true);
	Page		page = BufferGetPage(buffer);
	bool		live = false;

	if (!PageIsNew(page))
	{
		const NodeRecord *node = node_record(format, page, slot);

		live = NodeState(node) == NODE_LIVE;
		*to_link = (node->flags & NODE_LINKED) == 0 || PageTailOf(page)->change_seq > change_seq;
	}
	UnlockReleaseBuffer(buffer);
	return live;
}

/* Add a slot to a pass. */
static void
pass_add(LinkPass *pass, uint32 slot)
{
	if (pass->count == pass->room)
	{
		pass->room *= 2;
		pass->slots = repalloc_huge(pass->slots, sizeof(uint32) * pass->room);
		pass->places = repalloc_huge(pass->places, sizeof(LinkPlace) * pass->room);
	}
	pass->places[pass->count] = (LinkPlace) {(uint32) (pass->to - pass->from), pass->live};
	pass->slots[pass->count++] = slot;
}

/* Extend a pass: collect slots from pass->to on. */
static void
collect_on(Relation index, const IndexFormat *format, const MetaPage *meta,
		   const PendingBounds *bounds, uint64 end, uint32 most, LinkPass *pass)
{
	while (pass->to < end && (most == 0 || pass->count < most))
	{
		uint64		chunk_end = Min(end, pass->to + COLLECT_CHUNK);
		uint32	   *slots;
		uint32		count;

		if (!pending_read(index, format, bounds, pass->to, chunk_end, &slots, &count) ||
			count != chunk_end - pass->to)
			report_corrupt(index, meta->oldest_pending,
						   "the pending list was trimmed beyond what is linked");
		for (uint32 i = 0; i < count && (most == 0 || pass->count < most); i++)
		{
			bool		to_link;

			CHECK_FOR_INTERRUPTS();
			if (slots[i] >= bounds->next_fresh)
				report_corrupt(index, bounds->oldest_pending,
							   "the pending list names a slot that does not exist");
			if (look_at_listed(index, format, slots[i], meta->change_seq, &to_link))
			{
				if (to_link)
					pass_add(pass, slots[i]);
				pass->live++;
			}
			pass->to++;
		}
		pfree(slots);
	}
}

void
link_collect(Relation index, const IndexFormat *format, uint64 end, uint32 most, LinkPass *pass)
{
	MetaPage	meta;
	PendingBounds bounds;

	pending_bounds(index, format, &meta, &bounds);
	pass->from = pass->to = bounds.linked;
	pass->count = pass->live = 0;
	pass->room = 1024;
	pass->slots = palloc(sizeof(uint32) * pass->room);
	pass->places = palloc(sizeof(LinkPlace) * pass->room);
	collect_on(index, format, &meta, &bounds, Min(end, bounds.end), most, pass);
}

/*
 * Extend a pass by rows listed since it was collected, up to a pending
 * position.
 */
void
link_collect_more(Relation index, const IndexFormat *format, uint64 end, LinkPass *pass)
{
	MetaPage	meta;
	PendingBounds bounds;

	pending_bounds(index, format, &meta, &bounds);
	collect_on(index, format, &meta, &bounds, Min(end, bounds.end), 0, pass);
}

/* ---- passes ---- */

/* The most slots worth collecting for the next pass. */
static uint32
most_slots(const LinkManner *manner)
{
	uint32		most = Max(link_memory() / COLLECTED_DIVISOR, 1024);

	if (manner->server != NULL)
		return Min(most, SERVER_ROWS);
	return manner->slice_ms == 0 ? most : Min(most, (uint32) (manner->slice_ms * SLICE_ROWS_MS));
}

/*
 * Run passes until no row is pending or manner's time is used up: in memory,
 * over pages, or for lists by the server.
 */
uint32
link_passes(Relation index, const IndexFormat *format, LinkManner *manner)
{
	MemoryContext memory =
		AllocSetContextCreate(CurrentMemoryContext, "gpuann link pass", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	uint64		end = manner->server != NULL ? manner->server->position : PG_UINT64_MAX;
	int			slice_ms = manner->slice_ms;
	int64		began_ms = monotonic_ms();
	uint32		total = 0;
	bool		more = true;

	while (more)
	{
		MetaPage	meta;
		PendingBounds bounds;
		LinkPass	pass;
		LinkedRows	rows;

		pending_bounds(index, format, &meta, &bounds);
		link_collect(index, format, end, most_slots(manner), &pass);
		if (pass.count == 0 || format_has_lists(format))
			memset(&rows, 0, sizeof(rows));
		else if (slice_ms > 0 || !link_in_memory(index, format, &pass, &rows))
			link_part_over_pages(index, format, &pass, manner, &rows);

		/*
		 * A pass without rows to link still trims the entries linked by the
		 * previous one.
		 */
		if (pass.to > pass.from && format_has_lists(format))
			link_into_lists(index, format, &pass, manner->server);
		else if (pass.to > pass.from)
			link_write(index, format, &pass, &rows);
		else if (total == 0)
			pending_trim(index, format, meta.linked_position);
		total += pass.live;
		manner->before = total;
		if (manner->tell != NULL)
			manner->tell(total);
		more = pass.to > pass.from && pass.to < bounds.end;
		if (slice_ms > 0)
		{
			manner->slice_ms = slice_ms - (int) (monotonic_ms() - began_ms);
			more &= manner->slice_ms > 0;
		}
		MemoryContextReset(memory);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(memory);
	return total;
}

uint32
linked_but_listed(Relation index, const IndexFormat *format)
{
	NodeCopy   *node = palloc(format->node_bytes);
	MetaPage	meta;
	PendingBounds bounds;
	uint32	   *listed = NULL;
	uint32		nlisted;
	uint32		count = 0;

	pending_bounds(index, format, &meta, &bounds);
	if (!pending_read(index, format, &bounds, bounds.linked, bounds.end, &listed, &nlisted))
		report_corrupt(index, meta.oldest_pending,
					   "the pending list was trimmed beyond what is linked");
	for (uint32 i = 0; i < nlisted; i++)
	{
		link_pause();
		if (read_node(index, format, listed[i], node) && NodeState(node) == NODE_LIVE &&
			(node->flags & NODE_LINKED) != 0)
			count++;
	}
	if (listed != NULL)
		pfree(listed);
	pfree(node);
	return count;
}

uint32
link_pending(Relation index, const IndexFormat *format, void (*tell) (int64 linked))
{
	LinkManner	manner = {.tell = tell};

	return link_passes(index, format, &manner);
}

/*
 * Duration of an inserter's slice, in milliseconds, with this many rows
 * pending.
 */
static int
slice_length(uint64 waiting)
{
	uint64		limit = Max(gpuann_pending_limit, 1);
	uint64		beyond = Min(waiting - gpuann_pending_limit, limit);

	return SLICE_MIN_MS + (int) ((SLICE_MAX_MS - SLICE_MIN_MS) * beyond / limit);
}

/*
 * Back off from inserting while another process holds the linker lock and far
 * too many rows are pending: otherwise inserters on all processors would add
 * rows faster than one linker links them. The holder may be a VACUUM, which
 * links nothing for hours, so back off only if this process saw the linked
 * position advance within WAIT_FOR_MS.
 */
static void
wait_for_linker(Relation index, uint64 linked)
{
	static Oid	seen_index = InvalidOid;
	static uint64 seen_linked = 0;
	static int64 seen_ms = 0;
	int64		now = monotonic_ms();

	if (seen_index != RelationGetRelid(index) || seen_linked != linked)
	{
		seen_index = RelationGetRelid(index);
		seen_linked = linked;
		seen_ms = now;
	}
	if (now - seen_ms < WAIT_FOR_MS)
		pg_usleep(WAIT_MS * 1000L);
	CHECK_FOR_INTERRUPTS();
}

bool
link_for(Relation index, const IndexFormat *format, int slice_ms)
{
	LinkManner	manner = {.slice_ms = slice_ms};

	if (!linker_lock(index, false, false))
		return false;
	(void) link_passes(index, format, &manner);
	linker_unlock(index, false);
	return true;
}

/* For inserters: link for a slice if too many rows are pending. */
void
link_if_crowded(Relation index, const IndexFormat *format)
{
	MetaPage	meta;
	PendingBounds bounds;
	uint64		waiting;

	if (client_worker_links(index))
		return;
	pending_bounds(index, format, &meta, &bounds);
	waiting = bounds.end - bounds.linked;
	if (waiting <= (uint64) gpuann_pending_limit)
		return;
	if (!link_for(index, format, slice_length(waiting)) &&
		waiting / FAR_TOO_MANY > (uint64) gpuann_pending_limit)
		wait_for_linker(index, bounds.linked);
}

/*
 * Ask the mirror worker to link what is listed now, if it links by the server,
 * which has the graph in memory already. Repeat until that is linked, because a
 * pass ends when the worker's memory for it is used up. Taking and releasing
 * the linker lock waits for the end of the worker's pass. If the change
 * sequence is unchanged then, nothing was written, and the caller links.
 * Returns the number of rows linked meanwhile.
 */
static uint32
let_worker_link(Relation index, const IndexFormat *format)
{
	MetaPage	meta;
	PendingBounds bounds;
	uint64		end;
	uint64		change_seq;
	uint32		linked_before;

	pending_bounds(index, format, &meta, &bounds);
	end = bounds.end;
	linked_before = meta.linked_slots;
	while (bounds.linked < end && client_ask_to_link(index, end))
	{
		change_seq = meta.change_seq;
		(void) linker_lock(index, true, false);
		linker_unlock(index, false);
		pending_bounds(index, format, &meta, &bounds);
		if (meta.change_seq == change_seq)
			break;
	}
	/* a concurrent VACUUM may have removed linked rows */
	return meta.linked_slots > linked_before ? meta.linked_slots - linked_before : 0;
}

PG_FUNCTION_INFO_V1(gpuann_link);

/*
 * gpuann_link(index): link all rows pending now; returns their number.
 */
Datum
gpuann_link(PG_FUNCTION_ARGS)
{
	SqlIndex	opened;
	uint32		linked;

	signature_check(fcinfo, "regclass", "int8");
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("recovery is in progress"),
				 errhint("Rows are linked on the primary.")));
	sql_index_open(PG_GETARG_OID(0), RowExclusiveLock, SQL_INDEX_MAINTAIN, &opened);
	linked = let_worker_link(opened.index, index_format(opened.index));
	(void) linker_lock(opened.index, true, false);
	linked += link_pending(opened.index, index_format(opened.index), NULL);
	linker_unlock(opened.index, false);
	sql_index_close(&opened);
	PG_RETURN_INT64(linked);
}
