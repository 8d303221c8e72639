/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of one rank at one size, and the checks of what ops leave in them. */
#ifndef MC_BENCH_GPU_WORK_H
#define MC_BENCH_GPU_WORK_H

#include "bench/gpu/measure.h"

#define BENCH_MAX_PARTS 4

struct bench_work {
	int64_t tokens;
	/* dispatch: one buffer each way; the parts of a row lie one after the other in it */
	int n_parts;
	int64_t part_bytes[BENCH_MAX_PARTS]; /* of a row */
	unsigned char *dispatch_in;          /* [tokens, row_bytes] */
	unsigned char *dispatch_out;         /* [W × tokens, row_bytes] */
	/* combine */
	void *combine_in;  /* [W × tokens, hidden] */
	void *combine_out; /* [tokens, hidden] */
	void *residual, *residual_out, *normed, *gamma;
	uint64_t *keys; /* device, [W]: of every rank's combine input */
	/* what to look at */
	bool check_dispatch, check_combine, check_fused;
	bool concatenated; /* dispatch_out holds whole ranks one after the other, as one all-gather
			      leaves it */
	bool exact;        /* held to our promise; else to what a library may round */
	uint64_t seed;     /* of this size */
};

#define BENCH_EPS 1e-6f

/* How a dispatched row is made up: FP4 activations, scales, ids and weights where the size allows.
 */
int bench_parts(int64_t row_bytes, int64_t ret_part_bytes[BENCH_MAX_PARTS]);

/*
 * Allocates for the largest size; dispatch and combine buffers come from `allocate` (NULL:
 * cudaMalloc), so that NCCL can bring its own memory.
 */
bool bench_work_open(struct bench_rank *rank, bool dispatch, bool combine, bool fused,
	int (*allocate)(void **ret_memory, size_t n_bytes), struct bench_work *ret_work);
void bench_work_close(struct bench_work *work);
/* Bytes of the four exchanged buffers at the largest size. */
size_t bench_bytes_dispatch_in(const struct bench_options *options);
size_t bench_bytes_combine_out(const struct bench_options *options);

/* Fresh random inputs for a size. */
bool bench_work_fill(struct bench_rank *rank, struct bench_work *work, int size_index);

/* bench_poison and bench_check of a struct bench_work. */
bool bench_work_poison(struct bench_rank *rank, void *data);
unsigned long long bench_work_check(struct bench_rank *rank, void *data);

/* Add and norm as kernels of their own, after a combine into combine_out. */
bool bench_work_add_norm(struct bench_rank *rank, struct bench_work *work);

#endif
