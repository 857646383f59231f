/*
 * mirror_seeds.cu
 *		The range of a mirror's seeds: seeds in two halves, parameters of codes,
 *		lists of entry points in two sides.
 */
#include "cuda/memory/mirror.h"
#include "cuda/memory/mirror_seeds.h"

#define MIN_MEMBERS 8u /* entries per pivot, at least, where entries are few */

/* --- what codes are made with --------------------------------------------- */

/*
 * Parameters of codes, behind the seeds: minima, maxima, offsets, rotation,
 * verdict.
 */
static uint32_t *
room_of(const CudaMirror *mirror)
{
	return (uint32_t *) mirror->seeds.base + 2 * SEEDS_ROOM;
}

size_t
quantizer_room(const MirrorSpec *spec)
{
	return 4 * (size_t) spec->dims * sizeof(uint32_t) + sizeof(QuantizerVerdict);
}

const float *
quantizer_offsets(const CudaMirror *mirror)
{
	return (const float *) (room_of(mirror) + 2 * (size_t) mirror->spec.dims);
}

const uint32_t *
quantizer_rotation(const CudaMirror *mirror)
{
	return room_of(mirror) + 3 * (size_t) mirror->spec.dims;
}

CudaCodedRows
coded_rows(const CudaMirror *mirror)
{
	MirrorView view = mirror_view(mirror);
	CudaCodedRows rows;

	rows.vectors = view.vectors;
	rows.norms = view.norms;
	rows.graph = view.graph;
	rows.codes = (unsigned char *) mirror->codes.base;
	rows.least = room_of(mirror);
	rows.greatest = rows.least + view.dims;
	rows.offsets = (float *) (rows.greatest + view.dims);
	rows.steps = mirror->code_steps;
	rows.scales = mirror->codes_rotated ? (float2 *) mirror->scales.base : NULL;
	rows.rotation = quantizer_rotation(mirror);
	rows.stride = view.stride;
	rows.code_stride = view.code_stride;
	rows.dims = view.dims;
	rows.degree = view.degree;
	rows.rows = view.rows;
	rows.type = mirror->spec.type;
	rows.metric = view.metric;
	return rows;
}

/* --- lists of entries ----------------------------------------------------- */

/* Bytes of a row of codes or bits. */
static size_t
row_bytes(const CudaMirror *mirror)
{
	return mirror->spec.type == ELEMENT_BIT ? mirror->stride : code_stride(mirror->spec.dims);
}

/* The same with a scale, which rotated codes have. */
static size_t
scaled_bytes(const CudaMirror *mirror)
{
	return row_bytes(mirror) + sizeof(float2);
}

/* Bytes of a side with npivots pivots: codes, scales, numbers, lists. */
static size_t
side_bytes(const CudaMirror *mirror, uint32_t npivots)
{
	return npivots * (scaled_bytes(mirror) + (1 + mirror->spec.degree) * sizeof(uint32_t));
}

/*
 * Bytes of two sides, and of the scratch for building one with nentries
 * entries.
 */
static size_t
sides_bytes(const CudaMirror *mirror, uint32_t npivots, uint32_t nentries)
{
	return 2 * side_bytes(mirror, npivots) +
		   (size_t) (ENTRY_CHOICES + 1) * nentries * sizeof(uint32_t);
}

/*
 * A side of lists for npivots pivots, behind the seeds and the parameters of
 * codes; side 2 is the scratch. Sides of more than PIVOTS pivots lie behind
 * those of fewer; only large mirrors have memory there.
 */
static unsigned char *
side_of(const CudaMirror *mirror, uint32_t npivots, uint32_t side)
{
	unsigned char *room =
		(unsigned char *) mirror->seeds.base +
		round_up(2 * SEEDS_ROOM * sizeof(uint32_t) + quantizer_room(&mirror->spec), 16);

	if (npivots <= PIVOTS)
		return room + side * side_bytes(mirror, PIVOTS);
	return room + round_up(sides_bytes(mirror, PIVOTS, ENTRIES_FEW), 16) +
		   side * side_bytes(mirror, PIVOTS_MAX);
}

uint32_t
entry_points_max(uint64_t rows)
{
	uint64_t most = rows / ROWS_OF_ENTRY;

	return most < ENTRIES_FEW ? ENTRIES_FEW : most < ENTRIES_MAX ? (uint32_t) most : ENTRIES_MAX;
}

size_t
entry_points_room(const CudaMirror *mirror, uint64_t slots)
{
	size_t room = 32 + sides_bytes(mirror, PIVOTS, ENTRIES_FEW);

	return entry_points_max(slots) > ENTRIES_FEW
			   ? room + sides_bytes(mirror, PIVOTS_MAX, ENTRIES_MAX)
			   : room;
}

uint32_t
entry_points_pivots(uint32_t nentries)
{
	uint32_t few = nentries / MIN_MEMBERS;

	if (nentries <= ENTRIES_FEW)
		return few < PIVOTS ? few : PIVOTS;
	return nentries / ENTRIES_OF_PIVOT < PIVOTS_MAX ? nentries / ENTRIES_OF_PIVOT : PIVOTS_MAX;
}

void
entry_points_published(const CudaMirror *mirror, MirrorView *view)
{
	uint32_t npivots = entry_points_pivots(mirror->nentries);
	unsigned char *side = side_of(mirror, npivots, mirror->entries_side);

	view->pivot_codes = (const signed char *) side;
	view->pivot_scales = (const float2 *) (side + npivots * row_bytes(mirror));
	view->pivots = (const uint32_t *) (side + npivots * scaled_bytes(mirror));
	view->npivots = npivots;
}

MirrorView
entry_points_view(const CudaMirror *mirror)
{
	MirrorView view = mirror_view(mirror);

	view.codes = (const signed char *) (view.type == ELEMENT_BIT ? mirror->vectors.base
																 : mirror->codes.base);
	view.code_stride = (uint32_t) row_bytes(mirror);
	return view;
}

EntryPoints
entry_points_of(const CudaMirror *mirror, uint32_t side, const uint32_t *entries, uint32_t nentries,
				uint32_t npivots)
{
	EntryPoints lists;

	lists.entries = entries;
	lists.npivots = npivots;
	lists.nentries = nentries;
	lists.rows = mirror->spec.type == ELEMENT_BIT ? mirror->rows : mirror->coded;
	lists.codes = (signed char *) side_of(mirror, npivots, side);
	lists.scales =
		mirror->codes_rotated ? (float2 *) (lists.codes + npivots * row_bytes(mirror)) : NULL;
	lists.pivots = (uint32_t *) (lists.codes + npivots * scaled_bytes(mirror));
	lists.choices = (uint32_t *) side_of(mirror, npivots, 2);
	lists.placed = lists.choices + (size_t) ENTRY_CHOICES * nentries;
	lists.copies = npivots * mirror->spec.degree / nentries;
	lists.copies = lists.copies < 1 ? 1 : lists.copies;
	lists.blocks = 0;
	return lists;
}
