/*
 * protocol_test_faults.c
 *		Engines that fail: the stub engine's faults, and what clients and
 *		launcher see of them.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "protocol_test.h"

/* Ask until the server ends; returns the last outcome. */
static Outcome
ask_until_it_ends(World *world, Answer *answer)
{
	Client		client;
	Search		search;
	uint64_t	random = 3;
	Outcome		outcome = OUTCOME_ANSWERED;

	client_begin(&client, world->area, 0);
	for (int i = 0; i < 1000 && outcome == OUTCOME_ANSWERED; i++)
	{
		search_random(&search, world->area, 0, &random);
		outcome = client_search(&client, &search, 3000000, answer);
		if (outcome == OUTCOME_ANSWERED && answer->status == ENGINE_FAILED)
			break;
	}
	return outcome;
}

static void
broken_engine_ends_the_server(void)
{
	World	   *world = world_make(4, 2);
	Answer		answer;
	int			status;

	if (server_up(world, "fail_after=20") && entry_load(world->area, 0, 50))
	{
		if (ask_until_it_ends(world, &answer) != OUTCOME_ANSWERED || answer.status != ENGINE_FAILED)
			case_fails("what was in flight is not answered with ENGINE_FAILED");
		else if (strstr(answer.error, "told to break") == NULL)
			case_fails("the answer says: %s", answer.error);
		status = server_reap(world, LONG_MS);
		if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 1)
			case_fails("the server ended with status %d", status);
		if (strstr(world->area->last_error, "told to break") == NULL)
			case_fails("last_error is: %.100s", world->area->last_error);
		if (!log_has(world, "FATAL: the engine failed", LONG_MS))
			case_fails("the log does not say so");
		server_sweep(world);
		if (server_up(world, NULL))
			(void) entry_load(world->area, 0, 50);
	}
	world_free(world);
}

static void
crashed_engine_costs_only_its_requests(void)
{
	World	   *world = world_make(4, 2);
	Answer		answer;
	Client		client;
	Search		search;
	uint64_t	random = 3;

	if (server_up(world, "crash_after=20") && entry_load(world->area, 0, 50))
	{
		int			status;

		if (ask_until_it_ends(world, &answer) != OUTCOME_TIMEOUT)
			case_fails("the stub did not crash");
		status = server_reap(world, LONG_MS);
		if (status == 0 || status == -1)
			case_fails("the server ended with status %d", status);
		server_sweep(world);
		client_begin(&client, world->area, 0);
		search_random(&search, world->area, 0, &random);
		if (!client_post(&client, &search))
			case_fails("the slot is not free after the sweep");
		else if (client_wait(&client, 1000, &answer) != OUTCOME_TIMEOUT)
			case_fails("an answer without a server");
	}
	world_free(world);
}

static void
hung_engine_ends_the_server(void)
{
	World	   *world = world_make(4, 2);
	Answer		answer;
	int			status;

	if (server_up(world, "hang_after=20") && entry_load(world->area, 0, 50))
	{
		if (ask_until_it_ends(world, &answer) != OUTCOME_TIMEOUT)
			case_fails("the stub did not hang");
		status = server_reap(world, LONG_MS);
		if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 1)
			case_fails("the server ended with status %d", status);
		if (strstr(world->area->last_error, "did not return") == NULL)
			case_fails("last_error is: %.100s", world->area->last_error);
		server_sweep(world);
	}
	world_free(world);
}

static void
engine_errors_are_passed_on(void)
{
	World	   *world = world_make(4, 2);
	Client		client;
	Search		search;
	Answer		answer;
	uint64_t	random = 3;
	uint32_t	errors = 0;

	if (server_up(world, "error_every=5") && entry_load(world->area, 0, 50))
	{
		client_begin(&client, world->area, 0);
		for (int i = 0; i < 100 && !case_failed(); i++)
		{
			search_random(&search, world->area, 0, &random);
			if (client_search(&client, &search, LONG_MS * 1000, &answer) != OUTCOME_ANSWERED)
				case_fails("no answer");
			else if (answer.status == ENGINE_OK && answer_wrong(&search, &answer) != NULL)
				case_fails("%s", answer_wrong(&search, &answer));
			else if (answer.status != ENGINE_OK && answer.status != ENGINE_NO_MEMORY)
				case_fails("status %u", answer.status);
			errors += answer.status == ENGINE_NO_MEMORY;
		}
		if (!case_failed() && errors != 20)
			case_fails("%u errors instead of 20", errors);
	}
	world_free(world);
}

static void
busy_engine_is_asked_again(void)
{
	World	   *world = world_make(8, 2);
	LoadStats  *stats = load_stats_make();
	Load		load = {.clients = 8, .requests = 2000, .timeout_us = LONG_MS * 1000};

	if (server_up(world, "busy_every=2") && entry_load(world->area, 0, 50))
	{
		load_run(world, &load, stats);
		load_judge(&load, stats);
	}
	world_free(world);
}

static void
garbage_from_the_engine_stays_inside_payloads(void)
{
	World	   *world = world_make(4, 2);
	Client		client;
	Search		search;
	Answer		answer;
	uint64_t	random = 3;
	uint32_t	refused = 0;

	if (server_up(world, "garbage=1") && entry_load(world->area, 0, 50))
	{
		client_begin(&client, world->area, 0);
		for (int i = 0; i < 500 && !case_failed(); i++)
		{
			search_random(&search, world->area, 0, &random);
			if (client_search(&client, &search, LONG_MS * 1000, &answer) != OUTCOME_ANSWERED)
				case_fails("no answer");
			else if (answer.status == ENGINE_OK && answer.count > search.k)
				case_fails("%u results instead of %u", answer.count, search.k);
			refused += answer.status == ENGINE_INVALID;
		}
		if (!case_failed() && refused == 0)
			case_fails("too many results were never refused");
	}
	world_free(world);
}

static void
abandoned_requests_come_back(void)
{
	World	   *world = world_make(4, 2);
	Client		client;
	Search		search;
	Answer		answer;
	uint64_t	random = 3;

	if (server_up(world, "delay_us=1000000") && entry_load(world->area, 0, 50))
	{
		Outcome		outcome = OUTCOME_SLOT_BUSY;

		client_begin(&client, world->area, 0);
		search_random(&search, world->area, 0, &random);
		if (client_search(&client, &search, 20000, &answer) != OUTCOME_TIMEOUT)
			case_fails("the stub is too quick");
		if (client_search(&client, &search, 20000, &answer) != OUTCOME_SLOT_BUSY)
			case_fails("an abandoned slot can be posted to");
		for (int64_t until = now_us() + LONG_MS * 1000;
			 outcome == OUTCOME_SLOT_BUSY && now_us() < until; pause_us(10000))
			outcome = client_search(&client, &search, LONG_MS * 1000, &answer);
		if (outcome != OUTCOME_ANSWERED || answer_wrong(&search, &answer) != NULL)
			case_fails("the slot does not work after it came back");
	}
	world_free(world);
}

/*
 * A query that waits behind flying batches starts nothing when its client has
 * left; a dropped mirror refuses its waiting queries.
 */
static void
dropped_mirror_refuses_who_waits(void)
{
	World	   *world = world_make(8, 2);
	Client		clients[8];
	Search		search;
	Answer		answer;
	uint64_t	random = 3;
	uint32_t	refused = 0;
	int			channel;

	/* Long enough for all to have come while the first fly. */
	if (server_up(world, "delay_us=1500000") && entry_load(world->area, 0, 50))
	{
		channel = channel_claim(world->area);
		search_random(&search, world->area, 0, &random);
		for (uint32_t i = 0; i < 8; i++)
		{
			client_begin(&clients[i], world->area, i);
			(void) client_post(&clients[i], &search);
			pause_us(2000);
		}
		channel_prepare(world->area, channel, CHANNEL_DROP, 0);
		if (channel_call(world->area, channel) != ENGINE_OK)
			case_fails("drop: %.100s", area_channel(world->area, (uint32_t) channel)->error);
		for (uint32_t i = 0; i < 8; i++)
		{
			if (client_wait(&clients[i], LONG_MS * 1000, &answer) != OUTCOME_ANSWERED)
				case_fails("client %u gets no answer", i);
			refused += answer.status == ENGINE_NOT_FOUND;
		}
		if (!case_failed() && refused == 0)
			case_fails("no query waited");
		channel_release(world->area, channel);
	}
	world_free(world);
}

const TestCase fault_cases[] = {
	{"broken_engine_ends_the_server", broken_engine_ends_the_server},
	{"crashed_engine_costs_only_its_requests", crashed_engine_costs_only_its_requests},
	{"hung_engine_ends_the_server", hung_engine_ends_the_server},
	{"engine_errors_are_passed_on", engine_errors_are_passed_on},
	{"busy_engine_is_asked_again", busy_engine_is_asked_again},
	{"garbage_from_the_engine_stays_inside_payloads",
	 garbage_from_the_engine_stays_inside_payloads},
	{"abandoned_requests_come_back", abandoned_requests_come_back},
	{"dropped_mirror_refuses_who_waits", dropped_mirror_refuses_who_waits},
	{NULL, NULL}};
