/*
 * batch.cu
 *		Batches: which waiting queries run together, in which batch stream, and
 *		what is launched for them.
 *
 * A batch stream is a stream with pinned and device memory of its own,
 * allocated when the engine opens; nothing is allocated while queries run. A
 * batch consists of waiting queries of one mirror and one kind, the oldest
 * first, as many as fit into the batch stream's memory; the rest wait for the
 * next free batch stream. So there is no limit on queries, results and bitmaps:
 * more of them take more batches. Counts of the mirror are captured when a
 * batch starts and passed to its kernels by value.
 *
 * A batch of graph searches is one kernel, which reads its queries from pinned
 * memory (above ZERO_COPY_MAX bytes: from a copy on the device) and writes its
 * answers and then its batch stream's flag to pinned memory: one call to the
 * driver (two). Searches of lists write there too. Other batches raise the flag
 * with a kernel of their own.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/filter/filter.h"
#include "cuda/lists/lists_search.h"
#include "cuda/query/cuda_engine.h"
#include "cuda/query/patience.h"

#define WALK_SLACK 8u				  /* time limit: a walk reads at most 8 x ef graph rows, and the
									   * rows that these name */
#define PROBE_SLACK 8u				  /* time limit: a probed list has at most 8 times the mean */
#define HOST_READ_SLACK 4u			  /* time limit: rows read singly over the bus take 4 times as
									   * long as copies */
#define PENDING_APART 4096u			  /* more pending rows than this are scanned by kernels of their
									   * own */
#define BLOCKS_PER_SM 8u
#define ZERO_COPY_MAX (256u << 10) /* up to this many bytes of input a graph search reads from
									 * pinned memory itself */

static uint32_t
task_ef(const CudaTask *task)
{
	uint32_t rows = task_rows(task);

	return at_most(task->ef, rows > 0 ? rows : 1);
}

static bool
task_apart(const CudaTask *task)
{
	return task->admitted != NULL || task->condition != NULL || task->has_beyond;
}

/* A mirror's view for graph searches. */
static MirrorView
searched_view(const CudaEngine *engine, const CudaMirror *mirror)
{
	MirrorView view = mirror_view(mirror);

	if (engine->config.forced.search_by_rows)
		view.codes = NULL;
	return view;
}

BatchKind
graph_kind(CudaEngine *engine, const CudaMirror *mirror, uint32_t k, uint32_t ef, bool apart)
{
	KindCache now = {
		mirror->id, mirror->codes_good, mirror->codes_rotated, k, ef, apart, BATCH_GRAPH};
	KindCache *last = &engine->kinds;

	if (last->mirror != now.mirror || last->codes != now.codes || last->rotated != now.rotated ||
		last->k != now.k || last->ef != now.ef || last->apart != now.apart)
	{
		MirrorView view = searched_view(engine, mirror);

		if (!now.apart && walk_takes(&engine->device.graph_limits, &view, now.k, now.ef))
			now.kind = BATCH_WALK;
		*last = now;
	}
	return last->kind;
}

static BatchKind
task_kind(CudaEngine *engine, const CudaTask *task)
{
	if (task->method == METHOD_IVFPQ)
		return BATCH_LISTS;
	if (task->method == METHOD_GRAPH)
		return task->reference ? BATCH_REFERENCE
							   : graph_kind(engine, task->mirror, task_k(task), task_ef(task),
											task_apart(task));
	if (task_k(task) <= EXACT_SMALL_K && !task->in_passes)
		return host_rows_takes(task) ? BATCH_STREAM : BATCH_EXACT;
	return host_rows_takes(task) ? BATCH_STREAM_SORT : BATCH_EXACT_SORT;
}

/* Bytes of a task's bitmap, up to the rows that it sees. */
static size_t
task_bitmap_bytes(const CudaTask *task)
{
	uint32_t slots = at_most(task->admitted_slots, task_rows(task));

	return task->admitted == NULL ? 0 : ((size_t) slots + 63) / 64 * sizeof(uint64_t);
}

/*
 * Whether a task is an exact search in several passes or in tiles: changes in
 * place must wait once it has begun, and it does not begin while one is
 * running.
 */
static bool
takes_long(const CudaTask *task)
{
	return task->method == METHOD_EXACT && !task->in_passes &&
		   (task_k(task) > EXACT_CHUNK || host_rows_takes(task));
}

void
fill_lists(BatchFill *fill, uint32_t probes, uint32_t rerank)
{
	if (probes > fill->max_probes)
		fill->max_probes = probes;
	if (rerank <= LISTS_MAX_RERANK && rerank > fill->max_rerank)
		fill->max_rerank = rerank;
}

/* The resource counts with one more task. */
static BatchFill
fill_with(BatchFill fill, const CudaTask *task)
{
	fill.vectors += task->mirror->stride;
	fill.bitmaps += task_bitmap_bytes(task);
	fill.results += at_most(task_k(task), EXACT_CHUNK);
	fill.max_k = task_k(task) > fill.max_k ? task_k(task) : fill.max_k;
	fill.max_ef = task_ef(task) > fill.max_ef ? task_ef(task) : fill.max_ef;
	fill.apart = fill.apart || task_apart(task);
	if (task->method == METHOD_IVFPQ)
		fill_lists(&fill, task->probes, task->rerank);
	return fill;
}

/* Whether the state memory holds the lists and sets of n graph searches. */
static bool
graph_fits(const BatchStream *bstream, const BatchFill *fill, uint32_t n)
{
	MirrorView view = searched_view(bstream->engine, bstream->mirror);

	return n * graph_search_state_bytes(&bstream->engine->device.graph_limits, &view,
										bstream->kind == BATCH_REFERENCE, fill->max_k, fill->max_ef,
										fill->apart) <=
		   STATE_ROOM - LISTS_ROOM;
}

/*
 * Whether a task can join a batch; *next are the batch's resource counts with
 * it.
 */
static bool
task_fits(const BatchStream *bstream, const BatchFill *fill, const CudaTask *task, BatchFill *next)
{
	uint32_t n = bstream->ntasks + 1;

	*next = fill_with(*fill, task);
	if (n == 1)
		return true;
	if (n > BATCH_QUERIES || next->vectors > VECTOR_ROOM ||
		next->bitmaps > bstream->bitmap_memory.mapped || next->results > RESULT_ROOM ||
		bstream->kind == BATCH_EXACT_SORT ||
		bstream->kind == BATCH_STREAM_SORT)
		return false;
	if (bstream->kind == BATCH_WALK)
	{
		MirrorView view;

		if (next->max_k == fill->max_k && next->max_ef == fill->max_ef)
			return true;
		view = searched_view(bstream->engine, bstream->mirror);
		return walk_takes(&bstream->engine->device.graph_limits, &view, next->max_k, next->max_ef);
	}
	if (bstream->kind == BATCH_STREAM)
		return n <= host_rows_queries(next->max_k);
	if (bstream->kind == BATCH_EXACT)
		return n <= exact_scan_queries(STATE_ROOM, next->max_k);
	if (bstream->kind == BATCH_LISTS)
		return true;
	return graph_fits(bstream, next, n);
}

/*
 * Gather a batch: the oldest task that may start, and the waiting tasks that
 * can run with it, which leave the queue. Order among those that stay is kept.
 * False: nothing can start.
 */
static bool
batch_gather(CudaEngine *engine, BatchStream *bstream, BatchFill *fill)
{
	CudaTask **place = &engine->first_waiting;
	CudaTask *last = NULL;

	memset(fill, 0, sizeof(*fill));
	bstream->ntasks = 0;
	while (*place != NULL)
	{
		CudaTask *task = *place;
		bool held = task_waits_for_condition(task) || host_rows_waits(engine, task) ||
					(takes_long(task) && task->mirror->changes_in_place);
		BatchFill next;

		if (bstream->ntasks == 0 && !held)
		{
			bstream->mirror = task->mirror;
			bstream->kind = task_kind(engine, task);
		}
		if (!held && bstream->mirror == task->mirror && bstream->kind == task_kind(engine, task) &&
			task_fits(bstream, fill, task, &next))
		{
			bstream->tasks[bstream->ntasks++] = task;
			*fill = next;
			*place = task->next;
			task->next = NULL;
			continue;
		}
		if (bstream->ntasks == BATCH_QUERIES)
			break;
		last = task;
		place = &task->next;
	}
	/* the tail may have been taken: find the last task that is left */
	while (*place != NULL)
	{
		last = *place;
		place = &last->next;
	}
	engine->last_waiting = last;
	return bstream->ntasks > 0;
}

/*
 * Describe what bitmap admits a task's answers: its own, among those of the
 * batch, or its condition's, which is elsewhere in device memory and is named
 * by its distance from these.
 */
static void
stage_admitted(const BatchStream *bstream, const CudaTask *task, DeviceQuery *query,
			   const BatchFill *used)
{
	uint32_t rows = task_rows(task);

	query->has_admitted = task->admitted != NULL || task->condition != NULL;
	query->admitted = used->bitmaps / sizeof(uint32_t);
	query->admitted_slots = at_most(task->admitted_slots, rows);
	if (task->condition == NULL)
		return;
	query->admitted_slots = task->rows;
	if (task->admitted != NULL)
		query->admitted_slots = at_most(task->admitted_slots, task->rows);
	else
		query->admitted = (uint64_t) (((intptr_t) condition_bits(task->condition) -
									   (intptr_t) bstream->view.bitmaps) /
									  (intptr_t) sizeof(uint32_t));
}

/*
 * Write a task's description, and copy its vector, to the batch stream's pinned
 * memory; *used counts what is staged.
 */
static void
stage_task(BatchStream *bstream, uint32_t i, BatchFill *used)
{
	CudaTask *task = bstream->tasks[i];
	DeviceQuery *query = &bstream->queries[i];
	const CudaMirror *mirror = task->mirror;

	memset(query, 0, sizeof(*query));
	query->vector = used->vectors;
	memcpy(bstream->vectors + used->vectors, task->vector, mirror->vector_bytes);
	query->has_beyond = task->has_beyond;
	query->beyond_key = key_of(task->beyond_distance);
	query->beyond_slot = task->beyond_slot;
	stage_admitted(bstream, task, query, used);
	query->admit_others = task->admit_others;
	query->k = at_most(task_k(task), EXACT_CHUNK);
	if (task->method == METHOD_IVFPQ)
	{
		query->probes = task->probes;
		query->rerank = task->rerank;
	}
	else
	{
		query->ef = task_ef(task);
		query->seeds = task->seeds;
	}
	query->max_iterations = task->max_iterations;
	query->results = (uint32_t) used->results;
	used->vectors += mirror->stride;
	used->bitmaps += task_bitmap_bytes(task);
	used->results += query->k;
}

static bool
batch_copy_in(CudaEngine *engine, BatchStream *bstream, const void *to, const void *from,
			  size_t bytes)
{
	return bytes == 0 ||
		   GPU(&engine->device.failure,
			   cudaMemcpyAsync((void *) to, from, bytes, cudaMemcpyHostToDevice, bstream->stream));
}

/*
 * Stage the next BITMAP_STAGED bytes of a batch's bitmaps, which lie one behind
 * another. Called by the owner for the first part, then by CUDA's callback
 * thread in stream order, so never while the copy of the previous part reads
 * the staging buffer. The tasks and their bitmaps stay until the batch has
 * ended.
 */
static void
stage_bitmaps(void *arg)
{
	BatchStream *bstream = (BatchStream *) arg;
	size_t from = bstream->bitmaps_staged;
	size_t end = from + BITMAP_STAGED;

	for (uint32_t i = 0; i < bstream->ntasks; i++)
	{
		const DeviceQuery *query = &bstream->queries[i];
		size_t first = (size_t) query->admitted * sizeof(uint32_t);
		size_t last = first + ((size_t) query->admitted_slots + 63) / 64 * sizeof(uint64_t);
		size_t low = first > from ? first : from;
		size_t high = last < end ? last : end;

		if (bstream->tasks[i]->admitted != NULL && low < high)
			memcpy(bstream->bitmaps + (low - from),
				   (const unsigned char *) bstream->tasks[i]->admitted + (low - first), high - low);
	}
	bstream->bitmaps_staged = end;
}

/* Remove from the bitmaps of tasks what their conditions do not let pass. */
static bool
apply_conditions(CudaEngine *engine, const BatchStream *bstream)
{
	for (uint32_t i = 0; i < bstream->ntasks; i++)
	{
		const CudaTask *task = bstream->tasks[i];
		const DeviceQuery *query = &bstream->queries[i];

		if (task->admitted != NULL && task->condition != NULL &&
			!GPU(&engine->device.failure,
				 filter_and_launch((uint32_t *) bstream->view.bitmaps + query->admitted,
								   condition_bits(task->condition),
								   (query->admitted_slots + 31) / 32, bstream->stream)))
			return false;
	}
	return true;
}

/*
 * Copy the bitmaps to the device through pinned memory: copying from pageable
 * memory would make this thread wait while the driver stages it (about 0.1 s
 * per GB). Parts beyond the first are staged by a host function in the stream,
 * behind the copy of the part before.
 */
static bool
send_bitmaps(CudaEngine *engine, BatchStream *bstream, size_t total)
{
	bstream->bitmaps_staged = 0;
	stage_bitmaps(bstream);
	for (size_t at = 0; at < total; at += BITMAP_STAGED)
	{
		const unsigned char *to = (const unsigned char *) bstream->view.bitmaps + at;
		size_t bytes = total - at < BITMAP_STAGED ? total - at : BITMAP_STAGED;

		if (at > 0 && !GPU(&engine->device.failure,
						   cudaLaunchHostFunc(bstream->stream, stage_bitmaps, bstream)))
			return false;
		if (!batch_copy_in(engine, bstream, to, bstream->bitmaps, bytes))
			return false;
	}
	return apply_conditions(engine, bstream);
}

static inline bool
is_graph(BatchKind kind)
{
	return kind == BATCH_WALK || kind == BATCH_GRAPH || kind == BATCH_REFERENCE;
}

/* Arguments of exact kernels for a batch. */
static ExactLaunch
exact_launch(const CudaEngine *engine, const BatchStream *bstream, uint32_t max_k)
{
	ExactLaunch launch;

	memset(&launch, 0, sizeof(launch));
	launch.limits = &engine->device.exact_limits;
	launch.mirror = mirror_view(bstream->mirror);
	launch.mirror.rows = bstream->nasked > 0 ? bstream->rows : task_rows(bstream->tasks[0]);
	launch.batch = bstream->view;
	launch.type = bstream->mirror->spec.type;
	launch.queries = bstream->ntasks;
	launch.max_k = max_k;
	launch.blocks = (uint32_t) engine->device.properties.multiProcessorCount * BLOCKS_PER_SM;
	launch.state_bytes = STATE_ROOM;
	launch.processors = (uint32_t) engine->device.properties.multiProcessorCount;
	launch.table = bstream->table;
	for (uint32_t i = 0; i < bstream->ntasks && bstream->nasked == 0; i++)
		launch.filtered = launch.filtered || bstream->queries[i].has_admitted;
	launch.in_place = bstream->mirror->rows > mirror_device_rows(bstream->mirror);
	launch.stream = bstream->stream;
	return launch;
}

/*
 * Whether kernels read `bytes` of input from pinned memory themselves. Not with
 * many pending rows: the kernels that scan these read queries from device
 * memory.
 */
static bool
reads_in_place(const BatchStream *bstream, size_t bytes)
{
	return (is_graph(bstream->kind) || bstream->kind == BATCH_LISTS) && bytes <= ZERO_COPY_MAX &&
		   bstream->mirror->nlisted <= PENDING_APART;
}

/* Stage a batch, and copy it to the device unless kernels read it in place. */
static bool
send_batch(CudaEngine *engine, BatchStream *bstream, const BatchFill *fill, uint64_t now)
{
	size_t queries = round_up(bstream->ntasks * sizeof(DeviceQuery), 256);
	BatchFill used;

	memset(&used, 0, sizeof(used));
	bstream->vectors = bstream->input + queries;
	bstream->view.vectors = (const unsigned char *) bstream->view.queries + queries;
	for (uint32_t i = 0; i < bstream->ntasks; i++)
	{
		CudaTask *task = bstream->tasks[i];

		if (task->started_us == 0)
		{
			task->started_us = now;
			/* with a program those of its submit, which its condition covers */
			if (task->program == NULL)
			{
				task->rows = task->mirror->rows;
				task->position = task->mirror->position;
			}
			task->counters.queue_us = (uint32_t) (now - task->submitted_us);
		}
		stage_task(bstream, i, &used);
	}
	bstream->nresults = (uint32_t) used.results;
	bstream->read_in_place = reads_in_place(bstream, queries + used.vectors);
	bstream->at_once = false;
	if (bstream->kind == BATCH_EXACT)
	{
		ExactLaunch launch = exact_launch(engine, bstream, fill->max_k);

		bstream->at_once = exact_at_once(&launch);
		bstream->read_in_place =
			bstream->at_once && fused_carries(bstream->ntasks, used.vectors);
	}
	if (bstream->read_in_place)
		return used.bitmaps == 0 || send_bitmaps(engine, bstream, used.bitmaps);
	return batch_copy_in(engine, bstream, bstream->view.queries, bstream->input,
						 queries + used.vectors) &&
		   (used.bitmaps == 0 || send_bitmaps(engine, bstream, used.bitmaps));
}

/* Zero the counters that exact kernels add to. */
static cudaError_t
clear_heads(const BatchStream *bstream)
{
	return cudaMemsetAsync(bstream->view.heads, 0, bstream->ntasks * sizeof(DeviceHead),
						   bstream->stream);
}

/* Launch a fused exact search: it writes to pinned memory, as walks do. */
static cudaError_t
launch_single(const CudaEngine *engine, const BatchStream *bstream, const BatchFill *fill)
{
	ExactLaunch launch = exact_launch(engine, bstream, fill->max_k);
	FusedInput input = {bstream->queries, bstream->vectors,
					   bstream->read_in_place ? fill->vectors : 0};

	launch.batch.heads = bstream->heads;
	launch.batch.results = bstream->results;
	launch.batch.generation = bstream->generation;
	return fused_launch(&launch, &input);
}

static cudaError_t
launch_exact(CudaEngine *engine, BatchStream *bstream, const BatchFill *fill)
{
	ExactLaunch launch = exact_launch(engine, bstream, at_most(fill->max_k, EXACT_CHUNK));
	cudaError_t error;

	if (bstream->at_once)
		return launch_single(engine, bstream, fill);
	error = clear_heads(bstream);
	if (error != cudaSuccess)
		return error;
	if (is_stream(bstream->kind))
		return host_rows_begin(engine, bstream, &launch) ? cudaSuccess : cudaErrorUnknown;
	if (bstream->kind == BATCH_EXACT_SORT)
		return exact_sort_launch(&launch);
	return exact_search_launch(&launch);
}

/* Whether the pending rows are scanned by kernels of their own. */
static bool
pending_apart(const BatchStream *bstream, const BatchFill *fill)
{
	return bstream->mirror->nlisted > PENDING_APART && fill->max_k <= EXACT_SMALL_K &&
		   bstream->ntasks <= exact_scan_queries(LISTS_ROOM, fill->max_k);
}

/*
 * Scan many pending rows with kernels of their own, spread over all SMs, into
 * lists that the search merges.
 */
static cudaError_t
launch_pending(const CudaEngine *engine, const BatchStream *bstream, const BatchFill *fill,
			   PendingLists *pending)
{
	ExactLaunch launch = exact_launch(engine, bstream, fill->max_k);
	ExactLists lists;
	cudaError_t error = clear_heads(bstream);

	launch.pending_only = true;
	launch.state_bytes = LISTS_ROOM;
	if (error == cudaSuccess)
		error = exact_scan_launch(&launch, &lists);
	pending->heads = bstream->view.heads;
	pending->keys = lists.keys;
	pending->slots = lists.slots;
	pending->lists = lists.lists;
	pending->length = lists.length;
	return error;
}

/*
 * A view whose heads and results, and, if read in place, queries and vectors,
 * are in pinned memory.
 */
static BatchView
pinned_view(const BatchStream *bstream)
{
	BatchView view = bstream->view;

	view.heads = bstream->heads;
	view.results = bstream->results;
	if (bstream->read_in_place)
	{
		view.queries = bstream->queries;
		view.vectors = bstream->vectors;
	}
	view.generation = bstream->generation;
	return view;
}

static cudaError_t
launch_graph(const CudaEngine *engine, const BatchStream *bstream, const BatchFill *fill)
{
	GraphLaunch launch;
	cudaError_t error = cudaSuccess;

	memset(&launch, 0, sizeof(launch));
	launch.limits = &engine->device.graph_limits;
	launch.mirror = searched_view(engine, bstream->mirror);
	launch.batch = pinned_view(bstream);
	launch.batch.state += LISTS_ROOM;
	launch.reference = bstream->kind == BATCH_REFERENCE;
	launch.batch.state_stride = graph_search_state_bytes(
		launch.limits, &launch.mirror, launch.reference, fill->max_k, fill->max_ef, fill->apart);
	launch.type = bstream->mirror->spec.type;
	launch.queries = bstream->ntasks;
	launch.max_k = fill->max_k;
	launch.max_ef = fill->max_ef;
	launch.any_admitted = fill->apart;
	launch.stream = bstream->stream;
	if (pending_apart(bstream, fill))
		error = launch_pending(engine, bstream, fill, &launch.pending);
	if (error != cudaSuccess)
		return error;
	return bstream->kind == BATCH_WALK ? walk_launch(&launch, bstream->beside)
									: graph_search_launch(&launch);
}

/*
 * Launch searches of lists: several kernels per part of the batch, as many
 * queries as the state memory holds; they write answers to pinned memory.
 */
static cudaError_t
launch_lists(const CudaEngine *engine, const BatchStream *bstream, const BatchFill *fill)
{
	ListsLaunch launch;

	memset(&launch, 0, sizeof(launch));
	launch.mirror = mirror_view(bstream->mirror);
	launch.batch = pinned_view(bstream);
	launch.lists = lists_view(bstream->mirror);
	launch.halves = lists_halves(bstream->mirror);
	launch.queries = bstream->ntasks;
	launch.max_k = fill->max_k;
	launch.max_probes = at_most(fill->max_probes, launch.lists.lists);
	launch.rows_on_host = bstream->mirror->host_rows;
	launch.max_rerank = fill->max_rerank;
	launch.state_bytes = STATE_ROOM;
	launch.stages = engine->device.lists_limits.stages;
	launch.processors = (uint32_t) engine->device.properties.multiProcessorCount;
	launch.stream = bstream->stream;
	if (pending_apart(bstream, fill))
	{
		cudaError_t error = launch_pending(engine, bstream, fill, &launch.pending);

		if (error != cudaSuccess)
			return error;
		launch.batch.state += LISTS_ROOM;
		launch.state_bytes -= LISTS_ROOM;
	}
	return lists_search_launch(&launch);
}

static bool
batch_copy_out(CudaEngine *engine, BatchStream *bstream, void *to, const void *from, size_t bytes)
{
	return bytes == 0 ||
		   GPU(&engine->device.failure,
			   cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, bstream->stream));
}

/*
 * Raise the flag of a batch whose kernels do not. One warp, launched last in
 * the batch's stream: stream order makes all earlier writes of the batch
 * visible first.
 */
__global__ void
raise_flag_kernel(volatile uint32_t *flag, uint32_t generation)
{
	if (threadIdx.x == 0)
		*flag = generation;
}

/*
 * Make a batch stream wait on the device for its mirror's last change in place,
 * unless that is complete.
 */
static bool
wait_for_change(CudaEngine *engine, const BatchStream *bstream)
{
	CudaMirror *mirror = bstream->mirror;
	cudaError_t state;

	if (!mirror->has_changed)
		return true;
	state = cudaEventQuery(mirror->changed);
	if (state == cudaErrorNotReady)
		return GPU(&engine->device.failure,
				   cudaStreamWaitEvent(bstream->stream, mirror->changed, 0));
	mirror->has_changed = false;
	return gpu_check(&engine->device.failure, state, "a change of a mirror");
}

/* Launch the kernel that raises a batch stream's flag. */
static bool
raise_flag(CudaEngine *engine, BatchStream *bstream)
{
	LAUNCH(raise_flag_kernel, 1, WARP, 0, bstream->stream, (volatile uint32_t *) bstream->flag,
		   bstream->generation);
	return GPU(&engine->device.failure, cudaGetLastError());
}

/*
 * Advance the generation, for the next batch or part. 0 is never used:
 * `watched` means nothing to watch by it.
 */
static void
next_generation(BatchStream *bstream)
{
	bstream->generation = bstream->generation == 0x7FFFFFFFu ? 1 : bstream->generation + 1;
}

/* Copy answers to the host and raise the flag, behind the batch's kernels. */
static bool
finish_exact(CudaEngine *engine, BatchStream *bstream)
{
	return batch_copy_out(engine, bstream, bstream->heads, bstream->view.heads,
						  bstream->ntasks * sizeof(DeviceHead)) &&
		   batch_copy_out(engine, bstream, bstream->results, bstream->view.results,
						  bstream->nresults * sizeof(SearchResult)) &&
		   raise_flag(engine, bstream);
}

/*
 * A part of a batch in tiles has been launched: behind it raise the flag that
 * reports its end, and launch the next part; behind the last part copy the
 * answers out and raise the flag.
 */
static bool
launch_part(CudaEngine *engine, BatchStream *bstream)
{
	if (!host_rows_more(engine))
		return finish_exact(engine, bstream);
	return raise_flag(engine, bstream) && host_rows_continue(engine, bstream);
}

bool
batch_continues(CudaEngine *engine, BatchStream *bstream)
{
	if (!is_stream(bstream->kind) || bstream->last_part)
		return false;
	bstream->last_part = !host_rows_more(engine);
	bstream->launched_us = bstream->asked_us = clock_us();
	next_generation(bstream);
	if (launch_part(engine, bstream))
		__atomic_store_n(&bstream->watched, bstream->generation, __ATOMIC_RELEASE);
	return true;
}

void
batch_begin(BatchStream *bstream)
{
	bstream->started_us = bstream->launched_us = bstream->asked_us = clock_us();
	bstream->busy = true;
	next_generation(bstream);
}

/* Upper bound of the rows that a query of a batch is compared with. */
static uint64_t
compared_rows(const BatchStream *bstream, const BatchFill *fill)
{
	const CudaMirror *mirror = bstream->mirror;
	uint64_t rows = mirror->rows;
	uint64_t some = rows;

	if (is_graph(bstream->kind))
		some = WALK_SLACK * (uint64_t) fill->max_ef * mirror->spec.degree + mirror->nlisted;
	else if (bstream->kind == BATCH_LISTS)
		some = PROBE_SLACK * (uint64_t) fill->max_probes * (rows / mirror->lists->count + 1) +
			   mirror->nlisted;
	return some < rows ? some : rows;
}

/* Upper bound of a batch's work; of one of its parts if it is in tiles. */
static BatchWork
batch_work(const CudaEngine *engine, const BatchStream *bstream, const BatchFill *fill)
{
	const CudaMirror *mirror = bstream->mirror;
	uint64_t rows = compared_rows(bstream, fill);
	uint64_t centroids = bstream->kind == BATCH_LISTS ? mirror->lists->count : 0;
	bool exact = !is_graph(bstream->kind) && bstream->kind != BATCH_LISTS;
	BatchWork work = {0, 0, 0};

	if (is_stream(bstream->kind))
		host_rows_part(engine, mirror, &rows, &work.bus_bytes);
	else if (mirror->host_rows)
		work.bus_bytes =
			bstream->ntasks * (exact ? HOST_READ_SLACK * host_rows_passing_bytes(mirror)
									 : rows * mirror->stride);
	if (is_graph(bstream->kind))
		work.longest = rows * mirror->stride;
	work.elements = (rows + centroids) * mirror->spec.dims * bstream->ntasks;
	return work;
}

/* Launch the kernels of a batch. */
static cudaError_t
launch_kernels(CudaEngine *engine, BatchStream *bstream, const BatchFill *fill)
{
	if (bstream->kind == BATCH_LISTS)
		return launch_lists(engine, bstream, fill);
	return is_graph(bstream->kind) ? launch_graph(engine, bstream, fill)
								   : launch_exact(engine, bstream, fill);
}

/* Whether a batch's kernels write to pinned memory and raise the flag. */
static bool
ends_itself(const BatchStream *bstream)
{
	return is_graph(bstream->kind) || bstream->kind == BATCH_LISTS || bstream->at_once;
}

/* Launch a batch that is staged. The poller watches its flag from then on. */
static bool
launch_batch(CudaEngine *engine, BatchStream *bstream, const BatchFill *fill)
{
	const BatchWork work = batch_work(engine, bstream, fill);

	bstream->work_us = batch_work_us(&work);
	if (!wait_for_change(engine, bstream) ||
		!gpu_check(&engine->device.failure, launch_kernels(engine, bstream, fill),
				   "the launch of a batch"))
		return false;
	if (is_stream(bstream->kind))
	{
		bstream->last_part = !host_rows_more(engine);
		if (!launch_part(engine, bstream))
			return false;
	}
	else if (!ends_itself(bstream) && !finish_exact(engine, bstream))
		return false;
	__atomic_store_n(&bstream->watched, bstream->generation, __ATOMIC_RELEASE);
	engine_set_in_flight(engine);
	return true;
}

bool
batch_launch_staged(CudaEngine *engine, BatchStream *bstream, const BatchFill *fill, size_t bytes)
{
	bstream->read_in_place = reads_in_place(bstream, bytes);
	return (bstream->read_in_place ||
			batch_copy_in(engine, bstream, bstream->view.queries, bstream->input, bytes)) &&
		   launch_batch(engine, bstream, fill);
}

/* Start a batch on a batch stream. False: the device failed. */
static bool
start_batch(CudaEngine *engine, BatchStream *bstream, const BatchFill *fill)
{
	CudaTask *first = bstream->tasks[0];

	batch_begin(bstream);
	bstream->beside = engine->nqueries;
	if (!send_batch(engine, bstream, fill, bstream->started_us))
		return false;
	if ((bstream->kind == BATCH_EXACT_SORT || bstream->kind == BATCH_STREAM_SORT) &&
		!first->in_passes && task_k(first) > EXACT_CHUNK)
	{
		first->in_passes = true;
		bstream->mirror->passes++;
	}
	return launch_batch(engine, bstream, fill);
}

/* Start batches while batch streams are free and queries wait. */
void
batches_start(CudaEngine *engine)
{
	for (uint32_t i = 0; i < BATCH_STREAMS; i++)
	{
		BatchStream *bstream = &engine->streams[i];
		BatchFill fill;

		if (bstream->busy)
			continue;
		if (engine->first_waiting == NULL || !batch_gather(engine, bstream, &fill) ||
			!start_batch(engine, bstream, &fill))
			return;
	}
}
