/*
 * client.h
 *		The backend's side of the server: find an index's mirror, ask it, update
 *		its counters.
 */
#ifndef GPUANN_CLIENT_H
#define GPUANN_CLIENT_H

#include "page/pages.h"
#include "server/protocol.h"

#include "datatype/timestamp.h"

/*
 * An index's entry in the mirror table; entry < 0: none (no shared area,
 * temporary table, table full).
 */
typedef struct MirrorRef
{
	int			entry;
	uint32		generation;		/* of the mirror asked */
	uint32		identity;		/* of the entry, which changes with its index; counters belong to it
								 */
} MirrorRef;

typedef struct ServerQuery
{
	const void *vector;			/* dims elements of the index's type */
	uint32		vector_bytes;
	SearchMethod method;
	uint32		k;				/* above PAYLOAD_RESULTS a channel is used */
	uint32		ef;
	uint32		probes;			/* METHOD_IVFPQ: lists read, and */
	uint32		rerank;			/* rows measured exactly, as EngineQuery says */
	SearchBound beyond;
	SetName		set;			/* METHOD_EXACT: only rows of this set; all zero: all rows */
	const FilterProgram *program;	/* only rows that it may let pass; NULL: all. It fits, by
									 * client_takes_program() */
} ServerQuery;

typedef struct ServerAnswer
{
	SearchResult *results;		/* palloc'd, validated: ordered by (distance, slot), slots below the
								 * index's, no slot twice */
	uint32		count;
	uint64		position;		/* pending position covered */
	uint32		batch;
	uint32		passing;		/* rows of the mirror that the query's program may let pass, also
								 * dead ones */
	SearchCounters counters;
} ServerAnswer;

/*
 * Find the entry of an index, or create one in state wanted, for which a mirror
 * worker is started. Never waits for the server. Sets *why if the server must
 * not be asked.
 */
extern MirrorRef client_mirror(Relation index, const MetaPage *meta, FallbackReason *why);

/*
 * Whether the server would answer a scan of an index now. For the planner:
 * creates no entry, and requests no mirror.
 */
extern bool client_would_answer(Relation index);

/* Whether the server's engine is the one on a GPU. */
extern bool client_engine_is_cuda(void);

/*
 * Find or create the entry of an index, and request its mirror, even if it was
 * refused or quarantined before; entry -1: impossible.
 */
extern MirrorRef client_want(Relation index, const MetaPage *meta);

/* Drop the index's mirror; false if there is none and none is being loaded. */
extern bool client_evict(Relation index);

/* Whether a program is short enough to go with a query. */
static inline bool
client_takes_program(const FilterProgram *program)
{
	return program_bytes(program) <= PROGRAM_BYTES;
}

/*
 * The change sequence up to which the mirror has the changes of node pages now;
 * 0: unknown.
 */
extern uint64 client_changes(MirrorRef mirror);

/*
 * Ask the server. Any result but FALLBACK_NONE means that there is no answer,
 * and the caller takes the page path. Raises errors only on cancel and
 * shutdown.
 */
extern FallbackReason client_search(MirrorRef mirror, const ServerQuery *query,
									ServerAnswer *answer);

/*
 * Ask the same query for many vectors, which are consecutive, through a
 * channel; all are answered, or none. client_batch_room() returns how many fit.
 * Answers are palloc'd.
 */
extern FallbackReason client_search_batch(MirrorRef mirror, const ServerQuery *query,
										  const void *vectors, uint32 count, ServerAnswer *answers);
/* The same, with a mirror for each vector. */
extern FallbackReason client_search_several(const MirrorRef *mirrors, const ServerQuery *query,
											const void *vectors, uint32 count,
											ServerAnswer *answers);
extern uint32 client_batch_room(const ServerQuery *query);

/* ---- row_set.c ---- */

/*
 * Have the server keep a set of rows: the slots that `next` gives, ascending
 * and below `slots`, `count` in all. It counts until it is released, also where
 * sending it has raised an error.
 */
extern FallbackReason client_set_send(MirrorRef mirror, uint32 slots, uint64 count, NextSlots next,
									  void *state, SetName *set);

/*
 * Release a set, if it was not before. Raises no error, and waits for no
 * process.
 */
extern void client_set_release(SetName *set);

/* ---- client.c, for row_set.c ---- */

/* Whether the server can be asked now; sets its epoch. */
extern FallbackReason client_may_ask(MirrorRef mirror, uint32 *epoch);

/*
 * Why an operation of a channel has failed; NONE: the server, of that epoch,
 * has answered so.
 */
extern FallbackReason client_channel_failure(int channel, uint32 epoch);

/*
 * Wake the index's mirror worker after a change of its pages. Cheap; does
 * nothing without a shared area.
 */
extern void client_note_change(Relation index);

/* Whether a mirror worker serves this index now. */
extern bool client_worker_serves(Relation index);

/*
 * Whether that worker has the engine link this index, so that no other process
 * has to; false while the engine refuses to.
 */
extern bool client_worker_links(Relation index);

/*
 * Ask that worker to link the pending list up to a position. True: it has
 * accepted, and will not yield the linker lock to waiting processes until it
 * has finished, used up its memory, or failed.
 */
extern bool client_ask_to_link(Relation index, uint64 position);

/* Counts of one finished scan, to be added to the index's counters. */
typedef struct ScanTally
{
	bool		server;			/* the first answer came from the server */
	bool		timed;
	uint64		first_us;		/* if timed: until the first row, or until there was none */
	FallbackReason why;
	uint32		proposed;
	uint32		dropped;
	uint32		pending;
	uint32		continuations;
} ScanTally;

extern void client_count_scan(MirrorRef mirror, const ScanTally *tally);

/* ---- mirror_feed.c ---- */

/*
 * Load the mirror of an index that this transaction has just built, from its
 * pages, if the index is to be mirrored and there is room. A failure of the
 * server is not an error: then the first scan requests the mirror, as for any
 * index. `begun` is when the build began; progress is reported in rows done.
 */
extern void mirror_feed(Relation index, TimestampTz begun, void (*progress) (int64 done));

/* ---- fallback.c ---- */

/*
 * Report a fallback: to the user by gpuann.fallback (nothing, a notice, or an
 * error), to the log at most once a minute for each reason. The detail, the
 * engine's message, is used by the next report.
 */
extern void fallback_report(Relation index, FallbackReason why);
extern void fallback_detail(const char *text);
extern const char *fallback_reason_name(FallbackReason why);

#endif							/* GPUANN_CLIENT_H */
