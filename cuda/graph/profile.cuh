/*
 * profile.cuh
 *		Cycles by stage of a search, in a benchmark build (-DGPUANN_PROFILE):
 *		thread 0 of each block adds up, that of the first prints.
 *
 * Stages: 0 loading the query, 1 its codes, 2 choosing parents and making room,
 * 3 asking for neighbours, 4 waiting for them, 5 which are new, 6 measuring, 7
 * waiting for other warps, 8 merging, 9 waiting, 10 exact ranking, 11 the rest.
 */
#ifndef GPUANN_CUDA_PROFILE_CUH
#define GPUANN_CUDA_PROFILE_CUH

#if defined(GPUANN_PROFILE) && defined(__CUDA_ARCH__)
#include <stdio.h>
#define STAGES 12
struct Profile
{
	long long spent[STAGES];
	long long last;
	long long first_ns;
	long long first;
};
__shared__ Profile profile;
__device__ static inline long long
nanoseconds()
{
	long long now;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	return now;
}
#define STAGE(i) \
	do \
	{ \
		if (threadIdx.x == 0) \
		{ \
			long long now = clock64(); \
			profile.spent[i] += now - profile.last; \
			profile.last = now; \
		} \
	} while (0)
#define PROFILE_BEGIN() \
	do \
	{ \
		if (threadIdx.x == 0) \
		{ \
			for (int i = 0; i < STAGES; i++) \
				profile.spent[i] = 0; \
			profile.first_ns = nanoseconds(); \
			profile.first = profile.last = clock64(); \
		} \
	} while (0)
#define PROFILE_END(rounds) \
	do \
	{ \
		if (threadIdx.x == 0 && blockIdx.x == 0) \
		{ \
			long long all = clock64() - profile.first, ns = nanoseconds() - profile.first_ns; \
			printf( \
				"PROFILE blocks %u warps %u rounds %u cycles %lld ns %lld load %lld encode %lld room %lld choose %lld ids %lld see %lld measure %lld wait %lld merge %lld wait2 %lld rank %lld rest %lld\n", \
				gridDim.x, blockDim.x / 32, rounds, all, ns, profile.spent[0], profile.spent[1], \
				profile.spent[2], profile.spent[3], profile.spent[4], profile.spent[5], \
				profile.spent[6], profile.spent[7], profile.spent[8], profile.spent[9], \
				profile.spent[10], profile.spent[11]); \
		} \
	} while (0)
#else
#define STAGE(i)
#define PROFILE_BEGIN()
#define PROFILE_END(rounds)
#endif

#endif /* GPUANN_CUDA_PROFILE_CUH */
