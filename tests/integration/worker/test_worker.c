/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moecomm-worker as a user runs it: processes, a daemon of the test's own, the whole way from text
 * to checked layers, and how it ends when something goes wrong.
 */
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>
#include "integration/program.h"
#include "support/daemon_process.h"
#include "support/fd_count.h"

#define MAX_WORLD_SIZE 8
/* Ranks share two cores with the rest of the tests, and may run under a sanitizer. */
#define END_MS 60000

static struct mc_test_daemon daemon_process;

/* Starts a rank with up to 20 more arguments, ended by NULL. */
static void start_rank(struct program *program, const char *group, int rank, int world_size, ...)
{
	char rank_text[16], world_text[16];
	const char *argv[32] = {"moecomm-worker", "--socket", daemon_process.socket, "--group",
		group, "--rank", rank_text, "--world-size", world_text};
	size_t n = 9;
	const char *argument;
	va_list arguments;

	snprintf(rank_text, sizeof(rank_text), "%d", rank);
	snprintf(world_text, sizeof(world_text), "%d", world_size);
	va_start(arguments, world_size);
	while ((argument = va_arg(arguments, const char *)))
		argv[n++] = argument;
	va_end(arguments);
	program_start(program, argv);
}

static const char *last_line(char *text)
{
	size_t n = strlen(text);
	char *start;

	while (n > 0 && text[n - 1] == '\n')
		text[--n] = '\0';
	start = strrchr(text, '\n');
	return start ? start + 1 : text;
}

static void expect_verified(struct program *program)
{
	int status = program_wait(program, END_MS);
	char *out = program_out(program), *err = program_err(program);
	const char *line = last_line(out);
	double error = -1;
	int layers = 0;

	if (status != 0)
		fail_msg("a rank ended with %d: %s", status, err);
	assert_string_equal(err, "");
	if (sscanf(line, "verified: max relative error %lf over %d layers", &error, &layers) != 2)
		fail_msg("the last line is '%s'", line);
	assert_true(error >= 0 && error <= 1e-2);
	free(out);
	free(err);
	program_clear(program);
}

static void test_ragged(void **state)
{
	static const int sizes[] = {1, 2, 3, 4, 5, 8};
	size_t fds = mc_test_count_fds(0);

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct program ranks[MAX_WORLD_SIZE];

		for (int rank = 0; rank < sizes[i]; rank++)
			start_rank(&ranks[rank], "ragged", rank, sizes[i], "--check", "--ragged",
				"--layers", "3", "--rounds", "6", "--tokens", "6", "--hidden", "64",
				NULL);
		for (int rank = 0; rank < sizes[i]; rank++)
			expect_verified(&ranks[rank]);
	}
	assert_int_equal(mc_test_count_fds(0), fds);
}

/* Nothing divides anything: hidden, experts, ranks; and more choices than a rank has experts. */
static void test_odd_sizes(void **state)
{
	struct program ranks[3];

	(void)state;
	for (int rank = 0; rank < 3; rank++)
		start_rank(&ranks[rank], "odd", rank, 3, "--check", "--hidden", "33", "--experts",
			"7", "--topk", "5", "--tokens", "3", "--rounds", "5", NULL);
	for (int rank = 0; rank < 3; rank++)
		expect_verified(&ranks[rank]);
}

/* More ranks than experts: some have none, and still carry their tokens and take part. */
static void test_few_experts(void **state)
{
	struct program ranks[4];

	(void)state;
	for (int rank = 0; rank < 4; rank++)
		start_rank(&ranks[rank], "few", rank, 4, "--check", "--experts", "2", "--topk", "2",
			"--rounds", "3", "--hidden", "32", "--tokens", "1", NULL);
	for (int rank = 0; rank < 4; rank++)
		expect_verified(&ranks[rank]);
}

/* Two groups of equal shape at once, with different models, and nothing of one gets into the other.
 */
static void test_two_groups(void **state)
{
	struct program ranks[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		start_rank(&ranks[i], i < 2 ? "one" : "two", i % 2, 2, "--check", "--ragged",
			"--rounds", "20", "--hidden", "32", "--seed", i < 2 ? "1" : "2", NULL);
	for (int i = 0; i < 4; i++)
		expect_verified(&ranks[i]);
}

/* --check finds it when a rank's experts are not those of the others. */
static void test_check_finds(void **state)
{
	struct program ranks[2];
	char *err;

	(void)state;
	start_rank(&ranks[0], "wrong", 0, 2, "--check", "--hidden", "64", NULL);
	start_rank(&ranks[1], "wrong", 1, 2, "--hidden", "64", "--seed", "2", NULL);
	assert_int_equal(program_wait(&ranks[0], END_MS), 1);
	err = program_err(&ranks[0]);
	assert_non_null(strstr(err, "differs from the reference"));
	free(err);
	/* the other one is told, rather than left to its deadline */
	assert_int_equal(program_wait(&ranks[1], END_MS), 3);
	err = program_err(&ranks[1]);
	assert_non_null(strstr(err, "ABORTED"));
	free(err);
	program_clear(&ranks[0]);
	program_clear(&ranks[1]);
}

static void test_killed(void **state)
{
	struct program ranks[3];

	(void)state;
	for (int rank = 0; rank < 3; rank++)
		start_rank(&ranks[rank], "killed", rank, 3, "--rounds", "0", "--hidden", "32",
			"--progress", NULL);
	for (int rank = 0; rank < 3; rank++)
		program_expect_out(&ranks[rank], "round", END_MS);
	program_signal(&ranks[1], SIGKILL);
	for (int rank = 0; rank < 3; rank += 2) {
		char *err;

		/* promised is 1 s; a loaded machine gets a few more */
		assert_int_equal(program_wait(&ranks[rank], 5000), 3);
		err = program_err(&ranks[rank]);
		if (!strstr(err, "PEER_LOST (rank 1)"))
			fail_msg("rank %d said: %s", rank, err);
		free(err);
	}
	for (int rank = 0; rank < 3; rank++)
		program_clear(&ranks[rank]);
}

/* Survivors and a restarted rank go on in the next epoch, and everything verifies to the end. */
static void test_rejoin(void **state)
{
	struct program ranks[3], killed;
	char *err;

	(void)state;
	for (int rank = 0; rank < 3; rank++)
		start_rank(&ranks[rank], "rejoin", rank, 3, "--rejoin", "--check", "--ragged",
			"--rounds", "100", "--pause", "20", "--hidden", "32", "--tokens", "4",
			"--layers", "2", "--progress", NULL);
	for (int rank = 0; rank < 3; rank++)
		program_expect_out(&ranks[rank], "round", END_MS);
	killed = ranks[1];
	program_signal(&killed, SIGKILL);
	start_rank(&ranks[1], "rejoin", 1, 3, "--rejoin", "--check", "--ragged", "--rounds", "100",
		"--pause", "20", "--hidden", "32", "--tokens", "4", "--layers", "2", NULL);
	program_clear(&killed);
	for (int rank = 0; rank < 3; rank++) {
		char *out;

		assert_int_equal(program_wait(&ranks[rank], END_MS), 0);
		out = program_out(&ranks[rank]);
		assert_non_null(strstr(out, "verified: "));
		if (rank != 1)
			assert_non_null(strstr(out, "rejoined group rejoin"));
		free(out);
	}
	err = program_err(&ranks[0]);
	assert_non_null(strstr(err, "PEER_LOST"));
	free(err);
	for (int rank = 0; rank < 3; rank++)
		program_clear(&ranks[rank]);
}

static void expect_end(const char *const argv[], int status, const char *text)
{
	struct program program;
	char *err;

	program_start(&program, argv);
	assert_int_equal(program_wait(&program, END_MS), status);
	err = program_err(&program);
	if (!strstr(err, text))
		fail_msg("'%s' is not in: %s", text, err);
	free(err);
	program_clear(&program);
}

static void test_mistakes(void **state)
{
	(void)state;
	expect_end((const char *const[]){"moecomm-worker", NULL}, 2, "--group is missing");
	expect_end((const char *const[]){"moecomm-worker", "--group", "g", "--rank", "2",
			   "--world-size", "2", NULL},
		2, "--rank must be below --world-size");
	expect_end((const char *const[]){"moecomm-worker", "--rank", "one", NULL}, 2,
		"need a whole number");
	expect_end((const char *const[]){"moecomm-worker", "--group", "g", "--rank", "0",
			   "--world-size", "1", "--topk", "9", NULL},
		2, "--topk is larger than --experts");
	expect_end((const char *const[]){"moecomm-worker", "--group", "g", "--rank", "0",
			   "--world-size", "1", "--input", "/nonexistent", NULL},
		2, "cannot read the text /nonexistent");
	expect_end((const char *const[]){"moecomm-worker", "--group", "g", "--rank", "0",
			   "--world-size", "1", "--socket", "/nonexistent/sock", NULL},
		3, "connecting failed: UNREACHABLE");
	expect_end((const char *const[]){"moecomm-worker", "--group", "alone", "--rank", "0",
			   "--world-size", "2", "--join-timeout", "200", "--socket",
			   daemon_process.socket, NULL},
		3, "joining the group failed: JOIN_TIMEOUT");
}

static int set_up(void **state)
{
	(void)state;
	mc_test_daemon_start(&daemon_process, NULL);
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
		cmocka_unit_test(test_ragged),
		cmocka_unit_test(test_odd_sizes),
		cmocka_unit_test(test_few_experts),
		cmocka_unit_test(test_two_groups),
		cmocka_unit_test(test_check_finds),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_rejoin),
		cmocka_unit_test(test_mistakes),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
