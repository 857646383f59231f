/*
 * handler.h
 *		What gpuann.c ties together: the callbacks of the access method, and
 *		what rooms do when the library is loaded.
 */
#ifndef GPUANN_HANDLER_H
#define GPUANN_HANDLER_H

#include "base/base.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"

/*
 * Called by _PG_init, in this order; mirror_feed.c: mirrors that builds have
 * loaded stay or go with their transaction
 */
extern void gpuann_shmem_init(void);
extern void mirror_feed_init(void);
extern void gpuann_explain_init(void);
extern void gpuann_plan_init(void);
extern void index_hook_init(void);

/* cost.c */
extern void gpuanncostestimate(PlannerInfo *root, IndexPath *path, double loop_count, Cost *startup,
							   Cost *total, Selectivity *selectivity, double *correlation,
							   double *pages);

/* validate.c */
extern bool gpuannvalidate(Oid opclass);

/* build.c */
extern IndexBuildResult *gpuannbuild(Relation heap, Relation index, IndexInfo *info);
extern void gpuannbuildempty(Relation index);

/* insert.c */
extern bool gpuanninsert(Relation index, Datum *values, bool *isnull, ItemPointer tid,
						 Relation heap, IndexUniqueCheck unique, bool unchanged, IndexInfo *info);

/* scan.c */
extern IndexScanDesc gpuannbeginscan(Relation index, int nkeys, int norderbys);
extern void gpuannrescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys,
						 int norderbys);
extern bool gpuanngettuple(IndexScanDesc scan, ScanDirection direction);
extern void gpuannendscan(IndexScanDesc scan);

/* vacuum.c */
extern IndexBulkDeleteResult *gpuannbulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
											   IndexBulkDeleteCallback callback,
											   void *callback_state);
extern IndexBulkDeleteResult *gpuannvacuumcleanup(IndexVacuumInfo *info,
												  IndexBulkDeleteResult *stats);

#endif							/* GPUANN_HANDLER_H */
