/*
 * conformance.c
 *		Runs the engine conformance suite: conformance [--engine cpu|FILE]
 *		[--simd LEVEL] [--device N] [--search-by-rows] [--cpu-graphs]
 *		[--quick | --full] [--list] [--only NAMES]
 *
 * NAMES are separated by commas; one that ends in an asterisk stands for all
 * that begin so. One line for each case, "ok NAME", "not ok NAME: why" or "ok
 * NAME # skip why"; the last line counts them. Exit status 1 if one failed.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "conformance.h"

/*
 * Under a sanitizer everything is slower by far: the long cases only if asked
 * for by --full.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QUICK_BY_DEFAULT	true
#else
#define QUICK_BY_DEFAULT	false
#endif

Options		options = {.engine = "cpu", .device = -1, .quick = QUICK_BY_DEFAULT};
const EngineOps *ops;
Engine	   *engine;

typedef enum Outcome
{
	PASSED = 1,
	FAILED,
	SKIPPED
} Outcome;

/* A piece of memory that a case allocated. */
typedef struct Piece
{
	struct Piece *next;
	void	   *memory;
} Piece;

static const Case *const groups[] = {
	kernel_cases, exact_cases, graph_cases,	 reference_cases, change_cases, limit_cases,
	more_cases,	  grow_cases,  crowd_cases,	 cycle_cases,	  tile_cases,	few_cases,
	far_cases,	  link_cases,  filter_cases, column_cases,	  start_cases,	repair_cases,
	device_cases, degree_cases, batch_cases, halves_cases, equal_cases, copy_cases, length_cases,
	outlier_cases, list_cases, list_job_cases, list_cooc_cases, list_probe_cases,
	list_twin_cases};
static jmp_buf leave;
static char why[512];
static Piece *pieces;
static uint64_t random_state;
static unsigned counts[4];

/* not acted on now: the CPU engine beside the one under test, or that */
static const EngineOps *other_ops;
static Engine *other_engine;
static bool acts_on_cpu;

/* End the case as failed. */
void
fail(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	longjmp(leave, FAILED);
}

/* End the case as not to be run here. */
void
skip(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	longjmp(leave, SKIPPED);
}

/* Memory, zeroed, that is freed when the case ends. */
void *
allocate(size_t size)
{
	Piece	   *piece = malloc(sizeof(*piece));

	if (piece == NULL || (piece->memory = calloc(1, size > 0 ? size : 1)) == NULL)
	{
		fprintf(stderr, "conformance: out of memory\n");
		exit(2);
	}
	piece->next = pieces;
	pieces = piece;
	return piece->memory;
}

static void
free_pieces(void)
{
	while (pieces != NULL)
	{
		Piece	   *piece = pieces;

		pieces = piece->next;
		free(piece->memory);
		free(piece);
	}
}

/* Begin a sequence of random numbers. */
void
random_seed(uint64_t seed)
{
	random_state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
}

/* The next random number below a limit. */
uint32_t
random_below(uint32_t limit)
{
	uint64_t	x = random_state += UINT64_C(0x9E3779B97F4A7C15);

	x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
	x ^= x >> 31;
	return (uint32_t) ((x >> 32) * limit >> 32);
}

double
clock_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}

void
act_on_cpu(bool cpu)
{
	const EngineOps *own = ops;
	Engine	   *current = engine;

	if (cpu == acts_on_cpu)
		return;
	ops = cpu ? cpu_engine_ops() : other_ops;
	engine = other_engine;
	other_ops = own;
	other_engine = current;
	acts_on_cpu = cpu;
	if (engine == NULL)
		engine = open_engine(&(EngineConfig) {.device = -1}, ENGINE_OK);
}

/* Close what a case has opened. */
static void
close_engines(void)
{
	act_on_cpu(false);
	if (engine != NULL)
		ops->close(engine);
	if (other_engine != NULL)
		other_ops->close(other_engine);
	engine = other_engine = NULL;
}

/*
 * Run one case in an engine of its own, so that what one leaves behind cannot
 * help or hurt another.
 */
static void
run_case(const Case *run)
{
	double		start = clock_seconds();
	volatile Outcome outcome = PASSED;
	EngineConfig config = {.device = options.device,
						   .simd = options.simd,
						   .forced.search_by_rows = options.search_by_rows};
	int			jumped;

	random_seed(1);
	why[0] = 0;
	engine = NULL;
	jumped = setjmp(leave);
	if (jumped == 0)
	{
		engine = open_engine(&config, ENGINE_OK);
		run->run();
	}
	else
		outcome = (Outcome) jumped;
	close_engines();
	free_pieces();
	counts[outcome]++;
	if (outcome == PASSED)
		printf("ok %s (%.1f s)\n", run->name, clock_seconds() - start);
	else if (outcome == FAILED)
		printf("not ok %s: %s\n", run->name, why);
	else
		printf("ok %s # skip %s\n", run->name, why);
	fflush(stdout);
}

/* The engine that the command line names. */
static const EngineOps *
load_engine(const char *name)
{
	void	   *library;
	EngineEntry entry;

	if (strcmp(name, "cpu") == 0)
		return cpu_engine_ops();
	library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL)
	{
		fprintf(stderr, "conformance: %s\n", dlerror());
		exit(2);
	}
	*(void **) &entry = dlsym(library, ENGINE_ENTRY_SYMBOL);
	if (entry == NULL)
	{
		fprintf(stderr, "conformance: %s has no %s\n", name, ENGINE_ENTRY_SYMBOL);
		exit(2);
	}
	return entry();
}

static void
usage(void)
{
	fprintf(
		stderr,
		"usage: conformance [--engine cpu|FILE] [--simd LEVEL] [--device N] [--search-by-rows] [--cpu-graphs] [--quick | --full] [--list] [--only NAMES]\n");
	exit(2);
}

/* Read the command line; returns the case to run alone, or NULL. */
static const char *
read_options(int argc, char **argv, bool *list)
{
	const char *only = NULL;

	for (int i = 1; i < argc; i++)
	{
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (strcmp(argv[i], "--quick") == 0)
			options.quick = true;
		else if (strcmp(argv[i], "--full") == 0)
			options.quick = false;
		else if (strcmp(argv[i], "--search-by-rows") == 0)
			options.search_by_rows = true;
		else if (strcmp(argv[i], "--cpu-graphs") == 0)
			options.cpu_graphs = true;
		else if (strcmp(argv[i], "--list") == 0)
			*list = true;
		else if (value == NULL)
			usage();
		else
		{
			i++;
			if (strcmp(argv[i - 1], "--engine") == 0 ||
				strcmp(argv[i - 1], "--engine-library") == 0)
				options.engine = value;
			else if (strcmp(argv[i - 1], "--simd") == 0)
				options.simd = value;
			else if (strcmp(argv[i - 1], "--device") == 0)
				options.device = atoi(value);
			else if (strcmp(argv[i - 1], "--only") == 0)
				only = value;
			else
				usage();
		}
	}
	return only;
}

/* Whether a case is among the names of --only. */
static bool
is_named(const char *names, const char *name)
{
	for (const char *at = names; *at != 0; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
	{
		size_t		length = strcspn(at, ",");

		if (length > 0 && at[length - 1] == '*' ? strncmp(at, name, length - 1) == 0
			: length == strlen(name) && strncmp(at, name, length) == 0)
			return true;
	}
	return false;
}

int
main(int argc, char **argv)
{
	bool		list = false;
	const char *only = read_options(argc, argv, &list);

	ops = load_engine(options.engine);
	if (ops->abi_version != ENGINE_ABI_VERSION)
	{
		fprintf(stderr, "conformance: the engine is of version %u, not %u\n", ops->abi_version,
				ENGINE_ABI_VERSION);
		return 2;
	}
	for (size_t group = 0; group < sizeof(groups) / sizeof(groups[0]); group++)
		for (const Case *run = groups[group]; run->name != NULL; run++)
		{
			if (only != NULL ? !is_named(only, run->name) : (options.quick && run->slow))
				continue;
			if (list)
				printf("%s%s\n", run->name, run->slow ? " (slow)" : "");
			else
				run_case(run);
		}
	if (list)
		return 0;
	printf("%u passed, %u failed", counts[PASSED], counts[FAILED]);
	if (counts[SKIPPED] > 0)
		printf(", %u skipped", counts[SKIPPED]);
	printf("\n");
	return counts[FAILED] > 0 || counts[PASSED] + counts[SKIPPED] == 0;
}
