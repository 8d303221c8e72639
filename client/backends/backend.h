/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client backend does for a group: map, probe, launch. `host` is compiled in; `cuda` is a
 * module (libmoecomm-cuda.so) that the library opens at run time, so that the library itself needs
 * no CUDA. Calls on one rank are serialised by the library except where said.
 */
#ifndef MC_CLIENT_BACKENDS_BACKEND_H
#define MC_CLIENT_BACKENDS_BACKEND_H

#include "kernels/launch.h"

/* Changes with every change of the structures below or of kernels/launch.h. */
#define MC_CLIENT_BACKEND_ABI    1u
#define MC_CLIENT_BACKEND_SYMBOL "mc_client_backend"

/* What went wrong in words, beside the returned enum moecomm_status number. */
struct mc_backend_error {
	char text[512];
};

/* What the daemon handed over for one epoch. The fds stay the caller's. */
struct mc_backend_epoch {
	uint32_t rank;
	uint64_t epoch;
	struct mc_layout layout;
	uint64_t arena_bytes; /* size of each arena fd's object, ≥ layout.arena_bytes */
	struct mc_vector sentinel;
	int board_fd;   /* memfd, MC_BOARD_BYTES */
	int control_fd; /* this rank's control block, MC_CONTROL_BYTES (cuda: rounded up) */
	int arena_fd[MC_MAX_WORLD_SIZE];
	uint32_t ranks_per_device; /* how many ranks of the group share this rank's GPU; ≥ 1 */
};

struct mc_backend_rank; /* the backend's own */

struct mc_client_backend {
	uint32_t abi; /* MC_CLIENT_BACKEND_ABI */
	const char *name;

	/*
	 * Opens what one membership needs whatever the epoch (context, reserved addresses, loaded
	 * kernels). device: ordinal, or -1 for the current one. Each call returns 0 or an
	 * enum moecomm_status number and fills *ret_error.
	 */
	int (*open)(
		int device, struct mc_backend_rank **ret_rank, struct mc_backend_error *ret_error);
	/* "GPU-…" of the opened device, or "" on host. Valid until close. */
	const char *(*device_uuid)(struct mc_backend_rank *rank);
	/*
	 * Maps an epoch (replacing an earlier one, at the same addresses). On failure
	 * ret_failed_peer names the rank whose memory could not be mapped (UINT32_MAX: none in
	 * particular).
	 */
	int (*map)(struct mc_backend_rank *rank, const struct mc_backend_epoch *epoch,
		uint32_t *ret_failed_peer, struct mc_backend_error *ret_error);
	/* The join probe of every pair; ret_result[peer] is an enum mc_probe_result. */
	int (*probe)(struct mc_backend_rank *rank, uint32_t timeout_ms,
		uint8_t ret_result[MC_MAX_WORLD_SIZE], struct mc_backend_error *ret_error);
	/*
	 * Ops. On host they return the call's outcome and fill *ret_fault; on cuda they enqueue and
	 * return launch errors only (MC_FAULT_DEVICE).
	 */
	int (*dispatch)(struct mc_backend_rank *rank, uint32_t channel,
		const struct mc_dispatch *op, void *stream, struct mc_fault *ret_fault,
		struct mc_backend_error *ret_error);
	int (*combine)(struct mc_backend_rank *rank, uint32_t channel, const struct mc_combine *op,
		void *stream, struct mc_fault *ret_fault, struct mc_backend_error *ret_error);
	int (*mask_ids)(struct mc_backend_rank *rank, const struct mc_mask_ids *op, void *stream,
		struct mc_backend_error *ret_error);
	/* Sets the failed flag of the current epoch, so that ops not yet run return at once. Any
	 * thread. */
	void (*poison)(struct mc_backend_rank *rank, uint32_t fault_status);
	/* The mapped board of the current epoch (host memory), NULL before map. Any thread. */
	struct mc_board *(*board)(struct mc_backend_rank *rank);
	/* Waits at most timeout_ms for ops in flight, then unmaps the epoch; the addresses stay
	 * reserved. */
	void (*unmap)(struct mc_backend_rank *rank, uint32_t timeout_ms);
	/* Unmaps and frees all. NULL is allowed. */
	void (*close)(struct mc_backend_rank *rank);
};

extern const struct mc_client_backend mc_client_backend_host;

#endif
