/*
 * sorts.h
 *		Sorting that can be cancelled: what work_mem or maintenance_work_mem
 *		holds may take seconds to sort.
 */
#ifndef GPUANN_SORTS_H
#define GPUANN_SORTS_H

#include "postgres.h"

#include "engine/engine.h"

/* By distance, then slot. */
extern void sort_answer(SearchResult *results, size_t count);

/* Ascending. */
extern void sort_slots(uint32 *slots, size_t count);

#endif							/* GPUANN_SORTS_H */
