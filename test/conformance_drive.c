/*
 * conformance_drive.c
 *		Driving an engine from a case: jobs, queries, and the checks that every
 *		answer must pass.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance.h"

#define PATIENCE		120.0	/* seconds until something that should complete counts as hanging */
#define POISON			0xA5
#define POLL_ROOM		64

/* Fail the case unless a call succeeded. */
void
must(EngineStatus status, const EngineError *error, const char *what)
{
	CHECK(status == ENGINE_OK, "%s: status %d: %s", what, (int) status, error->text);
}

/* Open an engine; any other status than the expected fails the case. */
Engine *
open_engine(const EngineConfig *config, EngineStatus expected)
{
	Engine	   *opened = NULL;
	EngineError error = {0};
	EngineStatus status = ops->open(config, &opened, &error);

	CHECK(status == expected, "open: status %d: %s", (int) status, error.text);
	return opened;
}

void
reopen(const EngineConfig *config)
{
	act_on_cpu(false);
	if (engine != NULL)
		ops->close(engine);
	engine = NULL;
	engine = open_engine(config, ENGINE_OK);
}

bool
driver_bytes_used(uint64_t *used)
{
	void	   *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	int			(*get_info) (size_t *, size_t *) = NULL;
	size_t		free_bytes = 0;
	size_t		total = 0;

	if (driver != NULL)
		*(void **) &get_info = dlsym(driver, "cuMemGetInfo_v2");
	if (get_info == NULL || get_info(&free_bytes, &total) != 0)
		return false;
	*used = total - free_bytes;
	return true;
}

/* An element of what nvmlDeviceGetComputeRunningProcesses_v3() writes. */
typedef struct NvmlProcess
{
	unsigned int pid;
	unsigned long long bytes;	/* NVML_UNKNOWN: it cannot tell */
	unsigned int gpu_instance;
	unsigned int compute_instance;
} NvmlProcess;

#define NVML_UNKNOWN	(~0ull)
#define NVML_PROCESSES	256		/* of a device, at most */

typedef struct Nvml
{
	int			(*init) (void);
	int			(*device_count) (unsigned int *);
	int			(*device) (unsigned int, void **);
	int			(*processes) (void *, unsigned int *, NvmlProcess *);
} Nvml;

/* Load NVML; false: this machine has none, or one without these functions. */
static bool
nvml_load(Nvml *nvml)
{
	void	   *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

	if (library == NULL)
		return false;
	*(void **) &nvml->init = dlsym(library, "nvmlInit_v2");
	*(void **) &nvml->device_count = dlsym(library, "nvmlDeviceGetCount_v2");
	*(void **) &nvml->device = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	*(void **) &nvml->processes = dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
	return nvml->init != NULL && nvml->device_count != NULL && nvml->device != NULL &&
		   nvml->processes != NULL && nvml->init() == 0;
}

bool
process_bytes_used(uint64_t *used)
{
	static NvmlProcess processes[NVML_PROCESSES];
	Nvml		nvml;
	unsigned int devices = 0;
	bool		found = false;

	*used = 0;
	if (!nvml_load(&nvml) || nvml.device_count(&devices) != 0)
		return false;
	for (unsigned int i = 0; i < devices; i++)
	{
		void	   *device = NULL;
		unsigned int count = NVML_PROCESSES;

		if (nvml.device(i, &device) != 0 || nvml.processes(device, &count, processes) != 0)
			continue;
		for (unsigned int p = 0; p < count; p++)
			if (processes[p].pid == (unsigned int) getpid() && processes[p].bytes != NVML_UNKNOWN)
			{
				*used += processes[p].bytes;
				found = true;
			}
	}
	return found;
}

/* Submit a job that is well formed. */
JobId
start_job(const EngineJob *job)
{
	JobId		id = 0;
	EngineError error = {0};

	must(ops->job_submit(engine, job, &id, &error), &error, "job_submit");
	return id;
}

/* Wait for a job; it is not released. */
EngineStatus
end_job(JobId id, JobProgress *progress)
{
	double		start = clock_seconds();

	for (;;)
	{
		CHECK(ops->job_poll(engine, id, progress) == ENGINE_OK, "job_poll does not know a job");
		if (progress->completed)
			return progress->status;
		CHECK(clock_seconds() - start < PATIENCE, "a job hangs at %u of %u", progress->done,
			  progress->total);
		usleep(200);
	}
}

/* Submit a job, wait for it, release it. */
EngineStatus
run_job(const EngineJob *job, JobProgress *progress)
{
	JobProgress own;
	JobId		id = start_job(job);
	EngineStatus status = end_job(id, progress != NULL ? progress : &own);

	ops->job_release(engine, id);
	return status;
}

static void
must_run(const EngineJob *job, const char *what)
{
	JobProgress progress;

	if (run_job(job, &progress) != ENGINE_OK)
		must(progress.status, &progress.error, what);
}

/* Append the next vectors of the table. */
void
world_append(World *world, uint32_t count)
{
	EngineJob	job = {
		.kind = JOB_APPEND, .mirror = world->mirror, .count = count, .first_slot = world->rows,
		.versions = world->versions + world->rows, .vectors = world_vector(world, world->rows)
	};

	if (world->records != NULL)
		job.columns = world->records + (size_t) world->rows *
			filter_record_bytes(world->spec.column_kinds, world->spec.columns);

	CHECK(world->rows + count <= world->room, "the case appends more rows than it made");
	must_run(&job, "append");
	world->rows += count;
}

/*
 * Run a job that makes edges, which the engine may refuse: then nothing has
 * changed. Returns whether it has done it.
 */
bool
links_or_refuses(World *world, EngineJob *job)
{
	MirrorInfo	before = world_info(world);
	MirrorInfo	after;
	JobProgress progress;
	LinkResult	result;
	JobId		id;
	EngineStatus status;

	job->mirror = world->mirror;
	id = start_job(job);
	status = end_job(id, &progress);
	CHECK(status == ENGINE_OK || status == ENGINE_UNSUPPORTED || status == ENGINE_NO_MEMORY,
		  "status %d: %s", (int) status, progress.error.text);
	CHECK(ops->job_link_result(engine, id, &result) == ENGINE_OK, "no result of a link");
	if (status != ENGINE_OK)
	{
		after = world_info(world);
		CHECK(result.count == 0 && result.nseeds == 0, "a refused link has changed %u rows",
			  result.count);
		CHECK(progress.error.text[0] != 0, "a refused link does not say why");
		CHECK(after.linked == before.linked && after.pending == before.pending &&
				  after.seeds == before.seeds,
			  "a refused link has changed the mirror");
	}
	ops->job_release(engine, id);
	return status == ENGINE_OK;
}

/* Remember the seeds a link or a case chose. */
static void
keep_seeds(World *world, const uint32_t *seeds, uint32_t count)
{
	world->nseeds = count;
	world->seeds = allocate(count * sizeof(uint32_t));
	memcpy(world->seeds, seeds, count * sizeof(uint32_t));
}

/* Run a job of the CPU engine; it is not released. */
static JobId
cpu_run(const EngineOps *cpu, Engine *by, const EngineJob *job)
{
	JobProgress progress = {0};
	EngineError error = {0};
	JobId		id = 0;

	must(cpu->job_submit(by, job, &id, &error), &error, "job_submit of the CPU engine");
	while (!progress.completed)
	{
		CHECK(cpu->job_poll(by, id, &progress) == ENGINE_OK, "the CPU engine lost a job");
		usleep(200);
	}
	must(progress.status, &progress.error, "a job of the CPU engine");
	return id;
}

/* Give the mirror the graph that the CPU engine makes of its rows. */
void
world_link_by_cpu(World *world)
{
	const EngineOps *cpu = cpu_engine_ops();
	EngineConfig config = {.device = -1};
	MirrorSpec	spec = {.dims = world->dims,
						.type = world->type,
						.metric = world->metric,
						.method = METHOD_GRAPH,
						.degree = world->degree,
						.capacity = world->rows,
						.residency = RESIDENCY_FULL,
						.placement = PLACEMENT_SINGLE,
						.device = -1};
	uint64_t   *dead = allocate(((size_t) world->rows / 64 + 1) * sizeof(uint64_t));
	EngineJob append = {.kind = JOB_APPEND, .count = world->rows, .versions = world->versions,
						.dead = dead, .vectors = world->vectors};
	EngineJob	link = {.kind = JOB_LINK, .ef_construction = 64};
	EngineJob	graph = {.kind = JOB_GRAPH, .mirror = world->mirror};
	EngineJob	seeds = {.kind = JOB_SEEDS, .mirror = world->mirror};
	LinkResult	result;
	EngineError error = {0};
	Engine	   *by;

	for (uint32_t slot = 0; slot < world->rows; slot++)
		dead[slot / 64] |= (uint64_t) !world->live[slot] << (slot % 64);
	must(cpu->open(&config, &by, &error), &error, "opening the CPU engine");
	must(cpu->mirror_create(by, &spec, &append.mirror, &error), &error, "a CPU engine's mirror");
	link.mirror = append.mirror;
	(void) cpu_run(cpu, by, &append);
	CHECK(cpu->job_link_result(by, cpu_run(cpu, by, &link), &result) == ENGINE_OK,
		  "no result of the CPU engine's link");
	graph.count = result.count;
	graph.slots = result.slots;
	graph.rows = result.rows;
	must_run(&graph, "graph");
	seeds.count = result.nseeds;
	seeds.slots = result.seeds;
	must_run(&seeds, "seeds");
	keep_seeds(world, result.seeds, result.nseeds);
	cpu->close(by);
}

/* Link everything pending. */
void
world_link(World *world)
{
	EngineJob	job = {.kind = JOB_LINK, .mirror = world->mirror, .ef_construction = 64};
	JobProgress progress;
	LinkResult	result;
	JobId		id;

	if (options.cpu_graphs && world_info(world).linked == 0)
	{
		world_link_by_cpu(world);
		return;
	}
	id = start_job(&job);
	if ((end_job(id, &progress) == ENGINE_NO_MEMORY || progress.status == ENGINE_UNSUPPORTED) &&
		world_info(world).host_bytes > 0)
	{
		ops->job_release(engine, id);
		world_link_by_cpu(world);
		return;
	}
	must(progress.status, &progress.error, "link");
	CHECK(ops->job_link_result(engine, id, &result) == ENGINE_OK, "no result of a completed link");
	keep_seeds(world, result.seeds, result.nseeds);
	ops->job_release(engine, id);
}

/* Repair rows: those of slots, or all. */
uint32_t
world_repair(World *world, const uint32_t *slots, uint32_t count)
{
	EngineJob job = {.kind = JOB_REPAIR,
					 .mirror = world->mirror,
					 .ef_construction = 64,
					 .slots = slots,
					 .count = count};
	JobProgress progress;
	LinkResult	result;
	JobId		id = start_job(&job);

	must(end_job(id, &progress), &progress.error, "repair");
	CHECK(ops->job_link_result(engine, id, &result) == ENGINE_OK,
		  "no result of a completed repair");
	keep_seeds(world, result.seeds, result.nseeds);
	count = result.count;
	ops->job_release(engine, id);
	return count;
}

/* Let one slot die, in its next version. */
void
world_kill(World *world, uint32_t slot)
{
	EngineJob	job = {.kind = JOB_DEAD, .mirror = world->mirror, .count = 1, .slots = &slot,
	.versions = &world->versions[slot]};

	world->versions[slot]++;
	world->live[slot] = false;
	must_run(&job, "dead");
}

void
world_drop(World *world)
{
	EngineJob	job = {.kind = JOB_DROP, .mirror = world->mirror};

	must_run(&job, "drop");
}

MirrorInfo
world_info(const World *world)
{
	MirrorInfo	info;
	EngineError error = {0};

	must(ops->mirror_info(engine, world->mirror, &info, &error), &error, "mirror_info");
	return info;
}

/* Give every row its graph row, and the mirror its seeds. */
void
world_set_graph(World *world, const uint32_t *rows, const uint32_t *seeds, uint32_t nseeds)
{
	uint32_t   *slots = allocate(world->rows * sizeof(uint32_t));
	EngineJob graph = {.kind = JOB_GRAPH,
					   .mirror = world->mirror,
					   .count = world->rows,
					   .slots = slots,
					   .rows = rows};
	EngineJob start = {.kind = JOB_SEEDS, .mirror = world->mirror, .count = nseeds, .slots = seeds};

	for (uint32_t slot = 0; slot < world->rows; slot++)
		slots[slot] = slot;
	must_run(&graph, "graph");
	must_run(&start, "seeds");
	keep_seeds(world, seeds, nseeds);
}

/*
 * Give every row a graph row: the ring of all rows, and chords of random
 * lengths.
 */
void
world_ring(World *world, uint32_t nseeds)
{
	uint32_t   *rows = allocate((size_t) world->rows * world->degree * sizeof(uint32_t));
	uint32_t   *seeds = allocate((nseeds + 1) * sizeof(uint32_t));

	for (uint32_t slot = 0; slot < world->rows; slot++)
	{
		uint32_t	used = 2 + random_below(world->degree - 1);

		for (uint32_t i = 0; i < world->degree; i++)
		{
			uint32_t	step = i == 0 ? 1 : i == 1 ? world->rows - 1 : random_below(world->rows);

			rows[(size_t) slot * world->degree + i] =
				i < used ? (uint32_t) (((uint64_t) slot + step) % world->rows) : NO_SLOT;
		}
	}
	for (uint32_t i = 0; i < nseeds; i++)
		seeds[i] = random_below(world->rows);
	world_set_graph(world, rows, seeds, nseeds);
}

/*
 * Prepare a query. Its results have one place more than k, which must stay as
 * it is.
 */
void
query_init(EngineQuery *query, const World *world, SearchMethod method, uint32_t k, uint32_t ef,
		   const void *vector)
{
	memset(query, 0, sizeof(*query));
	query->mirror = world->mirror;
	query->method = method;
	query->k = k;
	query->ef = ef;
	query->vector = vector;
	query->results = allocate(((size_t) k + 1) * sizeof(SearchResult));
}

/* Poison the result buffers and submit. */
void
queries_submit(EngineQuery *queries, uint32_t count)
{
	EngineQuery **pointers = malloc((count + 1) * sizeof(*pointers));
	EngineError error = {0};
	EngineStatus status;

	for (uint32_t i = 0; i < count; i++)
	{
		pointers[i] = &queries[i];
		queries[i].count = 0xFFFFFFFF;
		queries[i].status = (EngineStatus) -1;
		queries[i].user = &queries[i];
		if (queries[i].results != NULL)
			memset(queries[i].results, POISON, ((size_t) queries[i].k + 1) * sizeof(SearchResult));
	}
	status = ops->submit(engine, pointers, count, &error);
	free(pointers);
	must(status, &error, "submit");
}

/* Take what has completed, and see that the buffers' guards are whole. */
uint32_t
queries_poll(EngineQuery **completed, uint32_t room)
{
	uint32_t	count = 0;
	EngineError error = {0};
	unsigned char guard[sizeof(SearchResult)];

	memset(guard, POISON, sizeof(guard));
	must(ops->poll(engine, completed, room, &count, &error), &error, "poll");
	CHECK(count <= room, "poll returned %u of at most %u", count, room);
	for (uint32_t i = 0; i < count; i++)
	{
		EngineQuery *query = completed[i];

		CHECK(query->user == query, "a query came back twice, or its user field changed");
		query->user = NULL;
		CHECK((int) query->status != -1, "a completed query has no status");
		CHECK(query->count <= query->k || query->status != ENGINE_OK, "%u results for k %u",
			  query->count, query->k);
		CHECK(query->results == NULL ||
				  memcmp(&query->results[query->k], guard, sizeof(guard)) == 0,
			  "something was written beyond the results");
	}
	return count;
}

/* Submit queries and wait for all of them. */
void
queries_run(EngineQuery *queries, uint32_t count)
{
	double		start = clock_seconds();
	uint32_t	done = 0;

	queries_submit(queries, count);
	while (done < count)
	{
		EngineQuery *completed[POLL_ROOM];
		uint32_t	some = queries_poll(completed, POLL_ROOM);

		done += some;
		CHECK(some > 0 || clock_seconds() - start < PATIENCE, "%u of %u queries hang", count - done,
			  count);
		if (some == 0)
			usleep(50);
	}
}

void
query_run(EngineQuery *query)
{
	queries_run(query, 1);
	must(query->status, &query->error, "query");
}

static int
compare_slots(const void *left, const void *right)
{
	uint32_t	a = *(const uint32_t *) left;
	uint32_t	b = *(const uint32_t *) right;

	return a < b ? -1 : a > b;
}

/*
 * What holds of every answer: in order, no slot twice, live rows with their own
 * version and distance.
 */
void
check_sound(const World *world, const EngineQuery *query)
{
	uint32_t   *slots = malloc((query->count + 1) * sizeof(uint32_t));
	uint32_t	twice = 0;

	for (uint32_t i = 0; i < query->count; i++)
		slots[i] = query->results[i].slot;
	qsort(slots, query->count, sizeof(uint32_t), compare_slots);
	for (uint32_t i = 1; i < query->count; i++)
		twice += slots[i] == slots[i - 1];
	free(slots);
	CHECK(twice == 0, "a slot is in the answer twice");
	for (uint32_t i = 0; i < query->count; i++)
	{
		const SearchResult *result = &query->results[i];
		double		distance;

		CHECK(result->slot < world->rows, "slot %u is not one of %u rows", result->slot,
			  world->rows);
		CHECK(world->live[result->slot], "slot %u is dead", result->slot);
		CHECK(result->version == world->versions[result->slot], "slot %u has version %u, not %u",
			  result->slot, world->versions[result->slot], result->version);
		distance = model_distance(world, query->vector, world_vector(world, result->slot));
		CHECK(distance == result->distance, "slot %u is at %.17g, not %.17g", result->slot,
			  distance, result->distance);
		CHECK(i == 0 || engine_before(query->results[i - 1].distance, query->results[i - 1].slot,
									  result->distance, result->slot),
			  "results %u and %u are not in order", i - 1, i);
	}
}

/* Compare an answer with what it must be. */
void
check_equal(const char *what, const EngineQuery *query, const SearchResult *expected,
			uint32_t count)
{
	CHECK(query->status == ENGINE_OK, "%s: status %d: %s", what, (int) query->status,
		  query->error.text);
	CHECK(query->count == count, "%s: %u results, not %u", what, query->count, count);
	for (uint32_t i = 0; i < count; i++)
		CHECK(query->results[i].slot == expected[i].slot &&
				  query->results[i].distance == expected[i].distance &&
				  query->results[i].version == expected[i].version,
			  "%s: result %u is (%.17g, slot %u, version %u), not (%.17g, slot %u, version %u)",
			  what, i, query->results[i].distance, query->results[i].slot,
			  query->results[i].version, expected[i].distance, expected[i].slot,
			  expected[i].version);
}

/*
 * Share of the true k nearest that the answer has; rows as far as the k-th
 * count as it.
 */
double
recall_of(const World *world, const EngineQuery *query)
{
	SearchResult *truth = malloc(((size_t) query->k + 1) * sizeof(SearchResult));
	uint32_t	count = model_exact(world, query, world->rows, truth);
	uint32_t	hits = 0;

	for (uint32_t i = 0; i < query->count; i++)
		hits += count > 0 && query->results[i].distance <= truth[count - 1].distance;
	free(truth);
	return count == 0 ? 1.0 : (double) hits / count;
}

/* The mean recall of graph queries, which are run; every answer is checked. */
double
sound_recall(const World *world, EngineQuery *queries, uint32_t count)
{
	double		sum = 0;

	queries_run(queries, count);
	for (uint32_t i = 0; i < count; i++)
	{
		must(queries[i].status, &queries[i].error, "graph query");
		check_sound(world, &queries[i]);
		sum += recall_of(world, &queries[i]);
	}
	return sum / count;
}
