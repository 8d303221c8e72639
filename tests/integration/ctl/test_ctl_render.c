/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moecommctl against a stand-in for the daemon: what it prints for given statuses, as text and as
 * JSON, and how it ends when what answers misbehaves.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>
#include <json-c/json.h>
#include "integration/ctl/canned.h"
#include "integration/ctl/fake_daemon.h"
#include "integration/program.h"

struct output {
	int status;
	char *out, *err;
};

static char *directory;

/* Runs moecommctl --socket SOCKET with up to four arguments more. */
static struct output ctl(
	const char *socket, const char *a, const char *b, const char *c, const char *d)
{
	const char *argv[] = {"moecommctl", "--socket", socket, a, b, c, d, NULL};
	struct program program;
	struct output output;

	program_start(&program, argv);
	output.status = program_wait(&program, 20000);
	output.out = program_out(&program);
	output.err = program_err(&program);
	program_clear(&program);
	return output;
}

static void output_clear(struct output *output)
{
	free(output->out);
	free(output->err);
}

static void expect(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in:\n%s", part, text);
}

static size_t lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* Runs it with --json and returns the parsed answer, whose schema is right. */
static struct json_object *ctl_json(const char *socket, int status, const char *a, const char *b)
{
	struct output output = ctl(socket, "--json", a, b, NULL);
	struct json_object *answer, *schema;

	assert_int_equal(output.status, status);
	assert_string_equal(output.err, "");
	answer = json_tokener_parse(output.out);
	if (!answer)
		fail_msg("not JSON:\n%s", output.out);
	assert_true(json_object_object_get_ex(answer, "schema", &schema));
	assert_int_equal(json_object_get_int(schema), 1);
	output_clear(&output);
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

static const char *text(struct json_object *object, const char *key)
{
	return json_object_get_string(get(object, key));
}

static void test_status(void **state)
{
	struct fake_daemon daemon;
	struct output output;
	struct json_object *answer, *group, *rank;

	(void)state;
	fake_daemon_start(&daemon, directory, FAKE_HONEST, canned_demo(false));
	output = ctl(daemon.path, "status", NULL, NULL, NULL);
	assert_int_equal(output.status, 0);
	assert_string_equal(output.err, "");
	expect(output.out, "moecommd 9.8.7   pid 77   up 3 m 12 s   host backend");
	expect(output.out, "1 group   1 client   3.0 MiB of arenas");
	expect(output.out, "demo");
	expect(output.out, "4/4");
	expect(output.out, "lamport");
	expect(output.out, "GPU-11111111-2222-3333-4444-555555555555");
	expect(output.out, "1000 1002");
	assert_null(strchr(output.out, '\033')); /* a file is no terminal: no colour */
	output_clear(&output);

	answer = ctl_json(daemon.path, 0, "status", NULL);
	assert_int_equal(number(get(answer, "daemon"), "uptime_ms"), 192000);
	assert_int_equal(number(get(answer, "daemon"), "arena_bytes"), 3 << 20);
	assert_string_equal(
		text(get(answer, "daemon"), "instance"), "abcd0000000000000000000000000000");
	assert_null(get(get(answer, "daemon"), "not_ready"));
	group = json_object_array_get_idx(get(answer, "groups"), 0);
	assert_string_equal(text(group, "state"), "ready");
	assert_int_equal(number(group, "epoch"), 7);
	assert_int_equal(number(group, "op_timeout_ms"), 10000);
	assert_int_equal(json_object_array_length(get(group, "ranks")), 4);
	rank = json_object_array_get_idx(get(group, "ranks"), 2);
	assert_int_equal(number(rank, "pid"), 1002);
	assert_int_equal(number(json_object_array_get_idx(get(rank, "progress"), 0), "call"), 41);
	assert_int_equal(
		number(json_object_array_get_idx(get(answer, "gpus"), 0), "arena_bytes"), 5 << 20);
	json_object_put(answer);
	fake_daemon_stop(&daemon);
}

static void test_empty(void **state)
{
	struct fake_daemon daemon;
	struct output output;
	struct json_object *answer;

	(void)state;
	fake_daemon_start(&daemon, directory, FAKE_HONEST, canned_empty());
	output = ctl(daemon.path, "groups", NULL, NULL, NULL);
	assert_int_equal(output.status, 0);
	assert_string_equal(output.out, "no groups\n");
	output_clear(&output);
	output = ctl(daemon.path, "groups", "absent", NULL, NULL);
	assert_int_equal(output.status, 1);
	expect(output.err, "no group named absent");
	assert_int_equal(lines(output.err), 1);
	output_clear(&output);
	output = ctl(daemon.path, "health", NULL, NULL, NULL);
	assert_int_equal(output.status, 0);
	expect(output.out, "healthy: 0 groups");
	output_clear(&output);
	answer = ctl_json(daemon.path, 0, "health", NULL);
	assert_true(json_object_get_boolean(get(answer, "healthy")));
	assert_int_equal(json_object_array_length(get(answer, "problems")), 0);
	json_object_put(answer);
	fake_daemon_stop(&daemon);
}

static void test_groups(void **state)
{
	struct fake_daemon daemon;
	struct output output;

	(void)state;
	fake_daemon_start(&daemon, directory, FAKE_HONEST, canned_demo(false));
	output = ctl(daemon.path, "groups", "-v", "demo", NULL);
	assert_int_equal(output.status, 0);
	expect(output.out, "256 rows a rank; dispatch row 4.0 KiB, combine row 14.0 KiB");
	expect(output.out, "10.0 s an op; 2 m 0 s for a channel's first 16");
	expect(output.out, "combine_rmsnorm");
	expect(output.out, "64.0 KiB");
	output_clear(&output);
	fake_daemon_stop(&daemon);

	fake_daemon_start(&daemon, directory, FAKE_HONEST, canned_broken());
	output = ctl(daemon.path, "groups", "--verbose", NULL, NULL);
	assert_int_equal(output.status, 0);
	expect(output.out, "cause      rank 1 (pid 1001) ended");
	expect(output.out, "rank 0: PEER_LOST at call 9: rank 1 ended while rank 0 waited for it");
	expect(output.out, "processes that still map memory of ended epochs");
	output_clear(&output);
	fake_daemon_stop(&daemon);
}

static void test_clients(void **state)
{
	struct fake_daemon daemon;
	struct output output;
	struct json_object *answer, *client;

	(void)state;
	fake_daemon_start(&daemon, directory, FAKE_HONEST, canned_demo(false));
	output = ctl(daemon.path, "clients", NULL, NULL, NULL);
	assert_int_equal(output.status, 0);
	expect(output.out, "engine");
	expect(output.out, "5.5 s");
	output_clear(&output);
	answer = ctl_json(daemon.path, 0, "clients", NULL);
	client = json_object_array_get_idx(get(answer, "clients"), 0);
	assert_int_equal(number(client, "pid"), 1002);
	assert_int_equal(number(client, "n_requests"), 12);
	assert_string_equal(text(client, "label"), "engine");
	json_object_put(answer);
	fake_daemon_stop(&daemon);
}

/* Of four ranks, three of which wait, only the one that is stuck is listed. */
static void test_health_stalled(void **state)
{
	struct fake_daemon daemon;
	struct output output;
	struct json_object *answer, *problem;

	(void)state;
	fake_daemon_start(&daemon, directory, FAKE_HONEST, canned_demo(true));
	output = ctl(daemon.path, "health", NULL, NULL, NULL);
	assert_int_equal(output.status, 4);
	expect(output.out, "unhealthy: 1 problem\n");
	expect(output.out, "1002");
	assert_int_equal(lines(output.out), 3); /* verdict, heading, the one rank */
	output_clear(&output);

	answer = ctl_json(daemon.path, 4, "health", NULL);
	assert_false(json_object_get_boolean(get(answer, "healthy")));
	assert_int_equal(json_object_array_length(get(answer, "problems")), 1);
	problem = json_object_array_get_idx(get(answer, "problems"), 0);
	assert_string_equal(text(problem, "problem"), "stalled");
	assert_string_equal(text(problem, "group"), "demo");
	assert_int_equal(number(problem, "rank"), 2);
	assert_int_equal(number(problem, "pid"), 1002);
	assert_string_equal(text(problem, "op"), "combine_rmsnorm");
	assert_int_equal(number(problem, "call"), 41);
	assert_int_equal(number(problem, "lag_calls"), 1);
	assert_int_equal(number(problem, "pushed_bytes"), 2048);
	assert_int_equal(number(problem, "age_ms"), 3500);
	json_object_put(answer);
	fake_daemon_stop(&daemon);
}

/* A failed group is one problem, told of the rank that the survivors blame. */
static void test_health_failed(void **state)
{
	struct fake_daemon daemon;
	struct json_object *answer, *problem;

	(void)state;
	fake_daemon_start(&daemon, directory, FAKE_HONEST, canned_broken());
	answer = ctl_json(daemon.path, 4, "health", NULL);
	assert_int_equal(json_object_array_length(get(answer, "problems")), 1);
	problem = json_object_array_get_idx(get(answer, "problems"), 0);
	assert_string_equal(text(problem, "problem"), "failed");
	assert_int_equal(number(problem, "rank"), 1);
	assert_string_equal(text(problem, "detail"), "rank 1 (pid 1001) ended");
	json_object_put(answer);
	fake_daemon_stop(&daemon);
}

static void test_not_ready(void **state)
{
	struct fake_daemon daemon;
	Moecomm__Wire__Status *status = canned_empty();
	struct output output;

	(void)state;
	status->not_ready = (char *)"device access denied by sandbox";
	fake_daemon_start(&daemon, directory, FAKE_HONEST, status);
	output = ctl(daemon.path, "health", NULL, NULL, NULL);
	assert_int_equal(output.status, 4);
	expect(output.out, "device access denied by sandbox");
	output_clear(&output);
	output = ctl(daemon.path, "status", NULL, NULL, NULL);
	assert_int_equal(output.status, 0);
	expect(output.out, "not ready: device access denied by sandbox");
	output_clear(&output);
	fake_daemon_stop(&daemon);
}

static void test_abort(void **state)
{
	struct fake_daemon daemon;
	struct output output;
	char *aborted;

	(void)state;
	fake_daemon_start(&daemon, directory, FAKE_HONEST, canned_empty());
	output = ctl(daemon.path, "abort", "demo", "--reason", "enough of it");
	assert_int_equal(output.status, 0);
	assert_string_equal(output.out, "aborted demo\n");
	aborted = fake_daemon_aborted(&daemon);
	assert_string_equal(aborted, "demo|enough of it");
	free(aborted);
	output_clear(&output);
	output = ctl(daemon.path, "abort", "nobody", NULL, NULL);
	assert_int_equal(output.status, 1);
	assert_string_equal(output.out, "");
	assert_string_equal(output.err, "moecommctl: refused: NOT_FOUND: no group named nobody\n");
	output_clear(&output);
	fake_daemon_stop(&daemon);
}

static void test_version(void **state)
{
	struct fake_daemon daemon;
	struct output output;
	struct json_object *answer;

	(void)state;
	fake_daemon_start(&daemon, directory, FAKE_HONEST, canned_empty());
	output = ctl(daemon.path, "version", NULL, NULL, NULL);
	assert_int_equal(output.status, 0);
	expect(output.out, "moecommctl ");
	expect(output.out, "moecommd   9.8.7, protocol 1.0");
	output_clear(&output);
	answer = ctl_json(daemon.path, 0, "version", NULL);
	assert_string_equal(text(get(answer, "daemon"), "version"), "9.8.7");
	json_object_put(answer);
	fake_daemon_stop(&daemon);

	output = ctl("/nonexistent/sock", "version", NULL, NULL, NULL);
	assert_int_equal(output.status, 0);
	expect(output.out, "no daemon at /nonexistent/sock");
	output_clear(&output);
}

/* What answers misbehaves: one line, the right exit status, in bounded time. */
static void test_misbehaviour(void **state)
{
	static const struct {
		enum fake_manner manner;
		int status;
		const char *line;
	} cases[] = {
		{FAKE_OTHER_MAJOR, 1, "client speaks protocol 1.0, this daemon 2.0"},
		{FAKE_CLOSES, 3, "closed the connection without an answer"},
		{FAKE_CLOSES_MIDWAY, 3, "closed the connection without an answer"},
		{FAKE_GARBAGE, 3, "is not moecommd"},
		{FAKE_WRONG_REPLY, 3, "answered with"},
		{FAKE_DAMAGED, 3, "is damaged"},
		{FAKE_UNSUPPORTED, 1, "older release"},
		{FAKE_SILENT, 3, "does not answer within 5000 ms"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct fake_daemon daemon;
		struct output output;

		fake_daemon_start(&daemon, directory, cases[i].manner, canned_empty());
		output = ctl(daemon.path, "status", NULL, NULL, NULL);
		if (output.status != cases[i].status)
			fail_msg("case %zu ended with %d: %s", i, output.status, output.err);
		expect(output.err, cases[i].line);
		assert_int_equal(lines(output.err), 1);
		assert_string_equal(output.out, "");
		output_clear(&output);
		fake_daemon_stop(&daemon);
	}
}

static void test_unreachable(void **state)
{
	struct output output;
	char path[128];
	struct fake_daemon daemon;

	(void)state;
	output = ctl("/nonexistent/sock", "status", NULL, NULL, NULL);
	assert_int_equal(output.status, 3);
	expect(output.err, "no daemon at /nonexistent/sock (no such socket)");
	expect(output.err, "systemctl start moecommd");
	assert_int_equal(lines(output.err), 1);
	output_clear(&output);

	/* a socket that nobody listens at any more */
	fake_daemon_start(&daemon, directory, FAKE_HONEST, NULL);
	snprintf(path, sizeof(path), "%s/stale.sock", directory);
	assert_int_equal(rename(daemon.path, path), 0);
	fake_daemon_stop(&daemon);
	output = ctl(path, "health", NULL, NULL, NULL);
	assert_int_equal(output.status, 3);
	expect(output.err, "nobody listens");
	output_clear(&output);
}

/* One that listens but accepts nobody, with its queue of newcomers full. */
static void test_no_room(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct output output;
	int listener, waiting[8], n = 0;

	(void)state;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/full.sock", directory);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 0), 0);
	do {
		assert_true(n < 8);
		waiting[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	} while (connect(waiting[n++], (struct sockaddr *)&address, sizeof(address)) == 0);
	assert_int_equal(errno, EAGAIN);
	output = ctl(address.sun_path, "status", NULL, NULL, NULL);
	assert_int_equal(output.status, 3);
	expect(output.err, "does not answer within 5000 ms");
	output_clear(&output);
	while (n > 0)
		close(waiting[--n]);
	close(listener);
	unlink(address.sun_path);
}

/* Another user is told which component of the path stops him. */
static void test_denied(void **state)
{
	struct fake_daemon daemon;
	char *path, *open_directory, command[768];
	int status;

	(void)state;
	if (geteuid() != 0)
		skip(); /* needs another user to try as */
	fake_daemon_start(&daemon, directory, FAKE_HONEST, canned_empty());
	assert_int_equal(chmod(directory, 0750), 0);
	/* the build may lie where that user can't go, so the program is brought to him */
	path = program_path("moecommctl");
	open_directory = program_make_directory();
	assert_int_equal(chmod(open_directory, 0755), 0);
	snprintf(command, sizeof(command),
		"cp %s %s/ && cd / && setpriv --reuid=65534 --regid=65534 --clear-groups "
		"%s/moecommctl "
		"--socket %s status 2>&1 | grep -q '%s has mode 0750'",
		path, open_directory, open_directory, daemon.path, directory);
	status = system(command);
	assert_int_equal(chmod(directory, 0700), 0);
	fake_daemon_stop(&daemon);
	program_remove_directory(open_directory);
	free(path);
	assert_int_equal(status, 0);
}

static void test_usage(void **state)
{
	static const char *const calls[][4] = {
		{"nonsense", NULL},
		{"status", "more", NULL},
		{"groups", "-x", NULL},
		{"groups", "a", "b", NULL},
		{"abort", NULL},
		{"abort", "a", "--reason", NULL},
		{"abort", "a", "b", NULL},
		{"--wrong", NULL},
		{NULL},
	};
	struct output output;

	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		output = ctl("/nonexistent/sock", calls[i][0], calls[i][0] ? calls[i][1] : NULL,
			calls[i][0] && calls[i][1] ? calls[i][2] : NULL, NULL);
		if (output.status != 2)
			fail_msg("call %zu ended with %d: %s", i, output.status, output.err);
		assert_true(*output.err);
		assert_string_equal(output.out, "");
		output_clear(&output);
	}
	output = ctl("/nonexistent/sock", "help", NULL, NULL, NULL);
	assert_int_equal(output.status, 0);
	expect(output.out, "health");
	output_clear(&output);
}

/* Output that can't be written is told; a reader that has gone ends it quietly. */
static void test_output(void **state)
{
	struct fake_daemon daemon;
	char *path = program_path("moecommctl"), command[512];
	int status;

	(void)state;
	fake_daemon_start(&daemon, directory, FAKE_HONEST, canned_demo(false));
	snprintf(command, sizeof(command),
		"%s --socket %s status >/dev/full 2>%s/err; test $? = 1 && grep "
		"-q 'cannot write the output' %s/err",
		path, daemon.path, directory, directory);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof(command),
		"(%s --socket %s groups -v 2>%s/err; echo $? >%s/rc) | true; sleep 0.3; test ! -s "
		"%s/err",
		path, daemon.path, directory, directory, directory);
	status = system(command);
	fake_daemon_stop(&daemon);
	free(path);
	assert_int_equal(status, 0);
}

/* On a terminal there is colour, unless NO_COLOR asks for none. */
static void test_color(void **state)
{
	struct fake_daemon daemon;
	char *path = program_path("moecommctl"), command[640];
	int with, without;

	(void)state;
	fake_daemon_start(&daemon, directory, FAKE_HONEST, canned_demo(true));
	snprintf(command, sizeof(command),
		"TERM=xterm script -qec '%s --socket %s health' /dev/null </dev/null | grep -q "
		"\"$(printf "
		"'\\033\\\\[31m')\"",
		path, daemon.path);
	with = system(command);
	snprintf(command, sizeof(command),
		"TERM=xterm NO_COLOR=1 script -qec '%s --socket %s health' /dev/null </dev/null | "
		"grep -q "
		"\"$(printf '\\033')\"",
		path, daemon.path);
	without = system(command);
	fake_daemon_stop(&daemon);
	free(path);
	if (system("command -v script >/dev/null") != 0)
		skip(); /* needs script(1) for a terminal */
	assert_int_equal(with, 0);
	assert_int_not_equal(without, 0);
}

static int set_up(void **state)
{
	(void)state;
	directory = program_make_directory();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	program_remove_directory(directory);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_status),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_clients),
		cmocka_unit_test(test_health_stalled),
		cmocka_unit_test(test_health_failed),
		cmocka_unit_test(test_not_ready),
		cmocka_unit_test(test_abort),
		cmocka_unit_test(test_version),
		cmocka_unit_test(test_misbehaviour),
		cmocka_unit_test(test_unreachable),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_denied),
		cmocka_unit_test(test_usage),
		cmocka_unit_test(test_output),
		cmocka_unit_test(test_color),
	};

	signal(SIGPIPE, SIG_DFL);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
