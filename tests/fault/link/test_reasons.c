/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a group can't take the fast path: each reason, forced in turn, shows once in the log, in the
 * daemon's account of how groups ended, and in its counters. There is no other path in this
 * release, so that a group without it fails on every rank.
 */
#include "fault/link/link.h"

#include "support/fd_count.h"
#include "support/wire_client.h"

#define PROBE_MS 500
#define SOON_MS  5000

static struct mc_test_daemon daemon_process;
static struct mc_wire_client watcher;

static int set_up(void **state)
{
	(void)state;
	mc_test_daemon_start(&daemon_process, NULL);
	mc_wire_client_open(&watcher, daemon_process.socket, "watcher");
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	mc_wire_client_close(&watcher);
	mc_test_daemon_finish(&daemon_process);
	return 0;
}

/* Lines of the log that contain both. */
static int count_lines(const char *group, const char *text)
{
	char *log = mc_test_daemon_log(&daemon_process), *rest = log, *line;
	char named[64];
	int n = 0;

	snprintf(named, sizeof(named), "group %s ", group);
	while ((line = strsep(&rest, "\n")))
		n += strstr(line, named) && strstr(line, text);
	free(log);
	return n;
}

/* The value of a counter of why the fast path was not taken. */
static long counted(const char *reason)
{
	Moecomm__Wire__MetricsRequest request = MOECOMM__WIRE__METRICS_REQUEST__INIT;
	struct mc_wire_reply reply;
	const char *at;
	char label[64];
	long n;

	mc_wire_send(&watcher, MC_FRAME_METRICS_REQUEST, &request.base);
	mc_wire_expect(&watcher, MC_FRAME_METRICS, SOON_MS, &reply);
	snprintf(label, sizeof(label), "{reason=\"%s\"} ", reason);
	at = strstr(
		((const Moecomm__Wire__Metrics *)reply.message)->text, "\nmoecomm_fallback_total");
	at = at ? strstr(at, label) : NULL;
	assert_non_null(at);
	n = strtol(at + strlen(label), NULL, 10);
	mc_wire_reply_clear(&reply);
	return n;
}

/* The group has ended once, with the status and with that text. */
static void check_ending(const char *group, const char *text)
{
	Moecomm__Wire__HistoryRequest request = MOECOMM__WIRE__HISTORY_REQUEST__INIT;
	const Moecomm__Wire__History *history;
	struct mc_wire_reply reply;

	request.group = (char *)group;
	mc_wire_send(&watcher, MC_FRAME_HISTORY_REQUEST, &request.base);
	mc_wire_expect(&watcher, MC_FRAME_HISTORY, SOON_MS, &reply);
	history = (const Moecomm__Wire__History *)reply.message;
	assert_int_equal(history->n_endings, 1);
	assert_int_equal(history->endings[0]->status, MC_STATUS_PROBE_FAILED);
	if (!strstr(history->endings[0]->detail, text))
		fail_msg("\"%s\" does not say \"%s\"", history->endings[0]->detail, text);
	mc_wire_reply_clear(&reply);
}

#ifdef MC_FAULT_INJECTION
struct reason {
	const char *group, *inject, *inject_client, *text;
};

static const struct reason reasons[] = {
	{"dropped", "drop_probe:0>2", NULL, "rank 2 from rank 0: what it wrote never arrived"},
	{"flipped", "flip_probe:1>0", NULL,
		"rank 0 from rank 1: something else than it wrote arrived"},
	{"unmapped", NULL, "map_fail:4@1", "rank 1 from rank 1: its memory could not be imported"},
};

static void each_probe_failure_shows_once(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		const struct reason *reason = &reasons[i];
		struct link_world world = {.socket = daemon_process.socket,
			.group = reason->group,
			.world_size = 3,
			.inject = reason->inject,
			.inject_client = reason->inject_client,
			.probe_timeout_ms = PROBE_MS};
		long before = counted("probe_failed");
		struct link_seen seen[LINK_WORLD];

		link_run(&world, seen);
		for (int r = 0; r < 3; r++) {
			assert_int_equal(seen[r].join, MOECOMM_PROBE_FAILED);
			link_assert_says(&seen[r], r, reason->text);
		}
		assert_int_equal(count_lines(reason->group, "PROBE_FAILED"), 1);
		assert_int_equal(count_lines(reason->group, reason->text), 1);
		check_ending(reason->group, reason->text);
		assert_int_equal(counted("probe_failed"), before + 1);
		/* no reason shows another's */
		for (size_t other = 0; other < sizeof(reasons) / sizeof(reasons[0]); other++)
			if (other != i)
				assert_int_equal(
					count_lines(reason->group, reasons[other].text), 0);
	}
}
#endif

static void a_rank_that_does_not_vote_shows_once(void **state)
{
	struct mc_wire_client clients[2];
	struct mc_wire_layout layouts[2];
	struct mc_wire_join join = {
		.group = "silent", .world_size = 2, .probe_timeout_ms = PROBE_MS};

	(void)state;
	for (join.rank = 0; join.rank < 2; join.rank++) {
		mc_wire_client_open(&clients[join.rank], daemon_process.socket, "silent");
		mc_wire_join(&clients[join.rank], &join);
	}
	for (int r = 0; r < 2; r++)
		mc_wire_expect_layout(&clients[r], SOON_MS, &layouts[r]);
	mc_wire_vote_yes(&clients[0], layouts[0].member_id);
	mc_wire_expect_done(
		&clients[0], MC_STATUS_PROBE_FAILED, "rank 1 did not tell the outcome", SOON_MS);
	assert_int_equal(count_lines("silent", "PROBE_FAILED"), 1);
	check_ending("silent", "rank 1 did not tell the outcome");
	for (int r = 0; r < 2; r++) {
		mc_wire_layout_clear(&layouts[r]);
		mc_wire_client_close(&clients[r]);
	}
}

static void an_override_is_refused_and_counted(void **state)
{
	struct mc_wire_join join = {.group = "override", .world_size = 2, .path = 2};
	long before = counted("override");
	struct mc_wire_client client;

	(void)state;
	mc_wire_client_open(&client, daemon_process.socket, "override");
	mc_wire_join(&client, &join);
	mc_wire_expect_done(&client, MC_STATUS_UNSUPPORTED, "NCCL", SOON_MS);
	assert_int_equal(counted("override"), before + 1);
	assert_int_equal(mc_wire_group_state(&watcher, "override"), 0);
	mc_wire_client_close(&client);
}

/* A device that is used twice, and a part of one: each its own sentence, and nothing is formed. */
static void devices_that_do_not_fit_are_refused(void **state)
{
	struct mc_wire_client clients[3];
	struct mc_wire_join join = {
		.group = "twice", .world_size = 3, .device_uuid = "GPU-11111111-2222"};

	(void)state;
	for (int i = 0; i < 3; i++)
		mc_wire_client_open(&clients[i], daemon_process.socket, "devices");
	mc_wire_join(&clients[0], &join);
	mc_wire_wait_state(&watcher, "twice", MC_GROUP_FORMING, SOON_MS);
	join.rank = 1;
	mc_wire_join(&clients[1], &join);
	mc_wire_expect_done(&clients[1], MC_STATUS_TOPOLOGY,
		"rank 0 and rank 1 are on the same GPU GPU-11111111-2222", SOON_MS);
	join.rank = 2;
	join.device_uuid = "MIG-33333333-4444";
	mc_wire_join(&clients[2], &join);
	mc_wire_expect_done(
		&clients[2], MC_STATUS_TOPOLOGY, "MIG-33333333-4444 of rank 2", SOON_MS);
	/* the one that fits still waits, undisturbed */
	mc_wire_expect_silence(&clients[0], 100);
	assert_int_equal(mc_wire_group_state(&watcher, "twice"), MC_GROUP_FORMING);
	/* who asks for it may share */
	join = (struct mc_wire_join){.group = "shared",
		.world_size = 3,
		.shared_gpu = true,
		.device_uuid = "MIG-33333333-4444"};
	for (int i = 0; i < 3; i++)
		mc_wire_client_close(&clients[i]);
	for (join.rank = 0; join.rank < 3; join.rank++) {
		mc_wire_client_open(&clients[join.rank], daemon_process.socket, "devices");
		mc_wire_join(&clients[join.rank], &join);
	}
	for (int i = 0; i < 3; i++) {
		struct mc_wire_layout layout;

		mc_wire_expect_layout(&clients[i], SOON_MS, &layout);
		mc_wire_layout_clear(&layout);
	}
	for (int i = 0; i < 3; i++)
		mc_wire_client_close(&clients[i]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#ifdef MC_FAULT_INJECTION
		cmocka_unit_test(each_probe_failure_shows_once),
#endif
		cmocka_unit_test(a_rank_that_does_not_vote_shows_once),
		cmocka_unit_test(an_override_is_refused_and_counted),
		cmocka_unit_test(devices_that_do_not_fit_are_refused),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
