/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a daemon backend does: arm the memory of one group epoch. Arming never blocks the loop (host
 * fills on the thread pool; cuda runs the arming helper process) and ends in exactly one callback.
 */
#ifndef MC_DAEMON_BACKENDS_BACKEND_H
#define MC_DAEMON_BACKENDS_BACKEND_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "kernels/lamport.h"

struct mc_arm_request {
	uint64_t epoch;
	uint32_t world_size;
	struct mc_layout layout;
	struct mc_vector sentinel;
	struct mc_wait_line wait;
	/* [world_size]; "" on host. Copied. */
	char device_uuid[MC_MAX_WORLD_SIZE][68];
	uint32_t timeout_ms;
};

/* Memory of an armed epoch; fds are owned by whoever holds the structure. -1: none. */
struct mc_arm_result {
	int board_fd;
	int control_fd[MC_MAX_WORLD_SIZE];
	int arena_fd[MC_MAX_WORLD_SIZE];
	uint64_t arena_bytes; /* of one rank, as allocated (rounded up to the backend's granularity)
			       */
};

struct mc_arm; /* one arming in progress */

/* status: 0 (result is handed over), or an enum mc_status with detail. Called once, from the loop.
 */
typedef void (*mc_arm_cb)(void *data, int status, const char *detail, struct mc_arm_result *result);

struct mc_daemon_backend {
	const char *name;
	uint32_t number; /* enum moecomm_backend */
	/* Whether it can serve now; sets *ret_reason (static or owned by the backend) when it
	 * can't. */
	bool (*ready)(const char **ret_reason);
	/* Starts; returns 0 and sets *ret_arm, or an enum mc_status with *ret_detail (static) and
	 * no callback. */
	int (*arm)(uv_loop_t *loop, const struct mc_arm_request *request, mc_arm_cb cb, void *data,
		struct mc_arm **ret_arm, const char **ret_detail);
	/* Gives up: no callback any more; everything is freed as soon as it can be. */
	void (*cancel)(struct mc_arm *arm);
};

extern const struct mc_daemon_backend mc_daemon_backend_host;
extern const struct mc_daemon_backend mc_daemon_backend_cuda;

/* Closes all fds and sets them to -1. */
void mc_arm_result_clear(struct mc_arm_result *result);

#endif
