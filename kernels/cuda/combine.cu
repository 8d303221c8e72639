/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Combine: each rank gets the sum of all ranks' parts of its own rows; a peer is sent its own slice
 * and nothing else. Sums are fp32 in rank order from rank 0's value on, rounded once.
 *
 * Two kernels. `fast`: rows are whole vectors at aligned addresses. `any`: everything else.
 */
#include "kernels/cuda/combine.cuh"

/* W: world size, or 0: any. U: vectors a thread in flight. */
template <class T, int W, int U, int M>
__global__ void __launch_bounds__(MC_STREAM_THREADS, 1)
	combine_fast(const __grid_constant__ mc_combine_args<M> a)
{
	constexpr int RANKS_AT_ONCE = W ? W : 4;
	constexpr int P = W ? W - 1 : 1;
	constexpr int N = mc_vector_of_type<T>::N;
	__shared__ struct mc_entry entry;
	const uint32_t n_threads = blockDim.x - MC_WARP, step = gridDim.x * n_threads;
	const uint32_t n_peers = (W ? (uint32_t)W : a.c.world_size) - 1u;
	const uint32_t row_vectors = (uint32_t)(a.row_bytes / 16u);
	const uint4 sentinel = mc_fetch_sentinel(a.c);
	uint32_t i = blockIdx.x * n_threads + threadIdx.x - MC_WARP;
	struct mc_rows<W> rows = mc_rows_limits<W>(a);
	uint4 own[U], part[U * P];

	if (threadIdx.x < MC_WARP) {
		mc_combine_control(a, &entry, sentinel);
		return;
	}
	/* where a thread's next vectors are, if registers allow; the first ones are found before
	 * the wait for the kernel before */
	constexpr bool PLACES = W == 2 || W == 4;
	const uint8_t *own_at = a.own + (uint64_t)i * 16u, *part_at[P];

#pragma unroll
	for (int j = 0; PLACES && j < P; j++) {
		part_at[j] = a.input + a.offset[j] + (uint64_t)i * 16u;
		mc_keep(own_at, part_at[j]);
	}
	mc_wait_predecessor(a.c);
	mc_rows_count(a, &rows);
	const uint32_t own_vectors = rows.own * row_vectors;
	uint32_t most = own_vectors;

	for (uint32_t j = 0; j < n_peers; j++)
		most = max(most, mc_rows_of(a, rows, j) * row_vectors);

	/* inputs of the vectors from `from` on, all in flight together; each batch once, in turn */
	auto load = [&](uint32_t from) {
#pragma unroll
		for (int u = 0; u < U; u++) {
			const uint32_t n = from + u * step;

#pragma unroll
			for (int j = 0; W && j < P; j++) {
				if (n < mc_rows_of(a, rows, j) * row_vectors)
					part[u * P + j] = mc_read16(
						PLACES ? part_at[j]
						       : a.input + a.offset[j] + (uint64_t)n * 16u);
				if (PLACES)
					part_at[j] += (uint64_t)step * 16u;
			}
			if (n < own_vectors)
				own[u] = mc_read16(own_at);
			own_at += (uint64_t)step * 16u;
		}
	};

	if (i < most)
		load(i);
	mc_barrier(MC_BARRIER_TURN, blockDim.x);
	const uint64_t call = mc_call_number(&entry);

	if (mc_is_over(&entry) || !rows.fit)
		return;
	const uint64_t data = (call % MC_SEGMENTS) * a.c.segment_stride + MC_SLOT_HEADER_BYTES;
	uint8_t *const ring = a.c.ring + data;

	auto push = [&](uint32_t from) {
		bool bad = false;

#pragma unroll
		for (int u = 0; u < U; u++) {
			const uint32_t n = from + u * step;
			const uint64_t at = (uint64_t)n * 16u;

			if (W) {
#pragma unroll
				for (int j = 0; j < P; j++)
					if (n < mc_rows_of(a, rows, j) * row_vectors) {
						bad |= mc_same(part[u * P + j], sentinel);
						mc_store(a.slot[j] + data + at, part[u * P + j]);
					}
			} else {
#pragma unroll 4
				for (uint32_t j = 0; j < n_peers; j++)
					if (n < mc_peer_rows(a, j) * row_vectors) {
						uint4 v = mc_read16(a.input + a.offset[j] + at);

						bad |= mc_same(v, sentinel);
						mc_store(a.slot[j] + data + at, v);
					}
			}
		}
		if (bad)
			mc_raise_plain(a.c, MC_FAULT_SENTINEL, a.c.rank, call);
		return !bad;
	};

	if (i >= most || !push(i))
		return;
	for (;;) {
		const uint32_t next = i + U * step;
		uint4 mine[U];
		float acc[U][N];

#pragma unroll
		for (int u = 0; u < U; u++)
			mine[u] = own[u];
		if (next < most && next > i) {
			load(next);
			if (!push(next))
				return;
		}
		for (uint32_t first = 0; first < n_peers + 1u; first += RANKS_AT_ONCE) {
			/* static: the W - 1 others; dynamic: a stretch of ranks, this one left out
			 */
			constexpr int AT_ONCE = W ? P : RANKS_AT_ONCE;
			uint4 v[U * AT_ONCE];
			uint8_t *slot[U * AT_ONCE]; /* found once, not once a look, if PLACES */
			uint32_t valid = 0;

			auto rank_of = [&](int k) { return W ? mc_ranked(a.c, k) : first + k; };
#pragma unroll
			for (int u = 0; u < U; u++)
#pragma unroll
				for (int k = 0; k < AT_ONCE; k++)
					if (i + u * step < own_vectors &&
						(W || (first + k <= n_peers &&
							      first + k != a.c.rank)))
						valid |= 1u << (u * AT_ONCE + k);
			auto find = [&](int n) {
				return ring +
				       mc_place_of(a.c, rank_of(n % AT_ONCE)) * a.c.slot_stride +
				       (uint64_t)(i + n / AT_ONCE * step) * 16u;
			};
#pragma unroll
			for (int n = 0; PLACES && n < U * AT_ONCE; n++) {
				slot[n] = find(n);
				mc_keep(slot[n]);
			}
			if (!mc_await<true>(
				    a.c, call, sentinel, valid, v,
				    [&](int n) { return PLACES ? slot[n] : find(n); },
				    [&](int n) { return rank_of(n % AT_ONCE); }))
				return;
#pragma unroll
			for (int u = 0; u < U; u++) {
#pragma unroll
				for (int k = 0; k < AT_ONCE; k++)
					if (valid >> (u * AT_ONCE + k) & 1u)
						mc_store(PLACES ? slot[u * AT_ONCE + k]
								: find(u * AT_ONCE + k),
							sentinel);
#pragma unroll
				for (int r = 0; r < RANKS_AT_ONCE; r++) {
					uint4 x;

					if (W) {
						x = v[u * AT_ONCE +
							(r < AT_ONCE ? r : AT_ONCE - 1)];
						if (r > 0 && (uint32_t)r > a.c.rank)
							x = v[u * AT_ONCE + (r > 0 ? r - 1 : 0)];
						if ((uint32_t)r == a.c.rank)
							x = mine[u];
						mc_accumulate<T>(r == 0, x, acc[u]);
					} else if (first + r <= n_peers) {
						x = first + r == a.c.rank
							    ? mine[u]
							    : v[u * AT_ONCE + r % AT_ONCE];
						mc_accumulate<T>(first + r == 0, x, acc[u]);
					}
				}
			}
		}
#pragma unroll
		for (int u = 0; u < U; u++)
			if (i + u * step < own_vectors)
				mc_write16(a.output + (uint64_t)(i + u * step) * 16u,
					mc_pack16<T>(acc[u]));
		if (next >= most || next < i)
			return;
		i = next;
	}
}

/* Any size and address: a vector at a time, a peer at a time. */
template <class T, int M>
__global__ void __launch_bounds__(MC_STREAM_THREADS)
	combine_any(const __grid_constant__ mc_combine_args<M> a)
{
	constexpr int N = mc_vector_of_type<T>::N;
	__shared__ struct mc_entry entry;
	const uint32_t n_threads = blockDim.x - MC_WARP;
	const uint64_t step = (uint64_t)gridDim.x * n_threads;
	const uint64_t thread = (uint64_t)blockIdx.x * n_threads + threadIdx.x - MC_WARP;

	const uint4 sentinel = mc_fetch_sentinel(a.c);

	if (threadIdx.x < MC_WARP) {
		mc_combine_control(a, &entry, sentinel);
		return;
	}
	uint64_t call;

	if (!mc_enter_any(a, &entry, &call))
		return;
	const uint64_t data = (call % MC_SEGMENTS) * a.c.segment_stride + MC_SLOT_HEADER_BYTES;
	const uint64_t own_bytes = mc_own_rows(a) * a.row_bytes;

	if (!mc_push_any(a, sentinel, call, data, thread, step))
		return;
	for (uint64_t i = thread; i * 16u < own_bytes; i += step) {
		const uint64_t rest = own_bytes - i * 16u;
		const uint32_t n = rest < 16u ? (uint32_t)rest : 16u;
		const uint4 mine = mc_read_any(a.own + i * 16u, n);
		float acc[N];

		for (uint32_t r = 0; r < a.c.world_size; r++) {
			uint4 v[1] = {mine};

			if (r != a.c.rank) {
				uint8_t *from = a.c.ring + data +
						mc_place_of(a.c, r) * a.c.slot_stride + i * 16u;

				if (!mc_await(
					    a.c, call, sentinel, 1u, v, [&](int) { return from; },
					    [&](int) { return r; }))
					return;
				mc_store(from, sentinel);
			}
			mc_accumulate<T>(r == 0, v[0], acc);
		}
		mc_write_any(a.output + i * 16u, mc_pack16<T>(acc), n);
	}
}

/* ---- host side ---- */

/* Kernels of one type: the fast ones by world size, then `any`. */
enum {
	FAST_2,
	FAST_2_LONG,
	FAST_4,
	FAST_8,
	FAST_ANY_8,
	FAST_ANY_64,
	ANY_8,
	ANY_64,
	N_OF_TYPE,
};

#define KERNELS_OF(T, FOUR, EIGHT)                                                                 \
	(const void *)combine_fast<T, 2, 1, 7>, (const void *)combine_fast<T, 2, 2, 7>,            \
		(const void *)FOUR, (const void *)EIGHT, (const void *)combine_fast<T, 0, 1, 7>,   \
		(const void *)combine_fast<T, 0, 1, 63>, (const void *)combine_any<T, 7>,          \
		(const void *)combine_any<T, 63>
/* world sizes 4 and 8 are specialised for the type that engines use; the others share a kernel */
static const void *const functions[] = {
	KERNELS_OF(mc_bf16, (combine_fast<mc_bf16, 4, 1, 7>), (combine_fast<mc_bf16, 8, 1, 7>)),
	KERNELS_OF(mc_fp16, (combine_fast<mc_fp16, 0, 1, 7>), (combine_fast<mc_fp16, 0, 1, 7>)),
	KERNELS_OF(mc_fp32, (combine_fast<mc_fp32, 0, 1, 7>), (combine_fast<mc_fp32, 0, 1, 7>)),
};

MC_KERNEL_SET(combine, COMBINE);

template <int M>
static cudaError_t launch(const struct mc_cuda_rank *rank, uint32_t channel,
	const struct mc_combine *op, uint32_t fast, uint32_t any, void *stream)
{
	const uint32_t base = ((uint32_t)op->dtype - MC_DTYPE_BF16) * N_OF_TYPE;
	mc_combine_args<M> a;
	uint32_t unroll = 1;
	uint64_t n;
	bool is_fast;

	mc_combine_args_make(rank, channel, op, &a);
	n = mc_vectors(a.most_rows * a.row_bytes);
	/* vectors are counted in 32 bits there, and a step past the end must not wrap */
	is_fast = a.row_bytes % MC_VECTOR_BYTES == 0 && n < UINT64_C(1) << 30 &&
		  (((uintptr_t)a.input | (uintptr_t)a.output) & (MC_VECTOR_BYTES - 1u)) == 0;
	if (is_fast && fast == FAST_2 && mc_shape_is_long(rank, n)) {
		fast = FAST_2_LONG;
		unroll = 2;
	}
	return mc_launch(rank, &mc_combine_kernels, base + (is_fast ? fast : any),
		mc_shape_stream(rank, n, unroll), &a, stream);
}

int mc_cuda_combine(const struct mc_cuda_rank *rank, uint32_t channel, const struct mc_combine *op,
	void *stream)
{
	const uint32_t world_size = rank->layout.world_size;

	if (mc_combine_kind(op) == MC_OP_COMBINE_RMSNORM)
		return mc_cuda_combine_rmsnorm(rank, channel, op, stream);
	switch (world_size) {
	case 2:
		return launch<7>(rank, channel, op, FAST_2, ANY_8, stream);
	case 4:
		return launch<7>(rank, channel, op, FAST_4, ANY_8, stream);
	case 8:
		return launch<7>(rank, channel, op, FAST_8, ANY_8, stream);
	default:
		break;
	}
	if (world_size > 8)
		return launch<63>(rank, channel, op, FAST_ANY_64, ANY_64, stream);
	return launch<7>(rank, channel, op, FAST_ANY_8, ANY_8, stream);
}
