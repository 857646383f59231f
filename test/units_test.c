/*
 * units_test.c
 *		Units: lists are placed as the paper places them, no pair is lost, loads
 *		are even where a scattered placement's are not, and answers depend on
 *		none of it.
 */
#include <stdarg.h>

#include "units_test.h"

static int	number;
static bool all = true;
static char failure[256];

void
test_fails(const char *format,...)
{
	va_list		arguments;

	if (failure[0] != '\0')
		return;
	va_start(arguments, format);
	vsnprintf(failure, sizeof(failure), format, arguments);
	va_end(arguments);
}

void
report(const char *promise)
{
	bool		right = failure[0] == '\0';

	printf("%sok %d - units: %s\n", right ? "" : "not ", ++number, promise);
	if (!right)
		printf("# %s\n", failure);
	all &= right;
	failure[0] = '\0';
}

void *
need(size_t bytes)
{
	void	   *memory = calloc(bytes + 1, 1);

	if (memory == NULL)
		exit(2);
	return memory;
}

uint64_t	random_state = 1;

uint32_t
below(uint32_t limit)
{
	return (uint32_t) (random_fraction(&random_state) * limit);
}

int
main(void)
{
	test_placement();
	test_schedule();
	test_merge();
	printf("1..%d\n", number);
	return all ? 0 : 1;
}
