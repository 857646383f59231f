/*
 * job_upload.cu
 *		One piece of a job at a time: staged in pinned memory, copied, applied
 *		by a small kernel.
 *
 * Pieces run on the job stream in the order they were made. Appends write
 * beyond the published rows and need nothing more. Changes in place
 * (overwritten and dead slots) wait on the device for the batches in flight
 * that read the mirror, and batches that start later wait for them: so no
 * search pairs a new version with an old vector. Graph rows are replaced under
 * searches: every neighbour of a half-replaced row is a published slot.
 *
 * Kernels: 256 threads; one thread per slot for versions and bits, a warp per
 * row for vectors, two threads per row for norms. They move a piece (4 MiB at
 * most) once and are bound by launch latency. Launched by jobs.cu.
 */
#include <string.h>

#include "cuda/common/distance.cuh"
#include "cuda/jobs/job.h"
#include "cuda/jobs/quantizer_jobs.h"

#define THREADS 256u
#define STAGED_CHUNK ((size_t) 256 << 10) /* bytes of vectors that a thread stages at once */

static inline uint32_t
blocks_for(uint64_t threads)
{
	return (uint32_t) ((threads + THREADS - 1) / THREADS);
}

/*
 * Set versions and dead bits of slots: those named, or count from first on.
 * dead NULL: `all` says.
 */
__global__ void __launch_bounds__(THREADS)
	set_slots_kernel(uint32_t *versions, uint32_t *dead_bits, const uint32_t *slots, uint32_t first,
					 const uint32_t *new_versions, const uint8_t *dead, bool all, uint32_t count)
{
	uint32_t i = blockIdx.x * THREADS + threadIdx.x;
	uint32_t slot;

	if (i >= count)
		return;
	slot = slots != NULL ? slots[i] : first + i;
	versions[slot] = new_versions != NULL ? new_versions[i] : 0;
	if (dead != NULL ? dead[i] != 0 : all)
		atomicOr(&dead_bits[slot >> 5], 1u << (slot & 31));
	else
		atomicAnd(&dead_bits[slot >> 5], ~(1u << (slot & 31)));
}

/* Copy rows of `width` words to the slots named: a warp per row. */
__global__ void
__launch_bounds__(THREADS) scatter_kernel(uint32_t *to, const uint32_t *slots, const uint32_t *rows,
										  uint32_t width, uint32_t count)
{
	uint32_t i = (blockIdx.x * THREADS + threadIdx.x) / WARP;

	if (i >= count)
		return;
	for (uint32_t word = threadIdx.x % WARP; word < width; word += WARP)
		to[(size_t) slots[i] * width + word] = rows[(size_t) i * width + word];
}

/* Set words at the indexes named. */
__global__ void __launch_bounds__(THREADS)
	words_kernel(uint32_t *to, const uint32_t *indexes, const uint32_t *words, uint32_t count)
{
	uint32_t i = blockIdx.x * THREADS + threadIdx.x;

	if (i < count)
		to[indexes[i]] = words[i];
}

/*
 * Squared norms, as I10 sums them, of slots: those named, or count from first
 * on.
 */
template <typename T>
__global__ void
__launch_bounds__(THREADS)
	norms_kernel(double *norms, const unsigned char *vectors, uint32_t stride, uint32_t dims,
				 const uint32_t *slots, uint32_t first, uint32_t count)
{
	uint32_t i = (blockIdx.x * THREADS + threadIdx.x) / EXACT_TEAM;
	bool active = i < count;
	uint32_t slot = !active ? 0 : slots != NULL ? slots[i] : first + i;
	const T *row = (const T *) (vectors + (size_t) slot * stride);
	double norm = exact_sum<T, TERM_PRODUCT>(row, row, dims, active);

	if (active && threadIdx.x % EXACT_TEAM == 0)
		norms[slot] = norm;
}

/* A place in a piece: on the host, and the same on the device. */
struct Place
{
	unsigned char *staged;
	unsigned char *device;
};

/* Take `bytes` of a piece from *used on. */
static Place
upload_take(const Piece *piece, size_t *used, size_t bytes)
{
	Place place = {piece->staged + *used, piece->device + *used};

	*used += round_up(bytes, 16);
	return place;
}

Piece *
piece_free(CudaEngine *engine)
{
	for (uint32_t i = 0; i < PIECES; i++)
		if (engine->jobs->pieces[i].job == NULL && !engine->jobs->pieces[i].held)
			return &engine->jobs->pieces[i];
	return NULL;
}

void
pieces_let_go(CudaEngine *engine, const Fetch *fetches)
{
	for (uint32_t i = 0; i < PIECES; i++)
		if (fetches[i].count > 0)
			engine->jobs->pieces[i].held = false;
}

/* Called by CUDA's thread: a piece has been applied. */
static void
piece_applied(void *arg)
{
	engine_wake(((Piece *) arg)->engine);
}

bool
upload_copy_in(CudaEngine *engine, void *to, const void *from, size_t bytes)
{
	return bytes == 0 ||
		   GPU(&engine->device.failure,
			   cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, engine->device.job_stream));
}

static bool
upload_launched(CudaEngine *engine)
{
	return GPU(&engine->device.failure, cudaGetLastError());
}

/* Record in the job stream that a piece's launches end here. */
bool
piece_send(CudaEngine *engine, CudaJob *job, Piece *piece)
{
	if (!GPU(&engine->device.failure, cudaEventRecord(piece->done, engine->device.job_stream)) ||
		!GPU(&engine->device.failure,
			 cudaStreamWaitEvent(engine->device.job_callbacks, piece->done, 0)))
		return false;
	piece->job = job;
	job->in_flight++;
	engine_set_in_flight(engine);
	return GPU(&engine->device.failure,
			   cudaLaunchHostFunc(engine->device.job_callbacks, piece_applied, piece));
}

bool
piece_send_fence(CudaEngine *engine, CudaJob *job)
{
	Piece *fence = &engine->jobs->pieces[PIECES];

	return fence->job == NULL && piece_send(engine, job, fence);
}

Piece *
piece_hold(CudaEngine *engine, CudaJob *job)
{
	Piece *piece = piece_free(engine);

	if (piece == NULL)
		return NULL;
	piece->held = true;
	job->held = piece;
	return piece;
}

void
piece_release(CudaJob *job)
{
	if (job->held != NULL)
		job->held->held = false;
	job->held = NULL;
}

bool
upload_words(CudaEngine *engine, uint32_t *to, const uint32_t *indexes, const uint32_t *words,
			 uint32_t count)
{
	if (count == 0)
		return true;
	LAUNCH(words_kernel, blocks_for(count), THREADS, 0, engine->device.job_stream, to, indexes,
		   words, count);
	return upload_launched(engine);
}

bool
hold_later_batches(CudaEngine *engine, CudaMirror *mirror)
{
	mirror->has_changed = true;
	return GPU(&engine->device.failure,
			   cudaEventRecord(mirror->changed, engine->device.job_stream));
}

/* Compute the norms of slots, if the metric needs them. */
static bool
compute_norms(CudaEngine *engine, const CudaMirror *mirror, const uint32_t *slots, uint32_t first,
			  uint32_t count)
{
	uint32_t blocks = blocks_for((uint64_t) count * EXACT_TEAM);
	double *norms = (double *) mirror->norms.base;
	const unsigned char *vectors = (const unsigned char *) mirror->vectors.base;

	if (!has_norms(mirror->spec.type, mirror->spec.metric))
		return true;
	if (mirror->spec.type == ELEMENT_HALF)
		LAUNCH(norms_kernel<__half>, blocks, THREADS, 0, engine->device.job_stream, norms, vectors,
			   mirror->stride, mirror->spec.dims, slots, first, count);
	else
		LAUNCH(norms_kernel<float>, blocks, THREADS, 0, engine->device.job_stream, norms, vectors,
			   mirror->stride, mirror->spec.dims, slots, first, count);
	return upload_launched(engine);
}

/* Vectors to stage in a piece, in chunks. */
struct StagedRows
{
	const CudaMirror *mirror;
	unsigned char *to;
	const unsigned char *vectors;
	uint32_t count;
	uint32_t chunk; /* rows of a chunk */
};

/* Stage a chunk of vectors with their padding. */
static void
stage_rows(void *arg, uint32_t chunk)
{
	const StagedRows *rows = (const StagedRows *) arg;
	size_t stride = rows->mirror->stride;
	size_t bytes = rows->mirror->vector_bytes;
	uint32_t first = chunk * rows->chunk;
	uint32_t end = at_most(rows->count, first + rows->chunk);

	if (stride == bytes)
	{
		memcpy(rows->to + first * stride, rows->vectors + first * bytes, (end - first) * stride);
		return;
	}
	for (uint32_t i = first; i < end; i++)
	{
		memcpy(rows->to + i * stride, rows->vectors + i * bytes, bytes);
		memset(rows->to + i * stride + bytes, 0, stride - bytes);
	}
}

/*
 * Stage vectors. One processor copies fewer bytes in a second than the bus
 * takes: many are staged by several.
 */
static void
stage_vectors(CudaEngine *engine, const CudaMirror *mirror, unsigned char *to,
			  const unsigned char *vectors, uint32_t count)
{
	uint32_t chunk = (uint32_t) (STAGED_CHUNK / mirror->stride) + 1;
	StagedRows rows = {mirror, to, vectors, count, chunk};

	if (count > 2 * chunk && engine->pool.nthreads > 0)
	{
		host_pool_begin(&engine->pool, stage_rows, &rows, (count + chunk - 1) / chunk);
		host_pool_end(&engine->pool);
		return;
	}
	rows.chunk = count;
	stage_rows(&rows, 0);
}

uint32_t
rows_of_piece(const CudaEngine *engine, size_t row_bytes, uint32_t left)
{
	size_t bytes = queries_active(engine) ? BUSY_PIECE_BYTES : PIECE_BYTES;
	size_t rows = (bytes - 256) / row_bytes;

	return rows < left ? (uint32_t) rows : left;
}

static bool
is_marked(const uint64_t *bits, uint32_t i)
{
	return bits != NULL && (bits[i / 64] >> (i % 64) & 1);
}

/*
 * Clear the dead bits mapped since the last call; later writes change single
 * bits of a word. Done by the first piece that writes there, not when memory is
 * mapped: a mirror may be dropped before it has a job, and then nothing waits
 * for the device.
 */
static bool
clear_new_bits(CudaEngine *engine, CudaMirror *mirror)
{
	size_t from = mirror->dead_cleared;

	if (mirror->dead.mapped == from)
		return true;
	mirror->dead_cleared = mirror->dead.mapped;
	return GPU(&engine->device.failure,
			   cudaMemsetAsync((char *) mirror->dead.base + from, 0, mirror->dead.mapped - from,
							   engine->device.job_stream));
}

/* Empty the graph rows of new slots; those of lists have none. */
static bool
clear_graph(CudaEngine *engine, const CudaMirror *mirror, uint32_t first, uint32_t count)
{
	size_t bytes = mirror->spec.degree * sizeof(uint32_t);

	return mirror->lists != NULL ||
		   GPU(&engine->device.failure,
			   cudaMemsetAsync((unsigned char *) mirror->graph.base + first * bytes, 0xFF,
							   count * bytes, engine->device.job_stream));
}

/* The columns of absent slots are zero. */
static bool
clear_records(CudaEngine *engine, const CudaMirror *mirror, uint32_t first, uint32_t count)
{
	size_t bytes = mirror->record_bytes;

	return bytes == 0 ||
		   GPU(&engine->device.failure,
			   cudaMemsetAsync((unsigned char *) mirror->records.base + first * bytes, 0,
							   count * bytes, engine->device.job_stream));
}

/* Stage the columns of a job's next rows. */
static void
stage_records(const CudaJob *job, unsigned char *to, uint32_t count)
{
	size_t bytes = job->mirror->record_bytes;

	if (bytes > 0)
		memcpy(to, (const unsigned char *) job->in.columns + job->done * bytes, count * bytes);
}

/*
 * Absent slots from the published rows up to the first of an append: dead, of
 * version 0, without graph rows.
 */
bool
piece_gap(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	uint32_t gap = job->in.first_slot - mirror->rows;

	if (gap == 0)
		return true;
	if (engine->jobs->pieces[PIECES].job != NULL || !clear_new_bits(engine, mirror))
		return false;
	LAUNCH(set_slots_kernel, blocks_for(gap), THREADS, 0, engine->device.job_stream,
		   (uint32_t *) mirror->versions.base, (uint32_t *) mirror->dead.base,
		   (const uint32_t *) NULL, mirror->rows, (const uint32_t *) NULL, (const uint8_t *) NULL,
		   true, gap);
	return upload_launched(engine) && clear_graph(engine, mirror, mirror->rows, gap) &&
		   clear_records(engine, mirror, mirror->rows, gap) &&
		   piece_send_fence(engine, job);
}

/*
 * Rows beyond the published ones. Those that are not dead join the list of
 * pending slots, beyond its published length.
 */
bool
piece_append(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	uint32_t count =
		rows_of_piece(engine, mirror->stride + mirror->record_bytes + 2 * sizeof(uint32_t) + 1,
					  job->in.count - job->done);
	uint32_t slot = job->in.first_slot + job->done;
	uint32_t *list =
		(uint32_t *) mirror->pending[mirror->pending_side].base + mirror->nlisted + job->npending;
	Piece *piece = piece_free(engine);
	size_t used = 0;
	uint32_t listed = 0;

	if (piece == NULL || !clear_new_bits(engine, mirror))
		return false;

	Place vectors = upload_take(piece, &used, (size_t) count * mirror->stride);
	Place versions = upload_take(piece, &used, count * sizeof(uint32_t));
	Place records = upload_take(piece, &used, (size_t) count * mirror->record_bytes);
	Place dead = upload_take(piece, &used, count);
	Place pending = upload_take(piece, &used, count * sizeof(uint32_t));

	stage_vectors(
		engine, mirror, vectors.staged,
		(const unsigned char *) job->in.vectors + (size_t) job->done * mirror->vector_bytes, count);
	memcpy(versions.staged, job->in.versions + job->done, count * sizeof(uint32_t));
	stage_records(job, records.staged, count);
	for (uint32_t i = 0; i < count; i++)
	{
		dead.staged[i] = is_marked(job->in.dead, job->done + i);
		if (!dead.staged[i])
			((uint32_t *) pending.staged)[listed++] = slot + i;
	}
	if (!mirror_copy_rows(&engine->device, mirror, slot, count, vectors.staged, true,
						  engine->device.job_stream) ||
		!upload_copy_in(engine, versions.device, versions.staged, count * sizeof(uint32_t)) ||
		!upload_copy_in(engine,
						(unsigned char *) mirror->records.base +
							(size_t) slot * mirror->record_bytes,
						records.staged, (size_t) count * mirror->record_bytes) ||
		!upload_copy_in(engine, dead.device, dead.staged, count) ||
		!upload_copy_in(engine, list, pending.staged, listed * sizeof(uint32_t)))
		return false;
	LAUNCH(set_slots_kernel, blocks_for(count), THREADS, 0, engine->device.job_stream,
		   (uint32_t *) mirror->versions.base, (uint32_t *) mirror->dead.base,
		   (const uint32_t *) NULL, slot, (const uint32_t *) versions.device,
		   (const uint8_t *) dead.device, false, count);
	if (!upload_launched(engine) || !compute_norms(engine, mirror, NULL, slot, count) ||
		!clear_graph(engine, mirror, slot, count))
		return false;
	job->done += count;
	job->npending += listed;
	return piece_send(engine, job, piece);
}

/*
 * How many of a job's next slots fit into a piece and are all different; they
 * are marked.
 */
static uint32_t
mark_different(CudaMirror *mirror, const uint32_t *slots, uint32_t most)
{
	uint32_t n = 0;

	while (n < most && !(mirror->states[slots[n]] & SLOT_MARKED))
		mirror->states[slots[n++]] |= SLOT_MARKED;
	for (uint32_t i = 0; i < n; i++)
		mirror->states[slots[i]] &= (uint8_t) ~SLOT_MARKED;
	return n;
}

/*
 * On the host, overwritten slots are alive, pending, not linked. Those that
 * searches do not scan yet go to `list`.
 */
static uint32_t
publish_overwritten(CudaMirror *mirror, const uint32_t *slots, uint32_t count, uint32_t *list)
{
	uint32_t listed = 0;

	for (uint32_t i = 0; i < count; i++)
	{
		uint8_t old = mirror->states[slots[i]];

		mirror->linked -= (old & SLOT_LINKED) != 0;
		mirror->ndead -= (old & SLOT_DEAD) != 0;
		mirror->npending += (old & SLOT_PENDING) == 0;
		mirror->states[slots[i]] = SLOT_PENDING | SLOT_LISTED;
		if (!(old & SLOT_LISTED))
		{
			if (mirror->lists != NULL)
				mirror->lists->where[slots[i]] = mirror->nlisted + listed;
			mirror->listed[mirror->nlisted + listed] = slots[i];
			list[listed++] = slots[i];
		}
	}
	return listed;
}

/* Empty the places that slots of a piece have left. */
static bool
clear_places(CudaEngine *engine, CudaMirror *mirror, Place places, uint32_t count)
{
	ListsView view;

	if (count == 0)
		return true;
	view = lists_view(mirror);
	return upload_copy_in(engine, places.device, places.staged, count * sizeof(uint32_t)) &&
		   GPU(&engine->device.failure,
			   lists_clear_places(&view, (uint32_t *) mirror->lists->memory.base,
								  (const uint32_t *) places.device, count,
								  engine->device.job_stream));
}

/* Copy columns to the slots named. */
static bool
scatter_records(CudaEngine *engine, const CudaMirror *mirror, const uint32_t *slots,
				const uint32_t *records, uint32_t count)
{
	if (mirror->record_bytes == 0)
		return true;
	LAUNCH(scatter_kernel, blocks_for((uint64_t) count * WARP), THREADS, 0,
		   engine->device.job_stream, (uint32_t *) mirror->records.base, slots, records,
		   mirror->record_bytes / (uint32_t) sizeof(uint32_t), count);
	return upload_launched(engine);
}

/* New vectors, columns and versions for published slots. */
bool
piece_overwrite(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	const uint32_t *named = job->in.slots + job->done;
	uint32_t count =
		rows_of_piece(engine, mirror->stride + mirror->record_bytes + 4 * sizeof(uint32_t),
					  job->in.count - job->done);
	uint32_t *list = (uint32_t *) mirror->pending[mirror->pending_side].base + mirror->nlisted;
	Piece *piece = piece_free(engine);
	size_t used = 0;
	uint32_t listed;
	uint32_t left = 0;

	if (piece == NULL)
		return false;
	count = mark_different(mirror, named, count);

	Place vectors = upload_take(piece, &used, (size_t) count * mirror->stride);
	Place records = upload_take(piece, &used, (size_t) count * mirror->record_bytes);
	Place slots = upload_take(piece, &used, count * sizeof(uint32_t));
	Place versions = upload_take(piece, &used, count * sizeof(uint32_t));
	Place pending = upload_take(piece, &used, count * sizeof(uint32_t));
	Place places = upload_take(piece, &used, count * sizeof(uint32_t));

	stage_vectors(
		engine, mirror, vectors.staged,
		(const unsigned char *) job->in.vectors + (size_t) job->done * mirror->vector_bytes, count);
	stage_records(job, records.staged, count);
	if (mirror->lists != NULL)
		left = lists_forget(mirror, named, count, (uint32_t *) places.staged);
	memcpy(slots.staged, named, count * sizeof(uint32_t));
	memcpy(versions.staged, job->in.versions + job->done, count * sizeof(uint32_t));
	listed = publish_overwritten(mirror, named, count, (uint32_t *) pending.staged);
	if (!upload_copy_in(engine, piece->device, piece->staged,
						(size_t) (pending.staged - piece->staged)) ||
		!upload_copy_in(engine, list, pending.staged, listed * sizeof(uint32_t)) ||
		!batch_streams_wait(engine, mirror) || !clear_places(engine, mirror, places, left))
		return false;
	LAUNCH(scatter_kernel, blocks_for((uint64_t) count * WARP), THREADS, 0,
		   engine->device.job_stream, (uint32_t *) mirror->vectors.base,
		   (const uint32_t *) slots.device, (const uint32_t *) vectors.device,
		   mirror->stride / (uint32_t) sizeof(uint32_t), count);
	if (!upload_launched(engine) ||
		!scatter_records(engine, mirror, (const uint32_t *) slots.device,
						 (const uint32_t *) records.device, count) ||
		!compute_norms(engine, mirror, (const uint32_t *) slots.device, 0, count))
		return false;
	LAUNCH(set_slots_kernel, blocks_for(count), THREADS, 0, engine->device.job_stream,
		   (uint32_t *) mirror->versions.base, (uint32_t *) mirror->dead.base,
		   (const uint32_t *) slots.device, 0, (const uint32_t *) versions.device,
		   (const uint8_t *) NULL, false, count);
	if (!upload_launched(engine) ||
		!quantizer_overwrite(engine, mirror, (const uint32_t *) slots.device, count) ||
		!hold_later_batches(engine, mirror))
		return false;
	mirror->nlisted += listed;
	mirror->overwrites += count;
	job->done += count;
	return piece_send(engine, job, piece);
}

/* On the host, slots of a piece are dead. */
static void
publish_dead(CudaMirror *mirror, const uint32_t *slots, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
	{
		uint8_t old = mirror->states[slots[i]];

		mirror->ndead += (old & SLOT_DEAD) == 0;
		mirror->npending -= (old & SLOT_PENDING) != 0;
		mirror->states[slots[i]] = (uint8_t) ((old & ~SLOT_PENDING) | SLOT_DEAD);
	}
}

/*
 * Of slots of a piece that die, take those off the list of pending ones that
 * are on it, here; returns how many others have come to be elsewhere. Of a
 * mirror with a graph they stay until the list is made anew.
 */
static uint32_t
unlist_dead(CudaMirror *mirror, const uint32_t *slots, uint32_t count, uint32_t *moved,
			uint32_t *movers)
{
	uint32_t nmoved = 0;

	for (uint32_t i = 0; i < count && mirror->lists != NULL; i++)
		if (mirror->states[slots[i]] & SLOT_LISTED)
			lists_unlist(mirror, slots[i], moved, &nmoved);
	return lists_moved(mirror, moved, nmoved, movers);
}

/* Slots that die. */
bool
piece_dead(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	const uint32_t *named = job->in.slots + job->done;
	uint32_t count = rows_of_piece(engine, 5 * sizeof(uint32_t), job->in.count - job->done);
	Piece *piece = piece_free(engine);
	size_t used = 0;
	uint32_t left = 0;
	uint32_t nmoved;

	if (piece == NULL)
		return false;
	count = mark_different(mirror, named, count);

	Place slots = upload_take(piece, &used, count * sizeof(uint32_t));
	Place versions = upload_take(piece, &used, count * sizeof(uint32_t));
	Place moved = upload_take(piece, &used, count * sizeof(uint32_t));
	Place movers = upload_take(piece, &used, count * sizeof(uint32_t));
	Place places = {piece->staged + used, piece->device + used};

	memcpy(slots.staged, named, count * sizeof(uint32_t));
	memcpy(versions.staged, job->in.versions + job->done, count * sizeof(uint32_t));
	if (mirror->lists != NULL)
		left = lists_forget(mirror, named, count, (uint32_t *) places.staged);
	nmoved = unlist_dead(mirror, named, count, (uint32_t *) moved.staged,
						 (uint32_t *) movers.staged);
	if (!upload_copy_in(engine, piece->device, piece->staged, used) ||
		!batch_streams_wait(engine, mirror) || !clear_places(engine, mirror, places, left) ||
		!upload_words(engine, (uint32_t *) mirror->pending[mirror->pending_side].base,
					  (const uint32_t *) moved.device, (const uint32_t *) movers.device, nmoved))
		return false;
	LAUNCH(set_slots_kernel, blocks_for(count), THREADS, 0, engine->device.job_stream,
		   (uint32_t *) mirror->versions.base, (uint32_t *) mirror->dead.base,
		   (const uint32_t *) slots.device, 0, (const uint32_t *) versions.device,
		   (const uint8_t *) NULL, true, count);
	if (!upload_launched(engine) || !hold_later_batches(engine, mirror))
		return false;
	publish_dead(mirror, named, count);
	job->done += count;
	return piece_send(engine, job, piece);
}

/*
 * Graph rows of slots: published neighbours other than the slot itself, up to
 * the first empty place.
 */
bool
piece_graph(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	uint32_t degree = mirror->spec.degree;
	const uint32_t *named = job->in.slots + job->done;
	uint32_t n = rows_of_piece(engine, (degree + 1) * sizeof(uint32_t), job->in.count - job->done);
	Piece *piece = piece_free(engine);
	size_t used = 0;

	if (piece == NULL)
		return false;
	n = mark_different(mirror, named, n);

	Place to = upload_take(piece, &used, n * sizeof(uint32_t));
	Place staged = upload_take(piece, &used, (size_t) n * degree * sizeof(uint32_t));

	memcpy(to.staged, named, n * sizeof(uint32_t));
	for (uint32_t i = 0; i < n; i++)
	{
		const uint32_t *from = job->in.rows + (size_t) (job->done + i) * degree;
		uint32_t *row = (uint32_t *) staged.staged + (size_t) i * degree;
		uint32_t kept = 0;

		for (uint32_t j = 0; j < degree && from[j] != NO_SLOT; j++)
			if (from[j] < mirror->rows && from[j] != named[i])
				row[kept++] = from[j];
		for (; kept < degree; kept++)
			row[kept] = NO_SLOT;
	}
	if (!upload_copy_in(engine, piece->device, piece->staged, used))
		return false;
	LAUNCH(scatter_kernel, blocks_for((uint64_t) n * WARP), THREADS, 0, engine->device.job_stream,
		   (uint32_t *) mirror->graph.base, (const uint32_t *) to.device,
		   (const uint32_t *) staged.device, degree, n);
	if (!upload_launched(engine))
		return false;
	job->done += n;
	return piece_send(engine, job, piece);
}

/*
 * A list of slots (pending, seeds), written to where no batch that starts from
 * now on reads: those in flight may, the first time.
 */
bool
piece_slots(CudaEngine *engine, CudaJob *job, const uint32_t *slots, uint32_t count, uint32_t *to)
{
	uint32_t n = rows_of_piece(engine, sizeof(uint32_t), count - job->done);
	Piece *piece = piece_free(engine);

	if (piece == NULL)
		return false;
	memcpy(piece->staged, slots + job->done, n * sizeof(uint32_t));
	if ((job->done == 0 && !batch_streams_wait(engine, job->mirror)) ||
		!upload_copy_in(engine, to + job->done, piece->staged, n * sizeof(uint32_t)))
		return false;
	job->done += n;
	return piece_send(engine, job, piece);
}

/* Take back the pieces that have been applied. */
void
pieces_end(CudaEngine *engine)
{
	for (uint32_t i = 0; i <= PIECES; i++)
	{
		Piece *piece = &engine->jobs->pieces[i];
		cudaError_t state;

		if (piece->job == NULL || engine->device.failure.failed)
			continue;
		state = cudaEventQuery(piece->done);
		if (state == cudaErrorNotReady)
			continue;
		if (!gpu_check(&engine->device.failure, state, "a piece of a job"))
			return;
		piece->job->in_flight--;
		piece->job = NULL;
	}
}
