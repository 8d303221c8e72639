/* SPDX-License-Identifier: Apache-2.0 */
/* moecommctl against the daemon with workers that run, stop, stall and are aborted. */
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>
#include <json-c/json.h>
#include "integration/program.h"
#include "support/daemon_process.h"
#include "support/fd_count.h"

#define N_RANKS 3
#define WAIT_MS 30000

static struct mc_test_daemon daemon_process;

static int ctl(
	char **ret_out, char **ret_err, const char *a, const char *b, const char *c, const char *d)
{
	struct program program;
	int status;

	program_start(&program, (const char *const[]){"moecommctl", "--socket",
					daemon_process.socket, a, b, c, d, NULL});
	status = program_wait(&program, 20000);
	*ret_out = program_out(&program);
	*ret_err = program_err(&program);
	program_clear(&program);
	return status;
}

/* The parsed answer; NULL when the status is another one. */
static struct json_object *ctl_json(int status, const char *a, const char *b)
{
	char *out, *err;
	int got = ctl(&out, &err, "--json", a, b, NULL);
	struct json_object *answer = got == status ? json_tokener_parse(out) : NULL;

	if (got == status && !answer)
		fail_msg("not JSON: %s", out);
	free(out);
	free(err);
	return answer;
}

static struct json_object *get(struct json_object *object, const char *key)
{
	struct json_object *value;

	if (!json_object_object_get_ex(object, key, &value))
		fail_msg("no '%s' in %s", key, json_object_to_json_string(object));
	return value;
}

static int64_t number(struct json_object *object, const char *key)
{
	return json_object_get_int64(get(object, key));
}

static void start_ranks(struct program ranks[N_RANKS], const char *group)
{
	for (int rank = 0; rank < N_RANKS; rank++) {
		char text[16];

		snprintf(text, sizeof(text), "%d", rank);
		program_start(&ranks[rank],
			(const char *const[]){"moecomm-worker", "--socket", daemon_process.socket,
				"--group", group, "--rank", text, "--world-size", "3", "--rounds",
				"0", "--pause", "5", "--hidden", "32", "--progress", "--op-timeout",
				"60000", NULL});
	}
	for (int rank = 0; rank < N_RANKS; rank++)
		program_expect_out(&ranks[rank], "round", WAIT_MS);
}

static void clear_ranks(struct program ranks[N_RANKS])
{
	for (int rank = 0; rank < N_RANKS; rank++)
		program_clear(&ranks[rank]);
}

/* Abort by name ends all members; the group is gone once they have. */
static void end_ranks(struct program ranks[N_RANKS], const char *group)
{
	char *out, *err;

	assert_int_equal(ctl(&out, &err, "abort", group, "--reason", "the test is over"), 0);
	free(out);
	free(err);
	for (int rank = 0; rank < N_RANKS; rank++) {
		assert_int_equal(program_wait(&ranks[rank], 5000), 3);
		err = program_err(&ranks[rank]);
		if (!strstr(err, "ABORTED") || !strstr(err, "the test is over"))
			fail_msg("rank %d said: %s", rank, err);
		free(err);
	}
	clear_ranks(ranks);
}

static void test_running(void **state)
{
	struct program ranks[N_RANKS];
	struct json_object *answer, *group, *list;
	char *out, *err;

	(void)state;
	start_ranks(ranks, "running");
	assert_int_equal(ctl(&out, &err, "status", NULL, NULL, NULL), 0);
	assert_non_null(strstr(out, "running"));
	assert_non_null(strstr(out, "3/3"));
	assert_non_null(strstr(out, daemon_process.socket));
	free(out);
	free(err);
	assert_int_equal(ctl(&out, &err, "groups", "-v", "running", NULL), 0);
	assert_non_null(strstr(out, "moecomm-worker rank 2"));
	free(out);
	free(err);
	assert_int_equal(ctl(&out, &err, "groups", "absent", NULL, NULL), 1);
	assert_string_equal(out, "");
	free(out);
	free(err);

	answer = ctl_json(0, "groups", NULL);
	assert_non_null(answer);
	assert_int_equal(json_object_array_length(get(answer, "groups")), 1);
	group = json_object_array_get_idx(get(answer, "groups"), 0);
	assert_string_equal(json_object_get_string(get(group, "state")), "ready");
	assert_int_equal(number(group, "world_size"), N_RANKS);
	assert_int_equal(number(group, "op_timeout_ms"), 60000);
	assert_true(number(group, "arena_bytes") > 0);
	list = get(group, "ranks");
	assert_int_equal(json_object_array_length(list), N_RANKS);
	for (size_t i = 0; i < N_RANKS; i++) {
		struct json_object *rank = json_object_array_get_idx(list, i);

		assert_int_equal(number(rank, "rank"), i);
		assert_int_equal(number(rank, "pid"), ranks[i].pid);
		assert_true(
			number(json_object_array_get_idx(get(rank, "progress"), 0), "call") > 0);
	}
	json_object_put(answer);

	answer = ctl_json(0, "clients", NULL);
	assert_non_null(answer);
	assert_true(json_object_array_length(get(answer, "clients")) >= N_RANKS);
	json_object_put(answer);
	end_ranks(ranks, "running");
}

/* A stopped rank is found, and only it; once it goes on, all is well again. */
static void test_stalled(void **state)
{
	struct program ranks[N_RANKS];
	struct json_object *answer = NULL, *problem;
	char *out, *err;

	(void)state;
	start_ranks(ranks, "stalled");
	answer = ctl_json(0, "health", NULL);
	assert_non_null(answer);
	json_object_put(answer);

	program_signal(&ranks[1], SIGSTOP);
	answer = NULL;
	for (int waited = 0; !answer && waited < WAIT_MS; waited += 50) {
		answer = ctl_json(4, "health", NULL);
		if (!answer)
			mc_test_sleep_ms(50);
	}
	if (!answer)
		fail_msg("a stopped rank was not noticed within %d ms", WAIT_MS);
	assert_int_equal(json_object_array_length(get(answer, "problems")), 1);
	problem = json_object_array_get_idx(get(answer, "problems"), 0);
	assert_string_equal(json_object_get_string(get(problem, "problem")), "stalled");
	assert_string_equal(json_object_get_string(get(problem, "group")), "stalled");
	assert_int_equal(number(problem, "rank"), 1);
	assert_int_equal(number(problem, "pid"), ranks[1].pid);
	assert_true(number(problem, "call") > 0);
	assert_true(number(problem, "age_ms") > 0);
	json_object_put(answer);

	/* every command works while the workers are stuck */
	assert_int_equal(ctl(&out, &err, "health", NULL, NULL, NULL), 4);
	assert_non_null(strstr(out, "unhealthy: 1 problem"));
	free(out);
	free(err);
	assert_int_equal(ctl(&out, &err, "groups", "-v", NULL, NULL), 0);
	free(out);
	free(err);

	program_signal(&ranks[1], SIGCONT);
	answer = NULL;
	for (int waited = 0; !answer && waited < WAIT_MS; waited += 50) {
		answer = ctl_json(0, "health", NULL);
		if (!answer)
			mc_test_sleep_ms(50);
	}
	assert_non_null(answer);
	json_object_put(answer);
	end_ranks(ranks, "stalled");
}

static void test_refused(void **state)
{
	char *out, *err;

	(void)state;
	assert_int_equal(ctl(&out, &err, "abort", "absent", NULL, NULL), 1);
	assert_non_null(strstr(err, "NOT_FOUND"));
	assert_string_equal(out, "");
	free(out);
	free(err);
}

/* A daemon that is stopped is not waited for without end. */
static void test_stopped_daemon(void **state)
{
	char *out, *err;

	(void)state;
	assert_int_equal(kill(daemon_process.pid, SIGSTOP), 0);
	assert_int_equal(ctl(&out, &err, "status", NULL, NULL, NULL), 3);
	assert_int_equal(kill(daemon_process.pid, SIGCONT), 0);
	assert_non_null(strstr(err, "does not answer"));
	free(out);
	free(err);
}

static int set_up(void **state)
{
	static const struct mc_test_daemon_options options = {
		.config = "[groups]\nstall_ms = 500\n"};

	(void)state;
	mc_test_daemon_start(&daemon_process, &options);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	mc_test_daemon_finish(&daemon_process);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_running),
		cmocka_unit_test(test_stalled),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_stopped_daemon),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
