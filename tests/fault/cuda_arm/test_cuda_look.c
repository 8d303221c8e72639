/* SPDX-License-Identifier: Apache-2.0 */
/* Finding GPUs at start-up: what is seen, why there are none, and nodes that appear later. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault/cuda_arm/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"

/* A reason is one line that says what to do; READY only when a GPU answers. */
static void assert_not_ready(enum mc_gpu_state state, const char *words)
{
	const char *reason = NULL;
	const struct mc_arm_gpu *gpus;

	assert_false(mc_daemon_backend_cuda.ready(&reason));
	assert_int_equal(mc_cuda_state(), state);
	if (!strstr(reason, words))
		fail_msg("\"%s\" is not in \"%s\"", words, reason);
	assert_null(strchr(reason, '\n'));
	assert_int_equal(mc_cuda_gpus(&gpus), 0);
}

static void preload_denial(const char *how)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/libdeny_nodes.so", getenv("MOECOMM_FAKE_CUDA"));
	setenv("LD_PRELOAD", path, 1);
	setenv("DENY_NODES", how, 1);
	/* a sanitizer's run time wants to be the first library */
	setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
}

static void lists_gpus(void **state)
{
	struct rig *rig = *state;
	const struct mc_arm_gpu *gpus;
	const char *reason;

	assert_int_equal(mc_cuda_state(), MC_GPU_STATE_UNKNOWN);
	rig_start(rig, rig_helper(), 0);
	assert_true(mc_daemon_backend_cuda.ready(&reason));
	assert_string_equal(reason, "");
	assert_int_equal(mc_cuda_gpus(&gpus), 2);
	assert_int_equal(mc_cuda_driver_version(), 13000);
	assert_string_equal(gpus[1].uuid, "GPU-00000000-0000-0000-0000-000000000001");
	assert_string_equal(gpus[1].name, "Fake GPU 1");
	assert_int_equal(gpus[1].memory_bytes, 2ull << 30);
	assert_int_equal(gpus[1].compute_major, 9);
	assert_int_equal(gpus[1].is_mig, 0);
	assert_int_equal(gpus[1].can_arm, 1);
}

static void lists_mig_slices(void **state)
{
	struct rig *rig = *state;
	const struct mc_arm_gpu *gpus;

	setenv("FAKE_CUDA_MIG", "1", 1);
	rig_start(rig, rig_helper(), 0);
	assert_int_equal(mc_cuda_gpus(&gpus), 2);
	assert_string_equal(gpus[0].uuid, "MIG-00000000-0000-0000-0000-000000000000");
	assert_int_equal(gpus[0].is_mig, 1);
}

static void one_bad_gpu_hides_no_other(void **state)
{
	struct rig *rig = *state;
	const struct mc_arm_gpu *gpus;

	setenv("FAKE_CUDA_FAIL", "cuDeviceTotalMem_v2:1:999", 1);
	rig_start(rig, rig_helper(), 0);
	assert_int_equal(mc_cuda_state(), MC_GPU_STATE_OK);
	assert_int_equal(mc_cuda_gpus(&gpus), 1);
	assert_string_equal(gpus[0].name, "Fake GPU 1");
}

static void no_driver(void **state)
{
	struct rig *rig = *state;

	setenv("LD_LIBRARY_PATH", "/nonexistent", 1);
	rig_start(rig, rig_helper(), 0);
	if (mc_cuda_state() != MC_GPU_STATE_NO_DRIVER && access("/dev/nvidiactl", F_OK) == 0)
		skip(); /* this machine has a driver of its own */
	assert_not_ready(MC_GPU_STATE_NO_DRIVER, "no NVIDIA driver: libcuda.so.1");
}

static void no_nodes(void **state)
{
	struct rig *rig = *state;

	if (access("/dev/nvidiactl", F_OK) == 0)
		skip();
	setenv("FAKE_CUDA_GPUS", "0", 1);
	rig_start(rig, rig_helper(), 0);
	assert_not_ready(MC_GPU_STATE_NO_NODES, "no device node: open /dev/nvidiactl");
	assert_not_ready(MC_GPU_STATE_NO_NODES, "CUDA_ERROR_NO_DEVICE");
}

static void denied_by_sandbox(void **state)
{
	struct rig *rig = *state;

	setenv("FAKE_CUDA_GPUS", "0", 1);
	preload_denial("EPERM");
	rig_start(rig, rig_helper(), 0);
	assert_not_ready(MC_GPU_STATE_DENIED, "device access denied by sandbox");
	rig_stop(rig);
	preload_denial("EACCES");
	rig_start(rig, rig_helper(), 0);
	assert_not_ready(MC_GPU_STATE_DENIED, "DeviceAllow=char-nvidia* rw");
}

static void no_gpu(void **state)
{
	struct rig *rig = *state;

	setenv("FAKE_CUDA_GPUS", "0", 1);
	preload_denial("OPEN");
	rig_start(rig, rig_helper(), 0);
	assert_not_ready(MC_GPU_STATE_NO_GPU, "shows no GPU");
}

static void driver_error(void **state)
{
	struct rig *rig = *state;

	setenv("FAKE_CUDA_FAIL", "cuInit:1:802", 1);
	preload_denial("OPEN");
	rig_start(rig, rig_helper(), 0);
	assert_not_ready(MC_GPU_STATE_ERROR, "cuInit: CUDA_ERROR_UNKNOWN (802");
}

static unsigned n_changes;

static void count_change(void *data)
{
	(void)data;
	n_changes++;
}

static void becomes_ready_when_nodes_appear(void **state)
{
	struct rig *rig = *state;
	struct mc_cuda_options options = {
		.helper_path = rig_helper(), .retry_ms = 50, .changed = count_change};
	bool never = false;

	n_changes = 0;
	setenv("FAKE_CUDA_GPUS", "0", 1);
	assert_int_equal(mc_cuda_start(&rig->loop, &options), 0);
	assert_int_equal(n_changes, 0);
	rig_wait(rig, &never, 800);
	assert_true(mc_cuda_known());
	assert_true(mc_cuda_state() != MC_GPU_STATE_OK);
	/* several looks with one outcome are one change */
	assert_int_equal(n_changes, 1);
	setenv("FAKE_CUDA_GPUS", "1", 1);
	assert_true(rig_wait_state(rig, MC_GPU_STATE_OK, 10000));
	assert_int_equal(n_changes, 2);
	/* ready: nobody looks again */
	setenv("FAKE_CUDA_GPUS", "0", 1);
	rig_wait(rig, &never, 300);
	assert_int_equal(mc_cuda_state(), MC_GPU_STATE_OK);
	/* until something suggests it */
	mc_cuda_look_again();
	assert_true(rig_wait_state(rig, MC_GPU_STATE_NO_NODES, 10000) ||
		    access("/dev/nvidiactl", F_OK) == 0);
	assert_int_equal(n_changes, 3);
}

static void hung_look_blocks_nothing(void **state)
{
	struct rig *rig = *state;
	struct mc_cuda_options options = {.helper_path = rig_helper(), .probe_timeout_ms = 700};
	uint64_t longest = 0, before = mc_now_ms(), end = before + 5000;

	setenv("FAKE_CUDA_HANG", "cuInit", 1);
	assert_int_equal(mc_cuda_start(&rig->loop, &options), 0);
	while (!mc_cuda_known() && mc_now_ms() < end) {
		uint64_t t = mc_now_ms();

		uv_run(&rig->loop, UV_RUN_NOWAIT);
		if (mc_now_ms() - t > longest)
			longest = mc_now_ms() - t;
		usleep(1000);
	}
	assert_not_ready(MC_GPU_STATE_ERROR, "did not answer within 700 ms");
	/* starting a process is all that the loop may wait for */
	assert_in_range(longest, 0, 250);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
	const struct CMUnitTest tests[] = {
		TEST(lists_gpus),
		TEST(lists_mig_slices),
		TEST(one_bad_gpu_hides_no_other),
		TEST(no_driver),
		TEST(no_nodes),
		TEST(denied_by_sandbox),
		TEST(no_gpu),
		TEST(driver_error),
		TEST(becomes_ready_when_nodes_appear),
		TEST(hung_look_blocks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
