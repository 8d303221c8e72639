/* SPDX-License-Identifier: Apache-2.0 */
/* The library under a daemon that breaks the rules: a status, no crash, no leak. */
#include "integration/client/harness.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "integration/client/fake_daemon.h"
#include "integration/client/leak.h"
#include "proto/frame.h"

static enum moecomm_status try_connect(moecomm_context **ret)
{
	struct moecomm_connect_options o = MOECOMM_CONNECT_OPTIONS_INIT;

	o.socket_path = test_socket();
	*ret = NULL;
	return moecomm_connect(&o, ret);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- greeting ---- */

static void test_hello(void **state)
{
	static const struct {
		enum fake_hello hello;
		enum moecomm_status status;
		const char *says;
	} cases[] = {
		{FAKE_HELLO_OTHER_MAJOR, MOECOMM_VERSION, "2"},
		{FAKE_HELLO_REFUSE, MOECOMM_VERSION, "9.3"},
		{FAKE_HELLO_GARBAGE, MOECOMM_PROTOCOL, "no moecommd"},
		{FAKE_HELLO_BAD_PAYLOAD, MOECOMM_PROTOCOL, "WELCOME"},
		{FAKE_HELLO_WRONG_TYPE, MOECOMM_PROTOCOL, "READY"},
		{FAKE_HELLO_HUGE, MOECOMM_PROTOCOL, "no moecommd"},
		{FAKE_HELLO_SILENT, MOECOMM_UNREACHABLE, "does not answer"},
	};
	struct leak before;
	moecomm_context *context;

	(void)state;
	leak_take(&before);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fake_script script = {.hello = cases[i].hello};
		struct fake_daemon *fake = fake_start(test_socket(), &script);

		assert_status(try_connect(&context), cases[i].status);
		assert_null(context);
		if (!strcasestr(moecomm_last_error(), cases[i].says)) {
			print_error("case %zu says \"%s\"\n", i, moecomm_last_error());
			fail();
		}
		fake_stop(fake);
	}
	leak_check(&before);
}

static void test_absent(void **state)
{
	struct moecomm_connect_options o = MOECOMM_CONNECT_OPTIONS_INIT;
	moecomm_context *context = NULL;
	char long_path[200];
	struct leak before;
	double begin;
	FILE *file;

	(void)state;
	leak_take(&before);
	begin = now_s();
	assert_status(try_connect(&context), MOECOMM_UNREACHABLE);
	assert_true(now_s() - begin < 0.5);
	assert_error_has(test_socket());
	assert_null(strchr(moecomm_last_error(), '\n'));

	/* a file is there, but nobody listens */
	file = fopen(test_socket(), "w");
	fclose(file);
	assert_status(try_connect(&context), MOECOMM_UNREACHABLE);
	unlink(test_socket());

	o.socket_path = test_socket();
	o.wait_ms = 300;
	begin = now_s();
	assert_status(moecomm_connect(&o, &context), MOECOMM_UNREACHABLE);
	assert_true(now_s() - begin >= 0.29 && now_s() - begin < 2);

	memset(long_path, 'a', sizeof(long_path) - 1);
	long_path[sizeof(long_path) - 1] = 0;
	o.socket_path = long_path;
	assert_status(moecomm_connect(&o, &context), MOECOMM_INVALID);
	o.size = 3;
	assert_status(moecomm_connect(&o, &context), MOECOMM_INVALID);
	o = (struct moecomm_connect_options)MOECOMM_CONNECT_OPTIONS_INIT;
	assert_status(moecomm_connect(&o, NULL), MOECOMM_INVALID);
	leak_check(&before);
}

/* A directory that lets only a group in: the sentence names it, its mode and the group. */
static void test_denied(void **state)
{
	char dir[] = "/tmp/moecomm-denied-XXXXXX", path[96];
	struct fake_script script = {0};
	struct fake_daemon *fake;
	int status;
	pid_t pid;

	(void)state;
	if (geteuid() != 0) {
		print_message("skipped: needs root, to try as another user\n");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	fake = fake_start(path, &script);
	assert_int_equal(chmod(dir, 0750), 0);
	pid = fork();
	if (pid == 0) {
		struct moecomm_connect_options o = MOECOMM_CONNECT_OPTIONS_INIT;
		moecomm_context *context;
		int bad = 0;

		o.socket_path = path;
		o.wait_ms = 10000; /* no use waiting: at once */
		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(9);
		bad |= moecomm_connect(&o, &context) != MOECOMM_DENIED;
		bad |= 2 * !strstr(moecomm_last_error(), dir);
		bad |= 4 * !strstr(moecomm_last_error(), "0750");
		bad |= 8 * !strstr(moecomm_last_error(), "group root");
		_exit(bad);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	fake_stop(fake);
	rmdir(dir);
}

/* ---- joining ---- */

/* Joins as the only rank under a script; returns the status. */
static enum moecomm_status try_join(const struct fake_script *script, moecomm_group **ret_group,
	moecomm_context **ret_context, struct fake_daemon **ret_fake)
{
	struct moecomm_group_options o = test_options("hostile", 0, 1);

	o.join_timeout_ms = 100;
	*ret_fake = fake_start(test_socket(), script);
	*ret_context = test_connect(test_socket());
	*ret_group = NULL;
	return moecomm_group_join(*ret_context, &o, ret_group);
}

static void expect_join(
	const struct fake_script *script, enum moecomm_status wanted, const char *says)
{
	moecomm_context *context;
	struct fake_daemon *fake;
	moecomm_group *group;
	struct leak before;

	leak_take(&before);
	assert_status(try_join(script, &group, &context, &fake), wanted);
	assert_null(group);
	assert_error_has(says);
	moecomm_disconnect(context);
	fake_stop(fake);
	leak_check(&before);
}

static void test_good_first(void **state)
{
	struct fake_script script = {0};
	moecomm_context *context;
	struct fake_daemon *fake;
	moecomm_group *group;
	struct leak before;

	(void)state;
	leak_take(&before);
	assert_status(try_join(&script, &group, &context, &fake), MOECOMM_OK);
	assert_null(moecomm_group_leave(group));
	assert_int_equal(fake_received(fake, MC_FRAME_LEAVE), 1);
	assert_null(moecomm_disconnect(context));
	fake_stop(fake);
	leak_check(&before);
}

static void test_join_answers(void **state)
{
	(void)state;
	expect_join(&(struct fake_script){.join = FAKE_JOIN_REFUSE}, MOECOMM_DENIED, "uid 7");
	expect_join(&(struct fake_script){.join = FAKE_JOIN_DONE_OK}, MOECOMM_PROTOCOL, "Join");
	expect_join(&(struct fake_script){.join = FAKE_JOIN_READY}, MOECOMM_PROTOCOL, "Join");
	expect_join(&(struct fake_script){.join = FAKE_JOIN_BAD_PAYLOAD}, MOECOMM_PROTOCOL, "bad");
	expect_join(&(struct fake_script){.join = FAKE_JOIN_HELLO}, MOECOMM_PROTOCOL,
		"not for a client");
	expect_join(&(struct fake_script){.join = FAKE_JOIN_NOTICE_FIRST}, MOECOMM_PEER_LOST,
		"rank 0 ended while joining");
}

static void test_fds(void **state)
{
	static const enum fake_fds kinds[] = {FAKE_FDS_PIPE, FAKE_FDS_DIRECTORY, FAKE_FDS_DEVNULL,
		FAKE_FDS_SHORT, FAKE_FDS_UNSEALED, FAKE_FDS_READ_ONLY, FAKE_FDS_ZEROED};

	(void)state;
	expect_join(&(struct fake_script){.fds = FAKE_FDS_NONE}, MOECOMM_PROTOCOL, "fds is 0");
	expect_join(&(struct fake_script){.fds = FAKE_FDS_FEW}, MOECOMM_PROTOCOL, "fds is 2");
	expect_join(&(struct fake_script){.fds = FAKE_FDS_MANY}, MOECOMM_PROTOCOL, "fds is 4");
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (unsigned at = 0; at < 3; at++) {
			struct fake_script script = {.fds = kinds[k], .bad_fd = at};
			struct leak before;
			moecomm_context *context;
			struct fake_daemon *fake;
			moecomm_group *group;
			enum moecomm_status status;

			/* an arena's contents are its owner's business: zeros are just old data */
			if (kinds[k] == FAKE_FDS_ZEROED && at == 2)
				continue;
			leak_take(&before);
			status = try_join(&script, &group, &context, &fake);
			if (status != MOECOMM_PROTOCOL && status != MOECOMM_PROBE_FAILED &&
				status != MOECOMM_SYSTEM) {
				print_error("kind %d at %u: %s: %s\n", kinds[k], at,
					moecomm_status_name(status), moecomm_last_error());
				fail();
			}
			assert_error_has(at == 0 ? "board" : at == 1 ? "control block" : "rank 0");
			moecomm_disconnect(context);
			fake_stop(fake);
			leak_check(&before);
		}
}

static void edit_stride(Moecomm__Wire__Layout *l)
{
	l->slot_stride += 16;
}
static void edit_data(Moecomm__Wire__Layout *l)
{
	l->slot_data_bytes = UINT64_MAX;
}
static void edit_segment(Moecomm__Wire__Layout *l)
{
	l->segment_stride += 128;
}
static void edit_channel(Moecomm__Wire__Layout *l)
{
	l->channel_stride += 1;
}
static void edit_ring(Moecomm__Wire__Layout *l)
{
	l->ring_offset = UINT64_C(1) << 63;
}
static void edit_arena_small(Moecomm__Wire__Layout *l)
{
	l->arena_bytes--;
}
static void edit_arena_huge(Moecomm__Wire__Layout *l)
{
	l->arena_bytes = UINT64_MAX;
}
static void edit_capacity(Moecomm__Wire__Layout *l)
{
	l->capacity_dispatch++;
}
static void edit_combine(Moecomm__Wire__Layout *l)
{
	l->capacity_combine--;
}
static void edit_token(Moecomm__Wire__Layout *l)
{
	l->token.len = 3;
}
static void edit_sentinel(Moecomm__Wire__Layout *l)
{
	l->sentinel.len = 8;
}
static void edit_epoch(Moecomm__Wire__Layout *l)
{
	l->epoch = 0;
}
static void edit_member(Moecomm__Wire__Layout *l)
{
	l->member_id = 0;
}
static void edit_world(Moecomm__Wire__Layout *l)
{
	l->spec->world_size = 64;
}
static void edit_backend(Moecomm__Wire__Layout *l)
{
	l->spec->backend = 2;
}
static void edit_rows(Moecomm__Wire__Layout *l)
{
	l->spec->max_rows = 1u << 30;
}
static void edit_probe(Moecomm__Wire__Layout *l)
{
	l->probe_timeout_ms = UINT32_MAX;
}

static void test_numbers(void **state)
{
	static const struct {
		void (*edit)(Moecomm__Wire__Layout *);
		const char *says;
	} cases[] = {
		{edit_stride, "slot_stride"},
		{edit_data, "slot_data_bytes"},
		{edit_segment, "segment_stride"},
		{edit_channel, "channel_stride"},
		{edit_ring, "ring_offset"},
		{edit_arena_small, "arena_bytes"},
		{edit_arena_huge, "arena_bytes"},
		{edit_capacity, "capacity_dispatch"},
		{edit_combine, "capacity_combine"},
		{edit_token, ""}, /* the codec's bound, or ours */
		{edit_sentinel, ""},
		{edit_epoch, ""},
		{edit_member, ""},
		{edit_world, "world_size"},
		{edit_backend, "backend"},
		{edit_rows, "max_rows"},
		{edit_probe, ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect_join(&(struct fake_script){.edit = cases[i].edit}, MOECOMM_PROTOCOL,
			cases[i].says);
}

static void test_vote_answers(void **state)
{
	(void)state;
	expect_join(
		&(struct fake_script){.vote = FAKE_VOTE_WRONG_EPOCH}, MOECOMM_PROTOCOL, "epoch");
	expect_join(
		&(struct fake_script){.vote = FAKE_VOTE_OTHER_PATH}, MOECOMM_UNSUPPORTED, "path 2");
	expect_join(&(struct fake_script){.vote = FAKE_VOTE_DONE_OK}, MOECOMM_PROTOCOL, "Vote");
	expect_join(
		&(struct fake_script){.vote = FAKE_VOTE_REFUSE}, MOECOMM_PROBE_FAILED, "vetoed");
}

/* The connection ends after every possible number of bytes: in every message, between all of them.
 */
static void test_cut(void **state)
{
	struct fake_script script = {0};
	moecomm_context *context;
	struct fake_daemon *fake;
	moecomm_group *group;
	struct leak before;
	int total;

	(void)state;
	assert_status(try_join(&script, &group, &context, &fake), MOECOMM_OK);
	total = fake_sent(fake);
	moecomm_disconnect(context);
	fake_stop(fake);
	assert_true(total > 100);

	leak_take(&before);
	fake = fake_start(test_socket(), &script);
	for (int cut = 1; cut < total; cut++) {
		struct moecomm_group_options o = test_options("cut", 0, 1);
		enum moecomm_status status;

		script.cut_after = cut;
		fake_set_script(fake, &script);
		status = try_connect(&context);
		if (status == MOECOMM_OK) {
			status = moecomm_group_join(context, &o, &group);
			moecomm_disconnect(context);
		}
		if (status != MOECOMM_UNREACHABLE) {
			print_error("cut after %d of %d: %s: %s\n", cut, total,
				moecomm_status_name(status), moecomm_last_error());
			fail();
		}
	}
	fake_stop(fake);
	leak_check(&before);
}

/* A daemon that never answers: the caller gets its thread back. */
static void test_silence(void **state)
{
	double begin = now_s();

	(void)state;
#ifndef MC_FAULT_INJECTION
	print_message(
		"skipped: needs a build with fault injection, to shorten the slack for arming\n");
	skip();
#endif
	setenv("MOECOMM_INJECT_CLIENT", "slack_ms:100", 1);
	expect_join(&(struct fake_script){.join = FAKE_JOIN_SILENT}, MOECOMM_UNREACHABLE,
		"did not answer");
	assert_true(now_s() - begin < 2);
	expect_join(&(struct fake_script){.vote = FAKE_VOTE_SILENT}, MOECOMM_UNREACHABLE,
		"did not answer");
	assert_true(now_s() - begin < 6);
	unsetenv("MOECOMM_INJECT_CLIENT");
}

/* The n-th map fails: an error that names call and rank, nothing left behind, and the next join
 * works. */
static void test_map_fails(void **state)
{
	static const char *const says[] = {"board", "control block", "arena of rank 0"};
	struct fake_script script = {0};

	(void)state;
#ifndef MC_FAULT_INJECTION
	print_message("skipped: needs a build with fault injection\n");
	skip();
#endif
	for (int n = 1; n <= 3; n++) {
		char inject[32];

		snprintf(inject, sizeof(inject), "map_fail:%d", n);
		setenv("MOECOMM_INJECT_CLIENT", inject, 1);
		expect_join(&script, MOECOMM_PROBE_FAILED, says[n - 1]);
		assert_error_has("mmap");
	}
	unsetenv("MOECOMM_INJECT_CLIENT");
	test_good_first(NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hello),
		cmocka_unit_test(test_absent),
		cmocka_unit_test(test_denied),
		cmocka_unit_test(test_good_first),
		cmocka_unit_test(test_join_answers),
		cmocka_unit_test(test_fds),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_vote_answers),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_silence),
		cmocka_unit_test(test_map_fails),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
