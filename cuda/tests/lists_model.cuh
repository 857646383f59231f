/*
 * lists_model.cuh
 *		Mirrors with lists for tests: laid out in blocks in random order, with
 *		free places, on the device; and a model of their search on the host, by
 *		the definitions of src/engine/cpu/lists_scan.c.
 */
#ifndef GPUANN_CUDA_LISTS_MODEL_H
#define GPUANN_CUDA_LISTS_MODEL_H

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cuda/tests/halves.h"
#include "cuda/tests/testing.cuh"
#include "cuda/lists/lists_code.h"
#include "cuda/lists/lists_estimate.cuh"

extern "C"
{
#include "engine/distance.h"
#include "engine/quantizer/blocks.h"
#include "engine/quantizer/quantizer.h"
}

#define PENDING_EVERY 41u
#define UNIT_ROUNDING 0x1p-20

/*
 * A copy of a vector in device memory. It is waited for: the copy is of the
 * default stream, and the one that kernels run in would not wait.
 */
template <typename T>
static T *
to_device(const std::vector<T> &from)
{
	void *to = NULL;

	must(cudaMalloc(&to, from.size() * sizeof(T) + 16), "memory");
	must(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "a copy");
	must(cudaDeviceSynchronize(), "a copy");
	return (T *) to;
}

/* Kinds of test data. */
enum Rows
{
	ROWS_CLUSTERED,
	ROWS_EQUAL,	   /* all rows are equal */
	ROWS_ONE_LIST, /* most are in one list, the farthest first */
	ROWS_FEW,	   /* some lists are empty */
	ROWS_DEAD,	   /* nearly all rows are dead */
	ROWS_LONG	   /* squared norms of some rows overflow or vanish in single precision */
};

/* A mirror with lists, on the host and on the device. */
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
	std::vector<uint32_t> list_of;		   /* list of each row; NO_SLOT: pending */
	std::vector<std::vector<uint32_t>> at; /* per list, its places: slots or NO_SLOT */
	std::vector<unsigned char> codes;	   /* rows x code_bytes */
	MirrorView mirror;
	ListsView view;
	ListHalves halves;
	std::vector<void *> memory;
};

/* A query, and the host's copy of its vector. */
struct Asked
{
	DeviceQuery device;
	std::vector<unsigned char> vector;
	std::vector<float> wide; /* in single precision; for cosine normalised to length one */
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

/* Convert a vector to single precision; for cosine normalise it. */
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

/* A random vector near a centre. */
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
			memcpy(to, to - data->stride, data->stride); /* some rows are equal */
	}
	if (rows == ROWS_CLUSTERED && data->rows > 5)
		memset(&data->vectors[5 * data->stride], 0, data->stride); /* zero length */
	for (uint32_t slot = 2; slot < data->rows && rows == ROWS_LONG; slot += 11)
		for (uint32_t i = 0; i < data->dims; i++)
			set_element(*data, &data->vectors[slot * data->stride], i,
						data->type == ELEMENT_HALF ? 65504.0f : slot % 2 != 0 ? 1e38f : -1e25f);
}

/* Assign rows to lists, and to places with gaps between them. */
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
			data->list_of[slot] = 1 % data->lists;
		std::vector<uint32_t> &at = data->at[data->list_of[slot]];

		if (random_below(10) == 0)
			at.push_back(NO_SLOT);
		at.push_back(slot);
	}
	for (uint32_t slot = 0; slot < data->rows; slot++)
		if (rows == ROWS_DEAD ? slot % 19 != 7 : slot % 17 == 3)
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

/* Lay out the lists in device memory. */
static void
lay_out_lists(Data *data)
{
	ListsView *view = &data->view;
	std::vector<uint32_t> first(1, 0),
		blocks,
		memory,
		rotation(2 * data->dims);
	cudaStream_t stream;

	view->shape = data->shape;
	view->lists = data->lists;
	view->code_words = (uint32_t) (data->code_bytes / 4);
	view->block_words = LIST_PLACES + LIST_PLACES * view->code_words;
	view->longest = 0;
	view->probed = NULL;
	for (const std::vector<uint32_t> &at : data->at)
	{
		uint32_t count = (uint32_t) (at.size() + LIST_PLACES - 1) / LIST_PLACES;

		view->longest = std::max(view->longest, count);
		for (uint32_t i = 0; i < count; i++)
			blocks.push_back((uint32_t) blocks.size());
		first.push_back((uint32_t) blocks.size());
	}
	view->all_blocks = (uint32_t) blocks.size();
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
	data->memory.push_back(to_device(
		std::vector<unsigned char>(lists_halves_bytes(data->lists, data->dims))));
	data->halves = lists_halves_at(data->memory.back(), data->lists, data->dims);
	must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
	must(lists_make_halves(view, &data->halves, stream), "lists_make_halves");
	must(cudaStreamSynchronize(stream), "halves");
	must(cudaStreamDestroy(stream), "stream");
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
		lists.push_back({std::isnan(value) ? HUGE_VAL : value, list});
	}
	std::sort(lists.begin(), lists.end());
	lists.resize(std::min<size_t>(lists.size(), asked.device.probes));
	return lists;
}

/* What the model computes for a row of a list. */
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

/* Estimate a slot's row. */
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

/* Whether a squared norm is finite and not 0 in single precision. */
static bool
has_length(float norm)
{
	return norm > 0 && norm < HUGE_VALF;
}

/* Candidates among the rows of the probed lists. */
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
				(data.metric == METRIC_COSINE &&
				 !(has_length((float) data.norms[slot]) && has_length(norm))))
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
 * Reduce candidates to the rows that must be measured, with the bounds at which
 * measuring stops.
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
		for (Row &row : *rows)
			row.estimate = std::isnan(row.estimate) ? -HUGE_VALF : row.estimate;
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

/* The answer of a query; *npending is the number of pending rows compared. */
static std::vector<Answer>
answer_of(const Data &data, const Asked &asked, uint32_t *npending)
{
	bool hold = quantizer_bounds_hold(data.shape.kind);
	bool every = asked.device.rerank > LISTS_MAX_RERANK;
	bool bounds = asked.device.rerank == 0 || (every && hold);
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

#endif /* GPUANN_CUDA_LISTS_MODEL_H */
