/*
 * protocol_test_load.c
 *		Many clients at once: every answer right, no wake-up lost, no slot
 *		stuck, whoever is killed.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "protocol_test.h"

#define ANSWER_US	INT64_C(20000000)	/* no answer takes as long */
#define SLOW_US		40000
#define MAX_LATE	100		/* then a run ends: something is wrong */
#define REST_MS		10000	/* where the loss of a single wake-up is to be seen, whatever else the
							 * machine does */
#define LOST_US		INT64_C(6000000)

LoadStats *
load_stats_make(void)
{
	LoadStats *stats =
		mmap(NULL, sizeof(LoadStats), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (stats == MAP_FAILED)
	{
		perror("mmap");
		exit(1);
	}
	return stats;
}

/* Note what a client found wrong. */
void
note_wrong(LoadStats *stats, const char *what)
{
	if (atomic_fetch_add(&stats->wrong, 1) == 0)
		snprintf(stats->first_wrong, sizeof(stats->first_wrong), "%s", what);
}

/* Wait until the server has given the slot back. */
static void
await_slot(AreaHeader *area, uint32_t slot, LoadStats *stats)
{
	int64_t		until = now_us() + ANSWER_US;

	while (request_state(atomic_load(area_word(area, slot))) != REQUEST_FREE &&
		   !atomic_load(&stats->stop))
	{
		if (now_us() > until)
		{
			atomic_fetch_add(&stats->stuck, 1);
			return;
		}
		pause_us(100);
	}
}

/* Judge what came of one search. */
static void
judge(const Load *load, LoadStats *stats, const Search *search, Outcome outcome,
	  const Answer *answer)
{
	const char *wrong;

	if (outcome == OUTCOME_SERVER_DIED)
		atomic_fetch_add(&stats->died, 1);
	else if (outcome == OUTCOME_TIMEOUT)
		atomic_fetch_add(&stats->timeouts, 1);
	else if (answer->status == ENGINE_NOT_FOUND && load->deaths)
		atomic_fetch_add(&stats->refused, 1);
	else if (answer->status != ENGINE_OK)
		note_wrong(stats, answer->error);
	else
	{
		wrong = answer_wrong(search, answer);
		if (wrong != NULL)
			note_wrong(stats, wrong);
		atomic_fetch_add(&stats->answered, 1);
		atomic_fetch_add(&stats->batched, answer->batch);
	}
}

/*
 * Wait a random time, by the clock: a sleep is too coarse to meet the server
 * going to sleep.
 */
static void
think(uint32_t most_us, uint64_t *random)
{
	int64_t		until = now_us() + (int64_t) (next_random(random) % (most_us + 1));

	while (now_us() < until)
		continue;
}

/* One client: search, sometimes leave early, check every answer. */
void
load_client_main(AreaHeader *area, const Load *load, LoadStats *stats, uint32_t slot,
				 uint64_t random)
{
	Client		client;
	uint32_t	requests = load->requests / load->clients;
	uint32_t	late = 0;
	int64_t		slow_us = load->slow_us > 0 ? load->slow_us : SLOW_US;

	client_begin(&client, area, slot);
	if (load->slice_ms > 0)
		client.slice_ms = load->slice_ms;
	for (uint32_t i = 0; (load->requests == 0 || i < requests) && !atomic_load(&stats->stop); i++)
	{
		Search		search;
		Answer		answer;
		bool cancels = load->cancel_one_in > 0 && next_random(&random) % load->cancel_one_in == 0;

		think(load->think_us, &random);
		if (load->deaths && atomic_load(&area->server_state) != SERVER_READY &&
			next_random(&random) % 8 != 0)
		{
			pause_us(2000);
			continue;
		}
		search_random(&search, area, 0, &random);
		await_slot(area, slot, stats);
		if (!client_post(&client, &search))
			continue;
		atomic_fetch_add(&stats->posted, 1);
		if (cancels)
		{
			int64_t		until = now_us() + (int64_t) (next_random(&random) % 400);
			Outcome		outcome;

			/*
			 * Futex waits are too coarse to leave in the middle of everything.
			 */
			while (next_random(&random) % 4 != 0 && now_us() < until)
				continue;
			outcome = client_wait(&client, 0, &answer);

			if (outcome == OUTCOME_TIMEOUT)
				atomic_fetch_add(&stats->cancelled, 1);
			else
				judge(load, stats, &search, outcome, &answer);
		}
		else
		{
			int64_t		begun = now_us();

			while (load->spins &&
				   request_state(atomic_load(area_word(area, slot))) != REQUEST_DONE &&
				   now_us() - begun < slow_us)
				continue;
			judge(load, stats, &search, client_wait(&client, load->timeout_us, &answer), &answer);
			if (now_us() - begun > slow_us)
				atomic_fetch_add(&stats->slow, 1);
			if (load->slow_us > 0 && atomic_load(&stats->slow) > 0)
				break;			/* a wake-up was lost: there would be more */
		}
		if (atomic_fetch_add(&stats->late, client.late - late) > MAX_LATE)
			break;
		late = client.late;
	}
}

/* Fork a client. */
pid_t
load_client(World *world, const Load *load, LoadStats *stats, uint32_t slot, uint64_t seed)
{
	pid_t		pid = fork();

	if (pid != 0)
		return pid;
	if (world->death_fd >= 0)
		close(world->death_fd);
	arm_process(&load->arm);
	load_client_main(world->area, load, stats, slot, seed);
	_exit(0);
}

/* All clients, to the end. */
void
load_run(World *world, const Load *load, LoadStats *stats)
{
	pid_t	   *pids = calloc(load->clients, sizeof(pid_t));

	for (uint32_t i = 0; i < load->clients; i++)
		pids[i] = load_client(world, load, stats, i, i + 1);
	for (uint32_t i = 0; i < load->clients; i++)
	{
		int			status;

		waitpid(pids[i], &status, 0);
		if (status != 0)
			note_wrong(stats, "a client process crashed");
	}
	free(pids);
}

/* Whether a load went as promised. */
void
load_judge(const Load *load, const LoadStats *stats)
{
	if (getenv("GPUANN_TEST_TIMES") != NULL)
		printf(
			"# posted %u answered %u cancelled %u timeouts %u died %u refused %u late %u slow %u, mean batch %.1f\n",
			stats->posted, stats->answered, stats->cancelled, stats->timeouts, stats->died,
			stats->refused, stats->late, stats->slow,
			stats->answered ? (double) stats->batched / stats->answered : 0.0);
	if (stats->wrong > 0)
		case_fails("%u wrong answers, first: %s", stats->wrong, stats->first_wrong);
	else if (stats->stuck > 0)
		case_fails("%u slots stuck", stats->stuck);
	else if (stats->answered == 0)
		case_fails("nothing was answered");
	else if (!load->deaths && (stats->timeouts > 0 || stats->died > 0))
		case_fails("%u requests were not answered, %u failed", stats->timeouts, stats->died);
	else if (stats->late > 5 + stats->posted / 10000)
		case_fails("%u of %u waits ran out although the answer was there", stats->late,
				   stats->posted);
}

/* Words of every slot are free when all clients have gone. */
static void
expect_free_slots(AreaHeader *area, uint32_t slots)
{
	for (uint32_t slot = 0; slot < slots; slot++)
		if (!slot_recover(area, slot))
			case_fails("slot %u did not come free", slot);
}

/*
 * Nobody slept on beside an answer, whether the server found him asleep or
 * about to be.
 */
static void
expect_woken(const LoadStats *stats)
{
	if (stats->late > 0 || stats->slow > 0)
		case_fails("%u waits ran out although the answer was there, %u requests were slow",
				   stats->late, stats->slow);
}

static void
lone_client_is_woken_each_time(void)
{
	World	   *world = world_make(4, 2);
	LoadStats  *stats = load_stats_make();
	Load load = {.clients = 1,
				 .requests = test_options.requests / 5,
				 .think_us = 20,
				 .timeout_us = ANSWER_US,
				 .slice_ms = REST_MS,
				 .slow_us = LOST_US};

	world->rest_ms = REST_MS;
	if (server_up(world, NULL) && entry_load(world->area, 0, 100))
	{
		load_run(world, &load, stats);
		load_judge(&load, stats);
		/* A server that misses the doorbell sleeps on. */
		if (stats->slow > 0)
			case_fails("%u of %u requests were slow", stats->slow, stats->posted);
		if (!case_failed() && stats->batched != stats->answered)
			case_fails("a lone client's batches are larger than 1");
	}
	world_free(world);
}

/*
 * Posts that come the moment the server has looked everywhere and is about to
 * sleep: with an engine that answers at once.
 */
static void
post_meets_a_server_falling_asleep(void)
{
	World	   *world = world_make(4, 2);
	LoadStats  *stats = load_stats_make();
	Load load = {.clients = 1,
				 .requests = test_options.requests,
				 .think_us = 3,
				 .timeout_us = ANSWER_US,
				 .slow_us = LOST_US,
				 .spins = true};

	world->rest_ms = REST_MS;
	if (server_up(world, "fixed=0") && entry_load(world->area, 0, 10))
	{
		load_run(world, &load, stats);
		load_judge(&load, stats);
		if (stats->slow > 0)
			case_fails("%u of %u requests were slow", stats->slow, stats->posted);
	}
	world_free(world);
}

static void
many_clients_get_right_answers(void)
{
	World	   *world = world_make(test_options.clients, 2);
	LoadStats  *stats = load_stats_make();
	Load load = {.clients = test_options.clients,
				 .requests = test_options.requests,
				 .cancel_one_in = 16,
				 .timeout_us = ANSWER_US,
				 .slice_ms = REST_MS,
				 .slow_us = LOST_US};

	if (server_up(world, NULL) && entry_load(world->area, 0, 300))
	{
		MirrorCounters *counters = &area_mirror(world->area, 0)->counters;

		load_run(world, &load, stats);
		load_judge(&load, stats);
		expect_woken(stats);
		expect_free_slots(world->area, test_options.clients);
		if (atomic_load(&world->area->requests) < stats->answered)
			case_fails("%llu requests are counted, %u were answered",
					   (unsigned long long) atomic_load(&world->area->requests), stats->answered);
		if (atomic_load(&counters->batched_queries) < stats->answered ||
			atomic_load(&counters->batches) == 0)
			case_fails("the mirror's counters are too small");
	}
	world_free(world);
}

static void
crowd_forms_batches(void)
{
	World	   *world = world_make(32, 2);
	LoadStats  *stats = load_stats_make();
	Load load = {.clients = 32,
				 .requests = 6400,
				 .timeout_us = ANSWER_US,
				 .slice_ms = REST_MS,
				 .slow_us = LOST_US};

	if (server_up(world, "delay_us=2000") && entry_load(world->area, 0, 50))
	{
		load_run(world, &load, stats);
		load_judge(&load, stats);
		if (!case_failed() && stats->batched / stats->answered < 5)
			case_fails("the mean batch of 32 clients is %llu",
					   (unsigned long long) (stats->batched / stats->answered));
		expect_woken(stats);
	}
	world_free(world);
}

static void
rows_are_found_while_they_arrive(void)
{
	World	   *world = world_make(8, 2);
	LoadStats  *stats = load_stats_make();
	Load		load = {.clients = 8, .timeout_us = ANSWER_US};
	pid_t		pids[8];
	int			channel;

	if (server_up(world, NULL) && entry_load(world->area, 0, 10))
	{
		channel = channel_claim(world->area);
		for (uint32_t i = 0; i < 8; i++)
			pids[i] = load_client(world, &load, stats, i, i);
		for (uint32_t row = 10; row < TEST_ROWS && !case_failed();)
		{
			uint32_t	count = row < 1000 ? 3 : 50;

			if (entry_append(world->area, channel, 0, row, count) != ENGINE_OK)
				case_fails("append failed: %.100s",
						   area_channel(world->area, (uint32_t) channel)->error);
			row += count;
			if (atomic_load(&area_mirror(world->area, 0)->position) < row)
				case_fails("position and rows are published after the answer");
			if (row + 50 > TEST_ROWS)
				break;
		}
		atomic_store(&stats->stop, 1);
		for (uint32_t i = 0; i < 8; i++)
			waitpid(pids[i], NULL, 0);
		load_judge(&load, stats);
	}
	world_free(world);
}

/* Kill a random client, take its slot back, start another in its place. */
static void
replace_client(World *world, const Load *load, LoadStats *stats, pid_t *pids, uint64_t *random)
{
	uint32_t	slot = (uint32_t) (next_random(random) % load->clients);

	kill(pids[slot], SIGKILL);
	waitpid(pids[slot], NULL, 0);
	if (!slot_recover(world->area, slot))
		case_fails("the slot of a killed client did not come free");
	pids[slot] = load_client(world, load, stats, slot, next_random(random));
}

static void
killed_clients_leave_nothing_behind(void)
{
	World	   *world = world_make(8, 2);
	LoadStats  *stats = load_stats_make();
	Load		load = {.clients = 8, .cancel_one_in = 8, .timeout_us = ANSWER_US};
	pid_t		pids[8];
	uint64_t	random = 7;

	if (server_up(world, NULL) && entry_load(world->area, 0, 500))
	{
		for (uint32_t i = 0; i < 8; i++)
			pids[i] = load_client(world, &load, stats, i, i);
		for (int kills = 0; kills < 300 && !case_failed(); kills++)
		{
			pause_us((int64_t) (next_random(&random) % 3000));
			replace_client(world, &load, stats, pids, &random);
		}
		atomic_store(&stats->stop, 1);
		for (uint32_t i = 0; i < 8; i++)
			waitpid(pids[i], NULL, 0);
		load_judge(&load, stats);
		expect_free_slots(world->area, 8);
	}
	world_free(world);
}

/* Kill the server in one of several ways, then start and load another. */
static void
replace_server(World *world, bool stopped, uint64_t *random)
{
	if (stopped)
	{
		kill(world->server, SIGSTOP);
		pause_us(200000 + (int64_t) (next_random(random) % 100000));
	}
	server_kill(world);
	pause_us((int64_t) (next_random(random) % 20000));
	if (server_up(world, NULL))
		(void) entry_load(world->area, 0, 400);
}

static void
killed_server_costs_only_its_requests(void)
{
	World	   *world = world_make(16, 2);
	LoadStats  *stats = load_stats_make();
	Load		load = {.clients = 16, .cancel_one_in = 16, .timeout_us = 150000, .deaths = true};
	pid_t		pids[16];
	uint64_t	random = 9;

	if (server_up(world, NULL) && entry_load(world->area, 0, 400))
	{
		for (uint32_t i = 0; i < 16; i++)
			pids[i] = load_client(world, &load, stats, i, i);
		for (int kills = 0; kills < 20 && !case_failed(); kills++)
		{
			uint32_t	answered = atomic_load(&stats->answered);

			for (int64_t until = now_us() + LONG_MS * 1000;
				 atomic_load(&stats->answered) < answered + 50 && now_us() < until;)
				pause_us(1000 + (int64_t) (next_random(&random) % 20000));
			if (atomic_load(&stats->answered) < answered + 50)
				case_fails("clients get no answers after restart %d", kills);
			replace_server(world, kills % 4 == 3, &random);
		}
		atomic_store(&stats->stop, 1);
		for (uint32_t i = 0; i < 16; i++)
			waitpid(pids[i], NULL, 0);
		load_judge(&load, stats);
		expect_free_slots(world->area, 16);
		if (!case_failed() && stats->died == 0)
			case_fails("no client was told that the server died");
	}
	world_free(world);
}

const TestCase load_cases[] = {
	{"lone_client_is_woken_each_time", lone_client_is_woken_each_time},
	{"post_meets_a_server_falling_asleep", post_meets_a_server_falling_asleep},
	{"many_clients_get_right_answers", many_clients_get_right_answers},
	{"crowd_forms_batches", crowd_forms_batches},
	{"rows_are_found_while_they_arrive", rows_are_found_while_they_arrive},
	{"killed_clients_leave_nothing_behind", killed_clients_leave_nothing_behind},
	{"killed_server_costs_only_its_requests", killed_server_costs_only_its_requests},
	{NULL, NULL}
};
