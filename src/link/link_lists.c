/*
 * link_lists.c
 *		Linking of indexes with lists: assign and encode pending rows in chunks,
 *		in this process or by the server; remove entries of dead rows.
 *
 * Entries are written first, then list number and state into the node records,
 * in separate WAL records. After a crash in between, rows have entries and are
 * still pending, and the next pass adds entries again. Scans ignore the second
 * entry of a slot, and VACUUM removes it.
 */
#include "base/base.h"

#include <math.h>

#include "base/faults.h"
#include "client/shmem.h"
#include "engine/bits.h"
#include "link/graph_edits.h"
#include "link/link_lists.h"
#include "link/link_write.h"
#include "lists/list_codes.h"
#include "lists/postings.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#define CHUNK_MAX		4096	/* rows assigned at once, at most, ... */
#define CHUNK_MIN		64		/* ... and at least */
#define CODED_AT_ONCE	256		/* ... between checks for interrupts */

/* ---- adding ---- */

/* A row to be added. */
typedef struct AddedRow
{
	uint32		slot;
	uint32		version;
	uint32		list;
	uint32		row;			/* in the coded rows */
} AddedRow;

typedef struct ListAdding
{
	Relation	index;
	const IndexFormat *format;
	ListFormat	lists;
	ListServer *server;			/* NULL: there is none, or it has failed */
	ListCoder  *coder;			/* NULL: not opened yet */
	ListWriter	writer;
	CodedRows  *rows;
	uint32		room;			/* rows of a chunk */
	AddedRow   *added;			/* of the chunk */
	PostingEntry *entries;		/* of one list */
	unsigned char *codes;
	uint64		count;			/* of all chunks, ... */
	double		distance;		/* ... and the sum of their squared distances */
} ListAdding;

static int
by_slot(const void *a, const void *b)
{
	uint32		left = ((const AddedRow *) a)->slot;
	uint32		right = ((const AddedRow *) b)->slot;

	return left < right ? -1 : left > right;
}

static int
by_list(const void *a, const void *b)
{
	const AddedRow *left = a;
	const AddedRow *right = b;

	if (left->list != right->list)
		return left->list < right->list ? -1 : 1;
	return by_slot(a, b);
}

/*
 * Fill a chunk with slots of the pass that are live and in no list.
 */
static void
take_chunk(ListAdding *adding, const uint32 *slots, uint32 count)
{
	const IndexFormat *format = adding->format;
	NodeCopy   *node = palloc(format->node_bytes);

	adding->rows->count = 0;
	for (uint32 i = 0; i < count; i++)
	{
		uint32		row = adding->rows->count;

		link_pause();
		if (!read_node(adding->index, format, slots[i], node) || NodeState(node) != NODE_LIVE ||
			(node->flags & NODE_LINKED) != 0)
			continue;
		adding->added[row] = (AddedRow) {slots[i], node->version, NO_LIST, row};
		adding->rows->count++;
	}
	pfree(node);
}

/* Read the vectors of the chunk. */
static void
read_chunk(ListAdding *adding)
{
	const IndexFormat *format = adding->format;
	void	   *vector = palloc(format->vector_bytes);

	for (uint32 i = 0; i < adding->rows->count; i++)
	{
		link_pause();
		read_vector(adding->index, format, adding->added[i].slot, vector);
		list_widen(format, vector,
				   adding->rows->wide + (Size) adding->added[i].row * format->dims);
	}
	pfree(vector);
}

/*
 * Assign the chunk, and sort it by list. Centroids that do not fit into memory
 * are read again for each chunk.
 */
static void
assign_chunk(ListAdding *adding)
{
	ListCoder  *coder = adding->coder;
	CodedRows  *rows = adding->rows;

	for (uint32 first = 0; first < adding->lists.lists; first += coder->most)
	{
		if (!list_coder_has_all(coder))
			list_coder_read(coder, first);
		for (uint32 done = 0, some; done < rows->count; done += some)
		{
			link_pause();
			some = Min(rows->count - done, CODED_AT_ONCE);
			list_coder_assign(coder, rows, done, some);
		}
	}
	for (uint32 i = 0; i < rows->count; i++)
	{
		adding->added[i].list = rows->list[adding->added[i].row];
		adding->distance += rows->distance[adding->added[i].row];
	}
	adding->count += rows->count;
	qsort(adding->added, rows->count, sizeof(AddedRow), by_list);
}

/* Encode the chunk, in the order of lists. */
static void
encode_chunk(ListAdding *adding)
{
	CentroidReader reader;

	centroid_reader_begin(&reader, adding->index, adding->format, &adding->lists);
	for (uint32 i = 0; i < adding->rows->count; i++)
	{
		const AddedRow *added = &adding->added[i];

		if (i % CODED_AT_ONCE == 0)
			link_pause();
		list_coder_encode(adding->coder, adding->rows, added->row,
						  centroid_of(&reader, added->list));
	}
	centroid_reader_end(&reader);
}

/* Assign and encode the chunk in this process. */
static void
code_here(ListAdding *adding)
{
	/*
	 * half of the memory for centroids, a quarter for rows; the pass uses the
	 * rest
	 */
	if (adding->coder == NULL)
		adding->coder =
			list_coder_open(adding->index, adding->format, &adding->lists, link_memory() / 2);
	read_chunk(adding);
	assign_chunk(adding);
	encode_chunk(adding);
}

/* Prepare the server's channel for an operation on the mirror. */
static ChannelRequest *
server_prepare(const ListServer *server, ChannelOp op)
{
	return channel_prepare(server->channel, op, server->entry, server->generation);
}

/* Record a violation in the server's answer, so that it is not asked again. */
static int64
server_lied(ListAdding *adding, const char *reason)
{
	adding->server->failed = ENGINE_INVALID;
	adding->server->reason = reason;
	return -1;
}

/*
 * Fetch a part of the server's result for the chunk, from row `first` on; like
 * the chunk, it is in slot order. Returns the number of rows, or -1 on failure.
 * Codes are checked in the private copy, because the server could change the
 * channel between check and use.
 */
static int64
take_coded(ListAdding *adding, uint32 first)
{
	const ListServer *server = adding->server;
	LinkWanted	wanted = {FETCH_CODES, first, adding->rows->count - first, 1,
						  adding->lists.code_bytes};
	QuantizerShape shape = list_shape(adding->format, &adding->lists);
	LinkPart	part;
	const char *text;

	(void) server_prepare(server, CHANNEL_LINK_FETCH);
	adding->server->failed = channel_fetch_linked(server->channel, &wanted,
												  monotonic_us() + server->call_us, &part, &text);
	adding->server->reason = text;
	if (server->failed != ENGINE_OK)
		return -1;
	for (uint32 i = 0; i < part.count; i++)
	{
		AddedRow   *added = &adding->added[first + i];
		unsigned char *code =
			adding->rows->codes + (Size) added->row * adding->lists.code_bytes;

		added->list = *(const volatile uint32 *) &part.rows[i];
		if (*(const volatile uint32 *) &part.slots[i] != added->slot ||
			added->list >= adding->lists.lists)
			return server_lied(adding,
							   "the server put another row, or into a list that does not exist");
		memcpy(code, part.codes + (Size) i * adding->lists.code_bytes, adding->lists.code_bytes);
		if (!quantizer_codes_valid(&shape, code, 1))
			return server_lied(adding, "the server made a code that cannot be");
	}
	return part.count;
}

/* Post the chunk's slots, and wait for the server to assign and encode them. */
static bool
link_chunk(ListAdding *adding)
{
	ListServer *server = adding->server;
	uint32		count = adding->rows->count;
	ChannelRequest *request = server_prepare(server, CHANNEL_LINK);
	uint32	   *slots = channel_array(server->channel, count * sizeof(uint32),
									  &request->slots_offset);

	for (uint32 i = 0; i < count; i++)
		slots[i] = adding->added[i].slot;
	request->count = count;
	server->failed =
		channel_call(server->channel, monotonic_us() + server->call_us, &server->reason);
	return server->failed == ENGINE_OK;
}

/*
 * Have the server assign and encode the chunk. Returns false if this process
 * has to do it, because the server failed, or because its mirror has some of
 * the rows in lists already, from an interrupted pass. Assigning them again
 * gives the same lists and codes, so a mirror that is ahead of the pages does
 * no harm.
 */
static bool
code_by_server(ListAdding *adding)
{
	uint32		count = adding->rows->count;
	const AreaChannel *channel;
	double		distance;
	int64		came;

	qsort(adding->added, count, sizeof(AddedRow), by_slot);
	if (!link_chunk(adding))
		return false;
	FAULT_POINT("worker-list-coded");
	channel = shared_channel((uint32) adding->server->channel);
	distance = *(const volatile double *) &channel->out_distance;
	if (*(const volatile uint32_t *) &channel->out_count != count || !(distance >= 0) ||
		!isfinite(distance))
		return false;
	for (uint32 done = 0; done < count; done += (uint32) came)
	{
		link_pause();
		came = take_coded(adding, done);
		if (came <= 0)
			return false;
	}
	adding->distance += distance;
	adding->count += count;
	adding->server->coded += count;
	qsort(adding->added, count, sizeof(AddedRow), by_list);
	return true;
}

/* Assign and encode the chunk, and sort it by list. */
static void
code_chunk(ListAdding *adding)
{
	if (adding->rows->count == 0 || (adding->server != NULL && code_by_server(adding)))
		return;
	if (adding->server != NULL && adding->server->failed != ENGINE_OK)
		adding->server = NULL;
	code_here(adding);
}

/* Add the chunk's entries, list by list. */
static void
append_chunk(ListAdding *adding)
{
	uint32		code_bytes = adding->lists.code_bytes;
	uint32		end;

	for (uint32 first = 0; first < adding->rows->count; first = end)
	{
		uint32		list = adding->added[first].list;

		link_pause();
		for (end = first; end < adding->rows->count && adding->added[end].list == list; end++)
		{
			const AddedRow *added = &adding->added[end];

			adding->entries[end - first] = (PostingEntry) {added->slot, added->version};
			memcpy(adding->codes + (Size) (end - first) * code_bytes,
				   adding->rows->codes + (Size) added->row * code_bytes, code_bytes);
		}
		list_append(&adding->writer, list, adding->entries, adding->codes, end - first);
		FAULT_POINT("link-list-entries");
	}
}

/* Write the chunk's list numbers, page by page. */
static void
number_chunk(ListAdding *adding, uint64 change_seq)
{
	const IndexFormat *format = adding->format;
	NodeChange	change = {.stamped_superblock = NO_SLOT};
	uint32		i = 0;

	qsort(adding->added, adding->rows->count, sizeof(AddedRow), by_slot);
	while (i < adding->rows->count)
	{
		BlockNumber block = node_block(format, adding->added[i].slot);

		link_pause();
		node_change_begin(&change, adding->index, format, adding->added[i].slot, change_seq);
		for (; i < adding->rows->count && node_block(format, adding->added[i].slot) == block; i++)
		{
			uint32		slot = adding->added[i].slot;

			node_record(format, change.page, slot)->flags |= NODE_LINKED;
			page_reach_row(format, change.page, slot);
			*graph_row(format, change.page, slot) = adding->added[i].list;
		}
		node_change_finish(&change);
		FAULT_POINT("link-list-numbers");
	}
}

static void
adding_begin(ListAdding *adding, Relation index, const IndexFormat *format,
			 const PendingBounds *bounds, uint32 most, ListServer *server)
{
	Size		row_bytes;
	uint32		room;

	memset(adding, 0, sizeof(*adding));
	adding->index = index;
	adding->format = format;
	list_format_read(index, format, &adding->lists);
	adding->server = server != NULL && server->failed == ENGINE_OK ? server : NULL;
	row_bytes = coded_row_bytes(format, &adding->lists) + sizeof(AddedRow) +
		sizeof(PostingEntry) + adding->lists.code_bytes;
	room = (uint32) Min(Max(link_memory() / 4 / row_bytes, CHUNK_MIN), CHUNK_MAX);
	adding->room = room = Min(room, most);
	adding->writer = (ListWriter) {.index = index,
								   .format = format,
								   .lists = &adding->lists,
								   .superblocks = bounds->superblocks};
	adding->rows = coded_rows_make(format, &adding->lists, room);
	adding->added = palloc(sizeof(AddedRow) * room);
	adding->entries = palloc(sizeof(PostingEntry) * room);
	adding->codes = palloc_extended((Size) room * adding->lists.code_bytes, MCXT_ALLOC_HUGE);
}

/* Put the rows of a pass into lists. */
static void
add_rows(Relation index, const IndexFormat *format, const LinkPass *pass, ListServer *server)
{
	ListAdding	adding;
	MetaPage	meta;
	PendingBounds bounds;

	pending_bounds(index, format, &meta, &bounds);
	adding_begin(&adding, index, format, &bounds, pass->count, server);
	for (uint32 done = 0, some; done < pass->count; done += some)
	{
		some = Min(pass->count - done, adding.room);
		take_chunk(&adding, pass->slots + done, some);
		code_chunk(&adding);
		append_chunk(&adding);
		number_chunk(&adding, meta.change_seq + 1);
	}
	if (adding.count > 0)
		list_note_added(&adding.writer, adding.count, adding.distance);
}

void
link_into_lists(Relation index, const IndexFormat *format, const LinkPass *pass,
				ListServer *server)
{
	LinkedRows	none = {0};

	if (pass->count > 0)
	{
		MemoryContext memory =
			AllocSetContextCreate(CurrentMemoryContext, "gpuann lists", ALLOCSET_DEFAULT_SIZES);
		MemoryContext caller = MemoryContextSwitchTo(memory);

		add_rows(index, format, pass, server);
		MemoryContextSwitchTo(caller);
		MemoryContextDelete(memory);
	}
	pending_trim(index, format, link_write_end(index, format, pass, &none));
}

/* ---- removing ---- */

/* VACUUM's state of slots and lists. */
typedef struct ListRemoving
{
	Relation	index;
	const IndexFormat *format;
	ListFormat	lists;
	ListWriter	writer;
	const unsigned char *dead;	/* bit per slot, of limit */
	uint32		limit;
	uint32		next_fresh;
	unsigned char *touched;		/* bit per list: it may have entries of dead slots */
	unsigned char *met;			/* bit per slot: an entry was seen; NULL: not all lists are searched
								 */
	uint32		list;			/* the one being searched */
	uint64		linked;			/* slots with a list number, */
	uint64		live;			/* and those of them that keep their entries */
	NodeCopy   *node;
} ListRemoving;

/*
 * Record the lists of the slots of a node page. A slot that was never linked
 * may have an entry too, from an interrupted pass. Then there are more entries
 * than linked rows, and all lists are searched.
 */
static void
note_lists(ListRemoving *removing, uint32 first, uint32 end)
{
	for (uint32 slot = first; slot < end; slot++)
	{
		uint32		list;

		if (!read_node(removing->index, removing->format, slot, removing->node) ||
			(removing->node->flags & NODE_LINKED) == 0)
			continue;
		removing->linked++;
		if (slot >= removing->limit || !bit_is_set(removing->dead, slot))
		{
			removing->live += NodeState(removing->node) == NODE_LIVE;
			continue;
		}
		list = removing->node->neighbours[0];
		if (list >= removing->lists.lists)
			report_corrupt(removing->index, node_block(removing->format, slot),
						   "a slot is of a list that does not exist");
		bit_set(removing->touched, list);
	}
}

/* EntryIsGone, for a list with entries of dead slots. */
static bool
entry_is_dead(void *context, const PostingEntry *entry)
{
	const ListRemoving *removing = context;

	return entry->slot < removing->limit && bit_is_set(removing->dead, entry->slot);
}

/*
 * EntryIsGone, when there are more entries than linked rows: all but the one
 * entry that each slot should have.
 */
static bool
is_needless(void *context, const PostingEntry *entry)
{
	ListRemoving *removing = context;

	if (entry_is_dead(context, entry) || entry->slot >= removing->next_fresh ||
		bit_is_set(removing->met, entry->slot) ||
		!read_node(removing->index, removing->format, entry->slot, removing->node) ||
		NodeState(removing->node) != NODE_LIVE || (removing->node->flags & NODE_LINKED) == 0 ||
		removing->node->version != entry->version ||
		removing->node->neighbours[0] != removing->list)
		return true;
	bit_set(removing->met, entry->slot);
	return false;
}

/* Number of entries of all lists. */
static uint64
count_entries(Relation index, const ListFormat *lists)
{
	uint64		entries = 0;

	for (uint32 list = 0; list < lists->lists; list++)
	{
		link_pause();
		entries += read_list_head(index, list).entries;
	}
	return entries;
}

/* Search all lists from now on, and keep one entry of each row. */
static void
search_all_lists(ListRemoving *removing)
{
	removing->met = palloc_extended((Size) removing->next_fresh / 8 + 1,
									MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

/* Remove entries from the lists that may have entries to remove. */
static void
remove_entries_once(ListRemoving *removing)
{
	for (uint32 list = 0; list < removing->lists.lists; list++)
	{
		link_pause();
		removing->list = list;
		if (removing->met != NULL)
			(void) list_remove(&removing->writer, list, is_needless, removing);
		else if (bit_is_set(removing->touched, list))
			(void) list_remove(&removing->writer, list, entry_is_dead, removing);
	}
}

/*
 * Remove entries until only those of live rows are left. Interrupted passes of
 * the linker and of VACUUM may have left one entry too many and another one
 * missing, which cancel out in the sum; so the sum is compared again after
 * removing entries.
 */
static void
remove_entries(ListRemoving *removing)
{
	if (count_entries(removing->index, &removing->lists) != removing->linked)
		search_all_lists(removing);
	remove_entries_once(removing);
	if (removing->met == NULL && count_entries(removing->index, &removing->lists) != removing->live)
	{
		search_all_lists(removing);
		remove_entries_once(removing);
	}
}

void
link_out_of_lists(Relation index, const IndexFormat *format, const unsigned char *dead,
				  uint32 limit)
{
	MemoryContext memory =
		AllocSetContextCreate(CurrentMemoryContext, "gpuann lists", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	ListRemoving removing = {.index = index, .format = format, .dead = dead, .limit = limit};
	MetaPage	meta;
	PendingBounds bounds;
	uint32		end;

	pending_bounds(index, format, &meta, &bounds);
	list_format_read(index, format, &removing.lists);
	removing.writer = (ListWriter) {.index = index,
									.format = format,
									.lists = &removing.lists,
									.superblocks = bounds.superblocks};
	removing.next_fresh = bounds.next_fresh;
	removing.touched = palloc0(removing.lists.lists / 8 + 1);
	removing.node = palloc(format->node_bytes);
	for (uint32 slot = 0; slot < bounds.next_fresh; slot = end)
	{
		link_pause();
		end = Min(slot + format->nodes_per_page, bounds.next_fresh);
		note_lists(&removing, slot, end);
	}
	remove_entries(&removing);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(memory);
	FAULT_POINT("vacuum-lists");
}

void
link_out_needless(Relation index, const IndexFormat *format)
{
	MetaPage	meta;
	PendingBounds bounds;
	ListFormat	lists;

	pending_bounds(index, format, &meta, &bounds);
	list_format_read(index, format, &lists);
	/*
	 * only if nothing is pending: pending rows may have entries, and are not
	 * counted as linked
	 */
	if (bounds.linked == bounds.end && count_entries(index, &lists) > meta.linked_slots)
		link_out_of_lists(index, format, NULL, 0);
}
