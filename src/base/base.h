/*
 * base.h
 *		What every room shares: index options, settings of scans, the type and
 *		metric of an index.
 */
#ifndef GPUANN_BASE_H
#define GPUANN_BASE_H

#include "postgres.h"

#include <math.h>

#include "utils/rel.h"

#include "engine/engine.h"
#include "base/faults.h"

#if PG_VERSION_NUM < 150000
#error "gpuann needs PostgreSQL 15 or newer"
#endif

/* Index options, with pgvector's ranges */
#define GPUANN_DEFAULT_M	16
#define GPUANN_MIN_M		2
#define GPUANN_MAX_M		100
#define GPUANN_DEFAULT_EF_CONSTRUCTION	64
#define GPUANN_MIN_EF_CONSTRUCTION		4
#define GPUANN_MAX_EF_CONSTRUCTION		1000

/*
 * ef_search, as an option and as a setting; GPUANN_UNSET: the setting leaves it
 * to the option, the option to the default
 */
#define GPUANN_UNSET				(-1)
#define GPUANN_DEFAULT_EF_SEARCH	40
#define GPUANN_DEFAULT_LISTS_EF		16	/* of an index with lists: more finds no nearer rows */
#define GPUANN_MIN_EF_SEARCH		1
#define GPUANN_MAX_EF_SEARCH		ENGINE_MAX_EF

/* gpuann.max_scan_tuples; GPUANN_UNSET: no limit */
#define GPUANN_MAX_MAX_SCAN_TUPLES	INT_MAX

/*
 * gpuann.pending_limit: unlinked rows after which an inserter links a slice,
 * where no worker does
 */
#define GPUANN_DEFAULT_PENDING_LIMIT	10000
#define GPUANN_MIN_PENDING_LIMIT		0
#define GPUANN_MAX_PENDING_LIMIT		INT_MAX

/*
 * Options of indexes with lists; GPUANN_UNSET: chosen by rows and dimensions.
 * probes is a setting too, and so is how many rows are ranked exactly for each
 * row wanted.
 */
#define GPUANN_MIN_LISTS		1
#define GPUANN_MAX_LISTS		32768	/* as in pgvector */
#define GPUANN_MIN_CODE_BITS	1
#define GPUANN_MAX_CODE_BITS	8
#define GPUANN_MIN_PQ_M			1
#define GPUANN_MAX_PQ_M			4096
#define GPUANN_MIN_PROBES		1
#define GPUANN_MAX_PROBES		GPUANN_MAX_LISTS
#define GPUANN_MAX_RERANK		INT_MAX

/*
 * The strategy number of the ordering operator, and the support functions of an
 * operator class (pgvector's numbers)
 */
#define GPUANN_STRATEGY_DISTANCE	1
#define GPUANN_DISTANCE_PROC		1
#define GPUANN_TYPE_PROC			2	/* (internal) returns internal: const GpuannTypeInfo * */
#define GPUANN_NUM_PROCS			2

/* Option method */
typedef enum GpuannMethod
{
	GPUANN_METHOD_GRAPH,
	GPUANN_METHOD_IVFPQ			/* lists of codes */
} GpuannMethod;

/* Option quantizer */
typedef enum GpuannQuantizer
{
	GPUANN_QUANTIZER_RABITQ,
	GPUANN_QUANTIZER_PQ,
	GPUANN_QUANTIZER_INT8
} GpuannQuantizer;

typedef struct GpuannOptions
{
	int32		vl_len_;		/* varlena header, do not touch */
	int			m;
	int			ef_construction;
	int			ef_search;		/* or GPUANN_UNSET */
	int			method;			/* GpuannMethod */
	bool		mirror;			/* the server may hold a copy */

	/* method ivfpq; or GPUANN_UNSET */
	int			lists;
	int			quantizer;		/* GpuannQuantizer */
	int			code_bits;
	int			pq_m;
	int			probes;
	int			cooc;			/* CoocMode */
} GpuannOptions;

/* What an operator class indexes: returned by its support function 2. */
typedef struct GpuannTypeInfo
{
	ElementType type;
	Metric		metric;
	int			max_dims;
	/* Dimensions of a detoasted value, and where its elements are. */
	int			(*dims) (Pointer value);
	const void *(*elements) (Pointer value);
} GpuannTypeInfo;

/* gpuann.iterative_scan (architecture.md, I4) */
typedef enum GpuannIterativeScan
{
	GPUANN_ITERATIVE_COMPLETE,
	GPUANN_ITERATIVE_STRICT,
	GPUANN_ITERATIVE_RELAXED,
	GPUANN_ITERATIVE_OFF
} GpuannIterativeScan;

/* A place in the order of answers: (distance, slot). */
typedef struct SearchBound
{
	bool		set;
	double		distance;
	uint32		slot;
} SearchBound;

/* Settings of scans and inserts (options.c) */
extern int	gpuann_ef_search;	/* or GPUANN_UNSET: gpuann_effective_ef_search() */
extern int	gpuann_probes;		/* or GPUANN_UNSET: gpuann_effective_probes() */
extern int	gpuann_rerank;		/* or GPUANN_UNSET: what the codes' bounds leave open */
extern bool gpuann_exact;
extern int	gpuann_iterative_scan;
extern int	gpuann_max_scan_tuples; /* or GPUANN_UNSET */
extern int	gpuann_log_min_duration;	/* in milliseconds, or -1 */
extern int	gpuann_pending_limit;
extern bool gpuann_plan_node;	/* use the plan node */
extern bool gpuann_server;		/* use the server in this session */

/*
 * Developer settings (options.c): shortcuts of the page path that can be turned
 * off to bisect a failure (buffer_hints.h)
 */
extern bool gpuann_debug_unpinned_distances;

/* options.c */

/* Declare the index options and settings: called by _PG_init. */
extern void gpuann_options_init(void);

/* amoptions */
extern bytea *gpuann_parse_options(Datum reloptions, bool validate);

/* Whether an open relation is an index of this access method. */
extern bool is_gpuann_index(Relation relation);

extern GpuannMethod gpuann_option_method(Relation index);
extern int	gpuann_option_m(Relation index);
extern int	gpuann_option_ef_construction(Relation index);
extern bool gpuann_option_mirror(Relation index);

/*
 * How broadly a scan searches first: what the session has set, else the index's
 * option, else the default of an index that was built with lists, or without.
 */
extern int	gpuann_effective_ef_search(Relation index, bool lists);
extern const GpuannTypeInfo *gpuann_type_info(Relation index);

/*
 * How many of these lists a scan probes that searches for ef rows: as many as
 * are set for GPUANN_DEFAULT_EF_SEARCH rows or fewer, more for more.
 */
extern uint32 gpuann_effective_probes(Relation index, uint32 lists, double ef);

/*
 * types.c: The dimensions of the column to be indexed. Errors out on a column
 * that cannot be.
 */
extern uint32 gpuann_column_dims(const GpuannTypeInfo *info, Relation index);

/*
 * Whether the value is indexed: sets *elements to its elements. NULL and, for
 * cosine, zero vectors are not. Errors out on wrong dimensions. *freeme is a
 * detoasted copy to pfree, or NULL.
 */
extern bool gpuann_value_elements(const GpuannTypeInfo *info, uint32 dims, Datum value, bool isnull,
								  const void **elements, Pointer *freeme);

/* Error out on a query of other dimensions than the index's. */
extern void gpuann_check_query_dims(const GpuannTypeInfo *info, uint32 dims, Pointer value);

/*
 * Whether all elements are zero. Such a vector has no direction, so no place in
 * a cosine index.
 */
extern bool gpuann_all_zero(const GpuannTypeInfo *info, uint32 dims, const void *elements);

/*
 * A value of the type from stored elements, as the type's functions take it:
 * how many bytes it has; and write its header to memory of that many bytes,
 * maximally aligned, and return where its elements belong.
 */
extern Size gpuann_value_bytes(const GpuannTypeInfo *info, uint32 dims);
extern void *gpuann_value_begin(const GpuannTypeInfo *info, uint32 dims, void *value);

/*
 * Widen a range of Euclidean norms, rounded outward to single precision, to
 * include that of stored elements. Bits have no norms: their ranges stay empty.
 */
#define GPUANN_NO_LEAST_NORM	INFINITY
#define GPUANN_NO_MOST_NORM		0.0f
extern void gpuann_widen_norms(ElementType type, uint32 dims, const void *elements,
							   float *least_norm, float *most_norm);

#endif							/* GPUANN_BASE_H */
