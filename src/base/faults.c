/*
 * faults.c
 *		Fault injection points, and a meter of the longest time without an
 *		interrupt check; in test builds only. See faults.h.
 */
#include "postgres.h"

#include "base/faults.h"

#ifdef GPUANN_TEST_FAULTS

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "engine/engine.h"
#include "miscadmin.h"
#include "server/protocol.h"
#include "storage/fd.h"
#include "utils/guc.h"

#define WAIT_POLL_US	1000

typedef enum FaultAction
{
	FAULT_NONE,
	FAULT_CRASH,
	FAULT_LOSE,
	FAULT_ERROR,
	FAULT_FAIL,
	FAULT_WAIT,
	FAULT_DELAY
} FaultAction;

/* The fault armed in this process. */
typedef struct Fault
{
	FaultAction action;
	char		point[NAMEDATALEN];
	int			n;				/* remaining passes until it acts; or milliseconds */
} Fault;

/* A place in the sources where interrupts are processed. */
typedef struct WorkPlace
{
	const char *file;
	int			line;
} WorkPlace;

/* The longest work between two such places in one statement. */
typedef struct WorkMeter
{
	bool		on;
	TimestampTz statement;
	WorkPlace	last;
	double		last_ms;		/* of processor time */
	WorkPlace	from;
	WorkPlace	to;
	double		longest_ms;
} WorkMeter;

int			faults_mirror_limit = AREA_MIRRORS;
int			faults_row_limit = ENGINE_MAX_SLOTS;
int			faults_count_limit = AREA_LIST_COUNTS;
int			faults_save_interval = 60000;
int			faults_row_log = ROW_LOG_DIRECT;

static const struct config_enum_entry append_wal_options[] = {
	{"direct", ROW_LOG_DIRECT, false},
	{"generic", ROW_LOG_GENERIC, false},
	{"broken", ROW_LOG_BROKEN, false},
	{NULL, 0, false}
};

static char *longest_work_setting = NULL;
static WorkMeter meter;
static char *fault_setting = NULL;
static Fault armed;

/* Parse a setting. False if it is not one. */
static bool
parse_fault(const char *setting, Fault *fault)
{
	static const char *const names[] = {"", "crash", "lose", "error", "fail", "wait", "delay"};
	char		action[NAMEDATALEN];
	int			fields;

	memset(fault, 0, sizeof(*fault));
	fault->n = 1;
	if (setting == NULL || setting[0] == '\0')
		return true;
	fields = sscanf(setting, "%63s %63s %d", fault->point, action, &fault->n);
	for (int i = 1; fields >= 2 && i < (int) lengthof(names); i++)
		if (strcmp(action, names[i]) == 0)
			fault->action = (FaultAction) i;
	return fault->action != FAULT_NONE && fault->n > 0;
}

static bool
check_fault(char **newval, void **extra, GucSource source)
{
	Fault		fault;

	return parse_fault(*newval, &fault);
}

static void
assign_fault(const char *newval, void *extra)
{
	(void) parse_fault(newval, &armed);
}

/* Begin to measure. */
static void
assign_longest_work(const char *newval, void *extra)
{
	meter = (WorkMeter) {.on = newval != NULL};
}

static const char *
show_longest_work(void)
{
	static char shown[256];

	snprintf(shown, sizeof(shown), "%.1f %s:%d %s:%d", meter.longest_ms,
			 meter.from.file ? meter.from.file : "", meter.from.line,
			 meter.to.file ? meter.to.file : "", meter.to.line);
	return shown;
}

/*
 * Called at each CHECK_FOR_INTERRUPTS(); counts unless interrupts are held off.
 */
void
work_point(const char *file, int line)
{
	WorkPlace	place = {file, line};
	struct timespec now;
	double		ms;

	if (!meter.on || InterruptHoldoffCount > 0 || CritSectionCount > 0)
		return;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	ms = (double) now.tv_sec * 1000 + (double) now.tv_nsec / 1e6;
	if (meter.statement == GetCurrentStatementStartTimestamp() &&
		ms - meter.last_ms > meter.longest_ms)
	{
		meter.longest_ms = ms - meter.last_ms;
		meter.from = meter.last;
		meter.to = place;
	}
	meter.statement = GetCurrentStatementStartTimestamp();
	meter.last = place;
	meter.last_ms = ms;
}

/* Declare gpuann.fault and its like. */
void
faults_define_setting(void)
{
	DefineCustomIntVariable("gpuann.row_limit", "Sets how many slots an index may have.",
							"For tests only.", &faults_row_limit, ENGINE_MAX_SLOTS, 1,
							ENGINE_MAX_SLOTS, PGC_USERSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
	DefineCustomIntVariable("gpuann.mirror_limit", "Sets how many indexes the mirror table holds.",
							"For tests only.", &faults_mirror_limit, AREA_MIRRORS, 1, AREA_MIRRORS,
							PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
	DefineCustomIntVariable("gpuann.count_limit",
							"Sets how many counts of lists the shared area has.", "For tests only.",
							&faults_count_limit, AREA_LIST_COUNTS, 64, AREA_LIST_COUNTS, PGC_SUSET,
							GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
	DefineCustomIntVariable("gpuann.save_interval",
							"Sets after how long the launcher saves counters again.",
							"For tests only.", &faults_save_interval, 60000, 1,
							60000, PGC_SIGHUP, GUC_NOT_IN_SAMPLE | GUC_UNIT_MS, NULL, NULL,
							NULL);
	DefineCustomEnumVariable("gpuann.row_log", "Sets who writes the WAL records of appends.",
							 "For tests only.", &faults_row_log, ROW_LOG_DIRECT, append_wal_options,
							 PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
	DefineCustomStringVariable(
		"gpuann.longest_work",
		"Begins to measure work that cannot be cancelled; shows the longest.", "For tests only.",
		&longest_work_setting, NULL, PGC_USERSET, GUC_NOT_IN_SAMPLE, NULL, assign_longest_work,
		show_longest_work);
	DefineCustomStringVariable("gpuann.fault", "Arms a fault point: POINT ACTION [N].",
							   "For tests only.", &fault_setting, "", PGC_SUSET, GUC_NOT_IN_SAMPLE,
							   check_fault, assign_fault, NULL);
}

/*
 * Create the point's file, and wait until a test has removed it. Under a
 * content lock interrupts are held off, so cancels wait too.
 */
static void
wait_at(const char *point)
{
	char		path[MAXPGPATH];
	struct stat status;
	FILE	   *file;

	snprintf(path, sizeof(path), "gpuann_fault.%s", point);
	file = AllocateFile(path, "w");
	if (file == NULL)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not create file \"%s\": %m", path)));
	FreeFile(file);
	while (stat(path, &status) == 0)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(WAIT_POLL_US);
	}
}

/*
 * Where the last record ends. Where that is the end of a page, the next one
 * begins behind a page header, which is not written yet.
 */
static XLogRecPtr
end_of_wal(void)
{
	XLogRecPtr	next = GetXLogInsertRecPtr();

	if (XLogSegmentOffset(next, wal_segment_size) == SizeOfXLogLongPHD)
		return next - SizeOfXLogLongPHD;
	return next % XLOG_BLCKSZ == SizeOfXLogShortPHD ? next - SizeOfXLogShortPHD : next;
}

/* Reach a fault point, and act if it is armed. */
void
fault_point(const char *point)
{
	FaultAction action = armed.action;

	if (action == FAULT_NONE || strcmp(point, armed.point) != 0)
		return;
	if (action == FAULT_DELAY)
	{
		pg_usleep(armed.n * 1000L);
		return;
	}
	if (action != FAULT_FAIL && --armed.n > 0)
		return;
	if (action != FAULT_FAIL)
		armed.action = FAULT_NONE;
	switch (action)
	{
		case FAULT_CRASH:
			XLogFlush(end_of_wal());
			_exit(2);
		case FAULT_LOSE:
			_exit(2);
		case FAULT_ERROR:
		case FAULT_FAIL:
			ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("fault at %s", point)));
			break;
		default:
			wait_at(point);
	}
}

#endif							/* GPUANN_TEST_FAULTS */
