/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/number.h"

#include <fenv.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* Elements converted at once through aligned temporaries, small enough for the first-level cache.
 */
#define BLOCK 256u

static inline float float_of(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static inline uint32_t bits_of(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static inline float from_bf16(uint16_t h)
{
	return float_of((uint32_t)h << 16);
}

static inline uint16_t to_bf16(float f)
{
	uint32_t u = bits_of(f);
	uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;

	return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

static inline float from_fp16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
	uint32_t magnitude = h & 0x7fffu;
	/* subnormals are multiples of 2^-24, all normal in fp32: the product is exact */
	uint32_t subnormal = bits_of((float)(int32_t)magnitude * 0x1p-24f);
	uint32_t normal = (magnitude << 13) + 0x38000000u;
	uint32_t special = 0x7f800000u | magnitude << 13;
	uint32_t bits = magnitude < 0x400u ? subnormal : normal;

	bits = magnitude >= 0x7c00u ? special : bits;
	return float_of(sign | bits);
}

static inline uint16_t to_fp16(float f)
{
	uint32_t u = bits_of(f);
	uint32_t sign = u >> 16 & 0x8000u;
	uint32_t magnitude = u & 0x7fffffffu;
	uint32_t v = magnitude - 0x38000000u;
	uint32_t normal = (v + 0xfffu + (v >> 13 & 1u)) >> 13;
	/* an fp32 ulp at 0.5 is 2^-24, fp16's subnormal step: the addition does the rounding */
	uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
	uint32_t bits = magnitude < 0x38800000u ? subnormal : normal;

	/* from 65520, half a step above the largest finite value, rounding gives infinity */
	bits = magnitude >= 0x477ff000u ? 0x7c00u : bits;
	return (uint16_t)(magnitude > 0x7f800000u ? 0x7fffu : sign | bits);
}

static inline float to_fp32(float f)
{
	uint32_t u = bits_of(f);

	return float_of((u & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : u);
}

static uint64_t block_of(uint64_t n)
{
	return n < BLOCK ? n : BLOCK;
}

/* One block of elements as fp32; memcpy carries any alignment. */
static void load_block(enum mc_dtype dtype, const uint8_t *src, uint64_t n, float *restrict dst)
{
	uint16_t raw[BLOCK];

	if (dtype == MC_DTYPE_FP32) {
		memcpy(dst, src, n * sizeof(float));
		return;
	}
	memcpy(raw, src, n * sizeof(raw[0]));
	if (dtype == MC_DTYPE_BF16)
		for (uint64_t i = 0; i < n; i++)
			dst[i] = from_bf16(raw[i]);
	else
		for (uint64_t i = 0; i < n; i++)
			dst[i] = from_fp16(raw[i]);
}

static void store_block(enum mc_dtype dtype, const float *restrict src, uint64_t n, uint8_t *dst)
{
	uint16_t raw[BLOCK];
	float wide[BLOCK];

	switch (dtype) {
	case MC_DTYPE_BF16:
		for (uint64_t i = 0; i < n; i++)
			raw[i] = to_bf16(src[i]);
		memcpy(dst, raw, n * sizeof(raw[0]));
		break;
	case MC_DTYPE_FP16:
		for (uint64_t i = 0; i < n; i++)
			raw[i] = to_fp16(src[i]);
		memcpy(dst, raw, n * sizeof(raw[0]));
		break;
	case MC_DTYPE_FP32:
		for (uint64_t i = 0; i < n; i++)
			wide[i] = to_fp32(src[i]);
		memcpy(dst, wide, n * sizeof(wide[0]));
		break;
	}
}

void mc_number_load(enum mc_dtype dtype, const void *src, uint64_t n, float *dst)
{
	const uint8_t *from = src;
	uint32_t size = mc_dtype_bytes(dtype);

	for (uint64_t i = 0, m; i < n; i += m) {
		m = block_of(n - i);
		load_block(dtype, from + i * size, m, dst + i);
	}
}

void mc_number_add(enum mc_dtype dtype, const void *src, uint64_t n, float *acc)
{
	const uint8_t *from = src;
	uint32_t size = mc_dtype_bytes(dtype);
	float value[BLOCK];

	for (uint64_t i = 0, m; i < n; i += m) {
		m = block_of(n - i);
		load_block(dtype, from + i * size, m, value);
		for (uint64_t j = 0; j < m; j++)
			acc[i + j] = acc[i + j] + value[j];
	}
}

void mc_number_store(enum mc_dtype dtype, const float *src, uint64_t n, void *dst)
{
	uint8_t *to = dst;
	uint32_t size = mc_dtype_bytes(dtype);

	for (uint64_t i = 0, m; i < n; i += m) {
		m = block_of(n - i);
		store_block(dtype, src + i, m, to + i * size);
	}
}

void mc_number_scale(
	enum mc_dtype dtype, const float *x, float r, const void *gamma, uint64_t n, void *dst)
{
	const uint8_t *from = gamma;
	uint8_t *to = dst;
	uint32_t size = mc_dtype_bytes(dtype);
	float value[BLOCK];

	for (uint64_t i = 0, m; i < n; i += m) {
		m = block_of(n - i);
		load_block(dtype, from + i * size, m, value);
		for (uint64_t j = 0; j < m; j++)
			value[j] = (x[i + j] * r) * value[j];
		store_block(dtype, value, m, to + i * size);
	}
}

#if defined(__x86_64__)
uint64_t mc_number_begin(void)
{
	uint32_t saved = _mm_getcsr();

	/* power-on state: all exceptions masked, nearest even, denormals kept */
	if (saved != 0x1f80u)
		_mm_setcsr(0x1f80u);
	return saved;
}

void mc_number_end(uint64_t saved)
{
	if (saved != 0x1f80u)
		_mm_setcsr((uint32_t)saved);
}
#elif defined(__aarch64__)
uint64_t mc_number_begin(void)
{
	uint64_t saved;

	__asm__ volatile("mrs %0, fpcr" : "=r"(saved));
	__asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
	return saved;
}

void mc_number_end(uint64_t saved)
{
	__asm__ volatile("msr fpcr, %0" : : "r"(saved));
}
#else
/* Portable C knows the rounding mode only. */
uint64_t mc_number_begin(void)
{
	int saved = fegetround();

	fesetround(FE_TONEAREST);
	return (uint64_t)saved;
}

void mc_number_end(uint64_t saved)
{
	fesetround((int)saved);
}
#endif
