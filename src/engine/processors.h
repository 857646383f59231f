/*
 * processors.h
 *		Number of processors that this process may use.
 */
#ifndef GPUANN_PROCESSORS_H
#define GPUANN_PROCESSORS_H

#ifdef __cplusplus
extern "C"
{
#endif

/*
 * Processors that this process may use at a time, at least 1: those that it may
 * run on (taskset, cpusets), and no more than the quota of its control groups.
 */
extern long processors_usable(void);

/*
 * The quota of control groups in processors, 0 if there is none: the least of
 * those of the groups that a file in the form of /proc/self/cgroup names, and
 * of the groups above these. root is where the hierarchies are mounted
 * (/sys/fs/cgroup).
 */
extern double processors_quota(const char *groups, const char *root);

#ifdef __cplusplus
}
#endif

#endif							/* GPUANN_PROCESSORS_H */
