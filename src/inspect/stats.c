/*
 * stats.c
 *		gpuann_stats(index): what an index holds, slot by slot and byte by byte.
 *
 * Pages are read one after another during concurrent writes, so the figures are
 * not a consistent snapshot. No page is locked for longer than it is copied.
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "engine/bits.h"
#include "engine/prune.h"
#include "lists/postings.h"
#include "page/pending.h"
#include "base/signature.h"
#include "base/sql_row.h"
#include "base/sql_index.h"

#define STATS_COLUMNS_0_1 30	/* without posting_bytes: as version 0.1 declares them */
#define STATS_COUNTS \
	"int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int4,float8,int4,_int4,float8,int8,"
#define STATS_FORMAT ",int4,int4,int4,int4,text,text,text,int8"

typedef struct IndexStats
{
	Relation	index;
	const IndexFormat *format;
	MetaPage	meta;
	PendingBounds bounds;
	BufferAccessStrategy strategy;
	char	   *page;			/* a copy of the node page under way */
	NodeCopy   *node;			/* and of the slot */

	uint64		states[NODE_FREE + 1];
	uint64		linked;			/* live or dead, in the graph */
	uint64		live_linked;
	uint64		edges;			/* of live linked slots */
	uint32		histogram[ENGINE_MAX_DEGREE + 1];

	/* reachability */
	unsigned char *reached;		/* bit per slot; NULL: not to be known within
								 * maintenance_work_mem */
	unsigned char *expanded;
	uint64		live_reached;
	bool		grew;			/* in this sweep */

	BlockNumber node_pages;
	BlockNumber vector_pages;	/* and those of columns */
	BlockNumber posting_pages;	/* that were ever used */
	BlockNumber blocks;
} IndexStats;

typedef void (*VisitNode) (IndexStats *stats, uint32 slot, const NodeCopy *node);

/* Copy a node page; false if it is new. */
static bool
copy_page(IndexStats *stats, BlockNumber block)
{
	Buffer		buffer;
	bool		written;

	CHECK_FOR_INTERRUPTS();
	buffer =
		read_page_in_bulk(stats->index, block, PAGE_NODE, BUFFER_LOCK_SHARE, true, stats->strategy);
	written = !PageIsNew(BufferGetPage(buffer));
	if (written)
		memcpy(stats->page, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	return written;
}

/* Visit every slot that existed when the bounds were read. */
static void
visit_slots(IndexStats *stats, VisitNode visit)
{
	const IndexFormat *format = stats->format;

	for (uint32 slot = 0; slot < stats->bounds.next_fresh;)
	{
		uint64		superblock_end =
			((uint64) slot_superblock(format, slot) + 1) * format->superblock_slots;
		uint64		page_end = (uint64) slot + format->nodes_per_page;
		uint32		end = Min(Min(superblock_end, page_end), stats->bounds.next_fresh);
		bool		written = copy_page(stats, node_block(format, slot));

		for (; slot < end; slot++)
			if (written)
				{
				copy_node(format, (Page) stats->page, slot, stats->node);
				visit(stats, slot, stats->node);
			}
	}
}

/* How many neighbours a row has. */
static uint32
row_length(const IndexFormat *format, const NodeCopy *node)
{
	uint32		count = 0;

	while (count < format->degree && node->neighbours[count] != NO_SLOT)
		count++;
	return count;
}

/* ---- counting ---- */

/* Count one slot. */
static void
count_slot(IndexStats *stats, uint32 slot, const NodeCopy *node)
{
	uint16		state = NodeState(node);
	uint32		degree;

	if (state > NODE_FREE)
		report_corrupt(stats->index, node_block(stats->format, slot), "a slot's state is unknown");
	stats->states[state]++;
	if ((node->flags & NODE_LINKED) == 0 || (state != NODE_LIVE && state != NODE_DEAD))
		return;
	stats->linked++;
	if (state != NODE_LIVE)
		return;
	degree = format_has_lists(stats->format) ? 0 : row_length(stats->format, node);
	stats->live_linked++;
	stats->edges += degree;
	stats->histogram[degree]++;
}

/*
 * Pages of each kind: by arithmetic, as the format lays them out; of posting
 * pages, which are used in order, as many as the directory says.
 */
static void
count_pages(IndexStats *stats)
{
	const IndexFormat *format = stats->format;
	uint32		left = stats->bounds.next_fresh;

	if (format_has_lists(format))
		stats->posting_pages = posting_pages_used(stats->index);
	stats->blocks = RelationGetNumberOfBlocks(stats->index);
	while (left > 0)
	{
		uint32		slots = Min(left, format->superblock_slots);

		stats->node_pages += (slots + format->nodes_per_page - 1) / format->nodes_per_page;
		stats->vector_pages +=
			((uint64) slots * format->vector_bytes + GPUANN_PAYLOAD - 1) / GPUANN_PAYLOAD;
		if (format->column_bytes > 0)
			stats->vector_pages +=
				(slots + columns_per_page(format) - 1) / columns_per_page(format);
		left -= slots;
	}
}

/* ---- reachability ---- */

/* Pass what reaches a slot on to its neighbours. */
static void
expand_slot(IndexStats *stats, uint32 slot, const NodeCopy *node)
{
	uint16		state = NodeState(node);
	uint32		degree;

	if (!bit_is_set(stats->reached, slot) || bit_is_set(stats->expanded, slot))
		return;
	bit_set(stats->expanded, slot);
	if ((node->flags & NODE_LINKED) == 0 || (state != NODE_LIVE && state != NODE_DEAD))
		return;
	if (state == NODE_LIVE)
		stats->live_reached++;
	degree = row_length(stats->format, node);
	for (uint32 i = 0; i < degree; i++)
	{
		uint32		neighbour = node->neighbours[i];

		/*
		 * A slot beyond may have been added since, or be damage: gpuann_check
		 * tells them apart.
		 */
		if (neighbour >= stats->bounds.next_fresh || bit_is_set(stats->reached, neighbour))
			continue;
		bit_set(stats->reached, neighbour);
		stats->grew = true;
	}
}

/*
 * Which live slots can be reached from the seeds. The node pages are swept in
 * order until a sweep reaches nothing more: few sweeps, since each uses what it
 * has reached itself, and two bits of memory per slot.
 */
static void
find_reachable(IndexStats *stats)
{
	Size		bytes = (Size) stats->bounds.next_fresh / 8 + 1;
	uint32	   *seeds;
	uint32		nseeds;

	if (format_has_lists(stats->format) || 2 * bytes > (Size) maintenance_work_mem * 1024)
		return;
	stats->reached = palloc_extended(bytes, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	stats->expanded = palloc_extended(bytes, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	nseeds = read_seeds(stats->index, &stats->meta, SEEDS_MAX, &seeds);
	for (uint32 i = 0; i < nseeds; i++)
		if (seeds[i] < stats->bounds.next_fresh)
			bit_set(stats->reached, seeds[i]);
	do
	{
		stats->grew = false;
		visit_slots(stats, expand_slot);
	} while (stats->grew);
}

/* ---- the row ---- */

static void
put_count(SqlRow *row, uint64 count)
{
	row_put(row, Int64GetDatum((int64) count));
}

static void
put_pages(SqlRow *row, BlockNumber pages)
{
	put_count(row, (uint64) pages * BLCKSZ);
}

/* Slots by state, and the list's positions. */
static void
put_slots(SqlRow *row, const IndexStats *stats)
{
	uint64		counted = 0;

	for (int state = NODE_LIVE; state <= NODE_FREE; state++)
	{
		put_count(row, stats->states[state]);
		counted += stats->states[state];
	}
	put_count(row, (uint64) stats->bounds.superblocks * stats->format->superblock_slots - counted);
	put_count(row, stats->linked);
	put_count(row, stats->bounds.end - stats->bounds.linked);
	put_count(row, stats->bounds.trimmed);
	put_count(row, stats->bounds.linked);
	put_count(row, stats->bounds.end);
}

/* The graph: how many neighbours live rows have, and what is reached. */
static void
put_graph(SqlRow *row, const IndexStats *stats)
{
	bool		lists = format_has_lists(stats->format);
	uint32		degree = stats->format->degree;
	uint32		least = 0;
	uint32		most = degree;
	bool		none = stats->live_linked == 0 || lists;
	Datum	   *counts = palloc(sizeof(Datum) * (degree + 1));

	while (least < degree && stats->histogram[least] == 0)
		least++;
	while (most > 0 && stats->histogram[most] == 0)
		most--;
	for (uint32 i = 0; i <= degree; i++)
		counts[i] = Int32GetDatum((int32) stats->histogram[i]);
	row_put_if(row, !none, Int32GetDatum((int32) least));
	row_put_if(row, !none, Float8GetDatum(none ? 0 : (double) stats->edges / stats->live_linked));
	row_put_if(row, !none, Int32GetDatum((int32) most));
	row_put_if(row, !lists,
			   PointerGetDatum(construct_array(counts, degree + 1, INT4OID, sizeof(int32), true,
											   TYPALIGN_INT)));
	row_put_if(row, !none && stats->reached != NULL,
			   Float8GetDatum(none ? 0 : (double) stats->live_reached / stats->live_linked));
	put_count(row, stats->meta.seeds);
}

/*
 * Bytes of the file, by what they hold; posting pages only where they are
 * declared.
 */
static void
put_bytes(SqlRow *row, const IndexStats *stats, bool postings)
{
	BlockNumber used = 1 + stats->format->seed_pages + stats->bounds.superblocks +
					   stats->node_pages + stats->vector_pages + stats->posting_pages;

	put_pages(row, 1);
	put_pages(row, stats->format->seed_pages);
	put_pages(row, stats->bounds.superblocks);
	put_pages(row, stats->node_pages);
	put_pages(row, stats->vector_pages);
	if (postings)
		put_pages(row, stats->posting_pages);
	put_pages(row, stats->blocks > used ? stats->blocks - used : 0);
}

static const char *
type_name(uint16 type)
{
	return type == ELEMENT_FLOAT ? "vector" : type == ELEMENT_HALF ? "halfvec" : "bit";
}

static const char *
metric_name(uint16 metric)
{
	static const char *const names[] = {NULL, "l2", "ip", "cosine", "l1", "hamming", "jaccard"};

	return names[metric];
}

/* What the build has fixed. */
static void
put_format(SqlRow *row, const IndexStats *stats)
{
	const IndexFormat *format = stats->format;

	row_put(row, Int32GetDatum((int32) stats->meta.format_version));
	row_put_if(row, !format_has_lists(format), Int32GetDatum(format->m));
	row_put_if(row, !format_has_lists(format), Int32GetDatum(format->ef_construction));
	row_put(row, Int32GetDatum((int32) format->dims));
	row_put(row, CStringGetTextDatum(type_name(format->type)));
	row_put(row, CStringGetTextDatum(metric_name(format->metric)));
	row_put(row, CStringGetTextDatum(psprintf(UINT64_FORMAT, stats->meta.nonce)));
	put_count(row, stats->meta.change_seq);
}

PG_FUNCTION_INFO_V1(gpuann_stats);

/* gpuann_stats(index): one row about the index. */
Datum
gpuann_stats(PG_FUNCTION_ARGS)
{
	SqlIndex	opened;
	IndexStats	stats = {0};
	SqlRow		row = {0};
	TupleDesc	desc;
	bool		postings = get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE ||
		desc->natts != STATS_COLUMNS_0_1;

	signature_check(fcinfo, "regclass",
					postings ? STATS_COUNTS "int8,int8,int8,int8,int8,int8,int8" STATS_FORMAT
							 : STATS_COUNTS "int8,int8,int8,int8,int8,int8" STATS_FORMAT);
	sql_index_open(PG_GETARG_OID(0), AccessShareLock, SQL_INDEX_WATCH, &opened);
	stats.index = opened.index;
	stats.format = index_format(opened.index);
	stats.strategy = GetAccessStrategy(BAS_BULKREAD);
	stats.page = palloc(BLCKSZ);
	stats.node = palloc(stats.format->node_bytes);
	pending_bounds(stats.index, stats.format, &stats.meta, &stats.bounds);
	visit_slots(&stats, count_slot);
	count_pages(&stats);
	find_reachable(&stats);

	put_slots(&row, &stats);
	put_graph(&row, &stats);
	put_bytes(&row, &stats, postings);
	put_format(&row, &stats);
	sql_index_close(&opened);
	return row_return(fcinfo, &row);
}
