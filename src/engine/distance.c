/*
 * distance.c
 *		Which distance kernels a process uses: chosen by type, metric and what the processor has.
 */
#include "distance_private.h"

#ifdef DISTANCE_HAVE_AVX2
#include <cpuid.h>
#endif

/* Whether this processor, and the operating system, have a level. */
bool
simd_available(SimdLevel level)
{
	if (level == SIMD_BEST || level == SIMD_PORTABLE)
		return true;
#ifdef DISTANCE_HAVE_AVX2
	if (level == SIMD_AVX2)
	{
		unsigned int eax,
					ebx,
					ecx,
					edx;

		__builtin_cpu_init();
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
			__get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
	}
#endif
	return false;
}

/* The level that SIMD_BEST stands for here. */
static SimdLevel
resolve_level(SimdLevel level)
{
	if (level != SIMD_BEST)
		return level;
	return simd_available(SIMD_AVX2) ? SIMD_AVX2 : SIMD_PORTABLE;
}

/* The name of a level, as EngineConfig.simd has it. */
const char *
simd_name(SimdLevel level)
{
	return resolve_level(level) == SIMD_AVX2 ? "avx2" : "portable";
}

/* Kernels for a type and metric at a level, or NULL. */
const DistanceKernels *
distance_kernels(ElementType type, Metric metric, SimdLevel level)
{
	if ((type != ELEMENT_FLOAT && type != ELEMENT_HALF) ||
		(metric != METRIC_L2 && metric != METRIC_IP && metric != METRIC_COSINE) ||
		!simd_available(level))
		return NULL;
#ifdef DISTANCE_HAVE_AVX2
	if (resolve_level(level) == SIMD_AVX2)
		return &distance_avx2_table.kernels[DISTANCE_INDEX(type, metric)];
#endif
	return &distance_portable_table.kernels[DISTANCE_INDEX(type, metric)];
}
