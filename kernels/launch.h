/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops as the client library hands them to a backend: checked, resolved, plain data. The same
 * structures serve kernels/host (run on the calling thread) and kernels/cuda (enqueued on a
 * stream).
 *
 * Rows. rows[r] is rank r's row count, or with a device-side count its maximum. Blocks of gathered
 * tensors lie in rank order: rank r's block starts at row rows[0] + … + rows[r-1].
 */
#ifndef MC_KERNELS_LAUNCH_H
#define MC_KERNELS_LAUNCH_H

#include "kernels/lamport.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mc_tensor {
	const void *input;  /* [rows[rank], row_bytes], any alignment; NULL allowed when it has no
			       byte */
	void *output;       /* [sum of rows, row_bytes], any alignment */
	uint64_t row_bytes; /* ≥ 1 */
};

struct mc_dispatch {
	uint32_t n_tensors; /* 1 … MC_MAX_TENSORS */
	struct mc_tensor tensor[MC_MAX_TENSORS];
	uint32_t rows[MC_MAX_WORLD_SIZE];
	/* NULL: rows are exact. Else: this rank's count of valid rows, 0 … rows[rank]. */
	const int32_t *count;
	/* NULL, or [world_size]: every rank's valid rows, written by the op. */
	int32_t *ret_counts;
	/*
	 * Index of the tensor that holds int32 expert ids, or -1. With a count, its rows past each
	 * rank's count are filled with -1 in the output; padding of other tensors is left alone.
	 */
	int32_t ids_tensor;
	uint32_t digest; /* mc_dispatch_digest */
};

struct mc_combine {
	enum mc_dtype dtype;
	uint64_t hidden;   /* D, elements a row, ≥ 1 */
	const void *input; /* [sum of rows, D]: this rank's partial output for every rank's rows */
	void *output;      /* [rows[rank], D]: the sum, or with norm the normed rows */
	uint32_t rows[MC_MAX_WORLD_SIZE];
	/* NULL: rows are exact. Else [world_size]: valid rows of every rank, as dispatch left them.
	 */
	const int32_t *counts;
	/* Fused residual add and RMSNorm (kind MC_OP_COMBINE_RMSNORM); else all NULL and 0. */
	const void *residual;  /* [rows[rank], D] */
	void *residual_output; /* [rows[rank], D]; may be `residual` itself */
	const void *gamma;     /* [D] */
	float eps;
	uint32_t digest; /* mc_combine_digest */
};

struct mc_mask_ids {
	int32_t *ids; /* [rows, topk] */
	uint64_t rows;
	uint64_t topk;        /* ≥ 1 */
	const int32_t *count; /* valid rows; later rows become -1 */
};

/* What all ranks must agree on, in 32 bits. */
uint32_t mc_dispatch_digest(const struct mc_dispatch *op, uint32_t world_size);
uint32_t mc_combine_digest(const struct mc_combine *op, uint32_t world_size);

/* A rank without rows may leave its row pointers NULL, so any of the three tells the kind. */
MC_BOTH enum mc_op_kind mc_combine_kind(const struct mc_combine *op)
{
	return op->residual || op->residual_output || op->gamma ? MC_OP_COMBINE_RMSNORM
								: MC_OP_COMBINE;
}

MC_BOTH uint32_t mc_dtype_bytes(enum mc_dtype dtype)
{
	return dtype == MC_DTYPE_FP32 ? 4u : 2u;
}

#ifdef __cplusplus
}
#endif
#endif
