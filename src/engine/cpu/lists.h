/*
 * lists.h
 *		Lists of codes of a mirror: how they lie in memory. Private to the CPU
 *		engine.
 *
 * A list is a chain of segments of blocks; a block has the slots and codes of
 * 32 places. Blocks never move and are freed with the mirror, so searches read
 * lists while a job adds rows to them. A place whose slot has died is a hole,
 * which the next row of its list fills. A slot's graph row is the number of its
 * list, and its chunk says at which place.
 *
 * Jobs are the only writers; of one list, one thread. A reader of a block
 * compares its count of changes before and after.
 */
#ifndef GPUANN_LISTS_H
#define GPUANN_LISTS_H

#include "engine/cpu/cpu.h"
#include "engine/quantizer/cooc.h"
#include "engine/quantizer/lists_train.h"
#include "engine/quantizer/nearest.h"

#define NO_PLACE	0xFFFFFFFFu

/* Codes lie behind it, at the next cache line. */
typedef struct ListBlock
{
	_Atomic uint32_t changes;	/* odd while a place is written */
	_Atomic uint32_t slots[QUANTIZER_BLOCK]; /* NO_SLOT: a hole */
} ListBlock;

/* Where the co-occurrence codes of a block are; length 0: nowhere. */
typedef struct CodedBlock
{
	uint32_t	changes;		/* of the block when it was encoded: it has not changed since, or
								 * its plain codes are scanned */
	uint32_t	length;
	uint64_t	at;				/* of SegmentWords.words */
} CodedBlock;

/* Co-occurrence codes of a segment. */
typedef struct SegmentWords
{
	uint16_t   *words;			/* behind blocks[] */
	CodedBlock	blocks[];
} SegmentWords;

/* Blocks lie behind it, at the next cache line. */
typedef struct ListSegment
{
	_Atomic(struct ListSegment *) next;
	_Atomic(SegmentWords *) words; /* once it has no room left; or NULL */
	uint32_t	blocks;
} ListSegment;

typedef struct List
{
	_Atomic(ListSegment *) first;
	ListSegment *tail;			/* the last in the chain */
	ListSegment *last;			/* has the place after the last one used, unless it is full */
	uint32_t	last_place;		/* where `last` begins */
	uint32_t	room;			/* places in all segments */
	_Atomic uint32_t count;		/* places used, holes included */
	uint32_t	holes;
	uint32_t	hole;			/* no hole is before this place */
	_Atomic(CoocSets *) sets;	/* of which segments are encoded; or NULL */
	uint32_t	mined;			/* places when sets were looked for last */
} List;

struct Lists
{
	QuantizerShape shape;
	uint32_t	count;			/* of lists */
	size_t		code_bytes;
	size_t		block_stride;	/* from one block to the next */
	size_t		nfloats;		/* of centroids and codebook */
	size_t		received;		/* of them; changed by jobs */
	float	   *floats;
	void	   *tiles;
	Centroids	set;			/* valid once open */
	Quantizer  *quantizer;		/* likewise */
	_Atomic bool open;			/* all floats are there */
	List	   *lists;
	_Atomic uint64_t *probed;	/* how often each list was; apart from List, which every search
								 * reads */
	const DistanceKernels *squares; /* of floats */
	const DistanceKernels *products;
	uint64_t	reserved;		/* bytes taken from the budget when it was created */
	_Atomic uint64_t used;		/* bytes allocated */
};

/* lists.c: memory */
extern bool lists_create(Mirror *mirror, EngineError *error);
extern void lists_free(Mirror *mirror);

/* Bytes taken from the budget for a mirror's lists. */
extern uint64_t lists_bytes(const Lists *lists);
extern uint64_t lists_create_bytes(const MirrorSpec *spec);

/* Build what needs all floats, and let rows be linked. */
extern EngineStatus lists_open(Lists *lists, EngineError *error);

/* JOB_CODEBOOK */
extern EngineStatus lists_receive(Mirror *mirror, const EngineJob *job, EngineError *error);

/* Remove a slot from its list, if it is in one. */
extern void lists_forget(Mirror *mirror, uint32_t slot);

/* Make room for more rows of a list; false: out of memory, or of the budget. */
extern bool lists_reserve(Mirror *mirror, uint32_t list, uint32_t more);

/* Add a slot that is in no list to one that has room. */
extern void lists_add(Mirror *mirror, uint32_t list, uint32_t slot, const unsigned char *code);

/* Copy a slot's vector as float32, of length one under cosine. */
extern void lists_read_row(const Mirror *mirror, uint32_t slot, float *row);

/*
 * Take bytes from the budget, as far as they were not reserved; give them back.
 * False: not under the limit.
 */
extern bool lists_charge(Mirror *mirror, uint64_t bytes);
extern void lists_discharge(Mirror *mirror, uint64_t bytes);

/* Whether a slot has a place in the list that its row names. */
static inline bool
lists_has_place(const Mirror *mirror, uint32_t slot)
{
	return atomic_load_explicit(&mirror_chunk(mirror, slot)->places[mirror_place(mirror, slot)],
								memory_order_relaxed) != NO_PLACE;
}

static inline ListBlock *
list_block(const Lists *lists, const ListSegment *segment, uint32_t number)
{
	return (ListBlock *) (void *) ((char *) segment + align_up(sizeof(ListSegment)) +
								   number * lists->block_stride);
}

static inline void *
list_codes(const ListBlock *block)
{
	return (char *) block + align_up(sizeof(ListBlock));
}

/* lists_link.c: JOB_LINK, JOB_GRAPH */
extern EngineStatus lists_link(CpuJob *job, CpuWorker *worker);
extern EngineStatus lists_load(CpuJob *job, CpuWorker *worker);

/* lists_cooc.c: encode lists anew after a link */
extern void lists_encode(CpuJob *job, CpuWorker *worker);

/* lists_learn.c: JOB_TRAIN */
extern EngineStatus lists_learn(CpuJob *job, CpuWorker *worker);

#endif							/* GPUANN_LISTS_H */
