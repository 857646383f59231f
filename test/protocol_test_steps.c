/*
 * protocol_test_steps.c
 *		Death at every step of the protocol: a storm of clients, of which one or
 *		the server dies at a chosen step, again and again.
 *
 * Requests wait for ten seconds here, clients for their word and the server for
 * its doorbell: a wake-up that is lost cannot be mistaken for one that is late.
 * What the storm promises: every answer is right, none is late, no slot and no
 * channel stays taken, and at every step of steps.h somebody has died.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "protocol_test.h"

#define REST_MS			10000	/* of who awaits a wake-up */
#define LOST_US			INT64_C(6000000)	/* what took longer was not woken */
#define STALL_US		INT64_C(30000000)	/* nothing happens: everybody is stuck */
#define CALM_US			INT64_C(15000000)	/* slots and channels are free by then */
#define ROWS			200
#define MAX_LINGER_US	30
#define MAX_PASSES		4
#define STORM_BATCH		20		/* searches through a channel at once: some pieces of the CPU
								 * engine's */
#define STOP_DYING		2		/* LoadStats.stop: channel users end too */

static const char *const step_names[PROTOCOL_STEPS_COUNT] = {
#define STEP_TEXT(name) #name,
	PROTOCOL_STEP_LIST(STEP_TEXT)
#undef STEP_TEXT
};

/* ---- what happens at a step ---- */

/* Deaths at each step, of servers and of clients, counted by the dying. */
typedef struct StepDeaths
{
	_Atomic uint32_t servers[PROTOCOL_STEPS_COUNT];
	_Atomic uint32_t clients[PROTOCOL_STEPS_COUNT];
} StepDeaths;

static StepDeaths *deaths;
static Arm	armed;
static int64_t armed_at_us;
static _Atomic uint32_t passes_left;

void
arm_process(const Arm *arm)
{
	armed = *arm;
	armed_at_us = now_us() + arm->after_us;
	atomic_store(&passes_left, arm->passes);
}

/* Linger at a step for a moment, so that others can come in between. */
static void
linger(ProtocolStep step)
{
	static _Thread_local uint64_t random;
	int64_t		until;

	if (random == 0)
		random = (uint64_t) now_us() + (uint64_t) (uintptr_t) &random;
	if (next_random(&random) % armed.delay_one_in != 0)
		return;
	if (step % 2 == 0)
		sched_yield();
	until = now_us() + (int64_t) (next_random(&random) % MAX_LINGER_US);
	while (now_us() < until)
		continue;
}

/* Called by the code under test at each of its steps. */
void
protocol_step(ProtocolStep step)
{
	if (!armed.set)
		return;
	if (armed.delay_one_in > 0)
		linger(step);
	if (armed.passes > 0 && armed.step == step && now_us() >= armed_at_us &&
		atomic_fetch_sub(&passes_left, 1) == 1)
	{
		atomic_fetch_add(armed.server ? &deaths->servers[step] : &deaths->clients[step], 1);
		for (;;)
			kill(getpid(), SIGKILL);
	}
}

/* ---- a storm ---- */

typedef enum Role
{
	ROLE_SEARCHER,
	ROLE_CHANNEL_USER,
	ROLE_WORKER
} Role;

/* Who may die at a step. */
typedef struct StepOwner
{
	bool		server;
	Role		client;			/* unless server */
	bool		both;
} StepOwner;

typedef struct Storm
{
	uint32_t	searchers;
	uint32_t	channel_users;
	uint32_t	requests;		/* to be posted, at least */
	int64_t		server_us;		/* at most, before a server's step becomes deadly to it */
	int64_t		client_us;
	uint32_t	rounds;			/* over all steps, at least */
	uint32_t	kill_one_in;	/* looks of the parent: so often it kills anybody, wherever that
								 * is */
} Storm;

typedef struct Member
{
	pid_t		pid;
	Role		role;
	Arm			arm;
} Member;

typedef struct StormState
{
	const Storm *storm;
	World	   *world;
	LoadStats  *stats;
	Load		load;
	Member	   *members;
	uint32_t	count;
	uint64_t	random;
	uint32_t	server_step;	/* the next one's turn */
	uint32_t	client_steps[ROLE_WORKER + 1];
	uint32_t	deaths_of_servers;
	uint32_t	deaths_of_clients;
} StormState;

static StepOwner
step_owner(ProtocolStep step)
{
	switch (step)
	{
		case STEP_RING:
			return (StepOwner) {.both = true, .client = ROLE_SEARCHER};
		case STEP_CLIENT_FILLED:
		case STEP_CLIENT_POSTED:
		case STEP_CLIENT_WAITS:
		case STEP_CLIENT_SLEEPS:
		case STEP_CLIENT_SEES:
		case STEP_CLIENT_COPIED:
		case STEP_CLIENT_LEAVES:
		case STEP_CLIENT_LEFT:
			return (StepOwner) {.client = ROLE_SEARCHER};
		case STEP_CHANNEL_CLAIMS:
		case STEP_CHANNEL_POSTED:
		case STEP_CHANNEL_LEFT:
			return (StepOwner) {.client = ROLE_CHANNEL_USER};
		default:
			return (StepOwner) {.server = true};
	}
}

/* What the next process of a kind dies of: the steps come in turn. */
static Arm
arm_next(StormState *state, bool server, Role role)
{
	uint32_t   *turn = server ? &state->server_step : &state->client_steps[role];
	int64_t		most = server ? state->storm->server_us : state->storm->client_us;
	Arm			arm = {.set = true, .server = server, .delay_one_in = 200};

	for (uint32_t tries = 0; tries < PROTOCOL_STEPS_COUNT; tries++)
	{
		ProtocolStep step = (ProtocolStep) ((*turn)++ % PROTOCOL_STEPS_COUNT);
		StepOwner	owner = step_owner(step);

		if (server ? owner.server || owner.both : !owner.server && owner.client == role)
		{
			bool		once = step == STEP_SERVER_READY || step == STEP_SERVER_SWEEPS;

			arm.step = step;
			arm.passes = once ? 1 : 1 + (uint32_t) (next_random(&state->random) % MAX_PASSES);
			arm.after_us = once ? 0 : (int64_t) (next_random(&state->random) % (uint64_t) most);
			break;
		}
	}
	return arm;
}

/* A worker: gives every server its mirror, and keeps appending to it. */
static void
worker_main(AreaHeader *area, LoadStats *stats)
{
	AreaMirror *mirror = area_mirror(area, 0);
	uint32_t	rows = 0;

	while (!atomic_load(&stats->stop))
	{
		uint32_t	epoch = atomic_load(&area->epoch);
		int			channel = -1;

		if (atomic_load(&area->server_state) == SERVER_READY &&
			(channel = channel_claim(area)) >= 0)
		{
			if (rows == 0 || atomic_load(&mirror->epoch) != epoch)
			{
				rows = 0;
				entry_claim(area, 0);
				if (entry_create(area, channel, 0) == ENGINE_OK &&
					entry_append(area, channel, 0, 0, ROWS) == ENGINE_OK)
					rows = ROWS;
			}
			else if (rows < TEST_ROWS / 4)
				rows = entry_append(area, channel, 0, rows, 1) == ENGINE_OK ? rows + 1 : 0;
			channel_release(area, channel);
		}
		pause_us(rows == 0 ? 200 : 2000);
	}
}

/* Searches through a channel, one or several, left early or judged. */
static void
channel_search(AreaHeader *area, int number, LoadStats *stats, uint64_t *random)
{
	Search		searches[STORM_BATCH];
	uint32_t count =
		next_random(random) % 2 == 0 ? 1 : 1 + (uint32_t) (next_random(random) % STORM_BATCH);

	for (uint32_t i = 0; i < count; i++)
	{
		search_random(&searches[i], area, 0, random);
		searches[i].has_beyond = 0;
		searches[i].k = searches[0].k;
	}
	channel_fill_searches(area, number, searches, count);
	channel_post(area, number);
	atomic_fetch_add(&stats->posted, 1);
	if (next_random(random) % 2 == 0)
	{
		pause_us((int64_t) (next_random(random) % 100));
		atomic_fetch_add(&stats->cancelled, 1);
		return;
	}
	if (channel_wait(area, number, REST_MS * 3) != ENGINE_OK)
		return;
	for (uint32_t i = 0; i < count; i++)
	{
		Answer		answer;
		const char *wrong = "a channel's answer is not in the channel";

		if (!channel_read_answer(area, number, i, &answer) ||
			(wrong = answer_wrong(&searches[i], &answer)) != NULL)
			note_wrong(stats, wrong);
	}
	atomic_fetch_add(&stats->by_channel, 1);
}

/* A user of channels. */
static void
channel_user_main(AreaHeader *area, LoadStats *stats, uint64_t random)
{
	while (!atomic_load(&stats->stop))
	{
		int channel = atomic_load(&area->server_state) == SERVER_READY ? channel_claim(area) : -1;
		int64_t		begun = now_us();

		if (channel >= 0)
		{
			channel_search(area, channel, stats, &random);
			channel_release(area, channel);
			atomic_fetch_add(&stats->slow, now_us() - begun > LOST_US);
		}
		pause_us((int64_t) (next_random(&random) % 2000));
	}
	/* Its channels must come free without its death. */
	while (atomic_load(&stats->stop) != STOP_DYING)
		pause_us(1000);
}

/* Fork a member of the storm. */
static void
member_start(StormState *state, uint32_t number)
{
	Member	   *member = &state->members[number];
	uint64_t	seed = next_random(&state->random);

	member->arm = arm_next(state, false, member->role);
	member->pid = fork();
	if (member->pid != 0)
		return;
	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (state->world->death_fd >= 0)
		close(state->world->death_fd);
	arm_process(&member->arm);
	channel_slice_ms = REST_MS;
	switch (member->role)
	{
		case ROLE_SEARCHER:
			load_client_main(state->world->area, &state->load, state->stats, number, seed);
			break;
		case ROLE_CHANNEL_USER:
			channel_user_main(state->world->area, state->stats, seed);
			break;
		case ROLE_WORKER:
			worker_main(state->world->area, state->stats);
			break;
	}
	_exit(0);
}

/* Start a server that will die at the next step in turn. */
static void
storm_server_start(StormState *state)
{
	state->world->arm = arm_next(state, true, ROLE_WORKER);
	server_start(state->world, test_options.engine, NULL);
}

/*
 * A child has ended: the server, or a member whose place is taken by another.
 */
static void
child_ended(StormState *state, pid_t pid, int status)
{
	World	   *world = state->world;
	bool		killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;

	if (pid == world->server)
	{
		if (!killed)
		{
			(void) log_has(world, "nothing", 10);
			case_fails("a server ended with status %d: %.200s", status, world->log);
		}
		state->deaths_of_servers++;
		world->server = 0;
		server_sweep(world);
		storm_server_start(state);
		return;
	}
	for (uint32_t i = 0; i < state->count; i++)
	{
		Member	   *member = &state->members[i];

		if (member->pid != pid)
			continue;
		if (!killed)
			case_fails("a client ended with status %d", status);
		state->deaths_of_clients++;
		/*
		 * What PostgreSQL does for a backend that ends; the next in this slot
		 * waits until it is free.
		 */
		if (member->role == ROLE_SEARCHER)
			(void) request_leave(area_word(world->area, i));
		member_start(state, i);
	}
}

/*
 * Now and then somebody is killed wherever he is; a server that starts is
 * mostly spared, or one that takes a second for it never would be up.
 */
static void
kill_somebody(StormState *state)
{
	uint32_t	victim = (uint32_t) (next_random(&state->random) % (state->count + 1));

	if (victim < state->count)
		kill(state->members[victim].pid, SIGKILL);
	else if (atomic_load(&state->world->area->server_state) == SERVER_READY ||
			 next_random(&state->random) % 8 == 0)
		kill(state->world->server, SIGKILL);
}

/* Whether somebody has died at every step so many times. */
static bool
every_step_was_deadly(uint32_t rounds)
{
	for (uint32_t step = 0; step < PROTOCOL_STEPS_COUNT; step++)
	{
		StepOwner	owner = step_owner((ProtocolStep) step);

		if ((owner.server || owner.both) && atomic_load(&deaths->servers[step]) < rounds)
			return false;
		if (!owner.server && atomic_load(&deaths->clients[step]) < rounds)
			return false;
	}
	return true;
}

/* Say how far a long storm is. */
static void
tell_progress(const StormState *state)
{
	static int64_t told_us = 0;

	if (getenv("GPUANN_TEST_TIMES") == NULL || now_us() - told_us < INT64_C(10000000))
		return;
	told_us = now_us();
	printf("# so far: %u posted, %u answered, %u servers and %u clients died\n",
		   state->stats->posted, state->stats->answered, state->deaths_of_servers,
		   state->deaths_of_clients);
}

/* The parent: launcher, postmaster and fate, until enough has happened. */
static void
storm_rage(StormState *state)
{
	const Storm *storm = state->storm;
	LoadStats  *stats = state->stats;
	uint32_t	posted = 0;
	int64_t		moved = now_us();

	while (!case_failed() &&
		   (atomic_load(&stats->posted) < storm->requests || !every_step_was_deadly(storm->rounds)))
	{
		pid_t		pid;
		int			status;

		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			child_ended(state, pid, status);
		(void) log_has(state->world, "nothing", 0);
		tell_progress(state);
		if (next_random(&state->random) % storm->kill_one_in == 0)
			kill_somebody(state);
		if (atomic_load(&stats->posted) != posted)
		{
			posted = atomic_load(&stats->posted);
			moved = now_us();
		}
		if (now_us() - moved > STALL_US)
			case_fails("nothing happens any more after %u requests", posted);
		if (atomic_load(&stats->wrong) + atomic_load(&stats->stuck) + atomic_load(&stats->slow) > 0)
			break;
		pause_us(200);
	}
}

/* Slots that are not free, and channels. */
static uint32_t
count_taken(AreaHeader *area)
{
	uint32_t	taken = 0;

	for (uint32_t i = 0; i < area->slots; i++)
		taken += request_state(atomic_load(area_word(area, i))) != REQUEST_FREE;
	for (uint32_t i = 0; i < area->channels; i++)
		taken += atomic_load(&area_channel(area, i)->owner) != 0 ||
			request_state(atomic_load(&area_channel(area, i)->state)) != REQUEST_FREE;
	return taken;
}

/* Say which do not come free. */
static void
tell_taken(AreaHeader *area)
{
	for (uint32_t i = 0; i < area->slots; i++)
		if (request_state(atomic_load(area_word(area, i))) != REQUEST_FREE)
			case_fails("slot %u stays in state %u", i,
					   (uint32_t) request_state(atomic_load(area_word(area, i))));
	for (uint32_t i = 0; i < area->channels; i++)
		if (atomic_load(&area_channel(area, i)->owner) != 0)
			case_fails("channel %u stays with owner %d in state %u", i,
					   (int) atomic_load(&area_channel(area, i)->owner),
					   (uint32_t) request_state(atomic_load(&area_channel(area, i)->state)));
}

/* Wait for the end of the members of a role, or of all others. */
static void
await_members(StormState *state, bool channel_users)
{
	for (uint32_t i = 0; i < state->count; i++)
	{
		int64_t		until = now_us() + STALL_US;

		if ((state->members[i].role == ROLE_CHANNEL_USER) != channel_users)
			continue;
		while (state->members[i].pid != 0 && waitpid(state->members[i].pid, NULL, WNOHANG) == 0)
		{
			if (now_us() > until)
			{
				case_fails("client %u does not end", i);
				kill(state->members[i].pid, SIGKILL);
			}
			pause_us(500);
		}
		if (state->members[i].role == ROLE_SEARCHER)
			(void) request_leave(area_word(state->world->area, i));
	}
}

/*
 * Some channel users die even now, at their step: their channels come free when
 * they have been reaped.
 */
static void
reap_channel_users(StormState *state)
{
	for (uint32_t i = 0; i < state->count; i++)
		if (state->members[i].role == ROLE_CHANNEL_USER && state->members[i].pid != 0 &&
			waitpid(state->members[i].pid, NULL, WNOHANG) != 0)
			state->members[i].pid = 0;
}

/*
 * End the storm: a last server serves everybody's last request, then all slots
 * and channels must come free, those of channel users who live but use none any
 * more too.
 */
static void
storm_calm(StormState *state)
{
	World	   *world = state->world;
	AreaHeader *area = world->area;

	/* It may have died a moment ago. */
	kill(world->server, SIGKILL);
	if (server_reap(world, LONG_MS) == -1)
		case_fails("a killed server did not end");
	server_sweep(world);
	world->arm = (Arm) {.set = true};
	if (!server_up(world, NULL))
		return;
	atomic_store(&state->stats->stop, 1);
	await_members(state, false);
	for (int64_t until = now_us() + CALM_US; now_us() < until && count_taken(area) > 0;
		 pause_us(20000))
	{
		reap_channel_users(state);
		area_ring(area);		/* the server's chores wait for its sleep to end */
	}
	tell_taken(area);
	atomic_store(&state->stats->stop, STOP_DYING);
	await_members(state, true);
}

/* What the storm has shown. */
static void
storm_judge(const StormState *state, int64_t took_us)
{
	const LoadStats *stats = state->stats;

	printf(
		"# %u requests of %u processes in %.1f s: %u answered, %u through channels, %u left early, %u failed, %u refused; "
		"%u servers and %u clients died\n",
		stats->posted, state->count, (double) took_us / 1e6, stats->answered, stats->by_channel,
		stats->cancelled, stats->died, stats->refused, state->deaths_of_servers,
		state->deaths_of_clients);
	if (getenv("GPUANN_TEST_TIMES") != NULL)
		for (uint32_t step = 0; step < PROTOCOL_STEPS_COUNT; step++)
			printf("# %s: %u servers, %u clients\n", step_names[step], deaths->servers[step],
				   deaths->clients[step]);
	if (stats->wrong > 0)
		case_fails("%u wrong answers, first: %s", stats->wrong, stats->first_wrong);
	if (stats->slow > 0 || stats->late > 0 || stats->timeouts > 0)
		case_fails("%u requests were answered late, %u not at all, %u wake-ups were lost",
				   stats->slow, stats->timeouts, stats->late);
	if (stats->stuck > 0)
		case_fails("%u slots were stuck", stats->stuck);
	if (stats->answered == 0 || stats->by_channel == 0)
		case_fails("nothing was answered");
	for (uint32_t step = 0; step < PROTOCOL_STEPS_COUNT; step++)
		if (deaths->servers[step] + deaths->clients[step] < state->storm->rounds)
			case_fails("nobody died at step %s", step_names[step]);
}

/* A storm from its beginning to its end. */
static void
storm_run(const Storm *storm)
{
	StormState state = {.storm = storm,
						.stats = load_stats_make(),
						.count = storm->searchers + storm->channel_users + 1,
						.random = 11};
	int64_t		begun = now_us();

	state.load = (Load){.clients = storm->searchers,
						.cancel_one_in = 8,
						.timeout_us = REST_MS * INT64_C(3000),
						.slice_ms = REST_MS,
						.slow_us = LOST_US,
						.deaths = true};
	deaths =
		mmap(NULL, sizeof(StepDeaths), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (deaths == MAP_FAILED)
	{
		case_fails("mmap: %s", strerror(errno));
		return;
	}
	/* A channel of the dead stays theirs for up to a second. */
	state.world = world_make(state.count, storm->channel_users * 4);
	state.world->rest_ms = REST_MS;
	state.members = calloc(state.count, sizeof(Member));
	storm_server_start(&state);
	for (uint32_t i = 0; i < state.count; i++)
	{
		state.members[i].role = i < storm->searchers  ? ROLE_SEARCHER
								: i + 1 < state.count ? ROLE_CHANNEL_USER
													  : ROLE_WORKER;
		member_start(&state, i);
	}
	storm_rage(&state);
	storm_calm(&state);
	storm_judge(&state, now_us() - begun);
	free(state.members);
	world_free(state.world);
}

static void
death_at_any_step_costs_only_its_request(void)
{
	bool		big = getenv("GPUANN_LONG") != NULL;
	Storm		storm = {
		.searchers = big ? 300 : 24,
		.channel_users = big ? 12 : 4,
		.requests = big ? test_options.storm_requests : 20000,
		.server_us = big ? 400000 : 20000,
		.client_us = big ? 8000000 : 200000,
		.rounds = big ? 10 : 2,
		.kill_one_in = big ? 400 : 50
	};

	storm_run(&storm);
}

/*
 * Client and server linger at every other step, alone with each other: nobody
 * else's wake-up mends a lost one.
 */
static void
lingering_at_any_step_loses_no_wake_up(void)
{
	World	   *world = world_make(1, 2);
	LoadStats  *stats = load_stats_make();
	Load load = {.clients = 1,
				 .requests = test_options.requests / 20,
				 .timeout_us = REST_MS * INT64_C(3000),
				 .slice_ms = REST_MS,
				 .slow_us = LOST_US,
				 .arm = {.set = true, .delay_one_in = 2}};

	world->rest_ms = REST_MS;
	world->arm = load.arm;
	if (server_up(world, NULL) && entry_load(world->area, 0, 20))
	{
		load_run(world, &load, stats);
		load_judge(&load, stats);
		if (stats->slow > 0 || stats->late > 0)
			case_fails("%u of %u requests were slow, %u wake-ups were lost", stats->slow,
					   stats->posted, stats->late);
	}
	world_free(world);
}

const TestCase step_cases[] = {
	{"lingering_at_any_step_loses_no_wake_up", lingering_at_any_step_loses_no_wake_up},
	{"death_at_any_step_costs_only_its_request", death_at_any_step_costs_only_its_request},
	{NULL, NULL}
};
