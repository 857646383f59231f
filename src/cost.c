/*
 * cost.c
 *		What the planner is told.
 *
 * A scan has its first ef rows after a graph search, and every further one at the price of its share of an exact pass over the whole
 * index. Without an order to follow the index can do nothing.
 */
#include "gpuann.h"

#include <math.h>

#include "access/genam.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/float.h"
#include "utils/selfuncs.h"
#include "utils/spccache.h"

/* Share of the distances computed per row of the list's breadth and unit of m, measured on graphs of 10,000 to 1,000,000 rows. */
#define VISITED_PER_EF_AND_M	0.9

/* The planner's price of an index that cannot be used. */
#define COST_NEVER	get_float8_infinity()

/*
 * The share of its rows that a graph search with the current settings visits.
 */
static double
visited_share(const IndexOptInfo *index)
{
	Relation	relation = index_open(index->indexoid, NoLock);
	int			m = gpuann_option_m(relation);
	int			ef = gpuann_effective_ef_search(relation);
	double		visited;

	index_close(relation, NoLock);
	if (index->tuples <= 0)
		return 1;
	/* The breadth, times what a row adds, plus the way from the seeds. */
	visited = ef * m * VISITED_PER_EF_AND_M + m * log2(index->tuples + 1);
	return Min(visited / index->tuples, 1);
}

/*
 * Price a scan.
 *
 * The generic estimate prices a pass over all pages and rows at random order; a search costs the share of it that it visits. The
 * vectors of a wide table are out of line: a sequential scan seems to read few pages, so no more pages than the table has are charged in
 * full, the others as if they were read in order.
 */
void
gpuanncostestimate(PlannerInfo *root, IndexPath *path, double loop_count, Cost *startup, Cost *total,
				   Selectivity *selectivity, double *correlation, double *pages)
{
	GenericCosts costs;
	double		share;
	double		random_page,
				sequential_page,
				pages_read;

	if (path->indexorderbys == NIL)
	{
		*startup = *total = COST_NEVER;
		*selectivity = 0;
		*correlation = 0;
		*pages = 0;
#if PG_VERSION_NUM >= 180000
		/* Costs alone do not keep it from being chosen when everything else is disabled. */
		path->path.disabled_nodes = 2;
#endif
		return;
	}

	MemSet(&costs, 0, sizeof(costs));
	costs.numIndexTuples = path->indexinfo->tuples;
	genericcostestimate(root, path, loop_count, &costs);

	get_tablespace_page_costs(path->indexinfo->reltablespace, &random_page, &sequential_page);
	*total = costs.indexTotalCost;
	*selectivity = costs.indexSelectivity;
	*correlation = costs.indexCorrelation;
	*pages = costs.numIndexPages;
	if (gpuann_exact)
	{
		/* One pass over everything, in order; it gives the rows. */
		*startup = costs.numIndexPages * sequential_page + path->indexinfo->tuples * cpu_operator_cost;
		*total = *startup + path->indexinfo->tuples * cpu_index_tuple_cost;
		return;
	}

	share = visited_share(path->indexinfo);
	*startup = costs.indexTotalCost * share;
	pages_read = costs.numIndexPages * share;
	if (share < 0.5 && pages_read > path->indexinfo->rel->pages)
	{
		*startup -= pages_read * (random_page - sequential_page);
		*startup -= (pages_read - path->indexinfo->rel->pages) * sequential_page;
	}
}
