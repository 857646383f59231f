/*
 * conformance_model.c
 *		The oracle: vectors, the exact distance, exact search and the reference
 *		walk, as plainly as they can be said.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

#define CENTRES			40

const Pair pairs[PAIRS] = {{ELEMENT_FLOAT, METRIC_L2},	   {ELEMENT_FLOAT, METRIC_IP},
						   {ELEMENT_FLOAT, METRIC_COSINE}, {ELEMENT_FLOAT, METRIC_L1},
						   {ELEMENT_HALF, METRIC_L2},	   {ELEMENT_HALF, METRIC_IP},
						   {ELEMENT_HALF, METRIC_COSINE},  {ELEMENT_HALF, METRIC_L1},
						   {ELEMENT_BIT, METRIC_HAMMING},  {ELEMENT_BIT, METRIC_JACCARD}};

/* A number that depends on nothing but its arguments. */
static uint32_t
mix(uint64_t a, uint64_t b)
{
	uint64_t	x = a * UINT64_C(0x9E3779B97F4A7C15) + b * UINT64_C(0xC2B2AE3D27D4EB4F) + 12345;

	x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
	return (uint32_t) ((x ^ (x >> 31)) >> 16);
}

/* A value that halves hold exactly, as a half. */
static uint16_t
half_of(double value)
{
	int			exponent;
	double		fraction;
	uint16_t	sign = signbit(value) ? 0x8000 : 0;

	if (value == 0)
		return sign;
	fraction = frexp(fabs(value), &exponent);	/* 0.5 <= fraction < 1 */
	return (uint16_t) (sign | (exponent + 14) << 10 | ((int) (fraction * 2048) - 1024));
}

/* Element i of a stored vector. */
static double
element_of(const World *world, const void *vector, uint32_t i)
{
	uint16_t	half;
	float		single;
	double		magnitude;

	if (world->type == ELEMENT_BIT)
		return ((const unsigned char *) vector)[i / 8] >> (7 - i % 8) & 1;
	if (world->type == ELEMENT_FLOAT)
	{
		memcpy(&single, (const char *) vector + i * sizeof(single), sizeof(single));
		return single;
	}
	memcpy(&half, (const char *) vector + i * sizeof(half), sizeof(half));
	if ((half >> 10 & 31) == 0)
		magnitude = ldexp(half & 1023, -24);
	else
		magnitude = ldexp(1024 + (half & 1023), (half >> 10 & 31) - 25);
	return half & 0x8000 ? -magnitude : magnitude;
}

static Shape
shape_of(const World *world)
{
	return (Shape) world->versions[world->room];
}

/*
 * Element i of the vector that a variant stands for: a multiple of 1/512 below
 * 4, which halves hold exactly.
 */
static double
variant_element(const World *world, uint64_t variant, uint32_t i)
{
	double		sum;
	uint64_t	centre;

	switch (shape_of(world))
	{
		case SHAPE_UNIFORM:
			return ((int) (mix(variant, i) % 2047) - 1023) / 512.0;
		case SHAPE_SMALL:
			return (int) (mix(variant, i) % 3) - 1;
		case SHAPE_EQUAL:
			return ((int) (mix(7, i) % 2047) - 1023) / 512.0;
		case SHAPE_CLUSTERED:
			break;
	}
	centre = mix(variant, 1 << 20) % CENTRES;
	sum = (int) (mix(centre + 1000000007, i) % 801) - 400;
	for (uint32_t direction = 0; direction < 8; direction++)
		sum += ((int) (mix(variant, 2000000 + direction) % 201) - 100) *
			((int) (mix(centre * 8 + direction + 77777777, i) % 201) - 100) / 50.0;
	sum += (int) (mix(variant, i) % 61) - 30;
	return floor(fmax(-2047, fmin(2047, sum))) / 1024.0;
}

/* Store an element of a vector; of bits, whether it is above 0. */
static void
store_element(const World *world, void *out, uint32_t i, double value)
{
	unsigned char *byte = (unsigned char *) out + i / 8;
	unsigned char bit = (unsigned char) (1 << (7 - i % 8));

	if (world->type == ELEMENT_BIT)
		*byte = (unsigned char) (value > 0 ? *byte | bit : *byte & ~bit);
	else if (world->type == ELEMENT_FLOAT)
		((float *) out)[i] = (float) value;
	else
		((uint16_t *) out)[i] = half_of(value);
}

/*
 * The vector that a variant stands for; of bits, those where its elements are
 * above zero.
 */
void
make_vector(const World *world, uint64_t variant, void *out)
{
	memset(out, 0, world->vector_bytes);
	for (uint32_t i = 0; i < world->dims; i++)
		store_element(world, out, i, variant_element(world, variant, i));
}

void
world_set_element(World *world, uint32_t slot, uint32_t i, double value)
{
	store_element(world, world->vectors + slot * world->vector_bytes, i, value);
}

/*
 * Make vectors and an empty mirror for them. Vector `slot` is variant `slot`.
 */
World *
world_create_of(const MirrorSpec *spec, uint32_t room, Shape shape)
{
	World	   *world = allocate(sizeof(*world));
	EngineError error = {0};
	EngineStatus status;

	world->type = spec->type;
	world->metric = spec->metric;
	world->dims = spec->dims;
	world->room = room;
	world->degree = spec->degree;
	world->spec = *spec;
	world->vector_bytes = engine_vector_bytes(spec->type, spec->dims);
	world->vectors = allocate(room * world->vector_bytes);
	world->versions = allocate((room + 1) * sizeof(uint32_t));
	world->live = allocate(room + 1);
	world->versions[room] = (uint32_t) shape;	/* behind the rows' */
	for (uint32_t slot = 0; slot < room; slot++)
	{
		world->versions[slot] = 1;
		world->live[slot] = true;
		make_vector(world, slot, world->vectors + slot * world->vector_bytes);
	}
	status = ops->mirror_create(engine, spec, &world->mirror, &error);
	if (status == ENGINE_UNSUPPORTED && spec->method == METHOD_IVFPQ)
		skip("%s", error.text);
	must(status, &error, "mirror_create");
	return world;
}

World *
world_create(ElementType type, Metric metric, uint32_t dims, uint32_t room, uint32_t capacity,
			 Shape shape)
{
	return world_create_in(RESIDENCY_FULL, type, metric, dims, room, capacity, shape);
}

World *
world_create_in(Residency residency, ElementType type, Metric metric, uint32_t dims, uint32_t room,
				uint32_t capacity, Shape shape)
{
	MirrorSpec spec = {.dims = dims,
					   .type = type,
					   .metric = metric,
					   .method = METHOD_GRAPH,
					   .degree = 32,
					   .capacity = capacity,
					   .residency = residency,
					   .placement = PLACEMENT_SINGLE,
					   .device = -1};

	return world_create_of(&spec, room, shape);
}

World *
world_create_of_degree(uint32_t degree, ElementType type, Metric metric, uint32_t dims,
					   uint32_t room, uint32_t capacity, Shape shape)
{
	MirrorSpec spec = {.dims = dims,
					   .type = type,
					   .metric = metric,
					   .method = METHOD_GRAPH,
					   .degree = degree,
					   .capacity = capacity,
					   .residency = RESIDENCY_FULL,
					   .placement = PLACEMENT_SINGLE,
					   .device = -1};

	return world_create_of(&spec, room, shape);
}

World *
world_create_lists(const ListSpec *lists, ElementType type, Metric metric, uint32_t dims,
				   uint32_t room, uint32_t capacity, Shape shape)
{
	return world_create_lists_in(RESIDENCY_FULL, lists, type, metric, dims, room, capacity, shape);
}

World *
world_create_lists_in(Residency residency, const ListSpec *lists, ElementType type, Metric metric,
					  uint32_t dims, uint32_t room, uint32_t capacity, Shape shape)
{
	MirrorSpec spec = {.dims = dims,
					   .type = type,
					   .metric = metric,
					   .method = METHOD_IVFPQ,
					   .degree = 1,
					   .capacity = capacity,
					   .residency = residency,
					   .placement = PLACEMENT_SINGLE,
					   .device = -1,
					   .lists = *lists};

	return world_create_of(&spec, room, shape);
}

const void *
world_vector(const World *world, uint32_t slot)
{
	return world->vectors + slot * world->vector_bytes;
}

/* Replace a slot's vector in the table (not in the mirror). */
void
world_set_vector(World *world, uint32_t slot, uint64_t variant)
{
	make_vector(world, variant, world->vectors + slot * world->vector_bytes);
}

static double
fold(const double *channel)
{
	return ((channel[0] + channel[4]) + (channel[2] + channel[6])) +
		   ((channel[1] + channel[5]) + (channel[3] + channel[7]));
}

/* The distance of bits, bit by bit. */
static double
model_bit_distance(const World *world, const void *a, const void *b)
{
	uint32_t	both = 0,
				either = 0;

	for (uint32_t i = 0; i < world->dims; i++)
	{
		bool		x = element_of(world, a, i) != 0;
		bool		y = element_of(world, b, i) != 0;

		both += x && y;
		either += x || y;
	}
	if (world->metric == METRIC_HAMMING)
		return either - both;
	return both == 0 ? 1 : 1 - (double) both / either;
}

/*
 * The exact distance (I10). The products are made volatile so that no compiler
 * contracts them.
 */
double
model_distance(const World *world, const void *a, const void *b)
{
	double		cross[8] = {0},
				aa[8] = {0},
				bb[8] = {0};
	double		norms;
	double		result;

	if (world->type == ELEMENT_BIT)
		return model_bit_distance(world, a, b);
	for (uint32_t i = 0; i < world->dims; i++)
	{
		double		x = element_of(world, a, i);
		double		y = element_of(world, b, i);
		volatile double product = world->metric == METRIC_L2   ? (x - y) * (x - y)
								  : world->metric == METRIC_L1 ? fabs(x - y)
															   : x * y;
		volatile double xx = x * x;
		volatile double yy = y * y;

		cross[i % 8] += product;
		aa[i % 8] += xx;
		bb[i % 8] += yy;
	}
	if (world->metric == METRIC_L2 || world->metric == METRIC_L1)
		return fold(cross);
	if (world->metric == METRIC_IP)
		return -fold(cross);
	norms = sqrt(fold(aa) * fold(bb));
	if (norms == 0)
		return INFINITY;
	{
		volatile double quotient = fold(cross) / norms;

		result = 1 - quotient;
	}
	return result;
}

static int
compare_results(const void *left, const void *right)
{
	const SearchResult *a = left;
	const SearchResult *b = right;

	if (a->distance < b->distance)
		return -1;
	if (a->distance > b->distance)
		return 1;
	return a->slot < b->slot ? -1 : a->slot > b->slot;
}

/* Whether a row may be an answer. */
bool
model_passes(const World *world, const FilterProgram *program, uint32_t slot)
{
	uint32_t	bytes = filter_record_bytes(world->spec.column_kinds, world->spec.columns);
	FilterRows	rows;
	uint64_t	passes;

	filter_record_rows(world->spec.column_kinds, world->spec.columns,
					   world->records + (size_t) slot * bytes, 1, &rows);
	filter_run(program, &rows, FILTER_MAY, &passes);
	return passes == 1;
}

static bool
admitted(const World *world, const EngineQuery *query, uint32_t slot)
{
	if (!world->live[slot])
		return false;
	if (query->exclude != NULL && slot < query->exclude_slots &&
		(query->exclude[slot / 64] >> (slot % 64) & 1))
		return false;
	if (query->program != NULL && !model_passes(world, query->program, slot))
		return false;
	return query->filter == NULL ||
		(slot < query->filter_slots && (query->filter[slot / 64] >> (slot % 64) & 1));
}

static bool
after_bound(const EngineQuery *query, double distance, uint32_t slot)
{
	return !query->has_beyond || distance > query->beyond_distance ||
		(distance == query->beyond_distance && slot > query->beyond_slot);
}

/* The k nearest, by computing and sorting everything. */
uint32_t
model_exact(const World *world, const EngineQuery *query, uint32_t rows, SearchResult *out)
{
	SearchResult *all = malloc((rows + 1) * sizeof(SearchResult));
	uint32_t	count = 0;

	for (uint32_t slot = 0; slot < rows; slot++)
	{
		SearchResult entry = {0, slot, world->versions[slot]};

		if (!admitted(world, query, slot))
			continue;
		entry.distance = model_distance(world, query->vector, world_vector(world, slot));
		if (after_bound(query, entry.distance, slot))
			all[count++] = entry;
	}
	qsort(all, count, sizeof(SearchResult), compare_results);
	if (count > query->k)
		count = query->k;
	memcpy(out, all, count * sizeof(SearchResult));
	free(all);
	return count;
}

/* The list of a walk: sorted, at most so many. */
typedef struct WalkList
{
	SearchResult *entries;		/* version: 1 once expanded */
	uint32_t	count;
	uint32_t	room;
} WalkList;

static void
list_enter(WalkList *list, SearchResult entry)
{
	if (list->count == list->room && compare_results(&entry, &list->entries[list->count - 1]) > 0)
		return;
	if (list->count == list->room)
		list->count--;
	list->entries[list->count++] = entry;
	qsort(list->entries, list->count, sizeof(SearchResult), compare_results);
}

/*
 * Leave out of a sorted list what is neither among the first `ef` nor, of the
 * slots with its vector, the first, with fewer than `ef` such before it.
 */
static void
list_drop_copies(const World *world, WalkList *list, uint32_t ef)
{
	uint32_t	kept = 0;
	uint32_t	rows = 0;

	for (uint32_t i = 0; i < list->count; i++)
	{
		const SearchResult entry = list->entries[i];
		bool		copy = false;

		for (uint32_t j = 0; j < i && !copy; j++)
			copy = list->entries[j].distance == entry.distance &&
				memcmp(world_vector(world, list->entries[j].slot), world_vector(world, entry.slot),
					   world->vector_bytes) == 0;
		if (i < ef || (!copy && rows < ef))
			list->entries[kept++] = entry;
		rows += !copy;
	}
	list->count = kept;
}

/* What a walk has: its list, the slots seen, the answers apart. */
typedef struct Walking
{
	const World *world;
	const EngineQuery *query;
	uint32_t	ef;
	WalkList	list;			/* at most ef slots, and ef rows */
	WalkList	apart;
	bool	   *seen;
} Walking;

static void
meet(Walking *walking, uint32_t slot)
{
	SearchResult entry = {0, slot, 0};

	if (walking->seen[slot])
		return;
	walking->seen[slot] = true;
	entry.distance =
		model_distance(walking->world, walking->query->vector, world_vector(walking->world, slot));
	list_enter(&walking->list, entry);
	list_drop_copies(walking->world, &walking->list, walking->ef);
	if (admitted(walking->world, walking->query, slot) &&
		after_bound(walking->query, entry.distance, slot))
		list_enter(&walking->apart, entry);
}

/* The nearest entry not yet expanded, or NULL. */
static SearchResult *
next_of(WalkList *list)
{
	for (uint32_t i = 0; i < list->count; i++)
		if (list->entries[i].version == 0)
			return &list->entries[i];
	return NULL;
}

/* The answer of a finished walk. */
static void
walk_answer(Walking *walking, ModelWalk *walk)
{
	const EngineQuery *query = walking->query;
	bool		apart = query->has_beyond || query->exclude != NULL || query->filter != NULL;
	const WalkList *from = apart ? &walking->apart : &walking->list;

	walk->results = allocate(query->k * sizeof(SearchResult));
	for (uint32_t i = 0; i < from->count && i < walking->ef && walk->count < query->k; i++)
	{
		SearchResult entry = from->entries[i];

		entry.version = walking->world->versions[entry.slot];
		if (walking->world->live[entry.slot])
			walk->results[walk->count++] = entry;
	}
}

/* The reference walk. */
void
model_walk(const World *world, const EngineQuery *query, ModelWalk *walk)
{
	uint32_t	tried = query->seeds > 0 ? query->seeds : ENGINE_SEEDS_TRIED;
	uint32_t	ef = query->ef > query->k ? query->ef : query->k;
	uint32_t   *rows = allocate((size_t) world->rows * world->degree * sizeof(uint32_t));
	uint32_t   *slots = allocate(world->rows * sizeof(uint32_t));
	uint32_t   *versions = allocate(world->rows * sizeof(uint32_t));
	Walking		walking = {world,			  query, ef, {NULL, 0, 2 * ef + 1}, {NULL, 0, ef},
						   allocate(world->rows)};
	SearchResult *next;
	EngineError error = {0};

	memset(walk, 0, sizeof(*walk));
	walking.list.entries = allocate((2 * ef + 1) * sizeof(SearchResult));
	walking.apart.entries = allocate((ef + 1) * sizeof(SearchResult));
	for (uint32_t slot = 0; slot < world->rows; slot++)
		slots[slot] = slot;
	must(ops->mirror_rows(engine, world->mirror, slots, world->rows, rows, versions, &error),
		 &error, "mirror_rows");
	for (uint32_t i = 0; i < world->nseeds && i < tried; i++)
		meet(&walking, world->seeds[i]);
	while ((next = next_of(&walking.list)) != NULL &&
		   (query->max_iterations == 0 || walk->expanded < query->max_iterations))
	{
		const uint32_t *row = rows + (size_t) next->slot * world->degree;

		next->version = 1;
		walk->expanded++;
		for (uint32_t i = 0; i < world->degree && row[i] != NO_SLOT; i++)
			meet(&walking, row[i]);
	}
	walk_answer(&walking, walk);
}
