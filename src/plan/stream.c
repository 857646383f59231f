/*
 * stream.c
 *		Joins under a LIMIT: the nearest rows of one relation, joined as long as
 *		the LIMIT asks for more.
 *
 * Only a nested loop keeps the order of its outer side. So beside PostgreSQL's
 * paths of a join, and where none of those can stand on it, the cheapest one is
 * kept whose outermost side is a stream of the node. limit.c puts that of the
 * last join below the LIMIT.
 */
#include "plan/plan.h"

#include "optimizer/cost.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"

static set_join_pathlist_hook_type prev_set_join_pathlist = NULL;

/* The stream of a relation or join. */
typedef struct Stream
{
	const RelOptInfo *rel;
	bool		looked_for;		/* of a base relation */
	Path	   *path;			/* NULL: there is none */
} Stream;

/*
 * The entry of a relation.
 */
static Stream *
stream_entry(const PlannerInfo *root, const RelOptInfo *rel)
{
	Planning   *planning = planning_of(root);
	ListCell   *cell;
	Stream	   *stream;

	foreach(cell, planning->streams)
	{
		stream = lfirst(cell);
		if (stream->rel == rel)
			return stream;
	}
	stream = palloc0(sizeof(Stream));
	stream->rel = rel;
	planning->streams = lappend(planning->streams, stream);
	return stream;
}

Path *
find_stream(const PlannerInfo *root, const RelOptInfo *joinrel)
{
	return stream_entry(root, joinrel)->path;
}

/*
 * The stream of the outer side of a join.
 */
static Path *
outer_stream(PlannerInfo *root, RelOptInfo *rel)
{
	PathBound	bound = {.kind = NODE_STREAM,
						 .wanted = Max(root->limit_tuples, 0),
						 .as_found = gpuann_iterative_scan == GPUANN_ITERATIVE_RELAXED &&
									 list_length(root->sort_pathkeys) == 1 &&
									 root->parse->limitOption == LIMIT_OPTION_COUNT};
	Stream	   *stream = stream_entry(root, rel);

	if (!stream->looked_for && rel->reloptkind == RELOPT_BASEREL)
		stream->path = make_ordered_path(root, rel, linitial(root->sort_pathkeys), &bound,
										 rel->reltarget);
	stream->looked_for = true;
	return stream->path;
}

/*
 * Keep a join of a stream with a path of the inner side, if it is the cheapest.
 */
static void
consider_join(PlannerInfo *root, RelOptInfo *joinrel, JoinType type, JoinPathExtraData *extra,
			  Path *outer, Path *inner)
{
	Stream	   *best = stream_entry(root, joinrel);
	JoinCostWorkspace workspace;
	Path	   *path;

	if (!bms_is_subset(PATH_REQ_OUTER(inner), outer->parent->relids))
		return;
	initial_cost_nestloop(root, &workspace, type, outer, inner, extra);
	path = (Path *) create_nestloop_path(root, joinrel, type, &workspace, extra, outer, inner,
										 extra->restrictlist, outer->pathkeys, NULL);
	if (best->path == NULL ||
		compare_fractional_path_costs(path, best->path,
									  Max(root->limit_tuples, 1) / Max(joinrel->rows, 1)) < 0)
		best->path = path;
}

/*
 * Follow streams through a join.
 */
static void
gpuann_set_join_pathlist(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outer,
						 RelOptInfo *inner, JoinType type, JoinPathExtraData *extra)
{
	Path	   *stream;
	Path	   *cheapest = inner->cheapest_total_path;
	ListCell   *cell;

	if (prev_set_join_pathlist)
		prev_set_join_pathlist(root, joinrel, outer, inner, type, extra);
	/* GEQO frees what it has planned. */
	if (!query_is_limited(root) || root->sort_pathkeys == NIL ||
		root->join_search_private != NULL || joinrel->reloptkind != RELOPT_JOINREL ||
		(type != JOIN_INNER && type != JOIN_LEFT && type != JOIN_SEMI && type != JOIN_ANTI))
		return;
	stream = outer_stream(root, outer);
	if (stream == NULL)
		return;
	if (cheapest != NULL && PATH_REQ_OUTER(cheapest) == NULL)
	{
		consider_join(root, joinrel, type, extra, stream, cheapest);
		consider_join(root, joinrel, type, extra, stream,
					  (Path *) create_material_path(inner, cheapest));
	}
	foreach(cell, inner->cheapest_parameterized_paths)
		consider_join(root, joinrel, type, extra, stream, lfirst(cell));
}

void
plan_stream_init(void)
{
	prev_set_join_pathlist = set_join_pathlist_hook;
	set_join_pathlist_hook = gpuann_set_join_pathlist;
}
