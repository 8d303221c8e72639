/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings: every row parses its default, its bounds and nothing beyond. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>
#include <cmocka.h>
#include "daemon/config.h"

/* Loads a text as the configuration file. */
static int load(const char *text, struct mc_config *ret_config, char *ret_error, size_t n_error)
{
	char path[] = "/tmp/moecomm-config-XXXXXX";
	struct mc_config_overrides overrides = {.file = path, .socket = "/tmp/s/s.sock"};
	int fd = mkstemp(path), r;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	r = mc_config_load(&overrides, ret_config, ret_error, n_error);
	unlink(path);
	return r;
}

static void every_setting_has_help_and_a_valid_default(void **state)
{
	struct mc_config config;
	char error[256], text[256], again[256];

	(void)state;
	memset(&config, 0, sizeof(config));
	for (size_t i = 0; i < mc_n_settings; i++) {
		const struct mc_setting *setting = &mc_settings[i];

		assert_true(strlen(setting->help) > 10);
		assert_int_equal(mc_setting_parse(setting, setting->default_text, &config, error,
					 sizeof(error)),
			0);
		mc_setting_format(setting, &config, text, sizeof(text));
		assert_int_equal(mc_setting_parse(setting, text, &config, error, sizeof(error)), 0);
		mc_setting_format(setting, &config, again, sizeof(again));
		assert_string_equal(text, again);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(setting->name, mc_settings[j].name);
	}
}

static void numbers_are_bounded_on_both_sides(void **state)
{
	struct mc_config config;
	char error[256], text[64];

	(void)state;
	memset(&config, 0, sizeof(config));
	for (size_t i = 0; i < mc_n_settings; i++) {
		const struct mc_setting *setting = &mc_settings[i];

		if (setting->type != MC_SETTING_COUNT && setting->type != MC_SETTING_MS &&
			setting->type != MC_SETTING_BYTES)
			continue;
		snprintf(text, sizeof(text), "%llu", (unsigned long long)setting->min);
		assert_int_equal(mc_setting_parse(setting, text, &config, error, sizeof(error)), 0);
		snprintf(text, sizeof(text), "%llu", (unsigned long long)setting->max);
		assert_int_equal(mc_setting_parse(setting, text, &config, error, sizeof(error)), 0);
		snprintf(text, sizeof(text), "%llu", (unsigned long long)setting->max + 1);
		assert_int_not_equal(
			mc_setting_parse(setting, text, &config, error, sizeof(error)), 0);
		assert_non_null(strstr(error, setting->name));
		if (setting->min) {
			snprintf(text, sizeof(text), "%llu", (unsigned long long)setting->min - 1);
			assert_int_not_equal(
				mc_setting_parse(setting, text, &config, error, sizeof(error)), 0);
		}
		for (const char *const *bad = (const char *const[]){"", "-1", "+5", " 5", "5 ",
			     "0x5", "5.0", "99999999999999999999999", "5KK", "K", "five", NULL};
			*bad; bad++)
			assert_int_not_equal(
				mc_setting_parse(setting, *bad, &config, error, sizeof(error)), 0);
	}
}

static void a_file_s_values_are_taken(void **state)
{
	struct mc_config config;
	char error[512] = "";

	(void)state;
	assert_int_equal(load("# comment\n[limits]\nmax_arena_bytes_per_uid = 3G ; inline\n"
			      "[daemon]\nlog_level=debug\nsocket_mode = 0600\nbackend = cuda\n"
			      "socket_group = moecomm\n",
				 &config, error, sizeof(error)),
		0);
	assert_string_equal(error, "");
	assert_true(config.max_arena_bytes_per_uid == UINT64_C(3) << 30);
	assert_int_equal(config.log_level, LOG_DEBUG);
	assert_int_equal(config.socket_mode, 0600);
	assert_int_equal(config.backend, MC_BACKEND_CHOICE_CUDA);
	assert_string_equal(config.socket_group, "moecomm");
	assert_string_equal(config.socket, "/tmp/s/s.sock");
	assert_int_equal(config.stall_ms, 2000);
}

static void errors_name_file_line_and_what_is_allowed(void **state)
{
	static const struct {
		const char *text, *error;
	} cases[] = {
		{"\n\n[groups]\nstall_ms = x\n",
			":4: stall_ms = x is not allowed: must be milliseconds from 10"},
		{"[daemon]\nstall_ms = 5000\n", ":2: [daemon] stall_ms is not a setting"},
		{"stall_ms = 5000\n", ":1: [] stall_ms is not a setting"},
		{"[groups]\nstall_ms = 50\n[groups]\nstall_ms = 60\n", ":4: stall_ms is set twice"},
		{"[groups\n", ":1: neither"},
		{"[groups]\nstall_ms\n", ":2: neither"},
		{"oops\n[groups]\nstall_ms = x\n", ":1: neither"},
		{"[daemon]\nsocket_mode = 0888\n",
			":2: socket_mode = 0888 is not allowed: must be an octal"},
		{"[daemon]\nsocket_mode = 1777\n", ":2: socket_mode"},
		{"[daemon]\nlog_level = loud\n",
			":2: log_level = loud is not allowed: must be one of error|warning"},
	};
	struct mc_config config;
	char error[512], long_line[600];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_not_equal(load(cases[i].text, &config, error, sizeof(error)), 0);
		if (!strstr(error, cases[i].error))
			fail_msg("'%s' does not say '%s'", error, cases[i].error);
		assert_non_null(strstr(error, "/tmp/moecomm-config-"));
	}
	memset(long_line, 'a', sizeof(long_line));
	memcpy(long_line, "[daemon]\nsocket_group = ", 24);
	long_line[sizeof(long_line) - 1] = 0;
	assert_int_not_equal(load(long_line, &config, error, sizeof(error)), 0);
	assert_non_null(strstr(error, ":2: "));
}

static void what_is_printed_reads_back_as_the_same(void **state)
{
	struct mc_config config, again;
	char error[512], *text = NULL;
	size_t n = 0;
	FILE *out;

	(void)state;
	assert_int_equal(load("[groups]\ndrain_ms = 77\n[daemon]\nbackend = host\n", &config, error,
				 sizeof(error)),
		0);
	out = open_memstream(&text, &n);
	mc_config_print(&config, out);
	fclose(out);
	assert_int_equal(load(text, &again, error, sizeof(error)), 0);
	for (size_t i = 0; i < mc_n_settings; i++) {
		char a[256], b[256];

		mc_setting_format(&mc_settings[i], &config, a, sizeof(a));
		mc_setting_format(&mc_settings[i], &again, b, sizeof(b));
		assert_string_equal(a, b);
	}
	free(text);
}

static void a_missing_file_is_an_error_only_when_asked_for(void **state)
{
	struct mc_config_overrides overrides = {.file = "/nonexistent/moecommd.conf"};
	struct mc_config config;
	char error[512];

	(void)state;
	assert_int_not_equal(mc_config_load(&overrides, &config, error, sizeof(error)), 0);
	assert_non_null(strstr(error, "/nonexistent/moecommd.conf"));
	overrides = (struct mc_config_overrides){.backend = "tpu"};
	assert_int_not_equal(mc_config_load(&overrides, &config, error, sizeof(error)), 0);
	assert_non_null(strstr(error, "command line: --backend = tpu"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_setting_has_help_and_a_valid_default),
		cmocka_unit_test(numbers_are_bounded_on_both_sides),
		cmocka_unit_test(a_file_s_values_are_taken),
		cmocka_unit_test(errors_name_file_line_and_what_is_allowed),
		cmocka_unit_test(what_is_printed_reads_back_as_the_same),
		cmocka_unit_test(a_missing_file_is_an_error_only_when_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
