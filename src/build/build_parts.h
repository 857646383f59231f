/*
 * build_parts.h
 *		CREATE INDEX: declarations shared by the files of the build.
 *
 *	build_load.c		rows of the heap into pages, superblock by superblock:
 *						in the leader and in parallel workers
 *	build_log.c		many pages in one record of WAL
 *	build_parallel.c	the parallel workers
 *	build_engine.c	rows from pages into an engine in this process, and the
 *					graph
 *	build_lists.c		lists of codes, in place of a graph
 *	build_server.c	the same with the server's engine, where that has a device
 *	build.c			the order of all this, and the pages around it
 */
#ifndef GPUANN_BUILD_PARTS_H
#define GPUANN_BUILD_PARTS_H

#include "access/parallel.h"
#include "access/tableam.h"
#include "access/xlogrecord.h"
#include "build/build.h"
#include "commands/progress.h"
#include "lists/lists.h"
#include "page/columns.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/spin.h"

/* Report progress within a phase. */
static inline void
build_progress(int64 done)
{
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, done);
}

/*
 * Begin a phase of the progress view; total is the number of its units, 0 if
 * unknown.
 */
static inline void
build_phase(int phase, int64 total)
{
	const int	names[] = {PROGRESS_CREATEIDX_SUBPHASE, PROGRESS_CREATEIDX_TUPLES_TOTAL,
						 PROGRESS_CREATEIDX_TUPLES_DONE};
	const int64 values[] = {phase, total, 0};

	pgstat_progress_update_multi_param(3, names, values);
}

/*
 * A superblock that has been written, and the number of its slots that hold
 * rows.
 */
typedef struct LoadedSuperblock
{
	uint32		superblock;
	uint32		rows;
} LoadedSuperblock;

#define LOADED_RING	1024		/* superblocks announced and not yet taken by the leader */

/*
 * Shared state of the loading processes; in dynamic shared memory if there are
 * workers.
 */
typedef struct BuildShared
{
	/* set before workers start */
	Oid			heap;
	Oid			index;
	bool		concurrent;
	bool		parallel;		/* there are workers */
	bool		logged;			/* vector and column pages are logged as they are written */
	IndexFormat format;

	pg_atomic_uint64 rows;		/* indexed so far: for the progress view */
	ConditionVariable changed;	/* the ring, or workers_done */

	slock_t		mutex;			/* protects the following fields, except superblocks */
	uint32		superblocks;	/* claimed; with workers, under the relation extension lock */
	uint32		first_loaded;	/* ring[first_loaded .. next_loaded), modulo LOADED_RING */
	uint32		next_loaded;
	int			workers_done;
	double		heap_rows;		/* of the workers that have ended */
	bool		broken_hot_chain;
	float		least_norm;		/* range of norms, of the processes that have ended */
	float		most_norm;
	LoadedSuperblock ring[LOADED_RING];
} BuildShared;

/* A loading process, which gathers rows until they fill a superblock. */
typedef struct Loader
{
	Relation	index;
	const GpuannTypeInfo *type;
	const IndexFormat *format;
	BuildShared *shared;
	MemoryContext row_memory;	/* of one row */
	ColumnTable table;			/* of the columns that the index includes */
	char	   *vectors;		/* of a superblock */
	char	   *columns;		/* likewise; NULL: there are none */
	ItemPointer tids;
	uint32		count;
	uint32		uncounted;		/* rows not yet in the shared count */
	float		least_norm;		/* range of the norms of its rows */
	float		most_norm;
	void		(*loaded) (void *context);	/* the leader's callback to empty the ring */
	void	   *context;
} Loader;

/* Pages that are logged several in one record, in full. */
typedef struct PageLog
{
	Relation	index;
	bool		logged;
	int			count;
	Buffer		buffers[XLR_MAX_BLOCK_ID];
} PageLog;

/* build_log.c */
extern void page_log_begin(PageLog *log, Relation index, bool logged);
extern void page_log_add(PageLog *log, Buffer buffer);
extern void page_log_flush(PageLog *log);

/* build_load.c */
extern void build_shared_init(BuildShared *shared);
extern bool build_take_loaded(BuildShared *shared, LoadedSuperblock *loaded);
extern void loader_begin(Loader *loader, Relation index, BuildShared *shared);
extern double loader_scan(Loader *loader, Relation heap, IndexInfo *info, bool progress,
						  TableScanDesc scan);
extern Buffer build_new_block(Relation index, ForkNumber fork, BlockNumber expected);

/* build_parallel.c */
typedef struct ParallelLoad ParallelLoad;

extern int	build_workers(Relation heap, Relation index, const IndexInfo *info);
extern ParallelLoad *parallel_load_begin(Relation heap, const BuildShared *shared, int workers);
extern BuildShared *parallel_load_shared(ParallelLoad *load);
extern TableScanDesc parallel_load_scan(ParallelLoad *load, Relation heap);
extern void parallel_load_wait(ParallelLoad *load, void (*loaded) (void *context), void *context);
extern void parallel_load_end(ParallelLoad *load);

/* build_engine.c */
typedef struct BuildEngine BuildEngine;

/*
 * Graph rows that the engine linked, sorted by slot, and seeds: until the
 * engine is closed.
 */
extern BuildEngine *build_engine_open(Relation index, const IndexFormat *format,
									  double expected_rows);
extern void build_engine_feed(BuildEngine *build, uint32 superblock, uint32 rows);
extern void build_engine_fed(BuildEngine *build);
extern bool build_engine_link(BuildEngine *build, LinkResult *link);
extern void build_engine_close(BuildEngine *build);
extern uint32 build_engine_end(const BuildEngine *build);
extern uint32 build_engine_rows(const BuildEngine *build);
extern void build_copy_vectors(Relation index, const IndexFormat *format, uint32 first,
							   uint32 count, void *vectors);

/* build_lists.c */
typedef struct BuildServer BuildServer;

/* The rows of the index, in pages, to be put into lists. */
typedef struct ListsBuild
{
	Relation	index;
	const IndexFormat *format;
	ListFormat *lists;			/* as planned; the number of lists may be reduced */
	uint32		rows;
	uint32		superblocks;
	const uint32 *loaded;		/* per superblock: its first slots hold rows */
	BuildServer *server;		/* which has the rows; NULL: none, or closed after a failure */
} ListsBuild;

/* Train centroids and codes, and put every row into its list. */
extern void build_lists(ListsBuild *build);

/* Log a superblock's posting pages. */
extern void build_log_postings(PageLog *log, const IndexFormat *format, uint32 superblock);

/* build_server.c */

/* Whether an index of this many rows is to be built on the server. */
extern bool build_server_allowed(Relation index, double expected_rows);

/*
 * Begin to build on the server, with lists as planned if the format has lists;
 * NULL: impossible. After any of the following functions has returned false and
 * reported the reason, the caller must call build_server_close() and continue
 * in this process: with the first row, or for lists with the rows that are
 * left.
 */
extern BuildServer *build_server_open(Relation heap, Relation index, const IndexFormat *format,
									  const ListFormat *lists, double expected_rows, uint64 nonce);
extern bool build_server_feed(BuildServer *build, uint32 superblock, uint32 rows);
extern bool build_server_fed(BuildServer *build);

/*
 * Train this many lists on a sample of that many rows: nfloats floats of
 * centroids and codewords. If the number differs from the plan, the rows are
 * sent again.
 */
extern bool build_server_train(BuildServer *build, const uint32 *loaded, uint32 lists,
							   uint32 sample, float *floats, Size nfloats);

/*
 * Link all rows: of each superblock the first loaded[i] slots. made gets the
 * seeds, valid until the build is closed, or for lists the sum of distances.
 */
extern bool build_server_link(BuildServer *build, const uint32 *loaded, LinkResult *made);

/*
 * Fetch the graph rows of the next slots, or their list numbers and codes;
 * valid until the next call.
 */
extern bool build_server_fetch(BuildServer *build, LinkResult *part);

/*
 * The pages are complete: keep the mirror, which has the same contents. False:
 * it has to be loaded from the pages.
 */
extern bool build_server_keep(BuildServer *build, int64 lasted_ms);
extern void build_server_close(BuildServer *build);

#endif							/* GPUANN_BUILD_PARTS_H */
