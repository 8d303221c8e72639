/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are stopped, behind, dead, of another shape or missing, and what an operator sees. */
#include <signal.h>
#include "client/moecomm.h"
#include "fault/health/ranks.h"

#define STALL_MS 400
#define CONFIG   "[groups]\nstall_ms = 400\n"

static struct mc_test_daemon daemon_;

static int64_t number(struct json_object *object, const char *key)
{
	return json_object_get_int64(field(object, key));
}

static const char *string(struct json_object *object, const char *key)
{
	return json_object_get_string(field(object, key));
}

static void assert_health_of(const char *group, uint32_t rank, const char *wanted)
{
	struct json_object *answer = ctl_json(&daemon_, 0, "groups", group, NULL);
	struct json_object *shown = json_object_array_get_idx(field(answer, "groups"), 0);
	struct json_object *entry = json_object_array_get_idx(field(shown, "ranks"), rank);

	assert_string_equal(string(entry, "health"), wanted);
	json_object_put(answer);
}

static void a_group_at_work_is_well(void **state)
{
	struct ranks ranks;
	char *out, *err;

	(void)state;
	ranks_start(&ranks, daemon_.socket, "work", 3, NULL, 20);
	assert_int_equal(ctl(&daemon_, &out, &err, "health", NULL), 0);
	assert_words(out, "healthy", NULL);
	free(out);
	free(err);
	assert_int_equal(ctl(&daemon_, &out, &err, "explain", "work", NULL), 0);
	assert_words(out, "group work is ready", "all is well", "3 ranks", "dispatch", NULL);
	free(out);
	free(err);
	ranks_end(&ranks);
}

/* Idle for long, then a call again: nobody is blamed for the time in which there was nothing to do.
 */
static void an_idle_group_is_well(void **state)
{
	static const struct rank_plan plans[2] = {{.n_calls = 10}, {.n_calls = 10}};
	struct ranks ranks;
	char *out, *err;

	(void)state;
	ranks_start(&ranks, daemon_.socket, "idle", 2, plans, 10);
	mc_test_sleep_ms(2 * STALL_MS);
	assert_int_equal(ctl(&daemon_, &out, &err, "health", NULL), 0);
	free(out);
	free(err);
	assert_health_of("idle", 0, "idle");
	assert_health_of("idle", 1, "idle");
	assert_int_equal(ctl(&daemon_, &out, &err, "explain", "idle", NULL), 0);
	assert_words(out, "all is well", "no op is in flight", "call 10", NULL);
	free(out);
	free(err);
	ranks_end(&ranks);
}

static void a_stopped_rank_is_the_only_one_listed(void **state)
{
	struct json_object *answer, *problem, *finding;
	uint64_t stopped_ms, noticed_ms;
	struct ranks ranks;
	char *out, pid[32];

	(void)state;
	ranks_start(&ranks, daemon_.socket, "stop", 3, NULL, 20);
	assert_int_equal(kill(ranks.pid[1], SIGSTOP), 0);
	stopped_ms = mc_test_now_ms();
	out = ctl_until(&daemon_, 4, "health", NULL, SOON_MS);
	noticed_ms = mc_test_now_ms() - stopped_ms;
	print_message("a stopped rank was noticed after %llu ms (threshold %d)\n",
		(unsigned long long)noticed_ms, STALL_MS);
	assert_true(noticed_ms >= STALL_MS / 2);
	snprintf(pid, sizeof(pid), "%d", ranks.pid[1]);
	assert_words(out, "unhealthy: 1 problem", "stop", "stalled", "dispatch", pid, NULL);
	free(out);

	answer = ctl_json(&daemon_, 4, "health", NULL);
	assert_int_equal(json_object_array_length(field(answer, "problems")), 1);
	problem = json_object_array_get_idx(field(answer, "problems"), 0);
	assert_string_equal(string(problem, "problem"), "stalled");
	assert_int_equal(number(problem, "rank"), 1);
	assert_int_equal(number(problem, "pid"), ranks.pid[1]);
	assert_string_equal(string(problem, "op"), "dispatch");
	assert_true(number(problem, "call") >= 20);
	/* two peers, each a header and 4 rows of 64 bytes */
	assert_int_equal(number(problem, "pushed_bytes"), 2 * (16 + 4 * 64));
	assert_true(number(problem, "age_ms") >= STALL_MS);
	field(problem, "device_uuid");
	json_object_put(answer);
	assert_health_of("stop", 0, "waiting");
	assert_health_of("stop", 1, "stalled");
	assert_health_of("stop", 2, "waiting");

	out = ctl_until(&daemon_, 4, "explain", "stop", 0);
	assert_words(out, "not well", "rank 1 (pid", pid, "is stopped", "channel 0",
		"Ranks 0 and 2 wait for it", "TIMEOUT in", "what to do: let it go on (kill -CONT ",
		NULL);
	free(out);
	answer = ctl_json(&daemon_, 4, "explain", "stop", NULL);
	assert_int_equal(json_object_array_length(field(answer, "findings")), 1);
	finding = json_object_array_get_idx(field(answer, "findings"), 0);
	assert_string_equal(string(finding, "kind"), "stopped");
	assert_int_equal(number(finding, "rank"), 1);
	assert_int_equal(number(finding, "pid"), ranks.pid[1]);
	json_object_put(answer);

	assert_int_equal(kill(ranks.pid[1], SIGCONT), 0);
	free(ctl_until(&daemon_, 0, "health", NULL, SOON_MS));
	free(ctl_until(&daemon_, 0, "explain", "stop", 0));
	ranks_end(&ranks);
}

/* The lag shows before the deadline, and the sentence after it has both call numbers. */
static void a_rank_one_op_behind_is_named(void **state)
{
	static const struct rank_plan plans[3] = {{0}, {.skip_call = 100}, {0}};
	struct json_object *answer, *problem;
	struct ranks ranks;
	char *out, *err;

	(void)state;
	ranks_start(&ranks, daemon_.socket, "behind", 3, plans, 99);
	out = ctl_until(&daemon_, 4, "explain", "behind", SOON_MS);
	assert_words(out, "rank 1 (pid", "is behind the others", "left dispatch, call 99",
		"The group is at call 100 (dispatch)", "1 call behind", "Ranks 0 and 2 wait for it",
		"py-spy dump --pid", NULL);
	free(out);
	answer = ctl_json(&daemon_, 4, "health", NULL);
	assert_int_equal(json_object_array_length(field(answer, "problems")), 1);
	problem = json_object_array_get_idx(field(answer, "problems"), 0);
	assert_int_equal(number(problem, "rank"), 1);
	assert_int_equal(number(problem, "call"), 99);
	assert_int_equal(number(problem, "lag_calls"), 1);
	json_object_put(answer);
	assert_int_equal(ranks.report[0].status, 0);

	/* the operator ends the wait */
	assert_int_equal(
		ctl(&daemon_, &out, &err, "deadline", "behind", "--op-ms", "100", NULL), 0);
	free(out);
	free(err);
	assert_int_equal(ranks_wait_failure(&ranks, 0), MOECOMM_TIMEOUT);
	assert_words(ranks.report[0].text, "rank 1", "99", "100", NULL);
	out = ctl_until(&daemon_, 4, "explain", "behind", 0);
	assert_words(out, "TIMEOUT", "rank 1", "call 99", "the group was at call 100", NULL);
	free(out);
	ranks_end(&ranks);
}

static void a_dead_rank_is_named_also_when_the_group_is_gone(void **state)
{
	struct ranks ranks;
	char *out, pid[32];

	(void)state;
	ranks_start(&ranks, daemon_.socket, "dead", 3, NULL, 20);
	snprintf(pid, sizeof(pid), "pid %d", ranks.pid[2]);
	ranks_kill(&ranks, 2);
	assert_int_equal(ranks_wait_failure(&ranks, 0), MOECOMM_PEER_LOST);
	out = ctl_until(&daemon_, 4, "explain", "dead", SOON_MS);
	assert_words(out, "PEER_LOST", "rank 2", pid, "what to do", NULL);
	free(out);
	ranks_end(&ranks);
	for (int waited = 0; waited < SOON_MS; waited += 20) {
		out = ctl_until(&daemon_, 4, "explain", "dead", 0);
		if (strstr(out, "group dead is gone"))
			break;
		free(out);
		out = NULL;
		mc_test_sleep_ms(20);
	}
	assert_non_null(out);
	assert_words(out, "PEER_LOST", "rank 2", pid, "dispatch, call ", NULL);
	free(out);
}

static void differing_shapes_are_told_with_both_sides(void **state)
{
	static const struct rank_plan plans[2] = {{0}, {.shape_call = 30}};
	struct ranks ranks;
	char *out;

	(void)state;
	ranks_start(&ranks, daemon_.socket, "shape", 2, plans, 29);
	assert_int_equal(ranks_wait_failure(&ranks, 0), MOECOMM_MISMATCH);
	out = ctl_until(&daemon_, 4, "explain", "shape", SOON_MS);
	assert_words(out, "MISMATCH", "call 30", "differ (digests ",
		"The one it differs from: rank ", "compare what the two ranks call", NULL);
	free(out);
	ranks_end(&ranks);
}

static void a_missing_rank_is_named_before_and_after_the_deadline(void **state)
{
	struct ranks ranks;
	char *out;

	(void)state;
	ranks_start_one(&ranks, daemon_.socket, "miss", 3);
	out = ctl_until(&daemon_, 4, "explain", "miss", SOON_MS);
	assert_words(out, "group miss is forming", "ranks 1 and 2 of 3 have not joined",
		"JOIN_TIMEOUT in", "Here: rank 0 (pid", "start what is missing", NULL);
	free(out);
	assert_int_equal(ranks_wait_failure(&ranks, 0), MOECOMM_JOIN_TIMEOUT);
	out = ctl_until(&daemon_, 4, "explain", "miss", SOON_MS);
	assert_words(out, "JOIN_TIMEOUT", "Missing: ranks 1 and 2 of 3", NULL);
	free(out);
	ranks_end(&ranks);
}

static void an_unknown_group_is_refused(void **state)
{
	char *out, *err;

	(void)state;
	assert_int_equal(ctl(&daemon_, &out, &err, "explain", "never", NULL), 1);
	assert_string_equal(out, "");
	assert_words(err, "no group named never", NULL);
	free(out);
	free(err);
	assert_int_equal(ctl(&daemon_, &out, &err, "explain", NULL), 2);
	free(out);
	free(err);
	assert_int_equal(ctl(&daemon_, &out, &err, "deadline", "never", "--op-ms", "5", NULL), 1);
	free(out);
	free(err);
	assert_int_equal(ctl(&daemon_, &out, &err, "deadline", "never", "--op-ms", "0", NULL), 2);
	free(out);
	free(err);
	assert_int_equal(ctl(&daemon_, &out, &err, "deadline", "never", NULL), 2);
	free(out);
	free(err);
}

static void a_dump_has_everything(void **state)
{
	struct json_object *dump, *ending;
	struct ranks ranks;

	(void)state;
	ranks_start(&ranks, daemon_.socket, "dump0", 2, NULL, 5);
	ranks_kill(&ranks, 1);
	ranks_wait_failure(&ranks, 0);
	ranks_end(&ranks);
	ranks_start(&ranks, daemon_.socket, "dump1", 2, NULL, 5);
	dump = ctl_json(&daemon_, 0, "dump", NULL);
	assert_words(string(dump, "config"), "stall_ms = 400", "[limits]", NULL);
	field(field(dump, "versions"), "moecommd");
	assert_int_equal(json_object_array_length(field(dump, "groups")), 1);
	assert_true(json_object_array_length(field(dump, "clients")) >= 2);
	/* four transitions of each, and the end of the first */
	assert_true(json_object_array_length(field(dump, "events")) >= 9);
	ending = json_object_array_get_idx(
		field(dump, "endings"), json_object_array_length(field(dump, "endings")) - 1);
	assert_string_equal(string(ending, "group"), "dump0");
	assert_string_equal(string(ending, "status"), "PEER_LOST");
	assert_int_equal(number(ending, "rank"), 1);
	json_object_put(dump);
	ranks_end(&ranks);
}

static int set_up(void **state)
{
	static const struct mc_test_daemon_options options = {.config = CONFIG};

	(void)state;
	mc_test_daemon_start(&daemon_, &options);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	mc_test_daemon_finish(&daemon_);
	return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_group_at_work_is_well),
		TEST(an_idle_group_is_well),
		TEST(a_stopped_rank_is_the_only_one_listed),
		TEST(a_rank_one_op_behind_is_named),
		TEST(a_dead_rank_is_named_also_when_the_group_is_gone),
		TEST(differing_shapes_are_told_with_both_sides),
		TEST(a_missing_rank_is_named_before_and_after_the_deadline),
		TEST(an_unknown_group_is_refused),
		TEST(a_dump_has_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
