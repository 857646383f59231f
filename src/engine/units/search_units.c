/*
 * search_units.c
 *		Units one after another, then the merge of their partial answers.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/units/search_units.h"

/* The nearest of a query on a unit. */
static TopK *
part_of(TopK *parts, const Schedule *schedule, uint32_t query, uint32_t unit)
{
	return &parts[(size_t) query * schedule->units + unit];
}

/* Scan all pairs of a unit; false: out of memory. */
static bool
scan_unit(const Schedule *schedule, const UnitScan *scan, uint32_t unit, TopK *parts,
		  UnitCounters *counters)
{
	for (uint32_t i = schedule->begins[unit]; i < schedule->begins[unit + 1]; i++)
	{
		const UnitPair *pair = &schedule->pairs[i];
		TopK	   *part = part_of(parts, schedule, pair->query, unit);

		if (part->heap == NULL)
		{
			part->k = scan->k;
			part->heap = malloc((size_t) scan->k * sizeof(SearchResult) + 1);
			if (part->heap == NULL)
				return false;
			counters->partials++;
		}
		scan->scan(scan->context, unit, pair, part);
	}
	return true;
}

bool
units_search(const Schedule *schedule, const UnitScan *scan, SearchResult *results,
			 uint32_t *counts, UnitCounters *counters)
{
	size_t		nparts = (size_t) scan->queries * schedule->units;
	TopK	   *parts = calloc(nparts + 1, sizeof(TopK));
	bool		done = parts != NULL;

	memset(counters, 0, sizeof(*counters));
	for (uint32_t unit = 0; done && unit < schedule->units; unit++)
		done = scan_unit(schedule, scan, unit, parts, counters);
	for (uint32_t query = 0; done && query < scan->queries; query++)
	{
		TopK		result = {.heap = results + (size_t) query * scan->k, .k = scan->k};
		TopK	   *of_query = part_of(parts, schedule, query, 0);

		for (uint32_t unit = 0; unit < schedule->units; unit++)
			counters->returned += of_query[unit].count;
		merge_parts(&result, of_query, schedule->units, &counters->merge);
		sort_results(result.heap, result.count);
		counts[query] = result.count;
	}
	for (size_t i = 0; parts != NULL && i < nparts; i++)
		free(parts[i].heap);
	free(parts);
	return done;
}
