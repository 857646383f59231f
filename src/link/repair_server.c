/*
 * repair_server.c
 *		VACUUM's repair by the server's engine, if that is on a GPU and has the
 *		index's mirror.
 *
 * Dead slots are marked in the pages first. When the mirror's worker has sent
 * these changes, the mirror has the graph of the pages, and keeps it, because
 * VACUUM holds the linker lock. Rows are repaired in ranges of slots of about
 * PIECE_MS, between which the worker can send new rows, and a last job attaches
 * unreachable rows. Changed rows are fetched after the last job, each row once
 * although it may have got reverse edges several times, and VACUUM writes them
 * to the pages like rows that it repaired itself.
 *
 * The server is not trusted: the callback that takes rows checks each one, and
 * VACUUM then repairs over pages all rows that still name dead slots. If
 * changes of the mirror do not get into the pages (an error, a cancel, rows
 * refused), the mirror is dropped and loaded again.
 */
#include "base/base.h"

#include "client/shmem.h"
#include "base/faults.h"
#include "client/mirror_table.h"
#include "link/repair_server.h"

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/rel.h"

#define MIN_DEAD		100		/* fewer dead rows, or fewer than one in DEAD_DIVISOR, are repaired
								 * sooner in this process than a worker has sent them */
#define DEAD_DIVISOR	128
#define FETCHED_BYTES	(1024 * 1024)	/* of graph rows fetched at once */
#define PIECE_MS		100		/* engine time of a piece */
#define FIRST_PIECE		4096	/* slots */
#define PIECE_MIN		256
#define PIECE_MAX		524288	/* limit, which fits into a channel */
#define CURRENT_MS		20000	/* timeout for the mirror to receive the dead slots; extended on
								 * progress */
#define POLL_MS			10
#define FETCH_US		(20 * 1000000)
#define REPAIR_US		(120 * 1000000) /* timeout of a job without progress; the server's watchdog
										 * exits by then */

/* Record why the server cannot repair. */
static bool
repair_refuse(RepairServer *server, const char *reason)
{
	strlcpy(server->reason, reason, sizeof(server->reason));
	return false;
}

/* Report why, and release the channel. */
static bool
repair_failed(RepairServer *server)
{
	if (server->channel >= 0)
		channel_release(server->channel);
	server->channel = -1;
	ereport(server->link_refused ? NOTICE : WARNING,
			(errmsg("gpuann index \"%s\" is repaired over pages",
					RelationGetRelationName(server->index)),
			 errdetail("%s", server->reason)));
	return false;
}

/*
 * Whether the mirror still has the generation with which the repair began, and
 * a worker keeps it current.
 */
static bool
is_still_there(const RepairServer *server)
{
	return client_worker_serves(server->index) &&
		mirror_is_generation(server->mirror.entry, server->mirror.generation);
}

/* Wait until the mirror has all page changes up to a change sequence. */
static bool
await_current(RepairServer *server, uint64 change_seq)
{
	const AreaMirror *area = mirror_area(server->mirror.entry);
	int64		give_up_ms = monotonic_ms() + CURRENT_MS;
	uint64		last = 0;

	while (client_changes(server->mirror) < change_seq)
	{
		uint64		now = atomic_load(&area->rows) + atomic_load(&area->position) +
					 mirror_track(server->mirror.entry)->progress.scan_superblock;

		if (!is_still_there(server))
			return repair_refuse(server, "the mirror has gone");
		if (now != last)
			give_up_ms = monotonic_ms() + CURRENT_MS;
		last = now;
		if (monotonic_ms() >= give_up_ms)
			return repair_refuse(server, "the mirror does not follow");
		shmem_sleep(POLL_MS, SHMEM_WAIT_MIRROR);
	}
	return true;
}

/* Claim a channel, waiting for a while if all are in use. */
static bool
await_channel(RepairServer *server)
{
	server->channel = channel_claim_until(monotonic_ms() + CURRENT_MS);
	return server->channel >= 0 || repair_refuse(server, "no bulk channel is free");
}

RepairServer *
repair_server_make(void)
{
	RepairServer *server = palloc0(sizeof(RepairServer));

	server->channel = -1;
	/*
	 * before_shmem_exit callbacks can only be cancelled in reverse order of
	 * registration: register the permanent one before the caller's temporary
	 * one.
	 */
	shmem_leave_at_exit();
	return server;
}

bool
repair_server_begin(RepairServer *server, Relation index, const IndexFormat *format, uint32 dead,
					uint32 all, uint64 change_seq)
{
	FallbackReason why;
	MetaPage	meta;

	server->index = index;
	server->format = format;
	if (dead < MIN_DEAD || dead < all / DEAD_DIVISOR || !gpuann_server ||
		!client_engine_is_cuda() || !client_worker_links(index))
		return false;
	read_meta(index, &meta);
	server->mirror = client_mirror(index, &meta, &why);
	if (why != FALLBACK_NONE || server->mirror.entry < 0)
		return false;
	server->fetched = FETCHED_BYTES / (format->degree * sizeof(uint32));
	server->slots = palloc(server->fetched * sizeof(uint32));
	server->rows = palloc(FETCHED_BYTES);
	return (await_current(server, change_seq) && await_channel(server)) || repair_failed(server);
}

/* Prepare the channel for an operation on the mirror. */
static ChannelRequest *
repair_prepare(RepairServer *server, ChannelOp op)
{
	return channel_prepare(server->channel, op, (uint32) server->mirror.entry,
						   server->mirror.generation);
}

/*
 * Fetch a part of the rows changed by a job, and pass them to the callback.
 * Returns the number of rows, or -1 on failure.
 */
static int64
repair_take_part(RepairServer *server, uint32 first, TakeRepaired take, void *arg)
{
	Size		row_bytes = server->format->degree * sizeof(uint32);
	LinkWanted	wanted = {.arrays = FETCH_ROWS, .first = first, .most = server->fetched,
						  .degree = server->format->degree};
	LinkPart	part;
	const char *text;

	(void) repair_prepare(server, CHANNEL_LINK_FETCH);
	if (channel_fetch_linked(server->channel, &wanted, monotonic_us() + FETCH_US, &part,
							 &text) != ENGINE_OK)
	{
		(void) repair_refuse(server, text);
		return -1;
	}
	memcpy(server->slots, part.slots, part.count * sizeof(uint32));
	memcpy(server->rows, part.rows, part.count * row_bytes);
	for (uint32 i = 0; i < part.count; i++)
	{
		if (!take(arg, server->slots[i], server->rows + (Size) i * server->format->degree))
			server->refused++;
	}
	return part.count;
}

/* Fetch all rows changed by a job. */
static bool
take_all(RepairServer *server, TakeRepaired take, void *arg)
{
	uint32 wanted = *(volatile uint32_t *) &shared_channel((uint32) server->channel)->out_count;
	uint32		taken = 0;

	while (taken < wanted)
	{
		int64		count;

		CHECK_FOR_INTERRUPTS();
		count = repair_take_part(server, taken, take, arg);
		if (count < 0)
			return false;
		if (count == 0)
			return repair_refuse(server, "the server has fewer rows than it said");
		taken += (uint32) count;
		server->came += count;
	}
	return true;
}

/*
 * Have slots [first, end) repaired. With end 0: repair all that are left, and
 * attach unreachable rows.
 */
static bool
repair_piece(RepairServer *server, uint32 first, uint32 end, TakeRepaired take, void *arg)
{
	ChannelRequest *request = repair_prepare(server, CHANNEL_REPAIR);
	uint32	   *slots = end > 0 ? channel_array(server->channel, (end - first) * sizeof(uint32),
											&request->slots_offset)
							: NULL;
	bool		ahead = server->ahead;
	int64		begun_us = monotonic_us();
	const char *text;
	EngineStatus status;

	for (uint32 slot = first; slot < end; slot++)
		slots[slot - first] = slot;
	request->count = end - first;
	request->ef_construction = server->format->ef_construction;
	request->defers = end > 0;
	server->ahead = true;
	status =
		channel_call_patiently(server->channel, begun_us + REPAIR_US, REPAIR_US, &text);
	server->pieces++;
	server->took_us = Max(monotonic_us() - begun_us, 1);
	if (status == ENGINE_OK)
		return take_all(server, take, arg);
	if (channel_link_refused(server->channel, status))
	{
		server->link_refused = true;
		server->ahead = ahead;
	}
	return repair_refuse(server, text);
}

bool
repair_server_run(RepairServer *server, uint32 slots, TakeRepaired take, void *arg)
{
	uint32		piece = FIRST_PIECE;

	for (uint32 first = 0, end; first < slots; first = end)
	{
		CHECK_FOR_INTERRUPTS();
		end = Min(slots - first, piece) + first;
		if (!repair_piece(server, first, end, take, arg))
			return repair_failed(server);
		FAULT_POINT("server-repaired-piece");
		piece = (uint32) Max(PIECE_MIN, Min((int64) piece * PIECE_MS * 1000 / server->took_us,
											  (int64) Min(PIECE_MAX, (int64) piece * 4)));
	}
	if (!repair_piece(server, 0, 0, take, arg))
		return repair_failed(server);
	channel_release(server->channel);
	server->channel = -1;
	if (server->refused == 0)
		return true;
	snprintf(server->reason, sizeof(server->reason), "%u rows of the server cannot be",
			 server->refused);
	return repair_failed(server);
}

/* Invalidate the mirror, if it still has the same generation. */
static void
forget_mirror(RepairServer *server)
{
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (mirror_is_generation(server->mirror.entry, server->mirror.generation))
		(void) mirror_invalidate(server->mirror.entry, MIRROR_WANTED);
	LWLockRelease(gpuann_mirror_lock());
	mirror_wake(server->mirror.entry);
}

void
repair_server_end(RepairServer *server)
{
	if (server->ahead && server->reason[0] != '\0')
		forget_mirror(server);
	else if (server->ahead)
		ereport(DEBUG1, (errmsg_internal("gpuann index \"%s\" was repaired on the server: " INT64_FORMAT
										 " rows came, in %u pieces",
										 RelationGetRelationName(server->index), server->came,
										 server->pieces)));
	server->ahead = false;
}

void
repair_server_abandon(int code, Datum arg)
{
	RepairServer *server = (RepairServer *) DatumGetPointer(arg);

	if (server->channel >= 0)
		channel_release(server->channel);
	server->channel = -1;
	if (server->ahead)
		forget_mirror(server);
	server->ahead = false;
}
