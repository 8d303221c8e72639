/* SPDX-License-Identifier: Apache-2.0 */
/* What befalls the daemon; and what is left after everything. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "gpu/life/stage.h"

#define N_FDS(w) (1u + 2u * (unsigned)(w))

/* ---- the daemon ---- */

static void expect_nobody_noticed(uint64_t epoch)
{
	for (int r = 0; r < stage.life.world_size; r++) {
		assert_int_equal(atomic_load(&stage.life.view[r].n_failed), 0);
		assert_int_equal(atomic_load(&stage.life.view[r].n_wrong), 0);
		assert_int_equal(atomic_load(&stage.life.view[r].epoch), epoch);
	}
}

void test_daemon_restarted_under_replay(void **state)
{
	uint64_t epoch;
	int64_t begun;

	(void)state;
	life_start(&stage.life, true);
	epoch = stage_epoch();
	mc_fd_store_wait_count(&stage.store, "e", N_FDS(stage.life.world_size), 20000);
	for (int i = 0; i < 3; i++) {
		mc_test_daemon_kill(&stage.daemon);
		life_wait_connected(&stage.life, false);
		life_wait_rounds(&stage.life, 50);
		begun = life_now_ns();
		mc_fd_store_restart(&stage.store, &stage.daemon);
		life_wait_connected(&stage.life, true);
		print_message("  the daemon's start to all ranks known again: %.0f ms\n",
			stage_ms(begun, life_now_ns()));
		life_wait_rounds(&stage.life, 50);
		expect_nobody_noticed(epoch);
	}
	/* and it still watches: what came from the store serves like the original */
	stage_kill_one(1);
	life_start_one(&stage.life, 1, true);
	for (int r = 0; r < stage.life.world_size; r++)
		if (r != 1)
			life_command(&stage.life, r, LIFE_REJOIN);
	life_wait_rounds(&stage.life, 20);
	assert_true(stage_epoch() > epoch);
	life_stop(&stage.life);
	mc_fd_store_wait_count(&stage.store, "e", 0, 20000);
}

/* Last: the daemon does not come back. */
void test_daemon_killed_for_good(void **state)
{
	uint64_t epoch;

	(void)state;
	mc_test_wait_fds(stage.daemon.pid, stage.n_daemon_fds, 10000);
	life_start(&stage.life, true);
	epoch = stage_epoch();
	mc_test_daemon_kill(&stage.daemon);
	life_wait_connected(&stage.life, false);
	life_wait_rounds(&stage.life, 200);
	expect_nobody_noticed(epoch);
	life_stop(&stage.life);
	mc_fd_store_clear(&stage.store);
}

/* After everything: what the GPUs' memory is used for is as before. */
void test_memory_is_back(void **state)
{
	char *after, *at_before, *at_after;
	int n = 0;

	(void)state;
	/* the driver takes a moment to give back what a process left */
	for (int i = 0; i < 20; i++) {
		long worst = 0;

		after = life_ask_self("--memory");
		at_before = stage.memory_before;
		at_after = after;
		for (n = 0; n < stage.life.n_devices; n++) {
			long lost =
				strtol(at_before, &at_before, 10) - strtol(at_after, &at_after, 10);

			worst = lost > worst ? lost : worst;
		}
		print_message("  free MiB before %s, after %s\n", stage.memory_before, after);
		free(after);
		if (worst <= stage.memory_slack_mib)
			return;
		life_sleep_us(500000);
	}
	fail_msg("device memory is not back at the baseline");
}
