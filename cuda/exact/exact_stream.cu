/*
 * exact_stream.cu
 *		Exact search of rows that are copied to the device in tiles.
 *
 * No kernels of its own. k <= EXACT_SMALL_K: each tile is scanned
 * (exact_scan.cu) with the bounds of the previous tiles, so hardly a row of
 * later tiles is measured exactly. Its lists and the best so far, which is the
 * last list of each query, are merged into that last list. Larger k, one query
 * at a time: sort_rows() and sort_end() of exact.cu, as for resident rows. The
 * tile size does not change results: entries have a total order, and the k best
 * of all are among the k best of the parts. Launched by host_rows.cu.
 */
#include <string.h>

#include "cuda/exact/exact_parts.h"

/*
 * Bytes per query besides its lists: the bound, and two tables needed by
 * merging.
 */
#define QUERY_BYTES (sizeof(Key) + 2 * sizeof(uint32_t))

size_t
exact_stream_bytes(uint32_t max_k)
{
	return QUERY_BYTES + 2 * entries_bytes(max_k);
}

/*
 * Lay out a scan in the batch's state: at least one range, as many as are
 * useful and fit, and one more list.
 */
static void
lay_out_lists(const ExactLaunch *launch, ExactStream *stream)
{
	uint32_t queries = launch->queries;
	size_t tables = round_up(queries * QUERY_BYTES, 16);
	uint32_t ranges = scan_ranges(launch, EXACT_TILE);
	uint32_t room = exact_scan_queries(launch->state_bytes - tables, launch->max_k) / queries;

	if (ranges + 1 > room)
		ranges = room > 1 ? room - 1 : 1;
	stream->bounds = (Key *) launch->batch.state;
	stream->flags = (uint32_t *) (stream->bounds + queries);
	stream->lists.lists = ranges + 1;
	stream->lists.length = launch->max_k;
	stream->lists.keys = (Key *) (launch->batch.state + tables);
	stream->lists.slots =
		(uint32_t *) (stream->lists.keys + (size_t) queries * (ranges + 1) * launch->max_k);
}

cudaError_t
exact_stream_begin(const ExactLaunch *launch, uint32_t first, ExactStream *stream)
{
	size_t entries;
	cudaError_t error;

	memset(stream, 0, sizeof(*stream));
	stream->sorts = launch->max_k > EXACT_SMALL_K;
	if (stream->sorts)
		return cudaSuccess;
	lay_out_lists(launch, stream);
	entries = (size_t) launch->queries * stream->lists.lists * launch->max_k;
	/*
	 * bounds and the lists' keys become NO_KEY; flags become nonzero
	 * ("spilled"), so that merging computes no limits for tensor cores
	 */
	error =
		cudaMemsetAsync(launch->batch.state, 0xFF, launch->queries * QUERY_BYTES, launch->stream);
	if (error == cudaSuccess)
		error = cudaMemsetAsync(stream->lists.keys, 0xFF,
								entries * (sizeof(Key) + sizeof(uint32_t)), launch->stream);
	return error;
}

cudaError_t
exact_stream_rows(const ExactLaunch *launch, ExactStream *stream, uint32_t from, uint32_t end)
{
	ExactLaunch part = *launch;
	ScanPlan plan;
	MergeTo to;
	size_t best = (size_t) (stream->lists.lists - 1) * stream->lists.length;
	cudaError_t error;

	if (stream->sorts)
	{
		error = sort_rows(launch, stream, from, end);
		return error == cudaSuccess && end == launch->mirror.rows ? sort_end(launch, stream)
																  : error;
	}
	part.mirror.rows = end;
	memset(&plan, 0, sizeof(plan));
	plan.first = from;
	plan.step = 1;
	plan.bounds = stream->bounds;
	plan.lists = stream->lists;
	plan.ranges = stream->lists.lists - 1;
	error = scan_launch(&part, &plan, launch->batch.state, launch->state_bytes);
	if (error != cudaSuccess)
		return error;
	memset(&to, 0, sizeof(to));
	to.results = end == launch->mirror.rows;
	to.tables.bounds = stream->bounds;
	to.tables.spilled = stream->flags;
	to.tables.nbest = stream->flags + launch->queries;
	to.tables.best.key = stream->lists.keys + best;
	to.tables.best.slot = stream->lists.slots + best;
	to.tables.length = stream->lists.lists * stream->lists.length;
	return merge_launch(&part, &stream->lists, &to);
}
