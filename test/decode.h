/*
 * decode.h
 *		What codes stand for. The engine estimates distances of codes and never
 *		reads a row back from one.
 */
#ifndef GPUANN_DECODE_H
#define GPUANN_DECODE_H

#include "engine/quantizer/quantizer.h"

/* The row that a code stands for, without its centroid: dims elements. */
extern void decode_code(const Quantizer *quantizer, const unsigned char *code, float *residual);

#endif							/* GPUANN_DECODE_H */
