/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every instruction that CUDA C++ has no word for, and nothing else: all PTX of the kernels stands
 * here, so that the rest can also be compiled for the CPU (tests/unit/cuda_kernels).
 */
#ifndef MC_KERNELS_CUDA_PTX_CUH
#define MC_KERNELS_CUDA_PTX_CUH

#include <stdint.h>

/* ---- memory ---- */

/*
 * One access of 128 bits, system scope, past the first-level cache: LDG/STG.E.128.STRONG.SYS. The
 * b128 type is what promises that the access is single (a v4 access promises it word by word). No
 * memory clobber: arenas are reached in no other way, and ordinary loads of inputs may move across.
 */
__device__ __forceinline__ uint4 mc_load(const void *at)
{
	uint64_t low, high;

	asm volatile("{ .reg .b128 q; ld.relaxed.sys.global.b128 q, [%2]; mov.b128 {%0, %1}, q; }"
		     : "=l"(low), "=l"(high)
		     : "l"(at));
	return make_uint4(
		(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32));
}

__device__ __forceinline__ void mc_store(void *at, uint4 v)
{
	uint64_t low = (uint64_t)v.y << 32 | v.x, high = (uint64_t)v.w << 32 | v.z;

	asm volatile("{ .reg .b128 q; mov.b128 q, {%1, %2}; st.relaxed.sys.global.b128 [%0], q; }"
		     :
		     : "l"(at), "l"(low), "l"(high));
}

__device__ __forceinline__ uint32_t mc_load_word(const void *at)
{
	uint32_t v;

	asm volatile("ld.relaxed.sys.global.b32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
	return v;
}

__device__ __forceinline__ void mc_store_word(void *at, uint32_t v)
{
	asm volatile("st.relaxed.sys.global.b32 [%0], %1;" : : "l"(at), "r"(v) : "memory");
}

/* This rank's own control data; volatile, so that it stays where it is written. */
__device__ __forceinline__ uint4 mc_load_own(const void *at)
{
	uint4 v;

	asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		     : "l"(at)
		     : "memory");
	return v;
}

/*
 * Asks for what makes v to be done here, not where v is used: before a wait instead of behind it.
 * It binds the compiler, not the assembler, which may still move cheap arithmetic.
 */
__device__ __forceinline__ void mc_keep(uint4 &v)
{
	asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w));
}

__device__ __forceinline__ void mc_keep(const uint8_t *&a, uint8_t *&b, uint8_t *&c)
{
	asm volatile("" : "+l"(a), "+l"(b), "+l"(c));
	__builtin_assume(__isGlobal(a) && __isGlobal(b) && __isGlobal(c));
}

__device__ __forceinline__ void mc_keep(const uint8_t *&a, uint32_t &b)
{
	asm volatile("" : "+l"(a), "+r"(b));
	__builtin_assume(__isGlobal(a));
}

__device__ __forceinline__ void mc_keep(const uint8_t *&a, const uint8_t *&b)
{
	asm volatile("" : "+l"(a), "+l"(b));
	__builtin_assume(__isGlobal(a) && __isGlobal(b));
}

__device__ __forceinline__ void mc_keep(uint8_t *&a)
{
	asm volatile("" : "+l"(a));
	__builtin_assume(__isGlobal(a));
}

__device__ __forceinline__ void mc_keep(uint32_t &a, uint32_t &b)
{
	asm volatile("" : "+r"(a), "+r"(b));
}

/* ---- numbers ---- */

__device__ __forceinline__ void mc_fp16x2_to_fp32(uint32_t w, float *ret_pair)
{
	asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
		: "=f"(ret_pair[0]), "=f"(ret_pair[1])
		: "r"(w));
}

/* Rounded to nearest even; a NaN becomes the canonical one. */
__device__ __forceinline__ uint32_t mc_fp32_to_bf16x2(float low, float high)
{
	uint32_t w;

	asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(w) : "f"(low), "f"(high));
	return w;
}

__device__ __forceinline__ uint32_t mc_fp32_to_fp16x2(float low, float high)
{
	uint32_t w;

	asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(w) : "f"(low), "f"(high));
	return w;
}

/* To within 2 ulp; subnormal arguments count as 0. */
__device__ __forceinline__ float mc_about_rsqrt(float x)
{
	float y;

	asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* ---- time ---- */

__device__ __forceinline__ uint64_t mc_now_ns(void)
{
	uint64_t t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

/* ---- barriers of a CTA ---- */

/*
 * Lanes come here from loops of different lengths. Not `bar.sync`: that one is the aligned form,
 * which wants a whole warp at once.
 */
__device__ __forceinline__ void mc_barrier(int id, uint32_t n_threads)
{
	__syncwarp();
	asm volatile("barrier.sync %0, %1;" : : "r"(id), "r"(n_threads) : "memory");
}

/* For a warp that only brings something to those who wait there. */
__device__ __forceinline__ void mc_barrier_arrive(int id, uint32_t n_threads)
{
	__syncwarp();
	asm volatile("barrier.arrive %0, %1;" : : "r"(id), "r"(n_threads) : "memory");
}

/* The same, once `value` has come from where it was loaded. */
__device__ __forceinline__ void mc_barrier_arrive_with(int id, uint32_t n_threads, uint64_t value)
{
	__syncwarp();
	asm volatile("{ .reg .b64 v; mov.b64 v, %2; barrier.arrive %0, %1; }"
		     :
		     : "r"(id), "r"(n_threads), "l"(value)
		     : "memory");
}

#if __CUDA_ARCH__ >= 900

/* ---- early launch ---- */

/* Until the kernels before have ended and their writes can be seen. */
__device__ __forceinline__ void mc_grid_wait(void)
{
	asm volatile("griddepcontrol.wait;" : : : "memory");
}

__device__ __forceinline__ void mc_grid_launch_dependents(void)
{
	asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

/* ---- clusters ---- */

__device__ __forceinline__ uint32_t mc_cluster_cta(void)
{
	uint32_t cta;

	asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(cta));
	return cta;
}

__device__ __forceinline__ uint32_t mc_cluster_ctas(void)
{
	uint32_t n;

	asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
	return n;
}

__device__ __forceinline__ void mc_cluster_arrive(void)
{
	asm volatile("barrier.cluster.arrive.relaxed;" : : : "memory");
}

__device__ __forceinline__ void mc_cluster_wait(void)
{
	asm volatile("barrier.cluster.wait.acquire;" : : : "memory");
}

__device__ __forceinline__ uint32_t mc_shared_address(const void *at)
{
	return (uint32_t)__cvta_generic_to_shared(at);
}

/* This CTA's shared address in CTA `cta` of the cluster. */
__device__ __forceinline__ uint32_t mc_shared_of(uint32_t address, uint32_t cta)
{
	uint32_t there;

	asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(cta));
	return there;
}

__device__ __forceinline__ void mc_sums_begin(uint64_t *barrier)
{
	for (uint32_t i = 0; i < 2; i++)
		asm volatile("mbarrier.init.shared.b64 [%0], 1;"
			     :
			     : "r"(mc_shared_address(&barrier[i]))
			     : "memory");
	asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

__device__ __forceinline__ void mc_sums_send(uint32_t to, float sum, uint32_t barrier)
{
	asm volatile(
		"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
		:
		: "r"(to), "r"(__float_as_uint(sum)), "r"(barrier)
		: "memory");
}

__device__ __forceinline__ void mc_sums_expect(uint32_t barrier, uint32_t n_bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
		     :
		     : "r"(barrier), "r"(n_bytes)
		     : "memory");
}

__device__ __forceinline__ void mc_sums_wait(uint32_t barrier, uint32_t parity)
{
	uint32_t done = 0;

	while (!done)
		asm volatile("{ .reg .pred p;"
			     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;"
			     "selp.u32 %0, 1, 0, p; }"
			     : "=r"(done)
			     : "r"(barrier), "r"(parity)
			     : "memory");
}

#endif
#endif
