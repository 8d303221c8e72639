/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels without a call number: the mask of expert ids, the join probe; and loading of all. */
#include "kernels/cuda/launch.cuh"

/* enum mc_probe_result of kernels/host/host.h */
#define MC_PROBE_RESULT_OK      0u
#define MC_PROBE_RESULT_TIMEOUT 1u
#define MC_PROBE_RESULT_CORRUPT 2u

struct mask_args {
	struct mc_call c;
	int32_t *ids;
	uint64_t rows;
	uint64_t topk;
	const int32_t *count;
};

__global__ void mask_ids(const __grid_constant__ struct mask_args a)
{
	mc_wait_predecessor(a.c);
	const int32_t valid = mc_read_count(a.count);
	const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
	const uint64_t thread = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (valid < 0 || (uint64_t)valid > a.rows) {
		if (thread == 0 && mc_load_word(&a.c.control->failed) == 0)
			mc_raise_plain(a.c, MC_FAULT_BAD_COUNT, a.c.rank, 0);
		return;
	}
	uint8_t *from = (uint8_t *)a.ids + (uint64_t)valid * a.topk * 4u;
	const uint64_t n = (a.rows - (uint64_t)valid) * a.topk;

	if (((uintptr_t)from & 3u) == 0) {
		for (uint64_t i = thread; i < n; i += step)
			((uint32_t *)from)[i] = 0xffffffffu;
	} else {
		for (uint64_t i = thread; i < 4u * n; i += step)
			from[i] = 0xff;
	}
}

struct probe_args {
	struct mc_control *control;
	struct mc_board *board;
	struct mc_layout layout;
	uint8_t *arena[MC_MAX_WORLD_SIZE];
	uint32_t rank;
	uint64_t timeout_ns;
	uint8_t *result;
};

/*
 * A warp a peer, a lane a vector of a round. Nobody's writing waits for anything, and no pair for
 * another, so that a bad pair is named by its reader alone. A reader polls while the writer writes:
 * a torn vector shows as CORRUPT, since every word depends on the place.
 */
__global__ void __launch_bounds__(1024) probe(const __grid_constant__ struct probe_args a)
{
	const uint32_t lane = threadIdx.x % MC_WARP, warp = threadIdx.x / MC_WARP;
	const uint32_t n_warps = blockDim.x / MC_WARP, n_peers = a.layout.world_size - 1u;
	const uint64_t begin = mc_now_ns(), epoch = a.control->epoch;
	const uint4 sentinel = mc_load(&a.control->sentinel);

	for (uint32_t j = warp; j < n_peers; j += n_warps) {
		const uint32_t p = (a.rank + 1u + j) % a.layout.world_size;
		uint8_t *to = a.arena[p] + mc_probe_offset(&a.layout, p, a.rank);

		for (uint32_t round = 0; round < MC_PROBE_ROUNDS; round++) {
			struct mc_vector v = mc_probe_vector(epoch, p, a.rank, round, lane);

			mc_store(to + (round * MC_PROBE_VECTORS + lane) * MC_VECTOR_BYTES,
				make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]));
		}
	}
	for (uint32_t j = warp; j < n_peers; j += n_warps) {
		const uint32_t p = (a.rank + 1u + j) % a.layout.world_size;
		uint8_t *from = a.arena[a.rank] + mc_probe_offset(&a.layout, a.rank, p);
		uint32_t result = MC_PROBE_RESULT_OK, spins = 0;

		for (uint32_t round = 0; round < MC_PROBE_ROUNDS; round++) {
			uint8_t *at = from + (round * MC_PROBE_VECTORS + lane) * MC_VECTOR_BYTES;
			struct mc_vector want = mc_probe_vector(epoch, a.rank, p, round, lane);
			uint4 got = mc_load(at);

			while (mc_same(got, sentinel) && result == MC_PROBE_RESULT_OK) {
				if (++spins % MC_SPINS_PER_CHECK == 0 &&
					(mc_now_ns() - begin >= a.timeout_ns ||
						mc_load_word(&a.board->wait.abort_word) != 0))
					result = MC_PROBE_RESULT_TIMEOUT;
				got = mc_load(at);
			}
			if (result != MC_PROBE_RESULT_OK)
				break;
			if (!mc_same(got, make_uint4(want.word[0], want.word[1], want.word[2],
						  want.word[3]))) {
				result = MC_PROBE_RESULT_CORRUPT;
				break;
			}
			mc_store(at, sentinel);
		}
		/* the worst lane's result; corrupt outranks late */
		result = __reduce_max_sync(0xffffffffu, result);
		if (lane == 0)
			a.result[p] = (uint8_t)result;
	}
}

/* ---- host side ---- */

static const void *const functions[] = {(const void *)mask_ids, (const void *)probe};

MC_KERNEL_SET(local, LOCAL);

/*
 * Kernels that wait for nobody, and the probe, which is one CTA a rank at a time when no op runs:
 * nothing to keep resident, and no attribute needed.
 */
template <class Args>
static cudaError_t launch_plain(
	void (*kernel)(Args), unsigned n_ctas, unsigned n_threads, const Args &a, void *stream)
{
	cudaLaunchConfig_t config = {};

	config.gridDim = dim3(n_ctas);
	config.blockDim = dim3(n_threads);
	config.stream = (cudaStream_t)stream;
	return cudaLaunchKernelEx(&config, kernel, a);
}

int mc_cuda_mask_ids(const struct mc_cuda_rank *rank, const struct mc_mask_ids *op, void *stream)
{
	const uint64_t n_threads = 256, n = op->rows * op->topk;
	uint64_t n_ctas = (n + n_threads - 1u) / n_threads;
	struct mask_args a;

	if (n_ctas > 2u * rank->device->n_sms)
		n_ctas = 2u * rank->device->n_sms;
	a.c = mc_call_make(rank, 0, MC_OP_NONE, 0, 0);
	a.ids = op->ids;
	a.rows = op->rows;
	a.topk = op->topk;
	a.count = op->count;
	return launch_plain(
		mask_ids, n_ctas ? (unsigned)n_ctas : 1u, (unsigned)n_threads, a, stream);
}

int mc_cuda_probe(
	const struct mc_cuda_rank *rank, uint32_t timeout_ms, uint8_t *ret_result, void *stream)
{
	struct probe_args a = {};
	uint32_t n_warps = rank->layout.world_size - 1u;

	if (n_warps == 0)
		return cudaSuccess;
	n_warps = n_warps < 16u ? n_warps : 16u;
	a.control = rank->control;
	a.board = rank->board;
	a.layout = rank->layout;
	for (uint32_t p = 0; p < rank->layout.world_size; p++)
		a.arena[p] = rank->arena[p];
	a.rank = rank->rank;
	a.timeout_ns = (timeout_ms ? timeout_ms : MC_DEFAULT_TIMEOUT_MS) * UINT64_C(1000000);
	a.result = ret_result;
	return launch_plain(probe, 1, n_warps * MC_WARP, a, stream);
}

/* How many clusters of each kind the device holds; none before compute capability 9.0. */
static cudaError_t count_clusters(struct mc_cuda_device *device, int ordinal)
{
	int has_clusters = 0;
	cudaError_t error =
		cudaDeviceGetAttribute(&has_clusters, cudaDevAttrClusterLaunch, ordinal);

	for (uint32_t i = 0; !error && has_clusters && i < mc_rmsnorm_cluster_kernels.n; i++)
		for (uint32_t s = 0; s < MC_CUDA_CLUSTER_SIZES; s++)
			for (uint32_t w = 2; !error && w <= MC_CUDA_CLUSTER_WARPS; w++) {
				const void *function = mc_rmsnorm_cluster_kernels.function[i];
				cudaLaunchAttribute attribute = {};
				cudaLaunchConfig_t config = {};
				cudaFuncAttributes attributes;
				int n = 0;

				error = cudaFuncGetAttributes(&attributes, function);
				if (error || (int)(w * MC_WARP) > attributes.maxThreadsPerBlock)
					continue;

				attribute.id = cudaLaunchAttributeClusterDimension;
				attribute.val.clusterDim.x = 2u << s;
				attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
				config.gridDim = dim3((2u << s) * device->n_sms);
				config.blockDim = dim3(w * MC_WARP);
				config.attrs = &attribute;
				config.numAttrs = 1;
				error = cudaOccupancyMaxActiveClusters(&n, function, &config);
				device->clusters[i][s][w] = (uint16_t)n;
			}
	return error;
}

int mc_cuda_load(struct mc_cuda_device *ret_device)
{
	const struct mc_kernel_set *sets[] = {&mc_dispatch_kernels, &mc_dispatch_general_kernels,
		&mc_combine_kernels, &mc_rmsnorm_kernels, &mc_rmsnorm_any_kernels,
		&mc_rmsnorm_cluster_kernels, &mc_local_kernels};
	struct mc_cuda_device device = {};
	int ordinal, value;
	cudaError_t error = cudaGetDevice(&ordinal);

	if (!error)
		error = cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, ordinal);
	if (error)
		return error;
	device.n_sms = (uint32_t)value;
	error = cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, ordinal);
	if (error)
		return error;
	device.has_early = value >= 9;
	for (const struct mc_kernel_set *set : sets)
		for (uint32_t i = 0; i < set->n; i++) {
			cudaFuncAttributes attributes;

			/* loads it, whatever CUDA_MODULE_LOADING says */
			error = cudaFuncGetAttributes(&attributes, set->function[i]);
			/*
			 * One split of first-level cache and shared memory for all: an SM changes
			 * its split only when idle, and one that holds a waiting kernel never is.
			 */
			if (!error)
				error = cudaFuncSetAttribute(set->function[i],
					cudaFuncAttributePreferredSharedMemoryCarveout, 25);
			for (uint32_t w = 1; !error && w <= MC_CUDA_MAX_WARPS; w++) {
				int blocks = 0;

				if ((int)(w * MC_WARP) <= attributes.maxThreadsPerBlock)
					error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
						&blocks, set->function[i], (int)(w * MC_WARP), 0);
				device.blocks[set->base + i][w] = (uint8_t)blocks;
			}
			if (error)
				return error;
		}
	error = count_clusters(&device, ordinal);
	if (!error)
		*ret_device = device;
	return error;
}
