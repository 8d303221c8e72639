/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels/cuda/ptx.cuh does, on the CPU: emulator.h. */
#ifndef MC_TEST_EMULATOR_PTX_CUH
#define MC_TEST_EMULATOR_PTX_CUH

#include <time.h>
#include "emulator.h"

extern "C" {
#include "kernels/host/number.h"
}

/* ---- memory ---- */

/* An aligned load or store of 16 bytes is single on every x86 with AVX, which the tests ask for. */
static inline uint4 mc_load(const void *at)
{
	uint4 v;

	emu_yield();
	asm volatile("movdqa %1, %%xmm0; movdqa %%xmm0, %0"
		     : "=m"(v)
		     : "m"(*(const uint4 *)at)
		     : "xmm0", "memory");
	return v;
}

static inline void mc_store(void *at, uint4 v)
{
	asm volatile("movdqa %1, %%xmm0; movdqa %%xmm0, %0"
		     : "=m"(*(uint4 *)at)
		     : "m"(v)
		     : "xmm0", "memory");
}

static inline uint32_t mc_load_word(const void *at)
{
	return __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
}

static inline void mc_store_word(void *at, uint32_t v)
{
	__atomic_store_n((uint32_t *)at, v, __ATOMIC_RELEASE);
}

static inline uint4 mc_load_own(const void *at)
{
	uint4 v;

	memcpy(&v, at, sizeof(v));
	return v;
}

static inline void mc_keep(uint4 &)
{
}

static inline void mc_keep(const uint8_t *&, uint8_t *&, uint8_t *&)
{
}

static inline void mc_keep(const uint8_t *&, uint32_t &)
{
}

static inline void mc_keep(const uint8_t *&, const uint8_t *&)
{
}

static inline void mc_keep(uint8_t *&)
{
}

static inline void mc_keep(uint32_t &, uint32_t &)
{
}

/* ---- numbers ---- */

static inline void mc_fp16x2_to_fp32(uint32_t w, float *ret_pair)
{
	mc_number_load(MC_DTYPE_FP16, &w, 2, ret_pair);
}

static inline uint32_t mc_fp32_to_bf16x2(float low, float high)
{
	const float pair[2] = {low, high};
	uint32_t w;

	mc_number_store(MC_DTYPE_BF16, pair, 2, &w);
	return w;
}

static inline uint32_t mc_fp32_to_fp16x2(float low, float high)
{
	const float pair[2] = {low, high};
	uint32_t w;

	mc_number_store(MC_DTYPE_FP16, pair, 2, &w);
	return w;
}

/* As far off as the GPU's may be, in a way that depends on the argument and emu_rsqrt_turn. */
extern uint32_t emu_rsqrt_turn;

static inline float mc_about_rsqrt(float x)
{
	uint32_t bits = __float_as_uint((float)(1.0 / sqrt((double)x)));

	if (x > 0.0f && x < INFINITY)
		bits += (__float_as_uint(x) + emu_rsqrt_turn) % 9u - 4u;
	return __uint_as_float(bits);
}

/* ---- time ---- */

static inline uint64_t mc_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- barriers of a CTA ---- */

static inline void mc_barrier(int id, uint32_t n_threads)
{
	__syncwarp();
	emu_barrier((unsigned)id, n_threads, true);
}

static inline void mc_barrier_arrive(int id, uint32_t n_threads)
{
	__syncwarp();
	emu_barrier((unsigned)id, n_threads, false);
}

static inline void mc_barrier_arrive_with(int id, uint32_t n_threads, uint64_t)
{
	mc_barrier_arrive(id, n_threads);
}

/* ---- early launch: there is no kernel before ---- */

static inline void mc_grid_wait(void)
{
}
static inline void mc_grid_launch_dependents(void)
{
}

/* ---- clusters ---- */

static inline uint32_t mc_cluster_cta(void)
{
	return emu_cluster_cta();
}
static inline uint32_t mc_cluster_ctas(void)
{
	return emu_cluster_ctas();
}
static inline void mc_cluster_arrive(void)
{
	emu_cluster_arrive();
}
static inline void mc_cluster_wait(void)
{
	emu_cluster_wait();
}
static inline uint32_t mc_shared_address(const void *at)
{
	return emu_shared_address(at);
}
static inline uint32_t mc_shared_of(uint32_t address, uint32_t cta)
{
	return emu_shared_of(address, cta);
}

/*
 * A barrier of one arrival that also counts bytes: phase << 40 | arrivals missing << 32 | bytes
 * that are still to come, which may be below 0 for a while.
 */
static inline void emu_sums_step(uint64_t *barrier, int64_t n_bytes, uint32_t n_arrivals)
{
	uint64_t was = __atomic_load_n(barrier, __ATOMIC_ACQUIRE), next;

	do {
		uint32_t bytes = (uint32_t)was + (uint32_t)n_bytes;
		uint32_t missing = (uint32_t)(was >> 32 & 0xffu) - n_arrivals;
		uint64_t phase = was >> 40;

		if (bytes == 0 && missing == 0) {
			phase++;
			missing = 1;
		}
		next = phase << 40 | (uint64_t)missing << 32 | bytes;
	} while (!__atomic_compare_exchange_n(
		barrier, &was, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
}

static inline void mc_sums_begin(uint64_t *barrier)
{
	for (int i = 0; i < 2; i++)
		__atomic_store_n(&barrier[i], UINT64_C(1) << 32, __ATOMIC_RELEASE);
}

static inline void mc_sums_send(uint32_t to, float sum, uint32_t barrier)
{
	mc_store_word(emu_shared_pointer(to), __float_as_uint(sum));
	emu_sums_step((uint64_t *)emu_shared_pointer(barrier), -4, 0);
}

static inline void mc_sums_expect(uint32_t barrier, uint32_t n_bytes)
{
	emu_sums_step((uint64_t *)emu_shared_pointer(barrier), n_bytes, 1);
}

static inline void mc_sums_wait(uint32_t barrier, uint32_t parity)
{
	uint64_t *at = (uint64_t *)emu_shared_pointer(barrier);

	while ((__atomic_load_n(at, __ATOMIC_ACQUIRE) >> 40 & 1u) == parity)
		emu_yield();
}

#endif
