/*
 * lone.c
 *		Queries that are asked one at a time.
 */
#include "run.h"

#define MAX_LONE		20000

/*
 * One query of a row, from submit to poll, in seconds; the first answer is the
 * row itself. *counters: what the engine says of it.
 */
double
ask_row(const void *vector, SearchMethod method, uint32_t ef, SearchResult *results, uint32_t k,
		uint32_t *count, SearchCounters *counters)
{
	EngineQuery query = {
		.mirror = mirror, .method = method, .k = k, .ef = ef, .vector = vector, .results = results};
	EngineQuery *one = &query;
	EngineError error = {0};
	uint32_t	done = 0;
	double		start = now();

	must(ops->submit(engine, &one, 1, &error), &error, "submit");
	while (done == 0)
		must(ops->poll(engine, &one, 1, &done, &error), &error, "poll");
	must(query.status, &query.error, "query");
	*count = query.count;
	*counters = query.counters;
	return now() - start;
}

/*
 * A lone query: what it took, what of that it waited to start and was with the
 * engine, and when it was asked, since the first.
 */
typedef struct Lone
{
	double		seconds;
	double		begun;
	uint32_t	queue_us;
	uint32_t	engine_us;
} Lone;

static int
compare_lone(const void *left, const void *right)
{
	double		a = ((const Lone *) left)->seconds;
	double		b = ((const Lone *) right)->seconds;

	return a < b ? -1 : a > b;
}

/*
 * Of the slowest hundredth of queries, in order: what they took, and in which
 * tenth of the time they were asked.
 */
static void
print_slowest(const Lone *lone, uint32_t n, double total)
{
	uint32_t	tenths[10] = {0};
	double		seconds = 0,
				queued = 0,
				inside = 0;
	uint32_t	first = n * 99 / 100;

	for (uint32_t i = first; i < n; i++)
	{
		tenths[(int) (lone[i].begun / total * 10) % 10]++;
		seconds += lone[i].seconds;
		queued += lone[i].queue_us;
		inside += lone[i].engine_us;
	}
	printf(
		"* the slowest hundredth: mean %.1f us, of that %.1f queued, %.1f in the engine; by tenth of the time:",
		seconds / (n - first) * 1e6, queued / (n - first), inside / (n - first));
	for (int i = 0; i < 10; i++)
		printf(" %u", tenths[i]);
	printf("\n");
}

/*
 * Lone queries one after the other until a job (0: none) is over, or a number
 * of them; prints what they took.
 */
void
lone_queries(const char *vectors, JobId job, const char *what)
{
	static Lone lone[MAX_LONE];
	static SearchResult results[10];
	size_t		bytes = engine_vector_bytes(set.type, set.dims);
	JobProgress progress = {0};
	double		start = now();
	uint32_t	n = 0;
	uint32_t	count;

	while (n < MAX_LONE && !progress.completed && (job != 0 || n < 2000))
	{
		SearchCounters counters;

		lone[n].begun = now() - start;
		lone[n].seconds = ask_row(vectors + (size_t) (n * 7919u % set.rows) * bytes, METHOD_GRAPH,
								  set.efs[0], results, 10, &count, &counters);
		lone[n].queue_us = counters.queue_us;
		lone[n].engine_us = counters.engine_us;
		n++;
		if (job != 0)
			ops->job_poll(engine, job, &progress);
	}
	start = now() - start;
	qsort(lone, n, sizeof(Lone), compare_lone);
	printf(
		"* lone queries %s: median %.1f us, 90th of a hundred %.1f us, 99th %.1f us, most %.1f us, %u queries in %.2f s\n",
		what, lone[n / 2].seconds * 1e6, lone[n * 9 / 10].seconds * 1e6,
		lone[n * 99 / 100].seconds * 1e6, lone[n - 1].seconds * 1e6, n, start);
	print_slowest(lone, n, start);
}
