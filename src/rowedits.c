/*
 * rowedits.c
 *		Graph rows under change in memory.
 *
 * A hash of changed rows, the vectors (rowvectors.h), and the reverse edges offered but not yet given. Pages are read one at a time,
 * without keeping any pin.
 */
#include "postgres.h"

#include "commands/vacuum.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "postmaster/autovacuum.h"
#include "utils/memutils.h"

#include "rowedits.h"
#include "rowvectors.h"
#include "engine/openrow.h"

#define ROW_BLOCK_BYTES		(256 * 1024)	/* rows are cut from blocks of this size */

/* A changed row: its neighbours' count, then the neighbours. */
typedef struct EditedRow
{
	uint32		slot;
	char		status;			/* simplehash's */
	bool		live;
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

typedef struct EdgeOffer
{
	uint32		target;
	uint32		source;
	double		distance;		/* between them */
} EdgeOffer;

struct RowEdits
{
	MemoryContext memory;
	Relation	index;
	const IndexFormat *format;
	RowVectors *vectors;
	uint32		next_fresh;
	uint32		max_rows;

	MemoryContext row_memory;	/* the changes: emptied when they are taken out */
	edited_hash *rows;
	char	   *block;			/* where the next row is cut from */
	Size		block_left;

	EdgeOffer  *offers;
	uint32		noffers;
	uint32		offer_room;

	const uint32 *seeds;
	uint32		nseeds;

	SearchScratch *scratch;
	NodeCopy   *node;			/* scratch copy of a node record */
};

/* Bytes a changed row costs: in the hash, and once more when taken out. */
static Size
row_bytes(const IndexFormat *format)
{
	return 2 * (Size) (format->degree + 1) * sizeof(uint32) + 2 * sizeof(EditedRow);
}

/* Changed rows that fit in memory: half of it is theirs. */
uint32
row_edits_capacity(const IndexFormat *format, Size memory)
{
	return Min(memory / 2 / row_bytes(format), ENGINE_MAX_SLOTS);
}

bool
row_edits_have_room(const RowEdits *edits, uint32 more)
{
	return (uint64) edits->rows->members + more <= edits->max_rows;
}

const DistanceKernels *
row_edits_kernels(const RowEdits *edits)
{
	return row_vectors_kernels(edits->vectors);
}

/* What a linker or VACUUM may use. */
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

/* Be interrupted, and sleep as the vacuum cost delay says. */
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

/* The search routine's allocator: memory of the edits. */
static void *
resize_scratch(void *context, void *old, size_t size)
{
	if (size == 0)
	{
		if (old != NULL)
			pfree(old);
		return NULL;
	}
	if (old == NULL)
		return MemoryContextAllocHuge((MemoryContext) context, size);
	return repalloc_huge(old, size);
}

/* Start with no changes. */
RowEdits *
row_edits_begin(Relation index, const IndexFormat *format, uint32 next_fresh, Size memory)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuann row edits", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	RowEdits   *edits = palloc0(sizeof(RowEdits));
	ScratchAllocator allocator = {resize_scratch, context};

	edits->memory = context;
	edits->index = index;
	edits->format = format;
	edits->next_fresh = next_fresh;
	edits->max_rows = row_edits_capacity(format, memory);
	edits->row_memory = AllocSetContextCreate(context, "gpuann edited rows", ALLOCSET_DEFAULT_SIZES);
	edits->rows = edited_create(edits->row_memory, 1024, NULL);
	edits->vectors = row_vectors_begin(index, format, next_fresh, memory / 8 * 3);
	edits->scratch = search_scratch_create(&allocator);
	edits->node = palloc(format->node_bytes);
	MemoryContextSwitchTo(caller);
	return edits;
}

void
row_edits_end(RowEdits *edits)
{
	row_vectors_end(edits->vectors);
	MemoryContextDelete(edits->memory);
}

void
row_edits_seeds(RowEdits *edits, const uint32 *seeds, uint32 count)
{
	edits->seeds = seeds;
	edits->nseeds = count;
}

const IndexFormat *
row_edits_format(const RowEdits *edits)
{
	return edits->format;
}

uint32
row_edits_slots(const RowEdits *edits, const uint32 **seeds, uint32 *nseeds)
{
	*seeds = edits->seeds;
	*nseeds = edits->nseeds;
	return edits->next_fresh;
}

/* ---- vectors ---- */

const void *
row_edits_vector(RowEdits *edits, uint32 slot, float *inverse_norm)
{
	return row_vectors_get(edits->vectors, slot, inverse_norm);
}

/* The distance between two slots. */
double
row_edits_distance(RowEdits *edits, uint32 slot_a, uint32 slot_b)
{
	double		distance;

	row_edits_distances(edits, slot_a, &slot_b, 1, &distance);
	return distance;
}

void
row_edits_distances(RowEdits *edits, uint32 from, const uint32 *slots, uint32 count, double *out)
{
	row_vectors_from(edits->vectors, from);
	row_vectors_distances(edits->vectors, slots, count, out);
}

/* prune_candidates' view of it: a candidate's index is its slot, and the first one stays while it meets the others. */
static double
pair_distance(void *context, uint32_t index_a, uint32_t index_b)
{
	CHECK_FOR_INTERRUPTS();
	return row_edits_distance(context, index_a, index_b);
}

/* ---- rows ---- */

/* Read a row from its page into neighbours; returns how many there are. */
static uint32
page_row(RowEdits *edits, uint32 slot, uint32 *neighbours, SlotState *state)
{
	const IndexFormat *format = edits->format;
	NodeCopy   *node = edits->node;
	uint32		count = 0;

	state->live = false;
	state->version = 0;
	if (!read_node(edits->index, format, slot, node))
		return 0;
	state->live = NodeState(node) == NODE_LIVE;
	state->version = node->version;
	if ((node->flags & NODE_LINKED) == 0)
		return 0;
	while (count < format->degree && node->neighbours[count] != NO_SLOT)
	{
		if (node->neighbours[count] >= edits->next_fresh)
			report_corrupt(edits->index, node_block(format, slot), "a graph row names a slot that does not exist");
		neighbours[count] = node->neighbours[count];
		count++;
	}
	return count;
}

/* The row of a slot as it is now, with the changes. */
uint32
row_edits_get(RowEdits *edits, uint32 slot, uint32 *neighbours, SlotState *state)
{
	EditedRow  *edited = edited_lookup(edits->rows, slot);

	if (edited == NULL)
		return page_row(edits, slot, neighbours, state);
	state->live = edited->live;
	state->version = 0;
	memcpy(neighbours, edited->row + 1, edited->row[0] * sizeof(uint32));
	return edited->row[0];
}

/* Room for one row, from the blocks. */
static uint32 *
cut_row(RowEdits *edits)
{
	Size		bytes = (Size) (edits->format->degree + 1) * sizeof(uint32);
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

/* Change a row. The first change of a slot takes over whether it is live. */
void
row_edits_set(RowEdits *edits, uint32 slot, const uint32 *neighbours, uint32 count)
{
	EditedRow  *edited = edited_lookup(edits->rows, slot);

	if (edited == NULL)
	{
		uint32		old[ENGINE_MAX_DEGREE];
		SlotState	state;
		bool		found;

		(void) page_row(edits, slot, old, &state);
		edited = edited_insert(edits->rows, slot, &found);
		edited->live = state.live;
		edited->row = cut_row(edits);
	}
	edited->row[0] = count;
	memcpy(edited->row + 1, neighbours, count * sizeof(uint32));
}

/* There may be as many as maintenance_work_mem holds: their sort can be cancelled. */
typedef EditedRow *EditedRowRef;

#define ST_SORT sort_edited
#define ST_ELEMENT_TYPE EditedRowRef
#define ST_COMPARE(a, b) ((*(a))->slot < (*(b))->slot ? -1 : (*(a))->slot > (*(b))->slot)
#define ST_SCOPE static
#define ST_DEFINE
#define ST_CHECK_FOR_INTERRUPTS
#include "lib/sort_template.h"

/* Take the changed rows out. */
void
row_edits_take(RowEdits *edits, LinkedRows *rows)
{
	uint32		degree = edits->format->degree;
	uint32		count = edits->rows->members;
	EditedRow **sorted = palloc_extended(sizeof(EditedRow *) * Max(count, 1), MCXT_ALLOC_HUGE);
	edited_iterator iterator;
	EditedRow  *edited;
	uint32		n = 0;

	memset(rows, 0, sizeof(*rows));
	rows->slots = palloc_extended(sizeof(uint32) * Max(count, 1), MCXT_ALLOC_HUGE);
	rows->rows = palloc_extended(sizeof(uint32) * Max((Size) count * degree, 1), MCXT_ALLOC_HUGE);
	edited_start_iterate(edits->rows, &iterator);
	while ((edited = edited_iterate(edits->rows, &iterator)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		sorted[n++] = edited;
	}
	sort_edited(sorted, n);
	for (uint32 i = 0; i < n; i++)
	{
		uint32	   *row = rows->rows + (Size) i * degree;

		CHECK_FOR_INTERRUPTS();
		rows->slots[i] = sorted[i]->slot;
		for (uint32 j = 0; j < degree; j++)
			row[j] = j < sorted[i]->row[0] ? sorted[i]->row[1 + j] : NO_SLOT;
	}
	rows->count = n;
	pfree(sorted);
	MemoryContextReset(edits->row_memory);
	edits->rows = edited_create(edits->row_memory, 1024, NULL);
	edits->block_left = 0;
}

/* ---- search ---- */

static uint32_t
search_row(void *context, uint32_t slot, uint32_t *neighbours, SlotState *state)
{
	CHECK_FOR_INTERRUPTS();
	return row_edits_get(context, slot, neighbours, state);
}

static void
search_distances(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	row_vectors_distances(((RowEdits *) context)->vectors, slots, count, out);
}

/* The live slots nearest to a slot, by a graph search. */
uint32
row_edits_search(RowEdits *edits, uint32 slot, uint32 ef, Candidate *candidates)
{
	GraphAccess access = {
		.context = edits,
		.row = search_row,
		.walk_distances = search_distances,
	};
	GraphQuery	query;
	GraphAnswer answer;
	uint32		found;

	if (edits->nseeds == 0)
		return 0;
	memset(&query, 0, sizeof(query));
	query.ef = ef;
	query.seeds = edits->seeds;
	query.nseeds = Min(edits->nseeds, ENGINE_SEEDS_TRIED);
	query.max_equal = Min(PRUNE_MAX_EQUAL(edits->format->degree), SEARCH_MAX_EQUAL);
	query.salt = slot;
	query.all_expanded = true;
	query.equal_distance = row_edits_distance(edits, slot, slot);
	if (graph_search(&access, &query, edits->scratch, &answer) != ENGINE_OK)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory while linking rows")));
	found = Min(answer.count, ROW_EDITS_FOUND(ef));
	for (uint32 i = 0; i < found; i++)
	{
		candidates[i].distance = answer.results[i].distance;
		candidates[i].slot = answer.results[i].slot;
		candidates[i].index = answer.results[i].slot;
	}
	return found;
}

/* ---- choosing rows ---- */

/* How a slot's row is chosen. */
static PruneRule
prune_rule(RowEdits *edits, uint32 slot)
{
	return (PruneRule) {
		.degree = edits->format->degree,
		.self = slot,
		.equal_distance = row_edits_distance(edits, slot, slot),
		.max_equal = PRUNE_MAX_EQUAL(edits->format->degree)
	};
}

/* Whether row names slot. */
static bool
names_slot(const uint32 *row, uint32 count, uint32 slot)
{
	for (uint32 i = 0; i < count; i++)
		if (row[i] == slot)
			return true;
	return false;
}

/* Offer target an edge to source. */
static void
offer_edge(RowEdits *edits, uint32 target, uint32 source, double distance)
{
	if (edits->noffers == edits->offer_room)
	{
		Size		room = Max((Size) edits->offer_room * 2, 4096);

		edits->offers = resize_scratch(edits->memory, edits->offers, room * sizeof(EdgeOffer));
		edits->offer_room = room;
	}
	edits->offers[edits->noffers].target = target;
	edits->offers[edits->noffers].source = source;
	edits->offers[edits->noffers].distance = distance;
	edits->noffers++;
}

/* Choose a slot's row among candidates, and offer the reverse edges of those it did not have. */
void
row_edits_choose(RowEdits *edits, uint32 slot, Candidate *candidates, uint32 count)
{
	uint32		old[ENGINE_MAX_DEGREE];
	uint32		row[ENGINE_MAX_DEGREE];
	Candidate	chosen[ENGINE_MAX_DEGREE];
	PruneRule	rule = prune_rule(edits, slot);
	SlotState	state;
	uint32		nold = row_edits_get(edits, slot, old, &state);
	uint32		kept;
	uint32		nrow = prune_choose(&rule, candidates, count, pair_distance, edits, chosen, &kept);

	for (uint32 i = 0; i < nrow; i++)
		row[i] = chosen[i].slot;
	row_edits_set(edits, slot, row, nrow);
	for (uint32 i = 0; i < nrow; i++)
		if (!names_slot(old, nold, row[i]))
			offer_edge(edits, row[i], slot, chosen[i].distance);
}

uint32
row_edits_offered(const RowEdits *edits)
{
	return edits->noffers;
}

static int
compare_offers(const void *left, const void *right)
{
	const EdgeOffer *a = left;
	const EdgeOffer *b = right;

	if (a->target != b->target)
		return a->target < b->target ? -1 : 1;
	return a->source < b->source ? -1 : a->source > b->source;
}

/* Give one target its new edges. */
static void
accept_offers(RowEdits *edits, const EdgeOffer *offers, uint32 count)
{
	uint32		target = offers[0].target;
	PruneRule	rule = prune_rule(edits, target);
	uint32		neighbours[ENGINE_MAX_DEGREE];
	double		distances[ENGINE_MAX_DEGREE];
	SlotState	state;
	uint32		nrow = row_edits_get(edits, target, neighbours, &state);
	OpenRow		row = {.nkept = 0, .nfill = 0};

	if (!state.live)
		return;
	row_edits_distances(edits, target, neighbours, nrow, distances);
	for (uint32 i = 0; i < nrow; i++)
		open_row_read(&row, (SearchResult) {distances[i], neighbours[i], 0});
	for (uint32 i = 0; i < count; i++)
	{
		if (!open_row_has(&row, offers[i].source))
			open_row_take(&rule, &row, (SearchResult) {offers[i].distance, offers[i].source, 0}, pair_distance, edits);
	}
	nrow = 0;
	for (uint32 i = 0; i < row.nkept; i++)
		neighbours[nrow++] = row.kept[i].slot;
	for (uint32 i = 0; i < row.nfill; i++)
		neighbours[nrow++] = row.fill[i].slot;
	row_edits_set(edits, target, neighbours, nrow);
}

/* Give targets the reverse edges offered. */
void
row_edits_apply_offers(RowEdits *edits)
{
	uint32		end;

	qsort(edits->offers, edits->noffers, sizeof(EdgeOffer), compare_offers);
	for (uint32 start = 0; start < edits->noffers; start = end)
	{
		for (end = start + 1; end < edits->noffers && edits->offers[end].target == edits->offers[start].target; end++)
			continue;
		CHECK_FOR_INTERRUPTS();
		accept_offers(edits, edits->offers + start, end - start);
	}
	edits->noffers = 0;
}
