/*
 * cuda.h
 *		The driver's types that the arena uses, for compiling without CUDA.
 */
#ifndef GPUANN_EMULATE_CUDA_H
#define GPUANN_EMULATE_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef enum CUresult
{
	CUDA_SUCCESS = 0,
	CUDA_ERROR_OUT_OF_MEMORY = 2
} CUresult;

typedef enum CUmemLocationType
{
	CU_MEM_LOCATION_TYPE_DEVICE = 1,
	CU_MEM_LOCATION_TYPE_HOST = 2
} CUmemLocationType;

enum
{
	CU_MEM_ALLOCATION_TYPE_PINNED = 1,
	CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3
};
typedef enum CUmemAllocationGranularity_flags
{
	CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0
} CUmemAllocationGranularity_flags;

typedef struct CUmemLocation
{
	CUmemLocationType type;
	int id;
} CUmemLocation;

typedef struct CUmemAllocationProp
{
	int type;
	CUmemLocation location;
} CUmemAllocationProp;

typedef struct CUmemAccessDesc
{
	CUmemLocation location;
	int flags;
} CUmemAccessDesc;

/* Vectors in memory, from which boxes are copied (wgmma.cuh). */
typedef struct CUtensorMap
{
	const unsigned char *base;
	uint64_t pitch;
	uint32_t vector_bytes;
	uint32_t count;
	uint32_t element_bytes;
	uint32_t box;
} CUtensorMap;

#endif /* GPUANN_EMULATE_CUDA_H */
