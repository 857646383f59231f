/*
 * walks_model.cuh
 *		The model with which walks_test.cu compares the production walks: a
 *		mirror copied from the device, a query's codes, a walk on the host.
 */
#ifndef GPUANN_CUDA_WALKS_MODEL_H
#define GPUANN_CUDA_WALKS_MODEL_H

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cuda/tests/halves.h"
#include "cuda/query/cuda_engine.h"
#include "cuda/graph/graph_search_codes.h"
#include "cuda/quantizer/quantizer.h"
#include "cuda/tests/testing.cuh"

extern "C"
{
#include "engine/distance.h"
#include "test/quantizer_test_int8.h"
}

#define DEGREE 32u /* with this degree graph_search.cu expands WALK_WIDTH rows per round, as
				    * graph_search_codes.cu does */
#define RANKED_MIN 32u

/* A mirror copied from the device. */
struct Copy
{
	MirrorView view;
	ElementType type;
	Metric metric;
	size_t vector_bytes;
	std::vector<unsigned char> vectors; /* as given */
	std::vector<unsigned char> codes;
	std::vector<unsigned char> pivot_codes;
	std::vector<uint32_t> graph;
	std::vector<uint32_t> seeds;
	std::vector<uint32_t> lists;
	std::vector<float> offsets;
	std::vector<float2> scales; /* of rotated codes */
	std::vector<float2> pivot_scales;
	std::vector<uint32_t> rotation;
	std::vector<bool> dead;
	bool rotated; /* the vectors are made so that codes are rotated */
};

/* An entry of a list, as in the kernels. */
struct Met
{
	uint32_t key;
	uint32_t slot;
	bool expanded;

	bool operator<(const Met &other) const
	{
		return key != other.key ? key < other.key : slot < other.slot;
	}
};

/* A query's codes. */
struct QueryCodes
{
	std::vector<signed char> codes;
	const unsigned char *bits;
	int scale;
	Int8Query rotated; /* rotated codes */
};

struct Answer
{
	double distance;
	uint32_t slot;

	bool operator<(const Answer &other) const
	{
		return distance != other.distance ? distance < other.distance : slot < other.slot;
	}
};

/* Results of the model. */
struct Walked
{
	std::vector<Answer> answers;
	uint32_t expanded;
	uint32_t rounds;
	uint32_t measured;
};

static float
element_of(const Copy &copy, const unsigned char *vector, uint32_t i)
{
	if (copy.type == ELEMENT_HALF)
		return float_of_half(((const uint16_t *) vector)[i]);
	return ((const float *) vector)[i];
}

static signed char
code_from(float value)
{
	value = rintf(value);
	return (signed char) (value > 127 ? 127 : value < -127 ? -127 : value);
}

/* The parameters of rotated codes. */
static Int8Codebook
codebook_of(const Copy &copy)
{
	return {copy.view.dims, copy.metric == METRIC_L2, copy.rotation.data(), copy.offsets.data()};
}

/* A query's rotated codes. */
static QueryCodes
rotated_codes_of(const Copy &copy, const unsigned char *vector)
{
	QueryCodes query = {std::vector<signed char>(copy.view.dims), vector, 1, {}};
	std::vector<float> values(copy.view.dims),
		room(copy.view.dims);
	Int8Codebook codebook = codebook_of(copy);

	for (uint32_t i = 0; i < copy.view.dims; i++)
		values[i] = element_of(copy, vector, i);
	query.rotated = int8_prepare(&codebook, values.data(), room.data(), query.codes.data());
	return query;
}

/* Whether a slot's codes and scale equal those of the reference. */
static bool
has_rotated_codes(const Copy &copy, uint32_t slot)
{
	const unsigned char *vector = &copy.vectors[slot * copy.vector_bytes];
	const signed char *codes =
		(const signed char *) &copy.codes[(size_t) slot * copy.view.code_stride];
	std::vector<float> values(copy.view.dims),
		room(copy.view.dims);
	std::vector<signed char> expected(copy.view.dims);
	Int8Codebook codebook = codebook_of(copy);
	float factor = 1;
	Int8Scale scale;

	if (copy.metric == METRIC_COSINE)
		factor = 1.0f / sqrtf((float) -distance_kernels(copy.type, METRIC_IP, SIMD_PORTABLE)
										   ->exact(vector, vector, copy.view.dims));
	for (uint32_t i = 0; i < copy.view.dims; i++)
		values[i] = element_of(copy, vector, i) * factor;
	scale = int8_encode(&codebook, values.data(), room.data(), expected.data());
	return scale.step == copy.scales[slot].x && scale.term == copy.scales[slot].y &&
		   std::equal(expected.begin(), expected.end(), codes);
}

/* The key of a row of rotated codes. */
static uint32_t
rotated_key_of(const Copy &copy, const QueryCodes &query, const unsigned char *row, float2 scale)
{
	Int8Codebook codebook = codebook_of(copy);
	float estimate = int8_estimate(&codebook, query.codes.data(), query.rotated,
								   (const signed char *) row, {scale.x, scale.y});
	uint32_t bits;

	estimate = estimate == 0 ? 0.0f : estimate;
	memcpy(&bits, &estimate, sizeof(bits));
	return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/*
 * Encode a query: for products on its own scale, for L2 on the rows' scale
 * times a power of two, for L1 on the rows' scale.
 */
static QueryCodes
codes_of(const Copy &copy, const unsigned char *vector)
{
	QueryCodes query = {{}, vector, 1, {}};
	bool square = copy.metric == METRIC_L2;
	bool absolute = copy.metric == METRIC_L1;
	float factor = square || absolute ? copy.view.code_steps : 1;
	float most = 0;

	if (copy.type == ELEMENT_BIT)
		return query;
	if (copy.rotated)
		return rotated_codes_of(copy, vector);
	for (uint32_t i = 0; i < copy.view.dims; i++)
		most = std::max(
			most, fabsf((element_of(copy, vector, i) - (square ? copy.offsets[i] : 0)) * factor));
	if (square)
	{
		while (most > 63.5f * (float) query.scale &&
			   (uint64_t) query.scale * copy.view.dims * 127 * 127 < (1u << 29))
			query.scale *= 2;
		factor *= 2.0f / (float) query.scale;
	}
	else if (!absolute)
		factor = most > 0 ? 127.0f / most : 0;
	for (uint32_t i = 0; i < copy.view.dims; i++)
		query.codes.push_back(code_from(
			(element_of(copy, vector, i) - (square || absolute ? copy.offsets[i] : 0)) * factor));
	return query;
}

/* The key of a row of codes or bits. */
static uint32_t
key_of(const Copy &copy, const QueryCodes &query, const unsigned char *row)
{
	int sum = 0,
		both = 0;
	float share;
	uint32_t key;

	if (copy.type == ELEMENT_BIT)
		for (uint32_t i = 0; i < copy.vector_bytes; i++)
		{
			sum += __builtin_popcount(row[i] ^ query.bits[i]);
			both += __builtin_popcount(row[i] & query.bits[i]);
		}
	else
		for (uint32_t i = 0; i < copy.view.dims; i++)
		{
			int x = (signed char) row[i],
				q = query.codes[i];

			sum += copy.metric == METRIC_L2	  ? x * x - query.scale * x * q
				   : copy.metric == METRIC_L1 ? abs(x - q)
											  : -x * q;
		}
	if (copy.metric != METRIC_JACCARD)
		return (uint32_t) sum ^ 0x80000000u;
	share = both == 0 ? 1.0f : 1.0f - (float) both / (float) (both + sum);
	memcpy(&key, &share, sizeof(key));
	return key;
}

/* A walk of the model. */
struct Model
{
	const Copy &copy;
	const EngineQuery &asked;
	QueryCodes query;
	uint32_t ef;
	std::vector<Met> list;
	std::vector<Met> apart;
	std::vector<bool> seen;
	Walked walked;

	Model(const Copy &a_copy, const EngineQuery &a_query)
		: copy(a_copy), asked(a_query),
		  query(codes_of(a_copy, (const unsigned char *) a_query.vector)),
		  ef(std::max(a_query.ef, a_query.k)), seen(a_copy.view.rows), walked()
	{
	}

	/*
	 * Sort the entries added since `before`, merge them, and keep the nearest.
	 */
	void
	settle(std::vector<Met> *mets, size_t before)
	{
		std::sort(mets->begin() + (long) before, mets->end());
		std::inplace_merge(mets->begin(), mets->begin() + (long) before, mets->end());
		mets->resize(std::min<size_t>(mets->size(), ef));
	}

	/* Measure the unvisited slots of one round, and merge them. */
	void
	round(const std::vector<uint32_t> &slots)
	{
		size_t listed = list.size(),
			   kept = apart.size();

		for (uint32_t slot : slots)
			if (slot < copy.view.rows && !seen[slot])
			{
				const unsigned char *row = &copy.codes[(size_t) slot * copy.view.code_stride];
				Met met = {copy.rotated ? rotated_key_of(copy, query, row, copy.scales[slot])
										: key_of(copy, query, row),
						   slot, false};

				seen[slot] = true;
				walked.measured++;
				list.push_back(met);
				if (asked.filter != NULL && !copy.dead[slot] && slot < asked.filter_slots &&
					(asked.filter[slot / 64] >> (slot % 64) & 1))
					apart.push_back(met);
			}
		settle(&list, listed);
		settle(&apart, kept);
	}

	/* Start from the lists of the nearest pivots, or from seeds. */
	void
	start()
	{
		std::vector<Met> pivots;
		std::vector<uint32_t> slots;

		if (copy.view.npivots == 0)
		{
			for (uint32_t i = 0; i < copy.view.nseeds && i < ENGINE_SEEDS_TRIED;
				 i += WALK_WIDTH * DEGREE)
			{
				uint32_t end = std::min(std::min(copy.view.nseeds, (uint32_t) ENGINE_SEEDS_TRIED),
										i + WALK_WIDTH * DEGREE);

				round(std::vector<uint32_t>(copy.seeds.begin() + i, copy.seeds.begin() + end));
			}
			return;
		}
		for (uint32_t i = 0; i < copy.view.npivots; i++)
		{
			const unsigned char *row = &copy.pivot_codes[(size_t) i * copy.view.code_stride];

			pivots.push_back({copy.rotated ? rotated_key_of(copy, query, row, copy.pivot_scales[i])
										   : key_of(copy, query, row),
							  i, false});
		}
		walked.measured += copy.view.npivots;
		std::sort(pivots.begin(), pivots.end());
		for (uint32_t i = 0; i < WALK_WIDTH && i < pivots.size() && i < ef; i++)
			for (uint32_t j = 0; j < DEGREE; j++)
				slots.push_back(copy.lists[(size_t) pivots[i].slot * DEGREE + j]);
		round(slots);
	}

	/* Expand the nearest unexpanded entries, round by round. */
	void
	expand()
	{
		for (;;)
		{
			uint32_t width = WALK_WIDTH;
			std::vector<uint32_t> slots;

			if (asked.max_iterations != 0)
				width = std::min(width, asked.max_iterations - walked.expanded);
			for (Met &met : list)
				if (width > 0 && !met.expanded)
				{
					met.expanded = true;
					width--;
					walked.expanded++;
					slots.insert(slots.end(), copy.graph.begin() + (size_t) met.slot * DEGREE,
								 copy.graph.begin() + (size_t) (met.slot + 1) * DEGREE);
				}
			if (slots.empty())
				return;
			walked.rounds++;
			round(slots);
		}
	}

	/* Rerank the first live entries exactly. */
	void
	rank()
	{
		const DistanceKernels *kernels = distance_kernels(copy.type, copy.metric, SIMD_PORTABLE);
		uint32_t most = std::min(std::max(2 * asked.k, RANKED_MIN), ef);

		for (const Met &met : asked.filter != NULL ? apart : list)
			if (!copy.dead[met.slot] && walked.answers.size() < most)
			{
				double distance = kernels->exact(
					asked.vector, &copy.vectors[met.slot * copy.vector_bytes], copy.view.dims);

				walked.answers.push_back({distance, met.slot});
			}
		std::sort(walked.answers.begin(), walked.answers.end());
		walked.answers.resize(std::min<size_t>(walked.answers.size(), asked.k));
	}
};

#endif /* GPUANN_CUDA_WALKS_MODEL_H */
