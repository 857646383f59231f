/*
 * link_job.h
 *		Linking on the device as a stage of JOB_LINK, and repair, of JOB_REPAIR:
 *		between jobs.cu and link.cu.
 */
#ifndef GPUANN_CUDA_LINK_JOB_H
#define GPUANN_CUDA_LINK_JOB_H

#include "cuda/jobs/job.h"
#include "cuda/link/link.h"
#include "cuda/common/sort.h"

#define LINK_BATCH_DIVISOR 8u /* a batch is at most this part of the graph, but for small ones */

/* What a link does next. */
typedef enum LinkPhase
{
	LINK_BEGIN,
	LINK_BROKEN, /* a repair: find rows that name dead slots */
	LINK_SLOTS,	 /* copy the slots to link to the device, */
	LINK_STARTS, /* and the slots that walks start from */
	LINK_JUDGE,	 /* judge codes by the rows linked so far */
	LINK_TERMS,	 /* compute the terms by which codes are measured from now on */
	LINK_WALK,
	LINK_AROUND, /* a repair: gather the neighbours of dead neighbours */
	LINK_CHOOSE,
	LINK_WRITE,
	LINK_BACK,
	LINK_ORDER, /* sort graph rows that were written by codes */
	LINK_POOR,	/* a repair: walk again for rows with too few candidates */
	LINK_DRAIN, /* wait for the last batch */
	LINK_SEEDS, /* copy the seeds that stay to the host */
	LINK_REACH, /* attach unreachable rows */
	LINK_BITS,	/* copy the bitmap of changed rows to the host, */
	LINK_ROWS,	/* then these rows */
	LINK_OVER
} LinkPhase;

/* Whether rows are measured by their codes. */
typedef enum LinkCodes
{
	CODES_NEVER,
	CODES_UNJUDGED, /* not yet */
	CODES_SERVE
} LinkCodes;

struct CudaLinkWork
{
	LinkPhase phase;
	bool repairs;	 /* JOB_REPAIR */
	bool walks;		 /* a repair that is at LINK_POOR */
	int step;		 /* of LINK_BROKEN, LINK_REACH */
	uint32_t rounds; /* likewise */
	LinkReach reach;
	uint32_t *left_out; /* on the host: selected rows */
	const uint32_t *fetch_from;
	uint32_t *fetch_to;
	Range memory;
	LinkBatch batch;
	uint32_t *slots; /* to link, on the host; */
	uint32_t slots_room; /* capacity */
	uint32_t count;
	uint32_t first; /* of the batch */
	uint32_t most;	/* maximum rows of a batch */
	uint32_t done;	/* of the phase: rows, parts, or words */
	uint32_t got;
	uint32_t nstarts; /* seeds of the mirror, of LINK_FROM */
	LinkCodes codes;
	uint32_t judge_at; /* number of linked rows at which codes are judged next */
	bool judging;
	uint32_t lists;	  /* lists of entry points made for this link */
	uint32_t listed;  /* rows that were linked when lists were made */
	uint32_t chosen;  /* rows of the link below this have chosen lists, or are to start from
					   * seeds */

	/* on the device */
	uint32_t *device_slots;
	uint32_t *starts; /* LINK_FROM: seeds of the mirror, then the first rows linked */
	uint32_t *turns;  /* batch.turns, where rows have chosen lists */
	EntrySort edges;  /* back: key target << 32 | distance, slot the source */
	int32_t *terms;	  /* batch.code_terms, once rows are measured by codes; NULL: they never will
					   * be */

	uint32_t *bits; /* a bitmap of rows, copied from the device or to it */
	bool keeps_seeds;
	uint32_t *result_slots;
	uint32_t *result_rows;
	uint32_t *result_seeds;
	uint64_t *result_linked;
	uint8_t *linked_here; /* bitmap of slots this link has linked */

	Fetch fetches[PIECES];
};

/*
 * link_begin.cu. Allocate what a link needs. ENGINE_UNSUPPORTED: the device
 * cannot link this mirror as it is; ENGINE_NO_MEMORY: not now. job->error says
 * why, and nothing has changed.
 */
extern EngineStatus link_begin(CudaEngine *engine, CudaJob *job);
/*
 * Link, and copy what changed to job->link. True when over; job->link_status is
 * its result.
 */
extern bool link_stage(CudaEngine *engine, CudaJob *job);
/* link_result.cu: the phases of link_stage() after the last batch; the same */
extern bool link_bring_result(CudaEngine *engine, CudaJob *job);
/*
 * Copy that many words to the host, several pieces at a time. True when done.
 */
extern bool link_fetch(CudaEngine *engine, CudaJob *job, const uint32_t *from, uint32_t *to,
					   uint32_t words);
/*
 * link_repair_job.cu. Put the slots together that a repair looks at; which of
 * them name dead slots; which have found little: true when known
 */
extern bool link_collect_repair(const CudaJob *job, CudaLinkWork *work);
extern bool link_find_broken(CudaEngine *engine, CudaJob *job);
extern bool link_find_poor(CudaEngine *engine, CudaJob *job);
/* Replace dead seeds by others. */
extern void link_replace_dead_seeds(CudaJob *job);
/* link_connectivity_job.cu: as link_stage */
extern bool link_reach(CudaEngine *engine, CudaJob *job);
/* A link's view of its mirror, for kernels. */
extern MirrorView link_mirror(const CudaJob *job);
/* Maximum number of blocks of a link's kernel now. */
extern uint32_t link_blocks(CudaEngine *engine, CudaLinkWork *work);
/*
 * Send a piece of the batch's walks, over the mirror as `view` has it. False:
 * not now.
 */
extern bool link_send_walk(CudaEngine *engine, CudaJob *job, const MirrorView *view);
/*
 * Choose seeds spread over the linked slots, any prefix of them too; returns
 * how many.
 */
extern uint32_t link_choose_seeds(const CudaMirror *mirror, const CudaLinkWork *work, uint32_t want,
								  uint32_t *seeds);
/* Free all memory of a link but its result. */
extern void link_end(CudaEngine *engine, CudaJob *job);

#endif /* GPUANN_CUDA_LINK_JOB_H */
