/*
 * planned_paths.c
 *		The ordered index paths that the planner has made, for the plan node.
 *
 * The plan node's paths take the place of these, but when it is asked for them
 * the planner has dropped each that another path was as good as: an index of
 * another access method with the same order, say. What that path costs says
 * nothing about the node's. So paths are remembered when they are priced, which
 * the planner does to each; it never frees an index path. They are gone with
 * the memory of their planning, whatever ends it.
 */
#include "scan/planned_paths.h"

#include "lib/ilist.h"
#include "utils/memutils.h"

typedef struct PlannedPath
{
	dlist_node	node;
	bool		listed;
	PlannerInfo *root;
	IndexPath  *path;
	MemoryContextCallback ends;
} PlannedPath;

static dlist_head planned = DLIST_STATIC_INIT(planned);

static void
planned_path_drop(void *arg)
{
	PlannedPath *entry = arg;

	if (entry->listed)
		dlist_delete(&entry->node);
	entry->listed = false;
}

void
planned_path_add(PlannerInfo *root, IndexPath *path)
{
	MemoryContext memory = GetMemoryChunkContext(path);
	PlannedPath *entry = MemoryContextAllocZero(memory, sizeof(PlannedPath));

	entry->root = root;
	entry->path = path;
	entry->ends = (MemoryContextCallback) {.func = planned_path_drop, .arg = entry};
	MemoryContextRegisterResetCallback(memory, &entry->ends);
	dlist_push_tail(&planned, &entry->node);
	entry->listed = true;
}

List *
planned_paths_take(PlannerInfo *root, const RelOptInfo *rel)
{
	List	   *paths = NIL;
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &planned)
	{
		PlannedPath *entry = dlist_container(PlannedPath, node, iter.cur);

		if (entry->root != root || entry->path->path.parent != rel)
			continue;
		paths = lappend(paths, entry->path);
		planned_path_drop(entry);
	}
	return paths;
}
