/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Combine + residual + RMSNorm of few rows: a row over a cluster of CTAs, a vector a thread. One SM
 * would move a 14 KB row in and out through its own 64 bytes a clock; a cluster has that many times
 * its size. Every warp sends its group's sum to all CTAs of the cluster, straight into their shared
 * memory, and the arrival of all sums of a row is counted by a barrier there.
 *
 * All CTAs of a cluster go through all rows, whatever fails: then they neither push nor wait for
 * peers, but still exchange sums, so that none waits for one that has left or writes to its memory.
 * That bounds the wait for sums, as every wait for a peer is bounded.
 *
 * Two barriers and sets of sums, by turns: a CTA can be ahead of another by less than one row,
 * because a row ends only with the sums of all warps.
 */
#include "kernels/cuda/rmsnorm.cuh"

/* More than 16 warps a CTA have 96 registers a thread, 16 have 128, which more peers need. */
template <int W>
constexpr uint32_t MOST_THREADS = (W == 2 ? MC_NORM_WARPS + 1u : MC_NORM_WARPS) * MC_WARP;

template <int W>
__global__ void __launch_bounds__(MOST_THREADS<W>)
	rmsnorm_cluster(const __grid_constant__ mc_combine_args<7> a)
{
#if __CUDA_ARCH__ >= 900
	typedef mc_bf16 T;
	constexpr int N = mc_vector_of_type<T>::N, P = W - 1;
	__shared__ struct mc_entry entry;
	__shared__ __align__(16) float group_sum[2][MC_NORM_MAX_GROUPS];
	__shared__ uint64_t barrier[2];
	const uint32_t cta = mc_cluster_cta(), n_ctas = mc_cluster_ctas();
	const uint32_t n_threads = blockDim.x - MC_WARP, n_warps = n_threads / MC_WARP;
	const uint32_t n_units = (uint32_t)(a.hidden / MC_NORM_RUN);
	const uint32_t n_groups = (n_units + MC_WARP - 1u) / MC_WARP;
	const uint32_t lane = threadIdx.x % MC_WARP, t = threadIdx.x - MC_WARP;
	const uint32_t group = cta * n_warps + t / MC_WARP, unit = cta * n_threads + t;
	const uint32_t first = blockIdx.x / n_ctas, step = gridDim.x / n_ctas;
	const uint64_t at = (uint64_t)unit * 16u; /* in a row */
	const bool in_row = unit < n_units;       /* of a data thread */

	if (threadIdx.x == 0)
		mc_sums_begin(barrier);
	__syncwarp();
	/* nobody sends before all barriers stand: the other half comes before the first sum */
	mc_cluster_arrive();
	const uint4 sentinel = mc_fetch_sentinel(a.c);
	struct mc_rows<W> rows = mc_rows_limits<W>(a);

	if (threadIdx.x < MC_WARP) {
		mc_norm_zero_rest(group_sum[0], n_groups, lane);
		mc_norm_zero_rest(group_sum[1], n_groups, lane);
		mc_combine_control(a, &entry, sentinel);
		mc_cluster_wait();
		return;
	}
	const struct mc_norm_length length = mc_norm_length_of(a.hidden);

	mc_cluster_wait();
	mc_wait_predecessor(a.c);
	mc_rows_count(a, &rows);
	const uint32_t own_rows = rows.own;
	uint4 part[P], own, residual, gamma;

	auto load_parts = [&](uint32_t row) {
#pragma unroll
		for (int j = 0; j < P; j++)
			if (in_row && row < mc_rows_of(a, rows, j))
				part[j] = mc_read16(a.input + a.offset[j] + row * a.row_bytes + at);
	};
	auto load_own = [&](uint32_t row) {
		if (in_row && row < own_rows) {
			own = mc_read16(a.own + row * a.row_bytes + at);
			residual = mc_read16(a.residual + row * a.row_bytes + at);
		}
	};

	load_parts(first);
	mc_barrier(MC_BARRIER_TURN, blockDim.x);
	const uint64_t call = mc_call_number(&entry);
	bool ok = !mc_is_over(&entry) && rows.fit;
	const uint64_t data = (call % MC_SEGMENTS) * a.c.segment_stride + MC_SLOT_HEADER_BYTES;

	auto push = [&](uint32_t row) {
		bool bad = false;

#pragma unroll
		for (int j = 0; j < P; j++)
			if (ok && in_row && row < mc_rows_of(a, rows, j)) {
				bad |= mc_same(part[j], sentinel);
				mc_store(a.slot[j] + data + row * a.row_bytes + at, part[j]);
			}
		if (bad) {
			mc_raise_plain(a.c, MC_FAULT_SENTINEL, a.c.rank, call);
			ok = false;
		}
	};

	push(first);
	load_own(first);
	if (in_row)
		gamma = mc_read16(a.gamma + at);
	uint32_t turn = 0, parity = 0;

	/* row limits that a count has no say in: all CTAs go the same way */
	for (uint32_t row = first; row < a.most_rows; row += step) {
		const bool more = step < a.most_rows - row;
		const bool taken = in_row && row < own_rows;
		const uint64_t place = row * a.row_bytes + at;
		const uint32_t here = mc_shared_address(&barrier[turn]);
		constexpr bool PLACES = W <= 4; /* as far as registers allow */
		uint8_t *slot[P];               /* found once, not once a look */
		uint4 v[P];
		float x[N], sum = 0.0f;

		if (more) {
			load_parts(row + step);
			push(row + step);
		}
		if (row >= a.own_rows)
			continue;
		auto find = [&](int k) {
			return a.c.ring + data +
			       mc_place_of(a.c, mc_ranked(a.c, k)) * a.c.slot_stride + place;
		};
#pragma unroll
		for (int k = 0; PLACES && k < P; k++) {
			slot[k] = find(k);
			mc_keep(slot[k]);
		}
		ok = ok && mc_await<true>(
				   a.c, call, sentinel, taken ? (1u << P) - 1u : 0u, v,
				   [&](int k) { return PLACES ? slot[k] : find(k); },
				   [&](int k) { return mc_ranked(a.c, k); });
		__syncwarp();
		if (ok && taken) {
#pragma unroll
			for (int k = 0; k < P; k++)
				mc_store(PLACES ? slot[k] : find(k), sentinel);
#pragma unroll
			for (int r = 0; r < W; r++) {
				uint4 y = v[r < P ? r : P - 1];

				if (r > 0 && (uint32_t)r > a.c.rank)
					y = v[r > 0 ? r - 1 : 0];
				if ((uint32_t)r == a.c.rank)
					y = own;
				mc_accumulate<T>(r == 0, y, x);
			}
			mc_accumulate<T>(false, residual, x);
#pragma unroll
			for (int i = 0; i < N; i++)
				sum = __fadd_rn(sum, __fmul_rn(x[i], x[i]));
		}
		__syncwarp();
		sum = mc_butterfly(sum);
		if (t == 0)
			mc_sums_expect(here, n_groups * 4u);
		if (group < n_groups && lane < n_ctas)
			mc_sums_send(mc_shared_of(mc_shared_address(&group_sum[turn][group]), lane),
				sum, mc_shared_of(here, lane));
		/* while the others come: what does not need r */
		if (ok && taken)
			mc_write16(a.residual_output + place, mc_pack16<T>(x));
		mc_sums_wait(here, parity);
		__syncwarp();
		const float r = mc_norm_scale(
			mc_norm_total(group_sum[turn], n_groups, lane), length, a.eps);

		if (ok && taken) {
			float g[N];

			mc_unpack16<T>(gamma, g);
#pragma unroll
			for (int i = 0; i < N; i++)
				x[i] = __fmul_rn(__fmul_rn(x[i], r), g[i]);
			mc_write16(a.output + place, mc_pack16<T>(x));
		}
		if (more)
			load_own(row + step);
		parity ^= turn;
		turn ^= 1u;
	}
#endif
}

static const void *const functions[] = {
	(const void *)rmsnorm_cluster<2>,
	(const void *)rmsnorm_cluster<4>,
	(const void *)rmsnorm_cluster<8>,
};

MC_KERNEL_SET(rmsnorm_cluster, RMSNORM_CLUSTER);
