/*
 * block_lanes.h
 *		Estimates and lower bounds of a block, at one SIMD level: what
 *		scalar_estimate_one() and pq_estimate_one() do, lane by lane.
 *
 * Included by blocks.c once per level, with LEVEL(name), TARGET, LANES (of a
 * register) and ROOT(x), the square roots of a register.
 */
typedef float LEVEL(Floats) __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t LEVEL(Words) __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

/* Where a mask is set a, else b; all lanes the same; without signs. */
#define PICK(mask, a, b) \
	((LEVEL(Floats)) (((mask) & (LEVEL(Words)) (a)) | (~(mask) & (LEVEL(Words)) (b))))
#define ALL(x)		((x) - (LEVEL(Floats)) {0})
#define SIZE(x)		((LEVEL(Floats)) ((LEVEL(Words)) (x) & 0x7FFFFFFF))

/* lower_bound() */
TARGET BLOCKS_INLINE LEVEL(Floats)
LEVEL(bound)(bool squares, LEVEL(Floats) estimate, LEVEL(Floats) slack, LEVEL(Floats) error,
			 float length)
{
	LEVEL(Floats) least = estimate - slack;
	LEVEL(Floats) root;

	if (!squares)
	{
		least -= length * error * (1 + ESTIMATE_ROUNDING);
		return PICK(least != least, ALL(-INFINITY), least - SIZE(least) * ESTIMATE_ROUNDING);
	}
	root = ROOT(least) * (1 - ESTIMATE_ROUNDING) - error;
	return PICK((least > 0) & (root > 0), root * root * (1 - ESTIMATE_ROUNDING), ALL(0.0f));
}

/* Estimates of pq. */
TARGET BLOCKS_INLINE void
LEVEL(pq)(const BlockSums *block, bool squares, float *estimates, float *lower)
{
	const PqTables *tables = block->tables;

	for (uint32_t i = 0; i < QUANTIZER_BLOCK; i += LANES)
	{
		LEVEL(Floats) term = *(const LEVEL(Floats) *) (block->numbers + i);
		LEVEL(Floats) error = *(const LEVEL(Floats) *) (block->numbers + QUANTIZER_BLOCK + i);
		LEVEL(Words) sums = *(const LEVEL(Words) *) (block->sums + i);
		LEVEL(Floats) sum = __builtin_convertvector(sums, LEVEL(Floats)) * tables->scale;
		LEVEL(Floats) estimate = (block->base + term) + (sum + tables->offset);
		LEVEL(Floats) slack = tables->error + ESTIMATE_ROUNDING *
			(fabsf(block->base) + SIZE(term) + sum + fabsf(tables->offset));

		*(LEVEL(Floats) *) (estimates + i) = estimate;
		*(LEVEL(Floats) *) (lower + i) =
			LEVEL(bound)(squares, estimate, slack, error, tables->length);
	}
}

/* scalar_slack() */
TARGET BLOCKS_INLINE LEVEL(Floats)
LEVEL(slack)(const QuantizerShape *shape, const ScalarTables *tables, float base, bool int8,
			 bool squares, LEVEL(Floats) error, LEVEL(Floats) scale)
{
	LEVEL(Floats) most = scale * (float) most_number(shape);
	float		reach = sqrtf(base > 0 ? base : 0);
	LEVEL(Floats) slack;

	if (int8)
	{
		float		lengths = squares ? tables->length + (tables->length + reach) : tables->length;

		slack = most * tables->sum_error + (float) ROTATION_ROUNDING * lengths * most *
			sqrtf((float) shape->dims);
		return slack * (squares ? 2.0f : 1.0f);
	}
	slack = QUANTIZER_RABITQ_SURE *
		(error * (squares ? reach : tables->length) + most * tables->length_error);
	slack = PICK(error == ALL(INFINITY), ALL(INFINITY), slack);
	return slack * (squares ? 2.0f : 1.0f);
}

/* Estimates of int8 and rabitq. */
TARGET BLOCKS_INLINE void
LEVEL(scalar)(const BlockSums *block, const QuantizerShape *shape, bool int8, bool squares,
			  float *estimates, float *lower)
{
	const ScalarTables *tables = block->tables;
	float		base = block->base;

	for (uint32_t i = 0; i < QUANTIZER_BLOCK; i += LANES)
	{
		LEVEL(Floats) term = *(const LEVEL(Floats) *) (block->numbers + i);
		LEVEL(Floats) error = *(const LEVEL(Floats) *) (block->numbers + QUANTIZER_BLOCK + i);
		LEVEL(Floats) scale = *(const LEVEL(Floats) *) (block->numbers + 2 * QUANTIZER_BLOCK + i);
		LEVEL(Words) sums = *(const LEVEL(Words) *) (block->sums + i);
		LEVEL(Floats) product =
			tables->scale * scale * __builtin_convertvector(sums, LEVEL(Floats));
		LEVEL(Floats) estimate = base + term + product;
		LEVEL(Floats) slack = ESTIMATE_ROUNDING * (fabsf(base) + SIZE(term) + SIZE(product));

		slack += LEVEL(slack)(shape, tables, base, int8, squares, error, scale);
		if (!int8)
			error = ALL(0.0f);	/* it is in the slack */
		*(LEVEL(Floats) *) (estimates + i) = estimate;
		*(LEVEL(Floats) *) (lower + i) = LEVEL(bound)(squares, estimate, slack, error,
													  tables->length);
	}
}

/* Each kind and metric by itself, so that loops do not ask for them. */
TARGET static void
LEVEL(estimate)(const BlockSums *block, const QuantizerShape *shape, float *estimates,
				float *lower)
{
	bool		squares = shape->metric == METRIC_L2;

	if (shape->kind == QUANTIZER_PQ && squares)
		LEVEL(pq)(block, true, estimates, lower);
	else if (shape->kind == QUANTIZER_PQ)
		LEVEL(pq)(block, false, estimates, lower);
	else if (shape->kind == QUANTIZER_INT8 && squares)
		LEVEL(scalar)(block, shape, true, true, estimates, lower);
	else if (shape->kind == QUANTIZER_INT8)
		LEVEL(scalar)(block, shape, true, false, estimates, lower);
	else if (squares)
		LEVEL(scalar)(block, shape, false, true, estimates, lower);
	else
		LEVEL(scalar)(block, shape, false, false, estimates, lower);
}

#undef PICK
#undef ALL
#undef SIZE
#undef LEVEL
#undef TARGET
#undef LANES
#undef ROOT
