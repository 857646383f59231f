/*
 * units_test.c
 *		Units: lists are placed as the paper places them, no pair is lost, loads
 *		are even where a scattered placement's are not, and answers depend on
 *		none of it.
 */
#include "units_test.h"

int
main(void)
{
	promises_of = "units";
	test_placement();
	test_schedule();
	test_merge();
	return promises_end();
}
