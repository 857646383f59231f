/*
 * sample.c
 *		How many rows a threshold lets pass, from a sample of the index.
 *
 * The planner knows nothing of distances. Vectors from all over the index are
 * compared with the query; where that is not known, some of them with others.
 * A threshold mostly lets fewer rows pass than a sample can tell. What is
 * beyond it is inferred from its nearest rows: near a point the rows within a
 * distance grow as a power of it, whose exponent these tell (Hill's estimator).
 *
 * A sample costs as much as a short search, so there is a large one for a
 * distance and a limit. Of the parts of a partitioned table, those that are
 * planned later have a small one, whose share counts as much as that of all.
 */
#include "plan/plan.h"

#include <math.h>

#include "access/genam.h"
#include "fmgr.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteManip.h"
#include "utils/float.h"
#include "utils/lsyscache.h"

#define SAMPLES			100
#define FEW_SAMPLES		10		/* of a part where others have been sampled */
#define UNKNOWN_QUERIES	5		/* sampled vectors that stand for a query not known */
#define NEAREST			10		/* distances that tell the power */
#define ENOUGH			5		/* from this many within the limit on they are counted */
#define MIN_SHARE		0.0001	/* inferred: clusters are denser than what is seen from afar */
#define UNKNOWN_SHARE	0.005	/* where the limit is not known: PostgreSQL's default for a range */

/* The values of an index that are compared. */
typedef struct Samples
{
	FmgrInfo	operator_call;
	Oid			collation;
	Datum		values[SAMPLES];
	uint32		count;
} Samples;

/*
 * Read live vectors from all over an index, at most `most`: those that can be
 * read.
 */
static void
read_samples(Relation index, const IndexFormat *format, uint32 most, Samples *samples)
{
	const GpuannTypeInfo *type = gpuann_type_info(index);
	BlockNumber blocks = RelationGetNumberOfBlocks(index);
	uint32		slots = slots_of_file(format, blocks);
	uint32		count = Min(slots, most);

	for (uint32 i = 0; i < count; i++)
	{
		uint32		slot = (uint32) ((i + 0.5) / count * slots);
		void	   *value = palloc0(gpuann_value_bytes(type, format->dims));

		if (peek_vector(index, format, blocks, slot,
						gpuann_value_begin(type, format->dims, value)))
			samples->values[samples->count++] = PointerGetDatum(value);
	}
}

static int
compare_values(const void *a, const void *b)
{
	return float8_cmp_internal(*(const double *) a, *(const double *) b);
}

/*
 * The distances of the samples, ascending, from a query; not that of the sample
 * which is the query.
 */
static uint32
sample_distances(Samples *samples, Datum query, double *distances)
{
	uint32		count = 0;

	for (uint32 i = 0; i < samples->count; i++)
		if (samples->values[i] != query)
			distances[count++] = DatumGetFloat8(FunctionCall2Coll(
				&samples->operator_call, samples->collation, samples->values[i], query));
	qsort(distances, count, sizeof(double), compare_values);
	return count;
}

/*
 * The share of rows within a limit.
 */
static double
share_within(const double *distances, uint32 count, double limit)
{
	uint32		nearest = Min(NEAREST, count);
	double		farthest;
	double		logs = 0;
	uint32		within = 0;

	while (within < count && value_not_after(distances[within], limit))
		within++;
	if (within >= ENOUGH || within == count)
		return (double) within / Max(count, 1);
	if (!(distances[0] > 0))	/* no distances of points, or equal ones */
		return Max(within, 0.5) / count;
	if (!(limit > 0))
		return MIN_SHARE;
	farthest = distances[nearest - 1];
	for (uint32 i = 0; i < nearest; i++)
		logs += log(farthest / distances[i]);
	/* Where all are equally far, none is nearer. */
	if (!(logs > 0) || isinf(farthest))
		return Max((double) within / count, MIN_SHARE);
	return Min(Max(nearest * pow(limit / farthest, nearest / logs) / count, MIN_SHARE), 1);
}

/*
 * The least of the limits that are known. False: none is.
 */
static bool
known_limit(PlannerInfo *root, List *thresholds, double *limit)
{
	ListCell   *cell;
	bool		known = false;

	foreach(cell, thresholds)
	{
		Threshold  *threshold = lfirst(cell);
		Const	   *value = (Const *) estimate_expression_value(root, threshold->limit);
		double		bound;

		if (!IsA(value, Const))
			continue;
		/* NULL: no row passes */
		if (value->constisnull)
			bound = -get_float8_infinity();
		else if (threshold->folded)
			bound = DatumGetFloat8(value->constvalue);
		else
			bound = threshold_limit(threshold, value->constvalue, value->consttype);
		if (!known || value_not_after(bound, *limit))
			*limit = bound;
		known = true;
	}
	return known;
}

/*
 * The query, detoasted, if it is known and of the index's dimensions.
 */
static bool
known_query(PlannerInfo *root, const GpuannTypeInfo *type, uint32 dims, const OpExpr *distance,
			Datum *query)
{
	Const *value = (Const *) estimate_expression_value(root, (Node *) lsecond(distance->args));

	if (!IsA(value, Const) || value->constisnull)
		return false;
	*query = PointerGetDatum(PG_DETOAST_DATUM(value->constvalue));
	return type->dims(DatumGetPointer(*query)) == (int) dims;
}

/*
 * The share of samples that is within a limit. Returns how many there were.
 */
static uint32
share_of_samples(PlannerInfo *root, Relation index, const OpExpr *distance, double limit,
				 uint32 most, double *share)
{
	const IndexFormat *format = peek_format(index);
	Samples		samples = {.collation = distance->inputcollid};
	double		distances[SAMPLES];
	uint32		asked = 1;
	bool		known;
	Datum		query = 0;

	if (format == NULL)
		return 0;
	fmgr_info(get_opcode(distance->opno), &samples.operator_call);
	read_samples(index, format, most, &samples);
	*share = 0;
	if (samples.count == 0)
		return 0;
	known = known_query(root, gpuann_type_info(index), format->dims, distance, &query);
	if (!known)
		asked = Min(samples.count, UNKNOWN_QUERIES);
	for (uint32 i = 0; i < asked; i++)
	{
		if (!known)
			query = samples.values[samples.count / asked * i];
		*share += share_within(distances, sample_distances(&samples, query, distances), limit) /
			asked;
	}
	return samples.count;
}

/*
 * What a planning has sampled for a distance and a limit: of one table, or of
 * the first parts of a partitioned one; and of the index that came last, for
 * which there may be several paths.
 */
typedef struct SampledShare
{
	const PlannerInfo *root;	/* the query level */
	OpExpr	   *distance;		/* as if parts were the whole */
	double		limit;
	double		share;
	uint32		samples;
	Oid			index;
	double		index_share;
} SampledShare;

/*
 * The entry of a distance and a limit; new ones have no samples. Where parts
 * have their columns in other places one has an entry of its own, or, at worst,
 * a share that is not its own.
 */
static SampledShare *
sampled_share(PlannerInfo *root, const RelOptInfo *rel, const OpExpr *distance, double limit)
{
	Planning   *planning = planning_of(root);
	OpExpr	   *of_whole = copyObject(unconstify(OpExpr *, distance));
	SampledShare *entry;
	ListCell   *cell;

	if (rel->top_parent_relids != NULL)
		ChangeVarNodes((Node *) of_whole, (int) rel->relid,
					   bms_singleton_member(rel->top_parent_relids), 0);
	foreach(cell, planning->shares)
	{
		entry = lfirst(cell);
		if (entry->root == root && float8_eq(entry->limit, limit) &&
			equal(entry->distance, of_whole))
			return entry;
	}
	entry = palloc0(sizeof(SampledShare));
	entry->root = root;
	entry->distance = of_whole;
	entry->limit = limit;
	planning->shares = lappend(planning->shares, entry);
	return entry;
}

/*
 * The share of an index's rows that thresholds let pass.
 */
double
threshold_share(PlannerInfo *root, const IndexOptInfo *info, const OpExpr *distance,
				List *thresholds)
{
	SampledShare *known;
	MemoryContext memory;
	MemoryContext old;
	Relation	index;
	double		limit = 0;
	double		share;
	uint32		most;
	uint32		count;

	if (!known_limit(root, thresholds, &limit))
		return UNKNOWN_SHARE;
	known = sampled_share(root, info->rel, distance, limit);
	if (known->index == info->indexoid)
		return known->index_share;
	most = known->samples < SAMPLES / 2 ? SAMPLES : FEW_SAMPLES;
	memory = AllocSetContextCreate(CurrentMemoryContext, "gpuann sample", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(memory);
	index = index_open(info->indexoid, NoLock);
	count = share_of_samples(root, index, distance, limit, most, &share);
	index_close(index, NoLock);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(memory);
	if (count == 0)
		return known->samples > 0 ? known->share : UNKNOWN_SHARE;
	known->index = info->indexoid;
	known->index_share = share;
	if (most == FEW_SAMPLES)
		known->index_share = (share + known->share) / 2;
	else
	{
		known->share = (known->share * known->samples + share * count) / (known->samples + count);
		known->samples += count;
	}
	return known->index_share;
}

/*
 * The planner's number of rows, with this share in place of the one that it has
 * assumed.
 */
double
threshold_rows(PlannerInfo *root, const RelOptInfo *rel, double rows, List *thresholds,
			   double share)
{
	List	   *restrictions = NIL;
	ListCell   *cell;
	double		assumed;

	foreach(cell, thresholds)
		restrictions = lappend(restrictions, ((Threshold *) lfirst(cell))->restriction);
	assumed = clauselist_selectivity(root, restrictions, (int) rel->relid, JOIN_INNER, NULL);
	return clamp_row_est(Min(rows * share / Max(assumed, 1e-9), rel->tuples));
}
