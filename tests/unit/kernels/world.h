/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group without a daemon: board, control blocks and arenas in one shared mapping, and ranks that
 * run as threads or as forked processes.
 */
#ifndef MC_TESTS_UNIT_KERNELS_WORLD_H
#define MC_TESTS_UNIT_KERNELS_WORLD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "kernels/cuda/cuda.h"
#include "kernels/host/host.h"
#include "kernels/layout.h"

struct world {
	uint32_t n;
	struct mc_layout layout;
	struct mc_vector sentinel;
	struct mc_board *board;
	struct mc_host_rank rank[MC_MAX_WORLD_SIZE];
	uint32_t *n_failed;    /* failed checks, of all ranks; shared */
	uint32_t *n_met;       /* calls of world_meet; shared */
	void *results;         /* WORLD_RESULT_BYTES for the test's own use; shared */
	uint64_t run_limit_ms; /* of world_run */
	void *map;
	size_t map_bytes;
};
#define WORLD_RESULT_BYTES (1u << 20)
/* A control block with what the cuda kernels keep behind it. */
#define WORLD_CONTROL_BYTES (MC_CUDA_TURNS_OFFSET + MC_CUDA_TURNS_BYTES)

struct world_options {
	uint32_t n_channels; /* 0: 1 */
	uint64_t max_rows;
	uint64_t dispatch_row_bytes, combine_row_bytes;
	struct mc_wait_line wait; /* op_timeout_ms 0: 20 s for all calls */
	uint64_t epoch;           /* 0: 7 */
};

enum world_mode {
	WORLD_THREADS,
	WORLD_PROCESSES,
};

typedef void (*world_fn)(struct world *world, uint32_t rank, void *data);

void world_make(struct world *world, uint32_t n, const struct world_options *options);
void world_free(struct world *world);
/* Runs fn on every rank of `mask` at once and waits for all; fails after run_limit_ms (60 s). */
void world_run_ranks(
	struct world *world, enum world_mode mode, uint64_t mask, world_fn fn, void *data);
/* All ranks; fails the test when a check failed. */
void world_run(struct world *world, enum world_mode mode, world_fn fn, void *data);

/* Waits until every rank has come here as often as this one. */
void world_meet(struct world *world);

/* A check that works on every rank's thread or process. Evaluates to the condition. */
bool world_check(struct world *world, bool ok, const char *what, const char *file, int line);
#define WORLD_CHECK(world, condition) world_check(world, condition, #condition, __FILE__, __LINE__)

/* A small generator (splitmix64): the same numbers wherever it runs. */
uint64_t world_random(uint64_t *state);
uint64_t world_now_ms(void);
/* Open descriptors of this process. */
int world_count_fds(void);

/* ---- the ops, by world_host.c or by cuda_kernels/world_cuda.cc ---- */

/* Whether it is the latter: what only the host backend counts and promises is left out then. */
extern const bool world_is_cuda;
/* Digest and run in one; rows uniform or ragged as given in the op. */
int world_dispatch(struct world *world, uint32_t rank, uint32_t channel, struct mc_dispatch *op,
	struct mc_fault *ret_fault);
int world_combine(struct world *world, uint32_t rank, uint32_t channel, struct mc_combine *op,
	struct mc_fault *ret_fault);
int world_mask_ids(struct world *world, uint32_t rank, const struct mc_mask_ids *op);
/* Returns how many pairs failed. */
int world_probe(struct world *world, uint32_t rank, uint32_t timeout_ms,
	uint8_t ret_result[MC_MAX_WORLD_SIZE]);

#endif
