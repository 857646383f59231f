/*
 * list_codes.h
 *		Centroids and codes of an index with lists: read centroids and codebook
 *		from pages, assign and encode rows.
 */
#ifndef GPUANN_LIST_CODES_H
#define GPUANN_LIST_CODES_H

#include "lists/lists.h"

#include "engine/quantizer/nearest.h"
#include "page/buffer_hints.h"

/*
 * Widen a stored vector to single precision; for cosine also normalize it.
 */
extern void list_widen(const IndexFormat *format, const void *vector, float *out);

/*
 * Read or write bytes at an offset into the concatenated payloads of pages of
 * centroids or codewords. Writing is for builds, which log the pages later.
 */
extern void list_read_bytes(Relation index, BlockNumber start, Size offset, Size bytes, void *out);
extern void list_write_bytes(Relation index, BlockNumber start, Size bytes, const void *from);

/*
 * The quantizer of an index, for searches. A process keeps a few of them open.
 * Valid until the next call.
 */
extern const Quantizer *list_quantizer(Relation index, const IndexFormat *format,
									   const ListFormat *lists);

/*
 * Reads centroids, most efficiently in order of lists. It keeps a pin between
 * calls, no lock.
 */
typedef struct CentroidReader
{
	Relation	index;
	uint32		dims;
	BlockNumber start;
	BufferHints hints;
	Buffer		buffer;
	BlockNumber block;			/* of the buffer */
	float	   *copy;			/* of a centroid that crosses pages */
} CentroidReader;

extern void centroid_reader_begin(CentroidReader *reader, Relation index,
								  const IndexFormat *format, const ListFormat *lists);
extern void centroid_reader_end(CentroidReader *reader);

/* The centroid of a list, valid until the next call. */
extern const float *centroid_of(CentroidReader *reader, uint32 list);

/*
 * Assigns rows to lists and encodes them. It has copies of consecutive
 * centroids: of all, or of as many as fit into memory.
 */
typedef struct ListCoder
{
	Relation	index;
	const IndexFormat *format;
	ListFormat	lists;
	uint32		first;			/* the list of the first centroid in the set */
	uint32		most;			/* centroids in the set, except in the last part, which may have
								 * fewer */
	float	   *centroids;
	void	   *tiles;
	Centroids	set;
	Quantizer  *quantizer;
} ListCoder;

/*
 * Open a coder, which is closed with the current memory context. Centroids take
 * at most this many bytes, but at least LIST_CODER_MIN of them are held.
 */
#define LIST_CODER_MIN	32

extern ListCoder *list_coder_open(Relation index, const IndexFormat *format,
								  const ListFormat *lists, Size bytes);

/* Whether all centroids are in the set. */
static inline bool
list_coder_has_all(const ListCoder *coder)
{
	return coder->most == coder->lists.lists;
}

/* Rows to be put into lists. */
typedef struct CodedRows
{
	uint32		count;
	float	   *wide;			/* count x dims; from list_widen */
	uint32	   *list;			/* of each row */
	double	   *distance;		/* squared, from its centroid */
	unsigned char *codes;
} CodedRows;

extern CodedRows *coded_rows_make(const IndexFormat *format, const ListFormat *lists, uint32 room);

/* Bytes of a row in CodedRows. */
extern Size coded_row_bytes(const IndexFormat *format, const ListFormat *lists);

/*
 * Assign and encode rows [first, first + count). The coder must have all
 * centroids. Threads may call it concurrently for different rows, because it
 * calls nothing of PostgreSQL.
 */
extern void list_coder_code(const ListCoder *coder, CodedRows *rows, uint32 first, uint32 count);

/*
 * The same in parts: read the centroids from this list on into the set; update
 * the rows' assignments by the centroids in the set; encode a row relative to
 * its list's centroid.
 */
extern void list_coder_read(ListCoder *coder, uint32 first);
extern void list_coder_assign(const ListCoder *coder, CodedRows *rows, uint32 first, uint32 count);
extern void list_coder_encode(const ListCoder *coder, CodedRows *rows, uint32 row,
							  const float *centroid);

#endif							/* GPUANN_LIST_CODES_H */
