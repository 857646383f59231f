/*
 * mirror_seeds.h
 *		The range of a mirror's seeds: seeds in two halves, what codes are made
 *		with, lists of entries (cuda/graph/entry_points.h) in two sides.
 *
 * Functions compute sizes and addresses; none touches the device.
 */
#ifndef GPUANN_CUDA_MIRROR_SEEDS_H
#define GPUANN_CUDA_MIRROR_SEEDS_H

#include "cuda/graph/entry_points.h"
#include "cuda/quantizer/quantizer.h"

struct CudaMirror;

/* Bytes that encoding wants behind a mirror's seeds. */
extern size_t quantizer_room(const MirrorSpec *spec);
/* Where the offsets are, on the device. */
extern const float *quantizer_offsets(const CudaMirror *mirror);
/* And the rotation, of rotated codes. */
extern const uint32_t *quantizer_rotation(const CudaMirror *mirror);
/* A mirror as the kernels that make codes see it. */
extern CodedRows coded_rows(const CudaMirror *mirror);

/* Entries that a mirror of so many rows may have. */
extern uint32_t entry_points_most(uint64_t rows);
/* Pivots for so many entries. */
extern uint32_t entry_points_pivots(uint32_t nentries);
/* Bytes of lists, behind what encoding wants. */
extern size_t entry_points_room(const CudaMirror *mirror, uint64_t slots);
/* Let a view have those that batches read. */
extern void entry_points_published(const CudaMirror *mirror, MirrorView *view);
/*
 * The mirror as lists are made from it: rows of bits are codes, and codes serve
 * for that although searches may not walk them yet.
 */
extern MirrorView entry_points_view(const CudaMirror *mirror);
/*
 * Lists of a side, of so many entries (device memory), for so many pivots; by
 * any number of blocks.
 */
extern EntryPoints entry_points_of(const CudaMirror *mirror, uint32_t side,
								   const uint32_t *entries, uint32_t nentries, uint32_t npivots);

#endif /* GPUANN_CUDA_MIRROR_SEEDS_H */
