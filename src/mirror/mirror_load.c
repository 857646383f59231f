/*
 * mirror_load.c
 *		Load a mirror: create it empty, then send all rows in slot order, their
 *		graph rows, and the seeds.
 *
 * Rows and graph rows go in parts, which the mirror's owner and readers that
 * help it take turns to read (load_share.c, load_reader.c).
 *
 * The end of the pending list and the change sequence are read first; the
 * loaded mirror is current to these. mirror_catchup.c sends later changes,
 * before queries are answered.
 *
 * A row's version is read before its vector. The vector of a version does not
 * change, so if the two do not match, the pages no longer have that version,
 * and results with it are dropped (I2). The row that replaced it is on the
 * pending list after the position read first. Columns, of which column pages
 * lie in front, are read before both: they may be those of the row before, but
 * then the row is on the list after that position, too, and is sent again.
 */
#include "base/base.h"

#include "base/faults.h"
#include "client/list_counts.h"
#include "lists/lists.h"
#include "mirror/worker.h"

#include "common/hashfn.h"
#include "engine/bits.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lwlock.h"

uint32
rows_in_channel(const IndexFormat *format, uint32 first, uint32 end)
{
	uint32		superblock_end = (slot_superblock(format, first) + 1) * format->superblock_slots;
	uint64		fit = CHANNEL_ROWS_BYTES / channel_row_bytes(format);

	return first < end ? (uint32) Min(fit, Min(end, superblock_end) - first) : 0;
}

/*
 * The pages of a run of slots, in file order: column pages, then node and
 * vector pages, a node page before all vectors of its slots.
 */

/* Iterates over the pages of a run of slots of one superblock. */
typedef struct LoadRowOrder
{
	const IndexFormat *format;
	uint32		column_slot;	/* first slot of the next column page */
	uint32		slot;			/* first slot of the next node page */
	uint32		end;
	VectorPlace place;			/* next vector page */
	Size		left;			/* bytes of vectors from there on */
} LoadRowOrder;

/*
 * A page of the run: the records, of nodes or columns, of slots [first, end),
 * or `bytes` bytes of vectors at offset.
 */
typedef struct RowPage
{
	PageKind	kind;
	BlockNumber block;
	uint32		first;
	uint32		end;
	uint32		offset;
	Size		bytes;
} RowPage;

static void
row_order_begin(LoadRowOrder *order, const IndexFormat *format, uint32 first, uint32 count)
{
	order->format = format;
	order->slot = first;
	order->end = first + count;
	order->column_slot = format->column_bytes > 0 ? first : order->end;
	order->place = vector_place(format, first);
	order->left = (Size) count * format->vector_bytes;
}

/* Return the next page of the run; false at its end. */
static bool
row_order_next(LoadRowOrder *order, RowPage *page)
{
	const IndexFormat *format = order->format;

	if (order->column_slot < order->end)
	{
		page->kind = PAGE_COLUMN;
		page->block = column_block(format, order->column_slot);
		page->first = order->column_slot;
		page->end = Min(page->first - column_index(format, page->first) + columns_per_page(format),
						order->end);
		order->column_slot = page->end;
		return true;
	}
	if (order->slot < order->end && vector_place(format, order->slot).page <= order->place.page)
	{
		page->kind = PAGE_NODE;
		page->block = node_block(format, order->slot);
		page->first = order->slot;
		page->end =
			Min(order->slot - node_index(format, order->slot) + format->nodes_per_page, order->end);
		order->slot = page->end;
		return true;
	}
	if (order->left == 0)
		return false;
	page->kind = PAGE_VECTOR;
	page->block = order->place.block;
	page->offset = order->place.offset;
	page->bytes = Min(order->left, (Size) GPUANN_PAYLOAD - page->offset);
	order->left -= page->bytes;
	vector_place_next(format, &order->place);
	return true;
}

/* The pages of a part, in the order in which they are read. */
typedef struct PartOrder
{
	const MirrorSlice *slice;
	uint32		next;			/* first slot after the current run */
	uint32		end;
	LoadRowOrder run;			/* of rows: the current run, in one superblock */
} PartOrder;

/*
 * Begin with the next run of a part's rows: its slots of one superblock. False
 * at the end.
 */
static bool
next_run(const IndexFormat *format, LoadRowOrder *run, uint32 *next, uint32 end)
{
	uint32		first = *next;
	uint32		superblock_end = (slot_superblock(format, first) + 1) * format->superblock_slots;

	if (first >= end)
		return false;
	*next = Min(end, superblock_end);
	row_order_begin(run, format, first, *next - first);
	return true;
}

/* NextBlock for rows. */
static BlockNumber
next_row_block(void *state)
{
	PartOrder  *order = state;
	RowPage		page;

	do
	{
		while (row_order_next(&order->run, &page))
		{
			if (page.block < order->slice->blocks)
				return page.block;
		}
	} while (next_run(order->slice->format, &order->run, &order->next, order->end));
	return InvalidBlockNumber;
}

/* NextBlock for graph rows. */
static BlockNumber
next_graph_block(void *state)
{
	PartOrder  *order = state;
	const IndexFormat *format = order->slice->format;
	uint32		slot = order->next;
	uint32		superblock_end = (slot_superblock(format, slot) + 1) * format->superblock_slots;
	BlockNumber block = node_block(format, slot);

	if (slot >= order->end || block >= order->slice->blocks)
		return InvalidBlockNumber;
	order->next = Min(slot + format->nodes_per_page, superblock_end);
	return block;
}

/* Start read-ahead of the part that this process has taken. */
static void
start_read_ahead(MirrorSlice *slice, PartOrder *order)
{
	const MirrorProgress *progress = slice->progress;

	memset(order, 0, sizeof(*order));
	order->slice = slice;
	order->next = progress->part.first;
	order->end = progress->part.first + progress->part.count;
	order->run.format = slice->format;
	slice->ahead =
		read_ahead_begin(slice->index, slice->strategy,
						 progress->phase == PHASE_ROWS ? next_row_block : next_graph_block, order);
}

static void
end_read_ahead(MirrorSlice *slice)
{
	read_ahead_end(slice->ahead);
	slice->ahead = NULL;
}

/* The arrays of rows in a channel, from slot `first` on. */
typedef struct LoadedRows
{
	uint32		first;
	uint32	   *versions;
	uint64	   *dead;
	unsigned char *vectors;		/* of the rows that have not been read */
	unsigned char *columns;
} LoadedRows;

/* Copy node states and versions of a page's slots. */
static void
copy_versions(const MirrorSlice *slice, const RowPage *at, Buffer buffer, const LoadedRows *rows)
{
	for (uint32 slot = at->first; slot < at->end; slot++)
	{
		uint32		i = slot - rows->first;
		NodeRecord *node =
			BufferIsValid(buffer) ? node_record(slice->format, BufferGetPage(buffer), slot) : NULL;

		rows->versions[i] = node ? node->version : 0;
		if (node == NULL || NodeState(node) != NODE_LIVE)
			bit64_set(rows->dead, i);
	}
}

/*
 * Make all columns NULL of records that were never used, which few conditions
 * let pass: what passes is counted.
 */
static void
mark_unused(const IndexFormat *format, unsigned char *records, uint32 count)
{
	const uint16 nulls = PG_UINT16_MAX;

	for (uint32 i = 0; i < count; i++, records += format->column_bytes)
		if (!ItemPointerIsValid(&((ColumnRecord *) records)->tid))
			memcpy(records + offsetof(ColumnRecord, nulls), &nulls, sizeof(nulls));
}

/* Copy the records of a column page, or bytes of vectors; zeros: no page. */
static void
copy_bytes(const MirrorSlice *slice, const RowPage *at, Buffer buffer, LoadedRows *rows)
{
	const IndexFormat *format = slice->format;
	bool		columns = at->kind == PAGE_COLUMN;
	Size		bytes = columns ? (Size) (at->end - at->first) * format->column_bytes : at->bytes;
	unsigned char *to = columns
		? rows->columns + (Size) (at->first - rows->first) * format->column_bytes : rows->vectors;

	if (!BufferIsValid(buffer))
		memset(to, 0, bytes);
	else if (columns)
		memcpy(to, column_record(format, BufferGetPage(buffer), at->first), bytes);
	else
		memcpy(to, VectorBytesOf(BufferGetPage(buffer)) + at->offset, bytes);
	if (columns)
		mark_unused(format, to, at->end - at->first);
	else
		rows->vectors += bytes;
}

/* Read columns, versions, states and vectors of a part. */
static void
load_read_rows(const MirrorSlice *slice, LoadPart part, LoadedRows *rows)
{
	uint32		next = part.first;
	LoadRowOrder run;

	while (next_run(slice->format, &run, &next, part.first + part.count))
	{
		RowPage		page;

		while (row_order_next(&run, &page))
		{
			Buffer		buffer = slice_read_page(slice, page.block, page.kind);

			if (page.kind == PAGE_NODE)
				copy_versions(slice, &page, buffer, rows);
			else
				copy_bytes(slice, &page, buffer, rows);
			if (BufferIsValid(buffer))
				UnlockReleaseBuffer(buffer);
		}
	}
}

/* Read the rows of a part into the slice's channel. */
static SliceEnding
prepare_rows(MirrorSlice *slice)
{
	LoadPart	part = slice->progress->part;
	Size		dead_bytes = bits64_bytes(part.count);
	ChannelRequest *request = slice_prepare(slice, CHANNEL_APPEND);
	LoadedRows	rows = {.first = part.first};

	rows.versions =
		channel_array(slice->channel, part.count * sizeof(uint32), &request->versions_offset);
	rows.dead = channel_array(slice->channel, dead_bytes, &request->dead_offset);
	rows.vectors = channel_array(
		slice->channel, (Size) part.count * slice->format->vector_bytes, &request->body_offset);
	rows.columns = channel_array(
		slice->channel, (Size) part.count * slice->format->column_bytes, &request->columns_offset);
	if (rows.versions == NULL || rows.dead == NULL || rows.vectors == NULL || rows.columns == NULL)
		return slice_failed(slice, ENGINE_UNSUPPORTED, "a row does not fit a bulk channel");
	memset(rows.dead, 0, dead_bytes);
	load_read_rows(slice, part, &rows);
	request->first_slot = part.first;
	request->count = part.count;
	request->has_dead = 1;
	return SLICE_IDLE;
}

/* Read the graph rows of a part, if it has any, into the slice's channel. */
static SliceEnding
prepare_graph(MirrorSlice *slice, bool *any)
{
	const IndexFormat *format = slice->format;
	LoadPart	part = slice->progress->part;
	NodeGathering gathering;
	SliceEnding ending;

	gather_begin(&gathering, format, part.count);
	for (uint32 slot = part.first; slot < part.first + part.count; slot += format->superblock_slots)
		gather_superblock(slice, slot_superblock(format, slot), 0, false, &gathering);
	*any = gathering.ngraph > 0;
	ending = *any ? gather_prepare(slice, &gathering) : SLICE_IDLE;
	gather_end(&gathering);
	return ending;
}

static void
swap_channels(MirrorSlice *slice)
{
	int			channel = slice->channel;

	if (slice->spare < 0)
		return;
	slice->channel = slice->spare;
	slice->spare = channel;
}

/* Wait for the answer to the slots that were posted, if any were. */
static SliceEnding
await_posted(MirrorSlice *slice, uint32 *posted)
{
	uint32		count = *posted;
	SliceEnding ending;

	if (count == 0)
		return SLICE_IDLE;
	*posted = 0;
	swap_channels(slice);
	ending = slice_await(slice);
	swap_channels(slice);
	return ending == SLICE_IDLE ? load_share_sent(slice, count) : ending;
}

/*
 * Read the part that this process has taken, and post it. With a spare channel
 * the next one can be read while the engine has this one.
 */
static SliceEnding
load_part(MirrorSlice *slice, uint32 *posted)
{
	MirrorProgress *progress = slice->progress;
	LoadPart	part = progress->part;
	bool		rows = progress->phase == PHASE_ROWS;
	bool		any = true;
	PartOrder	order;
	SliceEnding ending;

	start_read_ahead(slice, &order);
	ending = rows ? prepare_rows(slice) : prepare_graph(slice, &any);
	end_read_ahead(slice);
	if (slice->helps)
		FAULT_POINT("worker-helper-part");
	else
		FAULT_POINT("worker-part");
	if (ending == SLICE_IDLE)
		ending = await_posted(slice, posted);
	if (ending == SLICE_IDLE && rows)
		ending = load_share_await_turn(slice);
	if (ending == SLICE_IDLE && rows && !slice_note_sent(slice, part.first + part.count, 0))
		ending = SLICE_LOST;
	if (ending == SLICE_IDLE && any)
		ending = slice_post(slice);
	if (ending != SLICE_IDLE)
		return ending;
	progress->part.count = 0;
	if (!any)
		return load_share_sent(slice, part.count);
	*posted = part.count;
	swap_channels(slice);
	return slice->spare >= 0 ? SLICE_IDLE : await_posted(slice, posted);
}

SliceEnding
load_parts(MirrorSlice *slice)
{
	uint32		posted = 0;		/* slots in flight, in the slice's other channel */
	SliceEnding ending = SLICE_IDLE;
	SliceEnding answer;

	while (ending == SLICE_IDLE)
	{
		CHECK_FOR_INTERRUPTS();
		if (slice_time_is_up(slice))
			ending = SLICE_MORE;
		else
			ending = load_share_take(slice);
		if (ending == SLICE_IDLE && slice->progress->part.count == 0)
			break;
		if (ending == SLICE_IDLE)
			ending = load_part(slice, &posted);
	}
	answer = await_posted(slice, &posted);
	return answer != SLICE_IDLE && (ending == SLICE_IDLE || ending == SLICE_MORE) ? answer : ending;
}

SliceEnding
load_seeds(MirrorSlice *slice, const MetaPage *meta)
{
	uint32	   *seeds = NULL;
	uint32		count;
	uint32		kept = 0;
	uint64		sum;
	SliceEnding ending = SLICE_IDLE;

	if (format_has_lists(slice->format))
		return SLICE_IDLE;
	count = read_seeds(slice->index, meta, Min(meta->seeds, CHANNEL_DATA_BYTES / sizeof(uint32)),
					   &seeds);
	for (uint32 i = 0; i < count; i++)
	{
		if (seeds[i] < slice->progress->rows)
			seeds[kept++] = seeds[i];
	}
	sum = hash_bytes_extended((const unsigned char *) seeds, (int) (kept * sizeof(uint32)), 0) | 1;
	if (sum != slice->progress->seeds_sum)
	{
		ChannelRequest *request = slice_prepare(slice, CHANNEL_SEEDS);

		memcpy(channel_array(slice->channel, kept * sizeof(uint32), &request->slots_offset), seeds,
			   kept * sizeof(uint32));
		request->count = kept;
		ending = slice_call(slice);
		slice->progress->seeds_sum = ending == SLICE_IDLE ? sum : 0;
	}
	pfree(seeds);
	return ending;
}

/* Finish the load after rows and graph: send the seeds and the position. */
static SliceEnding
finish_load(MirrorSlice *slice)
{
	MirrorProgress *progress = slice->progress;
	MetaPage	meta;
	PendingBounds bounds;
	SliceEnding ending;

	pending_bounds(slice->index, slice->format, &meta, &bounds);
	ending = load_seeds(slice, &meta);
	if (ending == SLICE_IDLE)
		ending = slice_call_with_position(slice, slice_prepare(slice, CHANNEL_POSITION),
										  progress->position);
	if (ending != SLICE_IDLE)
		return ending;
	progress->ready_at = bounds.end;
	progress->phase = PHASE_CATCHUP;
	return SLICE_MORE;
}

bool
load_claim(MirrorSlice *slice)
{
	AreaMirror *mirror = mirror_area(slice->entry);
	uint32		epoch;
	bool		ready;

	/*
	 * Check the server under the lock: if the server dies, the launcher's sweep
	 * takes the lock after us.
	 */
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	ready = shmem_server_ready(&epoch) && mirror_is_generation(slice->entry, slice->generation);
	if (ready)
	{
		atomic_store(&mirror->changed, 0);
		slice->generation = mirror_invalidate(slice->entry, MIRROR_LOADING);
		slice->host_rows = slice->track->host_rows;
		progress_begin(slice);
		atomic_store(&mirror->epoch, epoch);
	}
	LWLockRelease(gpuann_mirror_lock());
	return ready;
}

/*
 * Have counts of the index's lists in the area, those that there are or new
 * ones: the server counts probes from the mirror's creation on. Returns whether
 * they are new.
 */
static bool
claim_list_counts(const MirrorSlice *slice)
{
	ListFormat	lists;
	bool		claimed = false;

	lists_format(slice, &lists);
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (mirror_is_generation(slice->entry, slice->generation) &&
		slice->track->counts.lists != lists.lists)
		claimed = list_counts_claim(slice->entry, lists.lists);
	LWLockRelease(gpuann_mirror_lock());
	return claimed;
}

/* Give counts back that are of no mirror, as the server has refused it. */
static void
release_list_counts(const MirrorSlice *slice)
{
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (mirror_is_generation(slice->entry, slice->generation))
		mirror_release_counts(slice->entry);
	LWLockRelease(gpuann_mirror_lock());
}

SliceEnding
load_create(MirrorSlice *slice, uint32 rows)
{
	const IndexFormat *format = slice->format;
	const ColumnTable *columns = slice->columns;
	ChannelRequest *request;
	SliceEnding ending;
	bool		claimed;

	if (columns == NULL && format->column_bytes > 0)
		columns = index_columns(slice->index);
	slice->least_bytes = mirror_least_bytes(format, rows);
	if (!mirror_within_quota(slice))
		return SLICE_REFUSED;

	claimed = format_has_lists(format) && claim_list_counts(slice);
	request = slice_prepare(slice, CHANNEL_CREATE);
	request->spec.dims = format->dims;
	request->spec.type = (ElementType) format->type;
	request->spec.metric = (Metric) format->metric;
	request->spec.method = (SearchMethod) format->method;
	request->spec.degree = format->degree;
	request->spec.capacity = mirror_capacity(rows);
	request->spec.residency = slice->host_rows ? RESIDENCY_COMPRESSED : RESIDENCY_FULL;
	request->spec.placement = PLACEMENT_SINGLE;
	request->spec.device = -1;
	if (format_has_lists(format))
		lists_spec(slice, &request->spec.lists);
	if (columns != NULL)
	{
		request->spec.columns = columns->count;
		column_kinds(columns, request->spec.column_kinds);
	}
	ending = slice_call(slice);
	if (ending == SLICE_REFUSED && claimed)
		release_list_counts(slice);
	return ending;
}

SliceEnding
load_begin(MirrorSlice *slice)
{
	MirrorProgress *progress = slice->progress;
	MetaPage	meta;
	PendingBounds bounds;
	SliceEnding ending;

	pending_bounds(slice->index, slice->format, &meta, &bounds);
	if (meta.nonce != slice->key.nonce)
		return SLICE_GONE;
	memset(progress, 0, sizeof(*progress));
	progress->phase = PHASE_ROWS;
	progress->load_slots = bounds.next_fresh;
	progress->position = bounds.end;
	progress->change_seq = meta.change_seq;
	progress->load_started_ms = monotonic_ms();

	ending = load_create(slice, progress->load_slots);
	if (ending == SLICE_IDLE)
		load_share_begin(slice);
	return ending;
}

SliceEnding
load_step(MirrorSlice *slice)
{
	MirrorProgress *progress = slice->progress;
	SliceEnding ending;

	/* the engine needs centroids before the rows' lists */
	if (format_has_lists(slice->format) && !lists_sent(slice))
		return lists_send(slice);
	/* a build whose graph is in the mirror already begins here */
	if (progress->phase == PHASE_GRAPH && progress->next_slot >= progress->load_slots)
		return finish_load(slice);
	ending = load_parts(slice);
	if (ending == SLICE_IDLE)
		ending = load_share_await_all(slice);
	if (ending == SLICE_IDLE && progress->phase == PHASE_ROWS)
		ending = load_share_begin_graph(slice);
	return ending == SLICE_IDLE ? SLICE_MORE : ending;
}
