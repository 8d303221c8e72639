/* SPDX-License-Identifier: Apache-2.0 */
/* Plain log lines: one line each whatever a client's strings hold, and not too many of a kind. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#include "daemon/log.h"

static int real_stderr, captured;

static int capture(void **state)
{
	(void)state;
	unsetenv("JOURNAL_STREAM");
	real_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
	captured = memfd_create("stderr", MFD_CLOEXEC);
	assert_true(real_stderr >= 0 && captured >= 0);
	assert_int_equal(dup2(captured, STDERR_FILENO), STDERR_FILENO);
	mc_log_open(LOG_INFO);
	return 0;
}

static int restore(void **state)
{
	(void)state;
	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);
	close(captured);
	return 0;
}

/* What was logged; static. */
static const char *text(void)
{
	static char buffer[65536];
	ssize_t n = pread(captured, buffer, sizeof(buffer) - 1, 0);

	assert_true(n >= 0);
	buffer[n] = 0;
	return buffer;
}

static unsigned count_lines(void)
{
	unsigned n = 0;

	for (const char *at = text(); *at; at++)
		n += *at == '\n';
	return n;
}

static void lines_have_a_level_and_are_filtered_by_it(void **state)
{
	(void)state;
	mc_log(LOG_ERR, "cannot do %d", 1);
	mc_log(LOG_DEBUG, "not shown");
	mc_log(LOG_WARNING, "beware");
	assert_string_equal(text(), "moecommd: error: cannot do 1\nmoecommd: warning: beware\n");
	mc_log_set_level(LOG_DEBUG);
	mc_log(LOG_DEBUG, "shown");
	assert_non_null(strstr(text(), "moecommd: debug: shown\n"));
}

static void a_line_stays_one_line(void **state)
{
	struct mc_log_about about = {.group = "g", .epoch = 5};
	char long_text[5000];

	(void)state;
	mc_log_about(LOG_INFO, &about, "label %s", "a\nmoecommd: error: forged\n\x1b[31m");
	assert_int_equal(count_lines(), 1);
	assert_null(strchr(text(), '\x1b'));
	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = 0;
	mc_log(LOG_INFO, "%s", long_text);
	assert_int_equal(count_lines(), 2);
}

static void a_client_s_lines_are_limited_and_counted(void **state)
{
	struct mc_log_limit limit = {0};

	(void)state;
	for (int i = 0; i < 1000; i++)
		mc_log_limited(&limit, LOG_WARNING, NULL, "the same again");
	assert_in_range(count_lines(), 10, 12);
	/* the next that is shown tells how many were not */
	limit.refilled_ms -= 5000;
	mc_log_limited(&limit, LOG_WARNING, NULL, "the same again");
	assert_non_null(strstr(text(), "lines like this were left out)"));
}

static void a_reader_that_stops_costs_lines_not_the_daemon(void **state)
{
	static char buffer[1 << 20];
	int ends[2];
	ssize_t n;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	alarm(20); /* it would wait for ever */
	for (int i = 0; i < 5000; i++)
		mc_log(LOG_INFO, "line %d of many that nobody reads", i);
	n = read(ends[0], buffer, sizeof(buffer) - 1);
	assert_true(n > 0);
	buffer[n] = 0;
	assert_non_null(strstr(buffer, "line 100 of many"));
	assert_null(strstr(buffer, "line 4999 of many"));
	/* once there is room it says how many */
	mc_log(LOG_INFO, "the next");
	n = read(ends[0], buffer, sizeof(buffer) - 1);
	assert_true(n > 0);
	buffer[n] = 0;
	assert_non_null(strstr(buffer, "the next ("));
	assert_non_null(strstr(buffer, "lines before it were lost)\n"));
	alarm(0);
	assert_int_equal(dup2(captured, STDERR_FILENO), STDERR_FILENO);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			lines_have_a_level_and_are_filtered_by_it, capture, restore),
		cmocka_unit_test_setup_teardown(a_line_stays_one_line, capture, restore),
		cmocka_unit_test_setup_teardown(
			a_client_s_lines_are_limited_and_counted, capture, restore),
		cmocka_unit_test_setup_teardown(
			a_reader_that_stops_costs_lines_not_the_daemon, capture, restore),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
