/*
 * clock.h
 *		A clock that never goes back.
 */
#ifndef GPUANN_ENGINE_CLOCK_H
#define GPUANN_ENGINE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Microseconds of CLOCK_MONOTONIC. */
static inline int64_t
monotonic_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* The same in milliseconds. */
static inline int64_t
monotonic_ms(void)
{
	return monotonic_us() / 1000;
}

/* Microseconds since 1970, by a clock that may be set. */
static inline int64_t
realtime_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

#endif							/* GPUANN_ENGINE_CLOCK_H */
