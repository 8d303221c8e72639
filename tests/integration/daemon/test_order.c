/* SPDX-License-Identifier: Apache-2.0 */
/* Right messages at the wrong time: each is refused or harmless, and groups still form and end. */
#include "integration/daemon/harness.h"

static void send_vote(struct mc_wire_client *client, uint64_t member_id)
{
	Moecomm__Wire__Vote vote = MOECOMM__WIRE__VOTE__INIT;

	vote.member_id = member_id;
	mc_wire_send(client, MC_FRAME_VOTE, &vote.base);
}

static void send_op_failed(struct mc_wire_client *client, uint64_t member_id, uint32_t status)
{
	Moecomm__Wire__OpFailed failed = MOECOMM__WIRE__OP_FAILED__INIT;

	failed.member_id = member_id;
	failed.status = status;
	mc_wire_send(client, MC_FRAME_OP_FAILED, &failed.base);
}

static void send_abort(struct mc_wire_client *client, uint64_t member_id)
{
	Moecomm__Wire__Abort abort_message = MOECOMM__WIRE__ABORT__INIT;

	abort_message.has_member_id = 1;
	abort_message.member_id = member_id;
	mc_wire_send(client, MC_FRAME_ABORT, &abort_message.base);
}

static void send_resume(
	struct mc_wire_client *client, const struct mc_wire_layout *layout, uint32_t rank)
{
	Moecomm__Wire__Resume resume = MOECOMM__WIRE__RESUME__INIT;

	resume.member_id = layout->member_id;
	resume.token.data = (uint8_t *)layout->token;
	resume.token.len = sizeof(layout->token);
	resume.group = (char *)"ep0";
	resume.rank = rank;
	resume.epoch = layout->epoch;
	mc_wire_send(client, MC_FRAME_RESUME, &resume.base);
}

static void join_as(struct mc_wire_client *client, uint32_t rank)
{
	struct mc_wire_join join = {.group = "ep0", .rank = rank, .world_size = 2};

	mc_wire_join(client, &join);
}

/* Takes both layouts, votes yes twice and expects the group to be ready. */
static void finish_forming(struct mc_wire_client *clients, struct mc_wire_layout *layouts)
{
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_vote_yes(&clients[r], layouts[r].member_id);
	for (uint32_t r = 0; r < 2; r++)
		assert_true(mc_wire_expect_ready(&clients[r], SOON_MS) == layouts[r].epoch);
}

static void leave_both(struct mc_wire_client *clients, struct mc_wire_layout *layouts)
{
	for (uint32_t r = 0; r < 2; r++) {
		mc_wire_leave(&clients[r], layouts[r].member_id);
		mc_wire_expect_done(&clients[r], MC_STATUS_OK, NULL, SOON_MS);
	}
	harness_drop(layouts, 2);
}

/* Members that have not been told of their membership can't use it, not even by a guess. */
static void nothing_works_before_the_layout(void **state)
{
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[2];

	(void)state;
	harness_open(clients, 2);
	join_as(&clients[0], 0);
	for (uint64_t id = 0; id < 8; id++) {
		struct mc_wire_layout guess = {.member_id = id};

		mc_wire_leave(&clients[0], id);
		mc_wire_expect_done(&clients[0], MC_STATUS_NOT_FOUND, NULL, SOON_MS);
		send_abort(&clients[0], id);
		mc_wire_expect_done(&clients[0], MC_STATUS_NOT_FOUND, NULL, SOON_MS);
		send_op_failed(&clients[0], id, MC_STATUS_TIMEOUT);
		mc_wire_expect_done(&clients[0], MC_STATUS_NOT_FOUND, NULL, SOON_MS);
		send_resume(&clients[0], &guess, 0);
		mc_wire_expect_done(&clients[0], MC_STATUS_NOT_FOUND, NULL, SOON_MS);
		send_vote(&clients[0], id);
		mc_wire_expect_done(&clients[0], MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	}
	join_as(&clients[1], 1);
	finish_forming(clients, layouts);
	leave_both(clients, layouts);
	harness_close(clients, 2);
}

static void a_rank_joins_once(void **state)
{
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[2];

	(void)state;
	harness_open(clients, 2);
	join_as(&clients[0], 0);
	join_as(&clients[0], 0);
	mc_wire_expect_done(&clients[0], MC_STATUS_IN_USE, "rank 0", SOON_MS);
	join_as(&clients[1], 0);
	mc_wire_expect_done(&clients[1], MC_STATUS_IN_USE, "rank 0", SOON_MS);
	join_as(&clients[1], 1);
	finish_forming(clients, layouts);
	/* again, twice: the first starts the next epoch, the second finds the rank taken */
	join_as(&clients[0], 0);
	join_as(&clients[0], 0);
	mc_wire_expect_done(&clients[0], MC_STATUS_IN_USE, "rank 0", SOON_MS);
	harness_drop(layouts, 2);
	join_as(&clients[1], 1);
	finish_forming(clients, layouts);
	leave_both(clients, layouts);
	harness_close(clients, 2);
}

/* Whoever starts over while the others still probe takes them along. */
static void joining_again_while_probing_starts_over(void **state)
{
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[2], again[2];

	(void)state;
	harness_open(clients, 2);
	for (uint32_t r = 0; r < 2; r++)
		join_as(&clients[r], r);
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
	mc_wire_vote_yes(&clients[1], layouts[1].member_id);
	join_as(&clients[0], 0);
	mc_wire_expect_done(&clients[1], MC_STATUS_LEFT, "rank 0", SOON_MS);
	join_as(&clients[1], 1);
	finish_forming(clients, again);
	assert_true(again[0].epoch > layouts[0].epoch);
	/* the memberships of before are over */
	mc_wire_leave(&clients[0], layouts[0].member_id);
	mc_wire_expect_done(&clients[0], MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	leave_both(clients, again);
	harness_drop(layouts, 2);
	harness_close(clients, 2);
}

static void a_member_votes_once(void **state)
{
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[2];

	(void)state;
	harness_open(clients, 2);
	for (uint32_t r = 0; r < 2; r++)
		join_as(&clients[r], r);
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
	send_vote(&clients[0], layouts[0].member_id);
	send_vote(&clients[0], layouts[0].member_id);
	mc_wire_expect_done(&clients[0], MC_STATUS_PROTOCOL, "no vote to give", SOON_MS);
	/* for somebody else */
	send_vote(&clients[0], layouts[1].member_id);
	mc_wire_expect_done(&clients[0], MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	assert_int_equal(mc_wire_group_state(&clients[0], "ep0"), MC_GROUP_PROBING);
	send_vote(&clients[1], layouts[1].member_id);
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_expect_ready(&clients[r], SOON_MS);
	send_vote(&clients[0], layouts[0].member_id);
	mc_wire_expect_done(&clients[0], MC_STATUS_PROTOCOL, "no vote to give", SOON_MS);
	assert_int_equal(mc_wire_group_state(&clients[0], "ep0"), MC_GROUP_READY);
	leave_both(clients, layouts);
	harness_close(clients, 2);
}

static void a_vote_in_a_draining_group_changes_nothing(void **state)
{
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[2];
	struct mc_wire_join join = {.group = "ep0", .world_size = 2};
	struct mc_wire_reply reply;

	(void)state;
	harness_restart_with("[groups]\ndrain_ms = 60000\n");
	harness_open(clients, 2);
	mc_wire_form(clients, layouts, &join);
	mc_wire_leave(&clients[0], layouts[0].member_id);
	mc_wire_expect_done(&clients[0], MC_STATUS_OK, NULL, SOON_MS);
	send_vote(&clients[1], layouts[1].member_id);
	mc_wire_expect_done(&clients[1], MC_STATUS_PROTOCOL, "no vote to give", SOON_MS);
	assert_int_equal(mc_wire_status(&clients[0], "ep0", false, false, &reply)->groups[0]->state,
		MC_GROUP_DRAINING);
	assert_int_equal(((Moecomm__Wire__Status *)reply.message)->groups[0]->n_joined, 1);
	mc_wire_reply_clear(&reply);
	mc_wire_leave(&clients[1], layouts[1].member_id);
	mc_wire_expect_done(&clients[1], MC_STATUS_OK, NULL, SOON_MS);
	harness_drop(layouts, 2);
	harness_close(clients, 2);
}

/* A membership that moves while its vote is on its way hears the outcome on its new connection. */
static void a_voter_that_moves_hears_the_outcome(void **state)
{
	struct mc_wire_client clients[2], other;
	struct mc_wire_layout layouts[2];

	(void)state;
	harness_open(clients, 2);
	harness_open(&other, 1);
	for (uint32_t r = 0; r < 2; r++)
		join_as(&clients[r], r);
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
	send_vote(&clients[0], layouts[0].member_id);
	/* while connected: nothing changes */
	send_resume(&clients[0], &layouts[0], 0);
	mc_wire_expect_done(&clients[0], MC_STATUS_OK, NULL, SOON_MS);
	send_resume(&other, &layouts[0], 0);
	mc_wire_expect_done(&other, MC_STATUS_OK, NULL, SOON_MS);
	/* nothing else was on the old one */
	mc_wire_expect_closed(&clients[0], SOON_MS);
	send_vote(&clients[1], layouts[1].member_id);
	mc_wire_expect_ready(&clients[1], SOON_MS);
	mc_wire_expect_ready(&other, SOON_MS);
	mc_wire_client_close(&clients[0]);
	clients[0] = other;
	leave_both(clients, layouts);
	harness_close(clients, 2);
}

static void what_is_another_s_is_not_found(void **state)
{
	struct mc_wire_client clients[2], other;
	struct mc_wire_layout layouts[2];
	struct mc_wire_join join = {.group = "ep0", .world_size = 2};

	(void)state;
	harness_open(clients, 2);
	harness_open(&other, 1);
	mc_wire_form(clients, layouts, &join);
	send_abort(&other, layouts[0].member_id);
	mc_wire_expect_done(&other, MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	send_op_failed(&other, layouts[0].member_id, MC_STATUS_TIMEOUT);
	mc_wire_expect_done(&other, MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	mc_wire_leave(&other, layouts[0].member_id);
	mc_wire_expect_done(&other, MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	/* not even between two ranks of one group */
	mc_wire_leave(&clients[1], layouts[0].member_id);
	mc_wire_expect_done(&clients[1], MC_STATUS_NOT_FOUND, NULL, SOON_MS);
	send_op_failed(&clients[0], layouts[0].member_id, 0);
	mc_wire_expect_done(&clients[0], MC_STATUS_INVALID, NULL, SOON_MS);
	send_op_failed(&clients[0], layouts[0].member_id, MC_STATUS_QUOTA);
	mc_wire_expect_done(&clients[0], MC_STATUS_INVALID, NULL, SOON_MS);
	assert_int_equal(mc_wire_group_state(&other, "ep0"), MC_GROUP_READY);
	leave_both(clients, layouts);
	mc_wire_client_close(&other);
	harness_close(clients, 2);
}

/* Whoever else of the user asks too much: ranks still form groups, say what failed, and leave. */
static void a_flood_of_queries_does_not_silence_members(void **state)
{
	Moecomm__Wire__StatusRequest request = MOECOMM__WIRE__STATUS_REQUEST__INIT;
	struct mc_wire_client clients[2], flood;
	struct mc_wire_layout layouts[2];

	(void)state;
	harness_restart_with("[limits]\nmax_requests_per_second_per_uid = 20\n");
	harness_open(clients, 2);
	harness_open(&flood, 1);
	for (uint32_t r = 0; r < 2; r++)
		join_as(&clients[r], r);
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
	for (int i = 0; i < 60; i++)
		mc_wire_send(&flood, MC_FRAME_STATUS_REQUEST, &request.base);
	mc_test_daemon_wait_log(&harness_daemon, "asks more than 20 times a second", SOON_MS);
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_vote_yes(&clients[r], layouts[r].member_id);
	for (uint32_t r = 0; r < 2; r++)
		mc_wire_expect_ready(&clients[r], SOON_MS);
	send_op_failed(&clients[0], layouts[0].member_id, MC_STATUS_TIMEOUT);
	mc_wire_expect_done(&clients[0], MC_STATUS_OK, NULL, SOON_MS);
	leave_both(clients, layouts);
	mc_wire_client_close(&flood);
	harness_close(clients, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(nothing_works_before_the_layout),
		HARNESS_TEST(a_rank_joins_once),
		HARNESS_TEST(joining_again_while_probing_starts_over),
		HARNESS_TEST(a_member_votes_once),
		HARNESS_TEST(a_vote_in_a_draining_group_changes_nothing),
		HARNESS_TEST(a_voter_that_moves_hears_the_outcome),
		HARNESS_TEST(what_is_another_s_is_not_found),
		HARNESS_TEST(a_flood_of_queries_does_not_silence_members),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
