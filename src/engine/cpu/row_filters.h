/*
 * row_filters.h
 *		Which rows of a mirror may pass a program: bitmaps, cached by program.
 *
 * Private to the CPU engine. A bitmap is never changed: one that covers later
 * appends and overwrites is another one.
 */
#ifndef GPUANN_ROW_FILTERS_H
#define GPUANN_ROW_FILTERS_H

#include "engine/cpu/mirror.h"
#include "engine/filter_program.h"

#define FILTERS_KEPT		64		/* programs of a mirror whose bitmaps are cached */
#define FILTERS_SHARE		16		/* and take at most this part of its vectors' bytes */

/* The rows that may pass, as a bitmap of slots. */
typedef struct RowFilter
{
	_Atomic uint32_t references;
	uint32_t	rows;			/* slots below this were evaluated */
	uint32_t	passing;		/* bits set */
	uint64_t	overwrites;		/* of the mirror's rows, considered in it */
	uint64_t	bits[];
} RowFilter;

extern bool row_filters_create(Mirror *mirror);
extern void row_filters_free(Mirror *mirror);

/*
 * Before and after a job overwrites rows. Called by the mirror's writer; a
 * mirror without columns has nothing to do.
 */
extern void row_filters_overwriting(Mirror *mirror, const uint32_t *slots, uint32_t count);
extern void row_filters_overwritten(Mirror *mirror);

/* Rows overwritten so far by jobs that have completed. */
extern uint64_t row_filters_overwrites(const Mirror *mirror);

/*
 * The rows below `rows` at least that may pass a program, with this many
 * overwrites considered at least; to be released. Evaluated, brought up to date
 * or taken from the cache. NULL: out of memory.
 */
extern RowFilter *row_filters_find(Mirror *mirror, const FilterProgram *program, uint32_t rows,
								   uint64_t overwrites);
extern void row_filter_release(RowFilter *filter);

/*
 * Free cached bitmaps that no query is about to take, because memory is short.
 * Returns whether there were any.
 */
extern bool row_filters_shrink(Mirror *mirror);

#endif							/* GPUANN_ROW_FILTERS_H */
