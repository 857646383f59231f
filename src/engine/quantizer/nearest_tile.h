/*
 * nearest_tile.h
 *		Values of a chunk of rows against all centroids, at one SIMD level.
 *
 * Included by nearest.c once per level, with LEVEL(name), TARGET, LANES (of a
 * register), ROWS (that share registers of centroids) and FUSED(a, b, c), a
 * times b plus c. The value of a row and a centroid is half the centroid's
 * squared norm less their product: it orders centroids as the distance does.
 */
typedef float LEVEL(Floats) __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t LEVEL(Words) __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

/* Where a mask is set a, else b. */
#define PICK(mask, a, b) \
	((LEVEL(Floats)) (((mask) & (LEVEL(Words)) (a)) | (~(mask) & (LEVEL(Words)) (b))))

/* Let a row's values of LANES centroids, the first of number `at`, compete. */
TARGET NEAREST_INLINE void
LEVEL(track)(LaneBest *best, uint32_t lane, LEVEL(Floats) value, int32_t at)
{
	LEVEL(Floats) *least = (LEVEL(Floats) *) &best->least[lane];
	LEVEL(Floats) *second = (LEVEL(Floats) *) &best->second[lane];
	LEVEL(Words) *first_at = (LEVEL(Words) *) &best->at[lane];
	LEVEL(Words) nearer = value < *least;
	LEVEL(Floats) other = PICK(nearer, *least, value);

	*second = PICK(other < *second, other, *second);
	*least = PICK(nearer, value, *least);
	*first_at = (nearer & at) | (~nearer & *first_at);
}

/* The values of ROWS rows and two registers of centroids. */
TARGET NEAREST_INLINE void
LEVEL(products)(const float *const *rows, const float *tile, const float *half_norms,
				uint32_t dims, uint32_t lane, int32_t at, LaneBest *best)
{
	LEVEL(Floats) left[ROWS];
	LEVEL(Floats) right[ROWS];

	for (int r = 0; r < ROWS; r++)
		left[r] = right[r] = (LEVEL(Floats)) {0};
	for (uint32_t i = 0; i < dims; i++)
	{
		LEVEL(Floats) a = *(const LEVEL(Floats) *) &tile[(size_t) i * NEAREST_TILE + lane];
		LEVEL(Floats) b = *(const LEVEL(Floats) *) &tile[(size_t) i * NEAREST_TILE + lane + LANES];

#pragma GCC unroll 8
		for (int r = 0; r < ROWS; r++)
		{
			LEVEL(Floats) x = rows[r][i] - (LEVEL(Floats)) {0};

			left[r] = FUSED(x, a, left[r]);
			right[r] = FUSED(x, b, right[r]);
		}
	}
	for (int r = 0; r < ROWS; r++)
	{
		LEVEL(track)(&best[r], lane, *(const LEVEL(Floats) *) &half_norms[lane] - left[r], at);
		LEVEL(track)(&best[r], lane + LANES,
					 *(const LEVEL(Floats) *) &half_norms[lane + LANES] - right[r], at);
	}
}

/* All centroids against NEAREST_ROWS rows. */
TARGET static void
LEVEL(chunk)(const Centroids *set, const float *const *rows, uint32_t groups, LaneBest *best)
{
	for (uint32_t at = 0; at < set->count; at += NEAREST_TILE)
		for (uint32_t row = 0; row < groups * NEAREST_GROUP; row += ROWS)
			for (uint32_t lane = 0; lane < NEAREST_TILE; lane += 2 * LANES)
				LEVEL(products)(rows + row, set->tiles + (size_t) at * set->dims,
								set->half_norms + at, set->dims, lane, (int32_t) at, best + row);
}

/* Write the values of `count` rows, ROWS or one, and all centroids. */
TARGET NEAREST_INLINE void
LEVEL(write_values)(const Centroids *set, const float *const *rows, const int count, float *out,
					size_t stride)
{
	for (uint32_t at = 0; at < set->count; at += NEAREST_TILE)
		for (uint32_t lane = 0; lane < NEAREST_TILE; lane += 2 * LANES)
		{
			const float *tile = set->tiles + (size_t) at * set->dims + lane;
			const float *half_norms = set->half_norms + at + lane;
			LEVEL(Floats) left[ROWS];
			LEVEL(Floats) right[ROWS];

			for (int r = 0; r < count; r++)
				left[r] = right[r] = (LEVEL(Floats)) {0};
			for (uint32_t i = 0; i < set->dims; i++, tile += NEAREST_TILE)
#pragma GCC unroll 8
				for (int r = 0; r < count; r++)
				{
					LEVEL(Floats) x = rows[r][i] - (LEVEL(Floats)) {0};

					left[r] = FUSED(x, *(const LEVEL(Floats) *) tile, left[r]);
					right[r] = FUSED(x, *(const LEVEL(Floats) *) (tile + LANES), right[r]);
				}
			for (int r = 0; r < count; r++)
			{
				float	   *place = out + r * stride + at + lane;

				*(LEVEL(Floats) *) place = *(const LEVEL(Floats) *) half_norms - left[r];
				*(LEVEL(Floats) *) (place + LANES) =
					*(const LEVEL(Floats) *) (half_norms + LANES) - right[r];
			}
		}
}

/* The values of some rows and all centroids. */
TARGET static void
LEVEL(values)(const Centroids *set, const float *const *rows, uint32_t count, float *out,
			  size_t stride)
{
	uint32_t	row = 0;

	for (; row + ROWS <= count; row += ROWS)
		LEVEL(write_values)(set, rows + row, ROWS, out + row * stride, stride);
	for (; row < count; row++)
		LEVEL(write_values)(set, rows + row, 1, out + row * stride, stride);
}

#undef PICK
#undef LEVEL
#undef TARGET
#undef LANES
#undef ROWS
#undef FUSED
