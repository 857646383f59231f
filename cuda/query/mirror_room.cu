/*
 * mirror_room.cu
 *		Creating and growing mirrors, together with what else must grow: the
 *		bitmaps of batch streams and of a condition, which have a bit per slot
 *		of the largest mirror, and the buffers for streaming rows from host
 *		memory.
 */
#include "cuda/query/cuda_engine.h"
#include "cuda/query/mirror_room.h"

/*
 * Grow to exactly `slots` slots. Bitmaps first: larger ones do no harm if the
 * mirror then does not fit.
 */
static EngineStatus
grow_to(CudaEngine *engine, CudaMirror *mirror, uint32_t slots, EngineError *error)
{
	EngineStatus status = batch_streams_grow_bitmaps(engine, slots, error);

	if (status == ENGINE_OK && mirror->record_bytes > 0)
		status = conditions_grow(engine, slots, error);
	return status == ENGINE_OK ? mirror_grow_to(&engine->device, mirror, slots, error) : status;
}

/* Grow to at least `slots` slots, with a quarter to spare if that fits. */
static EngineStatus
grow_slots(CudaEngine *engine, CudaMirror *mirror, uint64_t slots, EngineError *error)
{
	uint64_t spare = mirror->capacity + mirror->capacity / 4;
	EngineError ignored;
	EngineStatus status;

	if (slots <= mirror->capacity)
		return ENGINE_OK;
	if (slots > mirror->most)
		return engine_error(error, ENGINE_NO_MEMORY, "%llu slots do not fit into %llu bytes",
							(unsigned long long) slots,
							(unsigned long long) engine->device.arena.limit);
	spare = spare < mirror->most ? spare : mirror->most;
	if (spare > slots && grow_to(engine, mirror, (uint32_t) spare, &ignored) == ENGINE_OK)
		return ENGINE_OK;
	status = grow_to(engine, mirror, (uint32_t) slots, error);
	/* what is cached gives way to rows */
	if (status == ENGINE_NO_MEMORY && conditions_shrink(engine))
		status = grow_to(engine, mirror, (uint32_t) slots, error);
	return status;
}

EngineStatus
mirror_grow(CudaEngine *engine, CudaMirror *mirror, uint64_t slots, EngineError *error)
{
	EngineStatus status = grow_slots(engine, mirror, slots, error);

	return status == ENGINE_OK ? mirror_grow_host_rows(&engine->device, mirror, slots, error)
							   : status;
}

EngineStatus
mirror_open(CudaEngine *engine, const MirrorSpec *spec, MirrorId *id, EngineError *error)
{
	uint32_t slots = spec->capacity < MIRROR_FIRST_ROWS ? MIRROR_FIRST_ROWS : spec->capacity;
	CudaMirror *mirror = NULL;
	bool had_buffers = engine->stream.tile_bytes > 0;
	EngineStatus status = mirror_create(&engine->device, spec, &mirror, error);

	if (status != ENGINE_OK)
		return status;
	if (mirror->host_rows)
		status = host_rows_open(engine, error);
	if (status == ENGINE_OK)
		status = mirror_reserve(&engine->device, mirror, error);
	if (status == ENGINE_OK)
		status = grow_slots(engine, mirror, slots, error);
	if (status == ENGINE_OK)
		*id = mirror_enter(&engine->device, mirror);
	else
	{
		mirror_free(&engine->device, mirror);
		/*
		 * buffers for rows in host memory, which no mirror has, would be in the
		 * way of others
		 */
		if (!had_buffers && engine->stream.tile_bytes > 0)
			host_rows_close(engine);
	}
	return status;
}
