/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops on an NVIDIA GPU: the same protocol as kernels/host, enqueued on a stream. One
 * mc_cuda_rank is one rank's view of a mapped group epoch, in device addresses.
 *
 * Functions return a cudaError_t number (0: success); the device of the rank must be current.
 */
#ifndef MC_KERNELS_CUDA_CUDA_H
#define MC_KERNELS_CUDA_CUDA_H

#include <stdbool.h>
#include "kernels/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Room for every kernel of every op; see mc_cuda_load. */
#define MC_CUDA_MAX_KERNELS 68u
/* Kernels that run in clusters of 2, 4 … MC_CUDA_MAX_CLUSTER CTAs, and warps a CTA there. */
#define MC_CUDA_CLUSTER_KERNELS 3u
#define MC_CUDA_CLUSTER_SIZES   3u
#define MC_CUDA_MAX_CLUSTER     8u
#define MC_CUDA_CLUSTER_WARPS   17u
/* Warps a CTA, at most. */
#define MC_CUDA_MAX_WARPS 32u

/* CTAs a grid, at most; see mc_cuda_turn. */
#define MC_CUDA_MAX_CTAS 512u

/* Calls of a channel from one progress post to the next, while nobody waits. */
#define MC_CUDA_POST_CALLS 16u

/*
 * The number of the next call, as one CTA knows it. Every CTA of a grid keeps its own, so that none
 * has to tell another that it has read it: a CTA reads its turn and sets the next one, and CTA 0
 * does so for those that take no part in a call. Turns lie behind the control block, in the object
 * that holds it (device memory comes in pages of 2 MiB); whoever maps a fresh epoch sets them all
 * to 1.
 */
struct MC_ALIGNAS(16) mc_cuda_turn {
	uint64_t call;
	uint64_t reserved;
};
#define MC_CUDA_TURNS        (MC_MAX_CHANNELS * MC_CUDA_MAX_CTAS) /* [channel][CTA] */
#define MC_CUDA_TURNS_OFFSET MC_CONTROL_BYTES
#define MC_CUDA_TURNS_BYTES  (MC_CUDA_TURNS * sizeof(struct mc_cuda_turn))

/* What is asked once of a device, at attach, so that no launch has to ask. */
struct mc_cuda_device {
	uint32_t n_sms;
	bool has_early; /* can launch early: compute capability 9.0 and later */
	/* resident CTAs of a kernel on one SM, by warps a CTA */
	uint8_t blocks[MC_CUDA_MAX_KERNELS][MC_CUDA_MAX_WARPS + 1];
	/* clusters of a cluster kernel on the device, by log2(size) - 1 and warps a CTA; 0: none */
	uint16_t clusters[MC_CUDA_CLUSTER_KERNELS][MC_CUDA_CLUSTER_SIZES]
			 [MC_CUDA_CLUSTER_WARPS + 1];
};

/*
 * Early (programmatic dependent) launch: an op's CTAs come while the kernel before it still runs,
 * and wait there. AUTO: grids that gain by it, on devices that no other rank and no other channel
 * shares.
 */
enum mc_cuda_early {
	MC_CUDA_EARLY_OFF,
	MC_CUDA_EARLY_ON,
	MC_CUDA_EARLY_AUTO,
};

/* Overrides of launch_shape.h, for tuning programs; 0: the built-in choice. */
struct mc_cuda_tuning {
	uint32_t data_warps; /* warps a CTA that move data */
	uint32_t max_ctas;
	uint32_t cluster; /* CTAs a row of a norm; 1: no cluster */
};

struct mc_cuda_rank {
	uint32_t rank;
	struct mc_layout layout;
	uint8_t *arena[MC_MAX_WORLD_SIZE]; /* arena[rank] is this rank's own */
	struct mc_control *control;
	struct mc_board *board; /* host memory, as the device addresses it */
	const struct mc_cuda_device *device;
	uint32_t ranks_per_device; /* all their grids, of all channels, must fit together */
	enum mc_cuda_early early_launch;
	struct mc_cuda_tuning tuning;
};

/*
 * Ops that may be on the device at a time: of the ranks that share it, on all channels. Forced
 * early launch brings in the next one of each as well; with a single one that is no matter, since
 * it comes when all CTAs of the one before are there. No more than there are multiprocessors.
 */
static inline uint32_t mc_device_share(const struct mc_cuda_rank *rank)
{
	const uint32_t n = rank->ranks_per_device * rank->layout.n_channels;

	return n > 1u && rank->early_launch == MC_CUDA_EARLY_ON ? 2u * n : n;
}

/* Loads every kernel on the current device and fills *ret_device. Not during stream capture. */
int mc_cuda_load(struct mc_cuda_device *ret_device);

/* One call on the channel. */
int mc_cuda_dispatch(const struct mc_cuda_rank *rank, uint32_t channel,
	const struct mc_dispatch *op, void *stream);
int mc_cuda_combine(const struct mc_cuda_rank *rank, uint32_t channel, const struct mc_combine *op,
	void *stream);
/* A count out of range fails the epoch with MC_FAULT_BAD_COUNT. */
int mc_cuda_mask_ids(const struct mc_cuda_rank *rank, const struct mc_mask_ids *op, void *stream);

/*
 * The join probe; ret_result is an array of MC_MAX_WORLD_SIZE bytes the device can write (pinned
 * host memory), an enum mc_probe_result for every peer once the stream is done.
 */
int mc_cuda_probe(
	const struct mc_cuda_rank *rank, uint32_t timeout_ms, uint8_t *ret_result, void *stream);

#ifdef __cplusplus
}
#endif
#endif
