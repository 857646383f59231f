/*
 * emulate.cpp
 *		Kernels as coroutines, and a device made of ordinary memory. See
 *		cuda_runtime.h; streams are in streams.cpp.
 *
 * GPUANN_EMULATE_ALLOCATIONS=n in the environment makes the driver refuse
 * physical memory after n allocations. GPUANN_EMULATE_ORDER sets the order in
 * which the threads of a block run between barriers: `reverse`, the last first,
 * or the seed of random orders. Blocks then run the last first. A kernel whose
 * results depend on the order lacks a barrier.
 */
#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <stdio.h>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>

#include "engine/quantizer/random.h"

#define WARP 32u
#define STACK_BYTES (64u * 1024)
/* Stacks begin apart, or those of a block would share a few sets of a cache. */
#define STACK_COLOUR 320u
#define STACK_COLOURS (16u * 1024)
#define MAX_THREADS 1024u
#define SHARED_BYTES (227u * 1024)
#define SHARED_UNASKED (48u * 1024) /* dynamic shared memory that a kernel may use without
									 * cudaFuncSetAttribute() */
#define MAX_GRID_Y 65535u

/*
 * Switching between coroutines. On x86-64 it takes a dozen instructions: a
 * kernel's barriers cause millions of switches, and swapcontext() spends most
 * of its time on signal masks and pointer mangling.
 */
#if defined(__x86_64__)
typedef void *Context; /* the stack pointer; callee-saved registers are on the stack */

extern "C" void emulate_switch(Context *from, Context to);
asm(".text\n.type emulate_switch, @function\nemulate_switch:\n"
	"pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
	"movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
	"popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
	".size emulate_switch, .-emulate_switch\n");

/* Create a context that starts in a function, which must not return. */
static void
make_context(Context *context, unsigned char *stack, size_t bytes, void (*function)())
{
	void **top = (void **) (stack + bytes) - 1;

	/*
	 * at the function's first instruction the stack is aligned as after a call
	 */
	top[0] = NULL;
	*--top = (void *) function;
	for (int i = 0; i < 6; i++)
		*--top = NULL;
	*context = top;
}
#else
typedef ucontext_t Context;

static void
emulate_switch(Context *from, Context &to)
{
	swapcontext(from, &to);
}

static void
make_context(Context *context, unsigned char *stack, size_t bytes, void (*function)())
{
	getcontext(context);
	context->uc_stack.ss_sp = stack;
	context->uc_stack.ss_size = bytes;
	context->uc_link = NULL;
	makecontext(context, function, 0);
}
#endif

struct Barrier;

/* A coroutine: one thread of a kernel. */
struct Fiber
{
	EmulatedThread self; /* first: emulate_current points here */
	Context saved;
	unsigned char *stack;
	bool ended;
	const Barrier *waits; /* barrier that it waits for, or NULL; passed */
	uint64_t opened;	  /* when that has been opened more often than this */
	uint32_t ballots;	  /* ballots that it has taken part in */
};

/*
 * State of a barrier. It opens when all threads of the group that are still
 * running have arrived.
 */
struct Barrier
{
	uint32_t come;
	uint32_t running;
	uint64_t opened;
};

EmulatedThread *emulate_current;
dim3 emulate_grid;
dim3 emulate_block;

static Fiber fibers[MAX_THREADS];
static Barrier block_barrier;
static Barrier warp_barriers[MAX_THREADS / WARP];
static uint64_t exchanged[2][MAX_THREADS];
static uint32_t votes[3][MAX_THREADS / WARP];
alignas(16) static unsigned char shared_memory[SHARED_BYTES];
static Context scheduler;
static const std::function<void()> *running_kernel;
static uint64_t progress;

static Fiber *
current_fiber()
{
	return (Fiber *) emulate_current;
}

/* Switch to the scheduler. */
static void
yield()
{
	emulate_switch(&current_fiber()->saved, scheduler);
}

void
emulate_pause()
{
	yield();
}

void
emulate_changed()
{
	progress++;
}

static void
open_if_complete(Barrier *barrier)
{
	if (barrier->come < barrier->running)
		return;
	barrier->come = 0;
	barrier->opened++;
	progress++;
}

static void
wait_at(Barrier *barrier)
{
	Fiber *fiber = current_fiber();

	fiber->opened = barrier->opened;
	barrier->come++;
	open_if_complete(barrier);
	if (barrier->opened != fiber->opened)
		return;
	fiber->waits = barrier;
	yield();
	fiber->waits = NULL;
}

static Barrier *
warp_barrier()
{
	return &warp_barriers[emulate_current->thread_index.x / WARP];
}

void
emulate_block_barrier()
{
	wait_at(&block_barrier);
}

void
emulate_warp_barrier()
{
	wait_at(warp_barrier());
}

/*
 * A warp shuffle: the value of lane `from`. Two buffers alternate: a thread
 * that reaches the next barrier but one knows that all have read the first.
 */
uint64_t
emulate_exchange(uint64_t value, unsigned int from)
{
	uint32_t thread = emulate_current->thread_index.x;
	Barrier *barrier = warp_barrier();
	uint64_t *places = exchanged[barrier->opened % 2];

	places[thread] = value;
	wait_at(barrier);
	return places[thread / WARP * WARP + from];
}

/* A warp ballot. Of three buffers one is filled, one read, one cleared. */
uint32_t
emulate_ballot(bool vote)
{
	uint32_t warp = emulate_current->thread_index.x / WARP;
	uint32_t turn = current_fiber()->ballots++;

	votes[(turn + 1) % 3][warp] = 0;
	votes[turn % 3][warp] |= (uint32_t) vote << (emulate_current->thread_index.x % WARP);
	wait_at(&warp_barriers[warp]);
	return votes[turn % 3][warp];
}

/* Whether any thread of the block votes true. */
bool
emulate_any_of_block(bool vote)
{
	static bool any;
	bool said;

	wait_at(&block_barrier);
	any = false;
	wait_at(&block_barrier);
	any = any || vote;
	wait_at(&block_barrier);
	said = any;
	wait_at(&block_barrier);
	return said;
}

unsigned char *
emulate_dynamic_shared()
{
	return shared_memory;
}

/* The body of a coroutine: one thread of the running kernel. */
static void
run_fiber()
{
	(*running_kernel)();
	current_fiber()->ended = true;
	progress++;
	block_barrier.running--;
	warp_barrier()->running--;
	if (block_barrier.come > 0)
		open_if_complete(&block_barrier);
	if (warp_barrier()->come > 0)
		open_if_complete(warp_barrier());
	yield();
}

static void
start_fiber(Fiber *fiber)
{
	if (fiber->stack == NULL)
		fiber->stack = (unsigned char *) malloc(STACK_BYTES);
	make_context(&fiber->saved, fiber->stack,
				 STACK_BYTES - (size_t) (fiber - fibers) * STACK_COLOUR % STACK_COLOURS, run_fiber);
	fiber->ended = false;
	fiber->waits = NULL;
	fiber->ballots = 0;
}

/* Run a coroutine until it yields or ends. */
static void
resume(Fiber *fiber)
{
	emulate_current = &fiber->self;
	emulate_switch(&scheduler, fiber->saved);
}

/* The order of threads that the environment selects, read once. */
enum Order
{
	ORDER_ASCENDING,
	ORDER_REVERSE,
	ORDER_RANDOM
};

static uint64_t order_random; /* state of the random orders */

static Order
order_asked()
{
	const char *asked = getenv("GPUANN_EMULATE_ORDER");

	if (asked == NULL || asked[0] == 0)
		return ORDER_ASCENDING;
	if (strcmp(asked, "reverse") == 0)
		return ORDER_REVERSE;
	order_random = strtoul(asked, NULL, 10);
	return ORDER_RANDOM;
}

static Order
order_of_threads()
{
	static const Order order = order_asked();

	return order;
}

/* Fill order[] with the sequence in which a block's threads run next. */
static void
order_threads(uint32_t *order, uint32_t threads)
{
	for (uint32_t i = 0; i < threads; i++)
		order[i] = order_of_threads() == ORDER_REVERSE ? threads - 1 - i : i;
	if (order_of_threads() == ORDER_RANDOM)
		random_draw(&order_random, order, threads, threads);
}

static void
run_block(dim3 block_index, uint32_t threads)
{
	static uint32_t order[MAX_THREADS];
	uint32_t left = threads;

	block_barrier = {0, threads, 0};
	for (uint32_t warp = 0; warp < threads / WARP; warp++)
	{
		warp_barriers[warp] = {0, WARP, 0};
		votes[0][warp] = votes[1][warp] = votes[2][warp] = 0;
	}
	for (uint32_t i = 0; i < threads; i++)
	{
		fibers[i].self.thread_index = dim3(i, 0, 0);
		fibers[i].self.block_index = block_index;
		start_fiber(&fibers[i]);
	}
	while (left > 0)
	{
		uint64_t before = progress;

		order_threads(order, threads);
		for (uint32_t i = 0; i < threads; i++)
		{
			Fiber *fiber = &fibers[order[i]];

			if (fiber->ended || (fiber->waits != NULL && fiber->waits->opened == fiber->opened))
				continue;
			resume(fiber);
			if (fiber->ended)
				left--;
		}
		if (progress == before)
		{
			fprintf(stderr, "emulation: a barrier that not all threads reach, block %u\n",
					block_index.x);
			abort();
		}
	}
}

/* Run a kernel. Shared memory starts with garbage, as on a device. */
void
emulate_run(dim3 grid, dim3 block, size_t shared, const std::function<void()> &kernel)
{
	if (shared > SHARED_BYTES || block.x % WARP != 0 || block.x > MAX_THREADS || block.y != 1 ||
		block.z != 1 || grid.x == 0 || grid.y == 0 || grid.y > MAX_GRID_Y)
	{
		fprintf(stderr, "emulation: a launch that no device would take\n");
		abort();
	}
	running_kernel = &kernel;
	emulate_grid = grid;
	emulate_block = block;
	for (unsigned int y = 0; y < grid.y; y++)
		for (unsigned int x = 0; x < grid.x; x++)
		{
			memset(shared_memory, 0xA5, shared);
			if (order_of_threads() == ORDER_ASCENDING)
				run_block(dim3(x, y, 0), block.x);
			else
				run_block(dim3(grid.x - 1 - x, grid.y - 1 - y, 0), block.x);
		}
}

/* --- the runtime ---------------------------------------------------------- */

static size_t device_bytes; /* in use */

#define DEVICE_BYTES ((size_t) 4 << 30)
#define GARBAGE_BYTES ((size_t) 4 << 20) /* leading bytes of new memory that start with garbage; the
										  * rest is zero */
#define GRANULARITY ((size_t) 64 << 10)

/*
 * Whether the device that is opened now lacks a feature, as the environment
 * says.
 */
static bool
lacks(const char *what)
{
	const char *lack = getenv("GPUANN_EMULATE_LACK");

	return lack != NULL && strcmp(lack, what) == 0;
}

cudaError_t
cudaGetDeviceCount(int *count)
{
	*count = lacks("device") ? 0 : 1;
	return lacks("device")		   ? cudaErrorNoDevice
		   : lacks("newer-driver") ? cudaErrorInsufficientDriver
								   : cudaSuccess;
}

cudaError_t
cudaGetDeviceProperties(cudaDeviceProp *properties, int)
{
	memset(properties, 0, sizeof(*properties));
	strcpy(properties->name, "emulated");
	properties->major = lacks("architecture") ? 7 : 9;
	properties->multiProcessorCount = 4;
	properties->sharedMemPerBlockOptin = lacks("architecture") ? (size_t) 64 << 10 : SHARED_BYTES;
	properties->sharedMemPerMultiprocessor = SHARED_BYTES;
	properties->totalGlobalMem = DEVICE_BYTES;
	return lacks("properties") ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t
cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
	*total = DEVICE_BYTES;
	*free_bytes = DEVICE_BYTES - device_bytes;
	return cudaSuccess;
}

/*
 * Pinned memory and device addresses, by start and end: what copies need not
 * stage.
 */
static std::map<const char *, const char *> copied_directly;
static std::mutex copied_lock;

static void
note_memory(const void *memory, size_t bytes)
{
	std::lock_guard<std::mutex> held(copied_lock);

	copied_directly[(const char *) memory] = (const char *) memory + bytes;
}

static void
forget_memory(const void *memory)
{
	std::lock_guard<std::mutex> held(copied_lock);

	copied_directly.erase((const char *) memory);
}

bool
emulate_is_pageable(const void *memory)
{
	std::lock_guard<std::mutex> held(copied_lock);
	auto after = copied_directly.upper_bound((const char *) memory);

	return after == copied_directly.begin() || (const char *) memory >= std::prev(after)->second;
}

cudaError_t
cudaHostAlloc(void **memory, size_t bytes, unsigned int)
{
	*memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
	if (*memory != NULL)
	{
		memset(*memory, 0xA5, bytes);
		note_memory(*memory, bytes);
	}
	return *memory != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t
cudaMemset(void *to, int value, size_t bytes)
{
	memset(to, value, bytes);
	return cudaSuccess;
}

cudaError_t
cudaFreeHost(void *memory)
{
	forget_memory(memory);
	free(memory);
	return cudaSuccess;
}

cudaError_t
cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *)
{
	attributes->ptxVersion = 90;
	return cudaSuccess;
}

/* The dynamic shared memory that each kernel may use. */
static std::map<const void *, size_t> allowed;
static std::mutex allowed_lock;

cudaError_t
cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int value)
{
	if (lacks("code"))
		return cudaErrorNoKernelImageForDevice;
	if (value > (int) SHARED_BYTES)
		return cudaErrorInvalidValue;

	std::lock_guard<std::mutex> held(allowed_lock);

	allowed[kernel] = (size_t) value;
	return cudaSuccess;
}

void
emulate_share(const void *kernel, size_t shared)
{
	std::lock_guard<std::mutex> held(allowed_lock);
	auto found = allowed.find(kernel);

	if (shared <= SHARED_UNASKED || (found != allowed.end() && shared <= found->second))
		return;
	fprintf(stderr, "emulation: %zu bytes of shared memory, which the kernel is not allowed\n",
			shared);
	abort();
}

const char *
cudaGetErrorString(cudaError_t error)
{
	return error == cudaSuccess ? "no error" : "emulated error";
}

const char *
cudaGetErrorName(cudaError_t error)
{
	return error == cudaSuccess ? "cudaSuccess" : "cudaErrorUnknown";
}

cudaError_t
cudaDriverGetVersion(int *version)
{
	*version = lacks("driver") ? 0 : CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t
cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = *greatest = 0;
	return cudaSuccess;
}

cudaError_t
cudaSetDevice(int)
{
	return cudaSuccess;
}

cudaError_t
cudaMalloc(void **memory, size_t bytes)
{
	return cudaHostAlloc(memory, bytes, 0);
}

cudaError_t
cudaFree(void *memory)
{
	return cudaFreeHost(memory);
}

cudaError_t
cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind)
{
	cudaDeviceSynchronize();
	if (bytes > 0) /* a copy of 0 bytes may name no memory */
		memcpy(to, from, bytes);
	return cudaSuccess;
}

/* --- the driver's virtual memory ------------------------------------------ */

static CUresult
reserve(CUdeviceptr *at, size_t size, size_t, CUdeviceptr, unsigned long long)
{
	void *memory = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	note_memory(memory, size);
	*at = (CUdeviceptr) memory;
	return CUDA_SUCCESS;
}

static CUresult
unreserve(CUdeviceptr at, size_t size)
{
	forget_memory((const void *) at);
	munmap((void *) at, size);
	return CUDA_SUCCESS;
}

/* Physical memory: freed when neither a handle nor a mapping refers to it. */
struct Physical
{
	size_t size;
	bool host;
	int uses;
};

static std::map<CUmemGenericAllocationHandle, Physical> physical;
static std::map<CUdeviceptr, CUmemGenericAllocationHandle> mappings;

/* Whether this allocation is refused: the environment says how many succeed. */
static bool
is_refused()
{
	const char *left = getenv("GPUANN_EMULATE_ALLOCATIONS");
	long n = left != NULL ? atol(left) : 1;

	if (left != NULL && n > 0)
		setenv("GPUANN_EMULATE_ALLOCATIONS", std::to_string(n - 1).c_str(), 1);
	return n <= 0;
}

static CUresult
create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *kind,
	   unsigned long long)
{
	static CUmemGenericAllocationHandle last;
	bool host = kind->location.type != CU_MEM_LOCATION_TYPE_DEVICE;

	if (is_refused() || (!host && device_bytes + size > DEVICE_BYTES))
		return CUDA_ERROR_OUT_OF_MEMORY;
	device_bytes += host ? 0 : size;
	*handle = ++last;
	physical[last] = {size, host, 1};
	return CUDA_SUCCESS;
}

static CUresult
release(CUmemGenericAllocationHandle handle)
{
	Physical &memory = physical[handle];

	if (--memory.uses > 0)
		return CUDA_SUCCESS;
	device_bytes -= memory.host ? 0 : memory.size;
	physical.erase(handle);
	return CUDA_SUCCESS;
}

static CUresult
map(CUdeviceptr at, size_t, size_t, CUmemGenericAllocationHandle handle, unsigned long long)
{
	mappings[at] = handle;
	physical[handle].uses++;
	return CUDA_SUCCESS;
}

static CUresult
unmap(CUdeviceptr at, size_t size)
{
	mprotect((void *) at, size, PROT_NONE);
	release(mappings[at]);
	mappings.erase(at);
	return CUDA_SUCCESS;
}

static CUresult
set_access(CUdeviceptr at, size_t size, const CUmemAccessDesc *, size_t)
{
	mprotect((void *) at, size, PROT_READ | PROT_WRITE);
	memset((void *) at, 0xA5, size < GARBAGE_BYTES ? size : GARBAGE_BYTES);
	return CUDA_SUCCESS;
}

static CUresult
granularity(size_t *bytes, const CUmemAllocationProp *, CUmemAllocationGranularity_flags)
{
	const char *unit = getenv("GPUANN_EMULATE_UNIT");

	*bytes = unit != NULL ? strtoul(unit, NULL, 10) : GRANULARITY;
	return CUDA_SUCCESS;
}

cudaError_t
cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int,
								 unsigned long long, cudaDriverEntryPointQueryResult *result)
{
	static const struct
	{
		const char *symbol;
		void *function;
	} known[] = {{"cuMemAddressReserve", (void *) reserve},
				 {"cuMemAddressFree", (void *) unreserve},
				 {"cuMemCreate", (void *) create},
				 {"cuMemRelease", (void *) release},
				 {"cuMemMap", (void *) map},
				 {"cuMemUnmap", (void *) unmap},
				 {"cuMemSetAccess", (void *) set_access},
				 {"cuMemGetAllocationGranularity", (void *) granularity}};

	*result = cudaDriverEntryPointSuccess;
	for (const auto &entry : known)
		if (!lacks("virtual-memory") && strcmp(entry.symbol, symbol) == 0)
		{
			*function = entry.function;
			return cudaSuccess;
		}
	*function = NULL;
	return cudaErrorInvalidValue;
}
