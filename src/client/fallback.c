/*
 * fallback.c
 *		Report why a scan was answered from pages: to the user, in the log, in
 *		the views.
 */
#include "base/base.h"

#include "client/shmem.h"
#include "client/client.h"
#include "client/mirror_table.h"

#include "utils/rel.h"

#define LOG_INTERVAL_MS	60000	/* interval between log lines for one reason, in all sessions */

/* The engine's message for the next report. */
static char detail[128];

const char *
fallback_reason_name(FallbackReason why)
{
	static const char *const names[FALLBACK_REASONS] = {
		"none",		 "off",		  "no_server",	 "not_loaded",	 "refused",
		"behind",	 "timeout",	  "server_died", "engine_error", "invalid_answer",
		"slot_busy", "too_large", "no_gpu",		 "not_preloaded"};

	return why >= 0 && why < FALLBACK_REASONS ? names[why] : "unknown";
}

/* A reason's text for messages. */
static const char *
fallback_text(FallbackReason why)
{
	static const char *const texts[FALLBACK_REASONS] = {
		"nothing is wrong",
		"the server is not used for this index",
		"no server is ready",
		"the mirror is not loaded yet",
		"the mirror was refused",
		"the mirror is too far behind",
		"the server did not answer in time",
		"the server died",
		"the engine reported an error",
		"the server's answer was not valid",
		"an abandoned request still occupies this session's slot",
		"query or answer is too large",
		"no usable GPU is found",
		"gpuann is not in shared_preload_libraries"};

	return why >= 0 && why < FALLBACK_REASONS ? texts[why] : "of an unknown reason";
}

void
fallback_detail(const char *text)
{
	strlcpy(detail, text, sizeof(detail));
}

/*
 * Log a fallback, unless one with the same reason was logged within
 * LOG_INTERVAL_MS; then only count it.
 */
static void
log_fallback(Relation index, FallbackReason why)
{
	FallbackLog *last = &gpuann_control->fallbacks[why];
	int64		now = monotonic_ms();
	int64_t		logged = atomic_load(&last->logged_ms);
	uint32		silent;

	if ((logged != 0 && now - logged < LOG_INTERVAL_MS) ||
		!atomic_compare_exchange_strong(&last->logged_ms, &logged, now))
	{
		atomic_fetch_add(&last->silent, 1);
		return;
	}
	silent = atomic_exchange(&last->silent, 0);
	ereport(
		LOG,
		(errmsg("gpuann index \"%s\" is searched in its pages: %s%s%s",
				RelationGetRelationName(index), fallback_text(why), detail[0] ? ": " : "", detail),
		 silent > 0 ? errdetail("%u more scans for this reason were not logged.", silent) : 0,
		 errhidestmt(true)));
}

void
fallback_report(Relation index, FallbackReason why)
{
	/* not if this session has turned the server off */
	if (why == FALLBACK_NONE || !gpuann_server)
		return;
	/* the launcher has logged that there is no GPU */
	if (why != FALLBACK_OFF && why != FALLBACK_NO_GPU &&
		gpuann_area != NULL)
		log_fallback(index, why);
	if (gpuann_fallback == GPUANN_FALLBACK_ERROR)
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("gpuann index cannot be searched by the server: %s", fallback_text(why)),
			 detail[0] ? errdetail("The engine says: %s.", detail) : 0,
			 why == FALLBACK_NO_GPU
				 ? errhint(
					   "Set gpuann.fallback to on or notice to search the index's pages instead; gpuann.engine = 'cpu' asks for a server on CPU threads.")
			 : why == FALLBACK_NOT_PRELOADED
				 ? errhint(
					   "Add gpuann to shared_preload_libraries and restart PostgreSQL, or set gpuann.fallback to on.")
				 : errhint(
					   "Set gpuann.fallback to on or notice to search the index's pages instead.")));
	if (gpuann_fallback == GPUANN_FALLBACK_NOTICE)
		ereport(NOTICE,
				(errmsg("gpuann index is searched in its pages: %s", fallback_text(why))));
	detail[0] = '\0';
}
