/*
 * scan_batch.c
 *		First answers of many scans, requested in one batch.
 *
 * A scan asks by itself when the executor wants its first row. A caller that
 * knows beforehand what many scans will ask, of one index (gpuann_recall) or
 * each of its own (the plan node, for partitions), requests all answers in one
 * batch through a channel, and hands each scan its own. Such an answer is like
 * any other: it says which list entries it covers, and its rows are confirmed.
 */
#include "postgres.h"

#include "scan/scan.h"

#include "access/relscan.h"
#include "utils/memutils.h"

/* A scan of several, and where its answer goes. */
typedef struct Member
{
	IndexScanDesc scan;
	FirstAnswer *first;
	uint64		changes;
	const FilterProgram *program;	/* its own, equal to the others' */
} Member;

/* The members of a batch: their queries differ in vector and mirror only. */
typedef struct Members
{
	Member	   *members;
	MirrorRef  *mirrors;
	char	   *vectors;
	uint32		count;
	ServerQuery query;			/* but for its vector */
} Members;

void
scan_batch_ask(Relation index, const void *vectors, uint32 count, SearchMethod method,
			   FirstAnswer *first)
{
	const IndexFormat *format = index_format(index);
	bool		exact = method == METHOD_EXACT;
	bool		has_lists = format_has_lists(format);
	uint32		ef = exact ? 1 : (uint32) gpuann_effective_ef_search(index, has_lists);
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
	uint32		lists;

	memset(first, 0, sizeof(FirstAnswer) * count);
	pending_bounds(index, format, &meta, &bounds);
	mirror = client_mirror(index, &meta, &why);
	/* Otherwise each scan determines and reports why it takes the page path. */
	if (why != FALLBACK_NONE || count == 0)
		return;
	source_plan_query(index, format, &query, &lists);
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

/*
 * The mirror of an index that the server answers for. False: it does not.
 */
static bool
ready_mirror(Relation index, MirrorRef *mirror)
{
	FallbackReason why = FALLBACK_NONE;
	MetaPage	meta = {.nonce = index_cached_nonce(index)};
	PendingBounds bounds;

	if (meta.nonce == 0)
		pending_bounds(index, index_format(index), &meta, &bounds);
	*mirror = client_mirror(index, &meta, &why);
	return why == FALLBACK_NONE;
}

/*
 * Whether two queries have the same program: partitions with the same columns
 * do.
 */
static bool
same_program(const FilterProgram *a, const FilterProgram *b)
{
	return a == NULL || b == NULL ? a == b : program_same(a, b);
}

/*
 * Add a scan to the batch, if it asks the same as the first one. Otherwise it
 * asks by itself.
 */
static void
members_add(Members *batch, IndexScanDesc scan, FirstAnswer *first)
{
	Size		bytes = batch->query.vector_bytes;
	ServerQuery query;
	MirrorRef	mirror;

	if (!scan_first_query(scan, &query) || !ready_mirror(scan->indexRelation, &mirror))
		return;
	if (batch->count == 0)
		batch->query = query;
	else if (!same_program(query.program, batch->query.program) ||
			 query.vector_bytes != bytes || query.ef != batch->query.ef ||
			 query.method != batch->query.method || query.probes != batch->query.probes ||
			 query.rerank != batch->query.rerank ||
			 batch->count == client_batch_room(&query))
		return;
	bytes = query.vector_bytes;
	batch->vectors = repalloc_huge(batch->vectors, bytes * (batch->count + 1));
	memcpy(batch->vectors + bytes * batch->count, query.vector, bytes);
	batch->mirrors[batch->count] = mirror;
	batch->members[batch->count++] = (Member){scan, first, client_changes(mirror), query.program};
}

/*
 * Give the members their answers, in memory of their scans.
 */
static void
members_answer(const Members *batch, const ServerAnswer *answers)
{
	for (uint32 i = 0; i < batch->count; i++)
	{
		const Member *member = &batch->members[i];
		GpuannScan *scan = member->scan->opaque;
		Size		bytes = sizeof(SearchResult) * answers[i].count;
		ServerAnswer answer = answers[i];

		answer.results = MemoryContextAlloc(scan->memory, Max(bytes, 1));
		memcpy(answer.results, answers[i].results, bytes);
		*member->first =
			(FirstAnswer){true, batch->mirrors[i], batch->query, member->changes, answer};
		member->first->query.program = member->program;
	}
}

void
scan_batch_ask_several(IndexScanDesc *scans, uint32 count, FirstAnswer **first)
{
	MemoryContext memory =
		AllocSetContextCreate(CurrentMemoryContext, "gpuann batch", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(memory);
	Members		batch = {.members = palloc(sizeof(Member) * count),
						 .mirrors = palloc(sizeof(MirrorRef) * count),
						 .vectors = palloc(1)};
	ServerAnswer *answers = palloc0(sizeof(ServerAnswer) * count);

	for (uint32 i = 0; i < count; i++)
		members_add(&batch, scans[i], first[i]);
	/* A single scan asks by itself, through its own slot. */
	if (batch.count > 1 &&
		client_search_several(batch.mirrors, &batch.query, batch.vectors, batch.count, answers) ==
			FALLBACK_NONE)
		members_answer(&batch, answers);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(memory);
}
