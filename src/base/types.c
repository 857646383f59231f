/*
 * types.c
 *		The types that can be indexed: support function 2 of each operator
 *		class, and access to the elements of values.
 */
#include "base/base.h"

#include "engine/distance.h"

#include "catalog/pg_type.h"
#include "extension/vector/halfvec.h"
#include "extension/vector/vector.h"
#include "fmgr.h"
#include "utils/rel.h"
#include "utils/varbit.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

static int
vector_dims(Pointer value)
{
	return ((Vector *) value)->dim;
}

static const void *
vector_elements(Pointer value)
{
	return ((Vector *) value)->x;
}

static int
halfvec_dims(Pointer value)
{
	return ((HalfVector *) value)->dim;
}

static const void *
halfvec_elements(Pointer value)
{
	return ((HalfVector *) value)->x;
}

static int
bit_dims(Pointer value)
{
	return VARBITLEN((VarBit *) value);
}

static const void *
bit_elements(Pointer value)
{
	return VARBITS((VarBit *) value);
}

/* The support function 2 of an operator class: what it indexes. */
#define TYPE_SUPPORT(name, element_type, metric, max_dims, type) \
	static const GpuannTypeInfo name = {element_type, metric, max_dims, type##_dims, \
										type##_elements}; \
	PG_FUNCTION_INFO_V1(gpuann_##name##_support); \
	Datum gpuann_##name##_support(PG_FUNCTION_ARGS) \
	{ \
		PG_RETURN_POINTER(&name); \
	} \
	extern Datum gpuann_##name##_support(PG_FUNCTION_ARGS) /* takes the semicolon */

TYPE_SUPPORT(vector_l2, ELEMENT_FLOAT, METRIC_L2, ENGINE_MAX_DIMS, vector);
TYPE_SUPPORT(vector_ip, ELEMENT_FLOAT, METRIC_IP, ENGINE_MAX_DIMS, vector);
TYPE_SUPPORT(vector_cosine, ELEMENT_FLOAT, METRIC_COSINE, ENGINE_MAX_DIMS, vector);
TYPE_SUPPORT(vector_l1, ELEMENT_FLOAT, METRIC_L1, ENGINE_MAX_DIMS, vector);
TYPE_SUPPORT(halfvec_l2, ELEMENT_HALF, METRIC_L2, ENGINE_MAX_DIMS, halfvec);
TYPE_SUPPORT(halfvec_ip, ELEMENT_HALF, METRIC_IP, ENGINE_MAX_DIMS, halfvec);
TYPE_SUPPORT(halfvec_cosine, ELEMENT_HALF, METRIC_COSINE, ENGINE_MAX_DIMS, halfvec);
TYPE_SUPPORT(halfvec_l1, ELEMENT_HALF, METRIC_L1, ENGINE_MAX_DIMS, halfvec);
TYPE_SUPPORT(bit_hamming, ELEMENT_BIT, METRIC_HAMMING, ENGINE_MAX_BIT_DIMS, bit);
TYPE_SUPPORT(bit_jaccard, ELEMENT_BIT, METRIC_JACCARD, ENGINE_MAX_BIT_DIMS, bit);

/*
 * Whether all elements are zero (of either sign). Not of bits: no metric of
 * theirs minds.
 */
bool
gpuann_all_zero(const GpuannTypeInfo *info, uint32 dims, const void *elements)
{
	Assert(info->type != ELEMENT_BIT);
	if (info->type == ELEMENT_FLOAT)
	{
		const float *x = elements;

		for (uint32 i = 0; i < dims; i++)
			if (x[i] != 0)
				return false;
	}
	else
	{
		const uint16 *x = elements;

		for (uint32 i = 0; i < dims; i++)
			if ((x[i] & 0x7FFF) != 0)
				return false;
	}
	return true;
}

/*
 * The dimensions that a column's type says, if it can be indexed.
 */
uint32
gpuann_column_dims(const GpuannTypeInfo *info, Relation index)
{
	Form_pg_attribute column = TupleDescAttr(RelationGetDescr(index), 0);
	int			dims = column->atttypmod;
	const char *type = info->type == ELEMENT_FLOAT	? "vector"
					   : info->type == ELEMENT_HALF ? "halfvec"
													: "bit";

	/*
	 * A class for bit takes bit varying too, whose values have lengths of their
	 * own.
	 */
	if (column->atttypid == VARBITOID)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("type not supported for gpuann index"),
				 errhint("Use a column or an expression of type bit(n).")));
	if (dims < 0)
		ereport(
			ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("column does not have dimensions"),
			 index->rd_index->indkey.values[0] == InvalidAttrNumber
				 ? errhint("Cast the expression to %s(n), where n is its number of dimensions.",
						   type)
				 : errhint(
					   "Declare the column as %s(n), or index a cast of it: ((%s::%s(n)) operator_class).",
					   type, NameStr(column->attname), type)));
	if (dims > info->max_dims)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("column cannot have more than %d dimensions for gpuann index",
							   info->max_dims)));
	return dims;
}

/*
 * The dimensions of a detoasted value must be the index's.
 */
static void
check_dims(const GpuannTypeInfo *info, uint32 dims, Pointer value)
{
	int			found = info->dims(value);

	if (found != (int) dims)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("expected %d dimensions, not %d", (int) dims, found)));
}

/*
 * The dimensions of a query must be the index's; said as the type's distance
 * functions say it.
 */
void
gpuann_check_query_dims(const GpuannTypeInfo *info, uint32 dims, Pointer value)
{
	int			found = info->dims(value);

	if (found == (int) dims)
		return;
	if (info->type == ELEMENT_BIT)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("different bit lengths %u and %u", dims, (uint32) found)));
	ereport(ERROR,
			(errcode(ERRCODE_DATA_EXCEPTION),
			 errmsg(info->type == ELEMENT_HALF ? "different halfvec dimensions %d and %d" :
					"different vector dimensions %d and %d", (int) dims, found)));
}

/*
 * Whether the value is indexed, and its elements.
 */
bool
gpuann_value_elements(const GpuannTypeInfo *info, uint32 dims, Datum value, bool isnull,
					  const void **elements, Pointer *freeme)
{
	Pointer		detoasted;

	*elements = NULL;
	*freeme = NULL;
	if (isnull)
		return false;
	detoasted = (Pointer) PG_DETOAST_DATUM(value);
	if (detoasted != DatumGetPointer(value))
		*freeme = detoasted;
	check_dims(info, dims, detoasted);
	*elements = info->elements(detoasted);

	/* A zero vector has no direction. */
	return info->metric != METRIC_COSINE || !gpuann_all_zero(info, dims, *elements);
}

/*
 * Widen a range of norms to include a vector's.
 *
 * The exact inner product of a vector with itself, in double precision, does
 * not over- or underflow and has an error far below half a unit in the last
 * place of single precision. So the neighbours of the norm rounded to single
 * precision enclose it.
 */
void
gpuann_widen_norms(ElementType type, uint32 dims, const void *elements, float *least_norm,
				   float *most_norm)
{
	float		norm;

	if (type == ELEMENT_BIT)
		return;
	norm = (float) sqrt(
		-distance_kernels(type, METRIC_IP, SIMD_BEST)->exact(elements, elements, dims));
	*least_norm = Min(*least_norm, nextafterf(norm, 0));
	*most_norm = Max(*most_norm, nextafterf(norm, INFINITY));
}

/*
 * The bytes of a value.
 */
Size
gpuann_value_bytes(const GpuannTypeInfo *info, uint32 dims)
{
	switch (info->type)
	{
		case ELEMENT_FLOAT:
			return VECTOR_SIZE(dims);
		case ELEMENT_HALF:
			return HALFVEC_SIZE(dims);
		case ELEMENT_BIT:
			return VARBITTOTALLEN(dims);
	}
	pg_unreachable();
}

/*
 * Write a value's header.
 */
void *
gpuann_value_begin(const GpuannTypeInfo *info, uint32 dims, void *value)
{
	Size		bytes = gpuann_value_bytes(info, dims);

	memset(value, 0, Min(bytes, sizeof(Vector)));
	SET_VARSIZE(value, bytes);
	if (info->type == ELEMENT_FLOAT)
		((Vector *) value)->dim = dims;
	else if (info->type == ELEMENT_HALF)
		((HalfVector *) value)->dim = dims;
	else
		VARBITLEN(value) = dims;
	return unconstify(void *, info->elements(value));
}
