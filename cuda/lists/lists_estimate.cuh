/*
 * lists_estimate.cuh
 *		Estimates of codes and their bounds, to the bit those of
 *		src/engine/quantizer (scalar.h, pq.h, quantizer_private.h).
 *
 * A lane has a code, a warp a block of 32; words are read 128 bytes at a time.
 * The sums of G queries are computed together, from interleaved tables:
 *
 * int8, rabitq: for each word of four integers the G queries' upper bytes
 * (signed), then their lower ones (unsigned); two dp4a per query and word. Bit
 * planes of rabitq are first gathered to bytes u, with sum = 2 <q,u> - most x
 * sum(q).
 *
 * pq: for each sub-space and codeword the G queries' entries, of 16 bits (256
 * codewords) or 8 (16); one look-up serves all of them.
 */
#ifndef GPUANN_CUDA_LISTS_ESTIMATE_CUH
#define GPUANN_CUDA_LISTS_ESTIMATE_CUH

#include "cuda/lists/lists_state.cuh"

/* Kinds of codes that kernels are instantiated for. */
enum CodeKind
{
	CODE_INT8 = 0,
	CODE_RABITQ = 1,
	CODE_PQ8 = 2,
	CODE_PQ4 = 3
};

__host__ __device__ static inline int
code_kind(const QuantizerShape &shape)
{
	return shape.kind == QUANTIZER_INT8		? CODE_INT8
		   : shape.kind == QUANTIZER_RABITQ ? CODE_RABITQ
		   : shape.bits == 8				? CODE_PQ8
											: CODE_PQ4;
}

/* The largest integer of a code (most_number()). */
__host__ __device__ static inline uint32_t
code_most(const QuantizerShape &shape)
{
	return shape.kind == QUANTIZER_INT8 ? 127 : (1u << shape.bits) - 1;
}

/* The sum of products of bytes; s: signed, u: unsigned. */
__device__ static inline int
dot_bytes_su(uint32_t a, uint32_t b, int sum)
{
#ifdef EMULATED
	for (int i = 0; i < 32; i += 8)
		sum += (int) (signed char) (a >> i) * (int) (unsigned char) (b >> i);
#else
	asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(sum));
#endif
	return sum;
}

__device__ static inline int
dot_bytes_uu(uint32_t a, uint32_t b, int sum)
{
#ifdef EMULATED
	for (int i = 0; i < 32; i += 8)
		sum += (int) (unsigned char) (a >> i) * (int) (unsigned char) (b >> i);
#else
	asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(sum));
#endif
	return sum;
}

/* G consecutive words in shared memory. */
template <int G>
struct alignas(4 * (G < 4 ? G : 4)) Words
{
	uint32_t word[G];
};

/* Add a word of codes to the sums of upper and lower bytes. */
template <int G, bool SIGNED>
__device__ static inline void
add_word(const uint32_t *table, uint32_t code, int *upper, int *lower)
{
	Words<G> high = *(const Words<G> *) table,
			 low = *(const Words<G> *) (table + G);

#pragma unroll
	for (int g = 0; g < G; g++)
	{
		upper[g] = SIGNED ? __dp4a((int) code, (int) high.word[g], upper[g])
						  : dot_bytes_su(high.word[g], code, upper[g]);
		lower[g] = SIGNED ? dot_bytes_su(code, low.word[g], lower[g])
						  : dot_bytes_uu(code, low.word[g], lower[g]);
	}
}

template <int G>
__device__ static inline void
int8_sums(const ListsView &lists, const uint32_t *words, const uint32_t *table, int *sums)
{
	uint32_t count = (lists.shape.dims + 3) / 4;
	int lower[G] = {};

#pragma unroll (G == 1 ? 32 : 8)
	for (uint32_t w = 0; w < count; w++, table += 2 * G)
		add_word<G, true>(table, __ldg(words + w * LIST_PLACES), sums, lower);
#pragma unroll
	for (int g = 0; g < G; g++)
		sums[g] = (int) ((uint32_t) sums[g] * 256 + (uint32_t) lower[g]);
}

/* Four bits, expanded to bytes of 0 and 1. */
__device__ static inline uint32_t
spread_bits(uint32_t bits)
{
	return (bits & 15) * 0x00204081u & 0x01010101u;
}

/* BITS: number of planes; 0: as in the shape. */
template <int G, uint32_t BITS>
__device__ static inline void
rabitq_plane_sums(const ListsView &lists, const uint32_t *words, const uint32_t *table, int *sums,
				  int *lower)
{
	uint32_t of_plane = (lists.shape.dims + 31) / 32;
	uint32_t bits = BITS != 0 ? BITS : lists.shape.bits;

#pragma unroll (G != 1 ? 2 : BITS == 1 ? 8 : 4)
	for (uint32_t w = 0; w < of_plane; w++)
	{
		uint32_t planes[8];

#pragma unroll
		for (uint32_t plane = 0; plane < (BITS != 0 ? BITS : 8); plane++)
			planes[plane] = plane < bits ? __ldg(words + (plane * of_plane + w) * LIST_PLACES) : 0;
#pragma unroll
		for (uint32_t i = 0; i < 8; i++, table += 2 * G)
		{
			uint32_t bytes = 0;

#pragma unroll
			for (uint32_t plane = 0; plane < (BITS != 0 ? BITS : 8); plane++)
				if (BITS != 0 || plane < bits)
					bytes = 2 * bytes + spread_bits(planes[plane] >> (4 * i));
			add_word<G, false>(table, bytes, sums, lower);
		}
	}
}

template <int G>
__device__ static inline void
rabitq_sums(const ListsView &lists, const uint32_t *words, const uint32_t *table, int *sums)
{
	int lower[G] = {};

	if (lists.shape.bits == 1)
		rabitq_plane_sums<G, 1>(lists, words, table, sums, lower);
	else if (lists.shape.bits == 4)
		rabitq_plane_sums<G, 4>(lists, words, table, sums, lower);
	else
		rabitq_plane_sums<G, 0>(lists, words, table, sums, lower);
#pragma unroll
	for (int g = 0; g < G; g++)
		sums[g] = (int) ((uint32_t) sums[g] * 256 + (uint32_t) lower[g]);
}

/* Entries of the same codeword for G queries. */
template <int G, typename E>
struct alignas(G * sizeof(E)) EntriesOf
{
	E entry[G];
};

/* Add the table's entries, of type E, for the parts of a code, of BITS each. */
template <int G, typename E, uint32_t BITS>
__device__ static inline void
pq_sums(const ListsView &lists, const uint32_t *words, const uint32_t *table, int *sums)
{
	typedef EntriesOf<G, E> Found;
	const Found *entries = (const Found *) table;
	uint32_t count = lists.shape.parts / (32 / BITS);
	uint32_t rest = lists.shape.parts % (32 / BITS);

#pragma unroll 2
	for (uint32_t w = 0; w < count + (rest != 0); w++)
	{
		uint32_t code = __ldg(words + w * LIST_PLACES);

#pragma unroll
		for (uint32_t i = 0; i < 32 / BITS; i++, entries += 1u << BITS)
		{
			if (w == count && i >= rest)
				break;
			Found found = entries[code >> (BITS * i) & ((1u << BITS) - 1)];

#pragma unroll
			for (int g = 0; g < G; g++)
				sums[g] += found.entry[g];
		}
	}
}

/*
 * The sums of integers of a lane's code with G queries. words: the block's
 * codes, from the lane's place on.
 */
template <int KIND, int G>
__device__ static inline void
code_sums(const ListsView &lists, const uint32_t *words, const uint32_t *table, int *sums)
{
#pragma unroll
	for (int g = 0; g < G; g++)
		sums[g] = 0;
	if (KIND == CODE_INT8)
		int8_sums<G>(lists, words, table, sums);
	else if (KIND == CODE_RABITQ)
		rabitq_sums<G>(lists, words, table, sums);
	else if (KIND == CODE_PQ8)
		pq_sums<G, uint16_t, 8>(lists, words, table, sums);
	else
		pq_sums<G, uint8_t, 4>(lists, words, table, sums);
}

/*
 * Copy the tables of up to G queries to shared memory, interleaved. All
 * threads; the caller synchronises.
 */
template <int KIND, int G>
__device__ static inline void
load_tables(const uint32_t *tables, uint32_t table_words, const uint32_t *numbers, uint32_t count,
			 uint32_t *to)
{
	for (uint32_t i = threadIdx.x; i < table_words * G; i += blockDim.x)
	{
		/* coalesced: neighbouring threads read neighbouring words of a query */
		uint32_t g = i / table_words,
				 w = i % table_words;
		uint32_t word = g < count ? tables[(size_t) numbers[g] * table_words + w] : 0;

		if (KIND == CODE_INT8 || KIND == CODE_RABITQ)
			to[w / 2 * 2 * G + w % 2 * G + g] = word; /* upper and lower bytes alternate */
		else if (KIND == CODE_PQ8)
			for (uint32_t j = 0; j < 2; j++)
				((uint16_t *) to)[(2 * w + j) * G + g] = (uint16_t) (word >> (16 * j));
		else
			for (uint32_t j = 0; j < 4; j++)
				((uint8_t *) to)[(4 * w + j) * G + g] = (uint8_t) (word >> (8 * j));
	}
}

/* ---- bounds ---- */

#define ESTIMATE_SLACK 0x1p-21f /* ESTIMATE_ROUNDING */
#define ROTATION_SLACK 0x1p-19f /* ROTATION_ROUNDING */
#define UNIT_SLACK 0x1p-20		/* for cosine: vectors were normalised with rounding */

/* The floats behind a code (CodeNumbers). */
struct CodeTerms
{
	float term;
	float error;
	float scale;
};

/* The terms of a lane's code. */
template <int KIND>
__device__ static inline CodeTerms
code_terms(const ListsView &lists, const uint32_t *words)
{
	const uint32_t numbers = KIND == CODE_PQ8 || KIND == CODE_PQ4 ? 2 : 3;
	const uint32_t *at = words + (lists.code_words - numbers) * LIST_PLACES;
	CodeTerms terms = {__uint_as_float(__ldg(at)), __uint_as_float(__ldg(at + LIST_PLACES)), 0};

	if (numbers == 3)
		terms.scale = __uint_as_float(__ldg(at + 2 * LIST_PLACES));
	return terms;
}

/* lower_bound() and upper_bound() of the host. */
__device__ static inline float
lower_bound_of(Metric metric, float estimate, float slack, float error, float length)
{
	float least = estimate - slack;
	float root;

	if (metric != METRIC_L2)
	{
		least -= length * error * (1 + ESTIMATE_SLACK);
		return least != least ? -HUGE_VALF : least - fabsf(least) * ESTIMATE_SLACK;
	}
	if (!(least > 0))
		return 0;
	root = sqrtf(least) * (1 - ESTIMATE_SLACK) - error;
	return root > 0 ? root * root * (1 - ESTIMATE_SLACK) : 0;
}

__device__ static inline float
upper_bound_of(Metric metric, float estimate, float slack, float error, float length)
{
	float most = estimate + slack;
	float root;

	if (metric == METRIC_L2)
	{
		root = sqrtf(most > 0 ? most : 0) + error;
		most = root * root;
	}
	else
		most += length * error;
	most += fabsf(most) * 2 * ESTIMATE_SLACK;
	return most != most || estimate != estimate ? HUGE_VALF : most;
}

/* scalar_slack() of the host. */
template <int KIND>
__device__ static inline float
scalar_slack_of(const QuantizerShape &shape, const ListsQuery &query, float base,
				const CodeTerms &terms)
{
	float most = terms.scale * (float) code_most(shape);
	float slack;

	if (KIND == CODE_INT8)
	{
		float lengths = query.length;

		if (shape.metric == METRIC_L2)
			lengths += query.length + sqrtf(base > 0 ? base : 0);
		slack = most * query.error +
				ROTATION_SLACK * lengths * most * sqrtf((float) shape.dims);
	}
	else
	{
		float length = shape.metric == METRIC_L2 ? sqrtf(base > 0 ? base : 0) : query.length;

		slack = QUANTIZER_RABITQ_SURE * (terms.error * length + most * query.error);
		if (terms.error == HUGE_VALF)
			return HUGE_VALF;
	}
	return shape.metric == METRIC_L2 ? 2 * slack : slack;
}

/* The estimate of a code from its sum, and its lower bound. */
template <int KIND>
__device__ static inline float
code_estimate(const QuantizerShape &shape, const ListsQuery &query, float base, int sum,
			  const CodeTerms &terms, float *lower)
{
	float part,
		estimate,
		slack;

	if (KIND == CODE_PQ8 || KIND == CODE_PQ4)
	{
		part = (float) sum * query.scale;
		estimate = (base + terms.term) + (part + query.offset);
		slack = query.error +
				ESTIMATE_SLACK * (fabsf(base) + fabsf(terms.term) + part + fabsf(query.offset));
		*lower = lower_bound_of(shape.metric, estimate, slack, terms.error, query.length);
		return estimate;
	}
	if (KIND == CODE_RABITQ)
		sum = (int) (2 * (uint32_t) sum - code_most(shape) * (uint32_t) query.sum);
	part = query.scale * terms.scale * (float) sum;
	estimate = base + terms.term + part;
	slack = ESTIMATE_SLACK * (fabsf(base) + fabsf(terms.term) + fabsf(part));
	*lower = lower_bound_of(shape.metric, estimate,
							slack + scalar_slack_of<KIND>(shape, query, base, terms),
							KIND == CODE_INT8 ? terms.error : 0, query.length);
	return estimate;
}

/* An upper bound of the distance. */
template <int KIND>
__device__ static inline float
code_upper(const QuantizerShape &shape, const ListsQuery &query, float base,
		   const CodeTerms &terms, float estimate)
{
	float rounding =
		2 * ESTIMATE_SLACK * (fabsf(estimate) + fabsf(base) + fabsf(terms.term));

	if (KIND == CODE_PQ8 || KIND == CODE_PQ4)
		return upper_bound_of(shape.metric, estimate,
							  query.error + fabsf(query.offset) * ESTIMATE_SLACK + rounding,
							  terms.error, query.length);
	return upper_bound_of(shape.metric, estimate,
						  rounding + scalar_slack_of<KIND>(shape, query, base, terms),
						  KIND == CODE_INT8 ? terms.error : 0, query.length);
}

/* The key of the distance that a bound implies. */
__device__ static inline Key
bound_key(Metric metric, float bound)
{
	return key_of(metric != METRIC_COSINE ? (double) bound : 1 + (double) bound - UNIT_SLACK);
}

/* ---- rows ---- */

/*
 * Whether a row is a candidate, by its slot and estimate; fills *found.
 * (consider() of the CPU engine)
 */
template <int KIND>
__device__ static inline bool
consider_row(const MirrorView &mirror, const BatchView &batch, const ListsView &lists,
			 const DeviceQuery &asked, const ListsQuery &query, float base, uint32_t slot,
			 float estimate, float lower, const CodeTerms &terms, ListsFound *found)
{
	Metric metric = lists.shape.metric;
	float upper = HUGE_VALF;

	if (slot >= mirror.rows || !may_answer(mirror, batch, asked, slot))
		return false;
	if (query.choice != LISTS_ALL && (query.choice == LISTS_BY_BOUND || asked.has_beyond))
	{
		bool has_length = true;

		if (metric == METRIC_COSINE)
		{
			float norm = (float) mirror.norms[slot];

			has_length = norm > 0 && norm < HUGE_VALF && query.has_length;
		}
		if (has_length)
			upper = code_upper<KIND>(lists.shape, query, base, terms, estimate) +
					(metric == METRIC_COSINE ? (float) (2 * UNIT_SLACK) : 0);
	}
	if (asked.has_beyond && bound_key(metric, upper) < asked.beyond_key)
		return false;
	found->slot = slot;
	found->other = upper;
	if (query.choice == LISTS_BY_ESTIMATE)
	{
		found->rank = estimate == estimate ? estimate : -HUGE_VALF;
		found->other = KIND == CODE_RABITQ ? -HUGE_VALF : lower;
	}
	else
	{
		found->rank = lower;
		if (asked.has_beyond && bound_key(metric, lower) <= asked.beyond_key)
			found->other = HUGE_VALF; /* it may lie before the bound `beyond`, so it must not set a
									   * limit */
	}
	return true;
}

#endif /* GPUANN_CUDA_LISTS_ESTIMATE_CUH */
