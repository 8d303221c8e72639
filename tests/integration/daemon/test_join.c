/* SPDX-License-Identifier: Apache-2.0 */
/* Joins that are refused, and joins that time out. */
#include "integration/daemon/harness.h"
#include "kernels/host/host.h"

static void refused(const struct mc_wire_join *join, uint32_t status, const char *text)
{
	struct mc_wire_client client;

	harness_open(&client, 1);
	mc_wire_join(&client, join);
	mc_wire_expect_done(&client, status, text, SOON_MS);
	assert_int_equal(mc_wire_group_state(&client, join->group), 0);
	harness_close(&client, 1);
}

static void bad_requests_are_refused_before_anything_is_made(void **state)
{
	const struct mc_wire_join sane = {.group = "ep0", .world_size = 2};
	struct mc_wire_join join;
	char long_name[130];

	(void)state;
	join = sane, join.group = "";
	refused(&join, MC_STATUS_INVALID, "group");
	join = sane, join.group = "a/b";
	refused(&join, MC_STATUS_INVALID, "group");
	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = 0;
	join = sane, join.group = long_name;
	refused(&join, MC_STATUS_INVALID, "group");
	join = sane, join.rank = 2;
	refused(&join, MC_STATUS_INVALID, "rank");
	join = sane, join.world_size = 65;
	refused(&join, MC_STATUS_INVALID, "world_size");
	join = sane, join.path = 2;
	refused(&join, MC_STATUS_UNSUPPORTED, "NCCL");
	join = sane, join.backend = 2, join.device_uuid = "GPU-1";
	refused(&join, MC_STATUS_UNSUPPORTED, "host backend");
	join = sane, join.max_rows = UINT64_C(0x7fffffff),
	join.dispatch_row_bytes = UINT64_C(1) << 40;
	refused(&join, MC_STATUS_TOO_LARGE, "max_rows 2147483647");
	join = sane, join.join_timeout_ms = 86400001;
	refused(&join, MC_STATUS_INVALID, "join_timeout_ms");
}

static void foreign_hosts_and_devices_are_refused(void **state)
{
	struct mc_wire_client clients[2];
	struct mc_wire_join join = {.group = "ep0", .world_size = 2};

	(void)state;
	join.boot_id = "00000000-0000-0000-0000-000000000000";
	refused(&join, MC_STATUS_TOPOLOGY, "boot 00000000-0000-0000-0000-000000000000");
	join.boot_id = NULL;
	join.device_uuid = "MIG-8a1b";
	refused(&join, MC_STATUS_TOPOLOGY, "MIG");

	harness_open(clients, 2);
	join.device_uuid = "GPU-8a1b";
	mc_wire_join(&clients[0], &join);
	mc_wire_wait_joined(&clients[1], "ep0", 1, SOON_MS);
	join.rank = 1;
	mc_wire_join(&clients[1], &join);
	mc_wire_expect_done(&clients[1], MC_STATUS_TOPOLOGY, "same GPU GPU-8a1b", SOON_MS);
	/* declared shared, both are fine */
	join = (struct mc_wire_join){
		.group = "ep1", .world_size = 2, .shared_gpu = true, .device_uuid = "MIG-8a1b"};
	for (join.rank = 0; join.rank < 2; join.rank++)
		mc_wire_join(&clients[join.rank], &join);
	mc_wire_wait_state(&clients[1], "ep0", MC_GROUP_FORMING, SOON_MS);
	harness_close(clients, 2);
}

struct mismatch {
	const char *field, *theirs, *mine;
	struct mc_wire_join join;
};

static void a_mismatch_fails_the_join_on_every_rank(void **state)
{
	static const struct mismatch cases[] = {
		{"world_size", "3", "4", {.world_size = 4}},
		{"max_rows", "8", "16", {.world_size = 3, .max_rows = 16}},
		{"n_channels", "1", "2", {.world_size = 3, .n_channels = 2}},
		{"dispatch_row_bytes", "64", "80", {.world_size = 3, .dispatch_row_bytes = 80}},
		{"combine_row_bytes", "0", "32", {.world_size = 3, .combine_row_bytes = 32}},
		{"path", "0", "1", {.world_size = 3, .path = 1}},
		{"shared_gpu", "0", "1", {.world_size = 3, .shared_gpu = true}},
		{"op_timeout_ms", "10000", "5", {.world_size = 3, .op_timeout_ms = 5}},
		{"join_timeout_ms", "60000", "5000", {.world_size = 3, .join_timeout_ms = 5000}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mc_wire_client clients[3];
		struct mc_wire_join first = {.group = "ep0", .world_size = 3}, odd = cases[i].join;
		char theirs[128], mine[128];

		harness_open(clients, 3);
		mc_wire_join(&clients[0], &first);
		mc_wire_wait_joined(&clients[2], "ep0", 1, SOON_MS);
		first.rank = 1;
		mc_wire_join(&clients[1], &first);
		mc_wire_wait_joined(&clients[2], "ep0", 2, SOON_MS);
		odd.group = "ep0";
		odd.rank = 2;
		mc_wire_join(&clients[2], &odd);
		snprintf(theirs, sizeof(theirs), "%s is %s on rank ", cases[i].field,
			cases[i].theirs);
		snprintf(mine, sizeof(mine), "but %s on rank 2", cases[i].mine);
		for (int r = 0; r < 3; r++)
			mc_wire_expect_done(&clients[r], MC_STATUS_SPEC_MISMATCH,
				r % 2 ? theirs : mine, SOON_MS);
		assert_int_equal(mc_wire_group_state(&clients[0], "ep0"), 0);
		harness_close(clients, 3);
	}
}

static void a_taken_rank_or_name_names_its_holder(void **state)
{
	struct mc_wire_client clients[2], other;
	struct mc_wire_layout layouts[2];
	struct mc_wire_join join = {
		.group = "ep0", .world_size = 2, .job = "train", .label = "holder"};
	char holder[64];

	(void)state;
	snprintf(holder, sizeof(holder), "pid %d, uid %d, holder", (int)getpid(), (int)getuid());
	harness_open(clients, 2);
	harness_open(&other, 1);
	/* forming */
	mc_wire_join(&clients[0], &join);
	mc_wire_wait_joined(&other, "ep0", 1, SOON_MS);
	mc_wire_join(&other, &join);
	mc_wire_expect_done(&other, MC_STATUS_IN_USE, holder, SOON_MS);
	join.job = "serve", join.rank = 1;
	mc_wire_join(&other, &join);
	mc_wire_expect_done(&other, MC_STATUS_IN_USE, holder, SOON_MS);
	mc_wire_expect_silence(&clients[0], 100);
	/* ready: the group that holds the name never notices */
	join.job = "train";
	mc_wire_join(&clients[1], &join);
	for (int r = 0; r < 2; r++) {
		mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
		mc_wire_vote_yes(&clients[r], layouts[r].member_id);
	}
	for (int r = 0; r < 2; r++)
		mc_wire_expect_ready(&clients[r], SOON_MS);
	mc_wire_join(&other, &join);
	mc_wire_expect_done(&other, MC_STATUS_IN_USE, holder, SOON_MS);
	join.job = "serve";
	mc_wire_join(&other, &join);
	mc_wire_expect_done(&other, MC_STATUS_IN_USE, "job 'train'", SOON_MS);
	mc_wire_expect_silence(&clients[0], 100);
	assert_int_equal(mc_wire_group_state(&other, "ep0"), MC_GROUP_READY);
	harness_drop(layouts, 2);
	harness_close(clients, 2);
	harness_close(&other, 1);
}

static void a_missing_rank_ends_the_join_at_its_deadline(void **state)
{
	struct mc_wire_client clients[4];
	struct mc_wire_layout layouts[2];
	struct mc_wire_join join = {.group = "a", .world_size = 2, .join_timeout_ms = 400};
	uint64_t started;

	(void)state;
	harness_open(clients, 4);
	started = mc_test_now_ms();
	mc_wire_join(&clients[0], &join);
	/* another group forms beside it */
	join.group = "b";
	mc_wire_form(&clients[2], layouts, &join);
	harness_drop(layouts, 2);
	mc_wire_expect_done(
		&clients[0], MC_STATUS_JOIN_TIMEOUT, "rank 1 of 2 did not join", SOON_MS);
	assert_in_range(mc_test_now_ms() - started, 380, 4000);
	join = (struct mc_wire_join){
		.group = "c", .world_size = 5, .rank = 3, .join_timeout_ms = 100};
	mc_wire_join(&clients[0], &join);
	mc_wire_expect_done(&clients[0], MC_STATUS_JOIN_TIMEOUT, "ranks 0, 1, 2, 4 of 5", SOON_MS);
	assert_int_equal(mc_wire_group_state(&clients[2], "b"), MC_GROUP_READY);
	assert_int_equal(mc_wire_group_state(&clients[2], "a"), 0);
	harness_close(clients, 4);
}

static void fifty_retries_cost_one_deadline(void **state)
{
	struct mc_wire_client clients[2], again;
	struct mc_wire_layout layouts[2];
	struct mc_wire_join join = {.group = "ep0", .world_size = 2, .join_timeout_ms = 2000};
	uint64_t started = mc_test_now_ms();
	size_t n_fds;

	(void)state;
	harness_open(clients, 2);
	mc_wire_join(&clients[0], &join);
	mc_wire_expect_done(&clients[0], MC_STATUS_JOIN_TIMEOUT, "rank 1", SOON_MS);
	n_fds = mc_test_count_fds(harness_daemon.pid);
	for (int i = 0; i < 25; i++) {
		mc_wire_join(&clients[0], &join);
		mc_wire_expect_done(&clients[0], MC_STATUS_JOIN_TIMEOUT, "earlier try", SOON_MS);
		/* a new connection of the same process is a retry too */
		harness_open(&again, 1);
		mc_wire_join(&again, &join);
		mc_wire_expect_done(&again, MC_STATUS_JOIN_TIMEOUT, "earlier try", SOON_MS);
		harness_close(&again, 1);
	}
	/* the deadline itself, and fifty retries that cost one at most; then slack for the machine
	 */
	assert_true(mc_test_now_ms() - started < 2 * 2000 + 2000);
	mc_test_wait_fds(harness_daemon.pid, n_fds, SOON_MS);
	/* the missing rank comes: the verdict is forgotten, and the group forms */
	join.rank = 1;
	mc_wire_join(&clients[1], &join);
	mc_wire_wait_state(&clients[1], "ep0", MC_GROUP_FORMING, SOON_MS);
	join.rank = 0;
	mc_wire_join(&clients[0], &join);
	mc_wire_expect_layout(&clients[0], SOON_MS, &layouts[0]);
	mc_wire_expect_layout(&clients[1], SOON_MS, &layouts[1]);
	harness_drop(layouts, 2);
	harness_close(clients, 2);
}

/* Ranks that are told to rejoin do so together, but never at the same instant. */
static void a_retry_meets_the_rank_that_was_missing(void **state)
{
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[2];
	struct mc_wire_join join = {.group = "ep0", .world_size = 2, .join_timeout_ms = 8000};

	(void)state;
	harness_open(clients, 2);
	mc_wire_join(&clients[0], &join);
	mc_wire_expect_done(&clients[0], MC_STATUS_JOIN_TIMEOUT, "rank 1", 8000 + SOON_MS);
	/* the retry first: it is still there when the other comes, and waits on for it to arm */
	mc_wire_join(&clients[0], &join);
	mc_wire_wait_state(&clients[1], "ep0", MC_GROUP_FORMING, SOON_MS);
	join.rank = 1;
	mc_wire_join(&clients[1], &join);
	mc_wire_expect_layout(&clients[0], SOON_MS, &layouts[0]);
	mc_wire_expect_layout(&clients[1], SOON_MS, &layouts[1]);
	harness_drop(layouts, 2);
	harness_close(clients, 2);
}

static void a_verdict_ends_with_its_time_or_another_spec(void **state)
{
	struct mc_wire_client client;
	struct mc_wire_join join = {.group = "ep0", .world_size = 2, .join_timeout_ms = 200};
	uint64_t started;

	(void)state;
	harness_open(&client, 1);
	mc_wire_join(&client, &join);
	mc_wire_expect_done(&client, MC_STATUS_JOIN_TIMEOUT, NULL, SOON_MS);
	/* another spec is another try */
	join.max_rows = 16;
	started = mc_test_now_ms();
	mc_wire_join(&client, &join);
	mc_wire_expect_done(&client, MC_STATUS_JOIN_TIMEOUT, "did not join", SOON_MS);
	assert_true(mc_test_now_ms() - started >= 180);
	mc_test_sleep_ms(250);
	started = mc_test_now_ms();
	mc_wire_join(&client, &join);
	mc_wire_expect_done(&client, MC_STATUS_JOIN_TIMEOUT, "did not join", SOON_MS);
	assert_true(mc_test_now_ms() - started >= 180);
	harness_close(&client, 1);
}

static void a_veto_names_the_pair_on_every_rank(void **state)
{
	struct mc_wire_client clients[3];
	struct mc_wire_layout layouts[3];
	struct mc_wire_join join = {.group = "ep0", .world_size = 3};

	(void)state;
	harness_open(clients, 3);
	for (join.rank = 0; join.rank < 3; join.rank++)
		mc_wire_join(&clients[join.rank], &join);
	for (int r = 0; r < 3; r++)
		mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
	mc_wire_vote_yes(&clients[0], layouts[0].member_id);
	mc_wire_vote_no(&clients[1], layouts[1].member_id, 2, MC_PROBE_CORRUPT);
	mc_wire_expect_done(
		&clients[0], MC_STATUS_PROBE_FAILED, "rank 1 from rank 2: something else", SOON_MS);
	mc_wire_expect_done(
		&clients[1], MC_STATUS_PROBE_FAILED, "rank 1 from rank 2: something else", SOON_MS);
	/* the third has not voted yet: it hears it at once, and again as its vote's answer */
	mc_wire_expect_notice(&clients[2], MC_STATUS_PROBE_FAILED,
		"rank 1 from rank 2: something else", NULL, SOON_MS);
	mc_wire_vote_yes(&clients[2], layouts[2].member_id);
	mc_wire_expect_done(
		&clients[2], MC_STATUS_PROBE_FAILED, "rank 1 from rank 2: something else", SOON_MS);
	assert_int_equal(mc_wire_group_state(&clients[0], "ep0"), 0);
	/* and the verdict stands for who retries */
	join.rank = 0;
	mc_wire_join(&clients[0], &join);
	mc_wire_expect_done(&clients[0], MC_STATUS_PROBE_FAILED, "earlier try", SOON_MS);
	harness_drop(layouts, 3);
	harness_close(clients, 3);
}

static void who_never_votes_is_named(void **state)
{
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[2];
	struct mc_wire_join join = {.group = "ep0", .world_size = 2, .probe_timeout_ms = 100};

	(void)state;
	harness_open(clients, 2);
	for (join.rank = 0; join.rank < 2; join.rank++)
		mc_wire_join(&clients[join.rank], &join);
	for (int r = 0; r < 2; r++)
		mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
	mc_wire_vote_yes(&clients[0], layouts[0].member_id);
	mc_wire_expect_done(&clients[0], MC_STATUS_PROBE_FAILED, "rank 1 did not tell", SOON_MS);
	harness_drop(layouts, 2);
	harness_close(clients, 2);
}

static void who_goes_before_the_group_is_ready(void **state)
{
	struct mc_wire_client clients[3];
	struct mc_wire_layout layouts[3];
	struct mc_wire_join join = {.group = "ep0", .world_size = 3};

	(void)state;
	/* while forming: just one less */
	harness_open(clients, 3);
	for (join.rank = 0; join.rank < 2; join.rank++)
		mc_wire_join(&clients[join.rank], &join);
	mc_wire_wait_joined(&clients[2], "ep0", 2, SOON_MS);
	mc_wire_client_close(&clients[1]);
	mc_wire_wait_joined(&clients[2], "ep0", 1, SOON_MS);
	mc_wire_expect_silence(&clients[0], 100);
	mc_wire_client_open(&clients[1], harness_daemon.socket, "again");
	for (join.rank = 1; join.rank < 3; join.rank++)
		mc_wire_join(&clients[join.rank], &join);
	for (int r = 0; r < 3; r++)
		mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
	/* while probing: the others can't form without it */
	mc_wire_vote_yes(&clients[0], layouts[0].member_id);
	mc_wire_client_close(&clients[2]);
	mc_wire_expect_done(&clients[0], MC_STATUS_PEER_LOST, "rank 2", SOON_MS);
	mc_wire_expect_notice(&clients[1], MC_STATUS_PEER_LOST, "rank 2", NULL, SOON_MS);
	harness_drop(layouts, 3);
	harness_close(clients, 2);
}

static void quotas_are_clear_refusals(void **state)
{
	struct mc_wire_client clients[3];
	struct mc_wire_join join = {.group = "g0", .world_size = 2};

	(void)state;
	harness_restart_with("[limits]\nmax_groups_per_uid = 2\nmax_arena_bytes_per_uid = 1M\n"
			     "max_fds_per_uid = 16\n");
	harness_open(clients, 3);
	mc_wire_join(&clients[0], &join);
	join.group = "g1";
	mc_wire_join(&clients[1], &join);
	mc_wire_wait_joined(&clients[2], "g0", 1, SOON_MS);
	mc_wire_wait_joined(&clients[2], "g1", 1, SOON_MS);
	join.group = "g2";
	mc_wire_join(&clients[2], &join);
	mc_wire_expect_done(&clients[2], MC_STATUS_QUOTA, "2 groups", SOON_MS);
	mc_wire_client_close(&clients[0]);
	mc_wire_wait_state(&clients[2], "g0", 0, SOON_MS);
	join = (struct mc_wire_join){.group = "g2",
		.world_size = 1,
		.rank = 0,
		.max_rows = 1 << 20,
		.dispatch_row_bytes = 1024,
		.n_channels = 8};
	join.world_size = 2;
	mc_wire_join(&clients[2], &join);
	mc_wire_client_open(&clients[0], harness_daemon.socket, "test");
	join.rank = 1;
	mc_wire_join(&clients[0], &join);
	mc_wire_expect_done(&clients[0], MC_STATUS_QUOTA, "bytes of arenas", SOON_MS);
	mc_wire_expect_done(&clients[2], MC_STATUS_QUOTA, "bytes of arenas", SOON_MS);
	/* 8 ranks need 17 fds, and 10 each on their way to them */
	for (uint32_t r = 0; r < 8; r++) {
		join = (struct mc_wire_join){.group = "g3", .world_size = 8, .rank = r};
		mc_wire_join(&clients[0], &join);
	}
	mc_wire_expect_done(&clients[0], MC_STATUS_QUOTA, "file descriptors", SOON_MS);
	harness_close(clients, 3);
}

static void a_group_that_the_machine_cannot_hold_is_refused(void **state)
{
	struct mc_wire_client clients[2];
	/* four slots of 512 GiB: legal, within the quota, and beyond this machine's memory */
	struct mc_wire_join join = {.group = "huge",
		.world_size = 2,
		.max_rows = 1 << 20,
		.dispatch_row_bytes = 1 << 19,
		.join_timeout_ms = SOON_MS};

	(void)state;
	harness_restart_with("[limits]\nmax_arena_bytes_per_uid = 64T\n");
	harness_open(clients, 2);
	mc_wire_join(&clients[0], &join);
	join.rank = 1;
	mc_wire_join(&clients[1], &join);
	mc_wire_expect_done(&clients[0], MC_STATUS_NO_MEMORY, "free memory", SOON_MS);
	mc_wire_expect_done(&clients[1], MC_STATUS_NO_MEMORY, "free memory", SOON_MS);
	/* and nothing of it is left: a group that fits forms at once */
	join = (struct mc_wire_join){.group = "small", .world_size = 1};
	mc_wire_join(&clients[0], &join);
	mc_wire_wait_joined(&clients[1], "small", 1, SOON_MS);
	harness_close(clients, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(bad_requests_are_refused_before_anything_is_made),
		HARNESS_TEST(foreign_hosts_and_devices_are_refused),
		HARNESS_TEST(a_mismatch_fails_the_join_on_every_rank),
		HARNESS_TEST(a_taken_rank_or_name_names_its_holder),
		HARNESS_TEST(a_missing_rank_ends_the_join_at_its_deadline),
		HARNESS_TEST(fifty_retries_cost_one_deadline),
		HARNESS_TEST(a_retry_meets_the_rank_that_was_missing),
		HARNESS_TEST(a_verdict_ends_with_its_time_or_another_spec),
		HARNESS_TEST(a_veto_names_the_pair_on_every_rank),
		HARNESS_TEST(who_never_votes_is_named),
		HARNESS_TEST(who_goes_before_the_group_is_ready),
		HARNESS_TEST(quotas_are_clear_refusals),
		HARNESS_TEST(a_group_that_the_machine_cannot_hold_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
