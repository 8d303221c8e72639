/* SPDX-License-Identifier: Apache-2.0 */
/* Capturing ops in a graph and timing its replays; the same for every contender. */
#ifndef MC_BENCH_GPU_MEASURE_H
#define MC_BENCH_GPU_MEASURE_H

#include <cuda_runtime_api.h>
#include "bench/gpu/shared.h"

/* One rank's process. */
struct bench_rank {
	const struct bench_options *options;
	struct bench_shared *shared;
	int rank;
	int device;
	cudaStream_t stream;
	cudaEvent_t begin, end;
	unsigned long long *wrong; /* device */
				   /* each enqueue returns false after bench_abort */
};

/* Enqueues op number i of a measurement on the rank's stream; i counts from 0 within a graph. */
typedef bool (*bench_enqueue)(struct bench_rank *rank, void *data, int i);
/* Poisons outputs (before) or enqueues checks and returns how many items they look at. */
typedef bool (*bench_poison)(struct bench_rank *rank, void *data);
typedef unsigned long long (*bench_check)(struct bench_rank *rank, void *data);

struct bench_subject {
	bench_enqueue enqueue;
	bench_poison poison;
	bench_check check;
	void *data;
};

#define BENCH_TRY(rank, expression)                                                                \
	do {                                                                                       \
		cudaError_t e_ = (expression);                                                     \
		if (e_ != cudaSuccess) {                                                           \
			bench_abort((rank)->shared, "rank %d: %s: %s (%s)", (rank)->rank,          \
				#expression, cudaGetErrorName(e_), cudaGetErrorString(e_));        \
			return false;                                                              \
		}                                                                                  \
	} while (0)

bool bench_rank_open(struct bench_rank *rank);

/*
 * Measures one cell: one eager call, checked; a graph of n_ops ops; warm-up; repeats of timed
 * replays; one replay with poisoned outputs, checked. Collective. False: the run is over.
 */
bool bench_measure(struct bench_rank *rank, const struct bench_subject *subject, int n_ops,
	struct bench_cell *cell);

/* A graph of n empty kernels, alone on this GPU: µs a kernel. Not collective. */
bool bench_measure_empty(struct bench_rank *rank, int n, double *ret_us, double *ret_enqueue_us);

double bench_now_us(void);

#endif
