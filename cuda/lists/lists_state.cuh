/*
 * lists_state.cuh
 *		State that the kernels of a search of lists pass on: per query and per
 *		part, and its layout.
 *
 * A part of a batch is as many queries as the state memory holds. All of it is
 * device memory, written by lists_prepare.cu, lists_probe.cu, lists_scan.cu and
 * lists_limit.cu in turn, and read by lists_answer.cu.
 */
#ifndef GPUANN_CUDA_LISTS_STATE_CUH
#define GPUANN_CUDA_LISTS_STATE_CUH

#include "cuda/common/distance.cuh"
#include "cuda/lists/lists_search.h"

#define LISTS_MAX_PHASES 7u /* slots are below 2^31, so blocks below 2^26 */
#define FIRST_BLOCKS_LOG 4u	 /* log2 of the blocks of a list that the first phase scans (16), and of
							  * the growth per phase */
#define MAX_NEAR 128u /* maximum number of probes that are chosen by least values of classes; more
					   * are chosen by radix */
#define FIRST_PLACES 64u /* rows of the nearest lists to scan in the first phase, unless 4 x `need`
						  * is more */
#define LIST_WARPS 8u		 /* per block of scans */
#define FOUND_TOO_MANY 0x80000000u /* in ListsQuery.found: the query's buffer has overflowed */

/* How rows are chosen (lists_scan.h of the CPU engine). */
enum ListsChoice
{
	LISTS_BY_BOUND = 0,
	LISTS_BY_ESTIMATE = 1,
	LISTS_ALL = 2
};

/* Per query: factors and errors of its tables, and the state of its search. */
struct alignas(16) ListsQuery
{
	float scale;   /* as in ScalarTables and PqTables */
	float length;
	float error;   /* int8: sum_error; rabitq: length_error; pq: error */
	float offset;  /* pq */
	int32_t sum;
	float limit;   /* lower bounds, or estimates, above it are rejected */
	uint32_t found; /* rows in the buffer; more than its capacity, or FOUND_TOO_MANY: it has
					 * overflowed */
	uint32_t choice;
	uint32_t need;	  /* rank of the upper bound, or estimate, that becomes the limit */
	uint32_t probes;
	uint32_t has_length; /* cosine: the query has a usable length */
	uint32_t estimated;
};

/* A pair of a query and a list that it probes. */
struct ListsPair
{
	uint32_t number; /* of the list; in `sorted` of the query */
	float base;		 /* the query's distance term of the list's centroid, added to estimates */
};

/*
 * A candidate row. By bound: `rank` is its lower bound and `other` the upper
 * one, infinite if it must not set a limit. By estimate: `rank` is the estimate
 * and `other` the lower bound, if bounds are certain.
 */
struct ListsFound
{
	float rank;
	float other;
	uint32_t slot;
};

/* The repeated scan of queries whose buffers overflowed. */
struct ListsAgain
{
	uint32_t queries;
	unsigned long long taken; /* counter of slices of their lists, taken by blocks */
};

/* The part of a batch that is being searched. Passed to kernels by value. */
struct ListsPart
{
	uint32_t first; /* index in the batch of the part's first query */
	uint32_t queries;
	uint32_t max_list_probes;
	uint32_t room;	/* capacity of a buffer, in rows */
	uint32_t phases;
	bool overflows; /* a buffer may overflow */
	uint32_t group; /* number of pairs that one item scans, for item_blocks blocks of a list */
	uint32_t item_blocks;
	bool direct; /* pairs are scanned one by one: `sorted` and the tables that lead to it are not
				  * used */
	uint32_t table_words;
	uint32_t vector_stride; /* in floats */
	ListsQuery *query;		/* queries */
	DeviceQuery *asked;		/* queries: copies, because the batch's may be in host memory */
	float *raw;				/* queries x vector_stride: in single precision */
	float *vectors;			/* the same; for cosine a separate array, normalised to length one */
	uint32_t *tables;		/* queries x table_words */
	float *values;			/* queries x lists: coarse values; their memory is reused for buffers */
	ListsFound *found;		/* queries x room */
	ListsPair *probes;		/* queries x max_list_probes: lists */
	uint32_t *ranks;		/* queries x max_list_probes: a pair's index among those of its list and
							 * class; top bit: the list is not among the query's nearest */
	ListsPair *sorted;		/* queries x max_list_probes: numbers of queries, by class and list */
	uint32_t *counts;		/* 2 x lists: pairs per class and list */
	uint32_t *starts;		/* 2 x lists + 1: index in `sorted` of the first pair */
	uint32_t *items;		/* per phase 2 x lists + 1: number of the first item */
	uint32_t *tickets;		/* behind counts; per phase: number of items taken */
	ListsAgain *again;
	uint32_t *queries_again; /* numbers of the queries to scan again */
};

/*
 * The first block of a list that a phase scans. Of lists that are not among a
 * query's nearest ones the first phase scans nothing, and the second phase
 * everything up to its end. A single phase scans all blocks.
 */
__host__ __device__ static inline uint32_t
phase_begin(const ListsPart &part, uint32_t phase, uint32_t other)
{
	if (part.phases == 1)
		return phase == 0 ? 0 : UINT32_MAX;
	return phase == 0 || (phase == 1 && other) ? 0 : 1u << (phase * FIRST_BLOCKS_LOG);
}

/* The end of the blocks that a phase scans. */
__host__ __device__ static inline uint32_t
phase_end(const ListsPart &part, uint32_t phase, uint32_t other, uint32_t blocks)
{
	uint32_t end = phase_begin(part, phase + 1, other);

	return end < blocks ? end : blocks;
}

/* Words of a query's table of integers. */
static inline uint32_t
lists_table_words(const QuantizerShape *shape)
{
	if (shape->kind == QUANTIZER_INT8)
		return 2 * ((shape->dims + 3) / 4);
	if (shape->kind == QUANTIZER_RABITQ)
		return 2 * ((shape->dims + 31) / 32 * 8);
	return shape->bits == 8 ? shape->parts * 128 : shape->parts * 4;
}

/* Whether code bounds are so wide that they exclude few rows. */
static inline bool
lists_wide(const QuantizerShape &shape)
{
	return shape.kind == QUANTIZER_PQ || (shape.kind == QUANTIZER_RABITQ && shape.bits <= 2);
}

/*
 * Rows of the nearest lists that the first phase scans: enough for a close
 * limit, but at most half the buffer, which must also hold the rest of the last
 * of these lists.
 */
__host__ __device__ static inline uint32_t
first_places(uint32_t room, uint32_t need)
{
	uint32_t places = 4 * need > FIRST_PLACES ? 4 * need : FIRST_PLACES;

	return places < room / 2 ? places : room / 2;
}

struct RowSpan; /* lists_halves.cuh */

/*
 * What kernels need beside a part to choose lists by tensor cores: if used, the
 * part's values are lower ends of error intervals. An argument of its own, so
 * that kernels of other searches are compiled as if there were none.
 */
struct ListsProducts
{
	bool used;
	uint32_t value_stride; /* of a query's values, in floats: a multiple of four */
	ListHalves lists;
	__half *halves; /* queries x lists.pitch */
	RowSpan *spans; /* queries */
};

/* Arguments of the launches for one part. */
struct ListsStep
{
	const ListsLaunch *launch;
	ListsPart part;
	ListsProducts products;
};

/*
 * The part of a launch that begins with query `first`: as many queries as the
 * state holds. False: it does not even hold one.
 */
extern bool lists_take_part(const ListsLaunch *launch, uint32_t first, ListsStep *step);

extern cudaError_t lists_prepare_launch(const ListsStep *step);
extern cudaError_t lists_coarse_launch(const ListsStep *step);
extern cudaError_t lists_probe_launch(const ListsStep *step);
extern cudaError_t lists_scan_launch(const ListsStep *step);
extern cudaError_t lists_limit_launch(const ListsStep *step, bool last);
extern cudaError_t lists_answer_launch(const ListsStep *step);
extern cudaError_t lists_prepare_allow(const cudaDeviceProp *device);
extern cudaError_t lists_coarse_allow(const cudaDeviceProp *device);
extern cudaError_t lists_scan_allow(const cudaDeviceProp *device);
extern cudaError_t lists_answer_allow(const cudaDeviceProp *device);

/* Pairs that an item scans together, if a list has `pairs` pairs on average. */
extern uint32_t lists_scan_group(const QuantizerShape *shape, uint32_t pairs);

/* x rounded up to single precision. */
__device__ static inline float
not_below_of(double x)
{
	return nextafterf((float) x, HUGE_VALF);
}

#endif /* GPUANN_CUDA_LISTS_STATE_CUH */
