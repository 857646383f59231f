/*
 * conformance.h
 *		The engine conformance suite: one set of cases that every engine passes
 *		(I9).
 *
 * Cases know the interface of engine.h only. The oracle (conformance_model.c)
 * is written for clarity and shares no code with any engine. Every query's
 * result buffer is poisoned before it runs and every answer is checked for what
 * holds always: order, no slot twice, nothing written beyond the buffer.
 */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

/* What the command line chose. */
typedef struct Options
{
	const char *engine;			/* "cpu" or a shared object */
	const char *simd;			/* level to force, or NULL */
	bool		quick;
	bool		search_by_rows; /* graph searches measure no codes */
	bool		cpu_graphs;		/* the CPU engine links what is the first link of a world: an
								 * emulated device takes long */
	int			device;
} Options;

extern Options options;
extern const EngineOps *ops;
extern Engine *engine;			/* open during every case */

/* ---- cases ---- */

typedef struct Case
{
	const char *name;
	void		(*run) (void);
	bool		slow;			/* left out by --quick */
} Case;

extern const Case exact_cases[];
extern const Case graph_cases[];
extern const Case reference_cases[];
extern const Case change_cases[];
extern const Case limit_cases[];
extern const Case more_cases[];
extern const Case crowd_cases[];
extern const Case kernel_cases[];
extern const Case grow_cases[];
extern const Case cycle_cases[];
extern const Case tile_cases[];
extern const Case few_cases[];
extern const Case far_cases[];
extern const Case link_cases[];
extern const Case filter_cases[];
extern const Case column_cases[];
extern const Case start_cases[];
extern const Case repair_cases[];
extern const Case device_cases[];
extern const Case degree_cases[];
extern const Case batch_cases[];
extern const Case halves_cases[];
extern const Case equal_cases[];
extern const Case copy_cases[];
extern const Case length_cases[];
extern const Case outlier_cases[];
extern const Case list_cases[];
extern const Case list_job_cases[];
extern const Case list_cooc_cases[];
extern const Case list_probe_cases[];
extern const Case list_twin_cases[];

/* End the case: it failed, or cannot be run here. */
extern void fail(const char *format,...) __attribute__((format(printf, 1, 2), noreturn));
extern void skip(const char *format,...) __attribute__((format(printf, 1, 2), noreturn));

#define CHECK(condition, ...) ((condition) ? (void) 0 : fail(__VA_ARGS__))

/* Memory that is freed when the case ends. */
extern void *allocate(size_t size);

/* ---- random numbers, the same everywhere ---- */

extern void random_seed(uint64_t seed);
extern uint32_t random_below(uint32_t limit);
extern double clock_seconds(void);

/* ---- the model ---- */

typedef enum Shape
{
	SHAPE_UNIFORM,				/* every element by itself */
	SHAPE_CLUSTERED,			/* around centres in few directions, as real embeddings are */
	SHAPE_EQUAL,				/* one vector throughout */
	SHAPE_SMALL					/* few distinct elements: many equal distances, zeros among them */
} Shape;

/* Every type with every metric it has. */
typedef struct Pair
{
	ElementType type;
	Metric		metric;
} Pair;

#define PAIRS	10
extern const Pair pairs[PAIRS];

/* A table of vectors and what became of its rows. */
typedef struct World
{
	ElementType type;
	Metric		metric;
	uint32_t	dims;
	uint32_t	rows;			/* in the mirror */
	uint32_t	room;			/* vectors there are */
	size_t		vector_bytes;
	char	   *vectors;		/* as the mirror has them */
	uint32_t   *versions;
	bool	   *live;
	MirrorId	mirror;
	uint32_t	degree;
	const unsigned char *records;	/* columns, one record for each vector; NULL: none */
	MirrorSpec	spec;
	uint32_t	nseeds;			/* what the last link or JOB_SEEDS said */
	uint32_t   *seeds;
} World;

/*
 * Make `room` vectors and, with more, queries after them; versions are 1. The
 * mirror is created with room for `capacity`.
 */
extern World *world_create(ElementType type, Metric metric, uint32_t dims, uint32_t room,
						   uint32_t capacity, Shape shape);
/* The same with a residency. */
extern World *world_create_in(Residency residency, ElementType type, Metric metric, uint32_t dims,
							  uint32_t room, uint32_t capacity, Shape shape);
/* The same with graph rows of another degree than 32. */
extern World *world_create_of_degree(uint32_t degree, ElementType type, Metric metric,
									 uint32_t dims, uint32_t room, uint32_t capacity, Shape shape);
/* The same with a residency, and lists. */
extern World *world_create_lists_in(Residency residency, const ListSpec *lists, ElementType type,
									Metric metric, uint32_t dims, uint32_t room,
									uint32_t capacity, Shape shape);
/* A mirror with lists; the case is skipped where the engine has none. */
extern World *world_create_lists(const ListSpec *lists, ElementType type, Metric metric,
								 uint32_t dims, uint32_t room, uint32_t capacity, Shape shape);
/* What all these do. With columns, the table's records are made afterwards. */
extern World *world_create_of(const MirrorSpec *spec, uint32_t room, Shape shape);
extern const void *world_vector(const World *world, uint32_t slot);
extern void world_set_vector(World *world, uint32_t slot, uint64_t variant);
/*
 * Set an element: a value that halves hold exactly; of bits, whether it is
 * above 0.
 */
extern void world_set_element(World *world, uint32_t slot, uint32_t i, double value);
extern void make_vector(const World *world, uint64_t variant, void *out);
extern double model_distance(const World *world, const void *a, const void *b);
/*
 * The k nearest live rows below rows, after a bound, admitted by bitmaps and by
 * a program; returns how many.
 */
extern uint32_t model_exact(const World *world, const EngineQuery *query, uint32_t rows,
							SearchResult *out);

typedef struct ModelWalk
{
	SearchResult *results;
	uint32_t	count;
	uint32_t	expanded;
} ModelWalk;

/*
 * The reference walk over the mirror's graph as mirror_rows tells it. Linked
 * rows only: no pending ones.
 */
extern void model_walk(const World *world, const EngineQuery *query, ModelWalk *walk);

/* Whether the engine under test has reference mode. */
extern bool has_reference(const World *world);
/*
 * Walks in reference mode, with the variations that a query has, step for step
 * beside the model's.
 */
extern void reference_variations(const World *world, uint32_t rounds);

/* ---- driving the engine ---- */

/*
 * Let everything that follows act on the CPU engine, which is opened for this
 * case, or again on the engine under test.
 */
extern void act_on_cpu(bool cpu);

/* Close the engine and open it again. */
extern void reopen(const EngineConfig *config);

extern Engine *open_engine(const EngineConfig *config, EngineStatus expected);
/*
 * Bytes of the device that are in use, as the driver counts them; false: no
 * driver does. The engine has made its context this thread's.
 */
extern bool driver_bytes_used(uint64_t *used);
/*
 * Bytes of all devices that this process holds, as NVML counts them; false: it
 * does not see this process (in a container without the host's process
 * numbers), or there is no NVML.
 */
extern bool process_bytes_used(uint64_t *used);
/* submit, wait, release */
extern EngineStatus run_job(const EngineJob *job, JobProgress *progress);
extern JobId start_job(const EngineJob *job);
extern EngineStatus end_job(JobId id, JobProgress *progress);
extern void must(EngineStatus status, const EngineError *error, const char *what);

/* Whether a row's columns may pass a program. */
extern bool model_passes(const World *world, const FilterProgram *program, uint32_t slot);

extern void world_append(World *world, uint32_t count);	/* the next count vectors */
/*
 * Link everything pending. What the engine does not link (rows in host memory),
 * and with options.cpu_graphs a world's first link, the CPU engine links, all
 * rows anew.
 */
extern void world_link(World *world);
extern void world_link_by_cpu(World *world);
extern bool links_or_refuses(World *world, EngineJob *job);
/*
 * Repair rows that name dead slots: those of slots, or (NULL) all; returns how
 * many rows changed.
 */
extern uint32_t world_repair(World *world, const uint32_t *slots, uint32_t count);
extern void world_kill(World *world, uint32_t slot);
extern void world_drop(World *world);
extern MirrorInfo world_info(const World *world);
/* Give every row a graph row: ring with chords, seeds spread. */
extern void world_ring(World *world, uint32_t nseeds);
extern void world_set_graph(World *world, const uint32_t *rows, const uint32_t *seeds,
							uint32_t nseeds);

/* ---- graphs ---- */

extern uint32_t *world_graph(const World *world);	/* all graph rows */
/*
 * Rows name published slots, others than their own, none twice, and nothing
 * after the first empty place.
 */
extern void check_rows(const World *world, const uint32_t *rows);
/* How many live rows a walk over all edges from the first seeds reaches. */
extern uint32_t count_reached(const World *world, const uint32_t *rows, uint32_t nseeds);
/*
 * After a link: nothing is pending, rows are sound, every live row is reached
 * from the first seeds.
 */
extern void check_linked(const World *world);
/*
 * Every fiftieth row from the eighth on is found, and of the many equal ones,
 * of which the second is one, nearly all that are asked for.
 */
extern void check_equals_found(World *world);
/*
 * After a repair of all rows: that, no live row names a dead slot, and seeds
 * live.
 */
extern void check_repaired(const World *world);

/* ---- queries ---- */

/* A query of a world: k, ef; results have a guard behind them. */
extern void query_init(EngineQuery *query, const World *world, SearchMethod method, uint32_t k,
					   uint32_t ef, const void *vector);
extern void queries_submit(EngineQuery *queries, uint32_t count);
extern uint32_t queries_poll(EngineQuery **completed, uint32_t room);
extern void queries_run(EngineQuery *queries, uint32_t count);	/* submit and wait for all of
																 * them */
extern void query_run(EngineQuery *query);
/* What holds of every completed answer. */
extern void check_sound(const World *world, const EngineQuery *query);
extern void check_equal(const char *what, const EngineQuery *query, const SearchResult *expected,
						uint32_t count);
/* Share of the true k nearest (by distance) that the answer has. */
extern double recall_of(const World *world, const EngineQuery *query);
/* run graph queries, check each answer; the mean */
extern double sound_recall(const World *world, EngineQuery *queries, uint32_t count);

#endif							/* CONFORMANCE_H */
