/*
 * client.h
 *		The backend's side of the server: find an index's mirror, ask it, count
 *		what happened.
 */
#ifndef GPUANN_CLIENT_H
#define GPUANN_CLIENT_H

#include "page/pages.h"
#include "server/protocol.h"

#include "datatype/timestamp.h"

/*
 * An index's entry in the mirror table. entry < 0: there is none (no area,
 * temporary table, table full).
 */
typedef struct MirrorRef
{
	int			entry;
	uint32		generation;		/* of the mirror asked */
	uint32		identity;		/* of the entry's index: what the counters belong to */
} MirrorRef;

typedef struct ServerQuery
{
	const void *vector;			/* dims elements of the index's type */
	uint32		vector_bytes;
	SearchMethod method;
	uint32		k;				/* above PAYLOAD_RESULTS it goes through a channel */
	uint32		ef;
	uint32		probes;			/* METHOD_IVFPQ: lists read, and */
	uint32		rerank;			/* rows measured exactly, as EngineQuery says */
	SearchBound beyond;
} ServerQuery;

typedef struct ServerAnswer
{
	SearchResult *results;		/* palloc'd, validated: ordered by (distance, slot), slots below the
								 * index's, no slot twice */
	uint32		count;
	uint64		position;		/* pending position covered */
	uint32		batch;
	SearchCounters counters;
} ServerAnswer;

/*
 * The entry of an index, made if there is none (then the index is wanted and a
 * worker will come). Never blocks on the server. Sets *why when the server is
 * not to be asked.
 */
extern MirrorRef client_mirror(Relation index, const MetaPage *meta, FallbackReason *why);

/*
 * Whether the server would answer a scan of an index now. Wants nothing, makes
 * nothing: for the planner.
 */
extern bool client_would_answer(Relation index);

/* Whether the server's engine is the one on a GPU. */
extern bool client_engine_is_cuda(void);

/*
 * The entry of an index that is to be mirrored now, whatever spoke against it
 * before; entry -1: it cannot be.
 */
extern MirrorRef client_want(Relation index, const MetaPage *meta);

/* Give up the index's mirror; false if there is none and none is on its way. */
extern bool client_evict(Relation index);

/*
 * Changes of node pages up to this were in the mirror when this was called; 0:
 * it is not known.
 */
extern uint64 client_changes(MirrorRef mirror);

/*
 * Ask the server. Anything but FALLBACK_NONE: no answer, take the page path.
 * Errors out only on cancel and shutdown.
 */
extern FallbackReason client_search(MirrorRef mirror, const ServerQuery *query,
									ServerAnswer *answer);

/*
 * Ask the same of many vectors, which stand one after another, through a
 * channel: all are answered, or none. client_batch_room says how many fit.
 * Memory is palloc'd.
 */
extern FallbackReason client_search_batch(MirrorRef mirror, const ServerQuery *query,
										  const void *vectors, uint32 count, ServerAnswer *answers);
/* The same, each vector of a mirror of its own. */
extern FallbackReason client_search_several(const MirrorRef *mirrors, const ServerQuery *query,
											const void *vectors, uint32 count,
											ServerAnswer *answers);
extern uint32 client_batch_room(const ServerQuery *query);

/*
 * Tell whoever mirrors this index that its pages are ahead. Cheap; a no-op
 * without an area.
 */
extern void client_note_change(Relation index);

/* Whether a mirror worker serves this index now. */
extern bool client_worker_serves(Relation index);

/*
 * Whether that worker has the engine link this index (then nobody else need
 * link): not while the engine refuses to.
 */
extern bool client_worker_links(Relation index);

/*
 * Ask that worker to link the list up to a position. True: it has taken that
 * on, and does not yield the linker lock to who waits for it before it is done,
 * has no more memory for it, or gives up.
 */
extern bool client_ask_to_link(Relation index, uint64 position);

/* What one finished scan adds to the index's counters. */
typedef struct ScanTally
{
	bool		server;			/* the first answer came from the server */
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
 * pages, if it is to have one and there is room. Never fails for the server's
 * sake: then the first scan has the mirror loaded, as any other. The build
 * began then; progress is told in rows done.
 */
extern void mirror_feed(Relation index, TimestampTz begun, void (*progress) (int64 done));

/* ---- fallback.c ---- */

/*
 * Tell about a fallback: the user as gpuann.fallback says (nothing, a notice,
 * or an error), the log at most once a minute for each reason. The detail, what
 * the engine said, belongs to the next one.
 */
extern void fallback_report(Relation index, FallbackReason why);
extern void fallback_detail(const char *text);
extern const char *fallback_reason_name(FallbackReason why);

#endif							/* GPUANN_CLIENT_H */
