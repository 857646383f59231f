/*
 * walks_test.cu
 *		The production walks (graph_search_codes.cu, graph_search.cu), compared
 *		with a plain model on the host (walks_model.cuh) over the same codes,
 *		lists and graph rows.
 *
 * By design equal, and compared for every query, is the list after any number
 * of expansions, and thereby which rows are expanded in which round. A query
 * that stops after m expansions answers from the list of that moment; m differs
 * between queries, and each is also run without a limit. Compared are the
 * number of expansions, the number of rounds, and the answers with their exact
 * distances, for k below ef and for k = ef, where the answers are all live
 * entries of the list. Within a round there is no order: its parents are chosen
 * beforehand, and their neighbours are merged together. Not equal, only
 * bounded, is the number of distances: a visited set that is full forgets slots
 * that have left the list, and may measure them again, which changes nothing
 * else.
 *
 * Mirrors whose vectors have large elements and widely varying lengths have
 * rotated codes. These are compared with those of src/engine/quantizer.
 *
 * Linked with the engine's objects. For a device: make test/build/walks_device.
 * "walks_test plain 100" (or rotated) tests mirrors with such codes only, with
 * 100 queries of each kind.
 */
#include <cstring>
#include <vector>

#include "cuda/tests/walks_model.cuh"

extern "C" const EngineOps *gpuann_engine_ops(void);

#define DIMS 40u
#define ONE_BLOCK 64u
#define BIT_DIMS 192u
#ifdef EMULATED
#define ROWS 1200u
#define QUERIES 16u
#else
#define ROWS 20000u
#define QUERIES 2000u
#endif

static uint32_t nqueries = QUERIES; /* per kind */
static const EngineOps *ops;
static Engine *engine;

/* ---- mirrors and queries ---- */

/* Run a job without releasing it. */
static JobId
run_kept(EngineJob job, const char *what)
{
	JobProgress progress;
	EngineError error;
	JobId id;

	if (ops->job_submit(engine, &job, &id, &error) != ENGINE_OK)
	{
		printf("Bail out! %s: %s\n", what, error.text);
		exit(1);
	}
	do
		ops->job_poll(engine, id, &progress);
	while (!progress.completed);
	if (progress.status != ENGINE_OK)
	{
		printf("Bail out! %s: %s\n", what, progress.error.text);
		exit(1);
	}
	return id;
}

static void
run(EngineJob job, const char *what)
{
	ops->job_release(engine, run_kept(job, what));
}

static EngineJob
job_of(MirrorId mirror, JobKind kind)
{
	EngineJob job;

	memset(&job, 0, sizeof(job));
	job.mirror = mirror;
	job.kind = kind;
	job.ef_construction = 64;
	return job;
}

/*
 * Link a mirror's rows, which `append` uploads. On the emulator that takes too
 * long, so there the CPU engine builds the graph.
 */
static void
link_rows(const MirrorSpec &spec, EngineJob append)
{
#ifdef EMULATED
	const EngineOps *device_ops = ops;
	Engine *device = engine,
		   *cpu;
	EngineConfig config;
	EngineError error;
	LinkResult result;
	EngineJob graph = job_of(append.mirror, JOB_GRAPH),
			  seeds = job_of(append.mirror, JOB_SEEDS);

	memset(&config, 0, sizeof(config));
	config.device = -1;
	ops = cpu_engine_ops();
	if (ops->open(&config, &cpu, &error) != ENGINE_OK ||
		ops->mirror_create(cpu, &spec, &append.mirror, &error) != ENGINE_OK)
	{
		printf("Bail out! the CPU engine: %s\n", error.text);
		exit(1);
	}
	engine = cpu;
	run(append, "append to the CPU engine");
	ops->job_link_result(engine, run_kept(job_of(append.mirror, JOB_LINK), "link"), &result);
	ops = device_ops;
	engine = device;
	graph.count = result.count;
	graph.slots = result.slots;
	graph.rows = result.rows;
	run(graph, "graph");
	seeds.count = result.nseeds;
	seeds.slots = result.seeds;
	run(seeds, "seeds");
	cpu_engine_ops()->close(cpu);
#else
	(void) spec;
	run(job_of(append.mirror, JOB_LINK), "link");
#endif
}

/*
 * A random vector near one of some centres; for rotated codes with a few large
 * elements and a random length.
 */
static void
make_vector(const Copy &copy, const std::vector<float> &centres, unsigned char *to)
{
	uint32_t dims = copy.view.dims;
	const float *centre =
		&centres[random_below((uint32_t) (centres.size() / dims)) * (size_t) dims];

	/* 10^-3 to 10^3, within the range of half precision */
	float power = copy.type == ELEMENT_HALF ? (float) random_below(3000) / 1000 - 2
											: (float) random_below(6000) / 1000 - 3;
	float length = copy.rotated ? powf(10, power) : 1;

	memset(to, 0, copy.vector_bytes);
	for (uint32_t i = 0; i < dims; i++)
	{
		float value = (centre[i] + (float) random_below(1000) / 2000) * length;

		/* for cosine a few large elements would dominate the angle */
		if (copy.rotated && copy.metric != METRIC_COSINE && i % 16 == 5)
			value *= 50;
		if (copy.rotated && copy.metric == METRIC_COSINE && i == 5)
			value = length * (random_below(50) == 0 ? -20 : 20);

		if (copy.type == ELEMENT_BIT)
			to[i / 8] |= (unsigned char) ((value > 0.75f) << (7 - i % 8));
		else if (copy.type == ELEMENT_HALF)
			((uint16_t *) to)[i] = half_of_float(value);
		else
			((float *) to)[i] = value;
	}
}

/* Copy device memory to the host. */
template <typename T>
static std::vector<T>
bring(const void *from, size_t count)
{
	std::vector<T> to(count);

	must(cudaMemcpy(to.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost),
		 "copying a mirror");
	return to;
}

/*
 * Create a linked mirror with some dead rows, and copy what walks read of it.
 */
static MirrorId
make_mirror(Copy *copy, std::vector<float> *centres)
{
	/* rotations of two rounds, and of one */
	bool one_round = copy->rotated && copy->type == ELEMENT_HALF;
	MirrorSpec spec = {copy->type == ELEMENT_BIT ? BIT_DIMS : one_round ? ONE_BLOCK : DIMS,
					   copy->type,
					   copy->metric,
					   METHOD_GRAPH,
					   DEGREE,
					   ROWS,
					   RESIDENCY_FULL,
					   PLACEMENT_SINGLE,
					   -1,
					   {},
					   0,
					   {}};
	std::vector<uint32_t> versions(ROWS, 1),
		slots;
	MirrorId id;
	EngineError error;
	EngineJob job;
	const CudaMirror *mirror;

	copy->view.dims = spec.dims;
	copy->vector_bytes = engine_vector_bytes(spec.type, spec.dims);
	centres->resize((size_t) spec.dims * (ROWS / 50));
	for (float &value : *centres)
		value = (float) random_below(1000) / 1000;
	copy->vectors.resize(ROWS * copy->vector_bytes);
	for (uint32_t slot = 0; slot < ROWS; slot++)
		make_vector(*copy, *centres, &copy->vectors[slot * copy->vector_bytes]);
	if (ops->mirror_create(engine, &spec, &id, &error) != ENGINE_OK)
	{
		printf("Bail out! mirror_create: %s\n", error.text);
		exit(1);
	}
	memset(&job, 0, sizeof(job));
	job.mirror = id;
	job.kind = JOB_APPEND;
	job.count = ROWS;
	job.versions = versions.data();
	job.vectors = copy->vectors.data();
	run(job, "append");
	link_rows(spec, job);
	copy->dead.assign(ROWS, false);
	for (uint32_t slot = 3; slot < ROWS; slot += 20)
	{
		slots.push_back(slot);
		copy->dead[slot] = true;
	}
	memset(&job, 0, sizeof(job));
	job.mirror = id;
	job.kind = JOB_DEAD;
	job.count = (uint32_t) slots.size();
	job.slots = slots.data();
	versions.assign(ROWS, 2);
	job.versions = versions.data();
	run(job, "dead");
	for (mirror = ((CudaEngine *) engine)->device.mirrors; mirror->id != id;)
		mirror = mirror->next;
	copy->view = mirror_view(mirror);
	must(cudaDeviceSynchronize(), "waiting for jobs");
	if (copy->type == ELEMENT_BIT)
	{
		/* rows of bits are their own codes */
		copy->view.code_stride = copy->view.stride;
		copy->view.codes = (const signed char *) copy->view.vectors;
	}
	if (copy->view.codes == NULL)
		return id;
	copy->codes = bring<unsigned char>(copy->view.codes, (size_t) ROWS * copy->view.code_stride);
	copy->graph = bring<uint32_t>(copy->view.graph, (size_t) ROWS * DEGREE);
	copy->seeds = bring<uint32_t>(copy->view.seeds, copy->view.nseeds);
	if (copy->view.code_scales != NULL)
	{
		copy->scales = bring<float2>(copy->view.code_scales, ROWS);
		copy->rotation = bring<uint32_t>(copy->view.rotation, copy->view.dims);
		copy->pivot_scales = bring<float2>(copy->view.pivot_scales, copy->view.npivots);
	}
	if (copy->type != ELEMENT_BIT)
		copy->offsets = bring<float>(copy->view.code_offsets, copy->view.dims);
	if (copy->view.npivots > 0)
	{
		copy->lists = bring<uint32_t>(copy->view.pivots + copy->view.npivots,
									  (size_t) copy->view.npivots * DEGREE);
		copy->pivot_codes = bring<unsigned char>(
			copy->view.pivot_codes, (size_t) copy->view.npivots * copy->view.code_stride);
	}
	return id;
}

/* Run queries together as one batch. */
static void
run_queries(std::vector<EngineQuery> *queries)
{
	std::vector<EngineQuery *> pointers;
	EngineQuery *completed[64];
	EngineError error;

	for (EngineQuery &query : *queries)
		pointers.push_back(&query);
	if (ops->submit(engine, pointers.data(), (uint32_t) pointers.size(), &error) != ENGINE_OK)
	{
		printf("Bail out! submit: %s\n", error.text);
		exit(1);
	}
	for (uint32_t done = 0, some = 0; done < pointers.size(); done += some)
		if (ops->poll(engine, completed, 64, &some, &error) != ENGINE_OK)
		{
			printf("Bail out! poll: %s\n", error.text);
			exit(1);
		}
}

/* Whether a query is answered like the model; if not, why. */
static bool
is_equal(const Copy &copy, const EngineQuery &query, char *why, size_t room)
{
	Model model(copy, query);
	const Walked &walked = model.walked;
	uint32_t same = 0;

	model.start();
	model.expand();
	model.rank();
	while (same < query.count && same < walked.answers.size() &&
		   query.results[same].slot == walked.answers[same].slot &&
		   query.results[same].distance == walked.answers[same].distance)
		same++;
	if (query.status == ENGINE_OK && query.counters.expanded == walked.expanded &&
		query.counters.iterations == walked.rounds && query.counters.distances >= walked.measured &&
		query.count == walked.answers.size() && same == query.count)
		return true;
	snprintf(
		why, room,
		"status %d, %u expansions in %u rounds, %u distances, %u answers; the model %u in %u, %u, %zu, of which %u are the same",
		(int) query.status, query.counters.expanded, query.counters.iterations,
		query.counters.distances, query.count, walked.expanded, walked.rounds, walked.measured,
		walked.answers.size(), same);
	return false;
}

/* Run queries of one kind, and compare them with the model. */
static void
compare(const Copy &copy, MirrorId id, const std::vector<float> &centres, const char *what,
		uint32_t k, uint32_t ef, bool limited, const uint64_t *filter)
{
	static const char *const metrics[] = {"", "l2", "ip", "cosine", "l1", "hamming", "jaccard"};
	std::vector<EngineQuery> queries(nqueries);
	std::vector<unsigned char> vectors(nqueries * copy.vector_bytes);
	std::vector<SearchResult> results((size_t) nqueries * k);
	char why[256] = "",
		 text[512];
	uint32_t equal = 0;

	for (uint32_t i = 0; i < nqueries; i++)
	{
		EngineQuery *query = &queries[i];

		memset(query, 0, sizeof(*query));
		make_vector(copy, centres, &vectors[i * copy.vector_bytes]);
		query->mirror = id;
		query->method = METHOD_GRAPH;
		query->k = k;
		query->ef = ef;
		query->max_iterations = limited ? 1 + random_below(ef) : 0;
		query->vector = &vectors[i * copy.vector_bytes];
		query->results = &results[(size_t) i * k];
		query->filter = filter;
		query->filter_slots = filter != NULL ? ROWS : 0;
	}
	run_queries(&queries);
	for (const EngineQuery &query : queries)
		equal += is_equal(copy, query, why, sizeof(why));
	snprintf(text, sizeof(text), "%s of %s%s, %s: %u of %u walks are the model's%s%s",
			 metrics[copy.metric],
			 copy.type == ELEMENT_BIT	 ? "bits"
			 : copy.type == ELEMENT_HALF ? "halves"
										 : "floats",
			 copy.rotated ? ", rotated" : "", what, equal, nqueries, why[0] != 0 ? ": " : "", why);
	say(equal == nqueries, text);
}

/* Every kind of query on a mirror of one type and metric. */
static void
compare_all(ElementType type, Metric metric, bool rotated)
{
	Copy copy = {};
	std::vector<float> centres;
	std::vector<uint64_t> filter(ROWS / 64 + 1);
	MirrorId id;
	EngineJob drop;

	copy.type = type;
	copy.metric = metric;
	copy.rotated = rotated;
	id = make_mirror(&copy, &centres);
	for (uint32_t slot = 0; slot < ROWS; slot++)
		filter[slot / 64] |= (uint64_t) (slot % 4 != 1) << (slot % 64);
	say(copy.view.codes != NULL && (copy.view.code_scales != NULL) == rotated,
		rotated ? "there are rotated codes to walk" : "there are codes to walk");
	if (copy.view.codes != NULL && rotated)
	{
		uint32_t equal = 0;

		for (uint32_t slot = 0; slot < ROWS && copy.view.code_scales != NULL; slot++)
			equal += has_rotated_codes(copy, slot);
		say(equal == ROWS, "they are those of the reference");
	}
	if (copy.view.codes != NULL && (copy.view.code_scales != NULL) == rotated)
	{
		compare(copy, id, centres, "to the end", 10, 40, false, NULL);
		compare(copy, id, centres, "the whole list", 64, 64, false, NULL);
		compare(copy, id, centres, "the list on the way", 64, 64, true, NULL);
		compare(copy, id, centres, "a long list", 20, ROWS < 4000 ? 600 : 3000, false, NULL);
		compare(copy, id, centres, "a filter", 10, 64, false, filter.data());
	}
	memset(&drop, 0, sizeof(drop));
	drop.kind = JOB_DROP;
	drop.mirror = id;
	run(drop, "drop");
}

int
main(int argc, char **argv)
{
	bool plain = argc < 2 || strcmp(argv[1], "plain") == 0;
	bool rotated = argc < 2 || strcmp(argv[1], "rotated") == 0;
	static const struct
	{
		ElementType type;
		Metric metric;
	} pairs[] = {{ELEMENT_FLOAT, METRIC_L2},	 {ELEMENT_FLOAT, METRIC_IP},
				 {ELEMENT_FLOAT, METRIC_COSINE}, {ELEMENT_FLOAT, METRIC_L1},
				 {ELEMENT_HALF, METRIC_L2},		 {ELEMENT_HALF, METRIC_IP},
				 {ELEMENT_HALF, METRIC_COSINE},	 {ELEMENT_HALF, METRIC_L1},
				 {ELEMENT_BIT, METRIC_HAMMING},	 {ELEMENT_BIT, METRIC_JACCARD}};
	EngineConfig config;
	EngineError error;

	if (argc > 2)
		nqueries = (uint32_t) atoi(argv[2]);
	memset(&config, 0, sizeof(config));
	config.device = -1;
	ops = gpuann_engine_ops();
	if (ops->open(&config, &engine, &error) != ENGINE_OK)
	{
		printf("1..0 # skip %s\n", error.text);
		return 0;
	}
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
	{
		if (plain)
			compare_all(pairs[i].type, pairs[i].metric, false);
		if (rotated && pairs[i].type != ELEMENT_BIT && pairs[i].metric != METRIC_L1)
			compare_all(pairs[i].type, pairs[i].metric, true);
	}
	ops->close(engine);
	printf("1..%u\n", tests);
	return failures > 0;
}
