/*
 * graph_edits.c
 *		Changed graph rows in memory, not yet written to pages.
 *
 * A hash table of changed rows takes precedence over the pages, which are read
 * one at a time without keeping a pin. Rows that were set in ascending order of
 * slots are in an array of their own.
 */
#include "postgres.h"

#include "commands/vacuum.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "postmaster/autovacuum.h"
#include "utils/memutils.h"

#include "link/graph_edits_private.h"
#include "base/scratch.h"

#define ROW_BLOCK_BYTES		(256 * 1024)	/* rows are allocated from blocks of this size */

/*
 * A changed row: the number of neighbours, the neighbours, and from `degree` on
 * their distances, as floats. With cached distances a row that gets reverse
 * edges several times during a pass does not read the vectors of all its
 * neighbours each time.
 */
typedef struct EditedRow
{
	uint32		slot;
	char		status;			/* simplehash's */
	bool		live;
	bool		measured;		/* the distances are valid */
	uint32	   *row;
} EditedRow;

#define SH_PREFIX edited
#define SH_ELEMENT_TYPE EditedRow
#define SH_KEY_TYPE uint32
#define SH_KEY slot
#define SH_HASH_KEY(tb, key) murmurhash32(key)
#define SH_EQUAL(tb, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* Bytes of what an EditedRow points to. */
static Size
edited_bytes(const IndexFormat *format)
{
	return (1 + (Size) format->degree) * sizeof(uint32) + format->degree * sizeof(float);
}

/* Bytes of a changed row: in the hash table, and in the result. */
static Size
row_bytes(const IndexFormat *format)
{
	return edited_bytes(format) + ((Size) format->degree + 2) * sizeof(uint32) +
		   2 * sizeof(EditedRow);
}

/* Bytes of an ordered row: slot and row, and twice 4 in the result. */
static Size
ordered_bytes(const IndexFormat *format)
{
	return ((Size) format->degree + 3) * sizeof(uint32);
}

/* Bytes of the table that maps slots to ordered rows. */
static Size
places_bytes(const GraphEdits *edits)
{
	return (Size) edits->next_fresh * sizeof(uint32);
}

/* Number of changed rows that fit in memory, half of which is for them. */
uint32
graph_edits_capacity(const IndexFormat *format, Size memory)
{
	return Min(memory / 2 / row_bytes(format), ENGINE_MAX_SLOTS);
}

bool
graph_edits_have_room(const GraphEdits *edits, uint32 more)
{
	Size		row = row_bytes(edits->format);
	Size		used = ((Size) edits->rows->members + more) * row +
		edits->ordered.count * ordered_bytes(edits->format);

	if (edits->ordered.places != NULL)
		used += places_bytes(edits);
	return used <= edits->max_rows * row;
}

/* Memory limit of a linker or VACUUM, in bytes. */
Size
link_memory(void)
{
	int			kilobytes = maintenance_work_mem;

#if PG_VERSION_NUM >= 170000
	if (AmAutoVacuumWorkerProcess() && autovacuum_work_mem != -1)
#else
	if (IsAutoVacuumWorkerProcess() && autovacuum_work_mem != -1)
#endif
		kilobytes = autovacuum_work_mem;
	return (Size) kilobytes * 1024;
}

/* Process interrupts, and sleep for the vacuum cost delay. */
void
link_pause(void)
{
#if PG_VERSION_NUM >= 180000
	vacuum_delay_point(false);
#else
	vacuum_delay_point();
#endif
	WORK_POINT();
}

/* Start with no changes. */
GraphEdits *
graph_edits_begin(Relation index, const IndexFormat *format, uint32 next_fresh, Size memory)
{
	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "gpuann row edits", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	GraphEdits *edits = palloc0(sizeof(GraphEdits));
	ScratchAllocator allocator = scratch_in(context);

	edits->memory = context;
	edits->index = index;
	edits->format = format;
	edits->next_fresh = next_fresh;
	edits->max_rows = graph_edits_capacity(format, memory);
	edits->row_memory =
		AllocSetContextCreate(context, "gpuann edited rows", ALLOCSET_DEFAULT_SIZES);
	edits->rows = edited_create(edits->row_memory, 1024, NULL);
	edits->vectors = row_vectors_begin(index, format, next_fresh, memory / 8 * 3);
	edits->scratch = search_scratch_create(&allocator);
	edits->node = palloc(format->node_bytes);
	MemoryContextSwitchTo(caller);
	return edits;
}

void
graph_edits_end(GraphEdits *edits)
{
	row_vectors_end(edits->vectors);
	MemoryContextDelete(edits->memory);
}

void
graph_edits_seeds(GraphEdits *edits, const uint32 *seeds, uint32 count)
{
	edits->seeds = seeds;
	edits->nseeds = count;
}

const IndexFormat *
graph_edits_format(const GraphEdits *edits)
{
	return edits->format;
}

RowVectors *
graph_edits_vectors(GraphEdits *edits)
{
	return edits->vectors;
}

uint32
graph_edits_slots(const GraphEdits *edits, const uint32 **seeds, uint32 *nseeds)
{
	*seeds = edits->seeds;
	*nseeds = edits->nseeds;
	return edits->next_fresh;
}

/* ---- rows ---- */

/* The distances of a changed row. */
static float *
distances_of(const GraphEdits *edits, const EditedRow *edited)
{
	return (float *) (edited->row + 1 + edits->format->degree);
}

/* A slot's ordered row, or NULL if it has none. */
static uint32 *
ordered_row(const GraphEdits *edits, uint32 slot)
{
	const OrderedRows *ordered = &edits->ordered;

	if (ordered->count == 0 || ordered->places[slot] == NO_SLOT)
		return NULL;
	return ordered->rows + (Size) ordered->places[slot] * edits->format->degree;
}

/* Number of neighbours of a row of `degree` entries. */
static uint32
row_count(const GraphEdits *edits, const uint32 *row)
{
	uint32		count = 0;

	while (count < edits->format->degree && row[count] != NO_SLOT)
		count++;
	return count;
}

/* Write a row; entries after its last neighbour become NO_SLOT. */
static void
edits_fill_row(const GraphEdits *edits, uint32 *row, const uint32 *neighbours, uint32 count)
{
	memcpy(row, neighbours, count * sizeof(uint32));
	memset(row + count, 0xFF, (edits->format->degree - count) * sizeof(uint32));
}

/* Look up a slot's changed row. False if its row is as on the page. */
bool
graph_edits_changed(const GraphEdits *edits, uint32 slot, ChangedRow *row)
{
	const uint32 *ordered = ordered_row(edits, slot);
	EditedRow  *edited;

	if (ordered != NULL)
	{
		*row = (ChangedRow) {
			.neighbours = ordered, .count = row_count(edits, ordered), .live = true
		};
		return true;
	}
	edited = edited_lookup(edits->rows, slot);
	if (edited == NULL)
		return false;
	*row = (ChangedRow) {
		.neighbours = edited->row + 1,
		.count = edited->row[0],
		.distances = edited->measured ? distances_of(edits, edited) : NULL,
		.live = edited->live
	};
	return true;
}

/* Copy a row of a page; returns the number of neighbours. */
static uint32
edits_copy_row(const GraphEdits *edits, uint32 slot, const uint32 *row, uint32 *neighbours)
{
	uint32		count = row_count(edits, row);

	for (uint32 i = 0; i < count; i++)
	{
		if (row[i] >= edits->next_fresh)
			report_corrupt(edits->index, node_block(edits->format, slot),
						   "a graph row names a slot that does not exist");
		neighbours[i] = row[i];
	}
	return count;
}

/* Read a row from its page into neighbours; returns their number. */
static uint32
page_row(GraphEdits *edits, uint32 slot, uint32 *neighbours, SlotState *state)
{
	NodeCopy   *node = edits->node;

	state->live = false;
	state->version = 0;
	if (!read_node(edits->index, edits->format, slot, node))
		return 0;
	state->live = NodeState(node) == NODE_LIVE;
	state->version = node->version;
	return (node->flags & NODE_LINKED) != 0
		? edits_copy_row(edits, slot, node->neighbours, neighbours)
		: 0;
}

uint32
graph_edits_get(GraphEdits *edits, uint32 slot, uint32 *neighbours, SlotState *state)
{
	ChangedRow	row;

	if (!graph_edits_changed(edits, slot, &row))
		return page_row(edits, slot, neighbours, state);
	state->live = row.live;
	state->version = 0;
	memcpy(neighbours, row.neighbours, row.count * sizeof(uint32));
	return row.count;
}

void
graph_edits_expect(const GraphEdits *edits, uint32 slot)
{
	const char *row = (const char *) ordered_row(edits, slot);
	Size		bytes = edits->format->degree * sizeof(uint32);

	for (Size at = 0; row != NULL && at < bytes; at += PG_CACHE_LINE_SIZE / 2)
		__builtin_prefetch(row + at);
}

uint32
graph_edits_get_from(const GraphEdits *edits, uint32 slot, const uint32 *page_row,
					 uint32 *neighbours)
{
	ChangedRow	row;

	if (!graph_edits_changed(edits, slot, &row))
		return edits_copy_row(edits, slot, page_row, neighbours);
	memcpy(neighbours, row.neighbours, row.count * sizeof(uint32));
	return row.count;
}

/* Allocate memory for one row, from the blocks. */
static uint32 *
cut_row(GraphEdits *edits)
{
	Size		bytes = edited_bytes(edits->format);
	uint32	   *row;

	if (edits->block_left < bytes)
	{
		edits->block = MemoryContextAlloc(edits->row_memory, ROW_BLOCK_BYTES);
		edits->block_left = ROW_BLOCK_BYTES;
	}
	row = (uint32 *) edits->block;
	edits->block += bytes;
	edits->block_left -= bytes;
	return row;
}

/* Change a row from its page for the first time. */
static EditedRow *
edited_begin(GraphEdits *edits, uint32 slot, bool live)
{
	bool		found;
	EditedRow  *edited = edited_insert(edits->rows, slot, &found);

	edited->live = live;
	edited->row = cut_row(edits);
	return edited;
}

/* Change an ordered row. False if the slot has none. */
static bool
set_ordered(GraphEdits *edits, uint32 slot, const uint32 *neighbours, uint32 count)
{
	uint32	   *row = ordered_row(edits, slot);

	if (row != NULL)
		edits_fill_row(edits, row, neighbours, count);
	return row != NULL;
}

/* Write a row of the hash table; distances may be NULL. */
static void
fill_edited(const GraphEdits *edits, EditedRow *edited, const uint32 *neighbours,
			const float *distances, uint32 count)
{
	edited->row[0] = count;
	memcpy(edited->row + 1, neighbours, count * sizeof(uint32));
	edited->measured = distances != NULL;
	if (distances != NULL)
		memcpy(distances_of(edits, edited), distances, count * sizeof(float));
}

/*
 * Change a row. The first change of a slot also reads from its page whether it
 * is live.
 */
void
graph_edits_set(GraphEdits *edits, uint32 slot, const uint32 *neighbours, const float *distances,
				uint32 count)
{
	EditedRow  *edited;

	if (set_ordered(edits, slot, neighbours, count))
		return;
	edited = edited_lookup(edits->rows, slot);
	if (edited == NULL)
	{
		uint32		old[ENGINE_MAX_DEGREE];
		SlotState	state;

		(void) graph_edits_get(edits, slot, old, &state);
		edited = edited_begin(edits, slot, state.live);
	}
	fill_edited(edits, edited, neighbours, distances, count);
}

/*
 * Allocate the ordered rows, as many as memory holds. False if the table of
 * slots would take more than a quarter of it.
 */
static bool
ordered_allocate(GraphEdits *edits)
{
	OrderedRows *ordered = &edits->ordered;
	const IndexFormat *format = edits->format;
	Size		memory = edits->max_rows * row_bytes(format);
	Size		places = places_bytes(edits);
	MemoryContext caller;

	if (places > memory / 4)
		return false;
	caller = MemoryContextSwitchTo(edits->memory);
	if (ordered->places == NULL)
	{
		ordered->places = palloc_extended(places, MCXT_ALLOC_HUGE);
		memset(ordered->places, 0xFF, places);
	}
	ordered->room = Max(Min(edits->next_fresh, (memory - places) / ordered_bytes(format)), 1);
	ordered->slots = palloc_extended(sizeof(uint32) * ordered->room, MCXT_ALLOC_HUGE);
	ordered->rows =
		palloc_extended(sizeof(uint32) * ordered->room * format->degree, MCXT_ALLOC_HUGE);
	MemoryContextSwitchTo(caller);
	return true;
}

/*
 * Append an ordered row. False if its slot is not above the last one, or there
 * is no room.
 */
static bool
ordered_append(GraphEdits *edits, uint32 slot, const uint32 *neighbours, uint32 count)
{
	OrderedRows *ordered = &edits->ordered;

	if (ordered->room == 0 && !ordered_allocate(edits))
		return false;
	if (ordered->count == ordered->room ||
		(ordered->count > 0 && slot <= ordered->slots[ordered->count - 1]))
		return false;
	edits_fill_row(edits, ordered->rows + (Size) ordered->count * edits->format->degree, neighbours,
				   count);
	ordered->slots[ordered->count] = slot;
	ordered->places[slot] = ordered->count++;
	return true;
}

void
graph_edits_set_live(GraphEdits *edits, uint32 slot, const uint32 *neighbours, uint32 count)
{
	EditedRow  *edited;

	if (set_ordered(edits, slot, neighbours, count))
		return;
	edited = edited_lookup(edits->rows, slot);
	if (edited == NULL && ordered_append(edits, slot, neighbours, count))
		return;
	if (edited == NULL)
		edited = edited_begin(edits, slot, true);
	fill_edited(edits, edited, neighbours, NULL, count);
}

/*
 * Sorting as many rows as maintenance_work_mem holds takes long, so it
 * processes interrupts.
 */
typedef EditedRow *EditedRowRef;

#define ST_SORT sort_edited
#define ST_ELEMENT_TYPE EditedRowRef
#define ST_COMPARE(a, b) ((*(a))->slot < (*(b))->slot ? -1 : (*(a))->slot > (*(b))->slot)
#define ST_SCOPE static
#define ST_DEFINE
#define ST_CHECK_FOR_INTERRUPTS
#include "lib/sort_template.h"

/* The rows of the hash table, ascending by slot. */
static EditedRow **
sorted_rows(GraphEdits *edits)
{
	uint32		count = edits->rows->members;
	EditedRow **sorted = palloc_extended(sizeof(EditedRow *) * Max(count, 1), MCXT_ALLOC_HUGE);
	edited_iterator iterator;
	EditedRow  *edited;
	uint32		n = 0;

	edited_start_iterate(edits->rows, &iterator);
	while ((edited = edited_iterate(edits->rows, &iterator)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		sorted[n++] = edited;
	}
	sort_edited(sorted, n);
	return sorted;
}

/* Append a row to the result. */
static void
result_add_row(LinkedRows *rows, uint32 slot, uint32 place)
{
	rows->places[rows->count] = place;
	rows->slots[rows->count++] = slot;
}

/*
 * Build the result from ordered rows, which stay where they are, and rows of
 * the hash table, which are copied behind them.
 */
static void
take_both(GraphEdits *edits, LinkedRows *rows)
{
	OrderedRows *ordered = &edits->ordered;
	EditedRow **sorted = sorted_rows(edits);
	uint32		edited = edits->rows->members;
	uint32		degree = edits->format->degree;
	Size		all = (Size) ordered->count + edited;
	uint32		next = 0;

	rows->slots = palloc_extended(sizeof(uint32) * Max(all, 1), MCXT_ALLOC_HUGE);
	rows->places = palloc_extended(sizeof(uint32) * Max(all, 1), MCXT_ALLOC_HUGE);
	if (ordered->count == 0)
		rows->rows = palloc_extended(sizeof(uint32) * Max(all * degree, 1), MCXT_ALLOC_HUGE);
	else
		rows->rows = repalloc_huge(ordered->rows,
								   sizeof(uint32) * Max(all, ordered->room) * degree);
	for (uint32 i = 0; i < edited; i++)
	{
		CHECK_FOR_INTERRUPTS();
		for (; next < ordered->count && ordered->slots[next] < sorted[i]->slot; next++)
			result_add_row(rows, ordered->slots[next], next);
		edits_fill_row(edits, rows->rows + (Size) (ordered->count + i) * degree, sorted[i]->row + 1,
					   sorted[i]->row[0]);
		result_add_row(rows, sorted[i]->slot, ordered->count + i);
	}
	for (; next < ordered->count; next++)
		result_add_row(rows, ordered->slots[next], next);
	pfree(sorted);
	if (ordered->count > 0)
		pfree(ordered->slots);
}

/* Return the changed rows, and forget them. */
void
graph_edits_take(GraphEdits *edits, LinkedRows *rows)
{
	OrderedRows *ordered = &edits->ordered;

	memset(rows, 0, sizeof(*rows));
	for (uint32 i = 0; i < ordered->count; i++)
		ordered->places[ordered->slots[i]] = NO_SLOT;
	if (edits->rows->members > 0 || ordered->count == 0)
		take_both(edits, rows);
	else
		*rows = (LinkedRows) {
			.count = ordered->count, .slots = ordered->slots, .rows = ordered->rows
		};
	*ordered = (OrderedRows) {.places = ordered->places};
	MemoryContextReset(edits->row_memory);
	edits->rows = edited_create(edits->row_memory, 1024, NULL);
	edits->block_left = 0;
}
