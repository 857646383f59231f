/*
 * exact_wgmma.cu
 *		The tiles of exact_tiles.cu by warp groups: products of 64 rows and up
 *		to 256 queries (wgmma, sm_90a).
 *
 * exact_wgmma_kernel
 *     grid    (tiles of 256, 128 or 64 queries, ranges), 384 threads, one
 *             block per SM
 *     work    One warp issues copies, two append candidates, one is idle, and
 *             two warp groups multiply and compare. Rows are copied by a
 *             tensor map, 64 x 128 bytes at a time, into a ring in shared
 *             memory (barriers: full, empty). If the queries of a tile have
 *             up to 128 KB they stay in shared memory, and the groups
 *             alternate: one multiplies its 64 rows while the other compares
 *             its sums. Otherwise queries go through the ring too, and each
 *             group takes 64 rows of the same stage. Sums are in registers,
 *             128 per thread. Hits are written to shared memory, double
 *             buffered for each group.
 *     shared  see lay_out()
 *     bound   tensor cores, for 256 and more queries; per stage 512 cycles of
 *             an SM for 8 KB of rows, or 1,024 for 48 KB with queries
 *
 * The rows of a phase (TilePhase) are most of those at a distance of `step`:
 * the tensor map contains all of these, and a tile consists of several boxes of
 * it, each with the rows between two that have been seen (RowBoxes). Floats are
 * truncated to tf32 without rounding, which tensor_error() allows for. Launched
 * by exact_tiles.cu on devices that support it.
 */
#include <math.h>

#include "cuda/exact/exact_tiles.h"
#include "cuda/exact/wgmma.cuh"

#define GROUPS 2u			/* multiplying groups */
#define WGMMA_THREADS ((1 + GROUPS) * GROUP)
#define MAX_STAGES 16u
#define PART_BYTES (GROUP_ROWS * TILE_BYTES) /* a group's rows in a stage */
#define RESIDENT_BYTES 131072u /* a tile of queries up to this size stays in shared memory */
#define HITS 256u /* per tile of a group; more are appended by the group itself */
#define FEEDER_REGISTERS 56
#define GROUP_REGISTERS 224
#define MIN_BOX 15u /* minimum rows of a box that skips rows already seen */

/* A row that passed a query's limit. */
struct Hit
{
	uint32_t query;
	uint32_t slot;
};

/* Shared memory of a block, aligned to SWIZZLED_BYTES. */
struct RingMemory
{
	unsigned char *queries; /* whole tiles, if they stay */
	unsigned char *stages;	/* each has rows of the groups that share it, then queries if they do
							 * not stay */
	Hit *hits;				/* HITS per group and side */
	Limit *limits;
};

/* Parameters of a launch. */
struct RingShape
{
	uint32_t chunks; /* of 128 bytes, per vector */
	uint32_t stages;
	uint32_t stage_bytes;
	bool resident; /* queries stay in shared memory */
};

__host__ __device__ static inline RingMemory
lay_out(const RingShape &shape, uint32_t queries, unsigned char *at, size_t *bytes)
{
	RingMemory memory;
	size_t taken = 0;

	memory.queries = at;
	taken += shape.resident ? (size_t) shape.chunks * queries * TILE_BYTES : 0;
	memory.stages = at + taken;
	taken += (size_t) shape.stages * shape.stage_bytes;
	memory.hits = (Hit *) (at + taken);
	taken += GROUPS * 2 * HITS * sizeof(Hit);
	memory.limits = (Limit *) (at + taken);
	*bytes = taken + queries * sizeof(Limit);
	return memory;
}

#ifdef HAVE_TENSOR_MAPS

/* Two rows of a tile, which a thread compares. */
struct RowPair
{
	uint32_t slot[2]; /* NO_SLOT if there is none, or it has been seen */
	double norm[2];
};

#ifdef HAVE_GROUPS

/* Barriers of a block. */
struct RingBarriers
{
	uint64_t full[MAX_STAGES];
	uint64_t empty[MAX_STAGES];
	uint64_t queries;
	uint64_t turn[GROUPS]; /* the group may multiply */
	uint64_t hit[GROUPS][2];
	uint64_t appended[GROUPS][2]; /* the hits have been appended, the side is free */
	uint32_t hits[GROUPS][2];  /* number of hits, may exceed HITS */
};

/* Position of a copy or a product in the ring. */
struct RingPlace
{
	uint32_t stage;
	uint32_t parity;
};

/* Advance by `by` stages, fewer than there are. */
__device__ static inline void
ring_advance(RingPlace *place, uint32_t by, uint32_t stages)
{
	place->stage += by;
	if (place->stage >= stages)
	{
		place->stage -= stages;
		place->parity ^= 1;
	}
}

/* Issue all copies of a block, as stages become empty. Called by one thread. */
template <typename T, uint32_t QUERIES, uint32_t PARTS>
__device__ static inline void
copy_tiles(const CUtensorMap *rows_map, const CUtensorMap *queries_map, const RowBoxes &boxes,
		   const RingShape &shape, const RingMemory &memory, RingBarriers *barriers)
{
	constexpr uint32_t ELEMENTS = TILE_BYTES / sizeof(T);
	uint32_t bytes = PARTS * boxes.boxes * boxes.box * TILE_BYTES;
	RingPlace place = {0, 0};

	if (PARTS == 1)
	{
		barrier_expect(&barriers->queries, shape.chunks * QUERIES * TILE_BYTES);
		for (uint32_t c = 0; c < shape.chunks; c++)
			copy_box(memory.queries + c * QUERIES * TILE_BYTES, queries_map, c * ELEMENTS,
					 blockIdx.x * QUERIES, &barriers->queries);
	}
	else
		bytes += QUERIES * TILE_BYTES;
	for (uint32_t tile = blockIdx.y; tile * PARTS < boxes.tiles; tile += gridDim.y)
		for (uint32_t c = 0; c < shape.chunks; c++)
		{
			unsigned char *to = memory.stages + place.stage * shape.stage_bytes;
			uint64_t *full = &barriers->full[place.stage];

			barrier_wait(&barriers->empty[place.stage], place.parity ^ 1);
			barrier_expect(full, bytes);
			for (uint32_t part = 0; part < PARTS; part++)
				for (uint32_t b = 0; b < boxes.boxes; b++)
					copy_box(to + part * PART_BYTES + b * boxes.box * TILE_BYTES, rows_map,
							 c * ELEMENTS,
							 ((tile * PARTS + part) * boxes.boxes + b) * boxes.period + boxes.start,
							 full);
			if (PARTS > 1)
				copy_box(to + PARTS * PART_BYTES, queries_map, c * ELEMENTS, blockIdx.x * QUERIES,
						 full);
			ring_advance(&place, 1, shape.stages);
		}
}

/*
 * Issue the load of a row's squared norm here; the compiler must not delay it.
 */
__device__ static inline double
read_norm(const double *at)
{
#ifdef EMULATED
	return *at;
#else
	double norm;

	asm volatile("ld.global.nc.f64 %0, [%1];" : "=d"(norm) : "l"(at));
	return norm;
#endif
}

/*
 * The slots of this thread's two rows of a tile, which are at these offsets,
 * and the loads of their norms.
 */
__device__ static inline RowPair
row_pair(const MirrorView &mirror, const RowBoxes &boxes, const uint32_t *offsets, uint32_t tile)
{
	RowPair pair;

#pragma unroll
	for (uint32_t h = 0; h < 2; h++)
	{
		pair.slot[h] = boxed_slot(boxes, tile, offsets[h]);
		pair.norm[h] = pair.slot[h] != NO_SLOT ? read_norm(mirror.norms + pair.slot[h]) : 0;
	}
	return pair;
}

/*
 * Compare a thread's sums with the limits of their queries. Bit 4 n + 2 h + c
 * of `passed`, 32 per word, stands for row h of the pair and query 8 n + 2
 * (lane % 4) + c.
 */
template <int SUMS>
__device__ static inline void
wgmma_compare(const Limit *limits, const RowPair &pair, const RowSide *sides,
			  const float (&sums)[SUMS], uint32_t (&passed)[SUMS / 32])
{
	uint32_t first = threadIdx.x % 4 * 2;
	uint32_t good =
		(pair.slot[0] != NO_SLOT ? 0x33333333u : 0) | (pair.slot[1] != NO_SLOT ? 0xCCCCCCCCu : 0);

#pragma unroll
	for (int w = 0; w < SUMS / 32; w++)
	{
		passed[w] = 0;
#pragma unroll
		for (int i = 0; i < 32; i += 4)
		{
			const float4 two = *(const float4 *) &limits[(w * 32 + i) * 2 + first];
			const Limit of[2] = {{two.x, two.y}, {two.z, two.w}};

#pragma unroll
			for (int j = 0; j < 4; j++)
				if (product_passes(of[j % 2], sides[j / 2], sums[w * 32 + i + j]))
					passed[w] |= 1u << (i + j);
		}
		passed[w] &= good;
	}
}

/*
 * Write hits for the warp that appends them. Hits without room are appended
 * here.
 */
template <int WORDS>
__device__ static inline void
note_hits(const MirrorView &mirror, const BatchView &batch, const TileTables &tables,
		  const RowPair &pair, uint32_t (&passed)[WORDS], uint32_t block_query, Hit *hits,
		  uint32_t *count)
{
	uint32_t total = 0;
	uint32_t place;

#pragma unroll
	for (int w = 0; w < WORDS; w++)
		total += __popc(passed[w]);
	if (total == 0)
		return;
	place = atomicAdd(count, total);
#pragma unroll
	for (int w = 0; w < WORDS; w++)
		while (passed[w] != 0)
		{
			uint32_t bit = (uint32_t) __ffs((int) passed[w]) - 1;
			Hit hit = {block_query + (w * 32 + bit) / 4 * 8 + threadIdx.x % 4 * 2 + bit % 2,
					   bit / 2 % 2 == 0 ? pair.slot[0] : pair.slot[1]};

			passed[w] &= passed[w] - 1;
			if (place < HITS)
				hits[place++] = hit;
			else
				append(mirror, batch, tables, hit.query, hit.slot);
		}
}

/* Append the hits of a group's tiles. Called by one warp. */
template <uint32_t PARTS>
__device__ static inline void
append_hits(const MirrorView &mirror, const BatchView &batch, const TileTables &tables,
			const RowBoxes &boxes, const RingMemory &memory, RingBarriers *barriers, uint32_t group)
{
	uint32_t lane = threadIdx.x % WARP;

	for (uint32_t round = 0;; round++)
	{
		uint32_t j = PARTS == 1 ? group + round * GROUPS : round;
		uint32_t side = round & 1;
		const Hit *hits = memory.hits + (group * 2 + side) * HITS;
		uint32_t count;

		if ((blockIdx.y + j * gridDim.y) * PARTS >= boxes.tiles)
			break;
		barrier_wait(&barriers->hit[group][side], round >> 1 & 1);
		count = *(volatile uint32_t *) &barriers->hits[group][side];
		for (uint32_t i = lane; i < count && i < HITS; i += WARP)
			append(mirror, batch, tables, hits[i].query, hits[i].slot);
		__syncwarp();
		if (lane == 0)
		{
			barriers->hits[group][side] = 0;
			barrier_arrive(&barriers->appended[group][side]);
		}
	}
}

/* Arrive at a barrier once per warp. */
__device__ static inline void
warp_arrive(uint64_t *barrier)
{
	if (threadIdx.x % WARP == 0)
		barrier_arrive(barrier);
}

/*
 * Multiply a tile of rows, whose stages begin at *place. On return all of its
 * stages but the last have been released.
 */
template <typename T, uint32_t QUERIES, uint32_t PARTS>
__device__ static inline void
multiply_tile(float (&sums)[QUERIES / 2], const RingShape &shape, const RingMemory &memory,
			  RingBarriers *barriers, uint32_t group, RingPlace *place)
{
	uint32_t before = place->stage;

	for (uint32_t c = 0; c < shape.chunks; c++)
	{
		const unsigned char *stage = memory.stages + place->stage * shape.stage_bytes;

		barrier_wait(&barriers->full[place->stage], place->parity);
		begin_products<T>(sums, stage + (PARTS == 1 ? 0 : group * PART_BYTES),
						  PARTS == 1 ? memory.queries + c * QUERIES * TILE_BYTES
									 : stage + PARTS * PART_BYTES,
						  c == 0);
		products_wait<1>();
		if (c > 0)
			warp_arrive(&barriers->empty[before]);
		before = place->stage;
		ring_advance(place, 1, shape.stages);
	}
}

/*
 * Multiply and compare the tiles of one group. Everything else that a tile
 * needs is loaded before (norms) or left to other warps (hits), because a tile
 * of 128 elements takes about 2,000 cycles, and a read from memory half of
 * that.
 */
template <typename T, uint32_t QUERIES, uint32_t PARTS>
__device__ static inline void
multiply_rows(const MirrorView &mirror, const BatchView &batch, const TileTables &tables,
			  const RowBoxes &boxes, const RingShape &shape, const RingMemory &memory,
			  RingBarriers *barriers)
{
	constexpr uint32_t TURNS = PARTS == 1 ? GROUPS : 1; /* distance between two tiles of this
														 * group */
	const uint32_t group = threadIdx.x / GROUP - 1;
	const uint32_t part = PARTS == 1 ? 0 : group;
	const uint32_t row = threadIdx.x % GROUP / WARP * 16 + threadIdx.x % WARP / 4;
	const uint32_t offsets[2] = {boxed_offset(boxes, row), boxed_offset(boxes, row + 8)};
	const uint32_t others = (TURNS - 1) * shape.chunks; /* stages of the other group's tile */
	const uint32_t over = others % shape.stages;
	const uint32_t turned = others / shape.stages & 1;
	uint32_t tile = (blockIdx.y + (PARTS == 1 ? group * gridDim.y : 0)) * PARTS;
	RingPlace place = {0, 0};
	RowPair next = row_pair(mirror, boxes, offsets, tile + part);
	float sums[QUERIES / 2];
	uint32_t passed[QUERIES / 64];

	if (PARTS == 1)
		barrier_wait(&barriers->queries, 0);
	if (PARTS == 1 && group == 1)
	{
		place.parity ^= turned;
		ring_advance(&place, over, shape.stages);
	}
	for (uint32_t round = 0; tile < boxes.tiles; round++, tile += TURNS * PARTS * gridDim.y)
	{
		const RowPair pair = next;
		const uint32_t side = round & 1;
		uint32_t last;
		RowSide sides[2];

		next = row_pair(mirror, boxes, offsets, tile + TURNS * PARTS * gridDim.y + part);
		if (PARTS == 1)
			barrier_wait(&barriers->turn[group], (round & 1) ^ (group == 0));
		multiply_tile<T, QUERIES, PARTS>(sums, shape, memory, barriers, group, &place);
		if (PARTS == 1)
			warp_arrive(&barriers->turn[group ^ 1]);
		last = place.stage > 0 ? place.stage - 1 : shape.stages - 1;
		if (PARTS == 1)
		{
			place.parity ^= turned;
			ring_advance(&place, over, shape.stages);
		}
#pragma unroll
		for (int h = 0; h < 2; h++)
			sides[h] = row_side(mirror.metric, pair.norm[h]);
		products_end(sums);
		warp_arrive(&barriers->empty[last]);
		wgmma_compare(memory.limits, pair, sides, sums, passed);
		barrier_wait(&barriers->appended[group][side], (round >> 1 & 1) ^ 1);
		note_hits(mirror, batch, tables, pair, passed, blockIdx.x * QUERIES,
				  memory.hits + (group * 2 + side) * HITS, &barriers->hits[group][side]);
		__syncwarp();
		warp_arrive(&barriers->hit[group][side]);
	}
}

#endif /* HAVE_GROUPS */

/*
 * PARTS 1: queries stay in shared memory, and a stage has the rows of one
 * group. PARTS 2: queries do not stay, and a stage has the rows of both.
 */
template <typename T, uint32_t QUERIES, uint32_t PARTS>
__global__ void
__launch_bounds__(WGMMA_THREADS, 1)
	exact_wgmma_kernel(const __grid_constant__ CUtensorMap rows_map,
					   const __grid_constant__ CUtensorMap queries_map, const MirrorView mirror,
					   const BatchView batch, const TileTables tables, const RowBoxes boxes,
					   const RingShape shape)
{
#ifdef HAVE_GROUPS
	__shared__ RingBarriers barriers;
	DYNAMIC_SHARED(dynamic);
	size_t bytes;
	unsigned char *at =
		dynamic + (SWIZZLED_BYTES - shared_address(dynamic) % SWIZZLED_BYTES) % SWIZZLED_BYTES;
	RingMemory memory = lay_out(shape, QUERIES, at, &bytes);

	if (threadIdx.x == 0)
	{
		for (uint32_t i = 0; i < shape.stages; i++)
		{
			barrier_begin(&barriers.full[i], 1);
			barrier_begin(&barriers.empty[i], PARTS * GROUP / WARP);
		}
		barrier_begin(&barriers.queries, 1);
		for (uint32_t i = 0; i < GROUPS; i++)
		{
			barrier_begin(&barriers.turn[i], GROUP / WARP);
			for (uint32_t side = 0; side < 2; side++)
			{
				barrier_begin(&barriers.hit[i][side], GROUP / WARP);
				barrier_begin(&barriers.appended[i][side], 1);
				barriers.hits[i][side] = 0;
			}
		}
		barriers_begun();
	}
	for (uint32_t i = threadIdx.x; i < QUERIES; i += WGMMA_THREADS)
	{
		uint32_t query = blockIdx.x * QUERIES + i;
		Limit limit = {0, -HUGE_VALF};

		memory.limits[i] = query < tables.queries ? tables.limits[query] : limit;
	}
	__syncthreads();
	if (threadIdx.x < GROUP)
	{
		fewer_registers<FEEDER_REGISTERS>();
		if (threadIdx.x == 0)
			copy_tiles<T, QUERIES, PARTS>(&rows_map, &queries_map, boxes, shape, memory, &barriers);
		else if (threadIdx.x / WARP >= 1 && threadIdx.x / WARP <= GROUPS)
			append_hits<PARTS>(mirror, batch, tables, boxes, memory, &barriers,
							   threadIdx.x / WARP - 1);
	}
	else
	{
		more_registers<GROUP_REGISTERS>();
		multiply_rows<T, QUERIES, PARTS>(mirror, batch, tables, boxes, shape, memory, &barriers);
	}
#endif
}

/* --- launching ------------------------------------------------------------ */

typedef void (*WgmmaKernel)(const CUtensorMap, const CUtensorMap, const MirrorView, const BatchView,
							const TileTables, const RowBoxes, const RingShape);

/* By type, then by tile size, then by whether queries go through the ring. */
#define BY_PARTS(T, QUERIES) {exact_wgmma_kernel<T, QUERIES, 1>, exact_wgmma_kernel<T, QUERIES, 2>}
#define BY_SIZE(T) {BY_PARTS(T, 64), BY_PARTS(T, 128), BY_PARTS(T, 256)}

static const WgmmaKernel wgmma_kernels[2][3][2] = {BY_SIZE(float), BY_SIZE(__half)};

#ifndef EMULATED

static decltype(&cuTensorMapEncodeTiled) encode_map;

/* Find the driver's function that encodes tensor maps. */
static bool
find_encode()
{
	cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
	cudaError_t error = cudaGetDriverEntryPointByVersion(
		"cuTensorMapEncodeTiled", (void **) &encode_map, 12000, cudaEnableDefault, &result);
#else
	cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", (void **) &encode_map,
												cudaEnableDefault, &result);
#endif

	return error == cudaSuccess && result == cudaDriverEntryPointSuccess;
}

/*
 * Encode a map of `count` vectors at a distance of `pitch` bytes, with boxes of
 * `box` vectors and 128 bytes of each.
 */
static bool
wgmma_encode(CUtensorMap *map, ElementType type, const void *base, uint32_t vector_bytes,
			 uint32_t count, uint64_t pitch, uint32_t box)
{
	uint32_t bytes = type == ELEMENT_HALF ? 2 : 4;
	cuuint64_t dims[2] = {vector_bytes / bytes, count};
	cuuint64_t strides[1] = {pitch};
	cuuint32_t boxes[2] = {TILE_BYTES / bytes, box};
	cuuint32_t steps[2] = {1, 1};

	return encode_map(map,
					  bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_UINT32,
					  2, (void *) base, dims, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
					  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
					  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* Whether the device supports it; finds its number of SMs. */
static bool
find_device(ExactLimits *limits)
{
	int device,
		major = 0,
		minor = 0,
		count = 0;

	if (cudaGetDevice(&device) != cudaSuccess ||
		cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
		cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess ||
		cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
		return false;
	limits->wgmma_processors = (uint32_t) count;
	return major == 9 && minor == 0 && find_encode();
}

#else

static bool
wgmma_encode(CUtensorMap *map, ElementType type, const void *base, uint32_t vector_bytes,
			 uint32_t count, uint64_t pitch, uint32_t box)
{
	*map = {(const unsigned char *) base,	pitch, vector_bytes, count,
			type == ELEMENT_HALF ? 2u : 4u, box};
	return true;
}

/*
 * Emulation: tiles by single warps are the default, those by groups are for
 * tests.
 */
static bool
find_device(ExactLimits *limits)
{
	limits->wgmma_processors = 4;
	return limits->wgmma_queries != 0;
}

#endif

cudaError_t
wgmma_prepare(int bytes, uint32_t products, ExactLimits *limits)
{
	limits->wgmma_shared = 0;
	limits->wgmma_queries = products == 64 || products == 128 || products == 256 ? products : 0;
	if (products == 1 || !find_device(limits))
	{
		(void) cudaGetLastError();
		return cudaSuccess;
	}
	if (allow_shared(wgmma_kernels, (size_t) bytes) != cudaSuccess)
	{
		/* not built for this device: tiles are multiplied by single warps */
		(void) cudaGetLastError();
		return cudaSuccess;
	}
	limits->wgmma_shared = (size_t) bytes - SWIZZLED_BYTES;
	return cudaSuccess;
}

/*
 * The parameters of a launch with this many queries per tile, and its bytes of
 * shared memory. Returns false if there is no room.
 */
static bool
ring_shape(const ExactLaunch *launch, uint32_t queries, RingShape *shape, size_t *bytes)
{
	uint32_t row_bytes = (launch->mirror.stride + TILE_BYTES - 1) / TILE_BYTES * TILE_BYTES;

	shape->chunks = row_bytes / TILE_BYTES;
	shape->resident = queries * row_bytes <= RESIDENT_BYTES;
	shape->stage_bytes = shape->resident ? PART_BYTES : GROUPS * PART_BYTES + queries * TILE_BYTES;
	for (shape->stages = MAX_STAGES; shape->stages >= 2; shape->stages--)
	{
		lay_out(*shape, queries, NULL, bytes);
		if (*bytes <= launch->limits->wgmma_shared)
			return true;
	}
	return false;
}

/*
 * Number of queries per tile. Unused places in a tile cost time, but a second
 * read of the rows costs less than half a tile of them.
 */
static uint32_t
tile_queries(const ExactLaunch *launch)
{
	uint32_t queries = launch->queries;

	if (launch->limits->wgmma_queries != 0)
		return launch->limits->wgmma_queries;
	if (queries <= 64)
		return 64;
	return queries <= 128 || (queries > 256 && queries <= 384) ? 128 : 256;
}

bool
exact_has_groups(const ExactLimits *limits)
{
	return limits->wgmma_shared > 0;
}

bool
wgmma_takes(const ExactLaunch *launch)
{
	RingShape shape;
	size_t bytes;

	return exact_has_groups(launch->limits) &&
		   ring_shape(launch, tile_queries(launch), &shape, &bytes);
}

/* Number of ranges of rows: one block per SM. */
static uint32_t
ranges_of(const ExactLimits *limits, const RingShape &shape, uint32_t across, uint32_t tiles)
{
	uint32_t most = shape.resident ? tiles : (tiles + GROUPS - 1) / GROUPS;
	uint32_t ranges = limits->wgmma_processors / across;

	ranges = ranges < most ? ranges : most;
	return ranges > 0 ? ranges : 1;
}

cudaError_t
wgmma_launch(const ExactLaunch *launch, const TileTables &tables, uint32_t step, uint32_t growth)
{
	const MirrorView &mirror = launch->mirror;
	uint32_t queries = tile_queries(launch);
	uint32_t across = (launch->queries + queries - 1) / queries;
	RowBoxes boxes = row_boxes(mirror.rows, step, growth, MIN_BOX);
	CUtensorMap rows_map,
		queries_map;
	RingShape shape;
	size_t bytes;

	if (boxes.count == 0)
		return cudaSuccess;
	if (!ring_shape(launch, queries, &shape, &bytes) ||
		!wgmma_encode(&rows_map, launch->type,
					  mirror.vectors + (size_t) boxes.first * mirror.stride, mirror.stride,
					  boxes.count, (uint64_t) boxes.step * mirror.stride, boxes.box) ||
		!wgmma_encode(&queries_map, launch->type, tables.prepared, tables.prepared_stride,
					  tables.queries, tables.prepared_stride, queries))
		return cudaErrorInvalidValue;
	LAUNCH(wgmma_kernels[launch->type == ELEMENT_HALF][queries / 128][!shape.resident],
		   dim3(across, ranges_of(launch->limits, shape, across, boxes.tiles)), WGMMA_THREADS,
		   bytes + SWIZZLED_BYTES, launch->stream, rows_map, queries_map, mirror, launch->batch,
		   tables, boxes, shape);
	return cudaGetLastError();
}

#else /* a compiler that knows no tensor maps */

cudaError_t
wgmma_prepare(int, uint32_t, ExactLimits *)
{
	return cudaSuccess;
}

bool
exact_has_groups(const ExactLimits *)
{
	return false;
}

bool
wgmma_takes(const ExactLaunch *)
{
	return false;
}

cudaError_t
wgmma_launch(const ExactLaunch *, const TileTables &, uint32_t, uint32_t)
{
	return cudaErrorInvalidValue;
}

#endif /* HAVE_TENSOR_MAPS */
