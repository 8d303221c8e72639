/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of the arming helper: start it, hand it one request, wait for one reply under a deadline,
 * kill it when it does not come. Nothing here blocks the loop.
 */
#ifndef MC_CUDA_HELPER_H
#define MC_CUDA_HELPER_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>
#include "daemon/backends/cuda/arm_protocol.h"

#define MC_HELPER_NAME "moecomm-arm"
/* The largest reply. */
#define MC_HELPER_REPLY_BYTES sizeof(struct mc_arm_wire_probe)

struct mc_helper;

/*
 * status 0: reply (n_reply bytes, aligned) and its fds, each to be taken by setting it to -1; the
 * others are closed afterwards. Else an enum mc_status, and detail says what happened.
 */
typedef void (*mc_helper_cb)(void *data, int status, const char *detail, const void *reply,
	size_t n_reply, int *fds, unsigned n_fds);

/*
 * Starts the helper at path. Returns 0 and sets *ret_helper: cb is called exactly once, from the
 * loop, and *ret_helper is invalid afterwards; or returns an enum mc_status with a sentence in
 * ret_detail and never calls cb.
 */
int mc_helper_start(uv_loop_t *loop, const char *path, const struct mc_arm_wire_request *request,
	uint32_t timeout_ms, mc_helper_cb cb, void *data, struct mc_helper **ret_helper,
	char *ret_detail, size_t n_detail);

/* Kills it; cb is not called any more. Handles close within the loop's next turns. NULL is allowed.
 */
void mc_helper_cancel(struct mc_helper *helper);

/*
 * Where the helper is: `configured` if it is not empty, else beside this program, else in the
 * libexec folder of its prefix. Returns 0, or -ENOENT and says in ret_detail where it looked.
 */
int mc_helper_find(
	const char *configured, char *ret_path, size_t n_path, char *ret_detail, size_t n_detail);

#endif
