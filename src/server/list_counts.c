/*
 * list_counts.c
 *		Add the engine's probe counts, which are dropped with a mirror, to those
 *		of the shared area, which persist and age.
 *
 * Per query or batch only a flag is set that counts are due. They are taken on
 * request (CHANNEL_COUNT_LISTS), some seconds after queries, and before a
 * mirror is dropped or the server exits.
 */
#include <stdlib.h>
#include <string.h>

#include "server/server.h"

#define COUNTS_US		INT64_C(10000000)	/* interval of taking a mirror's counts without a
											 * request */
#define COUNTS_AT_ONCE	8		/* mirrors in one round of maintenance, because each waits for a
								 * copy from the GPU */

void
list_counts_begin(Server *server, HeldMirror *mirror, uint32_t entry)
{
	uint64_t	word = atomic_load(&server_mirror(server, entry)->list_counts);

	mirror->counts_word = 0;
	mirror->counts_due = false;
	mirror->counts_taken_us = monotonic_us();
	if (mirror->spec.method != METHOD_IVFPQ ||
		list_counts_range(word).lists != mirror->spec.lists.lists)
		return;
	mirror->counted = calloc(mirror->spec.lists.lists, sizeof(uint64_t));
	if (mirror->counted != NULL)
		mirror->counts_word = word;
}

/*
 * Add the engine's counts since the last call. Values in the area may have been
 * overwritten, so NaN and infinity are handled.
 */
static void
add_counts(Server *server, HeldMirror *mirror, AreaMirror *shared)
{
	ListCountsRange range = list_counts_range(mirror->counts_word);
	_Atomic double *counts = server_list_counts(server, range.first);
	int64_t		now = realtime_us();
	double		aging = list_counts_aging(atomic_load(&shared->lists_counted_at), now);

	for (uint32_t list = 0; list < range.lists; list++)
	{
		double		count = atomic_load_explicit(&counts[list], memory_order_relaxed) * aging;
		uint64_t	probes = server->probes[list];

		if (!(count >= 0 && isfinite(count)))
			count = 0;
		if (probes > mirror->counted[list])
			count += (double) (probes - mirror->counted[list]);
		mirror->counted[list] = probes;
		atomic_store_explicit(&counts[list], count, memory_order_relaxed);
	}
	atomic_store(&shared->lists_counted_at, now);
}

EngineStatus
list_counts_take(Server *server, HeldMirror *mirror, uint32_t entry, EngineError *error)
{
	AreaMirror *shared = server_mirror(server, entry);
	EngineStatus status;

	mirror->counts_due = false;
	mirror->counts_taken_us = monotonic_us();
	if (mirror->counts_word == 0)
		return engine_error(error, ENGINE_UNSUPPORTED, "probes of the mirror are not counted");
	status = server->ops->list_probes(server->engine, mirror->id, server->probes,
									  mirror->spec.lists.lists, error);
	fail_if_failed(server, status, error);
	if (status != ENGINE_OK)
		return status;
	/*
	 * Check that the entry still has the range. It may be released right after
	 * the check, which cannot be excluded without a lock; but while there is
	 * room, a released range is not reused at once (src/client/list_counts.c),
	 * so these counts are added to a free range.
	 */
	if (atomic_load(&shared->list_counts) == mirror->counts_word)
		add_counts(server, mirror, shared);
	return ENGINE_OK;
}

/* Take counts that are due, without a request. */
static void
take_due(Server *server, HeldMirror *mirror, uint32_t entry)
{
	EngineError error = {ENGINE_OK, ""};

	if (mirror->id != 0 && mirror->counts_due && mirror->counts_word != 0)
		(void) list_counts_take(server, mirror, entry, &error);
}

void
list_counts_end(Server *server, HeldMirror *mirror, uint32_t entry)
{
	take_due(server, mirror, entry);
	free(mirror->counted);
	mirror->counted = NULL;
	mirror->counts_word = 0;
}

void
list_counts_round(Server *server)
{
	uint32_t	mirrors = server->layout.mirrors;
	uint32_t	taken = 0;
	int64_t		now = monotonic_us();

	for (uint32_t i = 0; server->held > 0 && i < mirrors && taken < COUNTS_AT_ONCE; i++)
	{
		uint32_t	entry = server->next_counts;
		HeldMirror *mirror = &server->mirrors[entry];

		server->next_counts = (entry + 1) % mirrors;
		if (mirror->id == 0 || !mirror->counts_due || mirror->counts_word == 0 ||
			now - mirror->counts_taken_us < COUNTS_US)
			continue;
		take_due(server, mirror, entry);
		taken++;
	}
}

void
list_counts_take_all(Server *server)
{
	for (uint32_t entry = 0; server->held > 0 && entry < server->layout.mirrors; entry++)
		take_due(server, &server->mirrors[entry], entry);
}
