/*
 * shmem.h
 *		PostgreSQL's side of the shared area: created by the postmaster, mapped
 *		by all processes, swept by the launcher.
 */
#ifndef GPUANN_SHMEM_H
#define GPUANN_SHMEM_H

#include "base/base.h"
#include "server/transitions.h"

/*
 * The area, or NULL when gpuann is not in shared_preload_libraries or memory
 * was short. The same address in every process.
 */
extern AreaHeader *gpuann_area;

/*
 * Private copy of the area's header. The server could overwrite the one in the
 * area, so offsets and sizes are never read from there.
 */
extern AreaHeader gpuann_layout;

static inline _Atomic uint32_t *
shared_word(uint32 slot)
{
	return (_Atomic uint32_t *) ((char *) gpuann_area + gpuann_layout.words_offset) + slot;
}

static inline RequestPayload *
shared_payload(uint32 slot)
{
	return (RequestPayload *) ((char *) gpuann_area + gpuann_layout.payloads_offset +
							   gpuann_layout.payload_stride * slot);
}

static inline AreaMirror *
shared_mirror(uint32 entry)
{
	return (AreaMirror *) ((char *) gpuann_area + gpuann_layout.mirrors_offset +
						   gpuann_layout.mirror_stride * entry);
}

static inline _Atomic double *
shared_list_counts(uint32 first)
{
	return (_Atomic double *) ((char *) gpuann_area + gpuann_layout.list_counts_offset) + first;
}

static inline AreaChannel *
shared_channel(uint32 channel)
{
	return (AreaChannel *) ((char *) gpuann_area + gpuann_layout.channels_offset +
							gpuann_layout.channel_stride * channel);
}

static inline unsigned char *
shared_channel_data(uint32 channel)
{
	return (unsigned char *) gpuann_area + gpuann_layout.channel_data_offset +
		   gpuann_layout.channel_data_bytes * channel;
}

/* The area's file descriptor, to pass to the server; -1 without an area. */
extern int	gpuann_area_fd;

/*
 * Create the area. After a crash restart this replaces the old one, whose
 * server exits with its launcher.
 */
extern void shmem_make(void);

/* Settings of the server (settings.c) */
extern int	gpuann_engine;
extern int	gpuann_gpu_memory_limit;	/* MB; 0: 80 % of the device, a quarter of RAM for the CPU
										 * engine */
extern int	gpuann_host_rows_limit;	/* MB of vectors of mirrors in host memory; 0: none */
extern int	gpuann_database_memory_limit;	/* MB of mirrors of the own database; 0: no quota */
extern int	gpuann_request_timeout; /* ms */
extern char *gpuann_engine_library; /* empty: beside gpuann's own */
extern int	gpuann_server_timeout;	/* ms; 0: none */
extern int	gpuann_fallback;
extern int	gpuann_max_workers;

/* Declare them. */
extern void server_settings_define(void);

/* gpuann.fallback */
typedef enum GpuannFallback
{
	GPUANN_FALLBACK_ON,
	GPUANN_FALLBACK_NOTICE,
	GPUANN_FALLBACK_ERROR
} GpuannFallback;

/* gpuann.engine */
typedef enum GpuannEngine
{
	GPUANN_ENGINE_AUTO,
	GPUANN_ENGINE_CUDA,
	GPUANN_ENGINE_CPU
} GpuannEngine;

/* What a process waits for: named on PostgreSQL 17 and newer. */
typedef enum ShmemWaitEvent
{
	SHMEM_WAIT_REQUEST,			/* an answer in this backend's slot */
	SHMEM_WAIT_CHANNEL,				/* an answer in a channel */
	SHMEM_WAIT_LAUNCHER,			/* the launcher's main loop */
	SHMEM_WAIT_WORKER,			/* a mirror worker's main loop */
	SHMEM_WAIT_LEAVE,			/* mirror workers to leave a database */
	SHMEM_WAIT_MIRROR,			/* a mirror to be loaded */
	SHMEM_WAIT_EVENTS
} ShmemWaitEvent;

extern uint32 shmem_wait_event(ShmemWaitEvent event);
/* Sleep for so long, unless woken by the latch; heeds a cancel. */
extern void shmem_sleep(int ms, ShmemWaitEvent event);

/* This backend's request slot, or -1 for a process without one. */
extern int	shmem_my_slot(void);

/* Whether a server runs and answers; epoch is set to its epoch. */
extern bool shmem_server_ready(uint32 *epoch);

/* Whether no server runs because gpuann.engine is auto and no GPU is usable. */
extern bool shmem_no_gpu(void);

/* The last_error of gpuann_server_status, palloc'd and made printable. */
extern char *shmem_last_error(void);

/*
 * Futex wait until *word differs from value, interruptibly, and at most until
 * deadline_us (CLOCK_MONOTONIC). Returns true if it differs. *asleep, unless
 * NULL, is set while waiting, so that the process that changes the word makes
 * the wake call.
 */
extern bool shmem_wait(_Atomic uint32_t *word, uint32 value, int64 deadline_us, uint32 wait_event,
					   _Atomic uint32_t *asleep);

/*
 * Copy a text that the server may have written: printable ASCII, always
 * terminated.
 */
extern void shmem_copy_text(char *to, Size size, const char *from, Size from_size);

/* No deadline; the wait ends when the server dies. */
#define NO_DEADLINE	PG_INT64_MAX

/*
 * Channels. Claim one (or get -1), prepare it for an operation, fill in its
 * arrays, post it, and take its answer, which stays readable until the next
 * preparation. Release cancels and abandons what is in flight.
 */
extern int	channel_claim(void);

/*
 * Number of free channels beyond those reserved for searches, and claiming one
 * of them, for work that a second channel only accelerates.
 */
#define AREA_SPARE_CHANNELS	4	/* for searches, beside two of each mirror worker */

extern int	channels_spare(void);
extern int	channel_claim_spare(void);

/*
 * Claim a channel, waiting until give_up_ms (monotonic_ms) at most; -1 if none
 * is free by then.
 */
extern int	channel_claim_until(int64 give_up_ms);
extern void channel_release(int channel);
extern ChannelRequest *channel_prepare(int channel, ChannelOp op, uint32 mirror, uint32 generation);

/*
 * Allocate an array in the channel's data, after the last one; sets its offset.
 * NULL: no room.
 */
extern void *channel_array(int channel, Size bytes, uint64_t *offset);

/* Post the prepared operation; false if no server runs. */
extern bool channel_post(int channel);

/* Whether an answer has arrived, or never will. */
extern bool channel_has_answer(int channel);

/*
 * Take the answer of a posted channel, if it has arrived, or never will
 * (ENGINE_FAILED).
 */
extern bool channel_answered(int channel, EngineStatus *status, const char **text);

/*
 * Post the prepared operation, and wait for the answer. Returns the answer's
 * status, with *text if it is not ENGINE_OK. If the server dies or the deadline
 * passes, returns ENGINE_FAILED; in the latter case the caller must release the
 * channel.
 */
extern EngineStatus channel_call(int channel, int64 deadline_us, const char **text);

/*
 * The same, but whenever the channel's progress grows, the deadline is extended
 * to at least this much later.
 */
extern EngineStatus channel_call_patiently(int channel, int64 deadline_us, int64 patience_us,
										   const char **text);

/*
 * The same for a channel that was posted before; progress is reported to
 * `tell`, unless that is NULL.
 */
extern EngineStatus channel_await(int channel, int64 deadline_us, int64 patience_us,
								  void (*tell)(int64 done), const char **text);

/*
 * An array of an answer, checked to lie in the channel's data; NULL if it does
 * not.
 */
extern const void *channel_answer_array(int channel, uint64_t offset, uint64 count, Size width);

/* Which part of a channel's link, repair or training is to be fetched. */
typedef struct LinkWanted
{
	FetchArrays	arrays;
	uint32		first;			/* element */
	uint32		most;
	uint32		degree;			/* FETCH_ROWS, FETCH_CODES */
	uint32		code_bytes;		/* FETCH_CODES */
} LinkWanted;

/*
 * The part fetched. The arrays are in the channel, where a server may write
 * concurrently, so each element must be read only once.
 */
typedef struct LinkPart
{
	uint32		count;
	const uint32 *slots;		/* or seeds */
	const float *floats;		/* in their place */
	const uint32 *rows;			/* count x degree */
	const unsigned char *codes; /* count x code_bytes */
} LinkPart;

/*
 * Call a prepared CHANNEL_LINK_FETCH. An answer that does not fit the channel
 * is ENGINE_INVALID.
 */
extern EngineStatus channel_fetch_linked(int channel, const LinkWanted *wanted, int64 deadline_us,
										 LinkPart *part, const char **text);

/*
 * Whether this status of a CHANNEL_LINK or CHANNEL_REPAIR means that it was
 * refused: nothing has changed, and the result of the previous link can still
 * be fetched.
 */
extern bool channel_link_refused(int channel, EngineStatus status);

/* Release this backend's request slot, in any state of its request. */
extern void shmem_leave_slot(void);

/*
 * Release this process's request slot and channels.
 */
extern void shmem_leave(void);

/*
 * Register the same as an exit callback. Call before claiming a slot or
 * channel.
 */
extern void shmem_leave_at_exit(void);

/*
 * After a server has died and been reaped: fail its requests, and free
 * abandoned ones. Launcher only.
 */
extern void shmem_sweep_requests(void);

#endif							/* GPUANN_SHMEM_H */
