/*
 * list_work.h
 *		Rows and probes of an index's lists.
 */
#ifndef GPUANN_LIST_WORK_H
#define GPUANN_LIST_WORK_H

#include "base/sql_index.h"
#include "engine/units/placement.h"
#include "lists/lists.h"

typedef struct ListWork
{
	ListFormat	lists;
	uint32	   *rows;			/* entries of each list */
	double	   *probes;			/* of each list, as the server has counted; NULL: it has not */
	double		counted;		/* the sum of them */
} ListWork;

/* Open an index for a function; errors out unless it has lists. */
extern void list_work_open(Oid oid, SqlIndex *opened);

/* Read its directory, and ask for counts. */
extern void list_work_read(Relation index, ListWork *work);

/*
 * An error raised by an interrupt during plain C code, which allocates by
 * malloc and must not be left by longjmp: the error is kept until that has
 * returned and freed its memory.
 */
typedef struct CaughtInterrupt
{
	MemoryContext memory;		/* where the error is kept */
	ErrorData  *error;			/* NULL: none */
} CaughtInterrupt;

/*
 * Serve interrupts. Returns whether one raised an error, which is kept; those
 * that raise nothing end nothing. The argument is a CaughtInterrupt.
 */
extern bool interrupt_caught(void *context);

/* Raise the error that was kept, if there is one. */
extern void interrupt_rethrow(const CaughtInterrupt *caught);

/* Bytes of a list's entries. */
static inline uint64
list_work_bytes(const ListWork *work, uint32 list)
{
	return (uint64) work->rows[list] * (2 * sizeof(uint32) + work->lists.code_bytes);
}

#endif							/* GPUANN_LIST_WORK_H */
