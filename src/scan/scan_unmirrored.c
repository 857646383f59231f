/*
 * scan_unmirrored.c
 *		Rows of list entries that a mirror had not seen when it was asked,
 *		searched exactly.
 *
 * During inserts there are always a few, those of the last milliseconds, and
 * each query of each session meets them. Their records and vectors are on the
 * pages that the next inserts lock: reading them again for each query would
 * wait for inserters each time. So a session caches the rows of the newest
 * entries. An entry does not change, nor does its row's vector while it lives;
 * if the row has died, or its slot has another row, the version shows that when
 * it is to be emitted, as for any proposal.
 */
#include "base/base.h"

#include "base/sorts.h"
#include "client/mirror_table.h"
#include "scan/scan.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#define UNSEEN_MAX		256		/* rows kept, ... */
#define UNSEEN_BYTES	262144	/* ... as far as their vectors fit into this memory, which a
								 * session uses beside work_mem */

/* The row of an entry, as its node record said. */
typedef struct UnseenRow
{
	uint32		slot;
	uint32		version;
	bool		live;
} UnseenRow;

/*
 * What this process caches: the entries [first, end) of an index, each in the
 * place of its position modulo room.
 */
static struct
{
	MirrorKey	key;
	uint32		room;
	Size		stride;			/* of vectors */
	uint64		first;
	uint64		end;
	UnseenRow	rows[UNSEEN_MAX];
	char	   *vectors;
}			kept;

/* Cache entries of this index, from one on; those cached already stay. */
static void
keep_from(GpuannScan *scan, uint64 from)
{
	MirrorKey	key;

	mirror_key(scan->query.index, scan->meta.nonce, &key);
	if (kept.vectors == NULL)
		kept.vectors = MemoryContextAlloc(TopMemoryContext, UNSEEN_BYTES);
	if (from >= kept.first && from <= kept.end && memcmp(&key, &kept.key, sizeof(key)) == 0)
		return;
	kept.key = key;
	kept.stride = MAXALIGN(scan->format->vector_bytes);
	kept.room = Min(UNSEEN_MAX, UNSEEN_BYTES / kept.stride);
	kept.first = kept.end = from;
}

/* Read the row of the next entry. */
static void
keep_row(const GpuannScan *scan, uint32 slot)
{
	UnseenRow  *row = &kept.rows[kept.end % kept.room];
	Buffer		buffer;
	const NodeRecord *node;

	/* the place may be that of the first */
	kept.first = Max(kept.first, kept.end + 1 > kept.room ? kept.end + 1 - kept.room : 0);
	buffer = read_hinted_page(scan->query.index, node_block(scan->format, slot), PAGE_NODE, true);
	node = node_record(scan->format, BufferGetPage(buffer), slot);
	row->slot = slot;
	row->live = !PageIsNew(BufferGetPage(buffer)) && NodeState(node) == NODE_LIVE;
	row->version = row->live ? node->version : 0;
	UnlockReleaseBuffer(buffer);
	if (row->live)
		read_vector(scan->query.index, scan->format, slot,
					kept.vectors + (kept.end % kept.room) * kept.stride);
	kept.end++;
}

/*
 * Read the rows of the entries before a scan's end that are not kept yet.
 * False: they cannot be, one by one.
 */
static bool
keep_newest(const GpuannScan *scan)
{
	const PendingBounds *bounds = &scan->bounds;

	if (bounds->end > kept.end + bounds->newest_count)
		return false;
	while (kept.end < bounds->end)
	{
		uint32		slot = bounds->newest[bounds->newest_count - (uint32) (bounds->end - kept.end)];

		if (slot >= bounds->next_fresh)
			return false;
		CHECK_FOR_INTERRUPTS();
		keep_row(scan, slot);
	}
	return true;
}

bool
scan_unmirrored_search(GpuannScan *scan, uint64 from, const SearchBound *until, PageAnswer *answer)
{
	const IndexFormat *format = scan->format;
	const DistanceKernels *kernels = page_kernels(format);

	keep_from(scan, from);
	if (scan->bounds.end - from > kept.room || !keep_newest(scan))
		return false;
	answer->results = palloc((scan->bounds.end - from) * sizeof(SearchResult));
	for (uint64 position = from; position < scan->bounds.end; position++)
	{
		const UnseenRow *row = &kept.rows[position % kept.room];
		double		distance;

		if (!row->live)
			continue;
		answer->visited++;
		distance = kernels->exact(
			scan->query.vector, kept.vectors + (position % kept.room) * kept.stride, format->dims);
		if (!until->set || !engine_before(until->distance, until->slot, distance, row->slot))
			answer->results[answer->count++] = (SearchResult){distance, row->slot, row->version};
	}
	sort_answer(answer->results, answer->count);
	answer->pending = answer->visited;
	return true;
}
