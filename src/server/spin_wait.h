/*
 * spin_wait.h
 *		Spin on a word before sleeping on it. Shared by PostgreSQL, tests and
 *		benchmarks.
 *
 * A sleep and a wake-up cost two system calls and two context switches, and
 * half of the calls would be made by the server's main thread. So a client
 * first spins for some microseconds, then yields the processor a few times and
 * checks the word after each, and only then sleeps. Under load most answers
 * arrive by then. Spinning is useless if answers take long: after several
 * attempts without success it is only tried occasionally, until it succeeds
 * again.
 */
#ifndef GPUANN_SERVER_SPIN_WAIT_H
#define GPUANN_SERVER_SPIN_WAIT_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "engine/processors.h"

#define WATCH_LOOK_US		5	/* duration of spinning */
#define WATCH_LOOKS			10	/* polls between two reads of the clock */
#define WATCH_YIELDS		4	/* number of sched_yield calls */
#define WATCH_ALONE_US		2	/* a yield shorter than this found no other runnable process, and is
								 * not counted ... */
#define WATCH_IDLE_US		40	/* ... for this long ... */
#define WATCH_IDLE_FROM		8	/* ... on machines with at least this many processors */
#define WATCH_CREDIT		8	/* consecutive failures before attempts become rare */
#define WATCH_REWARD		2	/* credit for a success, which saves a little more than a failure
								 * costs */
#define WATCH_SELDOM_LOOK	32	/* then one wait in this many spins */
#define WATCH_SELDOM_YIELD	4	/* and one in this many yields: a yield costs hardly more than the
								 * sleep it may save. If it were rarer, clients that all sleep would
								 * never start to spin again */

/* How often a method has succeeded in this process; initially zero. */
typedef struct WatchCredit
{
	int			spent;			/* consecutive failures less rewards, up to SPIN_WAIT_CREDIT */
	uint32_t	passed;			/* waits without credit */
} WatchCredit;

typedef struct WordWatch
{
	long		processors;		/* 0: not determined yet */
	WatchCredit looks;
	WatchCredit yields;
} WordWatch;

/*
 * Whether to try a method now: if it has credit, else once in `rarely` times.
 */
static inline bool
watch_worth(WatchCredit *credit, uint32_t seldom)
{
	return credit->spent < WATCH_CREDIT || ++credit->passed % seldom == 0;
}

/* Record the outcome of an attempt; returns it. */
static inline bool
watch_judge(WatchCredit *credit, bool helped)
{
	if (helped)
		credit->spent = credit->spent > WATCH_REWARD ? credit->spent - WATCH_REWARD : 0;
	else if (credit->spent < WATCH_CREDIT)
		credit->spent++;
	return helped;
}

/* CLOCK_MONOTONIC in microseconds. */
static inline int64_t
watch_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/*
 * Spin on a word for some microseconds. Returns true if it differs from value.
 */
static inline bool
watch_look(const _Atomic uint32_t *word, uint32_t value, int us)
{
	int64_t		until = watch_now_us() + us;

	do
	{
		for (int i = 0; i < WATCH_LOOKS; i++)
		{
			if (atomic_load_explicit(word, memory_order_acquire) != value)
				return true;
#if defined(__x86_64__) || defined(__i386__)
			__builtin_ia32_pause();
#endif
		}
	} while (watch_now_us() < until);
	return false;
}

/*
 * Yield the processor a few times, checking the word in between. Returns true
 * if it differs from value. Yields that find no other runnable process are
 * free, while a sleep would cost the server's main thread a system call, and
 * that thread is the bottleneck under load. So they are not counted for some
 * time.
 */
static inline bool
watch_yield(const WordWatch *watch, const _Atomic uint32_t *word, uint32_t value)
{
	int64_t		before = watch_now_us();
	int64_t		idle_until = watch->processors < WATCH_IDLE_FROM ? before : before + WATCH_IDLE_US;

	for (int yields = 0; yields < WATCH_YIELDS;)
	{
		int64_t		now;

		(void) sched_yield();
		if (atomic_load_explicit(word, memory_order_acquire) != value)
			return true;
		now = watch_now_us();
		yields += now >= idle_until || now - before >= WATCH_ALONE_US;
		before = now;
	}
	return false;
}

/*
 * Spin on a word. Returns true if it differs from value. Spinning is skipped
 * with one processor.
 */
static inline bool
word_watch(WordWatch *watch, const _Atomic uint32_t *word, uint32_t value)
{
	if (watch->processors == 0)
		watch->processors = processors_usable();
	if (watch->processors > 1 && watch_worth(&watch->looks, WATCH_SELDOM_LOOK) &&
		watch_judge(&watch->looks, watch_look(word, value, WATCH_LOOK_US)))
		return true;
	if (watch_worth(&watch->yields, WATCH_SELDOM_YIELD) &&
		watch_judge(&watch->yields, watch_yield(watch, word, value)))
		return true;
	return atomic_load_explicit(word, memory_order_acquire) != value;
}

#endif							/* GPUANN_SERVER_SPIN_WAIT_H */
