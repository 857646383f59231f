/*
 * lists_search.cu
 *		Launching searches of lists, in parts that fit into the state memory.
 *
 * A part of many queries takes eleven launches, plus two for each factor of 16
 * by which the longest list exceeds 256 blocks: prepare (lists_prepare.cu),
 * coarse, choose, starts, sort (lists_probe.cu), two scans with a limit between
 * them (lists_scan.cu, lists_limit.cu), a limit and a scan for queries whose
 * buffers overflowed, answer (lists_answer.cu). Starts and sort are skipped
 * where few queries probe the same list, the limits and all but one scan where
 * few queries scan few rows.
 */
#include "cuda/lists/lists_estimate.cuh"
#include "cuda/lists/lists_halves.cuh"

#define FEW_PAIRS 2u		/* per list, on average; up to this many pairs are scanned one by one */
static_assert(FEW_PAIRS * ENGINE_MAX_LISTS <= 65535, "pairs are a dimension of a grid");

#define PRODUCTS_QUERIES 256u /* from this many on tensor cores choose lists: of 4,096 lists of 128
							   * dimensions an H200 searches 16 for 128 queries in 167 us, without
							   * products in 162, and for 256 in 243 and 252 */
#define ITEM_BLOCKS 64u		/* blocks of an item; with few pairs items are smaller, */
#define FEW_ITEM_BLOCKS 8u
#define MAX_ITEMS 128u		/* at most this many per list */
#define ROOM_MIN 1024u	/* capacity of a query's buffer in rows: 16 x need, at least this with
							 * close bounds, */
#define ROOM_WIDE 4096u		/* this with wide bounds; */
#define ROOM_MAX 8192u		/* at most this, or 4 x need; */
#define ROOM_FEW 16384u		/* at least this with few queries */
#define FEW_QUERIES 64u
#define SINGLE_ROWS 4096u	/* mean number of rows that a query probes up to which they are scanned
							 * in one phase, */
#define SINGLE_QUERIES 16u	/* for up to this many queries */

/* Upper bound of `need` of a launch's queries. */
static uint32_t
most_need(uint32_t max_k, uint32_t max_rerank)
{
	uint32_t reranked = max_rerank < LISTS_MAX_RERANK ? max_rerank : LISTS_MAX_RERANK;

	return max_k > reranked ? max_k : reranked;
}

/* Capacity of a query's buffer in rows, for a number of queries. */
static uint32_t
room_of(const ListsView *lists, uint32_t need, uint32_t queries)
{
	uint32_t room = power_of_two(16 * need);
	uint32_t least = lists_wide(lists->shape) ? ROOM_WIDE : ROOM_MIN;
	uint32_t most = 4 * need > ROOM_MAX ? power_of_two(4 * need) : ROOM_MAX;

	room = room < least ? least : room > most ? most : room;
	return queries <= FEW_QUERIES && room < ROOM_FEW ? ROOM_FEW : room;
}

/*
 * Choose the phases of the scan: one for few queries with few rows; else as
 * many as the longest list needs. Buffers are sized for mean lists plus the
 * longest; queries that overflow anyway, because several of their lists are
 * long, fall back to lists_answer.cu, which is slow.
 */
static void
set_phases(const ListsView *lists, uint32_t queries, ListsPart *part)
{
	uint64_t rows =
		(uint64_t) part->max_list_probes * lists->all_blocks / lists->lists * LIST_PLACES;

	part->overflows = rows + (uint64_t) lists->longest * LIST_PLACES > part->room;
	part->phases = 1;
	if (!part->overflows && rows <= SINGLE_ROWS && queries <= SINGLE_QUERIES)
		return;
	part->phases = 2;
	while (part->phases < LISTS_MAX_PHASES && phase_begin(*part, part->phases, 0) < lists->longest)
		part->phases++;
}

/* Sizes in bytes per query or part, multiples of 16. */
struct PartSizes
{
	size_t query;
	size_t asked;
	size_t number;
	size_t raw; /* only if separate from `vector` */
	size_t vector;
	size_t table;
	size_t halves; /* this and span only for products */
	size_t span;
	size_t values;
	size_t found; /* before that, the coarse values */
	size_t probes;
	size_t ranks;
	size_t sorted;
	size_t counts;
	size_t starts;
	size_t items;
	size_t again; /* followed by one number per query */
};

static PartSizes
part_sizes(const ListsView *lists, uint32_t max_probes, uint32_t room, uint32_t phases,
		   bool products)
{
	size_t found = round_up(room * sizeof(ListsFound), 16);
	size_t vector = round_up(lists->shape.dims * sizeof(float), 32);
	PartSizes sizes;

	sizes.query = sizeof(ListsQuery);
	sizes.asked = sizeof(DeviceQuery);
	sizes.number = 16;
	sizes.raw = lists->shape.metric == METRIC_COSINE ? vector : 0;
	sizes.vector = vector;
	sizes.table = round_up(lists_table_words(&lists->shape) * sizeof(uint32_t), 16);
	sizes.halves = products ? round_up(lists->shape.dims, TILE_HALVES) * sizeof(__half) : 0;
	sizes.span = products ? round_up(sizeof(RowSpan), 16) : 0;
	sizes.values = round_up(lists->lists * sizeof(float), 16);
	sizes.found = sizes.values > found ? sizes.values : found;
	sizes.probes = sizes.sorted = round_up(max_probes * sizeof(ListsPair), 16);
	sizes.ranks = round_up(max_probes * sizeof(uint32_t), 16);
	sizes.counts = round_up((2 * (size_t) lists->lists + LISTS_MAX_PHASES) * sizeof(uint32_t), 16);
	sizes.again = round_up(sizeof(ListsAgain), 16);
	sizes.starts = round_up((2 * (size_t) lists->lists + 1) * sizeof(uint32_t), 16);
	sizes.items = round_up((2 * (size_t) lists->lists + 1) * phases * sizeof(uint32_t), 16);
	return sizes;
}

/* Bytes of state per query; bytes shared by all queries of a part. */
static size_t
query_state(const PartSizes &sizes)
{
	return sizes.query + sizes.asked + sizes.number + sizes.raw + sizes.vector + sizes.table +
		   sizes.halves + sizes.span + sizes.found + sizes.probes + sizes.ranks + sizes.sorted;
}

static size_t
common_state(const PartSizes &sizes)
{
	return sizes.counts + sizes.starts + sizes.items + sizes.again;
}

size_t
lists_search_min_bytes(const ListsView *lists, uint32_t max_probes, uint32_t max_k,
						 uint32_t max_rerank)
{
	PartSizes sizes =
		part_sizes(lists, max_probes < 1 ? 1 : max_probes,
				   room_of(lists, most_need(max_k, max_rerank), 1), LISTS_MAX_PHASES,
				   true);

	return query_state(sizes) + common_state(sizes);
}

/* Take `bytes` at *at, which advances. */
static unsigned char *
take(unsigned char **at, size_t bytes)
{
	unsigned char *taken = *at;

	*at += bytes;
	return taken;
}

/* Lay out the state of a part with `queries` queries. */
static void
lay_out(const ListsLaunch *launch, const PartSizes &sizes, uint32_t queries, ListsStep *step)
{
	ListsPart *part = &step->part;
	unsigned char *at = launch->batch.state;

	part->query = (ListsQuery *) take(&at, sizes.query * queries);
	part->asked = (DeviceQuery *) take(&at, sizes.asked * queries);
	part->vectors = (float *) take(&at, sizes.vector * queries);
	part->raw = sizes.raw == 0 ? part->vectors : (float *) take(&at, sizes.raw * queries);
	part->tables = (uint32_t *) take(&at, sizes.table * queries);
	step->products.halves = (__half *) take(&at, sizes.halves * queries);
	step->products.spans = (RowSpan *) take(&at, sizes.span * queries);
	part->found = (ListsFound *) take(&at, sizes.found * queries);
	part->values = (float *) part->found;
	part->probes = (ListsPair *) take(&at, sizes.probes * queries);
	part->ranks = (uint32_t *) take(&at, sizes.ranks * queries);
	part->sorted = (ListsPair *) take(&at, sizes.sorted * queries);
	part->counts = (uint32_t *) take(&at, sizes.counts);
	part->tickets = part->counts + 2 * launch->lists.lists;
	part->starts = (uint32_t *) take(&at, sizes.starts);
	part->items = (uint32_t *) take(&at, sizes.items);
	part->again = (ListsAgain *) take(&at, sizes.again);
	part->queries_again = (uint32_t *) take(&at, sizes.number * queries);
}

/* What all parts of a launch have in common. */
static ListsPart
begin_part(const ListsLaunch *launch)
{
	const ListsView *lists = &launch->lists;
	ListsPart part = {};
	uint64_t pairs = (uint64_t) launch->queries * launch->max_probes;
	part.max_list_probes = launch->max_probes < 1 ? 1 : launch->max_probes;
	part.room = room_of(lists, most_need(launch->max_k, launch->max_rerank), launch->queries);
	if (lists->lists > 0)
		set_phases(lists, launch->queries, &part);
	part.direct = pairs < (uint64_t) FEW_PAIRS * lists->lists;
	part.group =
		part.direct ? 1 : lists_scan_group(&lists->shape, (uint32_t) (pairs / lists->lists));
	part.item_blocks = ITEM_BLOCKS;
	if (part.direct)
		part.item_blocks = (lists->longest + MAX_ITEMS - 1) / MAX_ITEMS;
	if (part.direct && part.item_blocks < FEW_ITEM_BLOCKS)
		part.item_blocks = FEW_ITEM_BLOCKS;
	return part;
}

bool
lists_take_part(const ListsLaunch *launch, uint32_t first, ListsStep *step)
{
	ListsPart *part = &step->part;
	uint32_t products_queries =
		launch->products_queries > 0 ? launch->products_queries : PRODUCTS_QUERIES;
	uint32_t left = launch->queries - first;
	PartSizes sizes;
	size_t common,
		most;

	*step = {launch, begin_part(launch), {}};
	step->products.used =
		part->max_list_probes <= MAX_NEAR && launch->queries >= products_queries;
	step->products.lists = launch->halves;
	part->first = first;
	part->queries = left;
	if (launch->lists.lists == 0)
		return true; /* no state is needed: there are pending rows only */
	sizes = part_sizes(&launch->lists, part->max_list_probes, part->room, part->phases,
					   step->products.used);
	common = common_state(sizes);
	most = launch->state_bytes < common ? 0 : (launch->state_bytes - common) / query_state(sizes);
	part->table_words = (uint32_t) (sizes.table / sizeof(uint32_t));
	part->vector_stride = (uint32_t) (sizes.vector / sizeof(float));
	step->products.value_stride = (uint32_t) (sizes.values / sizeof(float));
	part->queries = left < most ? left : (uint32_t) most;
	lay_out(launch, sizes, part->queries, step);
	return most > 0;
}

cudaError_t
lists_search_launch(const ListsLaunch *launch)
{
	cudaError_t error = cudaSuccess;

	for (uint32_t first = 0; error == cudaSuccess && first < launch->queries;)
	{
		ListsStep step;

		if (!lists_take_part(launch, first, &step))
			return cudaErrorInvalidValue;
		if (launch->lists.lists > 0)
			error = lists_prepare_launch(&step);
		if (launch->lists.lists > 0 && error == cudaSuccess)
			error = lists_coarse_launch(&step);
		if (launch->lists.lists > 0 && error == cudaSuccess)
			error = lists_probe_launch(&step);
		if (launch->lists.lists > 0 && error == cudaSuccess)
			error = lists_scan_launch(&step);
		if (error == cudaSuccess)
			error = lists_answer_launch(&step);
		first += step.part.queries;
	}
	return error;
}

cudaError_t
lists_search_prepare(const cudaDeviceProp *device)
{
	cudaError_t error = lists_prepare_allow(device);

	if (error == cudaSuccess)
		error = lists_coarse_allow(device);
	if (error == cudaSuccess)
		error = lists_scan_allow(device);
	if (error == cudaSuccess)
		error = lists_answer_allow(device);
	return error;
}
