/*
 * processors.h
 *		How many processors this process may run on: of all that are online,
 *		those that a container or taskset leaves it.
 */
#ifndef GPUANN_PROCESSORS_H
#define GPUANN_PROCESSORS_H

#include <sched.h>
#include <unistd.h>

static inline long
processors_usable(void)
{
	cpu_set_t	usable;
	long		online;

	if (sched_getaffinity(0, sizeof(usable), &usable) == 0)
		return CPU_COUNT(&usable);
	online = sysconf(_SC_NPROCESSORS_ONLN);	/* more than a set holds */
	return online > 0 ? online : 1;
}

#endif							/* GPUANN_PROCESSORS_H */
