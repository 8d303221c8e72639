/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel such as an engine has before and after our ops. */
#ifndef MC_TESTS_GPU_OPS_USER_H
#define MC_TESTS_GPU_OPS_USER_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Copies n_bytes (a multiple of 16, aligned) after it has done nothing for delay_us. dependent:
 * launched early, too, and waits for its predecessor in the kernel, as engines do.
 */
cudaError_t user_copy(void *to, const void *from, uint64_t n_bytes, uint32_t delay_us,
	int dependent, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
