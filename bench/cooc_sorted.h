/*
 * cooc_sorted.h
 *		What blocks of co-occurrence codes would hold if rows of equal length
 *		stood together.
 */
#ifndef GPUANN_BENCH_COOC_SORTED_H
#define GPUANN_BENCH_COOC_SORTED_H

#ifdef __cplusplus
extern "C"
{
#endif
#include "engine/quantizer/cooc.h"
#include "engine/quantizer/quantizer.h"
#ifdef __cplusplus
}
#endif

/*
 * cooc_gain() of the rows, the longest first: a block is as long as its first
 * row.
 */
static inline CoocGain
cooc_sorted_gain(const CoocSets *sets, const unsigned char *codes, size_t stride, uint32_t rows)
{
	CoocGain	gain = cooc_gain(sets, codes, stride, rows);
	uint64_t	of_length[COOC_MAX_WORDS] = {0};
	uint16_t	words[COOC_MAX_WORDS];
	uint64_t	begin = 0;
	uint64_t	end = 0;

	gain.padded = 0;
	for (uint32_t i = 0; i < rows; i++)
		of_length[cooc_encode(sets, codes + i * stride, words) - 1]++;
	for (uint32_t length = COOC_MAX_WORDS; length-- > 0;)
		for (end += of_length[length]; begin < end; begin += QUANTIZER_BLOCK)
			gain.padded +=
				length * (rows - begin < QUANTIZER_BLOCK ? rows - begin : QUANTIZER_BLOCK);
	if (rows > 0)
		gain.gain = 1 - (double) gain.padded / ((double) rows * sets->parts);
	return gain;
}

#endif							/* GPUANN_BENCH_COOC_SORTED_H */
