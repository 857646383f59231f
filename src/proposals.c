/*
 * proposals.c
 *		Proposals that the page does not confirm: could an honest server have made them?
 *
 * A mirror lags a little, so a proposal may name a row that has died since: it is dropped, and nothing is missing. But a server that proposes
 * rows it was told are gone, or versions that never were, hides the rows that it should have proposed in their place; its answer counts for
 * nothing and the pages are asked (design, I3, I5).
 *
 * What the server was told stands in MirrorTrack.changes_sent: changes of node pages up to this number had reached the mirror before the
 * query was posted. A slot dies with a change; it comes back to life with an entry of the pending list.
 */
#include "postgres.h"

#include "scan.h"

#include "mirrors.h"

/* Whether a slot is among the list entries that the answer did not cover; true as well if they can no longer be read. */
static bool
came_since(GpuannScan *scan, uint32 slot)
{
	MetaPage	meta;
	ListBounds	now;
	uint32	   *slots;
	uint32		count;
	bool		found = false;

	list_bounds(scan->query.index, scan->format, &meta, &now);
	if (now.end <= scan->answer.position)
		return false;
	if (!list_read(scan->query.index, scan->format, &now, scan->answer.position, now.end, &slots, &count))
		return true;
	for (uint32 i = 0; i < count && !found; i++)
		found = slots[i] == slot;
	if (slots != NULL)
		pfree(slots);
	return found;
}

ProposalVerdict
proposal_verdict(const GpuannScan *scan, const SearchResult *result, Page page, const NodeRecord *node)
{
	if (!PageIsNew(page) && NodeState(node) == NODE_LIVE && node->version == result->version)
		return PROPOSAL_GOOD;
	if (!scan->answer.of_server)
		return PROPOSAL_STALE;
	if (PageIsNew(page) || (int32) (result->version - node->version) > 0)
		return PROPOSAL_FALSE;
	if (PageTailOf(page)->change_seq > scan->answer.changes)
		return PROPOSAL_STALE;
	return NodeState(node) == NODE_LIVE ? PROPOSAL_UNCLEAR : PROPOSAL_FALSE;
}

bool
proposal_was_honest(GpuannScan *scan, const SearchResult *result, ProposalVerdict verdict)
{
	if (verdict == PROPOSAL_UNCLEAR)
		return came_since(scan, result->slot);
	return verdict != PROPOSAL_FALSE;
}
