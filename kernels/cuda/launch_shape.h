/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launch shapes as a function of sizes, for all ops; what was measured is in docs/performance.md.
 *
 * A CTA is one control warp and some data warps; the data warps of all CTAs go through a rank's
 * vectors in steps of `unroll` vectors a thread.
 */
#ifndef MC_KERNELS_CUDA_LAUNCH_SHAPE_H
#define MC_KERNELS_CUDA_LAUNCH_SHAPE_H

#include <stdbool.h>
#include "kernels/cuda/cuda.h"

/* The stream kernels are compiled for at most this many threads a CTA, so that they always fit. */
#define MC_STREAM_WARPS   16u
#define MC_STREAM_THREADS ((MC_STREAM_WARPS + 1u) * 32u)

struct mc_shape {
	uint32_t n_ctas; /* or clusters, when they have more than one CTA */
	uint32_t data_warps;
	uint32_t cluster; /* CTAs a cluster; 1: no clusters */
	bool early;       /* whether early launch pays, on a device that no other rank shares */
};

/*
 * n_vectors: the longest stretch one rank pushes to one peer, or takes from one. Threads go through
 * it in steps of the whole grid, so a stretch that is short for the grid is one vector a thread.
 * unroll: vectors a thread has in flight.
 */
static inline struct mc_shape mc_shape_stream(
	const struct mc_cuda_rank *rank, uint64_t n_vectors, uint32_t unroll)
{
	const struct mc_cuda_tuning *tuning = &rank->tuning;
	uint32_t n_sms = rank->device->n_sms;
	uint32_t max_ctas = tuning->max_ctas ? tuning->max_ctas : 2u * n_sms;
	uint64_t n_warps = (n_vectors + 31u) / 32u, n;
	struct mc_shape shape = {0, 0, 1, false};

	shape.data_warps = tuning->data_warps;
	if (!shape.data_warps) {
		/* the more vectors, the larger the CTAs, as long as a vector a thread is enough */
		if (n_warps <= 2u * n_sms)
			shape.data_warps = 4;
		else if (n_warps <= 8u * n_sms || unroll > 1)
			shape.data_warps = 8;
		else
			shape.data_warps = 16;
	}
	if (shape.data_warps > MC_STREAM_WARPS)
		shape.data_warps = MC_STREAM_WARPS;
	if (n_warps < shape.data_warps)
		shape.data_warps = n_warps ? (uint32_t)n_warps : 1u;
	n = (n_warps + shape.data_warps - 1u) / shape.data_warps;
	shape.n_ctas = n > max_ctas ? max_ctas : n ? (uint32_t)n : 1u;
	/* a second CTA an SM is in the way of the op before */
	shape.early = shape.n_ctas <= n_sms;
	return shape;
}

/* Whether a stretch needs more than one vector a thread: then two in flight pay for their
 * registers. */
static inline int mc_shape_is_long(const struct mc_cuda_rank *rank, uint64_t n_vectors)
{
	return n_vectors > (uint64_t)MC_STREAM_WARPS * 32u * rank->device->n_sms;
}

/* A CTA a row; n_units: data threads a row would keep busy at one unit each. */
static inline struct mc_shape mc_shape_rows(
	const struct mc_cuda_rank *rank, uint64_t n_rows, uint64_t n_units, uint32_t unroll)
{
	uint32_t max_ctas =
		rank->tuning.max_ctas ? rank->tuning.max_ctas : 2u * rank->device->n_sms;
	uint64_t warps = (n_units + 32u * unroll - 1u) / (32u * unroll);
	struct mc_shape shape = {0, 0, 1, false};

	shape.data_warps = warps ? (uint32_t)warps : 1u;
	if (shape.data_warps > MC_CUDA_MAX_WARPS - 1u)
		shape.data_warps = MC_CUDA_MAX_WARPS - 1u;
	shape.n_ctas = n_rows > max_ctas ? max_ctas : n_rows ? (uint32_t)n_rows : 1u;
	return shape;
}

#endif
