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
 *
 * On an idle processor a wake-up takes longer than a GPU's answer, so there the
 * wait follows what is waited for: it lasts up to twice the usual time, if that
 * is short. The server waits for the next request in the same way. Not where
 * more clients ask than there are processors, of which each has other work.
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
#define SPIN_WAIT_IDLE_US	40	/* ... for this long at least ... */
#define SPIN_WAIT_IDLE_MAX	250	/* ... and at most ... */
#define SPIN_WAIT_IDLE_FROM	8	/* ... on machines with at least this many processors: with fewer,
								 * spinning delays the process that is waited for */
#define SPIN_WAIT_LONG_US	1000	/* longer waits count as this long */
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
	int64_t		began_us;		/* when the wait began that spinning did not end */
	int			usual_us;		/* how long such waits last */
} WordWatch;

/*
 * Note how long a wait lasted: `usual_us` is the mean of the last ones, each
 * weighing an eighth.
 */
static inline void
spin_learn(int *usual_us, int64_t us)
{
	*usual_us += ((int) (us < SPIN_WAIT_LONG_US ? us : SPIN_WAIT_LONG_US) - *usual_us) / 8;
}

/*
 * How long yields are free on an idle processor while `asking` clients ask:
 * twice what a wait usually takes, unless that is too long.
 */
static inline int
spin_idle_us(int usual_us, long processors, uint32_t asking)
{
	if (processors < SPIN_WAIT_IDLE_FROM)
		return 0;
	return usual_us * 2 > SPIN_WAIT_IDLE_US && usual_us * 2 <= SPIN_WAIT_IDLE_MAX &&
		asking <= processors ? usual_us * 2 : SPIN_WAIT_IDLE_US;
}

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
 * that thread is the bottleneck under load. So they are not counted until
 * idle_us have passed.
 */
static inline bool
yield_until_changed(const _Atomic uint32_t *word, uint32_t value, int idle_us)
{
	int64_t		before = monotonic_us();
	int64_t		idle_until = before + idle_us;

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

/* Note that the wait that word_watch() began has ended. */
static inline void
word_watch_ended(WordWatch *watch)
{
	spin_learn(&watch->usual_us, monotonic_us() - watch->began_us);
}

/*
 * Spin on a word, while `asking` clients ask. Returns true if it differs from
 * value; if not, the caller sleeps, and calls word_watch_ended() when the word
 * has changed. Spinning is skipped with one processor.
 */
static inline bool
word_watch(WordWatch *watch, const _Atomic uint32_t *word, uint32_t value, uint32_t asking)
{
	int			idle_us;

	if (watch->processors == 0)
		watch->processors = processors_usable();
	if (watch->processors > 1 && spin_has_credit(&watch->spins, SPIN_WAIT_RARE_SPIN) &&
		spin_record(&watch->spins, spin_until_changed(word, value, SPIN_WAIT_US)))
		return true;
	watch->began_us = monotonic_us();
	idle_us = spin_idle_us(watch->usual_us, watch->processors, asking);
	if (spin_has_credit(&watch->yields, SPIN_WAIT_RARE_YIELD) &&
		spin_record(&watch->yields, yield_until_changed(word, value, idle_us)))
	{
		word_watch_ended(watch);
		return true;
	}
	return atomic_load_explicit(word, memory_order_acquire) != value;
}

#endif							/* GPUANN_SERVER_SPIN_WAIT_H */
