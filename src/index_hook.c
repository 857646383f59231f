/*
 * index_hook.c
 *		ProcessUtility hook with hints for CREATE INDEX and ALTER INDEX, where
 *		PostgreSQL calls the access method too late or not at all.
 *
 * If the library is not in shared_preload_libraries, the hook is not installed
 * in sessions that have not loaded it yet.
 */
#include "base/handler.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/rel.h"

#define SPARSE_PREFIX	"sparsevec_"

static ProcessUtility_hook_type prev_ProcessUtility = NULL;

/*
 * Refuse operator classes for sparsevec, which pgvector's access methods have;
 * PostgreSQL would only say that they do not exist.
 */
static void
refuse_sparsevec(const IndexStmt *statement)
{
	ListCell   *cell;

	if (statement->accessMethod == NULL || strcmp(statement->accessMethod, "gpuann") != 0)
		return;
	foreach(cell, statement->indexParams)
	{
		const IndexElem *element = lfirst_node(IndexElem, cell);
		const char *class = element->opclass != NIL ? strVal(llast(element->opclass)) : "";

		if (strncmp(class, SPARSE_PREFIX, strlen(SPARSE_PREFIX)) == 0)
			ereport(
				ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("type sparsevec is not supported by gpuann"),
				 errhint(
					 "Index a cast to vector(n) with operator class vector_%s, or use pgvector's hnsw.",
					 class + strlen(SPARSE_PREFIX))));
	}
}

/* Options that only a build uses. */
static const char *const graph_options[] = {"m", "ef_construction"};
static const char *const lists_options[] = {"method", "lists", "quantizer", "code_bits", "pq_m"};

/* Whether a statement changes one of these options. */
static bool
changes_options(const AlterTableStmt *statement, const char *const *names, int count)
{
	ListCell   *cell;

	foreach(cell, statement->cmds)
	{
		const AlterTableCmd *command = lfirst_node(AlterTableCmd, cell);
		ListCell   *option;

		if (command->subtype != AT_SetRelOptions && command->subtype != AT_ResetRelOptions)
			continue;
		foreach(option, (List *) command->def)
			for (int i = 0; i < count; i++)
				if (strcmp(lfirst_node(DefElem, option)->defname, names[i]) == 0)
					return true;
	}
	return false;
}

/* Whether a statement changes options that only a build uses. */
static bool
changes_build_options(const AlterTableStmt *statement)
{
	return changes_options(statement, graph_options, lengthof(graph_options)) ||
		   changes_options(statement, lists_options, lengthof(lists_options));
}

/*
 * Report that the new options take effect at the next REINDEX. The statement's
 * own lock is held until the transaction ends, but the index is locked again
 * here, because its name may refer to another relation by now. Its pages are
 * not read, because they may be damaged, and REINDEX is to repair them.
 */
static void
tell_of_reindex(const AlterTableStmt *statement)
{
	Oid			oid = RangeVarGetRelid(statement->relation, AccessShareLock, true);
	Relation	index;

	if (!OidIsValid(oid))
		return;
	index = relation_open(oid, NoLock);
	if (is_gpuann_index(index))
		ereport(
			NOTICE,
			(errmsg("options %s of index \"%s\" take effect when it is rebuilt",
					changes_options(statement, lists_options, lengthof(lists_options))
						? "method, lists, quantizer, code_bits and pq_m"
						: "m and ef_construction",
					RelationGetRelationName(index)),
			 errhint("REINDEX it.")));
	relation_close(index, NoLock);
}

static void
gpuann_index_utility(PlannedStmt *planned, const char *query, bool read_only_tree,
					 ProcessUtilityContext context, ParamListInfo parameters,
					 QueryEnvironment *environment, DestReceiver *receiver,
					 QueryCompletion *completion)
{
	ProcessUtility_hook_type next = prev_ProcessUtility ? prev_ProcessUtility :
		standard_ProcessUtility;
	Node	   *statement = planned->utilityStmt;
	bool		altered = IsA(statement, AlterTableStmt) &&
		changes_build_options((AlterTableStmt *) statement);

	if (IsA(statement, IndexStmt))
		refuse_sparsevec((IndexStmt *) statement);
	next(planned, query, read_only_tree, context, parameters, environment, receiver, completion);
	if (altered)
		tell_of_reindex((AlterTableStmt *) statement);
}

void
index_hook_init(void)
{
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = gpuann_index_utility;
}
