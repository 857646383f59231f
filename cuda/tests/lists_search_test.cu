/*
 * lists_search_test.cu
 *		Searches of lists (cuda/lists) beside a plain model on the host, which
 *		follows the definitions of src/engine/cpu/lists_scan.c.
 *
 * The test lays lists out itself, in blocks in random order with holes, with
 * codes that src/engine/quantizer makes. Compared are estimates and both bounds
 * of every code, to the bit; and of queries of all kinds, mixed in a batch, the
 * answers with their distances, the lists read and the pending rows. Batches
 * are searched whole, and in parts that the state has room for.
 *
 * Linked with the engine's objects. For a device: make
 * test/build/lists_search_device.
 */
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cuda/tests/testing.cuh"
#include "cuda/lists/lists_estimate.cuh"

extern "C"
{
#include "engine/distance.h"
#include "engine/quantizer/blocks.h"
#include "engine/quantizer/quantizer.h"
}

#define PENDING_EVERY 41u
#define UNIT_ROUNDING 0x1p-20

static cudaStream_t stream;

/* Device memory with a copy of something. */
template <typename T>
static T *
to_device(const std::vector<T> &from)
{
	void *to = NULL;

	must(cudaMalloc(&to, from.size() * sizeof(T) + 16), "memory");
	must(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "a copy");
	return (T *) to;
}

/* What the rows of a mirror look like. */
enum Rows
{
	ROWS_CLUSTERED,
	ROWS_EQUAL,	   /* all are the same */
	ROWS_ONE_LIST, /* most are in one list, the farthest first */
	ROWS_FEW	   /* some lists are empty */
};

/* A mirror with lists, and the same on the device. */
struct Data
{
	ElementType type;
	Metric metric;
	uint32_t dims,
		rows,
		lists;
	size_t stride;
	QuantizerShape shape;
	Quantizer *quantizer;
	size_t code_bytes;
	std::vector<float> codebook;
	std::vector<unsigned char> vectors; /* rows x stride */
	std::vector<double> norms;
	std::vector<uint32_t> versions;
	std::vector<uint32_t> dead;
	std::vector<uint32_t> pending;
	std::vector<float> centroids;
	std::vector<float> half_norms;
	std::vector<uint32_t> list_of;		   /* NO_SLOT: pending */
	std::vector<std::vector<uint32_t>> at; /* of each list, places: slots or NO_SLOT */
	std::vector<unsigned char> codes;	   /* rows x code_bytes */
	MirrorView mirror;
	ListsView view;
	std::vector<void *> memory;
};

/* A query, and what the host knows of it. */
struct Asked
{
	DeviceQuery device;
	std::vector<unsigned char> vector;
	std::vector<float> wide; /* under cosine of length one */
	std::vector<uint32_t> filter;
	double beyond;
};

struct Answer
{
	double distance;
	uint32_t slot;

	bool
	operator<(const Answer &other) const
	{
		return distance != other.distance ? distance < other.distance : slot < other.slot;
	}
};

static uint16_t
half_of_float(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (bits >> 23 & 0xFF) <= 112
			   ? 0
			   : (uint16_t) ((bits >> 16 & 0x8000) | ((bits & 0x7FFFFFFF) - (112u << 23)) >> 13);
}

static float
float_of_half(uint16_t half)
{
	uint32_t bits = (half & 0x7C00) == 0 ? 0
										 : (uint32_t) (half & 0x8000) << 16 |
											   ((((uint32_t) half & 0x7FFF) << 13) + (112u << 23));
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static float
element(const Data &data, const unsigned char *vector, uint32_t i)
{
	return data.type == ELEMENT_HALF ? float_of_half(((const uint16_t *) vector)[i])
									 : ((const float *) vector)[i];
}

static void
set_element(const Data &data, unsigned char *vector, uint32_t i, float value)
{
	if (data.type == ELEMENT_HALF)
		((uint16_t *) vector)[i] = half_of_float(value);
	else
		((float *) vector)[i] = value;
}

static const DistanceKernels *
kernels_of(const Data &data)
{
	return distance_kernels(data.type, data.metric, SIMD_PORTABLE);
}

/* Widen a vector, under cosine to length one. */
static std::vector<float>
widen(const Data &data, const unsigned char *vector)
{
	std::vector<float> wide(data.dims);

	for (uint32_t i = 0; i < data.dims; i++)
		wide[i] = element(data, vector, i);
	if (data.metric == METRIC_COSINE)
		quantizer_make_unit(wide.data(), data.dims);
	return wide;
}

static float
random_float()
{
	return (float) random_below(20001) / 10000 - 1;
}

/* ---- a mirror ---- */

/* A vector near a centre. */
static void
make_vector(const Data &data, uint32_t centre, float spread, unsigned char *to)
{
	uint64_t kept = random_state;
	std::vector<float> middle(data.dims);

	random_state = 1000 + centre;
	for (float &value : middle)
		value = random_float();
	random_state = kept;
	for (uint32_t i = 0; i < data.dims; i++)
		set_element(data, to, i, middle[i] + spread * random_float());
}

static void
make_rows(Data *data, Rows rows)
{
	data->vectors.assign(data->rows * data->stride, 0);
	for (uint32_t slot = 0; slot < data->rows; slot++)
	{
		unsigned char *to = &data->vectors[slot * data->stride];

		if (rows == ROWS_EQUAL && slot > 0)
			memcpy(to, data->vectors.data(), data->stride);
		else if (rows == ROWS_ONE_LIST)
			make_vector(*data, 0, 2 - 1.9f * (float) slot / (float) data->rows, to);
		else
			make_vector(*data, random_below(12), 0.5f, to);
		if (rows == ROWS_CLUSTERED && slot % 9 == 8)
			memcpy(to, to - data->stride, data->stride); /* there are equal ones */
	}
	if (rows == ROWS_CLUSTERED)
		memset(&data->vectors[5 * data->stride], 0, data->stride); /* without length */
}

/* Assign rows to lists, and put them into places with holes between. */
static void
assign_rows(Data *data, Rows rows)
{
	const DistanceKernels *squares = distance_kernels(ELEMENT_FLOAT, METRIC_L2, SIMD_PORTABLE);

	data->list_of.assign(data->rows, NO_SLOT);
	data->at.assign(data->lists, {});
	for (uint32_t slot = 0; slot < data->rows; slot++)
	{
		std::vector<float> wide = widen(*data, &data->vectors[slot * data->stride]);
		double least = HUGE_VAL;

		if (rows != ROWS_ONE_LIST && slot % PENDING_EVERY == 7)
		{
			data->pending.push_back(slot);
			continue;
		}
		for (uint32_t list = 0; list < data->lists; list++)
		{
			double distance =
				squares->exact(wide.data(), &data->centroids[list * data->dims], data->dims);

			if (list % 5 != 4 && distance < least)
			{
				least = distance;
				data->list_of[slot] = list;
			}
		}
		if (rows == ROWS_ONE_LIST && slot % 50 != 0)
			data->list_of[slot] = 1;
		std::vector<uint32_t> &at = data->at[data->list_of[slot]];

		if (random_below(10) == 0)
			at.push_back(NO_SLOT);
		at.push_back(slot);
	}
	for (uint32_t slot = 3; slot < data->rows; slot += 17)
		data->dead[slot / 32] |= 1u << (slot % 32);
}

/* Encode all rows. */
static void
encode_rows(Data *data)
{
	std::vector<float> residuals;

	for (uint32_t slot = 0; slot < data->rows && data->shape.kind == QUANTIZER_PQ; slot++)
		if (data->list_of[slot] != NO_SLOT)
		{
			std::vector<float> wide = widen(*data, &data->vectors[slot * data->stride]);

			for (uint32_t i = 0; i < data->dims; i++)
				residuals.push_back(wide[i] -
									data->centroids[data->list_of[slot] * data->dims + i]);
		}
	data->codebook.assign(quantizer_codebook_bytes(&data->shape) / sizeof(float) + 1, 0);
	if (data->shape.kind == QUANTIZER_PQ)
		(void) quantizer_train(&data->shape, residuals.data(),
							   std::min<uint32_t>(1500, (uint32_t) (residuals.size() / data->dims)),
							   NULL, data->codebook.data());
	data->quantizer = quantizer_open(&data->shape, data->codebook.data());
	data->code_bytes = quantizer_code_bytes(&data->shape);
	data->codes.assign(data->rows * data->code_bytes, 0);
	for (uint32_t slot = 0; slot < data->rows; slot++)
		if (data->list_of[slot] != NO_SLOT)
		{
			std::vector<float> wide = widen(*data, &data->vectors[slot * data->stride]);

			quantizer_encode(data->quantizer, &data->centroids[data->list_of[slot] * data->dims],
							 wide.data(), 1, &data->codes[slot * data->code_bytes]);
		}
}

template <typename T>
static const T *
keep(Data *data, const std::vector<T> &from)
{
	T *memory = to_device(from);

	data->memory.push_back(memory);
	return memory;
}

/* Lay the lists out on the device. */
static void
lay_out_lists(Data *data)
{
	ListsView *view = &data->view;
	std::vector<uint32_t> first(1, 0),
		blocks,
		memory,
		rotation(2 * data->dims);

	view->shape = data->shape;
	view->lists = data->lists;
	view->code_words = (uint32_t) (data->code_bytes / 4);
	view->block_words = LIST_PLACES + LIST_PLACES * view->code_words;
	view->longest = 0;
	for (const std::vector<uint32_t> &at : data->at)
	{
		uint32_t count = (uint32_t) (at.size() + LIST_PLACES - 1) / LIST_PLACES;

		view->longest = std::max(view->longest, count);
		for (uint32_t i = 0; i < count; i++)
			blocks.push_back((uint32_t) blocks.size());
		first.push_back((uint32_t) blocks.size());
	}
	for (size_t i = blocks.size(); i > 1; i--)
		std::swap(blocks[i - 1], blocks[random_below((uint32_t) i)]);
	memory.assign(blocks.size() * view->block_words, 0xA5A5A5A5u);
	for (uint32_t list = 0; list < data->lists; list++)
		for (uint32_t i = 0; i < (first[list + 1] - first[list]) * LIST_PLACES; i++)
		{
			uint32_t *block = &memory[(size_t) blocks[first[list] + i / LIST_PLACES] *
									  view->block_words];
			uint32_t slot = i < data->at[list].size() ? data->at[list][i] : NO_SLOT;

			block[i % LIST_PLACES] = slot;
			for (uint32_t w = 0; w < view->code_words && slot != NO_SLOT; w++)
				memcpy(&block[LIST_PLACES + w * LIST_PLACES + i % LIST_PLACES],
					   &data->codes[slot * data->code_bytes + w * 4], 4);
		}
	for (uint32_t i = 0; i < 2; i++)
		rotation_make(data->shape.seed + i, data->dims, &rotation[i * data->dims]);
	view->centroids = keep(data, data->centroids);
	view->half_norms = keep(data, data->half_norms);
	view->codebook = keep(data, data->codebook);
	view->rotation = keep(data, rotation);
	view->first = keep(data, first);
	view->blocks = keep(data, blocks);
	view->memory = keep(data, memory);
}

static void
lay_out_mirror(Data *data)
{
	MirrorView *view = &data->mirror;

	view->vectors = keep(data, data->vectors);
	view->versions = keep(data, data->versions);
	view->dead = keep(data, data->dead);
	view->norms = keep(data, data->norms);
	view->pending = keep(data, data->pending);
	view->npending = (uint32_t) data->pending.size();
	view->rows = data->rows;
	view->stride = (uint32_t) data->stride;
	view->dims = data->dims;
	view->type = data->type;
	view->metric = data->metric;
}

static Data
make_data(QuantizerShape shape, ElementType type, uint32_t rows, uint32_t lists, Rows look)
{
	Data data = {};

	data.type = type;
	data.metric = shape.metric;
	data.dims = shape.dims;
	data.rows = rows;
	data.lists = lists;
	data.shape = shape;
	data.stride = (engine_vector_bytes(type, shape.dims) + 15) / 16 * 16;
	make_rows(&data, look);
	data.dead.assign(rows / 32 + 1, 0);
	for (uint32_t slot = 0; slot < rows; slot++)
	{
		const unsigned char *vector = &data.vectors[slot * data.stride];

		data.versions.push_back(slot * 3 + 1);
		data.norms.push_back(
			-distance_kernels(type, METRIC_IP, SIMD_PORTABLE)->exact(vector, vector, data.dims));
	}
	for (uint32_t list = 0; list < lists; list++)
	{
		std::vector<float> wide = widen(data, &data.vectors[list * 7 % rows * data.stride]);
		double square = 0;

		for (float value : wide)
			square += (double) value * value;
		data.centroids.insert(data.centroids.end(), wide.begin(), wide.end());
		data.half_norms.push_back((float) (square / 2));
	}
	assign_rows(&data, look);
	encode_rows(&data);
	lay_out_lists(&data);
	lay_out_mirror(&data);
	return data;
}

static void
drop_data(Data *data)
{
	for (void *memory : data->memory)
		must(cudaFree(memory), "free");
	quantizer_close(data->quantizer);
}

/* ---- the model ---- */

static double
exact_distance(const Data &data, const Asked &asked, uint32_t slot)
{
	return kernels_of(data)->exact(asked.vector.data(), &data.vectors[slot * data.stride],
								   data.dims);
}

static bool
admitted(const Data &data, const Asked &asked, uint32_t slot)
{
	if (data.dead[slot / 32] >> (slot % 32) & 1)
		return false;
	return asked.filter.empty() || (asked.filter[slot / 32] >> (slot % 32) & 1);
}

static bool
beyond(const Asked &asked, double distance, uint32_t slot)
{
	return !asked.device.has_beyond || distance > asked.beyond ||
		   (distance == asked.beyond && slot > asked.device.beyond_slot);
}

/* The lists that a query probes. */
static std::vector<Answer>
nearest_lists(const Data &data, const Asked &asked)
{
	std::vector<Answer> lists;

	for (uint32_t list = 0; list < data.lists; list++)
	{
		float product = 0;
		double value;

		for (uint32_t i = 0; i < data.dims; i++)
			product = fmaf(asked.wide[i], data.centroids[list * data.dims + i], product);
		value = data.half_norms[list] - product;
		if (data.metric == METRIC_IP)
			value -= data.half_norms[list];
		lists.push_back({value, list});
	}
	std::sort(lists.begin(), lists.end());
	lists.resize(std::min<size_t>(lists.size(), asked.device.probes));
	return lists;
}

/* What the model knows of a row of a list. */
struct Row
{
	uint32_t slot;
	float estimate;
	float lower;
	float upper;
};

static float
base_of_list(const Data &data, const Asked &asked, uint32_t list)
{
	return (float) distance_kernels(ELEMENT_FLOAT,
									data.metric == METRIC_L2 ? METRIC_L2 : METRIC_IP, SIMD_PORTABLE)
		->exact(asked.wide.data(), &data.centroids[list * data.dims], data.dims);
}

/* Estimate the row of a slot. */
static Row
estimate_row(const Data &data, const Asked &asked, const void *tables, float base, uint32_t slot)
{
	Row row = {slot, 0, 0, 0};
	void *block = aligned_alloc(64, block_bytes(&data.shape));

	(void) asked;
	memset(block, 0, block_bytes(&data.shape));
	block_set(data.quantizer, block, 9, &data.codes[slot * data.code_bytes]);
	quantizer_estimate(data.quantizer, tables, base, &data.codes[slot * data.code_bytes], 1,
					   &row.estimate, &row.lower);
	row.upper = block_upper(data.quantizer, tables, base, block, 9, row.estimate);
	free(block);
	return row;
}

static double
bound_distance(const Data &data, float bound)
{
	return data.metric == METRIC_COSINE ? 1 + (double) bound - UNIT_ROUNDING : bound;
}

/* The rows of the lists probed that may be chosen. */
static std::vector<Row>
rows_of_lists(const Data &data, const Asked &asked, bool all, bool bounds)
{
	std::vector<char> tables(quantizer_table_bytes(&data.shape) + 64);
	std::vector<Row> rows;
	float norm = 0;

	for (uint32_t i = 0; i < data.dims; i++)
		norm += element(data, asked.vector.data(), i) * element(data, asked.vector.data(), i);
	quantizer_prepare(data.quantizer, asked.wide.data(), tables.data());
	for (const Answer &list : nearest_lists(data, asked))
		for (uint32_t slot : data.at[list.slot])
		{
			Row row;

			if (slot == NO_SLOT || !admitted(data, asked, slot))
				continue;
			row = estimate_row(data, asked, tables.data(), base_of_list(data, asked, list.slot),
							   slot);
			if (all || !(bounds || asked.device.has_beyond) ||
				(data.metric == METRIC_COSINE && (data.norms[slot] == 0 || norm == 0)))
				row.upper = HUGE_VALF;
			else if (data.metric == METRIC_COSINE)
				row.upper += (float) (2 * UNIT_ROUNDING);
			if (asked.device.has_beyond && bound_distance(data, row.upper) < asked.beyond)
				continue;
			rows.push_back(row);
		}
	return rows;
}

/*
 * Leave the rows that are to be measured, with the bounds by which that stops.
 */
static void
choose_rows(const Data &data, const Asked &asked, bool all, bool bounds, std::vector<Row> *rows)
{
	std::vector<float> uppers;
	std::vector<Row> chosen;

	if (all)
		return;
	if (!bounds)
	{
		std::sort(rows->begin(), rows->end(), [](const Row &a, const Row &b) {
			return a.estimate != b.estimate ? a.estimate < b.estimate : a.slot < b.slot;
		});
		rows->resize(std::min<size_t>(rows->size(), asked.device.rerank));
		for (Row &row : *rows)
			if (!quantizer_bounds_hold(data.shape.kind))
				row.lower = -HUGE_VALF;
		return;
	}
	for (const Row &row : *rows)
		if (std::isfinite(row.upper) &&
			(!asked.device.has_beyond || bound_distance(data, row.lower) > asked.beyond))
			uppers.push_back(row.upper);
	if (uppers.size() < asked.device.k)
		return;
	std::sort(uppers.begin(), uppers.end());
	for (const Row &row : *rows)
		if (row.lower <= uppers[asked.device.k - 1])
			chosen.push_back(row);
	*rows = chosen;
}

static void
keep_best(std::vector<Answer> *answers, Answer answer, uint32_t k)
{
	answers->insert(std::upper_bound(answers->begin(), answers->end(), answer), answer);
	if (answers->size() > k)
		answers->pop_back();
}

/* The answer of a query; how many pending rows it saw. */
static std::vector<Answer>
answer_of(const Data &data, const Asked &asked, uint32_t *npending)
{
	bool hold = quantizer_bounds_hold(data.shape.kind);
	bool every = asked.device.rerank == ENGINE_RERANK_ALL;
	bool bounds = asked.device.rerank == 0 || (every && hold) ||
				  (!every && asked.device.rerank > LISTS_MOST_RERANK);
	bool all = every && !hold;
	uint32_t k = asked.device.k;
	std::vector<Answer> pending,
		best;
	std::vector<Row> rows;

	*npending = 0;
	for (uint32_t slot : data.pending)
		if (admitted(data, asked, slot))
		{
			Answer answer = {exact_distance(data, asked, slot), slot};

			++*npending;
			if (beyond(asked, answer.distance, slot))
				keep_best(&pending, answer, k);
		}
	rows = rows_of_lists(data, asked, all, bounds);
	choose_rows(data, asked, all, bounds, &rows);
	std::sort(rows.begin(), rows.end(), [](const Row &a, const Row &b) {
		return a.lower != b.lower ? a.lower < b.lower : a.slot < b.slot;
	});
	for (const Row &row : rows)
	{
		double least = bound_distance(data, row.lower);
		Answer answer = {exact_distance(data, asked, row.slot), row.slot};

		if (!all && ((best.size() == k && least > best[k - 1].distance) ||
					 (pending.size() == k && least > pending[k - 1].distance)))
			break;
		if (beyond(asked, answer.distance, row.slot))
			keep_best(&best, answer, k);
	}
	best.insert(best.end(), pending.begin(), pending.end());
	std::sort(best.begin(), best.end());
	best.resize(std::min<size_t>(best.size(), k));
	return best;
}

/* ---- queries ---- */

/* Make a query of some kind; i says which. */
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
struct Batch
{
	std::vector<DeviceQuery> queries;
	std::vector<DeviceHead> heads;
	std::vector<SearchResult> results;
	ListsLaunch launch;
	std::vector<void *> memory;
};

/*
 * What an exact search of the pending rows would hand over: two lists of each
 * query.
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
 * Search queries with so much state; handed: with answers of pending rows made
 * before.
 */
static Batch
search(const Data &data, const std::vector<Asked> &asked, uint32_t parts, bool handed)
{
	Batch batch = {};
	ListsLaunch *launch = &batch.launch;
	std::vector<unsigned char> vectors;
	std::vector<uint32_t> bitmaps(1);
	uint32_t nresults = 0;
	size_t least;
	void *state;

	launch->mirror = data.mirror;
	launch->lists = data.view;
	launch->queries = (uint32_t) asked.size();
	launch->processors = 5;
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
		if (device.rerank <= LISTS_MOST_RERANK)
			launch->max_rerank = std::max(launch->max_rerank, device.rerank);
		launch->any_admitted |= device.has_admitted || device.has_beyond;
	}
	if (handed)
		launch->pending = make_pending(data, asked, launch->max_k);
	batch.heads.resize(asked.size());
	batch.results.resize(nresults);
	least = lists_search_least_bytes(&data.view, launch->max_probes, launch->max_k,
									 launch->max_rerank);
	launch->state_bytes = parts == 1 ? least : least * (asked.size() / parts + 1);
	must(cudaMalloc(&state, launch->state_bytes), "state");
	must(cudaMemset(state, 0xFF, launch->state_bytes), "state");
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

/* Whether query i is answered as the model does; if not, why. */
static bool
is_answered(const Data &data, const Asked &asked, const Batch &batch, uint32_t i, char *why,
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
				uint32_t most_k, bool handed = false)
{
	std::vector<Asked> asked;
	Batch batch;
	char why[300] = "",
		 text[600];
	uint32_t equal = 0,
			 first = queries > 1 ? 0 : random_below(56);

	for (uint32_t i = 0; i < queries; i++)
		asked.push_back(make_query(data, first + i, most_k));
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
	part.vectors = to_device(std::vector<float>(part.vector_stride));
	for (uint32_t list = 0; list < data.lists; list++)
		bases.push_back(base_of_list(data, asked[0], list));
	ListsStep step = {&launch, part};
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

/* Rows that need more than a buffer, or more than two phases. */
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
	data = make_data(shape_of(kind, metric), ELEMENT_FLOAT, 300, 400, ROWS_FEW);
	snprintf(what, sizeof(what), "%s, more lists than rows", kind.name);
	compare_answers(data, what, 30, 2, 100);
	drop_data(&data);
}

int
main()
{
	cudaDeviceProp device;

	if (cudaGetDeviceProperties(&device, 0) != cudaSuccess)
	{
		printf("1..0 # skip there is no device\n");
		return 0;
	}
	must(lists_search_prepare(&device), "lists_search_prepare");
	must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	for (const Kind &kind : kinds)
		for (Metric metric : {METRIC_L2, METRIC_IP, METRIC_COSINE})
			for (ElementType type : {ELEMENT_FLOAT, ELEMENT_HALF})
				if (type == ELEMENT_FLOAT || kind.dims % 2 == 1)
					compare_kind(kind, metric, type);
	/* tables that shared memory has no room for */
	compare_kind({"pq of many sub-spaces", QUANTIZER_PQ, 203, 8, 200}, METRIC_L2, ELEMENT_FLOAT);
	compare_hard(kinds[0], METRIC_L2);
	compare_hard(kinds[2], METRIC_L2);
	compare_hard(kinds[4], METRIC_IP);
	compare_hard(kinds[7], METRIC_COSINE);
	must(cudaStreamDestroy(stream), "the stream");
	printf("1..%u\n", tests);
	return failures > 0;
}
