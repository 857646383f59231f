/*
 * emulate_sort.h
 *		The device-wide algorithms of CUB that kernels use: a stable sort of
 *		pairs by key, a sort of keys.
 */
#ifndef GPUANN_EMULATE_SORT_H
#define GPUANN_EMULATE_SORT_H

#include <algorithm>
#include <string.h>
#include <vector>

#include <cuda_runtime.h>

namespace cub
{
template <typename T> struct DoubleBuffer
{
	T *buffers[2];
	int selector;

	DoubleBuffer(T *current, T *alternate) : buffers{current, alternate}, selector(0)
	{
	}
	T *
	Current() const
	{
		return buffers[selector];
	}
	T *
	Alternate() const
	{
		return buffers[selector ^ 1];
	}
};

struct DeviceRadixSort
{
	template <typename K, typename V>
	static void
	sort(const DoubleBuffer<K> &keys, const DoubleBuffer<V> &values, int n)
	{
		std::vector<int> order;

		for (int i = 0; i < n; i++)
			order.push_back(i);
		std::stable_sort(order.begin(), order.end(),
						 [&](int a, int b) { return keys.Current()[a] < keys.Current()[b]; });
		for (int i = 0; i < n; i++)
		{
			keys.Alternate()[i] = keys.Current()[order[i]];
			values.Alternate()[i] = values.Current()[order[i]];
		}
	}

	template <typename K>
	static cudaError_t SortKeys(void *work, size_t &bytes, DoubleBuffer<K> &keys, int n, int = 0,
								int = 64, cudaStream_t stream = NULL)
	{
		DoubleBuffer<K> now = keys;

		if (work == NULL)
		{
			bytes = 1;
			return cudaSuccess;
		}
		emulate_enqueue(stream, [=] {
			std::copy(now.Current(), now.Current() + n, now.Alternate());
			std::sort(now.Alternate(), now.Alternate() + n);
		});
		keys.selector ^= 1;
		return cudaGetLastError();
	}

	template <typename K, typename V>
	static cudaError_t SortPairs(void *work, size_t &bytes, DoubleBuffer<K> &keys,
								 DoubleBuffer<V> &values, int n, int = 0, int = 64,
								 cudaStream_t stream = NULL)
	{
		if (work == NULL)
		{
			bytes = 1;
			return cudaSuccess;
		}
		emulate_enqueue(stream, [=] { sort(keys, values, n); });
		keys.selector ^= 1;
		values.selector ^= 1;
		return cudaGetLastError();
	}
};
} // namespace cub

#endif /* GPUANN_EMULATE_SORT_H */
