/* SPDX-License-Identifier: Apache-2.0 */
/* Notices, aborts, a daemon that goes and comes, rejoin and leave; two ranks in this process. */
#include "integration/client/harness.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "integration/client/fake_daemon.h"
#include "integration/client/leak.h"
#include "proto/frame.h"
#include "proto/status.h"

#define W 2

struct pair {
	struct fake_daemon *fake;
	moecomm_context *context;
	moecomm_group *group[W];
	struct leak before;
};

struct joiner {
	struct pair *pair;
	int rank;
	enum moecomm_status status;
	char error[512];
	int rejoin;
};

static void *join(void *data)
{
	struct joiner *joiner = data;
	struct moecomm_group_options o = test_options("life", joiner->rank, W);

	o.op_timeout_ms = o.warmup_timeout_ms = 2000;
	if (joiner->rejoin)
		joiner->status = moecomm_group_rejoin(joiner->pair->group[joiner->rank]);
	else
		joiner->status = moecomm_group_join(
			joiner->pair->context, &o, &joiner->pair->group[joiner->rank]);
	snprintf(joiner->error, sizeof(joiner->error), "%s", moecomm_last_error());
	return NULL;
}

static void join_all(struct pair *pair, int rejoin)
{
	struct joiner joiner[W];
	pthread_t thread[W];

	for (int r = 0; r < W; r++) {
		joiner[r] = (struct joiner){.pair = pair, .rank = r, .rejoin = rejoin};
		assert_int_equal(pthread_create(&thread[r], NULL, join, &joiner[r]), 0);
	}
	for (int r = 0; r < W; r++) {
		pthread_join(thread[r], NULL);
		if (joiner[r].status)
			print_error("rank %d: %s: %s\n", r, moecomm_status_name(joiner[r].status),
				joiner[r].error);
		assert_int_equal(joiner[r].status, MOECOMM_OK);
	}
}

static int setup(void **state)
{
	static const struct fake_script script = {0};
	struct pair *pair = calloc(1, sizeof(*pair));

	leak_take(&pair->before);
	pair->fake = fake_start(test_socket(), &script);
	pair->context = test_connect(test_socket());
	join_all(pair, 0);
	*state = pair;
	return 0;
}

static int teardown(void **state)
{
	struct pair *pair = *state;
	struct leak before = pair->before;

	for (int r = 0; r < W; r++)
		pair->group[r] = moecomm_group_leave(pair->group[r]);
	pair->context = moecomm_disconnect(pair->context);
	if (pair->fake)
		fake_stop(pair->fake);
	free(pair);
	leak_check(&before);
	return 0;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* One dispatch of rank r. */
static enum moecomm_status dispatch(moecomm_group *group, int rank)
{
	uint32_t mine[4] = {(uint32_t)rank + 1, 2, 3, 4}, all[W * 4];
	struct moecomm_tensor tensor = {mine, all, sizeof(mine)};
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;
	enum moecomm_status status;

	args.tensors = &tensor;
	args.n_tensors = 1;
	args.rows = 1;
	status = moecomm_dispatch(group, &args, NULL);
	for (int r = 0; status == MOECOMM_OK && r < W; r++)
		assert_int_equal(all[r * 4], r + 1);
	return status;
}

struct caller {
	moecomm_group *group;
	int rank, n;
	enum moecomm_status status;
	char error[512];
	int64_t ended_ms;
};

static void *call(void *data)
{
	struct caller *caller = data;

	for (int i = 0; i < caller->n && caller->status == MOECOMM_OK; i++)
		caller->status = dispatch(caller->group, caller->rank);
	snprintf(caller->error, sizeof(caller->error), "%s", moecomm_last_error());
	caller->ended_ms = now_ms();
	return NULL;
}

/* Both ranks run n dispatches. */
static void run_both(struct pair *pair, int n)
{
	struct caller caller[W];
	pthread_t thread[W];

	for (int r = 0; r < W; r++) {
		caller[r] = (struct caller){.group = pair->group[r], .rank = r, .n = n};
		pthread_create(&thread[r], NULL, call, &caller[r]);
	}
	for (int r = 0; r < W; r++) {
		pthread_join(thread[r], NULL);
		if (caller[r].status)
			print_error("rank %d: %s\n", r, caller[r].error);
		assert_int_equal(caller[r].status, MOECOMM_OK);
	}
}

static struct moecomm_group_info query(moecomm_group *group)
{
	struct moecomm_group_info info = {.size = sizeof(info)};

	assert_status(moecomm_group_query(group, &info), MOECOMM_OK);
	return info;
}

static void wait_connected(struct pair *pair, int connected)
{
	for (int i = 0; i < 500 && query(pair->group[0]).daemon_connected != connected; i++)
		usleep(10000);
	assert_int_equal(query(pair->group[0]).daemon_connected, connected);
}

static void test_ops(void **state)
{
	struct pair *pair = *state;

	run_both(pair, 300);
	assert_int_equal(query(pair->group[0]).calls, 300);
	assert_int_equal(fake_received(pair->fake, MC_FRAME_OP_FAILED), 0);
}

/* A Notice ends an op that waits, names the rank, and later ops fail at once. */
static void test_notice(void **state)
{
	struct pair *pair = *state;
	struct caller caller = {.group = pair->group[0], .rank = 0, .n = 1};
	struct moecomm_group_info info;
	pthread_t thread;
	int64_t begin;

	pthread_create(&thread, NULL, call, &caller);
	usleep(100000);
	begin = now_ms();
	fake_notice(pair->fake, 1, MC_STATUS_PEER_LOST, 1, "rank 1 (pid 77) ended");
	fake_notice(pair->fake, 2, MC_STATUS_PEER_LOST, 1, "rank 1 (pid 77) ended");
	pthread_join(thread, NULL);
	/* well before its deadline of 2 s */
	assert_true(caller.ended_ms - begin < 1500);
	assert_int_equal(caller.status, MOECOMM_PEER_LOST);
	assert_string_equal(caller.error, "rank 1 (pid 77) ended");
	begin = now_ms();
	assert_status(dispatch(pair->group[0], 0), MOECOMM_PEER_LOST);
	assert_true(now_ms() - begin < 1000);
	info = query(pair->group[0]);
	assert_int_equal(info.state, MOECOMM_GROUP_FAILED);
	assert_int_equal(info.status, MOECOMM_PEER_LOST);
	assert_int_equal(info.fault_rank, 1);
	/* of another membership, and of one that nobody has: no effect, no crash */
	fake_notice(pair->fake, 99, MC_STATUS_ABORTED, -1, "x");
	fake_notice(pair->fake, 1, 123456, 77, "a later one changes nothing");
	usleep(50000);
	assert_int_equal(query(pair->group[0]).status, MOECOMM_PEER_LOST);
}

/* A status that this build does not know still ends the epoch. */
static void test_strange_notice(void **state)
{
	struct pair *pair = *state;

	fake_notice(pair->fake, 1, 200, -1, NULL);
	for (int i = 0; i < 200 && query(pair->group[0]).state == MOECOMM_GROUP_READY; i++)
		usleep(10000);
	assert_int_equal(query(pair->group[0]).state, MOECOMM_GROUP_FAILED);
	assert_int_equal(query(pair->group[0]).fault_rank, -1);
	assert_true(dispatch(pair->group[0], 0) != MOECOMM_OK);
}

static void test_timeout(void **state)
{
	struct pair *pair = *state;
	int64_t begin;

	run_both(pair, 3);
	begin = now_ms();
	assert_status(dispatch(pair->group[0], 0), MOECOMM_TIMEOUT);
	assert_true(now_ms() - begin >= 1990 && now_ms() - begin < 5000);
	assert_error_has("rank 1 did not arrive at call 4 (dispatch, channel 0) within 20");
	assert_error_has("it is at call 3");
	assert_int_equal(query(pair->group[0]).fault_rank, 1);
	assert_int_equal(query(pair->group[0]).fault_call, 4);
	for (int i = 0; i < 100 && !fake_received(pair->fake, MC_FRAME_OP_FAILED); i++)
		usleep(10000);
	assert_int_equal(fake_received(pair->fake, MC_FRAME_OP_FAILED), 1);
	/* the late one learns it too, and says the same */
	assert_status(dispatch(pair->group[1], 1), MOECOMM_TIMEOUT);
	assert_error_has("rank 1 did not arrive");
}

static void test_abort_without_daemon(void **state)
{
	struct pair *pair = *state;
	struct caller caller = {.group = pair->group[0], .rank = 0, .n = 1};
	pthread_t thread;
	int64_t begin;

	pair->fake = fake_stop(pair->fake);
	wait_connected(pair, 0);
	pthread_create(&thread, NULL, call, &caller);
	usleep(50000);
	begin = now_ms();
	assert_status(moecomm_group_abort(pair->group[1], "enough"), MOECOMM_OK);
	assert_status(moecomm_group_abort(pair->group[1], NULL), MOECOMM_OK);
	pthread_join(thread, NULL);
	/* well before its deadline of 2 s */
	assert_true(caller.ended_ms - begin < 1500);
	assert_int_equal(caller.status, MOECOMM_ABORTED);
	assert_non_null(strstr(caller.error, "rank 1"));
	assert_status(moecomm_group_abort(pair->group[0], "again"), MOECOMM_OK);
	assert_status(dispatch(pair->group[1], 1), MOECOMM_ABORTED);
	assert_error_has("enough");
}

/* Text that the wire does not take is made fit rather than costing the connection. */
static void test_strange_text(void **state)
{
	struct moecomm_connect_options o = MOECOMM_CONNECT_OPTIONS_INIT;
	struct pair *pair = *state;
	moecomm_context *other = NULL;
	char reason[2000];

	memset(reason, 7, sizeof(reason) - 1);
	reason[sizeof(reason) - 1] = 0;
	assert_status(moecomm_group_abort(pair->group[0], reason), MOECOMM_OK);
	for (int i = 0; i < 200 && !fake_received(pair->fake, MC_FRAME_ABORT); i++)
		usleep(10000);
	assert_int_equal(fake_received(pair->fake, MC_FRAME_ABORT), 1);
	assert_int_equal(query(pair->group[1]).daemon_connected, 1);
	for (int r = 0; r < W; r++)
		pair->group[r] = moecomm_group_leave(pair->group[r]);
	pair->context = moecomm_disconnect(pair->context);
	o.socket_path = test_socket();
	o.label = "red \033[31m\nlabel";
	assert_status(moecomm_connect(&o, &other), MOECOMM_OK);
	moecomm_disconnect(other);
}

/* The daemon dies while ops run: nothing is noticed, and the library comes back by itself. */
static void test_daemon_restarts(void **state)
{
	static const struct fake_script knows = {.resume_status = MC_STATUS_OK};
	struct pair *pair = *state;
	struct caller caller[W];
	pthread_t thread[W];

	for (int r = 0; r < W; r++) {
		caller[r] = (struct caller){.group = pair->group[r], .rank = r, .n = 20000};
		pthread_create(&thread[r], NULL, call, &caller[r]);
	}
	for (int i = 0; i < 3; i++) {
		fake_stop(pair->fake);
		wait_connected(pair, 0);
		pair->fake = fake_start(test_socket(), &knows);
		wait_connected(pair, 1);
		assert_int_equal(fake_received(pair->fake, MC_FRAME_RESUME), 2);
	}
	for (int r = 0; r < W; r++) {
		pthread_join(thread[r], NULL);
		if (caller[r].status)
			print_error("rank %d: %s\n", r, caller[r].error);
		assert_int_equal(caller[r].status, MOECOMM_OK);
	}
}

/* The new daemon has never heard of the group: ops go on, a rejoin starts afresh. */
static void test_daemon_forgets(void **state)
{
	static const struct fake_script forgets = {.resume_status = MC_STATUS_NOT_FOUND};
	struct pair *pair = *state;

	fake_stop(pair->fake);
	wait_connected(pair, 0);
	pair->fake = fake_start(test_socket(), &forgets);
	for (int i = 0; i < 500 && fake_received(pair->fake, MC_FRAME_RESUME) < 2; i++)
		usleep(10000);
	usleep(50000);
	assert_int_equal(query(pair->group[0]).daemon_connected, 0);
	run_both(pair, 50);
	assert_status(moecomm_group_set_deadlines(pair->group[0], 5, 0, 0), MOECOMM_NOT_FOUND);
	join_all(pair, 1);
	assert_int_equal(query(pair->group[0]).daemon_connected, 1);
	run_both(pair, 50);
}

/* The new daemon knows that the epoch has ended. */
static void test_daemon_knows_the_end(void **state)
{
	static const struct fake_script ended = {.resume_status = MC_STATUS_STALE_EPOCH};
	struct pair *pair = *state;

	fake_stop(pair->fake);
	pair->fake = fake_start(test_socket(), &ended);
	for (int i = 0; i < 500 && query(pair->group[1]).state == MOECOMM_GROUP_READY; i++)
		usleep(10000);
	assert_status(dispatch(pair->group[1], 1), MOECOMM_STALE_EPOCH);
}

static void test_rejoin(void **state)
{
	struct pair *pair = *state;
	uint64_t epoch = query(pair->group[0]).epoch;

	for (int i = 0; i < 5; i++) {
		run_both(pair, 20);
		assert_status(moecomm_group_abort(pair->group[i % W], NULL), MOECOMM_OK);
		assert_true(dispatch(pair->group[0], 0) == MOECOMM_ABORTED);
		join_all(pair, 1);
		assert_true(query(pair->group[0]).epoch > epoch);
		epoch = query(pair->group[0]).epoch;
		assert_int_equal(query(pair->group[0]).state, MOECOMM_GROUP_READY);
	}
	run_both(pair, 20);
}

/* A rejoin that fails leaves a handle that can rejoin again. */
static void test_rejoin_fails(void **state)
{
	static const struct fake_script refuses = {.join = FAKE_JOIN_REFUSE}, good = {0};
	struct pair *pair = *state;

	fake_set_script(pair->fake, &refuses);
	assert_status(moecomm_group_rejoin(pair->group[0]), MOECOMM_DENIED);
	assert_status(dispatch(pair->group[0], 0), MOECOMM_DENIED);
	assert_error_has("uid 7");
	assert_int_equal(query(pair->group[0]).state, MOECOMM_GROUP_FAILED);
	fake_set_script(pair->fake, &good);
	join_all(pair, 1);
	run_both(pair, 20);
}

/* Leaving while an op of this rank waits: the op ends, the leave is bounded. */
static void test_leave_ends_ops(void **state)
{
	struct pair *pair = *state;
	struct caller caller = {.group = pair->group[0], .rank = 0, .n = 1};
	pthread_t thread;
	int64_t begin;

	pthread_create(&thread, NULL, call, &caller);
	usleep(50000);
	begin = now_ms();
	pair->group[0] = moecomm_group_leave(pair->group[0]);
	assert_true(now_ms() - begin < 5000);
	pthread_join(thread, NULL);
	assert_true(caller.status != MOECOMM_OK);
}

/* A daemon that answers nothing any more: everything still ends in time. */
static void test_deaf_daemon(void **state)
{
	static const struct fake_script deaf = {.deaf = 1};
	struct pair *pair = *state;
	int64_t begin = now_ms();

	fake_set_script(pair->fake, &deaf);
	pair->context = moecomm_disconnect(pair->context);
	pair->group[0] = pair->group[1] = NULL;
	assert_true(now_ms() - begin < 5000);
}

static void *ask(void *group)
{
	moecomm_group_set_deadlines(group, 1000, 0, 0);
	return NULL;
}

/* Whoever asks for something meanwhile waits for the try to connect, and does not break it off. */
static void test_a_slow_greeting_is_awaited(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct pair *pair = *state;
	struct pollfd listener;
	pthread_t thread[6];
	int fd, n_more = 0;

	pair->fake = fake_stop(pair->fake);
	wait_connected(pair, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", test_socket());
	unlink(address.sun_path);
	listener = (struct pollfd){
		.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), .events = POLLIN};
	assert_int_equal(bind(listener.fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener.fd, 16), 0);
	assert_int_equal(poll(&listener, 1, 5000), 1);
	fd = accept4(listener.fd, NULL, NULL, SOCK_CLOEXEC);
	for (size_t i = 0; i < 6; i++) {
		assert_int_equal(pthread_create(&thread[i], NULL, ask, pair->group[0]), 0);
		n_more += poll(&listener, 1, 50) == 1;
	}
	for (size_t i = 0; i < 6; i++)
		pthread_join(thread[i], NULL);
	close(fd);
	close(listener.fd);
	unlink(address.sun_path);
	assert_int_equal(n_more, 0);
}

/* After a fork the child is told, rather than crashed; and the parent's epoch goes on. */
static void test_fork(void **state)
{
	struct pair *pair = *state;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct moecomm_group_options o = test_options("child", 0, 1);
		struct moecomm_group_info info = {.size = sizeof(info)};
		moecomm_group *group = NULL;
		int bad = 0;

		bad |= dispatch(pair->group[0], 0) != MOECOMM_INVALID;
		bad |= 2 * (moecomm_group_query(pair->group[0], &info) != MOECOMM_INVALID);
		bad |= 4 * (moecomm_group_join(pair->context, &o, &group) != MOECOMM_INVALID);
		bad |= 8 * (moecomm_group_leave(pair->group[0]) != NULL);
		bad |= 16 * (moecomm_disconnect(pair->context) != NULL);
		_exit(bad);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	run_both(pair, 20);
}

int main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_ops),
		TEST(test_notice),
		TEST(test_strange_notice),
		TEST(test_timeout),
		TEST(test_abort_without_daemon),
		TEST(test_strange_text),
		TEST(test_daemon_restarts),
		TEST(test_daemon_forgets),
		TEST(test_daemon_knows_the_end),
		TEST(test_rejoin),
		TEST(test_rejoin_fails),
		TEST(test_leave_ends_ops),
		TEST(test_deaf_daemon),
		TEST(test_a_slow_greeting_is_awaited),
		TEST(test_fork),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
