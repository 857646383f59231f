/*
 * check_rows.c
 *		gpuann_check: node records, graph rows, seeds, vectors.
 *
 * Each record is read once, and its state kept in check->slots. Under the
 * linker lock edges and linked, dead and detached states do not change, so
 * later comparisons are valid. Concurrent inserts only make free slots live,
 * and fresh ones, which are beyond the snapshot.
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/search.h"
#include "inspect/check.h"

typedef bool (*NodeJudge) (IndexCheck *check, uint32 slot, const NodeCopy *node);

/* ---- node pages ---- */

/* One node record by itself. */
static bool
judge_record(IndexCheck *check, uint32 slot, const NodeCopy *node)
{
	BlockNumber block = node_block(check->format, slot);
	uint16		state = NodeState(node);

	if (slot >= check->append.next_fresh)
	{
		/*
		 * An insert may have used it since the snapshot: check_late_entries
		 * decides.
		 */
		if (state != NODE_ABSENT)
			check->last_used = Max(check->last_used, slot);
		return true;
	}
	if (state < NODE_LIVE || state > NODE_FREE ||
		(node->flags & ~(NODE_STATE_MASK | NODE_LINKED)) != 0)
		return violated(check, block, slot, "the slot's state is unknown");
	if ((node->flags & NODE_LINKED) != 0 && state != NODE_LIVE && state != NODE_DEAD)
		return violated(check, block, slot, "a slot without a row is linked");
	if (node->version == 0)
		return violated(check, block, slot, "the slot has no version");
	if ((state == NODE_LIVE) != ItemPointerIsValid(&node->tid))
		return violated(check, block, slot,
						state == NODE_LIVE ? "a live slot has no TID"
										   : "a slot without a row has a TID");

	check->slots[slot] |= state | ((node->flags & NODE_LINKED) ? SLOT_LINKED : 0);
	if (state == NODE_LIVE)
		check_heap_note(check, slot, &node->tid);
	if (state == NODE_FREE && (check->slots[slot] & SLOT_LISTED))
		return violated(check, block, slot, "a free slot is listed");
	return true;
}

/*
 * The graph row of a linked slot. A dead slot's may lead to detached ones while
 * VACUUM is between its steps.
 */
static bool
judge_row(IndexCheck *check, uint32 slot, const NodeCopy *node)
{
	BlockNumber block = node_block(check->format, slot);
	bool		ended = false;

	if (slot >= check->append.next_fresh || (check->slots[slot] & SLOT_LINKED) == 0)
		return true;
	for (uint32 i = 0; i < check->format->degree; i++)
	{
		uint32		neighbour = node->neighbours[i];
		uint8		state;

		if (neighbour == NO_SLOT)
		{
			ended = true;
			continue;
		}
		if (ended)
			return violated(check, block, slot, "the graph row has gaps");
		if (neighbour >= check->append.next_fresh)
			return violated(check, block, slot, "the graph row names a slot that does not exist");
		if (neighbour == slot)
			return violated(check, block, slot, "the graph row names its own slot");
		if (slot_is_among(node->neighbours, i, neighbour))
			return violated(check, block, slot, "the graph row names a slot twice");
		state = check->slots[neighbour] & NODE_STATE_MASK;
		if (state != NODE_LIVE && state != NODE_DEAD &&
			!(state == NODE_DETACHED && NodeState(node) == NODE_DEAD))
			return violated(check, block, slot,
							"the graph row leads to a slot that is detached, free or absent");
	}
	return true;
}

/*
 * How far the data of a node page reach: its records, and the graph rows of
 * those that have one or are free.
 */
static Size
nodes_end(const IndexCheck *check, uint32 first, uint32 used)
{
	const IndexFormat *format = check->format;

	for (uint32 slot = used; slot-- > first;)
	{
		const NodeRecord *node = node_record(format, (Page) check->page, slot);

		if ((node->flags & NODE_LINKED) != 0 || NodeState(node) == NODE_FREE)
			return graph_rows_offset(format->nodes_per_page) +
				   (Size) (slot - first + 1) * graph_row_bytes(format);
	}
	return (used - first) * sizeof(NodeRecord);
}

/*
 * Every node page of a superblock that has slots in use: the page, and each of
 * its records by `judge`.
 */
static bool
judge_superblock(IndexCheck *check, uint32 superblock, NodeJudge judge)
{
	const IndexFormat *format = check->format;

	for (uint32 page = 0; page < format->node_pages; page++)
	{
		uint32		first = node_page_first_slot(format, superblock, page);
		uint32		last =
			Min(first + format->nodes_per_page, (superblock + 1) * format->superblock_slots);
		uint32		used = Min(last, check->append.next_fresh);
		BlockNumber block = node_block(format, first);
		PageTail   *tail;

		if (first >= used)
			break;
		if (!check_fetch(check, block, PAGE_NODE))
			return false;
		tail = PageTailOf(check->page);
		if (tail->superblock != superblock)
			return violated(check, block, NO_SLOT,
							"the page says it belongs to another superblock");
		if (tail->change_seq > check->superblock_seq[superblock])
			return violated(check, block, NO_SLOT,
							"the node page has changed later than its superblock is stamped");
		if (!check_reaches(check, nodes_end(check, first, used)))
			return violated(check, block, NO_SLOT, "the page's data reach beyond pd_lower");
		for (uint32 slot = first; slot < last; slot++)
		{
			copy_node(format, (Page) check->page, slot, check->node);
			if (!judge(check, slot, check->node))
				return false;
		}
	}
	return true;
}

/* Call judge_superblock for all. */
static bool
judge_all(IndexCheck *check, NodeJudge judge)
{
	for (uint32 superblock = 0; superblock < check->append.superblocks; superblock++)
		if (!judge_superblock(check, superblock, judge))
			return false;
	return true;
}

bool
check_nodes(IndexCheck *check)
{
	return judge_all(check, judge_record);
}

bool
check_rows(IndexCheck *check)
{
	return judge_all(check, format_has_lists(check->format) ? check_list_number : judge_row);
}

/* ---- seeds ---- */

/* Seeds are slots of the graph. */
bool
check_seeds(IndexCheck *check)
{
	for (uint32 i = 0; i < check->meta.seeds; i++)
	{
		BlockNumber block = 1 + i / GPUANN_SEEDS_PER_PAGE;
		uint32		seed;
		uint8		known;

		if (i % GPUANN_SEEDS_PER_PAGE == 0)
		{
			if (!check_fetch(check, block, PAGE_SEED))
				return false;
			if (!check_reaches(check,
							   Min(check->meta.seeds - i, GPUANN_SEEDS_PER_PAGE) * sizeof(uint32)))
				return violated(check, block, NO_SLOT, "the page's data reach beyond pd_lower");
			if (PageTailOf(check->page)->superblock != 0)
				return violated(check, block, NO_SLOT,
								"the page says it belongs to another superblock");
		}
		seed = SeedSlotsOf(check->page)[i % GPUANN_SEEDS_PER_PAGE];
		if (seed >= check->append.next_fresh)
			return violated(check, block, seed, "a seed does not exist");
		known = check->slots[seed];
		if (((known & NODE_STATE_MASK) != NODE_LIVE && (known & NODE_STATE_MASK) != NODE_DEAD) ||
			!(known & SLOT_LINKED))
			return violated(check, block, seed, "a seed is not in the graph");
	}
	return true;
}

/* ---- vectors ---- */

/*
 * Whether every element is a number; and of bits, whether those after the last
 * are clear.
 */
static bool
vector_is_right(const IndexFormat *format, const void *vector)
{
	const float *floats = vector;
	const uint16 *halves = vector;
	const uint8 *bits = vector;

	if (format->type == ELEMENT_BIT)
		return format->dims % 8 == 0 ||
			   (bits[format->vector_bytes - 1] & (0xFF >> format->dims % 8)) == 0;
	for (uint32 i = 0; i < format->dims; i++)
	{
		if (format->type == ELEMENT_FLOAT && !isfinite(floats[i]))
			return false;
		if (format->type == ELEMENT_HALF && (halves[i] & 0x7C00) == 0x7C00)
			return false;
	}
	return true;
}

/* Whether a vector's norm is in the range that the index knows. */
static bool
norm_is_known(const IndexCheck *check, const void *vector)
{
	float		least = GPUANN_NO_LEAST_NORM;
	float		most = GPUANN_NO_MOST_NORM;

	gpuann_widen_norms((ElementType) check->format->type, check->format->dims, vector, &least,
					   &most);
	return least >= check->least_norm && most <= check->most_norm;
}

/* Copy the vector bytes of a superblock's slots in use, page by page. */
static bool
fetch_vectors(IndexCheck *check, uint32 superblock, Size bytes, char *to)
{
	VectorPlace place = vector_place(check->format, superblock * check->format->superblock_slots);

	for (; bytes > 0; vector_place_next(check->format, &place))
	{
		Size		here = Min(bytes, GPUANN_PAYLOAD);
		BlockNumber block = place.block;

		if (!check_fetch(check, block, PAGE_VECTOR))
			return false;
		if (PageTailOf(check->page)->superblock != superblock)
			return violated(check, block, NO_SLOT,
							"the page says it belongs to another superblock");
		if (!check_reaches(check, here))
			return violated(check, block, NO_SLOT, "the page's data reach beyond pd_lower");
		memcpy(to, VectorBytesOf(check->page), here);
		to += here;
		bytes -= here;
	}
	return true;
}

/*
 * Vector pages in use, and the vectors of the slots that distances are computed
 * of.
 */
bool
check_vectors(IndexCheck *check)
{
	const IndexFormat *format = check->format;
	char *vectors = palloc_extended((Size) format->vector_pages * GPUANN_PAYLOAD, MCXT_ALLOC_HUGE);

	for (uint32 first = 0; first < check->append.next_fresh; first += format->superblock_slots)
	{
		uint32		count = Min(check->append.next_fresh - first, format->superblock_slots);

		/* a build leaves free slots that never had a vector */
		while (count > 0 && (check->slots[first + count - 1] & NODE_STATE_MASK) == NODE_FREE)
			count--;
		if (!fetch_vectors(check, slot_superblock(format, first),
						   (Size) count * format->vector_bytes, vectors))
			return false;
		for (uint32 i = 0; i < count; i++)
		{
			uint8		state = check->slots[first + i] & NODE_STATE_MASK;
			const char *vector = vectors + (Size) i * format->vector_bytes;
			BlockNumber block = vector_place(format, first + i).block;

			if (state != NODE_LIVE && state != NODE_DEAD)
				continue;
			if (!vector_is_right(format, vector))
				return violated(check, block, first + i,
								format->type == ELEMENT_BIT
									? "a bit is set beyond the last dimension"
									: "the vector has an element that is not finite");
			if (!norm_is_known(check, vector))
				return violated(check, block, first + i,
								"the vector's norm is beyond the index's range of norms");
		}
	}
	pfree(vectors);
	return true;
}
