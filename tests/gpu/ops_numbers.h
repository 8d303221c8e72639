/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic of the kernels that is not written as docs/numerics.md writes it, against that. */
#ifndef MC_TESTS_GPU_OPS_NUMBERS_H
#define MC_TESTS_GPU_OPS_NUMBERS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The scale of a norm: all mantissas of the root (with two exponents, which is all that a root
 * sees), quotients by every row length of the fast kernels, and all together with every exponent.
 * On the current device; waits.
 */
cudaError_t numbers_compare_scale(uint64_t *ret_compared, uint64_t *ret_differing);

#ifdef __cplusplus
}
#endif
#endif
