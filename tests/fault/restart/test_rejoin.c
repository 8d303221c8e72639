/* SPDX-License-Identifier: Apache-2.0 */
/* Survivors and a replacement form the next epoch, in whatever order things happen. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "fault/restart/ranks.h"
#include "support/daemon_process.h"
#include "support/fd_count.h"
#include "support/fd_store.h"
#include "support/wire_client.h"

#define N_RANKS 4
#define SOON_MS 30000

static struct mc_fd_store store;
static struct mc_test_daemon daemon_;
static struct ranks ranks;

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
	ranks_close(&ranks);
	mc_test_daemon_finish(&daemon_);
	mc_fd_store_close(&store);
	return 0;
}

static void start(struct ranks_options options)
{
	options.socket = daemon_.socket;
	options.group = "rejoin";
	if (!options.world_size)
		options.world_size = N_RANKS;
	/* a machine that is too slow must not look like a rank that is */
	if (!options.op_timeout_ms)
		options.op_timeout_ms = 60000;
	ranks_start(&ranks, &options);
}

static uint64_t epoch_of(int rank)
{
	return atomic_load(&ranks.view[rank].epoch);
}

static void wait_beyond(uint64_t epoch)
{
	ranks_wait(&ranks, rank_is_beyond, &epoch, "runs in the next epoch", SOON_MS);
	ranks_wait_ops(&ranks, 10, SOON_MS);
}

/* From SIGKILL of one of four to the next verified op of all with its replacement. */
static void a_replacement_takes_the_place(void **state)
{
	struct ranks_times times = {0}, heard = {0};
	char *before[N_RANKS], *after;
	size_t n_fds;

	(void)state;
	start((struct ranks_options){.rejoin = true});
	n_fds = mc_test_count_fds(daemon_.pid);
	for (int i = 0; i < 20; i++) {
		int dead = i % N_RANKS;
		uint64_t epoch = epoch_of(dead);
		int64_t begin;

		for (int r = 0; r < N_RANKS; r++)
			before[r] = ranks_places(ranks.pid[r]);
		begin = ranks_now_ns();
		ranks_kill(&ranks, dead);
		ranks_start_one(&ranks, dead);
		ranks_wait(&ranks, rank_is_beyond, &epoch, "runs in the next epoch", SOON_MS);
		ranks_time(&times, begin, ranks_now_ns());
		for (int r = 0; r < N_RANKS; r++) {
			if (r == dead) {
				free(before[r]);
				continue;
			}
			assert_int_equal(atomic_load(&ranks.view[r].status), MC_STATUS_PEER_LOST);
			assert_int_equal(atomic_load(&ranks.view[r].fault_rank), dead);
			ranks_time(&heard, begin, atomic_load(&ranks.view[r].failed_ns));
			/* other memory, the same places */
			after = ranks_places(ranks.pid[r]);
			assert_true(strlen(before[r]) > 100);
			assert_string_equal(before[r], after);
			free(before[r]);
			free(after);
		}
	}
	ranks_check_times(&heard, "SIGKILL of a rank to PEER_LOST", 1000);
	ranks_check_times(&times,
		"SIGKILL of a rank to the next verified op of all with its replacement", 2000);
	/* nothing of 20 epochs stays behind */
	mc_test_wait_fds(daemon_.pid, n_fds, SOON_MS);
	mc_fd_store_wait_count(&store, "", 2 * N_RANKS + 2, SOON_MS);
	ranks_stop(&ranks);
}

/* The daemon learns of the death only after the survivors have asked for the next epoch. */
static void survivors_are_faster_than_the_daemon(void **state)
{
	uint64_t epoch;
	pid_t stuck;

	(void)state;
	start((struct ranks_options){.rejoin = true,
		.op_timeout_ms = 300,
		.warmup_calls = 1,
		.warmup_timeout_ms = 5000});
	epoch = epoch_of(0);
	stuck = ranks.pid[1];
	kill(stuck, SIGSTOP);
	ranks.pid[1] = 0;
	/* without it the survivors hear TIMEOUT, and wait for somebody in its place */
	for (int r = 0; r < N_RANKS; r++)
		while (ranks.pid[r] && !atomic_load(&ranks.view[r].n_failed))
			mc_test_sleep_ms(2);
	assert_int_equal(atomic_load(&ranks.view[0].status), MC_STATUS_TIMEOUT);
	assert_int_equal(atomic_load(&ranks.view[0].fault_rank), 1);
	/* its connection stands all the time */
	ranks_start_one(&ranks, 1);
	wait_beyond(epoch);
	epoch = epoch_of(0);
	/* the end of the old process is nobody's business any more */
	kill(stuck, SIGKILL);
	waitpid(stuck, NULL, 0);
	ranks_wait_ops(&ranks, 100, SOON_MS);
	assert_int_equal(epoch_of(0), epoch);
	ranks_stop(&ranks);
}

static void the_daemon_is_faster_than_the_survivors(void **state)
{
	const uint64_t none = 0;
	uint64_t epoch;

	(void)state;
	start((struct ranks_options){0});
	epoch = epoch_of(0);
	ranks_kill(&ranks, 3);
	ranks_wait(&ranks, rank_has_failed, &none, "heard of the death", SOON_MS);
	/* the replacement is there long before them */
	ranks_start_one(&ranks, 3);
	mc_test_sleep_ms(200);
	for (int r = 0; r < 3; r++)
		ranks_command(&ranks, r, RANK_REJOIN);
	wait_beyond(epoch);
	ranks_stop(&ranks);
}

static void all_at_once_and_again(void **state)
{
	(void)state;
	start((struct ranks_options){.rejoin = true});
	for (int i = 0; i < 10; i++) {
		uint64_t epoch = epoch_of(0);

		for (int r = 0; r < N_RANKS; r++)
			ranks_command(&ranks, r, RANK_REJOIN);
		wait_beyond(epoch);
	}
	/* one rank alone ends the epoch for all */
	for (int r = 0; r < N_RANKS; r++) {
		uint64_t epoch = epoch_of(0);

		ranks_command(&ranks, r, RANK_REJOIN);
		wait_beyond(epoch);
	}
	ranks_stop(&ranks);
}

static void who_never_comes_is_named_and_may_come_later(void **state)
{
	const uint64_t none = 0;
	uint64_t epoch;

	(void)state;
	start((struct ranks_options){.join_timeout_ms = 400});
	epoch = epoch_of(0);
	ranks_kill(&ranks, 2);
	ranks_wait(&ranks, rank_has_failed, &none, "heard of the death", SOON_MS);
	for (int r = 0; r < N_RANKS; r++)
		ranks_command(&ranks, r, RANK_REJOIN);
	for (int r = 0; r < N_RANKS; r++) {
		if (r == 2)
			continue;
		while (atomic_load(&ranks.view[r].command) != RANK_RUN)
			mc_test_sleep_ms(2);
		assert_int_equal(atomic_load(&ranks.view[r].rejoin_status), MC_STATUS_JOIN_TIMEOUT);
		assert_non_null(strstr(ranks.view[r].detail, "rank 2 of 4 did not join"));
	}
	/* the handles are as good as before */
	ranks_start_one(&ranks, 2);
	mc_test_sleep_ms(50);
	for (int r = 0; r < N_RANKS; r++)
		if (r != 2)
			ranks_command(&ranks, r, RANK_REJOIN);
	wait_beyond(epoch);
	ranks_stop(&ranks);
}

/* A rank and the daemon die together, or the daemon dies while ranks wait for the next epoch. */
static void with_the_daemon_restarted_in_between(void **state)
{
	struct ranks_times times = {0};
	const uint64_t none = 0;
	uint64_t epoch;
	int64_t begin;

	(void)state;
	start((struct ranks_options){.rejoin = true});
	for (int i = 0; i < 4; i++) {
		epoch = epoch_of(0);
		begin = ranks_now_ns();
		mc_test_daemon_kill(&daemon_);
		ranks_kill(&ranks, i);
		if (i % 2)
			mc_test_sleep_ms(100);
		mc_fd_store_restart(&store, &daemon_);
		ranks_start_one(&ranks, i);
		wait_beyond(epoch);
		ranks_time(&times, begin, ranks_now_ns());
	}
	for (int i = 0; i < 4; i++) {
		epoch = epoch_of(0);
		ranks_kill(&ranks, i);
		ranks_wait(&ranks, rank_has_failed, &none, "heard of the death", SOON_MS);
		mc_test_sleep_ms(20 * i);
		/* the survivors are waiting in their rejoin now */
		begin = ranks_now_ns();
		mc_test_daemon_kill(&daemon_);
		mc_fd_store_restart(&store, &daemon_);
		ranks_start_one(&ranks, i);
		wait_beyond(epoch);
		ranks_time(&times, begin, ranks_now_ns());
	}
	ranks_check_times(&times, "death of daemon and rank to the next verified ops of all", 2000);
	ranks_stop(&ranks);
}

/* The arenas' inodes, so that "fresh" means what it says. */
static void memory_of_the_dead_is_not_used_again(void **state)
{
	const uint64_t none = 0;
	struct mc_wire_client client;
	struct mc_wire_reply reply;
	Moecomm__Wire__Status *status;
	char *old, *new, *line, *rest;
	uint64_t epoch;

	(void)state;
	start((struct ranks_options){.world_size = 2});
	epoch = epoch_of(0);
	old = ranks_maps(ranks.pid[0]);
	ranks_kill(&ranks, 1);
	ranks_wait(&ranks, rank_has_failed, &none, "heard of the death", SOON_MS);
	/* who still maps it is told, with its age */
	mc_test_sleep_ms(60);
	mc_wire_client_open(&client, daemon_.socket, "test");
	status = mc_wire_status(&client, "rejoin", true, false, &reply);
	assert_int_equal(status->n_groups, 1);
	assert_int_equal(status->groups[0]->n_holders, 1);
	assert_int_equal(status->groups[0]->holders[0]->pid, ranks.pid[0]);
	assert_int_equal(status->groups[0]->holders[0]->epoch, epoch);
	assert_true(status->groups[0]->holders[0]->age_ms >= 50);
	assert_true(status->groups[0]->holders[0]->n_bytes > 0);
	assert_true(status->arena_bytes > 0);
	mc_wire_reply_clear(&reply);
	/* nothing of it is held by anybody but the holder */
	mc_fd_store_wait_count(&store, "e", 0, SOON_MS);

	ranks_start_one(&ranks, 1);
	ranks_command(&ranks, 0, RANK_REJOIN);
	wait_beyond(epoch);
	new = ranks_maps(ranks.pid[0]);
	rest = old;
	while ((line = strsep(&rest, "\n")))
		if (*line)
			assert_null(strstr(new, line));
	status = mc_wire_status(&client, "rejoin", true, false, &reply);
	assert_int_equal(status->groups[0]->n_holders, 0);
	mc_wire_reply_clear(&reply);
	free(old);
	free(new);
	ranks_stop(&ranks);
	status = mc_wire_status(&client, NULL, false, false, &reply);
	assert_int_equal(status->arena_bytes, 0);
	mc_wire_reply_clear(&reply);
	mc_wire_client_close(&client);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_replacement_takes_the_place),
		TEST(survivors_are_faster_than_the_daemon),
		TEST(the_daemon_is_faster_than_the_survivors),
		TEST(all_at_once_and_again),
		TEST(who_never_comes_is_named_and_may_come_later),
		TEST(with_the_daemon_restarted_in_between),
		TEST(memory_of_the_dead_is_not_used_again),
	};
	int status;

	if (ranks_main(argc, argv, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
