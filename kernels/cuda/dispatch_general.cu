/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch of ragged rows, device-side counts, odd sizes and addresses; see dispatch.cu. */
#include "kernels/cuda/launch.cuh"

template <int MAX_PEERS>
struct general_args {
	struct mc_call c;
	uint32_t n_tensors;
	int32_t ids_tensor;
	const int32_t *count;
	int32_t *ret_counts;
	const uint8_t *input[MC_MAX_TENSORS];
	uint8_t *output[MC_MAX_TENSORS];
	uint64_t row_bytes[MC_MAX_TENSORS];
	uint32_t rows[MAX_PEERS + 1];      /* by rank */
	uint64_t row_start[MAX_PEERS + 1]; /* by rank: where its block starts */
	uint8_t *slot[MAX_PEERS];          /* by rotated peer */
};

template <int MAX_PEERS>
__device__ __forceinline__ uint64_t packed_vectors(const general_args<MAX_PEERS> &a, uint32_t rows)
{
	uint64_t n = 0;

	for (uint32_t t = 0; t < a.n_tensors; t++)
		n += (rows * a.row_bytes[t] + 15u) / 16u;
	return n;
}

/* Vector i of a block of `rows` valid rows: its tensor, byte offset and valid bytes. */
struct place {
	uint32_t tensor;
	uint32_t n_bytes;
	uint64_t offset;
};

template <int MAX_PEERS>
__device__ __forceinline__ struct place place_of(
	const general_args<MAX_PEERS> &a, uint32_t rows, uint64_t i)
{
	uint32_t t = 0;
	uint64_t n_bytes = rows * a.row_bytes[0];
	struct place p;

	for (; t + 1u < a.n_tensors && i * 16u >= n_bytes;) {
		i -= (n_bytes + 15u) / 16u;
		n_bytes = rows * a.row_bytes[++t];
	}
	p.tensor = t;
	p.offset = i * 16u;
	p.n_bytes = n_bytes - p.offset < 16u ? (uint32_t)(n_bytes - p.offset) : 16u;
	return p;
}

/* Rows of an expert id tensor past the count become -1. */
template <int MAX_PEERS>
__device__ __forceinline__ void mask_block(const general_args<MAX_PEERS> &a, uint32_t p,
	uint32_t valid, uint64_t thread, uint64_t n_threads)
{
	const uint64_t row_bytes = a.row_bytes[a.ids_tensor];
	uint8_t *from = a.output[a.ids_tensor] + (a.row_start[p] + valid) * row_bytes;
	const uint64_t n = (a.rows[p] - valid) * row_bytes;

	if ((((uintptr_t)from | row_bytes) & 3u) == 0) {
		for (uint64_t i = thread; i < n / 4u; i += n_threads)
			((uint32_t *)from)[i] = 0xffffffffu;
	} else {
		for (uint64_t i = thread; i < n; i += n_threads)
			from[i] = 0xff;
	}
}

template <int MAX_PEERS>
__global__ void __launch_bounds__(MC_STREAM_THREADS)
	dispatch_general(const __grid_constant__ general_args<MAX_PEERS> a)
{
	constexpr int U = 2, PEERS_AT_ONCE = 2;
	__shared__ struct mc_entry entry;
	__shared__ uint32_t valid_rows[MAX_PEERS + 1]; /* by rank */
	__shared__ uint32_t stop;
	const uint32_t n_data = blockDim.x - MC_WARP;
	const uint64_t step = (uint64_t)gridDim.x * n_data;
	const uint32_t n_peers = a.c.world_size - 1u, self = a.c.rank;

	mc_wait_predecessor(a.c);
	if (threadIdx.x < MC_WARP) {
		mc_fetch_entry(a.c, &entry);
		if (threadIdx.x == 0) {
			stop = 0;
			valid_rows[self] =
				a.count ? (uint32_t)mc_read_count(a.count) : a.rows[self];
		}
	}
	__syncthreads();
	if (entry.vector[MC_ENTRY_IDENTITY].z != 0)
		return;
	const uint64_t call = mc_call_number(&entry);
	const uint32_t own_rows = valid_rows[self];

	if (own_rows > a.rows[self]) { /* a negative count is a large number here */
		if (blockIdx.x == 0 && threadIdx.x == 0)
			mc_raise_plain(a.c, MC_FAULT_BAD_COUNT, self, call);
		return;
	}
	const uint64_t own_vectors = packed_vectors(a, own_rows);
	const uint4 sentinel = entry.vector[MC_ENTRY_SENTINEL];
	const uint64_t segment = (call % MC_SEGMENTS) * a.c.segment_stride;

	if (threadIdx.x < MC_WARP) {
		const uint32_t lane = threadIdx.x;
		const uint64_t n_sent = n_peers * (1u + own_vectors);
		const uint32_t n_posted = n_sent < UINT32_MAX ? (uint32_t)n_sent : UINT32_MAX;
		const struct mc_start start = mc_start_of(&entry);
		const uint4 part = entry.vector[lane < MC_ENTRY_VECTORS ? lane : 0];
		bool ok = true, waited = false;

		if (!a.count) {
			if (a.ret_counts && blockIdx.x == 0)
				for (uint32_t p = lane; p < a.c.world_size; p += MC_WARP)
					mc_write_count(a.ret_counts + p, a.rows[p]);
			const uint32_t first = lane < n_peers ? a.rows[mc_peer(a.c, lane)] : 0u;

			mc_control_exact<(MAX_PEERS > MC_WARP)>(
				a.c, start, mc_bases_of(a.c, sentinel, own_rows, first), part,
				a.c.n_vectors, [&](uint32_t j) { return a.slot[j]; },
				[&](uint32_t) { return own_rows; },
				[&](uint32_t j) { return a.rows[mc_peer(a.c, j)]; });
			return;
		}
		/* every CTA reads every header; the last one that has done so re-arms them */
		if (blockIdx.x == 0) {
			const uint32_t base = mc_base_of(a.c, sentinel, own_rows);

			for (uint32_t j = lane; j < n_peers; j += MC_WARP)
				mc_push_header(a.c, start, a.slot[j] + segment,
					mc_header_of(a.c, call, own_rows, base));
			if (!mc_control_intact(a.c, call, part) && lane == 0)
				mc_raise_plain(a.c, MC_FAULT_CORRUPT, self, call);
			if (mc_is_heartbeat(call) && lane == 0)
				mc_post_progress(a.c, call, n_posted, false);
		}
		mc_next_turn(a.c, call);
		if (blockIdx.x == 0)
			mc_next_turn_of_rest(a.c, call);
		for (uint32_t j = lane; ok && j < n_peers; j += MC_WARP) {
			const uint32_t p = mc_peer(a.c, j);
			const uint8_t *place = a.c.ring + segment + j * a.c.slot_stride;
			uint32_t rows = 0;

			ok = mc_await_header<false>(a.c, start, place, j, mc_load(place),
				mc_header_of(
					a.c, call, a.rows[p], mc_base_of(a.c, sentinel, a.rows[p])),
				true, &rows, [&]() {
					waited = blockIdx.x == 0;
					if (waited)
						mc_post_progress(a.c, call, n_posted, true);
				});
			valid_rows[p] = rows;
		}
		mc_end_wait(a.c, call, n_posted, waited, ok);
		if (!ok)
			stop = 1;
		ok = __all_sync(0xffffffffu, ok);
		mc_barrier_arrive(MC_BARRIER_PEERS, blockDim.x);
		if (!ok)
			return;
		if (a.ret_counts && blockIdx.x == 0)
			for (uint32_t p = lane; p < a.c.world_size; p += MC_WARP)
				mc_write_count(a.ret_counts + p, valid_rows[p]);
		/* the headers were consumed: see protocol.cuh */
		uint32_t ticket = 0;

		if (lane == 0 && gridDim.x > 1)
			ticket = atomicAdd(&a.c.control->channel[a.c.channel].ticket, 1u);
		ticket = __shfl_sync(0xffffffffu, ticket, 0);
		if (ticket == gridDim.x - 1u) {
			for (uint32_t j = lane; j < n_peers; j += MC_WARP)
				mc_store(a.c.ring + segment + j * a.c.slot_stride, sentinel);
			if (lane == 0)
				mc_next_call(a.c, call);
		}
		return;
	}

	const uint64_t thread = (uint64_t)blockIdx.x * n_data + threadIdx.x - MC_WARP;

	for (uint64_t i = thread; i < own_vectors; i += step) {
		const struct place at = place_of(a, own_rows, i);
		const uint4 v = mc_read_any(a.input[at.tensor] + at.offset, at.n_bytes);

		if (mc_same(v, sentinel)) {
			mc_raise_plain(a.c, MC_FAULT_SENTINEL, self, call);
			break;
		}
		for (uint32_t j = 0; j < n_peers; j++)
			mc_store(a.slot[j] + segment + MC_SLOT_HEADER_BYTES + i * 16u, v);
		mc_write_any(a.output[at.tensor] + a.row_start[self] * a.row_bytes[at.tensor] +
				     at.offset,
			v, at.n_bytes);
	}
	if (a.count) {
		mc_barrier(MC_BARRIER_PEERS, blockDim.x);
		if (stop)
			return;
		if (a.ids_tensor >= 0)
			for (uint32_t p = 0; p < a.c.world_size; p++)
				mask_block(a, p, valid_rows[p], thread, step);
	}
	uint8_t *const ring = a.c.ring + segment + MC_SLOT_HEADER_BYTES;

	for (uint32_t first = 0; first < n_peers; first += PEERS_AT_ONCE) {
		uint32_t rows[PEERS_AT_ONCE], peer[PEERS_AT_ONCE];
		uint64_t n[PEERS_AT_ONCE], most = 0;

#pragma unroll
		for (int k = 0; k < PEERS_AT_ONCE; k++) {
			peer[k] = first + k < n_peers ? mc_peer(a.c, first + k) : self;
			rows[k] = a.count ? valid_rows[peer[k]] : a.rows[peer[k]];
			n[k] = first + k < n_peers ? packed_vectors(a, rows[k]) : 0;
			most = n[k] > most ? n[k] : most;
		}
		for (uint64_t i = thread; i < most; i += U * step) {
			uint4 v[U * PEERS_AT_ONCE];
			uint32_t valid = 0;

#pragma unroll
			for (int u = 0; u < U; u++)
#pragma unroll
				for (int k = 0; k < PEERS_AT_ONCE; k++)
					if (i + u * step < n[k])
						valid |= 1u << (u * PEERS_AT_ONCE + k);
			if (!mc_await(
				    a.c, call, sentinel, valid, v,
				    [&](int m) {
					    return ring +
						   (first + m % PEERS_AT_ONCE) * a.c.slot_stride +
						   (i + m / PEERS_AT_ONCE * step) * 16u;
				    },
				    [&](int m) { return mc_peer(a.c, first + m % PEERS_AT_ONCE); }))
				return;
#pragma unroll
			for (int m = 0; m < U * PEERS_AT_ONCE; m++)
				if (valid >> m & 1u) {
					const int k = m % PEERS_AT_ONCE;
					const uint64_t m_at = i + m / PEERS_AT_ONCE * step;
					const struct place at = place_of(a, rows[k], m_at);

					mc_write_any(a.output[at.tensor] +
							     a.row_start[peer[k]] *
								     a.row_bytes[at.tensor] +
							     at.offset,
						v[m], at.n_bytes);
					mc_store(ring + (first + k) * a.c.slot_stride + m_at * 16u,
						sentinel);
				}
		}
	}
}

/* ---- host side ---- */

enum {
	GENERAL_8,
	GENERAL_64,
};

static const void *const functions[] = {
	(const void *)dispatch_general<7>,
	(const void *)dispatch_general<63>,
};

MC_KERNEL_SET(dispatch_general, DISPATCH_GENERAL);

template <int MAX_PEERS>
static cudaError_t launch_general(const struct mc_cuda_rank *rank, uint32_t channel,
	const struct mc_dispatch *op, uint32_t kernel, void *stream)
{
	const uint32_t world_size = rank->layout.world_size;
	general_args<MAX_PEERS> a;
	uint64_t row = 0, most = 0, mine = 0;

	for (uint32_t t = 0; t < op->n_tensors; t++) {
		a.input[t] = (const uint8_t *)op->tensor[t].input;
		a.output[t] = (uint8_t *)op->tensor[t].output;
		a.row_bytes[t] = op->tensor[t].row_bytes;
	}
	for (uint32_t p = 0; p < world_size; p++) {
		uint64_t n = 0;

		a.rows[p] = op->rows[p];
		a.row_start[p] = row;
		row += op->rows[p];
		for (uint32_t t = 0; t < op->n_tensors; t++)
			n += mc_vectors(op->rows[p] * op->tensor[t].row_bytes);
		most = n > most ? n : most;
		mine = p == rank->rank ? n : mine;
	}
	a.c = mc_call_make(
		rank, channel, MC_OP_DISPATCH, op->digest, (world_size - 1u) * (1u + mine));
	a.n_tensors = op->n_tensors;
	a.ids_tensor = op->ids_tensor;
	a.count = op->count;
	a.ret_counts = op->ret_counts;
	for (uint32_t j = 0; j + 1u < world_size; j++)
		a.slot[j] = mc_slot_of(rank, channel, (rank->rank + 1u + j) % world_size);
	return mc_launch(rank, &mc_dispatch_general_kernels, kernel, mc_shape_stream(rank, most, 1),
		&a, stream);
}

cudaError_t mc_dispatch_general(const struct mc_cuda_rank *rank, uint32_t channel,
	const struct mc_dispatch *op, void *stream)
{
	if (rank->layout.world_size > 8)
		return launch_general<63>(rank, channel, op, GENERAL_64, stream);
	return launch_general<7>(rank, channel, op, GENERAL_8, stream);
}
