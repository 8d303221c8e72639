/* SPDX-License-Identifier: Apache-2.0 */
/* The vtable: ready, arm, cancel. */
#include "daemon/backends/cuda/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/backends/backend.h"
#include "daemon/backends/board.h"
#include "daemon/backends/cuda/helper.h"
#include "daemon/log.h"
#include "proto/status.h"

/* enum moecomm_backend, which only clients include. */
#define BACKEND_NUMBER_CUDA 2u
#define DEFAULT_TIMEOUT_MS  60000u

struct mc_arm {
	struct mc_helper *helper;
	mc_arm_cb cb;
	void *data;
	uint64_t epoch;
	uint64_t arena_bytes;
	uint32_t world_size;
	struct mc_wait_line wait;
};

static bool ready(const char **ret_reason)
{
	*ret_reason = mc_cuda_reason();
	return mc_cuda_state() == MC_GPU_STATE_OK;
}

static void end(struct mc_arm *arm, int status, const char *detail, struct mc_arm_result *result)
{
	mc_arm_cb cb = arm->cb;
	void *data = arm->data;

	free(arm);
	cb(data, status, detail, result);
}

/* Returns 0, or an enum mc_status and a sentence. */
static int check_reply(const struct mc_arm *arm, const struct mc_arm_wire_reply *reply,
	size_t n_reply, unsigned n_fds, char *detail, size_t n_detail)
{
	if (n_reply != sizeof(*reply) || reply->magic != MC_ARM_MAGIC ||
		reply->version != MC_ARM_VERSION || reply->size != sizeof(*reply)) {
		snprintf(detail, n_detail,
			"the arming helper is of another release than the daemon: install both of "
			"one release");
		return MC_STATUS_SYSTEM;
	}
	if (reply->status) {
		snprintf(detail, n_detail, "%.*s", (int)sizeof(reply->detail) - 1, reply->detail);
		return (int)reply->status;
	}
	if (n_fds != 2 * arm->world_size || reply->n_fds != n_fds ||
		reply->arena_bytes < arm->arena_bytes || reply->control_bytes < MC_CONTROL_BYTES) {
		snprintf(detail, n_detail,
			"the arming helper's answer makes no sense: %u fds for %u ranks, arenas of "
			"%llu bytes for "
			"%llu",
			n_fds, arm->world_size, (unsigned long long)reply->arena_bytes,
			(unsigned long long)arm->arena_bytes);
		return MC_STATUS_SYSTEM;
	}
	return 0;
}

static void on_reply(void *data, int status, const char *detail, const void *raw, size_t n_reply,
	int *fds, unsigned n_fds)
{
	struct mc_arm *arm = data;
	struct mc_arm_wire_reply reply = {0};
	struct mc_arm_result result;
	char text[MC_ARM_DETAIL_BYTES + 64];
	int r;

	if (!status) {
		memcpy(&reply, raw, n_reply < sizeof(reply) ? n_reply : sizeof(reply));
		status = check_reply(arm, &reply, n_reply, n_fds, text, sizeof(text));
		detail = text;
	}
	if (status) {
		mc_log(LOG_ERR, "arming epoch %llu for %u ranks failed: %s",
			(unsigned long long)arm->epoch, arm->world_size, detail);
		/* perhaps the driver went away: new groups should be told so before they arm */
		if (status == MC_STATUS_DEVICE)
			mc_cuda_look_again();
		end(arm, status, detail, NULL);
		return;
	}
	r = mc_board_create(arm->world_size, arm->epoch, &arm->wait, &result.board_fd);
	if (r) {
		snprintf(text, sizeof(text), "cannot make the status board: %s", strerror(-r));
		end(arm, MC_STATUS_SYSTEM, text, NULL);
		return;
	}
	for (unsigned rank = 0; rank < MC_MAX_WORLD_SIZE; rank++)
		result.control_fd[rank] = result.arena_fd[rank] = -1;
	for (unsigned rank = 0; rank < arm->world_size; rank++) {
		result.control_fd[rank] = fds[2 * rank];
		result.arena_fd[rank] = fds[2 * rank + 1];
		fds[2 * rank] = fds[2 * rank + 1] = -1;
	}
	result.arena_bytes = reply.arena_bytes;
	mc_log(LOG_DEBUG,
		"armed epoch %llu: %u arenas of %llu bytes; driver %u ms, fill %u ms, read-back %u "
		"ms",
		(unsigned long long)arm->epoch, arm->world_size,
		(unsigned long long)reply.arena_bytes, reply.init_ms, reply.fill_ms,
		reply.verify_ms);
	end(arm, 0, "", &result);
}

static int start(uv_loop_t *loop, const struct mc_arm_request *request, mc_arm_cb cb, void *data,
	struct mc_arm **ret_arm, const char **ret_detail)
{
	/* static, as the seam wants; the loop's thread is the only caller */
	static char detail[MC_ARM_DETAIL_BYTES];
	struct mc_arm_wire_request wire = {.magic = MC_ARM_MAGIC,
		.version = MC_ARM_VERSION,
		.size = sizeof(wire),
		.kind = MC_ARM_KIND_ARM};
	struct mc_arm *arm;
	char path[4096];
	int r;

	*ret_detail = detail;
	if (request->world_size < 1 || request->world_size > MC_MAX_WORLD_SIZE) {
		snprintf(detail, sizeof(detail), "world size %u is not 1 to %u",
			request->world_size, MC_MAX_WORLD_SIZE);
		return MC_STATUS_INVALID;
	}
	wire.world_size = request->world_size;
	wire.epoch = request->epoch;
	wire.arena_bytes = request->layout.arena_bytes;
	wire.control_bytes = MC_CONTROL_BYTES;
	wire.sentinel = request->sentinel;
	for (uint32_t rank = 0; rank < request->world_size; rank++) {
		if (!request->device_uuid[rank][0]) {
			snprintf(detail, sizeof(detail), "rank %u told no GPU", rank);
			return MC_STATUS_INVALID;
		}
		snprintf(wire.uuid[rank], sizeof(wire.uuid[rank]), "%.67s",
			request->device_uuid[rank]);
	}
	if (mc_helper_find(mc_cuda_helper_setting(), path, sizeof(path), detail, sizeof(detail)))
		return MC_STATUS_SYSTEM;
	arm = calloc(1, sizeof(*arm));
	if (!arm) {
		snprintf(detail, sizeof(detail), "out of memory");
		return MC_STATUS_NO_MEMORY;
	}
	arm->cb = cb;
	arm->data = data;
	arm->epoch = request->epoch;
	arm->arena_bytes = request->layout.arena_bytes;
	arm->world_size = request->world_size;
	arm->wait = request->wait;
	r = mc_helper_start(loop, path, &wire,
		request->timeout_ms ? request->timeout_ms : DEFAULT_TIMEOUT_MS, on_reply, arm,
		&arm->helper, detail, sizeof(detail));
	if (r) {
		free(arm);
		return r;
	}
	*ret_arm = arm;
	return 0;
}

static void cancel(struct mc_arm *arm)
{
	if (!arm)
		return;
	mc_helper_cancel(arm->helper);
	free(arm);
}

const struct mc_daemon_backend mc_daemon_backend_cuda = {
	.name = "cuda",
	.number = BACKEND_NUMBER_CUDA,
	.ready = ready,
	.arm = start,
	.cancel = cancel,
};
