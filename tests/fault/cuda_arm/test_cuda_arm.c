/* SPDX-License-Identifier: Apache-2.0 */
/* Arming GPU memory through the helper and a fake driver: what is made, and every way it can fail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault/cuda_arm/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/log.h"
#include "proto/status.h"

#define MIB (1u << 20)

static uint64_t size_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_size;
}

static void assert_on_gpu(int fd, unsigned gpu)
{
	char link[64], target[256], wanted[32];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, target, sizeof(target) - 1);
	assert_true(n > 0);
	target[n] = 0;
	snprintf(wanted, sizeof(wanted), "fake-gpu-%u", gpu);
	assert_non_null(strstr(target, wanted));
}

static void assert_filled(int fd, uint64_t from, const struct mc_vector *sentinel)
{
	uint64_t n_bytes = size_of(fd);
	const unsigned char *memory = mmap(NULL, n_bytes, PROT_READ, MAP_SHARED, fd, 0);

	assert_true(memory != MAP_FAILED);
	for (uint64_t i = from; i < n_bytes; i += sizeof(*sentinel)) {
		if (memcmp(memory + i, sentinel, sizeof(*sentinel)) != 0)
			fail_msg("byte %llu is not the sentinel", (unsigned long long)i);
	}
	munmap((void *)memory, n_bytes);
}

static void makes_all_memory(void **state)
{
	struct rig *rig = *state;
	struct mc_arm_request request;
	struct rig_outcome outcome;

	rig_start(rig, rig_helper(), 0);
	/* more than the 4 MiB chunk, and no multiple of it */
	rig_request(&request, 3, 11 * MIB + 5);
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, 0);
	assert_int_equal(outcome.result.arena_bytes, 12 * MIB);
	for (unsigned rank = 0; rank < 3; rank++) {
		int fd = outcome.result.arena_fd[rank];
		struct mc_control *control;

		assert_int_equal(size_of(fd), 12 * MIB);
		assert_on_gpu(fd, rank % 2);
		assert_filled(fd, 0, &request.sentinel);
		assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);

		fd = outcome.result.control_fd[rank];
		assert_on_gpu(fd, rank % 2);
		assert_int_equal(size_of(fd), 2 * MIB);
		assert_filled(fd, MC_CONTROL_BYTES, &request.sentinel);
		control = mmap(NULL, MC_CONTROL_BYTES, PROT_READ, MAP_SHARED, fd, 0);
		assert_int_equal(control->canary_head, MC_CANARY_HEAD);
		assert_int_equal(control->canary_tail, MC_CANARY_TAIL);
		assert_int_equal(control->rank, rank);
		assert_int_equal(control->world_size, 3);
		assert_int_equal(control->epoch, 77);
		assert_int_equal(control->channel[0].call, 1);
		assert_memory_equal(&control->sentinel, &request.sentinel, 16);
		munmap(control, MC_CONTROL_BYTES);
	}
	assert_int_equal(outcome.result.arena_fd[3], -1);
	assert_int_equal(outcome.result.control_fd[3], -1);

	struct mc_board *board =
		mmap(NULL, MC_BOARD_BYTES, PROT_READ, MAP_SHARED, outcome.result.board_fd, 0);
	assert_true(board != MAP_FAILED);
	assert_int_equal(board->magic, MC_BOARD_MAGIC);
	assert_int_equal(board->epoch, 77);
	assert_int_equal(board->wait.op_timeout_ms, 4321);
	munmap(board, MC_BOARD_BYTES);
	/* no member may shorten what the others map */
	assert_int_equal(ftruncate(outcome.result.board_fd, 0), -1);
	rig_close(&outcome);
}

static void rounds_to_the_granularity(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *granularity;
		uint64_t allocated;
	} cases[] = {
		{1, "0x200000", 2 * MIB},
		{2 * MIB - 1, "0x200000", 2 * MIB},
		{2 * MIB, "0x200000", 2 * MIB},
		{2 * MIB + 1, "0x200000", 4 * MIB},
		{4096, "0x1000", 4096},
		{65537, "0x10000", 131072},
	};
	struct rig *rig = *state;

	rig_start(rig, rig_helper(), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mc_arm_request request;
		struct rig_outcome outcome;

		setenv("FAKE_CUDA_GRANULARITY", cases[i].granularity, 1);
		rig_request(&request, 1, cases[i].bytes);
		rig_arm(rig, &request, &outcome);
		assert_int_equal(outcome.status, 0);
		assert_int_equal(outcome.result.arena_bytes, cases[i].allocated);
		assert_int_equal(size_of(outcome.result.arena_fd[0]), cases[i].allocated);
		rig_close(&outcome);
	}
	setenv("FAKE_CUDA_GRANULARITY", "3000", 1);
	struct mc_arm_request request;
	struct rig_outcome outcome;

	rig_request(&request, 1, 100);
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, MC_STATUS_DEVICE);
	assert_non_null(strstr(outcome.detail, "3000 bytes, which is no granularity"));
}

static void hands_over_fds_of_64_ranks(void **state)
{
	struct rig *rig = *state;
	struct mc_arm_request request;
	struct rig_outcome outcome;

	setenv("FAKE_CUDA_GRANULARITY", "0x1000", 1);
	rig_start(rig, rig_helper(), 0);
	rig_request(&request, MC_MAX_WORLD_SIZE, 4096);
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, 0);
	for (unsigned rank = 0; rank < MC_MAX_WORLD_SIZE; rank++)
		assert_int_equal(size_of(outcome.result.arena_fd[rank]), 4096);
	rig_close(&outcome);
}

static void tells_the_drivers_words(void **state)
{
	static const struct {
		const char *fail; /* call:nth:code */
		int status;
		const char *words[3];
	} cases[] = {
		{"cuInit:1:999", MC_STATUS_DEVICE,
			{"cuInit: CUDA_ERROR_UNKNOWN", "(999, unknown error)"}},
		{"cuMemGetAllocationGranularity:2:999", MC_STATUS_DEVICE,
			{"rank 1", "GPU-00000000-0000-0000-0000-000000000001",
				"cuMemGetAllocationGranularity"}},
		{"cuDevicePrimaryCtxRetain:2:999", MC_STATUS_DEVICE,
			{"rank 1", "cuDevicePrimaryCtxRetain"}},
		{"cuCtxSetCurrent:1:999", MC_STATUS_DEVICE, {"rank 0", "cuCtxSetCurrent"}},
		{"cuMemAllocHost_v2:1:2", MC_STATUS_NO_MEMORY, {"cuMemAllocHost", "out of memory"}},
		{"cuMemCreate:3:2", MC_STATUS_NO_MEMORY,
			{"control block of rank 1", "12345 free", "CUDA_ERROR_OUT_OF_MEMORY"}},
		{"cuMemCreate:4:999", MC_STATUS_DEVICE, {"arena of rank 1", "cuMemCreate"}},
		{"cuMemAddressReserve:1:999", MC_STATUS_DEVICE, {"cuMemAddressReserve"}},
		{"cuMemMap:2:999", MC_STATUS_DEVICE, {"arena of rank 0", "cuMemMap"}},
		{"cuMemSetAccess:1:999", MC_STATUS_DEVICE, {"cuMemSetAccess"}},
		{"cuMemcpyHtoD_v2:1:999", MC_STATUS_DEVICE, {"cuMemcpyHtoD"}},
		{"cuMemcpyDtoD_v2:1:999", MC_STATUS_DEVICE, {"cuMemcpyDtoD"}},
		{"cuMemcpyDtoH_v2:1:999", MC_STATUS_DEVICE, {"cuMemcpyDtoH"}},
		{"cuCtxSynchronize:1:999", MC_STATUS_DEVICE, {"cuCtxSynchronize"}},
		{"cuMemExportToShareableHandle:4:999", MC_STATUS_DEVICE,
			{"arena of rank 1", "cuMemExportToShareableHandle"}},
	};
	struct rig *rig = *state;

	rig_start(rig, rig_helper(), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mc_arm_request request;
		struct rig_outcome outcome;

		setenv("FAKE_CUDA_FAIL", cases[i].fail, 1);
		rig_request(&request, 2, 9 * MIB);
		rig_arm(rig, &request, &outcome);
		if (outcome.status != cases[i].status)
			fail_msg("%s: status %d, detail %s", cases[i].fail, outcome.status,
				outcome.detail);
		for (size_t w = 0; w < 3 && cases[i].words[w]; w++) {
			if (!strstr(outcome.detail, cases[i].words[w]))
				fail_msg("%s: \"%s\" is not in \"%s\"", cases[i].fail,
					cases[i].words[w], outcome.detail);
		}
	}
}

static void finds_memory_that_does_not_hold(void **state)
{
	struct rig *rig = *state;
	struct mc_arm_request request;
	struct rig_outcome outcome;

	rig_start(rig, rig_helper(), 0);
	rig_request(&request, 1, 12 * MIB);
	/* the first read-back is the control block's, then three chunks of the arena */
	for (int nth = 1; nth <= 4; nth++) {
		char text[8];

		snprintf(text, sizeof(text), "%d", nth);
		setenv("FAKE_CUDA_FLIP", text, 1);
		rig_arm(rig, &request, &outcome);
		assert_int_equal(outcome.status, MC_STATUS_DEVICE);
		assert_non_null(strstr(outcome.detail, "does not hold what was written"));
		assert_non_null(strstr(outcome.detail, nth == 1 ? "control block" : "arena"));
	}
}

static void refuses_devices_it_can_not_use(void **state)
{
	struct rig *rig = *state;
	struct mc_arm_request request;
	struct rig_outcome outcome;

	rig_start(rig, rig_helper(), 0);
	rig_request(&request, 2, 4096);
	strcpy(request.device_uuid[1], "GPU-00000000-0000-0000-0000-0000000000ff");
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, MC_STATUS_TOPOLOGY);
	assert_non_null(strstr(outcome.detail, "0000ff of rank 1 is not among the 2 GPUs"));

	strcpy(request.device_uuid[1], "GPU-zebra");
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, MC_STATUS_INVALID);
	assert_non_null(strstr(outcome.detail, "rank 1 gave no GPU UUID but \"GPU-zebra\""));

	request.device_uuid[1][0] = 0;
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, MC_STATUS_INVALID);

	rig_request(&request, 2, 4096);
	setenv("FAKE_CUDA_NO_VMM", "1", 1);
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, MC_STATUS_TOPOLOGY);
	assert_non_null(strstr(outcome.detail, "can't share memory through file descriptors"));
}

static void mig_slices_stay_alone(void **state)
{
	struct rig *rig = *state;
	struct mc_arm_request request;
	struct rig_outcome outcome;

	setenv("FAKE_CUDA_MIG", "1", 1);
	rig_start(rig, rig_helper(), 0);
	rig_request(&request, 2, 4096);
	memcpy(request.device_uuid[0], "MIG", 3);
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, MC_STATUS_TOPOLOGY);

	memcpy(request.device_uuid[1], "MIG", 3);
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, MC_STATUS_TOPOLOGY);
	assert_non_null(strstr(outcome.detail, "MIG slices can't reach each other"));

	strcpy(request.device_uuid[1], request.device_uuid[0]);
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, 0);
	rig_close(&outcome);

	/* the driver shows a slice only to who asks for it */
	setenv("FAKE_CUDA_SHOW", "CUDA_VISIBLE_DEVICES", 1);
	setenv("FAKE_CUDA_CRASH", "cuDeviceGetCount", 1);
	rig_arm(rig, &request, &outcome);
	assert_non_null(strstr(outcome.detail,
		"CUDA_VISIBLE_DEVICES is MIG-00000000-0000-0000-0000-000000000000"));
}

static void environment_hides_no_gpu(void **state)
{
	struct rig *rig = *state;
	struct mc_arm_request request;
	struct rig_outcome outcome;

	rig_start(rig, rig_helper(), 0);
	rig_request(&request, 1, 4096);
	setenv("CUDA_VISIBLE_DEVICES", "7", 1);
	setenv("FAKE_CUDA_SHOW", "CUDA_VISIBLE_DEVICES", 1);
	setenv("FAKE_CUDA_CRASH", "cuDeviceGetCount", 1);
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, MC_STATUS_DEVICE);
	assert_non_null(strstr(outcome.detail, "CUDA_VISIBLE_DEVICES is not set"));
}

static void crash_is_told(void **state)
{
	struct rig *rig = *state;
	struct mc_arm_request request;
	struct rig_outcome outcome;

	rig_start(rig, rig_helper(), 0);
	rig_request(&request, 1, 4096);
	setenv("FAKE_CUDA_CRASH", "cuMemMap:2", 1);
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, MC_STATUS_DEVICE);
	assert_non_null(strstr(outcome.detail, "signal 11"));
}

static void hang_ends_at_the_deadline(void **state)
{
	struct rig *rig = *state;
	struct mc_arm_request request;
	struct rig_outcome outcome;
	uint64_t t0;

	rig_start(rig, rig_helper(), 0);
	rig_request(&request, 2, 4096);
	request.timeout_ms = 1000;
	setenv("FAKE_CUDA_HANG", "cuMemCreate:2", 1);
	t0 = mc_now_ms();
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, MC_STATUS_DEVICE);
	assert_non_null(strstr(outcome.detail, "did not answer within 1000 ms and was killed"));
	assert_non_null(strstr(outcome.detail, "cuMemCreate hangs"));
	/* a timer counts from when the loop last looked at the clock */
	assert_in_range(mc_now_ms() - t0, 900, 8000);
	unsetenv("FAKE_CUDA_HANG");
	/* nothing of the failed run is in the way of the next */
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, 0);
	rig_close(&outcome);
}

static void cancelled_run_is_killed_and_isolated(void **state)
{
	struct rig *rig = *state;
	struct mc_arm_request request;
	struct rig_outcome outcome = {0};
	struct mc_arm *arm = NULL;
	const char *detail;
	char path[64];
	int leaked = open("/dev/zero", O_RDONLY); /* deliberately without O_CLOEXEC */
	int pid = 0;
	bool never = false;

	rig_start(rig, rig_helper(), 0);
	/* let the first look's process go */
	for (int i = 0; i < 3000 && rig_child(); i++)
		rig_wait(rig, &never, 1);
	rig_request(&request, 1, 4096);
	setenv("FAKE_CUDA_HANG", "cuDeviceGetCount", 1);
	assert_int_equal(
		mc_daemon_backend_cuda.arm(&rig->loop, &request, rig_done, &outcome, &arm, &detail),
		0);
	rig_wait(rig, &never, 500);
	pid = rig_child();
	assert_true(pid > 0);
	assert_int_equal(getpgid(pid), pid);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, leaked);
	assert_int_equal(access(path, F_OK), -1);
	close(leaked);
	mc_daemon_backend_cuda.cancel(arm);
	/* ends only when the process is reaped and all handles are closed */
	rig_stop(rig);
	assert_false(outcome.called);
	assert_int_equal(kill(pid, 0), -1);
	assert_int_equal(errno, ESRCH);
}

static void fd_limit_is_told(void **state)
{
	struct rig *rig = *state;
	struct mc_arm_request request;
	struct rig_outcome outcome;
	struct rlimit before, low;

	setenv("FAKE_CUDA_GRANULARITY", "0x1000", 1);
	rig_start(rig, rig_helper(), 0);
	rig_request(&request, 32, 4096);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	low = before;
	low.rlim_cur = (rlim_t)rig_count_fds() + 30;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	/* the helper inherits the limit; it needs fewer than it takes: its own 64 do not fit either
	 */
	rig_arm(rig, &request, &outcome);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_true(outcome.status != 0);
	assert_true(outcome.detail[0] != 0);
}

static void missing_helper_is_told(void **state)
{
	struct rig *rig = *state;
	struct mc_arm_request request;
	struct rig_outcome outcome;
	const char *reason;

	rig_start(rig, "/nonexistent/moecomm-arm", 0);
	assert_false(mc_daemon_backend_cuda.ready(&reason));
	assert_int_equal(mc_cuda_state(), MC_GPU_STATE_NO_HELPER);
	assert_non_null(strstr(reason, "/nonexistent/moecomm-arm"));
	rig_request(&request, 1, 4096);
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, MC_STATUS_SYSTEM);
	assert_non_null(strstr(outcome.detail, "arm_helper"));
}

static void foreign_helper_is_told(void **state)
{
	struct rig *rig = *state;
	struct mc_arm_request request;
	struct rig_outcome outcome;

	rig_start(rig, "/bin/false", 0);
	assert_int_equal(mc_cuda_state(), MC_GPU_STATE_ERROR);
	rig_request(&request, 1, 4096);
	rig_arm(rig, &request, &outcome);
	assert_int_equal(outcome.status, MC_STATUS_DEVICE);
	assert_non_null(strstr(outcome.detail, "ended with status 1 and no reply"));
}

static void repeats_without_a_leak(void **state)
{
	struct rig *rig = *state;
	struct mc_arm_request request;
	struct rig_outcome outcome;

	setenv("FAKE_CUDA_GRANULARITY", "0x1000", 1);
	rig_start(rig, rig_helper(), 0);
	rig_request(&request, 2, 4096);
	for (int i = 0; i < 30; i++) {
		if (i % 3 == 2)
			setenv("FAKE_CUDA_FAIL", "cuMemMap:3:999", 1);
		else
			unsetenv("FAKE_CUDA_FAIL");
		rig_arm(rig, &request, &outcome);
		assert_int_equal(outcome.status, i % 3 == 2 ? MC_STATUS_DEVICE : 0);
		rig_close(&outcome);
	}
	/* teardown counts the fds */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
	const struct CMUnitTest tests[] = {
		TEST(makes_all_memory),
		TEST(rounds_to_the_granularity),
		TEST(hands_over_fds_of_64_ranks),
		TEST(tells_the_drivers_words),
		TEST(finds_memory_that_does_not_hold),
		TEST(refuses_devices_it_can_not_use),
		TEST(mig_slices_stay_alone),
		TEST(environment_hides_no_gpu),
		TEST(crash_is_told),
		TEST(hang_ends_at_the_deadline),
		TEST(cancelled_run_is_killed_and_isolated),
		TEST(fd_limit_is_told),
		TEST(missing_helper_is_told),
		TEST(foreign_helper_is_told),
		TEST(repeats_without_a_leak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
