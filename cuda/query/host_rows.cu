/*
 * host_rows.cu
 *		Exact searches of mirrors with rows in host memory: tiles of rows are
 *		streamed through two device buffers.
 *
 * A batch occupies a batch stream and both buffers. The copy stream fills one
 * buffer with a tile while the batch stream searches the other; each waits for
 * the other's events, and the first copies for what the batch stream waits for
 * when it starts: the last change in place of the rows. Rows on the device are
 * searched in place, while the first two tiles are copied. Bound: the bus,
 * (bytes in host memory) / (bandwidth of a pinned copy), once for all queries
 * of a batch.
 *
 * Work is launched in parts of PART tiles, because a table may take seconds and
 * the owner serves other batches meanwhile. A part is launched while the
 * previous one runs; it begins by raising the batch stream's flag, which tells
 * the owner that the previous part has finished.
 *
 * Rows in host memory are pinned and mapped, so kernels that touch few of them
 * (reranking after a walk over codes, rows admitted by a selective filter) read
 * them in place, and jobs write them in place, in the same stream order as rows
 * on the device. A batch sees its rows unchanged from its first tile to its
 * last: overwrites and deletions in that mirror are held back meanwhile, as for
 * searches in several passes.
 */
#include <string.h>

#include "cuda/query/cuda_engine.h"

#define TILE_BYTES ((size_t) 64 << 20) /* 1.3 ms at 50 GB/s: about 20 times the cost of launching
									    * and merging a tile */
#define TILE_DIVISOR 256u /* a buffer is at most limit / 256; a power of two */
#define PART 8u
#define PASSING_DIVISOR 16u /* filters with selectivity below 1/16 read rows singly instead of
						   * streaming */

EngineStatus
host_rows_open(CudaEngine *engine, EngineError *error)
{
	RowStream *stream = &engine->stream;
	size_t bytes = TILE_BYTES;
	EngineStatus status;

	if (stream->tile_bytes > 0)
		return ENGINE_OK;
	while (bytes > engine->device.arena.limit / TILE_DIVISOR)
		bytes /= 2;
	status = stream->memory.base != 0
				 ? ENGINE_OK
				 : range_take(&engine->device.arena, &stream->memory, PART_STATE, 2 * bytes, error);
	if (status != ENGINE_OK)
		return status;
	if (!GPU(&engine->device.failure,
			 cudaStreamCreateWithFlags(&stream->copies, cudaStreamNonBlocking)))
		return gpu_failed(&engine->device.failure, error);
	for (int i = 0; i < 2; i++)
		if (!GPU(&engine->device.failure,
				 cudaEventCreateWithFlags(&stream->copied[i], cudaEventDisableTiming)) ||
			!GPU(&engine->device.failure,
				 cudaEventCreateWithFlags(&stream->searched[i], cudaEventDisableTiming)))
			return gpu_failed(&engine->device.failure, error);
	stream->forced = engine->config.forced.stream_tile;
	stream->tile_bytes = bytes;
	return ENGINE_OK;
}

void
host_rows_close(CudaEngine *engine)
{
	RowStream *stream = &engine->stream;

	for (int i = 0; i < 2; i++)
	{
		if (stream->copied[i] != NULL)
			GPU(&engine->device.failure, cudaEventDestroy(stream->copied[i]));
		if (stream->searched[i] != NULL)
			GPU(&engine->device.failure, cudaEventDestroy(stream->searched[i]));
	}
	if (stream->copies != NULL)
		GPU(&engine->device.failure, cudaStreamDestroy(stream->copies));
	range_release(&engine->device.arena, &stream->memory);
	memset(stream, 0, sizeof(*stream));
}

bool
host_rows_takes(const CudaTask *task)
{
	const CudaMirror *mirror = task->mirror;

	if (task->method != METHOD_EXACT || mirror->rows <= mirror_device_rows(mirror))
		return false;
	return !task_is_filtered(task) ||
		   task->passing > mirror->rows / PASSING_DIVISOR;
}

bool
host_rows_waits(const CudaEngine *engine, const CudaTask *task)
{
	return engine->stream.bstream != NULL && host_rows_takes(task);
}

uint32_t
host_rows_queries(uint32_t max_k)
{
	return (uint32_t) ((STATE_ROOM - 16) / exact_stream_bytes(max_k));
}

/* Rows of a tile from host memory. */
static uint32_t
tile_rows(const RowStream *stream, const CudaMirror *mirror)
{
	size_t rows = stream->tile_bytes / mirror->stride;

	rows = rows < EXACT_TILE ? rows : EXACT_TILE;
	return stream->forced > 0 && stream->forced < rows ? stream->forced : (uint32_t) rows;
}

/*
 * Launch the search of rows [from, end), which launch->mirror.vectors
 * addresses.
 */
static bool
search_rows(CudaEngine *engine, const ExactLaunch *launch, uint32_t from, uint32_t end)
{
	RowStream *stream = &engine->stream;

	stream->tiles++;
	return gpu_check(&engine->device.failure, exact_stream_rows(launch, &stream->search, from, end),
					 "the launch of a tile of rows");
}

/*
 * Copy a tile into the next buffer and search it there. The copy waits until
 * the buffer's previous search has finished, the search until the copy has: two
 * events per buffer order the two streams.
 */
static bool
send_tile(CudaEngine *engine, const BatchStream *bstream, uint32_t from, uint32_t end)
{
	RowStream *stream = &engine->stream;
	Failure *failure = &engine->device.failure;
	uint32_t side = stream->tiles % 2;
	unsigned char *buffer = (unsigned char *) stream->memory.base + side * stream->tile_bytes;
	ExactLaunch launch = stream->launch;

	launch.mirror.vectors = buffer - (size_t) from * launch.mirror.stride;
	return GPU(failure, cudaStreamWaitEvent(stream->copies, stream->searched[side], 0)) &&
		   mirror_copy_rows(&engine->device, bstream->mirror, from, end - from, buffer, false,
							stream->copies) &&
		   GPU(failure, cudaEventRecord(stream->copied[side], stream->copies)) &&
		   GPU(failure, cudaStreamWaitEvent(bstream->stream, stream->copied[side], 0)) &&
		   search_rows(engine, &launch, from, end) &&
		   GPU(failure, cudaEventRecord(stream->searched[side], bstream->stream));
}

/* Launch up to PART tiles, device rows first. */
bool
host_rows_continue(CudaEngine *engine, const BatchStream *bstream)
{
	RowStream *stream = &engine->stream;
	uint32_t rows = stream->launch.mirror.rows;
	uint32_t tile = tile_rows(stream, bstream->mirror);

	for (uint32_t i = 0; i < PART && stream->next < rows; i++)
	{
		bool near = stream->next < stream->near;
		uint32_t most = near ? EXACT_TILE : tile;
		uint32_t last = near ? stream->near : rows;
		uint32_t end = last - stream->next < most ? last : stream->next + most;

		if (!(near ? search_rows(engine, &stream->launch, stream->next, end)
				   : send_tile(engine, bstream, stream->next, end)))
			return false;
		stream->next = end;
	}
	return true;
}

void
host_rows_part(const CudaEngine *engine, const CudaMirror *mirror, uint64_t *rows, uint64_t *bytes)
{
	*rows = mirror->rows < PART * (uint64_t) EXACT_TILE ? mirror->rows
														: PART * (uint64_t) EXACT_TILE;
	*bytes = PART * (uint64_t) engine->stream.tile_bytes;
}

uint64_t
host_rows_passing_bytes(const CudaMirror *mirror)
{
	uint64_t near = mirror_device_rows(mirror);

	return mirror->rows > near ? (mirror->rows - near) / PASSING_DIVISOR * mirror->stride : 0;
}

/*
 * Both buffers are free as soon as the batch stream comes to its first search,
 * and not before: rows are copied by another stream, which would not wait for
 * the change in place that the batch stream waits for, and would copy rows of
 * before it beside versions and norms of after it. The searches of the batch
 * before have finished.
 */
static bool
free_buffers(CudaEngine *engine, const BatchStream *bstream)
{
	RowStream *stream = &engine->stream;

	return GPU(&engine->device.failure, cudaEventRecord(stream->searched[0], bstream->stream)) &&
		   GPU(&engine->device.failure, cudaEventRecord(stream->searched[1], bstream->stream));
}

bool
host_rows_begin(CudaEngine *engine, BatchStream *bstream, const ExactLaunch *launch)
{
	RowStream *stream = &engine->stream;
	uint32_t rows = launch->mirror.rows;
	uint32_t near = mirror_device_rows(bstream->mirror);
	uint32_t first = near > 0 ? near : tile_rows(stream, bstream->mirror);

	stream->bstream = bstream;
	stream->launch = *launch;
	stream->near = near < rows ? near : rows;
	stream->next = stream->tiles = 0;
	bstream->mirror->passes++;
	first = first < rows ? first : rows;
	return free_buffers(engine, bstream) &&
		   gpu_check(
			   &engine->device.failure,
			   exact_stream_begin(launch, first < EXACT_TILE ? first : EXACT_TILE, &stream->search),
			   "the start of a batch in tiles") &&
		   host_rows_continue(engine, bstream);
}

bool
host_rows_more(const CudaEngine *engine)
{
	return engine->stream.next < engine->stream.launch.mirror.rows;
}

uint32_t
host_rows_end(CudaEngine *engine, BatchStream *bstream)
{
	engine->stream.bstream = NULL;
	bstream->mirror->passes--;
	return engine->stream.tiles;
}
