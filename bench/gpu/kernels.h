/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bench's own kernels: inputs made from a seed, outputs checked against what the seed says, the
 * pieces that a fused op replaces, and the floors. All launch on `stream` and return a cudaError_t.
 */
#ifndef MC_BENCH_GPU_KERNELS_H
#define MC_BENCH_GPU_KERNELS_H

#include <stdint.h>
#include <cuda_runtime_api.h>
#include "bench/gpu/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every byte random. */
cudaError_t bench_fill_bytes(void *to, uint64_t n_bytes, uint64_t key, cudaStream_t stream);
/* Elements in (-2, 2), of mixed sign. */
cudaError_t bench_fill_elements(void *to, uint64_t n, int dtype, uint64_t key, cudaStream_t stream);

/* Adds to *wrong the bytes of block [n_bytes] that are not what bench_fill_bytes(key) makes. */
cudaError_t bench_check_bytes(const void *block, uint64_t n_bytes, uint64_t key,
	unsigned long long *wrong, cudaStream_t stream);

/* What a rank's combine must give; keys[s] made rank s's input. */
struct bench_combine_check {
	int dtype;
	uint64_t rows, hidden, first_row; /* this rank's slice starts at first_row of the inputs */
	int world_size;
	const uint64_t *keys; /* device, [world_size] */
	int exact; /* bits of the fp32 sum in rank order; else a tolerance against fp64 */
	/* fused only, else NULL */
	uint64_t residual_key, gamma_key;
	float eps;
	const void *residual_output;
	int fused;
};
cudaError_t bench_check_combine(const void *output, const struct bench_combine_check *check,
	unsigned long long *wrong, cudaStream_t stream);

/* The parts that the fused op replaces: out = a + b; out = norm(in). */
cudaError_t bench_add(
	void *out, const void *a, const void *b, uint64_t n, int dtype, cudaStream_t stream);
cudaError_t bench_rmsnorm(void *out, const void *in, const void *gamma, uint64_t rows,
	uint64_t hidden, float eps, int dtype, cudaStream_t stream);

/* Floors. */
cudaError_t bench_empty(int ctas, int threads, cudaStream_t stream);
/* n round trips between two flags; first moves first. Gives up after 2 s (then *failed is 1). */
cudaError_t bench_ping_pong(unsigned *mine, unsigned *peers, unsigned n, int first,
	unsigned *failed, cudaStream_t stream);
/* Stores n_bytes (a multiple of 16) to the peer. */
cudaError_t bench_push(void *to, uint64_t n_bytes, int ctas, unsigned value, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
