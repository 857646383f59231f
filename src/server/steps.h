/*
 * steps.h
 *		Names of the protocol steps between which a process can die. Test builds
 *		(PROTOCOL_STEPS) call protocol_step() at each.
 *
 * A step comes right after the change of memory that its name says, or right
 * before the one it announces. Between two steps a process changes at most one
 * word that others read, so killing a process at every step in turn covers
 * every state that others can find (test/protocol_test_steps.c).
 */
#ifndef GPUANN_STEPS_H
#define GPUANN_STEPS_H

/*
 * STEP(name): the prefix says which process executes it. RING is executed by
 * any process that rings the doorbell, including threads of the server's
 * engine.
 */
#define PROTOCOL_STEP_LIST(STEP) \
	/* a client's request */ \
	STEP(CLIENT_FILLED) /* the payload is complete, the word still FREE */ \
	STEP(CLIENT_POSTED) /* POSTED, the doorbell not yet advanced */ \
	STEP(RING)			/* the doorbell is advanced, nobody woken */ \
	STEP(CLIENT_WAITS)	/* about to sleep on the word, and to say so */ \
	STEP(CLIENT_SLEEPS) /* `asleep` is set, the futex not yet waited for */ \
	STEP(CLIENT_SEES)	/* an answer is there, not yet copied */ \
	STEP(CLIENT_COPIED) /* copied, the word still DONE */ \
	STEP(CLIENT_LEAVES) /* about to leave, in whatever state the word is */ \
	STEP(CLIENT_LEFT)	/* the word is FREE or ABANDONED */ \
	/* a client's channel */ \
	STEP(CHANNEL_CLAIMS) /* the owner word is ours, the state not looked at */ \
	STEP(CHANNEL_POSTED) /* POSTED, the doorbell not yet advanced */ \
	STEP(CHANNEL_LEFT)	 /* FREE again, the owner word still ours */ \
	/* the server's request */ \
	STEP(SERVER_SWEEPS)	   /* starting: a word is about to be swept */ \
	STEP(SERVER_READY)	   /* server_state says so */ \
	STEP(SERVER_SAW)	   /* POSTED seen, the word not yet moved */ \
	STEP(SERVER_TOOK)	   /* TAKEN, nothing copied */ \
	STEP(SERVER_QUEUED)	   /* copied, and waiting at its mirror */ \
	STEP(SERVER_SUBMITS)   /* a batch is gathered */ \
	STEP(SERVER_SUBMITTED) /* the engine has it */ \
	STEP(SERVER_COMPLETED) /* the engine is done, nothing written */ \
	STEP(SERVER_COPIED)	   /* the payload is half written */ \
	STEP(SERVER_ANSWERS)   /* the payload is written, the word still TAKEN (or ABANDONED) */ \
	STEP(SERVER_DONE)	   /* DONE, nobody woken */ \
	STEP(SERVER_WOKE)	   /* the client is woken */ \
	STEP(SERVER_FREED)	   /* an abandoned request is FREE */ \
	STEP(SERVER_RESTS)	   /* nothing was found, `sleeping` not yet set */ \
	STEP(SERVER_SLEEPS)	   /* `sleeping` is set, the futex not yet waited for */ \
	STEP(SERVER_WAKES)	   /* woken, `sleeping` still set */ \
	/* the server's channel */ \
	STEP(CHANNEL_TAKEN)		/* TAKEN, nothing copied */ \
	STEP(CHANNEL_SUBMITTED) /* the engine has the job or the query */ \
	STEP(CHANNEL_ANSWERS)	/* the answer is written, the word still TAKEN (or ABANDONED) */ \
	STEP(CHANNEL_DONE)		/* DONE, nobody woken */ \
	STEP( \
		CHANNEL_DISOWNED) /* the owner of an abandoned channel is -1, the state still ABANDONED */ \
	STEP(CHANNEL_FREED)	  /* FREE, the owner still -1 */

typedef enum ProtocolStep
{
#define STEP_NAME(name) STEP_##name,
	PROTOCOL_STEP_LIST(STEP_NAME)
#undef STEP_NAME
	PROTOCOL_STEPS_COUNT
} ProtocolStep;

#ifdef PROTOCOL_STEPS
extern void protocol_step(ProtocolStep step);
#define PROTOCOL_STEP(name) protocol_step(STEP_##name)
#else
#define PROTOCOL_STEP(name) ((void) 0)
#endif

#endif							/* GPUANN_STEPS_H */
