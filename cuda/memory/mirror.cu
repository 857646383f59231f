/*
 * mirror.cu
 *		Mirrors in device memory: their ranges, and the host's arrays about
 *		their slots.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/memory/device.h"
#include "cuda/memory/mirror_seeds.h"

#define HOST_STEP ((size_t) 64 << 20) /* host memory is mapped in such steps, as rows arrive:
									   * pinning 10 GB takes about a second */
#define SPARE_DIVISOR 16u /* at most limit / 16 is kept free for the graph to grow, before rows
						   * go to host memory */
#define LISTS_SKEW 4u	/* places reserved for lists, as a multiple of the rows: uneven lists, and
						 * places that dead rows leave */
#define HOST_SLOT_BYTES (sizeof(uint8_t) + sizeof(uint32_t)) /* states, listed */

/*
 * Bytes of a slot's codes; 0: mirrors of this kind have no codes beside rows.
 */
static uint32_t
mirror_code_bytes(const CudaMirror *mirror)
{
	const MirrorSpec *spec = &mirror->spec;
	bool coded = (spec->type == ELEMENT_FLOAT || spec->type == ELEMENT_HALF) &&
				 spec->method == METHOD_GRAPH;

	return coded ? code_stride(spec->dims) : 0;
}

/*
 * Device memory per slot, at least, in bits (the bitmap of dead slots takes
 * one).
 */
static uint64_t
slot_bits(const CudaMirror *mirror)
{
	uint64_t norms = has_norms(mirror->spec.type, mirror->spec.metric) ? sizeof(double) : 0;
	uint64_t rows = (mirror->host_rows ? 0 : mirror->stride + mirror_code_bytes(mirror)) +
					mirror->record_bytes;

	if (mirror->lists != NULL)
		return 8 * (rows + norms + (3 + mirror->lists->code_words) * sizeof(uint32_t)) + 1;
	return 8 * (rows + norms + (uint64_t) sizeof(uint32_t) * (mirror->spec.degree + 3)) + 1;
}

static uint64_t
bitmap_bytes(uint64_t slots)
{
	return (slots + 31) / 32 * sizeof(uint32_t);
}

/* A range, and its size for a number of slots. */
struct RangeSize
{
	Range *range;
	uint64_t bytes;
	MemoryPart part;
};

#define MIRROR_RANGES 9 /* of a mirror */

/* Range sizes of a mirror with lists. */
static int
range_sizes_of_lists(CudaMirror *mirror, uint64_t slots, RangeSize *sizes)
{
	CudaLists *lists = mirror->lists;
	uint64_t directory = lists_directory_bytes(lists, slots);
	const RangeSize all[MIRROR_RANGES] = {
		{&mirror->vectors, slots * mirror->stride, PART_VECTORS},
		{&mirror->norms,
		 has_norms(mirror->spec.type, mirror->spec.metric) ? slots * sizeof(double) : 0,
		 PART_NORMS},
		{&mirror->records, slots * mirror->record_bytes, PART_VECTORS},
		{&mirror->versions, slots * sizeof(uint32_t), PART_GRAPH},
		{&mirror->dead, bitmap_bytes(slots), PART_GRAPH},
		{&mirror->pending[0], slots * sizeof(uint32_t), PART_STATE},
		{&lists->memory, lists_memory_bytes(lists, slots), PART_GRAPH},
		{&lists->directory[0], directory, PART_GRAPH},
		{&lists->directory[1], directory, PART_GRAPH}};

	memcpy(sizes, all, sizeof(all));
	return MIRROR_RANGES;
}

/*
 * Sizes of a mirror's ranges for a number of slots, the vectors first; returns
 * the number of ranges.
 */
static int
range_sizes(CudaMirror *mirror, uint64_t slots, RangeSize *sizes)
{
	const RangeSize all[MIRROR_RANGES] = {
		{&mirror->vectors, slots * mirror->stride, PART_VECTORS},
		{&mirror->graph, slots * mirror->spec.degree * sizeof(uint32_t), PART_GRAPH},
		{&mirror->norms,
		 has_norms(mirror->spec.type, mirror->spec.metric) ? slots * sizeof(double) : 0,
		 PART_NORMS},
		{&mirror->records, slots * mirror->record_bytes, PART_VECTORS},
		{&mirror->versions, slots * sizeof(uint32_t), PART_GRAPH},
		{&mirror->dead, bitmap_bytes(slots), PART_GRAPH},
		{&mirror->pending[0], slots * sizeof(uint32_t), PART_STATE},
		{&mirror->pending[1], slots * sizeof(uint32_t), PART_STATE},
		{&mirror->seeds,
		 2 * SEEDS_ROOM * sizeof(uint32_t) + quantizer_room(&mirror->spec) +
			 entry_points_room(mirror, slots),
		 PART_STATE}};

	if (mirror->lists != NULL)
		return range_sizes_of_lists(mirror, slots, sizes);
	memcpy(sizes, all, sizeof(all));
	return MIRROR_RANGES;
}

/*
 * Device memory for the rows of a mirror that may have rows in host memory:
 * enough for all `slots` where that fits beside everything else including
 * codes, else what remains. The other ranges must be able to grow on the
 * device: by a quarter if the mirror is created with these slots, by half if it
 * has grown to them. Once rows are in host memory the device part stays as it
 * is; only loading the mirror again changes that.
 */
static uint64_t
device_row_bytes(const CudaDevice *device, const CudaMirror *mirror, uint32_t slots,
				 const RangeSize *sizes)
{
	const Arena *arena = &device->arena;
	uint64_t wanted = (uint64_t) slots * mirror->stride;
	uint64_t scale = mirror->codes_rotated ? sizeof(float2) : 0;
	uint64_t codes = mirror->has_code_room ? slots * (mirror_code_bytes(mirror) + scale) : 0;
	uint64_t spare = (mirror->lists != NULL
						  ? lists_memory_bytes(mirror->lists, slots)
						  : (uint64_t) slots * mirror->spec.degree * sizeof(uint32_t)) +
					 codes;
	uint64_t taken = arena_used(arena) + range_grow_cost(arena, &mirror->codes, codes);
	uint64_t most;

	if (mirror->vectors.device_bytes < mirror->vectors.mapped)
		return mirror->vectors.device_bytes;
	for (int i = 1; i < MIRROR_RANGES; i++)
		taken += range_grow_cost(arena, sizes[i].range, sizes[i].bytes);
	spare = mirror->capacity == 0 ? spare / 4 : spare / 2;
	taken += spare < arena->limit / SPARE_DIVISOR ? spare : arena->limit / SPARE_DIVISOR;
	most = mirror->vectors.device_bytes +
		   (arena->limit > taken ? (arena->limit - taken) / arena->unit * arena->unit : 0);
	return most < wanted ? most : wanted;
}

/* Check that host memory has room for the rows beyond device capacity. */
static bool
host_rows_fit(const CudaDevice *device, const CudaMirror *mirror, uint32_t slots,
			  uint64_t device_bytes, EngineError *error)
{
	const Arena *arena = &device->arena;
	uint64_t wanted = (uint64_t) slots * mirror->stride;
	uint64_t there = mirror->vectors.mapped > device_bytes ? mirror->vectors.mapped : device_bytes;

	if (wanted <= there || wanted - there <= arena->host_limit - arena->host_used)
		return true;
	engine_error(
		error, ENGINE_NO_MEMORY,
		"%llu more bytes of rows do not fit: %llu of %llu are in use on the device, %llu of %llu in host memory",
		(unsigned long long) (wanted - mirror->vectors.mapped),
		(unsigned long long) arena_used(arena), (unsigned long long) arena->limit,
		(unsigned long long) arena->host_used, (unsigned long long) arena->host_limit);
	return false;
}

/* Bytes of a slot in the host's arrays. */
static uint64_t
host_slot_bytes(const CudaMirror *mirror)
{
	return HOST_SLOT_BYTES + (mirror->lists != NULL ? LISTS_HOST_SLOT : 0);
}

/* Enlarge the host's arrays to `capacity` slots; states of new ones are 0. */
static bool
grow_host(CudaDevice *device, CudaMirror *mirror, uint32_t capacity)
{
	uint8_t *states = (uint8_t *) realloc(mirror->states, capacity);
	uint32_t *listed;

	if (states == NULL)
		return false;
	mirror->states = states;
	listed = (uint32_t *) realloc(mirror->listed, (size_t) capacity * sizeof(uint32_t));
	if (listed == NULL)
		return false;
	mirror->listed = listed;
	memset(states + mirror->capacity, 0, capacity - mirror->capacity);
	if (mirror->lists != NULL && !lists_grow_host(mirror, capacity))
		return false;
	device->host_arrays +=
		(uint64_t) (capacity - mirror->capacity) * host_slot_bytes(mirror);
	return true;
}

EngineStatus
mirror_grow_to(CudaDevice *device, CudaMirror *mirror, uint32_t slots, EngineError *error)
{
	Arena *arena = &device->arena;
	RangeSize sizes[MIRROR_RANGES];
	uint64_t cost = 0;
	EngineStatus status = ENGINE_OK;
	int count = range_sizes(mirror, slots, sizes);

	if (mirror->host_rows)
	{
		sizes[0].bytes = device_row_bytes(device, mirror, slots, sizes);
		if (!host_rows_fit(device, mirror, slots, sizes[0].bytes, error))
			status = ENGINE_NO_MEMORY;
	}
	for (int i = 0; i < count; i++)
		cost += range_grow_cost(arena, sizes[i].range, sizes[i].bytes);
	if (status == ENGINE_OK && arena_used(arena) + cost > arena->limit)
		status = engine_error(error, ENGINE_NO_MEMORY,
							  "%llu more bytes of mirror%s do not fit: %llu of %llu are in use",
							  (unsigned long long) cost,
							  mirror->host_rows ? " beside its vectors" : "",
							  (unsigned long long) arena_used(arena),
							  (unsigned long long) arena->limit);
	for (int i = 0; i < count && status == ENGINE_OK; i++)
		status = range_grow(arena, sizes[i].range, sizes[i].bytes, error);
	if (status == ENGINE_OK && !grow_host(device, mirror, slots))
		status = engine_error(error, ENGINE_NO_MEMORY, "out of host memory for %u slots", slots);
	if (status != ENGINE_OK)
		return status;
	mirror->capacity = slots;
	/* codes grow last: without room for them searches walk rows as stored */
	if (mirror->has_code_room &&
		(range_grow(arena, &mirror->codes, (uint64_t) slots * mirror_code_bytes(mirror), error) !=
			 ENGINE_OK ||
		 (mirror->codes_rotated && range_grow(arena, &mirror->scales,
											  (uint64_t) slots * sizeof(float2),
											  error) != ENGINE_OK)))
		mirror->has_code_room = mirror->codes_good = false;
	return ENGINE_OK;
}

EngineStatus
mirror_grow_host_rows(CudaDevice *device, CudaMirror *mirror, uint64_t slots, EngineError *error)
{
	uint64_t wanted = slots * mirror->stride;
	uint64_t spare = wanted + HOST_STEP;
	EngineError ignored;

	if (wanted <= mirror->vectors.mapped)
		return ENGINE_OK;
	spare = spare < (uint64_t) mirror->capacity * mirror->stride
				? spare
				: (uint64_t) mirror->capacity * mirror->stride;
	if (range_grow_host(&device->arena, &mirror->vectors, spare, &ignored) == ENGINE_OK)
		return ENGINE_OK;
	return range_grow_host(&device->arena, &mirror->vectors, wanted, error);
}

/* Check a mirror's spec. */
static EngineStatus
check_spec(const CudaDevice *device, const MirrorSpec *spec, EngineError *error)
{
	EngineStatus status = quantizer_check_spec(spec, error);

	if (status != ENGINE_OK)
		return status;
	if (spec->device != -1 && spec->device != device->arena.device)
		return engine_error(error, ENGINE_UNSUPPORTED, "device %d is not the engine's",
							spec->device);
	return ENGINE_OK;
}

/* Reserve addresses for as many slots as the limit could hold. */
static EngineStatus
reserve_ranges(CudaDevice *device, CudaMirror *mirror, EngineError *error)
{
	uint64_t most = device->arena.limit / (slot_bits(mirror) / 8) + MIRROR_FIRST_ROWS;
	/*
	 * lists may have more places than rows; reserved addresses cost no memory
	 */
	uint64_t skew = mirror->lists != NULL ? LISTS_SKEW : 1;
	RangeSize sizes[MIRROR_RANGES];
	EngineStatus status = ENGINE_OK;
	int count;

	/* rows in host memory are bounded by both limits together */
	if (mirror->host_rows &&
		most >
			(device->arena.limit + device->arena.host_limit) / mirror->stride + MIRROR_FIRST_ROWS)
		most =
			(device->arena.limit + device->arena.host_limit) / mirror->stride + MIRROR_FIRST_ROWS;
	mirror->most = (uint32_t) (most < ENGINE_MAX_SLOTS ? most : ENGINE_MAX_SLOTS);
	count = range_sizes(mirror, mirror->most, sizes);
	for (int i = 0; i < count && status == ENGINE_OK; i++)
		status = range_reserve(&device->arena, sizes[i].range, sizes[i].part,
							   sizes[i].bytes * (sizes[i].part == PART_GRAPH ? skew : 1), error);
	if (status == ENGINE_OK && mirror_code_bytes(mirror) > 0)
	{
		status = range_reserve(&device->arena, &mirror->codes, PART_VECTORS,
							   (uint64_t) mirror->most * mirror_code_bytes(mirror), error);
		mirror->code_offsets = (float *) calloc(mirror->spec.dims, sizeof(float));
		mirror->has_code_room = mirror->code_offsets != NULL;
	}
	if (status == ENGINE_OK && mirror->lists != NULL)
		status = range_take(&device->arena, &mirror->lists->fixed, PART_GRAPH,
							lists_fixed_bytes(mirror->lists), error);
	if (status == ENGINE_OK && mirror->lists != NULL && !lists_clear_probes(device, mirror))
		status = gpu_failed(&device->failure, error);
	return status;
}

/* Free a mirror. No job, batch or query refers to it any more. */
void
mirror_free(CudaDevice *device, CudaMirror *mirror)
{
	RangeSize sizes[MIRROR_RANGES];

	for (int i = 0, count = range_sizes(mirror, 0, sizes); i < count; i++)
		range_release(&device->arena, sizes[i].range);
	if (mirror->lists != NULL)
		range_release(&device->arena, &mirror->lists->fixed);
	range_release(&device->arena, &mirror->codes);
	range_release(&device->arena, &mirror->scales);
	free(mirror->code_offsets);
	if (mirror->changed != NULL)
		GPU(&device->failure, cudaEventDestroy(mirror->changed));
	device->host_arrays -=
		(uint64_t) mirror->capacity * host_slot_bytes(mirror) + mirror_deferred_bytes(mirror);
	lists_free(device, mirror);
	free(mirror->states);
	free(mirror->listed);
	free(mirror->deferred);
	free(mirror);
}

EngineStatus
mirror_create(CudaDevice *device, const MirrorSpec *spec, CudaMirror **result, EngineError *error)
{
	EngineStatus status = check_spec(device, spec, error);
	CudaMirror *mirror;

	if (status != ENGINE_OK)
		return status;
	mirror = (CudaMirror *) calloc(1, sizeof(*mirror));
	if (mirror == NULL)
		return engine_error(error, ENGINE_NO_MEMORY, "out of memory");
	mirror->spec = *spec;
	mirror->host_rows = spec->residency == RESIDENCY_COMPRESSED && device->arena.host_limit > 0;
	mirror->vector_bytes = (uint32_t) engine_vector_bytes(spec->type, spec->dims);
	mirror->stride = (uint32_t) round_up(mirror->vector_bytes, 16);
	mirror->record_bytes =
		spec->columns > 0 ? filter_record_bytes(spec->column_kinds, spec->columns) : 0;
	if (spec->method == METHOD_IVFPQ && !lists_create(mirror))
	{
		engine_error(error, ENGINE_NO_MEMORY, "out of memory for %u lists", spec->lists.lists);
		mirror_free(device, mirror);
		return ENGINE_NO_MEMORY;
	}
	*result = mirror;
	return ENGINE_OK;
}

EngineStatus
mirror_reserve(CudaDevice *device, CudaMirror *mirror, EngineError *error)
{
	EngineStatus status = reserve_ranges(device, mirror, error);

	if (status == ENGINE_OK &&
		!GPU(&device->failure, cudaEventCreateWithFlags(&mirror->changed, cudaEventDisableTiming)))
		status = gpu_failed(&device->failure, error);
	return status;
}

MirrorId
mirror_enter(CudaDevice *device, CudaMirror *mirror)
{
	mirror->id = ++device->last_mirror;
	mirror->next = device->mirrors;
	device->mirrors = mirror;
	return mirror->id;
}

/* What a batch that starts now sees of a mirror. */
MirrorView
mirror_view(const CudaMirror *mirror)
{
	MirrorView view;

	view.vectors = (const unsigned char *) mirror->vectors.base;
	view.versions = (const uint32_t *) mirror->versions.base;
	view.dead = (const uint32_t *) mirror->dead.base;
	view.graph = (const uint32_t *) mirror->graph.base;
	view.norms = (const double *) mirror->norms.base;
	view.seeds = (const uint32_t *) mirror->seeds.base + mirror->seeds_side * SEEDS_ROOM;
	view.pending = (const uint32_t *) mirror->pending[mirror->pending_side].base;
	view.rows = mirror->rows;
	view.nseeds = mirror->nseeds;
	view.npending = mirror->nlisted;
	view.stride = mirror->stride;
	view.dims = mirror->spec.dims;
	view.degree = mirror->spec.degree;
	view.type = mirror->spec.type;
	view.metric = mirror->spec.metric;
	view.codes = mirror->codes_good ? (const signed char *) mirror->codes.base : NULL;
	view.code_offsets = quantizer_offsets(mirror);
	view.code_steps = mirror->code_steps;
	view.code_stride = mirror_code_bytes(mirror);
	view.code_scales = mirror->codes_rotated ? (const float2 *) mirror->scales.base : NULL;
	view.rotation = quantizer_rotation(mirror);
	entry_points_published(mirror, &view);
	return view;
}

uint32_t
mirror_device_rows(const CudaMirror *mirror)
{
	return (uint32_t) (mirror->vectors.device_bytes / mirror->stride);
}

bool
mirror_copy_rows(CudaDevice *device, const CudaMirror *mirror, uint32_t slot, uint32_t count,
				 void *other, bool in, cudaStream_t stream)
{
	unsigned char *with = (unsigned char *) other;
	size_t at = (size_t) slot * mirror->stride;
	size_t bytes = (size_t) count * mirror->stride;
	size_t device_bytes = mirror->vectors.device_bytes;

	/* a copy must not span device and host memory, and a row may lie in both */
	for (size_t n; bytes > 0; at += n, with += n, bytes -= n)
	{
		unsigned char *rows = (unsigned char *) mirror->vectors.base + at;

		n = at < device_bytes && device_bytes - at < bytes ? device_bytes - at : bytes;
		if (!GPU(&device->failure, in ? cudaMemcpyAsync(rows, with, n, cudaMemcpyDefault, stream)
									  : cudaMemcpyAsync(with, rows, n, cudaMemcpyDefault, stream)))
			return false;
	}
	return true;
}

/*
 * Device bytes of vectors, columns, codes, graph or lists, norms, versions and
 * the bitmap of dead slots, as mapped.
 */
uint64_t
mirror_bytes(const CudaMirror *mirror)
{
	const CudaLists *lists = mirror->lists;

	return (lists == NULL ? 0
						  : lists->fixed.mapped + lists->memory.mapped +
								lists->directory[0].mapped + lists->directory[1].mapped) +
		   mirror->vectors.device_bytes + mirror->records.mapped + mirror->codes.mapped +
		   mirror->scales.mapped + mirror->graph.mapped + mirror->norms.mapped +
		   mirror->versions.mapped + mirror->dead.mapped;
}

#define ROWS_AT_ONCE 4096u /* rows copied per round */

/*
 * Copy graph rows, or numbers of lists, and versions of some slots to `staged`:
 * degree + 1 words each. Waits for the copies, also after one that failed:
 * those before it write to the caller's memory.
 */
static bool
bring_rows(CudaDevice *device, const CudaMirror *mirror, const uint32_t *slots, uint32_t count,
		   uint32_t *staged)
{
	uint32_t degree = mirror->spec.degree;
	cudaStream_t stream = device->job_stream;

	for (uint32_t i = 0; i < count && !device->failure.failed; i++, staged += degree + 1)
	{
		const uint32_t *row = (const uint32_t *) mirror->graph.base + (size_t) slots[i] * degree;
		const uint32_t *version = (const uint32_t *) mirror->versions.base + slots[i];

		if (mirror->lists != NULL)
			staged[0] = lists_number(mirror, slots[i]);
		else
			(void) GPU(&device->failure, cudaMemcpyAsync(staged, row, degree * sizeof(uint32_t),
														 cudaMemcpyDeviceToHost, stream));
		(void) GPU(&device->failure, cudaMemcpyAsync(staged + degree, version, sizeof(uint32_t),
													 cudaMemcpyDeviceToHost, stream));
	}
	return GPU(&device->failure, cudaStreamSynchronize(stream));
}

/*
 * Copy graph rows and versions of slots out. For tests and checks: it waits for
 * the job stream and stages in pageable memory, because the pinned memory of
 * pieces belongs to jobs.
 */
EngineStatus
mirror_rows(CudaDevice *device, CudaMirror *mirror, const uint32_t *slots, uint32_t count,
			uint32_t *rows, uint32_t *versions, EngineError *error)
{
	uint32_t degree = mirror->spec.degree;
	uint32_t *staged;

	for (uint32_t i = 0; i < count; i++)
		if (slots[i] >= mirror->rows)
			return engine_error(error, ENGINE_INVALID, "slot %u is not below the %u published",
								slots[i], mirror->rows);
	staged = (uint32_t *) malloc((size_t) at_most(count, ROWS_AT_ONCE) * (degree + 1) *
									 sizeof(uint32_t) + 1);
	if (staged == NULL)
		return engine_error(error, ENGINE_NO_MEMORY, "out of memory for rows of %u slots", count);
	for (uint32_t first = 0; first < count; first += ROWS_AT_ONCE)
	{
		uint32_t n = at_most(count - first, ROWS_AT_ONCE);

		if (!bring_rows(device, mirror, slots + first, n, staged))
			break;
		for (uint32_t i = 0; i < n; i++)
		{
			memcpy(rows + (size_t) (first + i) * degree, staged + (size_t) i * (degree + 1),
				   degree * sizeof(uint32_t));
			versions[first + i] = staged[(size_t) i * (degree + 1) + degree];
		}
	}
	free(staged);
	return device->failure.failed ? gpu_failed(&device->failure, error) : ENGINE_OK;
}
