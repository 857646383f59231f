/*
 * exact.h
 *		Exact search: what the batch code needs to know to launch it.
 */
#ifndef GPUANN_CUDA_EXACT_H
#define GPUANN_CUDA_EXACT_H

#include "cuda/common/view.h"

#define EXACT_SMALL_K 1024u	   /* up to here a block keeps the best of its rows in shared memory */
#define EXACT_TILE (1u << 20)  /* rows sorted at once for larger k */
#define EXACT_CHUNK (1u << 18) /* results one pass over the rows finds; a larger k continues behind
							    * the last */

/*
 * An exact search of a batch's queries over all rows, or over the pending ones.
 */
struct ExactLaunch
{
	MirrorView mirror;
	BatchView batch;
	ElementType type;
	uint32_t queries;
	uint32_t max_k;
	uint32_t blocks; /* blocks that keep the device busy */
	size_t state_bytes;
	uint32_t processors;
	void *table; /* of searches at once: device memory, all bits set but while one runs */
	bool pending_only;
	bool filtered; /* some query has a bitmap */
	bool in_place; /* rows are far: only those that may be answers are read */
	cudaStream_t stream;
};

/*
 * Lists that a scan leaves in the batch's state: queries x lists x length keys,
 * then as many slots.
 */
struct ExactLists
{
	Key *keys;
	uint32_t *slots;
	uint32_t lists;
	uint32_t length;
};

/* What an exact search keeps from one tile of rows to the next. */
struct ExactStream
{
	bool sorts; /* many results, of one query */
	/* of a scan: bounds, and as the last list of each query its best so far */
	ExactLists lists;
	Key *bounds;
	uint32_t *flags; /* of each query; tables that merging wants */
	/* of a sort */
	uint32_t side;
	uint32_t kept;
};

/* The best max_k of each of several ranges of rows, max_k <= EXACT_SMALL_K. */
extern cudaError_t exact_scan_launch(const ExactLaunch *launch, ExactLists *lists);
/*
 * Queries and their vectors, where the host has them; bytes 0: they have been
 * copied to where the batch says.
 */
struct FlowInput
{
	const DeviceQuery *queries;
	const unsigned char *vectors;
	size_t bytes; /* of the vectors */
};

/*
 * Whether a search is one launch, which writes its answers and the batch's flag
 * itself.
 */
extern bool exact_at_once(const ExactLaunch *launch);
/* Whether that takes queries of so many bytes along. */
extern bool flow_carries(size_t bytes);
extern cudaError_t flow_launch(const ExactLaunch *launch, const FlowInput *input);
extern size_t flow_table_bytes(void);
/*
 * The answers of a batch, in whichever way is best for it. Heads have been
 * cleared.
 */
extern cudaError_t exact_search_launch(const ExactLaunch *launch);
/*
 * The first query of a batch, with any k up to EXACT_CHUNK: keys of all rows,
 * sorted tile by tile.
 */
extern cudaError_t exact_sort_launch(const ExactLaunch *launch);
/*
 * An exact search of rows that come in tiles: begin, then the tiles in
 * ascending order, the first of `first` rows, none of more than EXACT_TILE; the
 * last writes the answers. launch->mirror.vectors is such that a tile's slots
 * find their rows. All calls have the same launch otherwise; max_k above
 * EXACT_SMALL_K is that of its only query.
 */
extern cudaError_t exact_stream_begin(const ExactLaunch *launch, uint32_t first,
									  ExactStream *stream);
extern cudaError_t exact_stream_rows(const ExactLaunch *launch, ExactStream *stream, uint32_t from,
									 uint32_t end);
/* State that a scan of this many results wants for each query. */
extern size_t exact_stream_bytes(uint32_t max_k);
/* State that exact_sort_launch needs. */
extern cudaError_t exact_sort_bytes(size_t *bytes);
/* Queries of length k that a scan has room for in state_bytes. */
extern uint32_t exact_scan_queries(size_t state_bytes, uint32_t max_k);
extern cudaError_t exact_prepare(size_t shared_room, const EngineForced *forced);
/*
 * exact_wgmma.cu: whether tiles are multiplied by warp groups (after
 * exact_prepare).
 */
extern bool exact_has_groups();

#endif /* GPUANN_CUDA_EXACT_H */
