/*
 * wakers.c
 *		Threads that wake clients on behalf of the main thread.
 *
 * Waking a client is a system call of two microseconds, while the rest of a
 * request takes one. If many clients sleep, answers come at the rate of these
 * calls, so each client waits longer than it spins (spin_wait.h) and sleeps
 * again, although clients that get their answers sooner would not sleep at all.
 * With enough processors the calls are made in parallel to the main thread,
 * after it has woken DIRECT_WAKES clients without sleeping in between. A few
 * clients are woken sooner by the main thread itself.
 *
 * Each waker has a ring of words, which only the main thread fills, and a bell,
 * the number of words put in so far. The waker sets `asleep` and sleeps on the
 * bell with the value up to which it has woken clients; the main thread
 * advances the bell, then reads `asleep`. So one of them sees the other's
 * write. A NULL word tells the waker to exit.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "server/server.h"
#include "server/spin_wait.h"

#define RING_WORDS		1024
#define SPIN_US			50		/* a waker spins this long before it sleeps */
#define DIRECT_WAKES	8		/* clients that the main thread wakes itself, between two sleeps */
#define IDLE_MS			1000

struct Waker
{
	pthread_t	thread;
	_Atomic uint32_t bell;		/* number of words put in; wraps around */
	_Atomic uint32_t woken;		/* number of words processed */
	_Atomic uint32_t asleep;
	int			rest_ms;		/* longest sleep */
	_Atomic uint32_t *words[RING_WORDS];
};

/* Wait until the bell differs from `seen`: spin, then sleep. */
static void
waker_sleep(Waker *waker, uint32_t seen)
{
	if (spin_until_changed(&waker->bell, seen, SPIN_US))
		return;
	atomic_store(&waker->asleep, 1);
	area_futex_wait(&waker->bell, seen, waker->rest_ms);
	atomic_store(&waker->asleep, 0);
}

/* Main function of a waker: wake clients until told to exit. */
static void *
waker_main(void *arg)
{
	Waker	   *waker = arg;

	for (uint32_t woken = 0;;)
	{
		uint32_t	bell = atomic_load(&waker->bell);

		if (woken == bell)
			waker_sleep(waker, bell);
		for (; woken != bell; atomic_store(&waker->woken, ++woken))
		{
			if (waker->words[woken % RING_WORDS] == NULL)
				return NULL;
			area_futex_wake(waker->words[woken % RING_WORDS], 1);
			PROTOCOL_STEP(SERVER_WOKE);
		}
	}
}

/* Put a word into a waker's ring. Returns false if the ring is full. */
static bool
waker_push(Waker *waker, _Atomic uint32_t *word)
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

/*
 * Start `count` wakers, or as many as possible. Signals must be blocked
 * already.
 */
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

/* Let the wakers process their rings, and end them. */
void
wakers_stop(Server *server)
{
	for (uint32_t i = 0; i < server->nwakers; i++)
	{
		while (!waker_push(&server->wakers[i], NULL))
			(void) sched_yield();
		pthread_join(server->wakers[i].thread, NULL);
	}
	server->nwakers = 0;
	free(server->wakers);
	server->wakers = NULL;
}

/* Wake a client, directly or by a waker. */
void
client_wake(Server *server, _Atomic uint32_t *word)
{
	if (server->wakes < DIRECT_WAKES)
		server->wakes++;
	else if (server->nwakers > 0 &&
			 waker_push(&server->wakers[server->next_waker++ % server->nwakers], word))
		return;
	area_futex_wake(word, 1);
	PROTOCOL_STEP(SERVER_WOKE);
}
