/*
 * build_lists.c
 *		CREATE INDEX with lists: train centroids and codebook on a sample, then
 *		put every row into its list.
 *
 * The rows are in their pages already. Threads train, assign and encode, or the
 * server's engine if it has the rows; this process reads and writes the pages,
 * which are logged at the end of the build. Both give the same lists and codes
 * for the same centroids, so this process can continue after the server fails.
 */
#include "postgres.h"

#include "build/build_parts.h"
#include "build/build_threads.h"

#include "base/faults.h"
#include "common/pg_prng.h"
#include "engine/quantizer/lists_train.h"
#include "lists/list_codes.h"
#include "lists/postings.h"
#include "link/local_engine.h"
#include "miscadmin.h"
#include "page/pending.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define SAMPLE_OF_LIST	64		/* rows that centroids are trained on, for each list */
#define SAMPLE_OF_CODEWORD	64	/* the same for codewords of pq */
#define MIN_SAMPLE		10000
#define CHUNK_ROWS		16384	/* rows assigned at once, at most */
#define ITEM_ROWS		64		/* ... by a thread: all wait for the last */

/* Memory of the build, in bytes. */
static Size
build_bytes(void)
{
	return (Size) maintenance_work_mem * 1024;
}

/* ---- the number of lists ---- */

/*
 * Number of sample rows that fit into memory besides what training this many
 * lists takes.
 */
static double
sample_room(const ListsBuild *build, const QuantizerShape *shape, uint32 lists)
{
	uint32		dims = build->format->dims;
	KmeansTask	task = {.count = 1, .dims = dims, .lists = lists};
	Size		row_bytes = dims * sizeof(float) * (shape->kind == QUANTIZER_PQ ? 2 : 1) + 32;
	double		memory = (double) build_bytes() - kmeans_bytes(&task) -
		(double) lists * dims * sizeof(float);

	if (shape->kind == QUANTIZER_PQ)
		memory -= quantizer_train_bytes(shape, 1);
	return memory / row_bytes;
}

/*
 * Whether memory suffices for this many lists: to train them on a row each, or
 * for the server's result.
 */
static bool
lists_fit(const ListsBuild *build, const QuantizerShape *shape, uint32 lists)
{
	return build->server != NULL ? lists_floats(shape, lists) * sizeof(float) <= build_bytes()
		: sample_room(build, shape, lists) >= lists;
}

/*
 * Number of lists for the actual rows: at most as planned, and as the posting
 * pages have room for, one page of each list being partly filled.
 */
static uint32
count_lists(const ListsBuild *build)
{
	const IndexFormat *format = build->format;
	uint64		slots = (uint64) build->superblocks * format->superblock_slots;
	uint64		pages = (uint64) build->superblocks * format_postings(format);
	uint64		full = (slots + build->lists->page_entries - 1) / build->lists->page_entries;
	uint32		most = list_format_most(format, build->rows);
	const GpuannOptions *options = (const GpuannOptions *) build->index->rd_options;
	QuantizerShape shape = list_shape(format, build->lists);

	if (pages <= full)
		return 1;
	most = (uint32) Min(Min(build->lists->lists, most), pages - full);
	/* An explicit number is used, or is an error. */
	if (options == NULL || options->lists <= 0)
		while (most > 1 && !lists_fit(build, &shape, most))
			most -= (most + 7) / 8;
	return most;
}

/* Report if there are fewer lists than the option says. */
static void
tell_of_few_lists(const ListsBuild *build)
{
	const GpuannOptions *options = (const GpuannOptions *) build->index->rd_options;

	if (options == NULL || options->lists <= (int) build->lists->lists)
		return;
	ereport(NOTICE, (errmsg("index \"%s\" has %u lists instead of %d",
							RelationGetRelationName(build->index), build->lists->lists,
							options->lists),
					 errdetail("More would take too much room beside %u rows.", build->rows),
					 errhint("REINDEX it when more rows have been loaded.")));
}

/* ---- training ---- */

typedef struct Training
{
	ListsTraining task;
	float	   *sample;			/* count x dims */
	uint32		count;
	float	   *floats;			/* centroids, then the codebook */
	EngineStatus status;
} Training;

/* Number of rows to train on. */
static double
sample_wanted(const QuantizerShape *shape, uint32 lists)
{
	double		wanted = Max((double) lists * SAMPLE_OF_LIST, MIN_SAMPLE);

	if (shape->kind == QUANTIZER_PQ)
		wanted = Max(wanted, (double) SAMPLE_OF_CODEWORD * (1 << shape->bits));
	return wanted;
}

/* The same, limited by memory, of which k-means needs a part. */
static uint32
list_sample_size(const ListsBuild *build, const QuantizerShape *shape)
{
	uint32		lists = build->lists->lists;
	double		wanted = Min(sample_wanted(shape, lists), sample_room(build, shape, lists));

	return (uint32) Min(Max(wanted, lists), build->rows);
}

/*
 * Draw the sample: of each superblock's rows its share, in their order.
 */
static void
draw_training_sample(const ListsBuild *build, Training *training)
{
	const IndexFormat *format = build->format;
	char	   *vector = palloc(format->vector_bytes);
	uint32		wanted = training->count;
	uint32		left = build->rows;
	pg_prng_state random;

	pg_prng_seed(&random, build->lists->seed);
	training->count = 0;
	for (uint32 i = 0; i < build->superblocks; i++)
		for (uint32 row = 0; row < build->loaded[i]; row++, left--)
		{
			if (pg_prng_uint64_range(&random, 0, left - 1) >= wanted - training->count)
				continue;
			build_copy_vectors(build->index, format, i * format->superblock_slots + row, 1, vector);
			list_widen(format, vector,
					   training->sample + (Size) training->count++ * format->dims);
		}
	pfree(vector);
}

/* Main function of the training threads: centroids, then the codebook. */
static void
train(const TrainControl *control, void *arg)
{
	Training   *training = arg;
	double		inertia;

	training->task.control = control;
	training->status = lists_train(&training->task, training->sample, training->count,
								   training->floats, &inertia);
}

/* Train in threads. */
static void
train_here(const ListsBuild *build, Training *training)
{
	training->count = list_sample_size(build, &training->task.shape);
	training->sample = palloc_extended((Size) training->count * build->format->dims * sizeof(float),
									   MCXT_ALLOC_HUGE);
	draw_training_sample(build, training);
	build_in_threads(local_engine_threads(), train, training);
	CHECK_FOR_INTERRUPTS();
	pfree(training->sample);
	if (training->status != ENGINE_OK)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY),
						errmsg("out of memory in training the lists of index \"%s\"",
							   RelationGetRelationName(build->index))));
}

/* The server has failed: continue in this process. */
static void
leave_server(ListsBuild *build)
{
	build_server_close(build->server);
	build->server = NULL;
}

/* Choose the number of lists. */
static void
choose_list_count(ListsBuild *build, const QuantizerShape *shape, uint32 planned)
{
	build->lists->lists = planned;
	build->lists->lists = count_lists(build);
	if (build->rows > 0 && !lists_fit(build, shape, build->lists->lists))
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%u lists do not fit into maintenance_work_mem", build->lists->lists),
				 errhint("Increase maintenance_work_mem, or create the index with fewer lists.")));
}

/* Train on the server; if it fails, the number of lists is chosen again. */
static void
train_there(ListsBuild *build, Training *training, uint32 planned)
{
	const QuantizerShape *shape = &training->task.shape;
	uint32		lists = build->lists->lists;
	uint32		sample = (uint32) Min(sample_wanted(shape, lists), build->rows);

	if (build_server_train(build->server, build->loaded, lists, sample, training->floats,
						   lists_floats(shape, lists)))
		return;
	leave_server(build);
	choose_list_count(build, shape, planned);
}

/*
 * Train, and write centroids and codebook. Without rows all of it is zero.
 */
static void
train_lists(ListsBuild *build)
{
	ListFormat *lists = build->lists;
	QuantizerShape shape = list_shape(build->format, lists);
	Training	training = {.task = {.shape = shape, .rounds = LISTS_TRAIN_ROUNDS}};
	uint32		planned = lists->lists;
	Size		ncentroids;

	/* a mirror without centroids would never get them */
	if (build->rows == 0 && build->server != NULL)
		leave_server(build);
	choose_list_count(build, &shape, planned);
	if (build->rows == 0)
		return;
	training.floats = palloc_extended(lists_floats(&shape, lists->lists) * sizeof(float),
									  MCXT_ALLOC_HUGE);
	if (build->server != NULL)
		train_there(build, &training, planned);
	training.task.lists = lists->lists;
	if (build->server == NULL)
		train_here(build, &training);
	ncentroids = (Size) lists->lists * build->format->dims;
	list_write_bytes(build->index, centroid_start(lists), ncentroids * sizeof(float),
					 training.floats);
	list_write_bytes(build->index, codebook_start(lists), quantizer_codebook_bytes(&shape),
					 training.floats + ncentroids);
	pfree(training.floats);
	FAULT_POINT("build-lists-trained");
}

/* ---- filling ---- */

/* State of putting rows into lists. */
typedef struct Filling
{
	ListsBuild *build;
	ListCoder  *coder;			/* NULL: the server assigns and encodes */
	ListWriter	writer;
	CodedRows  *rows;
	char	   *vectors;		/* as they are stored; NULL: as coder */
	uint32	   *slots;
	uint32		room;
	uint32	   *order;			/* rows by list */
	uint32	   *first;			/* of each list in order; lists + 1 */
	PostingEntry *entries;		/* of one list */
	unsigned char *codes;
	const TrainControl *control;	/* of the threads at work */
} Filling;

/* Allocate memory for this many rows. */
static void
fill_begin(Filling *fill, ListsBuild *build, uint32 room)
{
	memset(fill, 0, sizeof(*fill));
	fill->build = build;
	fill->writer = (ListWriter) {.index = build->index,
								 .format = build->format,
								 .lists = build->lists,
								 .superblocks = build->superblocks,
								 .building = true};
	fill->room = room;
	fill->slots = palloc_extended(sizeof(uint32) * (Size) room, MCXT_ALLOC_HUGE);
	fill->order = palloc_extended(sizeof(uint32) * (Size) room, MCXT_ALLOC_HUGE);
	fill->first = palloc(sizeof(uint32) * (build->lists->lists + 2));
	fill->entries = palloc_extended(sizeof(PostingEntry) * (Size) room, MCXT_ALLOC_HUGE);
	fill->codes = palloc_extended((Size) room * build->lists->code_bytes, MCXT_ALLOC_HUGE);
}

/* Number of rows that fit into half of the build's memory, up to a limit. */
static uint32
rows_at_once(Size row_bytes, uint32 most)
{
	return (uint32) Max(Min(build_bytes() / 2 / row_bytes, most), ITEM_ROWS);
}

/* A thread's work item: widen, assign and encode some rows. */
static void
code_item(void *argument, uint32_t item)
{
	Filling    *fill = argument;
	const IndexFormat *format = fill->build->format;
	uint32		first = item * ITEM_ROWS;
	uint32		count = Min(fill->rows->count - first, ITEM_ROWS);

	if (fill->control->interrupted(fill->control->context))
		return;
	for (uint32 row = first; row < first + count; row++)
		list_widen(format, fill->vectors + (Size) row * format->vector_bytes,
				   fill->rows->wide + (Size) row * format->dims);
	list_coder_code(fill->coder, fill->rows, first, count);
}

static void
code_rows(const TrainControl *control, void *arg)
{
	Filling    *fill = arg;

	fill->control = control;
	control->spread(control->context, code_item, fill,
					(fill->rows->count + ITEM_ROWS - 1) / ITEM_ROWS);
}

/* Sort the rows by list (counting sort). */
static void
sort_by_list(Filling *fill)
{
	uint32		lists = fill->build->lists->lists;
	uint32	   *first = fill->first;

	memset(first, 0, sizeof(uint32) * (lists + 2));
	for (uint32 row = 0; row < fill->rows->count; row++)
		first[fill->rows->list[row] + 2]++;
	for (uint32 list = 1; list < lists; list++)
		first[list + 1] += first[list];
	/*
	 * first[list + 1] is the place of the list's next row, and in the end that
	 * of its end
	 */
	for (uint32 row = 0; row < fill->rows->count; row++)
		fill->order[first[fill->rows->list[row] + 1]++] = row;
}

/* Add the rows to their lists. */
static void
append_rows(Filling *fill)
{
	uint32		code_bytes = fill->build->lists->code_bytes;

	sort_by_list(fill);
	for (uint32 list = 0; list < fill->build->lists->lists; list++)
	{
		uint32		start = fill->first[list];
		uint32		count = fill->first[list + 1] - start;

		for (uint32 i = 0; i < count; i++)
		{
			uint32		row = fill->order[start + i];

			fill->entries[i] = (PostingEntry) {fill->slots[row], 1};
			memcpy(fill->codes + (Size) i * code_bytes,
				   fill->rows->codes + (Size) row * code_bytes, code_bytes);
		}
		list_append(&fill->writer, list, fill->entries, fill->codes, count);
	}
}

/* Write the rows' lists into their node records. */
static void
write_list_numbers(Filling *fill)
{
	const IndexFormat *format = fill->build->format;

	for (uint32 row = 0; row < fill->rows->count;)
	{
		BlockNumber block = node_block(format, fill->slots[row]);
		Buffer		buffer =
			read_page(fill->build->index, block, PAGE_NODE, BUFFER_LOCK_EXCLUSIVE, false);
		Page		page = BufferGetPage(buffer);

		for (; row < fill->rows->count && node_block(format, fill->slots[row]) == block; row++)
		{
			node_record(format, page, fill->slots[row])->flags |= NODE_LINKED;
			page_reach_row(format, page, fill->slots[row]);
			*graph_row(format, page, fill->slots[row]) = fill->rows->list[row];
		}
		MarkBufferDirty(buffer);
		UnlockReleaseBuffer(buffer);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Write list entries and list numbers of the rows, whose lists and codes are
 * known, into pages.
 */
static void
write_rows(Filling *fill)
{
	append_rows(fill);
	write_list_numbers(fill);
	fill->build->lists->built_rows += fill->rows->count;
	fill->rows->count = 0;
	build_progress(fill->build->lists->built_rows);
	FAULT_POINT("build-lists-filled");
}

/* Put the gathered rows into lists. */
static void
fill_gathered(Filling *fill)
{
	if (fill->rows->count == 0)
		return;
	build_in_threads(local_engine_threads(), code_rows, fill);
	for (uint32 row = 0; row < fill->rows->count; row++)
		fill->build->lists->built_distance += fill->rows->distance[row];
	write_rows(fill);
}

/* Gather rows of a superblock, from row `first` on. */
static void
gather_superblock(Filling *fill, uint32 superblock, uint32 from)
{
	const ListsBuild *build = fill->build;
	const IndexFormat *format = build->format;
	uint32		slot = superblock * format->superblock_slots + from;

	for (uint32 left = build->loaded[superblock] - from; left > 0;)
	{
		uint32		count = Min(left, fill->room - fill->rows->count);

		build_copy_vectors(build->index, format, slot, count,
						   fill->vectors + (Size) fill->rows->count * format->vector_bytes);
		for (uint32 i = 0; i < count; i++)
			fill->slots[fill->rows->count++] = slot++;
		left -= count;
		if (fill->rows->count == fill->room)
			fill_gathered(fill);
	}
}

/* Assign and encode in this process the rows that are in no list yet. */
static void
fill_here(ListsBuild *build)
{
	const IndexFormat *format = build->format;
	Size		row_bytes = format->vector_bytes + format->dims * sizeof(float) +
		2 * build->lists->code_bytes + 40;
	uint64		done = build->lists->built_rows;
	Filling		fill;

	fill_begin(&fill, build, rows_at_once(row_bytes, CHUNK_ROWS));
	/* training has used more */
	fill.coder = list_coder_open(build->index, format, build->lists, MaxAllocHugeSize);
	fill.rows = coded_rows_make(format, build->lists, fill.room);
	fill.vectors = palloc_extended((Size) fill.room * format->vector_bytes, MCXT_ALLOC_HUGE);
	for (uint32 i = 0; i < build->superblocks; i++)
	{
		uint32		skipped = (uint32) Min(done, build->loaded[i]);

		gather_superblock(&fill, i, skipped);
		done -= skipped;
	}
	fill_gathered(&fill);
}

/* Take rows that the server has assigned and encoded. */
static void
fill_take_part(Filling *fill, const LinkResult *part)
{
	Size		code_bytes = fill->build->lists->code_bytes;

	for (uint32 done = 0, some; done < part->count; done += some)
	{
		CodedRows  *rows = fill->rows;

		some = Min(part->count - done, fill->room - rows->count);
		memcpy(fill->slots + rows->count, part->slots + done, some * sizeof(uint32));
		memcpy(rows->list + rows->count, part->rows + done, some * sizeof(uint32));
		memcpy(rows->codes + rows->count * code_bytes, part->codes + done * code_bytes,
			   some * code_bytes);
		rows->count += some;
		if (rows->count == fill->room)
			write_rows(fill);
	}
}

/*
 * Fetch and write the server's lists and codes, in slot order. If it fails in
 * between, the rows fetched so far are written.
 */
static bool
fetch_lists(ListsBuild *build)
{
	ListFormat *lists = build->lists;
	CodedRows	rows = {0};
	Filling		fill;
	LinkResult	made;
	LinkResult	part;
	uint32		fetched = 0;

	if (!build_server_link(build->server, build->loaded, &made))
		return false;
	build_phase(BUILD_PHASE_LISTS, build->rows);
	fill_begin(&fill, build, rows_at_once(2 * lists->code_bytes + 24, build->rows));
	fill.rows = &rows;
	rows.list = palloc_extended(sizeof(uint32) * (Size) fill.room, MCXT_ALLOC_HUGE);
	rows.codes = palloc_extended((Size) fill.room * lists->code_bytes, MCXT_ALLOC_HUGE);
	for (; fetched < build->rows && build_server_fetch(build->server, &part);
		 fetched += part.count)
		fill_take_part(&fill, &part);
	if (rows.count > 0)
		write_rows(&fill);
	lists->built_distance = made.distance / build->rows * fetched;
	return fetched == build->rows;
}

/* The same, in a temporary memory context. */
static void
fill_there(ListsBuild *build)
{
	MemoryContext memory =
		AllocSetContextCreate(CurrentMemoryContext, "gpuann lists", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	bool		done = fetch_lists(build);

	MemoryContextSwitchTo(caller);
	MemoryContextDelete(memory);
	if (!done)
		leave_server(build);
}

void
build_lists(ListsBuild *build)
{
	build_phase(BUILD_PHASE_TRAIN, 0);
	train_lists(build);
	tell_of_few_lists(build);
	if (build->rows == 0)
		return;
	build_phase(BUILD_PHASE_LISTS, build->rows);
	if (build->server != NULL)
		fill_there(build);
	if (build->server == NULL)
		fill_here(build);
}

/* ---- logging ---- */

/*
 * Posting pages are used in order, so those after the first new one are unused.
 */
void
build_log_postings(PageLog *log, const IndexFormat *format, uint32 superblock)
{
	for (uint32 i = 0; i < format_postings(format); i++)
	{
		BlockNumber block = superblock_start(format, superblock) + 1 + i;
		Buffer		buffer;

		if (block >= RelationGetNumberOfBlocks(log->index))
			return;
		buffer = ReadBuffer(log->index, block);
		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		if (PageIsNew(BufferGetPage(buffer)))
		{
			UnlockReleaseBuffer(buffer);
			return;
		}
		page_log_add(log, buffer);
	}
}
