/* SPDX-License-Identifier: Apache-2.0 */
/* fds that wait in the daemon for a client that does not read are that user's, and bounded. */
#include "integration/daemon/harness.h"

/*
 * A group of that size costs 33 fds (board, control blocks, arenas), and while its layouts are on
 * their way 18 more for each rank: 321 in all.
 */
#define WORLD_SIZE 16u

/* Asks without reading until the socket is full and the daemon has to keep replies. */
static void fill(struct mc_wire_client *client, struct mc_wire_client *observer)
{
	Moecomm__Wire__HistoryRequest request = MOECOMM__WIRE__HISTORY_REQUEST__INIT;
	uint64_t deadline = mc_test_now_ms() + SOON_MS;
	bool is_full = false;

	while (!is_full) {
		struct mc_wire_reply reply;
		Moecomm__Wire__Status *status;

		assert_true(mc_test_now_ms() < deadline);
		for (int i = 0; i < 8; i++)
			mc_wire_send(client, MC_FRAME_HISTORY_REQUEST, &request.base);
		status = mc_wire_status(observer, NULL, false, true, &reply);
		for (size_t i = 0; i < status->n_clients; i++)
			is_full |= status->clients[i]->queued_bytes > 0;
		mc_wire_reply_clear(&reply);
	}
}

static void unread_layouts_count_as_the_user_s_fds(void **state)
{
	struct mc_wire_join join = {.group = "big", .world_size = WORLD_SIZE};
	struct mc_wire_client greedy, other;
	struct mc_wire_layout layout;
	size_t n_fds;

	(void)state;
	harness_restart_with("[limits]\nmax_fds_per_uid = 400\n");
	harness_open(&other, 1);
	harness_open(&greedy, 1);
	n_fds = mc_test_count_fds(harness_daemon.pid);
	fill(&greedy, &other);
	for (join.rank = 0; join.rank < WORLD_SIZE; join.rank++)
		mc_wire_join(&greedy, &join);
	mc_test_daemon_wait_log(&harness_daemon, "is cut off", SOON_MS);
	/* what it had goes with it */
	mc_test_wait_fds(harness_daemon.pid, n_fds - 1, SOON_MS);
	/* and is given back */
	join = (struct mc_wire_join){.group = "next", .world_size = 4};
	for (join.rank = 0; join.rank < 4; join.rank++)
		mc_wire_join(&other, &join);
	for (uint32_t r = 0; r < 4; r++) {
		mc_wire_expect_layout(&other, SOON_MS, &layout);
		mc_wire_layout_clear(&layout);
	}
	mc_wire_client_close(&greedy);
	mc_wire_client_close(&other);
}

/* The kernel bounds the fds on their way from the daemon to all its clients together. */
static void layouts_on_their_way_count_until_they_are_read(void **state)
{
	struct mc_wire_join join = {.group = "slow", .world_size = WORLD_SIZE};
	struct mc_wire_client slow, other;
	struct mc_wire_layout layouts[WORLD_SIZE], layout;

	(void)state;
	harness_restart_with("[limits]\nmax_fds_per_uid = 400\n");
	harness_open(&other, 1);
	harness_open(&slow, 1);
	for (join.rank = 0; join.rank < WORLD_SIZE; join.rank++)
		mc_wire_join(&slow, &join);
	mc_wire_wait_state(&other, "slow", MC_GROUP_PROBING, SOON_MS);
	/* 17 fds and 80 on their way */
	join = (struct mc_wire_join){.group = "next", .world_size = 8};
	for (join.rank = 0; join.rank < 8; join.rank++)
		mc_wire_join(&other, &join);
	for (uint32_t r = 0; r < 8; r++)
		mc_wire_expect_done(&other, MC_STATUS_QUOTA, "file descriptors", SOON_MS);
	for (uint32_t r = 0; r < WORLD_SIZE; r++)
		mc_wire_expect_layout(&slow, SOON_MS, &layouts[r]);
	for (uint32_t r = 0; r < WORLD_SIZE; r++)
		mc_wire_vote_yes(&slow, layouts[r].member_id);
	for (uint32_t r = 0; r < WORLD_SIZE; r++)
		mc_wire_expect_ready(&slow, SOON_MS);
	for (join.rank = 0; join.rank < 8; join.rank++)
		mc_wire_join(&other, &join);
	for (uint32_t r = 0; r < 8; r++) {
		mc_wire_expect_layout(&other, SOON_MS, &layout);
		mc_wire_layout_clear(&layout);
	}
	harness_drop(layouts, WORLD_SIZE);
	mc_wire_client_close(&slow);
	mc_wire_client_close(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(unread_layouts_count_as_the_user_s_fds),
		HARNESS_TEST(layouts_on_their_way_count_until_they_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
