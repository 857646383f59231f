/*
 * bits.h
 *		Bitmaps of slots or pages in bytes, the lowest bit first. Whoever makes one gives it number / 8 + 1 bytes.
 */
#ifndef GPUANN_BITS_H
#define GPUANN_BITS_H

#include <stdbool.h>
#include <stdint.h>

static inline bool
bit_is_set(const unsigned char *bits, uint64_t i)
{
	return (bits[i / 8] >> (i % 8)) & 1;
}

static inline void
bit_set(unsigned char *bits, uint64_t i)
{
	bits[i / 8] |= (unsigned char) (1 << (i % 8));
}

static inline void
bit_clear(unsigned char *bits, uint64_t i)
{
	bits[i / 8] &= (unsigned char) ~(1 << (i % 8));
}

#endif
