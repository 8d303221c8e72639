/* SPDX-License-Identifier: Apache-2.0 */
/* moecomm-bench failures, once through: every event is measured, and as JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "integration/program.h"

#define END_MS 120000

static void measures_every_event(void **state)
{
	static const char *const statuses[] = {"PEER_LOST", "TIMEOUT", "MISMATCH", "ABORTED", "OK"};
	struct program program;
	char *out, *at;
	int n = 0;

	(void)state;
	program_start(
		&program, (const char *const[]){"moecomm-bench", "failures", "--json", "--ranks",
				  "3", "--repeats", "3", "--deadline-ms", "1000", NULL});
	assert_int_equal(program_wait(&program, END_MS), 0);
	out = program_out(&program);
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		assert_non_null(strstr(out, statuses[i]));
	for (at = out; (at = strstr(at, "\"median_ms\"")); at++)
		n++;
	assert_int_equal(n, 9);
	free(out);
	program_clear(&program);
}

static void measures_only_what_is_asked_for(void **state)
{
	struct program program;
	char *out;

	(void)state;
	program_start(&program,
		(const char *const[]){"moecomm-bench", "failures", "--ranks", "2", "--repeats", "1",
			"--events", "mismatch,nothing", "--ops", "50", "--json", NULL});
	assert_int_equal(program_wait(&program, END_MS), 0);
	out = program_out(&program);
	assert_non_null(strstr(out, "\"watched ops\": \"50\""));
	assert_non_null(strstr(out, "ranks call different ops"));
	assert_non_null(strstr(out, "nothing happens"));
	assert_null(strstr(out, "aborts"));
	assert_null(strstr(out, "killed"));
	free(out);
	program_clear(&program);
}

static void refuses_what_makes_no_sense(void **state)
{
	static const char *const wrong[][2] = {{"--ranks", "1"},
		{"--events", "mismatch,earthquake"}, {"--events", ","}, {"--ops", "0"}};
	struct program program;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		program_start(&program, (const char *const[]){"moecomm-bench", "failures",
						wrong[i][0], wrong[i][1], NULL});
		assert_int_equal(program_wait(&program, END_MS), 2);
		program_clear(&program);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(measures_every_event),
		cmocka_unit_test(measures_only_what_is_asked_for),
		cmocka_unit_test(refuses_what_makes_no_sense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
