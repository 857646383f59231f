/*
 * faults.h
 *		Named points at which a test makes this code crash, fail or wait.
 *		Without GPUANN_TEST_FAULTS nothing of it is compiled.
 *
 * A session arms one point: SET gpuann.fault = 'POINT ACTION [N]'. The N-th
 * time (1: the first) that it comes there,
 *
 *	crash	what is in WAL so far reaches the disk, then the process ends as a
 *			crashed one does, and with it the cluster
 *	lose	the same, but WAL that nobody has flushed is lost
 *	error	an ERROR is raised
 *	fail	(every time) the same
 *	wait	the file gpuann_fault.POINT appears in the data directory; it goes
 *			on when a test has removed it
 *	delay	(every time) it sleeps N milliseconds
 *
 * t/115_faults_at_every_point.pl comes to every point; it finds their names in
 * these sources.
 *
 * And the work between two chances to be cancelled is measured: SET
 * gpuann.longest_work = '' begins, SHOW gpuann.longest_work tells the most
 * milliseconds of this process's processor time, and between which lines. Time
 * that others had is not in it, so a test can hold a bound to it on a busy
 * machine.
 */
#ifndef GPUANN_FAULTS_H
#define GPUANN_FAULTS_H

#ifdef GPUANN_TEST_FAULTS
extern void faults_define_setting(void);
extern int	faults_row_limit;	/* gpuann.row_limit: slots an index may have */
extern int	faults_mirror_limit;	/* gpuann.mirror_limit: entries of the mirror table */
extern int	faults_count_limit;	/* gpuann.count_limit: counts of lists in the area */
extern int	faults_save_interval;	/* gpuann.save_interval: ms between writes of the state file */
extern int	faults_row_log;		/* gpuann.row_log: who writes the record of an append */
extern void fault_point(const char *point);
extern void work_point(const char *file, int line);

/*
 * append_wal.c, as ever; the server's GenericXLog, of the same change; or
 * append_wal.c with wrong offsets, to show that tests find a record that is not
 * as the server would write and replay it.
 */
typedef enum RowLogForm
{
	ROW_LOG_DIRECT,
	ROW_LOG_GENERIC,
	ROW_LOG_BROKEN
} RowLogForm;

#define FAULT_POINT(point)	fault_point(point)
#define WORK_POINT()	work_point(__FILE__, __LINE__)

/* The macro's own header must not come later and give it its old meaning. */
#include "miscadmin.h"
#undef CHECK_FOR_INTERRUPTS
#define CHECK_FOR_INTERRUPTS() \
	do { \
		WORK_POINT(); \
		if (INTERRUPTS_PENDING_CONDITION()) \
			ProcessInterrupts(); \
	} while (0)
#else
#define FAULT_POINT(point)	((void) 0)
#define WORK_POINT()	((void) 0)
#endif

#endif							/* GPUANN_FAULTS_H */
