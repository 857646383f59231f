/*
 * mirrorgather.c
 *		Graph rows and deaths of a superblock, from its node pages to a lane.
 *
 * A superblock's node records, at most 128 pages of them, fit a lane, so one superblock is one step.
 */
#include "gpuann.h"

#include "worker.h"

#include "storage/bufmgr.h"

/* Room for every slot of a superblock. */
static void
gathering_init(NodeGathering *gathering, const IndexFormat *format)
{
	Size		slots = format->superblock_slots;

	memset(gathering, 0, sizeof(*gathering));
	gathering->room = format->superblock_slots;
	gathering->graph_slots = palloc(slots * sizeof(uint32));
	gathering->graph_rows = palloc(slots * format->degree * sizeof(uint32));
	gathering->dead_slots = palloc(slots * sizeof(uint32));
	gathering->dead_versions = palloc(slots * sizeof(uint32));
}

/* Gather one slot. */
static void
gather_node(NodeGathering *gathering, const IndexFormat *format, Page page, uint32 slot, bool dead_too)
{
	const NodeRecord *node = node_record(format, page, slot);
	uint32		state = NodeState(node);

	if (dead_too && state != NODE_LIVE && state != NODE_ABSENT)
	{
		gathering->dead_slots[gathering->ndead] = slot;
		gathering->dead_versions[gathering->ndead++] = node->version;
	}
	/* Dead rows still lead to others. */
	if ((state == NODE_LIVE || state == NODE_DEAD) && (node->flags & NODE_LINKED) != 0)
	{
		gathering->graph_slots[gathering->ngraph] = slot;
		memcpy(gathering->graph_rows + (Size) gathering->ngraph++ * format->degree, graph_row(format, page, slot),
			   format->degree * sizeof(uint32));
	}
}

void
gather_superblock(const MirrorSlice *slice, uint32 superblock, uint64 change_seq, bool dead_too,
				  NodeGathering *gathering)
{
	const IndexFormat *format = slice->format;

	gathering_init(gathering, format);
	for (uint32 i = 0; i < format->node_pages; i++)
	{
		uint32		first = node_page_first_slot(format, superblock, i);
		uint32		end = Min(first + format->nodes_per_page, (superblock + 1) * format->superblock_slots);
		Buffer		buffer;
		Page		page;

		if (first >= slice->progress->rows)
			break;
		buffer = slice_read_page(slice, node_block(format, first), PAGE_NODE);
		if (!BufferIsValid(buffer))
			continue;
		page = BufferGetPage(buffer);
		if (change_seq == 0 || PageTailOf(page)->change_seq > change_seq)
		{
			for (uint32 slot = first; slot < Min(end, slice->progress->rows); slot++)
				gather_node(gathering, format, page, slot, dead_too);
		}
		UnlockReleaseBuffer(buffer);
	}
}

/* Send the graph rows gathered. */
static SliceEnding
send_rows(MirrorSlice *slice, const NodeGathering *gathering)
{
	Size		row_bytes = slice->format->degree * sizeof(uint32);
	LaneRequest *request = slice_prepare(slice, LANE_GRAPH);
	void	   *slots = lane_array(slice->lane, gathering->ngraph * sizeof(uint32), &request->slots_offset);
	void	   *rows = lane_array(slice->lane, gathering->ngraph * row_bytes, &request->body_offset);

	if (slots == NULL || rows == NULL)
		return slice_failed(slice, ENGINE_UNSUPPORTED, "graph rows of a superblock do not fit a lane");
	memcpy(slots, gathering->graph_slots, gathering->ngraph * sizeof(uint32));
	memcpy(rows, gathering->graph_rows, gathering->ngraph * row_bytes);
	request->count = gathering->ngraph;
	return slice_call(slice);
}

/* Send the deaths gathered. */
static SliceEnding
send_dead(MirrorSlice *slice, const NodeGathering *gathering)
{
	LaneRequest *request = slice_prepare(slice, LANE_DEAD);
	void	   *slots = lane_array(slice->lane, gathering->ndead * sizeof(uint32), &request->slots_offset);
	void	   *versions = lane_array(slice->lane, gathering->ndead * sizeof(uint32), &request->versions_offset);

	if (slots == NULL || versions == NULL)
		return slice_failed(slice, ENGINE_UNSUPPORTED, "slots of a superblock do not fit a lane");
	memcpy(slots, gathering->dead_slots, gathering->ndead * sizeof(uint32));
	memcpy(versions, gathering->dead_versions, gathering->ndead * sizeof(uint32));
	request->count = gathering->ndead;
	return slice_call(slice);
}

SliceEnding
gather_send(MirrorSlice *slice, const NodeGathering *gathering)
{
	SliceEnding ending = SLICE_IDLE;

	if (gathering->ndead > 0)
		ending = send_dead(slice, gathering);
	if (ending == SLICE_IDLE && gathering->ngraph > 0)
		ending = send_rows(slice, gathering);
	pfree(gathering->graph_slots);
	pfree(gathering->graph_rows);
	pfree(gathering->dead_slots);
	pfree(gathering->dead_versions);
	return ending;
}
