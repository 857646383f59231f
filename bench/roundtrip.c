/*
 * roundtrip.c
 *		What the server adds to an engine's call, for one client: beside the
 *		bare futex round trip of the same run. And what it takes from a crowd.
 *
 * roundtrip [--engine-library FILE] [-n ROUNDS] [-r ROWS] [-d DIMS] [-c
 * "CLIENTS ..."] [-s SECONDS]
 *
 * Three things in turns, so that whatever else the machine does meets all of
 * them: two processes that wake each other by futex; the engine called in the
 * process, waiting for its wake-up as the server does; the same query through
 * gpuann-server's code in a process of its own. Medians over all rounds.
 * Without a library the CPU engine.
 *
 * With -c instead: so many processes do nothing but ask the server, each again
 * as soon as it has its answer. Round trips per second, and the processor time
 * of each, the server's and the clients'.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "server/transitions.h"
#include "server/server.h"
#include "server/spin_wait.h"
#include "../test/area.h"

#define TURN	200				/* of one thing, before the next one's turn */
#define SLOTS	1024			/* so the largest crowd */
#define CROWD_RESULTS	40		/* as many as a scan asks for */

typedef struct Options
{
	const char *library;
	uint32_t	rounds;
	uint32_t	rows;
	uint32_t	dims;
	const char *crowds;			/* numbers of clients; NULL: one client, compared */
	uint32_t	seconds;		/* of each crowd */
} Options;

typedef struct Bench
{
	Options		options;
	float	   *vectors;
	uint32_t   *versions;
	AreaHeader *area;
	int			area_fd;
	int			death[2];
	const EngineOps *ops;
	Engine	   *engine;
	MirrorId	mirror;
	_Atomic uint32_t woken;		/* by the engine called here */
	_Atomic uint32_t *ping;		/* two words in shared memory */
} Bench;

static void
die(const char *what)
{
	fprintf(stderr, "roundtrip: %s\n", what);
	exit(1);
}

static int64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- the bare round trip ---- */

/* The other side: answer each change of the first word by one of the second. */
static void
echo_main(_Atomic uint32_t *ping)
{
	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint32_t turn = 1;; turn++)
	{
		while (atomic_load(&ping[0]) != turn)
			area_futex_wait(&ping[0], turn - 1, AREA_WAIT_MS);
		atomic_store(&ping[16], turn);
		area_futex_wake(&ping[16], 1);
	}
}

static int64_t
bare_round(Bench *bench)
{
	uint32_t	turn = atomic_load(&bench->ping[0]) + 1;
	int64_t		begun = now_ns();

	atomic_store(&bench->ping[0], turn);
	area_futex_wake(&bench->ping[0], 1);
	while (atomic_load(&bench->ping[16]) != turn)
		area_futex_wait(&bench->ping[16], turn - 1, AREA_WAIT_MS);
	return now_ns() - begun;
}

/* ---- the engine, called here ---- */

static void
wake(void *arg)
{
	Bench	   *bench = arg;

	atomic_fetch_add(&bench->woken, 1);
	area_futex_wake(&bench->woken, 1);
}

/* Wait until a job is done. */
static void
job_await(Bench *bench, const EngineJob *job)
{
	JobProgress progress = {0};
	EngineError error;
	JobId		id;

	if (bench->ops->job_submit(bench->engine, job, &id, &error) != ENGINE_OK)
		die(error.text);
	while (bench->ops->job_poll(bench->engine, id, &progress) == ENGINE_OK && !progress.completed)
		usleep(100);
	bench->ops->job_release(bench->engine, id);
}

static MirrorSpec
mirror_spec(const Options *options)
{
	return (MirrorSpec){.dims = options->dims,
						.type = ELEMENT_FLOAT,
						.metric = METRIC_L2,
						.method = METHOD_GRAPH,
						.degree = 32,
						.capacity = options->rows,
						.residency = RESIDENCY_FULL,
						.placement = PLACEMENT_SINGLE,
						.device = -1};
}

/* Open the engine and load it. */
static void
engine_prepare(Bench *bench)
{
	EngineConfig config = {.device = -1, .wake = wake, .wake_arg = bench};
	MirrorSpec	spec = mirror_spec(&bench->options);
	EngineError error;

	bench->ops = cpu_engine_ops();
	if (bench->options.library != NULL)
	{
		void	   *library = dlopen(bench->options.library, RTLD_NOW | RTLD_LOCAL);
		void	   *symbol = library != NULL ? dlsym(library, ENGINE_ENTRY_SYMBOL) : NULL;
		EngineEntry entry;

		if (symbol == NULL)
			die("the library is not an engine");
		memcpy(&entry, &symbol, sizeof(entry));
		bench->ops = entry();
	}
	if (bench->ops->open(&config, &bench->engine, &error) != ENGINE_OK ||
		bench->ops->mirror_create(bench->engine, &spec, &bench->mirror, &error) != ENGINE_OK)
		die(error.text);
	job_await(bench, &(EngineJob){.kind = JOB_APPEND,
								  .mirror = bench->mirror,
								  .count = bench->options.rows,
								  .versions = bench->versions,
								  .vectors = bench->vectors});
	job_await(bench,
			  &(EngineJob){.kind = JOB_LINK, .mirror = bench->mirror, .ef_construction = 64});
}

static int64_t
engine_round(Bench *bench, const float *vector)
{
	SearchResult results[10];
	EngineQuery query = {.mirror = bench->mirror,
						 .method = METHOD_GRAPH,
						 .k = 10,
						 .ef = 10,
						 .lone = true,
						 .vector = vector,
						 .results = results};
	EngineQuery *queries[1] = {&query};
	EngineQuery *completed;
	EngineError error;
	uint32_t	count = 0;
	int64_t		begun = now_ns();

	if (bench->ops->submit(bench->engine, queries, 1, &error) != ENGINE_OK)
		die(error.text);
	for (;;)
	{
		uint32_t	seen = atomic_load(&bench->woken);

		if (bench->ops->poll(bench->engine, &completed, 1, &count, &error) != ENGINE_OK)
			die(error.text);
		if (count == 1)
			return now_ns() - begun;
		area_futex_wait(&bench->woken, seen, AREA_WAIT_MS);
	}
}

/* ---- through the server ---- */

/* Make the area and a server that serves it. */
static pid_t
server_start(Bench *bench)
{
	AreaHeader	layout;
	pid_t		pid;

	memset(&layout, 0, sizeof(layout));
	area_layout(&layout, SLOTS, 2);
	bench->area_fd = memfd_create("roundtrip", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (bench->area_fd < 0 || posix_fallocate(bench->area_fd, 0, (off_t) layout.total_bytes) != 0 ||
		fcntl(bench->area_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0 ||
		pipe(bench->death) != 0)
		die("no shared memory");
	bench->area =
		mmap(NULL, layout.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bench->area_fd, 0);
	if (bench->area == MAP_FAILED)
		die("no shared memory");
	memcpy(bench->area, &layout, sizeof(layout));
	atomic_store(&bench->area->epoch, 1);
	pid = fork();
	if (pid == 0)
	{
		char		lock[] = "/tmp/roundtrip.XXXXXX";
		int			fd = mkstemp(lock);

		close(fd);
		close(bench->death[1]);
		_exit(
			server_main(&(ServerOptions){.area_fd = bench->area_fd,
										 .death_fd = bench->death[0],
										 .lock_path = lock,
										 .engine = bench->options.library != NULL ? "cuda" : "cpu",
										 .engine_library = bench->options.library}));
	}
	while (atomic_load(&bench->area->server_state) != SERVER_READY)
		if (waitpid(pid, NULL, WNOHANG) != 0)
			die("the server did not start");
	return pid;
}

/* Post what a channel holds, and wait. */
static void
channel_await(Bench *bench, AreaChannel *channel)
{
	channel_post_word(bench->area, channel);
	while (request_state(atomic_load(&channel->state)) != REQUEST_DONE)
		area_futex_wait(&channel->state, atomic_load(&channel->state), AREA_WAIT_MS);
	if (channel->status != ENGINE_OK)
		die(channel->error);
	(void) request_leave(&channel->state);
}

/* Begin an operation of a channel. */
static AreaChannel *
channel_begin(Bench *bench, ChannelOp op)
{
	AreaChannel   *channel = area_channel(bench->area, 0);

	memset((char *) channel + offsetof(AreaChannel, request), 0,
		   sizeof(AreaChannel) - offsetof(AreaChannel, request));
	channel->request.op = op;
	return channel;
}

/* Load the server's mirror: what the engine called here has. */
static void
server_load(Bench *bench)
{
	uint32_t	vector_bytes = bench->options.dims * (uint32_t) sizeof(float);
	uint32_t most =
		(uint32_t) ((CHANNEL_DATA_BYTES - AREA_ALIGN) / (vector_bytes + sizeof(uint32_t)));
	AreaChannel   *channel = channel_begin(bench, CHANNEL_CREATE);

	channel->request.spec = mirror_spec(&bench->options);
	channel_await(bench, channel);
	for (uint32_t first = 0; first < bench->options.rows; first += most)
	{
		uint32_t	count = bench->options.rows - first < most ? bench->options.rows - first : most;
		unsigned char *data = area_channel_data(bench->area, 0);

		channel = channel_begin(bench, CHANNEL_APPEND);
		channel->request.first_slot = first;
		channel->request.count = count;
		channel->request.body_offset = area_align(count * sizeof(uint32_t));
		memcpy(data, bench->versions + first, count * sizeof(uint32_t));
		memcpy(data + channel->request.body_offset,
			   bench->vectors + (size_t) first * bench->options.dims,
			   (size_t) count * vector_bytes);
		channel_await(bench, channel);
	}
	channel = channel_begin(bench, CHANNEL_LINK);
	channel->request.ef_construction = 64;
	channel_await(bench, channel);
}

/* Ask through a request slot for the k nearest, and wait. */
static int64_t
server_round(Bench *bench, uint32_t slot, uint32_t k, const float *vector)
{
	RequestPayload *payload = area_payload(bench->area, slot);
	_Atomic uint32_t *word = area_word(bench->area, slot);
	static WordWatch watch;
	int64_t		begun = now_ns();
	uint32_t	generation;
	uint32_t	value;

	payload->mirror = 0;
	payload->mirror_generation = 0;
	payload->query.method = METHOD_GRAPH;
	payload->query.k = payload->query.ef = k;
	payload->query.vector_bytes = bench->options.dims * (uint32_t) sizeof(float);
	payload->query.has_beyond = 0;
	payload->posted_us = begun / 1000;
	atomic_store_explicit(&payload->asleep, 0, memory_order_relaxed);
	memcpy(payload->vector, vector, payload->query.vector_bytes);
	generation = request_post(bench->area, word);
	while (request_look(value = atomic_load(word), generation) == LOOK_PENDING)
		if (!word_watch(&watch, word, value, 1))
			request_sleep(word, value, payload, AREA_WAIT_MS);
	if (payload->status != ENGINE_OK || payload->count != k)
		die("the server did not answer");
	(void) request_leave(word);
	return now_ns() - begun;
}

/* ---- the measurement ---- */

static int
compare(const void *a, const void *b)
{
	int64_t		x = *(const int64_t *) a;
	int64_t		y = *(const int64_t *) b;

	return x < y ? -1 : x > y;
}

/* The q-quantile in microseconds; sorts. */
static double
quantile(int64_t *times, uint32_t count, double q)
{
	qsort(times, count, sizeof(int64_t), compare);
	return (double) times[(uint32_t) ((count - 1) * q)] / 1000.0;
}

static void
measure(Bench *bench)
{
	uint32_t	rounds = bench->options.rounds;
	int64_t    *bare = calloc(rounds, sizeof(int64_t));
	int64_t    *engine = calloc(rounds, sizeof(int64_t));
	int64_t    *server = calloc(rounds, sizeof(int64_t));
	double		added;

	if (bare == NULL || engine == NULL || server == NULL)
		die("out of memory");
	for (uint32_t begin = 0; begin < rounds; begin += TURN)
	{
		uint32_t	end = begin + TURN < rounds ? begin + TURN : rounds;

		for (uint32_t i = begin; i < end; i++)
			bare[i] = bare_round(bench);
		for (uint32_t i = begin; i < end; i++)
			engine[i] = engine_round(bench, bench->vectors + (size_t) (i % bench->options.rows) *
																 bench->options.dims);
		for (uint32_t i = begin; i < end; i++)
			server[i] = server_round(bench, 0, 10,
									 bench->vectors +
										 (size_t) (i % bench->options.rows) * bench->options.dims);
	}
	added = quantile(server, rounds, 0.5) - quantile(engine, rounds, 0.5);
	printf(
		"| engine | rows x dims | futex round trip | engine, called | through the server | added | added / round trip |\n");
	printf("|---|---|---|---|---|---|---|\n");
	printf(
		"| %s | %u x %u | %.1f us (p99 %.1f) | %.1f us (p99 %.1f) | %.1f us (p99 %.1f) | %.1f us | %.2f |\n",
		bench->area->engine, bench->options.rows, bench->options.dims, quantile(bare, rounds, 0.5),
		quantile(bare, rounds, 0.99), quantile(engine, rounds, 0.5), quantile(engine, rounds, 0.99),
		quantile(server, rounds, 0.5), quantile(server, rounds, 0.99), added,
		added / quantile(bare, rounds, 0.5));
	free(bare);
	free(engine);
	free(server);
}

/* ---- a crowd ---- */

typedef struct CrowdMember
{
	pid_t		pid;
	_Atomic uint64_t rounds __attribute__((aligned(AREA_ALIGN)));
} CrowdMember;

/* Ask until killed. */
static void
crowd_client(Bench *bench, uint32_t slot, _Atomic uint64_t *rounds)
{
	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint32_t i = slot;; i++)
	{
		(void) server_round(bench, slot, CROWD_RESULTS,
							bench->vectors +
								(size_t) (i % bench->options.rows) * bench->options.dims);
		atomic_fetch_add_explicit(rounds, 1, memory_order_relaxed);
	}
}

/* Nanoseconds of processor time that a process has had. */
static int64_t
processor_ns(pid_t pid)
{
	struct timespec used;
	clockid_t	clock;

	if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
		die("a process has ended");
	return (int64_t) used.tv_sec * 1000000000 + used.tv_nsec;
}

/*
 * What a crowd has done so far: requests, batches, and processor time of the
 * clients and of the server.
 */
typedef struct CrowdTally
{
	double		rounds;
	double		batches;
	double		clients_ns;
	double		server_ns;
	double		now_ns;
} CrowdTally;

static CrowdTally
crowd_tally(Bench *bench, const CrowdMember *members, uint32_t count, pid_t server)
{
	CrowdTally tally = {.batches = (double) atomic_load(&bench->area->batches),
						.server_ns = (double) processor_ns(server),
						.now_ns = (double) now_ns()};

	for (uint32_t i = 0; i < count; i++)
	{
		tally.rounds += (double) atomic_load(&members[i].rounds);
		tally.clients_ns += (double) processor_ns(members[i].pid);
	}
	return tally;
}

/*
 * Measure a crowd. Its clients are killed, and their slots come free when the
 * server has looked.
 */
static void
crowd_measure(Bench *bench, uint32_t count, pid_t server)
{
	CrowdMember *members = mmap(NULL, count * sizeof(CrowdMember), PROT_READ | PROT_WRITE,
								MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CrowdTally	before;
	CrowdTally	after;
	double		rounds;

	if (members == MAP_FAILED)
		die("no shared memory");
	for (uint32_t i = 0; i < count; i++)
	{
		pid_t		pid = fork();

		if (pid < 0)
			die("no process");
		if (pid == 0)
			crowd_client(bench, i, &members[i].rounds);
		members[i].pid = pid;
	}
	sleep(1);
	before = crowd_tally(bench, members, count, server);
	sleep(bench->options.seconds);
	after = crowd_tally(bench, members, count, server);
	for (uint32_t i = 0; i < count; i++)
		kill(members[i].pid, SIGKILL);
	for (uint32_t i = 0; i < count; i++)
		waitpid(members[i].pid, NULL, 0);
	for (uint32_t i = 0; i < count; i++)
		while (!request_leave(area_word(bench->area, i)))
			usleep(1000);
	rounds = after.rounds - before.rounds;
	printf("| %s | %u | %.0f | %.1f | %.2f us | %.2f us |\n", bench->area->engine, count,
		   rounds * 1e9 / (after.now_ns - before.now_ns), rounds / (after.batches - before.batches),
		   (after.server_ns - before.server_ns) / rounds / 1000,
		   (after.clients_ns - before.clients_ns) / rounds / 1000);
	munmap(members, count * sizeof(CrowdMember));
}

/* Measure each crowd of a list. */
static void
crowds_measure(Bench *bench, pid_t server)
{
	const char *rest = bench->options.crowds;
	char	   *end;

	printf(
		"| engine | clients | round trips/s | queries of a batch | server, each | client, each |\n|---|---|---|---|---|---|\n");
	for (;; rest = end)
	{
		unsigned long count = strtoul(rest, &end, 10);

		if (end == rest)
			return;
		if (count < 1 || count > SLOTS)
			die("too small a crowd, or too large");
		crowd_measure(bench, (uint32_t) count, server);
		fflush(stdout);
	}
}

/* Make rows of random numbers. */
static void
rows_make(Bench *bench)
{
	size_t		elements = (size_t) bench->options.rows * bench->options.dims;
	uint64_t	random = 1;

	bench->vectors = calloc(elements, sizeof(float));
	bench->versions = calloc(bench->options.rows, sizeof(uint32_t));
	if (bench->vectors == NULL || bench->versions == NULL)
		die("out of memory");
	for (size_t i = 0; i < elements; i++)
	{
		random = random * UINT64_C(6364136223846793005) + 1;
		bench->vectors[i] = (float) (random >> 40) / (float) (1 << 24);
	}
}

int
main(int argc, char **argv)
{
	static Bench bench = {.options = {.rounds = 20000, .rows = 1000, .dims = 128, .seconds = 3}};
	pid_t		echo;
	pid_t		server;

	for (int i = 1; i + 1 < argc; i += 2)
	{
		if (strcmp(argv[i], "--engine-library") == 0)
			bench.options.library = realpath(argv[i + 1], NULL);
		else if (strcmp(argv[i], "-n") == 0)
			bench.options.rounds = (uint32_t) atoi(argv[i + 1]);
		else if (strcmp(argv[i], "-r") == 0)
			bench.options.rows = (uint32_t) atoi(argv[i + 1]);
		else if (strcmp(argv[i], "-d") == 0)
			bench.options.dims = (uint32_t) atoi(argv[i + 1]);
		else if (strcmp(argv[i], "-c") == 0)
			bench.options.crowds = argv[i + 1];
		else if (strcmp(argv[i], "-s") == 0)
			bench.options.seconds = (uint32_t) atoi(argv[i + 1]);
		else
			die("usage: roundtrip [--engine-library FILE] [-n ROUNDS] [-r ROWS] [-d DIMS] [-c \"CLIENTS ...\"] [-s SECONDS]");
	}
	if (bench.options.rounds < 1 || bench.options.rows < 10 || bench.options.dims < 1 ||
		bench.options.dims > PAYLOAD_VECTOR / 4)
		die("too little to measure, or too large");
	bench.ping = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (bench.ping == MAP_FAILED)
		die("no shared memory");
	rows_make(&bench);
	/* Both before the engine here has threads. */
	server = server_start(&bench);
	echo = fork();
	if (echo == 0)
		echo_main(bench.ping);
	server_load(&bench);
	if (bench.options.crowds != NULL)
		crowds_measure(&bench, server);
	else
	{
		engine_prepare(&bench);
		measure(&bench);
	}
	kill(echo, SIGKILL);
	kill(server, SIGTERM);
	waitpid(echo, NULL, 0);
	waitpid(server, NULL, 0);
	return 0;
}
