/*
 * mirror.h
 *		A mirror in device memory: its ranges, and what the host keeps beside
 *		them.
 *
 * All of it belongs to the engine's owner thread. Mirrors that grow do so with
 * the bitmaps of batch streams (cuda/query/mirror_room.h).
 */
#ifndef GPUANN_CUDA_MIRROR_H
#define GPUANN_CUDA_MIRROR_H

#include "cuda/common/view.h"
#include "cuda/memory/arena.h"
#include "cuda/memory/mirror_lists.h"

struct CudaDevice;
struct CudaJob;

#define SEEDS_ROOM 65536u /* seeds of a mirror, at most (src/engine/prune.h) */
#define MIRROR_FIRST_ROWS 1024u /* slots that even a small mirror has room for */

/* A slot's state, on the host. */
#define SLOT_DEAD 1u   /* no answer */
#define SLOT_ABSENT 2u /* never had a row; always dead too */
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
	uint32_t most;	   /* slots the reserved addresses hold */
	uint32_t capacity; /* slots mapped, but for the rows of some in host memory */
	bool may_be_far;   /* rows that do not fit go on in host memory */

	Range vectors;
	Range versions;
	Range dead;
	size_t dead_cleared; /* bytes of its memory that have been cleared */
	Range graph;
	Range norms;
	Range pending[2]; /* searches read one; a list without the linked slots is made in the other */
	Range seeds;	  /* two halves, likewise; behind them what codes are made with
					   * (mirror_seeds.h), and entries */
	Range codes;	  /* may have less room than the others: then the mirror has no codes */
	Range scales;	  /* of rotated codes, likewise; else there are no addresses either */
	uint32_t pending_side;
	uint32_t seeds_side;
	uint32_t entries_side;

	/* on the host */
	uint8_t *states;
	uint32_t *listed; /* the list of pending slots that searches scan */
	uint32_t nlisted;
	uint32_t *deferred; /* bitmap: rows that repairs changed and no result has had; or NULL */
	uint32_t deferred_rows;

	/* published */
	uint32_t rows;
	uint32_t linked;
	uint32_t npending;
	uint32_t ndead;
	uint32_t nseeds;
	uint64_t seeds_sum; /* entry_points_sum() of them */
	uint32_t nentries;	/* seeds in lists; 0: there are none (entry_points.h) */
	uint64_t position;

	/* what lists of entries were made of */
	uint64_t entry_points_sum;
	uint32_t relinked; /* rows linked since */

	/* codes (quantizer.h) */
	float *code_offsets;   /* those in use */
	float code_steps;	   /* 0: there are none yet */
	uint32_t coded;		   /* rows below this have codes */
	bool has_code_room;	   /* there is memory for the codes of all slots */
	bool has_ranges;	   /* the ranges of values were begun */
	bool ranges_changed;   /* rows were measured since they were looked at */
	uint32_t judged;	   /* rows that were linked at the last judgement */
	uint32_t overwritten;  /* rows since then */
	bool codes_good;	   /* searches walk them */
	bool codes_rotated;	   /* they are of rotated rows, with a scale each */

	CudaLists *lists; /* METHOD_IVFPQ; else NULL */

	uint32_t queries; /* waiting or in flight */
	uint32_t passes;  /* of them, those that have begun and take several passes */
	cudaEvent_t changed; /* the last change in place: later batches wait for it */
	bool has_changed;
	CudaJob *first_job;
	CudaJob *last_job;
	bool changes_in_place; /* the first job overwrites rows or makes them dead: searches in
						   * passes wait for it (jobs.cu) */
	bool dropping;
};

/* Bytes of the bitmap of rows that repairs have deferred. */
static inline size_t
mirror_deferred_bytes(const CudaMirror *mirror)
{
	return mirror->deferred == NULL
			   ? 0
			   : ((size_t) mirror->deferred_rows / 32 + 1) * sizeof(uint32_t);
}

/*
 * Make a mirror without memory on the device; then reserve addresses for as
 * many slots as the limits could hold. Who calls frees it if that fails.
 */
extern EngineStatus mirror_create(CudaDevice *device, const MirrorSpec *spec, CudaMirror **result,
								  EngineError *error);
extern EngineStatus mirror_reserve(CudaDevice *device, CudaMirror *mirror, EngineError *error);
/* Give a mirror its number, by which device_mirror finds it from then on. */
extern MirrorId mirror_enter(CudaDevice *device, CudaMirror *mirror);
/*
 * Grow to exactly so many slots: all or nothing, but that a range may stay
 * larger than the others.
 */
extern EngineStatus mirror_grow_to(CudaDevice *device, CudaMirror *mirror, uint32_t slots,
								   EngineError *error);
/*
 * Map host memory for the rows of slots below `slots` that the device has no
 * room for, with some to spare if that fits.
 */
extern EngineStatus mirror_grow_far(CudaDevice *device, CudaMirror *mirror, uint64_t slots,
									EngineError *error);
extern void mirror_free(CudaDevice *device, CudaMirror *mirror);
extern MirrorView mirror_view(const CudaMirror *mirror);
extern uint64_t mirror_bytes(const CudaMirror *mirror);
/* Rows below this are on the device; the rest is in host memory. */
extern uint32_t mirror_near_rows(const CudaMirror *mirror);
/*
 * Copy rows to or from a mirror, wherever its rows are; `other` is device or
 * pinned memory.
 */
extern bool mirror_copy_rows(CudaDevice *device, const CudaMirror *mirror, uint32_t slot,
							 uint32_t count, void *other, bool in, cudaStream_t stream);
extern EngineStatus mirror_rows(CudaDevice *device, CudaMirror *mirror, const uint32_t *slots,
								uint32_t count, uint32_t *rows, uint32_t *versions,
								EngineError *error);

#endif /* GPUANN_CUDA_MIRROR_H */
