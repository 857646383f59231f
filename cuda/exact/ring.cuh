/*
 * ring.cuh
 *		A ring of stages in shared memory that a warp fills asynchronously from
 *		global memory.
 *
 * From sm_90 on a stage is filled by a bulk copy, issued by the first lane and
 * counted by an mbarrier in shared memory, or by several, of which only one
 * lane says how many bytes they have (ring_expect, ring_copy). Before sm_90 all
 * lanes copy 16 bytes at a time, and a stage is one of their groups. Other
 * functions are called by whole warps, and no two warps share a ring. A stage
 * may be refilled only after a warp barrier that all lanes reach after reading
 * it. In the emulation copies are synchronous.
 */
#ifndef GPUANN_CUDA_RING_CUH
#define GPUANN_CUDA_RING_CUH

#include "cuda/exact/tensor.cuh"

#define RING_STAGES 4u /* with groups of copies; bulk copies have as many as fit */

#if defined(EMULATED) || !defined(__CUDA_ARCH__)

__device__ static inline void
ring_init(uint64_t *, uint32_t)
{
}

__device__ static inline void
ring_expect(uint64_t *, uint32_t)
{
}

__device__ static inline void
ring_copy(uint64_t *, void *to, const void *from, uint32_t bytes)
{
	memcpy(to, from, bytes);
}

__device__ static inline void
ring_fill(uint64_t *filled, void *to, const void *from, uint32_t bytes)
{
	if (threadIdx.x % WARP == 0)
		ring_copy(filled, to, from, bytes);
}

__device__ static inline void
ring_wait(uint64_t *, uint32_t)
{
	__syncwarp();
}

#elif __CUDA_ARCH__ >= 900

/* Initialize the stages' barriers. */
__device__ static inline void
ring_init(uint64_t *filled, uint32_t stages)
{
	if (threadIdx.x % WARP == 0)
	{
		for (uint32_t i = 0; i < stages; i++)
			asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(
							 (uint32_t) __cvta_generic_to_shared(filled + i))
						 : "memory");
		asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
		asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
	}
	__syncwarp();
}

/*
 * Announce that copies of `bytes` in all will fill a stage. Called by one lane.
 */
__device__ static inline void
ring_expect(uint64_t *filled, uint32_t bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
					 (uint32_t) __cvta_generic_to_shared(filled)),
				 "r"(bytes)
				 : "memory");
}

/*
 * Start one of the copies that fill a stage, by the lane that calls this; bytes
 * is a multiple of 16. It uses the evict_first policy of L2, because rows are
 * read once and should not displace data that is reused.
 */
__device__ static inline void
ring_copy(uint64_t *filled, void *to, const void *from, uint32_t bytes)
{
	uint64_t policy;

	asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
	asm volatile(
		"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
			"r"((uint32_t) __cvta_generic_to_shared(to)),
		"l"(from), "r"(bytes), "r"((uint32_t) __cvta_generic_to_shared(filled)), "l"(policy)
		: "memory");
}

/* Fill a stage by one copy of `bytes`; 0: no copy. */
__device__ static inline void
ring_fill(uint64_t *filled, void *to, const void *from, uint32_t bytes)
{
	if (threadIdx.x % WARP != 0 || bytes == 0)
		return;
	ring_expect(filled, bytes);
	ring_copy(filled, to, from, bytes);
}

/* Wait until a stage is filled for the n-th time; parity is n mod 2, from 0. */
__device__ static inline void
ring_wait(uint64_t *filled, uint32_t parity)
{
	uint32_t barrier = (uint32_t) __cvta_generic_to_shared(filled);
	uint32_t there = 0;

	while (!there)
		asm volatile("{\n\t.reg .pred p;\n\t"
					 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
					 "selp.u32 %0, 1, 0, p;\n\t}"
					 : "=r"(there)
					 : "r"(barrier), "r"(parity)
					 : "memory");
}

#else

__device__ static inline void
ring_init(uint64_t *, uint32_t)
{
}

__device__ static inline void
ring_fill(uint64_t *, void *to, const void *from, uint32_t bytes)
{
	for (uint32_t at = threadIdx.x % WARP * TILE_UNIT; at < bytes; at += WARP * TILE_UNIT)
		copy_unit((unsigned char *) to + at, (const unsigned char *) from + at, true);
	copies_close();
}

__device__ static inline void
ring_wait(uint64_t *, uint32_t)
{
	copies_wait<RING_STAGES - 1>();
	__syncwarp();
}

#endif

#endif /* GPUANN_CUDA_RING_CUH */
