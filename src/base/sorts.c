/*
 * sorts.c
 *		Sorting that can be cancelled. See sorts.h.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "engine/select.h"
#include "base/faults.h"
#include "base/sorts.h"

#define ST_SORT sort_answer
#define ST_ELEMENT_TYPE SearchResult
#define ST_COMPARE(a, b) (result_before(a, b) ? -1 : result_before(b, a))
#define ST_SCOPE
#define ST_DEFINE
#define ST_CHECK_FOR_INTERRUPTS
#include "lib/sort_template.h"

#define ST_SORT sort_slots
#define ST_ELEMENT_TYPE uint32
#define ST_COMPARE(a, b) (*(a) < *(b) ? -1 : *(a) > *(b))
#define ST_SCOPE
#define ST_DEFINE
#define ST_CHECK_FOR_INTERRUPTS
#include "lib/sort_template.h"
