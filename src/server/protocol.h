/*
 * protocol.h
 *		The shared area between PostgreSQL and gpuann-server: layout, states,
 *		transitions.
 *
 * The area is one memfd, allocated in full and sealed against resizing. It is
 * mapped by the postmaster (so by every backend, at the same address) and by
 * the server, which gets its descriptor. It contains offsets, no pointers.
 * Neither side trusts the other: each copies a field once, then validates its
 * copy.
 *
 * Requests. One word per request slot says who owns the slot's payload:
 *
 *		FREE --backend--> POSTED --server--> TAKEN --server--> DONE
 *		DONE --backend--> FREE
 *		POSTED --backend--> FREE
 *		TAKEN --backend--> ABANDONED --server or launcher--> FREE
 *
 *		state      owner of    next       moved by  when
 *		           payload
 *		FREE       backend     POSTED     backend   the payload is complete;
 *		                                            generation advances
 *		POSTED     none        TAKEN      server    it has seen the word
 *		                       FREE       backend   cancel, timeout, exit
 *		                       FAILED     launcher  the server has died
 *		TAKEN      server      DONE       server    the answer is written
 *		                       ABANDONED  backend   cancel, timeout, exit
 *		                       FAILED     launcher  the server has died (or
 *		                                            the next server, at start)
 *		DONE       backend     FREE       backend   it has copied the answer,
 *		                                            or leaves without it
 *		FAILED     backend     FREE       backend   it takes the page path
 *		ABANDONED  server      FREE       server    the engine no longer reads
 *		                                            the vector
 *		                       FREE       launcher  the server has died (or
 *		                                            the next server, at start)
 *
 * The word also contains a generation, which the backend advances with each
 * post, so that a late answer cannot match a new request. Every move but the
 * post is a compare-and-swap of state and generation: if two processes move a
 * word, one of them fails and reads it again. All are sequentially consistent:
 * a move transfers the payload (release and acquire), and the argument in
 * "Waiting" needs a total order. A backend that finds its slot ABANDONED takes
 * the page path. When a server has died, and been reaped so that it cannot
 * write any more, the launcher advances the epoch, makes the moves above, and
 * wakes the waiters. A request posted after that is taken by the next server,
 * or withdrawn by its backend, which sees that the epoch has advanced.
 *
 * Bulk channels carry large data: rows to load, linked rows to fetch, many
 * queries at once, answers of more than PAYLOAD_RESULTS. A client claims a
 * channel by its owner word (compare-and-swap of 0 to its pid), and then uses
 * the same states; only the owner and the server write the state. A client
 * that leaves a FREE channel clears the owner word. One that leaves a TAKEN
 * channel sets ABANDONED and does not touch the owner word: the server sets
 * owner to CHANNEL_DISOWNED, then state to FREE, then owner to 0, so that if
 * it dies in between its successor knows that the channel has no owner. The
 * server does the same for owners that no longer exist.
 *
 * A process may die at any step (steps.h names them; a test kills at each). A
 * request then costs its backend the page path, the slot or channel is freed
 * when the server or its successor has swept, and no wait lasts longer than
 * AREA_WAIT_MS without a check whether the other side is alive.
 *
 * Waiting. The server sleeps on `doorbell`; a client that posts advances it
 * and, if `sleeping` is set, wakes the server. A client sleeps on the word it
 * waits for, at most AREA_WAIT_MS at a time, because a query cancel does not
 * end a futex wait. Before it sleeps it sets `asleep` in its payload, even
 * while the server owns that: the server wakes only clients that did, since
 * most find their answers without sleeping (spin_wait.h).
 */
#ifndef GPUANN_PROTOCOL_H
#define GPUANN_PROTOCOL_H

#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine/clock.h"
#include "engine/engine.h"
#include "engine/filter_program.h"
#include "server/steps.h"

#define AREA_MAGIC			UINT64_C(0x316165726E617067)	/* "gpanrea1" */
#define PROTOCOL_VERSION	19

#define PAYLOAD_RESULTS		1024	/* results that fit into a payload */
#define PAYLOAD_VECTOR		64000	/* bytes: 16,000 floats; 64,000 bits need less */
#define PROGRAM_BYTES		8192	/* of a query's program: it compares with 500 values */
#define AREA_MIRRORS		4096	/* indexes that the server and the statistics can track at
									 * once */
#define CHANNEL_DATA_BYTES		(UINT64_C(4) << 20)
#define REQUEST_SETS		8		/* sets of rows that a session may have at a time */
#define SET_MEMORY_BYTES	(UINT64_C(64) << 20)	/* bitmaps of all sets in the server */
#define SET_PART_SLOTS		65536	/* slots of a part of a set that is a list of them */
#define AREA_LIST_COUNTS	(1u << 19)	/* lists whose probes are counted, of all mirrors */
#define AREA_WAIT_MS		50		/* longest single futex wait, so the longest delay of a
									 * cancel */
#define AREA_HEARTBEAT_MS	250		/* maximum interval of the heartbeat, unless the server is
									 * stopped */
#define AREA_ALIGN			64

_Static_assert(PAYLOAD_VECTOR >= ENGINE_MAX_DIMS * 4 && PAYLOAD_VECTOR >= ENGINE_MAX_BIT_DIMS / 8,
			   "every vector that an engine takes fits a payload");

/* ---- request words ---- */

typedef enum RequestState
{
	REQUEST_FREE = 0,			/* the backend owns the payload */
	REQUEST_POSTED = 1,			/* complete, not yet seen by the server */
	REQUEST_TAKEN = 2,			/* the server has copied it; its answer will be written */
	REQUEST_DONE = 3,			/* answered */
	REQUEST_FAILED = 4,			/* the server died before answering */
	REQUEST_ABANDONED = 5		/* the backend left; the server owns the payload until FREE */
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

/* The next generation; wraps around. */
static inline uint32_t
request_next_generation(uint32_t word)
{
	return request_generation(request_word(request_generation(word) + 1, REQUEST_FREE));
}

/*
 * Move a word from one state to another within its generation. Returns false if
 * it was in another state or generation.
 */
static inline bool
request_move(_Atomic uint32_t *word, uint32_t generation, RequestState from, RequestState to)
{
	uint32_t	expected = request_word(generation, from);

	return atomic_compare_exchange_strong(word, &expected, request_word(generation, to));
}

/* ---- futexes (shared between processes) ---- */

/*
 * Sleep while *word equals value, at most timeout_ms. May return early: signals
 * and spurious wake-ups.
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
	MIRROR_WANTED = 1,			/* requested; no worker has started */
	MIRROR_LOADING = 2,
	MIRROR_READY = 3,			/* queries are answered */
	MIRROR_REFUSED = 4,			/* reason has the text; retried after retry_at_ms */
	MIRROR_STATISTICS = 5		/* counters only; the index is not (or no longer) to be mirrored */
} MirrorState;

/*
 * Why a scan, or a part of it, took the page path. In the order of the columns
 * of gpuann_stat_indexes().
 */
typedef enum FallbackReason
{
	FALLBACK_NONE = 0,
	FALLBACK_OFF,				/* gpuann.server = off, or mirror = off, or temporary table */
	FALLBACK_NO_SERVER,			/* no server, or it is starting, or has no usable engine */
	FALLBACK_NOT_LOADED,		/* the mirror is not loaded yet */
	FALLBACK_REFUSED,			/* the mirror does not fit, or was refused for another reason */
	FALLBACK_BEHIND,			/* the pending list was trimmed past the mirror's position */
	FALLBACK_TIMEOUT,			/* no answer within gpuann.request_timeout */
	FALLBACK_SERVER_DIED,
	FALLBACK_ENGINE_ERROR,
	FALLBACK_INVALID_ANSWER,	/* the answer did not pass validation */
	FALLBACK_SLOT_BUSY,			/* this backend's slot still belongs to an abandoned request */
	FALLBACK_TOO_LARGE,			/* does not fit payload or channel */
	FALLBACK_NO_GPU,			/* gpuann.engine = auto, and there is no GPU; not a failure */
	FALLBACK_NOT_PRELOADED,		/* not in shared_preload_libraries, so there is no counter */
	FALLBACK_REASONS
} FallbackReason;

/* Reasons below this have a counter, and a column in pg_stat_gpuann. */
#define FALLBACK_COUNTED	FALLBACK_NOT_PRELOADED

/*
 * Counters of one index. Those updated by every scan share cache lines that
 * move between all processors; the server's are on another line, so that its
 * updates do not wait for them.
 */
typedef struct MirrorCounters
{
	/* updated by backends */
	_Atomic uint64_t scans;
	_Atomic uint64_t answers_server;
	_Atomic uint64_t answers_pages;
	_Atomic uint64_t proposed;	/* results that the server returned */
	_Atomic uint64_t dropped;	/* of these, dead or of another version in the pages */
	_Atomic uint64_t pending_searched;
	_Atomic uint64_t continuations;
	_Atomic uint64_t fallbacks[FALLBACK_COUNTED];
	_Atomic uint64_t evictions;	/* of its mirror, to make room or on request */
	_Atomic int64_t reset_at;	/* microseconds since 1970; 0: never */
	uint64_t	unused[2];

	/* updated by the server */
	_Atomic uint64_t batches;
	_Atomic uint64_t batched_queries;
	_Atomic uint64_t queue_us;
	_Atomic uint64_t engine_us;
} MirrorCounters;

_Static_assert(offsetof(MirrorCounters, batches) % AREA_ALIGN == 0,
			   "the server's counters begin on a line of their own");

/*
 * One entry of the mirror table. PostgreSQL's processes create, claim and clear
 * entries under an LWLock. The server writes only rows, position, bytes and its
 * counters, in entries whose generation was passed to it.
 */
typedef struct AreaMirror
{
	_Atomic uint32_t state;		/* MirrorState */
	_Atomic uint32_t generation;	/* advanced when the entry gets another index or its mirror is
									 * dropped */
	_Atomic uint32_t epoch;		/* of the server that holds the mirror */
	_Atomic uint32_t changed;	/* set by inserters, VACUUM and linkers: the pages are ahead of the
								 * mirror */
	_Atomic int32_t worker;		/* pid of the mirror worker serving it, or 0 */
	_Atomic uint32_t wanted;	/* scans that asked for it since a worker last looked */
	_Atomic int64_t last_used_ms;	/* CLOCK_MONOTONIC */
	_Atomic int64_t retry_at_ms;

	/*
	 * Written by the server with every batch, so not on the cache lines that
	 * every scan reads.
	 */
	/* pending position that the mirror is current to */
	_Atomic uint64_t position __attribute__((aligned(AREA_ALIGN)));
	_Atomic uint64_t rows;
	_Atomic uint64_t bytes;
	_Atomic uint64_t host_bytes;	/* vectors in host memory, not included in bytes */
	_Atomic uint32_t in_engine; /* batches and channel operations in the server's engine; tells
								 * which index a crash may be due to */

	/*
	 * How often its lists are probed: where the area's counts of them are, and
	 * as of when these are aged.
	 */
	_Atomic uint64_t list_counts;	/* a ListCountsRange; written by who makes the mirror */
	_Atomic int64_t lists_counted_at;	/* microseconds since 1970 */
	char		reason[160];	/* MIRROR_REFUSED: why; written before state */
	MirrorCounters counters __attribute__((aligned(AREA_ALIGN)));
} AreaMirror;

/* ---- how often lists are probed ---- */

/*
 * The area's count of a list is the number of its probes, halved with each day
 * since: an estimate of what is probed next. The server adds to a
 * mirror's range what its engine has counted since it last did. A range is of
 * an index, and outlives its mirrors; it has another index's counts once the
 * entry's word says otherwise.
 */
#define LIST_COUNTS_HALF_LIFE_US	(INT64_C(86400) * 1000000)

typedef struct ListCountsRange
{
	uint32_t	first;
	uint32_t	lists;			/* 0: it has none */
} ListCountsRange;

static inline uint64_t
list_counts_word(ListCountsRange range)
{
	return (uint64_t) range.first << 32 | range.lists;
}

/* The range of a word; one that is not in the area is none. */
static inline ListCountsRange
list_counts_range(uint64_t word)
{
	ListCountsRange range = {(uint32_t) (word >> 32), (uint32_t) word};

	if (range.first >= AREA_LIST_COUNTS || range.lists > AREA_LIST_COUNTS - range.first)
		range.lists = 0;
	return range;
}

/* By what counts as of a time are multiplied at a later one. */
static inline double
list_counts_aging(int64_t then_us, int64_t now_us)
{
	return then_us > 0 && now_us > then_us
		? exp2(-(double) (now_us - then_us) / (double) LIST_COUNTS_HALF_LIFE_US) : 1;
}

/* ---- sets of rows ---- */

/*
 * Rows of one mirror, named by their slots, to which an exact search is
 * restricted: what a filter evaluated elsewhere let pass. The server keeps a
 * set as a bitmap, sent in parts (CHANNEL_SET), and any number of queries names
 * it.
 *
 * A session has REQUEST_SETS places, each a word of its payload. It writes a
 * set's id there before it sends the set, and 0, or another id, when it needs
 * the set no more: that is all that a release takes, so it can be done while an
 * error is handled, and by the exit of the session. The server answers with a
 * set only while the word has its id, frees it within a second after, and at
 * once when it needs the memory. A set ends with its mirror and with the server
 * too: queries get ENGINE_NOT_FOUND, and the session takes the page path.
 *
 * An id names one set for ever, so a place that is used again cannot give
 * another set's answers: it is the microsecond at which the session chose it
 * (CLOCK_MONOTONIC), or one more than its last.
 *
 * A slot may have got another row since the set was made, and the mirror may
 * lack rows of the set: as for any answer, versions tell the one, and the
 * answer's position the other.
 */
typedef struct SetName
{
	uint64_t	id;				/* 0: none, all rows */
	uint32_t	place;			/* request slot * REQUEST_SETS + which of its words */
	uint32_t	unused;
} SetName;

/* ---- programs ---- */

/*
 * A condition on the columns of a mirror's rows (engine/filter.h) goes with the
 * query that it restricts: its values, then its steps, at most PROGRAM_BYTES.
 * A longer one is evaluated by the session, which sends a set of rows. The
 * server copies it and checks the copy, by the mirror's columns, before it is
 * run.
 */
_Static_assert(sizeof(FilterStep) == 12 && sizeof(FilterValue) == 16,
			   "steps and values follow each other without padding");

/* ---- request payloads ---- */

/* A query for one vector, or for each of many. */
typedef struct QueryRequest
{
	uint32_t	method;			/* SearchMethod */
	uint32_t	k;
	uint32_t	ef;
	uint32_t	probes;			/* METHOD_IVFPQ: as EngineQuery */
	uint32_t	rerank;
	uint32_t	vector_bytes;
	uint32_t	has_beyond;
	uint32_t	beyond_slot;
	double		beyond_distance;
	SetName		set;			/* METHOD_EXACT: only rows of this set */
	uint32_t	program_steps;	/* only rows that this program lets pass; 0: there is none */
	uint32_t	program_values;
} QueryRequest;

typedef struct RequestPayload
{
	/* written by the backend before POSTED */
	uint32_t	mirror;			/* entry of the mirror table */
	uint32_t	mirror_generation;
	QueryRequest query;			/* k: 1 .. PAYLOAD_RESULTS */
	int64_t		posted_us;		/* CLOCK_MONOTONIC */
	_Atomic uint32_t asleep;	/* set by the backend before it sleeps, even while the server owns
								 * the payload: wake it */

	/* written by the server before DONE */
	uint32_t	status;			/* EngineStatus */
	uint32_t	count;			/* results */
	uint64_t	position;		/* pending position covered */
	uint32_t	rows;			/* published rows that the search saw */
	uint32_t	batch;			/* queries in its batch */
	uint32_t	passing;		/* rows that the program may let pass, as EngineQuery says */
	SearchCounters counters;
	char		error[128];

	/* written by the backend at any time: the sets of rows that it has */
	_Atomic uint64_t sets[REQUEST_SETS] __attribute__((aligned(AREA_ALIGN)));

	SearchResult results[PAYLOAD_RESULTS] __attribute__((aligned(AREA_ALIGN)));
	unsigned char vector[PAYLOAD_VECTOR] __attribute__((aligned(AREA_ALIGN)));
	unsigned char program[PROGRAM_BYTES] __attribute__((aligned(AREA_ALIGN)));
} RequestPayload;

/* ---- channels ---- */

typedef enum ChannelOp
{
	CHANNEL_CREATE = 1, /* spec: create an empty mirror for this entry and mirror_generation */
	CHANNEL_DROP,
	CHANNEL_APPEND,		/* as JOB_APPEND: versions, dead bitmap (when has_dead), vectors, and
						 * records, if the mirror has columns */
	CHANNEL_OVERWRITE,	/* slots, versions, vectors, records */
	CHANNEL_DEAD,		/* slots, versions */
	CHANNEL_GRAPH,		/* slots, rows */
	CHANNEL_SEEDS,		/* slots */
	CHANNEL_POSITION,	/* nothing but position */
	CHANNEL_LINK,		/* slots, or everything pending with count 0; answer: out_count
						 * rows changed, and of lists out_distance */
	CHANNEL_LINK_FETCH, /* of the LINK, REPAIR or TRAIN this channel did: out_count elements of
						 * arrays from element first_slot on, in the order of the result. At
						 * most count, unless 0 */
	CHANNEL_LINK_FORGET,
	CHANNEL_SEARCH, /* count queries alike but for their vectors, and with
					 * has_mirrors for their mirrors (slots: entries, versions:
					 * generations): a batch, or an answer larger than a payload; answer: what each
					 * has found, as ChannelFound, and its results, the next query's k after them.
					 * If one fails, all do */
	CHANNEL_REPAIR,	/* as JOB_REPAIR: slots, or all with count 0; answer, and what
									 * its fetches give, as CHANNEL_LINK's */
	CHANNEL_CODEBOOK,	/* as JOB_CODEBOOK: count floats from float first_slot on, as body */
	CHANNEL_COUNT_LISTS,	/* bring the mirror's range of counts of lists up to date */
	CHANNEL_TRAIN,		/* as JOB_TRAIN, of a sample of at most count rows; answer: out_count
						 * floats */
	CHANNEL_SET			/* a part of the set query.set, of slots below set_slots, which its
						 * first part makes: as arrays says. ENGINE_NO_MEMORY: sets have no
						 * room */
} ChannelOp;

/* What a part of a CHANNEL_SET brings. */
typedef enum SetForm
{
	SET_SLOTS = 0,				/* count slots, at most SET_PART_SLOTS */
	SET_BITMAP = 1				/* count bits as body, the first of them slot first_slot, a
								 * multiple of 64 */
} SetForm;

/* What a CHANNEL_LINK_FETCH brings. */
typedef enum FetchArrays
{
	FETCH_ROWS = 0,				/* slots and graph rows, or numbers of lists */
	FETCH_SEEDS = 1,				/* seeds, as slots */
	FETCH_CODES = 2,				/* of lists: slots, numbers and codes */
	FETCH_FLOATS = 3				/* of a TRAIN: floats, in place of slots */
} FetchArrays;

/*
 * A channel's arrays follow each other in its data, each aligned to AREA_ALIGN,
 * in this order: slots, versions, dead bitmap, rows or vectors, records of
 * columns or a program (requests); slots or ChannelFound, rows or results,
 * codes (answers). Offsets are written with the arrays, and checked by the
 * reader.
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
	uint32_t	arrays;			/* CHANNEL_LINK_FETCH: FetchArrays; CHANNEL_SET: SetForm */
	uint32_t	has_position;
	uint32_t	defers;			/* CHANNEL_REPAIR */
	uint32_t	has_mirrors;	/* CHANNEL_SEARCH: instead of mirror and mirror_generation */
	uint32_t	ef_construction;
	uint32_t	set_slots;		/* CHANNEL_SET */
	uint64_t	position;
	uint64_t	slots_offset;
	uint64_t	versions_offset;
	uint64_t	dead_offset;
	uint64_t	body_offset;	/* vectors or rows; CHANNEL_SEARCH: vectors without padding */
	uint64_t	columns_offset;	/* records of columns; CHANNEL_SEARCH: the query's program */
	QueryRequest query;			/* CHANNEL_SEARCH; CHANNEL_SET: its set */
} ChannelRequest;

#define CHANNEL_DISOWNED	(-1)	/* owner word of a channel that the server is freeing */

typedef struct AreaChannel
{
	_Atomic uint32_t state;		/* as a request word */
	_Atomic int32_t owner;		/* pid, 0, or CHANNEL_DISOWNED */
	_Atomic uint32_t cancel;	/* set by the client: end the job early */
	_Atomic uint32_t done;		/* progress of a job */

	ChannelRequest request;		/* written by the client */

	/* written by the server */
	uint32_t	status;			/* EngineStatus */
	uint32_t	out_count;
	uint64_t	out_slots_offset;	/* CHANNEL_SEARCH: out_count ChannelFound */
	uint64_t	out_offset;		/* rows or results */
	uint64_t	out_codes_offset;	/* codes */
	double		out_distance;	/* CHANNEL_LINK of lists: the sum of the rows' squared distances
								 * from their centroids */
	char		error[256];
} AreaChannel;

/* Result header of one query of a CHANNEL_SEARCH. */
typedef struct ChannelFound
{
	uint32_t	count;			/* results */
	uint32_t	rows;			/* published rows that the search saw */
	uint64_t	position;		/* pending position covered */
	uint32_t	passing;		/* as in RequestPayload */
	uint32_t	unused;
	SearchCounters counters;
} ChannelFound;

static inline uint64_t
area_align(uint64_t offset)
{
	return (offset + AREA_ALIGN - 1) & ~(uint64_t) (AREA_ALIGN - 1);
}

/* Bytes of the ChannelFound array before the results. */
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
	SERVER_FAILED = 3,			/* running, or exited, without a usable engine; see last_error */
	SERVER_NO_GPU = 4			/* not running: auto found no usable GPU; see last_error */
} ServerState;

typedef struct AreaHeader
{
	uint64_t	magic;
	uint32_t	protocol_version;
	uint32_t	slots;			/* request slots: one per backend */
	uint32_t	channels;
	uint32_t	mirrors;
	uint64_t	total_bytes;
	uint64_t	words_offset;	/* array of `slots` words */
	uint64_t	payloads_offset;
	uint64_t	payload_stride;
	uint64_t	mirrors_offset;
	uint64_t	mirror_stride;
	uint64_t	list_counts_offset; /* array of AREA_LIST_COUNTS counts */
	uint64_t	channels_offset;
	uint64_t	channel_stride;
	uint64_t	channel_data_offset;
	uint64_t	channel_data_bytes;	/* per channel */

	/* written by the launcher */
	/* advanced when a server has died */
	_Atomic uint32_t epoch __attribute__((aligned(AREA_ALIGN)));
	_Atomic uint32_t server_state;	/* ServerState; the server sets READY and FAILED */
	_Atomic int32_t server_pid;
	_Atomic uint32_t restarts;
	_Atomic int64_t started_at;	/* seconds since 1970 */

	/* written by the server */
	_Atomic uint32_t heartbeat; /* advanced by the watch thread, unless the process is stopped */
	_Atomic uint32_t asking;	/* slots that had a request in the last second; read in each wait of
								 * a client, so not beside what requests change */
	_Atomic uint32_t doorbell __attribute__((aligned(AREA_ALIGN)));
	_Atomic uint32_t sleeping;
	/* not on the doorbell's cache line, which every client writes */
	_Atomic uint64_t requests __attribute__((aligned(AREA_ALIGN)));
	_Atomic uint64_t batches;
	_Atomic uint64_t memory_limit;
	_Atomic uint64_t memory_used;
	_Atomic uint64_t memory_context;
	_Atomic uint64_t host_rows_limit;	/* limit of host memory for vectors that do not fit into the
										 * device; 0: none are kept there */
	_Atomic uint64_t host_rows_used;
	char		engine[16];		/* written before SERVER_READY */
	char		device[96];
	char		last_error[256];	/* written by server or launcher */
} AreaHeader;

/*
 * Compute magic, version, offsets and strides for a number of slots and
 * channels. total_bytes is the size to allocate.
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
	header->list_counts_offset = header->mirrors_offset + header->mirror_stride * AREA_MIRRORS;
	header->channels_offset =
		area_align(header->list_counts_offset + AREA_LIST_COUNTS * sizeof(double));
	header->channel_stride = area_align(sizeof(AreaChannel));
	header->payloads_offset = header->channels_offset + header->channel_stride * channels;
	header->payload_stride = area_align(sizeof(RequestPayload));
	header->channel_data_offset = header->payloads_offset + header->payload_stride * slots;
	header->channel_data_bytes = CHANNEL_DATA_BYTES;
	header->total_bytes = header->channel_data_offset + CHANNEL_DATA_BYTES * channels;
}

/* Signal the server that something was posted. */
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
 * area-fd: the area's memfd. death-fd: read end of a pipe whose write end the
 * launcher holds; the server exits at end of file. lock: a file in the data
 * directory, locked before any device is used. engine-library: the CUDA
 * engine's shared object. A limit of 0 means the engine's default. For tests,
 * --hang-ms N: exit after a call into the engine that takes this long.
 *
 * The server logs to stderr, one line per message, prefixed with "LOG: ",
 * "WARNING: " or "FATAL: "; the launcher relays the lines.
 */
#define SERVER_PROGRAM		"gpuann-server"
#define SERVER_CUDA_LIBRARY "gpuann_cuda.so"
#define SERVER_LOCK_FILE	"gpuann-server.lock"
#define SERVER_EXIT_FAILED	1		/* the engine failed: restart */
#define SERVER_EXIT_REFUSED	2		/* invalid command line, or an area of another version; do not
									 * retry soon */
#define SERVER_EXIT_NO_ENGINE 3		/* the requested engine cannot run here; do not retry soon */
#define SERVER_EXIT_NO_GPU	4		/* auto: no usable GPU; the launcher logs it */

#endif							/* GPUANN_PROTOCOL_H */
