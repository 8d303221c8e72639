/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault/cuda_arm/rig.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "daemon/log.h"

static const char *const variables[] = {"FAKE_CUDA_GPUS", "FAKE_CUDA_MIG", "FAKE_CUDA_GRANULARITY",
	"FAKE_CUDA_NO_VMM", "FAKE_CUDA_FAIL", "FAKE_CUDA_HANG", "FAKE_CUDA_CRASH", "FAKE_CUDA_FLIP",
	"FAKE_CUDA_SHOW", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "DENY_NODES"};

int rig_count_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

int rig_setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	static uv_loop_t warm;

	/* libuv keeps a signal pipe from its first loop on */
	if (!warm.data) {
		warm.data = &warm;
		uv_loop_init(&warm);
	}
	mc_log_open(LOG_DEBUG);
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	setenv("LD_LIBRARY_PATH", getenv("MOECOMM_FAKE_CUDA"), 1);
	rig->n_fds_before = rig_count_fds();
	uv_loop_init(&rig->loop);
	*state = rig;
	return 0;
}

int rig_teardown(void **state)
{
	struct rig *rig = *state;
	int r, left;

	rig_stop(rig);
	r = uv_loop_close(&rig->loop);
	left = rig_count_fds() - rig->n_fds_before;
	if (r)
		fprintf(stderr, "loop does not close: %s\n", uv_strerror(r));
	if (left)
		fprintf(stderr, "%d fds are left open\n", left);
	free(rig);
	return r || left;
}

const char *rig_helper(void)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/moecomm-arm", getenv("MOECOMM_TEST_BIN"));
	return path;
}

void rig_start(struct rig *rig, const char *helper, uint32_t retry_ms)
{
	struct mc_cuda_options options = {.helper_path = helper, .retry_ms = retry_ms};

	assert_int_equal(mc_cuda_start(&rig->loop, &options), 0);
	for (uint64_t end = mc_now_ms() + 20000; !mc_cuda_known() && mc_now_ms() < end;) {
		uv_run(&rig->loop, UV_RUN_NOWAIT);
		usleep(1000);
	}
	assert_true(mc_cuda_known());
}

void rig_stop(struct rig *rig)
{
	mc_cuda_stop();
	/* ends by itself: nothing may keep the loop alive */
	uv_run(&rig->loop, UV_RUN_DEFAULT);
}

bool rig_wait(struct rig *rig, const bool *flag, unsigned timeout_ms)
{
	for (uint64_t end = mc_now_ms() + timeout_ms; !*flag && mc_now_ms() < end;) {
		uv_run(&rig->loop, UV_RUN_NOWAIT);
		usleep(1000);
	}
	return *flag;
}

bool rig_wait_state(struct rig *rig, enum mc_gpu_state state, unsigned timeout_ms)
{
	for (uint64_t end = mc_now_ms() + timeout_ms;
		mc_cuda_state() != state && mc_now_ms() < end;) {
		uv_run(&rig->loop, UV_RUN_NOWAIT);
		usleep(1000);
	}
	return mc_cuda_state() == state;
}

void rig_request(struct mc_arm_request *ret_request, uint32_t world_size, uint64_t arena_bytes)
{
	memset(ret_request, 0, sizeof(*ret_request));
	ret_request->epoch = 77;
	ret_request->world_size = world_size;
	ret_request->layout.arena_bytes = arena_bytes;
	ret_request->layout.world_size = world_size;
	for (uint32_t i = 0; i < 4; i++)
		ret_request->sentinel.word[i] = 0x1234567u * (i + 3);
	ret_request->wait.op_timeout_ms = 4321;
	ret_request->timeout_ms = 20000;
	for (uint32_t rank = 0; rank < world_size; rank++)
		snprintf(ret_request->device_uuid[rank], sizeof(ret_request->device_uuid[rank]),
			"GPU-00000000-0000-0000-0000-%012u", rank % 2);
}

void rig_done(void *data, int status, const char *detail, struct mc_arm_result *result)
{
	struct rig_outcome *outcome = data;

	assert_false(outcome->called);
	outcome->called = true;
	outcome->status = status;
	snprintf(outcome->detail, sizeof(outcome->detail), "%s", detail ? detail : "");
	outcome->has_result = result != NULL;
	if (result)
		outcome->result = *result;
}

void rig_arm(struct rig *rig, const struct mc_arm_request *request, struct rig_outcome *ret_outcome)
{
	struct mc_arm *arm = NULL;
	const char *detail = "";
	int r;

	memset(ret_outcome, 0, sizeof(*ret_outcome));
	r = mc_daemon_backend_cuda.arm(&rig->loop, request, rig_done, ret_outcome, &arm, &detail);
	if (r) {
		rig_done(ret_outcome, r, detail, NULL);
		return;
	}
	assert_non_null(arm);
	assert_true(rig_wait(rig, &ret_outcome->called, 30000));
	assert_int_equal(ret_outcome->has_result, ret_outcome->status == 0);
}

void rig_close(struct rig_outcome *outcome)
{
	if (!outcome->has_result)
		return;
	close(outcome->result.board_fd);
	for (unsigned i = 0; i < MC_MAX_WORLD_SIZE; i++) {
		if (outcome->result.control_fd[i] >= 0)
			close(outcome->result.control_fd[i]);
		if (outcome->result.arena_fd[i] >= 0)
			close(outcome->result.arena_fd[i]);
	}
	outcome->has_result = false;
}

int rig_child(void)
{
	char path[64];
	FILE *file;
	int pid = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%d", &pid) != 1)
		pid = 0;
	fclose(file);
	return pid;
}
