/*
 * context.cu
 *		The size of the CUDA context, which counts against the memory limit: as
 *		NVML reports it, where that library is installed.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "cuda/memory/context.h"

#define DEVICE_PROCESSES 256	 /* processes of a device that are searched for this one */
#define MAX_DEVICES 64			 /* devices whose context size is cached */
#define CONTEXT_GUESS (512ull << 20) /* where the size cannot be measured */

/* One process on a device: nvmlProcessInfo_t. */
typedef struct DeviceProcess
{
	unsigned int pid;
	unsigned long long used;
	unsigned int instances[2];
} DeviceProcess;

/*
 * This process's bytes in a list of a device's processes; 0: it is not listed,
 * or NVML does not know its memory.
 */
static uint64_t
own_bytes(const DeviceProcess *processes, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		if (processes[i].pid == (unsigned int) getpid() && processes[i].used != ~0ull)
			return processes[i].used;
	return 0;
}

/*
 * By NVML. *own stays 0 where the driver does not know this process by its pid,
 * as in containers with a pid namespace of their own.
 */
void
device_bytes_used(const cudaDeviceProp *device, uint64_t *all, uint64_t *own)
{
	struct
	{
		unsigned long long total;
		unsigned long long free;
		unsigned long long used;
	} memory = {0, 0, 0};
	DeviceProcess processes[DEVICE_PROCESSES];
	unsigned int count = DEVICE_PROCESSES;
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	void *handle;
	char address[32];

	*all = *own = 0;
	if (library == NULL)
		return;

	int (*init)(void) = (int (*)(void)) dlsym(library, "nvmlInit_v2");
	int (*by_address)(const char *, void **) =
		(int (*)(const char *, void **)) dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
	int (*get_memory)(void *, void *) =
		(int (*)(void *, void *)) dlsym(library, "nvmlDeviceGetMemoryInfo");
	int (*get_processes)(void *, unsigned int *, DeviceProcess *) =
		(int (*)(void *, unsigned int *, DeviceProcess *)) dlsym(
			library, "nvmlDeviceGetComputeRunningProcesses_v3");
	int (*shutdown)(void) = (int (*)(void)) dlsym(library, "nvmlShutdown");

	snprintf(address, sizeof(address), "%08x:%02x:%02x.0", (unsigned) device->pciDomainID,
			 (unsigned) device->pciBusID, (unsigned) device->pciDeviceID);
	if (init != NULL && by_address != NULL && get_memory != NULL && shutdown != NULL && init() == 0)
	{
		if (by_address(address, &handle) == 0)
		{
			if (get_memory(handle, &memory) == 0)
				*all = memory.used;
			if (get_processes != NULL && get_processes(handle, &count, processes) == 0)
				*own = own_bytes(processes, count);
		}
		shutdown();
	}
	dlclose(library);
}

/*
 * Bytes of the context, which CUDA creates once per process and device: what
 * NVML attributes to this process, else the growth of the device's usage since
 * `all_before`, which includes what other processes took meanwhile. A figure is
 * cached per device (relaxed atomics: any thread may open an engine, and all
 * would store the same), because a second engine finds the context already
 * there.
 */
uint64_t
context_bytes(const cudaDeviceProp *device, int number, uint64_t all_before, uint64_t own_before)
{
	static uint64_t made[MAX_DEVICES];
	uint64_t bytes = number < MAX_DEVICES ? __atomic_load_n(&made[number], __ATOMIC_RELAXED) : 0;
	uint64_t all,
			 own;

	if (bytes > 0)
		return bytes;
	device_bytes_used(device, &all, &own);
	if (own > 0 && own_before == 0)
		bytes = own;
	else if (own == 0 && all_before > 0 && all > all_before)
		bytes = all - all_before;
	if (bytes > 0 && number < MAX_DEVICES)
		__atomic_store_n(&made[number], bytes, __ATOMIC_RELAXED);
	return bytes > 0 ? bytes : CONTEXT_GUESS;
}
