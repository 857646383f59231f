/*
 * device.cuh
 *		What benchmarks of single kernels share: giving up where CUDA does, and
 *		the time of something on the device.
 */
#ifndef GPUANN_DEVICE_CUH
#define GPUANN_DEVICE_CUH

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

static inline void
must(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
	exit(1);
}

/* Memory of the device, with room behind it that may be read. */
template <typename T>
static T *
device_memory(size_t count)
{
	void *memory;

	must(cudaMalloc(&memory, count * sizeof(T) + 256), "device memory");
	return (T *) memory;
}

template <typename T>
static T *
to_device(const std::vector<T> &from)
{
	T *memory = device_memory<T>(from.size());

	must(cudaMemcpy(memory, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
	/* the streams of benchmarks do not wait for the default one */
	must(cudaDeviceSynchronize(), "copy");
	return memory;
}

/*
 * The median time of work that goes through a stream, in microseconds, over a
 * number of runs, after warm-up runs that do not count.
 */
template <class What>
static double
time_of(cudaStream_t stream, int warm_ups, int runs, const What &what)
{
	cudaEvent_t begin, end;
	std::vector<float> times;

	must(cudaEventCreate(&begin), "an event");
	must(cudaEventCreate(&end), "an event");
	for (int run = 0; run < warm_ups + runs; run++)
	{
		float milliseconds;

		must(cudaEventRecord(begin, stream), "an event");
		what();
		must(cudaEventRecord(end, stream), "an event");
		must(cudaEventSynchronize(end), "the device");
		must(cudaEventElapsedTime(&milliseconds, begin, end), "an event's time");
		if (run >= warm_ups)
			times.push_back(milliseconds);
		/* what takes a second needs no more of them */
		if (milliseconds > 300 && run >= 1)
		{
			times.push_back(milliseconds);
			break;
		}
	}
	must(cudaEventDestroy(begin), "an event");
	must(cudaEventDestroy(end), "an event");
	std::sort(times.begin(), times.end());
	return times[times.size() / 2] * 1000.0;
}

#endif /* GPUANN_DEVICE_CUH */
