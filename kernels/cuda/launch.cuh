/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of a launch: what every op's launcher does alike. */
#ifndef MC_KERNELS_CUDA_LAUNCH_CUH
#define MC_KERNELS_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include "kernels/cuda/launch_shape.h"
#include "kernels/cuda/control.cuh"

/* The kernels of one op; indices in mc_cuda_device.blocks start at base. */
struct mc_kernel_set {
	const void *const *function;
	uint32_t n;
	uint32_t base;
};

extern const struct mc_kernel_set mc_dispatch_kernels;
extern const struct mc_kernel_set mc_dispatch_general_kernels;
extern const struct mc_kernel_set mc_combine_kernels;
extern const struct mc_kernel_set mc_rmsnorm_kernels;
extern const struct mc_kernel_set mc_rmsnorm_any_kernels;
extern const struct mc_kernel_set mc_rmsnorm_cluster_kernels;
extern const struct mc_kernel_set mc_local_kernels;

cudaError_t mc_dispatch_general(const struct mc_cuda_rank *rank, uint32_t channel,
	const struct mc_dispatch *op, void *stream);

/* CTAs of the largest grid on the device, the same for all ops: so many turns are kept. */
static inline uint32_t mc_grid_limit(const struct mc_cuda_rank *rank)
{
	const uint32_t n = 2u * rank->device->n_sms;

	return n < MC_CUDA_MAX_CTAS ? n : MC_CUDA_MAX_CTAS;
}

static inline struct mc_call mc_call_make(const struct mc_cuda_rank *rank, uint32_t channel,
	uint32_t op, uint32_t digest, uint64_t n_vectors)
{
	const struct mc_layout *layout = &rank->layout;
	struct mc_call c;

	c.control = rank->control;
	c.board = rank->board;
	/* call 0 is segment 0 */
	c.ring = rank->arena[rank->rank] + layout->ring_offset + channel * layout->channel_stride;
	c.slot_stride = layout->slot_stride;
	c.segment_stride = layout->segment_stride;
	c.rank = rank->rank;
	c.world_size = layout->world_size;
	c.channel = channel;
	c.op = op;
	c.digest = digest;
	c.n_vectors = n_vectors < UINT32_MAX ? (uint32_t)n_vectors : UINT32_MAX;
	c.n_turns = mc_grid_limit(rank);
	c.early_launch = 0; /* mc_launch knows */
	return c;
}

/* This rank's slot in the arena of rank p, segment 0. */
static inline uint8_t *mc_slot_of(const struct mc_cuda_rank *rank, uint32_t channel, uint32_t p)
{
	return rank->arena[p] + mc_slot_offset(&rank->layout, p, rank->rank, channel, 0);
}

/* Ranks that share the device; with early launch the next op's CTAs are there as well. */
static inline uint32_t mc_device_share(const struct mc_cuda_rank *rank)
{
	return rank->ranks_per_device * (rank->early_launch == MC_CUDA_EARLY_ON ? 2u : 1u);
}

/* Clusters of kernel i of mc_rmsnorm_cluster_kernels that are resident together; 0: none. */
static inline uint32_t mc_cluster_limit(
	const struct mc_cuda_rank *rank, uint32_t i, struct mc_shape shape)
{
	const uint32_t size = shape.cluster == 2 ? 0 : shape.cluster == 4 ? 1 : 2;
	uint32_t limit, grid_limit = mc_grid_limit(rank) / shape.cluster;

	limit = rank->device->clusters[i][size][shape.data_warps + 1u] / mc_device_share(rank);
	return limit < grid_limit ? limit : grid_limit;
}

/*
 * Whether to let the kernel in early. AUTO leaves shared devices alone: what waits there early
 * takes room that another rank's op may need. On a device of its own a kernel is let in only when
 * all CTAs of the one before are there.
 */
static inline bool mc_is_early(const struct mc_cuda_rank *rank, struct mc_shape shape)
{
	if (rank->early_launch == MC_CUDA_EARLY_AUTO)
		return rank->ranks_per_device == 1 && shape.early;
	return rank->early_launch == MC_CUDA_EARLY_ON;
}

/*
 * Launches kernel i of the set, which takes Args by value, with the shape, cut down to what is
 * resident together with the other ranks of the device.
 */
template <class Args>
static cudaError_t mc_launch(const struct mc_cuda_rank *rank, const struct mc_kernel_set *set,
	uint32_t i, struct mc_shape shape, Args *args, void *stream)
{
	uint32_t warps = shape.data_warps + 1u, limit;
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute attribute[2] = {};

	config.attrs = attribute;
	if (shape.cluster > 1) {
		limit = mc_cluster_limit(rank, i, shape);
		attribute[0].id = cudaLaunchAttributeClusterDimension;
		attribute[0].val.clusterDim.x = shape.cluster;
		attribute[0].val.clusterDim.y = attribute[0].val.clusterDim.z = 1;
		config.numAttrs = 1;
	} else {
		limit = rank->device->blocks[set->base + i][warps] * rank->device->n_sms /
			mc_device_share(rank);
		limit = limit < mc_grid_limit(rank) ? limit : mc_grid_limit(rank);
	}
	if (limit == 0)
		return cudaErrorCooperativeLaunchTooLarge;
	config.gridDim = dim3((shape.n_ctas < limit ? shape.n_ctas : limit) * shape.cluster);
	config.blockDim = dim3(warps * MC_WARP);
	config.stream = (cudaStream_t)stream;
	if (mc_is_early(rank, shape)) {
		args->c.early_launch = 1;
		attribute[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
		attribute[config.numAttrs].val.programmaticStreamSerializationAllowed = 1;
		config.numAttrs++;
	}
	return cudaLaunchKernelEx(&config, (void (*)(Args))set->function[i], *args);
}

#endif
