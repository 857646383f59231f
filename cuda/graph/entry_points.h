/*
 * entry_points.h
 *		Entries: more slots to start from than a query can measure, in lists of
 *		which it measures the nearest few.
 *
 * Entries are a mirror's first seeds. Pivots are means of codes, no rows:
 * k-means over the entries, a few rounds. Each entry is in the list of the
 * nearest pivot that has room in its own (of several of the nearest, while
 * entries are few). A walk over codes measures the pivots, then the lists of
 * the nearest ones, then follows the graph. Lists have as many places as a
 * graph row, so that a round of a walk reads them as if they were such rows.
 *
 * Why means: all rows of one cluster have the same few of them near, wherever
 * these lie. Rows as pivots would be chosen by how near they lie to the centre
 * of their own cluster, so that the lists of few would be asked for by all that
 * belong to none, and have no room for their entries.
 *
 * Larger tables have more clusters as a rule, so entries and pivots grow with
 * the rows, as far as measuring all pivots stays a small part of a search.
 *
 * A link, whose rows have to find their clusters as well, has lists made of the
 * rows linked so far.
 *
 * Lists are made from codes (of bits: rows) when the seeds or the codes are
 * others, or many rows have been linked; a slot that dies or is overwritten
 * meanwhile stays where it is: it is as good a start as any other.
 */
#ifndef GPUANN_CUDA_ENTRY_POINTS_H
#define GPUANN_CUDA_ENTRY_POINTS_H

#include "cuda/common/view.h"

#define PIVOTS ((uint32_t) ENGINE_SEEDS_TRIED) /* of a mirror of ENTRIES_FEW; of fewer there are
											    * fewer, of more there are more */
#ifdef EMULATED
#define PIVOTS_MAX 320u
#define ENTRIES_FEW 1024u /* so that small tables meet the others too */
#define ENTRIES_OF_PIVOT 4u
#define ROWS_OF_ENTRY 4u
#else
#define PIVOTS_MAX 1024u
#define ENTRIES_FEW 16384u	 /* entries of a mirror: those that 256 lists of 32 and of 64 places
							  * hold, and some to choose the means by. Up to a million rows
							  * these, */
#define ENTRIES_OF_PIVOT 64u /* then a pivot more for so many more, for the clusters of larger
							  * tables are as a rule more */
#define ROWS_OF_ENTRY 64u	 /* and an entry for so many rows, */
#endif
#define ENTRIES_MAX 65536u /* at most */
#define ENTRY_CHOICES 8u	/* pivots whose lists an entry may be in */

/*
 * What making lists needs of a mirror besides its view. All pointers are device
 * memory.
 */
struct EntryPoints
{
	const uint32_t *entries;
	uint32_t npivots;
	uint32_t nentries;
	uint32_t rows;	 /* slots below this have codes */
	uint32_t copies; /* lists that an entry is in, at most */
	uint32_t blocks; /* of a launch, at most; 0: as many as there is work for */
	signed char *codes; /* npivots x code stride */
	float2 *scales;		/* npivots, where the codes are rotated; else NULL */
	uint32_t *pivots;	/* their numbers, and behind them the lists */
	uint32_t *choices;	/* ENTRY_CHOICES x nentries: the nearest pivots, then the second nearest,
						 * and so on */
	uint32_t *placed;	/* nentries: lists that have taken it */
};

/* Make pivots and lists: of codes where the view has them, else of rows. */
extern cudaError_t entry_points_make(const MirrorView *mirror, const EntryPoints *lists,
								cudaStream_t stream);

/*
 * Let `nentries` rows (lists->entries) choose the ENTRY_CHOICES nearest pivots,
 * into lists->choices.
 */
extern cudaError_t entry_points_choose_launch(const MirrorView *mirror, const EntryPoints *lists,
											  cudaStream_t stream);
/*
 * Take `count` entries of seeds and of slots, so many of the seeds; any first
 * of them are a sample of both.
 */
extern cudaError_t entry_points_sample_launch(uint32_t *entries, uint32_t count,
											  const uint32_t *seeds, uint32_t of_seeds,
											  const uint32_t *slots, uint32_t nslots,
											  cudaStream_t stream);

#endif /* GPUANN_CUDA_ENTRY_POINTS_H */
