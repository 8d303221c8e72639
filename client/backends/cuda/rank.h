/* SPDX-License-Identifier: Apache-2.0 */
/* One membership on a GPU: what lasts from open to close, and what an epoch maps into it. */
#ifndef MC_CLIENT_CUDA_RANK_H
#define MC_CLIENT_CUDA_RANK_H

#include <pthread.h>
#include <stdbool.h>
#include "client/backends/cuda/driver.h"
#include "kernels/cuda/cuda.h"

/* One object of device memory: its reserved addresses and what is mapped there. */
struct mc_range {
	CUdeviceptr at; /* 0: not reserved */
	size_t n_bytes;
	bool mapped;
};

/* Pinned host memory that the device reads and writes. */
struct mc_pinned {
	uint8_t probe_result[MC_MAX_WORLD_SIZE];
	uint32_t poison;
	struct mc_control control;
	struct mc_cuda_turn turn[MC_CUDA_TURNS];
};

struct mc_backend_rank {
	const struct mc_driver *cu;
	CUdevice ordinal;
	CUcontext context; /* the device's primary one, as every runtime user has it */
	CUstream stream;   /* never waits for, and is never waited for by, the caller's streams */
	struct mc_pinned *pinned;
	size_t granularity;
	char uuid[64];
	struct mc_cuda_device device;
	enum mc_cuda_early early_launch;

	/*
	 * Reserved at the first map, for the life of the membership: captured graphs hold these
	 * addresses. Between epochs the control block's place holds a block of ours whose failed
	 * flag says STALE_EPOCH, so that a graph replayed then returns at once.
	 */
	struct mc_range arena[MC_MAX_WORLD_SIZE];
	struct mc_range control;
	CUmemGenericAllocationHandle stale_control; /* 0: not made */
	bool stale_mapped;
	uint32_t n_arenas;
	void *board_place; /* MC_BOARD_BYTES of host addresses */

	pthread_mutex_t lock; /* the fields below, against poison and board from any thread */
	bool mapped;          /* an epoch is mapped */
	bool stuck;           /* work on the device did not end: its memory was left mapped */
	struct mc_board *board;
	bool board_registered;
	struct mc_cuda_rank view; /* what the kernels get */
};

int mc_rank_map(struct mc_backend_rank *rank, const struct mc_backend_epoch *epoch,
	uint32_t *ret_failed_peer, struct mc_backend_error *ret_error);
/*
 * Waits for work on the device: half the time for it to end by itself, half for ops that have been
 * told to leave. What does not end keeps its memory.
 */
void mc_rank_unmap(struct mc_backend_rank *rank, uint32_t timeout_ms);
/* The block of the mapped epoch, or of none, to (true) or from rank->pinned->control. */
int mc_rank_copy_control(
	struct mc_backend_rank *rank, bool to_device, struct mc_backend_error *ret_error);
/* Takes the epoch's mappings away, whatever part of them there is; the addresses stay. */
void mc_rank_unmap_all(struct mc_backend_rank *rank);
/* Gives the reserved addresses back; nothing of an epoch is mapped any more. */
void mc_rank_unreserve(struct mc_backend_rank *rank);
/* Sets the failed flag of the mapped epoch, without waiting for kernels. */
void mc_rank_poison(struct mc_backend_rank *rank, uint32_t fault_status);
/* Waits until the device has nothing to do; false: timeout_ms have passed. */
bool mc_rank_wait_idle(struct mc_backend_rank *rank, uint32_t timeout_ms);

#endif
