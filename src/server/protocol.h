/*
 * protocol.h
 *		The shared area between PostgreSQL and gpuann-server: layout, states,
 *		transitions.
 *
 * The area is one memfd, allocated in full and sealed against resizing, mapped
 * by the postmaster (so by every backend, at one address) and by the server, to
 * which its descriptor is passed. Nobody keeps pointers in it, only offsets.
 * The server trusts nothing it reads here and PostgreSQL trusts nothing the
 * server writes: each side copies a field once, then validates its copy.
 *
 * Requests. One word per request slot says who owns the slot's payload; the
 * slot's backend moves it, and the server:
 *
 *		FREE ──backend──► POSTED ──server──► TAKEN ──server──► DONE ──backend──►
 *		FREE
 *		                    │                  │
 *		                    └─backend─► FREE   └─backend─► ABANDONED ──server or
 *		                        launcher──► FREE
 *
 *		state      whose payload  next       by whom   when
 *		FREE       the backend's POSTED backend the payload is complete; the
 *					generation advances
 *		POSTED     nobody writes TAKEN server it has seen the word FREE backend
 *		                          it leaves: cancel, timeout, exit FAILED
 *		                          launcher the server has died
 *		TAKEN      the server's DONE server the answer is in the payload
 *		                          ABANDONED backend it leaves FAILED launcher,
 *		                          or the next server, should the launcher have
 *		                          missed it
 *		DONE       the backend's FREE backend it has copied the answer, or
 *					leaves without it
 *		FAILED     the backend's  FREE       backend   it takes the page path
 *		ABANDONED  the server's FREE server the engine is done with the query
 *		                          vector FREE launcher, or the next server: the
 *		                          server has died
 *
 * The word also carries a generation that the backend advances with each post,
 * so a late answer cannot meet a new request. Every move but the post is a
 * compare and swap of state and generation, so of two who move a word one is
 * told that it was late, and looks again. All are sequentially consistent: a
 * move hands the payload over (what was written before it is read after it),
 * and the argument of "Waiting" needs a total order. A backend that finds its
 * slot ABANDONED takes the page path. When a server has died (and been reaped:
 * nothing writes any more) the launcher advances the epoch, makes the moves
 * above, and wakes the waiters. What was posted after that the next server
 * takes, or its backend, which finds the epoch moved, takes it back.
 *
 * Channels carry what is large: rows to load, linked rows to fetch, many
 * queries at once, answers of more than PAYLOAD_RESULTS. A client claims a
 * channel by its owner word (compare and swap of 0 by its pid), and then
 * follows the same states; only then does anybody but the server write its
 * state. Who leaves a channel that is FREE clears the owner word; who leaves it
 * TAKEN makes it ABANDONED and keeps its hands off: the server sets the owner
 * CHANNEL_DISOWNED, then the state FREE, then the owner 0, so whoever comes
 * after a server that died on the way knows that nobody holds the channel. The
 * server does so too for an owner that no longer lives.
 *
 * Whoever dies, at whatever step (steps.h names them, a test dies at each): a
 * request costs its backend the page path, a slot or channel comes free when
 * the server or its successor has looked, and nobody waits longer than
 * AREA_WAIT_MS without looking whom for.
 *
 * Waiting. The server sleeps on `doorbell`; who posts advances it and, if
 * `sleeping` is set, wakes it. A client sleeps on the word it waits for, at
 * most AREA_WAIT_MS at a time: a cancel, which does not end a futex wait, is
 * heeded so soon. Before it sleeps it says so in its payload (`asleep`),
 * whosever that is by then: the server wakes nobody else, for most clients find
 * their answers without (spin_wait.h).
 */
#ifndef GPUANN_PROTOCOL_H
#define GPUANN_PROTOCOL_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine.h"
#include "server/steps.h"

#define AREA_MAGIC			UINT64_C(0x316165726E617067)	/* "gpanrea1" */
#define PROTOCOL_VERSION	9

#define PAYLOAD_RESULTS		1024	/* answers that fit a payload */
#define PAYLOAD_VECTOR		64000	/* bytes: 16,000 floats; 64,000 bits need less */
#define AREA_MIRRORS		4096	/* indexes the server and the statistics know at once */
#define CHANNEL_DATA_BYTES		(UINT64_C(4) << 20)
#define AREA_WAIT_MS		50		/* longest single futex wait, so the longest that a cancel
									 * waits */
#define AREA_HEARTBEAT_MS	250		/* between two advances of the heartbeat, at most, while the
									 * server is not stopped */
#define AREA_ALIGN			64

_Static_assert(PAYLOAD_VECTOR >= ENGINE_MAX_DIMS * 4 && PAYLOAD_VECTOR >= ENGINE_MAX_BIT_DIMS / 8,
			   "every vector that an engine takes fits a payload");

/* ---- request words ---- */

typedef enum RequestState
{
	REQUEST_FREE = 0,			/* the payload is the backend's */
	REQUEST_POSTED = 1,			/* complete, not yet seen by the server */
	REQUEST_TAKEN = 2,			/* the server has copied it; its answer will be written */
	REQUEST_DONE = 3,			/* answered */
	REQUEST_FAILED = 4,			/* the server died with it */
	REQUEST_ABANDONED = 5		/* the backend left; the payload is the server's until it says
								 * FREE */
} RequestState;

#define REQUEST_STATE_BITS	3

static inline uint32_t
request_word(uint32_t generation, RequestState state)
{
	return (generation << REQUEST_STATE_BITS) | (uint32_t) state;
}

static inline RequestState
request_state(uint32_t word)
{
	return (RequestState) (word & ((1u << REQUEST_STATE_BITS) - 1));
}

static inline uint32_t
request_generation(uint32_t word)
{
	return word >> REQUEST_STATE_BITS;
}

/* The generation after one; they start again after the last. */
static inline uint32_t
request_next_generation(uint32_t word)
{
	return request_generation(request_word(request_generation(word) + 1, REQUEST_FREE));
}

/*
 * Move a word from one state to another within its generation; false if it was
 * not in that state.
 */
static inline bool
request_move(_Atomic uint32_t *word, uint32_t generation, RequestState from, RequestState to)
{
	uint32_t	expected = request_word(generation, from);

	return atomic_compare_exchange_strong(word, &expected, request_word(generation, to));
}

/* ---- futexes (shared between processes) ---- */

/*
 * Sleep while *word is value, at most timeout_ms. Returns early on signals and
 * spurious wake-ups.
 */
static inline void
area_futex_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms)
{
	struct timespec ts = {timeout_ms / 1000, (long) (timeout_ms % 1000) * 1000000L};

	(void) syscall(SYS_futex, (uint32_t *) word, FUTEX_WAIT, value, &ts, NULL, 0);
}

static inline void
area_futex_wake(_Atomic uint32_t *word, int count)
{
	(void) syscall(SYS_futex, (uint32_t *) word, FUTEX_WAKE, count, NULL, NULL, 0);
}

/* ---- mirrors ---- */

typedef enum MirrorState
{
	MIRROR_EMPTY = 0,			/* the entry is unused */
	MIRROR_WANTED = 1,			/* somebody asked for it; no worker has begun */
	MIRROR_LOADING = 2,
	MIRROR_READY = 3,			/* queries are answered */
	MIRROR_REFUSED = 4,			/* reason and text say why; retried after retry_at_ms */
	MIRROR_STATISTICS = 5		/* counters only: not to be mirrored (any more) */
} MirrorState;

/*
 * Why a scan (or a part of it) took the page path. The order is the order of
 * the columns of gpuann_stat_indexes().
 */
typedef enum FallbackReason
{
	FALLBACK_NONE = 0,
	FALLBACK_OFF,				/* gpuann.server = off, or mirror = off, or temporary table */
	FALLBACK_NO_SERVER,			/* no server runs, or it starts, or it cannot use an engine */
	FALLBACK_NOT_LOADED,		/* the mirror is not there yet */
	FALLBACK_REFUSED,			/* the mirror does not fit, or was refused otherwise */
	FALLBACK_BEHIND,			/* the pending list was trimmed past the mirror's position */
	FALLBACK_TIMEOUT,			/* no answer within gpuann.request_timeout */
	FALLBACK_SERVER_DIED,
	FALLBACK_ENGINE_ERROR,
	FALLBACK_INVALID_ANSWER,	/* the answer did not pass validation */
	FALLBACK_SLOT_BUSY,			/* this backend's slot still belongs to an abandoned request */
	FALLBACK_TOO_LARGE,			/* does not fit payload and channels */
	FALLBACK_NO_GPU,			/* gpuann.engine = auto, and there is no GPU: nothing has failed */
	FALLBACK_NOT_PRELOADED,		/* not in shared_preload_libraries: nowhere to count it */
	FALLBACK_REASONS
} FallbackReason;

/* The reasons before this one have counters, and a column of pg_stat_gpuann. */
#define FALLBACK_COUNTED	FALLBACK_NOT_PRELOADED

/* Which index an entry is of. */
typedef struct MirrorKey
{
	uint32_t	database;
	uint32_t	tablespace;
	uint32_t	relfile;
	uint32_t	index;			/* the index's oid, for who opens it; not part of the identity */
	uint64_t	nonce;			/* of the metapage */
} MirrorKey;

/*
 * Counters of one index. What each scan of each session adds to stands on one
 * cache line, which takes turns between all processors; what the server adds to
 * stands on another, or it would wait for its turn with each batch.
 */
typedef struct MirrorCounters
{
	/* backends' */
	_Atomic uint64_t scans;
	_Atomic uint64_t answers_server;
	_Atomic uint64_t answers_pages;
	_Atomic uint64_t proposed;	/* slots the server returned */
	_Atomic uint64_t dropped;	/* of them, dead or of another version in the pages */
	_Atomic uint64_t pending_searched;
	_Atomic uint64_t continuations;
	_Atomic uint64_t fallbacks[FALLBACK_COUNTED];
	_Atomic uint64_t evictions;	/* of its mirror, for others or on demand */
	_Atomic int64_t reset_at;	/* microseconds since 1970; 0: never */
	uint64_t	unused[2];

	/* the server's */
	_Atomic uint64_t batches;
	_Atomic uint64_t batched_queries;
	_Atomic uint64_t queue_us;
	_Atomic uint64_t engine_us;
} MirrorCounters;

_Static_assert(offsetof(MirrorCounters, batches) % AREA_ALIGN == 0,
			   "the server's counters begin on a line of their own");

/*
 * One entry of the mirror table. PostgreSQL's processes create, claim and empty
 * entries under an LWLock of theirs; the server only writes rows, position,
 * bytes and its counters, in entries whose generation it was given.
 */
typedef struct AreaMirror
{
	_Atomic uint32_t state;		/* MirrorState */
	_Atomic uint32_t generation;	/* advanced whenever the entry changes its index or its mirror
									 * is dropped */
	_Atomic uint32_t epoch;		/* of the server that holds it */
	_Atomic uint32_t changed;	/* set by inserters, vacuum and linkers: the pages are ahead */
	_Atomic int32_t worker;		/* pid of the mirror worker serving it, or 0 */
	_Atomic uint32_t wanted;	/* scans that asked for it since a worker last looked */
	MirrorKey	key;
	_Atomic int64_t last_used_ms;	/* CLOCK_MONOTONIC */
	_Atomic int64_t retry_at_ms;

	/*
	 * the server's: apart from what every scan reads, as it writes there with
	 * every batch
	 */
	/* pending position the mirror is current to */
	_Atomic uint64_t position __attribute__((aligned(AREA_ALIGN)));
	_Atomic uint64_t rows;
	_Atomic uint64_t bytes;
	_Atomic uint64_t host_bytes;	/* of vectors in host memory, beside these */
	_Atomic uint32_t in_engine; /* batches and channel operations that the server's engine has: whom
								 * a crash may be due to */
	char		reason[160];	/* MIRROR_REFUSED: why; written before state */
	MirrorCounters counters __attribute__((aligned(AREA_ALIGN)));
} AreaMirror;

/* ---- request payloads ---- */

/* What is asked of a mirror about one vector, or about each of many. */
typedef struct QueryRequest
{
	uint32_t	method;			/* SearchMethod */
	uint32_t	k;
	uint32_t	ef;
	uint32_t	vector_bytes;
	uint32_t	has_beyond;
	uint32_t	beyond_slot;
	double		beyond_distance;
} QueryRequest;

typedef struct RequestPayload
{
	/* written by the backend before POSTED */
	uint32_t	mirror;			/* entry of the mirror table */
	uint32_t	mirror_generation;
	QueryRequest query;			/* k: 1 .. PAYLOAD_RESULTS */
	int64_t		posted_us;		/* CLOCK_MONOTONIC */
	_Atomic uint32_t asleep;	/* set by the backend before it sleeps, whosever the payload is: it
								 * is to be woken */

	/* written by the server before DONE */
	uint32_t	status;			/* EngineStatus */
	uint32_t	count;			/* results */
	uint64_t	position;		/* pending position covered */
	uint32_t	rows;			/* published rows the search saw */
	uint32_t	batch;			/* queries in its batch */
	SearchCounters counters;
	char		error[128];

	SearchResult results[PAYLOAD_RESULTS] __attribute__((aligned(AREA_ALIGN)));
	unsigned char vector[PAYLOAD_VECTOR] __attribute__((aligned(AREA_ALIGN)));
} RequestPayload;

/* ---- channels ---- */

typedef enum ChannelOp
{
	CHANNEL_CREATE = 1, /* spec: an empty mirror for entry mirror, generation
								 * mirror_generation */
	CHANNEL_DROP,
	CHANNEL_APPEND,		/* as JOB_APPEND: versions, dead bitmap (when has_dead), vectors */
	CHANNEL_OVERWRITE,	/* slots, versions, vectors */
	CHANNEL_DEAD,		/* slots, versions */
	CHANNEL_GRAPH,		/* slots, rows */
	CHANNEL_SEEDS,		/* slots */
	CHANNEL_POSITION,	/* nothing but position */
	CHANNEL_LINK,		/* slots, or everything pending with count 0; answer: out_count
									 * rows changed, out_seeds seeds */
	CHANNEL_LINK_FETCH, /* rows of the LINK this channel did: out_count slots and rows from
						 * first_slot on in the order of the result; or, with has_seeds set,
						 * out_count seeds from first_slot on as slots. At most count, unless 0 */
	CHANNEL_LINK_FORGET,
	CHANNEL_SEARCH, /* count queries alike but for their vectors: a batch, or an answer larger than
					 * a payload; answer: what each has found, as ChannelFound, and its results, the
					 * next query's k after them. If one fails, all do */
	CHANNEL_INFO,	/* answer: info */
	CHANNEL_REPAIR	/* as JOB_REPAIR: slots, or all with count 0; answer, and what
									 * its fetches give, as CHANNEL_LINK's */
} ChannelOp;

/*
 * A channel's arrays stand in its data one after another, each aligned to
 * AREA_ALIGN, in the order: slots, versions, dead bitmap, rows or vectors
 * (requests); slots or what was found, rows or results (answers). The offsets
 * are written by who writes the arrays, and checked.
 */
typedef struct ChannelRequest
{
	uint32_t	op;				/* ChannelOp */
	uint32_t	mirror;
	uint32_t	mirror_generation;
	MirrorSpec	spec;
	uint32_t	count;
	uint32_t	first_slot;
	uint32_t	has_dead;
	uint32_t	has_seeds;
	uint32_t	has_position;
	uint32_t	ef_construction;
	uint64_t	position;
	uint64_t	slots_offset;
	uint64_t	versions_offset;
	uint64_t	dead_offset;
	uint64_t	body_offset;	/* vectors or rows; CHANNEL_SEARCH: vectors, one after another */
	QueryRequest query;			/* CHANNEL_SEARCH */
} ChannelRequest;

#define CHANNEL_DISOWNED	(-1)	/* owner of a channel that the server is about to free */

typedef struct AreaChannel
{
	_Atomic uint32_t state;		/* as a request word */
	_Atomic int32_t owner;		/* pid, 0, or CHANNEL_DISOWNED */
	_Atomic uint32_t cancel;	/* set by the client: end the job early */
	_Atomic uint32_t done;		/* progress of a job */
	_Atomic uint32_t total;

	ChannelRequest request;		/* written by the client */

	/* written by the server */
	uint32_t	status;			/* EngineStatus */
	uint32_t	out_count;
	uint32_t	out_seeds;
	uint64_t	out_slots_offset;	/* CHANNEL_SEARCH: out_count ChannelFound */
	uint64_t	out_offset;		/* rows or results */
	MirrorInfo	info;
	char		error[256];
} AreaChannel;

/* What one query of a CHANNEL_SEARCH has found. */
typedef struct ChannelFound
{
	uint32_t	count;			/* results */
	uint32_t	rows;			/* published rows the search saw */
	uint64_t	position;		/* pending position covered */
	SearchCounters counters;
} ChannelFound;

static inline uint64_t
area_align(uint64_t offset)
{
	return (offset + AREA_ALIGN - 1) & ~(uint64_t) (AREA_ALIGN - 1);
}

/* Bytes that what so many queries have found takes before their results. */
static inline uint64_t
channel_found_bytes(uint32_t queries)
{
	return area_align((uint64_t) queries * sizeof(ChannelFound));
}

/* ---- the header ---- */

typedef enum ServerState
{
	SERVER_ABSENT = 0,
	SERVER_STARTING = 1,
	SERVER_READY = 2,
	SERVER_FAILED = 3,			/* it runs, or ran, but has no engine: last_error says why */
	SERVER_NO_GPU = 4			/* none runs: auto found no usable GPU, last_error says why */
} ServerState;

typedef struct AreaHeader
{
	uint64_t	magic;
	uint32_t	protocol_version;
	uint32_t	slots;			/* request slots: one per backend */
	uint32_t	channels;
	uint32_t	mirrors;
	uint64_t	total_bytes;
	uint64_t	words_offset;	/* slots words, dense */
	uint64_t	payloads_offset;
	uint64_t	payload_stride;
	uint64_t	mirrors_offset;
	uint64_t	mirror_stride;
	uint64_t	channels_offset;
	uint64_t	channel_stride;
	uint64_t	channel_data_offset;
	uint64_t	channel_data_bytes;	/* per channel */

	/* the launcher's */
	/* advanced when a server has died */
	_Atomic uint32_t epoch __attribute__((aligned(AREA_ALIGN)));
	_Atomic uint32_t server_state;	/* ServerState; the server sets READY and FAILED */
	_Atomic int32_t server_pid;
	_Atomic uint32_t restarts;
	_Atomic int64_t started_at;	/* seconds since 1970 */
	_Atomic uint32_t launcher_request;	/* advanced by who wants the launcher to look (mirror
										 * wanted) */

	/* the server's */
	_Atomic uint32_t heartbeat; /* advanced by its watch thread: who does not was stopped */
	_Atomic uint32_t doorbell __attribute__((aligned(AREA_ALIGN)));
	_Atomic uint32_t sleeping;
	/* apart from the doorbell, which every client writes */
	_Atomic uint64_t requests __attribute__((aligned(AREA_ALIGN)));
	_Atomic uint64_t batches;
	_Atomic uint64_t memory_limit;
	_Atomic uint64_t memory_used;
	_Atomic uint64_t memory_context;
	_Atomic uint64_t host_rows_limit;	/* of host memory for vectors that do not fit; 0: the engine
										 * keeps none there */
	_Atomic uint64_t host_rows_used;
	char		engine[16];		/* written before SERVER_READY */
	char		device[96];
	char		last_error[256];	/* written by server or launcher */
} AreaHeader;

/*
 * Offsets and strides for so many slots and channels, magic and version;
 * total_bytes is what to allocate.
 */
static inline void
area_layout(AreaHeader *header, uint32_t slots, uint32_t channels)
{
	header->magic = AREA_MAGIC;
	header->protocol_version = PROTOCOL_VERSION;
	header->slots = slots;
	header->channels = channels;
	header->mirrors = AREA_MIRRORS;
	header->words_offset = area_align(sizeof(AreaHeader));
	header->mirrors_offset = area_align(header->words_offset + (uint64_t) slots * sizeof(uint32_t));
	header->mirror_stride = area_align(sizeof(AreaMirror));
	header->channels_offset = header->mirrors_offset + header->mirror_stride * AREA_MIRRORS;
	header->channel_stride = area_align(sizeof(AreaChannel));
	header->payloads_offset = header->channels_offset + header->channel_stride * channels;
	header->payload_stride = area_align(sizeof(RequestPayload));
	header->channel_data_offset = header->payloads_offset + header->payload_stride * slots;
	header->channel_data_bytes = CHANNEL_DATA_BYTES;
	header->total_bytes = header->channel_data_offset + CHANNEL_DATA_BYTES * channels;
}

static inline _Atomic uint32_t *
area_word(AreaHeader *area, uint32_t slot)
{
	return (_Atomic uint32_t *) ((char *) area + area->words_offset) + slot;
}

static inline RequestPayload *
area_payload(AreaHeader *area, uint32_t slot)
{
	return (RequestPayload *) ((char *) area + area->payloads_offset + area->payload_stride * slot);
}

static inline AreaMirror *
area_mirror(AreaHeader *area, uint32_t entry)
{
	return (AreaMirror *) ((char *) area + area->mirrors_offset + area->mirror_stride * entry);
}

static inline AreaChannel *
area_channel(AreaHeader *area, uint32_t channel)
{
	return (AreaChannel *) ((char *) area + area->channels_offset + area->channel_stride * channel);
}

static inline unsigned char *
area_channel_data(AreaHeader *area, uint32_t channel)
{
	return (unsigned char *) area + area->channel_data_offset + area->channel_data_bytes * channel;
}

/* Tell the server that something was posted. */
static inline void
area_ring(AreaHeader *area)
{
	atomic_fetch_add(&area->doorbell, 1);
	PROTOCOL_STEP(RING);
	if (atomic_load(&area->sleeping))
		area_futex_wake(&area->doorbell, 1);
}

/* ---- the server's command line ---- */

/*
 * gpuann-server --area-fd N --death-fd N --lock PATH --engine auto|cuda|cpu
 * --engine-library PATH --memory-limit BYTES --host-rows-limit BYTES
 *
 * The area's descriptor; the read end of a pipe whose other end the launcher
 * holds (end of file: exit); a lock file in the data directory, locked before
 * any device is touched; the CUDA engine's shared object; 0 is the engine's
 * default limit. For tests, --hang-ms N: end after a call into the engine that
 * takes so long. It logs to standard error, one line each, beginning with "LOG:
 * ", "WARNING: " or "FATAL: ", which the launcher relays.
 */
#define SERVER_PROGRAM		"gpuann-server"
#define SERVER_CUDA_LIBRARY "gpuann_cuda.so"
#define SERVER_LOCK_FILE	"gpuann-server.lock"
#define SERVER_EXIT_FAILED	1		/* the engine broke: start again */
#define SERVER_EXIT_REFUSED	2		/* wrong command line, or an area of another version; do not
									 * retry soon */
#define SERVER_EXIT_NO_ENGINE 3		/* the engine asked for cannot run here; do not retry soon */
#define SERVER_EXIT_NO_GPU	4		/* auto: no GPU is usable; the launcher says so */

#endif							/* GPUANN_PROTOCOL_H */
