/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything at once on one handle: ops on two channels, queries, deadlines and aborts from threads
 * of their own, while another rejoins again and again. What races shows under a thread sanitizer;
 * without one, that nothing hangs, crashes, or returns what it can't mean.
 */
#include "integration/client/harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "integration/client/ranks.h"

#define N_CHANNELS 2
#define RUN_MS     3000

struct handle {
	moecomm_group *group;
	int rank;
	atomic_bool stop;
	atomic_int n_wrong;
	atomic_long n_good, n_failed;
};

struct op_thread {
	struct handle *handle;
	int channel;
	pthread_t thread;
};

/* How an op on a handle may end that others abort, rejoin and query meanwhile. */
static bool may_end_with(enum moecomm_status status)
{
	switch (status) {
	case MOECOMM_OK:
	case MOECOMM_ABORTED:
	case MOECOMM_LEFT:
	case MOECOMM_STALE_EPOCH:
	case MOECOMM_PEER_LOST:
		return true;
	default:
		/* after a rejoin that failed, how it failed */
		return status == MOECOMM_JOIN_TIMEOUT || status == MOECOMM_PROBE_FAILED ||
		       status == MOECOMM_IN_USE;
	}
}

static void note(struct handle *handle, const char *what, enum moecomm_status status)
{
	if (may_end_with(status))
		return;
	fprintf(stderr, "rank %d: %s: %s (%s)\n", handle->rank, what, moecomm_status_name(status),
		moecomm_last_error());
	atomic_fetch_add(&handle->n_wrong, 1);
}

static void *run_ops(void *data)
{
	struct op_thread *mine = data;
	struct handle *handle = mine->handle;
	uint8_t in[4 * 64] = {0}, out[2 * 4 * 64];
	struct moecomm_tensor tensor = {in, out, 64};
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;

	args.channel = mine->channel;
	args.tensors = &tensor;
	args.n_tensors = 1;
	args.rows = 4;
	while (!atomic_load(&handle->stop)) {
		enum moecomm_status status = moecomm_dispatch(handle->group, &args, NULL);

		note(handle, "dispatch", status);
		atomic_fetch_add(status ? &handle->n_failed : &handle->n_good, 1);
		if (status)
			usleep(500);
	}
	return NULL;
}

static void *run_queries(void *data)
{
	struct handle *handle = data;

	while (!atomic_load(&handle->stop)) {
		struct moecomm_group_info info = {.size = sizeof(info)};

		note(handle, "query", moecomm_group_query(handle->group, &info));
		note(handle, "state", info.status);
		if (info.fault_rank < -1 || info.fault_rank > 1 ||
			(info.state == MOECOMM_GROUP_READY) != (info.status == MOECOMM_OK))
			atomic_fetch_add(&handle->n_wrong, 1);
		usleep(300);
	}
	return NULL;
}

static void *run_control(void *data)
{
	struct handle *handle = data;

	for (int i = 0; !atomic_load(&handle->stop); i++) {
		enum moecomm_status status =
			moecomm_group_set_deadlines(handle->group, 5000 + i % 7, 0, 0);

		/* between two epochs there is none whose deadlines could change */
		if (status != MOECOMM_NOT_FOUND)
			note(handle, "set_deadlines", status);
		usleep(3000);
		if (handle->rank == 0 && i % 16 == 15)
			note(handle, "abort", moecomm_group_abort(handle->group, "a race"));
	}
	return NULL;
}

static int body_races(struct rank *rank)
{
	struct moecomm_group_options o = test_options(rank->group, rank->rank, rank->world_size);
	struct handle handle = {.rank = rank->rank};
	struct op_thread ops[N_CHANNELS];
	pthread_t queries, control;
	int64_t end = now_ms() + RUN_MS;
	int n_epochs = 0;

	/* the last one to end waits for nobody */
	o.join_timeout_ms = 1000;
	EXPECT(moecomm_group_join(rank->context, &o, &handle.group), MOECOMM_OK);
	for (int i = 0; i < N_CHANNELS; i++) {
		ops[i] = (struct op_thread){.handle = &handle, .channel = i};
		EXPECT(pthread_create(&ops[i].thread, NULL, run_ops, &ops[i]), 0);
	}
	EXPECT(pthread_create(&queries, NULL, run_queries, &handle), 0);
	EXPECT(pthread_create(&control, NULL, run_control, &handle), 0);
	/* on a loaded machine epochs take their time; both ranks count the same ones */
	while (now_ms() < end || (n_epochs <= 3 && now_ms() < end + 60000)) {
		enum moecomm_status status;

		usleep((useconds_t)(5000 + 7000 * (n_epochs % 5)));
		status = moecomm_group_rejoin(handle.group);
		note(&handle, "rejoin", status);
		n_epochs += status == MOECOMM_OK;
	}
	/* no call on the handle may run when it is left */
	atomic_store(&handle.stop, true);
	for (int i = 0; i < N_CHANNELS; i++)
		pthread_join(ops[i].thread, NULL);
	pthread_join(queries, NULL);
	pthread_join(control, NULL);
	moecomm_group_leave(handle.group);
	print_message("rank %d: %d epochs, %ld ops, %ld failed\n", rank->rank, n_epochs,
		atomic_load(&handle.n_good), atomic_load(&handle.n_failed));
	EXPECT(atomic_load(&handle.n_wrong), 0);
	EXPECT_TRUE(n_epochs > 3 && atomic_load(&handle.n_good) > 0);
	return 0;
}

static void test_races(void **state)
{
	(void)state;
	assert_int_equal(run_threads("races", 2, body_races, NULL), 0);
}

/* ---- a look at one epoch's board that is told in the next epoch ---- */

static atomic_int step;

static void await_step(int wanted)
{
	while (atomic_load(&step) < wanted)
		usleep(1000);
}

static void *query_once(void *data)
{
	struct moecomm_group_info info = {.size = sizeof(info)};

	moecomm_group_query(data, &info);
	return NULL;
}

static int body_late_look(struct rank *rank)
{
	struct moecomm_group_info info = {.size = sizeof(info)};
	moecomm_group *group = rank_join(rank);
	pthread_t looker;

	EXPECT_TRUE(group);
	EXPECT(check_round(group, rank->rank, 2, 1, 0, 0), MOECOMM_OK);
	if (rank->rank == 1) {
		await_step(3);
		EXPECT(moecomm_group_abort(group, "late"), MOECOMM_OK);
		atomic_store(&step, 4);
	} else {
		atomic_store(&step, 1);
		await_step(2);
		/* nobody but the board can tell then */
		do {
			usleep(1000);
			EXPECT(moecomm_group_query(group, &info), MOECOMM_OK);
		} while (info.daemon_connected);
		atomic_store(&step, 3);
		await_step(4);
		EXPECT(pthread_create(&looker, NULL, query_once, group), 0);
		usleep(300000);
		atomic_store(&step, 5);
	}
	await_step(6);
	EXPECT(moecomm_group_rejoin(group), MOECOMM_OK);
	EXPECT(check_round(group, rank->rank, 2, 1, 1, 0), MOECOMM_OK);
	if (rank->rank == 0) {
		pthread_join(looker, NULL);
		atomic_store(&step, 7);
	}
	await_step(7);
	EXPECT(moecomm_group_query(group, &info), MOECOMM_OK);
	EXPECT(info.status, MOECOMM_OK);
	EXPECT(check_round(group, rank->rank, 2, 1, 2, 0), MOECOMM_OK);
	moecomm_group_leave(group);
	return 0;
}

static void *run_late_look(void *ret_n_failed)
{
	*(int *)ret_n_failed = run_threads("late-look", 2, body_late_look, NULL);
	/* whoever still waits for a rank that failed */
	atomic_store(&step, 7);
	return NULL;
}

/* Who was held up between seeing an end and saying so must not end the epoch that came after. */
static void test_late_look(void **state)
{
	int n_failed = -1;
	pthread_t runner;

	(void)state;
	setenv("MOECOMM_INJECT_CLIENT", "look_delay_ms:3000", 1);
	assert_int_equal(pthread_create(&runner, NULL, run_late_look, &n_failed), 0);
	/* a daemon ends with the thread that started it */
	await_step(1);
	ranks_daemon_kill();
	atomic_store(&step, 2);
	await_step(5);
	ranks_daemon_restart();
	if (atomic_load(&step) == 5)
		atomic_store(&step, 6);
	pthread_join(runner, NULL);
	unsetenv("MOECOMM_INJECT_CLIENT");
	assert_int_equal(n_failed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_races),
		cmocka_unit_test(test_late_look),
	};

	return cmocka_run_group_tests(tests, ranks_daemon_start, ranks_daemon_finish);
}
