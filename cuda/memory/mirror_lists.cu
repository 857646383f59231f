/*
 * mirror_lists.cu
 *		A mirror's lists of codes: sizes, which list has a block, which places
 *		are free.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/memory/device.h"

extern "C"
{
#include "engine/quantizer/lists_train.h"
}

#define MAX_BLOCKS (1u << 27) /* so that numbers of places fit into 32 bits */
#define ALL_USED 0xFFFFFFFFu
#define FIXED_ALIGNMENT 256u /* bytes, of each array in `fixed` */

uint32_t
lists_rotations(const QuantizerShape *shape)
{
	return shape->kind == QUANTIZER_PQ ? 0 : shape->kind == QUANTIZER_RABITQ ? 2 : 1;
}

bool
lists_create(CudaMirror *mirror)
{
	CudaLists *lists = (CudaLists *) calloc(1, sizeof(*lists));

	if (lists == NULL)
		return false;
	mirror->lists = lists;
	lists->shape = quantizer_shape_of(&mirror->spec);
	lists->count = mirror->spec.lists.lists;
	lists->code_words = (uint32_t) (quantizer_code_bytes(&lists->shape) / sizeof(uint32_t));
	lists->block_words = LIST_PLACES * (1 + lists->code_words);
	lists->nfloats = lists_floats(&lists->shape, lists->count);
	lists->first_spare = NO_BLOCK;
	lists->lists = (HostList *) malloc(lists->count * sizeof(HostList));
	if (lists->lists == NULL)
		return false;
	for (uint32_t i = 0; i < lists->count; i++)
		lists->lists[i] = {NO_BLOCK, NO_BLOCK, NO_BLOCK, 0, 0};
	return true;
}

void
lists_free(CudaDevice *device, CudaMirror *mirror)
{
	CudaLists *lists = mirror->lists;

	if (lists == NULL)
		return;
	device->host_arrays -= (uint64_t) lists->block_room * sizeof(HostBlock);
	free(lists->where);
	free(lists->lists);
	free(lists->blocks);
	free(lists);
	mirror->lists = NULL;
}

/*
 * Blocks for a number of rows: full ones, and half a block per list on average.
 */
static uint64_t
blocks_for_slots(const CudaLists *lists, uint64_t slots)
{
	return slots / LIST_PLACES + (lists->count < slots ? lists->count : slots) / 2 + 1;
}

uint64_t
lists_memory_bytes(const CudaLists *lists, uint64_t slots)
{
	return blocks_for_slots(lists, slots) * lists->block_words * sizeof(uint32_t);
}

static uint64_t
directory_bytes(const CudaLists *lists, uint64_t blocks)
{
	return (lists->count + 1 + blocks) * sizeof(uint32_t);
}

uint64_t
lists_directory_bytes(const CudaLists *lists, uint64_t slots)
{
	return directory_bytes(lists, blocks_for_slots(lists, slots));
}

static size_t
floats_bytes(const CudaLists *lists)
{
	return round_up(lists->nfloats * sizeof(float), FIXED_ALIGNMENT);
}

static size_t
norms_bytes(const CudaLists *lists)
{
	return round_up(lists->count * sizeof(float), FIXED_ALIGNMENT);
}

static size_t
halves_bytes(const CudaLists *lists)
{
	return round_up(lists_halves_bytes(lists->count, lists->shape.dims), FIXED_ALIGNMENT);
}

static size_t
probed_bytes(const CudaLists *lists)
{
	return round_up(lists->count * sizeof(uint64_t), FIXED_ALIGNMENT);
}

uint64_t
lists_fixed_bytes(const CudaLists *lists)
{
	return floats_bytes(lists) + norms_bytes(lists) + halves_bytes(lists) + probed_bytes(lists) +
		   (uint64_t) lists_rotations(&lists->shape) * lists->shape.dims * sizeof(uint32_t);
}

bool
lists_grow_host(CudaMirror *mirror, uint32_t slots)
{
	uint32_t *where =
		(uint32_t *) realloc(mirror->lists->where, (size_t) slots * sizeof(uint32_t));

	if (where == NULL)
		return false;
	mirror->lists->where = where;
	return true;
}

ListsView
lists_view(const CudaMirror *mirror)
{
	const CudaLists *lists = mirror->lists;
	const unsigned char *fixed = (const unsigned char *) lists->fixed.base;
	ListsView view;

	memset(&view, 0, sizeof(view));
	view.shape = lists->shape;
	view.lists = lists->open ? lists->count : 0;
	view.code_words = lists->code_words;
	view.block_words = lists->block_words;
	view.centroids = (const float *) fixed;
	view.codebook = view.centroids + (size_t) lists->count * lists->shape.dims;
	view.half_norms = (const float *) (fixed + floats_bytes(lists));
	view.probed = (unsigned long long *) (fixed + floats_bytes(lists) + norms_bytes(lists) +
										  halves_bytes(lists));
	view.rotation = (const uint32_t *) ((const unsigned char *) view.probed + probed_bytes(lists));
	view.first = (const uint32_t *) lists->directory[lists->side].base;
	view.blocks = view.first + lists->count + 1;
	view.memory = (const uint32_t *) lists->memory.base;
	view.longest = lists->longest;
	view.all_blocks = lists->all_blocks;
	return view;
}

ListHalves
lists_halves(const CudaMirror *mirror)
{
	const CudaLists *lists = mirror->lists;

	return lists_halves_at((unsigned char *) lists->fixed.base + floats_bytes(lists) +
							   norms_bytes(lists),
						   lists->count, lists->shape.dims);
}

bool
lists_clear_probes(CudaDevice *device, const CudaMirror *mirror)
{
	return GPU(&device->failure,
			   cudaMemsetAsync(lists_view(mirror).probed, 0, probed_bytes(mirror->lists),
							   device->counts_stream)) &&
		   GPU(&device->failure, cudaStreamSynchronize(device->counts_stream));
}

/*
 * Batches run on meanwhile. The counts of a batch are complete once its answers
 * are: the kernels that write answers start after the kernel that counts has
 * finished.
 */
bool
lists_copy_probes(CudaDevice *device, const CudaMirror *mirror, uint64_t *counts)
{
	return GPU(&device->failure,
			   cudaMemcpyAsync(counts, lists_view(mirror).probed,
							   mirror->lists->count * sizeof(uint64_t), cudaMemcpyDeviceToHost,
							   device->counts_stream)) &&
		   GPU(&device->failure, cudaStreamSynchronize(device->counts_stream));
}

uint32_t
lists_number(const CudaMirror *mirror, uint32_t slot)
{
	const CudaLists *lists = mirror->lists;

	return mirror->states[slot] & SLOT_LINKED ? lists->blocks[lists->where[slot] / LIST_PLACES].list
											  : NO_SLOT;
}

/*
 * Unlink blocks without a row from their lists, for reuse by any list, and
 * rebuild each list's chain of blocks with free places.
 */
static void
collect_empty(CudaLists *lists)
{
	for (uint32_t i = 0; i < lists->count && lists->nempty > 0; i++)
	{
		HostList *list = &lists->lists[i];
		uint32_t *place = &list->first;

		list->last = list->first_free = NO_BLOCK;
		while (*place != NO_BLOCK)
		{
			uint32_t number = *place;
			HostBlock *block = &lists->blocks[number];

			if (block->used == 0)
			{
				lists->moved = true;
				*place = block->next;
				block->next = lists->first_spare;
				lists->first_spare = number;
				lists->nspare++;
				lists->nempty--;
				list->blocks--;
				list->free -= LIST_PLACES;
				continue;
			}
			if (block->used != ALL_USED)
			{
				block->next_free = list->first_free;
				list->first_free = number;
			}
			list->last = number;
			place = &block->next;
		}
	}
}

/* Map memory for `blocks` blocks in all, and enlarge the host's array. */
static bool
reserve_blocks(CudaDevice *device, CudaMirror *mirror, uint64_t blocks, EngineError *error)
{
	CudaLists *lists = mirror->lists;
	Arena *arena = &device->arena;
	uint64_t room = blocks + blocks / 8;

	if (room > MAX_BLOCKS)
	{
		engine_error(error, ENGINE_NO_MEMORY, "%llu blocks of lists are more than %u",
					 (unsigned long long) blocks, MAX_BLOCKS);
		return false;
	}
	if (range_grow(arena, &lists->memory, blocks * lists->block_words * sizeof(uint32_t), error) !=
			ENGINE_OK ||
		range_grow(arena, &lists->directory[0], directory_bytes(lists, blocks), error) !=
			ENGINE_OK ||
		range_grow(arena, &lists->directory[1], directory_bytes(lists, blocks), error) != ENGINE_OK)
		return false;
	if (blocks > lists->block_room)
	{
		HostBlock *more = (HostBlock *) realloc(lists->blocks, room * sizeof(HostBlock));

		if (more == NULL)
		{
			engine_error(error, ENGINE_NO_MEMORY, "out of host memory for %llu blocks of lists",
						 (unsigned long long) blocks);
			return false;
		}
		device->host_arrays += (room - lists->block_room) * sizeof(HostBlock);
		lists->blocks = more;
		lists->block_room = (uint32_t) room;
	}
	return true;
}

/*
 * Append a block to a list: an unused one, else the next of the memory
 * reserved.
 */
static void
add_block(CudaLists *lists, uint32_t number)
{
	HostList *list = &lists->lists[number];
	uint32_t at = lists->first_spare;

	lists->moved = true;
	if (at == NO_BLOCK)
		at = lists->nblocks++;
	else
	{
		lists->first_spare = lists->blocks[at].next;
		lists->nspare--;
	}
	lists->blocks[at] = {NO_BLOCK, list->first_free, 0, number};
	list->first_free = at;
	if (list->last == NO_BLOCK)
		list->first = at;
	else
		lists->blocks[list->last].next = at;
	list->last = at;
	list->blocks++;
	list->free += LIST_PLACES;
	lists->nempty++;
}

bool
lists_reserve(CudaDevice *device, CudaMirror *mirror, const uint32_t *more, EngineError *error)
{
	CudaLists *lists = mirror->lists;
	uint64_t blocks = 0;

	collect_empty(lists);
	for (uint32_t i = 0; i < lists->count; i++)
		if (more[i] > lists->lists[i].free)
			blocks += (more[i] - lists->lists[i].free + LIST_PLACES - 1) / LIST_PLACES;
	if (blocks > lists->nspare &&
		!reserve_blocks(device, mirror, lists->nblocks + (blocks - lists->nspare), error))
		return false;
	for (uint32_t i = 0; i < lists->count; i++)
		while (more[i] > lists->lists[i].free)
			add_block(lists, i);
	return true;
}

uint32_t
lists_take_place(CudaLists *lists, uint32_t number)
{
	HostList *list = &lists->lists[number];
	uint32_t at = list->first_free;
	HostBlock *block = &lists->blocks[at];
	uint32_t place = (uint32_t) __builtin_ctz(~block->used);

	lists->nempty -= block->used == 0;
	block->used |= 1u << place;
	list->free--;
	if (block->used == ALL_USED)
		list->first_free = block->next_free;
	return at * LIST_PLACES + place;
}

void
lists_give_place(CudaLists *lists, uint32_t place)
{
	HostBlock *block = &lists->blocks[place / LIST_PLACES];
	HostList *list = &lists->lists[block->list];

	if (block->used == ALL_USED)
	{
		block->next_free = list->first_free;
		list->first_free = place / LIST_PLACES;
	}
	block->used &= ~(1u << place % LIST_PLACES);
	lists->nempty += block->used == 0;
	list->free++;
}

uint32_t
lists_directory_words(const CudaLists *lists)
{
	return lists->count + 1 + lists->nblocks - lists->nspare;
}

void
lists_make_directory(const CudaLists *lists, uint32_t *words)
{
	uint32_t *blocks = words + lists->count + 1;
	uint32_t n = 0;

	for (uint32_t i = 0; i < lists->count; i++)
	{
		words[i] = n;
		for (uint32_t at = lists->lists[i].first; at != NO_BLOCK; at = lists->blocks[at].next)
			blocks[n++] = at;
	}
	words[lists->count] = n;
}

uint32_t
lists_forget(CudaMirror *mirror, const uint32_t *slots, uint32_t count, uint32_t *places)
{
	CudaLists *lists = mirror->lists;
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++)
	{
		uint32_t slot = slots[i];

		if (!(mirror->states[slot] & SLOT_LINKED))
			continue;
		places[n++] = lists->where[slot];
		lists_give_place(lists, lists->where[slot]);
		mirror->states[slot] &= (uint8_t) ~SLOT_LINKED;
		mirror->linked--;
	}
	return n;
}

void
lists_unlist(CudaMirror *mirror, uint32_t slot, uint32_t *moved, uint32_t *nmoved)
{
	uint32_t *where = mirror->lists->where;
	uint32_t at = where[slot];
	uint32_t last = mirror->listed[--mirror->nlisted];

	mirror->states[slot] &= (uint8_t) ~SLOT_LISTED;
	if (at == mirror->nlisted)
		return;
	mirror->listed[at] = last;
	where[last] = at;
	moved[(*nmoved)++] = at;
}

uint32_t
lists_moved(const CudaMirror *mirror, uint32_t *moved, uint32_t nmoved, uint32_t *slots)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < nmoved; i++)
		if (moved[i] < mirror->nlisted)
		{
			slots[kept] = mirror->listed[moved[i]];
			moved[kept++] = moved[i];
		}
	return kept;
}
