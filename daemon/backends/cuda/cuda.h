/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's cuda backend: mc_daemon_backend_cuda (daemon/backends/backend.h) and what it needs
 * at start-up. No CUDA call is made in this process; all go through the arming helper.
 */
#ifndef MC_DAEMON_BACKENDS_CUDA_H
#define MC_DAEMON_BACKENDS_CUDA_H

#include <stdbool.h>
#include <uv.h>
#include "daemon/backends/cuda/arm_protocol.h"

struct mc_cuda_options {
	const char *helper_path;   /* "" or NULL: beside the daemon or in libexec. Copied */
	uint32_t retry_ms;         /* between two looks for a GPU while there is none; 0: 5,000 */
	uint32_t probe_timeout_ms; /* 0: 20,000 */
	/* Called from the loop after every look whose outcome differs from the one before; may be
	 * NULL. */
	void (*changed)(void *data);
	void *data;
};

/* Starts looking for GPUs, without blocking. Returns 0 or -errno. Only one per process. */
int mc_cuda_start(uv_loop_t *loop, const struct mc_cuda_options *options);
/* Stops looking; the handles close within the loop's next turns. Armings in progress go on. */
void mc_cuda_stop(void);

/* Whether the first look has ended, so that backend=auto can be resolved. */
bool mc_cuda_known(void);
enum mc_gpu_state mc_cuda_state(void);
/* Never NULL; "" when ready. */
const char *mc_cuda_reason(void);
/* The GPUs as last seen; *ret_gpus is valid until the loop's next turn. */
uint32_t mc_cuda_gpus(const struct mc_arm_gpu **ret_gpus);
/* CUDA version of the driver as cuDriverGetVersion tells it; 0: not known. */
uint32_t mc_cuda_driver_version(void);

/* Looks again at once, after something that suggests that the GPUs have changed. */
void mc_cuda_look_again(void);
/* The configured path of the helper; "" for the default. */
const char *mc_cuda_helper_setting(void);

#endif
