/* SPDX-License-Identifier: Apache-2.0 */
/* Combine + residual + RMSNorm, a CTA a row: see rmsnorm.cuh. */
#include "kernels/cuda/rmsnorm.cuh"

/* A unit is a lane's 8 elements: VEC vectors. U: units a thread; B: data warps at most. */
template <class T, int W, int U, int M, uint32_t B = MC_NORM_WARPS>
__global__ void __launch_bounds__((B + 1) * MC_WARP)
	rmsnorm_fast(const __grid_constant__ mc_combine_args<M> a)
{
	constexpr int N = mc_vector_of_type<T>::N;
	constexpr int VEC = MC_NORM_RUN / N;
	constexpr int V = U * VEC;
	__shared__ struct mc_entry entry;
	__shared__ float group_sum[2][MC_NORM_MAX_GROUPS];
	__shared__ uint32_t stop[2]; /* by turn, too: else a fast thread's failure in the next row
					ends a slow one in this */
	const uint32_t n_threads = blockDim.x - MC_WARP, n_warps = n_threads / MC_WARP;
	const uint32_t n_peers = (W ? (uint32_t)W : a.c.world_size) - 1u;
	const uint32_t n_units = (uint32_t)(a.hidden / MC_NORM_RUN),
		       n_groups = (n_units + 31u) / 32u;
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

	const uint4 sentinel = mc_fetch_sentinel(a.c);
	struct mc_rows<W> rows = mc_rows_limits<W>(a);
	uint4 part[V * P], own[V], residual[V], gamma[V];

	if (threadIdx.x < MC_WARP) {
		if (threadIdx.x == 0)
			stop[0] = stop[1] = 0;
		mc_combine_control(a, &entry, sentinel);
		return;
	}
	mc_wait_predecessor(a.c);
	mc_rows_count(a, &rows);
	const uint32_t own_rows = rows.own;
	uint32_t most = own_rows;

	for (uint32_t j = 0; j < n_peers; j++)
		most = max(most, mc_rows_of(a, rows, j));

	auto load_parts = [&](uint32_t row) {
#pragma unroll
		for (int v = 0; EARLY && v < V; v++)
#pragma unroll
			for (int j = 0; j < P; j++)
				if (in_row(v) && row < mc_rows_of(a, rows, j))
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

	if (blockIdx.x < most)
		load_parts(blockIdx.x);
	mc_barrier(MC_BARRIER_TURN, blockDim.x);
	const uint64_t call = mc_call_number(&entry);

	if (mc_is_over(&entry) || !rows.fit)
		return;
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
					if (row < mc_rows_of(a, rows, j)) {
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
		float x[U][MC_NORM_RUN];

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
				for (uint32_t i = 0; i < MC_NORM_RUN; i++)
					sum = __fadd_rn(sum, __fmul_rn(x[u][i], x[u][i]));
			}
			sum = mc_butterfly(sum);
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
		MC_NORM_BARRIER;
		if (stop[turn])
			return;
		/* two turns of sums: a warp can't be two rows ahead, the barrier holds it */
		float sum = 0.0f;

		/* not mc_norm_total: so many warps want few registers and few loads */
		for (uint32_t g = lane; g < n_groups; g += MC_WARP)
			sum = __fadd_rn(sum, group_sum[turn][g]);
		const float r = mc_norm_scale_plain(mc_butterfly(sum), a.hidden, a.eps);

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

/* ---- host side ---- */

/* Kernels of one type and many peers' room, by units a thread. */
enum {
	UNITS_1,
	UNITS_2,
	UNITS_4,
	N_OF_TYPE,
};

/* four units of fp32 have no room in registers: `any` does those rows, this one is never used */
#define KERNELS_OF(T, M, FOUR)                                                                     \
	(const void *)rmsnorm_fast<T, 0, 1, M>, (const void *)rmsnorm_fast<T, 0, 2, M>,            \
		(const void *)rmsnorm_fast<T, 0, FOUR, M>

static const void *const functions[] = {
	KERNELS_OF(mc_bf16, 7, 4),
	KERNELS_OF(mc_fp16, 7, 4),
	KERNELS_OF(mc_fp32, 7, 2),
	KERNELS_OF(mc_bf16, 63, 4),
	KERNELS_OF(mc_fp16, 63, 4),
	KERNELS_OF(mc_fp32, 63, 2),
	/* the type and the world sizes that engines use */
	(const void *)rmsnorm_fast<mc_bf16, 2, 1, 7, MC_NORM_WARPS_WIDE>,
	(const void *)rmsnorm_fast<mc_bf16, 2, 2, 7>,
	(const void *)rmsnorm_fast<mc_bf16, 4, 1, 7>,
	(const void *)rmsnorm_fast<mc_bf16, 4, 2, 7>,
	(const void *)rmsnorm_fast<mc_bf16, 8, 1, 7>,
	(const void *)rmsnorm_fast<mc_bf16, 8, 2, 7>,
};

#define SPECIAL_BASE (6u * N_OF_TYPE)

MC_KERNEL_SET(rmsnorm, RMSNORM);

/*
 * Few rows: each over as many CTAs as fill the device. False: the device has no clusters, or there
 * is no room for one, or rows enough for a CTA each.
 */
template <int M>
static bool launch_cluster(const struct mc_cuda_rank *rank, mc_combine_args<M> *a, void *stream,
	cudaError_t *ret_error)
{
	const uint32_t world_size = rank->layout.world_size, n_sms = rank->device->n_sms;
	const uint32_t n_warps = (uint32_t)((a->hidden + MC_NORM_GROUP - 1u) / MC_NORM_GROUP);
	uint32_t kernel, size = 1;
	struct mc_shape shape;

	if (world_size == 2)
		kernel = MC_NORM_CLUSTER_2;
	else if (world_size == 4)
		kernel = MC_NORM_CLUSTER_4;
	else if (world_size == 8)
		kernel = MC_NORM_CLUSTER_8;
	else
		return false;
	if (rank->tuning.cluster)
		size = rank->tuning.cluster;
	else
		/* the largest for few rows, a pair while all rows have one at once */
		size = a->most_rows <= 2u * n_sms / MC_CUDA_MAX_CLUSTER ? MC_CUDA_MAX_CLUSTER
		       : a->most_rows <= n_sms / 2u                     ? 2u
									: 1u;
	while (size > 1 && size / 2u >= n_warps)
		size /= 2u;
	/* the kernels of 4 and 8 ranks take a warp less */
	if (world_size != 2 && size > 1 && size < MC_CUDA_MAX_CLUSTER &&
		(n_warps + size - 1u) / size == MC_NORM_WARPS)
		size *= 2u;
	for (; size > 1; size /= 2u) {
		shape.data_warps = (n_warps + size - 1u) / size;
		shape.n_ctas = a->most_rows ? a->most_rows : 1u;
		shape.cluster = size;
		shape.early = shape.n_ctas * size <= n_sms && shape.data_warps <= 8u;
		if (shape.data_warps > MC_NORM_WARPS)
			break;
		if (!mc_cluster_limit(rank, kernel, shape))
			continue;
		*ret_error = mc_launch(rank, &mc_rmsnorm_cluster_kernels, kernel, shape, a, stream);
		return true;
	}
	return false;
}

template <int M>
static cudaError_t launch(const struct mc_cuda_rank *rank, uint32_t channel,
	const struct mc_combine *op, uint32_t base, uint32_t any, void *stream)
{
	const uint32_t world_size = rank->layout.world_size;
	struct mc_shape shape;
	cudaError_t error;
	const uint64_t n_units = op->hidden / MC_NORM_RUN;
	uint64_t room = MC_NORM_WARPS * MC_WARP;
	mc_combine_args<M> a;
	uint32_t units, kernel;
	bool fast;

	mc_combine_args_make(rank, channel, op, &a);
	fast = op->hidden % MC_NORM_RUN == 0 && n_units <= 4u * room &&
	       (((uintptr_t)a.input | (uintptr_t)a.output | (uintptr_t)a.residual |
			(uintptr_t)a.residual_output | (uintptr_t)a.gamma) &
		       (MC_VECTOR_BYTES - 1u)) == 0;
	if (!fast || (op->dtype == MC_DTYPE_FP32 && n_units > 2u * room))
		return mc_launch(rank, &mc_rmsnorm_any_kernels, any,
			mc_shape_rows(rank, a.most_rows, 8u * MC_WARP, 1), &a, stream);
	if (op->dtype == MC_DTYPE_BF16 && launch_cluster(rank, &a, stream, &error))
		return error;
	/* a tuning program may ask for fewer warps than the wide kernel takes */
	if (op->dtype == MC_DTYPE_BF16 && world_size == 2 &&
		n_units <= MC_NORM_WARPS_WIDE * MC_WARP &&
		(rank->tuning.data_warps == 0 || rank->tuning.data_warps * MC_WARP >= n_units))
		room = MC_NORM_WARPS_WIDE * MC_WARP;
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
	shape = mc_shape_rows(rank, a.most_rows, n_units, units);
	shape.early = shape.n_ctas <= rank->device->n_sms / 2u;
	return mc_launch(rank, &mc_rmsnorm_kernels, kernel, shape, &a, stream);
}

int mc_cuda_combine_rmsnorm(const struct mc_cuda_rank *rank, uint32_t channel,
	const struct mc_combine *op, void *stream)
{
	const uint32_t type = (uint32_t)op->dtype - MC_DTYPE_BF16;

	if (rank->layout.world_size > 8)
		return launch<63>(rank, channel, op, (3u + type) * N_OF_TYPE,
			MC_NORM_ANY_TYPES + type, stream);
	return launch<7>(rank, channel, op, type * N_OF_TYPE, type, stream);
}
