/*
 * start.c
 *		Start the server: check the area, take the lock, open the engine.
 *
 * The order matters: no device may be touched before the lock is held.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "server/server.h"
#include "server/spin_wait.h"
#include "engine/processors.h"

#define AREA_MAX_SLOTS	(1u << 20)
#define AREA_MAX_CHANNELS	4096
#define SPIN_IN_FLIGHT_US 300	/* about the duration of a GPU's batch */
#define WAKER_CPUS		16		/* with fewer processors, clients under load need all of them */
#define WAKERS			2

/* Whether an area's header has exactly the layout of this program. */
static bool
layout_is_ours(const AreaHeader *header)
{
	AreaHeader	ours;

	if (header->slots == 0 || header->slots > AREA_MAX_SLOTS ||
		header->channels > AREA_MAX_CHANNELS)
		return false;
	area_layout(&ours, header->slots, header->channels);
	return memcmp(header, &ours, offsetof(AreaHeader, channel_data_bytes)) == 0 &&
		   header->channel_data_bytes == ours.channel_data_bytes;
}

/*
 * Map the area and check it. Returns false, after logging, if it is not an area
 * of this protocol version.
 */
static bool
area_map(Server *server, int fd)
{
	struct stat st;
	AreaHeader *area;
	int			seals = fcntl(fd, F_GET_SEALS);

	if (fstat(fd, &st) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
		(size_t) st.st_size < sizeof(AreaHeader))
	{
		process_log("FATAL", "descriptor %d is not a sealed request area", fd);
		return false;
	}
	area = mmap(NULL, (size_t) st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (area == MAP_FAILED)
	{
		process_log("FATAL", "could not map the request area of %lld bytes: %s",
					(long long) st.st_size, strerror(errno));
		return false;
	}
	memcpy(&server->layout, area, sizeof(AreaHeader));
	if (server->layout.magic != AREA_MAGIC)
		process_log("FATAL", "descriptor %d is not a request area", fd);
	else if (server->layout.protocol_version != PROTOCOL_VERSION)
		process_log(
			"FATAL",
			"protocol version %u of the request area is not this server's, %u: PostgreSQL runs with another "
			"version of gpuann than is installed, restart it",
			server->layout.protocol_version, PROTOCOL_VERSION);
	else if (!layout_is_ours(&server->layout) ||
			 server->layout.total_bytes != (uint64_t) st.st_size)
		process_log("FATAL", "the request area of %lld bytes is not laid out as this server's",
					(long long) st.st_size);
	else
	{
		server->area = area;
		close(fd);
		return true;
	}
	munmap(area, (size_t) st.st_size);
	return false;
}

/*
 * Allocate zeroed memory whose pages are allocated at first use; exits if out
 * of memory.
 */
static void *
lazy_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
						MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
	{
		process_log("FATAL", "out of memory: %zu bytes for requests", bytes);
		exit(SERVER_EXIT_FAILED);
	}
#ifdef __SANITIZE_ADDRESS__
	/* Let the leak sanitizer scan this memory for references. */
	__lsan_register_root_region(memory, bytes);
#endif
	return memory;
}

/* Allocate per-slot, per-mirror and per-channel state. */
static void
server_allocate(Server *server)
{
	const AreaHeader *layout = &server->layout;

	server->mirrors = lazy_memory(layout->mirrors * sizeof(HeldMirror));
	server->sets = lazy_memory((size_t) layout->slots * REQUEST_SETS * sizeof(HeldSet));
	server->tickets = lazy_memory(layout->slots * sizeof(Ticket));
	server->results = lazy_memory((size_t) layout->slots * PAYLOAD_RESULTS * sizeof(SearchResult));
	server->programs = lazy_memory((size_t) layout->slots * PROGRAM_BYTES);
	server->posted = lazy_memory(layout->slots * sizeof(uint32_t));
	server->gathered = lazy_memory(layout->slots * sizeof(EngineQuery *));
	server->channels = lazy_memory((layout->channels + 1) * sizeof(ChannelWork));
	server->probes = lazy_memory(ENGINE_MAX_LISTS * sizeof(uint64_t));
	server->ready_first = server->ready_last = NO_ENTRY;
	for (uint32_t i = 0; i < layout->slots; i++)
		server->tickets[i].number = i;
	for (uint32_t i = 0; i < layout->channels; i++)
	{
		Ticket	   *tickets = lazy_memory(CHANNEL_PIECE * sizeof(Ticket));

		server->channels[i].search.tickets = tickets;
		for (uint32_t j = 0; j < CHANNEL_PIECE; j++)
		{
			tickets[j].number = i;
			tickets[j].of_channel = true;
		}
	}
}

/*
 * Set the area's last_error. Concurrent readers may see a partial text; they
 * limit what they read, and it is only for display.
 */
void
server_last_error(Server *server, const char *text)
{
	snprintf(server->area->last_error, sizeof(server->area->last_error), "%s", text);
}

/*
 * EngineConfig.wake: something became visible to poll. Called from any thread.
 */
static void
engine_wakes(void *arg)
{
	Server	   *server = arg;

	atomic_store(&server->woken, true);
	area_ring(server->area);
}

/* Open an engine. */
static EngineStatus
engine_open(Server *server, const EngineOps *ops, const ServerOptions *options, EngineError *error)
{
	EngineConfig config = {.device = -1,
						   .memory_limit = options->memory_limit,
						   .host_rows_limit = options->host_rows_limit,
						   .wake = engine_wakes,
						   .wake_arg = server};
	EngineStatus status;

	if (ops == NULL || ops->abi_version != ENGINE_ABI_VERSION)
		return engine_error(error, ENGINE_UNSUPPORTED,
							"engine interface version %u is not this server's, %u",
							ops == NULL ? 0 : ops->abi_version, ENGINE_ABI_VERSION);
	status = ops->open(&config, &server->engine, error);
	if (status == ENGINE_OK)
		server->ops = ops;
	return status;
}

/* Load the engine's shared object and open the engine. */
static EngineStatus
library_open(Server *server, const ServerOptions *options, EngineError *error)
{
	const char *path = options->engine_library;
	void	   *library;
	void	   *symbol;
	EngineEntry entry;

	if (path == NULL || *path == '\0')
		return engine_error(error, ENGINE_UNSUPPORTED, "no engine library is named");
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL)
		return engine_error(error, ENGINE_UNSUPPORTED, "could not load the engine library: %s",
							dlerror());
	symbol = dlsym(library, ENGINE_ENTRY_SYMBOL);
	if (symbol == NULL)
		return engine_error(error, ENGINE_UNSUPPORTED, "\"%.150s\" is not an engine", path);
	memcpy(&entry, &symbol, sizeof(entry));
	return engine_open(server, entry(), options, error);
}

/* Open the configured engine. "auto" uses the library too. */
static EngineStatus
engine_choose(Server *server, const ServerOptions *options, EngineError *error)
{
	if (strcmp(options->engine, "cpu") == 0)
		return engine_open(server, cpu_engine_ops(), options, error);
	return library_open(server, options, error);
}

/*
 * Report that no engine can be used, and set the server state. Returns the exit
 * status.
 */
static int
server_report_no_engine(Server *server, const ServerOptions *options, EngineError *error)
{
	char		text[sizeof(server->area->last_error)];

	error->text[sizeof(error->text) - 1] = '\0';
	if (strcmp(options->engine, "auto") == 0)
	{
		/* Not logged here: the launcher retries, and logs it once. */
		snprintf(text, sizeof(text), "no usable GPU is found: %s", error->text);
		server_last_error(server, text);
		atomic_store(&server->area->server_state, SERVER_NO_GPU);
		return SERVER_EXIT_NO_GPU;
	}
	server_last_error(server, error->text);
	atomic_store(&server->area->server_state, SERVER_FAILED);
	process_log("FATAL", "engine %s cannot be used: %s", options->engine, error->text);
	return SERVER_EXIT_NO_ENGINE;
}

/* Publish the engine's names and figures, then set SERVER_READY. */
static void
server_ready(Server *server, const ServerOptions *options)
{
	AreaHeader *area = server->area;
	EngineInfo	info;
	EngineMemory memory;
	long		cpus = processors_usable();

	memset(&info, 0, sizeof(info));
	memset(&memory, 0, sizeof(memory));
	server->ops->info(server->engine, &info);
	server->ops->memory(server->engine, &memory);
	info.name[sizeof(info.name) - 1] = '\0';
	info.device[sizeof(info.device) - 1] = '\0';
	memcpy(area->engine, info.name, sizeof(area->engine));
	memcpy(area->device, info.device, sizeof(area->device));
	server->processors = cpus;
	server->spin_us = spin_idle_us(0, cpus, 0);
	server->spin_in_flight_us = server->spin_us > 0 ? SPIN_IN_FLIGHT_US : 0;
	server->spin_max_in_flight = UINT32_MAX;
	if (strcmp(info.name, "cpu") == 0)
	{
		/*
		 * The CPU engine gains nothing from batches, and when several of its
		 * threads work the processors are needed for other things than
		 * spinning.
		 */
		server->launch_at_once = info.max_batch * 2;
		server->spin_max_in_flight = info.max_batch / 4;
	}
	memory_publish(server);
	wakers_start(server, options->wakers > 0 ? options->wakers : cpus >= WAKER_CPUS ? WAKERS : 0);
	atomic_store(&area->sleeping, 0);
	atomic_store(&area->server_state, SERVER_READY);
	PROTOCOL_STEP(SERVER_READY);
	process_log("LOG", "ready: engine %s on %s, memory limit %llu MB", info.name, info.device,
				(unsigned long long) (memory.limit >> 20));
}

/* Clean up after an earlier server, open the engine, serve. */
int
server_run(Server *server, const ServerOptions *options)
{
	EngineError error = {ENGINE_OK, ""};

	server->rest_ms = options->rest_ms;
	server->hang_ms = server_hang_ms(options);
	server_allocate(server);
	requests_sweep(server, true);
	channels_sweep(server, true);
	if (engine_choose(server, options, &error) != ENGINE_OK)
		return server_report_no_engine(server, options, &error);
	server_ready(server, options);
	return serve(server);
}

/* Run the server. Returns its exit status, or exits. */
int
server_main(const ServerOptions *options)
{
	static Server server;

	process_block_signals();
	process_close_descriptors(options->area_fd, options->death_fd);
	process_die_with_parent();
	if (!area_map(&server, options->area_fd))
		return SERVER_EXIT_REFUSED;
	process_watch(&server, options);
	process_take_lock(options->lock_path);
	return server_run(&server, options);
}
