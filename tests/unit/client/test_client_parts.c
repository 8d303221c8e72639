/* SPDX-License-Identifier: Apache-2.0 */
/* The small parts of the library on their own: sizes, paths, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/error.h"
#include "client/options.h"
#include "client/socket_path.h"

static void test_sizes(void **state)
{
	unsigned char bytes[8192] = {0};

	(void)state;
	assert_true(mc_options_size_ok(bytes, 64, 64));
	assert_false(mc_options_size_ok(bytes, 63, 64));
	assert_false(mc_options_size_ok(bytes, 0, 64));
	assert_true(mc_options_size_ok(bytes, 200, 64));
	bytes[63] = 1;
	assert_true(mc_options_size_ok(bytes, 200, 64));
	bytes[199] = 1;
	assert_false(mc_options_size_ok(bytes, 200, 64));
	assert_false(mc_options_size_ok(bytes, SIZE_MAX, 64));
	assert_false(mc_options_size_ok(bytes, 4097, 64));
}

static void test_resolve(void **state)
{
	char dir[] = "/tmp/moecomm-xdg-XXXXXX", path[160], sub[128], too_long[200];
	struct sockaddr_un address;
	FILE *file;

	(void)state;
	assert_non_null(mkdtemp(dir));
	memset(too_long, 'x', sizeof(too_long) - 1);
	too_long[sizeof(too_long) - 1] = 0;
	unsetenv("MOECOMM_SOCKET");
	setenv("XDG_RUNTIME_DIR", dir, 1);

	assert_int_equal(mc_socket_path_resolve("/a/b", &address), 0);
	assert_string_equal(address.sun_path, "/a/b");
	assert_int_equal(mc_socket_path_resolve(too_long, &address), -ENAMETOOLONG);
	/* nothing is there: the system's */
	assert_int_equal(mc_socket_path_resolve(NULL, &address), 0);
	assert_string_equal(address.sun_path, "/run/moecomm/moecommd.sock");
	/* only the user's is there */
	snprintf(sub, sizeof(sub), "%s/moecomm", dir);
	snprintf(path, sizeof(path), "%s/moecommd.sock", sub);
	assert_int_equal(mkdir(sub, 0700), 0);
	file = fopen(path, "w");
	assert_non_null(file);
	fclose(file);
	assert_int_equal(mc_socket_path_resolve(NULL, &address), 0);
	if (access("/run/moecomm/moecommd.sock", F_OK) != 0)
		assert_string_equal(address.sun_path, path);
	/* the environment goes before both */
	setenv("MOECOMM_SOCKET", "/e/n/v", 1);
	assert_int_equal(mc_socket_path_resolve("", &address), 0);
	assert_string_equal(address.sun_path, "/e/n/v");
	unlink(path);
	rmdir(sub);
	rmdir(dir);
}

/* A path that nothing stops: the text still says something. */
static void test_denied_by_nobody(void **state)
{
	char text[1024];

	(void)state;
	mc_socket_path_explain_denied("/tmp", text, sizeof(text));
	assert_non_null(strstr(text, "/tmp"));
	mc_socket_path_explain_denied("relative/nowhere", text, sizeof(text));
	assert_non_null(strstr(text, "relative/nowhere"));
	mc_socket_path_explain_denied("", text, sizeof(text));
	assert_true(text[0]);
}

static void *other_thread(void *data)
{
	*(int *)data = moecomm_last_error()[0] == 0;
	mc_error(MOECOMM_INVALID, "theirs");
	return NULL;
}

static void test_errors(void **state)
{
	char huge[3000];
	pthread_t thread;
	int was_empty = 0;

	(void)state;
	assert_int_equal(mc_error(MOECOMM_DENIED, "mine %d", 7), MOECOMM_DENIED);
	pthread_create(&thread, NULL, other_thread, &was_empty);
	pthread_join(thread, NULL);
	assert_true(was_empty);
	assert_string_equal(moecomm_last_error(), "mine 7");
	/* quoting the last error in the next */
	mc_error(MOECOMM_DENIED, "again: %s", moecomm_last_error());
	assert_string_equal(moecomm_last_error(), "again: mine 7");
	memset(huge, 'h', sizeof(huge) - 1);
	huge[sizeof(huge) - 1] = 0;
	mc_error(MOECOMM_DENIED, "%s", huge);
	assert_int_equal(strlen(moecomm_last_error()), MC_ERROR_BYTES - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_resolve),
		cmocka_unit_test(test_denied_by_nobody),
		cmocka_unit_test(test_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
