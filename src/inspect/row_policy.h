/*
 * row_policy.h
 *		Which rows of a table its row-level security lets the current user see.
 */
#ifndef GPUANN_ROW_POLICY_H
#define GPUANN_ROW_POLICY_H

#include "postgres.h"

#include "storage/itemptr.h"
#include "utils/rel.h"

typedef struct RowPolicy RowPolicy;

/*
 * Begin to ask about rows of a table, as the current user and with the active
 * snapshot. slots: of an index of it; answers about so many are remembered
 * where work_mem holds two bits of each. NULL: no policy applies, every row may
 * be seen.
 */
extern RowPolicy *row_policy_begin(Relation heap, uint32 slots);

/*
 * Whether the row version at tid, which this slot names, may be seen. NULL lets
 * everything be seen.
 */
extern bool row_policy_allows(RowPolicy *policy, uint32 slot, const ItemPointerData *tid);

extern void row_policy_end(RowPolicy *policy);

#endif							/* GPUANN_ROW_POLICY_H */
