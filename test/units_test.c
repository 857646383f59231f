/*
 * units_test.c
 *		Units: lists are placed as the paper places them, loads are even where a
 *		scattered placement's are not, and a merge of partial answers is that of
 *		all rows.
 */
#include "units_test.h"

int
main(void)
{
	promises_of = "units";
	test_placement();
	test_merge();
	return promises_end();
}
