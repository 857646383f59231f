/*
 * mirror_lists.c
 *		Load the centroids and codebook of a mirror of an index with lists.
 *
 * They are sent before the numbers of the rows' lists, a channel at a time, and
 * never change. In which list a row is comes with the node pages, as graph rows
 * do; the engine encodes rows itself, as the linker of the pages does.
 */
#include "base/base.h"

#include "lists/list_codes.h"
#include "mirror/worker.h"

#define FLOATS_AT_ONCE	(32 * 1024)

StaticAssertDecl(FLOATS_AT_ONCE * sizeof(float) <= CHANNEL_DATA_BYTES, "they fit a channel");

/*
 * The option cooc. Pages may be of a build with other options; what cannot have
 * such codes goes without.
 */
static CoocMode
cooc_mode(const MirrorSlice *slice, const ListFormat *lists)
{
	const GpuannOptions *options = (const GpuannOptions *) slice->index->rd_options;

	if (options == NULL || lists->quantizer != QUANTIZER_PQ || lists->bits != 8)
		return COOC_OFF;
	return (CoocMode) options->cooc;
}

void
lists_format(const MirrorSlice *slice, ListFormat *lists)
{
	if (slice->lists != NULL)
		*lists = *slice->lists;
	else
		list_format_read(slice->index, slice->format, lists);
}

void
lists_spec(const MirrorSlice *slice, ListSpec *spec)
{
	ListFormat	lists;

	lists_format(slice, &lists);
	spec->lists = lists.lists;
	spec->quantizer = (QuantizerKind) lists.quantizer;
	spec->bits = lists.bits;
	spec->parts = lists.parts;
	spec->seed = lists.seed;
	spec->cooc = cooc_mode(slice, &lists);
}

/* Floats of the centroids, and of the codebook behind them. */
static uint64
centroid_floats(const MirrorSlice *slice, const ListFormat *lists)
{
	return (uint64) lists->lists * slice->format->dims;
}

static uint64
codebook_floats(const MirrorSlice *slice, const ListFormat *lists)
{
	QuantizerShape shape = list_shape(slice->format, lists);

	return quantizer_codebook_bytes(&shape) / sizeof(float);
}

/* Floats of both. */
static uint64
all_floats(const MirrorSlice *slice)
{
	ListFormat	lists;

	lists_format(slice, &lists);
	return centroid_floats(slice, &lists) + codebook_floats(slice, &lists);
}

bool
lists_sent(const MirrorSlice *slice)
{
	return slice->progress->floats_sent >= all_floats(slice);
}

void
lists_note_sent(const MirrorSlice *slice)
{
	slice->progress->floats_sent = (uint32) all_floats(slice);
}

SliceEnding
lists_send(MirrorSlice *slice)
{
	uint64		first = slice->progress->floats_sent;
	ChannelRequest *request = slice_prepare(slice, CHANNEL_CODEBOOK);
	ListFormat	lists;
	uint64		centroids;
	uint64		count;
	BlockNumber start;
	float	   *floats;
	SliceEnding ending;

	list_format_read(slice->index, slice->format, &lists);
	centroids = centroid_floats(slice, &lists);
	/* A part does not have floats of both. */
	count = first < centroids ? centroids - first
		: centroids + codebook_floats(slice, &lists) - first;
	count = Min(count, FLOATS_AT_ONCE);
	start = first < centroids ? centroid_start(&lists) : codebook_start(&lists);
	floats = channel_array(slice->channel, count * sizeof(float), &request->body_offset);
	list_read_bytes(slice->index, start,
					(first < centroids ? first : first - centroids) * sizeof(float),
					count * sizeof(float), floats);
	request->first_slot = (uint32) first;
	request->count = (uint32) count;
	ending = slice_call(slice);
	if (ending != SLICE_IDLE)
		return ending;
	slice->progress->floats_sent = (uint32) (first + count);
	return SLICE_MORE;
}
