/*
 * entries.c
 *		The engine's mirrors, and the queue of those with a job to run.
 */
#include "engine/cpu/task_queue.h"

/* Find a mirror, unless it is being dropped; locked. */
MirrorEntry *
entry_find(CpuEngine *engine, MirrorId id)
{
	for (MirrorEntry *entry = engine->mirrors; entry != NULL; entry = entry->next)
		if (entry->mirror->id == id)
			return entry->dropping ? NULL : entry;
	return NULL;
}

/* Queue a mirror if its first job can run now; locked. */
void
entry_make_ready(CpuEngine *engine, MirrorEntry *entry)
{
	CpuJob	   *job = entry->first_job;

	if (job == NULL || entry->ready || entry->running ||
		(job->in.kind == JOB_DROP && entry->queries > 0))
		return;
	entry->ready = true;
	entry->next_ready = NULL;
	if (engine->first_ready == NULL)
		engine->first_ready = entry;
	else
		engine->last_ready->next_ready = entry;
	engine->last_ready = entry;
	pthread_cond_signal(&engine->work);
}

/* Take a mirror whose first job can run, or NULL; locked. */
MirrorEntry *
entry_take(CpuEngine *engine)
{
	MirrorEntry *entry = engine->first_ready;

	if (entry == NULL)
		return NULL;
	engine->first_ready = entry->next_ready;
	engine->parts_since_job = 0;
	entry->ready = false;
	entry->running = true;
	return entry;
}
