/*
 * bits.h
 *		Bitmaps of slots or pages, least significant bit first: in bytes, or in
 *		64-bit words where engine.h uses them or bits are counted by words.
 *
 * A bitmap in bytes is allocated with number / 8 + 1 bytes.
 */
#ifndef GPUANN_BITS_H
#define GPUANN_BITS_H

#include <stdbool.h>
#include <stddef.h>
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

/* Bytes of a bitmap of 64-bit words with this many bits. */
static inline size_t
bits64_bytes(size_t bits)
{
	return (bits + 63) / 64 * sizeof(uint64_t);
}

static inline bool
bit64_is_set(const uint64_t *bits, uint64_t i)
{
	return (bits[i / 64] >> (i % 64)) & 1;
}

static inline void
bit64_set(uint64_t *bits, uint64_t i)
{
	bits[i / 64] |= UINT64_C(1) << (i % 64);
}

#endif
