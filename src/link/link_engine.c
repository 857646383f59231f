/*
 * link_engine.c
 *		Computing a pass of the linker in memory: the index is copied into a CPU
 *		engine in this process, whose threads link.
 *
 * Copying costs about a microsecond per row of the index; a row linked over
 * pages, by this process alone, costs twice the processor time that it costs
 * here. So passes are computed here where that is cheaper, and the index fits
 * into the memory allowed. While the engine takes in one part of the index the
 * next is copied.
 *
 * The caller holds the linker lock, so no graph row, state or vector of a
 * linked slot changes concurrently. Rows that are neither linked nor in the
 * pass are sent to the engine as dead, so that it adds no edges to them.
 */
#include "postgres.h"

#include "engine/bits.h"
#include "link/local_engine.h"
#include "link/graph_edits.h"

/*
 * Costs in nanoseconds of processor time, for vectors of some hundred bytes
 * (100k x 128, ef_construction 64). Only their ratios matter, and these hardly
 * depend on the length of vectors.
 */
#define COPY_ROW_NS			1000	/* a row of the index into the engine */
#define LINK_ROW_NS			270000	/* a row linked in the engine, by one thread */
#define LINK_PAGES_NS		560000	/* the same over pages ... */
#define LINK_DISK_NS		5000000 /* ... that do not stay in shared buffers */
#define ROWS_MIN			64		/* smaller passes are not worth starting threads */
#define FEED_BYTES			(1024 * 1024)	/* of vectors in one append */
#define OTHER_ROW_BYTES		48		/* the engine's memory for a row besides vector and edges */
#define ENGINE_BYTES		(5 * 1024 * 1024)	/* the engine itself, and buffers for appends */

/* Buffer of one append. */
typedef struct EngineLoadPart
{
	char	   *vectors;
	uint32	   *versions;
	uint64	   *dead;
	uint32	   *slots;
	uint32	   *neighbours;
} EngineLoadPart;

/* State of loading the index into the engine. */
typedef struct EngineLoad
{
	Relation	index;
	const IndexFormat *format;
	const LinkPass *pass;
	LocalEngine *engine;
	uint32		rows;			/* slots below this exist */
	unsigned char *of_pass;		/* bit per slot */
	uint32		room;			/* slots of an append */
	EngineLoadPart parts[2];	/* one in use by the engine, one being filled */
	EngineLoadPart *part;		/* the one being filled */
	bool		in_flight;		/* the engine uses the other one */
} EngineLoad;

/* Whether memory holds the index. */
static bool
link_fits(const IndexFormat *format, uint32 rows, Size memory)
{
	/*
	 * Edges twice: in the mirror and, of the rows that change, in the result.
	 */
	Size row_bytes = format->vector_bytes + 2 * format->degree * sizeof(uint32) + OTHER_ROW_BYTES;

	return memory > ENGINE_BYTES && rows <= (memory - ENGINE_BYTES) / row_bytes;
}

/* Whether computing a pass in memory takes less time than over pages. */
static bool
worth_it(Relation index, uint32 count, uint32 rows, int threads)
{
	bool		cached = !RelationUsesLocalBuffers(index) &&
				  RelationGetNumberOfBlocks(index) < (BlockNumber) NBuffers;
	double		here = (double) rows * COPY_ROW_NS + (double) count * LINK_ROW_NS / threads;

	return count >= ROWS_MIN && here < (double) count * (cached ? LINK_PAGES_NS : LINK_DISK_NS);
}

/* Allocate the two buffers. */
static void
load_begin(EngineLoad *load)
{
	const IndexFormat *format = load->format;

	load->room = Max(FEED_BYTES / Max(format->vector_bytes, format->degree * sizeof(uint32)), 1);
	load->room = Min(load->room, load->rows);
	for (int i = 0; i < 2; i++)
	{
		EngineLoadPart *part = &load->parts[i];

		part->vectors = palloc_extended((Size) load->room * format->vector_bytes, MCXT_ALLOC_HUGE);
		part->versions = palloc(sizeof(uint32) * load->room);
		part->dead = palloc(bits64_bytes(load->room));
		part->slots = palloc(sizeof(uint32) * load->room);
		part->neighbours = palloc(sizeof(uint32) * load->room * format->degree);
	}
	load->part = &load->parts[0];
	load->of_pass = palloc_extended((Size) load->rows / 8 + 1, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (uint32 i = 0; i < load->pass->count; i++)
		bit_set(load->of_pass, load->pass->slots[i]);
}

/*
 * Call visit for slots [first, end), page by page; the page is NULL where
 * nothing was ever written.
 */
static void
visit_nodes(EngineLoad *load, uint32 first, uint32 end,
			void (*visit)(EngineLoad *load, uint32 slot, Page page, void *state), void *state)
{
	for (uint32 slot = first; slot < end;)
	{
		uint32		page_end = Min(node_page_end(load->format, slot, load->rows), end);
		Buffer		buffer;
		Page		page;

		link_pause();
		buffer = read_page(load->index, node_block(load->format, slot), PAGE_NODE,
						   BUFFER_LOCK_SHARE, true);
		page = BufferGetPage(buffer);
		for (; slot < page_end; slot++)
			visit(load, slot, PageIsNew(page) ? NULL : page, state);
		UnlockReleaseBuffer(buffer);
	}
}

/*
 * Record version and state of a slot; state points to the first slot of the
 * append.
 */
static void
take_state(EngineLoad *load, uint32 slot, Page page, void *state)
{
	const NodeRecord *node = page != NULL ? node_record(load->format, page, slot) : NULL;
	uint32		i = slot - *(uint32 *) state;
	bool		live = node != NULL && NodeState(node) == NODE_LIVE &&
				((node->flags & NODE_LINKED) != 0 || bit_is_set(load->of_pass, slot));

	load->part->versions[i] = node != NULL ? node->version : 0;
	if (!live)
		bit64_set(load->part->dead, i);
}

/*
 * Copy the vectors of slots [first, first + count) of one superblock. Pages
 * left unwritten by a crash hold no row's vector, so they are skipped.
 */
static void
take_vectors(EngineLoad *load, uint32 first, uint32 count)
{
	VectorPlace place = vector_place(load->format, first);
	char	   *to = load->part->vectors;
	Size		left = (Size) count * load->format->vector_bytes;

	while (left > 0)
	{
		Size		bytes = Min(left, (Size) GPUANN_PAYLOAD - place.offset);
		Buffer		buffer;

		link_pause();
		buffer = read_page(load->index, place.block, PAGE_VECTOR, BUFFER_LOCK_SHARE, true);
		if (PageIsNew(BufferGetPage(buffer)))
			memset(to, 0, bytes);
		else
			memcpy(to, VectorBytesOf(BufferGetPage(buffer)) + place.offset, bytes);
		UnlockReleaseBuffer(buffer);
		to += bytes;
		left -= bytes;
		vector_place_next(load->format, &place);
	}
}

/* Wait for the job in flight. */
static bool
handed_over(EngineLoad *load)
{
	bool		done = !load->in_flight || local_engine_wait(load->engine, NULL);

	load->in_flight = false;
	return done;
}

/* Submit the buffer that was filled, and switch to the other. */
static bool
link_hand_over(EngineLoad *load, EngineJob *job)
{
	if (!handed_over(load))
		return false;
	load->in_flight = local_engine_submit(load->engine, job);
	load->part = load->part == &load->parts[0] ? &load->parts[1] : &load->parts[0];
	return load->in_flight;
}

/* Load all rows. */
static bool
engine_load_rows(EngineLoad *load)
{
	uint32		count;

	for (uint32 first = 0; first < load->rows; first += count)
	{
		uint32		superblock_end =
			(slot_superblock(load->format, first) + 1) * load->format->superblock_slots;
		EngineLoadPart *part = load->part;
		EngineJob	job = {.kind = JOB_APPEND,
						 .first_slot = first,
						 .versions = part->versions,
						 .dead = part->dead,
						 .vectors = part->vectors};

		job.count = count = Min(Min(load->room, load->rows - first), superblock_end - first);
		memset(part->dead, 0, bits64_bytes(load->room));
		visit_nodes(load, first, first + count, take_state, &first);
		take_vectors(load, first, count);
		if (!link_hand_over(load, &job))
			return false;
	}
	return handed_over(load);
}

/*
 * Record a slot's graph row, if it has one and is not linked again by this
 * pass; state counts them.
 */
static void
load_note_row(EngineLoad *load, uint32 slot, Page page, void *state)
{
	const NodeRecord *node = page != NULL ? node_record(load->format, page, slot) : NULL;
	uint32	   *count = state;

	if (node == NULL || (node->flags & NODE_LINKED) == 0 || bit_is_set(load->of_pass, slot) ||
		(NodeState(node) != NODE_LIVE && NodeState(node) != NODE_DEAD))
		return;
	load->part->slots[*count] = slot;
	memcpy(load->part->neighbours + (Size) *count * load->format->degree,
		   graph_row(load->format, page, slot), load->format->degree * sizeof(uint32));
	(*count)++;
}

/* Load all graph rows. */
static bool
engine_load_graph(EngineLoad *load)
{
	for (uint32 first = 0; first < load->rows; first += load->room)
	{
		EngineJob	job = {
			.kind = JOB_GRAPH, .slots = load->part->slots, .rows = load->part->neighbours};

		visit_nodes(load, first, Min(first + load->room, load->rows), load_note_row, &job.count);
		if (job.count > 0 && !link_hand_over(load, &job))
			return false;
	}
	return handed_over(load);
}

/* Load the seeds. */
static bool
engine_load_seeds(EngineLoad *load, const MetaPage *meta)
{
	EngineJob	job = {.kind = JOB_SEEDS};
	uint32	   *seeds;
	uint32		count = read_seeds(load->index, meta, SEEDS_MAX, &seeds);

	for (uint32 i = 0; i < count; i++)
		if (seeds[i] < load->rows)
			seeds[job.count++] = seeds[i];
	job.slots = seeds;
	return job.count == 0 || local_engine_run(load->engine, &job);
}

/* Set the pass's result, which remains in the engine's memory. */
static void
take_result(LocalEngine *engine, uint32 slots, LinkedRows *rows)
{
	LinkResult	result;

	local_engine_link_result(engine, &result);
	for (uint32 i = 0; i < result.count; i++)
		if (result.slots[i] >= slots)
			elog(ERROR, "the engine linked rows that it was not given");
	*rows = (LinkedRows) {
		.count = result.count,
		.slots = unconstify(uint32 *, result.slots),
		.rows = unconstify(uint32 *, result.rows),
		.nseeds = result.nseeds,
		.seeds = unconstify(uint32 *, result.seeds),
	};
}

/*
 * Compute a pass in memory. Returns false, without effect, if it is too small
 * for that or the index too large. The rows are valid as long as the current
 * memory context.
 */
bool
link_in_memory(Relation index, const IndexFormat *format, const LinkPass *pass, LinkedRows *rows)
{
	EngineLoad	load = {.index = index, .format = format, .pass = pass};
	EngineJob	link = {.kind = JOB_LINK,
					  .slots = pass->slots,
					  .count = pass->count,
					  .ef_construction = format->ef_construction,
					  .threads = local_engine_threads()};
	MetaPage	meta;
	PendingBounds bounds;

	pending_bounds(index, format, &meta, &bounds);
	if (!link_fits(format, bounds.next_fresh, link_memory()) ||
		!worth_it(index, pass->count, bounds.next_fresh, link.threads))
		return false;
	load.rows = bounds.next_fresh;
	load.engine = local_engine_open(index, format, load.rows, link_memory());
	if (load.engine == NULL)
		return false;
	load_begin(&load);
	if (!engine_load_rows(&load) || !engine_load_graph(&load) || !engine_load_seeds(&load, &meta) ||
		!local_engine_run(load.engine, &link))
	{
		local_engine_close(load.engine);
		return false;
	}
	take_result(load.engine, load.rows, rows);
	return true;
}
