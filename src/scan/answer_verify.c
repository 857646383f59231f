/*
 * answer_verify.c
 *		Proposals that the page does not confirm: could an honest server have
 *		made them?
 *
 * A mirror lags a little, so a proposal may name a row that has died since: it
 * is dropped, and nothing is missing. But a server that proposes rows it was
 * told are gone, or versions that never were, hides the rows that it should
 * have proposed in their place; its answer counts for nothing and the pages are
 * asked (design, I3, I5).
 *
 * What the server was told stands in MirrorTrack.changes_sent: changes of node
 * pages up to this number had reached the mirror before the query was posted. A
 * slot dies with a change; it comes back to life with an entry of the pending
 * list.
 *
 * A distance is the same wherever it is computed (I10), so one that is not the
 * row's is false too. Only one of an answer now and then is looked at: the
 * mirror is there so that backends need not read vectors, which may not even be
 * in memory.
 */
#include "postgres.h"

#include "scan/scan.h"

#include "client/mirror_table.h"

#define MEASURED_ONE_IN	64		/* answers */

bool
slot_came_since(GpuannScan *scan, uint32 slot, uint64 position)
{
	MetaPage	meta;
	PendingBounds	now;
	uint32	   *slots;
	uint32		count;
	bool		found = false;

	pending_bounds(scan->query.index, scan->format, &meta, &now);
	if (now.end <= position)
		return false;
	if (!pending_read(scan->query.index, scan->format, &now, position, now.end, &slots, &count))
		return true;
	for (uint32 i = 0; i < count && !found; i++)
		found = slots[i] == slot;
	if (slots != NULL)
		pfree(slots);
	return found;
}

AnswerVerdict
answer_verify(const GpuannScan *scan, const SearchResult *result, Page page, const NodeRecord *node)
{
	if (!PageIsNew(page) && NodeState(node) == NODE_LIVE && node->version == result->version)
		return ANSWER_GOOD;
	if (!scan->answer.of_server)
		return ANSWER_STALE;
	if (PageIsNew(page) || (int32) (result->version - node->version) > 0)
		return ANSWER_FALSE;
	if (PageTailOf(page)->change_seq > scan->answer.changes)
		return ANSWER_STALE;
	return NodeState(node) == NODE_LIVE ? ANSWER_UNCLEAR : ANSWER_FALSE;
}

bool
answer_was_honest(GpuannScan *scan, const SearchResult *result, AnswerVerdict verdict)
{
	if (verdict == ANSWER_UNCLEAR)
		return slot_came_since(scan, result->slot, scan->answer.position);
	return verdict != ANSWER_FALSE;
}

bool
answer_is_to_be_measured(void)
{
	static uint32 answers = 0;

	return answers++ % MEASURED_ONE_IN == 0;
}

bool
answer_is_measured(GpuannScan *scan, const SearchResult *result)
{
	const IndexFormat *format = scan->format;
	void	   *vector = MemoryContextAlloc(scan->memory, format->vector_bytes);
	NodeCopy   *node;
	double		distance;
	bool		good;

	read_vector(scan->query.index, format, result->slot, vector);
	distance = page_kernels(format)->exact(scan->query.vector, vector, format->dims);
	pfree(vector);
	if (distance == result->distance)
		return true;
	/* Unless the slot has got another row since it was found good. */
	node = MemoryContextAlloc(scan->memory, format->node_bytes);
	good = read_node(scan->query.index, format, result->slot, node) &&
		   node->version == result->version;
	pfree(node);
	return !good;
}
