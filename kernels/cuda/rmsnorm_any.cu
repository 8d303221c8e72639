/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Combine + residual + RMSNorm of every size and address. The peers' parts are read twice from the
 * arena and re-armed after the second time, so that no row is too long.
 */
#include "kernels/cuda/rmsnorm.cuh"

/* Elements loaded straight from the arena, once the vector they lie in has been seen there. */
__device__ __forceinline__ float arena_element(mc_fp32, const uint8_t *at)
{
	return __uint_as_float(mc_load_word(at));
}

template <class T>
__device__ __forceinline__ float arena_element(T, const uint8_t *at)
{
	uint32_t w = mc_load_word((const uint8_t *)((uintptr_t)at & ~(uintptr_t)3u));
	float x[2];

	mc_unpack(T(), w, x);
	return (uintptr_t)at & 2u ? x[1] : x[0];
}

/*
 * A slot is one stretch of bytes, so a vector can hold the end of one row and the start of the
 * next. CTAs therefore take blocks of 2, 4 or 8 rows that are whole vectors together.
 */
template <class T, int M>
__global__ void __launch_bounds__(1024) rmsnorm_any(const __grid_constant__ mc_combine_args<M> a)
{
	constexpr uint32_t SIZE = 4 / T::PER_WORD;
	constexpr uint32_t CHUNK = 512; /* groups summed at a time */
	__shared__ struct mc_entry entry;
	__shared__ float group_sum[CHUNK];
	__shared__ uint32_t stop;
	const uint32_t n_threads = blockDim.x - MC_WARP, n_warps = n_threads / MC_WARP;
	const uint32_t n_peers = a.c.world_size - 1u;
	const uint32_t t = threadIdx.x - MC_WARP, lane = threadIdx.x % MC_WARP, warp = t / MC_WARP;

	const uint4 sentinel = mc_fetch_sentinel(a.c);

	if (threadIdx.x < MC_WARP) {
		if (threadIdx.x == 0)
			stop = 0;
		mc_combine_control(a, &entry, sentinel);
		return;
	}
	uint64_t call;

	if (!mc_enter_any(a, &entry, &call))
		return;
	const uint64_t data = (call % MC_SEGMENTS) * a.c.segment_stride + MC_SLOT_HEADER_BYTES;
	const uint64_t first_thread = (uint64_t)blockIdx.x * n_threads + t;
	const uint64_t step = (uint64_t)gridDim.x * n_threads;
	const uint32_t own_rows = mc_own_rows(a);
	bool ok = mc_push_any(a, sentinel, call, data, first_thread, step);

	if (!ok)
		stop = 1;

	uint32_t block_rows = 1;

	while (block_rows * a.row_bytes % 16u)
		block_rows *= 2u;

	auto part = [&](uint32_t r) {
		return a.c.ring + data + mc_place_of(a.c, r) * a.c.slot_stride;
	};
	/* x of one element of this rank's rows */
	auto value = [&](uint64_t element) {
		float acc = 0.0f;

		for (uint32_t r = 0; r <= n_peers; r++) {
			const float v = r == a.c.rank
						? mc_read_element(T(), a.own + element * SIZE)
						: arena_element(T(), part(r) + element * SIZE);

			acc = r == 0 ? v : __fadd_rn(acc, v);
		}
		return __fadd_rn(acc, mc_read_element(T(), a.residual + element * SIZE));
	};

	for (uint64_t block = (uint64_t)blockIdx.x * block_rows; block < own_rows;
		block += (uint64_t)gridDim.x * block_rows) {
		const uint32_t rows =
			own_rows - block < block_rows ? (uint32_t)(own_rows - block) : block_rows;
		const uint64_t begin = block * a.row_bytes;
		const uint64_t n_vectors = (rows * a.row_bytes + 15u) / 16u;

		for (uint32_t r = 0; r <= n_peers; r++)
			for (uint64_t i = t; ok && r != a.c.rank && i < n_vectors; i += n_threads) {
				const uint8_t *from = part(r) + begin + i * 16u;
				uint4 v[1];

				ok = mc_await(
					a.c, call, sentinel, 1u, v, [&](int) { return from; },
					[&](int) { return r; });
			}
		if (!ok)
			stop = 1;
		MC_NORM_BARRIER;
		if (stop)
			return;
		for (uint32_t row = 0; row < rows; row++) {
			const uint64_t first = (block + row) * a.hidden;
			const uint64_t n_groups = (a.hidden + MC_NORM_GROUP - 1u) / MC_NORM_GROUP;
			float mine = 0.0f;

			for (uint64_t base = 0; base < n_groups; base += CHUNK) {
				const uint32_t n = n_groups - base < CHUNK
							   ? (uint32_t)(n_groups - base)
							   : CHUNK;

				for (uint32_t g = warp; g < n; g += n_warps) {
					const uint64_t from =
						(base + g) * MC_NORM_GROUP + lane * MC_NORM_RUN;
					float sum = 0.0f;

					for (uint32_t i = 0; i < MC_NORM_RUN && from + i < a.hidden;
						i++) {
						const float x = value(first + from + i);

						sum = __fadd_rn(sum, __fmul_rn(x, x));
					}
					sum = mc_butterfly(sum);
					if (lane == 0)
						group_sum[g] = sum;
				}
				MC_NORM_BARRIER;
				for (uint32_t g = lane; g < n; g += MC_WARP)
					mine = __fadd_rn(mine, group_sum[g]);
				MC_NORM_BARRIER;
			}
			const float r = mc_norm_scale_plain(mc_butterfly(mine), a.hidden, a.eps);

			for (uint64_t i = t; i < a.hidden; i += n_threads) {
				const float x = value(first + i);
				const float g = mc_read_element(T(), a.gamma + i * SIZE);

				mc_write_element(T(), a.residual_output + (first + i) * SIZE, x);
				mc_write_element(T(), a.output + (first + i) * SIZE,
					__fmul_rn(__fmul_rn(x, r), g));
			}
		}
		MC_NORM_BARRIER; /* all have read for the last time */
		for (uint32_t r = 0; r <= n_peers; r++)
			for (uint64_t i = t; r != a.c.rank && i < n_vectors; i += n_threads)
				mc_store(part(r) + begin + i * 16u, sentinel);
	}
}

static const void *const functions[] = {
	(const void *)rmsnorm_any<mc_bf16, 7>,
	(const void *)rmsnorm_any<mc_fp16, 7>,
	(const void *)rmsnorm_any<mc_fp32, 7>,
	(const void *)rmsnorm_any<mc_bf16, 63>,
	(const void *)rmsnorm_any<mc_fp16, 63>,
	(const void *)rmsnorm_any<mc_fp32, 63>,
};

MC_KERNEL_SET(rmsnorm_any, RMSNORM_ANY);
