/*
 * list_codes.c
 *		Centroids and codes of an index with lists: read centroids and codebook
 *		from pages, assign and encode rows.
 *
 * Centroids and codebook do not change after the build.
 */
#include "postgres.h"

#include <math.h>

#include "lists/list_codes.h"

#include "miscadmin.h"
#include "page/buffer_hints.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define QUANTIZERS_KEPT	8		/* quantizers kept open per process */

static const DistanceKernels *
widening(const IndexFormat *format)
{
	static const DistanceKernels *known[ELEMENT_HALF + 1];
	const DistanceKernels **kernels = &known[format->type];

	if (*kernels == NULL)
		*kernels = distance_kernels((ElementType) format->type, METRIC_L2, SIMD_BEST);
	return *kernels;
}

void
list_widen(const IndexFormat *format, const void *vector, float *out)
{
	double		square = 0;
	float		scale;

	widening(format)->widen(vector, format->dims, out);
	if (format->metric != METRIC_COSINE)
		return;
	for (uint32 i = 0; i < format->dims; i++)
		square += (double) out[i] * out[i];
	if (!(square > 0))
		return;
	scale = (float) (1 / sqrt(square));
	if (isfinite(scale))
	{
		for (uint32 i = 0; i < format->dims; i++)
			out[i] *= scale;
		return;
	}
	/* a norm so small that its inverse overflows single precision */
	for (uint32 i = 0; i < format->dims; i++)
		out[i] = (float) (out[i] / sqrt(square));
}

/* ---- bytes across pages ---- */

void
list_read_bytes(Relation index, BlockNumber start, Size offset, Size bytes, void *out)
{
	BlockNumber block = start + (BlockNumber) (offset / GPUANN_PAYLOAD);
	char	   *to = out;

	for (offset %= GPUANN_PAYLOAD; bytes > 0; offset = 0, block++)
	{
		Size		part = Min(bytes, (Size) GPUANN_PAYLOAD - offset);
		Buffer		buffer = read_hinted_page(index, block, PAGE_CENTROID, false);

		memcpy(to, PageGetContents(BufferGetPage(buffer)) + offset, part);
		UnlockReleaseBuffer(buffer);
		CHECK_FOR_INTERRUPTS();
		to += part;
		bytes -= part;
	}
}

void
list_write_bytes(Relation index, BlockNumber start, Size bytes, const void *from)
{
	for (Size done = 0; done < bytes; done += GPUANN_PAYLOAD, start++)
	{
		Size		part = Min(bytes - done, (Size) GPUANN_PAYLOAD);
		Buffer		buffer =
			read_page(index, start, PAGE_CENTROID, BUFFER_LOCK_EXCLUSIVE, false);

		memcpy(PageGetContents(BufferGetPage(buffer)), (const char *) from + done, part);
		MarkBufferDirty(buffer);
		UnlockReleaseBuffer(buffer);
		CHECK_FOR_INTERRUPTS();
	}
}

/* ---- centroids ---- */

void
centroid_reader_begin(CentroidReader *reader, Relation index, const IndexFormat *format,
					  const ListFormat *lists)
{
	reader->index = index;
	reader->dims = format->dims;
	reader->start = centroid_start(lists);
	hints_begin(&reader->hints, index);
	reader->buffer = InvalidBuffer;
	reader->copy = palloc(sizeof(float) * format->dims);
}

void
centroid_reader_end(CentroidReader *reader)
{
	if (BufferIsValid(reader->buffer))
		ReleaseBuffer(reader->buffer);
	hints_end(&reader->hints);
	pfree(reader->copy);
}

/*
 * Pin a page of centroids, and return its payload. The content lock is held
 * only for the check: centroid pages are not written after the build, so the
 * pin suffices to read them.
 */
static const char *
pin_centroids(CentroidReader *reader, BlockNumber block)
{
	if (!BufferIsValid(reader->buffer) || reader->block != block)
	{
		if (BufferIsValid(reader->buffer))
			ReleaseBuffer(reader->buffer);
		reader->buffer = InvalidBuffer;
		CHECK_FOR_INTERRUPTS();
		reader->buffer = hints_pin(&reader->hints, block);
		reader->block = block;
		LockBuffer(reader->buffer, BUFFER_LOCK_SHARE);
		check_page(reader->index, reader->buffer, PAGE_CENTROID, false);
		LockBuffer(reader->buffer, BUFFER_LOCK_UNLOCK);
	}
	return PageGetContents(BufferGetPage(reader->buffer));
}

const float *
centroid_of(CentroidReader *reader, uint32 list)
{
	Size		left = sizeof(float) * reader->dims;
	Size		offset = (Size) list * left;
	BlockNumber block = reader->start + (BlockNumber) (offset / GPUANN_PAYLOAD);
	char	   *to = (char *) reader->copy;

	offset %= GPUANN_PAYLOAD;
	if (offset + left <= GPUANN_PAYLOAD)
		return (const float *) (pin_centroids(reader, block) + offset);
	for (; left > 0; offset = 0, block++)
	{
		Size		part = Min(left, (Size) GPUANN_PAYLOAD - offset);

		memcpy(to, pin_centroids(reader, block) + offset, part);
		to += part;
		left -= part;
	}
	return reader->copy;
}

/* ---- quantizers ---- */

static void
out_of_memory(Relation index)
{
	ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY),
					errmsg("out of memory for the codes of index \"%s\"",
						   RelationGetRelationName(index))));
}

/* A quantizer that is kept open, and its malloc'd codebook. */
typedef struct KeptQuantizer
{
	QuantizerShape shape;
	Quantizer  *quantizer;		/* NULL: none */
	void	   *codebook;
} KeptQuantizer;

/*
 * Open a quantizer. Its codebook is malloc'd too: both outlive the transaction.
 */
static void
open_quantizer(Relation index, const ListFormat *lists, KeptQuantizer *kept)
{
	Size		bytes = quantizer_codebook_bytes(&kept->shape);

	kept->codebook = malloc(Max(bytes, 1));
	if (kept->codebook == NULL)
		out_of_memory(index);
	PG_TRY();
	{
		list_read_bytes(index, codebook_start(lists), 0, bytes, kept->codebook);
	}
	PG_CATCH();
	{
		free(kept->codebook);
		PG_RE_THROW();
	}
	PG_END_TRY();
	kept->quantizer = quantizer_open(&kept->shape, kept->codebook);
	if (kept->quantizer == NULL)
	{
		free(kept->codebook);
		out_of_memory(index);
	}
}

static void
close_quantizer(KeptQuantizer *kept)
{
	quantizer_close(kept->quantizer);
	free(kept->codebook);
	memset(kept, 0, sizeof(*kept));
}

static bool
same_shape(const QuantizerShape *a, const QuantizerShape *b)
{
	return a->kind == b->kind && a->metric == b->metric && a->dims == b->dims &&
		   a->bits == b->bits && a->parts == b->parts && a->seed == b->seed;
}

/*
 * Every build has another seed, which is part of the shape, so the shape
 * identifies the quantizer.
 */
const Quantizer *
list_quantizer(Relation index, const IndexFormat *format, const ListFormat *lists)
{
	static KeptQuantizer all[QUANTIZERS_KEPT];
	static int	oldest = 0;
	KeptQuantizer new = {.shape = list_shape(format, lists)};

	for (int i = 0; i < QUANTIZERS_KEPT; i++)
		if (all[i].quantizer != NULL && same_shape(&all[i].shape, &new.shape))
			return all[i].quantizer;
	open_quantizer(index, lists, &new);
	if (all[oldest].quantizer != NULL)
		close_quantizer(&all[oldest]);
	all[oldest] = new;
	oldest = (oldest + 1) % QUANTIZERS_KEPT;
	return new.quantizer;
}

/* ---- coding rows ---- */

/* Memory context callback: release what is not in the context. */
static void
close_coder(void *arg)
{
	ListCoder  *coder = arg;

	quantizer_close(coder->quantizer);
	coder->quantizer = NULL;
}

/* Memory aligned to 64, in the current context. */
static void *
aligned_memory(Size bytes)
{
	return (void *) TYPEALIGN(64, palloc_extended(bytes + 64, MCXT_ALLOC_HUGE));
}

/* Number of centroids that fit into this many bytes. */
static uint32
centroids_within(const IndexFormat *format, const ListFormat *lists, Size bytes)
{
	Size		tile = NEAREST_TILE * format->dims * sizeof(float) +
		centroids_bytes(NEAREST_TILE, format->dims);
	Size		most = Max(bytes / tile * NEAREST_TILE, LIST_CODER_MIN);

	return (uint32) Min(most, lists->lists);
}

ListCoder *
list_coder_open(Relation index, const IndexFormat *format, const ListFormat *lists, Size bytes)
{
	ListCoder  *coder = palloc0(sizeof(ListCoder));
	MemoryContextCallback *callback = palloc0(sizeof(MemoryContextCallback));
	QuantizerShape shape;
	void	   *codebook;

	coder->index = index;
	coder->format = format;
	coder->lists = *lists;
	coder->most = centroids_within(format, lists, bytes);
	coder->centroids = aligned_memory((Size) coder->most * format->dims * sizeof(float));
	coder->tiles = aligned_memory(centroids_bytes(coder->most, format->dims));
	if (list_coder_has_all(coder))
		list_coder_read(coder, 0);
	shape = list_shape(format, &coder->lists);
	codebook = aligned_memory(quantizer_codebook_bytes(&shape));
	list_read_bytes(index, codebook_start(&coder->lists), 0, quantizer_codebook_bytes(&shape),
					codebook);

	callback->func = close_coder;
	callback->arg = coder;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);
	coder->quantizer = quantizer_open(&shape, codebook);
	if (coder->quantizer == NULL)
		out_of_memory(index);
	return coder;
}

void
list_coder_read(ListCoder *coder, uint32 first)
{
	Size		bytes = coder->format->dims * sizeof(float);
	uint32		count = Min(coder->most, coder->lists.lists - first);

	coder->first = first;
	list_read_bytes(coder->index, centroid_start(&coder->lists), first * bytes, count * bytes,
					coder->centroids);
	centroids_init(&coder->set, coder->centroids, count, coder->format->dims, coder->tiles);
}

Size
coded_row_bytes(const IndexFormat *format, const ListFormat *lists)
{
	return format->dims * sizeof(float) + sizeof(uint32) + sizeof(double) + lists->code_bytes;
}

CodedRows *
coded_rows_make(const IndexFormat *format, const ListFormat *lists, uint32 room)
{
	CodedRows  *rows = palloc0(sizeof(CodedRows));

	rows->wide = aligned_memory((Size) room * format->dims * sizeof(float));
	rows->list = palloc_extended(sizeof(uint32) * (Size) room, MCXT_ALLOC_HUGE);
	rows->distance = palloc_extended(sizeof(double) * (Size) room, MCXT_ALLOC_HUGE);
	rows->codes = aligned_memory((Size) room * lists->code_bytes);
	return rows;
}

void
list_coder_code(const ListCoder *coder, CodedRows *rows, uint32 first, uint32 count)
{
	uint32		dims = coder->format->dims;
	const float *wide = rows->wide + (Size) first * dims;

	(void) centroids_nearest(&coder->set, wide, dims, count, rows->list + first,
							 rows->distance + first);
	for (uint32 i = 0; i < count; i++)
		quantizer_encode(coder->quantizer,
						 coder->set.centroids + (Size) rows->list[first + i] * dims,
						 wide + (Size) i * dims, 1,
						 rows->codes + (Size) (first + i) * coder->lists.code_bytes);
}

/*
 * Distances are exact, and of equally near centroids the first one is chosen,
 * so the result does not depend on how centroids are divided into parts.
 */
void
list_coder_assign(const ListCoder *coder, CodedRows *rows, uint32 first, uint32 count)
{
	uint32		dims = coder->format->dims;
	uint32		nearest[NEAREST_ROWS];
	double		distances[NEAREST_ROWS];

	for (uint32 done = 0, some; done < count; done += some)
	{
		some = Min(count - done, NEAREST_ROWS);
		(void) centroids_nearest(&coder->set, rows->wide + (Size) (first + done) * dims, dims,
								 some, nearest, distances);
		for (uint32 i = 0; i < some; i++)
		{
			uint32		row = first + done + i;

			if (coder->first > 0 && !(distances[i] < rows->distance[row]))
				continue;
			rows->list[row] = coder->first + nearest[i];
			rows->distance[row] = distances[i];
		}
	}
}

void
list_coder_encode(const ListCoder *coder, CodedRows *rows, uint32 row, const float *centroid)
{
	quantizer_encode(coder->quantizer, centroid, rows->wide + (Size) row * coder->format->dims, 1,
					 rows->codes + (Size) row * coder->lists.code_bytes);
}
