/*
 * server.h
 *		The parts of gpuann-server and what they share.
 *
 * One main thread runs the loop of serve.c and calls the engine; it owns
 * everything in Server but `terminate`. A second thread only watches the death
 * pipe, SIGTERM, and that the loop goes round (process.c). Nothing read from
 * the area is used before it was copied and checked, the header included:
 * `layout` is the server's own copy.
 */
#ifndef GPUANN_SERVER_H
#define GPUANN_SERVER_H

#include "server/protocol.h"

#define BATCHES_PER_MIRROR	4	/* in flight at once */
#define BATCHES				64	/* of all mirrors */
#define POLL_ROOM			256
#define COMPANY				64	/* batches for which no query is lone after one that had to wait for
								 * such a one */
#define CHANNEL_PIECE			64	/* queries of a channel that the engine gets at once */
#define CHANNEL_SLICE_US		1000	/* channel work between two looks at the requests */
#define NO_ENTRY			0xFFFFFFFFu
#define HANG_MS				20000	/* a call into the engine that takes as long will not return */

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
	int			rest_ms;		/* for tests: sleep so long where nothing but a wake-up is awaited;
								 * 0: as ever */
	uint32_t	wakers;			/* for tests: threads that wake clients; 0: as the machine has
								 * processors */
} ServerOptions;

typedef enum TicketState
{
	TICKET_IDLE,
	TICKET_WAITING,				/* taken, for its mirror's next batch */
	TICKET_FLYING				/* the engine has it */
} TicketState;

/*
 * A taken request on its way through the engine. One per request slot,
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
	uint32_t	batch;			/* flying: which of Server.batches */
	uint64_t	bytes;			/* that the search may have to read (watchdog.c) */
	int64_t		posted_us;
	struct Ticket *next;		/* waiting: the next one of the same mirror */
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

/* A mirror that this server holds, by its entry in the mirror table. */
typedef struct HeldMirror
{
	MirrorId	id;				/* 0: none */
	uint32_t	generation;
	MirrorSpec	spec;
	uint32_t	vector_bytes;
	uint32_t	rows;			/* as the engine said when the last job had ended */
	uint32_t	pending;
	uint32_t	flying;			/* batches */
	uint32_t	last_batch;		/* queries in the last one */
	uint32_t	waiting;
	Ticket	   *first;			/* waiting, oldest first */
	Ticket	   *last;
	bool		ready;			/* in the list of mirrors with waiting queries; outlives the
								 * mirror */
	uint32_t	next_ready;
} HeldMirror;

/* A mirror on its way out: its JOB_DROP. */
typedef struct Drop
{
	MirrorId	mirror;
	JobId		job;			/* 0: the engine was busy, to be submitted */
	struct Drop *next;
} Drop;

typedef enum ChannelPhase
{
	CHANNEL_RESTS,					/* nothing taken */
	CHANNEL_AWAITS_DROP,			/* of the entry's earlier mirror */
	CHANNEL_SUBMITS,				/* a job, or queries, that the engine has not taken yet */
	CHANNEL_RUNS,					/* a job */
	CHANNEL_SEARCHES				/* a piece of its queries */
} ChannelPhase;

/* A CHANNEL_SEARCH on its way, piece by piece. */
typedef struct ChannelSearch
{
	Ticket	   *tickets;		/* CHANNEL_PIECE, of the piece that the engine has; they stay from
								 * one search to the next */
	ChannelFound  *found;			/* malloc'd, one for each query */
	SearchResult *results;		/* malloc'd, k for each */
	uint32_t	next;			/* query to be submitted */
	uint32_t	outstanding;	/* of the piece */
	int64_t		posted_us;
	EngineError error;			/* of the first query that failed */
} ChannelSearch;

/* What a channel is doing. */
typedef struct ChannelWork
{
	ChannelPhase	phase;
	int32_t		owner;			/* when it was taken */
	uint32_t	generation;		/* of the channel's word */
	ChannelRequest request;		/* copied: the client could change it after it was checked */
	MirrorId	mirror;
	bool		cancelled;

	/*
	 * a job: its arrays are copied, for the client could change them after they
	 * were checked; vectors have nothing to check
	 */
	EngineJob	job;
	JobId		job_id;
	void	   *copies;
	size_t		copies_room;

	ChannelSearch	search;

	/* the last CHANNEL_LINK's result, kept for its fetches */
	JobId		link;			/* 0: none */
	MirrorId	link_mirror;
	int32_t		link_owner;
	uint32_t	link_degree;
	LinkResult	linked;

	/*
	 * watchdog.c's: what the job has to read at most; where it was at the last
	 * look, and at how many looks in a row
	 */
	uint64_t	bytes;
	uint32_t	done;			/* of the job, as the engine last said; queries answered */
	ChannelPhase	seen_phase;
	uint32_t	seen_generation;
	uint32_t	seen_done;
	uint32_t	still_looks;
} ChannelWork;

typedef struct Waker Waker;

typedef struct Server
{
	AreaHeader *area;
	AreaHeader	layout;			/* checked copy: sizes and offsets are read here only */
	const EngineOps *ops;
	Engine	   *engine;
	EngineInfo	engine_info;
	int			rest_ms;		/* of the options */
	int			spin_us;		/* busy waiting before a sleep */
	int			spin_flying_us;	/* the same while queries are in flight, or brief jobs, ... */
	uint32_t	spin_flying_most;	/* ... but no more queries than these */
	uint32_t	launch_at_once;	/* queries in flight below which none waits for company; 0: natural
								 * batching alone */

	HeldMirror *mirrors;		/* layout.mirrors */
	uint32_t	held;			/* of them in use */
	uint32_t	ready_first;	/* entries with waiting queries, or NO_ENTRY */
	uint32_t	ready_last;
	Drop	   *drops;

	Ticket	   *tickets;		/* layout.slots */
	SearchResult *results;		/* PAYLOAD_RESULTS per request slot */
	uint32_t   *posted;			/* room for layout.slots: slots found POSTED */
	EngineQuery **gathered;		/* room for layout.slots */
	Batch		batches[BATCHES];
	uint32_t	queries_flying;
	bool		lone_flying;	/* one, that the engine may search for in its next poll */
	int64_t		lone_ended_us;	/* when such a poll last returned; who came before that had to
								 * wait */
	uint32_t	company;		/* batches to come until another query is taken for a lone one */

	Waker	   *wakers;			/* wakers.c */
	uint32_t	nwakers;
	uint32_t	next_waker;
	uint32_t	wakes;			/* clients woken since the last rest, up to what is a crowd */

	ChannelWork   *channels;			/* layout.channels */
	uint32_t	next_channel;
	uint32_t	channels_busy;		/* not at rest */

	int			hang_ms;		/* patience with a call into the engine */
	uint64_t	queries_done;	/* completed, since the start */
	uint64_t	seen_done;		/* as of watchdog.c's last look, ... */
	uint32_t	still_looks;	/* ... and looks in a row without one more */

	int64_t		last_chores_us;
	int64_t		last_job_poll_us;
	_Atomic bool woken;			/* by the engine, since jobs were last polled */
	_Atomic uint32_t beats;		/* rounds of the loop; 0: not serving yet */
	_Atomic bool terminate;
} Server;

/* ---- wakers.c: threads that wake clients ---- */

extern void wakers_start(Server *server, uint32_t count);
extern void wakers_stop(Server *server);
extern void client_wake(Server *server, _Atomic uint32_t *word);

/* ---- process.c: process, descriptors, signals, lock, watching thread --- */

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
 * The part of it after area, lock and watch: server->area and ->layout are set.
 * For tests, which have servers that are threads.
 */
extern int	server_run(Server *server, const ServerOptions *options);

/* Set the area's last_error. */
extern void server_last_error(Server *server, const char *text);

/* ---- serve.c: the loop ---- */

extern int	serve(Server *server);

/*
 * The engine broke: answer everything in flight with ENGINE_FAILED, and end the
 * process.
 */
extern void server_fail(Server *server, const EngineError *error) __attribute__((noreturn));

extern int64_t server_now_us(void);

/* ---- watchdog.c: an engine that takes work and gives nothing back ---- */

extern void watchdog_look(Server *server);

/*
 * What a search, or a job before it says more of how far it is, may have to
 * read.
 */
extern uint64_t watchdog_query_bytes(const HeldMirror *mirror, const EngineQuery *query);
extern uint64_t watchdog_job_bytes(const HeldMirror *mirror, const EngineJob *job);

/* ---- batch.c: requests, waiting lists, batches ---- */

extern bool requests_take(Server *server);
extern bool batches_launch(Server *server);
extern bool queries_poll(Server *server);
extern void queries_refuse(Server *server, HeldMirror *mirror, EngineStatus status,
						   const char *text);
extern void requests_sweep(Server *server, bool starting);

/*
 * Check what is asked, of which most_k results are the most, and fill a query
 * with it.
 */
extern EngineStatus query_fill(const HeldMirror *mirror, const QueryRequest *request,
							   uint32_t most_k, EngineQuery *query, EngineError *error);

/* ---- answer.c: answers of requests ---- */

extern void request_answer(Server *server, Ticket *ticket, const Batch *batch);
extern void request_refuse(Server *server, Ticket *ticket, EngineStatus status, const char *text);

/* ---- mirrors.c: the mirrors held ---- */

/*
 * The engine gets something to do for an entry, or is done with it: if it
 * crashes meanwhile, the launcher knows whom to suspect.
 */
extern void engine_enters(Server *server, uint32_t entry);
extern void engine_leaves(Server *server, uint32_t entry);

/* The mirror of an entry and generation; else NULL, with *error. */
extern HeldMirror *held_find(Server *server, uint32_t entry, uint32_t generation,
							 EngineError *error);
extern EngineStatus held_make(Server *server, const ChannelRequest *request, EngineError *error);
extern void held_let_go(Server *server, uint32_t entry);
extern bool held_leaving(const Server *server, MirrorId id);
extern void held_publish(Server *server, uint32_t entry, MirrorId id);
extern bool drops_step(Server *server);
extern void held_sweep(Server *server);
extern void memory_publish(Server *server);

/* ---- channels.c, channel_search.c, channel_job.c, channel_link.c ---- */

extern bool channels_step(Server *server);
extern bool channels_brief(const Server *server);
extern bool channels_poll(Server *server);
extern void channels_sweep(Server *server, bool starting);
extern bool channel_is_ours(const Server *server, uint32_t number);
extern void channel_finish(Server *server, uint32_t number, EngineStatus status, const char *text);

/*
 * A search: checked, then submitted in pieces, each of whose queries is done;
 * what it found is forgotten when the channel is answered.
 */
extern EngineStatus channel_search_begin(Server *server, uint32_t number, EngineError *error);
extern EngineStatus channel_search_submit(Server *server, uint32_t number, EngineError *error);
extern void channel_search_done(Server *server, Ticket *ticket);
extern void channel_search_forget(ChannelWork *work);

/* Check a channel's request and make its job, arrays copied. */
extern EngineStatus channel_job_make(Server *server, uint32_t number, EngineError *error);

/*
 * Whether count elements of so many bytes stand at an offset inside a channel's
 * data.
 */
extern bool channel_holds(const Server *server, uint64_t offset, uint64_t count, uint64_t bytes);

extern void channel_link_keep(Server *server, uint32_t number, EngineStatus status);
extern void channel_link_forget(Server *server, ChannelWork *work);
extern EngineStatus channel_link_fetch(Server *server, uint32_t number, EngineError *error);

/* ---- the area, by the server's own copy of its layout ---- */

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
