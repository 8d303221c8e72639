/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Combine + residual + RMSNorm in one launch: x = sum + residual; residual_output = round(x);
 * output = round((x · r) · gamma), r = 1 / sqrt(mean(x²) + eps). The order of every operation is
 * docs/numerics.md: in a group of 256 elements lane l sums the squares of its 8, a butterfly over
 * the lanes, then the groups' sums likewise. A warp that loads a 16-bit row with 16-byte loads has
 * just those 8 elements in each lane.
 *
 * `fast`: a CTA a row, the row in registers. `any`: every size and address; the peers' parts are
 * read twice from the arena and re-armed after the second time, so that no row is too long.
 */
#include "kernels/cuda/combine.cuh"

#define RUN        8u   /* elements of a lane in a group */
#define GROUP      256u /* elements of a group */
#define MAX_GROUPS 64u  /* of a fast row */
/* Data warps of the fast kernels: with 16, a thread has registers for several units. */
#define WARPS      16u
#define WARPS_WIDE 31u
#define BARRIER    mc_barrier(MC_BARRIER_DATA, n_threads)

__device__ __forceinline__ float butterfly(float v)
{
#pragma unroll
	for (uint32_t m = 1; m < MC_WARP; m *= 2)
		v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, m));
	return v;
}

__device__ __forceinline__ float norm_scale(float total, uint64_t hidden, float eps)
{
	float mean = __fdiv_rn(total, (float)hidden);

	return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
}

/* A unit is a lane's 8 elements: VEC vectors. U: units a thread; B: data warps at most. */
template <class T, int W, int U, int M, uint32_t B = WARPS>
__global__ void __launch_bounds__((B + 1) * MC_WARP)
	rmsnorm_fast(const __grid_constant__ mc_combine_args<M> a)
{
	constexpr int N = mc_vector_of_type<T>::N;
	constexpr int VEC = RUN / N;
	constexpr int V = U * VEC;
	__shared__ struct mc_entry entry;
	__shared__ float group_sum[2][MAX_GROUPS];
	__shared__ uint32_t stop[2]; /* by turn, too: else a fast thread's failure in the next row
					ends a slow one in this */
	const uint32_t n_threads = blockDim.x - MC_WARP, n_warps = n_threads / MC_WARP;
	const uint32_t n_peers = (W ? (uint32_t)W : a.c.world_size) - 1u;
	const uint32_t n_units = (uint32_t)(a.hidden / RUN), n_groups = (n_units + 31u) / 32u;
	const uint32_t t = threadIdx.x - MC_WARP, lane = threadIdx.x % MC_WARP;

	/* inputs of a row are fetched before the control block is there, as far as registers allow
	 */
	constexpr bool EARLY = W && V * (W - 1) <= 8;
	constexpr int P = EARLY ? W - 1 : 1;

	/* vector v of this thread in a row */
	auto vector_at = [&](int v) -> uint64_t {
		return ((uint64_t)(t + v / VEC * n_threads) * VEC + v % VEC) * 16u;
	};
	auto in_row = [&](int v) { return t + v / VEC * n_threads < n_units; };

	mc_wait_predecessor(a.c);
	const bool fit = mc_counts_fit(a);
	const uint32_t own_rows = fit ? mc_own_rows(a) : 0;
	uint32_t most = own_rows;
	uint4 part[V * P], own[V], residual[V], gamma[V];

	for (uint32_t j = 0; fit && j < n_peers; j++)
		most = max(most, mc_peer_rows(a, j));

	auto load_parts = [&](uint32_t row) {
#pragma unroll
		for (int v = 0; EARLY && v < V; v++)
#pragma unroll
			for (int j = 0; j < P; j++)
				if (in_row(v) && row < mc_peer_rows(a, j))
					part[v * P + j] =
						mc_read16(a.input + a.offset[j] +
							  row * a.row_bytes + vector_at(v));
	};
	auto load_own = [&](uint32_t row) {
#pragma unroll
		for (int v = 0; v < V; v++)
			if (in_row(v) && row < own_rows) {
				const uint64_t at = row * a.row_bytes + vector_at(v);

				own[v] = mc_read16(a.own + at);
				residual[v] = mc_read16(a.residual + at);
			}
	};
	auto load_gamma = [&]() {
#pragma unroll
		for (int v = 0; v < V; v++)
			if (in_row(v))
				gamma[v] = mc_read16(a.gamma + vector_at(v));
	};

	if (threadIdx.x < MC_WARP) {
		mc_fetch_entry(a.c, &entry);
		if (threadIdx.x == 0)
			stop[0] = stop[1] = 0;
	} else if (blockIdx.x < most) {
		load_parts(blockIdx.x);
	}
	__syncthreads();
	if (entry.identity.z != 0)
		return;
	const uint64_t call = mc_call_number(&entry);

	if (!fit) {
		if (blockIdx.x == 0 && threadIdx.x == 0)
			mc_raise_plain(a.c, MC_FAULT_BAD_COUNT, a.c.rank, call);
		return;
	}
	if (threadIdx.x < MC_WARP) {
		mc_combine_control(a, &entry);
		return;
	}

	const uint4 sentinel = entry.sentinel;
	const uint64_t data = (call % MC_SEGMENTS) * a.c.segment_stride + MC_SLOT_HEADER_BYTES;
	bool ok = true;

	auto push = [&](uint32_t row) {
		bool bad = false;

#pragma unroll
		for (int v = 0; v < V; v++)
			if (in_row(v)) {
				const uint64_t at = row * a.row_bytes + vector_at(v);

#pragma unroll
				for (uint32_t j = 0; j < (W ? (uint32_t)W - 1u : n_peers); j++)
					if (row < mc_peer_rows(a, j)) {
						const uint4 x = EARLY ? part[v * P + j % P]
								      : mc_read16(a.input +
										  a.offset[j] + at);

						bad |= mc_same(x, sentinel);
						mc_store(a.slot[j] + data + at, x);
					}
			}
		if (bad)
			mc_raise_plain(a.c, MC_FAULT_SENTINEL, a.c.rank, call);
		return !bad;
	};

	if (blockIdx.x < most) {
		ok = push(blockIdx.x);
		/* only now: an SM takes in 64 bytes a clock, and what is pushed must come first */
		load_own(blockIdx.x);
		if (V <= 2)
			load_gamma();
	}
	for (uint32_t row = blockIdx.x, turn = 0; row < most; row += gridDim.x, turn ^= 1u) {
		const bool taken = row < own_rows; /* the same for the whole CTA */
		const uint64_t at = row * a.row_bytes;
		float x[U][RUN];

		if (gridDim.x < most - row) {
			load_parts(row + gridDim.x);
			ok &= push(row + gridDim.x);
		}
		if (!taken)
			continue; /* nothing to take, and no barrier, from here on */

		constexpr int AT_ONCE = W == 0 ? 2 : V * W <= 8 ? W : 2;
#pragma unroll
		for (uint32_t first = 0; first < (W ? (uint32_t)W : n_peers + 1u);
			first += AT_ONCE) {
			uint4 p[V * AT_ONCE];
			uint32_t valid = 0;

#pragma unroll
			for (int v = 0; v < V; v++)
#pragma unroll
				for (int k = 0; k < AT_ONCE; k++) {
					const uint32_t r = first + k;

					if (!ok || !in_row(v) || r > n_peers)
						continue;
					if (r == a.c.rank)
						p[v * AT_ONCE + k] = own[v];
					else
						valid |= 1u << (v * AT_ONCE + k);
				}
			auto slot = [&](int n) {
				return a.c.ring + data +
				       mc_place_of(a.c, first + n % AT_ONCE) * a.c.slot_stride +
				       at + vector_at(n / AT_ONCE);
			};
			ok = ok && mc_await(a.c, call, sentinel, valid, p, slot,
					   [&](int n) { return first + n % AT_ONCE; });
#pragma unroll
			for (int v = 0; v < V; v++)
#pragma unroll
				for (int k = 0; k < AT_ONCE; k++) {
					const int n = v * AT_ONCE + k;

					if (ok && (valid >> n & 1u))
						mc_store(slot(n), sentinel);
					if (first + k <= n_peers)
						mc_accumulate<T>(first + k == 0, p[n],
							&x[v / VEC][v % VEC * N]);
				}
		}
		/* squares; lanes past the row's end add nothing */
#pragma unroll
		for (int u = 0; u < U; u++) {
			float sum = 0.0f;

			if (in_row(u * VEC)) {
#pragma unroll
				for (int v = u * VEC; v < (u + 1) * VEC; v++)
					mc_accumulate<T>(false, residual[v], &x[u][v % VEC * N]);
#pragma unroll
				for (uint32_t i = 0; i < RUN; i++)
					sum = __fadd_rn(sum, __fmul_rn(x[u][i], x[u][i]));
			}
			sum = butterfly(sum);
			if (lane == 0 && u * n_warps + t / MC_WARP < n_groups)
				group_sum[turn][u * n_warps + t / MC_WARP] = sum;
		}
		/* while the others come: what does not need r */
#pragma unroll
		for (int v = 0; v < V; v++)
			if (ok && in_row(v))
				mc_write16(a.residual_output + at + vector_at(v),
					mc_pack16<T>(&x[v / VEC][v % VEC * N]));
		if (V > 2)
			load_gamma();
		if (!ok)
			stop[turn] = 1;
		BARRIER;
		if (stop[turn])
			return;
		/* two turns of sums: a warp can't be two rows ahead, the barrier holds it */
		float sum = 0.0f;

		for (uint32_t g = lane; g < n_groups; g += MC_WARP)
			sum = __fadd_rn(sum, group_sum[turn][g]);
		const float r = norm_scale(butterfly(sum), a.hidden, a.eps);

#pragma unroll
		for (int v = 0; v < V; v++)
			if (in_row(v)) {
				float *y = &x[v / VEC][v % VEC * N], g[N];

				mc_unpack16<T>(gamma[v], g);
#pragma unroll
				for (int i = 0; i < N; i++)
					y[i] = __fmul_rn(__fmul_rn(y[i], r), g[i]);
				mc_write16(a.output + at + vector_at(v), mc_pack16<T>(y));
			}
		if (gridDim.x < most - row)
			load_own(row + gridDim.x);
	}
}

/* ---- any size and address ---- */

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

	mc_wait_predecessor(a.c);
	if (threadIdx.x < MC_WARP) {
		mc_fetch_entry(a.c, &entry);
		if (threadIdx.x == 0)
			stop = 0;
	}
	__syncthreads();
	if (entry.identity.z != 0)
		return;
	const uint64_t call = mc_call_number(&entry);

	if (!mc_counts_fit(a)) {
		if (blockIdx.x == 0 && threadIdx.x == 0)
			mc_raise_plain(a.c, MC_FAULT_BAD_COUNT, a.c.rank, call);
		return;
	}
	if (threadIdx.x < MC_WARP) {
		mc_combine_control(a, &entry);
		return;
	}

	const uint4 sentinel = entry.sentinel;
	const uint64_t data = (call % MC_SEGMENTS) * a.c.segment_stride + MC_SLOT_HEADER_BYTES;
	const uint64_t first_thread = (uint64_t)blockIdx.x * n_threads + t;
	const uint64_t step = (uint64_t)gridDim.x * n_threads;
	const uint32_t own_rows = mc_own_rows(a);
	bool ok = true;

	for (uint64_t i = first_thread; i < (a.most_rows * a.row_bytes + 15u) / 16u; i += step)
		for (uint32_t j = 0; j < n_peers; j++) {
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
	if (!ok) {
		mc_raise_plain(a.c, MC_FAULT_SENTINEL, a.c.rank, call);
		stop = 1;
	}

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
		BARRIER;
		if (stop)
			return;
		for (uint32_t row = 0; row < rows; row++) {
			const uint64_t first = (block + row) * a.hidden;
			const uint64_t n_groups = (a.hidden + GROUP - 1u) / GROUP;
			float mine = 0.0f;

			for (uint64_t base = 0; base < n_groups; base += CHUNK) {
				const uint32_t n = n_groups - base < CHUNK
							   ? (uint32_t)(n_groups - base)
							   : CHUNK;

				for (uint32_t g = warp; g < n; g += n_warps) {
					const uint64_t from = (base + g) * GROUP + lane * RUN;
					float sum = 0.0f;

					for (uint32_t i = 0; i < RUN && from + i < a.hidden; i++) {
						const float x = value(first + from + i);

						sum = __fadd_rn(sum, __fmul_rn(x, x));
					}
					sum = butterfly(sum);
					if (lane == 0)
						group_sum[g] = sum;
				}
				BARRIER;
				for (uint32_t g = lane; g < n; g += MC_WARP)
					mine = __fadd_rn(mine, group_sum[g]);
				BARRIER;
			}
			const float r = norm_scale(butterfly(mine), a.hidden, a.eps);

			for (uint64_t i = t; i < a.hidden; i += n_threads) {
				const float x = value(first + i);
				const float g = mc_read_element(T(), a.gamma + i * SIZE);

				mc_write_element(T(), a.residual_output + (first + i) * SIZE, x);
				mc_write_element(T(), a.output + (first + i) * SIZE,
					__fmul_rn(__fmul_rn(x, r), g));
			}
		}
		BARRIER; /* all have read for the last time */
		for (uint32_t r = 0; r <= n_peers; r++)
			for (uint64_t i = t; r != a.c.rank && i < n_vectors; i += n_threads)
				mc_store(part(r) + begin + i * 16u, sentinel);
	}
}

/* ---- host side ---- */

/* Kernels of one type and many peers' room: fast by units a thread, then `any`. */
enum {
	UNITS_1,
	UNITS_2,
	UNITS_4,
	ANY,
	N_OF_TYPE,
};

/* four units of fp32 have no room in registers: `any` takes their place */
#define KERNELS_OF(T, M, FOUR)                                                                     \
	(const void *)rmsnorm_fast<T, 0, 1, M>, (const void *)rmsnorm_fast<T, 0, 2, M>,            \
		(const void *)FOUR, (const void *)rmsnorm_any<T, M>

static const void *const functions[] = {
	KERNELS_OF(mc_bf16, 7, (rmsnorm_fast<mc_bf16, 0, 4, 7>)),
	KERNELS_OF(mc_fp16, 7, (rmsnorm_fast<mc_fp16, 0, 4, 7>)),
	KERNELS_OF(mc_fp32, 7, (rmsnorm_any<mc_fp32, 7>)),
	KERNELS_OF(mc_bf16, 63, (rmsnorm_fast<mc_bf16, 0, 4, 63>)),
	KERNELS_OF(mc_fp16, 63, (rmsnorm_fast<mc_fp16, 0, 4, 63>)),
	KERNELS_OF(mc_fp32, 63, (rmsnorm_any<mc_fp32, 63>)),
	/* the type and the world sizes that engines use */
	(const void *)rmsnorm_fast<mc_bf16, 2, 1, 7, WARPS_WIDE>,
	(const void *)rmsnorm_fast<mc_bf16, 2, 2, 7>,
	(const void *)rmsnorm_fast<mc_bf16, 4, 1, 7>,
	(const void *)rmsnorm_fast<mc_bf16, 4, 2, 7>,
	(const void *)rmsnorm_fast<mc_bf16, 8, 1, 7>,
	(const void *)rmsnorm_fast<mc_bf16, 8, 2, 7>,
};

#define SPECIAL_BASE (6u * N_OF_TYPE)

const struct mc_kernel_set mc_rmsnorm_kernels = {
	functions, sizeof(functions) / sizeof(functions[0]), 32};

template <int M>
static cudaError_t launch(const struct mc_cuda_rank *rank, uint32_t channel,
	const struct mc_combine *op, uint32_t base, void *stream)
{
	const uint32_t world_size = rank->layout.world_size;
	const uint64_t n_units = op->hidden / RUN;
	uint64_t room = WARPS * MC_WARP;
	mc_combine_args<M> a;
	uint32_t units, kernel;
	bool fast;

	mc_combine_args_make(rank, channel, op, &a);
	fast = op->hidden % RUN == 0 && n_units <= 4u * room &&
	       (((uintptr_t)a.input | (uintptr_t)a.output | (uintptr_t)a.residual |
			(uintptr_t)a.residual_output | (uintptr_t)a.gamma) &
		       (MC_VECTOR_BYTES - 1u)) == 0;
	if (!fast)
		return mc_launch(rank, &mc_rmsnorm_kernels, base + ANY,
			mc_shape_rows(rank, a.most_rows, 8u * MC_WARP, 1), &a, stream);
	/* a tuning program may ask for fewer warps than the wide kernel takes */
	if (op->dtype == MC_DTYPE_BF16 && world_size == 2 && n_units <= WARPS_WIDE * MC_WARP &&
		(rank->tuning.data_warps == 0 || rank->tuning.data_warps * MC_WARP >= n_units))
		room = WARPS_WIDE * MC_WARP;
	units = n_units <= room ? 1u : n_units <= 2u * room ? 2u : 4u;
	kernel = base + (units == 4u ? (uint32_t)UNITS_4 : units - 1u);
	if (op->dtype == MC_DTYPE_BF16 && units <= 2u) {
		if (world_size == 2)
			kernel = SPECIAL_BASE + units - 1u;
		else if (world_size == 4)
			kernel = SPECIAL_BASE + 2u + units - 1u;
		else if (world_size == 8)
			kernel = SPECIAL_BASE + 4u + units - 1u;
	}
	return mc_launch(rank, &mc_rmsnorm_kernels, kernel,
		mc_shape_rows(rank, a.most_rows, n_units, units), &a, stream);
}

int mc_cuda_combine_rmsnorm(const struct mc_cuda_rank *rank, uint32_t channel,
	const struct mc_combine *op, void *stream)
{
	const uint32_t type = (uint32_t)op->dtype - MC_DTYPE_BF16;

	if (rank->layout.world_size > 8)
		return launch<63>(rank, channel, op, (3u + type) * N_OF_TYPE, stream);
	return launch<7>(rank, channel, op, type * N_OF_TYPE, stream);
}
