/*
 * types.c
 *		The types that can be indexed: support function 2 of each operator class, and what of a value is indexed.
 */
#include "gpuann.h"

#include "extension/vector/halfvec.h"
#include "extension/vector/vector.h"
#include "fmgr.h"

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

static const GpuannTypeInfo vector_l2 = {ELEMENT_FLOAT, METRIC_L2, ENGINE_MAX_DIMS, vector_dims, vector_elements};
static const GpuannTypeInfo vector_ip = {ELEMENT_FLOAT, METRIC_IP, ENGINE_MAX_DIMS, vector_dims, vector_elements};
static const GpuannTypeInfo vector_cosine = {ELEMENT_FLOAT, METRIC_COSINE, ENGINE_MAX_DIMS, vector_dims, vector_elements};
static const GpuannTypeInfo halfvec_l2 = {ELEMENT_HALF, METRIC_L2, ENGINE_MAX_DIMS, halfvec_dims, halfvec_elements};
static const GpuannTypeInfo halfvec_ip = {ELEMENT_HALF, METRIC_IP, ENGINE_MAX_DIMS, halfvec_dims, halfvec_elements};
static const GpuannTypeInfo halfvec_cosine = {ELEMENT_HALF, METRIC_COSINE, ENGINE_MAX_DIMS, halfvec_dims, halfvec_elements};

PG_FUNCTION_INFO_V1(gpuann_vector_l2_support);
Datum
gpuann_vector_l2_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&vector_l2);
}

PG_FUNCTION_INFO_V1(gpuann_vector_ip_support);
Datum
gpuann_vector_ip_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&vector_ip);
}

PG_FUNCTION_INFO_V1(gpuann_vector_cosine_support);
Datum
gpuann_vector_cosine_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&vector_cosine);
}

PG_FUNCTION_INFO_V1(gpuann_halfvec_l2_support);
Datum
gpuann_halfvec_l2_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&halfvec_l2);
}

PG_FUNCTION_INFO_V1(gpuann_halfvec_ip_support);
Datum
gpuann_halfvec_ip_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&halfvec_ip);
}

PG_FUNCTION_INFO_V1(gpuann_halfvec_cosine_support);
Datum
gpuann_halfvec_cosine_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&halfvec_cosine);
}

/*
 * Whether all elements are zero (of either sign).
 */
bool
gpuann_all_zero(const GpuannTypeInfo *info, uint32 dims, const void *elements)
{
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
