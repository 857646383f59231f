/*
 * server.h
 *		Structures and functions of gpuann-server.
 *
 * The main thread runs the loop of serve.c, calls the engine, and owns all
 * fields of Server but `terminate` and the atomic ones. A watch thread checks
 * the death pipe, SIGTERM, and that the loop advances (process.c). Nothing read
 * from the area is used before it is copied and checked, including the header:
 * `layout` is the server's own copy.
 */
#ifndef GPUANN_SERVER_H
#define GPUANN_SERVER_H

#include "server/protocol.h"

#define BATCHES_PER_MIRROR	4	/* in flight at once */
#define BATCHES				64	/* of all mirrors */
#define POLL_ROOM			256
#define NOT_LONE_BATCHES	64	/* after a request had to wait for a lone query, this many batches
								 * have none */
#define CHANNEL_PIECE			64	/* queries of a channel that are submitted together */
#define FEW_MIRRORS				16	/* a query of each is submitted together with any engine */
#define CHANNEL_SLICE_US		1000	/* channel work between two checks for requests */
#define NO_ENTRY			0xFFFFFFFFu
#define HANG_MS				20000	/* a call into the engine that takes this long will not
									 * return */

typedef struct ServerOptions
{
	int			area_fd;
	int			death_fd;
	const char *lock_path;
	const char *engine;			/* "auto", "cuda", "cpu" */
	const char *engine_library;
	uint64_t	memory_limit;
	uint64_t	host_rows_limit;
	int			hang_ms;		/* 0: HANG_MS */
	int			rest_ms;		/* for tests: sleep this long when only a wake-up is expected; 0:
								 * default */
	uint32_t	wakers;			/* for tests: number of waker threads; 0: by number of processors */
} ServerOptions;

/* The limit of a call into the engine in milliseconds. */
static inline int
server_hang_ms(const ServerOptions *options)
{
	return options->hang_ms > 0 ? options->hang_ms : HANG_MS;
}

typedef enum TicketState
{
	TICKET_IDLE,
	TICKET_WAITING,				/* queued for its mirror's next batch */
	TICKET_IN_FLIGHT			/* in the engine */
} TicketState;

/*
 * A taken request while the server works on it. One per request slot, and
 * CHANNEL_PIECE per channel.
 */
typedef struct Ticket
{
	EngineQuery query;			/* query.user is the ticket */
	TicketState state;
	bool		of_channel;
	uint32_t	number;			/* of the request slot or the channel */
	uint32_t	generation;		/* of the request word */
	uint32_t	entry;			/* of the mirror table */
	uint32_t	batch;			/* index in Server.batches, while in flight */
	uint64_t	bytes;			/* upper limit of what the search reads (watchdog.c) */
	uint32_t	checks;			/* of the watchdog, while in flight */
	uint64_t	ahead;			/* bytes that it may wait for, by the first of these */
	int64_t		posted_us;
	SetName		set;			/* rows that the search is restricted to, looked up when it is
								 * submitted; of a channel's: none */
	FilterProgram program;		/* likewise, a copy; of a channel's: none, the search has it */
	struct Ticket *next;		/* next in the mirror's queue */
} Ticket;

/* Queries of one mirror that were submitted together. */
typedef struct Batch
{
	MirrorId	mirror;			/* 0: unused */
	uint32_t	entry;
	uint32_t	queries;
	uint32_t	outstanding;
	int64_t		submitted_us;
} Batch;

/* A mirror held by this server, per entry of the mirror table. */
typedef struct HeldMirror
{
	MirrorId	id;				/* 0: none */
	uint32_t	generation;
	MirrorSpec	spec;
	uint32_t	vector_bytes;
	uint32_t	record_bytes;	/* of a row's columns; 0: there are none */
	uint32_t	rows;			/* according to the engine, after the last job */
	uint32_t	pending;
	uint32_t	in_flight;		/* batches in flight */
	uint32_t	last_batch;		/* number of queries in the last batch */
	uint32_t	waiting;
	Ticket	   *first;			/* queue, oldest first */
	Ticket	   *last;
	bool		ready;			/* in the list of mirrors with waiting queries, even if the mirror
								 * was dropped */
	uint32_t	next_ready;

	/* list_counts.c: probes of lists */
	uint64_t	counts_word;	/* the entry's, when the mirror was made; 0: they are not counted */
	uint64_t   *counted;		/* malloc'd: the engine's counts when they were last taken */
	bool		counts_due;		/* queries have been answered since */
	int64_t		counts_taken_us;
} HeldMirror;

/* A set of rows held by this server, per place of a session. */
typedef struct HeldSet
{
	uint64_t	id;				/* 0: none */
	uint32_t	entry;			/* its mirror */
	uint32_t	generation;
	uint32_t	slots;			/* bits */
	uint64_t   *words;			/* malloc'd */
} HeldSet;

/* A mirror that is being dropped. */
typedef struct Drop
{
	MirrorId	mirror;
	JobId		job;			/* its JOB_DROP; 0: not submitted yet, the engine was busy */
	struct Drop *next;
} Drop;

typedef enum ChannelPhase
{
	CHANNEL_IDLE,					/* no operation */
	CHANNEL_WAITS_FOR_DROP,			/* until the entry's previous mirror is dropped */
	CHANNEL_SUBMITTING,				/* job or queries to submit */
	CHANNEL_RUNNING,				/* the engine runs the job */
	CHANNEL_SEARCHING				/* the engine searches a piece of the queries */
} ChannelPhase;

/* A CHANNEL_SEARCH in progress. */
typedef struct ChannelSearch
{
	Ticket	   *tickets;		/* CHANNEL_PIECE tickets, of the piece in the engine; kept for the
								 * next search */
	ChannelFound *found;			/* malloc'd, one per query */
	SearchResult *results;		/* malloc'd, k per query */
	uint32_t   *entries;		/* malloc'd, with has_mirrors: the queries' mirrors; generations
								 * after the entries */
	void	   *program_copy;	/* malloc'd, if the queries name a program: */
	FilterProgram program;
	uint32_t	next;			/* next query to submit */
	uint32_t	outstanding;	/* unanswered queries of the piece */
	int64_t		posted_us;
	EngineError error;			/* of the first query that failed */
} ChannelSearch;

/* State of a channel in the server. */
typedef struct ChannelWork
{
	ChannelPhase phase;
	int32_t		owner;			/* when the operation was taken */
	uint32_t	generation;		/* of the channel's word */
	ChannelRequest request;		/* copy: the client could change it after the check */
	MirrorId	mirror;
	bool		cancelled;

	/*
	 * A job. Its arrays are copied, because the client could change them after
	 * the check; vectors need no check.
	 */
	EngineJob	job;
	JobId		job_id;
	void	   *copies;
	size_t		copies_room;

	ChannelSearch search;

	/* result of the last CHANNEL_LINK, REPAIR or TRAIN, kept for fetches */
	JobId		link;			/* 0: none */
	MirrorId	link_mirror;
	int32_t		link_owner;
	uint32_t	link_degree;
	LinkResult	linked;

	/*
	 * Used by watchdog.c: upper limit of what the job reads, state at the last
	 * check, and consecutive checks without progress.
	 */
	uint64_t	bytes;
	uint32_t	done;			/* rows done, as the engine last reported; or queries answered */
	ChannelPhase seen_phase;
	uint32_t	seen_generation;
	uint32_t	seen_done;
	uint32_t	stalled_checks;
} ChannelWork;

typedef struct Waker Waker;

typedef struct Server
{
	AreaHeader *area;
	AreaHeader	layout;			/* checked copy; sizes and offsets are taken from here only */
	const EngineOps *ops;
	Engine	   *engine;
	int			rest_ms;		/* from the options */
	int			spin_us;		/* spin before a sleep */
	int			spin_in_flight_us; /* the same while queries are in flight or short jobs run, ... */
	uint32_t	spin_max_in_flight;	/* ... unless more queries than this are in flight */
	int			usual_gap_us;	/* how long it usually has nothing to do (spin_wait.h) */
	long		processors;
	uint32_t	launch_at_once;	/* submit at once while fewer queries are in flight; 0: batch as
								 * described in batch.c */

	HeldMirror *mirrors;		/* layout.mirrors */
	uint32_t	held;			/* number of mirrors held */
	uint32_t	ready_first;	/* first entry with waiting queries, or NO_ENTRY */
	uint32_t	ready_last;
	Drop	   *drops;

	HeldSet    *sets;			/* layout.slots * REQUEST_SETS, by place */
	uint32_t	sets_held;
	uint64_t	sets_bytes;

	Ticket	   *tickets;		/* layout.slots */
	SearchResult *results;		/* PAYLOAD_RESULTS per request slot */
	unsigned char *programs;	/* PROGRAM_BYTES per request slot */
	uint32_t   *posted;			/* layout.slots entries: slots found POSTED */
	EngineQuery **gathered;		/* layout.slots entries */
	Batch		batches[BATCHES];
	uint32_t	queries_in_flight;
	bool		lone_in_flight;	/* the query in flight is lone: the next poll may search in this
								 * thread */
	int64_t		lone_ended_us;	/* when such a poll last returned; requests posted before had to
								 * wait for it */
	uint32_t	not_lone_batches; /* remaining batches without a lone query */

	Waker	   *wakers;			/* wakers.c */
	uint32_t	nwakers;
	uint32_t	next_waker;
	uint32_t	wakes;			/* clients woken since the last sleep, at most DIRECT_WAKES */

	ChannelWork *channels;			/* layout.channels */
	uint32_t	next_channel;
	uint32_t	channels_busy;		/* not idle */

	int			hang_ms;		/* limit of a call into the engine */
	uint64_t	queries_done;	/* number of completed queries */
	uint64_t	seen_done;		/* the same at the last check of watchdog.c, ... */
	uint32_t	stalled_checks;	/* ... and consecutive checks without progress */

	uint64_t   *probes;			/* ENGINE_MAX_LISTS, for list_counts.c */
	uint32_t	next_counts;	/* entry with which list_counts_round() goes on */

	int64_t		last_maintenance_us;
	int64_t		last_job_poll_us;
	_Atomic bool woken;			/* set by the engine, cleared when jobs are polled */
	_Atomic uint32_t rounds;	/* rounds of the main loop; 0: not serving yet */
	_Atomic bool terminate;
} Server;

/* ---- wakers.c: threads that wake clients ---- */

extern void wakers_start(Server *server, uint32_t count);
extern void wakers_stop(Server *server);
extern void client_wake(Server *server, _Atomic uint32_t *word);

/* ---- process.c: process, descriptors, signals, lock, watch thread ---- */

extern void process_close_descriptors(int keep_a, int keep_b);
extern void process_block_signals(void);
extern void process_die_with_parent(void);
extern void process_take_lock(const char *path);
extern void process_watch(Server *server, const ServerOptions *options);
extern void process_log(const char *level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
extern void process_warn(const char *format,...) __attribute__((format(printf, 1, 2)));

/* ---- start.c ---- */

/* Run the server; returns its exit status, or ends the process. */
extern int	server_main(const ServerOptions *options);

/*
 * server_main() without mapping the area, the lock and the watch thread:
 * server->area and ->layout are set. For tests, which run servers as threads.
 */
extern int	server_run(Server *server, const ServerOptions *options);

/* Set the area's last_error. */
extern void server_last_error(Server *server, const char *text);

/* ---- serve.c: the loop ---- */

extern int	serve(Server *server);

/*
 * Handle an engine failure: answer everything in flight with ENGINE_FAILED, and
 * exit.
 */
extern void server_fail(Server *server, const EngineError *error) __attribute__((noreturn));

/* The same, if this is what the engine has answered. */
static inline void
fail_if_failed(Server *server, EngineStatus status, const EngineError *error)
{
	if (status == ENGINE_FAILED)
		server_fail(server, error);
}

/* ---- watchdog.c: detects an engine that makes no progress ---- */

extern void watchdog_check(Server *server);

/*
 * Upper limit of the bytes that a search reads, or that a job reads before it
 * reports progress.
 */
extern uint64_t watchdog_query_bytes(const HeldMirror *mirror, const EngineQuery *query);
extern uint64_t watchdog_job_bytes(const HeldMirror *mirror, const EngineJob *job);

/* ---- batch.c: requests, queues, batches ---- */

extern bool requests_take(Server *server);
extern bool batches_launch(Server *server);
extern bool queries_poll(Server *server);
extern void queries_refuse(Server *server, HeldMirror *mirror, EngineStatus status,
						   const char *text);
extern void requests_sweep(Server *server, bool starting);

/*
 * Check a query request, where k is at most max_k, and fill a query from it.
 */
extern EngineStatus query_fill(const HeldMirror *mirror, const QueryRequest *request,
							   uint32_t max_k, EngineQuery *query, EngineError *error);

/* ---- answer.c: answers to requests ---- */

extern void request_answer(Server *server, Ticket *ticket, const Batch *batch);
extern void request_refuse(Server *server, Ticket *ticket, EngineStatus status, const char *text);

/* ---- mirrors.c: the mirrors held ---- */

/*
 * Count the beginning and end of engine work for an entry. If the engine
 * crashes in between, the launcher knows which indexes may be the cause.
 */
extern void engine_work_begin(Server *server, uint32_t entry);
extern void engine_work_end(Server *server, uint32_t entry);

/*
 * Look up the mirror of an entry and generation. Returns NULL and sets *error
 * if it is not held.
 */
extern HeldMirror *held_find(Server *server, uint32_t entry, uint32_t generation,
							 EngineError *error);
extern EngineStatus held_create(Server *server, const ChannelRequest *request, EngineError *error);
extern void held_drop(Server *server, uint32_t entry);
extern bool held_is_dropping(const Server *server, MirrorId id);
extern void held_publish(Server *server, uint32_t entry, MirrorId id);
extern bool drops_advance(Server *server);
extern void held_sweep(Server *server);
extern void memory_publish(Server *server);

/* ---- sets.c: sets of rows ---- */

/* Run a CHANNEL_SET. */
extern EngineStatus set_take_part(Server *server, uint32_t number, EngineError *error);

/*
 * Restrict a query of an entry's mirror to a set of rows, if it names one. The
 * bitmap stays until another set is taken or sets_sweep().
 */
extern EngineStatus set_restrict(const Server *server, const SetName *name, uint32_t entry,
								 EngineQuery *query, EngineError *error);

/* Free the sets that no session needs, and those of mirrors that went. */
extern void sets_sweep(Server *server);

/* ---- programs.c: programs that queries name ---- */

/*
 * Copy the program that a request names out of the area, into room for
 * PROGRAM_BYTES, aligned as FilterValue; no steps if it names none. It is not
 * to be run before program_restrict() has accepted it.
 */
extern EngineStatus program_take(const QueryRequest *request, const void *from, void *room,
								 FilterProgram *program, EngineError *error);

/*
 * Check a program by the columns of a mirror, and restrict a query of it, which
 * refers to the program. Does nothing without steps.
 */
extern EngineStatus program_restrict(const HeldMirror *mirror, const FilterProgram *program,
									 EngineQuery *query, EngineError *error);

/* ---- list_counts.c: probe counts of lists ---- */

/* Begin counting for a new mirror, and end it before the mirror is dropped. */
extern void list_counts_begin(Server *server, HeldMirror *mirror, uint32_t entry);
extern void list_counts_end(Server *server, HeldMirror *mirror, uint32_t entry);

/* Update a mirror's counts in the area. */
extern EngineStatus list_counts_take(Server *server, HeldMirror *mirror, uint32_t entry,
									 EngineError *error);

/*
 * The same in a maintenance round for mirrors that were searched since; and for
 * all mirrors.
 */
extern void list_counts_round(Server *server);
extern void list_counts_take_all(Server *server);

/* ---- channels.c, channel_search.c, channel_job.c, channel_link.c ---- */

extern bool channels_step(Server *server);
extern bool channels_run_short_job(const Server *server);
extern bool channels_poll_jobs(Server *server);
extern void channels_sweep(Server *server, bool starting);
extern bool channel_is_ours(const Server *server, uint32_t number);
extern void channel_finish(Server *server, uint32_t number, EngineStatus status, const char *text);

/*
 * A search: begin checks the request, submit passes the next piece to the
 * engine, done stores the results of a query, forget frees the search.
 */
extern EngineStatus channel_search_begin(Server *server, uint32_t number, EngineError *error);
extern EngineStatus channel_search_submit(Server *server, uint32_t number, EngineError *error);
extern void channel_search_done(Server *server, Ticket *ticket);
extern void channel_search_forget(Server *server, ChannelWork *work);

/* Check a channel's request and make its job, with copied arrays. */
extern EngineStatus channel_job_make(Server *server, uint32_t number, EngineError *error);

/*
 * Whether count elements of a size lie within a channel's data, at this offset.
 */
extern bool channel_holds(const Server *server, uint64_t offset, uint64_t count, uint64_t bytes);

extern void channel_link_keep(Server *server, uint32_t number, EngineStatus status);
extern void channel_link_forget(Server *server, ChannelWork *work);
extern EngineStatus channel_link_fetch(Server *server, uint32_t number, EngineError *error);

/* ---- access to the area, by the server's own copy of its layout ---- */

static inline _Atomic uint32_t *
server_word(const Server *server, uint32_t slot)
{
	return (_Atomic uint32_t *) ((char *) server->area + server->layout.words_offset) + slot;
}

static inline RequestPayload *
server_payload(const Server *server, uint32_t slot)
{
	return (RequestPayload *) ((char *) server->area + server->layout.payloads_offset +
							   server->layout.payload_stride * slot);
}

static inline AreaMirror *
server_mirror(const Server *server, uint32_t entry)
{
	return (AreaMirror *) ((char *) server->area + server->layout.mirrors_offset +
						   server->layout.mirror_stride * entry);
}

static inline _Atomic double *
server_list_counts(const Server *server, uint32_t first)
{
	return (_Atomic double *) ((char *) server->area + server->layout.list_counts_offset) + first;
}

static inline AreaChannel *
server_channel(const Server *server, uint32_t channel)
{
	return (AreaChannel *) ((char *) server->area + server->layout.channels_offset +
							server->layout.channel_stride * channel);
}

static inline unsigned char *
server_channel_data(const Server *server, uint32_t channel)
{
	return (unsigned char *) server->area + server->layout.channel_data_offset +
		   server->layout.channel_data_bytes * channel;
}

#endif							/* GPUANN_SERVER_H */
