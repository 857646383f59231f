/*
 * processors.h
 *		Number of processors this process may run on, as limited by a container
 *		or taskset.
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
	online = sysconf(_SC_NPROCESSORS_ONLN);	/* more processors than a cpu_set_t holds */
	return online > 0 ? online : 1;
}

#endif							/* GPUANN_PROCESSORS_H */
