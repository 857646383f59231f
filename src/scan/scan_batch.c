/*
 * scan_batch.c
 *		The first answers of many scans, asked for at once.
 *
 * A scan asks for itself, when the executor wants its first row. Who knows
 * beforehand what many scans of an index are going to ask (gpuann_recall) has
 * the server answer all of them in one batch through a channel, and gives each
 * scan its own answer. Such an answer is no different: it says which list
 * entries it covers, and its rows are confirmed.
 */
#include "postgres.h"

#include "scan/scan.h"

void
scan_batch_ask(Relation index, const void *vectors, uint32 count, SearchMethod method,
			   FirstAnswer *first)
{
	const IndexFormat *format = index_format(index);
	bool		exact = method == METHOD_EXACT;
	uint32		ef = exact ? 1 : (uint32) gpuann_effective_ef_search(index);
	ServerQuery query = {.vector_bytes = format->vector_bytes,
						 .method = method,
						 .ef = ef,
						 .k = exact ? scan_exact_room(EXACT_FIRST_ROOM) : ef};
	FallbackReason why = FALLBACK_NONE;
	MetaPage	meta;
	PendingBounds bounds;
	ServerAnswer *answers;
	MirrorRef	mirror;
	uint64		changes;

	memset(first, 0, sizeof(FirstAnswer) * count);
	pending_bounds(index, format, &meta, &bounds);
	mirror = client_mirror(index, &meta, &why);
	/* Otherwise each scan finds out, and tells, why it takes the page path. */
	if (why != FALLBACK_NONE || count == 0)
		return;
	changes = client_changes(mirror);
	answers = palloc0(sizeof(ServerAnswer) * count);
	for (uint32 done = 0, some; done < count && why == FALLBACK_NONE; done += some)
	{
		some = Min(count - done, client_batch_room(&query));
		why = client_search_batch(mirror, &query,
								  (const char *) vectors + (Size) done * format->vector_bytes, some,
								  answers + done);
		for (uint32 i = done; i < done + some && why == FALLBACK_NONE; i++)
			first[i] = (FirstAnswer) {true, mirror, query, changes, answers[i]};
	}
	pfree(answers);
}

bool
scan_batch_has(GpuannScan *scan, const ServerQuery *query, ServerAnswer *answer, uint64 *changes)
{
	FirstAnswer *first = scan->first;

	if (first == NULL || !first->set || scan->answered || query->beyond.set ||
		query->method != first->query.method || query->k != first->query.k ||
		query->ef != first->query.ef || scan->mirror.entry != first->mirror.entry ||
		scan->mirror.generation != first->mirror.generation)
		return false;
	*answer = first->answer;
	*changes = first->changes;
	first->set = false;
	return true;
}
