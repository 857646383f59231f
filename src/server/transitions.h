/*
 * transitions.h
 *		The moves that clients and the launcher make with words of requests and
 *		channels: one text for PostgreSQL and the tests.
 *
 * protocol.h has the states, and who may make which move. The server's moves
 * are in batch.c, answer.c and channels.c. Nothing here waits.
 */
#ifndef GPUANN_SERVER_TRANSITIONS_H
#define GPUANN_SERVER_TRANSITIONS_H

#include "server/protocol.h"

/*
 * More tries than an honest server and launcher can make one need: they only
 * move a word forward.
 */
#define MOST_MOVES	16

/* What a client finds of its request. */
typedef enum RequestLook
{
	LOOK_PENDING,				/* POSTED or TAKEN */
	LOOK_DONE,
	LOOK_FAILED,				/* the server died with it */
	LOOK_FOREIGN				/* nothing that an honest server makes of it */
} RequestLook;

/*
 * Post the payload of a word that is FREE, in its next generation, which is
 * returned.
 */
static inline uint32_t
request_post(AreaHeader *area, _Atomic uint32_t *word)
{
	uint32_t generation = request_next_generation(atomic_load_explicit(word, memory_order_relaxed));

	PROTOCOL_STEP(CLIENT_FILLED);
	atomic_store(word, request_word(generation, REQUEST_POSTED));
	PROTOCOL_STEP(CLIENT_POSTED);
	area_ring(area);
	return generation;
}

/* What a value of a word means to who posted this generation. */
static inline RequestLook
request_look(uint32_t value, uint32_t generation)
{
	if (value == request_word(generation, REQUEST_DONE))
		return LOOK_DONE;
	if (value == request_word(generation, REQUEST_FAILED))
		return LOOK_FAILED;
	if (value == request_word(generation, REQUEST_POSTED) ||
		value == request_word(generation, REQUEST_TAKEN))
		return LOOK_PENDING;
	return LOOK_FOREIGN;
}

/*
 * Sleep on a word while it has a value, having said so: the server wakes nobody
 * else.
 */
static inline void
request_sleep(_Atomic uint32_t *word, uint32_t value, RequestPayload *payload, int timeout_ms)
{
	PROTOCOL_STEP(CLIENT_WAITS);
	atomic_store(&payload->asleep, 1);
	PROTOCOL_STEP(CLIENT_SLEEPS);
	area_futex_wait(word, value, timeout_ms);
}

/*
 * Leave a word in whatever state it is: what the server has taken is ABANDONED,
 * everything else FREE. True: it is FREE, the payload ours.
 *
 * A state that does not exist can only come from a server that writes what it
 * should not; the slot is usable again.
 */
static inline bool
request_leave(_Atomic uint32_t *word)
{
	uint32_t	value = atomic_load(word);

	PROTOCOL_STEP(CLIENT_LEAVES);
	for (int i = 0; i < MOST_MOVES; i++)
	{
		bool		taken = request_state(value) == REQUEST_TAKEN;

		if (request_state(value) == REQUEST_FREE)
			return true;
		if (request_state(value) == REQUEST_ABANDONED)
			return false;
		if (atomic_compare_exchange_strong(
				word, &value,
				request_word(request_generation(value), taken ? REQUEST_ABANDONED : REQUEST_FREE)))
		{
			PROTOCOL_STEP(CLIENT_LEFT);
			return !taken;
		}
	}
	return false;
}

/*
 * Take a word back that was posted to a server which has died; false if the
 * launcher (or the server) has it by now.
 */
static inline bool
request_withdraw(_Atomic uint32_t *word, uint32_t generation)
{
	return request_move(word, generation, REQUEST_POSTED, REQUEST_FREE);
}

/*
 * Claim a channel for a process; false if it is somebody's, or still the
 * server's.
 */
static inline bool
channel_take_ownership(AreaChannel *channel, int32_t pid)
{
	int32_t		nobody = 0;

	if (!atomic_compare_exchange_strong(&channel->owner, &nobody, pid))
		return false;
	PROTOCOL_STEP(CHANNEL_CLAIMS);
	if (request_state(atomic_load(&channel->state)) == REQUEST_FREE)
		return true;
	atomic_store(&channel->owner, 0);
	return false;
}

/* Post what a channel of ours holds. */
static inline void
channel_post_word(AreaHeader *area, AreaChannel *channel)
{
	uint32_t generation =
		request_next_generation(atomic_load_explicit(&channel->state, memory_order_relaxed));

	atomic_store(&channel->state, request_word(generation, REQUEST_POSTED));
	PROTOCOL_STEP(CHANNEL_POSTED);
	area_ring(area);
}

/*
 * Leave a channel of ours in whatever state it is. What the server has taken it
 * frees when it is done.
 */
static inline void
channel_leave(AreaChannel *channel)
{
	atomic_store(&channel->cancel, 1);
	if (request_leave(&channel->state))
	{
		PROTOCOL_STEP(CHANNEL_LEFT);
		atomic_store(&channel->owner, 0);
	}
}

/*
 * What a dead server leaves of a word: what it had or should have had FAILED,
 * what was abandoned is free; true in the latter case. The server has been
 * reaped, and the epoch advanced.
 */
static inline bool
request_sweep(_Atomic uint32_t *word)
{
	uint32_t	value = atomic_load(word);

	for (int i = 0; i < MOST_MOVES; i++)
	{
		RequestState state = request_state(value);
		RequestState next = state == REQUEST_ABANDONED ? REQUEST_FREE : REQUEST_FAILED;

		/*
		 * A server that died between its last move and the wake-up leaves a
		 * client asleep beside its answer.
		 */
		if (state == REQUEST_DONE || state == REQUEST_FAILED)
			area_futex_wake(word, INT_MAX);
		if (state == REQUEST_FREE || state == REQUEST_DONE || state == REQUEST_FAILED)
			return false;
		if (atomic_compare_exchange_strong(word, &value,
										   request_word(request_generation(value), next)))
		{
			if (next == REQUEST_FAILED)
				area_futex_wake(word, INT_MAX);
			return next == REQUEST_FREE;
		}
	}
	return false;
}

/*
 * The same for a channel. One that was abandoned, or that the server was just
 * giving back (owner -1), has no owner any more.
 */
static inline void
channel_sweep(AreaChannel *channel)
{
	/*
	 * What was abandoned is judged by the move itself: the client may leave
	 * while we look.
	 */
	if (request_sweep(&channel->state) || atomic_load(&channel->owner) == CHANNEL_DISOWNED)
		atomic_store(&channel->owner, 0);
}

#endif							/* GPUANN_SERVER_TRANSITIONS_H */
