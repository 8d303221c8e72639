/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatch: every rank's rows arrive on every rank, bit for bit, up to MC_MAX_TENSORS tensors in
 * one launch. A sender's tensors lie one after the other in its slot, each as rows × row_bytes
 * contiguous bytes from a vector boundary.
 *
 * Two kernels. `uniform`: all ranks have the same exact row count and every tensor's blocks are
 * whole, aligned vectors; the vector's place is all there is to compute. `general`: everything
 * else, namely ragged rows, device-side counts, odd sizes and addresses.
 */
#include "kernels/cuda/launch.cuh"

/* Arguments are copied at every launch; few groups have more than 8 ranks. */
template <int MAX_PEERS>
struct uniform_args {
	struct mc_call c;
	uint32_t n_tensors;
	uint32_t n_vectors;             /* of a rank */
	uint32_t first[MC_MAX_TENSORS]; /* vector each tensor starts at; UINT32_MAX past the last */
	const uint8_t *input[MC_MAX_TENSORS]; /* less the tensor's start, so that a vector's number
						 finds it */
	uint8_t *output[MC_MAX_TENSORS];      /* likewise */
	uint64_t block_bytes[MC_MAX_TENSORS]; /* of a rank's rows */
	uint32_t rows;
	int32_t *ret_counts;
	uint8_t *slot[MAX_PEERS]; /* this rank's slot on rotated peer j, segment 0 */
};

template <int MAX_PEERS>
__device__ __forceinline__ uint32_t tensor_of(const uniform_args<MAX_PEERS> &a, uint32_t i)
{
	uint32_t t = 0;

#pragma unroll
	for (uint32_t k = 1; k < MC_MAX_TENSORS; k++)
		t += i >= a.first[k];
	return t;
}

/*
 * W: world size, or 0: any. U: vectors a thread in flight. A thread's vectors lie a grid apart.
 * While it waits for one batch, the next is already on its way to the peers.
 */
template <int W, int U, int MAX_PEERS>
__global__ void __launch_bounds__(MC_STREAM_THREADS)
	dispatch_uniform(const __grid_constant__ uniform_args<MAX_PEERS> a)
{
	constexpr int PEERS_AT_ONCE = W ? W - 1 : 4;
	__shared__ struct mc_entry entry;
	const uint32_t n_threads = blockDim.x - MC_WARP, step = gridDim.x * n_threads;
	const uint32_t n_peers = (W ? (uint32_t)W : a.c.world_size) - 1u;
	uint32_t i = blockIdx.x * n_threads + threadIdx.x - MC_WARP;
	uint4 own[U];

	mc_wait_predecessor(a.c);
	if (threadIdx.x < MC_WARP) {
		mc_fetch_entry(a.c, &entry);
		__syncwarp();
		if (entry.identity.z != 0)
			return;
		if (a.ret_counts && blockIdx.x == 0)
			for (uint32_t p = threadIdx.x; p < a.c.world_size; p += MC_WARP)
				mc_write_count(a.ret_counts + p, a.rows);
		mc_control_exact(
			a.c, &entry, a.c.n_vectors, [&](uint32_t j) { return a.slot[j]; },
			[&](uint32_t) { return a.rows; }, [&](uint32_t) { return a.rows; }, true);
		return;
	}
	const struct mc_start start = mc_fetch_start(a.c);

#pragma unroll
	for (int u = 0; u < U; u++)
		if (i + u * step < a.n_vectors) {
			uint32_t t = tensor_of(a, i + u * step);

			own[u] = mc_read16(a.input[t] + (uint64_t)(i + u * step) * 16u);
		}
	mc_arrive_start(start);
	if (start.failed)
		return;
	const uint64_t call = start.call;
	const uint4 sentinel = start.sentinel;
	const uint64_t data = (call % MC_SEGMENTS) * a.c.segment_stride + MC_SLOT_HEADER_BYTES;
	uint8_t *const ring = a.c.ring + data;

	auto push = [&](uint32_t from) {
		bool bad = false;
#pragma unroll
		for (int u = 0; u < U; u++)
			if (from + u * step < a.n_vectors) {
				const uint64_t at = data + (uint64_t)(from + u * step) * 16u;

				bad |= mc_same(own[u], sentinel);
				if (W) {
#pragma unroll
					for (int j = 0; j < PEERS_AT_ONCE; j++)
						mc_store(a.slot[j] + at, own[u]);
				} else {
					for (uint32_t j = 0; j < n_peers; j++)
						mc_store(a.slot[j] + at, own[u]);
				}
			}
#pragma unroll
		for (int u = 0; u < U; u++)
			if (from + u * step < a.n_vectors) {
				uint32_t n = from + u * step, t = tensor_of(a, n);

				mc_write16(a.output[t] + a.c.rank * a.block_bytes[t] +
						   (uint64_t)n * 16u,
					own[u]);
			}
		if (bad)
			mc_raise_plain(a.c, MC_FAULT_SENTINEL, a.c.rank, call);
		return !bad;
	};

	if (i >= a.n_vectors || !push(i))
		return;
	for (;;) {
		const uint32_t next = i + U * step;

		if (next < a.n_vectors && next > i) {
#pragma unroll
			for (int u = 0; u < U; u++)
				if (next + u * step < a.n_vectors) {
					uint32_t t = tensor_of(a, next + u * step);

					own[u] = mc_read16(
						a.input[t] + (uint64_t)(next + u * step) * 16u);
				}
			if (!push(next))
				return;
		}
		for (uint32_t first = 0; first < n_peers; first += PEERS_AT_ONCE) {
			uint4 v[U * PEERS_AT_ONCE];
			uint32_t valid = 0;

#pragma unroll
			for (int u = 0; u < U; u++)
#pragma unroll
				for (int k = 0; k < PEERS_AT_ONCE; k++)
					if (i + u * step < a.n_vectors &&
						(W || first + k < n_peers))
						valid |= 1u << (u * PEERS_AT_ONCE + k);
			if (!mc_await(
				    a.c, call, sentinel, valid, v,
				    [&](int n) {
					    uint32_t u = n / PEERS_AT_ONCE, k = n % PEERS_AT_ONCE;

					    return ring + (first + k) * a.c.slot_stride +
						   (uint64_t)(i + u * step) * 16u;
				    },
				    [&](int n) { return mc_peer(a.c, first + n % PEERS_AT_ONCE); }))
				return;
#pragma unroll
			for (int u = 0; u < U; u++) {
				const uint32_t n = i + u * step;
				const uint32_t t = tensor_of(a, n);

#pragma unroll
				for (int k = 0; k < PEERS_AT_ONCE; k++)
					if (valid >> (u * PEERS_AT_ONCE + k) & 1u) {
						uint4 got = v[u * PEERS_AT_ONCE + k];

						mc_write16(a.output[t] +
								   mc_peer(a.c, first + k) *
									   a.block_bytes[t] +
								   (uint64_t)n * 16u,
							got);
						mc_store(ring + (first + k) * a.c.slot_stride +
								 (uint64_t)n * 16u,
							sentinel);
					}
			}
		}
		if (next >= a.n_vectors || next < i)
			return;
		i = next;
	}
}

/* ---- the general kernel ---- */

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
	if (entry.identity.z != 0)
		return;
	const uint64_t call = mc_call_number(&entry);
	const uint32_t own_rows = valid_rows[self];

	if (own_rows > a.rows[self]) { /* a negative count is a large number here */
		if (blockIdx.x == 0 && threadIdx.x == 0)
			mc_raise_plain(a.c, MC_FAULT_BAD_COUNT, self, call);
		return;
	}
	const uint64_t own_vectors = packed_vectors(a, own_rows);
	const uint4 sentinel = entry.sentinel;
	const uint64_t segment = (call % MC_SEGMENTS) * a.c.segment_stride;

	if (threadIdx.x < MC_WARP) {
		const uint32_t lane = threadIdx.x;
		const uint64_t n_sent = n_peers * (1u + own_vectors);
		const uint32_t n_posted = n_sent < UINT32_MAX ? (uint32_t)n_sent : UINT32_MAX;
		bool ok = true, waited = false;

		if (!a.count) {
			if (a.ret_counts && blockIdx.x == 0)
				for (uint32_t p = lane; p < a.c.world_size; p += MC_WARP)
					mc_write_count(a.ret_counts + p, a.rows[p]);
			mc_control_exact(
				a.c, &entry, a.c.n_vectors, [&](uint32_t j) { return a.slot[j]; },
				[&](uint32_t) { return own_rows; },
				[&](uint32_t j) { return a.rows[mc_peer(a.c, j)]; });
			return;
		}
		/* every CTA reads every header; the last one that has done so re-arms them */
		if (blockIdx.x == 0) {
			for (uint32_t j = lane; j < n_peers; j += MC_WARP)
				mc_push_header(a.c, &entry, a.slot[j] + segment, own_rows);
			if (lane == 0) {
				if (mc_is_heartbeat(call))
					mc_post_progress(a.c, call, n_posted, false);
				if (!mc_control_intact(a.c, &entry))
					mc_raise_plain(a.c, MC_FAULT_CORRUPT, self, call);
			}
		}
		mc_next_turn(a.c, call);
		for (uint32_t j = lane; ok && j < n_peers; j += MC_WARP) {
			const uint32_t p = mc_peer(a.c, j);
			uint32_t rows = 0;

			ok = mc_await_header(a.c, &entry, a.c.ring + segment + j * a.c.slot_stride,
				j, a.rows[p], true, &rows, [&]() {
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
	UNIFORM_2,
	UNIFORM_4,
	UNIFORM_8,
	UNIFORM_ANY_8,
	UNIFORM_ANY_64,
	GENERAL_8,
	GENERAL_64,
};

static const void *const functions[] = {
	(const void *)dispatch_uniform<2, 1, 7>,
	(const void *)dispatch_uniform<4, 2, 7>,
	(const void *)dispatch_uniform<8, 1, 7>,
	(const void *)dispatch_uniform<0, 1, 7>,
	(const void *)dispatch_uniform<0, 1, 63>,
	(const void *)dispatch_general<7>,
	(const void *)dispatch_general<63>,
};

const struct mc_kernel_set mc_dispatch_kernels = {
	functions, sizeof(functions) / sizeof(functions[0]), 0};

static bool is_uniform(const struct mc_dispatch *op, uint32_t world_size)
{
	const uint32_t rows = op->rows[0];
	uint64_t n = 0;

	if (op->count)
		return false;
	for (uint32_t p = 1; p < world_size; p++)
		if (op->rows[p] != rows)
			return false;
	for (uint32_t t = 0; t < op->n_tensors; t++) {
		const struct mc_tensor *x = &op->tensor[t];

		if (rows * x->row_bytes % MC_VECTOR_BYTES != 0 ||
			(((uintptr_t)x->input | (uintptr_t)x->output) & (MC_VECTOR_BYTES - 1u)) !=
				0)
			return false;
		n += rows * x->row_bytes / MC_VECTOR_BYTES;
	}
	/* vectors are counted in 32 bits, and a step past the end must not wrap */
	return n < UINT32_C(1) << 30;
}

template <int MAX_PEERS>
static cudaError_t launch_uniform(const struct mc_cuda_rank *rank, uint32_t channel,
	const struct mc_dispatch *op, uint32_t kernel, void *stream)
{
	const uint32_t world_size = rank->layout.world_size;
	uniform_args<MAX_PEERS> a;
	uint32_t n = 0;

	for (uint32_t t = 0; t < MC_MAX_TENSORS; t++) {
		a.first[t] = UINT32_MAX;
		if (t >= op->n_tensors)
			continue;
		a.first[t] = n;
		a.block_bytes[t] = op->rows[0] * op->tensor[t].row_bytes;
		a.input[t] = (const uint8_t *)op->tensor[t].input - (uint64_t)n * MC_VECTOR_BYTES;
		a.output[t] = (uint8_t *)op->tensor[t].output - (uint64_t)n * MC_VECTOR_BYTES;
		n += (uint32_t)(a.block_bytes[t] / MC_VECTOR_BYTES);
	}
	a.c = mc_call_make(
		rank, channel, MC_OP_DISPATCH, op->digest, (world_size - 1u) * (1ull + n));
	a.n_tensors = op->n_tensors;
	a.n_vectors = n;
	a.rows = op->rows[0];
	a.ret_counts = op->ret_counts;
	for (uint32_t j = 0; j + 1u < world_size; j++)
		a.slot[j] = mc_slot_of(rank, channel, (rank->rank + 1u + j) % world_size);
	return mc_launch(
		rank, &mc_dispatch_kernels, kernel, mc_shape_stream(rank, n, 1), &a, stream);
}

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
	return mc_launch(
		rank, &mc_dispatch_kernels, kernel, mc_shape_stream(rank, most, 1), &a, stream);
}

int mc_cuda_dispatch(const struct mc_cuda_rank *rank, uint32_t channel,
	const struct mc_dispatch *op, void *stream)
{
	const uint32_t world_size = rank->layout.world_size;

	if (is_uniform(op, world_size)) {
		if (world_size == 2)
			return launch_uniform<7>(rank, channel, op, UNIFORM_2, stream);
		if (world_size == 4)
			return launch_uniform<7>(rank, channel, op, UNIFORM_4, stream);
		if (world_size == 8)
			return launch_uniform<7>(rank, channel, op, UNIFORM_8, stream);
		if (world_size <= 8)
			return launch_uniform<7>(rank, channel, op, UNIFORM_ANY_8, stream);
		return launch_uniform<63>(rank, channel, op, UNIFORM_ANY_64, stream);
	}
	if (world_size > 8)
		return launch_general<63>(rank, channel, op, GENERAL_64, stream);
	return launch_general<7>(rank, channel, op, GENERAL_8, stream);
}
