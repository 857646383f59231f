/*
 * build_server.c
 *		A build by the server's engine, if it is on a GPU: rows are sent to the
 *		index's mirror as they are loaded, are linked there, and the graph rows
 *		are fetched. For lists, centroids and codebook are trained there first,
 *		and list numbers and codes are fetched.
 *
 * The mirror belongs to the builder until the end of the transaction
 * (mirror_feed.c), whose abort removes it. Rows are sent from pages that are
 * already written, so after any failure the CPU engine in this process can
 * begin with the first row. The server is not trusted: every slot, edge and
 * list number is checked in a private copy, and each row must be returned
 * exactly once.
 */
#include "postgres.h"

#include "build/build_parts.h"

#include <math.h>

#include "client/client.h"
#include "engine/bits.h"
#include "engine/prune.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "mirror/worker.h"

#define ROWS_MIN		1000	/* fewer are linked sooner in this process */
#define FETCHED_ROWS	2048	/* graph rows fetched at once, */
#define FETCHED_BYTES	(CHANNEL_DATA_BYTES / 2)	/* or bytes of list numbers, codes and floats */
#define PATIENCE_US		(120 * 1000000) /* timeout without progress: by then the server's watchdog
										 * has ended it, or the launcher replaced it */

struct BuildServer
{
	MirrorSlice slice;
	ListFormat	lists;			/* of the mirror; slice.lists, if the format has lists */
	ColumnTable columns;		/* slice.columns, if the index includes any */
	const uint32 *loaded;		/* per superblock: slots that hold rows, the first ones */
	uint32		end;			/* slots below this have been sent */
	uint32		rows;			/* number of these slots that hold rows */

	/* slots in the channel; count 0: none */
	uint32		first;
	uint32		count;
	bool		absent;			/* they are slots without rows */

	/* what comes back */
	uint64	   *holds;			/* a bit per slot: those that hold rows */
	uint32		fetched;		/* rows */
	uint32		next;			/* slot of the next row, if that slot holds one */
	uint32		most;			/* rows fetched at once */
	uint32	   *slots;
	uint32	   *graph_rows;
	unsigned char *codes;
	uint32	   *seeds;
};

/*
 * A CPU engine in the server would not be faster than the one in this process.
 */
bool
build_server_allowed(Relation index, double expected_rows)
{
	const GpuannOptions *options = (const GpuannOptions *) index->rd_options;

	return expected_rows >= ROWS_MIN && feed_allowed(index) && client_engine_is_cuda() &&
		(options == NULL || options->lists <= ENGINE_MAX_LISTS);
}

/*
 * Capacity of the mirror, rather too small, because it can grow. Statistics may
 * be missing, and do not apply to partial indexes.
 */
static uint32
first_capacity(Relation heap, Relation index, const IndexFormat *format, double expected_rows)
{
	double		most = (double) RelationGetNumberOfBlocks(heap) * BLCKSZ / format->vector_bytes;

	if (RelationGetIndexPredicate(index) != NIL)
		most = 0;
	return (uint32) Min(Max(Min(expected_rows, most), format->superblock_slots), ENGINE_MAX_SLOTS);
}

/*
 * Memory context callback: release the channel.
 */
static void
release_channel(void *arg)
{
	MirrorSlice *slice = arg;

	if (slice->channel >= 0)
		channel_release(slice->channel);
	slice->channel = -1;
}

/*
 * Report why the server does not build this index. A full memory limit is
 * expected, anything else is a WARNING.
 */
static bool
build_failed(BuildServer *build)
{
	const MirrorSlice *slice = &build->slice;

	ereport(slice->no_memory || slice->over_quota ? NOTICE : WARNING,
			(slice->lists != NULL
			 ? errmsg("gpuann lists of index \"%s\" are made without the server",
					  RelationGetRelationName(slice->index))
			 : errmsg("gpuann graph of index \"%s\" is built by the CPU engine",
					  RelationGetRelationName(slice->index)),
			 errdetail("%s", slice->reason)));
	return false;
}

/*
 * Record the reason, and report it.
 */
static bool
failed_with(BuildServer *build, EngineStatus status, const char *text)
{
	(void) slice_failed(&build->slice, status, text);
	return build_failed(build);
}

/*
 * Make room after the engine refused for lack of memory: evict the mirror of
 * the index's previous file, then the least recently used one. False if none
 * can be evicted.
 */
static bool
build_make_room(MirrorSlice *slice)
{
	bool		wanting = slice->no_memory || slice->over_quota;

	if (!wanting || !(mirror_evict_predecessor(slice) || mirror_evict_idle(slice)))
		return false;
	slice->no_memory = slice->over_quota = false;
	/* not if the server still owns the channel after a timeout */
	return request_state(atomic_load(&shared_channel((uint32) slice->channel)->state)) ==
		   REQUEST_FREE;
}

/*
 * Have the server create an empty mirror.
 */
static bool
create_mirror(MirrorSlice *slice, uint32 rows)
{
	SliceEnding ending;

	do
	{
		CHECK_FOR_INTERRUPTS();
		ending = load_create(slice, rows);
	} while (ending == SLICE_REFUSED && build_make_room(slice));
	return ending == SLICE_IDLE;
}

BuildServer *
build_server_open(Relation heap, Relation index, const IndexFormat *format,
				  const ListFormat *lists, double expected_rows, uint64 nonce)
{
	BuildServer *build = palloc0(sizeof(BuildServer));
	MirrorSlice *slice = &build->slice;
	MemoryContextCallback *callback;

	slice->index = index;
	slice->format = format;
	slice->entry = slice->channel = -1;
	slice->call_us = PATIENCE_US;
	if (format_has_lists(format))
	{
		build->lists = *lists;
		slice->lists = &build->lists;
	}
	if (format->column_bytes > 0)
	{
		column_table_plan(index, &build->columns);
		slice->columns = &build->columns;
	}
	callback = palloc0(sizeof(MemoryContextCallback));
	callback->func = release_channel;
	callback->arg = slice;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);
	if (feed_begin(slice, nonce) &&
		create_mirror(slice, first_capacity(heap, index, format, expected_rows)))
		return build;
	(void) build_failed(build);
	build_server_close(build);
	return NULL;
}

void
build_server_close(BuildServer *build)
{
	feed_forget(&build->slice);
	release_channel(&build->slice);
}

/*
 * Fill the channel with the slots to send, and post it.
 */
static bool
post_rows(BuildServer *build)
{
	MirrorSlice *slice = &build->slice;
	const IndexFormat *format = slice->format;
	Size		vector_bytes = (Size) build->count * format->vector_bytes;
	Size		column_bytes = (Size) build->count * format->column_bytes;
	ChannelRequest *request = slice_prepare(slice, CHANNEL_APPEND);
	uint32	   *versions =
		channel_array(slice->channel, build->count * sizeof(uint32), &request->versions_offset);
	uint64 *dead = channel_array(slice->channel, bits64_bytes(build->count), &request->dead_offset);
	void	   *vectors = channel_array(slice->channel, vector_bytes, &request->body_offset);
	void	   *columns = channel_array(slice->channel, column_bytes, &request->columns_offset);

	if (versions == NULL || dead == NULL || vectors == NULL || columns == NULL)
		return failed_with(build, ENGINE_UNSUPPORTED, "a row does not fit a bulk channel");
	memset(dead, build->absent ? 0xFF : 0, bits64_bytes(build->count));
	for (uint32 i = 0; i < build->count; i++)
		versions[i] = 1;
	if (build->absent)
	{
		memset(vectors, 0, vector_bytes);
		memset(columns, 0, column_bytes);
	}
	else
	{
		build_copy_vectors(slice->index, format, build->first, build->count, vectors);
		if (column_bytes > 0)
			read_columns(slice->index, format, build->first, build->count, columns);
	}
	request->first_slot = build->first;
	request->count = build->count;
	request->has_dead = 1;
	atomic_store(&slice->track->rows_sent, build->first + build->count);
	slice->least_bytes = mirror_least_bytes(format, build->first + build->count);
	return channel_post(slice->channel) || failed_with(build, ENGINE_FAILED, "no server runs");
}

/*
 * Wait for the rows in flight. If the device is full, evict other mirrors, and
 * send them again.
 */
static bool
build_land(BuildServer *build)
{
	MirrorSlice *slice = &build->slice;

	while (build->count > 0)
	{
		const char *text;
		EngineStatus status =
			channel_await(slice->channel, monotonic_us() + PATIENCE_US, PATIENCE_US, NULL, &text);

		if (status == ENGINE_OK)
			build->count = 0;
		else if (slice_failed(slice, status, text) != SLICE_REFUSED || !build_make_room(slice))
			return build_failed(build);
		else if (!post_rows(build))
			return false;
	}
	return true;
}

/*
 * Send the slots not yet sent, up to `end`, all of one superblock; the last
 * part remains in flight.
 */
static bool
send_slots(BuildServer *build, uint32 end, bool absent)
{
	while (build->end < end)
	{
		CHECK_FOR_INTERRUPTS();
		if (!build_land(build))
			return false;
		build->first = build->end;
		build->count = rows_in_channel(build->slice.format, build->first, end);
		build->absent = absent;
		if (build->count == 0)
			return failed_with(build, ENGINE_UNSUPPORTED, "a row does not fit a bulk channel");
		if (!post_rows(build))
			return false;
		build->end += build->count;
	}
	return true;
}

/*
 * Send the rows of the next superblock, asynchronously. Unused slots of the
 * previous one are sent as absent, because they will be free in the pages.
 */
bool
build_server_feed(BuildServer *build, uint32 superblock, uint32 rows)
{
	uint32		first = superblock * build->slice.format->superblock_slots;

	build->rows += rows;
	return send_slots(build, first, true) && send_slots(build, first + rows, false);
}

bool
build_server_fed(BuildServer *build)
{
	return build_land(build);
}

/*
 * Whether slots are exactly the next ones that hold rows.
 */
static bool
are_next(BuildServer *build, const uint32 *slots, uint32 count)
{
	uint32		per_superblock = build->slice.format->superblock_slots;

	for (uint32 i = 0; i < count; i++)
	{
		if (build->next < build->end &&
			build->next % per_superblock >= build->loaded[build->next / per_superblock])
			build->next = (build->next / per_superblock + 1) * per_superblock;
		if (build->next >= build->end || slots[i] != build->next++)
			return false;
	}
	return true;
}

/*
 * The bitmap of slots that hold rows.
 */
static uint64 *
slots_with_rows(const BuildServer *build)
{
	uint32		per_superblock = build->slice.format->superblock_slots;
	uint64	   *bits =
		palloc_extended(bits64_bytes(build->end), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (uint32 first = 0; first < build->end; first += per_superblock)
	{
		uint32		end = first + build->loaded[first / per_superblock];

		for (uint32 slot = first; slot < end; slot++)
			bit64_set(bits, slot);
	}
	return bits;
}

static bool
holds_row(const BuildServer *build, uint32 slot)
{
	return slot < build->end && bit64_is_set(build->holds, slot);
}

static void
flip_slot(BuildServer *build, uint32 slot)
{
	build->holds[slot / 64] ^= UINT64CONST(1) << slot % 64;
}

/*
 * Whether a graph row is valid: it names other slots that hold rows, each once,
 * without gaps. Its own slot and those already named are removed from the
 * bitmap during the check, which finds duplicates.
 */
static bool
is_graph_row(BuildServer *build, uint32 slot, const uint32 *row)
{
	uint32		degree = build->slice.format->degree;
	uint32		count = 0;

	flip_slot(build, slot);
	for (; count < degree && holds_row(build, row[count]); count++)
		flip_slot(build, row[count]);
	for (uint32 i = 0; i < count; i++)
		flip_slot(build, row[i]);
	flip_slot(build, slot);
	while (count < degree && row[count] == NO_SLOT)
		count++;
	return count == degree;
}

/*
 * Fetch a part of the result, from an element on, limited in number. Returns
 * the number of elements, or -1 on failure.
 */
static int64
build_fetch(BuildServer *build, FetchArrays arrays, uint32 first, uint32 most, LinkPart *part)
{
	MirrorSlice *slice = &build->slice;
	LinkWanted	wanted = {arrays, first, most, slice->format->degree, build->lists.code_bytes};
	const char *text;
	EngineStatus status;

	(void) slice_prepare(slice, CHANNEL_LINK_FETCH);
	status = channel_fetch_linked(slice->channel, &wanted, slice_call_deadline(slice), part, &text);
	if (status == ENGINE_OK)
		return part->count;
	(void) failed_with(build, status, text);
	return -1;
}

/*
 * Fetch the seeds.
 */
static bool
build_fetch_seeds(BuildServer *build, LinkResult *made)
{
	LinkPart	part;
	int64		count = build_fetch(build, FETCH_SEEDS, 0, SEEDS_MAX, &part);

	if (count < 0)
		return false;
	build->seeds = palloc(SEEDS_MAX * sizeof(uint32));
	memcpy(build->seeds, part.slots, count * sizeof(uint32));
	for (int64 i = 0; i < count; i++)
	{
		if (!holds_row(build, build->seeds[i]))
			return failed_with(build, ENGINE_INVALID,
							   "the server named a seed that does not exist");
	}
	made->nseeds = (uint32) count;
	made->seeds = build->seeds;
	return count > 0 || failed_with(build, ENGINE_INVALID, "the server named no seeds");
}

/*
 * Have all rows linked, or lists trained on this many. If the device has not
 * enough memory, evict other mirrors, and retry.
 */
static bool
run_job(BuildServer *build, ChannelOp op, uint32 count)
{
	MirrorSlice *slice = &build->slice;

	for (;;)
	{
		ChannelRequest *request = slice_prepare(slice, op);
		const char *text;
		EngineStatus status;

		CHECK_FOR_INTERRUPTS();
		request->count = count;
		request->ef_construction = slice->format->ef_construction;
		if (!channel_post(slice->channel))
			return failed_with(build, ENGINE_FAILED, "no server runs");
		status = channel_await(slice->channel, monotonic_us() + PATIENCE_US, PATIENCE_US,
							   build_progress, &text);
		if (status == ENGINE_OK)
			return true;
		if (slice_failed(slice, status, text) != SLICE_REFUSED ||
			!channel_link_refused(slice->channel, status) || !build_make_room(slice))
			return build_failed(build);
	}
}

/* Number of elements of the job's result. */
static uint32
made_elements(const BuildServer *build)
{
	return *(volatile uint32_t *) &shared_channel((uint32) build->slice.channel)->out_count;
}

/*
 * Ensure that the mirror has this many lists: if more were planned, replace it
 * by a new one, and send all rows again.
 */
static bool
have_lists(BuildServer *build, uint32 lists)
{
	const IndexFormat *format = build->slice.format;
	uint32		end = build->end;

	if (build->lists.lists == lists)
		return true;
	build->lists.lists = lists;
	build->end = build->rows = 0;
	if (!create_mirror(&build->slice, end))
		return build_failed(build);
	for (uint32 i = 0; i * format->superblock_slots < end; i++)
	{
		if (!build_server_feed(build, i, build->loaded[i]))
			return false;
	}
	return build_server_fed(build);
}

/*
 * Fetch the trained floats, and check that each is finite.
 */
static bool
fetch_floats(BuildServer *build, float *floats, Size nfloats)
{
	LinkPart	part;

	for (Size done = 0; done < nfloats; done += part.count)
	{
		int64		count;

		CHECK_FOR_INTERRUPTS();
		count = build_fetch(build, FETCH_FLOATS, (uint32) done, FETCHED_BYTES / sizeof(float),
							&part);
		if (count < 0)
			return false;
		if (count == 0 || (Size) count > nfloats - done)
			return failed_with(build, ENGINE_INVALID, "the server has learned other lists");
		memcpy(floats + done, part.floats, count * sizeof(float));
		for (int64 i = 0; i < count; i++)
		{
			if (!isfinite(floats[done + i]))
				return failed_with(build, ENGINE_INVALID,
								   "the server has learned a centroid that is not finite");
		}
	}
	return true;
}

bool
build_server_train(BuildServer *build, const uint32 *loaded, uint32 lists, uint32 sample,
				   float *floats, Size nfloats)
{
	build->loaded = loaded;
	if (!have_lists(build, lists) || !run_job(build, CHANNEL_TRAIN, sample))
		return false;
	if (made_elements(build) != nfloats)
		return failed_with(build, ENGINE_INVALID, "the server has learned other lists");
	return fetch_floats(build, floats, nfloats);
}

/*
 * Take the lists' sum of distances, after checking it. Elements are finite, and
 * the sum of their squares is far below the overflow of a double.
 */
static bool
take_distance(BuildServer *build, LinkResult *made)
{
	made->distance =
		*(volatile double *) &shared_channel((uint32) build->slice.channel)->out_distance;
	return (made->distance >= 0 && isfinite(made->distance)) ||
		   failed_with(build, ENGINE_INVALID, "the server gave a distance that cannot be");
}

bool
build_server_link(BuildServer *build, const uint32 *loaded, LinkResult *made)
{
	MirrorSlice *slice = &build->slice;
	uint32		code_bytes = build->lists.code_bytes;
	Size		row_bytes = slice->format->degree * sizeof(uint32);

	memset(made, 0, sizeof(*made));
	build->loaded = loaded;
	while (!mirror_within_quota(slice))
	{
		if (!build_make_room(slice))
			return build_failed(build);
	}
	if (!run_job(build, CHANNEL_LINK, 0))
		return false;
	if (made_elements(build) != build->rows)
		return failed_with(build, ENGINE_INVALID, "the server has not linked every row once");
	build->most = code_bytes > 0
		? FETCHED_BYTES / (sizeof(uint32) + row_bytes + code_bytes) : FETCHED_ROWS;
	build->slots = palloc(build->most * sizeof(uint32));
	build->graph_rows = palloc(build->most * row_bytes);
	build->codes = palloc(build->most * code_bytes);
	if (slice->lists != NULL)
		return take_distance(build, made);
	build->holds = slots_with_rows(build);
	return build_fetch_seeds(build, made);
}

/* Whether a slot's graph row or list number is valid. */
static bool
is_row(BuildServer *build, uint32 slot, const uint32 *row)
{
	return build->slice.lists != NULL ? *row < build->lists.lists : is_graph_row(build, slot, row);
}

/* Whether codes satisfy what searches rely on; true without lists. */
static bool
are_codes(BuildServer *build, const unsigned char *codes, uint32 count)
{
	QuantizerShape shape;

	if (build->slice.lists == NULL)
		return true;
	shape = list_shape(build->slice.format, &build->lists);
	return quantizer_codes_valid(&shape, codes, count);
}

bool
build_server_fetch(BuildServer *build, LinkResult *part)
{
	uint32		degree = build->slice.format->degree;
	FetchArrays arrays = build->slice.lists != NULL ? FETCH_CODES : FETCH_ROWS;
	LinkPart	came;
	int64		count = build_fetch(build, arrays, build->fetched, build->most, &came);

	if (count < 0)
		return false;
	memcpy(build->slots, came.slots, count * sizeof(uint32));
	memcpy(build->graph_rows, came.rows, count * degree * sizeof(uint32));
	memcpy(build->codes, came.codes, (Size) count * build->lists.code_bytes);
	if (count == 0 || !are_next(build, build->slots, (uint32) count))
		return failed_with(build, ENGINE_INVALID, "the server has not linked every row once");
	for (int64 i = 0; i < count; i++)
	{
		if (!is_row(build, build->slots[i], build->graph_rows + i * degree))
			return failed_with(build, ENGINE_INVALID, "the server made a graph row that cannot be");
	}
	if (!are_codes(build, build->codes, (uint32) count))
		return failed_with(build, ENGINE_INVALID, "the server made a code that cannot be");
	build->fetched += (uint32) count;
	*part = (LinkResult) {
		.count = (uint32) count,
		.slots = build->slots,
		.rows = build->graph_rows,
		.codes = build->codes,
	};
	return true;
}

bool
build_server_keep(BuildServer *build, int64 lasted_ms)
{
	MirrorSlice *slice = &build->slice;
	bool		kept = feed_end(slice, lasted_ms, build_progress);

	if (!kept)
		feed_forget(slice);
	release_channel(slice);
	if (kept)
		ereport(DEBUG1, (errmsg_internal("gpuann index \"%s\" was linked on the server",
										 RelationGetRelationName(slice->index))));
	else
		ereport(LOG,
				(errmsg("the mirror that gpuann index \"%s\" was linked in is loaded again: %s",
						RelationGetRelationName(slice->index), slice->reason)));
	return kept;
}
