/*
 * node_checksums.c
 *		Checksums of the nodes that mirrors have, so that only changed nodes of
 *		a changed page are sent.
 *
 * VACUUM changes most pages, but few rows of each. The checksums are local to
 * the worker process, so another worker starts without; they are limited to
 * maintenance_work_mem for all mirrors together, and belong to one generation
 * of a mirror.
 */
#include "base/base.h"

#include "client/mirror_table.h"
#include "mirror/node_checksums.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/memutils.h"

struct NodeChecksums
{
	uint32		generation;		/* of the mirror */
	uint32		learned;		/* number of superblocks whose pages were read */
	uint32		room;
	uint32	   *sums;			/* by slot; 0: unknown */
};

static NodeChecksums checksums_of[AREA_MIRRORS];
static Size total_bytes = 0;

/* Discard the checksums of a mirror. */
static void
discard_all(NodeChecksums *known)
{
	if (known->sums != NULL)
		pfree(known->sums);
	total_bytes -= known->room * sizeof(uint32);
	memset(known, 0, sizeof(*known));
}

/* Make room for a number of slots. Returns false if that exceeds the limit. */
static bool
checksums_reserve(NodeChecksums *known, uint32 slots)
{
	Size		room = Min((Size) slots + slots / 8 + 64, UINT32_MAX);
	Size		bytes = room * sizeof(uint32);

	if (slots <= known->room)
		return true;
	if (total_bytes + bytes - known->room * sizeof(uint32) > (Size) maintenance_work_mem * 1024)
		return false;
	if (known->sums == NULL)
		known->sums = MemoryContextAllocHuge(TopMemoryContext, bytes);
	else
		known->sums = repalloc_huge(known->sums, bytes);
	memset(known->sums + known->room, 0, bytes - known->room * sizeof(uint32));
	total_bytes += bytes - known->room * sizeof(uint32);
	known->room = (uint32) room;
	return true;
}

NodeChecksums *
node_checksums(int entry, uint32 generation, uint32 slots)
{
	NodeChecksums *known = &checksums_of[entry];

	if (known->generation != generation)
		discard_all(known);
	known->generation = generation;
	if (checksums_reserve(known, slots))
		return known;
	discard_all(known);
	return NULL;
}

void
node_checksums_forget_all(int entry)
{
	discard_all(&checksums_of[entry]);
}

void
node_checksums_sweep(void)
{
	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		if (checksums_of[i].room > 0 &&
			checksums_of[i].generation != atomic_load(&mirror_area((int) i)->generation))
			discard_all(&checksums_of[i]);
	}
}

uint32 *
node_checksums_learned(NodeChecksums *known)
{
	return &known->learned;
}

void
node_checksums_forget(NodeChecksums *known, uint32 slot)
{
	if (known != NULL && slot < known->room)
		known->sums[slot] = 0;
}

bool
node_checksums_note(NodeChecksums *known, uint32 slot, uint32 sum)
{
	bool		same;

	if (known == NULL || slot >= known->room)
		return false;
	same = sum != 0 && known->sums[slot] == sum;
	known->sums[slot] = sum;
	return same;
}

/*
 * Checksum of a row: a sum of products of pairs of elements, each with a key
 * added (NH hash), which needs half as many multiplications as the row has
 * elements. It is computed for every row on pages that VACUUM changed. Two sums
 * allow the products to overlap. Degrees are even. Never returns 0.
 */
static uint32
row_sum(const uint32 *row, uint32 degree, uint64 start)
{
	static uint32 keys[ENGINE_MAX_DEGREE];
	static uint64 mixer = 0;
	uint64		sum;
	uint64		other = 0;
	uint32		i = 0;

	if (mixer == 0)
	{
		for (uint32 k = 0; k < ENGINE_MAX_DEGREE; k++)
			keys[k] = (uint32) hash_bytes_uint32_extended(k, 0);
		mixer = hash_bytes_uint32_extended(ENGINE_MAX_DEGREE, 0) | 1;
	}
	sum = start * mixer;
	for (; i + 3 < degree; i += 4)
	{
		sum += (uint64) (row[i] + keys[i]) * (row[i + 1] + keys[i + 1]);
		other += (uint64) (row[i + 2] + keys[i + 2]) * (row[i + 3] + keys[i + 3]);
	}
	for (; i + 1 < degree; i += 2)
		sum += (uint64) (row[i] + keys[i]) * (row[i + 1] + keys[i + 1]);
	return Max((uint32) (((sum + other) * mixer) >> 32), 1);
}

uint32
node_checksum(const uint32 *row, uint32 degree, uint32 slots, uint64 start)
{
	/*
	 * the mirror leaves out edges to slots it does not have, so the row has to
	 * be sent again
	 */
	for (uint32 i = 0; i < degree; i++)
	{
		if (row[i] != NO_SLOT && row[i] >= slots)
			return 0;
	}
	return row_sum(row, degree, start);
}

bool
node_checksums_note_row(NodeChecksums *known, uint32 slot, const uint32 *row, uint32 degree,
						uint32 slots, uint64 start)
{
	/*
	 * Usually unchanged. A row with a checksum has no edges beyond the mirror.
	 */
	if (known != NULL && slot < known->room && known->sums[slot] == row_sum(row, degree, start))
		return true;
	return node_checksums_note(known, slot, node_checksum(row, degree, slots, start));
}
