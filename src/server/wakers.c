/*
 * wakers.c
 *		Threads that wake clients for the server's one.
 *
 * To wake a client is a system call, two microseconds where the rest of a
 * request is one. In a crowd that sleeps, answers come at that pace: so
 * everybody waits longer than looks and yields last (spin_wait.h), and sleeps;
 * while a crowd whose answers come soon does not sleep at all. With processors
 * enough the calls are made beside the server's thread, once several clients
 * had to be woken without a rest between: a few clients are woken sooner by the
 * thread that has their answers.
 *
 * Each has a ring of words, which the server's thread alone fills, and a bell,
 * the number of words put in so far: a waker sleeps on it with the value up to
 * which it has woken everybody, after it has said so; the server looks at that
 * after it has advanced the bell. So one of them sees the other. No word at all
 * tells it to end.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "server/server.h"
#include "server/spin_wait.h"

#define RING_WORDS		1024
#define LOOK_US			50		/* a waker looks for more so long before it sleeps */
#define CROWD_WAKES		8		/* clients woken without a rest between, from which on wakers do */
#define IDLE_MS			1000

struct Waker
{
	pthread_t	thread;
	_Atomic uint32_t bell;		/* words put in; only advanced, wraps around */
	_Atomic uint32_t woken;		/* of them */
	_Atomic uint32_t asleep;
	int			rest_ms;		/* the longest sleep */
	_Atomic uint32_t *words[RING_WORDS];
};

/* Wait for more than the words seen, looking for a while before sleeping. */
static void
waker_rest(Waker *waker, uint32_t seen)
{
	if (watch_look(&waker->bell, seen, LOOK_US))
		return;
	atomic_store(&waker->asleep, 1);
	area_futex_wait(&waker->bell, seen, waker->rest_ms);
	atomic_store(&waker->asleep, 0);
}

/* Wake whoever is put in, until told to end. */
static void *
waker_main(void *arg)
{
	Waker	   *waker = arg;

	for (uint32_t woken = 0;;)
	{
		uint32_t	bell = atomic_load(&waker->bell);

		if (woken == bell)
			waker_rest(waker, bell);
		for (; woken != bell; atomic_store(&waker->woken, ++woken))
		{
			if (waker->words[woken % RING_WORDS] == NULL)
				return NULL;
			area_futex_wake(waker->words[woken % RING_WORDS], 1);
			PROTOCOL_STEP(SERVER_WOKE);
		}
	}
}

/* Put a word into a waker's ring. False: it is full. */
static bool
waker_take(Waker *waker, _Atomic uint32_t *word)
{
	uint32_t	bell = atomic_load_explicit(&waker->bell, memory_order_relaxed);

	if (bell - atomic_load(&waker->woken) == RING_WORDS)
		return false;
	waker->words[bell % RING_WORDS] = word;
	atomic_store(&waker->bell, bell + 1);
	if (atomic_load(&waker->asleep) != 0)
		area_futex_wake(&waker->bell, 1);
	return true;
}

/* Start so many, or as many as can be had. Signals are blocked already. */
void
wakers_start(Server *server, uint32_t count)
{
	server->wakers = calloc(count, sizeof(Waker));
	for (; server->wakers != NULL && server->nwakers < count; server->nwakers++)
	{
		Waker	   *waker = &server->wakers[server->nwakers];

		waker->rest_ms = server->rest_ms > 0 ? server->rest_ms : IDLE_MS;
		if (pthread_create(&waker->thread, NULL, waker_main, waker) != 0)
			break;
	}
}

/* Let them wake whom they have, and end. */
void
wakers_stop(Server *server)
{
	for (uint32_t i = 0; i < server->nwakers; i++)
	{
		while (!waker_take(&server->wakers[i], NULL))
			(void) sched_yield();
		pthread_join(server->wakers[i].thread, NULL);
	}
	server->nwakers = 0;
	free(server->wakers);
	server->wakers = NULL;
}

/* Wake a client, or have it woken. */
void
client_wake(Server *server, _Atomic uint32_t *word)
{
	if (server->wakes < CROWD_WAKES)
		server->wakes++;
	else if (server->nwakers > 0 &&
			 waker_take(&server->wakers[server->next_waker++ % server->nwakers], word))
		return;
	area_futex_wake(word, 1);
	PROTOCOL_STEP(SERVER_WOKE);
}
