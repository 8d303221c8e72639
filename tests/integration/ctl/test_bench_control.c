/* SPDX-License-Identifier: Apache-2.0 */
/* moecomm-bench control runs, with a daemon of its own, and its JSON holds every measurement. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <json-c/json.h>
#include "integration/program.h"

static struct json_object *get(struct json_object *object, const char *key)
{
	struct json_object *value;

	if (!json_object_object_get_ex(object, key, &value))
		fail_msg("no '%s' in %s", key, json_object_to_json_string(object));
	return value;
}

static size_t count(struct json_object *results, const char *what)
{
	size_t n = 0;

	for (size_t i = 0; i < json_object_array_length(results); i++) {
		struct json_object *row = json_object_array_get_idx(results, i);

		if (strcmp(json_object_get_string(get(row, "what")), what) != 0)
			continue;
		assert_true(json_object_get_double(get(row, "median")) > 0);
		n++;
	}
	return n;
}

static void test_json(void **state)
{
	struct program program;
	struct json_object *answer, *results;
	char *out, *err;
	int status;

	(void)state;
	program_start(
		&program, (const char *const[]){"moecomm-bench", "control", "--json", "--repeats",
				  "2", "--query-ms", "50", "--clients", "20", NULL});
	status = program_wait(&program, 60000);
	out = program_out(&program);
	err = program_err(&program);
	if (status != 0)
		fail_msg("it ended with %d: %s", status, err);
	answer = json_tokener_parse(out);
	if (!answer)
		fail_msg("not JSON: %s", out);
	assert_int_equal(json_object_get_int(get(answer, "schema")), 1);
	results = get(answer, "results");
	assert_int_equal(count(results, "attach, a process a rank"), 5);
	assert_int_equal(count(results, "attach, a thread a rank"), 5);
	assert_int_equal(count(results, "status queries a second"), 1);
	assert_int_equal(count(results, "connect storm, all clients"), 1);
	json_object_put(answer);
	free(out);
	free(err);
	program_clear(&program);
}

static void test_ends(void **state)
{
	static const struct {
		const char *argv[6];
		int status;
	} cases[] = {
		{{"moecomm-bench", NULL}, 2},
		{{"moecomm-bench", "nonsense", NULL}, 2},
		{{"moecomm-bench", "control", "--repeats", "0", NULL}, 2},
		{{"moecomm-bench", "control", "more", NULL}, 2},
		{{"moecomm-bench", "control", "--socket", "/nonexistent/sock", NULL}, 3},
		{{"moecomm-bench", "control", "--help", NULL}, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct program program;

		program_start(&program, cases[i].argv);
		if (program_wait(&program, 20000) != cases[i].status)
			fail_msg("case %zu ended with %d", i, program.status);
		program_clear(&program);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
