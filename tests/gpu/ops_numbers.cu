/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/ops_numbers.h"

#include "kernels/cuda/rmsnorm.cuh"

#define N_ROOTS   (1u << 24) /* floats from 1 up to 4 */
#define N_SCALES  (1u << 24)
#define N_LENGTHS (MC_NORM_MAX_GROUPS * MC_NORM_GROUP / MC_NORM_RUN)
#define N_TOTALS  (1u << 14) /* a length */

__device__ static bool is_other(float a, float b)
{
	return __float_as_uint(a) != __float_as_uint(b);
}

__global__ void compare_roots(unsigned long long *differing)
{
	const struct mc_norm_length one = mc_norm_length_of(1);

	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < N_ROOTS;
		i += gridDim.x * blockDim.x) {
		const float m = __uint_as_float(0x3f800000u + i);

		if (is_other(mc_norm_scale(m, one, 0.0f), __fdiv_rn(1.0f, __fsqrt_rn(m))))
			atomicAdd(differing, 1ull);
	}
}

/* The three steps together, with every exponent and any mantissa. */
__global__ void compare_scales(unsigned long long *differing)
{
	const struct mc_norm_length length = mc_norm_length_of(7168);

	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < N_SCALES;
		i += gridDim.x * blockDim.x) {
		const float total = __uint_as_float(i * 2654435761u & 0x7fffffffu);
		const float eps = i % 3u ? 1e-6f : 0.0f;

		if (total == total && is_other(mc_norm_scale(total, length, eps),
					      mc_norm_scale_plain(total, 7168, eps)))
			atomicAdd(differing, 1ull);
	}
}

__global__ void compare_quotients(unsigned long long *differing)
{
	for (uint32_t l = blockIdx.x; l < N_LENGTHS; l += gridDim.x) {
		const uint64_t hidden = (l + 1u) * (uint64_t)MC_NORM_RUN;
		const struct mc_norm_length length = mc_norm_length_of(hidden);

		for (uint32_t i = threadIdx.x; i < N_TOTALS; i += blockDim.x) {
			/* all exponents, the ends' too, and any mantissa */
			const float total =
				__uint_as_float((i * 2654435761u ^ l * 40503u) & 0x7fffffffu);

			if (is_other(
				    mc_norm_mean(total, length), __fdiv_rn(total, (float)hidden)) &&
				total == total)
				atomicAdd(differing, 1ull);
		}
	}
}

cudaError_t numbers_compare_scale(uint64_t *ret_compared, uint64_t *ret_differing)
{
	unsigned long long *differing, n = 0;
	cudaError_t error = cudaMalloc((void **)&differing, sizeof(*differing));

	if (error)
		return error;
	error = cudaMemset(differing, 0, sizeof(*differing));
	if (!error) {
		compare_roots<<<256, 256>>>(differing);
		compare_scales<<<256, 256>>>(differing);
		compare_quotients<<<256, 256>>>(differing);
		error = cudaGetLastError();
	}
	if (!error)
		error = cudaMemcpy(&n, differing, sizeof(n), cudaMemcpyDeviceToHost);
	cudaFree(differing);
	*ret_compared = N_ROOTS + N_SCALES + (uint64_t)N_LENGTHS * N_TOTALS;
	*ret_differing = n;
	return error;
}
