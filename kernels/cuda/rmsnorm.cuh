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

/* 1 / sqrt(total / hidden + eps), as docs/numerics.md has it. */
__device__ __forceinline__ float mc_norm_scale_plain(float total, uint64_t hidden, float eps)
{
	const float mean = __fdiv_rn(total, (float)hidden);

	return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
}

/* ---- the same where every step is waited for: few rows, over clusters ---- */

/*
 * The sum of all groups, from shared memory, in the order of docs/numerics.md: the butterfly's
 * first three steps are a tree over 8 neighbours, which a lane does alone faster than by three
 * exchanges. Every lane of the warp calls. sums: MC_NORM_MAX_GROUPS, zero from n_groups on.
 */
__device__ __forceinline__ float mc_norm_total(const float *sums, uint32_t n_groups, uint32_t lane)
{
	const float4 *from = (const float4 *)sums + 2u * (lane % 4u);
	float4 a = from[0], b = from[1];

	if (n_groups > MC_WARP) {
		const float4 c = from[8], d = from[9];

		a = make_float4(__fadd_rn(a.x, c.x), __fadd_rn(a.y, c.y), __fadd_rn(a.z, c.z),
			__fadd_rn(a.w, c.w));
		b = make_float4(__fadd_rn(b.x, d.x), __fadd_rn(b.y, d.y), __fadd_rn(b.z, d.z),
			__fadd_rn(b.w, d.w));
	}
	float v = __fadd_rn(__fadd_rn(__fadd_rn(a.x, a.y), __fadd_rn(a.z, a.w)),
		__fadd_rn(__fadd_rn(b.x, b.y), __fadd_rn(b.z, b.w)));

	v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 1u));
	return __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 2u));
}

/* The groups past the row's end, for mc_norm_total. One warp, before the others read. */
__device__ __forceinline__ void mc_norm_zero_rest(float *sums, uint32_t n_groups, uint32_t lane)
{
	for (uint32_t g = n_groups + lane; g < MC_NORM_MAX_GROUPS; g += MC_WARP)
		sums[g] = 0.0f;
}

/* What is known of a row's length before its sum. */
struct mc_norm_length {
	float hidden;
	float part; /* 1 / hidden, rounded */
};

__device__ __forceinline__ struct mc_norm_length mc_norm_length_of(uint64_t hidden)
{
	struct mc_norm_length length;

	length.hidden = (float)hidden;
	length.part = __fdiv_rn(1.0f, length.hidden);
	return length;
}

/* Where no remainder below is lost to overflow or underflow. */
__device__ __forceinline__ bool mc_norm_is_plain(float v)
{
	return v > 0x1p-60f && v < 0x1p60f;
}

/*
 * total / hidden, rounded. From the reciprocal that was made while there was time; two corrections
 * by the exact remainder make the quotient the rounded one.
 */
__device__ __forceinline__ float mc_norm_mean(float total, struct mc_norm_length length)
{
	float q = __fmul_rn(total, length.part);

	q = __fmaf_rn(__fmaf_rn(-q, length.hidden, total), length.part, q);
	q = __fmaf_rn(__fmaf_rn(-q, length.hidden, total), length.part, q);
	return mc_norm_is_plain(total) ? q : __fdiv_rn(total, length.hidden);
}

/*
 * The bits of mc_norm_scale_plain. An estimate of the root's reciprocal serves both: root and half
 * its reciprocal correct each other once, the exact remainder makes the root the rounded one, and
 * then the reciprocal likewise (of a mantissa of ones alone it does not). The tests go through all
 * mantissas: test_norm_scale.cc, and on a GPU gpu-ops.
 */
__device__ __forceinline__ float mc_norm_scale(float total, struct mc_norm_length length, float eps)
{
	const float m = __fadd_rn(mc_norm_mean(total, length), eps), y = mc_about_rsqrt(m);
	float s = __fmul_rn(m, y), half = __fmul_rn(0.5f, y), r;
	const float error = __fmaf_rn(-s, half, 0.5f);

	s = __fmaf_rn(s, error, s);
	half = __fmaf_rn(half, error, half);
	s = __fmaf_rn(__fmaf_rn(-s, s, m), half, s);
	r = __fadd_rn(half, half);
	r = __fmaf_rn(__fmaf_rn(-s, r, 1.0f), r, r);
	r = __fmaf_rn(__fmaf_rn(-s, r, 1.0f), r, r);
	if (mc_norm_is_plain(m) && (~__float_as_uint(s) & 0x7fffffu) != 0)
		return r;
	return __fdiv_rn(1.0f, __fsqrt_rn(m));
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
