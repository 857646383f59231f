/*
 * lists_code_test.cu
 *		Adding rows to lists and training (cuda/lists/lists_code.h,
 *		lists_learn.h), compared with src/engine/quantizer: to the byte
 *		converted rows, nearest centroids, codes of every kind, number of bits,
 *		metric and odd numbers of dimensions; by their distance from rows
 *		trained centroids and codebooks; on vectors that are hard for rounding
 *		and ties.
 *
 * Prints TAP. Linked with the engine's objects. For a device: make
 * test/build/lists_code_device.
 */
#include <cmath>
#include <cstring>
#include <vector>

#include <cuda_fp16.h>

#include "cuda/lists/lists_learn.h"
#include "cuda/tests/testing.cuh"

extern "C"
{
#include "engine/distance.h"
#include "engine/quantizer/nearest.h"
}

#ifdef EMULATED
#define ROWS 150u
#define LISTS 140u
#else
#define ROWS 4000u
#define LISTS 600u
#endif

static cudaStream_t stream;
static cudaDeviceProp device;
static ListsLimits limits;

/* Kinds of test vectors. */
enum Making
{
	MADE_CLUSTERED,
	MADE_WHOLE,	   /* small integers: many equal distances */
	MADE_FAR,	   /* far from the origin, compared with their distances */
	MADE_EXTREME,  /* zeros, denormal and huge elements */
	MADE_OF		   /* number of kinds */
};

static const char *const making_names[MADE_OF] = {"clustered", "whole numbers", "far away",
												  "extremes"};

/* Copy through the stream that the kernels run in, and wait for it. */
static void
copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
	must(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
	must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

/*
 * A copy of an array in device memory. It is filled by the stream that the
 * kernels run in: this waits for no other, and memory that the default stream
 * fills may be filled when kernels have read or written it.
 */
template <typename T>
struct OnDevice
{
	T *at = NULL;
	size_t count;

	explicit OnDevice(size_t n) : count(n)
	{
		must(cudaMalloc((void **) &at, (n > 0 ? n : 1) * sizeof(T)), "cudaMalloc");
		must(cudaMemsetAsync(at, 0xA5, n * sizeof(T), stream), "cudaMemsetAsync");
	}

	explicit OnDevice(const std::vector<T> &from) : OnDevice(from.size())
	{
		copy(at, from.data(), count * sizeof(T), cudaMemcpyHostToDevice);
	}

	OnDevice(const OnDevice &) = delete;
	OnDevice &operator=(const OnDevice &) = delete;

	~OnDevice()
	{
		cudaFree(at);
	}

	std::vector<T>
	back() const
	{
		std::vector<T> copied(count);

		copy(copied.data(), at, count * sizeof(T), cudaMemcpyDeviceToHost);
		return copied;
	}
};

/* Approximately normal. */
static float
random_normal()
{
	float sum = 0;

	for (int i = 0; i < 4; i++)
		sum += (float) ((int32_t) random_bits() * (1.0 / 2147483648.0));
	return sum;
}

static float
extreme_element(uint32_t row)
{
	static const float sizes[] = {0, 1e-42f, 1e-30f, 1e-10f, 1, 1e10f, 1e16f, 1e19f, 3e38f};

	return random_normal() * sizes[row % 9] * 0.25f + (row % 11 == 0 ? 1.0f : 0.0f);
}

static std::vector<float>
make_vectors(uint32_t count, uint32_t dims, Making making)
{
	std::vector<float> vectors((size_t) count * dims);

	for (uint32_t row = 0; row < count; row++)
		for (uint32_t i = 0; i < dims; i++)
			vectors[(size_t) row * dims + i] =
				making == MADE_CLUSTERED ? random_normal() + (float) ((row * 7 + i * 3) % 5)
				: making == MADE_WHOLE	 ? (float) random_below(3)
				: making == MADE_FAR	 ? 1e4f + random_normal()
										 : extreme_element(row);
	return vectors;
}

/* ---- rows ---------------------------------------------------------------- */

/* The bits of a half, for values that half precision represents exactly. */
static uint16_t
half_of(float value)
{
	__half half = __float2half_rn(value);
	uint16_t bits;

	memcpy(&bits, &half, sizeof(bits));
	return bits;
}

static bool
widens(ElementType type, Metric metric, uint32_t dims, bool by_slots)
{
	uint32_t bytes = type == ELEMENT_HALF ? 2 : 4;
	uint32_t stride = (dims * bytes + 15) / 16 * 16;
	uint32_t count = 40;
	const DistanceKernels *kernels = distance_kernels(type, metric, SIMD_BEST);
	std::vector<float> made = make_vectors(count, dims, MADE_CLUSTERED);
	std::vector<unsigned char> stored((size_t) count * stride, 0);
	std::vector<uint32_t> slots(count);
	std::vector<float> wanted((size_t) count * dims);

	memset(made.data(), 0, dims * sizeof(float)); /* zero length */
	for (uint32_t row = 0; row < count; row++)
	{
		slots[row] = by_slots ? (row * 7 + 3) % count : row;
		for (uint32_t i = 0; i < dims; i++)
		{
			float value = made[(size_t) row * dims + i];
			uint16_t half = half_of(value);

			memcpy(&stored[(size_t) row * stride + i * bytes],
				   type == ELEMENT_HALF ? (const void *) &half : &value, bytes);
		}
	}
	for (uint32_t row = 0; row < count; row++)
	{
		float *to = &wanted[(size_t) row * dims];

		kernels->widen(&stored[(size_t) slots[row] * stride], dims, to);
		if (metric == METRIC_COSINE)
			quantizer_make_unit(to, dims);
	}

	OnDevice<unsigned char> vectors(stored);
	OnDevice<uint32_t> which(slots);
	OnDevice<float> rows((size_t) count * dims);
	MirrorView mirror = {};
	std::vector<float> got;

	mirror.vectors = vectors.at;
	mirror.stride = stride;
	mirror.dims = dims;
	mirror.type = type;
	mirror.metric = metric;
	must(lists_widen(&mirror, by_slots ? which.at : NULL, 0, count, rows.at, stream),
		 "lists_widen");
	got = rows.back();
	return memcmp(got.data(), wanted.data(), got.size() * sizeof(float)) == 0;
}

static void
test_widening()
{
	static const uint32_t dims[] = {1, 3, 31, 128, 1000};
	bool good = true;

	for (uint32_t d : dims)
		for (int i = 0; i < 8; i++)
			good &= widens(i & 1 ? ELEMENT_HALF : ELEMENT_FLOAT,
						   i & 2 ? METRIC_COSINE : METRIC_L2, d, (i & 4) != 0);
	say(good, "rows are widened, to length one under cosine, as on the processor");
}

/* ---- nearest centroids --------------------------------------------------- */

/* The same centroids for both implementations. */
struct BothCentroids
{
	std::vector<float> floats;
	std::vector<unsigned char> memory;
	Centroids set;
	OnDevice<float> on_device;
	OnDevice<float> half_norms;

	BothCentroids(const std::vector<float> &made, uint32_t lists, uint32_t dims)
		: floats(made), memory(centroids_bytes(lists, dims) + 64), on_device(made),
		  half_norms(lists)
	{
		uintptr_t at = ((uintptr_t) memory.data() + 63) / 64 * 64;

		centroids_init(&set, floats.data(), lists, dims, (void *) at);
		must(lists_half_norms(on_device.at, lists, dims, half_norms.at, stream),
			 "lists_half_norms");
	}
};

/* Assign rows by both implementations and compare. */
static bool
assigns(const std::vector<float> &made, const std::vector<float> &centroids, uint32_t lists,
		uint32_t dims)
{
	uint32_t count = (uint32_t) (made.size() / dims);
	BothCentroids both(centroids, lists, dims);
	OnDevice<float> rows(made);
	OnDevice<uint32_t> nearest(count);
	OnDevice<double> distances(count);
	OnDevice<unsigned char> scratch(lists_assign_bytes(lists, dims, count));
	std::vector<uint32_t> wanted(count);
	std::vector<double> wanted_distances(count);
	ListsAssign assign = {both.on_device.at, lists,		dims,		  rows.at,
						  count,			 nearest.at, distances.at, scratch.at,
						  &limits,			 stream};
	std::vector<uint32_t> got;
	std::vector<double> got_distances;
	bool good = true;

	must(lists_assign(&assign), "lists_assign");
	got = nearest.back();
	got_distances = distances.back();
	centroids_nearest(&both.set, made.data(), dims, count, wanted.data(), wanted_distances.data());
	for (uint32_t row = 0; row < count && good; row++)
	{
		good = got[row] == wanted[row] && got_distances[row] == wanted_distances[row];
		if (!good)
			printf("# row %u: list %u at %.17g, wanted %u at %.17g\n", row, got[row],
				   got_distances[row], wanted[row], wanted_distances[row]);
	}
	return good && memcmp(both.half_norms.back().data(), both.set.half_norms,
						  lists * sizeof(float)) == 0;
}

static void
test_assignment()
{
	static const uint32_t dims[] = {1, 3, 31, 127, 128, 384, 768, 1000, 4096};

	for (int making = 0; making < MADE_OF; making++)
	{
		char name[100];
		bool good = true;

		for (uint32_t d : dims)
		{
			static const uint32_t some[] = {1, 7, LISTS};

			for (uint32_t lists : some)
			{
				uint32_t rows = d > 1000 ? ROWS / 5 : ROWS;
				std::vector<float> made = make_vectors(rows, d, (Making) making);
				std::vector<float> centroids = make_vectors(lists, d, (Making) making);

				/* some equal centroids, and rows equal to centroids */
				for (uint32_t list = 4; list < lists; list += 9)
					memcpy(&centroids[(size_t) list * d], &centroids[(size_t) (list / 2) * d],
						   d * sizeof(float));
				for (uint32_t row = 0; row < rows; row += 5)
					memcpy(&made[(size_t) row * d], &centroids[(size_t) (row % lists) * d],
						   d * sizeof(float));
				if (!assigns(made, centroids, lists, d))
				{
					printf("# %u lists of %u dimensions\n", lists, d);
					good = false;
				}
			}
		}
		snprintf(name, sizeof(name), "nearest centroids, of vectors that are %s",
				 making_names[making]);
		say(good, name);
	}
}

#ifndef EMULATED
/* More rows than one launch processes. */
static void
test_pieces()
{
	uint32_t dims = 4096;

	say(assigns(make_vectors(9000, dims, MADE_CLUSTERED), make_vectors(9, dims, MADE_CLUSTERED), 9,
				dims),
		"nearest centroids, in several launches");
}
#endif

/* All centroids equal: every row has more notes than NOTES. */
static void
test_equal()
{
	uint32_t dims = 20;
	std::vector<float> one = make_vectors(1, dims, MADE_CLUSTERED);
	std::vector<float> centroids;

	for (uint32_t list = 0; list < LISTS; list++)
		centroids.insert(centroids.end(), one.begin(), one.end());
	say(assigns(make_vectors(ROWS, dims, MADE_CLUSTERED), centroids, LISTS, dims),
		"of equal centroids the first is the nearest");
}

/* ---- codes --------------------------------------------------------------- */

/* Encode rows by both implementations. */
static bool
encodes(const QuantizerShape &shape, Making making)
{
	uint32_t lists = 5,
			 count = shape.dims > 1000 ? 20 : 60,
			 rotations = shape.kind == QUANTIZER_RABITQ ? 2 : 1;
	size_t bytes = quantizer_code_bytes(&shape);
	std::vector<float> centroids = make_vectors(lists, shape.dims, making);
	std::vector<float> made = make_vectors(count, shape.dims, making);
	std::vector<float> codebook = make_vectors(1u << shape.bits, shape.dims, MADE_CLUSTERED);
	std::vector<uint32_t> numbers(count),
		rotation(rotations * shape.dims);
	std::vector<unsigned char> wanted(count * bytes, 0xA5);
	Quantizer *quantizer = quantizer_open(&shape, codebook.data());
	ListsView view = {};

	for (uint32_t row = 0; row < count; row++)
	{
		numbers[row] = row % 13 == 12 ? NO_SLOT : row % lists;
		if (row % 6 == 5 && numbers[row] != NO_SLOT)
			memcpy(&made[(size_t) row * shape.dims],
				   &centroids[(size_t) numbers[row] * shape.dims], shape.dims * sizeof(float));
		if (numbers[row] != NO_SLOT)
			quantizer_encode(quantizer, &centroids[(size_t) numbers[row] * shape.dims],
							 &made[(size_t) row * shape.dims], 1, &wanted[row * bytes]);
	}
	quantizer_close(quantizer);
	for (uint32_t at = 0; at < rotations; at++)
		rotation_make(shape.seed + at, shape.dims, &rotation[at * shape.dims]);

	OnDevice<float> on_centroids(centroids),
		on_rows(made),
		on_codebook(codebook);
	OnDevice<uint32_t> on_numbers(numbers),
		on_rotation(rotation),
		codes(count * bytes / 4);
	std::vector<uint32_t> got;

	view.shape = shape;
	view.lists = lists;
	view.code_words = (uint32_t) (bytes / 4);
	view.centroids = on_centroids.at;
	view.codebook = on_codebook.at;
	view.rotation = on_rotation.at;
	must(lists_encode(&view, on_rows.at, on_numbers.at, count, codes.at, stream), "lists_encode");
	got = codes.back();
	for (uint32_t row = 0; row < count; row++)
		for (size_t i = 0; i < bytes && numbers[row] != NO_SLOT; i++)
			if (((unsigned char *) got.data())[row * bytes + i] != wanted[row * bytes + i])
			{
				printf(
					"# %u dimensions, metric %d, %u bits, %u parts: row %u, byte %zu of %zu: %d, not %d\n",
					shape.dims, (int) shape.metric, shape.bits, shape.parts, row, i, bytes,
					((unsigned char *) got.data())[row * bytes + i], wanted[row * bytes + i]);
				return false;
			}
	return true;
}

/* All metrics, and all kinds of vectors. */
static bool
encodes_all(QuantizerKind kind, uint32_t dims, uint32_t bits, uint32_t parts)
{
	static const Metric metrics[] = {METRIC_L2, METRIC_IP, METRIC_COSINE};
	bool good = true;

	for (Metric metric : metrics)
		for (int making = 0; making < MADE_OF; making++)
		{
			QuantizerShape shape = {kind, metric, dims, bits, parts, 77};

			if (metric == METRIC_L2 || making == MADE_CLUSTERED)
				good &= encodes(shape, (Making) making);
		}
	return good;
}

static void
test_codes()
{
	static const uint32_t dims[] = {1, 3, 31, 127, 128, 384, 768, 1000, 4096};
	bool int8 = true,
		 rabitq[9],
		 pq[2] = {true, true};

	for (uint32_t bits = 1; bits <= 8; bits++)
		rabitq[bits] = true;
	for (uint32_t d : dims)
	{
		static const uint32_t parts[] = {1, 2, 5, 16, 64, 1000};

		int8 &= encodes_all(QUANTIZER_INT8, d, 8, 0);
		for (uint32_t bits = 1; bits <= 8; bits++)
			if (d <= 128 || bits % 4 == 1 || bits == 8)
				rabitq[bits] &= encodes_all(QUANTIZER_RABITQ, d, bits, 0);
		for (uint32_t p : parts)
			if (p <= d && (p > 1 || d <= 128))
			{
				pq[0] &= encodes_all(QUANTIZER_PQ, d, 4, p);
				pq[1] &= d > 1000 || encodes_all(QUANTIZER_PQ, d, 8, p);
			}
	}
	say(int8, "codes of int8");
	for (uint32_t bits = 1; bits <= 8; bits++)
	{
		char name[40];

		snprintf(name, sizeof(name), "codes of rabitq, %u bits", bits);
		say(rabitq[bits], name);
	}
	say(pq[0], "codes of pq, 4 bits");
	say(pq[1], "codes of pq, 8 bits");
}

/* ---- blocks -------------------------------------------------------------- */

static void
test_places()
{
	uint32_t words = 7,
			 count = 100,
			 blocks = 6;
	ListsView view = {};
	std::vector<uint32_t> codes(count * words),
		slots(count),
		places(count),
		wanted((size_t) blocks * 32 * (words + 1), 0xA5A5A5A5u),
		got;

	view.code_words = words;
	view.block_words = 32 * (words + 1);
	for (uint32_t row = 0; row < count; row++)
	{
		slots[row] = 1000 + row;
		places[row] = row % 10 == 3 ? NO_SLOT : row * 37 % (blocks * 32);
		for (uint32_t w = 0; w < words; w++)
			codes[row * words + w] = random_bits();
		if (places[row] == NO_SLOT)
			continue;

		uint32_t *block = &wanted[(size_t) (places[row] / 32) * view.block_words];

		block[places[row] % 32] = row % 3 == 0 ? NO_SLOT : slots[row];
		for (uint32_t w = 0; w < words; w++)
			block[32 + w * 32 + places[row] % 32] = codes[row * words + w];
	}

	OnDevice<uint32_t> on_codes(codes),
		on_slots(slots),
		on_places(places),
		memory(wanted.size());

	must(lists_place(&view, memory.at, on_codes.at, on_slots.at, on_places.at, count, stream),
		 "lists_place");
	for (uint32_t row = 0; row < count; row++)
		places[row] = row % 3 == 0 ? places[row] : NO_SLOT;

	OnDevice<uint32_t> cleared(places);

	must(lists_clear_places(&view, memory.at, cleared.at, count, stream), "lists_clear_places");
	got = memory.back();
	say(got == wanted, "codes and slots are at their places, and holes where rows have left");
}

/* ---- training ------------------------------------------------------------ */

/* A training's floats, the sample as it left it, and its inertia. */
struct Learned
{
	std::vector<float> floats;
	std::vector<float> sample;
	double inertia;
};

/* How far vectors are from centroids: the sum of squared distances. */
static double
distance_from(const float *vectors, size_t stride, uint32_t count, const float *centroids,
			  uint32_t lists, uint32_t dims)
{
	std::vector<uint32_t> nearest(NEAREST_ROWS);
	std::vector<double> distances(NEAREST_ROWS);
	void *memory = aligned_alloc(64, (centroids_bytes(lists, dims) + 63) / 64 * 64);
	Centroids set;
	double sum = 0;

	centroids_init(&set, centroids, lists, dims, memory);
	for (uint32_t row = 0; row < count; row += NEAREST_ROWS)
	{
		uint32_t some = count - row < NEAREST_ROWS ? count - row : NEAREST_ROWS;

		centroids_nearest(&set, vectors + row * stride, stride, some, nearest.data(),
						  distances.data());
		for (uint32_t i = 0; i < some; i++)
			sum += distances[i];
	}
	free(memory);
	return sum;
}

/* How far residuals are from their codewords. */
static double
distance_from_words(const ListsTraining &training, const Learned &learned)
{
	const QuantizerShape &shape = training.shape;
	const float *codebook = &learned.floats[(size_t) training.lists * shape.dims];
	uint32_t words = 1u << shape.bits;
	double sum = 0;

	for (uint32_t part = 0; part < shape.parts; part++)
	{
		uint32_t begin = (uint32_t) ((uint64_t) shape.dims * part / shape.parts);
		uint32_t end = (uint32_t) ((uint64_t) shape.dims * (part + 1) / shape.parts);

		sum += distance_from(&learned.sample[begin], shape.dims,
							 (uint32_t) (learned.sample.size() / shape.dims),
							 codebook + (size_t) begin * words, words, end - begin);
	}
	return sum;
}

/* Train on the device; false: its progress is not as promised. */
static bool
learn_there(const ListsTraining &training, uint32_t count, Learned *learned)
{
	size_t nfloats = lists_floats(&training.shape, training.lists);
	OnDevice<unsigned char> memory(lists_learn_bytes(&training, count));
	ListsLearn *learn = lists_learn_begin(&training, memory.at, count, &limits, stream);
	size_t bytes = learned->sample.size() * sizeof(float);
	std::vector<float> got(lists_learn_inertia(nfloats) + 2);
	uint32_t done = 0,
			 total = 0,
			 before = 0;
	bool over = false,
		 grows = true;

	copy(memory.at, learned->sample.data(), bytes, cudaMemcpyHostToDevice);
	while (!over)
	{
		must(lists_learn_step(learn, &over, &done, &total), "lists_learn_step");
		must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
		grows &= done <= total && done == before + !over;
		before = done;
	}
	copy(got.data(), lists_learn_floats(learn), got.size() * sizeof(float), cudaMemcpyDeviceToHost);
	copy(learned->sample.data(), memory.at, bytes, cudaMemcpyDeviceToHost);
	lists_learn_end(learn);
	learned->floats.assign(got.begin(), got.begin() + (ptrdiff_t) nfloats);
	memcpy(&learned->inertia, &got[lists_learn_inertia(nfloats)], sizeof(double));
	return grows && done == total;
}

/*
 * Train on both sides; adds both inertias to sums, under pq how far residuals
 * are from codewords. A device's centroids are means of the rows that its
 * inertia is of, so they are no farther from the rows.
 */
static bool
learns(const ListsTraining &training, uint32_t count, Making making, double sums[2])
{
	uint32_t dims = training.shape.dims;
	std::vector<float> sample = make_vectors(count, dims, making);
	Learned got = {{}, sample, 0},
			wanted = got;
	bool good = learn_there(training, count, &got);
	double left = distance_from(sample.data(), dims, count, got.floats.data(), training.lists,
								dims);

	wanted.floats.resize(got.floats.size());
	good &= lists_train(&training, wanted.sample.data(), count, wanted.floats.data(),
						&wanted.inertia) == ENGINE_OK;
	good &= left <= got.inertia * (1 + 1e-6);
	if (training.shape.kind == QUANTIZER_PQ)
	{
		sums[0] += distance_from_words(training, got);
		sums[1] += distance_from_words(training, wanted);
	}
	else
	{
		sums[0] += got.inertia;
		sums[1] += wanted.inertia;
	}
	if (!good)
		printf("# %s, %u rows of %u dimensions, %u lists: inertia %.17g, then %.17g\n",
			   making_names[making], count, dims, training.lists, got.inertia, left);
	return good;
}

/* With lists and rows of two kinds of vectors; also with balancing. */
static bool
learns_lists(uint32_t dims, uint32_t lists, uint32_t count, double sums[2])
{
	bool good = true;

	for (int i = 0; i < 4; i++)
	{
		ListsTraining training = {{QUANTIZER_INT8, METRIC_L2, dims, 8, 0, 5 + dims}, lists, 6,
								  (i & 1) != 0, NULL};

		good &= learns(training, count, i & 2 ? MADE_WHOLE : MADE_CLUSTERED, sums);
	}
	return good;
}

static bool
learns_codebook(uint32_t dims, uint32_t parts, uint32_t bits, uint32_t count, Making making,
				double sums[2])
{
	ListsTraining training = {{QUANTIZER_PQ, METRIC_L2, dims, bits, parts, 9}, 7, 3, false, NULL};

	return learns(training, count, making, sums);
}

/* Whether sums of distances are within 1 % of the CPU's, or less. */
static bool
as_near(const double sums[2])
{
	if (sums[0] > sums[1] * 1.01)
		printf("# the sum of distances is %.17g, the CPU's %.17g\n", sums[0], sums[1]);
	return sums[0] <= sums[1] * 1.01;
}

static void
test_training()
{
	double lists[2] = {},
		   few[2] = {},
		   words[2] = {};
	bool good = learns_lists(1, 9, 100, lists) && learns_lists(3, 60, 400, lists) &&
				learns_lists(31, 40, 700, lists) && learns_lists(130, 10, 90, lists);

	say(good && as_near(lists), "centroids are as near to rows as the CPU's");
	good = learns_lists(5, 50, 30, few) && learns_lists(4, 1, 1, few) &&
		   learns_lists(2, 200, 200, few);
	say(good && few[0] == 0, "with fewer rows than lists, or as many, no row is apart from them");
	good = learns_codebook(10, 3, 4, 9000, MADE_CLUSTERED, words) &&
		   learns_codebook(70, 66, 4, 300, MADE_CLUSTERED, words) &&
		   learns_codebook(9, 9, 4, 400, MADE_WHOLE, words) &&
		   learns_codebook(140, 1, 4, 300, MADE_CLUSTERED, words) &&
		   learns_codebook(5, 2, 8, 900, MADE_CLUSTERED, words) &&
		   learns_codebook(6, 2, 8, 500, MADE_WHOLE, words);
	say(good && as_near(words), "codewords of pq are as near to residuals as the CPU's");
}

int
main()
{
	must(cudaSetDevice(0), "cudaSetDevice");
	must(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
	must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
	must(lists_code_prepare(&device, &limits), "lists_code_prepare");
	test_widening();
	test_assignment();
	test_equal();
#ifndef EMULATED
	test_pieces();
#endif
	test_codes();
	test_places();
	test_training();
	must(cudaStreamDestroy(stream), "cudaStreamDestroy");
	printf("1..%u\n", tests);
	return failures > 0;
}
