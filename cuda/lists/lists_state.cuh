/*
 * lists_state.cuh
 *		What the kernels of a search of lists pass on: the state of each query,
 *		and where it lies.
 *
 * A part of a batch is as many queries as the state has room for. All of it is
 * device memory, written by lists_prepare.cu, lists_probe.cu, lists_scan.cu
 * and lists_limit.cu in turn, and read by lists_answer.cu.
 */
#ifndef GPUANN_CUDA_LISTS_STATE_CUH
#define GPUANN_CUDA_LISTS_STATE_CUH

#include "cuda/common/distance.cuh"
#include "cuda/lists/lists_search.h"

#define LISTS_MOST_PHASES 7u /* slots are below 2^31, so blocks below 2^26 */
#define FIRST_BLOCKS_LOG 4u	 /* blocks of a list that the first phase scans: 16; then 16 times as
							  * many */
#define FIRST_PLACES 64u /* rows of the nearest lists, or four times what sets a limit */
#define LIST_WARPS 8u		 /* of a block that scans */
#define FOUND_TOO_MANY 0x80000000u /* a query's buffer did not suffice */

/* Which rows are chosen (lists_scan.h of the CPU engine). */
enum ListsChoice
{
	LISTS_BY_BOUND = 0,
	LISTS_BY_ESTIMATE = 1,
	LISTS_ALL = 2
};

/* A query as scans see it: the numbers of its tables, and what it has found. */
struct alignas(16) ListsQuery
{
	float scale;   /* as ScalarTables and PqTables have them */
	float length;
	float error;   /* int8: sum_error; rabitq: length_error; pq: error */
	float offset;  /* pq */
	int32_t sum;
	float limit;   /* lower bounds, or estimates, above it are not chosen */
	uint32_t found; /* rows in the buffer; FOUND_TOO_MANY or more: there are more than that holds */
	uint32_t choice;
	uint32_t need;	  /* upper bounds, or estimates, that set the limit */
	uint32_t probes;
	uint32_t has_length; /* distances of cosine need one */
	uint32_t estimated;
};

/* A list that a query probes, or a query that probes a list. */
struct ListsPair
{
	uint32_t number; /* of the list, or of the query */
	float base;		 /* the query's part of estimates */
};

/*
 * A row that may be chosen. By bound `rank` is its lower bound and `other` the
 * upper one, infinite where that does not count; by estimate `rank` is the
 * estimate and `other` the lower bound, if that is certain.
 */
struct ListsFound
{
	float rank;
	float other;
	uint32_t slot;
};

/* What is scanned again, for queries whose buffers did not suffice. */
struct ListsAgain
{
	uint32_t queries;
	unsigned long long taken; /* slices of lists that they probe */
};

/* The part of a batch that is being searched. Passed to kernels by value. */
struct ListsPart
{
	uint32_t first; /* query of the batch */
	uint32_t queries;
	uint32_t most_probes;
	uint32_t room;	/* rows of a buffer */
	uint32_t phases;
	bool overflows; /* a buffer may have no room */
	uint32_t group; /* pairs that are scanned together, of so many blocks */
	uint32_t item_blocks;
	bool direct; /* pairs are scanned one by one, as they are: `sorted` and what leads to it is not
				  * used */
	uint32_t table_words;
	uint32_t vector_stride; /* floats */
	ListsQuery *query;		/* queries */
	DeviceQuery *asked;		/* queries: the batch's may be in the host's memory */
	float *raw;				/* queries x vector_stride: widened */
	float *vectors;			/* the same; under cosine apart, of length one */
	uint32_t *tables;		/* queries x table_words */
	float *values;			/* queries x lists; where buffers are later */
	ListsFound *found;		/* queries x room */
	ListsPair *probes;		/* queries x most_probes: lists */
	uint32_t *ranks;		/* queries x most_probes: the pair's place among those of its list and
							 * class; the highest bit: not among the query's nearest */
	ListsPair *sorted;		/* queries x most_probes: queries, by class and list */
	uint32_t *counts;		/* 2 x lists: pairs of each class and list */
	uint32_t *starts;		/* 2 x lists + 1: the first of them in `sorted` */
	uint32_t *items;		/* of each phase 2 x lists + 1: the first item */
	uint32_t *tickets;		/* behind counts; of each phase: items taken */
	ListsAgain *again;
	uint32_t *queries_again; /* queries: which are scanned again */
};

/*
 * The first block that a phase scans of a list: of lists that are not a query's
 * nearest the first phase scans nothing, and the second what it scans of others
 * and what comes before. A single phase scans all.
 */
__host__ __device__ static inline uint32_t
phase_begin(const ListsPart &part, uint32_t phase, uint32_t other)
{
	if (part.phases == 1)
		return phase == 0 ? 0 : UINT32_MAX;
	return phase == 0 || (phase == 1 && other) ? 0 : 1u << (phase * FIRST_BLOCKS_LOG);
}

/* Where it ends. */
__host__ __device__ static inline uint32_t
phase_end(const ListsPart &part, uint32_t phase, uint32_t other, uint32_t blocks)
{
	uint32_t end = phase_begin(part, phase + 1, other);

	return end < blocks ? end : blocks;
}

/* Words of a query's integers, as scans load them. */
static inline uint32_t
lists_table_words(const QuantizerShape *shape)
{
	if (shape->kind == QUANTIZER_INT8)
		return 2 * ((shape->dims + 3) / 4);
	if (shape->kind == QUANTIZER_RABITQ)
		return 2 * ((shape->dims + 31) / 32 * 8);
	return shape->bits == 8 ? shape->parts * 128 : shape->parts * 4;
}

/* Whether the bounds of codes exclude little. */
static inline bool
lists_wide(const QuantizerShape &shape)
{
	return shape.kind == QUANTIZER_PQ || (shape.kind == QUANTIZER_RABITQ && shape.bits <= 2);
}

/*
 * Rows of the nearest lists that are scanned first: enough for a limit that is
 * close, not too many for the buffer, whatever the last of these lists has.
 */
__host__ __device__ static inline uint32_t
first_places(uint32_t room, uint32_t need)
{
	uint32_t places = 4 * need > FIRST_PLACES ? 4 * need : FIRST_PLACES;

	return places < room / 2 ? places : room / 2;
}

/* What is launched for a part. */
struct ListsStep
{
	const ListsLaunch *launch;
	ListsPart part;
};

/*
 * The part of a launch that begins with a query, as long as the state has room
 * for; false: it has none for a single one.
 */
extern bool lists_take_part(const ListsLaunch *launch, uint32_t first, ListsPart *part);

extern cudaError_t lists_prepare_launch(const ListsStep *step);
extern cudaError_t lists_probe_launch(const ListsStep *step);
extern cudaError_t lists_scan_launch(const ListsStep *step);
extern cudaError_t lists_limit_launch(const ListsStep *step, bool last);
extern cudaError_t lists_answer_launch(const ListsStep *step);
extern cudaError_t lists_prepare_allow(const cudaDeviceProp *device);
extern cudaError_t lists_scan_allow(const cudaDeviceProp *device);
extern cudaError_t lists_answer_allow(const cudaDeviceProp *device);

/* Pairs that a scan takes together where so many probe a list, on average. */
extern uint32_t lists_scan_group(const QuantizerShape *shape, uint32_t pairs);

/* A number in single precision that is not below a double. */
__device__ static inline float
not_below_of(double x)
{
	return nextafterf((float) x, HUGE_VALF);
}

/* The number that a key stands for (fast_key()). */
__device__ static inline float
float_of_key(uint32_t key)
{
	return __uint_as_float(key >> 31 ? key & 0x7FFFFFFFu : ~key);
}

#endif /* GPUANN_CUDA_LISTS_STATE_CUH */
