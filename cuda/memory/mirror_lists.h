/*
 * mirror_lists.h
 *		Lists of codes of a mirror: their memory on the device, and what the
 *		host knows of it.
 *
 * A list has blocks of 32 places (cuda/lists/lists_view.h); the host says
 * which. A slot has one place, or it is on the list of pending slots, or it is
 * dead. Places are written between batches: those in flight are waited for and
 * later ones wait, so that a batch finds a slot in one of the two, and once.
 */
#ifndef GPUANN_CUDA_MIRROR_LISTS_H
#define GPUANN_CUDA_MIRROR_LISTS_H

#include "cuda/memory/arena.h"
#include "cuda/lists/lists_view.h"

struct CudaDevice;
struct CudaMirror;

#define NO_BLOCK 0xFFFFFFFFu

/* A block of a list, as the host knows it. */
struct HostBlock
{
	uint32_t next;	   /* of its list; of a block of no list, the next such */
	uint32_t next_free; /* of those of its list with free places */
	uint32_t used;	   /* bits of places */
	uint32_t list;
};

struct HostList
{
	uint32_t first; /* blocks */
	uint32_t last;
	uint32_t first_free; /* has free places; no other block has, but those behind it */
	uint32_t blocks;
	uint32_t free; /* places */
};

struct CudaLists
{
	QuantizerShape shape;
	uint32_t count; /* of lists */
	uint32_t code_words;
	uint32_t block_words;
	size_t nfloats;	 /* of centroids and codebook */
	size_t received; /* of them, what jobs have brought */
	bool open;		 /* all are there */

	Range fixed; /* floats, half norms, rotations */
	Range memory;
	size_t memory_cleared; /* bytes of it whose places are free, or were taken */
	Range directory[2]; /* batches read one: ListsView's first, then blocks */
	uint32_t side;
	uint32_t longest; /* list, in blocks, */
	uint32_t all_blocks; /* and of all */
	bool moved;		  /* lists have other blocks than the directory says */

	/* on the host */
	uint32_t *where; /* of a slot that is listed as pending, its index there; of one that is linked,
					  * its place */
	HostList *lists;
	HostBlock *blocks;
	uint32_t nblocks;
	uint32_t block_room;
	uint32_t first_spare; /* blocks that are in no list */
	uint32_t nspare;
	uint32_t nempty; /* blocks of lists without a row */
};

/* A mirror's lists, empty; false: out of memory. */
extern bool lists_create(CudaMirror *mirror);
extern void lists_free(CudaDevice *device, CudaMirror *mirror);

/* Rotations of a quantizer: int8 has one, rabitq two. */
extern uint32_t lists_rotations(const QuantizerShape *shape);
/* Bytes of blocks and of a side of the directory for so many slots; others. */
extern uint64_t lists_memory_bytes(const CudaLists *lists, uint64_t slots);
extern uint64_t lists_directory_bytes(const CudaLists *lists, uint64_t slots);
extern uint64_t lists_fixed_bytes(const CudaLists *lists);
/* Bytes of the host for a slot. */
#define LISTS_HOST_SLOT (sizeof(uint32_t))
/* Grow the host's array of slots. */
extern bool lists_grow_host(CudaMirror *mirror, uint32_t slots);

/* What batches that start now see. */
extern ListsView lists_view(const CudaMirror *mirror);
/*
 * Counts of probes: clear them, and copy them out; on a stream of their own,
 * which is waited for.
 */
extern bool lists_clear_probes(CudaDevice *device, const CudaMirror *mirror);
extern bool lists_copy_probes(CudaDevice *device, const CudaMirror *mirror, uint64_t *counts);
/* The number of a linked slot's list; NO_SLOT: it is in none. */
extern uint32_t lists_number(const CudaMirror *mirror, uint32_t slot);

/*
 * Have blocks for so many more rows of each list; false: no memory, error says
 * of what. Nothing that batches see has changed.
 */
extern bool lists_reserve(CudaDevice *device, CudaMirror *mirror, const uint32_t *more,
						  EngineError *error);
/* Take a place of a list, which has room. */
extern uint32_t lists_take_place(CudaLists *lists, uint32_t list);
/* Give a place back. */
extern void lists_give_place(CudaLists *lists, uint32_t place);
/* Words of the directory as it has to be now, and these words. */
extern uint32_t lists_directory_words(const CudaLists *lists);
extern void lists_make_directory(const CudaLists *lists, uint32_t *words);

/*
 * Take a slot off the list of pending ones: the last takes its index. Those
 * that have come to be elsewhere are noted, one at most for each call.
 */
extern void lists_unlist(CudaMirror *mirror, uint32_t slot, uint32_t *moved, uint32_t *nmoved);
/*
 * Of the indexes noted, those that the list still has, and their slots; returns
 * how many.
 */
extern uint32_t lists_moved(const CudaMirror *mirror, uint32_t *moved, uint32_t nmoved,
							uint32_t *slots);

/*
 * Of slots that die or are overwritten, the places that they leave, into
 * `places`; returns how many.
 */
extern uint32_t lists_forget(CudaMirror *mirror, const uint32_t *slots, uint32_t count,
							 uint32_t *places);

#endif /* GPUANN_CUDA_MIRROR_LISTS_H */
