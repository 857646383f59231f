/*
 * lists_search_test.cu
 *		Searches of lists (cuda/lists), compared with a plain model on the host
 *		(lists_model.cuh).
 *
 * Codes are made by src/engine/quantizer. Compared are the estimate and both
 * bounds of every code, to the bit; and, for queries of all kinds mixed in a
 * batch, the answers with their distances, the lists probed and the pending
 * rows. Batches are searched whole, and in parts that fit into the state. Then
 * random searches of all kinds: LISTS_SEARCH_TEST=n in the environment runs n
 * of them, LISTS_SEARCH_SEED=s starts with the seed of a failure.
 *
 * Linked with the engine's objects. For a device: make
 * test/build/lists_search_device.
 */
#include "cuda/tests/lists_model.cuh"

static cudaStream_t stream;
static uint32_t searches; /* made so far; two of three choose lists by tensor cores, if they can */

/* ---- queries ---- */

/* The i-th kind of query. */
static Asked
make_query(const Data &data, uint32_t i, uint32_t most_k)
{
	static const uint32_t ks[] = {10, 1, 100, 10, 3, 1000},
						  reranks[] = {0, 0, 40, ENGINE_RERANK_ALL, 0, 150, 5000};
	Asked asked = {};
	const unsigned char *near = &data.vectors[random_below(data.rows) * data.stride];

	asked.vector.assign(near, near + data.stride);
	for (uint32_t e = 0; e < data.dims && i % 4 != 3; e++)
		set_element(data, asked.vector.data(), e,
					element(data, near, e) + 0.3f * random_float());
	if (i == 11)
		std::fill(asked.vector.begin(), asked.vector.end(), 0);
	asked.wide = widen(data, asked.vector.data());
	asked.device.k = std::min(ks[i % 6], most_k);
	asked.device.rerank = reranks[i % 7];
	asked.device.probes = i % 5 == 4 ? data.lists : 1 + random_below(std::min(8u, data.lists));
	if (i % 8 == 5)
	{
		asked.device.has_admitted = 1;
		asked.device.admitted_slots = data.rows;
		asked.filter.resize(data.rows / 32 + 1);
		for (uint32_t &word : asked.filter)
			word = random_bits() & random_bits();
	}
	if (i % 8 == 6 || i % 8 == 3)
	{
		uint32_t slot = random_below(data.rows);

		asked.device.has_beyond = 1;
		asked.beyond = exact_distance(data, asked, slot);
		asked.device.beyond_slot = slot;
		asked.device.beyond_key = key_of(asked.beyond);
	}
	return asked;
}

/* A batch on the device. */
struct TestBatch
{
	std::vector<DeviceQuery> queries;
	std::vector<DeviceHead> heads;
	std::vector<SearchResult> results;
	ListsLaunch launch;
	std::vector<void *> memory;
};

/*
 * Lists of an exact scan of the pending rows, as batches pass them: two lists
 * per query.
 */
static PendingLists
make_pending(const Data &data, const std::vector<Asked> &asked, uint32_t length)
{
	std::vector<Key> keys(asked.size() * 2 * length, NO_KEY);
	std::vector<uint32_t> slots(keys.size(), NO_SLOT);
	std::vector<DeviceHead> heads(asked.size());
	PendingLists pending = {};

	for (size_t i = 0; i < asked.size(); i++)
		for (uint32_t half = 0; half < 2; half++)
		{
			std::vector<Answer> answers;

			for (size_t j = half; j < data.pending.size(); j += 2)
				if (admitted(data, asked[i], data.pending[j]))
				{
					Answer answer = {exact_distance(data, asked[i], data.pending[j]),
									 data.pending[j]};

					heads[i].pending++;
					if (beyond(asked[i], answer.distance, answer.slot))
						answers.push_back(answer);
				}
			std::sort(answers.begin(), answers.end());
			for (size_t j = 0; j < answers.size() && j < length; j++)
			{
				keys[(i * 2 + half) * length + j] = key_of(answers[j].distance);
				slots[(i * 2 + half) * length + j] = answers[j].slot;
			}
		}
	pending.keys = to_device(keys);
	pending.slots = to_device(slots);
	pending.heads = to_device(heads);
	pending.lists = 2;
	pending.length = length;
	return pending;
}

/*
 * Search queries with state for `parts` queries at a time; handed: with lists
 * of pending rows from an exact scan.
 */
static TestBatch
search(const Data &data, const std::vector<Asked> &asked, uint32_t parts, bool handed)
{
	TestBatch batch = {};
	ListsLaunch *launch = &batch.launch;
	std::vector<unsigned char> vectors;
	std::vector<uint32_t> bitmaps(1);
	uint32_t nresults = 0;
	size_t least;
	void *state;

	launch->mirror = data.mirror;
	launch->lists = data.view;
	launch->halves = data.halves;
	launch->queries = (uint32_t) asked.size();
	launch->processors = 5;
	launch->stages = 2;
	launch->products_queries = searches++ % 3 < 2 ? 1 : UINT32_MAX;
	launch->stream = stream;
	for (const Asked &query : asked)
	{
		DeviceQuery device = query.device;

		device.vector = vectors.size();
		device.admitted = bitmaps.size();
		device.results = nresults;
		nresults += device.k;
		vectors.insert(vectors.end(), query.vector.begin(), query.vector.end());
		bitmaps.insert(bitmaps.end(), query.filter.begin(), query.filter.end());
		batch.queries.push_back(device);
		launch->max_k = std::max(launch->max_k, device.k);
		launch->max_probes = std::max(launch->max_probes, std::min(device.probes, data.lists));
		if (device.rerank <= LISTS_MAX_RERANK)
			launch->max_rerank = std::max(launch->max_rerank, device.rerank);
	}
	if (handed)
		launch->pending = make_pending(data, asked, launch->max_k);
	batch.heads.resize(asked.size());
	batch.results.resize(nresults);
	least = lists_search_min_bytes(&data.view, launch->max_probes, launch->max_k,
									 launch->max_rerank);
	launch->state_bytes = parts == 1 ? least : least * (asked.size() / parts + 1);
	must(cudaMalloc(&state, launch->state_bytes), "state");
	must(cudaMemsetAsync(state, 0xFF, launch->state_bytes, launch->stream), "state");
	launch->batch.queries = to_device(batch.queries);
	launch->batch.vectors = to_device(vectors);
	launch->batch.bitmaps = to_device(bitmaps);
	launch->batch.heads = to_device(batch.heads);
	launch->batch.results = to_device(batch.results);
	launch->batch.state = (unsigned char *) state;
	must(lists_search_launch(launch), "lists_search_launch");
	must(cudaDeviceSynchronize(), "the search");
	must(cudaMemcpy(batch.heads.data(), launch->batch.heads,
					batch.heads.size() * sizeof(DeviceHead), cudaMemcpyDeviceToHost),
		 "heads");
	must(cudaMemcpy(batch.results.data(), launch->batch.results,
					batch.results.size() * sizeof(SearchResult), cudaMemcpyDeviceToHost),
		 "results");
	for (const void *memory :
		 {(const void *) state, (const void *) launch->batch.queries,
		  (const void *) launch->batch.vectors, (const void *) launch->batch.bitmaps,
		  (const void *) launch->batch.heads, (const void *) launch->batch.results})
		must(cudaFree((void *) memory), "free");
	if (handed)
		for (const void *memory : {(const void *) launch->pending.keys,
								   (const void *) launch->pending.slots,
								   (const void *) launch->pending.heads})
			must(cudaFree((void *) memory), "free");
	return batch;
}

/* Whether query i is answered like the model; if not, why. */
static bool
is_answered(const Data &data, const Asked &asked, const TestBatch &batch, uint32_t i, char *why,
			size_t room)
{
	uint32_t npending,
		same = 0;
	std::vector<Answer> answers = answer_of(data, asked, &npending);
	const DeviceHead &head = batch.heads[i];
	const SearchResult *results = &batch.results[batch.queries[i].results];
	uint32_t probes = std::min(asked.device.probes, data.lists);

	while (same < head.count && same < answers.size() &&
		   results[same].slot == answers[same].slot &&
		   results[same].distance == answers[same].distance &&
		   results[same].version == data.versions[answers[same].slot])
		same++;
	if (head.count == answers.size() && same == head.count && head.expanded == probes &&
		head.pending == npending)
		return true;
	snprintf(why, room,
			 "query %u, k %u, probes %u, rerank %u, beyond %u, filter %u: %u answers, %u lists, %u pending; the model %zu, %u, %u, of which %u are the same",
			 i, asked.device.k, asked.device.probes, asked.device.rerank, asked.device.has_beyond,
			 asked.device.has_admitted, head.count, head.expanded, head.pending, answers.size(),
			 probes, npending, same);
	return false;
}

static void
compare_answers(const Data &data, const char *what, uint32_t queries, uint32_t parts,
				uint32_t most_k, bool handed = false, uint32_t most_probes = UINT32_MAX)
{
	std::vector<Asked> asked;
	TestBatch batch;
	char why[300] = "",
		 text[600];
	uint32_t equal = 0,
			 first = queries > 1 ? 0 : random_below(56);

	for (uint32_t i = 0; i < queries; i++)
	{
		asked.push_back(make_query(data, first + i, most_k));
		asked[i].device.probes = std::min(asked[i].device.probes, most_probes);
	}
	batch = search(data, asked, parts, handed);
	for (uint32_t i = 0; i < queries; i++)
		equal += is_answered(data, asked[i], batch, i, why, sizeof(why));
	snprintf(text, sizeof(text), "%s, %u queries: %u are answered as the model does%s%s", what,
			 queries, equal, why[0] != 0 ? ": " : "", why);
	say(equal == queries, text);
}

/* ---- estimates ---- */

/* Write the estimates and bounds of all codes for a query: a warp per block. */
template <int KIND>
__global__ void
estimate_kernel(const ListsView lists, const ListsPart part, const float *bases, float *out)
{
	uint32_t lane = threadIdx.x % WARP;

	for (uint32_t list = 0; list < lists.lists; list++)
		for (uint32_t i = lists.first[list]; i < lists.first[list + 1]; i++)
		{
			const uint32_t *words = list_codes(lists, lists.blocks[i]) + lane;
			uint32_t slot = list_slot(lists, lists.blocks[i], lane);
			CodeTerms terms = code_terms<KIND>(lists, words);
			float lower,
				estimate;
			int sum;

			code_sums<KIND, 1>(lists, words, part.tables, &sum);
			estimate = code_estimate<KIND>(lists.shape, part.query[0], bases[list], sum, terms,
										   &lower);
			if (slot == NO_SLOT)
				continue;
			out[slot * 3] = estimate;
			out[slot * 3 + 1] = lower;
			out[slot * 3 + 2] =
				code_upper<KIND>(lists.shape, part.query[0], bases[list], terms, estimate);
		}
}

static void
compare_estimates(const Data &data, const char *what)
{
	std::vector<Asked> asked(1, make_query(data, 0, 10));
	std::vector<float> bases,
		out(data.rows * 3);
	std::vector<char> tables(quantizer_table_bytes(&data.shape) + 64);
	ListsLaunch launch = {};
	ListsPart part = {};
	uint32_t different = 0;
	char text[300];

	launch.mirror = data.mirror;
	launch.lists = data.view;
	launch.stream = stream;
	launch.batch.queries = to_device(std::vector<DeviceQuery>(1, asked[0].device));
	launch.batch.vectors = to_device(asked[0].vector);
	part.queries = 1;
	part.table_words = (lists_table_words(&data.shape) + 3) / 4 * 4;
	part.vector_stride = (data.dims + 7) / 8 * 8;
	part.query = to_device(std::vector<ListsQuery>(1));
	part.asked = to_device(std::vector<DeviceQuery>(1));
	part.tables = to_device(std::vector<uint32_t>(part.table_words));
	part.again = to_device(std::vector<ListsAgain>(1));
	part.raw = to_device(std::vector<float>(part.vector_stride));
	part.vectors = to_device(std::vector<float>(part.vector_stride));
	for (uint32_t list = 0; list < data.lists; list++)
		bases.push_back(base_of_list(data, asked[0], list));
	ListsStep step = {&launch, part, {}};
	float *device_bases = to_device(bases),
		  *device_out = to_device(out);

	must(lists_prepare_launch(&step), "prepare");
	switch (code_kind(data.shape))
	{
		case CODE_INT8:
			LAUNCH(estimate_kernel<CODE_INT8>, 1, WARP, 0, stream, data.view, part, device_bases,
				   device_out);
			break;
		case CODE_RABITQ:
			LAUNCH(estimate_kernel<CODE_RABITQ>, 1, WARP, 0, stream, data.view, part, device_bases,
				   device_out);
			break;
		case CODE_PQ8:
			LAUNCH(estimate_kernel<CODE_PQ8>, 1, WARP, 0, stream, data.view, part, device_bases,
				   device_out);
			break;
		default:
			LAUNCH(estimate_kernel<CODE_PQ4>, 1, WARP, 0, stream, data.view, part, device_bases,
				   device_out);
	}
	must(cudaDeviceSynchronize(), "estimates");
	must(cudaMemcpy(out.data(), device_out, out.size() * sizeof(float), cudaMemcpyDeviceToHost),
		 "estimates");
	quantizer_prepare(data.quantizer, asked[0].wide.data(), tables.data());
	for (uint32_t slot = 0; slot < data.rows; slot++)
		if (data.list_of[slot] != NO_SLOT)
		{
			Row row = estimate_row(data, asked[0], tables.data(), bases[data.list_of[slot]], slot);

			different += memcmp(&row.estimate, &out[slot * 3], 12) != 0;
		}
	snprintf(text, sizeof(text), "%s: estimates and bounds are the host's to the bit (%u are not)",
			 what, different);
	say(different == 0, text);
	for (const void *memory :
		 {(const void *) launch.batch.queries, (const void *) launch.batch.vectors,
		  (const void *) part.query, (const void *) part.asked, (const void *) part.tables,
		  (const void *) part.vectors, (const void *) device_bases, (const void *) device_out})
		must(cudaFree((void *) memory), "free");
}

/* ---- all of it ---- */

struct Kind
{
	const char *name;
	QuantizerKind kind;
	uint32_t dims,
		bits,
		parts;
};

static const Kind kinds[] = {
	{"int8", QUANTIZER_INT8, 37, 8, 0},		   {"int8 of a power of two", QUANTIZER_INT8, 64, 8, 0},
	{"rabitq of 1 bit", QUANTIZER_RABITQ, 45, 1, 0}, {"rabitq of 3 bits", QUANTIZER_RABITQ, 33, 3, 0},
	{"rabitq of 4 bits", QUANTIZER_RABITQ, 64, 4, 0}, {"rabitq of 8 bits", QUANTIZER_RABITQ, 19, 8, 0},
	{"pq of 8 bits", QUANTIZER_PQ, 31, 8, 7},  {"pq of 4 bits", QUANTIZER_PQ, 43, 4, 21}};

static QuantizerShape
shape_of(const Kind &kind, Metric metric)
{
	QuantizerShape shape = {kind.kind, metric, kind.dims, kind.bits, kind.parts, 77};

	return shape;
}

static void
compare_kind(const Kind &kind, Metric metric, ElementType type)
{
	static const char *const metrics[] = {"", "l2", "ip", "cosine"};
	Data data = make_data(shape_of(kind, metric), type, 900, 23, ROWS_CLUSTERED);
	char what[200];

	snprintf(what, sizeof(what), "%s, %s of %s", kind.name, metrics[metric],
			 type == ELEMENT_HALF ? "halves" : "floats");
	compare_estimates(data, what);
	compare_answers(data, what, 56, 4, 1000);
	for (uint32_t i = 0; i < 4; i++)
		compare_answers(data, what, 1, 1, 1000);
	compare_answers(data, what, 9, 1, 10); /* by themselves: one query fits */
	strcat(what, ", pending rows handed over");
	compare_answers(data, what, 15, 2, 30, true);
	drop_data(&data);
}

/* Data that overflows buffers, or needs more than two phases. */
static void
compare_hard(const Kind &kind, Metric metric)
{
	char what[200];
	Data data = make_data(shape_of(kind, metric), ELEMENT_FLOAT, 5000, 7, ROWS_EQUAL);

	snprintf(what, sizeof(what), "%s, all rows are the same", kind.name);
	compare_answers(data, what, 7, 7, 10);
	compare_answers(data, what, 12, 12, 1024);
	drop_data(&data);
	data = make_data(shape_of(kind, metric), ELEMENT_FLOAT, 9000, 5, ROWS_ONE_LIST);
	snprintf(what, sizeof(what), "%s, one list with most rows, the farthest first", kind.name);
	compare_answers(data, what, 8, 8, 100);
	for (uint32_t i = 0; i < 4; i++)
		compare_answers(data, what, 1, 1, 100);
	drop_data(&data);
	/* more queries than get large buffers: some are scanned again */
	snprintf(what, sizeof(what), "%s, long lists and many queries", kind.name);
	data = make_data(shape_of(kind, metric), ELEMENT_FLOAT, 12000, 3, ROWS_CLUSTERED);
	compare_answers(data, what, 80, 80, 10);
	compare_answers(data, what, 70, 3, 100);
	drop_data(&data);
	data = make_data(shape_of(kind, metric), ELEMENT_FLOAT, 300, 400, ROWS_FEW);
	snprintf(what, sizeof(what), "%s, more lists than rows", kind.name);
	compare_answers(data, what, 30, 2, 100);
	drop_data(&data);
}

/*
 * So many lists near the border that a block sorts them by a network, and more
 * than it has room for.
 */
static void
compare_border(Metric metric)
{
	for (Rows look : {ROWS_EQUAL, ROWS_FEW})
		for (uint32_t lists : {700, 1300})
		{
			Data data = make_data(shape_of(kinds[0], metric), ELEMENT_FLOAT, 300, lists, look);
			char what[200];

			snprintf(what, sizeof(what), "%u lists, %s centroids", lists,
					 look == ROWS_EQUAL ? "equal" : "some equal");
			for (uint32_t i = 0; i < 2; i++)
				compare_answers(data, what, 12, 12, 100, false, 120);
			drop_data(&data);
		}
}

/* ---- at random ---- */

template <typename T, size_t N>
static T
one_of(const T (&values)[N])
{
	return values[random_below((uint32_t) N)];
}

/* A random kind of codes and number of dimensions. */
static QuantizerShape
random_shape()
{
	static const uint32_t many[] = {1, 3, 17, 64, 128, 384, 768, 1536, 2000},
						  widths[] = {1, 2, 4, 8};
	QuantizerShape shape = {one_of({QUANTIZER_INT8, QUANTIZER_RABITQ, QUANTIZER_PQ}),
							one_of({METRIC_L2, METRIC_IP, METRIC_COSINE}), 0, 8, 0, 77};

	shape.dims = many[random_below(random_below(4) == 0 ? 9 : 5)];
	if (shape.kind == QUANTIZER_RABITQ)
		shape.bits = one_of(widths);
	if (shape.kind == QUANTIZER_PQ)
	{
		shape.bits = random_below(2) ? 8 : 4;
		shape.parts = 1 + random_below(std::min(shape.dims, 230u));
	}
	return shape;
}

/* Random queries of a batch, some of them equal in kind. */
static std::vector<Asked>
random_queries(const Data &data, uint32_t queries)
{
	static const uint32_t ks[] = {1, 2, 10, 33, 600, LISTS_MAX_K},
						  reranks[] = {0, 1, 70, LISTS_MAX_RERANK, LISTS_MAX_RERANK + 1,
									   ENGINE_RERANK_ALL};
	uint32_t k = one_of(ks),
			 rerank = one_of(reranks),
			 probes = one_of({1u, 2u, data.lists, data.lists + 5});
	std::vector<Asked> asked;

	for (uint32_t i = 0; i < queries; i++)
	{
		Asked query = make_query(data, random_below(56), LISTS_MAX_K);

		query.device.k = random_below(4) == 0 ? one_of(ks) : k;
		query.device.rerank = random_below(4) == 0 ? one_of(reranks) : rerank;
		if (random_below(4) != 0)
			query.device.probes = probes;
		asked.push_back(query);
	}
	return asked;
}

/* Compare random rows, lists and queries made from a seed. */
static void
compare_random(uint64_t seed)
{
	static const char *const kinds_of[] = {"none", "int8", "rabitq", "pq"};
	char why[300] = "",
		 text[700];
	uint32_t equal = 0;

	random_state = seed << 20;
	QuantizerShape shape = random_shape();
	ElementType type = random_below(2) ? ELEMENT_FLOAT : ELEMENT_HALF;
	Rows look = (Rows) random_below(ROWS_LONG + 1);
	uint32_t rows = 1 + random_below(shape.dims > 128 ? 150 : shape.dims > 17 ? 700 : 4000),
			 lists = 1 + random_below(random_below(3) == 0 ? 300 : 9),
			 queries = random_below(shape.dims > 17 ? 100 : 30) == 0
						   ? 1000
						   : one_of({1u, 2u, 15u, 16u, 17u, 64u, 65u});
	Data data = make_data(shape, type, rows, lists, look);
	std::vector<Asked> asked = random_queries(data, queries);
	TestBatch batch = search(data, asked, 1 + random_below(queries), random_below(4) == 0);

	for (uint32_t i = 0; i < queries; i++)
		equal += is_answered(data, asked[i], batch, i, why, sizeof(why));
	snprintf(text, sizeof(text),
			 "seed %llu: %s of %u bits, %u dimensions, %u parts, metric %d, %s, look %d, %u rows, %u lists: %u of %u answered as the model does%s%s",
			 (unsigned long long) seed, kinds_of[shape.kind], shape.bits, shape.dims, shape.parts,
			 (int) shape.metric, type == ELEMENT_HALF ? "halves" : "floats", (int) look, rows,
			 lists, equal, queries, why[0] != 0 ? ": " : "", why);
	say(equal == queries, text);
	drop_data(&data);
}

static uint32_t
number_asked(const char *name, uint32_t otherwise)
{
	const char *text = getenv(name);

	return text != NULL ? (uint32_t) strtoul(text, NULL, 10) : otherwise;
}

static void
compare_at_random()
{
	uint32_t first = number_asked("LISTS_SEARCH_SEED", 1),
			 count = number_asked("LISTS_SEARCH_TEST", 30);

	for (uint32_t i = 0; i < count; i++)
		compare_random(first + i);
}

/* All kinds of codes, each with data that is hard for it. */
static void
compare_all()
{
	for (const Kind &kind : kinds)
		for (Metric metric : {METRIC_L2, METRIC_IP, METRIC_COSINE})
			for (ElementType type : {ELEMENT_FLOAT, ELEMENT_HALF})
				if (type == ELEMENT_FLOAT || kind.dims % 2 == 1)
					compare_kind(kind, metric, type);
	/* tables that do not fit into shared memory */
	compare_kind({"pq of many sub-spaces", QUANTIZER_PQ, 203, 8, 200}, METRIC_L2, ELEMENT_FLOAT);
	compare_hard(kinds[0], METRIC_L2);
	compare_hard(kinds[2], METRIC_L2);
	compare_hard(kinds[4], METRIC_IP);
	compare_hard(kinds[7], METRIC_COSINE);
	for (Metric metric : {METRIC_L2, METRIC_IP, METRIC_COSINE})
		compare_border(metric);
}

int
main()
{
	cudaDeviceProp device;

	/* in the emulator this order of threads reveals more missing barriers */
	setenv("GPUANN_EMULATE_ORDER", "reverse", 0);
	if (cudaGetDeviceProperties(&device, 0) != cudaSuccess)
	{
		printf("1..0 # skip there is no device\n");
		return 0;
	}
	must(lists_search_prepare(&device), "lists_search_prepare");
	must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	compare_at_random();
	if (getenv("LISTS_SEARCH_SEED") == NULL)
		compare_all();
	must(cudaStreamDestroy(stream), "the stream");
	printf("1..%u\n", tests);
	return failures > 0;
}
