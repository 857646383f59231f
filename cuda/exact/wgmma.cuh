/*
 * wgmma.cuh
 *		Products of tiles by warp groups (wgmma, sm_90a), bulk copies of tiles
 *		by tensor maps, and barriers that count bytes.
 *
 * A tile contains 128 bytes of each of its vectors, one vector after the other,
 * 8 vectors per 1,024 bytes, aligned to that; unit u (16 bytes) of vector v is
 * at place u ^ (v & 7). This is the result of a copy with
 * CU_TENSOR_MAP_SWIZZLE_128B, the layout of tensor.cuh, and what the
 * *descriptor* here specifies:
 *
 *		bits 0 - 13		address / 16
 *		bits 16 - 29	distance along the elements / 16; ignored, because there
 *						are only 128 bytes (1)
 *		bits 32 - 45	distance from 8 vectors to the next 8 / 16: 64
 *		bits 49 - 51	offset of the first of the 8 vectors within 1,024 bytes:
 *						0
 *		bits 62 - 63	swizzle: 1, u ^ (v & 7)
 *
 * A product takes 32 bytes of each vector. The next 32 are at the address plus
 * 2, because places follow from the bits of addresses. A product has 64 rows
 * and 64, 128 or 256 queries: 4 warps with 16 rows each; sums[4 n + 2 h + c] of
 * a lane is for row 8 h + lane / 4 of the warp's and query 8 n + 2 (lane % 4) +
 * c. Floats are truncated to tf32 (the low 13 bits are ignored); sums are as in
 * tensor.cuh (tensor_error()).
 *
 * In the emulation copies are synchronous, and products are loops without
 * rounding.
 */
#ifndef GPUANN_CUDA_WGMMA_CUH
#define GPUANN_CUDA_WGMMA_CUH

#include "cuda/exact/tensor.cuh"

#define GROUP 128u			/* threads of a warp group */
#define GROUP_ROWS 64u		/* rows of a product */
#define SWIZZLED_BYTES 1024u	/* alignment of tiles */

#if CUDART_VERSION >= 12000
#define HAVE_TENSOR_MAPS
#endif
#if defined(EMULATED) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAVE_GROUPS
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ static inline uint32_t
shared_address(const void *at)
{
	return (uint32_t) __cvta_generic_to_shared(at);
}

/*
 * Barriers: a phase ends when `count` threads have arrived and all announced
 * bytes have been copied.
 */

__device__ static inline void
barrier_begin(uint64_t *barrier, uint32_t count)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
				 "r"(count)
				 : "memory");
}

/* Make initialized barriers visible to asynchronous copies. */
__device__ static inline void
barriers_begun()
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ static inline void
barrier_arrive(uint64_t *barrier)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
				 : "memory");
}

/* Arrive, and announce a number of bytes. */
__device__ static inline void
barrier_expect(uint64_t *barrier, uint32_t bytes)
{
	asm volatile(
		"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
		"r"(bytes)
		: "memory");
}

/*
 * Wait for the end of the phase with this parity. The phase before a barrier's
 * first has parity 1 and counts as ended.
 */
__device__ static inline void
barrier_wait(uint64_t *barrier, uint32_t parity)
{
	asm volatile("{\n\t"
				 ".reg .pred ended;\n\t"
				 "again:\n\t"
				 "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n\t"
				 "@!ended bra again;\n\t"
				 "}" ::"r"(shared_address(barrier)),
				 "r"(parity)
				 : "memory");
}

/*
 * Copy a box of a tensor map to shared memory; `first` is its first element,
 * `vector` its first vector.
 */
__device__ static inline void
copy_box(void *to, const CUtensorMap *map, uint32_t first, uint32_t vector, uint64_t *barrier)
{
	asm volatile(
		"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
			"r"(shared_address(to)),
		"l"(map), "r"(first), "r"(vector), "r"(shared_address(barrier))
		: "memory");
}

/* --- products ------------------------------------------------------------- */

__device__ static inline uint64_t
tile_descriptor(const unsigned char *tile)
{
	return (uint64_t) (shared_address(tile) >> 4 & 0x3FFF) | 1ull << 16 |
		   (uint64_t) (SWIZZLED_BYTES / 16) << 32 | 1ull << 62;
}

/* Order register accesses to the sums before the products that follow. */
__device__ static inline void
products_begin()
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ static inline void
products_close()
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Wait until at most N groups of products are incomplete. */
template <int N>
__device__ static inline void
products_wait()
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Wait for all products; then the sums may be read. */
template <int SUMS>
__device__ static inline void
products_end(float (&sums)[SUMS])
{
	products_wait<0>();
#pragma unroll
	for (int i = 0; i < SUMS; i++)
		asm volatile("" : "+f"(sums[i])::"memory"); /* keeps the compiler from moving reads of the
													 * sums up */
}

#define NAMES_32 \
	"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, " \
	"%28, %29, %30, %31"
#define NAMES_64 \
	NAMES_32 \
	", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, " \
	"%55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_128 \
	NAMES_64 \
	", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, " \
	"%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, " \
	"%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SUMS_8(s, i) \
	"+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), "+f"(s[i + 4]), "+f"(s[i + 5]), \
		"+f"(s[i + 6]), "+f"(s[i + 7])
#define SUMS_32(s, i) SUMS_8(s, i), SUMS_8(s, i + 8), SUMS_8(s, i + 16), SUMS_8(s, i + 24)
#define SUMS_64(s, i) SUMS_32(s, i), SUMS_32(s, i + 32)
#define SUMS_128(s, i) SUMS_64(s, i), SUMS_64(s, i + 64)

/*
 * Start the products of 32 bytes of each vector, added to the sums, or without
 * `add` replacing them. Operands after the sums are A, B and C.
 */
#define PRODUCT_OF(T, SHAPE, END, SUMS, A, B, C) \
	__device__ static inline void product(float(&sums)[SUMS], uint64_t rows, uint64_t queries, \
										  uint32_t add, const T *) \
	{ \
		asm volatile("{\n\t" \
					 ".reg .pred add;\n\t" \
					 "setp.ne.b32 add, %" C ", 0;\n\t" \
					 "wgmma.mma_async.sync.aligned." SHAPE " {" NAMES_##SUMS \
					 "}, %" A ", %" B ", add, 1, 1" END ";\n\t" \
					 "}" \
					 : SUMS_##SUMS(sums, 0) \
					 : "l"(rows), "l"(queries), "r"(add)); \
	}

PRODUCT_OF(float, "m64n64k8.f32.tf32.tf32", "", 32, "32", "33", "34")
PRODUCT_OF(float, "m64n128k8.f32.tf32.tf32", "", 64, "64", "65", "66")
PRODUCT_OF(float, "m64n256k8.f32.tf32.tf32", "", 128, "128", "129", "130")
PRODUCT_OF(__half, "m64n64k16.f32.f16.f16", ", 0, 0", 32, "32", "33", "34")
PRODUCT_OF(__half, "m64n128k16.f32.f16.f16", ", 0, 0", 64, "64", "65", "66")
PRODUCT_OF(__half, "m64n256k16.f32.f16.f16", ", 0, 0", 128, "128", "129", "130")

/*
 * Start the products of a tile of 64 rows and one of 2 x SUMS queries, as one
 * group. The first of several tiles replaces the sums.
 */
template <typename T, int SUMS>
__device__ static inline void
begin_products(float (&sums)[SUMS], const unsigned char *rows, const unsigned char *queries,
			   bool first)
{
	uint64_t a = tile_descriptor(rows);
	uint64_t b = tile_descriptor(queries);

	products_begin();
#pragma unroll
	for (uint32_t step = 0; step < TILE_STEPS; step++)
		product(sums, a + 2 * step, b + 2 * step, step > 0 || !first, (const T *) 0);
	products_close();
}

/*
 * Change the number of registers per thread of this warp group. Called by all
 * of its threads.
 */
template <int REGISTERS>
__device__ static inline void
fewer_registers()
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ static inline void
more_registers()
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

#endif /* __CUDA_ARCH_FEAT_SM90_ALL */

#ifdef EMULATED

/* The 64 bits of a barrier. */
struct EmulatedArrivals
{
	uint8_t count;
	uint8_t missing;
	uint8_t parity; /* of the current phase */
	int32_t bytes;	/* announced but not copied */
};

static inline uint32_t
shared_address(const void *at)
{
	return (uint32_t) (uintptr_t) at;
}

static inline void
barrier_begin(uint64_t *barrier, uint32_t count)
{
	EmulatedArrivals begun = {(uint8_t) count, (uint8_t) count, 0, 0};

	memcpy(barrier, &begun, sizeof(begun));
}

static inline void
barriers_begun()
{
}

/* End the phase if it is complete. */
static inline void
barrier_end(EmulatedArrivals *barrier)
{
	if (barrier->missing > 0 || barrier->bytes != 0)
		return;
	barrier->missing = barrier->count;
	barrier->parity ^= 1;
	emulate_changed();
}

static inline void
barrier_arrive(uint64_t *barrier)
{
	((EmulatedArrivals *) barrier)->missing--;
	barrier_end((EmulatedArrivals *) barrier);
}

static inline void
barrier_expect(uint64_t *barrier, uint32_t bytes)
{
	((EmulatedArrivals *) barrier)->bytes += (int32_t) bytes;
	barrier_arrive(barrier);
}

static inline void
barrier_wait(uint64_t *barrier, uint32_t parity)
{
	while (((volatile EmulatedArrivals *) barrier)->parity == parity)
		emulate_pause();
}

/* Units are placed by address bits, as on a device. */
static inline void
copy_box(void *to, const CUtensorMap *map, uint32_t first, uint32_t vector, uint64_t *barrier)
{
	for (uint32_t v = 0; v < map->box; v++)
	{
		unsigned char *row = (unsigned char *) to + v * TILE_BYTES;

		for (uint32_t unit = 0; unit < TILE_BYTES / TILE_UNIT; unit++)
		{
			uint32_t byte = first * map->element_bytes + unit * TILE_UNIT;
			bool there = vector + v < map->count && byte < map->vector_bytes;

			copy_unit(row + (unit ^ ((uintptr_t) row / TILE_BYTES & 7)) * TILE_UNIT,
					  there ? map->base + (vector + v) * map->pitch + byte : NULL, there);
		}
	}
	((EmulatedArrivals *) barrier)->bytes -= (int32_t) (map->box * TILE_BYTES);
	barrier_end((EmulatedArrivals *) barrier);
}

template <int N>
static inline void
products_wait()
{
}

template <int SUMS>
static inline void
products_end(float (&)[SUMS])
{
}

template <typename T, int SUMS>
static inline void
begin_products(float (&sums)[SUMS], const unsigned char *rows, const unsigned char *queries,
			   bool first)
{
	uint32_t lane = threadIdx.x % WARP;

	for (uint32_t i = 0; i < SUMS; i++)
	{
		uint32_t row = threadIdx.x % GROUP / WARP * 16 + i / 2 % 2 * 8 + lane / 4;
		uint32_t query = i / 4 * 8 + lane % 4 * 2 + i % 2;
		float sum = first ? 0 : sums[i];

		for (uint32_t e = 0; e < TILE_BYTES / sizeof(T); e++)
			sum += tile_element<T>(rows, row, e) * tile_element<T>(queries, query, e);
		sums[i] = sum;
	}
}

template <int REGISTERS>
static inline void
fewer_registers()
{
}

template <int REGISTERS>
static inline void
more_registers()
{
}

#endif /* EMULATED */

#endif /* GPUANN_CUDA_WGMMA_CUH */
