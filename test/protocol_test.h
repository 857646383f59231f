/*
 * protocol_test.h
 *		The parts of the protocol test: a launcher with its area, clients, an
 *		oracle, and the cases.
 *
 * The test stands where PostgreSQL does: it makes the area, starts and kills
 * servers, sweeps after them, loads mirrors through channels and asks from many
 * processes. Every answer is compared with a search of its own.
 */
#ifndef GPUANN_PROTOCOL_TEST_H
#define GPUANN_PROTOCOL_TEST_H

#include <stdio.h>
#include <sys/types.h>

#include "area.h"
#include "promises.h"
#include "server/transitions.h"
#include "server/spin_wait.h"

#define TEST_DIMS		8
#define TEST_ROWS		2000	/* rows there are vectors for */
#define TEST_DEGREE		16
#define TEST_COLUMNS	3			/* of the test's mirrors */
#define TEST_MAX_K		32		/* of checked searches through payloads */
#define LONG_MS			20000	/* nothing takes as long, on the slowest machine */

/* ---- protocol_test.c ---- */

/* Leave a case that has failed. */
#define REQUIRE(condition, ...) \
	do { \
		if (!(condition)) \
		{ \
			case_fails(__VA_ARGS__); \
			return; \
		} \
	} while (0)

typedef struct TestOptions
{
	const char *server;			/* the program; NULL: the one linked in here, in a forked process */
	const char *stub;			/* stub_engine.so */
	const char *engine;			/* of the cases that are not about faults */
	const char *engine_library;
	uint32_t	requests;		/* of the largest case */
	uint32_t	storm_requests; /* of the storm's long form */
	uint32_t	clients;
	char		directory[64];
} TestOptions;

extern TestOptions test_options;

/* ---- protocol_test_steps.c: death at a step of the protocol ---- */

/*
 * What this process does at the steps (steps.h) it comes to: nothing, unless
 * armed.
 */
typedef struct Arm
{
	bool		set;
	bool		server;
	ProtocolStep step;			/* to die at, ... */
	uint32_t	passes;			/* ... the so many-th time (0: not at all), */
	int64_t		after_us;		/* not counting those in the process's first microseconds */
	uint32_t	delay_one_in;	/* so often (0: never) it lingers for some microseconds at a step,
								 * whichever */
} Arm;

extern void arm_process(const Arm *arm);

/* ---- protocol_test_launcher.c: area and server ---- */

typedef struct World
{
	AreaHeader *area;
	int			area_fd;
	pid_t		server;			/* 0: none */
	int			death_fd;		/* our end of the pipe */
	int			log_fd;
	Arm			arm;			/* for the next server; then the one linked in here is taken */
	int			rest_ms;		/* the same: ServerOptions.rest_ms */
	size_t		logged;
	char		log[32768];
} World;

extern World *world_make(uint32_t slots, uint32_t channels);
extern void world_free(World *world);	/* kills the server */

/*
 * Start a server; faults is the stub engine's setting, or NULL for the engine
 * of the options.
 */
extern void server_start(World *world, const char *engine, const char *faults);
extern bool server_wait_ready(World *world);

/* Start a server and wait until it is ready; false fails the case. */
extern bool server_up(World *world, const char *faults);

/* Wait for the server's end; its wait status, or -1 after ms. */
extern int	server_reap(World *world, int ms);

/* What the launcher does when a server has died. */
extern void server_sweep(World *world);
extern void server_kill(World *world);	/* SIGKILL, reap, sweep */
extern bool log_has(World *world, const char *text, int ms);

extern int64_t now_us(void);
extern void pause_us(int64_t us);
extern uint64_t next_random(uint64_t *state);

/* ---- protocol_test_client.c: channels and requests ---- */

/* A condition on the columns; no steps: there is none. */
#define TEST_STEPS	16
typedef struct TestProgram
{
	FilterStep	steps[TEST_STEPS];
	FilterValue values[3 * TEST_STEPS];
	uint32_t	nsteps;
	uint32_t	nvalues;
} TestProgram;

typedef struct Search
{
	uint32_t	entry;
	uint32_t	generation;
	uint32_t	method;
	uint32_t	k;
	uint32_t	ef;
	uint32_t	probes;
	uint32_t	has_beyond;
	double		beyond_distance;
	uint32_t	beyond_slot;
	SetName		set;
	const uint64_t *within;		/* what the oracle knows of the set: TEST_ROWS bits; NULL: all */
	TestProgram program;
	float		vector[TEST_DIMS];
} Search;

typedef struct Answer
{
	uint32_t	status;
	uint32_t	count;
	uint32_t	rows;
	uint32_t	batch;
	uint32_t	passing;
	uint64_t	position;
	char		error[128];
	SearchResult results[PAYLOAD_RESULTS];
} Answer;

typedef enum Outcome
{
	OUTCOME_ANSWERED,
	OUTCOME_TIMEOUT,			/* and abandoned */
	OUTCOME_SERVER_DIED,
	OUTCOME_SLOT_BUSY			/* an earlier abandoned request is still there */
} Outcome;

typedef struct Client
{
	AreaHeader *area;
	uint32_t	slot;
	uint32_t	generation;
	uint32_t	epoch;			/* of the server that was ready when the request was posted; 0: none
								 * was */
	int			slice_ms;		/* longest wait for the word */
	bool		watches;		/* before it sleeps, as sessions do */
	WordWatch	watch;
	uint32_t	late;			/* waits that ran out although the answer was there: a lost wake-up
								 * looks like this */
} Client;

extern void client_begin(Client *client, AreaHeader *area, uint32_t slot);
extern bool client_post(Client *client, const Search *search);
extern Outcome client_wait(Client *client, int64_t timeout_us, Answer *answer);
extern Outcome client_search(Client *client, const Search *search, int64_t timeout_us,
							 Answer *answer);

/* What becomes of a slot whose client is gone. False: it did not come free. */
extern bool slot_recover(AreaHeader *area, uint32_t slot);

extern int	channel_slice_ms;			/* longest wait for a channel's word */
extern int	channel_claim(AreaHeader *area);
extern void channel_release(AreaHeader *area, int channel);
extern AreaChannel *channel_prepare(AreaHeader *area, int channel, ChannelOp op, uint32_t entry);
extern void *channel_array(AreaHeader *area, int channel, uint64_t *offset, uint64_t after,
						   size_t bytes);
extern void channel_post(AreaHeader *area, int channel);
/* ENGINE_FAILED also when it takes too long */
extern EngineStatus channel_wait(AreaHeader *area, int channel, int ms);
extern EngineStatus channel_call(AreaHeader *area, int channel);

/*
 * Searches through a channel: exact, alike but for their vectors, at most
 * MAX_CHANNEL_SEARCHES. Fill in, post, wait; then read each answer.
 */
#define MAX_CHANNEL_SEARCHES	100
extern void channel_fill_searches(AreaHeader *area, int channel, const Search *searches,
								  uint32_t count);
extern bool channel_read_answer(AreaHeader *area, int channel, uint32_t number, Answer *answer);

/* Mirrors of the test's rows: rows [0, rows), with position as many. */
extern uint32_t entry_claim(AreaHeader *area, uint32_t entry);	/* a new generation */
extern EngineStatus entry_create(AreaHeader *area, int channel, uint32_t entry);
extern EngineStatus entry_append(AreaHeader *area, int channel, uint32_t entry, uint32_t first,
								 uint32_t count);
/* claim, create, append; false fails the case */
extern bool entry_load(AreaHeader *area, uint32_t entry, uint32_t rows);

/* ---- the oracle (protocol_test_client.c) ---- */

extern void oracle_make(void);
extern const float *oracle_row(uint32_t slot);
extern uint32_t oracle_version(uint32_t slot);
extern const FilterKind oracle_kinds[TEST_COLUMNS];
/* A condition that makes sense, and often lets some rows pass. */
extern void program_random(TestProgram *program, uint64_t *random);
/* Write it as a request has it. */
extern void test_program_write(const TestProgram *program, QueryRequest *request, void *to);
extern void search_random(Search *search, const AreaHeader *area, uint32_t entry, uint64_t *random);

/*
 * NULL, or what is wrong with an exact answer about the first answer->rows
 * rows.
 */
extern const char *answer_wrong(const Search *search, const Answer *answer);

/* ---- protocol_test_load.c: many clients ---- */

typedef struct Load
{
	uint32_t	clients;
	uint32_t	requests;		/* of all; 0: until stop is set */
	uint32_t	cancel_one_in;	/* so many requests are abandoned early; 0: none */
	uint32_t	think_us;		/* at most, between requests */
	int64_t		timeout_us;
	int			slice_ms;		/* longest wait for a word; 0: AREA_WAIT_MS */
	int64_t		slow_us;		/* what counts as slow; 0: SLOW_US */
	Arm			arm;			/* of clients */
	bool		spins;			/* clients look for their answer instead of sleeping */
	bool		deaths;			/* server deaths, missing mirrors and timeouts are expected */
} Load;

typedef struct LoadStats
{
	_Atomic uint32_t stop;
	_Atomic uint32_t posted;
	_Atomic uint32_t answered;
	_Atomic uint32_t by_channel;	/* of them through channels */
	_Atomic uint32_t cancelled;
	_Atomic uint32_t timeouts;
	_Atomic uint32_t died;
	_Atomic uint32_t refused;
	_Atomic uint32_t late;
	_Atomic uint32_t slow;		/* answers that took about as long as the server sleeps */
	_Atomic uint32_t stuck;
	_Atomic uint32_t wrong;
	_Atomic uint64_t batched;	/* sum of the batches that answers came in */
	char		first_wrong[200];
} LoadStats;

extern LoadStats *load_stats_make(void);
extern void load_client_main(AreaHeader *area, const Load *load, LoadStats *stats, uint32_t slot,
							 uint64_t random);
extern pid_t load_client(World *world, const Load *load, LoadStats *stats, uint32_t slot,
						 uint64_t seed);
extern void note_wrong(LoadStats *stats, const char *what);
/* all clients, to the end */
extern void load_run(World *world, const Load *load, LoadStats *stats);
extern void load_judge(const Load *load, const LoadStats *stats);

/* ---- the cases ---- */

/*
 * Whether an ordinary search of an entry is answered rightly
 * (protocol_test_channels.c).
 */
extern bool works(World *world, uint32_t entry, uint32_t slot);

typedef struct TestCase
{
	const char *name;
	void		(*run) (void);
} TestCase;

extern const TestCase start_cases[];	/* protocol_test_start.c */
extern const TestCase channel_cases[];	/* protocol_test_channels.c */
extern const TestCase list_cases[];	/* protocol_test_lists.c */
extern const TestCase link_cases[];	/* protocol_test_links.c */
extern const TestCase set_cases[];	/* protocol_test_sets.c */
extern const TestCase program_cases[];	/* protocol_test_programs.c */
extern const TestCase several_cases[];	/* protocol_test_several.c */
extern const TestCase load_cases[];	/* protocol_test_load.c */
extern const TestCase fault_cases[];	/* protocol_test_faults.c */
extern const TestCase cycle_cases[];	/* protocol_test_cycles.c */
extern const TestCase step_cases[]; /* protocol_test_steps.c */
extern const TestCase thread_cases[];	/* protocol_test_threads.c */
extern const TestCase stall_cases[];	/* protocol_test_stall.c */

#endif							/* GPUANN_PROTOCOL_TEST_H */
