/*
 * exact_tiles.h
 *		Shared by the two methods of multiplying tiles (exact_tiles.cu,
 *		exact_wgmma.cu): the rows of a phase, and candidates.
 */
#ifndef GPUANN_CUDA_EXACT_TILES_H
#define GPUANN_CUDA_EXACT_TILES_H

#include "cuda/exact/exact_parts.h"

/*
 * The rows of a phase as boxes, for copies by a tensor map of `count` rows:
 * slots first, first + step, ... A tile of up to 64 rows consists of `boxes`
 * boxes of `box` rows each. A box begins `period` rows of the map after the
 * previous one; the first begins at `start`.
 */
struct RowBoxes
{
	uint32_t first;
	uint32_t step;
	uint32_t count;
	uint32_t skip; /* rows of the map that are multiples of this power of two have been seen; 0:
				    * none */
	uint32_t box;
	uint32_t boxes;
	uint32_t period;
	uint32_t start;
	uint32_t tiles;
};

#define BOXED_ROWS 64u /* maximum rows of a tile */

/*
 * The rows that are multiples of step and not of step * growth. If boxes would
 * have fewer than `least` rows, they are not worth separate copies, and all
 * multiples of step are copied.
 */
static inline RowBoxes
row_boxes(uint32_t rows, uint32_t step, uint32_t growth, uint32_t least)
{
	RowBoxes boxes;

	boxes.first = growth == 2 ? step : 0;
	boxes.step = growth == 2 ? 2 * step : step;
	boxes.count = rows > boxes.first ? (rows - boxes.first - 1) / boxes.step + 1 : 0;
	boxes.skip = growth == 2 ? 0 : growth;
	boxes.box = BOXED_ROWS;
	boxes.boxes = 1;
	boxes.period = BOXED_ROWS;
	boxes.start = 0;
	if (growth > 2 && growth - 1 >= least && growth <= BOXED_ROWS)
	{
		boxes.box = growth - 1;
		boxes.boxes = BOXED_ROWS / boxes.box;
		boxes.period = growth;
		boxes.start = 1;
	}
	boxes.tiles = boxes.count / (boxes.boxes * boxes.period) +
				  (boxes.count % (boxes.boxes * boxes.period) != 0);
	return boxes;
}

/*
 * Position of a tile's row, in rows of the map from the tile's first box on;
 * NO_SLOT if tiles have no such row.
 */
__host__ __device__ static inline uint32_t
boxed_offset(const RowBoxes &boxes, uint32_t row)
{
	uint32_t box = row / boxes.box;

	return box < boxes.boxes ? box * boxes.period + boxes.start + row % boxes.box : NO_SLOT;
}

/* The slot of a tile's row; NO_SLOT if there is none, or it has been seen. */
__host__ __device__ static inline uint32_t
boxed_slot(const RowBoxes &boxes, uint32_t tile, uint32_t offset)
{
	uint32_t i = tile * boxes.boxes * boxes.period + offset;

	if (offset == NO_SLOT || i >= boxes.count || (boxes.skip != 0 && (i & (boxes.skip - 1)) == 0))
		return NO_SLOT;
	return boxes.first + i * boxes.step;
}

/* Append a candidate, if the query admits its slot. */
__device__ static inline void
append(const MirrorView &mirror, const BatchView &batch, const TileTables &tables, uint32_t query,
	   uint32_t slot)
{
	if (query >= tables.queries || !may_answer(mirror, batch, batch.queries[query], slot))
		return;

	uint32_t place = atomicAdd(&tables.counts[query], 1u);

	if (place < tables.room)
		tables.candidates[(size_t) query * tables.room + place] = slot;
}

/*
 * exact_wgmma.cu: whether it multiplies the tiles of a batch, and launching one
 * phase: multiples of step that are not multiples of step * growth
 */
extern cudaError_t wgmma_prepare(int bytes, uint32_t products, ExactLimits *limits);
extern bool wgmma_takes(const ExactLaunch *launch);
extern cudaError_t wgmma_launch(const ExactLaunch *launch, const TileTables &tables, uint32_t step,
								uint32_t growth);

#endif /* GPUANN_CUDA_EXACT_TILES_H */
