/*
 * conformance_lists.h
 *		Worlds with lists, for the cases of searches and of jobs.
 */
#ifndef CONFORMANCE_LISTS_H
#define CONFORMANCE_LISTS_H

#include "conformance.h"

/* Every kind of codes. */
#define CODES	7
extern const ListSpec codes[CODES];

/* A quantizer for some lists and dimensions. */
extern ListSpec lists_of(uint32_t number, uint32_t lists, uint32_t dims);

/* Train from the rows there are; the result, not released, in *result. */
extern void world_train(World *world, LinkResult *result);

/* Link everything pending. */
extern void world_link_lists(World *world);

/* Link everything pending and keep the result. */
extern JobId world_link_and_keep(const World *world, LinkResult *result);

/* Give a mirror floats of centroids and codebook, in parts. */
extern void world_load_floats(const World *world, const float *floats, uint32_t count);

/* Give a slot a new vector in the mirror too. */
extern void world_overwrite(World *world, uint32_t slot, uint64_t variant);

/* Let a query vary by its number: bounds, filters, exclusions. */
extern void list_query_vary(EngineQuery *query, const World *world, uint32_t number);

/* A query of lists. */
extern void list_query_init(EngineQuery *query, const World *world, uint32_t k, uint32_t probes,
							uint32_t rerank, const void *vector);

/* Queries that probe all lists and re-rank must answer as the model. */
extern void check_lists_exact(const World *world, uint32_t lists, const char *what);

#endif							/* CONFORMANCE_LISTS_H */
