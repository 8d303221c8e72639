/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of gpu-ops share: ranks in one process, their buffers, and cases of random ops. */
#ifndef MC_TESTS_GPU_OPS_H
#define MC_TESTS_GPU_OPS_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include "tests/gpu/arena_fixture.h"

extern const struct mc_client_backend mc_client_backend;
#define BACKEND (&mc_client_backend)

#define BUFFER_BYTES (48u << 20)
#define POISON       0xa5
#define MAX_RANKS    16u
#define N_CHANNELS   2u

struct rank {
	struct mc_backend_rank *backend;
	cudaStream_t stream;
	uint8_t *device, *host; /* BUFFER_BYTES each: the same offsets in both */
	uint8_t *image;         /* for the comparison */
	pthread_t thread;
	struct mc_dispatch dispatch;
	struct mc_combine combine;
	bool is_dispatch;
	uint32_t channel;
	struct mc_host_rank *twin;
	struct mc_fault fault;
	int status;
};

extern int n_devices;
extern uint32_t world_size;
extern unsigned long n_checks, n_wrong;
extern uint64_t rng;
extern struct rank ranks[MAX_RANKS];
extern struct mc_fixture *fixture; /* of the epoch that is mapped */
extern const struct mc_wait_line relaxed_wait;

uint64_t next(void);
uint32_t below(uint32_t n);
void expect(bool ok, const char *what);
double now_ms(void);
int device_of(uint32_t rank);

/* ---- ops_test.c: membership and running ---- */

void begin_epoch(const struct mc_wait_line *wait);
void end_epoch(void);
void probe_all(void);
/* All streams idle within the time; else the program ends: a kernel that hangs is the worst
 * failure. */
void wait_streams(double timeout_ms);
void enqueue(uint32_t rank);
/* The same op by the host twins. */
void run_twins(void);
void upload(size_t n_bytes);
/* The device's buffers must be the host's, byte for byte, outputs, guards and inputs alike. */
void compare(size_t n_bytes, const char *what);

/* ---- ops_cases.c ---- */

enum form {
	UNIFORM,
	RAGGED,
	COUNTED,
};

void noise(uint8_t *at, size_t n);
/* An op for all ranks, with inputs in their host buffers; returns the bytes in use. */
size_t make_dispatch(uint32_t n_tensors, const uint64_t *row_bytes, uint32_t most_rows,
	enum form form, bool odd, bool want_counts);
size_t make_combine(enum mc_dtype dtype, uint64_t hidden, uint32_t most_rows, enum form form,
	bool norm, bool odd, bool specials, bool in_place);
void random_case(uint32_t i);
/* Sizes at which the pipelines turn over, and rows that no register file holds. */
void large_cases(void);
void mask_cases(void);

/* ---- ops_channels.c ---- */

/* Ops of all channels on the device at once. */
void channel_cases(void);

/* ---- ops_graphs.c ---- */

/* Replays graphs of n_sizes sizes in random order; with delays, ranks come late at random. */
void graph_cases(uint32_t n_sizes, uint32_t n_replays, bool delays);
/* Device memory and mappings are the same after 200 graphs as before. */
void graph_leak_case(void);
/* A graph of one epoch is stale between epochs and right in the next. */
void epoch_cases(void);

/* ---- ops_early.c ---- */

/* Chains of our ops and kernels of others see nothing too soon. */
void early_cases(void);

/* ---- ops_failures.c ---- */

void failure_cases(void);

#endif
