/*
 * peer_rabitq.cpp
 *		cuVS's IVF-RaBitQ, which has no other interface than C++, as three
 *		functions for bench/peer_lists.py. Resources are those of cuVS's Python
 *		package, so that its stream and its memory pool are used here too. Each
 *		function returns NULL, or what went wrong.
 */
#include <cstdint>
#include <exception>
#include <string>

#include <cuvs/neighbors/ivf_rabitq.hpp>

namespace rabitq = cuvs::neighbors::ivf_rabitq;

using Index = rabitq::index<int64_t>;

/* Run; returns what an exception said, kept until the next call. */
template <typename Body>
static const char *
guarded(Body body)
{
	static thread_local std::string message;

	try
	{
		body();
		return nullptr;
	}
	catch (const std::exception &error)
	{
		message = error.what();
	}
	return message.c_str();
}

static const raft::resources &
resources_at(uintptr_t handle)
{
	return *reinterpret_cast<const raft::resources *>(handle);
}

/* Build an index over rows on the device; it keeps none of them. */
extern "C" const char *
peer_rabitq_build(uintptr_t handle, const float *rows, int64_t count, int64_t dims, uint32_t lists,
				  uint32_t bits, void **index)
{
	return guarded([&] {
		rabitq::index_params params;

		params.n_lists = lists;
		params.bits_per_dim = bits;
		*index = new Index(rabitq::build(
			resources_at(handle), params,
			raft::make_device_matrix_view<const float, int64_t>(rows, count, dims)));
	});
}

/* Search for k rows of each query; mode is one of search_mode. */
extern "C" const char *
peer_rabitq_search(uintptr_t handle, void *index, uint32_t probes, int mode, const float *queries,
				   int64_t count, int64_t dims, int64_t k, int64_t *ids, float *distances)
{
	return guarded([&] {
		rabitq::search_params params;

		params.n_probes = probes;
		params.mode = static_cast<rabitq::search_mode>(mode);
		rabitq::search(resources_at(handle), params, *static_cast<Index *>(index),
					   raft::make_device_matrix_view<const float, int64_t>(queries, count, dims),
					   raft::make_device_matrix_view<int64_t, int64_t>(ids, count, k),
					   raft::make_device_matrix_view<float, int64_t>(distances, count, k));
	});
}

extern "C" const char *
peer_rabitq_free(void *index)
{
	return guarded([&] { delete static_cast<Index *>(index); });
}
