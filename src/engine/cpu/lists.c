/*
 * lists.c
 *		Memory of a mirror's lists, and the changes of single places.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/lists.h"

#define GROWTH	8		/* a segment has at least this part of its list's blocks */

static size_t
block_stride_of(const QuantizerShape *shape)
{
	return align_up(sizeof(ListBlock)) + block_bytes(shape);
}

static size_t
segment_bytes(const Lists *lists, uint32_t blocks)
{
	return align_up(sizeof(ListSegment)) + blocks * lists->block_stride;
}

/* Centroids, codebook, what is made of them, and the table of lists. */
static uint64_t
fixed_bytes(const MirrorSpec *spec, const QuantizerShape *shape)
{
	return lists_floats(shape, spec->lists.lists) * sizeof(float) +
		align_up(centroids_bytes(spec->lists.lists, spec->dims)) + quantizer_open_bytes(shape) +
		spec->lists.lists * (sizeof(List) + sizeof(uint64_t)) + sizeof(Lists);
}

/* What a mirror's lists will take: full blocks, and half a block for each list. */
uint64_t
lists_create_bytes(const MirrorSpec *spec)
{
	QuantizerShape shape = quantizer_shape_of(spec);
	uint64_t	half = spec->lists.lists < spec->capacity ? spec->lists.lists : spec->capacity;

	return fixed_bytes(spec, &shape) +
		(spec->capacity / QUANTIZER_BLOCK + half / 2) * block_stride_of(&shape);
}

uint64_t
lists_bytes(const Lists *lists)
{
	uint64_t	used = atomic_load(&lists->used);

	return used > lists->reserved ? used : lists->reserved;
}

/* How far a number of bytes goes beyond what was reserved. */
static uint64_t
beyond_reserved(const Lists *lists, uint64_t used)
{
	return used > lists->reserved ? used - lists->reserved : 0;
}

void
lists_discharge(Mirror *mirror, uint64_t bytes)
{
	Lists	   *lists = mirror->lists;
	uint64_t	before = atomic_fetch_sub(&lists->used, bytes);

	atomic_fetch_sub(&mirror->budget->graph,
					 beyond_reserved(lists, before) - beyond_reserved(lists, before - bytes));
}

/* Threads may charge at once, so the sum is compared after charging. */
bool
lists_charge(Mirror *mirror, uint64_t bytes)
{
	Lists	   *lists = mirror->lists;
	MemoryBudget *budget = mirror->budget;
	uint64_t	before = atomic_fetch_add(&lists->used, bytes);
	uint64_t	more = beyond_reserved(lists, before + bytes) - beyond_reserved(lists, before);

	atomic_fetch_add(&budget->graph, more);
	if (more == 0 || budget_used(budget) <= budget->limit)
		return true;
	lists_discharge(mirror, bytes);
	return false;
}

/* Allocate what has a fixed size. */
static bool
allocate_fixed(Lists *lists)
{
	lists->floats = calloc(lists->nfloats, sizeof(float));
	lists->tiles = mirror_memory(align_up(centroids_bytes(lists->count, lists->shape.dims)));
	lists->lists = calloc(lists->count, sizeof(List));
	lists->probed = calloc(lists->count, sizeof(uint64_t));
	return lists->floats != NULL && lists->tiles != NULL && lists->lists != NULL &&
		lists->probed != NULL;
}

bool
lists_create(Mirror *mirror, EngineError *error)
{
	const MirrorSpec *spec = &mirror->spec;
	QuantizerShape shape = quantizer_shape_of(spec);
	MemoryBudget *budget = mirror->budget;
	uint64_t	reserved = lists_create_bytes(spec);
	uint64_t	used = budget_used(budget);
	Lists	   *lists;

	atomic_fetch_add(&budget->graph, reserved);
	if (budget_used(budget) > budget->limit)
	{
		atomic_fetch_sub(&budget->graph, reserved);
		engine_error(error, ENGINE_NO_MEMORY,
					 "%llu bytes of lists do not fit: %llu of %llu are in use",
					 (unsigned long long) reserved, (unsigned long long) used,
					 (unsigned long long) budget->limit);
		return false;
	}
	lists = mirror->lists = calloc(1, sizeof(*lists));
	if (lists != NULL)
	{
		lists->shape = shape;
		lists->count = spec->lists.lists;
		lists->code_bytes = quantizer_code_bytes(&shape);
		lists->block_stride = block_stride_of(&shape);
		lists->nfloats = lists_floats(&shape, lists->count);
		lists->squares = distance_kernels(ELEMENT_FLOAT, METRIC_L2, mirror->kernels->level);
		lists->products = distance_kernels(ELEMENT_FLOAT, METRIC_IP, mirror->kernels->level);
		lists->reserved = reserved;
		atomic_store(&lists->used, fixed_bytes(spec, &shape));
		if (allocate_fixed(lists))
			return true;
		lists_free(mirror);
	}
	else
		atomic_fetch_sub(&budget->graph, reserved);
	engine_error(error, ENGINE_NO_MEMORY, "out of memory for %u lists", spec->lists.lists);
	return false;
}

void
lists_free(Mirror *mirror)
{
	Lists	   *lists = mirror->lists;

	if (lists == NULL)
		return;
	for (uint32_t i = 0; lists->lists != NULL && i < lists->count; i++)
		for (ListSegment *segment = atomic_load(&lists->lists[i].first), *next; segment != NULL;
			 segment = next)
		{
			next = atomic_load(&segment->next);
			free(atomic_load(&segment->words));
			free(segment);
		}
	for (uint32_t i = 0; lists->lists != NULL && i < lists->count; i++)
		free(atomic_load(&lists->lists[i].sets));
	atomic_fetch_sub(&mirror->budget->graph, lists_bytes(lists));
	if (lists->quantizer != NULL)
		quantizer_close(lists->quantizer);
	free(lists->floats);
	free(lists->tiles);
	free(lists->lists);
	free(lists->probed);
	free(lists);
	mirror->lists = NULL;
}

EngineStatus
lists_open(Lists *lists, EngineError *error)
{
	lists->quantizer =
		quantizer_open(&lists->shape, lists->floats + (size_t) lists->count * lists->shape.dims);
	if (lists->quantizer == NULL)
		return engine_error(error, ENGINE_NO_MEMORY, "out of memory for a quantizer");
	centroids_init(&lists->set, lists->floats, lists->count, lists->shape.dims, lists->tiles);
	lists->received = lists->nfloats;
	atomic_store_explicit(&lists->open, true, memory_order_release);
	return ENGINE_OK;
}

EngineStatus
lists_receive(Mirror *mirror, const EngineJob *job, EngineError *error)
{
	Lists	   *lists = mirror->lists;

	if (job->first_slot != lists->received || job->count > lists->nfloats - lists->received)
		return engine_error(error, ENGINE_INVALID, "floats %u to %llu do not follow the %zu of %zu",
							job->first_slot, (unsigned long long) job->first_slot + job->count,
							lists->received, lists->nfloats);
	if (job->count == 0)
		return ENGINE_OK;
	memcpy(lists->floats + lists->received, job->vectors, job->count * sizeof(float));
	if (lists->received + job->count == lists->nfloats)
		return lists_open(lists, error);
	lists->received += job->count;
	return ENGINE_OK;
}

/* The block of a place that a list has. */
static ListBlock *
find_block(const Lists *lists, const List *list, uint32_t place)
{
	const ListSegment *segment = atomic_load(&list->first);
	uint32_t	block = place / QUANTIZER_BLOCK;

	if (place >= list->last_place)
		return list_block(lists, list->last, (place - list->last_place) / QUANTIZER_BLOCK);
	for (; block >= segment->blocks; segment = atomic_load(&segment->next))
		block -= segment->blocks;
	return list_block(lists, segment, block);
}

static _Atomic uint32_t *
place_of(const Mirror *mirror, uint32_t slot)
{
	return &mirror_chunk(mirror, slot)->places[mirror_place(mirror, slot)];
}

void
lists_forget(Mirror *mirror, uint32_t slot)
{
	Lists	   *lists = mirror->lists;
	uint32_t	number = atomic_load_explicit(mirror_row(mirror, slot), memory_order_relaxed);
	uint32_t	place = atomic_load_explicit(place_of(mirror, slot), memory_order_relaxed);
	List	   *list;

	mirror_write_row(mirror, slot, NULL, 0);
	if (number == NO_SLOT || place == NO_PLACE)
		return;
	list = &lists->lists[number];
	atomic_store_explicit(&find_block(lists, list, place)->slots[place % QUANTIZER_BLOCK], NO_SLOT,
						  memory_order_release);
	atomic_store_explicit(place_of(mirror, slot), NO_PLACE, memory_order_relaxed);
	if (list->holes++ == 0 || place < list->hole)
		list->hole = place;
}

bool
lists_reserve(Mirror *mirror, uint32_t number, uint32_t more)
{
	Lists	   *lists = mirror->lists;
	List	   *list = &lists->lists[number];
	uint32_t	count = atomic_load_explicit(&list->count, memory_order_relaxed);
	uint32_t	left = list->room - count + list->holes;
	uint32_t	blocks;
	ListSegment *segment;

	if (more <= left)
		return true;
	blocks = (more - left + QUANTIZER_BLOCK - 1) / QUANTIZER_BLOCK;
	if (blocks < list->room / QUANTIZER_BLOCK / GROWTH)
		blocks = list->room / QUANTIZER_BLOCK / GROWTH;
	if (!lists_charge(mirror, segment_bytes(lists, blocks)))
		return false;
	segment = mirror_memory(segment_bytes(lists, blocks));
	if (segment == NULL)
	{
		lists_discharge(mirror, segment_bytes(lists, blocks));
		return false;
	}
	memset(segment, 0, segment_bytes(lists, blocks));
	segment->blocks = blocks;
	for (uint32_t i = 0; i < blocks; i++)
		for (uint32_t j = 0; j < QUANTIZER_BLOCK; j++)
			atomic_store_explicit(&list_block(lists, segment, i)->slots[j], NO_SLOT,
								  memory_order_relaxed);
	atomic_store_explicit(list->tail == NULL ? &list->first : &list->tail->next, segment,
						  memory_order_release);
	list->tail = segment;
	if (count == list->room)
	{
		list->last = segment;
		list->last_place = list->room;
	}
	list->room += blocks * QUANTIZER_BLOCK;
	return true;
}

/* The place for the next row of a list that has room. */
static uint32_t
next_place(const Lists *lists, List *list)
{
	uint32_t	count = atomic_load_explicit(&list->count, memory_order_relaxed);
	uint32_t	place = list->hole;

	if (list->holes == 0)
		return count;
	while (atomic_load_explicit(&find_block(lists, list, place)->slots[place % QUANTIZER_BLOCK],
								memory_order_relaxed) != NO_SLOT)
		place++;
	list->hole = place + 1;
	list->holes--;
	return place;
}

void
lists_add(Mirror *mirror, uint32_t number, uint32_t slot, const unsigned char *code)
{
	Lists	   *lists = mirror->lists;
	List	   *list = &lists->lists[number];
	uint32_t	place = next_place(lists, list);
	ListBlock  *block;
	uint32_t	changes;

	if (place >= list->last_place + list->last->blocks * QUANTIZER_BLOCK)
	{
		list->last_place += list->last->blocks * QUANTIZER_BLOCK;
		list->last = atomic_load(&list->last->next);
	}
	block = find_block(lists, list, place);
	changes = atomic_load_explicit(&block->changes, memory_order_relaxed);
	atomic_store_explicit(&block->changes, changes + 1, memory_order_relaxed);
	write_fence();
	block_set(lists->quantizer, list_codes(block), place % QUANTIZER_BLOCK, code);
	atomic_store_explicit(&block->slots[place % QUANTIZER_BLOCK], slot, memory_order_relaxed);
	atomic_store_explicit(&block->changes, changes + 2, memory_order_release);
	mirror_write_row(mirror, slot, &number, 1);
	atomic_store_explicit(place_of(mirror, slot), place, memory_order_relaxed);
	if (place == atomic_load_explicit(&list->count, memory_order_relaxed))
		atomic_store_explicit(&list->count, place + 1, memory_order_release);
}

void
lists_read_row(const Mirror *mirror, uint32_t slot, float *row)
{
	mirror->kernels->widen(mirror_vector(mirror, slot), mirror->spec.dims, row);
	if (mirror->spec.metric == METRIC_COSINE)
		quantizer_make_unit(row, mirror->spec.dims);
}
