/*
 * blocks.c
 *		Blocks of codes, one after the other.
 */
#include "engine/quantizer/blocks.h"
#include "engine/quantizer/quantizer_private.h"

size_t
block_bytes(const QuantizerShape *shape)
{
	return (QUANTIZER_BLOCK * quantizer_code_bytes(shape) + 63) / 64 * 64;
}

void
block_set(const Quantizer *quantizer, void *block, uint32_t place, const unsigned char *code)
{
	memcpy((unsigned char *) block + place * quantizer->code_bytes, code, quantizer->code_bytes);
}

void
block_get(const Quantizer *quantizer, const void *block, uint32_t place, unsigned char *code)
{
	memcpy(code, (const unsigned char *) block + place * quantizer->code_bytes,
		   quantizer->code_bytes);
}

void
block_estimate(const Quantizer *quantizer, const void *tables, float base, const void *block,
			   float *estimates, float *lower)
{
	quantizer_estimate(quantizer, tables, base, block, QUANTIZER_BLOCK, estimates, lower);
}

float
block_upper(const Quantizer *quantizer, const void *tables, float base, const void *block,
			uint32_t place, float estimate)
{
	return quantizer_upper(quantizer, tables, base,
						   (const unsigned char *) block + place * quantizer->code_bytes,
						   estimate);
}
