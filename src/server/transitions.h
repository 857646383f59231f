/*
 * transitions.h
 *		Moves of request words and channel words by clients and the launcher.
 *		Shared by PostgreSQL and the tests.
 *
 * protocol.h defines the states and the allowed moves. The server's moves are
 * in batch.c, answer.c and channels.c. Nothing here waits.
 */
#ifndef GPUANN_SERVER_TRANSITIONS_H
#define GPUANN_SERVER_TRANSITIONS_H

#include "server/protocol.h"

/*
 * Limit of retries. A correct server and launcher only move a word forward, so
 * fewer are needed.
 */
#define MAX_MOVES	16

/* State of a request, as seen by its client. */
typedef enum RequestLook
{
	LOOK_PENDING,				/* POSTED or TAKEN */
	LOOK_DONE,
	LOOK_FAILED,				/* the server died before answering */
	LOOK_FOREIGN				/* a value that a correct server does not write */
} RequestLook;

/*
 * Post the payload of a FREE word, in its next generation, which is returned.
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

/* Interpret a word's value for the client that posted this generation. */
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
 * Sleep while the word has this value. Sets `asleep` first, because the server
 * wakes no other clients.
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
 * Leave a request in any state: TAKEN becomes ABANDONED, other states FREE.
 * Returns true if the word is FREE and the backend owns the payload.
 *
 * An undefined state can only be written by a faulty server; the slot is made
 * usable again.
 */
static inline bool
request_leave(_Atomic uint32_t *word)
{
	uint32_t	value = atomic_load(word);

	PROTOCOL_STEP(CLIENT_LEAVES);
	for (int i = 0; i < MAX_MOVES; i++)
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
 * Withdraw a request that was posted to a server which has died. Returns false
 * if the launcher (or the server) has moved it already.
 */
static inline bool
request_withdraw(_Atomic uint32_t *word, uint32_t generation)
{
	return request_move(word, generation, REQUEST_POSTED, REQUEST_FREE);
}

/*
 * Claim a channel for a process. Returns false if it has an owner or is still
 * used by the server.
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

/* Post the request in a channel that the caller owns. */
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
 * Leave a channel that the caller owns, in any state. If the server has taken
 * an operation, the server frees the channel when that ends.
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
 * Move a word after the death of its server: requests it had or should have
 * taken become FAILED, abandoned ones FREE. Returns true in the latter case.
 * The server must have been reaped, and the epoch advanced.
 */
static inline bool
request_sweep(_Atomic uint32_t *word)
{
	uint32_t	value = atomic_load(word);

	for (int i = 0; i < MAX_MOVES; i++)
	{
		RequestState state = request_state(value);
		RequestState next = state == REQUEST_ABANDONED ? REQUEST_FREE : REQUEST_FAILED;

		/*
		 * A server that died between its last move and the wake-up may leave a
		 * client asleep although its answer is there.
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
 * The same for a channel. One that was abandoned, or that the server was
 * freeing (CHANNEL_DISOWNED), has no owner any more.
 */
static inline void
channel_sweep(AreaChannel *channel)
{
	/*
	 * Decide by the result of the move, because the client may abandon the
	 * channel concurrently.
	 */
	if (request_sweep(&channel->state) || atomic_load(&channel->owner) == CHANNEL_DISOWNED)
		atomic_store(&channel->owner, 0);
}

#endif							/* GPUANN_SERVER_TRANSITIONS_H */
