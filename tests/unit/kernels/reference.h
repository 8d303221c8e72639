/* SPDX-License-Identifier: Apache-2.0 */
/* The numerics once more, written from docs/numerics.md and without anything of kernels/host. */
#ifndef MC_TESTS_UNIT_KERNELS_REFERENCE_H
#define MC_TESTS_UNIT_KERNELS_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>
#include "kernels/launch.h"

/* Element i of an array of any alignment, as bits and as a value. */
uint32_t ref_bits(enum mc_dtype dtype, const void *array, uint64_t i);
double ref_value(enum mc_dtype dtype, uint32_t bits);
/* The value nearest to v that the type has, ties to even; infinite beyond its range. */
double ref_round(enum mc_dtype dtype, double v);
/* Distance between neighbours of the type at v. */
double ref_ulp(enum mc_dtype dtype, double v);
/* Whether bits are what v rounds to: value, sign of zero, and the canonical NaN. */
bool ref_is_rounded(enum mc_dtype dtype, uint32_t bits, float v);
/* r of a row. */
float ref_rms(const float *x, uint64_t hidden, float eps);

#endif
