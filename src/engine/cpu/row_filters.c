/*
 * row_filters.c
 *		Bitmaps of the rows that may pass a program, cached by program.
 *
 * The cache of a mirror has a lock for its list, which is never held for long,
 * and one for each program, held while its bitmap is made: queries with one
 * program wait for the first of them, and no program is evaluated twice at
 * once. A bitmap whose rows have grown, or some of which were overwritten, is
 * copied and evaluated for these rows alone. The last OVERWRITES_KEPT
 * overwritten slots are in a ring; after more of them all rows are evaluated.
 *
 * A record may be overwritten while it is read: a deliberate race. The query
 * that is evaluated then was submitted before the job completed, and to it the
 * slot's old row is dead and its new row beyond its position. Later queries
 * require a bitmap that has considered the overwrite.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bits.h"
#include "engine/cpu/row_filters.h"

#define OVERWRITES_KEPT		1024

/* A program and its latest bitmap. */
typedef struct CachedFilter
{
	struct CachedFilter *next;	/* the next one by last use */
	FilterProgram *program;
	uint32_t	users;			/* threads that use it; under the cache's lock */
	size_t		bytes;			/* charged to the budget; under the cache's lock */
	pthread_mutex_t lock;		/* held while the bitmap is made */
	RowFilter  *filter;			/* NULL: not yet made */
} CachedFilter;

typedef struct RowFilters
{
	pthread_mutex_t lock;
	CachedFilter *first;		/* used last */
	uint64_t	bytes;
	_Atomic uint64_t begun;		/* overwrites of jobs that have begun */
	_Atomic uint64_t ended;		/* and of those that have completed */
	_Atomic uint32_t ring[OVERWRITES_KEPT]; /* overwrite i: its slot is in i % OVERWRITES_KEPT */
} RowFilters;

/* ---- bitmaps ---- */

void
row_filter_release(RowFilter *filter)
{
	if (filter != NULL && atomic_fetch_sub(&filter->references, 1) == 1)
		free(filter);
}

/* Evaluate rows [first, end); first is a multiple of 64. */
static void
evaluate_rows(const Mirror *mirror, const FilterProgram *program, uint32_t first, uint32_t end,
			  uint64_t *bits)
{
	uint32_t	slots = (uint32_t) 1 << mirror->chunk_shift;

	while (first < end)
	{
		uint32_t	place = mirror_place(mirror, first);
		uint32_t	count = end - first < slots - place ? end - first : slots - place;
		FilterRows	rows;

		filter_record_rows(mirror->spec.column_kinds, mirror->spec.columns,
						   mirror_chunk(mirror, first)->records + place * mirror->record_bytes,
						   count, &rows);
		filter_run(program, &rows, FILTER_MAY, bits + first / 64);
		first += count;
	}
}

/*
 * Evaluate anew the rows of a bitmap that were overwritten since the `from`th
 * overwrite. Returns false if there were too many.
 */
static bool
evaluate_overwritten(const Mirror *mirror, const FilterProgram *program, uint64_t from,
					 RowFilter *filter)
{
	RowFilters *filters = mirror->filters;

	if (filter->overwrites - from > OVERWRITES_KEPT)
		return false;
	for (uint64_t i = from; i < filter->overwrites; i++)
	{
		uint32_t	slot = atomic_load(&filters->ring[i % OVERWRITES_KEPT]);
		uint32_t	first = slot / 64 * 64;

		if (slot < filter->rows)
			evaluate_rows(mirror, program, first,
						  filter->rows - first < 64 ? filter->rows : first + 64, filter->bits);
	}
	/* A job that began meanwhile may have replaced slots in the ring. */
	return atomic_load(&filters->begun) - from <= OVERWRITES_KEPT;
}

/* Make the bitmap of all rows, from an older one if there is one. */
static RowFilter *
make_filter(const Mirror *mirror, const FilterProgram *program, const RowFilter *old)
{
	uint64_t	overwrites = row_filters_overwrites(mirror);
	uint32_t	rows = atomic_load_explicit(&mirror->rows, memory_order_acquire);
	uint32_t	first = 0;
	RowFilter  *filter = malloc(sizeof(*filter) + bits64_bytes(rows));

	if (filter == NULL)
		return NULL;
	*filter = (RowFilter) {.references = 1, .rows = rows, .overwrites = overwrites};
	if (old != NULL)
	{
		memcpy(filter->bits, old->bits, bits64_bytes(old->rows));
		if (evaluate_overwritten(mirror, program, old->overwrites, filter))
			first = old->rows / 64 * 64;
	}
	evaluate_rows(mirror, program, first, rows, filter->bits);
	for (uint32_t i = 0; i < (rows + 63) / 64; i++)
		filter->passing += (uint32_t) __builtin_popcountll(filter->bits[i]);
	return filter;
}

/* ---- the cache ---- */

bool
row_filters_create(Mirror *mirror)
{
	mirror->filters = calloc(1, sizeof(RowFilters));
	if (mirror->filters == NULL)
		return false;
	pthread_mutex_init(&mirror->filters->lock, NULL);
	atomic_fetch_add(&mirror->budget->state, sizeof(RowFilters));
	return true;
}

static void
cached_free(CachedFilter *cached)
{
	row_filter_release(cached->filter);
	pthread_mutex_destroy(&cached->lock);
	free(cached->program);
	free(cached);
}

/* Count a cached program's bytes as this many; locked. */
static void
charge(Mirror *mirror, CachedFilter *cached, size_t bytes)
{
	mirror->filters->bytes += bytes - cached->bytes;
	atomic_fetch_add(&mirror->budget->state, bytes - cached->bytes);
	cached->bytes = bytes;
}

/*
 * Free the programs beyond the `kept` used last, and while these take more than
 * their share or the memory limit is exceeded, others that have not been used
 * for longest; locked. Those in use stay.
 */
static bool
evict(Mirror *mirror, uint32_t kept)
{
	RowFilters *filters = mirror->filters;
	uint64_t	most = (uint64_t) atomic_load(&mirror->rows) * mirror->vector_stride / FILTERS_SHARE;
	bool		any = false;

	for (;;)
	{
		CachedFilter **last = NULL;
		CachedFilter *cached;
		uint32_t	count = 0;

		for (CachedFilter **at = &filters->first; *at != NULL; at = &(*at)->next, count++)
			if ((*at)->users == 0)
				last = at;
		if (last == NULL || (count <= kept && filters->bytes <= most &&
							 budget_used(mirror->budget) <= mirror->budget->limit))
			return any;
		any = true;
		cached = *last;
		*last = cached->next;
		charge(mirror, cached, 0);
		cached_free(cached);
	}
}

bool
row_filters_shrink(Mirror *mirror)
{
	bool		any;

	if (mirror->filters == NULL)
		return false;
	pthread_mutex_lock(&mirror->filters->lock);
	any = evict(mirror, 0);
	pthread_mutex_unlock(&mirror->filters->lock);
	return any;
}

void
row_filters_free(Mirror *mirror)
{
	if (mirror->filters == NULL)
		return;
	(void) row_filters_shrink(mirror);
	pthread_mutex_destroy(&mirror->filters->lock);
	atomic_fetch_sub(&mirror->budget->state, sizeof(RowFilters));
	free(mirror->filters);
	mirror->filters = NULL;
}

/* Find a program in the cache, or add it, as the one used last; locked. */
static CachedFilter *
cached_find(RowFilters *filters, const FilterProgram *program)
{
	CachedFilter **at = &filters->first;
	CachedFilter *cached;

	while (*at != NULL && !program_same((*at)->program, program))
		at = &(*at)->next;
	cached = *at;
	if (cached != NULL)
		*at = cached->next;
	else
	{
		cached = calloc(1, sizeof(*cached));
		if (cached == NULL)
			return NULL;
		cached->program = program_copy(program);
		if (cached->program == NULL)
		{
			free(cached);
			return NULL;
		}
		pthread_mutex_init(&cached->lock, NULL);
	}
	cached->next = filters->first;
	filters->first = cached;
	return cached;
}

RowFilter *
row_filters_find(Mirror *mirror, const FilterProgram *program, uint32_t rows, uint64_t overwrites)
{
	RowFilters *filters = mirror->filters;
	CachedFilter *cached;
	RowFilter  *filter;

	pthread_mutex_lock(&filters->lock);
	cached = cached_find(filters, program);
	if (cached != NULL)
		cached->users++;
	pthread_mutex_unlock(&filters->lock);
	if (cached == NULL)
		return NULL;
	pthread_mutex_lock(&cached->lock);
	filter = cached->filter;
	if (filter == NULL || filter->rows < rows || filter->overwrites < overwrites)
	{
		filter = make_filter(mirror, cached->program, cached->filter);
		if (filter != NULL)
		{
			row_filter_release(cached->filter);
			cached->filter = filter;
		}
	}
	if (filter != NULL)
		atomic_fetch_add(&filter->references, 1);
	pthread_mutex_unlock(&cached->lock);
	pthread_mutex_lock(&filters->lock);
	cached->users--;
	if (filter != NULL)
		charge(mirror, cached,
			   sizeof(*cached) + sizeof(FilterProgram) + program_bytes(program) +
			   bits64_bytes(filter->rows));
	(void) evict(mirror, FILTERS_KEPT);
	pthread_mutex_unlock(&filters->lock);
	return filter;
}

/* ---- overwrites ---- */

/*
 * The ring is written before any row, and read with `begun` checked after it:
 * so a reader knows whether a slot that it needed was replaced.
 */
void
row_filters_overwriting(Mirror *mirror, const uint32_t *slots, uint32_t count)
{
	RowFilters *filters = mirror->filters;
	uint64_t	first;

	if (filters == NULL)
		return;
	first = atomic_fetch_add(&filters->begun, count);
	for (uint32_t i = 0; i < count; i++)
		atomic_store(&filters->ring[(first + i) % OVERWRITES_KEPT], slots[i]);
}

void
row_filters_overwritten(Mirror *mirror)
{
	if (mirror->filters != NULL)
		atomic_store(&mirror->filters->ended, atomic_load(&mirror->filters->begun));
}

uint64_t
row_filters_overwrites(const Mirror *mirror)
{
	return mirror->filters != NULL ? atomic_load(&mirror->filters->ended) : 0;
}
