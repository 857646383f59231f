/*
 * build_engine.c
 *		The engine of a build: a CPU engine in the leader, which is fed with
 *		rows from the pages and makes the graph.
 *
 * It holds as many rows as maintenance_work_mem allows. Its threads know
 * nothing of PostgreSQL, and end with the memory context in which it was
 * opened, on error and cancel too. While the engine takes in one superblock the
 * next is copied from its pages.
 */
#include "postgres.h"

#include "build/build_parts.h"

#include "link/local_engine.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define ENGINE_CHUNK_MB		5		/* memory that the engine takes at once, and its tables */

struct BuildEngine
{
	Relation	index;
	const IndexFormat *format;
	LocalEngine *engine;		/* NULL: there is no memory even for an empty one */

	char	   *batches[2];		/* rows of a superblock: one in flight, one being filled */
	int			filling;
	uint32		in_flight;		/* rows of the job in flight; 0: none is */
	uint32		flight_end;		/* slots below this are in the engine when the job is done */
	uint32	   *versions;		/* of a batch: all 1 */

	bool		feeding;		/* there is room for more */
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
 * Memory that a row takes in the engine: vector, graph row and its distances
 * or, later, its copy in the result; what is kept beside.
 */
static double
row_memory(const IndexFormat *format)
{
	return format->vector_bytes + 2.0 * format->degree * sizeof(uint32) + 64;
}

/*
 * maintenance_work_mem that a build of so many rows needs to make the whole
 * graph in memory, in bytes.
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
	 * The estimate of rows may be far too high: a mirror grows, so begin with
	 * what there is room for.
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
 * Let the rows in flight arrive.
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
 * Feed the rows of the next superblock, as long as memory lasts. Superblocks
 * come in order.
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
 * The slot from which on rows are not in the engine, and how many rows are.
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
 * Link what the engine has. False, and then it has nothing, if memory does not
 * suffice; else *link is valid until the engine is closed.
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
