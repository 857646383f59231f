/*
 * mirror_room.h
 *		Creating and growing mirrors.
 */
#ifndef GPUANN_CUDA_MIRROR_ROOM_H
#define GPUANN_CUDA_MIRROR_ROOM_H

#include "cuda/memory/mirror.h"

struct CudaEngine;

/* Create a mirror with the capacity that its spec asks for. */
extern EngineStatus mirror_open(CudaEngine *engine, const MirrorSpec *spec, MirrorId *id,
								EngineError *error);
/* Make room for slots below `slots`, with some to spare if that fits. */
extern EngineStatus mirror_grow(CudaEngine *engine, CudaMirror *mirror, uint64_t slots,
								EngineError *error);

#endif /* GPUANN_CUDA_MIRROR_ROOM_H */
