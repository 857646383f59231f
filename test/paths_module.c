/*
 * paths_module.c
 *		A module that does to a relation's paths what planner hooks of other
 *		extensions do (t/172, t/183).
 *
 * paths_module.mode says what: with "rebuild", "hint" and "no_index" all paths
 * are freed and made anew, "hint" as if an index scan were asked for, and
 * "no_index" as if none were allowed (pg_hint_plan does so); with "drop" only a
 * sequential scan stays; with "add" there is a path more; with "replace" the
 * relation is read by a path of the module alone, as where some of its rows are
 * kept elsewhere. What is freed is overwritten.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "fmgr.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

typedef enum Mode
{
	MODE_OFF,
	MODE_REBUILD,
	MODE_HINT,
	MODE_NO_INDEX,
	MODE_DROP,
	MODE_ADD,
	MODE_REPLACE
} Mode;

static const struct config_enum_entry modes[] = {
	{"off", MODE_OFF, false},
	{"rebuild", MODE_REBUILD, false},
	{"hint", MODE_HINT, false},
	{"no_index", MODE_NO_INDEX, false},
	{"drop", MODE_DROP, false},
	{"add", MODE_ADD, false},
	{"replace", MODE_REPLACE, false},
	{NULL, 0, false}
};

static int	mode = MODE_OFF;
static set_rel_pathlist_hook_type prev_set_rel_pathlist = NULL;

/*
 * Free a list and its paths.
 */
static void
free_paths(List **paths)
{
	ListCell   *cell;

	foreach(cell, *paths)
		memset(lfirst(cell), 0x7f, sizeof(Path));
	list_free_deep(*paths);
	*paths = NIL;
}

static Path *
sequential_scan(PlannerInfo *root, RelOptInfo *rel, int workers)
{
	return create_seqscan_path(root, rel, rel->lateral_relids, workers);
}

/*
 * As set_plain_rel_pathlist() does.
 */
static void
rebuild(PlannerInfo *root, RelOptInfo *rel)
{
	int			workers;

	free_paths(&rel->pathlist);
	free_paths(&rel->partial_pathlist);
	add_path(rel, sequential_scan(root, rel, 0));
	workers = rel->consider_parallel && rel->lateral_relids == NULL
		? compute_parallel_worker(rel, rel->pages, -1, max_parallel_workers_per_gather)
		: 0;
	if (workers > 0)
		add_partial_path(rel, sequential_scan(root, rel, workers));
	create_index_paths(root, rel);
	create_tidscan_paths(root, rel);
}

/*
 * Have only a sequential scan, above which there is something else.
 */
static void
only_sequential(PlannerInfo *root, RelOptInfo *rel, bool below)
{
	Path	   *path = sequential_scan(root, rel, 0);

	free_paths(&rel->pathlist);
	free_paths(&rel->partial_pathlist);
	if (below)
		path = (Path *) create_material_path(rel, path);
	add_path(rel, path);
}

static void
change_paths(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	bool		was[] = {enable_seqscan, enable_bitmapscan, enable_indexscan};
	Path	   *path;

	if (prev_set_rel_pathlist)
		prev_set_rel_pathlist(root, rel, rti, rte);
	if (rte->rtekind != RTE_RELATION || rte->inh || rte->tablesample != NULL ||
		rte->relkind == RELKIND_FOREIGN_TABLE || IS_DUMMY_REL(rel))
		return;
	switch (mode)
	{
		case MODE_HINT:
		case MODE_NO_INDEX:
			enable_indexscan = mode == MODE_HINT;
			if (mode == MODE_HINT)
				enable_seqscan = enable_bitmapscan = false;
			/* FALLTHROUGH */
		case MODE_REBUILD:
			rebuild(root, rel);
			enable_seqscan = was[0];
			enable_bitmapscan = was[1];
			enable_indexscan = was[2];
			break;
		case MODE_DROP:
			only_sequential(root, rel, false);
			break;
		case MODE_ADD:
			path = sequential_scan(root, rel, 0);
			path->startup_cost *= 0.9;
			path->total_cost *= 0.9;
			add_path(rel, path);
			break;
		case MODE_REPLACE:
			only_sequential(root, rel, true);
			break;
	}
}

void
_PG_init(void)
{
	DefineCustomEnumVariable("paths_module.mode", "What becomes of the paths of relations.", NULL,
							 &mode, MODE_OFF, modes, PGC_USERSET, 0, NULL, NULL, NULL);
	prev_set_rel_pathlist = set_rel_pathlist_hook;
	set_rel_pathlist_hook = change_paths;
}
