/*
 * lists_cooc.c
 *		Co-occurrence codes of a mirror's lists. (MemANNS, section 4.3)
 *
 * An optional second encoding of stored codes, so rows may lack it. When a list
 * has enough rows, sets are mined from a sample of its codes, once. A segment
 * is encoded when it is full; as it is an eighth of its list or more, few rows
 * remain plain. A block in which a hole is filled later advances its count of
 * changes, and is scanned by its plain codes from then on; a death changes no
 * code. Where memory is short, or nothing is saved, lists stay plain.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/lists.h"

#define GROWN			2		/* growth factor after which a list without sets is mined again */

/* Whether lists of a mirror may be encoded. */
static bool
wants_words(const MirrorSpec *spec)
{
	const ListSpec *lists = &spec->lists;

	return lists->quantizer == QUANTIZER_PQ && lists->bits == 8 &&
		cooc_takes(lists->cooc, lists->parts);
}

/* Places of the full segments. */
static uint32_t
full_places(const List *list)
{
	uint32_t	count = atomic_load_explicit(&list->count, memory_order_relaxed);
	uint32_t	places = 0;

	for (const ListSegment *segment = atomic_load(&list->first); segment != NULL;
		 segment = atomic_load(&segment->next))
	{
		if (places + segment->blocks * QUANTIZER_BLOCK > count)
			break;
		places += segment->blocks * QUANTIZER_BLOCK;
	}
	return places;
}

/* Copy the codes of every step-th of the first blocks of a list. */
static void
copy_codes(const Lists *lists, const List *list, uint32_t blocks, uint32_t step,
		   unsigned char *codes)
{
	size_t		bytes = QUANTIZER_BLOCK * block_code_stride(&lists->shape);
	uint32_t	number = 0;

	for (const ListSegment *segment = atomic_load(&list->first); number < blocks;
		 segment = atomic_load(&segment->next))
		for (uint32_t i = 0; i < segment->blocks && number < blocks; i++, number++)
			if (number % step == 0)
			{
				memcpy(codes, list_codes(list_block(lists, segment, i)), bytes);
				codes += bytes;
			}
}

/* Whether to encode a list with these sets, judged by this sample. */
static bool
sets_pay(const MirrorSpec *spec, const CoocSets *sets, const unsigned char *codes, size_t stride,
		 uint32_t sampled, uint32_t places)
{
	CoocGain	gain;

	if (sets->count == 0 || spec->lists.cooc == COOC_ON)
		return sets->count > 0;
	gain = cooc_gain(sets, codes, stride, sampled);
	gain.rows = places;
	return cooc_pays(&gain);
}

static bool
is_cancelled(void *job)
{
	return atomic_load(&((CpuJob *) job)->watch.cancelled);
}

/* Mine sets of a list, and publish them if they pay. */
static void
mine_list(CpuJob *job, uint32_t number, uint32_t places)
{
	Mirror	   *mirror = job->entry->mirror;
	Lists	   *lists = mirror->lists;
	List	   *list = &lists->lists[number];
	size_t		stride = block_code_stride(&lists->shape);
	uint32_t	blocks = places / QUANTIZER_BLOCK;
	uint32_t	step = cooc_mined_step(blocks);
	uint32_t	sampled = (blocks + step - 1) / step * QUANTIZER_BLOCK;
	CoocMining	mining = {.stride = stride, .rows = sampled, .parts = lists->shape.parts,
						  .seed = lists->shape.seed + number,
						  .stop = is_cancelled, .context = job};
	uint64_t	bytes = cooc_mine_bytes(&mining) + sampled * stride;
	unsigned char *codes;
	CoocSets   *sets = NULL;

	list->mined = places;
	if (!lists_charge(mirror, bytes))
		return;
	codes = malloc(sampled * stride);
	if (codes != NULL)
	{
		copy_codes(lists, list, blocks, step, codes);
		mining.codes = codes;
		sets = cooc_mine(&mining);
	}
	if (sets != NULL && !sets_pay(&mirror->spec, sets, codes, stride, sampled, places))
	{
		free(sets);
		sets = NULL;
	}
	free(codes);
	lists_discharge(mirror, bytes);
	if (sets == NULL)
		return;
	if (lists_charge(mirror, sizeof(CoocSets) + COOC_SETS * sizeof(CoocSet)))
		atomic_store_explicit(&list->sets, sets, memory_order_release);
	else
		free(sets);
}

/* Lengths of the words of a segment's blocks; 0 for those that save nothing. */
static uint64_t
measure_segment(const Lists *lists, const ListSegment *segment, const CoocSets *sets,
				CodedBlock *coded)
{
	uint64_t	words = 0;

	for (uint32_t i = 0; i < segment->blocks; i++)
	{
		const ListBlock *block = list_block(lists, segment, i);
		uint32_t	length = cooc_block_length(sets, list_codes(block),
											   block_code_stride(&lists->shape));

		coded[i].changes = atomic_load_explicit(&block->changes, memory_order_relaxed);
		coded[i].length = length < sets->parts ? length : 0;
		coded[i].at = words;
		words += (uint64_t) coded[i].length * QUANTIZER_BLOCK;
	}
	return words;
}

/* Allocate words for a segment within the budget; NULL: there is no room. */
static SegmentWords *
allocate_words(Mirror *mirror, uint64_t bytes)
{
	SegmentWords *words;

	if (!lists_charge(mirror, bytes))
		return NULL;
	words = malloc(bytes);
	if (words == NULL)
		lists_discharge(mirror, bytes);
	return words;
}

/* Encode a full segment. */
static void
encode_segment(Mirror *mirror, ListSegment *segment, const CoocSets *sets)
{
	const Lists *lists = mirror->lists;
	size_t		coded_bytes = segment->blocks * sizeof(CodedBlock);
	CodedBlock *coded = malloc(coded_bytes);
	SegmentWords *words = NULL;

	if (coded != NULL)
		words = allocate_words(mirror, sizeof(SegmentWords) + coded_bytes + sizeof(uint16_t) *
							   measure_segment(lists, segment, sets, coded));
	if (words != NULL)
	{
		words->words = (uint16_t *) (void *) ((char *) words->blocks + coded_bytes);
		memcpy(words->blocks, coded, coded_bytes);
		for (uint32_t i = 0; i < segment->blocks; i++)
			if (coded[i].length > 0)
				cooc_block_set(sets, list_codes(list_block(lists, segment, i)),
							   block_code_stride(&lists->shape), coded[i].length,
							   words->words + coded[i].at);
		atomic_store_explicit(&segment->words, words, memory_order_release);
	}
	free(coded);
}

/* WorkerPhase: encode the segments of a list that have become full. */
static void
encode_list(void *context, uint32_t number, CpuWorker *worker)
{
	CpuJob	   *job = context;
	Mirror	   *mirror = job->entry->mirror;
	List	   *list = &mirror->lists->lists[number];
	uint32_t	places = full_places(list);
	uint32_t	least = cooc_least_rows(mirror->spec.lists.cooc);
	const CoocSets *sets = atomic_load(&list->sets);
	ListSegment *segment = atomic_load(&list->first);

	if (places < least || atomic_load(&job->watch.cancelled))
		return;
	if (sets == NULL && places >= (uint64_t) list->mined * GROWN)
		mine_list(job, number, places);
	sets = atomic_load(&list->sets);
	for (; sets != NULL && places > 0; segment = atomic_load(&segment->next))
	{
		if (atomic_load(&segment->words) == NULL)
			encode_segment(mirror, segment, sets);
		places -= segment->blocks * QUANTIZER_BLOCK;
	}
}

void
lists_encode(CpuJob *job, CpuWorker *worker)
{
	Mirror	   *mirror = job->entry->mirror;
	WorkerPhase phase = {.work = encode_list, .context = job, .count = mirror->lists->count};

	if (wants_words(&mirror->spec))
		phase_run(worker, &phase,
				  job->in.threads > 0 ? job->in.threads : worker->engine->nthreads);
}
