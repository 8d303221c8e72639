/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions between the element types and fp32, exact one way and rounded once to nearest even
 * the other (docs/numerics.md), and the floating-point environment that the ops need. Arrays may
 * have any alignment; n counts elements.
 */
#ifndef MC_KERNELS_HOST_NUMBER_H
#define MC_KERNELS_HOST_NUMBER_H

#include "kernels/launch.h"

/* dst[i] = src[i] */
void mc_number_load(enum mc_dtype dtype, const void *src, uint64_t n, float *dst);
/* acc[i] = acc[i] + src[i] */
void mc_number_add(enum mc_dtype dtype, const void *src, uint64_t n, float *acc);
/* dst[i] = round(src[i]); a NaN becomes the type's canonical one */
void mc_number_store(enum mc_dtype dtype, const float *src, uint64_t n, void *dst);
/* dst[i] = round((x[i] * r) * gamma[i]) */
void mc_number_scale(
	enum mc_dtype dtype, const float *x, float r, const void *gamma, uint64_t n, void *dst);

/*
 * Callers may have switched on flush-to-zero or another rounding mode for themselves; our results
 * must not depend on it. begin returns what end restores.
 */
uint64_t mc_number_begin(void);
void mc_number_end(uint64_t saved);

#endif
