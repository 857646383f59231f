/*
 * worker.h
 *		The parts of a mirror worker: worker.c schedules, mirror_load.c loads,
 *		mirror_catchup.c follows the pages, mirror_link.c links; worker_link.c
 *		links without a GPU; slice.c calls the server and reads pages for all of
 *		them.
 *
 * A worker works in slices: it opens the index in a transaction, works for at
 * most SLICE_US, and ends the transaction. What remains to be done is recorded
 * in the mirror's progress, which is published at the end of the slice so that
 * another worker can take over.
 */
#ifndef GPUANN_WORKER_H
#define GPUANN_WORKER_H

#include "link/link.h"
#include "lists/lists.h"
#include "client/mirror_table.h"
#include "mirror/node_checksums.h"
#include "page/columns.h"
#include "page/read_ahead.h"

#define SLICE_US	20000
#define MIN_OTHER_WORK_US 2000	/* a slice spends at least this on other work even if new rows wait;
								 * sending these takes half a millisecond */

/* How a slice ended. */
typedef enum SliceEnding
{
	SLICE_IDLE = 0,				/* nothing left to do now */
	SLICE_MORE,					/* time is up */
	SLICE_LATER,				/* the index is locked by another process: retry later */
	SLICE_GONE,					/* the index was dropped, or is another relation now */
	SLICE_UNWANTED,				/* the index is not to be mirrored by its option, or has another
								 * file */
	SLICE_RELOAD,				/* the mirror cannot be brought up to date, load it again */
	SLICE_REFUSED,				/* refused by the engine, see reason */
	SLICE_LOST					/* the server died or has another mirror; the launcher reports it */
} SliceEnding;

/* One slice of work on one mirror. */
typedef struct MirrorSlice
{
	int			entry;
	uint32		generation;
	uint32		identity;
	uint32		epoch;			/* of the server, when the slice began */
	MirrorKey	key;
	MirrorTrack *track;
	MirrorProgress *progress;	/* this process's copy */
	int			channel;
	int			spare;			/* load: another channel, or -1 */
	bool		helps;			/* load: this process is not the mirror's owner */
	int64		call_us;		/* time limit of a channel call; 0: as long as a worker may keep an
								 * index locked */
	Relation	index;
	const IndexFormat *format;
	const ListFormat *lists;	/* of an index being built, whose metapage does not tell yet; NULL:
								 * that does */
	const ColumnTable *columns;	/* the same */
	BlockNumber blocks;			/* length of the file, when the slice began */
	BufferAccessStrategy strategy;
	NodeChecksums *sums;			/* checksums of what the mirror has, or NULL */
	ReadAhead  *ahead;			/* read-ahead of a load, else NULL */
	int64		until_us;
	bool		no_gpu;			/* link only, there are no mirrors */
	bool		primary;		/* not in recovery */
	bool		may_link;
	bool		host_rows;		/* load: vectors may be in host memory */
	uint64		least_bytes;	/* minimum size of the mirror: vectors, columns, graph and
								 * versions of its rows */
	bool		no_memory;		/* SLICE_REFUSED: evicting others may help ... */
	bool		over_quota;		/* ... but only others of this database */
	char		reason[160];	/* SLICE_REFUSED */
} MirrorSlice;

/*
 * When to link: rewriting graph pages for few rows costs more WAL than scanning
 * these rows exactly costs time. So link at 5 % of the rows (at least 1000), or
 * at LINK_MIN_WAITING if none have arrived for LINK_WAITING_MS.
 */
#define LINK_MIN_ENTRIES	1000
#define LINK_ROWS_PER_ENTRY	20
#define LINK_MIN_WAITING	100
#define LINK_WAITING_MS		30000
#define LINK_SLICE_MS		200		/* over pages: no batch begins after this time */

/*
 * Number of pending list entries at which an index with this many rows is
 * linked.
 */
static inline uint64
link_threshold(uint64 rows)
{
	return Max(LINK_MIN_ENTRIES, rows / LINK_ROWS_PER_ENTRY);
}

static inline bool
slice_time_is_up(const MirrorSlice *slice)
{
	return monotonic_us() >= slice->until_us;
}

/*
 * The same for work that new rows need not wait for: if rows have arrived, end
 * the slice so that the next one can send them.
 */
static inline bool
slice_should_yield(const MirrorSlice *slice)
{
	int64		left_us = slice->until_us - monotonic_us();

	return left_us <= 0 ||
		   (left_us <= SLICE_US - MIN_OTHER_WORK_US &&
			atomic_load(&mirror_area(slice->entry)->changed) != 0);
}

/* Prepare the slice's channel for an operation on its mirror. */
static inline ChannelRequest *
slice_prepare(const MirrorSlice *slice, ChannelOp op)
{
	return channel_prepare(slice->channel, op, (uint32) slice->entry, slice->generation);
}

/* Bytes of a row in a channel: vector, columns, version, whether it is dead. */
static inline Size
channel_row_bytes(const IndexFormat *format)
{
	return format->vector_bytes + format->column_bytes + sizeof(uint32) + 1;
}

/* Room in a channel's data for arrays of rows, which are aligned. */
#define CHANNEL_ROWS_BYTES	(CHANNEL_DATA_BYTES - 5 * AREA_ALIGN)

/*
 * Bytes of vectors, columns, graph rows and versions, which is the minimum size
 * of a mirror.
 */
static inline uint64
mirror_least_bytes(const IndexFormat *format, uint32 rows)
{
	uint32		columns = Max(format->column_bytes, FILTER_RECORD_VALUES) - FILTER_RECORD_VALUES;

	return (uint64) rows *
		(format->vector_bytes + columns + (format->degree + 1) * sizeof(uint32));
}

/* mirror_lists.c: centroids and codebook of an index with lists */

/* The lists of a slice's index. */
extern void lists_format(const MirrorSlice *slice, ListFormat *lists);

/* Set the lists of a mirror's specification. */
extern void lists_spec(const MirrorSlice *slice, ListSpec *spec);

/* Record that the mirror has its centroids and codebook by training. */
extern void lists_note_sent(const MirrorSlice *slice);

/* Whether the mirror has all centroids and the codebook. */
extern bool lists_sent(const MirrorSlice *slice);

/* Send the next part of them. */
extern SliceEnding lists_send(MirrorSlice *slice);

/* mirror_progress.c: this process's copy of the progress of mirrors */

/*
 * This process's copy of a mirror's progress. NULL if it has none, or of
 * another generation.
 */
extern const MirrorProgress *progress_known(int entry);

/*
 * Copy the published progress, unless the copy is of this generation. The
 * caller holds the mirror lock.
 */
extern void progress_adopt(int entry);

/*
 * Begin a slice of a worker: sets generation, identity, key and progress for
 * slice->entry. Returns false if the entry is not this worker's.
 */
extern bool progress_begin_slice(MirrorSlice *slice, int worker);

/* Reset the progress, for the generation that the slice has now. */
extern void progress_begin(MirrorSlice *slice);

/* Publish the progress. Returns false if the mirror has another generation. */
extern bool progress_publish(int entry);

/*
 * Record that slots up to rows, and the list up to a position (0: unchanged),
 * are about to be sent; answers may refer to them from now on. Returns false if
 * the mirror has another generation; then nothing may be sent.
 */
extern bool slice_note_sent(const MirrorSlice *slice, uint32 rows, uint64 position);

/* Record that the mirror has the page changes up to this change sequence. */
extern void slice_note_changes(const MirrorSlice *slice, uint64 change_seq);

/* worker.c: decides what is next */

extern PGDLLEXPORT void gpuann_worker_main(Datum arg);

/* slice.c */

/* Connect this background worker to a database. */
extern void worker_connect(Oid database);

/*
 * Open the index of slice->key, if it is not locked exclusively. Returns
 * SLICE_IDLE if it is open.
 */
extern SliceEnding slice_open(MirrorSlice *slice);

/*
 * Whether an ERROR is a cancel or a recovery conflict, which are not the
 * mirror's fault.
 */
extern bool slice_was_cancelled(const ErrorData *error);

/*
 * Translate the failure of a channel operation to the ending of the slice; sets
 * the reason.
 */
extern SliceEnding slice_failed(MirrorSlice *slice, EngineStatus status, const char *text);

/* Time limit for a channel call that begins now. */
extern int64 slice_call_deadline(const MirrorSlice *slice);

/* Post the slice's channel and wait. Returns SLICE_IDLE on success. */
extern SliceEnding slice_call(MirrorSlice *slice);

/* The same in two steps. */
extern SliceEnding slice_post(MirrorSlice *slice);
extern SliceEnding slice_await(MirrorSlice *slice);

/*
 * Execute an operation that also advances the mirror's position, unless that is
 * NO_POSITION. Often there is one new row only, and each operation costs
 * context switches.
 */
#define NO_POSITION	PG_UINT64_MAX
extern SliceEnding slice_call_with_position(MirrorSlice *slice, ChannelRequest *request,
											uint64 position);

/*
 * Read a page of the slice's index, share-locked; with read-ahead it must be
 * the next one. InvalidBuffer if the page was never written.
 */
extern Buffer slice_read_page(const MirrorSlice *slice, BlockNumber block, PageKind kind);

/* mirror_load.c */

/*
 * Start a load: the mirror gets a new generation. Returns false if the server
 * has just died.
 */
extern bool load_claim(MirrorSlice *slice);

/* Create an empty mirror with capacity for this many rows. */
extern SliceEnding load_create(MirrorSlice *slice, uint32 rows);
extern SliceEnding load_begin(MirrorSlice *slice);
extern SliceEnding load_step(MirrorSlice *slice);

/*
 * Read and send parts until none is left to take (SLICE_IDLE), or the slice
 * ends. A part whose turn has not come stays taken.
 */
extern SliceEnding load_parts(MirrorSlice *slice);

/* Send the seeds, unless the mirror has the same. */
extern SliceEnding load_seeds(MirrorSlice *slice, const MetaPage *meta);

/*
 * Number of rows that fit into a channel, from slot `first` on, within its
 * superblock and before `end`.
 */
extern uint32 rows_in_channel(const IndexFormat *format, uint32 first, uint32 end);

/* load_share.c: what the readers of a load share */

/* A load begins with the rows of progress->load_slots. */
extern void load_share_begin(MirrorSlice *slice);

/*
 * Take the next part, progress->part, unless this process has one; count 0:
 * there is none. As all functions of the share, updates phase, next_slot and
 * rows of the progress, and returns how the slice ends if the load has failed
 * or the mirror has another generation.
 */
extern SliceEnding load_share_take(MirrorSlice *slice);

/*
 * Wait until the mirror has all slots before the part taken, or all slots of
 * the phase. SLICE_MORE: not in this slice.
 */
extern SliceEnding load_share_await_turn(MirrorSlice *slice);
extern SliceEnding load_share_await_all(MirrorSlice *slice);

/* Record that this many more slots of the phase have been sent. */
extern SliceEnding load_share_sent(MirrorSlice *slice, uint32 count);

/* All rows are sent; start the phase of graph rows. */
extern SliceEnding load_share_begin_graph(MirrorSlice *slice);

/* Fail the load: the owner's next slice has this ending too. */
extern void load_share_fail(const MirrorSlice *slice, SliceEnding ending);

/*
 * Wait, without a transaction, until there is a part to take. Returns false if
 * there will be none.
 */
extern bool load_share_await_work(MirrorSlice *slice);

/* load_reader.c: processes that help to load a large mirror */

/* Start helpers. Called by the mirror's owner after the load has begun. */
extern void load_readers_start(const MirrorSlice *slice);

extern PGDLLEXPORT void gpuann_reader_main(Datum arg);

/* mirror_feed.c: the mirror of an index being built, filled by its builder */

/*
 * Whether an index being built may have a mirror, as far as known without
 * reading it.
 */
extern bool feed_allowed(Relation index);

/*
 * Begin a mirror for the file of slice->index, with this nonce: create its
 * entry and claim a channel, for which it waits a little. Returns false if that
 * fails. The caller must release the channel. If the transaction does not
 * commit, the entry is removed.
 */
extern bool feed_begin(MirrorSlice *slice, uint64 nonce);

/*
 * Make the mirror ready; its rows and graph must be those of the complete
 * pages. Returns false if the mirror was lost. Waits for the server as long as
 * the build has taken (lasted_ms), plus SERVER_WAIT_MS.
 */
extern bool feed_end(MirrorSlice *slice, int64 lasted_ms, void (*progress) (int64 done));

/* Remove the mirror's entry. */
extern void feed_forget(MirrorSlice *slice);

/* mirror_evict.c */

/* Whether the quota allows this mirror; sets the reason if not. */
extern bool mirror_within_quota(MirrorSlice *slice);

/*
 * If this worker's database exceeds its quota, because mirrors grow, evict one,
 * even if it is in use.
 */
extern void mirror_enforce_quota(void);

/*
 * Evict a mirror that is not in use. Returns false if there is none, or
 * evicting cannot help. Must be called outside of transactions.
 */
extern bool mirror_evict_idle(const MirrorSlice *slice);

/*
 * Allow vectors in host memory for the next load of a mirror for which no room
 * could be made. Returns false if that was allowed already, or there is no such
 * memory. Must be called outside of transactions.
 */
extern bool mirror_try_host_memory(const MirrorSlice *slice);

/*
 * The same for a builder that loads from pages: evict only the mirror of the
 * index's previous file, which nobody can read now. It is requested again in
 * case the new file is rolled back.
 */
extern bool mirror_evict_predecessor(const MirrorSlice *slice);

/* mirror_catchup.c: check the pages, and send what has changed. */
extern SliceEnding catchup_step(MirrorSlice *slice);

/* Nodes collected to be sent to the mirror (mirror_gather.c). */
typedef struct NodeGathering
{
	uint32		ngraph;
	uint32		ndead;
	uint32		enough;			/* send when either count reaches this; there is room for another
								 * superblock */
	uint32	   *graph_slots;
	uint32	   *graph_rows;
	uint32	   *dead_slots;
	uint32	   *dead_versions;
	bool		rows_posted;	/* rows posted before are not answered yet */
} NodeGathering;

/* Rows that cost about as much to send as an operation does by itself. */
extern uint32 gather_few(const IndexFormat *format);

/* Initialize, for `enough` rows and those of one superblock more. */
extern void gather_begin(NodeGathering *gathering, const IndexFormat *format, uint32 enough);

/* Whether there is room for another superblock. */
extern bool gather_has_room(const NodeGathering *gathering);

/*
 * Add the graph rows, and with dead_too the dead slots, of a superblock's node
 * pages that have changed since change_seq (0: all pages), of slots that the
 * mirror has, unless checksums say that they are unchanged.
 */
extern void gather_superblock(const MirrorSlice *slice, uint32 superblock, uint64 change_seq,
							  bool dead_too, NodeGathering *gathering);

/*
 * Compute the checksums of a superblock's nodes, on pages that have not changed
 * since change_seq.
 */
extern void gather_checksums(const MirrorSlice *slice, uint32 superblock, uint64 change_seq);

/* Put the collected graph rows into the slice's channel. */
extern SliceEnding gather_prepare(MirrorSlice *slice, const NodeGathering *gathering);

/*
 * Send what was collected, dead slots first, and start again. The graph rows
 * are posted without waiting.
 */
extern SliceEnding gather_post(MirrorSlice *slice, NodeGathering *gathering);

/* Send what was collected, and wait until it is done. */
extern SliceEnding gather_send(MirrorSlice *slice, NodeGathering *gathering);
extern void gather_end(NodeGathering *gathering);

/* worker_link.c: without a GPU */

/*
 * Whether an index's pending list has to be checked now; if not, *wait_ms is
 * set.
 */
extern bool pending_is_due(int entry, int64 now, int *wait_ms);

/* Link pending rows of the slice's index for a while, if there are enough. */
extern SliceEnding pending_link(MirrorSlice *slice);

/* mirror_link.c: one pass at a time, over many slices. */

/* Whether a pass is in progress for this mirror; -1: for any. */
extern bool link_active(int entry);

/* Whether the mirror of the pass in progress is gone. */
extern bool link_lost_mirror(void);

/*
 * Whether the pass has a job in flight; other jobs on the mirror would wait for
 * it.
 */
extern bool link_in_flight(int entry);

/* Whether the pass waits for more rows. */
extern bool link_waits_for_rows(int entry);

/*
 * Start a pass if it is worthwhile and no other process links. The mirror must
 * be current to meta and bounds.
 */
extern SliceEnding link_start_if_needed(MirrorSlice *slice, const MetaPage *meta,
										const PendingBounds *bounds);

/*
 * Wait for the piece in flight, at most most_ms. Returns false if there is
 * none.
 */
extern bool link_await(int most_ms);

/*
 * Fetch the results of the piece in flight; then send the next piece or write
 * the rows of the pass.
 */
extern SliceEnding link_fetch(MirrorSlice *slice);
extern SliceEnding link_continue(MirrorSlice *slice);

/*
 * Abandon the pass in any state. If the mirror has rows that the pages do not
 * have, it is loaded again.
 */
extern void link_abandon(void);

#endif							/* GPUANN_WORKER_H */
