/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatch: every rank's rows arrive on every rank, bit for bit, up to MC_MAX_TENSORS tensors in
 * one launch. A sender's tensors lie one after the other in its slot, each as rows × row_bytes
 * contiguous bytes from a vector boundary.
 *
 * Two kernels. `uniform`, here: all ranks have the same exact row count and every tensor's blocks
 * are whole, aligned vectors; the vector's place is all there is to compute. `general`
 * (dispatch_general.cu): everything else.
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

/* Where rank r's vector i of tensor t goes. */
template <int MAX_PEERS>
__device__ __forceinline__ uint8_t *output_of(
	const uniform_args<MAX_PEERS> &a, uint32_t t, uint32_t r, uint32_t i)
{
	return a.output[t] + r * a.block_bytes[t] + (uint64_t)i * 16u;
}

/*
 * W: world size, or 0: any. U: vectors a thread in flight. A thread's vectors lie a grid apart.
 * While it waits for one batch, the next is already on its way to the peers. CTAS: how many of the
 * largest CTAs an SM must have room for; with more than one the grid is large.
 */
template <int W, int U, int MAX_PEERS, int CTAS = 1>
__global__ void __launch_bounds__(MC_STREAM_THREADS, CTAS)
	dispatch_uniform(const __grid_constant__ uniform_args<MAX_PEERS> a)
{
	constexpr int PEERS_AT_ONCE = W ? W - 1 : 4;
	const uint32_t n_threads = blockDim.x - MC_WARP, step = gridDim.x * n_threads;
	const uint32_t n_peers = (W ? (uint32_t)W : a.c.world_size) - 1u;
	const uint4 sentinel = mc_fetch_sentinel(a.c);
	uint32_t i = blockIdx.x * n_threads + threadIdx.x - MC_WARP;
	/* with one peer there are registers to keep the places, else their tensors */
	const uint8_t *input[U];
	uint8_t *mine[U], *theirs[U];
	uint32_t tensor[U];
	uint4 own[U];

	if (threadIdx.x < MC_WARP) {
		const struct mc_start_source source = mc_start_source_of(a.c);
		const uint8_t *entry_source = mc_entry_source(a.c);
		const struct mc_bases bases = mc_bases_of(a.c, sentinel, a.rows, a.rows);

		mc_wait_predecessor(a.c);
		const struct mc_start start = mc_fetch_start(source, sentinel);
		const uint4 part = mc_load_own(entry_source);

		if (start.failed) {
			mc_raise_bad_turn(a.c, start);
			return;
		}
		mc_control_exact<(MAX_PEERS > MC_WARP)>(
			a.c, start, bases, part, a.c.n_vectors,
			[&](uint32_t j) { return a.slot[j]; }, [&](uint32_t) { return a.rows; },
			[&](uint32_t) { return a.rows; }, true);
		if (a.ret_counts && blockIdx.x == 0)
			for (uint32_t p = threadIdx.x; p < a.c.world_size; p += MC_WARP)
				mc_write_count(a.ret_counts + p, a.rows);
		return;
	}

	auto place = [&](uint32_t from) {
#pragma unroll
		for (int u = 0; u < U; u++)
			if (from + u * step < a.n_vectors) {
				const uint32_t n = from + u * step;

				tensor[u] = tensor_of(a, n);
				input[u] = a.input[tensor[u]] + (uint64_t)n * 16u;
				mine[u] = output_of(a, tensor[u], a.c.rank, n);
				theirs[u] = output_of(a, tensor[u], mc_peer(a.c, 0), n);
			}
#pragma unroll
		for (int u = 0; u < U; u++)
			if (W == 2)
				mc_keep(input[u], mine[u], theirs[u]);
			else
				mc_keep(input[u], tensor[u]);
	};
	auto read = [&](uint32_t from) {
#pragma unroll
		for (int u = 0; u < U; u++)
			if (from + u * step < a.n_vectors)
				own[u] = mc_read16(input[u]);
	};

	/* all that is known without the kernel before, while that one still runs */
	place(i);
	const struct mc_start_source source = mc_start_source_of(a.c);

	mc_wait_predecessor(a.c);
	const struct mc_start start = mc_fetch_start(source, sentinel);

	read(i);
	mc_arrive_start(start);
	if (start.failed)
		return;
	const uint64_t call = start.call;
	const uint64_t data = (call % MC_SEGMENTS) * a.c.segment_stride + MC_SLOT_HEADER_BYTES;
	uint8_t *const ring = a.c.ring + data;

	/* to the peers, then to this rank's own block */
	auto push = [&](uint32_t from) {
		bool bad = false;
#pragma unroll
		for (int u = 0; u < U; u++)
			if (from + u * step < a.n_vectors) {
				const uint64_t to = data + (uint64_t)(from + u * step) * 16u;

				bad |= mc_same(own[u], sentinel);
				if (W) {
#pragma unroll
					for (int j = 0; j < PEERS_AT_ONCE; j++)
						mc_store(a.slot[j] + to, own[u]);
				} else {
					for (uint32_t j = 0; j < n_peers; j++)
						mc_store(a.slot[j] + to, own[u]);
				}
			}
#pragma unroll
		for (int u = 0; u < U; u++)
			if (from + u * step < a.n_vectors)
				mc_write16(
					W == 2 ? mine[u]
					       : output_of(a, tensor[u], a.c.rank, from + u * step),
					own[u]);
		if (bad)
			mc_raise_plain(a.c, MC_FAULT_SENTINEL, a.c.rank, call);
		return !bad;
	};

	if (i >= a.n_vectors || !push(i))
		return;
	for (;;) {
		const uint32_t next = i + U * step;
		uint8_t *to[U];
		uint32_t of[U];

#pragma unroll
		for (int u = 0; u < U; u++) {
			to[u] = theirs[u];
			of[u] = tensor[u];
		}
		if (next < a.n_vectors && next > i) {
			place(next);
			read(next);
			if (!push(next))
				return;
		}
		for (uint32_t first = 0; first < n_peers; first += PEERS_AT_ONCE) {
			uint4 v[U * PEERS_AT_ONCE];
			/* found once, not once a look, if registers allow */
			constexpr bool PLACES = W == 2 && CTAS == 1;
			uint8_t *slot[U * PEERS_AT_ONCE];
			uint32_t valid = 0;

#pragma unroll
			for (int u = 0; u < U; u++)
#pragma unroll
				for (int k = 0; k < PEERS_AT_ONCE; k++)
					if (i + u * step < a.n_vectors &&
						(W || first + k < n_peers))
						valid |= 1u << (u * PEERS_AT_ONCE + k);
			auto find = [&](int n) {
				return ring + (first + n % PEERS_AT_ONCE) * a.c.slot_stride +
				       (uint64_t)(i + n / PEERS_AT_ONCE * step) * 16u;
			};
#pragma unroll
			for (int n = 0; PLACES && n < U * PEERS_AT_ONCE; n++) {
				slot[n] = find(n);
				mc_keep(slot[n]);
			}
			if (!mc_await<CTAS == 1>(
				    a.c, call, sentinel, valid, v,
				    [&](int n) { return PLACES ? slot[n] : find(n); },
				    [&](int n) { return mc_peer(a.c, first + n % PEERS_AT_ONCE); }))
				return;
#pragma unroll
			for (int u = 0; u < U; u++)
#pragma unroll
				for (int k = 0; k < PEERS_AT_ONCE; k++)
					if (valid >> (u * PEERS_AT_ONCE + k) & 1u) {
						mc_write16(W == 2 ? to[u]
								  : output_of(a, of[u],
									    mc_peer(a.c, first + k),
									    i + u * step),
							v[u * PEERS_AT_ONCE + k]);
						mc_store(PLACES ? slot[u * PEERS_AT_ONCE + k]
								: find(u * PEERS_AT_ONCE + k),
							sentinel);
					}
		}
		if (next >= a.n_vectors || next < i)
			return;
		i = next;
	}
}

/* ---- host side ---- */

enum {
	UNIFORM_2,
	UNIFORM_2_LONG,
	UNIFORM_4,
	UNIFORM_8,
	UNIFORM_ANY_8,
	UNIFORM_ANY_64,
};

static const void *const functions[] = {
	(const void *)dispatch_uniform<2, 1, 7>,
	(const void *)dispatch_uniform<2, 1, 7, 2>,
	(const void *)dispatch_uniform<4, 2, 7>,
	(const void *)dispatch_uniform<8, 1, 7>,
	(const void *)dispatch_uniform<0, 1, 7>,
	(const void *)dispatch_uniform<0, 1, 63>,
};

MC_KERNEL_SET(dispatch, DISPATCH);

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
	/* two CTAs an SM are worth some spilled registers only when one each is too few */
	if (kernel == UNIFORM_2 && mc_shape_is_long(rank, n) && mc_device_share(rank) == 1u)
		kernel = UNIFORM_2_LONG;
	return mc_launch(
		rank, &mc_dispatch_kernels, kernel, mc_shape_stream(rank, n, 1), &a, stream);
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
	return mc_dispatch_general(rank, channel, op, stream);
}
