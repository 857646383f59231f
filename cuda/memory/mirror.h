/*
 * mirror.h
 *		A mirror in device memory: its ranges, and the host's arrays about its
 *		slots.
 *
 * All of it belongs to the engine's owner thread. The bitmaps of batch streams
 * grow with the largest mirror (cuda/query/mirror_room.h).
 */
#ifndef GPUANN_CUDA_MIRROR_H
#define GPUANN_CUDA_MIRROR_H

#include "cuda/common/view.h"
#include "cuda/memory/arena.h"
#include "cuda/memory/mirror_lists.h"

struct CudaDevice;
struct CudaJob;

#define SEEDS_ROOM 65536u /* capacity for seeds of a mirror (src/engine/prune.h) */
#define MIRROR_FIRST_ROWS 1024u /* initial capacity, in slots, of a small mirror */

/* State bits of a slot, on the host. */
#define SLOT_DEAD 1u   /* deleted: not an answer */
#define SLOT_ABSENT 2u /* never had a row; SLOT_DEAD is set too */
#define SLOT_LINKED 4u
#define SLOT_PENDING 8u
#define SLOT_LISTED 16u /* in the list of pending slots that searches scan */
#define SLOT_MARKED 32u /* in the piece being filled */

struct CudaMirror
{
	CudaMirror *next;
	MirrorId id;
	MirrorSpec spec;
	uint32_t vector_bytes;
	uint32_t stride;
	uint32_t record_bytes; /* of a slot's columns; 0: there are none */
	uint32_t most;	   /* slots that the reserved addresses can hold */
	uint32_t capacity; /* slots that are mapped; rows in host memory are mapped later, as they
					    * arrive */
	bool host_rows;   /* vectors beyond device capacity are in pinned host memory */

	Range vectors;
	Range records;		 /* of columns (src/engine/filter.h), by slot */
	Range versions;
	Range dead;
	size_t dead_cleared; /* leading bytes of `dead` that have been initialised */
	Range graph;
	Range norms;
	Range pending[2]; /* two sides: searches read one, while a list without the newly linked slots
					   * is written to the other */
	Range seeds;	  /* two halves, likewise; behind them parameters of the codes (mirror_seeds.h)
					   * and lists of entry points */
	Range codes;	  /* may be smaller than the other ranges: then the mirror has no codes */
	Range scales;	  /* scales of rotated codes, likewise; not reserved for other codes */
	uint32_t pending_side;
	uint32_t seeds_side;
	uint32_t entries_side;

	/* on the host */
	uint8_t *states;
	uint32_t *listed; /* the list of pending slots that searches scan */
	uint32_t nlisted;
	uint32_t *deferred; /* bitmap over slots: graph rows that repairs changed and no result has
						 * returned yet; or NULL */
	uint32_t deferred_rows;

	/* published */
	uint32_t rows;
	uint32_t linked;
	uint32_t npending;
	uint32_t ndead;
	uint32_t nseeds;
	uint64_t seeds_sum; /* entry_points_sum() of the seeds */
	uint64_t overwrites; /* rows overwritten so far by what is in the job stream */
	uint32_t nentries;	/* seeds in lists of entry points; 0: no such lists (entry_points.h) */
	uint64_t position;

	/* identifies the seeds that lists of entry points were built from */
	uint64_t entry_points_sum;
	uint32_t relinked; /* rows linked since they were built */

	/* codes (quantizer.h) */
	float *code_offsets;   /* offsets of the codes in use; dims floats */
	float code_steps;	   /* step of the codes; 0: no codes yet */
	uint32_t coded;		   /* slots below this have codes */
	bool has_code_room;	   /* memory for the codes of all slots is mapped */
	bool has_ranges;	   /* ranges of values (minima, maxima) have been initialised */
	bool ranges_changed;   /* rows have extended the ranges since steps and offsets were computed */
	uint32_t judged;	   /* linked rows at the last judgement of the codes */
	uint32_t overwritten;  /* rows overwritten since then */
	bool codes_good;	   /* searches walk the codes */
	bool codes_rotated;	   /* codes of rotated rows, each with a scale */

	CudaLists *lists; /* METHOD_IVFPQ; else NULL */

	uint32_t queries; /* queries waiting or in flight */
	uint32_t passes;  /* of these, exact searches in several passes or tiles that have begun */
	cudaEvent_t changed; /* the last change in place; later batches wait for it on the device */
	bool has_changed;
	CudaJob *first_job;
	CudaJob *last_job;
	bool changes_in_place; /* the first job overwrites rows or marks slots dead: searches in passes
						    * do not start before it (jobs.cu), because they must see the same rows
						    * in every pass */
	bool dropping;
};

/* Bytes of the bitmap of deferred rows. */
static inline size_t
mirror_deferred_bytes(const CudaMirror *mirror)
{
	return mirror->deferred == NULL
			   ? 0
			   : ((size_t) mirror->deferred_rows / 32 + 1) * sizeof(uint32_t);
}

/*
 * Create a mirror without device memory; then reserve addresses for as many
 * slots as the limits allow. If the second fails, the caller frees the mirror.
 */
extern EngineStatus mirror_create(CudaDevice *device, const MirrorSpec *spec, CudaMirror **result,
								  EngineError *error);
extern EngineStatus mirror_reserve(CudaDevice *device, CudaMirror *mirror, EngineError *error);
/*
 * Assign a mirror's number and enter it into the device's list: device_mirror()
 * finds it from now on.
 */
extern MirrorId mirror_enter(CudaDevice *device, CudaMirror *mirror);
/*
 * Grow to exactly `slots` slots: all or nothing, except that a range which has
 * grown stays larger. Codes are dropped where only they do not fit.
 */
extern EngineStatus mirror_grow_to(CudaDevice *device, CudaMirror *mirror, uint32_t slots,
								   EngineError *error);
/*
 * Map host memory for the rows of slots below `slots` that are beyond device
 * capacity, and spare room if that fits.
 */
extern EngineStatus mirror_grow_host_rows(CudaDevice *device, CudaMirror *mirror, uint64_t slots,
									EngineError *error);
extern void mirror_free(CudaDevice *device, CudaMirror *mirror);
extern MirrorView mirror_view(const CudaMirror *mirror);
extern uint64_t mirror_bytes(const CudaMirror *mirror);
/*
 * Number of rows that are entirely on the device; rows from there on lie in
 * host memory, at least in part.
 */
extern uint32_t mirror_device_rows(const CudaMirror *mirror);
/*
 * Copy rows into (`in`) or out of a mirror, on the device or in host memory;
 * `other` is device or pinned memory of count x stride bytes. Asynchronous, on
 * `stream`. False: the device failed.
 */
extern bool mirror_copy_rows(CudaDevice *device, const CudaMirror *mirror, uint32_t slot,
							 uint32_t count, void *other, bool in, cudaStream_t stream);
extern EngineStatus mirror_rows(CudaDevice *device, CudaMirror *mirror, const uint32_t *slots,
								uint32_t count, uint32_t *rows, uint32_t *versions,
								EngineError *error);

#endif /* GPUANN_CUDA_MIRROR_H */
