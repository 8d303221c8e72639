/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon is killed and started again while four ranks run ops: none of them may notice. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "fault/restart/ranks.h"
#include "support/daemon_process.h"
#include "support/fd_count.h"
#include "support/fd_store.h"
#include "support/wire_client.h"

#define N_RANKS 4
#define N_FDS   (1 + 2 * N_RANKS)

struct stage {
	struct mc_fd_store store;
	struct mc_test_daemon daemon;
	struct ranks ranks;
};

static struct stage stage;

static void begin(const struct ranks_options *more, const char *config)
{
	struct ranks_options options = more ? *more : (struct ranks_options){0};

	mc_fd_store_open(&stage.store, 1000);
	mc_fd_store_start(
		&stage.store, &stage.daemon, &(struct mc_test_daemon_options){.config = config});
	options.socket = stage.daemon.socket;
	options.group = "load";
	options.world_size = N_RANKS;
	/* a machine that is too slow must not look like a rank that is */
	options.op_timeout_ms = 60000;
	ranks_start(&stage.ranks, &options);
}

static void end(void)
{
	ranks_close(&stage.ranks);
	mc_test_daemon_finish(&stage.daemon);
	mc_fd_store_close(&stage.store);
}

/* The group as the daemon tells it. */
static void check_group(uint64_t epoch, uint32_t state)
{
	struct mc_wire_client client;
	struct mc_wire_reply reply;
	Moecomm__Wire__Status *status;

	mc_wire_client_open(&client, stage.daemon.socket, "test");
	status = mc_wire_status(&client, "load", true, true, &reply);
	assert_int_equal(status->n_groups, 1);
	assert_int_equal(status->groups[0]->epoch, epoch);
	assert_int_equal(status->groups[0]->state, state);
	if (state == MC_GROUP_READY) {
		assert_int_equal(status->groups[0]->n_ranks, N_RANKS);
		for (size_t r = 0; r < N_RANKS; r++)
			assert_int_equal(
				status->groups[0]->ranks[r]->member->pid, stage.ranks.pid[r]);
		assert_true(status->groups[0]->arena_bytes > 0);
	}
	mc_wire_reply_clear(&reply);
	mc_wire_client_close(&client);
}

static void expect_lost(int rank, int lost)
{
	const struct rank_view *view = &stage.ranks.view[rank];
	char *log;

	if (atomic_load(&view->status) == MC_STATUS_PEER_LOST &&
		atomic_load(&view->fault_rank) == lost)
		return;
	log = mc_test_daemon_log(&stage.daemon);
	print_message("log of moecommd:\n%s\n", log);
	free(log);
	fail_msg("rank %d heard %d of rank %d: %s", rank, atomic_load(&view->status),
		atomic_load(&view->fault_rank), view->detail);
}

static void check_nobody_noticed(uint64_t epoch)
{
	assert_int_equal(ranks_total_failed(&stage.ranks), 0);
	for (int r = 0; r < N_RANKS; r++) {
		assert_int_equal(atomic_load(&stage.ranks.view[r].epoch), epoch);
		assert_int_equal(atomic_load(&stage.ranks.view[r].n_wrong), 0);
	}
}

static void restarts(bool in_order)
{
	struct ranks_times back = {0}, away = {0}, slowest = {0};
	uint64_t epoch;
	int64_t start;

	begin(NULL, NULL);
	epoch = atomic_load(&stage.ranks.view[0].epoch);
	mc_fd_store_wait_count(&stage.store, "e", N_FDS, 20000);
	for (int i = 0; i < 5; i++) {
		ranks_wait_ops(&stage.ranks, 20, 30000);
		start = ranks_now_ns();
		if (in_order)
			mc_test_daemon_stop(&stage.daemon);
		else
			mc_test_daemon_kill(&stage.daemon);
		ranks_wait(&stage.ranks, rank_is_disconnected, NULL, "saw the daemon go", 20000);
		/* a while without a daemon */
		ranks_wait_ops(&stage.ranks, 50, 30000);
		mc_fd_store_restart(&stage.store, &stage.daemon);
		ranks_time(&away, start, ranks_now_ns());
		start = ranks_now_ns();
		ranks_wait(&stage.ranks, rank_is_connected, NULL, "has come back", 30000);
		ranks_time(&back, start, ranks_now_ns());
		check_nobody_noticed(epoch);
		check_group(epoch, MC_GROUP_READY);
		assert_int_equal(mc_fd_store_count(&stage.store, "e"), N_FDS);
		mc_fd_store_wait_count(&stage.store, "s", 1, 20000);
	}
	ranks_print_times(&away, "daemon away");
	ranks_check_times(&back, "restart to all ranks known again", 2000);
	for (int r = 0; r < N_RANKS; r++)
		ranks_time(&slowest, 0, atomic_load(&stage.ranks.view[r].slowest_ns));
	/* as long as a loaded machine may keep a rank off its cores, not as long as a restart */
	ranks_check_times(&slowest, "slowest op of a rank meanwhile", 2000);
	ranks_stop(&stage.ranks);
	/* nothing of the group stays behind */
	mc_fd_store_wait_count(&stage.store, "e", 0, 20000);
	mc_fd_store_wait_count(&stage.store, "s", 1, 20000);
	end();
}

static void test_killed(void **state)
{
	(void)state;
	restarts(false);
}

static void test_stopped_in_order(void **state)
{
	(void)state;
	restarts(true);
}

static void test_a_death_in_between_is_noticed(void **state)
{
	struct ranks_times times = {0};

	(void)state;
	for (int i = 0; i < 3; i++) {
		const uint64_t none = 0;
		int64_t start;

		begin(NULL, NULL);
		mc_test_daemon_kill(&stage.daemon);
		ranks_kill(&stage.ranks, 2);
		start = ranks_now_ns();
		mc_fd_store_restart(&stage.store, &stage.daemon);
		ranks_wait(&stage.ranks, rank_has_failed, &none, "heard of the death", 30000);
		for (int r = 0; r < N_RANKS; r++) {
			if (r == 2)
				continue;
			expect_lost(r, 2);
			ranks_time(&times, start, atomic_load(&stage.ranks.view[r].failed_ns));
		}
		end();
	}
	ranks_check_times(
		&times, "death while the daemon was away: start of the next to PEER_LOST", 2000);
}

/* Alive when the daemon starts, but ends before it has come back. */
static void test_a_death_before_the_return_is_noticed(void **state)
{
	const uint64_t none = 0;
	int64_t start;

	(void)state;
	begin(NULL, NULL);
	/* its control thread stands still too */
	kill(stage.ranks.pid[1], SIGSTOP);
	mc_test_daemon_kill(&stage.daemon);
	mc_fd_store_restart(&stage.store, &stage.daemon);
	check_group(atomic_load(&stage.ranks.view[0].epoch), MC_GROUP_READY);
	start = ranks_now_ns();
	ranks_kill(&stage.ranks, 1);
	ranks_wait(&stage.ranks, rank_has_failed, &none, "heard of the death", 30000);
	print_message("death of an awaited rank to PEER_LOST: %.2f ms\n",
		(double)(atomic_load(&stage.ranks.view[0].failed_ns) - start) / 1e6);
	assert_int_equal(atomic_load(&stage.ranks.view[0].status), MC_STATUS_PEER_LOST);
	assert_int_equal(atomic_load(&stage.ranks.view[0].fault_rank), 1);
	end();
}

static void test_who_does_not_come_back_is_lost(void **state)
{
	const uint64_t none = 0;

	(void)state;
	begin(NULL, "[groups]\nresume_timeout_ms = 4000\n");
	kill(stage.ranks.pid[3], SIGSTOP);
	mc_test_daemon_kill(&stage.daemon);
	mc_fd_store_restart(&stage.store, &stage.daemon);
	for (int r = 0; r < 3; r++) {
		const uint64_t *no = &none;

		while (!rank_has_failed(&stage.ranks.view[r], no))
			mc_test_sleep_ms(5);
		assert_int_equal(atomic_load(&stage.ranks.view[r].status), MC_STATUS_PEER_LOST);
		assert_int_equal(atomic_load(&stage.ranks.view[r].fault_rank), 3);
	}
	/* the board is told before the log */
	mc_test_daemon_wait_log(&stage.daemon, "did not come back within 4000 ms", 30000);
	kill(stage.ranks.pid[3], SIGCONT);
	/* told when it asks */
	ranks_wait(&stage.ranks, rank_has_failed, &none, "was told", 30000);
	ranks_stop(&stage.ranks);
	end();
}

/* Without a store a restart ends nothing: ops go on, the daemon does not know the group. */
static void test_without_a_store(void **state)
{
	struct ranks_options options = {.rejoin = true};
	uint64_t epoch;

	(void)state;
	mc_fd_store_open(&stage.store, 0);
	mc_fd_store_start(&stage.store, &stage.daemon, NULL);
	options.socket = stage.daemon.socket;
	options.group = "load";
	options.world_size = N_RANKS;
	ranks_start(&stage.ranks, &options);
	epoch = atomic_load(&stage.ranks.view[0].epoch);
	assert_int_equal(mc_fd_store_count(&stage.store, ""), 0);
	mc_test_daemon_kill(&stage.daemon);
	mc_fd_store_restart(&stage.store, &stage.daemon);
	ranks_wait_ops(&stage.ranks, 300, 60000);
	check_nobody_noticed(epoch);
	/* the next epoch starts afresh */
	ranks_command(&stage.ranks, 0, RANK_REJOIN);
	ranks_wait(&stage.ranks, rank_is_beyond, &epoch, "is in the next epoch", 30000);
	ranks_wait_ops(&stage.ranks, 20, 30000);
	check_group(atomic_load(&stage.ranks.view[0].epoch), MC_GROUP_READY);
	ranks_stop(&stage.ranks);
	end();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_stopped_in_order),
		cmocka_unit_test(test_a_death_in_between_is_noticed),
		cmocka_unit_test(test_a_death_before_the_return_is_noticed),
		cmocka_unit_test(test_who_does_not_come_back_is_lost),
		cmocka_unit_test(test_without_a_store),
	};
	int status;

	if (ranks_main(argc, argv, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
