/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors: how they are loaded, stored and compared on the device. */
#ifndef MC_KERNELS_CUDA_VECTOR_CUH
#define MC_KERNELS_CUDA_VECTOR_CUH

#include "kernels/cuda/ptx.cuh"
#include "kernels/lamport.h"

__device__ __forceinline__ bool mc_same(uint4 a, uint4 b)
{
	/* bitwise on all four words, never as floats */
	return ((a.x ^ b.x) | (a.y ^ b.y) | (a.z ^ b.z) | (a.w ^ b.w)) == 0;
}

__device__ __forceinline__ struct mc_vector mc_vector_of(uint4 v)
{
	struct mc_vector r = {{v.x, v.y, v.z, v.w}};

	return r;
}

/* ---- inputs and outputs ---- */

__device__ __forceinline__ uint4 mc_read16(const uint8_t *at)
{
	return *(const uint4 *)at;
}

__device__ __forceinline__ void mc_write16(uint8_t *at, uint4 v)
{
	*(uint4 *)at = v;
}

__device__ __forceinline__ bool mc_is_aligned(const void *at)
{
	return ((uintptr_t)at & (MC_VECTOR_BYTES - 1u)) == 0;
}

/* n bytes (1 … 16) from any address; the rest of the vector is 0. */
__device__ __forceinline__ uint4 mc_read_any(const uint8_t *at, uint32_t n)
{
	uint32_t w[4] = {0, 0, 0, 0};

	if (n >= MC_VECTOR_BYTES && mc_is_aligned(at))
		return mc_read16(at);
#pragma unroll
	for (uint32_t i = 0; i < MC_VECTOR_BYTES; i++)
		if (i < n)
			w[i / 4] |= (uint32_t)at[i] << i % 4 * 8;
	return make_uint4(w[0], w[1], w[2], w[3]);
}

__device__ __forceinline__ void mc_write_any(uint8_t *at, uint4 v, uint32_t n)
{
	const uint32_t w[4] = {v.x, v.y, v.z, v.w};

	if (n >= MC_VECTOR_BYTES && mc_is_aligned(at)) {
		mc_write16(at, v);
		return;
	}
#pragma unroll
	for (uint32_t i = 0; i < MC_VECTOR_BYTES; i++)
		if (i < n)
			at[i] = (uint8_t)(w[i / 4] >> i % 4 * 8);
}

/* Out of the way of those that are aligned. */
static __device__ __noinline__ int32_t mc_read_count_by_byte(const uint8_t *b)
{
	return (int32_t)(b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
}

/* A device-side count, of any alignment. */
__device__ __forceinline__ int32_t mc_read_count(const int32_t *at)
{
	return ((uintptr_t)at & 3u) == 0 ? *at : mc_read_count_by_byte((const uint8_t *)at);
}

__device__ __forceinline__ void mc_write_count(int32_t *at, uint32_t v)
{
	uint8_t *b = (uint8_t *)at;

	if (((uintptr_t)at & 3u) == 0) {
		*at = (int32_t)v;
		return;
	}
	for (uint32_t i = 0; i < 4; i++)
		b[i] = (uint8_t)(v >> i * 8);
}

#endif
