/*
 * row_policy.c
 *		Which rows of a table its row-level security lets the current user see.
 *
 * Policies are conditions that only a query applies: they may hold subqueries,
 * and what they call runs as the user. So each row is asked for by a prepared
 * query of its TID, and PostgreSQL adds what has to hold and checks the user's
 * privileges.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rls.h"

#include "inspect/row_policy.h"

/* Two bits of a slot */
#define ROW_UNKNOWN		0
#define ROW_HIDDEN		1
#define ROW_SEEN		2

struct RowPolicy
{
	SPIPlanPtr	query;
	uint32		slots;			/* that answers are remembered of */
	uint8	   *answers;		/* of four slots each */
};

/* Prepare the query that returns the row at a TID if it may be seen. */
static SPIPlanPtr
prepare_query(Relation heap)
{
	const char *table = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(heap)),
												   RelationGetRelationName(heap));
	Oid			type = TIDOID;
	SPIPlanPtr	query;

	query = SPI_prepare(psprintf("SELECT FROM ONLY %s WHERE ctid OPERATOR(pg_catalog.=) $1", table),
						1, &type);
	if (query == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	return query;
}

RowPolicy *
row_policy_begin(Relation heap, uint32 slots)
{
	MemoryContext memory = CurrentMemoryContext;
	RowPolicy  *policy;

	/* False: an error, if the user has set row_security to off. */
	if (check_enable_rls(RelationGetRelid(heap), InvalidOid, false) != RLS_ENABLED)
		return NULL;
	policy = palloc0(sizeof(RowPolicy));
	if ((Size) slots / 4 < (Size) work_mem * 1024)
	{
		policy->slots = slots;
		policy->answers = palloc_extended((Size) slots / 4 + 1, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	}
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	policy->query = prepare_query(heap);
	MemoryContextSwitchTo(memory);
	return policy;
}

/* Ask about one row. */
static bool
ask_about_row(const RowPolicy *policy, const ItemPointerData *tid)
{
	MemoryContext memory = CurrentMemoryContext;
	Datum		value = PointerGetDatum(tid);
	bool		seen;
	int			result = SPI_execute_plan(policy->query, &value, NULL, true, 1);

	if (result != SPI_OK_SELECT)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(result));
	seen = SPI_processed > 0;
	SPI_freetuptable(SPI_tuptable);
	MemoryContextSwitchTo(memory);
	return seen;
}

bool
row_policy_allows(RowPolicy *policy, uint32 slot, const ItemPointerData *tid)
{
	int			shift = slot % 4 * 2;
	int			answer = ROW_UNKNOWN;

	if (policy == NULL)
		return true;
	if (slot < policy->slots)
		answer = policy->answers[slot / 4] >> shift & 3;
	if (answer == ROW_UNKNOWN)
	{
		answer = ask_about_row(policy, tid) ? ROW_SEEN : ROW_HIDDEN;
		if (slot < policy->slots)
			policy->answers[slot / 4] |= answer << shift;
	}
	return answer == ROW_SEEN;
}

void
row_policy_end(RowPolicy *policy)
{
	if (policy == NULL)
		return;
	SPI_finish();
	if (policy->answers != NULL)
		pfree(policy->answers);
	pfree(policy);
}
