/*
 * link.h
 *		Linking on the device: state shared by the kernels of a batch, and
 *		their launches.
 *
 * A link takes its rows batch by batch. Every row of a batch searches the graph
 * as it stood before the batch (link_walk.cu); then each row's neighbours are
 * chosen, rows are written, and reverse edges are added to their targets, group
 * by group (link_rows.cu; by codes link_codes.cu, link_codes_back.cu). Rows
 * that cannot be reached in the end get an incoming edge
 * (link_connectivity.cu). The rules are those of src/engine (prune.c,
 * prune_incremental.c, connectivity.c); the outcome depends on neither the
 * number of blocks nor how a batch is cut into launches. Driven by
 * cuda/jobs/link.cu.
 */
#ifndef GPUANN_CUDA_LINK_H
#define GPUANN_CUDA_LINK_H

#include "cuda/common/view.h"

typedef unsigned long long LinkEntry; /* distance (an ordered key) << 32 | slot << 1 | a flag */

#define LINK_THREADS 128u
#define LINK_WARPS (LINK_THREADS / WARP)
#define LINK_CODE_BLOCKS 6u /* on an SM, so many of a kernel that measures codes could be: it has 80
							 * registers, for what is on its way from memory */
#define LINK_FROM 256u	 /* slots that candidate searches start from */
#define LINK_PATH 64u	 /* first expansions of a search, candidates although farther than its list:
						  * the ways to far rows */
#define LINK_EQUALS 64u	 /* places for a row's duplicates, of which a quarter of the degree is
						  * used */
#define LINK_UNKNOWN 0xFFu
#define LINK_REGIONS 256u /* kinds of rows that are near to one another: one for each pivot */
#define LINK_NO_ENTRY 0xFFFFFFFFFFFFFFFFull
/* reverse edges that a row is shown of one batch, the nearest */
#define LINK_NEWCOMERS(degree) ((degree) < 32 ? 64u : 2 * (degree))

/* A batch of a link, in device memory. Passed to kernels by value. */
struct LinkBatch
{
	const uint32_t *slots; /* the batch's rows */
	uint32_t count;
	uint32_t ef;
	uint32_t room;			 /* candidates of one row: ef + LINK_PATH; of a repair, and degree */
	uint32_t max_equal;		 /* duplicates in one row */
	bool mates;				 /* rows of the batch are candidates of one another */
	bool repairs;			 /* rows have edges: candidates of theirs are flagged, and fill them
							  * first; only others take reverse edges */
	LinkEntry *candidates;	 /* count x room, each row's sorted; without duplicates of the row */
	uint32_t *ncandidates;
	uint32_t *equals;		 /* count x LINK_EQUALS: the row's duplicates, or NO_SLOT */
	uint32_t *chosen;		 /* count x degree, NO_SLOT after the last */
	LinkEntry *edge_keys;	 /* count x degree: target << 32 | distance; LINK_NO_ENTRY: none */
	uint32_t *edge_sources;
	uint32_t *groups;		 /* where the edges of each target begin, by the region of their first
							  * source */
	uint32_t *ngroups;
	uint32_t *group_places;	 /* of each region, and behind them ngroups: where its next group
							  * goes */
	uint32_t *graph;		 /* the mirror's */
	uint32_t *changed;		 /* bitmap of rows */
	int32_t *code_terms;	 /* of every row of the mirror, what it adds to a distance by codes
							  * (link_codes.cuh); NULL: rows are measured as stored */
	uint8_t *kept_counts;	 /* likewise, how many of its neighbours are kept ones, where that was
							  * written by codes; else LINK_UNKNOWN */
	const uint32_t *lists;	 /* of entries, a graph row's places each, to start from instead of the
							  * seeds; NULL: there are none (entry_points.h) */
	uint32_t *near;			 /* ENTRY_CHOICES x count: the nearest of these, then the second
							  * nearest, and so on */
	uint32_t *turns;		 /* the batch's rows in the order in which kernels take them: those of a
							  * region together; NULL: one after the other */
	uint8_t *regions;		 /* of every row of the mirror, the region that it was in when it was
							  * linked; 0 at first */
};

/* The row of a batch that has the i-th turn. */
__device__ static inline uint32_t
link_item(const LinkBatch &batch, uint32_t i)
{
	return batch.turns != NULL ? batch.turns[i] : i;
}

/* What is known of who can be reached, in device memory; bitmaps of rows. */
struct LinkReach
{
	uint32_t *reached;
	uint32_t *expanded;
	uint32_t *selected; /* of those left out, those that get a way in this round; and the seeds */
	uint32_t *wanted;	/* those that shall be reached */
	uint32_t *found;	/* whether sweeps found any more */
	uint32_t *attached; /* the last row that got a way in, or NO_SLOT */
	uint32_t *edges_in; /* of reached rows */
};

/*
 * A part of a batch: rows, or edges, and how many blocks at most share them.
 * Which groups of edges a part has follows from its share of all edges.
 */
struct CudaLinkPart
{
	uint32_t first;
	uint32_t count;
	uint32_t blocks;
};

/* Allow kernels their shared memory. */
extern cudaError_t link_walk_prepare(size_t shared_room);
extern cudaError_t link_rows_prepare(size_t shared_room);
extern cudaError_t link_repair_prepare(size_t shared_room);
extern cudaError_t link_codes_prepare(size_t shared_room); /* those of link_codes_back.cu too */
extern cudaError_t link_back_codes_prepare(size_t shared_room);

/* Let the rows of a batch that have chosen lists take turns by regions. */
extern cudaError_t link_turns_launch(const LinkBatch *batch, cudaStream_t stream);
/* Find candidates of a part's rows. */
extern cudaError_t link_walk_launch(const MirrorView *mirror, const LinkBatch *batch,
									CudaLinkPart part, cudaStream_t stream);
/* Bytes of shared memory that a block of a walk of this breadth takes. */
extern size_t link_walk_bytes(const MirrorView *mirror, uint32_t ef);
/*
 * Gather candidates of a part's rows that name dead slots: around these, and
 * with poor NULL among those that a walk has written. Else rows that find few
 * are marked in that bitmap.
 */
extern cudaError_t link_gather_around_launch(const MirrorView *mirror, const LinkBatch *batch,
											 CudaLinkPart part, uint32_t *poor,
											 cudaStream_t stream);
/* Bytes of shared memory that a block of that takes. */
extern size_t link_repair_bytes(uint32_t degree);
/* Choose the neighbours of a part's rows. */
extern cudaError_t link_choose_launch(const MirrorView *mirror, const LinkBatch *batch,
									  CudaLinkPart part, cudaStream_t stream);
/* Write the batch's rows, and group the reverse edges by target. */
extern cudaError_t link_write_launch(const MirrorView *mirror, const LinkBatch *batch,
									 cudaStream_t stream);
extern cudaError_t link_group_launch(const LinkBatch *batch, uint32_t edges, cudaStream_t stream);
/* Give the targets of a part their reverse edges. */
extern cudaError_t link_back_launch(const MirrorView *mirror, const LinkBatch *batch,
									CudaLinkPart part, cudaStream_t stream);

/*
 * Whether distances by a mirror's codes can be told in 32 bits; offsets are in
 * host memory.
 */
extern bool link_codes_serve(const MirrorView *mirror, const float *offsets);
/* Make the terms of all rows, by so many blocks. */
extern cudaError_t link_terms_launch(const MirrorView *mirror, int32_t *terms, uint32_t blocks,
									 cudaStream_t stream);
/* As those above, by codes. */
extern cudaError_t link_choose_codes_launch(const MirrorView *mirror, const LinkBatch *batch,
											CudaLinkPart part, cudaStream_t stream);
extern cudaError_t link_back_codes_launch(const MirrorView *mirror, const LinkBatch *batch,
										  CudaLinkPart part, cudaStream_t stream);
/*
 * Put rows of the mirror that were written by codes in the order of distances
 * as stored.
 */
extern cudaError_t link_order_launch(const MirrorView *mirror, const LinkBatch *batch,
									 CudaLinkPart part, cudaStream_t stream);

/* Copy graph rows of slots to `to`. */
extern cudaError_t link_gather_launch(const MirrorView *mirror, const uint32_t *slots,
									  uint32_t count, uint32_t *to, cudaStream_t stream);

/*
 * link_repair.cu. Mark rows of [first, end) that name dead slots, in the bitmap
 * `found`, by so many blocks.
 */
extern cudaError_t link_find_launch(const MirrorView *mirror, uint32_t *found, uint32_t first,
									uint32_t end, uint32_t blocks, cudaStream_t stream);

/*
 * link_connectivity.cu. Lay the tables out from `at` on; returns their bytes.
 * They are zero, and `attached` NO_SLOT, before the first of a round: the seeds
 * of the mirror count as reached.
 */
extern size_t link_reach_lay_out(LinkReach *reach, uint32_t rows, unsigned char *at);
extern cudaError_t link_reach_start(const MirrorView *mirror, const LinkReach *reach,
									cudaStream_t stream);
/* Mark what rows newly reached lead to, by so many blocks. */
extern cudaError_t link_reach_sweep(const MirrorView *mirror, const LinkReach *reach,
									uint32_t blocks, cudaStream_t stream);
/* Select rows left out, of each island few, likewise; and the seeds. */
extern cudaError_t link_reach_select(const MirrorView *mirror, const LinkReach *reach,
									 uint32_t blocks, cudaStream_t stream);
/*
 * Give rows [first, first + count) of a batch, which has walked, an edge in;
 * seeds where no row that the walk has found names them.
 */
extern cudaError_t link_reach_attach(const MirrorView *mirror, const LinkBatch *batch,
									 const LinkReach *reach, uint32_t first, uint32_t count,
									 cudaStream_t stream);

#endif /* GPUANN_CUDA_LINK_H */
