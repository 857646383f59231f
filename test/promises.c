/*
 * promises.c
 *		Promises of tests in C, and what became of them.
 */
#include <stdarg.h>
#include <string.h>

#include "promises.h"

const char *promises_of = "";
uint64_t	random_state = 1;

static int	number;
static bool all = true;
static char failure[512];

void
case_fails(const char *format,...)
{
	va_list		arguments;

	if (case_failed())
		return;
	va_start(arguments, format);
	vsnprintf(failure, sizeof(failure), format, arguments);
	va_end(arguments);
}

bool
case_failed(void)
{
	return failure[0] != '\0';
}

const char *
case_ends(void)
{
	static char reason[sizeof(failure)];

	if (!case_failed())
		return NULL;
	memcpy(reason, failure, sizeof(failure));
	failure[0] = '\0';
	return reason;
}

void
report(const char *promise)
{
	const char *reason = case_ends();

	printf("%sok %d - %s: %s\n", reason == NULL ? "" : "not ", ++number, promises_of, promise);
	if (reason != NULL)
		printf("# %s\n", reason);
	all &= reason == NULL;
}

int
promises_end(void)
{
	printf("1..%d\n", number);
	return all ? 0 : 1;
}

void *
need(size_t bytes)
{
	size_t		rounded = (bytes + 127) / 64 * 64;
	void	   *memory = aligned_alloc(64, rounded);

	if (memory == NULL)
		exit(2);
	return memset(memory, 0, rounded);
}

uint32_t
below(uint32_t limit)
{
	return (uint32_t) (random_fraction(&random_state) * limit);
}
