/*
 * signature.h
 *		Check that a C function's SQL declaration matches the library's code.
 */
#ifndef GPUANN_SIGNATURE_H
#define GPUANN_SIGNATURE_H

#include "fmgr.h"

/*
 * Error out unless the function that is being called was declared with these
 * types of arguments and results: names as in pg_type, joined by commas; of a
 * function with OUT parameters those. Looks at the catalog at the first call of
 * a query only.
 */
extern void signature_check(FunctionCallInfo fcinfo, const char *arguments, const char *results);

#endif							/* GPUANN_SIGNATURE_H */
