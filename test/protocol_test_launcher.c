/*
 * protocol_test_launcher.c
 *		The launcher's part of the test: makes the area, starts, reaps and
 *		sweeps after servers, keeps their log.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "protocol_test.h"
#include "server/server.h"

#define TEST_MEMORY_LIMIT	"2147483648"	/* a GPU's context and staging count too */
#define TEST_HANG_MS		"4000"

int64_t
now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void
pause_us(int64_t us)
{
	struct timespec pause = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&pause, NULL);
}

uint64_t
next_random(uint64_t *state)
{
	uint64_t	mixed = *state += UINT64_C(0x9E3779B97F4A7C15);

	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94D049BB133111EB);
	return mixed ^ mixed >> 31;
}

/* An area as the postmaster makes it. */
World *
world_make(uint32_t slots, uint32_t channels)
{
	World	   *world = calloc(1, sizeof(World));
	AreaHeader	layout;

	memset(&layout, 0, sizeof(layout));
	area_layout(&layout, slots, channels);
	world->area_fd = memfd_create("protocol_test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (world->area_fd < 0 || posix_fallocate(world->area_fd, 0, (off_t) layout.total_bytes) != 0 ||
		fcntl(world->area_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
	{
		perror("memfd");
		exit(1);
	}
	world->area =
		mmap(NULL, layout.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, world->area_fd, 0);
	if (world->area == MAP_FAILED)
	{
		perror("mmap");
		exit(1);
	}
	memcpy(world->area, &layout, sizeof(layout));
	atomic_store(&world->area->epoch, 1);
	world->death_fd = world->log_fd = -1;
	return world;
}

/* Close our ends of the server's pipes. */
static void
pipes_close(World *world)
{
	if (world->death_fd >= 0)
		close(world->death_fd);
	if (world->log_fd >= 0)
		close(world->log_fd);
	world->death_fd = world->log_fd = -1;
}

void
world_free(World *world)
{
	if (world->server != 0)
		server_kill(world);
	pipes_close(world);
	munmap(world->area, world->area->total_bytes);
	close(world->area_fd);
	free(world);
}

/* In the forked process: become the server. */
static void
server_become(World *world, int death_fd, int log_fd, const char *engine, const char *library)
{
	char		lock[100];

	snprintf(lock, sizeof(lock), "%s/lock", test_options.directory);
	dup2(log_fd, STDERR_FILENO);
	if (test_options.server != NULL && !world->arm.set && world->rest_ms == 0)
	{
		char		area[16];
		char		death[16];

		fcntl(world->area_fd, F_SETFD, 0);
		fcntl(death_fd, F_SETFD, 0);
		snprintf(area, sizeof(area), "%d", world->area_fd);
		snprintf(death, sizeof(death), "%d", death_fd);
		execl(test_options.server, SERVER_PROGRAM, "--area-fd", area, "--death-fd", death, "--lock",
			  lock, "--engine", engine, "--engine-library", library, "--memory-limit",
			  TEST_MEMORY_LIMIT, "--hang-ms", TEST_HANG_MS, NULL);
		dprintf(STDERR_FILENO, "FATAL: could not execute %s: %s\n", test_options.server,
				strerror(errno));
		_exit(127);
	}
	arm_process(&world->arm);
	_exit(server_main(&(ServerOptions) {
		.area_fd = world->area_fd,
		.death_fd = death_fd,
		.lock_path = lock,
		.engine = engine,
		.engine_library = library,
		.memory_limit = strtoull(TEST_MEMORY_LIMIT, NULL, 10),
		.hang_ms = world->rest_ms > 0 ? world->rest_ms * 4 : atoi(TEST_HANG_MS),
		.rest_ms = world->rest_ms,
		.wakers = world->rest_ms > 0 ? 2 : 0,
	}));
}

/*
 * Start a server; faults is the stub engine's setting, or NULL for the engine
 * of the options.
 */
void
server_start(World *world, const char *engine, const char *faults)
{
	const char *library = faults != NULL ? test_options.stub : test_options.engine_library;
	int			death[2];
	int			log[2];

	pipes_close(world);
	if (pipe2(death, O_CLOEXEC) != 0 || pipe2(log, O_CLOEXEC) != 0)
	{
		perror("pipe");
		exit(1);
	}
	world->logged = 0;
	world->log[0] = '\0';
	atomic_store(&world->area->server_state, SERVER_STARTING);
	world->server = fork();
	if (world->server == 0)
	{
		close(death[1]);
		setenv("GPUANN_STUB", faults != NULL ? faults : "", 1);
		server_become(world, death[0], log[1], engine, library != NULL ? library : "");
	}
	close(death[0]);
	close(log[1]);
	fcntl(log[0], F_SETFL, O_NONBLOCK);
	world->death_fd = death[1];
	world->log_fd = log[0];
	atomic_store(&world->area->server_pid, world->server);
}

bool
server_wait_ready(World *world)
{
	for (int64_t until = now_us() + LONG_MS * 1000; now_us() < until; pause_us(500))
	{
		if (atomic_load(&world->area->server_state) == SERVER_READY)
			return true;
		if (waitpid(world->server, NULL, WNOHANG) == world->server)
		{
			world->server = 0;
			return false;
		}
	}
	return false;
}

/* Start a server and wait until it is ready; false fails the case. */
bool
server_up(World *world, const char *faults)
{
	server_start(world, faults != NULL ? "cuda" : test_options.engine, faults);
	if (server_wait_ready(world))
		return true;
	(void) log_has(world, "nothing", 100);
	case_fails("the server did not become ready: %.200s", world->log);
	return false;
}

/* Wait for the server's end; its wait status, or -1 after ms. */
int
server_reap(World *world, int ms)
{
	int			status;

	for (int64_t until = now_us() + (int64_t) ms * 1000;; pause_us(500))
	{
		if (waitpid(world->server, &status, WNOHANG) == world->server)
		{
			world->server = 0;
			return status;
		}
		if (now_us() > until)
			return -1;
	}
}

/* What the launcher does when a server has died. */
void
server_sweep(World *world)
{
	AreaHeader *area = world->area;

	atomic_store(&area->server_state, SERVER_ABSENT);
	atomic_fetch_add(&area->epoch, 1);
	atomic_fetch_add(&area->restarts, 1);
	for (uint32_t slot = 0; slot < area->slots; slot++)
		(void) request_sweep(area_word(area, slot));
	for (uint32_t number = 0; number < area->channels; number++)
		channel_sweep(area_channel(area, number));
}

void
server_kill(World *world)
{
	if (world->server == 0)
		return;
	if (waitpid(world->server, NULL, WNOHANG) == world->server)
	{
		(void) log_has(world, "nothing", 10);
		case_fails("the server had died: %.300s", world->log);
		world->server = 0;
		server_sweep(world);
		return;
	}
	kill(world->server, SIGKILL);
	if (server_reap(world, LONG_MS) == -1)
		case_fails("a killed server did not end");
	server_sweep(world);
}

/* Whether the server logs a text within a time. */
bool
log_has(World *world, const char *text, int ms)
{
	for (int64_t until = now_us() + (int64_t) ms * 1000;; pause_us(1000))
	{
		ssize_t got =
			read(world->log_fd, world->log + world->logged, sizeof(world->log) - 1 - world->logged);

		if (got > 0)
			world->logged += (size_t) got;
		world->log[world->logged] = '\0';
		if (strstr(world->log, text) != NULL)
			return true;
		if (now_us() > until)
			return false;
	}
}
