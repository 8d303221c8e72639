/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the cuda backend ends an epoch, under a driver of ours: whatever runs on the device, it ends
 * in the time it is given. The CUDA runtime is not linked here: a thread without a context of its
 * own that called it would make one, of GPU 0.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/backends/cuda/rank.h"
#include "client/moecomm.h"

/* Time that a loaded machine of two cores may add to a bound. */
#define SLACK_MS 2000
#define CONTROL  UINT64_C(0x100000)

/* A device on which something runs until it is told, or for as long as the test likes. */
static struct {
	atomic_bool runs;
	bool leaves_when_told;
	atomic_int n_told;
	atomic_int n_pushed; /* contexts that are current now */
	uint32_t status;
} device;

int mc_driver_error(const struct mc_driver *cu, CUresult result, const char *call, const char *what,
	uint32_t rank, struct mc_backend_error *ret_error)
{
	(void)cu, (void)result, (void)call, (void)what, (void)rank, (void)ret_error;
	return 1;
}

static CUresult push(CUcontext context)
{
	(void)context;
	atomic_fetch_add(&device.n_pushed, 1);
	return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *ret_context)
{
	*ret_context = NULL;
	atomic_fetch_sub(&device.n_pushed, 1);
	return CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
	while (atomic_load(&device.runs))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *io_mode)
{
	(void)io_mode;
	return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, const void *from, size_t n_bytes, CUstream stream)
{
	(void)stream;
	assert_int_equal(to, CONTROL + offsetof(struct mc_control, failed));
	assert_int_equal(n_bytes, sizeof(uint32_t));
	assert_true(atomic_load(&device.n_pushed) > 0);
	memcpy(&device.status, from, sizeof(device.status));
	atomic_fetch_add(&device.n_told, 1);
	if (device.leaves_when_told)
		atomic_store(&device.runs, false);
	return CUDA_SUCCESS;
}

static CUresult query(CUstream stream)
{
	(void)stream;
	return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr at, size_t n_bytes)
{
	(void)at, (void)n_bytes;
	return CUDA_SUCCESS;
}

static struct mc_driver driver = {
	.cuCtxPushCurrent = push,
	.cuCtxPopCurrent = pop,
	.cuCtxSynchronize = synchronize,
	.cuThreadExchangeStreamCaptureMode = exchange_mode,
	.cuMemcpyHtoDAsync = copy,
	.cuStreamQuery = query,
	.cuMemUnmap = unmap,
};
static struct mc_pinned pinned;
static struct mc_backend_rank rank;

static int setup(void **state)
{
	(void)state;
	/* a thread of the last test may still be about to end */
	atomic_store(&device.runs, false);
	atomic_store(&device.n_told, 0);
	device.leaves_when_told = false;
	memset(&rank, 0, sizeof(rank));
	pthread_mutex_init(&rank.lock, NULL);
	rank.cu = &driver;
	rank.pinned = &pinned;
	/* its place is taken already by the block of no epoch, so that nothing is mapped */
	rank.control.at = CONTROL;
	rank.stale_mapped = true;
	rank.mapped = true;
	return 0;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

static int64_t unmap_ms(uint32_t timeout_ms)
{
	int64_t begun = now_ms();

	mc_rank_unmap(&rank, timeout_ms);
	return now_ms() - begun;
}

static void an_idle_device_is_left_at_once(void **state)
{
	(void)state;
	assert_true(unmap_ms(3000) < SLACK_MS);
	assert_false(rank.stuck || rank.mapped);
	assert_int_equal(device.n_told, 0);
}

static void ops_that_wait_are_told(void **state)
{
	int64_t ms;

	(void)state;
	atomic_store(&device.runs, true);
	device.leaves_when_told = true;
	ms = unmap_ms(1000);
	assert_true(ms >= 500 && ms < 500 + SLACK_MS);
	assert_int_equal(device.n_told, 1);
	assert_int_equal(device.status, MC_FAULT_ABORTED);
	assert_false(rank.stuck || rank.mapped);
}

/* Another group's op, or the program's own kernel: it is not waited for beyond the time. */
static void foreign_work_costs_no_more_than_the_time(void **state)
{
	(void)state;
	atomic_store(&device.runs, true);
	assert_true(unmap_ms(600) < 600 + SLACK_MS);
	assert_true(rank.stuck);
	/* and once more, by the close that follows */
	assert_true(unmap_ms(100) < 100 + SLACK_MS);
	assert_true(rank.stuck);
	assert_int_equal(device.n_told, 1);
	/* it ends: then the memory can go */
	atomic_store(&device.runs, false);
	assert_true(unmap_ms(3000) < SLACK_MS);
	assert_false(rank.stuck);
}

/* What was replayed between the epochs is let go before the next one takes the block's place. */
static void an_epoch_is_not_mapped_under_what_still_runs(void **state)
{
	struct mc_backend_epoch epoch = {.layout = {.world_size = 2}, .ranks_per_device = 1};
	struct mc_backend_error error = {.text = ""};
	uint32_t peer;
	int64_t begun;

	(void)state;
	rank.mapped = false;
	rank.granularity = 1;
	atomic_store(&device.runs, true);
	begun = now_ms();
	assert_int_equal(mc_rank_map(&rank, &epoch, &peer, &error), MOECOMM_DEVICE);
	assert_true(now_ms() - begun < 2000 + SLACK_MS);
	assert_non_null(strstr(error.text, "between the epochs"));
	assert_true(rank.stale_mapped);
	assert_false(rank.mapped);
	/* nobody is told: these ops are not ours to end, and leave by themselves */
	assert_int_equal(device.n_told, 0);
	atomic_store(&device.runs, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(an_idle_device_is_left_at_once, setup),
		cmocka_unit_test_setup(ops_that_wait_are_told, setup),
		cmocka_unit_test_setup(foreign_work_costs_no_more_than_the_time, setup),
		cmocka_unit_test_setup(an_epoch_is_not_mapped_under_what_still_runs, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
