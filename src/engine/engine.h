/*
 * engine.h
 *		The engine's interface. An engine answers queries from mirrors, on CPU
 *		threads or on a GPU.
 *
 * Four nouns. An Engine owns mirrors and the machinery to search them. A mirror
 * is a copy of one index: vectors, versions, graph rows, seeds, all addressed
 * by slot. One with lists (METHOD_IVFPQ) has codes of rows in lists instead of
 * a graph: its rows have degree 1, the number of a slot's list. A query is one
 * search of one mirror. A job changes a mirror. Queries and jobs are
 * asynchronous: submit returns at once, poll reports what has completed.
 *
 * Plain C: no PostgreSQL, no CUDA. Both engines (cpu.c here, cuda/ as a shared
 * object) implement EngineOps and pass one conformance suite. All functions of
 * one Engine are called from one thread, its owner; an engine's own threads
 * have every signal blocked. The only call an engine makes back is config.wake,
 * from any thread.
 *
 * Published order: data, then counts. A query sees the counts captured at its
 * submit, or later ones; a graph row names published slots only.
 */
#ifndef GPUANN_ENGINE_H
#define GPUANN_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/filter.h"

#define ENGINE_ABI_VERSION	10

#define ENGINE_MAX_SLOTS	0x7FFFFFFFu /* slots are below 2^31 */
#define NO_SLOT				0xFFFFFFFFu /* an empty place of a graph row */
#define ENGINE_MAX_DEGREE	200
#define ENGINE_MAX_EF		10000
#define ENGINE_MAX_DIMS		16000	/* of float and half */
#define ENGINE_MAX_BIT_DIMS 64000
#define ENGINE_MAX_LIST_DIMS 4096	/* of mirrors with lists */
#define ENGINE_MAX_LISTS	16384
#define ENGINE_RERANK_ALL	0xFFFFFFFFu
#define ENGINE_SEEDS_TRIED	256		/* seeds a graph search starts from, unless the query says
									 * otherwise */
#define FILTER_TRUST		2		/* a filtered graph search scans all rows unless it found k and
									 * k / FILTER_TRUST of them lie within the distance explored */

typedef enum EngineStatus
{
	ENGINE_OK = 0,
	ENGINE_BUSY,				/* not now: too much in flight, poll and try again */
	ENGINE_NO_MEMORY,			/* over the memory limit, or none left; text has the figures */
	ENGINE_INVALID,				/* an argument is out of its range */
	ENGINE_NOT_FOUND,			/* no such mirror or job */
	ENGINE_CANCELLED,
	ENGINE_UNSUPPORTED,			/* this engine does not have it */
	ENGINE_NO_DEVICE,			/* no usable GPU */
	ENGINE_FAILED				/* the engine is broken; its process should end */
} EngineStatus;

/* What went wrong, in one line: lower case, no full stop. */
typedef struct EngineError
{
	EngineStatus status;
	char		text[256];
} EngineError;

typedef enum ElementType
{
	ELEMENT_FLOAT = 1,			/* IEEE single, native order */
	ELEMENT_HALF = 2,			/* IEEE half, native order */
	ELEMENT_BIT = 3				/* packed bits, first bit highest; those beyond the last are zero */
} ElementType;

typedef enum Metric
{
	METRIC_L2 = 1,				/* ranks by the square */
	METRIC_IP = 2,				/* the negated inner product */
	METRIC_COSINE = 3,			/* 1 - ab / sqrt(aa * bb); infinity when a norm is zero */
	METRIC_L1 = 4,				/* the sum of |a - b| */
	METRIC_HAMMING = 5,			/* bits that differ */
	METRIC_JACCARD = 6			/* 1 - |a and b| / |a or b|; 1 when no bit is in both */
} Metric;

typedef enum SearchMethod
{
	METHOD_GRAPH = 1,
	METHOD_IVFPQ = 2,			/* lists of codes */
	METHOD_EXACT = 3
} SearchMethod;

/* How rows become codes (quantizer.h in src/engine/quantizer). */
typedef enum QuantizerKind
{
	QUANTIZER_INT8 = 1,			/* a byte a dimension, after a rotation; a scale per row */
	QUANTIZER_RABITQ = 2,		/* 1 to 8 bits a dimension, after a rotation (Gao, Long 2024) */
	QUANTIZER_PQ = 3			/* 4 or 8 bits a sub-space (Jegou, Douze, Schmid 2011) */
} QuantizerKind;

/* Whether pq codes of lists have co-occurrence codes beside them (cooc.h). */
typedef enum CoocMode
{
	COOC_AUTO = 0,				/* with 16 sub-spaces, of lists where that saves enough words */
	COOC_ON = 1,				/* of all lists, whatever they save */
	COOC_OFF = 2
} CoocMode;

/* Where the parts of a mirror live. */
typedef enum Residency
{
	RESIDENCY_FULL = 1,			/* everything in the engine's own memory */
	RESIDENCY_COMPRESSED = 2,	/* codes there; vectors that do not fit in pinned host memory */
	RESIDENCY_HYBRID = 3		/* reserved: codes there, graph and vectors in host memory */
} Residency;

/* How a mirror uses several devices. */
typedef enum Placement
{
	PLACEMENT_SINGLE = 1,
	PLACEMENT_SHARD = 2,		/* reserved */
	PLACEMENT_REPLICA = 3		/* reserved */
} Placement;

typedef uint64_t MirrorId;		/* 0 is none; never reused within one Engine */
typedef uint64_t JobId;			/* 0 is none */

/* Bytes of one vector. */
static inline size_t
engine_vector_bytes(ElementType type, uint32_t dims)
{
	if (type == ELEMENT_FLOAT)
		return (size_t) dims * 4;
	if (type == ELEMENT_HALF)
		return (size_t) dims * 2;
	return ((size_t) dims + 7) / 8;
}

/*
 * Whether there is a distance for a type and metric: bits have Hamming and
 * Jaccard, the others have the rest.
 */
static inline bool
engine_has_distance(ElementType type, Metric metric)
{
	if (type == ELEMENT_BIT)
		return metric == METRIC_HAMMING || metric == METRIC_JACCARD;
	return (type == ELEMENT_FLOAT || type == ELEMENT_HALF) && metric >= METRIC_L2 &&
		   metric <= METRIC_L1;
}

/* The greatest number of dimensions of a type. */
static inline uint32_t
engine_max_dims(ElementType type)
{
	return type == ELEMENT_BIT ? ENGINE_MAX_BIT_DIMS : ENGINE_MAX_DIMS;
}

/*
 * The one order of answers: by distance, then by slot. -0 equals +0, infinity
 * is last, NaN never enters.
 */
static inline bool
engine_before(double distance_a, uint32_t slot_a, double distance_b, uint32_t slot_b)
{
	if (distance_a != distance_b)
		return distance_a < distance_b;
	return slot_a < slot_b;
}

/* Ways of exact search that the CUDA engine chooses from. */
typedef enum ExactWay
{
	EXACT_CHOSEN = 0,
	EXACT_SCAN,					/* of few results: a scan, then its lists merged, */
	EXACT_FUSED,				/* both in one launch, */
	EXACT_TILES					/* or tiles of queries and rows multiplied */
} ExactWay;

/*
 * What tests and benchmarks force upon the CUDA engine where it is possible; of
 * zero it chooses, and the server forces nothing. No exact answer depends on
 * it. One process opens all its engines alike.
 */
typedef struct EngineForced
{
	ExactWay	exact;
	uint32_t	exact_tile;		/* rows of a tile of searches of many results */
	uint32_t	tiles_queries;	/* tiles are chosen from this many queries on, */
	uint32_t	tiles_rows;		/* and this many rows; both or none */
	uint32_t	tiles_products; /* computed by warp groups, of this many queries (64, 128, 256);
								 * 1: by warps */
	uint32_t	stream_tile;	/* rows of a tile that comes from host memory */
	bool		search_by_rows; /* graph searches measure stored rows where they could measure
								 * codes */
} EngineForced;

typedef struct EngineConfig
{
	int			threads;		/* CPU engine: search and link threads; 0: one per core that the
								 * process may use */
	int			device;			/* CUDA engine: device number; -1: the first usable one */
	uint64_t	memory_limit;	/* bytes of mirrors (and context); 0: the engine's default */
	uint64_t	host_rows_limit;	/* CUDA engine: bytes of vectors in host memory
									 * (RESIDENCY_COMPRESSED); 0: none */
	void		(*wake) (void *arg);	/* called, from any thread, when something became visible to
										 * poll; or NULL */
	void	   *wake_arg;
	const char *simd;			/* CPU engine: force "portable", "avx2", "avx512"; NULL: the best
								 * there is */
	EngineForced forced;
} EngineConfig;

typedef struct EngineInfo
{
	char		name[16];		/* "cpu", "cuda" */
	char		device[96];		/* model of the processor or GPU, SIMD level or architecture */
	uint32_t	max_batch;		/* queries an engine runs at once; a larger submit is split, never
								 * refused */
} EngineInfo;

typedef struct EngineMemory
{
	uint64_t	limit;			/* what mirrors and context may use */
	uint64_t	used;			/* the sum of what follows */
	uint64_t	context;		/* device context and code, 0 on the CPU */
	uint64_t	vectors;		/* with their columns */
	uint64_t	graph;
	uint64_t	norms;
	uint64_t	state;			/* per-query state, staging, tables */
	/*
	 * a GPU's engine: of the host's memory, apart from all above; the CPU
	 * engine says 0
	 */
	uint64_t	host_used;		/* pinned staging, tables, and */
	uint64_t	host_rows_limit;
	uint64_t	host_rows;		/* vectors of mirrors */
} EngineMemory;

/*
 * Lists and their codes. Rows and centroids are float32 here, and under cosine
 * rows are divided by their lengths: so what trains, assigns and encodes gets
 * the same numbers everywhere, and equal codebooks give equal codes.
 */
typedef struct ListSpec
{
	uint32_t	lists;			/* 1 .. ENGINE_MAX_LISTS */
	QuantizerKind quantizer;
	uint32_t	bits;			/* rabitq: a dimension; pq: a sub-space; int8: 8 */
	uint32_t	parts;			/* pq: sub-spaces; else 0 */
	uint64_t	seed;			/* of rotations, samples and training */
	CoocMode	cooc;			/* COOC_ON: pq of 8 bits only. No answer depends on it */
} ListSpec;

typedef struct MirrorSpec
{
	uint32_t	dims;
	ElementType type;
	Metric		metric;
	SearchMethod method;		/* METHOD_GRAPH; METHOD_IVFPQ: floats or halves, of at most
								 * ENGINE_MAX_LIST_DIMS, by L2, inner product or cosine */
	uint32_t	degree;			/* 4 .. ENGINE_MAX_DEGREE; METHOD_IVFPQ: 1 */
	uint32_t	capacity;		/* rows expected; a mirror grows beyond it in place */
	Residency	residency;
	Placement	placement;
	int			device;			/* -1: the engine's */
	ListSpec	lists;			/* METHOD_IVFPQ; else zero */
	uint32_t	columns;		/* values beside each vector, for conditions; 0: none */
	FilterKind	column_kinds[FILTER_MAX_COLUMNS];
} MirrorSpec;

typedef struct MirrorInfo
{
	uint32_t	rows;			/* slots below this are published */
	uint32_t	linked;			/* of them, in the graph or in a list */
	uint32_t	pending;		/* appended or overwritten, not yet linked: scanned exactly */
	uint32_t	dead;			/* dead or absent: searched through, never returned */
	uint32_t	seeds;
	uint64_t	position;		/* pending list position the mirror is current to */
	uint64_t	bytes;			/* vectors, columns, graph, norms, versions */
	uint64_t	host_bytes;		/* of a GPU's mirror: vectors in host memory, not in bytes; the CPU
								 * engine says 0 */
} MirrorInfo;

/* One answer. */
typedef struct SearchResult
{
	double		distance;		/* as I10 */
	uint32_t	slot;
	uint32_t	version;
} SearchResult;

/* What a search cost; what one of lists cost, behind the semicolons. */
typedef struct SearchCounters
{
	uint32_t	expanded;		/* graph rows read; lists read */
	uint32_t	distances;		/* distances computed, pending and seeds included; of rows re-ranked
								 * and pending */
	uint32_t	iterations;		/* rounds of expansion; codes estimated */
	uint32_t	pending;		/* rows searched exactly because not yet linked */
	uint32_t	queue_us;		/* from submit to start */
	uint32_t	engine_us;		/* from start to end */
} SearchCounters;

/*
 * One search. The caller owns it and keeps it (and results) until poll returns
 * it; everything else that the pointers name is read during submit only.
 * results and the outputs are written during poll, by its caller.
 *
 * Of the rows in the lists read, those are measured exactly that the lower
 * bounds of their codes do not exclude (rerank 0; rabitq's bounds are wrong for
 * 3 of 100 rows), or rerank rows, the nearest by estimate, but for those that
 * certain bounds exclude, or all but those (ENGINE_RERANK_ALL). Neither threads
 * nor other queries change the answer. A GPU's engine measures all rows for
 * more than 1,024 results, and before there are centroids; a query that is to
 * re-rank more than 4,096 rows gets all that certain bounds do not exclude.
 *
 * A filter or program changes which rows are answers and nothing else. How many
 * they let pass decides, in the engine, whether only these rows are measured,
 * or the graph or the lists are searched.
 */
typedef struct EngineQuery
{
	/* in */
	MirrorId	mirror;
	SearchMethod method;		/* the mirror's or METHOD_EXACT */
	uint32_t	k;				/* results wanted, at least 1 */
	uint32_t	ef;				/* graph: breadth of the list, raised to k; 1 .. ENGINE_MAX_EF (k
								 * above that: METHOD_EXACT) */
	uint32_t	seeds;			/* graph: seeds tried; 0: ENGINE_SEEDS_TRIED */
	uint32_t	max_iterations; /* graph: expansions after which to stop; 0: none */
	uint32_t	probes;			/* lists: nearest lists read, at least 1 */
	uint32_t	rerank;			/* lists: rows measured exactly, see above */
	bool		reference;		/* graph: width 1, exact distances while walking (see search.h): for
								 * tests. ENGINE_UNSUPPORTED by a CUDA engine without
								 * cuda/tests/reference.cu */
	bool		lone;			/* the caller only waits for this query: poll may run the search
								 * itself, which saves waking a thread */
	bool		has_beyond;		/* only answers after (beyond_distance, beyond_slot) */
	double		beyond_distance;
	uint32_t	beyond_slot;
	const void *vector;			/* dims elements of the mirror's type */
	const uint64_t *exclude;	/* optional: bit s set: slot s is not an answer; exclude_slots
								 * bits */
	uint32_t	exclude_slots;
	const uint64_t *filter;		/* optional: only slots whose bit is set are answers; filter_slots
								 * bits */
	uint32_t	filter_slots;
	const FilterProgram *program;	/* optional: only rows are answers whose columns may pass it;
									 * beside filter: rows that both let pass */
	void	   *user;			/* the caller's, untouched */

	/* where the answer goes */
	SearchResult *results;		/* room for k */

	/* out */
	EngineStatus status;
	uint32_t	count;	/* results, ordered by (distance, slot), no slot twice; fewer than k only if
						 * there are no more (exact, or a graph search with a filter) or no more
						 * were reached (graph) */
	uint64_t	position;		/* pending list position covered: every entry before it was
								 * considered */
	uint32_t	rows;			/* published rows the search saw */
	uint32_t	passing;		/* of them, those that the program may let pass, also dead ones and
								 * those outside of filter */
	SearchCounters counters;
	EngineError error;			/* when status is not ENGINE_OK */
} EngineQuery;

typedef enum JobKind
{
	JOB_APPEND = 1,	   /* rows [first_slot, first_slot + count), first_slot >= published
								 * rows; a gap becomes absent slots */
	JOB_OVERWRITE = 2, /* slots[count] below the published rows get new vectors and
								 * versions, and become pending */
	JOB_DEAD = 3,	   /* slots[count] become dead; versions[] are their new versions */
	JOB_GRAPH = 4,	   /* rows[] become the graph rows of slots[count], which may be pending
								 * and become linked */
	JOB_SEEDS = 5,	   /* slots[count] become the seeds, in this order */
	JOB_LINK = 6,	   /* link slots[count] (pending; others are skipped), or with slots
								 * NULL everything pending */
	JOB_REPAIR =
		7, /* replace the edges to dead slots in the live linked rows among slots[count]; with slots
		    * NULL in all live linked rows, and then make every one of them reachable from the first
		    * seeds */
	JOB_DROP = 8, /* drop the mirror; queries in flight finish first */
	JOB_CODEBOOK = 9, /* lists: floats [first_slot, first_slot + count) of the centroids (lists *
					   * dims) and, behind them, the quantizer's codebook, from vectors; the parts
					   * come in order, once. Until the last has come no row can be linked */
	JOB_TRAIN = 10	  /* lists: make centroids and codebook from a sample of the live rows */
} JobKind;

/*
 * One change of a mirror. The caller keeps what the pointers name until the job
 * has completed. Jobs of one mirror run in the order submitted. A failed job
 * leaves the mirror as it was, but for JOB_LINK and JOB_REPAIR, which may have
 * done a part. A link is refused by ENGINE_UNSUPPORTED (a GPU's, of a mirror
 * with rows in host memory, if it repairs or rows have no codes, or whose
 * searches for candidates exceed the shared memory) or ENGINE_NO_MEMORY, with
 * an empty result: then nothing has changed, the caller links by other means,
 * and tells the graph by JOB_GRAPH and JOB_SEEDS.
 *
 * A mirror with lists links by assigning slots to the nearest centroid and
 * encoding them; JOB_GRAPH says which slot is in which list (NO_SLOT: leave
 * it), and the engine encodes it from its vector. A slot that dies or is
 * overwritten leaves its list at once. There are no seeds and no repairs.
 * JOB_TRAIN takes at most count rows for its sample (0: 256 for each list), and
 * ends with ENGINE_NO_MEMORY if memory does not do for a row of each list.
 */
typedef struct EngineJob
{
	JobKind		kind;
	MirrorId	mirror;
	uint32_t	count;
	uint32_t	first_slot;		/* JOB_APPEND */
	const uint32_t *slots;		/* all others */
	const uint32_t *versions;	/* APPEND, OVERWRITE, DEAD; an appended row whose slot is dead has
								 * its bit in dead */
	const uint64_t *dead;		/* APPEND: optional bitmap of count bits: these rows are dead, and
								 * never pending */
	const void *vectors;		/* APPEND, OVERWRITE: count * engine_vector_bytes */
	const void *columns;		/* the same, of a mirror with columns: count records, each of
								 * filter_record_bytes() */
	const uint32_t *rows;		/* GRAPH: count * degree slots, NO_SLOT after the last; unpublished
								 * slots are left out */
	bool		has_position;	/* publish position with this job: the mirror is current to it */
	uint64_t	position;
	uint32_t	ef_construction;	/* graph, LINK and REPAIR: breadth of the candidate search, 4 ..
									 * 1000 */
	int			threads;		/* LINK, REPAIR, TRAIN: threads to use, 0: the engine's */
	bool		defers;			/* REPAIR: the result has no rows, unless memory is short or
								 * there would be more than ENGINE_DEFERRED_MAX; those that
								 * changed are in that of the mirror's next one that does not
								 * defer, as they are then */
	uint32_t	rounds;			/* TRAIN: of k-means, 0: 10 */
	bool		balance;		/* TRAIN: small lists are given up for seeds in large ones */
	uint64_t	memory;			/* TRAIN: bytes it may allocate, with the sample; 0: all that the
								 * engine may */
} EngineJob;

#define ENGINE_DEFERRED_MAX (1u << 20)

typedef struct JobProgress
{
	bool		completed;
	EngineStatus status;		/* when completed */
	uint32_t	done;			/* of total: rows; of a JOB_REPAIR, rows that named dead slots */
	uint32_t	total;
	EngineError error;
} JobProgress;

/*
 * What a JOB_LINK, JOB_REPAIR or JOB_TRAIN changed, also one that was cut
 * short. Owned by the engine until job_release. After a repair no seed is dead.
 * Of a job that ended with ENGINE_CANCELLED for lack of memory for its result
 * nothing may be here: the caller creates the mirror anew. A training has
 * floats alone, as JOB_CODEBOOK takes them.
 */
typedef struct LinkResult
{
	uint32_t	count;
	const uint32_t *slots;		/* ascending: rows linked or repaired and rows that took a reverse
								 * edge */
	const uint32_t *rows;		/* count * degree, NO_SLOT after the last */
	uint32_t	nseeds;			/* the mirror's seeds now */
	const uint32_t *seeds;
	const uint64_t *linked;		/* bitmap of count bits: the slot is linked; one that is not took an
								 * edge, or its link was cut short */
	uint32_t	code_bytes;		/* lists: of a code */
	const unsigned char *codes; /* lists: of slots, as quantizer_encode() makes them */
	double		distance;		/* lists: the sum of the rows' squared distances from their
								 * centroids, added in the order of slots */
	uint32_t	nfloats;
	const float *floats;
	uint32_t	sampled;		/* TRAIN: rows of the sample */
	double		inertia;		/* TRAIN: the sum of their squared distances from the centroids of
								 * the last round but one */
} LinkResult;

typedef struct Engine Engine;	/* each engine's own */

/*
 * One engine. Functions return ENGINE_OK or fill *error. Entries marked
 * optional may be NULL.
 */
typedef struct EngineOps
{
	uint32_t	abi_version;	/* ENGINE_ABI_VERSION, checked when an engine is loaded */

	EngineStatus (*open) (const EngineConfig *config, Engine **engine, EngineError *error);
	void		(*close) (Engine *engine);	/* waits for what is in flight, frees everything */
	void		(*info) (Engine *engine, EngineInfo *info);
	void		(*memory) (Engine *engine, EngineMemory *memory);

	/*
	 * An empty mirror. ENGINE_NO_MEMORY with figures when capacity does not fit
	 * under the limit.
	 */
	EngineStatus (*mirror_create)(Engine *engine, const MirrorSpec *spec, MirrorId *id,
								  EngineError *error);
	EngineStatus (*mirror_info) (Engine *engine, MirrorId id, MirrorInfo *info, EngineError *error);
	/*
	 * Copy graph rows and versions of slots out, for tests and checks: rows has
	 * room for count * degree.
	 */
	EngineStatus (*mirror_rows)(Engine *engine, MirrorId id, const uint32_t *slots, uint32_t count,
								uint32_t *rows, uint32_t *versions, EngineError *error);
	/*
	 * How often each list of a mirror was probed since it was made, by queries
	 * that poll has returned and by some in flight; count is the number of its
	 * lists. Equal queries count equally in every engine, but one that is
	 * answered by measuring all rows probes no list. Waits for a copy of the
	 * counts, not for queries or jobs.
	 */
	EngineStatus (*list_probes)(Engine *engine, MirrorId id, uint64_t *counts, uint32_t count,
								EngineError *error);

	/*
	 * Start queries, all on one mirror. Each is returned by poll once, an
	 * invalid one too, with its status.
	 */
	EngineStatus (*submit)(Engine *engine, EngineQuery *const *queries, uint32_t count,
						   EngineError *error);
	/*
	 * Return completed queries, at most room. Never waits, and searches only
	 * for a lone query. ENGINE_FAILED: the engine is broken.
	 */
	EngineStatus (*poll)(Engine *engine, EngineQuery **completed, uint32_t room, uint32_t *count,
						 EngineError *error);

	EngineStatus (*job_submit)(Engine *engine, const EngineJob *job, JobId *id, EngineError *error);
	EngineStatus (*job_poll) (Engine *engine, JobId id, JobProgress *progress);
	EngineStatus (*job_cancel) (Engine *engine, JobId id);	/* it completes soon, perhaps with
															 * ENGINE_CANCELLED */
	/* of a completed JOB_LINK, JOB_REPAIR or JOB_TRAIN */
	EngineStatus (*job_link_result) (Engine *engine, JobId id, LinkResult *result);
	void		(*job_release) (Engine *engine, JobId id);	/* free a completed job; one that still
															 * runs is cancelled and waited for */
} EngineOps;

/* Whether a job takes long and has a LinkResult. */
static inline bool
engine_job_links(JobKind kind)
{
	return kind == JOB_LINK || kind == JOB_REPAIR || kind == JOB_TRAIN;
}

/* The CPU engine. */
extern const EngineOps *cpu_engine_ops(void);

/*
 * Bytes that its mirror of this specification takes when it is created
 * (MirrorInfo.bytes): for estimates.
 */
extern uint64_t cpu_engine_mirror_bytes(const MirrorSpec *spec);

/*
 * The symbol that an engine in a shared object exports: returns its EngineOps.
 */
#define ENGINE_ENTRY_SYMBOL "gpuann_engine_ops"
typedef const EngineOps *(*EngineEntry) (void);

/* Fill *error, unless NULL. Returns the status. */
extern EngineStatus engine_error(EngineError *error, EngineStatus status, const char *format,...)
			__attribute__((format(printf, 3, 4)));

/* Checks that engines share (limits.c). */
extern EngineStatus engine_check_spec(const MirrorSpec *spec, EngineError *error);
extern EngineStatus engine_check_lists(uint32_t lists, uint32_t count, EngineError *error);
extern EngineStatus engine_check_job(const EngineJob *job, const MirrorSpec *spec,
									 EngineError *error);
extern EngineStatus engine_check_query(const EngineQuery *query, const MirrorSpec *spec,
									   EngineError *error);

#endif							/* GPUANN_ENGINE_H */
