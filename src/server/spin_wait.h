/*
 * spin_wait.h
 *		Watching a word before sleeping on it: one text for PostgreSQL, the
 *		tests and the benchmarks.
 *
 * A sleep and a wake-up are two system calls and two switches of processes, and
 * the server's one thread would make half of these calls. So a client first
 * looks at the word for some microseconds, then gives its processor to whoever
 * can run and looks again when its turn comes, and only then sleeps. In a crowd
 * nearly all answers are there by then. Both ways are useless where answers
 * take their time: what was tried in vain several times is tried seldom until
 * it helps again.
 */
#ifndef GPUANN_SERVER_SPIN_WAIT_H
#define GPUANN_SERVER_SPIN_WAIT_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/clock.h"
#include "engine/processors.h"

#define WATCH_LOOK_US		5	/* looks, in all */
#define WATCH_LOOKS			10	/* between two of them at the clock */
#define WATCH_YIELDS		4	/* times that the processor is given away */
#define WATCH_ALONE_US		2	/* a yield that takes less has found nobody who wanted the
								 * processor: it does not count, */
#define WATCH_IDLE_US		40	/* so long, */
#define WATCH_IDLE_FROM		8	/* with so many processors */
#define WATCH_CREDIT		8	/* tries in vain, one after another, before they become seldom */
#define WATCH_REWARD		2	/* for one that helped: it saves a little more than one in vain
								 * costs */
#define WATCH_SELDOM_LOOK	32	/* one wait in so many */
#define WATCH_SELDOM_YIELD	4	/* hardly dearer than the sleep it may save; if seldomer, a crowd
								 * that sleeps would go on sleeping */

/*
 * How well a way of watching has worked for this process; all zero to begin
 * with.
 */
typedef struct WatchCredit
{
	int			spent;			/* of WATCH_CREDIT */
	uint32_t	passed;			/* waits at which it was not worth trying, all but a few */
} WatchCredit;

typedef struct WordWatch
{
	long		processors;		/* 0: not asked yet */
	WatchCredit looks;
	WatchCredit yields;
} WordWatch;

/*
 * Whether to try a way of watching now; one in `seldom` times without credit.
 */
static inline bool
watch_worth(WatchCredit *credit, uint32_t seldom)
{
	return credit->spent < WATCH_CREDIT || ++credit->passed % seldom == 0;
}

/* Note what came of it. */
static inline bool
watch_judge(WatchCredit *credit, bool helped)
{
	if (helped)
		credit->spent = credit->spent > WATCH_REWARD ? credit->spent - WATCH_REWARD : 0;
	else if (credit->spent < WATCH_CREDIT)
		credit->spent++;
	return helped;
}

/* Look at a word for so many microseconds. True: it differs. */
static inline bool
watch_look(const _Atomic uint32_t *word, uint32_t value, int us)
{
	int64_t		until = monotonic_us() + us;

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
	} while (monotonic_us() < until);
	return false;
}

/*
 * Give the processor away a few times, looking in between. True: the word
 * differs. While nobody wants the processor it costs nobody anything to look
 * on, and a sleep would cost the server's thread a system call: where
 * processors are idle in a crowd, that thread is what bounds all.
 */
static inline bool
watch_yield(const WordWatch *watch, const _Atomic uint32_t *word, uint32_t value)
{
	int64_t		before = monotonic_us();
	int64_t		idle_until = watch->processors < WATCH_IDLE_FROM ? before : before + WATCH_IDLE_US;

	for (int yields = 0; yields < WATCH_YIELDS;)
	{
		int64_t		now;

		(void) sched_yield();
		if (atomic_load_explicit(word, memory_order_acquire) != value)
			return true;
		now = monotonic_us();
		yields += now >= idle_until || now - before >= WATCH_ALONE_US;
		before = now;
	}
	return false;
}

/*
 * Watch a word. True: it differs from value. Looks are useless on one
 * processor.
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
