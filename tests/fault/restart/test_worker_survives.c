/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moecomm-worker --rejoin through everything at once: ranks and the daemon are killed, in turn and
 * together, and every rank ends well with all of its layers verified. Without --rejoin a worker
 * ends with the failure's sentence.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "integration/program.h"
#include "support/daemon_process.h"
#include "support/fd_count.h"
#include "support/fd_store.h"

#define N_RANKS 4
#define END_MS  60000

static struct mc_fd_store store;
static struct mc_test_daemon daemon_;
static struct program ranks[N_RANKS];

static int set_up(void **state)
{
	(void)state;
	mc_fd_store_open(&store, 1000);
	mc_fd_store_start(&store, &daemon_, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (int r = 0; r < N_RANKS; r++)
		program_clear(&ranks[r]);
	mc_test_daemon_finish(&daemon_);
	mc_fd_store_close(&store);
	return 0;
}

static void start(int rank, const char *rejoin)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", rank);
	program_start(&ranks[rank],
		(const char *const[]){"moecomm-worker", "--socket", daemon_.socket, "--group",
			"layers", "--rank", number, "--world-size", "4", "--backend", "host",
			"--check", "--ragged", "--rounds", "150", "--pause", "20", "--hidden", "32",
			"--tokens", "4", "--layers", "2", "--progress", rejoin, NULL});
}

static void kill_rank(int rank)
{
	program_signal(&ranks[rank], SIGKILL);
	program_clear(&ranks[rank]);
}

static void goes_on_through_everything(void **state)
{
	(void)state;
	for (int r = 0; r < N_RANKS; r++)
		start(r, "--rejoin");
	for (int r = 0; r < N_RANKS; r++)
		program_expect_out(&ranks[r], "round", END_MS);
	/* the daemon alone: nobody notices */
	mc_test_daemon_kill(&daemon_);
	mc_fd_store_restart(&store, &daemon_);
	mc_test_sleep_ms(300);
	for (int r = 0; r < N_RANKS; r++) {
		char *err = program_err(&ranks[r]);

		assert_string_equal(err, "");
		free(err);
	}
	/* a rank alone, then both at once, then two ranks while the daemon is away */
	kill_rank(1);
	start(1, "--rejoin");
	program_expect_out(&ranks[1], "joined group layers", END_MS);
	mc_test_daemon_kill(&daemon_);
	kill_rank(2);
	mc_fd_store_restart(&store, &daemon_);
	start(2, "--rejoin");
	program_expect_out(&ranks[2], "joined group layers", END_MS);
	mc_test_daemon_kill(&daemon_);
	kill_rank(0);
	kill_rank(3);
	mc_test_sleep_ms(150);
	start(0, "--rejoin");
	mc_fd_store_restart(&store, &daemon_);
	start(3, "--rejoin");
	for (int r = 0; r < N_RANKS; r++) {
		char *out;

		if (program_wait(&ranks[r], END_MS)) {
			out = program_err(&ranks[r]);
			fail_msg("rank %d ended with status %d: %s", r, ranks[r].status, out);
		}
		out = program_out(&ranks[r]);
		assert_non_null(strstr(out, "verified: "));
		free(out);
	}
}

static void ends_with_the_sentence(void **state)
{
	(void)state;
	for (int r = 0; r < N_RANKS; r++)
		start(r, NULL);
	for (int r = 0; r < N_RANKS; r++)
		program_expect_out(&ranks[r], "round", END_MS);
	kill_rank(2);
	for (int r = 0; r < N_RANKS; r++) {
		char *err;

		if (r == 2)
			continue;
		assert_int_equal(program_wait(&ranks[r], END_MS), 3);
		err = program_err(&ranks[r]);
		assert_non_null(strstr(err, "PEER_LOST (rank 2)"));
		free(err);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(goes_on_through_everything),
		TEST(ends_with_the_sentence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
