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

#include "engine/clock.h"
#include "engine/processors.h"

#define SPIN_WAIT_US		5	/* duration of spinning */
#define SPIN_WAIT_POLLS		10	/* polls between two reads of the clock */
#define SPIN_WAIT_YIELDS	4	/* number of sched_yield calls */
#define SPIN_WAIT_ALONE_US	2	/* a yield shorter than this found no other runnable process, and
								 * is not counted ... */
#define SPIN_WAIT_IDLE_US	40	/* ... for this long ... */
#define SPIN_WAIT_IDLE_FROM	8	/* ... on machines with at least this many processors */
#define SPIN_WAIT_CREDIT	8	/* consecutive failures before attempts become rare */
#define SPIN_WAIT_REWARD	2	/* credit for a success, which saves a little more than a failure
								 * costs */
#define SPIN_WAIT_RARE_SPIN	32	/* then one wait in this many spins */
#define SPIN_WAIT_RARE_YIELD 4	/* and one in this many yields: a yield costs hardly more than the
								 * sleep it may save. If it were rarer, clients that all sleep would
								 * never start to spin again */

/* How often a method has succeeded in this process; initially zero. */
typedef struct SpinCredit
{
	int			spent;			/* consecutive failures less rewards, up to SPIN_WAIT_CREDIT */
	uint32_t	passed;			/* waits without credit */
} SpinCredit;

typedef struct WordWatch
{
	long		processors;		/* 0: not determined yet */
	SpinCredit spins;
	SpinCredit yields;
} WordWatch;

/*
 * Whether to try a method now: if it has credit, else once in `rarely` times.
 */
static inline bool
spin_has_credit(SpinCredit *credit, uint32_t rarely)
{
	return credit->spent < SPIN_WAIT_CREDIT || ++credit->passed % rarely == 0;
}

/* Record the outcome of an attempt; returns it. */
static inline bool
spin_record(SpinCredit *credit, bool helped)
{
	if (helped)
		credit->spent = credit->spent > SPIN_WAIT_REWARD ? credit->spent - SPIN_WAIT_REWARD : 0;
	else if (credit->spent < SPIN_WAIT_CREDIT)
		credit->spent++;
	return helped;
}

/*
 * Spin on a word for some microseconds. Returns true if it differs from value.
 */
static inline bool
spin_until_changed(const _Atomic uint32_t *word, uint32_t value, int us)
{
	int64_t		until = monotonic_us() + us;

	do
	{
		for (int i = 0; i < SPIN_WAIT_POLLS; i++)
		{
			if (atomic_load_explicit(word, memory_order_acquire) != value)
				return true;
#if defined(__x86_64__) || defined(__i386__)
			__builtin_ia32_pause();
#endif
		}
	} while (monotonic_us() < until);
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
yield_until_changed(const WordWatch *watch, const _Atomic uint32_t *word, uint32_t value)
{
	int64_t		before = monotonic_us();
	int64_t		idle_until =
		watch->processors < SPIN_WAIT_IDLE_FROM ? before : before + SPIN_WAIT_IDLE_US;

	for (int yields = 0; yields < SPIN_WAIT_YIELDS;)
	{
		int64_t		now;

		(void) sched_yield();
		if (atomic_load_explicit(word, memory_order_acquire) != value)
			return true;
		now = monotonic_us();
		yields += now >= idle_until || now - before >= SPIN_WAIT_ALONE_US;
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
	if (watch->processors > 1 && spin_has_credit(&watch->spins, SPIN_WAIT_RARE_SPIN) &&
		spin_record(&watch->spins, spin_until_changed(word, value, SPIN_WAIT_US)))
		return true;
	if (spin_has_credit(&watch->yields, SPIN_WAIT_RARE_YIELD) &&
		spin_record(&watch->yields, yield_until_changed(watch, word, value)))
		return true;
	return atomic_load_explicit(word, memory_order_acquire) != value;
}

#endif							/* GPUANN_SERVER_SPIN_WAIT_H */
