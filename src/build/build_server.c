/*
 * build_server.c
 *		A build whose rows are linked by the server's engine, where that has a
 *		device: they go into the index's mirror as they are loaded, are linked
 *		there, and the graph rows come back.
 *
 * The mirror belongs to the builder until the transaction is over
 * (mirror_feed.c), so whatever ends that leaves none. Rows are sent from pages
 * that are written already: whatever goes wrong, the CPU engine in this process
 * can begin with the first row. The server is not believed: every slot and edge
 * is checked in a copy, and each row has to come once.
 */
#include "postgres.h"

#include "build/build_parts.h"

#include "client/client.h"
#include "engine/bits.h"
#include "engine/prune.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "mirror/worker.h"

#define LEAST_ROWS		1000	/* fewer are linked here before a server has woken */
#define FETCHED_ROWS	2048	/* graph rows that come at once */
#define PATIENCE_US		(120 * 1000000) /* with a server that does not get on: whatever holds it up,
										 * it is replaced or ends itself by then */

struct BuildServer
{
	MirrorSlice slice;
	const uint32 *loaded;		/* per superblock: slots that hold rows, the first ones */
	uint32		end;			/* slots below this have been sent */
	uint32		rows;			/* of them, that hold rows */

	/* what the channel carries; count 0: nothing */
	uint32		first;
	uint32		count;
	bool		absent;			/* slots without rows */

	/* what comes back */
	uint64	   *holds;			/* a bit per slot: those that hold rows */
	uint32		fetched;		/* rows */
	uint32		next;			/* the slot of the next one, if that holds a row */
	uint32	   *slots;
	uint32	   *graph_rows;
	uint32	   *seeds;
};

/*
 * Whether an index is built on the server: a CPU engine there is no faster than
 * the one here.
 */
static bool
worth_it(Relation index, double expected_rows)
{
	return expected_rows >= LEAST_ROWS && feed_allowed(index) && client_engine_is_cuda();
}

/*
 * The rows to make the mirror for: it grows, so rather too few. Statistics may
 * be missing, and of a partial index they say nothing.
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
 * The channel is given back whatever ends the build.
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
 * Say why the server does not build this index. That it is full is as
 * configured; anything else is not.
 */
static bool
build_failed(BuildServer *build)
{
	const MirrorSlice *slice = &build->slice;

	ereport(slice->no_memory || slice->over_quota ? NOTICE : WARNING,
			(errmsg("gpuann graph of index \"%s\" is built by the CPU engine",
					RelationGetRelationName(slice->index)),
			 errdetail("%s", slice->reason)));
	return false;
}

/*
 * Note why, and say so.
 */
static bool
failed_with(BuildServer *build, EngineStatus status, const char *text)
{
	(void) slice_failed(&build->slice, status, text);
	return build_failed(build);
}

/*
 * Make room for what was refused for want of it: the mirror of the index's file
 * before this one makes way, then the one that no scan has asked for longest.
 * False if nobody can.
 */
static bool
build_make_room(MirrorSlice *slice)
{
	bool		wanting = slice->no_memory || slice->over_quota;

	if (!wanting || !(mirror_evict_predecessor(slice) || mirror_evict_idle(slice)))
		return false;
	slice->no_memory = slice->over_quota = false;
	/* a server that did not answer to that has the channel still */
	return request_state(atomic_load(&shared_channel((uint32) slice->channel)->state)) ==
		   REQUEST_FREE;
}

/*
 * Have the server make an empty mirror.
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
build_server_open(Relation heap, Relation index, const IndexFormat *format, double expected_rows,
				  uint64 nonce)
{
	BuildServer *build;
	MemoryContextCallback *callback;
	MirrorSlice *slice;

	if (!worth_it(index, expected_rows))
		return NULL;
	build = palloc0(sizeof(BuildServer));
	slice = &build->slice;
	slice->index = index;
	slice->format = format;
	slice->entry = slice->channel = -1;
	slice->call_us = PATIENCE_US;
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
 * Fill the channel with what it is to carry, and post it.
 */
static bool
post_rows(BuildServer *build)
{
	MirrorSlice *slice = &build->slice;
	const IndexFormat *format = slice->format;
	Size		vector_bytes = (Size) build->count * format->vector_bytes;
	ChannelRequest *request = slice_prepare(slice, CHANNEL_APPEND);
	uint32	   *versions =
		channel_array(slice->channel, build->count * sizeof(uint32), &request->versions_offset);
	uint64 *dead = channel_array(slice->channel, bits64_bytes(build->count), &request->dead_offset);
	void	   *vectors = channel_array(slice->channel, vector_bytes, &request->body_offset);

	if (versions == NULL || dead == NULL || vectors == NULL)
		return failed_with(build, ENGINE_UNSUPPORTED, "a row does not fit a bulk channel");
	memset(dead, build->absent ? 0xFF : 0, bits64_bytes(build->count));
	for (uint32 i = 0; i < build->count; i++)
		versions[i] = 1;
	if (build->absent)
		memset(vectors, 0, vector_bytes);
	else
		build_copy_vectors(slice->index, format, build->first, build->count, vectors);
	request->first_slot = build->first;
	request->count = build->count;
	request->has_dead = 1;
	atomic_store(&slice->track->rows_sent, build->first + build->count);
	slice->least_bytes = mirror_least_bytes(format, build->first + build->count);
	return channel_post(slice->channel) || failed_with(build, ENGINE_FAILED, "no server runs");
}

/*
 * Let what the channel carries arrive. Where the device is full, others make
 * way, and it is sent again.
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
 * Send the slots from the last one sent up to end, all of one superblock; the
 * last part of them is left on its way.
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
 * Send the rows of the next superblock, while this process goes on. What the
 * one before has left is free, as its pages will say.
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
 * Whether slots hold rows: the next ones, one after another.
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
 * The set of slots that hold rows.
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
 * Whether a graph row is one that pages may have: others that hold rows, each
 * once, without gaps. The row's own slot, which holds one, and those that it
 * has named are out of the set meanwhile.
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
 * Fetch a part of what was linked, from an element on: slots, and their rows
 * unless rows is NULL. Returns how many; -1: it failed.
 */
static int64
build_fetch(BuildServer *build, uint32 first, uint32 most, bool seeds, uint32 *slots, uint32 *rows)
{
	MirrorSlice *slice = &build->slice;
	Size		row_bytes = slice->format->degree * sizeof(uint32);
	LinkPart	part;
	const char *text;
	EngineStatus status;

	(void) slice_prepare(slice, CHANNEL_LINK_FETCH);
	status = channel_fetch_linked(slice->channel, first, most, seeds, slice->format->degree,
								  slice_call_deadline(slice), &part, &text);
	if (status != ENGINE_OK)
	{
		(void) failed_with(build, status, text);
		return -1;
	}
	memcpy(slots, part.slots, part.count * sizeof(uint32));
	if (rows != NULL)
		memcpy(rows, part.rows, part.count * row_bytes);
	return part.count;
}

/*
 * Fetch the seeds.
 */
static bool
fetch_seeds(BuildServer *build, LinkResult *seeds)
{
	int64		count;

	build->seeds = palloc(SEEDS_MAX * sizeof(uint32));
	count = build_fetch(build, 0, SEEDS_MAX, true, build->seeds, NULL);
	if (count < 0)
		return false;
	for (int64 i = 0; i < count; i++)
	{
		if (!holds_row(build, build->seeds[i]))
			return failed_with(build, ENGINE_INVALID,
							   "the server named a seed that does not exist");
	}
	memset(seeds, 0, sizeof(*seeds));
	seeds->nseeds = (uint32) count;
	seeds->seeds = build->seeds;
	return count > 0 || failed_with(build, ENGINE_INVALID, "the server named no seeds");
}

/*
 * Have every row linked. Where the device has no memory for that, others make
 * way, and it is asked again.
 */
static bool
link_rows(BuildServer *build)
{
	MirrorSlice *slice = &build->slice;

	for (;;)
	{
		ChannelRequest *request = slice_prepare(slice, CHANNEL_LINK);
		const char *text;
		EngineStatus status;

		CHECK_FOR_INTERRUPTS();
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

bool
build_server_link(BuildServer *build, const uint32 *loaded, LinkResult *seeds)
{
	MirrorSlice *slice = &build->slice;

	build->loaded = loaded;
	while (!mirror_within_quota(slice))
	{
		if (!build_make_room(slice))
			return build_failed(build);
	}
	if (!link_rows(build))
		return false;
	if (*(volatile uint32_t *) &shared_channel((uint32) slice->channel)->out_count != build->rows)
		return failed_with(build, ENGINE_INVALID, "the server has not linked every row once");
	build->holds = slots_with_rows(build);
	build->slots = palloc(FETCHED_ROWS * sizeof(uint32));
	build->graph_rows = palloc(FETCHED_ROWS * slice->format->degree * sizeof(uint32));
	return fetch_seeds(build, seeds);
}

bool
build_server_fetch(BuildServer *build, LinkResult *part)
{
	uint32		degree = build->slice.format->degree;
	int64		count =
		build_fetch(build, build->fetched, FETCHED_ROWS, false, build->slots, build->graph_rows);

	if (count < 0)
		return false;
	if (count == 0 || !are_next(build, build->slots, (uint32) count))
		return failed_with(build, ENGINE_INVALID, "the server has not linked every row once");
	for (int64 i = 0; i < count; i++)
	{
		if (!is_graph_row(build, build->slots[i], build->graph_rows + i * degree))
			return failed_with(build, ENGINE_INVALID, "the server made a graph row that cannot be");
	}
	build->fetched += (uint32) count;
	memset(part, 0, sizeof(*part));
	part->count = (uint32) count;
	part->slots = build->slots;
	part->rows = build->graph_rows;
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
