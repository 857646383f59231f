/*
 * distance.c
 *		Selection of distance kernels by element type, metric and SIMD level.
 *
 * CPUID is executed once per process: in a virtual machine it traps, which
 * costs as much as hundreds of distances.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/distance_private.h"

#ifdef DISTANCE_HAVE_X86
#include <cpuid.h>
#endif

/* Features found, once detected. */
#define PROCESSOR_DETECTED	0x01u
#define HAS_AVX2			0x02u
#define HAS_AVX512			0x04u
#define HAS_VPOPCNTDQ		0x08u

/* Detect which features the processor and the operating system support. */
static unsigned int
detect_processor(void)
{
	unsigned int found = PROCESSOR_DETECTED;
#ifdef DISTANCE_HAVE_X86
	unsigned int eax,
				ebx,
				ecx,
				edx;

	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
		__builtin_cpu_supports("popcnt") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) &&
		(ecx & bit_F16C) != 0)
		found |= HAS_AVX2;
	if ((found & HAS_AVX2) && __builtin_cpu_supports("avx512f") &&
		__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
		__builtin_cpu_supports("avx512vl"))
		found |= HAS_AVX512;
	if ((found & HAS_AVX512) && __builtin_cpu_supports("avx512vpopcntdq"))
		found |= HAS_VPOPCNTDQ;
#endif
	return found;
}

/*
 * Supported features, cached. Threads that detect concurrently store the same
 * value.
 */
static unsigned int
distance_processor(void)
{
	static _Atomic unsigned int known;
	unsigned int found = atomic_load_explicit(&known, memory_order_relaxed);

	if (found == 0)
	{
		found = detect_processor();
		atomic_store_explicit(&known, found, memory_order_relaxed);
	}
	return found;
}

/* Whether the processor and the operating system support a level. */
bool
simd_available(SimdLevel level)
{
	switch (level)
	{
		case SIMD_BEST:
		case SIMD_PORTABLE:
			return true;
		case SIMD_AVX2:
			return (distance_processor() & HAS_AVX2) != 0;
		case SIMD_AVX512:
			return (distance_processor() & HAS_AVX512) != 0;
	}
	return false;
}

SimdLevel
simd_within(SimdLevel level)
{
	if ((level == SIMD_BEST || level == SIMD_AVX512) && simd_available(SIMD_AVX512))
		return SIMD_AVX512;
	return level != SIMD_PORTABLE && simd_available(SIMD_AVX2) ? SIMD_AVX2 : SIMD_PORTABLE;
}

/* The name of a level, as EngineConfig.simd has it. */
const char *
simd_name(SimdLevel level)
{
	level = simd_within(level);
	return level == SIMD_AVX512 ? "avx512" : level == SIMD_AVX2 ? "avx2" : "portable";
}

/* Allocate memory for a widened vector. */
float *
wide_alloc(uint32_t dims)
{
	size_t		bytes = (size_t) dims * sizeof(float);

	return aligned_alloc(WIDE_ALIGNMENT,
						 (bytes + WIDE_ALIGNMENT - 1) / WIDE_ALIGNMENT * WIDE_ALIGNMENT);
}

/* Kernels for a type and metric at a level, or NULL. */
const DistanceKernels *
distance_kernels(ElementType type, Metric metric, SimdLevel level)
{
	uint32_t	i;

	if (!engine_has_distance(type, metric) || !simd_available(level))
		return NULL;
	i = DISTANCE_INDEX(type, metric);
	level = simd_within(level);
#ifdef DISTANCE_HAVE_X86
	if (level == SIMD_AVX512 && distance_avx512_table.kernels[i].exact != NULL &&
		(type != ELEMENT_BIT || (distance_processor() & HAS_VPOPCNTDQ) != 0))
		return &distance_avx512_table.kernels[i];
	if (level >= SIMD_AVX2)
		return &distance_avx2_table.kernels[i];
#endif
	return &distance_portable_table.kernels[i];
}
