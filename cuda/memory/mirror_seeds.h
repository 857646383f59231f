/*
 * mirror_seeds.h
 *		The range of a mirror's seeds: seeds in two halves, parameters of codes,
 *		lists of entry points (cuda/graph/entry_points.h) in two sides.
 *
 * Functions compute sizes and addresses; none touches the device.
 */
#ifndef GPUANN_CUDA_MIRROR_SEEDS_H
#define GPUANN_CUDA_MIRROR_SEEDS_H

#include "cuda/graph/entry_points.h"
#include "cuda/quantizer/quantizer.h"

struct CudaMirror;

/* Bytes of the parameters of codes, behind a mirror's seeds. */
extern size_t quantizer_room(const MirrorSpec *spec);
/* Address of the offsets, on the device. */
extern const float *quantizer_offsets(const CudaMirror *mirror);
/* And of the rotation, for rotated codes. */
extern const uint32_t *quantizer_rotation(const CudaMirror *mirror);
/* Kernel argument for encoding a mirror's rows. */
extern CudaCodedRows coded_rows(const CudaMirror *mirror);

/* Maximum number of entry points of a mirror with this many rows. */
extern uint32_t entry_points_max(uint64_t rows);
/* Number of pivots for this many entry points. */
extern uint32_t entry_points_pivots(uint32_t nentries);
/* Bytes of the lists of entry points, behind the parameters of codes. */
extern size_t entry_points_room(const CudaMirror *mirror, uint64_t slots);
/* Set the lists of entry points that batches read in a view. */
extern void entry_points_published(const CudaMirror *mirror, MirrorView *view);
/*
 * The mirror as lists of entry points are built from it: rows of bits serve as
 * codes, and codes are used even if searches may not walk them yet.
 */
extern MirrorView entry_points_view(const CudaMirror *mirror);
/*
 * Lists of a side, for nentries entries (device memory) and npivots pivots;
 * blocks 0: no limit on the blocks of a launch.
 */
extern EntryPoints entry_points_of(const CudaMirror *mirror, uint32_t side,
								   const uint32_t *entries, uint32_t nentries, uint32_t npivots);

#endif /* GPUANN_CUDA_MIRROR_SEEDS_H */
