/* SPDX-License-Identifier: Apache-2.0 */
/* What status tells, and that health comes from progress. */
#include <sys/mman.h>
#include "integration/daemon/harness.h"
#include "kernels/lamport.h"

static void everything_about_a_group_is_shown(void **state)
{
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[2];
	struct mc_wire_reply reply;
	struct mc_wire_join join = {
		.group = "ep0", .world_size = 2, .label = "worker", .n_channels = 2};
	Moecomm__Wire__Status *status;
	Moecomm__Wire__GroupStatus *group;

	(void)state;
	harness_open(clients, 2);
	mc_wire_join(&clients[0], &join);
	mc_wire_wait_state(&clients[1], "ep0", MC_GROUP_FORMING, SOON_MS);
	status = mc_wire_status(&clients[1], NULL, true, true, &reply);
	assert_string_equal(status->backend, "host");
	assert_int_equal(status->pid, harness_daemon.pid);
	assert_string_equal(status->socket, harness_daemon.socket);
	assert_int_equal(status->total_groups, 1);
	assert_int_equal(status->total_clients, 2);
	assert_int_equal(status->n_clients, 2);
	assert_int_equal(status->clients[0]->pid, getpid());
	assert_string_equal(status->clients[0]->label, "test");
	assert_int_equal(status->clients[0]->n_members, 1);
	group = status->groups[0];
	assert_string_equal(group->name, "ep0");
	assert_int_equal(group->n_joined, 1);
	assert_int_equal(group->n_missing, 1);
	assert_int_equal(group->missing[0], 1);
	mc_wire_reply_clear(&reply);

	join.rank = 1;
	mc_wire_join(&clients[1], &join);
	for (int r = 0; r < 2; r++) {
		mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
		mc_wire_vote_yes(&clients[r], layouts[r].member_id);
	}
	for (int r = 0; r < 2; r++)
		mc_wire_expect_ready(&clients[r], SOON_MS);
	group = mc_wire_status(&clients[0], "ep0", true, false, &reply)->groups[0];
	assert_int_equal(group->state, MC_GROUP_READY);
	assert_int_equal(group->epoch, layouts[0].epoch);
	assert_int_equal(group->path, 1);
	assert_int_equal(group->spec->backend, 1);
	assert_int_equal(group->spec->op_timeout_ms, 10000);
	assert_int_equal(group->arena_bytes, 2 * layouts[0].arena_bytes);
	assert_int_equal(group->n_ranks, 2);
	assert_int_equal(group->ranks[1]->rank, 1);
	assert_string_equal(group->ranks[1]->member->label, "worker");
	assert_int_equal(group->ranks[1]->n_progress, 2);
	assert_int_equal(group->health, MC_HEALTH_IDLE);
	mc_wire_reply_clear(&reply);
	harness_drop(layouts, 2);
	harness_close(clients, 2);
}

static void an_unknown_group_is_not_found(void **state)
{
	Moecomm__Wire__StatusRequest request = MOECOMM__WIRE__STATUS_REQUEST__INIT;
	struct mc_wire_client client;

	(void)state;
	harness_open(&client, 1);
	request.group = "nobody";
	mc_wire_send(&client, MC_FRAME_STATUS_REQUEST, &request.base);
	mc_wire_expect_done(&client, MC_STATUS_NOT_FOUND, "nobody", SOON_MS);
	harness_close(&client, 1);
}

static void a_reply_that_would_be_too_long_is_marked(void **state)
{
	struct mc_wire_client client;
	struct mc_wire_reply reply;
	Moecomm__Wire__Status *status;
	char name[129];

	(void)state;
	harness_restart_with("[limits]\nmax_groups_per_uid = 6000\n");
	harness_open(&client, 1);
	memset(name, 'x', 128);
	name[128] = 0;
	for (int i = 0; i < 4000; i++) {
		struct mc_wire_join join = {.group = name, .world_size = 64, .job = name};

		snprintf(name, 6, "%05u", (unsigned)i % 100000u);
		name[5] = 'x';
		mc_wire_join(&client, &join);
	}
	status = mc_wire_status(&client, NULL, true, false, &reply);
	assert_true(status->truncated);
	assert_int_equal(status->total_groups, 4000);
	assert_in_range(status->n_groups, 50, 3999);
	mc_wire_reply_clear(&reply);
	/* one of them can still be looked at */
	status = mc_wire_status(&client, name, true, false, &reply);
	assert_false(status->truncated);
	assert_int_equal(status->n_groups, 1);
	mc_wire_reply_clear(&reply);
	harness_close(&client, 1);
}

/* What clients call themselves reaches terminals, logs and JSON. */
static void what_is_shown_is_text(void **state)
{
	static const struct {
		const char *label, *shown;
	} cases[] = {
		{"a\xff"
		 "b",
			"a?b"},
		{"a\xc2\x9b"
		 "31m",
			"a??31m"},
		{"\xc3\xbc", "\xc3\xbc"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mc_wire_join join = {.group = "ep0", .world_size = 2};
		struct mc_wire_client client;
		struct mc_wire_reply reply;
		Moecomm__Wire__Status *status;

		join.label = cases[i].label;
		join.device_uuid = cases[i].label;
		mc_wire_client_open(&client, harness_daemon.socket, cases[i].label);
		mc_wire_join(&client, &join);
		status = mc_wire_status(&client, "ep0", true, true, &reply);
		/* the last one; observers may still be on their way out */
		assert_string_equal(status->clients[status->n_clients - 1]->label, cases[i].shown);
		assert_string_equal(status->groups[0]->ranks[0]->member->label, cases[i].shown);
		assert_string_equal(
			status->groups[0]->ranks[0]->member->device_uuid, cases[i].shown);
		mc_wire_reply_clear(&reply);
		mc_wire_client_close(&client);
		mc_wire_client_open(&client, harness_daemon.socket, "observer");
		while (mc_wire_group_state(&client, "ep0"))
			mc_test_sleep_ms(5);
		mc_wire_client_close(&client);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(everything_about_a_group_is_shown),
		HARNESS_TEST(an_unknown_group_is_not_found),
		HARNESS_TEST(a_reply_that_would_be_too_long_is_marked),
		HARNESS_TEST(what_is_shown_is_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
