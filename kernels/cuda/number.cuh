/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements to fp32 and back: docs/numerics.md. Every operation is an intrinsic that is never
 * contracted or flushed, whatever the compiler's flags.
 */
#ifndef MC_KERNELS_CUDA_NUMBER_CUH
#define MC_KERNELS_CUDA_NUMBER_CUH

#include "kernels/cuda/ptx.cuh"

struct mc_bf16 {
	static constexpr int PER_WORD = 2;
};
struct mc_fp16 {
	static constexpr int PER_WORD = 2;
};
struct mc_fp32 {
	static constexpr int PER_WORD = 1;
};

/* The elements of one 32-bit word. */
__device__ __forceinline__ void mc_unpack(mc_bf16, uint32_t w, float *x)
{
	x[0] = __uint_as_float(w << 16);
	x[1] = __uint_as_float(w & 0xffff0000u);
}

__device__ __forceinline__ void mc_unpack(mc_fp16, uint32_t w, float *x)
{
	mc_fp16x2_to_fp32(w, x);
}

__device__ __forceinline__ void mc_unpack(mc_fp32, uint32_t w, float *x)
{
	x[0] = __uint_as_float(w);
}

/* Rounded to nearest even; a NaN becomes the canonical one (cvt does that by itself). */
__device__ __forceinline__ uint32_t mc_pack(mc_bf16, const float *x)
{
	return mc_fp32_to_bf16x2(x[0], x[1]);
}

__device__ __forceinline__ uint32_t mc_pack(mc_fp16, const float *x)
{
	return mc_fp32_to_fp16x2(x[0], x[1]);
}

__device__ __forceinline__ uint32_t mc_pack(mc_fp32, const float *x)
{
	uint32_t w = __float_as_uint(x[0]);

	return (w & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : w;
}

/* Elements of a vector. */
template <class T>
struct mc_vector_of_type {
	static constexpr int N = 4 * T::PER_WORD;
};

template <class T>
__device__ __forceinline__ void mc_unpack16(uint4 v, float *x)
{
	mc_unpack(T(), v.x, x);
	mc_unpack(T(), v.y, x + T::PER_WORD);
	mc_unpack(T(), v.z, x + 2 * T::PER_WORD);
	mc_unpack(T(), v.w, x + 3 * T::PER_WORD);
}

template <class T>
__device__ __forceinline__ uint4 mc_pack16(const float *x)
{
	return make_uint4(mc_pack(T(), x), mc_pack(T(), x + T::PER_WORD),
		mc_pack(T(), x + 2 * T::PER_WORD), mc_pack(T(), x + 3 * T::PER_WORD));
}

/* acc = first ? v : acc + v, element by element. */
template <class T>
__device__ __forceinline__ void mc_accumulate(bool first, uint4 v, float *acc)
{
	float x[mc_vector_of_type<T>::N];

	mc_unpack16<T>(v, x);
#pragma unroll
	for (int i = 0; i < mc_vector_of_type<T>::N; i++)
		acc[i] = first ? x[i] : __fadd_rn(acc[i], x[i]);
}

/* One element at any address of this rank's own memory. */
__device__ __forceinline__ float mc_read_element(mc_fp32, const uint8_t *at)
{
	uint32_t w = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;

	return __uint_as_float(w);
}

template <class T>
__device__ __forceinline__ float mc_read_element(T, const uint8_t *at)
{
	float x[2];

	mc_unpack(T(), at[0] | (uint32_t)at[1] << 8, x);
	return x[0];
}

__device__ __forceinline__ void mc_write_element(mc_fp32, uint8_t *at, float x)
{
	uint32_t w = mc_pack(mc_fp32(), &x);

	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(w >> 8 * i);
}

template <class T>
__device__ __forceinline__ void mc_write_element(T, uint8_t *at, float x)
{
	float pair[2] = {x, 0.0f};
	uint32_t w = mc_pack(T(), pair);

	at[0] = (uint8_t)w;
	at[1] = (uint8_t)(w >> 8);
}

#endif
