/* SPDX-License-Identifier: Apache-2.0 */
/* A process without a connection is watched, and a later one of its number is not taken for it. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>
#include <cmocka.h>
#include "daemon/state/watch.h"
#include "support/fd_count.h"

static pid_t start_child(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* the file that tells the time puts this name in front of it */
		prctl(PR_SET_NAME, ") R 1 (2 3) 4");
		for (;;)
			pause();
	}
	mc_test_sleep_ms(20);
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void count(void *data)
{
	(*(int *)data)++;
}

static void the_start_time_is_read(void **state)
{
	uint64_t mine = mc_process_start_time((uint32_t)getpid()), later;
	pid_t child;

	(void)state;
	assert_true(mine > 0);
	assert_int_equal(mc_process_start_time((uint32_t)getpid()), mine);
	assert_int_equal(mc_process_start_time(0), 0);
	assert_int_equal(mc_process_start_time(UINT32_MAX), 0);
	child = start_child();
	later = mc_process_start_time((uint32_t)child);
	assert_true(later >= mine);
	assert_true(later < mine + 100000u);
	end_child(child);
	assert_int_equal(mc_process_start_time((uint32_t)child), 0);
}

static void an_end_is_told_once(void **state)
{
	struct mc_watch *watch = NULL;
	size_t n_fds;
	uv_loop_t loop;
	int n = 0;
	pid_t child;

	(void)state;
	assert_int_equal(uv_loop_init(&loop), 0);
	n_fds = mc_test_count_fds(0);
	child = start_child();
	assert_int_equal(mc_watch_new(&loop, (uint32_t)child,
				 mc_process_start_time((uint32_t)child), count, &n, &watch),
		0);
	uv_run(&loop, UV_RUN_NOWAIT);
	assert_int_equal(n, 0);
	end_child(child);
	for (int i = 0; i < 200 && !n; i++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		mc_test_sleep_ms(5);
	}
	assert_int_equal(n, 1);
	uv_run(&loop, UV_RUN_NOWAIT);
	assert_int_equal(n, 1);
	assert_null(mc_watch_free(watch));
	/* freed before the end: nothing is told */
	child = start_child();
	assert_int_equal(mc_watch_new(&loop, (uint32_t)child, 0, count, &n, &watch), 0);
	assert_null(mc_watch_free(watch));
	end_child(child);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(n, 1);
	assert_int_equal(mc_test_count_fds(0), n_fds);
	assert_int_equal(uv_loop_close(&loop), 0);
	assert_null(mc_watch_free(NULL));
}

static void another_process_of_that_number_is_not_it(void **state)
{
	struct mc_watch *watch = NULL;
	pid_t child = start_child();
	uint64_t start = mc_process_start_time((uint32_t)child);
	uv_loop_t loop;
	int n = 0;

	(void)state;
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(
		mc_watch_new(&loop, (uint32_t)child, start + 1, count, &n, &watch), -ESRCH);
	end_child(child);
	assert_int_equal(mc_watch_new(&loop, (uint32_t)child, start, count, &n, &watch), -ESRCH);
	/* one that our pid namespace can't see can't be watched, which is no proof of its end */
	assert_int_equal(mc_watch_new(&loop, 0, 0, count, &n, &watch), -ENOTSUP);
	assert_null(watch);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_start_time_is_read),
		cmocka_unit_test(an_end_is_told_once),
		cmocka_unit_test(another_process_of_that_number_is_not_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
