/*
 * protocol_test.c
 *		The protocol between PostgreSQL and gpuann-server, tested from
 *		PostgreSQL's place. Runs all cases, or those named.
 *
 * protocol_test [--server PROGRAM] [--stub LIBRARY] [--requests N] [--clients
 * N] [case ...]
 *
 * Without --server the one two directories above is taken, where the makefile
 * puts it. A program called *-san takes the server's code that is linked in
 * here, in a forked process, so that the sanitizers see it; the others do so
 * where there is no server. One called *-tsan runs only the cases of threads.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "protocol_test.h"

/* Sanitizers slow everything down by an order of magnitude. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REQUESTS	20000
#define STORM_REQUESTS 200000
#else
#define REQUESTS	100000
#define STORM_REQUESTS 10000000
#endif

TestOptions test_options = {
	.engine = "cpu", .requests = REQUESTS, .storm_requests = STORM_REQUESTS, .clients = 32};

/* Whether a case was asked for. */
static bool
wanted(const char *name, int count, char **names)
{
	for (int i = 0; i < count; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return count == 0;
}

/*
 * Take the options off the command line; returns how many arguments they were.
 */
static int
take_options(int argc, char **argv)
{
	int			i = 1;

	for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2)
	{
		if (strcmp(argv[i], "--server") == 0)
			test_options.server = argv[i + 1];
		else if (strcmp(argv[i], "--stub") == 0)
			test_options.stub = argv[i + 1];
		else if (strcmp(argv[i], "--engine-library") == 0)
		{
			test_options.engine = "cuda";
			test_options.engine_library = argv[i + 1];
		}
		else if (strcmp(argv[i], "--requests") == 0)
			test_options.requests = (uint32_t) atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--storm-requests") == 0)
			test_options.storm_requests = (uint32_t) atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--clients") == 0)
			test_options.clients = (uint32_t) atoi(argv[i + 1]);
		else
			break;
	}
	return i;
}

/*
 * A file as seen from the directory of the test program, or NULL if it is not
 * there.
 */
static char *
beside(const char *program, const char *name)
{
	char		path[4096];
	const char *slash = strrchr(program, '/');

	snprintf(path, sizeof(path), "%.*s%s", slash == NULL ? 0 : (int) (slash - program) + 1, program,
			 name);
	return realpath(path, NULL);
}

/* Whether the program was built under such a name. */
static bool
is_called(const char *program, const char *end)
{
	size_t		length = strlen(program);

	return length >= strlen(end) && strcmp(program + length - strlen(end), end) == 0;
}

/* Find server and stub engine, unless they were named. */
static void
find_programs(const char *program)
{
	if (test_options.server == NULL && !is_called(program, "-san"))
		test_options.server = beside(program, "../../" SERVER_PROGRAM);
	/* dlopen wants a path with a slash */
	test_options.stub = test_options.stub != NULL ? realpath(test_options.stub, NULL)
												  : beside(program, "stub_engine.so");
	if (test_options.stub == NULL)
	{
		fprintf(stderr, "there is no stub engine: name stub_engine.so with --stub\n");
		exit(1);
	}
	printf("# the server is %s\n",
		   test_options.server != NULL ? test_options.server : "the one linked in");
}

int
main(int argc, char **argv)
{
	const TestCase *const groups[] = {start_cases, channel_cases, list_cases,  link_cases,
									  several_cases, set_cases,	program_cases,
									  load_cases, fault_cases, cycle_cases, step_cases,
									  thread_cases, stall_cases};
	int			first = take_options(argc, argv);
	uint32_t	passed = 0;
	uint32_t	failed = 0;
	char		lock[100];

	setvbuf(stdout, NULL, _IOLBF, 0);
	find_programs(argv[0]);
	snprintf(test_options.directory, sizeof(test_options.directory), "/tmp/protocol_test.XXXXXX");
	if (mkdtemp(test_options.directory) == NULL)
	{
		perror("mkdtemp");
		return 1;
	}
	oracle_make();
	for (size_t group = 0; group < sizeof(groups) / sizeof(groups[0]); group++)
		for (const TestCase *test = groups[group]; test->name != NULL; test++)
		{
			int64_t		begun = now_us();
			const char *reason;

			if (!wanted(test->name, argc - first, argv + first) ||
				(is_called(argv[0], "-tsan") && groups[group] != thread_cases))
				continue;
			test->run();
			reason = case_ends();
			if (reason == NULL)
				printf("ok %s\n", test->name);
			else
				printf("not ok %s: %s\n", test->name, reason);
			if (getenv("GPUANN_TEST_TIMES") != NULL)
				printf("# %.2f s\n", (double) (now_us() - begun) / 1e6);
			*(reason == NULL ? &passed : &failed) += 1;
		}
	snprintf(lock, sizeof(lock), "%s/lock", test_options.directory);
	unlink(lock);
	rmdir(test_options.directory);
	printf("%u passed, %u failed\n", passed, failed);
	return failed > 0;
}
