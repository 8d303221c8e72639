/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank killed in the middle of an op, a hundred times: what its peers see and how soon; and two
 * groups aborted from other threads, twice, in either order.
 */
#include "fault/link/link.h"

#include <pthread.h>
#include <signal.h>

#include "integration/client/ranks.h"

#define N_KILLS 100

static struct mc_test_daemon daemon_process;

static int set_up(void **state)
{
	mc_test_daemon_start(&daemon_process, NULL);
	return ranks_daemon_start(state); /* of ranks that are threads */
}

static int tear_down(void **state)
{
	mc_test_daemon_finish(&daemon_process);
	return ranks_daemon_finish(state);
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static void print_times(const char *event, int64_t *us, int n)
{
	qsort(us, (size_t)n, sizeof(*us), compare);
	print_message("%s: %d statuses, median %.2f ms, 99 of 100 within %.2f ms, max %.2f ms\n",
		event, n, (double)us[n / 2] / 1e3, (double)us[(n * 99 - 1) / 100] / 1e3,
		(double)us[n - 1] / 1e3);
}

static void a_killed_rank_is_named_within_a_second(void **state)
{
	static int64_t us[N_KILLS * LINK_WORLD];
	int n = 0;

	(void)state;
	for (int i = 0; i < N_KILLS; i++) {
		struct link_seen *now, seen[LINK_WORLD];
		char group[32];
		struct link_world world = {
			.socket = daemon_process.socket, .group = group, .world_size = 2 + i % 3};
		int victim = i / 3 % world.world_size;
		int64_t killed_us;

		snprintf(group, sizeof(group), "killed-%d", i);
		link_start(&world, &now);
		/* anywhere in an op, and in another one each time */
		while (atomic_load(&now[victim].n_rounds) < 20)
			usleep(200);
		usleep((useconds_t)(i * 37 % 1000));
		killed_us = link_now_us();
		kill(now[victim].pid, SIGKILL);
		link_wait(&world, now, seen);
		for (int r = 0; r < world.world_size; r++) {
			if (r == victim)
				continue;
			assert_int_equal(seen[r].status, MOECOMM_PEER_LOST);
			assert_int_equal(seen[r].fault_rank, victim);
			us[n] = seen[r].at_us - killed_us;
			assert_true(us[n++] < 1000000 + LINK_SLACK_MS * 1000);
		}
	}
	print_times("SIGKILL of a rank in an op", us, n);
}

/* ---- aborts ---- */

struct aborts {
	bool second_first;
	_Atomic long aborted_us; /* when the first abort was called */
	_Atomic long seen_us[3];
};

struct aborter {
	moecomm_group *group[2];
	struct aborts *aborts;
};

static void *abort_both_twice(void *data)
{
	struct aborter *aborter = data;
	bool swap = aborter->aborts->second_first;
	long none = 0;

	usleep(50000);
	atomic_compare_exchange_strong(&aborter->aborts->aborted_us, &none, (long)link_now_us());
	for (int i = 0; i < 2; i++) {
		moecomm_group_abort(aborter->group[swap], "test");
		moecomm_group_abort(aborter->group[!swap], "test");
	}
	return NULL;
}

/* Rank 0 waits in the second group while the others wait in the first: only aborts free them. */
static int body_aborts(struct rank *rank)
{
	struct aborts *aborts = rank->data;
	struct rank first = *rank, second = *rank;
	struct aborter aborter = {.aborts = aborts};
	pthread_t thread[2];

	first.group = "first";
	second.group = "second";
	aborter.group[0] = rank_join(&first);
	aborter.group[1] = rank_join(&second);
	EXPECT_TRUE(aborter.group[0] && aborter.group[1]);
	for (int i = 0; i < 5; i++) {
		EXPECT(check_round(aborter.group[0], rank->rank, 3, 7, i, 0), MOECOMM_OK);
		EXPECT(check_round(aborter.group[1], rank->rank, 3, 8, i, 0), MOECOMM_OK);
	}
	if (rank->rank == 0) {
		/* from two threads at once */
		for (int i = 0; i < 2; i++)
			pthread_create(&thread[i], NULL, abort_both_twice, &aborter);
		EXPECT(check_round(aborter.group[1], 0, 3, 8, 5, 0), MOECOMM_ABORTED);
		atomic_store(&aborts->seen_us[0], (long)link_now_us());
		for (int i = 0; i < 2; i++)
			pthread_join(thread[i], NULL);
	} else {
		EXPECT(check_round(aborter.group[0], rank->rank, 3, 7, 5, 0), MOECOMM_ABORTED);
		atomic_store(&aborts->seen_us[rank->rank], (long)link_now_us());
		EXPECT_TRUE(strstr(moecomm_last_error(), "rank 0"));
	}
	for (int i = 0; i < 2; i++) {
		EXPECT(check_round(aborter.group[i], rank->rank, 3, 7, 6, 0), MOECOMM_ABORTED);
		EXPECT(moecomm_group_abort(aborter.group[i], "again"), MOECOMM_OK);
		EXPECT(moecomm_group_rejoin(aborter.group[i]), MOECOMM_OK);
	}
	for (int i = 0; i < 20; i++) {
		EXPECT(check_round(aborter.group[0], rank->rank, 3, 9, i, -1), MOECOMM_OK);
		EXPECT(check_round(aborter.group[1], rank->rank, 3, 10, i, -1), MOECOMM_OK);
	}
	moecomm_group_leave(aborter.group[0]);
	moecomm_group_leave(aborter.group[1]);
	return 0;
}

static void aborts_of_two_groups_in_either_order(void **state)
{
	static int64_t us[10 * 3];
	int n = 0;

	(void)state;
	for (int i = 0; i < 10; i++) {
		struct aborts aborts = {.second_first = i % 2};

		/* threads: what they see is in this process */
		assert_int_equal(run_threads("aborts", 3, body_aborts, &aborts), 0);
		for (int r = 0; r < 3; r++) {
			us[n] = atomic_load(&aborts.seen_us[r]) - atomic_load(&aborts.aborted_us);
			assert_true(us[n++] < 1000000 + LINK_SLACK_MS * 1000);
		}
	}
	print_times("abort from another thread", us, n);
}

static void *leave_soon(void *data)
{
	usleep(100000);
	moecomm_group_abort(data, "teardown");
	return NULL;
}

/* Whoever waits for a rank that never comes is freed by an abort, and what follows takes no time.
 */
static int body_teardown(struct rank *rank)
{
	moecomm_group *group = rank_join(rank);
	pthread_t thread;
	int64_t begin_ms;

	EXPECT_TRUE(group);
	if (rank->rank == 1) {
		/* makes no call at all */
		usleep(500000);
	} else {
		pthread_create(&thread, NULL, leave_soon, group);
		EXPECT(check_round(group, rank->rank, 2, 3, 0, 0), MOECOMM_ABORTED);
		pthread_join(thread, NULL);
	}
	begin_ms = now_ms();
	moecomm_group_leave(group);
	EXPECT_TRUE(now_ms() - begin_ms < 1000);
	return 0;
}

static void teardown_after_an_abort_is_quick(void **state)
{
	(void)state;
	assert_int_equal(run_threads("teardown", 2, body_teardown, NULL), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_rank_is_named_within_a_second),
		cmocka_unit_test(aborts_of_two_groups_in_either_order),
		cmocka_unit_test(teardown_after_an_abort_is_quick),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
