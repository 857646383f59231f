/*
 * link.c
 *		The linker: lock, collecting what is not linked, and when to link it.
 *
 * Whoever holds the linker lock is the only writer of edges, of dead and
 * detached states, of the seed area and of the metapage's positions. Inserters
 * go on meanwhile: they touch free and fresh slots only, to which no edge
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

#define SLICE_MIN_MS		50		/* an inserter links so long where just too many rows wait, */
#define SLICE_MAX_MS		1000	/* and so long where twice as many do: the more rows a pass has,
									 * the less each costs */
#define SLICE_ROWS_MS		8		/* rows that can be linked over pages in a millisecond, at
									 * most */
#define FAR_TOO_MANY		4		/* times the limit: inserters that cannot link wait */
#define WAIT_MS				10		/* so long each time, */
#define WAIT_FOR_MS			2000	/* unless nothing was linked for so long: who has the lock then
									 * does something else */
#define SERVER_ROWS			16384	/* of a pass whose rows the server puts into lists */
#define COLLECTED_SHARE		64		/* of memory in bytes: the most slots collected for a pass */
#define COLLECT_CHUNK		65536	/* list entries read at once */

/* ---- the lock ---- */

/*
 * The linker lock. Its tag is made of the identity that lmgr.c's own locks of a
 * relation use, rd_lockInfo, which is read only. It is an object lock on the
 * index (sub-object 1): a page lock must not be held while others are taken,
 * which a worker's slices do.
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

/* Whether somebody waits for the linker lock that we hold. */
bool
linker_lock_wanted(Relation index, bool session)
{
	LOCKTAG		tag;

	linker_locktag(index, &tag);
	return LockHasWaiters(&tag, ExclusiveLock, session);
}

/* ---- collecting ---- */

/*
 * Whether a listed slot is live, and whether it is to be linked. An earlier
 * pass may have yielded before it came to the end of its list entries: the rows
 * that it wrote stay as they are. What a crash or an error cut short is stamped
 * with the number of a slice that never ended, and is linked again.
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

/* Take a slot into a pass. */
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

/* Collect the slots of a pass from where it ends so far. */
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

/*
 * Collect up to most slots that are listed before a position and not yet
 * linked.
 */
static void
collect_before(Relation index, const IndexFormat *format, uint64 end, uint32 most, LinkPass *pass)
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

void
link_collect(Relation index, const IndexFormat *format, uint32 most, LinkPass *pass)
{
	collect_before(index, format, PG_UINT64_MAX, most, pass);
}

/*
 * Let a pass take in what was listed since it was collected, up to a pending
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
	uint32		most = Max(link_memory() / COLLECTED_SHARE, 1024);

	if (manner->server != NULL)
		return Min(most, SERVER_ROWS);
	return manner->slice_ms == 0 ? most : Min(most, (uint32) (manner->slice_ms * SLICE_ROWS_MS));
}

/*
 * Passes until nothing is left, or the time of manner is up: in memory, over
 * pages, or of lists by the server.
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
		collect_before(index, format, end, most_slots(manner), &pass);
		if (pass.count == 0 || format_has_lists(format))
			memset(&rows, 0, sizeof(rows));
		else if (slice_ms > 0 || !link_in_memory(index, format, &pass, &rows))
			link_part_over_pages(index, format, &pass, manner, &rows);

		/*
		 * With nothing to link a pass still trims what the one before has
		 * linked.
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
link_pending(Relation index, const IndexFormat *format)
{
	return link_pending_telling(index, format, NULL);
}

uint32
link_pending_telling(Relation index, const IndexFormat *format, void (*tell) (int64 linked))
{
	LinkManner	manner = {.tell = tell};

	return link_passes(index, format, &manner);
}

/* How long an inserter links that finds so many rows waiting. */
static int
slice_length(uint64 waiting)
{
	uint64		limit = Max(gpuann_pending_limit, 1);
	uint64		beyond = Min(waiting - gpuann_pending_limit, limit);

	return SLICE_MIN_MS + (int) ((SLICE_MAX_MS - SLICE_MIN_MS) * beyond / limit);
}

/*
 * Somebody links, and far too many rows wait: inserters wait a moment, or as
 * many of them as there are processors would outrun him. But who holds the lock
 * may be a VACUUM, and link nothing for hours: the rows linked must have become
 * more lately, as far as this process has seen.
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

/* For inserters: link a slice if too much is pending. */
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
 * Let the worker link what is listed now, if one does so by the server, which
 * has the graph in memory already. As often as it takes, for a pass ends when
 * the worker has no more memory for it. Returns how many rows joined the graph
 * meanwhile.
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
	/* A VACUUM in between may have taken some out. */
	return meta.linked_slots > linked_before ? meta.linked_slots - linked_before : 0;
}

PG_FUNCTION_INFO_V1(gpuann_link);

/*
 * gpuann_link(index): link everything pending now; returns how many rows that
 * were.
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
	linked += link_pending(opened.index, index_format(opened.index));
	linker_unlock(opened.index, false);
	sql_index_close(&opened);
	PG_RETURN_INT64(linked);
}
