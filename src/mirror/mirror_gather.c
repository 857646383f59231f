/*
 * mirror_gather.c
 *		Collect graph rows and dead slots from node pages, and send them through
 *		a bulk channel.
 *
 * Several superblocks are combined until they have GATHER_BYTES of rows,
 * because the context switches of an operation cost more than copying a few
 * rows. The next rows are collected while the server processes the last ones.
 * The node records of one more superblock, at most 128 pages, fit into a
 * channel besides.
 */
#include "base/base.h"

#include "mirror/worker.h"

#include "storage/bufmgr.h"

#define GATHER_BYTES	(256 * 1024)	/* collecting this much takes about as long as sending it */

uint32
gather_few(const IndexFormat *format)
{
	return (uint32) Max(GATHER_BYTES / ((format->degree + 1) * sizeof(uint32)), 1);
}

void
gather_begin(NodeGathering *gathering, const IndexFormat *format, uint32 enough)
{
	Size		slots = (Size) enough + format->superblock_slots;

	*gathering = (NodeGathering) {
		.enough = enough,
		.graph_slots = palloc(slots * sizeof(uint32)),
		.graph_rows = palloc(slots * format->degree * sizeof(uint32)),
		.dead_slots = palloc(slots * sizeof(uint32)),
		.dead_versions = palloc(slots * sizeof(uint32)),
	};
}

bool
gather_has_room(const NodeGathering *gathering)
{
	return Max(gathering->ngraph, gathering->ndead) < gathering->enough;
}

/* What a mirror needs to know about a node. */
typedef struct NodeUpdate
{
	bool		dead;
	bool		linked;			/* dead rows are linked too */
	bool		known;			/* the mirror has the same already */
} NodeUpdate;

/* What a mirror needs to know about a slot. Updates its checksum in sums. */
static NodeUpdate
node_update(const MirrorSlice *slice, NodeChecksums *sums, Page page, uint32 slot)
{
	const IndexFormat *format = slice->format;
	const NodeRecord *node = node_record(format, page, slot);
	uint32		state = NodeState(node);
	NodeUpdate	update = {.dead = state != NODE_LIVE && state != NODE_ABSENT};

	update.linked = (state == NODE_LIVE || state == NODE_DEAD) && (node->flags & NODE_LINKED) != 0;
	if (sums != NULL && (update.dead || update.linked))
		update.known = node_checksums_note_row(
			sums, slot, graph_row(format, page, slot), update.linked ? format->degree : 0,
			slice->progress->rows, update.dead ? (uint64) node->version + 1 : 0);
	return update;
}

/* Add one slot. */
static void
gather_node(NodeGathering *gathering, const MirrorSlice *slice, Page page, uint32 slot,
			bool dead_too)
{
	const IndexFormat *format = slice->format;
	/* a load does not send dead slots, so it does not record checksums */
	NodeUpdate	update = node_update(slice, dead_too ? slice->sums : NULL, page, slot);

	if (update.known)
		return;
	if (dead_too && update.dead)
	{
		gathering->dead_slots[gathering->ndead] = slot;
		gathering->dead_versions[gathering->ndead++] = node_record(format, page, slot)->version;
	}
	if (update.linked)
	{
		gathering->graph_slots[gathering->ngraph] = slot;
		memcpy(gathering->graph_rows + (Size) gathering->ngraph++ * format->degree,
			   graph_row(format, page, slot), format->degree * sizeof(uint32));
	}
}

/*
 * Read a node page of a superblock, and the range of its slots that the mirror
 * has. Returns false if there are no more pages; *buffer is invalid if the page
 * was never written.
 */
static bool
read_node_page(const MirrorSlice *slice, uint32 superblock, uint32 number, Buffer *buffer,
			   uint32 *first, uint32 *end)
{
	const IndexFormat *format = slice->format;

	*first = node_page_first_slot(format, superblock, number);
	*end = Min(*first + format->nodes_per_page, (superblock + 1) * format->superblock_slots);
	*end = Min(*end, slice->progress->rows);
	if (number >= format->node_pages || *first >= slice->progress->rows)
		return false;
	*buffer = slice_read_page(slice, node_block(format, *first), PAGE_NODE);
	return true;
}

void
gather_superblock(const MirrorSlice *slice, uint32 superblock, uint64 change_seq, bool dead_too,
				  NodeGathering *gathering)
{
	Buffer		buffer;
	uint32		first;
	uint32		end;

	Assert(gather_has_room(gathering));
	for (uint32 i = 0; read_node_page(slice, superblock, i, &buffer, &first, &end); i++)
	{
		if (!BufferIsValid(buffer))
			continue;
		if (change_seq == 0 || PageTailOf(BufferGetPage(buffer))->change_seq > change_seq)
		{
			for (uint32 slot = first; slot < end; slot++)
				gather_node(gathering, slice, BufferGetPage(buffer), slot, dead_too);
		}
		UnlockReleaseBuffer(buffer);
	}
}

void
gather_checksums(const MirrorSlice *slice, uint32 superblock, uint64 change_seq)
{
	Buffer		buffer;
	uint32		first;
	uint32		end;

	for (uint32 i = 0; read_node_page(slice, superblock, i, &buffer, &first, &end); i++)
	{
		if (!BufferIsValid(buffer))
			continue;
		if (PageTailOf(BufferGetPage(buffer))->change_seq <= change_seq)
		{
			for (uint32 slot = first; slot < end; slot++)
				(void) node_update(slice, slice->sums, BufferGetPage(buffer), slot);
		}
		UnlockReleaseBuffer(buffer);
	}
}

SliceEnding
gather_prepare(MirrorSlice *slice, const NodeGathering *gathering)
{
	Size		row_bytes = slice->format->degree * sizeof(uint32);
	ChannelRequest *request = slice_prepare(slice, CHANNEL_GRAPH);
	void	   *slots =
		channel_array(slice->channel, gathering->ngraph * sizeof(uint32), &request->slots_offset);
	void	   *rows =
		channel_array(slice->channel, gathering->ngraph * row_bytes, &request->body_offset);

	if (slots == NULL || rows == NULL)
		return slice_failed(slice, ENGINE_UNSUPPORTED,
							"graph rows of superblocks do not fit a bulk channel");
	memcpy(slots, gathering->graph_slots, gathering->ngraph * sizeof(uint32));
	memcpy(rows, gathering->graph_rows, gathering->ngraph * row_bytes);
	request->count = gathering->ngraph;
	return SLICE_IDLE;
}

/* Send the collected dead slots. */
static SliceEnding
gather_send_dead(MirrorSlice *slice, const NodeGathering *gathering)
{
	ChannelRequest *request = slice_prepare(slice, CHANNEL_DEAD);
	void	   *slots =
		channel_array(slice->channel, gathering->ndead * sizeof(uint32), &request->slots_offset);
	void	   *versions =
		channel_array(slice->channel, gathering->ndead * sizeof(uint32), &request->versions_offset);

	if (slots == NULL || versions == NULL)
		return slice_failed(slice, ENGINE_UNSUPPORTED,
							"slots of superblocks do not fit a bulk channel");
	memcpy(slots, gathering->dead_slots, gathering->ndead * sizeof(uint32));
	memcpy(versions, gathering->dead_versions, gathering->ndead * sizeof(uint32));
	request->count = gathering->ndead;
	return slice_call(slice);
}

/* Wait for the answer to posted rows. */
static SliceEnding
await_rows(MirrorSlice *slice, NodeGathering *gathering)
{
	if (!gathering->rows_posted)
		return SLICE_IDLE;
	gathering->rows_posted = false;
	return slice_await(slice);
}

SliceEnding
gather_post(MirrorSlice *slice, NodeGathering *gathering)
{
	SliceEnding ending = await_rows(slice, gathering);

	if (ending == SLICE_IDLE && gathering->ndead > 0)
		ending = gather_send_dead(slice, gathering);
	if (ending == SLICE_IDLE && gathering->ngraph > 0)
	{
		ending = gather_prepare(slice, gathering);
		if (ending == SLICE_IDLE)
			ending = slice_post(slice);
		gathering->rows_posted = ending == SLICE_IDLE;
	}
	gathering->ndead = gathering->ngraph = 0;
	return ending;
}

SliceEnding
gather_send(MirrorSlice *slice, NodeGathering *gathering)
{
	SliceEnding ending = gather_post(slice, gathering);

	return ending == SLICE_IDLE ? await_rows(slice, gathering) : ending;
}

void
gather_end(NodeGathering *gathering)
{
	pfree(gathering->graph_slots);
	pfree(gathering->graph_rows);
	pfree(gathering->dead_slots);
	pfree(gathering->dead_versions);
}
