/*
 * sqlindex.h
 *		Opening the index that a SQL function was given.
 */
#ifndef GPUANN_SQLINDEX_H
#define GPUANN_SQLINDEX_H

#include "gpuann.h"

typedef struct SqlIndex
{
	Relation	heap;			/* NULL with locks that do not need it */
	Relation	index;
	LOCKMODE	mode;
} SqlIndex;

/* Open and lock table and index; errors out unless it is a gpuann index that the user may maintain. */
extern void sql_index_open(Oid oid, LOCKMODE mode, SqlIndex *opened);
extern void sql_index_close(SqlIndex *opened);

#endif							/* GPUANN_SQLINDEX_H */
