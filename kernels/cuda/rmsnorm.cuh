/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Combine + residual + RMSNorm in one launch: x = sum + residual; residual_output = round(x);
 * output = round((x · r) · gamma), r = 1 / sqrt(mean(x²) + eps). The order of every operation is
 * docs/numerics.md: in a group of 256 elements lane l sums the squares of its 8, a butterfly over
 * the lanes, then the groups' sums likewise. A warp that loads a 16-bit row with 16-byte loads has
 * just those 8 elements in each lane, and which CTA sums a group makes no difference.
 *
 * Three kernels. `cluster` (rmsnorm_cluster.cu): few rows, each over a cluster of CTAs. `fast`
 * (combine_rmsnorm.cu): a CTA a row, the row in registers. `any` (rmsnorm_any.cu): every size and
 * address.
 */
#ifndef MC_KERNELS_CUDA_RMSNORM_CUH
#define MC_KERNELS_CUDA_RMSNORM_CUH

#include "kernels/cuda/combine.cuh"

#define MC_NORM_RUN        8u   /* elements of a lane in a group */
#define MC_NORM_GROUP      256u /* elements of a group */
#define MC_NORM_MAX_GROUPS 64u  /* of a fast row */
/* Data warps of the fast kernels: with 16, a thread has registers for several units. */
#define MC_NORM_WARPS      16u
#define MC_NORM_WARPS_WIDE 31u
#define MC_NORM_BARRIER    mc_barrier(MC_BARRIER_DATA, n_threads)

__device__ __forceinline__ float mc_butterfly(float v)
{
#pragma unroll
	for (uint32_t m = 1; m < MC_WARP; m *= 2)
		v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, m));
	return v;
}

__device__ __forceinline__ float mc_norm_scale(float total, uint64_t hidden, float eps)
{
	float mean = __fdiv_rn(total, (float)hidden);

	return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
}

/* Kernels of rmsnorm_any.cu by type, for up to 8 ranks; then likewise for up to 64. */
#define MC_NORM_ANY_TYPES 3u
/* Of rmsnorm_cluster.cu: bf16 for 2, 4 and 8 ranks, a unit a thread. */
enum {
	MC_NORM_CLUSTER_2,
	MC_NORM_CLUSTER_4,
	MC_NORM_CLUSTER_8,
};

#endif
