/* SPDX-License-Identifier: Apache-2.0 */
/* How epochs end: leaving, dying, aborting, failing; what members and the board are told. */
#include <sys/mman.h>
#include "integration/daemon/harness.h"
#include "kernels/lamport.h"

/* A ready group, one client a rank, with its board mapped. */
struct group {
	uint32_t n;
	struct mc_wire_client clients[8];
	struct mc_wire_layout layouts[8];
	struct mc_board *board;
};

static void form(struct group *ret_group, uint32_t n, uint32_t op_timeout_ms)
{
	struct mc_wire_join join = {
		.group = "ep0", .world_size = n, .op_timeout_ms = op_timeout_ms};

	ret_group->n = n;
	harness_open(ret_group->clients, n);
	mc_wire_form(ret_group->clients, ret_group->layouts, &join);
	ret_group->board = harness_map(ret_group->layouts[0].board_fd, MC_BOARD_BYTES);
}

static void clear(struct group *group)
{
	munmap(group->board, MC_BOARD_BYTES);
	harness_drop(group->layouts, group->n);
	for (uint32_t r = 0; r < group->n; r++)
		if (group->clients[r].fd >= 0)
			mc_wire_client_close(&group->clients[r]);
}

static uint32_t abort_word(const struct group *group)
{
	return __atomic_load_n(&group->board->wait.abort_word, __ATOMIC_ACQUIRE);
}

/* Posts a call as a rank would. */
static void enter(struct group *group, uint32_t rank, uint32_t call, uint8_t left)
{
	struct mc_progress *progress = &group->board->rank[rank].progress[0];

	progress->op = MC_OP_DISPATCH;
	progress->left = left;
	__atomic_store_n(&progress->call, call, __ATOMIC_RELEASE);
}

static void a_dead_rank_is_named_to_all_and_on_the_board(void **state)
{
	struct group group;
	uint64_t started;
	uint32_t rank;

	(void)state;
	form(&group, 4, 0);
	started = mc_test_now_ms();
	mc_wire_client_close(&group.clients[2]);
	for (uint32_t r = 0; r < 4; r++) {
		if (r == 2)
			continue;
		mc_wire_expect_notice(
			&group.clients[r], MC_STATUS_PEER_LOST, "rank 2", &rank, SOON_MS);
		assert_int_equal(rank, 2);
	}
	/* a second, and what a loaded machine adds */
	assert_true(mc_test_now_ms() - started < 3000);
	assert_int_equal(abort_word(&group), mc_abort_word(MC_STATUS_PEER_LOST, 3));
	assert_int_equal(group.board->rank[2].fault.status, MC_FAULT_PEER_LOST);
	assert_int_equal(group.board->rank[2].fault.peer, 2);
	/* once only */
	mc_wire_expect_silence(&group.clients[0], 100);
	clear(&group);
}

/* It lives: nobody is to look for a process that ended. */
static void a_rank_that_is_cut_off_did_not_end(void **state)
{
	struct group group;
	uint32_t rank;

	(void)state;
	form(&group, 2, 0);
	mc_wire_send_bytes(group.clients[1].fd, "this is no frame", 16);
	mc_wire_expect_notice(&group.clients[0], MC_STATUS_PEER_LOST,
		"was cut off by the daemon: it does not keep to the protocol", &rank, SOON_MS);
	assert_int_equal(rank, 1);
	clear(&group);
}

static void holders_are_listed_until_they_let_go(void **state)
{
	struct group group;
	struct mc_wire_client other;
	struct mc_wire_layout layouts[2];
	struct mc_wire_reply reply;
	Moecomm__Wire__GroupStatus *status;
	struct mc_wire_join join = {.group = "ep0", .world_size = 2};
	size_t n_fds;

	(void)state;
	form(&group, 2, 0);
	n_fds = mc_test_count_fds(harness_daemon.pid);
	mc_wire_client_close(&group.clients[1]);
	mc_wire_expect_notice(&group.clients[0], MC_STATUS_PEER_LOST, NULL, NULL, SOON_MS);
	/* the daemon has let go: 5 fds of memory and a connection */
	mc_test_wait_fds(harness_daemon.pid, n_fds - 6, SOON_MS);
	mc_test_sleep_ms(20);
	status = mc_wire_status(&group.clients[0], "ep0", true, false, &reply)->groups[0];
	assert_int_equal(status->state, MC_GROUP_FAILED);
	assert_int_equal(status->n_holders, 1);
	assert_int_equal(status->holders[0]->pid, getpid());
	assert_int_equal(status->holders[0]->rank, 0);
	assert_int_equal(status->holders[0]->epoch, group.layouts[0].epoch);
	assert_true(status->holders[0]->age_ms >= 15 && status->holders[0]->age_ms < SOON_MS);
	assert_true(status->holders[0]->n_bytes > 0);
	mc_wire_reply_clear(&reply);
	/* the survivor and a replacement form the next epoch: its holding is over */
	mc_wire_client_open(&other, harness_daemon.socket, "replacement");
	mc_wire_join(&group.clients[0], &join);
	join.rank = 1;
	mc_wire_join(&other, &join);
	mc_wire_expect_layout(&group.clients[0], SOON_MS, &layouts[0]);
	mc_wire_expect_layout(&other, SOON_MS, &layouts[1]);
	assert_int_equal(layouts[0].epoch, group.layouts[0].epoch + 1);
	status = mc_wire_status(&other, "ep0", true, false, &reply)->groups[0];
	assert_int_equal(status->n_holders, 0);
	mc_wire_reply_clear(&reply);
	harness_drop(layouts, 2);
	mc_wire_client_close(&other);
	clear(&group);
}

static void who_leaves_does_not_fail_slower_peers(void **state)
{
	struct group group;
	uint32_t rank;

	(void)state;
	form(&group, 3, 60000);
	/* all but rank 1 have done call 5; rank 1 is still about to enter it */
	enter(&group, 0, 5, 1);
	enter(&group, 1, 4, 1);
	enter(&group, 2, 5, 1);
	mc_wire_leave(&group.clients[0], group.layouts[0].member_id);
	mc_wire_expect_done(&group.clients[0], MC_STATUS_OK, NULL, SOON_MS);
	assert_int_equal(mc_wire_group_state(&group.clients[0], "ep0"), MC_GROUP_DRAINING);
	mc_wire_expect_silence(&group.clients[1], 1000);
	assert_int_equal(abort_word(&group), 0);
	/* it catches up, but is still inside the call */
	enter(&group, 1, 5, 0);
	mc_wire_expect_silence(&group.clients[1], 1000);
	/* it has finished: drain_ms later the epoch is over for who stays */
	enter(&group, 1, 5, 1);
	mc_wire_expect_notice(&group.clients[1], MC_STATUS_LEFT, "rank 0 has left", &rank, SOON_MS);
	assert_int_equal(rank, 0);
	mc_wire_expect_notice(&group.clients[2], MC_STATUS_LEFT, NULL, NULL, SOON_MS);
	assert_int_equal(abort_word(&group), mc_abort_word(MC_STATUS_LEFT, 1));
	clear(&group);
}

static void an_op_that_the_leaver_will_not_serve_ends_at_once(void **state)
{
	struct group group;
	uint64_t started;

	(void)state;
	harness_restart_with("[groups]\ndrain_ms = 60000\n");
	form(&group, 2, 60000);
	enter(&group, 0, 5, 1);
	enter(&group, 1, 5, 1);
	mc_wire_leave(&group.clients[0], group.layouts[0].member_id);
	mc_wire_expect_done(&group.clients[0], MC_STATUS_OK, NULL, SOON_MS);
	mc_wire_expect_silence(&group.clients[1], 200);
	started = mc_test_now_ms();
	enter(&group, 1, 6, 0);
	mc_wire_expect_notice(&group.clients[1], MC_STATUS_LEFT, NULL, NULL, SOON_MS);
	/* a second, and what a loaded machine adds */
	assert_true(mc_test_now_ms() - started < 3000);
	clear(&group);
}

static void leaving_by_all_logs_no_warning(void **state)
{
	struct group group;
	char *log;

	(void)state;
	form(&group, 4, 0);
	for (uint32_t r = 0; r < 4; r++) {
		mc_wire_leave(&group.clients[r], group.layouts[r].member_id);
		mc_wire_expect_done(&group.clients[r], MC_STATUS_OK, NULL, SOON_MS);
	}
	assert_int_equal(mc_wire_group_state(&group.clients[0], "ep0"), 0);
	assert_int_equal(abort_word(&group), 0);
	log = mc_test_daemon_log(&harness_daemon);
	assert_null(strstr(log, "warning"));
	free(log);
	/* gone is gone */
	mc_wire_leave(&group.clients[0], group.layouts[0].member_id);
	mc_wire_expect_done(&group.clients[0], MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	clear(&group);
}

static void send_abort(struct mc_wire_client *client, uint64_t member_id, const char *group)
{
	Moecomm__Wire__Abort wire = MOECOMM__WIRE__ABORT__INIT;

	wire.has_member_id = !group;
	wire.member_id = member_id;
	wire.group = (char *)group;
	wire.reason = "because of a test";
	mc_wire_send(client, MC_FRAME_ABORT, &wire.base);
}

static void aborting_ends_it_for_all_and_twice_is_harmless(void **state)
{
	struct group group;
	uint32_t rank;

	(void)state;
	form(&group, 3, 0);
	send_abort(&group.clients[1], group.layouts[1].member_id, NULL);
	for (uint32_t r = 0; r < 3; r++) {
		mc_wire_expect_notice(
			&group.clients[r], MC_STATUS_ABORTED, "because of a test", &rank, SOON_MS);
		assert_int_equal(rank, 1);
	}
	mc_wire_expect_done(&group.clients[1], MC_STATUS_OK, NULL, SOON_MS);
	assert_int_equal(abort_word(&group), mc_abort_word(MC_STATUS_ABORTED, 2));
	send_abort(&group.clients[1], group.layouts[1].member_id, NULL);
	mc_wire_expect_done(&group.clients[1], MC_STATUS_OK, NULL, SOON_MS);
	send_abort(&group.clients[1], 0, "ep0");
	mc_wire_expect_done(&group.clients[1], MC_STATUS_OK, "ended already", SOON_MS);
	mc_wire_expect_silence(&group.clients[0], 100);
	/* another's membership is nobody's to abort */
	send_abort(&group.clients[0], group.layouts[1].member_id, NULL);
	mc_wire_expect_done(&group.clients[0], MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	clear(&group);
}

static void an_operator_aborts_by_name(void **state)
{
	struct group group;
	struct mc_wire_client operator_, waiting;
	struct mc_wire_join join = {.group = "ep1", .world_size = 2};
	uint32_t rank;

	(void)state;
	form(&group, 2, 0);
	harness_open(&operator_, 1);
	harness_open(&waiting, 1);
	send_abort(&operator_, 0, "nobody");
	mc_wire_expect_done(&operator_, MC_STATUS_NOT_FOUND, "nobody", SOON_MS);
	send_abort(&operator_, 0, "ep0");
	mc_wire_expect_done(&operator_, MC_STATUS_OK, NULL, SOON_MS);
	mc_wire_expect_notice(&group.clients[0], MC_STATUS_ABORTED, "because", &rank, SOON_MS);
	assert_int_equal(rank, UINT32_MAX);
	assert_int_equal(abort_word(&group), mc_abort_word(MC_STATUS_ABORTED, 0));
	/* also one that waits for ranks */
	mc_wire_join(&waiting, &join);
	mc_wire_wait_state(&operator_, "ep1", MC_GROUP_FORMING, SOON_MS);
	send_abort(&operator_, 0, "ep1");
	mc_wire_expect_done(&waiting, MC_STATUS_ABORTED, "because", SOON_MS);
	mc_wire_client_close(&operator_);
	mc_wire_client_close(&waiting);
	clear(&group);
}

/* One rank waits for the next epoch, the others still wait for a slow one in the old epoch. */
static void an_operator_aborts_what_drains_too(void **state)
{
	struct mc_wire_join join = {.group = "ep0", .world_size = 3};
	struct mc_wire_client operator_;
	struct group group;

	(void)state;
	form(&group, 3, 60000);
	enter(&group, 0, 5, 1);
	enter(&group, 1, 5, 0);
	enter(&group, 2, 4, 1);
	mc_wire_join(&group.clients[0], &join);
	harness_open(&operator_, 1);
	mc_wire_wait_state(&operator_, "ep0", MC_GROUP_FORMING, SOON_MS);
	assert_int_equal(abort_word(&group), 0);
	send_abort(&operator_, 0, "ep0");
	mc_wire_expect_done(&operator_, MC_STATUS_OK, NULL, SOON_MS);
	mc_wire_expect_done(&group.clients[0], MC_STATUS_ABORTED, "because", SOON_MS);
	mc_wire_expect_notice(&group.clients[1], MC_STATUS_ABORTED, "because", NULL, SOON_MS);
	mc_wire_expect_notice(&group.clients[2], MC_STATUS_ABORTED, "because", NULL, SOON_MS);
	assert_int_equal(abort_word(&group), mc_abort_word(MC_STATUS_ABORTED, 0));
	mc_wire_client_close(&operator_);
	clear(&group);
}

static void a_failed_op_ends_the_epoch(void **state)
{
	Moecomm__Wire__OpFailed failed = MOECOMM__WIRE__OP_FAILED__INIT;
	struct group group;
	uint32_t rank;

	(void)state;
	form(&group, 2, 0);
	failed.member_id = group.layouts[0].member_id;
	failed.status = MC_STATUS_QUOTA;
	mc_wire_send(&group.clients[0], MC_FRAME_OP_FAILED, &failed.base);
	mc_wire_expect_done(&group.clients[0], MC_STATUS_INVALID, "no outcome", SOON_MS);
	failed.status = MC_STATUS_TIMEOUT;
	failed.has_peer = 1;
	failed.peer = 1;
	failed.detail = "rank 1 at 999, group at 1000";
	mc_wire_send(&group.clients[0], MC_FRAME_OP_FAILED, &failed.base);
	mc_wire_expect_notice(
		&group.clients[1], MC_STATUS_TIMEOUT, "rank 1 at 999", &rank, SOON_MS);
	assert_int_equal(rank, 1);
	assert_int_equal(abort_word(&group), mc_abort_word(MC_STATUS_TIMEOUT, 1));
	clear(&group);
}

static void an_op_that_set_the_word_first_keeps_it(void **state)
{
	struct group group;

	(void)state;
	form(&group, 2, 0);
	__atomic_store_n(&group.board->wait.abort_word, mc_abort_word(MC_STATUS_MISMATCH, 1),
		__ATOMIC_RELEASE);
	mc_wire_client_close(&group.clients[0]);
	mc_wire_expect_notice(&group.clients[1], MC_STATUS_PEER_LOST, NULL, NULL, SOON_MS);
	assert_int_equal(abort_word(&group), mc_abort_word(MC_STATUS_MISMATCH, 1));
	clear(&group);
}

static void send_resume(struct mc_wire_client *client, const struct mc_wire_layout *layout,
	uint32_t rank, uint8_t first_token_byte)
{
	Moecomm__Wire__Resume resume = MOECOMM__WIRE__RESUME__INIT;
	uint8_t token[16];

	memcpy(token, layout->token, sizeof(token));
	token[0] ^= first_token_byte;
	resume.member_id = layout->member_id;
	resume.token.data = token;
	resume.token.len = sizeof(token);
	resume.group = "ep0";
	resume.rank = rank;
	resume.epoch = layout->epoch;
	mc_wire_send(client, MC_FRAME_RESUME, &resume.base);
}

static void a_token_moves_a_membership(void **state)
{
	struct mc_wire_client next;
	struct group group;

	(void)state;
	form(&group, 2, 0);
	harness_open(&next, 1);
	send_resume(&next, &group.layouts[0], 0, 1);
	mc_wire_expect_done(&next, MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	send_resume(&next, &group.layouts[0], 1, 0);
	mc_wire_expect_done(&next, MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	send_resume(&next, &group.layouts[0], 0, 0);
	mc_wire_expect_done(&next, MC_STATUS_OK, NULL, SOON_MS);
	/* the old connection is closed, and nobody minds */
	mc_wire_expect_closed(&group.clients[0], SOON_MS);
	mc_wire_expect_silence(&group.clients[1], 100);
	assert_int_equal(mc_wire_group_state(&next, "ep0"), MC_GROUP_READY);
	mc_wire_client_close(&next);
	mc_wire_expect_notice(&group.clients[1], MC_STATUS_PEER_LOST, "rank 0", NULL, SOON_MS);
	/* who resumes an ended epoch hears how it ended */
	harness_open(&next, 1);
	send_resume(&next, &group.layouts[1], 1, 0);
	mc_wire_expect_done(&next, MC_STATUS_OK, NULL, SOON_MS);
	mc_wire_expect_notice(&next, MC_STATUS_PEER_LOST, "rank 0", NULL, SOON_MS);
	mc_wire_client_close(&next);
	clear(&group);
}

static void deadlines_change_while_it_runs(void **state)
{
	Moecomm__Wire__SetDeadlines wire = MOECOMM__WIRE__SET_DEADLINES__INIT;
	struct group group;

	(void)state;
	form(&group, 2, 0);
	assert_int_equal(group.board->wait.op_timeout_ms, 10000);
	assert_int_equal(group.board->wait.warmup_timeout_ms, 120000);
	wire.has_member_id = 1;
	wire.member_id = group.layouts[1].member_id;
	wire.has_op_timeout_ms = 1;
	wire.op_timeout_ms = 77;
	mc_wire_send(&group.clients[1], MC_FRAME_SET_DEADLINES, &wire.base);
	mc_wire_expect_done(&group.clients[1], MC_STATUS_OK, NULL, SOON_MS);
	assert_int_equal(group.board->wait.op_timeout_ms, 77);
	assert_int_equal(group.board->wait.warmup_timeout_ms, 120000);
	wire = (Moecomm__Wire__SetDeadlines)MOECOMM__WIRE__SET_DEADLINES__INIT;
	wire.group = "ep0";
	wire.has_warmup_calls = 1;
	wire.warmup_calls = 3;
	mc_wire_send(&group.clients[0], MC_FRAME_SET_DEADLINES, &wire.base);
	mc_wire_expect_done(&group.clients[0], MC_STATUS_OK, NULL, SOON_MS);
	assert_int_equal(group.board->wait.warmup_calls, 3);
	assert_int_equal(group.board->wait.op_timeout_ms, 77);
	clear(&group);
}

static void several_ranks_on_one_connection_die_as_one(void **state)
{
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[3];
	struct mc_wire_join join = {.group = "ep0", .world_size = 3};

	(void)state;
	harness_open(clients, 2);
	for (join.rank = 0; join.rank < 3; join.rank++)
		mc_wire_join(&clients[join.rank == 2], &join);
	for (uint32_t r = 0; r < 3; r++) {
		mc_wire_expect_layout(&clients[r == 2], SOON_MS, &layouts[r]);
		mc_wire_vote_yes(&clients[r == 2], layouts[r].member_id);
	}
	for (uint32_t r = 0; r < 3; r++)
		mc_wire_expect_ready(&clients[r == 2], SOON_MS);
	mc_wire_client_close(&clients[0]);
	mc_wire_expect_notice(&clients[1], MC_STATUS_PEER_LOST, NULL, NULL, SOON_MS);
	mc_wire_expect_silence(&clients[1], 100);
	harness_drop(layouts, 3);
	mc_wire_client_close(&clients[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(a_dead_rank_is_named_to_all_and_on_the_board),
		HARNESS_TEST(a_rank_that_is_cut_off_did_not_end),
		HARNESS_TEST(holders_are_listed_until_they_let_go),
		HARNESS_TEST(who_leaves_does_not_fail_slower_peers),
		HARNESS_TEST(an_op_that_the_leaver_will_not_serve_ends_at_once),
		HARNESS_TEST(leaving_by_all_logs_no_warning),
		HARNESS_TEST(aborting_ends_it_for_all_and_twice_is_harmless),
		HARNESS_TEST(an_operator_aborts_by_name),
		HARNESS_TEST(an_operator_aborts_what_drains_too),
		HARNESS_TEST(a_failed_op_ends_the_epoch),
		HARNESS_TEST(an_op_that_set_the_word_first_keeps_it),
		HARNESS_TEST(a_token_moves_a_membership),
		HARNESS_TEST(deadlines_change_while_it_runs),
		HARNESS_TEST(several_ranks_on_one_connection_die_as_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
