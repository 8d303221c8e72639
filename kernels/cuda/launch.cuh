/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of a launch: what every op's launcher does alike. */
#ifndef MC_KERNELS_CUDA_LAUNCH_CUH
#define MC_KERNELS_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include "kernels/cuda/launch_shape.h"
#include "kernels/cuda/control.cuh"

/* How many kernels each file has, and where theirs begin among all. */
enum {
	MC_N_DISPATCH = 6,
	MC_N_DISPATCH_GENERAL = 2,
	MC_N_COMBINE = 24,
	MC_N_RMSNORM = 24,
	MC_N_RMSNORM_ANY = 6,
	MC_N_RMSNORM_CLUSTER = 3,
	MC_N_LOCAL = 2,

	MC_FIRST_DISPATCH = 0,
	MC_FIRST_DISPATCH_GENERAL = MC_FIRST_DISPATCH + MC_N_DISPATCH,
	MC_FIRST_COMBINE = MC_FIRST_DISPATCH_GENERAL + MC_N_DISPATCH_GENERAL,
	MC_FIRST_RMSNORM = MC_FIRST_COMBINE + MC_N_COMBINE,
	MC_FIRST_RMSNORM_ANY = MC_FIRST_RMSNORM + MC_N_RMSNORM,
	MC_FIRST_RMSNORM_CLUSTER = MC_FIRST_RMSNORM_ANY + MC_N_RMSNORM_ANY,
	MC_FIRST_LOCAL = MC_FIRST_RMSNORM_CLUSTER + MC_N_RMSNORM_CLUSTER,
	MC_N_KERNELS = MC_FIRST_LOCAL + MC_N_LOCAL,
};
static_assert(MC_N_KERNELS <= MC_CUDA_MAX_KERNELS, "every kernel has a place");

/* The kernels of one file; indices in mc_cuda_device.blocks start at base. */
struct mc_kernel_set {
	const void *const *function;
	uint32_t n;
	uint32_t base;
};

#define MC_KERNEL_SET(name, NAME)                                                                  \
	static_assert(sizeof(functions) / sizeof(functions[0]) == MC_N_##NAME, "all are counted"); \
	const struct mc_kernel_set mc_##name##_kernels = {functions, MC_N_##NAME, MC_FIRST_##NAME}

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

/*
 * How many of an op's CTAs may be on the device when `fit` would be resident without others. Every
 * CTA must find room while all others wait, on whatever multiprocessors those are and however large
 * they are: so all together they are no more than there are multiprocessors, and one of those is
 * always free for a CTA that is missing. (A cluster wants several free ones close together, which
 * this does not promise when more than two ops share the device: it may wait until the ops without
 * clusters are done, which need nothing of it.)
 */
static inline uint32_t mc_cta_limit(const struct mc_cuda_rank *rank, uint32_t fit)
{
	const uint32_t share = mc_device_share(rank), n_sms = rank->device->n_sms;
	uint32_t limit = mc_grid_limit(rank);

	limit = fit < limit ? fit : limit;
	if (share == 1u)
		return limit;
	/* more ops than multiprocessors: a part of what fits must do */
	return limit < n_sms ? limit / share : share <= n_sms ? n_sms / share : limit / share;
}

/* Clusters of kernel i of mc_rmsnorm_cluster_kernels that are resident together; 0: none. */
static inline uint32_t mc_cluster_limit(
	const struct mc_cuda_rank *rank, uint32_t i, struct mc_shape shape)
{
	const uint32_t size = shape.cluster == 2 ? 0 : shape.cluster == 4 ? 1 : 2;
	const uint32_t fit = rank->device->clusters[i][size][shape.data_warps + 1u];

	return mc_cta_limit(rank, fit * shape.cluster) / shape.cluster;
}

/*
 * Whether to let the kernel in early. AUTO leaves devices alone that are shared, by ranks or by
 * channels: what waits there early takes room that another op may need. Else a kernel is let in
 * only when all CTAs of the one before are there.
 */
static inline bool mc_is_early(const struct mc_cuda_rank *rank, struct mc_shape shape)
{
	if (rank->early_launch == MC_CUDA_EARLY_AUTO)
		return mc_device_share(rank) == 1u && shape.early && rank->device->has_early;
	return rank->early_launch == MC_CUDA_EARLY_ON && rank->device->has_early;
}

/*
 * Launches kernel i of the set, which takes Args by value, with the shape, cut down to what is
 * resident together with the other ops that may be on the device.
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
		limit = mc_cta_limit(
			rank, rank->device->blocks[set->base + i][warps] * rank->device->n_sms);
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
