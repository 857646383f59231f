/*
 * mirror_lists.h
 *		A mirror's lists of codes: their device memory, and the host's directory
 *		of it.
 *
 * A list has blocks of 32 places (cuda/lists/lists_view.h); the host's arrays
 * say which. A slot has one place in a list, or is in the list of pending
 * slots, or is dead. Places are written between batches: jobs wait for the
 * batches in flight and later batches wait for the job, so a batch finds each
 * slot in exactly one of the two.
 */
#ifndef GPUANN_CUDA_MIRROR_LISTS_H
#define GPUANN_CUDA_MIRROR_LISTS_H

#include "cuda/memory/arena.h"
#include "cuda/lists/lists_view.h"

struct CudaDevice;
struct CudaMirror;

#define NO_BLOCK 0xFFFFFFFFu

/* The host's record of a block. */
struct HostBlock
{
	uint32_t next;	   /* next block of its list, or of the unused blocks */
	uint32_t next_free; /* next block of its list with free places */
	uint32_t used;	   /* bit p: place p is taken */
	uint32_t list;
};

struct HostList
{
	uint32_t first; /* first and last block */
	uint32_t last;
	uint32_t first_free; /* head of its blocks with free places */
	uint32_t blocks;
	uint32_t free; /* free places */
};

struct CudaLists
{
	QuantizerShape shape;
	uint32_t count; /* number of lists */
	uint32_t code_words;
	uint32_t block_words;
	size_t nfloats;	 /* of centroids and codebook */
	size_t received; /* of these, received from jobs so far */
	bool open;		 /* all floats have been received */

	Range fixed; /* centroids and codebook, half norms, counts of probes, rotations */
	Range memory;
	size_t memory_cleared; /* leading bytes of `memory` whose places have been initialised */
	Range directory[2]; /* two sides, of which batches read one: ListsView's `first`, then
						 * `blocks` */
	uint32_t side;
	uint32_t longest; /* blocks of the longest list, */
	uint32_t all_blocks; /* and of all lists */
	bool moved;		  /* blocks have moved between lists since the directory was written */

	/* on the host */
	uint32_t *where; /* by slot: if listed as pending its index there; if linked its place */
	HostList *lists;
	HostBlock *blocks;
	uint32_t nblocks;
	uint32_t block_room;
	uint32_t first_spare; /* head of the unused blocks */
	uint32_t nspare;
	uint32_t nempty; /* blocks of lists with no place taken */
};

/* Create a mirror's lists, without rows. False: out of memory. */
extern bool lists_create(CudaMirror *mirror);
extern void lists_free(CudaDevice *device, CudaMirror *mirror);

/* Number of rotations of a quantizer: pq 0, int8 1, rabitq 2. */
extern uint32_t lists_rotations(const QuantizerShape *shape);
/*
 * Device bytes for a number of slots: of blocks, of one side of the directory;
 * of what does not depend on slots.
 */
extern uint64_t lists_memory_bytes(const CudaLists *lists, uint64_t slots);
extern uint64_t lists_directory_bytes(const CudaLists *lists, uint64_t slots);
extern uint64_t lists_fixed_bytes(const CudaLists *lists);
/* Bytes of `where` per slot. */
#define LISTS_HOST_SLOT (sizeof(uint32_t))
/* Enlarge `where`. False: out of memory. */
extern bool lists_grow_host(CudaMirror *mirror, uint32_t slots);

/* Kernel arguments for batches that start now. */
extern ListsView lists_view(const CudaMirror *mirror);
extern ListHalves lists_halves(const CudaMirror *mirror);
/*
 * Clear the counts of probes, or copy them to `counts` (one per list). Both
 * wait for a stream of their own, not for batches or jobs. False: the device
 * failed.
 */
extern bool lists_clear_probes(CudaDevice *device, const CudaMirror *mirror);
extern bool lists_copy_probes(CudaDevice *device, const CudaMirror *mirror, uint64_t *counts);
/* The number of a linked slot's list; NO_SLOT: it is in no list. */
extern uint32_t lists_number(const CudaMirror *mirror, uint32_t slot);

/*
 * Reserve blocks so that each list i has more[i] free places. False: no memory,
 * *error says which. Batches see the change only with a new directory.
 */
extern bool lists_reserve(CudaDevice *device, CudaMirror *mirror, const uint32_t *more,
						  EngineError *error);
/* Take a free place of a list, which must have one; returns its number. */
extern uint32_t lists_take_place(CudaLists *lists, uint32_t list);
/* Free a place. */
extern void lists_give_place(CudaLists *lists, uint32_t place);
/* Size of the directory in words, and its contents, as the lists are now. */
extern uint32_t lists_directory_words(const CudaLists *lists);
extern void lists_make_directory(const CudaLists *lists, uint32_t *words);

/*
 * Remove a slot from the list of pending slots: the last entry moves to its
 * index. Indexes whose entry changed are appended to `moved`, at most one per
 * call.
 */
extern void lists_unlist(CudaMirror *mirror, uint32_t slot, uint32_t *moved, uint32_t *nmoved);
/*
 * Drop indexes beyond the end of the list from `moved`, and get the slots at
 * the others, to be written to the device; returns their number.
 */
extern uint32_t lists_moved(const CudaMirror *mirror, uint32_t *moved, uint32_t nmoved,
							uint32_t *slots);

/*
 * Free the places of slots that die or are overwritten, which are no longer
 * linked; their numbers go to `places`. Returns how many.
 */
extern uint32_t lists_forget(CudaMirror *mirror, const uint32_t *slots, uint32_t count,
							 uint32_t *places);

#endif /* GPUANN_CUDA_MIRROR_LISTS_H */
