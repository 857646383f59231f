/*
 * build_engine.c
 *		The engine of a build: a CPU engine in the leader, which gets the rows
 *		from the pages and links the graph.
 *
 * It holds as many rows as maintenance_work_mem allows. Its threads call
 * nothing of PostgreSQL, and end with the memory context in which it was
 * opened, also after an error or cancel. While the engine appends one
 * superblock, the next is copied from its pages.
 */
#include "postgres.h"

#include "build/build_parts.h"

#include "link/local_engine.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define ENGINE_CHUNK_MB		5		/* the engine's unit of allocation, and its tables */

struct BuildEngine
{
	Relation	index;
	const IndexFormat *format;
	LocalEngine *engine;		/* NULL: not enough memory even for an empty one */

	char	   *batches[2];		/* rows of a superblock: one in flight, one being filled */
	int			filling;
	uint32		in_flight;		/* rows of the job in flight; 0: none */
	uint32		flight_end;		/* slots below this are in the engine when the job is done */
	uint32	   *versions;		/* versions of a batch: all 1 */

	bool		feeding;		/* false once memory is used up */
	uint32		most;			/* rows that fit into maintenance_work_mem */
	uint32		rows;			/* in the engine */
	uint32		end;			/* rows in slots below this are in the engine */
};

void
build_engine_close(BuildEngine *build)
{
	if (build->engine != NULL)
		local_engine_close(build->engine);
}

/*
 * Memory of a row in the engine: vector, graph row with its distances or,
 * later, its copy in the result, and other data.
 */
static double
row_memory(const IndexFormat *format)
{
	return format->vector_bytes + 2.0 * format->degree * sizeof(uint32) + 64;
}

/*
 * maintenance_work_mem, in bytes, that a build of this many rows needs to make
 * the whole graph in memory.
 */
double
build_memory(const IndexFormat *format, double rows)
{
	return rows * row_memory(format) * 1.1 + ENGINE_CHUNK_MB * 1024 * 1024;
}

/*
 * Open an engine for a build, within maintenance_work_mem; it is closed with
 * the current memory context at the latest.
 */
BuildEngine *
build_engine_open(Relation index, const IndexFormat *format, double expected_rows)
{
	Size		limit = (Size) maintenance_work_mem * 1024;
	BuildEngine *build = palloc0(sizeof(BuildEngine));
	uint32		capacity;

	build->index = index;
	build->format = format;
	build->most = (uint32) Min(limit / row_memory(format), (double) ENGINE_MAX_SLOTS);
	capacity = Max((uint32) Min(expected_rows * 1.1, (double) build->most), 1);
	/*
	 * The estimated number of rows may be far too high. A mirror can grow, so
	 * start with a size that fits.
	 */
	do
		build->engine = local_engine_open(index, format, capacity, limit);
	while (build->engine == NULL && (capacity /= 2) > 0);
	build->feeding = build->engine != NULL;
	for (int i = 0; i < 2; i++)
		build->batches[i] = palloc_extended((Size) format->superblock_slots * format->vector_bytes,
											MCXT_ALLOC_HUGE);
	build->versions = palloc(sizeof(uint32) * format->superblock_slots);
	for (uint32 i = 0; i < format->superblock_slots; i++)
		build->versions[i] = 1;
	return build;
}

/*
 * Wait for the append in flight.
 */
static void
finish_append(BuildEngine *build)
{
	if (build->in_flight == 0)
		return;
	build->feeding &= local_engine_wait(build->engine, NULL);
	if (build->feeding)
	{
		build->rows += build->in_flight;
		build->end = build->flight_end;
	}
	build->in_flight = 0;
}

/*
 * Copy the vectors of rows [first, first + count) of one superblock from its
 * pages.
 */
void
build_copy_vectors(Relation index, const IndexFormat *format, uint32 first, uint32 count,
				   void *vectors)
{
	VectorPlace place = vector_place(format, first);
	Size		left = (Size) count * format->vector_bytes;
	char	   *out = vectors;

	for (; left > 0; vector_place_next(format, &place))
	{
		Size		part = Min(left, (Size) GPUANN_PAYLOAD - place.offset);
		Buffer		buffer = read_page(index, place.block, PAGE_VECTOR, BUFFER_LOCK_SHARE, false);

		memcpy(out, VectorBytesOf(BufferGetPage(buffer)) + place.offset, part);
		UnlockReleaseBuffer(buffer);
		CHECK_FOR_INTERRUPTS();
		out += part;
		left -= part;
	}
}

/*
 * Append the rows of the next superblock, as long as memory suffices. Called in
 * order of superblocks.
 */
void
build_engine_feed(BuildEngine *build, uint32 superblock, uint32 rows)
{
	uint32		first_slot = superblock * build->format->superblock_slots;
	char	   *batch = build->batches[build->filling];
	uint32		fit;

	if (!build->feeding)
		return;
	fit = build->most - Min(build->rows + build->in_flight, build->most);
	fit = Min(rows, fit);
	if (fit > 0)
		build_copy_vectors(build->index, build->format, first_slot, fit, batch);
	finish_append(build);
	if (build->feeding && fit > 0)
	{
		EngineJob	job = {
			.kind = JOB_APPEND, .count = fit, .first_slot = first_slot,
			.versions = build->versions, .vectors = batch
		};

		build->flight_end =
			fit == rows ? first_slot + build->format->superblock_slots : first_slot + fit;
		build->filling = 1 - build->filling;
		build->feeding = local_engine_submit(build->engine, &job);
		build->in_flight = build->feeding ? fit : 0;
	}
	if (fit < rows)
	{
		finish_append(build);
		build->feeding = false;
	}
}

/*
 * All superblocks have been fed.
 */
void
build_engine_fed(BuildEngine *build)
{
	finish_append(build);
	for (int i = 0; i < 2; i++)
		pfree(build->batches[i]);
}

/*
 * The first slot that is not in the engine, and the number of rows in it.
 */
uint32
build_engine_end(const BuildEngine *build)
{
	return build->end;
}

uint32
build_engine_rows(const BuildEngine *build)
{
	return build->rows;
}

/*
 * Link the engine's rows. Returns false, and then has no rows, if memory does
 * not suffice; else *link is valid until the engine is closed.
 */
bool
build_engine_link(BuildEngine *build, LinkResult *link)
{
	EngineJob	job = {
		.kind = JOB_LINK, .ef_construction = build->format->ef_construction,
		.threads = local_engine_threads()
	};

	if (build->rows == 0)
		return false;
	if (!local_engine_submit(build->engine, &job) ||
		!local_engine_wait(build->engine, build_progress))
	{
		build->rows = build->end = 0;
		return false;
	}
	local_engine_link_result(build->engine, link);
	for (uint32 i = 0; i < link->count; i++)
	{
		if (link->slots[i] >= build->end || (i > 0 && link->slots[i] <= link->slots[i - 1]))
			elog(ERROR, "the engine linked rows that it was not given");
	}
	return true;
}
