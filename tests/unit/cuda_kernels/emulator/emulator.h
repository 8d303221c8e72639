/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs CUDA kernels on the CPU: a CTA is a thread, a CUDA thread a fiber of it, which gives way to
 * the others wherever it meets or waits for somebody. So the kernels' own source can be tested, and
 * stepped through, where there is no GPU: what they compute, that every meeting has all who must
 * come, that no wait is left without an end. It says nothing about speed, and nothing about memory
 * order: x86 keeps more of it than a GPU does.
 *
 * Shared memory is thread-local, so it keeps what the last CTA on that thread left there, which is
 * no worse than what a GPU does.
 */
#ifndef MC_TEST_EMULATOR_H
#define MC_TEST_EMULATOR_H

#include <functional>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __CUDA_ARCH__ 900
#define __device__
#define __host__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n)    __attribute__((aligned(n)))
#define __shared__      static thread_local
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))

struct alignas(16) uint4 {
	uint32_t x, y, z, w;
};

struct alignas(16) float4 {
	float x, y, z, w;
};

static inline float4 make_float4(float x, float y, float z, float w)
{
	return {x, y, z, w};
}

static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
	return {x, y, z, w};
}

struct dim3 {
	unsigned x, y, z;
	dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
	{
	}
};

/* ---- the engine: emulator.cc ---- */

/* Runs `kernel` as every thread of the grid and returns when all have ended. */
void emu_launch(
	unsigned n_ctas, unsigned n_threads, unsigned cluster, const std::function<void()> &kernel);

/* Who is running. */
struct emu_index {
	unsigned x, y, z;
};
extern __thread emu_index threadIdx, blockIdx, blockDim, gridDim;

/* Lets the other threads of the CTA, and other CTAs, go on. */
void emu_yield();

/* All lanes that have not ended meet; ret: what each brought, and who came. */
struct emu_meeting {
	uint32_t value[32];
	uint32_t lanes; /* bit i: lane i came */
};
emu_meeting emu_meet(uint32_t value);

/* Barriers of a CTA. n_threads 0: all that have not ended. */
void emu_barrier(unsigned id, unsigned n_threads, bool wait);

/* Clusters. A shared address is a CTA's number and a place in its shared memory. */
unsigned emu_cluster_cta();
unsigned emu_cluster_ctas();
void emu_cluster_arrive();
void emu_cluster_wait();
uint32_t emu_shared_address(const void *at);
uint32_t emu_shared_of(uint32_t address, unsigned cta);
void *emu_shared_pointer(uint32_t address);

/* ---- built-in functions ---- */

static inline void __syncwarp()
{
	emu_meet(0);
}

static inline void __syncthreads()
{
	emu_barrier(0, 0, true);
}

static inline bool __any_sync(uint32_t, bool is)
{
	emu_meeting m = emu_meet(is);

	for (int i = 0; i < 32; i++)
		if ((m.lanes >> i & 1u) && m.value[i])
			return true;
	return false;
}

static inline bool __all_sync(uint32_t mask, bool is)
{
	return !__any_sync(mask, !is);
}

static inline uint32_t __reduce_max_sync(uint32_t, uint32_t value)
{
	emu_meeting m = emu_meet(value);

	for (int i = 0; i < 32; i++)
		if ((m.lanes >> i & 1u) && m.value[i] > value)
			value = m.value[i];
	return value;
}

static inline uint32_t __reduce_xor_sync(uint32_t, uint32_t value)
{
	emu_meeting m = emu_meet(value);
	uint32_t all = 0;

	for (int i = 0; i < 32; i++)
		all ^= m.lanes >> i & 1u ? m.value[i] : 0u;
	return all;
}

static inline uint32_t __shfl_sync(uint32_t, uint32_t value, unsigned lane)
{
	return emu_meet(value).value[lane];
}

static inline float __uint_as_float(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

static inline uint32_t __float_as_uint(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

static inline float __shfl_xor_sync(uint32_t, float value, unsigned lanes)
{
	unsigned lane = threadIdx.x % 32u ^ lanes;

	return __uint_as_float(emu_meet(__float_as_uint(value)).value[lane]);
}

static inline uint32_t atomicCAS(uint32_t *at, uint32_t from, uint32_t to)
{
	__atomic_compare_exchange_n(at, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return from;
}

static inline uint32_t atomicAdd(uint32_t *at, uint32_t n)
{
	return __atomic_fetch_add(at, n, __ATOMIC_SEQ_CST);
}

static inline void __threadfence_system()
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline int __clzll(long long v)
{
	return v ? __builtin_clzll((unsigned long long)v) : 64;
}

static inline uint32_t max(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* The compiler is told not to contract: each is one rounded operation. */
static inline float __fadd_rn(float a, float b)
{
	return a + b;
}
static inline float __fmul_rn(float a, float b)
{
	return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
	return a / b;
}
static inline float __fsqrt_rn(float a)
{
	return __builtin_sqrtf(a);
}
static inline float __fmaf_rn(float a, float b, float c)
{
	return fmaf(a, b, c);
}

#endif
