/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of a launch: what every op's launcher does alike. */
#ifndef MC_KERNELS_CUDA_LAUNCH_CUH
#define MC_KERNELS_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include "kernels/cuda/launch_shape.h"
#include "kernels/cuda/protocol.cuh"

/* The kernels of one op; indices in mc_cuda_device.blocks start at base. */
struct mc_kernel_set {
	const void *const *function;
	uint32_t n;
	uint32_t base;
};

extern const struct mc_kernel_set mc_dispatch_kernels;
extern const struct mc_kernel_set mc_combine_kernels;
extern const struct mc_kernel_set mc_rmsnorm_kernels;
extern const struct mc_kernel_set mc_local_kernels;

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
	c.early_launch = (uint32_t)rank->early_launch;
	return c;
}

/* This rank's slot in the arena of rank p, segment 0. */
static inline uint8_t *mc_slot_of(const struct mc_cuda_rank *rank, uint32_t channel, uint32_t p)
{
	return rank->arena[p] + mc_slot_offset(&rank->layout, p, rank->rank, channel, 0);
}

/*
 * Launches kernel i of the set with the shape, cut down to what is resident together with the other
 * ranks of the device. With early launch the next op's CTAs are there as well, hence half.
 */
static inline cudaError_t mc_launch(const struct mc_cuda_rank *rank,
	const struct mc_kernel_set *set, uint32_t i, struct mc_shape shape, void *args,
	void *stream)
{
	uint32_t warps = shape.data_warps + 1u;
	uint32_t share = rank->ranks_per_device * (rank->early_launch ? 2u : 1u);
	uint32_t limit = rank->device->blocks[set->base + i][warps] * rank->device->n_sms / share;
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute attribute = {};
	void *arguments[1] = {args};

	if (limit == 0)
		return cudaErrorCooperativeLaunchTooLarge;
	limit = limit < mc_grid_limit(rank) ? limit : mc_grid_limit(rank);
	config.gridDim = dim3(shape.n_ctas < limit ? shape.n_ctas : limit);
	config.blockDim = dim3(warps * MC_WARP);
	config.stream = (cudaStream_t)stream;
	if (rank->early_launch) {
		attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
		attribute.val.programmaticStreamSerializationAllowed = 1;
		config.attrs = &attribute;
		config.numAttrs = 1;
	}
	return cudaLaunchKernelExC(&config, set->function[i], arguments);
}

#endif
