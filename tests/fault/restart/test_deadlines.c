/* SPDX-License-Identifier: Apache-2.0 */
/* Late ranks, skipped ops, failed epochs, and a daemon whose loop stands still. */
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
#define SOON_MS 30000
/* What a deadline may be late by on a machine that is busy with other things. */
#define SLACK_MS 2000

static struct mc_fd_store store;
static struct mc_test_daemon daemon_;
static struct ranks ranks;

static int set_up(void **state)
{
	(void)state;
	mc_fd_store_open(&store, 1000);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	if (ranks.view)
		ranks_close(&ranks);
	mc_test_daemon_finish(&daemon_);
	mc_fd_store_close(&store);
	return 0;
}

#ifdef MC_FAULT_INJECTION
static void start(struct ranks_options options)
{
	options.socket = daemon_.socket;
	options.group = "late";
	options.world_size = N_RANKS;
	options.op_timeout_ms = 60000;
	ranks_start(&ranks, &options);
}
#endif

static void wait_paused(int rank)
{
	uint64_t deadline = mc_test_now_ms() + 60000;

	while (!atomic_load(&ranks.view[rank].is_paused)) {
		assert_true(mc_test_now_ms() < deadline);
		mc_test_sleep_ms(1);
	}
}

static void wait_failed(int but)
{
	uint64_t deadline = mc_test_now_ms() + 60000;

	for (int r = 0; r < N_RANKS; r++)
		while (r != but && !atomic_load(&ranks.view[r].n_failed)) {
			assert_true(mc_test_now_ms() < deadline);
			mc_test_sleep_ms(1);
		}
}

/* Call 1 is the meeting, so that round n is call n + 2. */
#define CALL(round) ((round) + 2)

/* The lag as moecommctl shows it, before anybody's deadline. */
static void check_lag(int laggard, uint64_t call)
{
	uint64_t deadline = mc_test_now_ms() + SOON_MS;
	struct mc_wire_client client;
	struct mc_wire_reply reply;
	bool seen = false;

	mc_wire_client_open(&client, daemon_.socket, "test");
	while (!seen) {
		Moecomm__Wire__Status *status =
			mc_wire_status(&client, "late", true, false, &reply);

		assert_int_equal(status->n_groups, 1);
		seen = true;
		for (int r = 0; r < N_RANKS; r++) {
			const Moecomm__Wire__RankStatus *rank = status->groups[0]->ranks[r];

			seen = seen && rank->progress[0]->call == (r == laggard ? call : call + 1);
			seen = seen && (r != laggard || rank->health == MC_HEALTH_STALLED);
		}
		mc_wire_reply_clear(&reply);
		assert_true(mc_test_now_ms() < deadline);
	}
	mc_wire_client_close(&client);
}

/* A rank stops one op short of the others: "rank 2 at 999, group at 1000". */
static void a_skipped_op_is_named(void **state)
{
	const int laggard = 2;
	struct ranks_times times = {0};
	int64_t last = 0;

	(void)state;
	mc_fd_store_start(&store, &daemon_,
		&(struct mc_test_daemon_options){.config = "[groups]\nstall_ms = 200\n"});
	ranks_open(&ranks, &(struct ranks_options){.socket = daemon_.socket,
				   .group = "late",
				   .world_size = N_RANKS,
				   .op_timeout_ms = 1500});
	for (int r = 0; r < N_RANKS; r++) {
		ranks_start_one(&ranks, r);
		if (r == laggard)
			atomic_store(&ranks.view[r].pause_at, 1000 - CALL(0));
	}
	wait_paused(laggard);
	check_lag(laggard, 999);
	wait_failed(laggard);
	for (int r = 0; r < N_RANKS; r++) {
		struct rank_view *view = &ranks.view[r];

		if (r == laggard)
			continue;
		assert_int_equal(atomic_load(&view->status), MC_STATUS_TIMEOUT);
		assert_int_equal(atomic_load(&view->fault_rank), laggard);
		/* one that heard it from the daemon first has the number in the sentence only */
		if (atomic_load(&view->fault_call))
			assert_int_equal(atomic_load(&view->fault_call), 1000);
		assert_non_null(strstr(view->detail, "rank 2 did not arrive at call 1000"));
		assert_non_null(strstr(view->detail, "it is at call 999"));
		last = atomic_load(&view->last_ok_ns);
		ranks_time(&times, last, atomic_load(&view->failed_ns));
		/* whoever calls again is told at once */
		assert_true(atomic_load(&view->again_ns) < INT64_C(500000000));
	}
	assert_true(times.ms[0] >= 1490);
	assert_true(ranks_print_times(&times, "deadline of 1500 ms: last op to TIMEOUT") <
		    1500 * 1.1 + SLACK_MS);
	/* the laggard hears it too, and everybody gets away in time */
	atomic_store(&ranks.view[laggard].pause_at, 0);
	ranks_stop(&ranks);
	times.n = 0;
	for (int r = 0; r < N_RANKS; r++)
		ranks_time(&times, 0, atomic_load(&ranks.view[r].left_ns));
	assert_true(ranks_print_times(&times, "leave and disconnect after a failure") < 5000);
}

static void warm_up_has_a_deadline_of_its_own(void **state)
{
	struct ranks_times times = {0};

	(void)state;
	mc_fd_store_start(&store, &daemon_, NULL);
	ranks_open(&ranks, &(struct ranks_options){.socket = daemon_.socket,
				   .group = "late",
				   .world_size = N_RANKS,
				   .op_timeout_ms = 1000,
				   .warmup_timeout_ms = 20000,
				   .warmup_calls = 8});
	for (int r = 0; r < N_RANKS; r++) {
		ranks_start_one(&ranks, r);
		if (r == 0)
			atomic_store(&ranks.view[r].pause_at, 3);
	}
	/* three times the steady deadline late: fine */
	wait_paused(0);
	mc_test_sleep_ms(3000);
	assert_int_equal(ranks_total_failed(&ranks), 0);
	atomic_store(&ranks.view[0].pause_at, 0);
	ranks_wait_ops(&ranks, 100, SOON_MS);
	assert_int_equal(ranks_total_failed(&ranks), 0);
	/* later on it is not */
	ranks_command(&ranks, 0, RANK_PAUSE);
	wait_failed(0);
	for (int r = 1; r < N_RANKS; r++) {
		assert_int_equal(atomic_load(&ranks.view[r].status), MC_STATUS_TIMEOUT);
		assert_int_equal(atomic_load(&ranks.view[r].fault_rank), 0);
		ranks_time(&times, atomic_load(&ranks.view[r].last_ok_ns),
			atomic_load(&ranks.view[r].failed_ns));
	}
	assert_true(times.ms[0] >= 990);
	assert_true(ranks_print_times(&times, "deadline of 1000 ms: last op to TIMEOUT") <
		    1000 * 1.1 + SLACK_MS);
	ranks_stop(&ranks);
}

/* The watchdog's limit, as the unit would have it, scaled down. */
static void a_blocked_loop_is_found_and_hurts_nobody(void **state)
{
#ifndef MC_FAULT_INJECTION
	(void)state;
	mc_fd_store_start(&store, &daemon_, NULL); /* for tear_down */
	skip();                                    /* built without MOECOMM_FAULT_INJECTION */
#else
	static const char *const env[] = {
		"WATCHDOG_USEC=500000", "MOECOMM_INJECT_DAEMON=block_ms:20000", NULL};
	uint64_t epoch, begin;

	(void)state;
	mc_fd_store_start(&store, &daemon_, &(struct mc_test_daemon_options){.env = env});
	start((struct ranks_options){0});
	epoch = atomic_load(&ranks.view[0].epoch);
	for (int i = 0; i < 100; i++) {
		mc_test_sleep_ms(10);
		assert_true(mc_fd_store_ping_age(&store) < 500 + SLACK_MS);
	}
	assert_true(store.n_pings > 2);
	kill(daemon_.pid, SIGUSR2);
	begin = mc_test_now_ms();
	while (mc_fd_store_ping_age(&store) <= 500) {
		assert_true(mc_test_now_ms() - begin < 5000);
		mc_test_sleep_ms(5);
	}
	print_message("blocked loop to a missed watchdog ping: %llu ms\n",
		(unsigned long long)(mc_test_now_ms() - begin));
	/* what the manager does then */
	mc_test_daemon_kill(&daemon_);
	mc_fd_store_restart(&store, &daemon_);
	ranks_wait_ops(&ranks, 100, SOON_MS);
	ranks_wait(&ranks, rank_is_connected, NULL, "has come back", SOON_MS);
	assert_int_equal(ranks_total_failed(&ranks), 0);
	for (int r = 0; r < N_RANKS; r++)
		assert_int_equal(atomic_load(&ranks.view[r].epoch), epoch);
	ranks_stop(&ranks);
#endif
}

/* The loop pings on while a large ring is made. */
static void arming_does_not_stop_the_pings(void **state)
{
	static const char *const env[] = {"WATCHDOG_USEC=500000", NULL};
	struct mc_wire_join join = {
		.group = "large", .world_size = 2, .max_rows = 8192, .dispatch_row_bytes = 8192};
	struct mc_wire_client clients[2], observer; /* a Layout may come at any time to the two */
	uint64_t worst = 0, begin;

	(void)state;
	mc_fd_store_start(&store, &daemon_, &(struct mc_test_daemon_options){.env = env});
	mc_wire_client_open(&observer, daemon_.socket, "test");
	for (uint32_t r = 0; r < 2; r++) {
		mc_wire_client_open(&clients[r], daemon_.socket, "test");
		join.rank = r;
		mc_wire_join(&clients[r], &join);
	}
	begin = mc_test_now_ms();
	while (mc_wire_group_state(&observer, "none") == 0) {
		struct mc_wire_reply reply;
		uint64_t age = mc_fd_store_ping_age(&store);

		worst = age != UINT64_MAX && age > worst ? age : worst;
		if (mc_wire_receive(&clients[1], 10, &reply)) {
			mc_wire_reply_clear(&reply);
			break;
		}
		assert_true(mc_test_now_ms() - begin < 60000);
	}
	print_message("armed 2 × 134 MB in %llu ms, longest time between pings %llu ms\n",
		(unsigned long long)(mc_test_now_ms() - begin), (unsigned long long)worst);
	assert_true(worst < 500 + SLACK_MS);
	mc_wire_client_close(&observer);
	for (int r = 0; r < 2; r++)
		mc_wire_client_close(&clients[r]);
}

#ifdef MC_FAULT_INJECTION
/* An arming, a memfd and a reply that fail: each a clear refusal, and the next try is fine. */
static void injected_failures_are_refusals(void **state)
{
	static const char *const env[] = {"MOECOMM_INJECT_DAEMON=arm_fail:1,memfd_fail:1", NULL};
	struct mc_wire_join join = {.group = "unlucky", .world_size = 2};
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[2];
	size_t n_fds;

	(void)state;
	mc_fd_store_start(&store, &daemon_, &(struct mc_test_daemon_options){.env = env});
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_client_open(&clients[r], daemon_.socket, "test");
	n_fds = mc_test_count_fds(daemon_.pid);
	for (int i = 0; i < 2; i++) {
		for (uint32_t r = 0; r < 2; r++) {
			join.rank = r;
			mc_wire_join(&clients[r], &join);
		}
		if (i)
			break;
		for (uint32_t r = 0; r < 2; r++)
			mc_wire_expect_done(&clients[r], MC_STATUS_SYSTEM,
				"the memory of group unlucky could not be made: injected", SOON_MS);
		mc_test_wait_fds(daemon_.pid, n_fds, SOON_MS);
	}
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_vote_yes(&clients[r], layouts[r].member_id);
	/* one state could not be stored: the next one was */
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_expect_ready(&clients[r], SOON_MS);
	assert_true(mc_test_daemon_log_has(&daemon_, "cannot store the state"));
	mc_fd_store_wait_count(&store, "", 5 + 1, SOON_MS);
	for (uint32_t r = 0; r < 2; r++) {
		mc_wire_layout_clear(&layouts[r]);
		mc_wire_client_close(&clients[r]);
	}
}

/* A client whose queue is full is cut off; the other one hears of it as of any death. */
static void a_full_queue_cuts_off_one_client(void **state)
{
	static const char *const env[] = {"MOECOMM_INJECT_DAEMON=queue_full:7", NULL};
	struct mc_wire_join join = {.group = "full", .world_size = 2};
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[2];

	(void)state;
	mc_fd_store_start(&store, &daemon_, &(struct mc_test_daemon_options){.env = env});
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_client_open(&clients[r], daemon_.socket, "test");
	mc_wire_form(clients, layouts, &join); /* welcome, layout, ready: six messages */
	{
		Moecomm__Wire__StatusRequest request = MOECOMM__WIRE__STATUS_REQUEST__INIT;

		mc_wire_send(&clients[0], MC_FRAME_STATUS_REQUEST, &request.base);
	}
	mc_wire_expect_closed(&clients[0], SOON_MS);
	mc_wire_expect_notice(&clients[1], MC_STATUS_PEER_LOST, "rank 0", NULL, SOON_MS);
	assert_true(mc_test_daemon_log_has(&daemon_, "is cut off: it does not read its replies"));
	for (uint32_t r = 0; r < 2; r++) {
		mc_wire_layout_clear(&layouts[r]);
		mc_wire_client_close(&clients[r]);
	}
}
#endif

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_skipped_op_is_named),
		TEST(warm_up_has_a_deadline_of_its_own),
		TEST(a_blocked_loop_is_found_and_hurts_nobody),
		TEST(arming_does_not_stop_the_pings),
#ifdef MC_FAULT_INJECTION
		TEST(injected_failures_are_refusals),
		TEST(a_full_queue_cuts_off_one_client),
#endif
	};
	int status;

	if (ranks_main(argc, argv, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
