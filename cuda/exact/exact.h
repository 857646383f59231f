/*
 * exact.h
 *		Interface of exact search to the code that launches batches.
 */
#ifndef GPUANN_CUDA_EXACT_H
#define GPUANN_CUDA_EXACT_H

#include "cuda/common/view.h"

#define EXACT_SMALL_K 1024u	   /* up to this k a block keeps the best of its rows in shared
							    * memory */
#define EXACT_TILE (1u << 20)  /* rows per sort, for larger k */
#define EXACT_CHUNK (1u << 18) /* maximum number of results of one pass over the rows; for a larger
							    * k, passes continue after the last result */

/*
 * Limits of a device for exact searches, and the configuration's overrides; set
 * once by exact_prepare(). Sizes are bytes of dynamic shared memory of a block.
 */
struct ExactLimits
{
	ExactWay way;	  /* the method for searches that several can run: chosen or forced */
	bool tiles_asked; /* the configuration sets the minimum number of queries for tiles */
	uint32_t tile_rows; /* rows per tile of searches with a large k */

	/* exact_fused.cu */
	size_t fused_shared;
	bool fused_in_groups; /* the ring is filled by groups of 16-byte copies */

	/* exact_tiles.cu: minimum number of queries and rows for tiles */
	size_t tiles_shared;
	uint32_t least_queries;
	uint32_t least_rows;

	/* exact_wgmma.cu */
	size_t wgmma_shared; /* 0: not supported by the device */
	uint32_t wgmma_processors;
	uint32_t wgmma_queries; /* tile size, if it is forced; else 0 */
};

/*
 * An exact search of all rows, or of the pending ones, for the queries of a
 * batch.
 */
struct ExactLaunch
{
	const ExactLimits *limits;
	MirrorView mirror;
	BatchView batch;
	ElementType type;
	uint32_t queries;
	uint32_t max_k;
	uint32_t blocks; /* number of blocks that occupy the device */
	size_t state_bytes;
	uint32_t processors;
	void *table; /* table of the fused kernel: device memory, all bits set between launches */
	bool pending_only;
	bool filtered; /* some query has a bitmap */
	bool in_place; /* some rows are in host memory: read only rows that may be results */
	cudaStream_t stream;
};

/*
 * Lists that a scan leaves in the batch's state: queries x lists x length keys,
 * followed by as many slots.
 */
struct ExactLists
{
	Key *keys;
	uint32_t *slots;
	uint32_t lists;
	uint32_t length;
};

/* State of an exact search between tiles of rows. */
struct ExactStream
{
	bool sorts; /* k > EXACT_SMALL_K, one query */
	/*
	 * scan: bounds, and the lists; the last list of each query is its best so
	 * far
	 */
	ExactLists lists;
	Key *bounds;
	uint32_t *flags; /* per query: tables needed by merging */
	/* sort */
	uint32_t side;
	uint32_t kept;
};

/*
 * Find the best max_k of each of several ranges of rows; max_k <=
 * EXACT_SMALL_K.
 */
extern cudaError_t exact_scan_launch(const ExactLaunch *launch, ExactLists *lists);
/*
 * Queries and vectors in host memory, for the kernel's arguments. bytes 0: they
 * have been copied to the batch already.
 */
struct FusedInput
{
	const DeviceQuery *queries;
	const unsigned char *vectors;
	size_t bytes; /* of the vectors */
};

/*
 * Whether a search runs as one fused kernel, which writes the results and the
 * batch's flag itself.
 */
extern bool exact_at_once(const ExactLaunch *launch);
/*
 * Whether this many queries with vectors of `bytes` in all fit into the
 * kernel's arguments.
 */
extern bool fused_carries(uint32_t queries, size_t bytes);
extern cudaError_t fused_launch(const ExactLaunch *launch, const FusedInput *input);
extern size_t fused_table_bytes(void);
/* Answer the queries of a batch by the best method. Heads must be cleared. */
extern cudaError_t exact_search_launch(const ExactLaunch *launch);
/*
 * Answer the first query of a batch, with any k up to EXACT_CHUNK, by sorting
 * the keys of all rows tile by tile.
 */
extern cudaError_t exact_sort_launch(const ExactLaunch *launch);
/*
 * An exact search of rows that arrive in tiles: call begin, then rows for each
 * tile in ascending order; the first has `first` rows, none more than
 * EXACT_TILE; the last one writes the results. launch->mirror.vectors must be
 * set so that a tile's slots address its rows; the launch is otherwise the same
 * for all calls. With max_k > EXACT_SMALL_K there is only one query.
 */
extern cudaError_t exact_stream_begin(const ExactLaunch *launch, uint32_t first,
									  ExactStream *stream);
extern cudaError_t exact_stream_rows(const ExactLaunch *launch, ExactStream *stream, uint32_t from,
									 uint32_t end);
/* Bytes of state per query for scans with this many results. */
extern size_t exact_stream_bytes(uint32_t max_k);
/* Bytes of state for exact_sort_launch(). */
extern cudaError_t exact_sort_bytes(size_t *bytes);
/* Number of queries with max_k results for which state_bytes suffices. */
extern uint32_t exact_scan_queries(size_t state_bytes, uint32_t max_k);
/* Raise the kernels' shared memory limits. */
extern cudaError_t exact_prepare(size_t shared_room, const EngineForced *forced,
								 ExactLimits *limits);
/*
 * exact_wgmma.cu: whether tiles are multiplied by warp groups. Valid after
 * exact_prepare().
 */
extern bool exact_has_groups(const ExactLimits *limits);

#endif /* GPUANN_CUDA_EXACT_H */
