/*
 * conformance_lists_cooc.c
 *		Co-occurrence codes change no answer.
 */
#include <string.h>

#include "conformance_lists.h"

#define ROWS		6500	/* in one list, */
#define MORE		2500	/* and rows that come later */
#define DIMS		32
#define GROUPS		150		/* of equal rows */
#define QUERIES		260		/* half of them together: more than have extended tables at once */
#define FEW_QUERIES	60		/* where everything is slow */
#define STAGES		4
#define MODES		3

typedef struct Answers
{
	uint32_t	counts[STAGES][QUERIES];
	SearchResult results[STAGES][QUERIES][10];
} Answers;

/* A world in which most rows have many equals, and codes therefore too. */
static World *
grouped_world(CoocMode mode)
{
	ListSpec	spec = {.lists = 1, .quantizer = QUANTIZER_PQ, .bits = 8, .parts = 16, .seed = 5,
						.cooc = mode};
	World	   *world = world_create_lists(&spec, ELEMENT_FLOAT, METRIC_L2, DIMS, ROWS + MORE, 100,
										   SHAPE_UNIFORM);

	for (uint32_t i = 0; i < ROWS + MORE; i++)
		if (i / 32 % 16 != 0)
			world_set_vector(world, i, (uint64_t) i * i % GROUPS);
	world_append(world, ROWS);
	world_train(world, NULL);
	world_link_lists(world);
	return world;
}

/* Answers by bounds and by estimate, alone and together. */
static void
answer(const World *world, uint32_t stage, Answers *answers)
{
	uint32_t	count = options.quick ? FEW_QUERIES : QUERIES;
	EngineQuery *queries = allocate(count * sizeof(EngineQuery));

	for (uint32_t i = 0; i < count; i++)
		list_query_init(&queries[i], world, 10, 1, i % 3 == 0 ? 0 : 10 * (i % 3),
						world_vector(world, i * 25));
	queries_run(queries, count / 2);
	for (uint32_t i = count / 2; i < count; i++)
		queries_run(&queries[i], 1);
	for (uint32_t i = 0; i < count; i++)
	{
		must(queries[i].status, &queries[i].error, "query");
		answers->counts[stage][i] = queries[i].count;
		memcpy(answers->results[stage][i], queries[i].results,
			   queries[i].count * sizeof(SearchResult));
	}
	check_lists_exact(world, 1, "with co-occurrence codes");
}

/* Every stage of a mirror's life; returns the bytes it takes at the end. */
static uint64_t
live(CoocMode mode, Answers *answers)
{
	World	   *world = grouped_world(mode);
	uint64_t	bytes;

	answer(world, 0, answers);
	for (uint32_t i = 0; i < ROWS; i += 40)
		world_kill(world, i);
	answer(world, 1, answers);
	/* holes of encoded blocks are filled, then new segments */
	world_append(world, MORE / 10);
	world_link_lists(world);
	answer(world, 2, answers);
	world_append(world, MORE - MORE / 10);
	world_link_lists(world);
	answer(world, 3, answers);
	bytes = world_info(world).bytes;
	world_drop(world);
	return bytes;
}

static void
lists_answer_alike_with_cooc(void)
{
	Answers    *answers = allocate(MODES * sizeof(Answers));
	uint64_t	bytes[MODES];
	EngineInfo	info;

	for (CoocMode mode = COOC_AUTO; mode <= COOC_OFF; mode++)
	{
		EngineConfig config = {.device = options.device, .simd = options.simd,
			.threads = 1 + (int) mode % 2};

		reopen(&config);
		bytes[mode] = live(mode, &answers[mode]);
		CHECK(memcmp(answers[mode].counts, answers[0].counts, sizeof(answers[0].counts)) == 0,
			  "mode %d: other numbers of answers", (int) mode);
		CHECK(memcmp(answers[mode].results, answers[0].results, sizeof(answers[0].results)) == 0,
			  "mode %d: other answers", (int) mode);
	}
	ops->info(engine, &info);
	CHECK(strcmp(info.name, "cpu") != 0 ||
		  (bytes[COOC_AUTO] > bytes[COOC_OFF] + ROWS * 4 && bytes[COOC_ON] > bytes[COOC_OFF]),
		  "%llu, %llu and %llu bytes: no list was encoded", (unsigned long long) bytes[COOC_AUTO],
		  (unsigned long long) bytes[COOC_ON], (unsigned long long) bytes[COOC_OFF]);
}

static void
lists_cooc_is_of_pq_only(void)
{
	MirrorSpec	spec = {.dims = 8, .type = ELEMENT_FLOAT, .metric = METRIC_L2,
						.method = METHOD_IVFPQ, .degree = 1, .residency = RESIDENCY_FULL,
						.placement = PLACEMENT_SINGLE, .device = -1,
						.lists = {.lists = 2, .quantizer = QUANTIZER_RABITQ, .bits = 1,
								  .cooc = COOC_ON}};
	MirrorId	id;
	EngineError error;

	CHECK(ops->mirror_create(engine, &spec, &id, &error) != ENGINE_OK, "rabitq with words");
	spec.lists = (ListSpec) {.lists = 2, .quantizer = QUANTIZER_PQ, .bits = 4, .parts = 4,
							 .cooc = COOC_ON};
	CHECK(ops->mirror_create(engine, &spec, &id, &error) != ENGINE_OK, "4 bits with words");
	spec.lists.cooc = (CoocMode) 3;
	CHECK(ops->mirror_create(engine, &spec, &id, &error) != ENGINE_OK, "a mode that is none");
}

const Case list_cooc_cases[] = {
	{"lists_answer_alike_with_cooc", lists_answer_alike_with_cooc, false},
	{"lists_cooc_is_of_pq_only", lists_cooc_is_of_pq_only, false},
	{NULL, NULL, false}};
