/*
 * protocol_test_threads.c
 *		Server, clients, worker and launcher as threads of one process, so that
 *		the thread sanitizer sees all sides of the protocol.
 *
 * The code is what the programs are made of; only that nobody can be killed
 * here. The area is mapped once, for the sanitizer judges by address. Servers
 * end in order, and their successors find what a dead one leaves, by the
 * launcher's sweep.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol_test.h"
#include "server/server.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#define THREADS			8
#define SERVERS			4
#define ROWS			300
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REQUESTS_EACH	300		/* of each thread, under each server */
#else
#define REQUESTS_EACH	1500
#endif
#define ROWS_MAX		600

typedef struct Scene
{
	World	   *world;
	LoadStats  *stats;
	Load		load;
	Server	   *server;
	_Atomic uint32_t refused;	/* statuses of channels that are nobody's fault: the server went
								 * away */
} Scene;

typedef struct Part
{
	Scene	   *scene;
	uint32_t	number;
	pthread_t	thread;
} Part;

static void *
server_thread(void *arg)
{
	Scene	   *scene = arg;
	ServerOptions options = {.engine = test_options.engine,
							 .engine_library = test_options.engine_library,
							 .memory_limit = UINT64_C(1) << 30,
							 .wakers = 2};

#ifdef __SANITIZE_ADDRESS__
	/* What a server allocates goes with its process, which it has not here. */
	__lsan_disable();
#endif
	(void) server_run(scene->server, &options);
	return NULL;
}

static void *
client_thread(void *arg)
{
	Part	   *part = arg;

	load_client_main(part->scene->world->area, &part->scene->load, part->scene->stats, part->number,
					 part->number + 1);
	return NULL;
}

/* Searches through channels, some left early; channels come and go. */
static void *
channel_thread(void *arg)
{
	Part	   *part = arg;
	AreaHeader *area = part->scene->world->area;
	LoadStats  *stats = part->scene->stats;
	uint64_t	random = part->number;

	while (!atomic_load(&stats->stop))
	{
		int			number = channel_claim(area);
		Search		searches[10];
		uint32_t	count = 1 + (uint32_t) (next_random(&random) % 10);

		if (number < 0)
			continue;
		for (uint32_t i = 0; i < count; i++)
			search_random(&searches[i], area, 0, &random);
		if (next_random(&random) % 4 == 0)
			(void) channel_prepare(area, number, CHANNEL_LINK_FORGET, 0);
		else
			channel_fill_searches(area, number, searches, count);
		channel_post(area, number);
		if (next_random(&random) % 4 != 0 && channel_wait(area, number, LONG_MS) != ENGINE_OK)
			atomic_fetch_add(&part->scene->refused, 1);
		channel_release(area, number);
		pause_us((int64_t) (next_random(&random) % 500));
	}
	return NULL;
}

/*
 * What a mirror worker does: rows, deaths, links and seeds, while others
 * search.
 */
static void *
worker_thread(void *arg)
{
	Part	   *part = arg;
	AreaHeader *area = part->scene->world->area;
	uint32_t	rows = ROWS;

	while (!atomic_load(&part->scene->stats->stop))
	{
		int			number = channel_claim(area);

		if (number < 0)
			continue;
		if (rows + 3 <= ROWS_MAX && entry_append(area, number, 0, rows, 3) == ENGINE_OK)
			rows += 3;
		if (rows % 30 == 0)
		{
			(void) channel_prepare(area, number, CHANNEL_LINK, 0);
			(void) channel_call(area, number);
		}
		channel_release(area, number);
		pause_us(500);
	}
	return NULL;
}

/*
 * One server's life: its mirror is loaded, everybody is at work, it ends in the
 * middle of it.
 */
static void
server_life(Scene *scene, bool last)
{
	AreaHeader *area = scene->world->area;
	Part		parts[THREADS + 2];
	pthread_t	server;
	int64_t		until = now_us() + LONG_MS * 1000;

	scene->server = calloc(1, sizeof(Server));
	scene->server->area = area;
	memcpy(&scene->server->layout, area, offsetof(AreaHeader, epoch));
	atomic_store(&area->server_state, SERVER_STARTING);
	pthread_create(&server, NULL, server_thread, scene);
	while (atomic_load(&area->server_state) != SERVER_READY && now_us() < until)
		pause_us(500);
	if (atomic_load(&area->server_state) != SERVER_READY)
		case_fails("the server did not become ready");
	else if (entry_load(area, 0, ROWS))
	{
		atomic_store(&scene->stats->stop, 0);
		for (uint32_t i = 0; i < THREADS + 2; i++)
		{
			parts[i] = (Part) {.scene = scene, .number = i};
			pthread_create(&parts[i].thread, NULL,
						   i < THREADS	  ? client_thread
						   : i == THREADS ? channel_thread
										  : worker_thread,
						   &parts[i]);
		}
		/*
		 * The last server sees its clients out; the others leave theirs with
		 * requests on the way.
		 */
		if (!last)
		{
			uint32_t	posted = atomic_load(&scene->stats->posted);

			while (atomic_load(&scene->stats->posted) < posted + THREADS * REQUESTS_EACH / 2 &&
				   now_us() < until)
				pause_us(500);
			atomic_store(&scene->server->terminate, true);
			area_ring(area);
			pthread_join(server, NULL);
			server_sweep(scene->world);
			pause_us(5000);		/* some post to nobody */
			atomic_store(&scene->stats->stop, 1);
		}
		for (uint32_t i = 0; i < THREADS; i++)
			pthread_join(parts[i].thread, NULL);
		atomic_store(&scene->stats->stop, 1);
		pthread_join(parts[THREADS].thread, NULL);
		pthread_join(parts[THREADS + 1].thread, NULL);
	}
	if (last)
	{
		atomic_store(&scene->server->terminate, true);
		area_ring(area);
		pthread_join(server, NULL);
		server_sweep(scene->world);
	}
	free(scene->server);
}

static void
threads_race_for_nothing(void)
{
	Scene		scene = {.world = world_make(THREADS, 6), .stats = load_stats_make()};

	scene.load = (Load){.clients = THREADS,
						.requests = THREADS * REQUESTS_EACH,
						.cancel_one_in = 8,
						.timeout_us = 300000,
						.deaths = true};
	for (int i = 0; i < SERVERS && !case_failed(); i++)
		server_life(&scene, i == SERVERS - 1);
	load_judge(&scene.load, scene.stats);
	for (uint32_t slot = 0; slot < THREADS && !case_failed(); slot++)
		if (!slot_recover(scene.world->area, slot))
			case_fails("slot %u did not come free", slot);
	world_free(scene.world);
}

const TestCase thread_cases[] = {
	{"threads_race_for_nothing", threads_race_for_nothing},
	{NULL, NULL}
};
