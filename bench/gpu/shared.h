/* SPDX-License-Identifier: Apache-2.0 */
/* What the rank processes of one run share with each other and the coordinator: anonymous memory.
 */
#ifndef MC_BENCH_GPU_SHARED_H
#define MC_BENCH_GPU_SHARED_H

#include <stdatomic.h>
#include "bench/gpu/gpu.h"

/* One contender in one form at one size. Ranks write their own column; rank 0 the rest. */
struct bench_cell {
	bool measured;
	int replays;                                   /* graphs launched in one repeat */
	double us[BENCH_MAX_REPEATS][BENCH_MAX_RANKS]; /* an op */
	unsigned long long wrong[BENCH_MAX_RANKS];
	unsigned long long checked[BENCH_MAX_RANKS];
};

struct bench_machine {
	char gpu_name[128];
	char gpu_uuid[BENCH_MAX_RANKS][48];
	int n_devices;
	int cuda_driver;
	int cuda_runtime;
	int nccl_version; /* 0: not used */
	int n_sms;
	bool gpus_shared;
	uint64_t arena_bytes; /* of one rank */
};

struct bench_floors {
	bool have_empty, have_latency, have_push;
	double empty_one_us;
	double empty_long_us;
	double empty_enqueue_us; /* CPU time of one bare launch */
	double one_way_us;
	double push_gbps;    /* one CTA a multiprocessor */
	double push_16_gbps; /* 16 CTAs */
	char why[256];       /* what could not be had */
};

struct bench_shared {
	atomic_int aborted; /* someone failed: leave every barrier */
	atomic_int arrived;
	atomic_int generation;
	atomic_int n_replays; /* agreed by rank 0 before each measurement */
	char error[512];      /* of the first that failed */
	atomic_int error_taken;
	unsigned char nccl_id[128];
	unsigned char ipc[BENCH_MAX_RANKS][64];
	char nccl_note[512]; /* why NCCL, or a variant of it, is missing */
	struct bench_machine machine;
	struct bench_floors floors;
	double enqueue_us[BENCH_MAX_SIZES]; /* CPU time of one of our calls, rank 0 */
	struct bench_cell cell[BENCH_MAX_SIZES][BENCH_N_SERIES][BENCH_N_FORMS];
};

struct bench_shared *bench_shared_new(void);

/* All ranks meet; false when the run was aborted. Sleeps little: ranks should start together. */
bool bench_barrier(struct bench_shared *shared, int world_size);

/* Ends the run for all ranks; the first reason is kept. */
void bench_abort(struct bench_shared *shared, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
