/*
 * worker.h
 *		A mirror worker's parts: worker.c decides what is next, mirror_load.c
 *		loads, mirror_catchup.c follows the pages, mirror_link.c links;
 *		worker_link.c links where no GPU is usable.
 *
 * A worker works in slices: open the index in a transaction, go on for at most
 * SLICE_US, end the transaction. What a slice leaves to do stands in the
 * mirror's progress, which is published when the slice ends, so another worker
 * can take over.
 */
#ifndef GPUANN_WORKER_H
#define GPUANN_WORKER_H

#include "link/link.h"
#include "client/mirror_table.h"
#include "mirror/node_checksums.h"
#include "page/read_ahead.h"

#define SLICE_US	20000
#define NEWS_US		2000		/* of a slice that goes to other work although rows have come: to
								 * tell these costs half a millisecond */

/* How a slice ended. */
typedef enum SliceEnding
{
	SLICE_IDLE = 0,				/* nothing is left to do now */
	SLICE_MORE,					/* time was up */
	SLICE_LATER,				/* the index is locked by somebody: in a while */
	SLICE_GONE,					/* the index is gone, or is another relation now */
	SLICE_UNWANTED,				/* its option says that it is not to be mirrored, or it has another
								 * file */
	SLICE_RELOAD,				/* the mirror cannot be followed any more */
	SLICE_REFUSED,				/* the engine said no: reason */
	SLICE_LOST					/* the server is gone or has another mirror; the launcher will
								 * say */
} SliceEnding;

/* One slice of work on one mirror. */
typedef struct MirrorSlice
{
	int			entry;
	uint32		generation;
	uint32		identity;
	uint32		epoch;			/* of the server, at the start */
	MirrorKey	key;
	MirrorTrack *track;
	MirrorProgress *progress;	/* this process's own */
	int			channel;
	int64		call_us;		/* a call of it may take so long; 0: as long as a worker may keep an
								 * index locked */
	Relation	index;
	const IndexFormat *format;
	BlockNumber blocks;			/* of the file, at the start of the slice */
	BufferAccessStrategy strategy;
	NodeChecksums   *sums;			/* what the mirror is known to have; NULL: nothing is */
	ReadAhead  *ahead;			/* while a load reads pages in their order; else NULL */
	int64		until_us;
	bool		no_gpu;			/* there are no mirrors: only link */
	bool		primary;		/* not in recovery */
	bool		may_link;
	bool		host_rows;		/* of a load: vectors may be in host memory */
	uint64		least_bytes;	/* that the mirror takes: vectors, graph and versions of its rows */
	bool		no_memory;		/* SLICE_REFUSED: others might make way */
	bool		over_quota;		/* and only others of this database */
	char		reason[160];	/* SLICE_REFUSED */
} MirrorSlice;

/*
 * When linking is worth it: rewriting graph pages for few rows costs more WAL
 * than searching these rows exactly costs time. So at 5 % of the rows (1000 at
 * least), or at LINK_LEAST_WAITING when no more have come for LINK_WAITING_MS.
 */
#define LINK_LEAST_ENTRIES	1000
#define LINK_ROWS_PER_ENTRY	20
#define LINK_LEAST_WAITING	100
#define LINK_WAITING_MS		30000
#define LINK_SLICE_MS		200		/* over pages: others wait for the lock no longer */

/* List entries that are enough to link, for so many rows. */
static inline uint64
link_crowd(uint64 rows)
{
	return Max(LINK_LEAST_ENTRIES, rows / LINK_ROWS_PER_ENTRY);
}

static inline bool
slice_over(const MirrorSlice *slice)
{
	return monotonic_us() >= slice->until_us;
}

/*
 * The same for work that rows which have come since the slice began need not
 * wait for: the next slice begins with them.
 */
static inline bool
slice_over_for_news(const MirrorSlice *slice)
{
	int64		left_us = slice->until_us - monotonic_us();

	return left_us <= 0 ||
		   (left_us <= SLICE_US - NEWS_US && atomic_load(&mirror_area(slice->entry)->changed) != 0);
}

/* Prepare the slice's channel for an operation on its mirror. */
static inline ChannelRequest *
slice_prepare(const MirrorSlice *slice, ChannelOp op)
{
	return channel_prepare(slice->channel, op, (uint32) slice->entry, slice->generation);
}

/*
 * Bytes of vectors, graph rows and versions of so many rows: what their mirror
 * takes at least.
 */
static inline uint64
mirror_least_bytes(const IndexFormat *format, uint32 rows)
{
	return (uint64) rows * (format->vector_bytes + (format->degree + 1) * sizeof(uint32));
}

/* mirror_progress.c: this process's own copy of how far a mirror has come */

/*
 * What this process knows of a mirror's progress; NULL: the mirror has become
 * another since, or it was never asked.
 */
extern const MirrorProgress *progress_known(int entry);

/*
 * Take over what another has published, unless the copy is of this mirror
 * already. The mirror lock is held.
 */
extern void progress_adopt(int entry);

/*
 * Begin a slice of a worker: entry is set, generation, identity, key and
 * progress follow. False: the entry is not this worker's.
 */
extern bool progress_take(MirrorSlice *slice, int worker);

/*
 * The slice's mirror begins anew, with the generation that the slice has now.
 */
extern void progress_begin(MirrorSlice *slice);

/* Let others see it; false if the mirror has become another. */
extern bool progress_publish(int entry);

/*
 * Slots up to rows, and the list up to a position (0: nothing new), are about
 * to be sent: answers may say so from now on. False: the mirror has become
 * another, and nothing is to be sent.
 */
extern bool slice_note_sent(const MirrorSlice *slice, uint32 rows, uint64 position);

/* The mirror has the changes of pages up to this number. */
extern void slice_note_changes(const MirrorSlice *slice, uint64 change_seq);

/* worker.c */

extern PGDLLEXPORT void gpuann_worker_main(Datum arg);

/* What a channel's failure means for the slice; sets the reason. */
extern SliceEnding slice_failed(MirrorSlice *slice, EngineStatus status, const char *text);

/* Until when a call of the slice's channel that begins now is waited for. */
extern int64 slice_call_deadline(const MirrorSlice *slice);

/* Post the slice's channel and wait. SLICE_IDLE: done. */
extern SliceEnding slice_call(MirrorSlice *slice);

/* The same in two steps, with something else to do between them. */
extern SliceEnding slice_post(MirrorSlice *slice);
extern SliceEnding slice_await(MirrorSlice *slice);

/*
 * Read a page of the slice's index (reading ahead: the next one);
 * InvalidBuffer: nothing was ever written there. Locked for share.
 */
extern Buffer slice_read_page(const MirrorSlice *slice, BlockNumber block, PageKind kind);

/* mirror_load.c */

/*
 * A load begins: the mirror gets a generation of its own. False if the server
 * has just died.
 */
extern bool load_claim(MirrorSlice *slice);

/* An empty mirror, made for so many rows. */
extern SliceEnding load_create(MirrorSlice *slice, uint32 rows);
extern SliceEnding load_begin(MirrorSlice *slice);
extern SliceEnding load_step(MirrorSlice *slice);

/* Send the seeds, unless the mirror has these. */
extern SliceEnding load_seeds(MirrorSlice *slice, const MetaPage *meta);

/*
 * The rows that one channel holds, from a slot on, within its superblock and
 * before an end; none if the end is not beyond the slot.
 */
extern uint32 rows_in_channel(const IndexFormat *format, uint32 first, uint32 end);

/*
 * mirror_feed.c: the mirror of an index that is being built, filled by its
 * builder from the start
 */

/*
 * Whether an index that is being built may have a mirror, as far as can be said
 * without looking at it.
 */
extern bool feed_allowed(Relation index);

/*
 * Begin a mirror for the file of slice->index, which gets this nonce: an entry
 * of the table and a channel, for which others are waited for a little. False:
 * there is none to be had. The channel is the caller's to give back; the entry
 * is forgotten if the transaction does not commit.
 */
extern bool feed_begin(MirrorSlice *slice, uint64 nonce);

/*
 * Its rows and its graph are those of the pages, which are complete: make it
 * ready. False: it is not to be had any more. The build has lasted so long: the
 * server is waited for as long, and a little.
 */
extern bool feed_end(MirrorSlice *slice, int64 lasted_ms, void (*progress) (int64 done));

/* Forget it. */
extern void feed_forget(MirrorSlice *slice);

/* mirror_evict.c */

/* Whether the database may have this mirror too; sets the reason if not. */
extern bool mirror_within_quota(MirrorSlice *slice);

/*
 * Mirrors grow: if this worker's database is over its quota by now, give one
 * up, whether it is in use or not.
 */
extern void mirror_keep_quota(void);

/*
 * Take the memory of a mirror that is not in use; false if there is none, or if
 * that cannot suffice. Outside of transactions.
 */
extern bool mirror_evict_idle(const MirrorSlice *slice);

/*
 * A mirror for which no room could be made may have vectors in host memory when
 * it is loaded next, if there is such memory; false if it could already, or if
 * there is none. Outside of transactions.
 */
extern bool mirror_try_host_memory(const MirrorSlice *slice);

/*
 * The same for a builder who loads from pages, and takes nothing from others:
 * the mirror of the index's file before this one, which nobody can read now,
 * makes way. It is wanted again, should the new file not stay.
 */
extern bool mirror_evict_predecessor(const MirrorSlice *slice);

/* mirror_catchup.c: one look at the pages, and what follows from it. */
extern SliceEnding catchup_step(MirrorSlice *slice);

/* Tell the mirror how far it is, after everything before that was applied. */
extern SliceEnding catchup_position(MirrorSlice *slice, uint64 position);

/* Rows of node pages on their way to the mirror (mirror_gather.c). */
typedef struct NodeGathering
{
	uint32		ngraph;
	uint32		ndead;
	uint32		enough;			/* of either to send; there is room for a superblock more */
	uint32	   *graph_slots;
	uint32	   *graph_rows;
	uint32	   *dead_slots;
	uint32	   *dead_versions;
	bool		on_its_way;		/* rows that were gathered before these: not answered yet */
} NodeGathering;

/* Begin with nothing. */
extern void gather_begin(NodeGathering *gathering, const IndexFormat *format);

/* Whether there is room for one more superblock. */
extern bool gather_has_room(const NodeGathering *gathering);

/*
 * Add the graph rows, and with dead_too the slots that hold no row, of a
 * superblock's node pages that have changed since change_seq (0: of all), as
 * far as the mirror knows the slots, and is not known to have them so.
 */
extern void gather_superblock(const MirrorSlice *slice, uint32 superblock, uint64 change_seq,
							  bool dead_too, NodeGathering *gathering);

/*
 * Learn what the mirror has of a superblock: the nodes of all pages that have
 * not changed since change_seq.
 */
extern void gather_learn(const MirrorSlice *slice, uint32 superblock, uint64 change_seq);

/*
 * Send what was gathered, deaths first, and begin anew: the rows are on their
 * way then, and others can be gathered.
 */
extern SliceEnding gather_post(MirrorSlice *slice, NodeGathering *gathering);

/* Send it, and wait until all has come there. */
extern SliceEnding gather_send(MirrorSlice *slice, NodeGathering *gathering);
extern void gather_end(NodeGathering *gathering);

/* worker_link.c: without a GPU */

/*
 * Whether an index's pending list has to be looked at; if not, *wait_ms says
 * when.
 */
extern bool pending_is_due(int entry, int64 now, int *wait_ms);

/* Link what is pending in the slice's index, for a while, if it is worth it. */
extern SliceEnding pending_link(MirrorSlice *slice);

/* mirror_link.c: one pass at a time, over many slices. */

/* Whether a pass is under way for this mirror; -1: for any. */
extern bool link_active(int entry);

/* Whether a pass is under way whose mirror has gone. */
extern bool link_outlived(void);

/*
 * Whether its engine job is in flight: other jobs on the mirror would wait for
 * it.
 */
extern bool link_in_flight(int entry);

/* Whether its pass waits for rows to come. */
extern bool link_rests(int entry);

/*
 * Begin a pass if it is worth it and nobody else links. The mirror is current
 * to these.
 */
extern void link_consider(MirrorSlice *slice, const MetaPage *meta, const PendingBounds *bounds);

/* Wait for the piece in flight, at most so long; false: there is none. */
extern bool link_await(int most_ms);

/*
 * Take over what the engine has linked; then send the next piece or write the
 * pass.
 */
extern SliceEnding link_take(MirrorSlice *slice);
extern SliceEnding link_go_on(MirrorSlice *slice);

/*
 * Give the pass up, wherever it is. If the mirror then has rows that the pages
 * have not, it is to be loaded again.
 */
extern void link_abandon(void);

#endif							/* GPUANN_WORKER_H */
