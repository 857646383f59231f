/*
 * protocol_test_start.c
 *		How a server starts, refuses and ends.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "protocol_test.h"

/* Whether a wait status is an exit with a code. */
static bool
exited(int status, int code)
{
	return status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static void
server_says_what_it_is(void)
{
	World	   *world = world_make(4, 2);

	if (server_up(world, NULL))
	{
		if (world->area->engine[0] == '\0' || world->area->device[0] == '\0')
			case_fails("engine or device is not named");
		if (atomic_load(&world->area->memory_limit) == 0)
			case_fails("the memory limit is not published");
		if (!log_has(world, "LOG: ready", LONG_MS))
			case_fails("the log does not say that it is ready: %.200s", world->log);
	}
	world_free(world);
}

static void
other_protocol_version_is_refused(void)
{
	World	   *world = world_make(4, 2);

	world->area->protocol_version = PROTOCOL_VERSION + 1;
	server_start(world, test_options.engine, NULL);
	if (!exited(server_reap(world, LONG_MS), SERVER_EXIT_REFUSED))
		case_fails("the server did not exit with SERVER_EXIT_REFUSED");
	else if (!log_has(world, "FATAL: protocol version", LONG_MS))
		case_fails("the log does not say why: %.200s", world->log);
	else if (atomic_load(&world->area->server_state) == SERVER_READY)
		case_fails("the server says it is ready");
	world_free(world);
}

/* Start a server on a broken area and expect that it refuses. */
static void
expect_refusal(World *world, const char *what)
{
	server_start(world, test_options.engine, NULL);
	if (!exited(server_reap(world, LONG_MS), SERVER_EXIT_REFUSED))
		case_fails("%s was not refused", what);
	if (world->server != 0)
		server_kill(world);
}

static void
broken_area_is_refused(void)
{
	World	   *world = world_make(4, 2);
	AreaHeader	good = *world->area;
	int			fd;

	world->area->magic++;
	expect_refusal(world, "wrong magic");
	*world->area = good;
	world->area->slots = 0x7fffffff;
	expect_refusal(world, "a huge number of slots");
	*world->area = good;
	world->area->channel_stride += 64;
	expect_refusal(world, "another stride");
	*world->area = good;
	world->area->list_counts_offset += 64;
	expect_refusal(world, "counts of lists elsewhere");
	*world->area = good;
	world->area->channels++;
	expect_refusal(world, "more channels than there is room for");
	*world->area = good;
	world->area->total_bytes += 4096;
	expect_refusal(world, "another size");
	*world->area = good;

	fd = world->area_fd;
	world->area_fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (ftruncate(world->area_fd, (off_t) good.total_bytes) == 0)
		expect_refusal(world, "an unsealed area");
	close(world->area_fd);
	world->area_fd = fd;
	if (!case_failed() && server_up(world, NULL) && !entry_load(world->area, 0, 10))
		case_fails("the good area does not work");
	world_free(world);
}

static void
missing_engine_ends_with_a_reason(void)
{
	World	   *world = world_make(4, 2);
	const char *stub = test_options.stub;

	test_options.stub = "/nonexistent/engine.so";
	server_start(world, "cuda", "");
	if (!exited(server_reap(world, LONG_MS), SERVER_EXIT_NO_ENGINE))
		case_fails("the server did not exit with SERVER_EXIT_NO_ENGINE");
	else if (atomic_load(&world->area->server_state) != SERVER_FAILED ||
			 strstr(world->area->last_error, "/nonexistent/engine.so") == NULL)
		case_fails("last_error does not say why: %.200s", world->area->last_error);
	test_options.stub = stub;
	world_free(world);
}

/* Whether `cuda` refuses a stub with a fault, and says so. */
static void
expect_no_engine(const char *fault, const char *reason)
{
	World	   *world = world_make(4, 2);

	server_start(world, "cuda", fault);
	if (!exited(server_reap(world, LONG_MS), SERVER_EXIT_NO_ENGINE))
		case_fails("with %s the server did not exit with SERVER_EXIT_NO_ENGINE", fault);
	else if (strstr(world->area->last_error, reason) == NULL)
		case_fails("with %s last_error is: %.200s", fault, world->area->last_error);
	world_free(world);
}

static void
unusable_engine_ends_with_a_reason(void)
{
	expect_no_engine("open_fails=1", "no device");
	expect_no_engine("abi=77", "interface version 77");
}

static void
auto_without_a_gpu_is_no_server(void)
{
	World	   *world = world_make(4, 2);

	server_start(world, "auto", "open_fails=1");
	if (!exited(server_reap(world, LONG_MS), SERVER_EXIT_NO_GPU))
		case_fails("the server did not exit with SERVER_EXIT_NO_GPU");
	else if (atomic_load(&world->area->server_state) != SERVER_NO_GPU)
		case_fails("the state is %u", atomic_load(&world->area->server_state));
	else if (strstr(world->area->last_error,
					"no usable GPU is found: the stub was told to have no device") == NULL)
		case_fails("last_error does not say why: %.200s", world->area->last_error);
	else if (world->log[0] != '\0')
		case_fails("it logs what the launcher is going to say: %.200s", world->log);
	world_free(world);
}

static void
second_server_waits_for_the_first(void)
{
	World	   *first = world_make(4, 2);
	World	   *second = world_make(4, 2);

	if (server_up(first, NULL))
	{
		server_start(second, test_options.engine, NULL);
		if (!log_has(second, "waiting for an older server", LONG_MS))
			case_fails("the second server does not say that it waits");
		pause_us(300000);
		if (atomic_load(&second->area->server_state) == SERVER_READY)
			case_fails("two servers are ready at once");
		server_kill(first);
		if (!server_wait_ready(second))
			case_fails("the second server did not follow the first");
	}
	world_free(second);
	world_free(first);
}

static void
terminate_is_quick_and_orderly(void)
{
	World	   *world = world_make(4, 2);

	for (int round = 0; round < 5 && !case_failed(); round++)
	{
		int64_t		begun;

		if (!server_up(world, NULL))
			break;
		if (round > 0)
			(void) entry_load(world->area, 0, 1000);
		pause_us(round * 13000);
		begun = now_us();
		kill(world->server, SIGTERM);
		if (!exited(server_reap(world, LONG_MS), 0))
			case_fails("the server did not exit with 0");
		/* 100 ms, and what a slow and loaded machine may add */
		else if (now_us() - begun > 4000000)
			case_fails("the end took %lld ms", (long long) (now_us() - begun) / 1000);
		server_sweep(world);
	}
	world_free(world);
}

static void
other_signals_do_nothing(void)
{
	static const int signals[] = {SIGHUP,  SIGINT,	SIGQUIT, SIGPIPE, SIGUSR1,
								  SIGUSR2, SIGALRM, SIGCHLD, SIGWINCH};
	World	   *world = world_make(4, 2);

	if (server_up(world, NULL))
	{
		for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
			kill(world->server, signals[i]);
		pause_us(20000);
		if (!entry_load(world->area, 0, 10))
			case_fails("the server does not work after signals");
	}
	world_free(world);
}

/*
 * Start a server with a fault, have it hang, and see whether the closed death
 * pipe ends it.
 */
static void
death_pipe_ends_even_a_hung_server(void)
{
	World	   *world = world_make(4, 2);
	uint64_t	random = 1;
	Client		client;
	Search		search;
	Answer		answer;

	if (server_up(world, "hang_after=1") && entry_load(world->area, 0, 10))
	{
		client_begin(&client, world->area, 0);
		search_random(&search, world->area, 0, &random);
		if (client_search(&client, &search, 100000, &answer) != OUTCOME_TIMEOUT)
			case_fails("a hung engine answered");
		close(world->death_fd);
		world->death_fd = -1;
		/* Before it would be found out. */
		if (server_reap(world, 3000) == -1)
			case_fails("the server outlived its launcher's pipe");
	}
	world_free(world);
}

static void
terminate_ends_even_a_hung_server(void)
{
	World	   *world = world_make(4, 2);
	uint64_t	random = 1;
	Client		client;
	Search		search;
	Answer		answer;

	if (server_up(world, "hang_after=1") && entry_load(world->area, 0, 10))
	{
		client_begin(&client, world->area, 0);
		search_random(&search, world->area, 0, &random);
		(void) client_search(&client, &search, 50000, &answer);
		kill(world->server, SIGTERM);
		if (server_reap(world, 3000) == -1)
			case_fails("SIGTERM does not end a hung server");
	}
	world_free(world);
}

/*
 * Whether a process has ended. Whoever should reap it may be slow: a zombie has
 * ended.
 */
static bool
process_ended(pid_t pid)
{
	char		path[40];
	char		text[200] = "";
	int			fd;
	bool		zombie;

	if (kill(pid, 0) != 0)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return true;
	zombie = read(fd, text, sizeof(text) - 1) <= 0 || strstr(text, ") Z") != NULL;
	close(fd);
	return zombie;
}

static void
server_dies_with_its_parent(void)
{
	World	   *world = world_make(4, 2);
	int			hold[2];
	pid_t		parent;
	pid_t		orphan;
	int64_t		until;

	if (pipe2(hold, O_CLOEXEC) != 0)
		case_fails("no pipe");
	parent = fork();
	if (parent == 0)
	{
		char		byte;

		/*
		 * A launcher that is killed; its end of the death pipe outlives it in a
		 * child, until we let that go.
		 */
		close(hold[1]);
		server_start(world, test_options.engine, NULL);
		(void) server_wait_ready(world);
		if (fork() == 0)
			_exit(read(hold[0], &byte, 1) != 0);
		kill(getpid(), SIGKILL);
	}
	close(hold[0]);
	waitpid(parent, NULL, 0);
	orphan = atomic_load(&world->area->server_pid);
	until = now_us() + LONG_MS * 1000;
	while (!process_ended(orphan) && now_us() < until)
		pause_us(1000);
	if (!process_ended(orphan))
		case_fails("the server lives without its launcher");
	close(hold[1]);
	world_free(world);
}

const TestCase start_cases[] = {
	{"server_says_what_it_is", server_says_what_it_is},
	{"other_protocol_version_is_refused", other_protocol_version_is_refused},
	{"broken_area_is_refused", broken_area_is_refused},
	{"missing_engine_ends_with_a_reason", missing_engine_ends_with_a_reason},
	{"unusable_engine_ends_with_a_reason", unusable_engine_ends_with_a_reason},
	{"auto_without_a_gpu_is_no_server", auto_without_a_gpu_is_no_server},
	{"second_server_waits_for_the_first", second_server_waits_for_the_first},
	{"terminate_is_quick_and_orderly", terminate_is_quick_and_orderly},
	{"other_signals_do_nothing", other_signals_do_nothing},
	{"death_pipe_ends_even_a_hung_server", death_pipe_ends_even_a_hung_server},
	{"terminate_ends_even_a_hung_server", terminate_ends_even_a_hung_server},
	{"server_dies_with_its_parent", server_dies_with_its_parent},
	{NULL, NULL}
};
