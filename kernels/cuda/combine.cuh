/* SPDX-License-Identifier: Apache-2.0 */
/* What combine with and without norm share: arguments and the order of peers. */
#ifndef MC_KERNELS_CUDA_COMBINE_CUH
#define MC_KERNELS_CUDA_COMBINE_CUH

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

template <int MAX_PEERS>
struct mc_combine_args {
	struct mc_call c;
	const uint8_t *input;
	const uint8_t *own; /* this rank's part of its own rows, in input */
	uint8_t *output;
	const uint8_t *residual;
	uint8_t *residual_output;
	const uint8_t *gamma;
	const int32_t *counts;
	uint64_t hidden;
	uint64_t row_bytes;
	float eps;
	uint32_t own_rows;
	uint32_t most_rows;         /* of any rank */
	uint32_t rows[MAX_PEERS];   /* of rotated peer j */
	uint64_t offset[MAX_PEERS]; /* of its rows in input, in bytes */
	uint8_t *slot[MAX_PEERS];   /* this rank's slot there, segment 0 */
};

/*
 * Peers are awaited in rank order, because that is the order of the sum: the k-th rank that is not
 * this one is rank mc_ranked(k), and its slot is the rotated place mc_place_of(rank).
 */
__device__ __forceinline__ uint32_t mc_ranked(const struct mc_call &c, uint32_t k)
{
	return k + (k >= c.rank);
}

__device__ __forceinline__ uint32_t mc_place_of(const struct mc_call &c, uint32_t rank)
{
	return rank > c.rank ? rank - c.rank - 1u : rank + c.world_size - c.rank - 1u;
}

/* Valid rows of this rank and of rotated peer j; the counts were checked. */
template <int M>
__device__ __forceinline__ uint32_t mc_own_rows(const mc_combine_args<M> &a)
{
	return a.counts ? (uint32_t)mc_read_count(a.counts + a.c.rank) : a.own_rows;
}

template <int M>
__device__ __forceinline__ uint32_t mc_peer_rows(const mc_combine_args<M> &a, uint32_t j)
{
	return a.counts ? (uint32_t)mc_read_count(a.counts + mc_peer(a.c, j)) : a.rows[j];
}

/* False when a device-side count is out of range: every thread of every CTA sees the same. */
template <int M>
__device__ __forceinline__ bool mc_counts_fit(const mc_combine_args<M> &a)
{
	bool fit = true;

	if (a.counts) {
		fit = mc_own_rows(a) <= a.own_rows;
		for (uint32_t j = 0; j + 1u < a.c.world_size; j++)
			fit &= mc_peer_rows(a, j) <= a.rows[j];
	}
	return fit;
}

/*
 * Valid rows. For 2 to 4 ranks the peers' are kept in registers, so that the question whether there
 * are device-side counts is asked once.
 */
template <int W>
struct mc_rows {
	static constexpr bool KEPT = W >= 2 && W <= 4;
	uint32_t own;
	uint32_t peer[KEPT ? W - 1 : 1]; /* of rotated peer j */
	bool fit;
};

/* What they are without counts, known before the kernel before has ended. */
template <int W, int M>
__device__ __forceinline__ struct mc_rows<W> mc_rows_limits(const mc_combine_args<M> &a) {
	struct mc_rows<W> rows;

	rows.own = a.own_rows;
#pragma unroll
	for (int j = 0; mc_rows<W>::KEPT && j < W - 1; j++)
		rows.peer[j] = a.rows[j];
	rows.fit = true;
	return rows;
}

template <int W, int M>
__device__ __forceinline__ uint32_t mc_rows_of(
	const mc_combine_args<M> &a, const struct mc_rows<W> &rows, uint32_t j)
{
	return mc_rows<W>::KEPT ? rows.peer[j] : rows.fit ? mc_peer_rows(a, j) : 0u;
}

/* After mc_wait_predecessor. Counts that do not fit leave no rows. */
template <int W, int M>
__device__ __forceinline__ void mc_rows_count(const mc_combine_args<M> &a, struct mc_rows<W> *rows)
{
	if (!a.counts)
		return;
	rows->own = mc_own_rows(a);
	if (mc_rows<W>::KEPT) {
		rows->fit = rows->own <= a.own_rows;
#pragma unroll
		for (int j = 0; j < W - 1; j++) {
			rows->peer[j] = mc_peer_rows(a, j);
			rows->fit &= rows->peer[j] <= a.rows[j];
		}
	} else {
		rows->fit = mc_counts_fit(a);
	}
	if (rows->fit)
		return;
	rows->own = 0;
#pragma unroll
	for (int j = 0; mc_rows<W>::KEPT && j < W - 1; j++)
		rows->peer[j] = 0;
}

/*
 * All that the control warp of a combine does, from its first loads on. *entry is for the data
 * warps, which meet at MC_BARRIER_TURN before they look there.
 */
template <int M>
__device__ __forceinline__ void mc_combine_control(
	const mc_combine_args<M> &a, struct mc_entry *entry, uint4 sentinel)
{
	const uint32_t lane = threadIdx.x, n_peers = a.c.world_size - 1u;
	const struct mc_start_source source = mc_start_source_of(a.c);
	const uint8_t *entry_source = mc_entry_source(a.c);
	uint32_t send = lane < n_peers ? a.rows[lane] : 0u, want = a.own_rows;
	uint32_t n_vectors = a.c.n_vectors;
	struct mc_bases bases = mc_bases_of(a.c, sentinel, send, want);
	bool fit = true;

	mc_wait_predecessor(a.c);
	const uint4 part = mc_load_own(entry_source);
	const struct mc_start start = mc_fetch_start(source, sentinel);

	mc_fill_entry(entry, part);
	mc_barrier_arrive(MC_BARRIER_TURN, blockDim.x);
	if (start.failed) {
		mc_raise_bad_turn(a.c, start);
		return;
	}
	if (a.counts) {
		uint64_t n = 0;

		fit = mc_counts_fit(a);
		if (!fit) {
			if (blockIdx.x == 0 && lane == 0)
				mc_raise_plain(a.c, MC_FAULT_BAD_COUNT, a.c.rank, start.call);
			return;
		}
		send = lane < n_peers ? mc_peer_rows(a, lane) : 0u;
		want = mc_own_rows(a);
		bases = mc_bases_of(a.c, sentinel, send, want);
		for (uint32_t j = 0; blockIdx.x == 0 && j < n_peers; j++)
			n += 1u + (mc_peer_rows(a, j) * a.row_bytes + 15u) / 16u;
		n_vectors = n < 0xffffffffu ? (uint32_t)n : 0xffffffffu;
	}
	mc_control_exact<(M > (int)MC_WARP)>(
		a.c, start, bases, part, n_vectors, [&](uint32_t j) { return a.slot[j]; },
		[&](uint32_t j) { return j < MC_WARP ? send : mc_peer_rows(a, j); },
		[&](uint32_t) { return want; });
}

/* How a data warp of the kernels for any size begins. False: there is nothing to do. */
template <int M>
__device__ __forceinline__ bool mc_enter_any(
	const mc_combine_args<M> &a, const struct mc_entry *entry, uint64_t *ret_call)
{
	mc_wait_predecessor(a.c);
	mc_barrier(MC_BARRIER_TURN, blockDim.x);
	*ret_call = mc_call_number(entry);
	return !mc_is_over(entry) && mc_counts_fit(a);
}

/*
 * Pushes rows of any size and address, a vector at a time, from vector `first` on, `step` apart.
 * data: where the slot's data lies for this call. False: a vector equals the sentinel (which is
 * told and not sent).
 */
template <int M>
__device__ __forceinline__ bool mc_push_any(const mc_combine_args<M> &a, uint4 sentinel,
	uint64_t call, uint64_t data, uint64_t first, uint64_t step)
{
	bool ok = true;

	for (uint64_t i = first; i < (a.most_rows * a.row_bytes + 15u) / 16u; i += step)
		for (uint32_t j = 0; j + 1u < a.c.world_size; j++) {
			const uint64_t n_bytes = mc_peer_rows(a, j) * a.row_bytes;

			if (i * 16u < n_bytes) {
				const uint64_t rest = n_bytes - i * 16u;
				const uint4 v = mc_read_any(a.input + a.offset[j] + i * 16u,
					rest < 16u ? (uint32_t)rest : 16u);

				if (mc_same(v, sentinel))
					ok = false;
				else
					mc_store(a.slot[j] + data + i * 16u, v);
			}
		}
	if (!ok)
		mc_raise_plain(a.c, MC_FAULT_SENTINEL, a.c.rank, call);
	return ok;
}

/* ---- host side ---- */

template <int M>
static void mc_combine_args_make(const struct mc_cuda_rank *rank, uint32_t channel,
	const struct mc_combine *op, mc_combine_args<M> *a)
{
	const uint32_t world_size = rank->layout.world_size;
	const uint64_t row_bytes = op->hidden * mc_dtype_bytes(op->dtype);
	uint64_t row = 0, n_vectors = 0;

	a->input = (const uint8_t *)op->input;
	a->own = a->input;
	a->output = (uint8_t *)op->output;
	a->residual = (const uint8_t *)op->residual;
	a->residual_output = (uint8_t *)op->residual_output;
	a->gamma = (const uint8_t *)op->gamma;
	a->counts = op->counts;
	a->hidden = op->hidden;
	a->row_bytes = row_bytes;
	a->eps = op->eps;
	a->own_rows = op->rows[rank->rank];
	a->most_rows = 0;
	for (uint32_t p = 0; p < world_size; p++) {
		if (p == rank->rank) {
			a->own = a->input + row * row_bytes;
		} else {
			const uint32_t j = (p + world_size - rank->rank - 1u) % world_size;

			a->rows[j] = op->rows[p];
			a->offset[j] = row * row_bytes;
			a->slot[j] = mc_slot_of(rank, channel, p);
			n_vectors += 1u + mc_vectors(op->rows[p] * row_bytes);
		}
		a->most_rows = op->rows[p] > a->most_rows ? op->rows[p] : a->most_rows;
		row += op->rows[p];
	}
	a->c = mc_call_make(rank, channel, mc_combine_kind(op), op->digest, n_vectors);
}

int mc_cuda_combine_rmsnorm(const struct mc_cuda_rank *rank, uint32_t channel,
	const struct mc_combine *op, void *stream);

#endif
