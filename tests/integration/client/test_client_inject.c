/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Injected faults of memory and links. Ranks are processes only: what the host ops inject is read
 * once a process, so this one must not run an op itself.
 */
#include "integration/client/harness.h"

#include <string.h>

#include "integration/client/ranks.h"

static int body_map_fails(struct rank *rank)
{
	struct moecomm_group_options o = test_options(rank->group, rank->rank, rank->world_size);
	moecomm_group *group = NULL;

	/* on rank 1 the fifth object: board, control block, arenas of ranks 0, 1, 2 */
	if (rank->rank == 1)
		setenv("MOECOMM_INJECT_CLIENT", "map_fail:5@1", 1);
	o.probe_timeout_ms = 1500;
	EXPECT(moecomm_group_join(rank->context, &o, &group), MOECOMM_PROBE_FAILED);
	EXPECT_TRUE(strstr(moecomm_last_error(), "rank 1 from rank 2"));
	if (rank->rank == 1)
		EXPECT_TRUE(strstr(moecomm_last_error(), "cannot map the arena of rank 2: mmap"));
	return 0;
}

/* Whatever map fails on one rank: an error on all, naming the pair; and the process goes on. */
static void test_map_fails(void **state)
{
	(void)state;
	assert_int_equal(run_processes("map-fails", 3, body_map_fails, NULL), 0);
}

static int body_bad_link(struct rank *rank)
{
	struct moecomm_group_options o = test_options(rank->group, rank->rank, rank->world_size);
	moecomm_group *group = NULL;
	int64_t begin = now_ms();

	o.probe_timeout_ms = 800;
	EXPECT(moecomm_group_join(rank->context, &o, &group), MOECOMM_PROBE_FAILED);
	EXPECT_TRUE(now_ms() - begin < 800 + 2000 + SLACK_MS);
	EXPECT_TRUE(strstr(moecomm_last_error(), "rank 2 from rank 0"));
	EXPECT_TRUE(strstr(moecomm_last_error(), rank->data));
	return 0;
}

static void test_bad_link(void **state)
{
	(void)state;
	/* read once a process: the ranks inherit it, this process has no op of its own */
	setenv("MOECOMM_INJECT", "drop_probe:0>2", 1);
	assert_int_equal(run_processes("drops", 3, body_bad_link, (char *)"never arrived"), 0);
	setenv("MOECOMM_INJECT", "flip_probe:0>2", 1);
	assert_int_equal(run_processes("flips", 3, body_bad_link, (char *)"something else"), 0);
	unsetenv("MOECOMM_INJECT");
}

/* That the results really are checked: a flipped byte is found. */
static int body_flipped(struct rank *rank)
{
	moecomm_group *group = rank_join(rank);
	int r = 0;

	EXPECT_TRUE(group);
	for (int i = 0; i < 100 && r == 0; i++)
		r = check_round(group, rank->rank, rank->world_size, 3, i, 0);
	moecomm_group_leave(group);
	return r != -1 && rank->rank == 1;
}

static void test_checks_find_flips(void **state)
{
	(void)state;
	setenv("MOECOMM_INJECT", "flip_data:0>1", 1);
	assert_int_equal(run_processes("flipped", 2, body_flipped, NULL), 0);
	unsetenv("MOECOMM_INJECT");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_map_fails),
		cmocka_unit_test(test_bad_link),
		cmocka_unit_test(test_checks_find_flips),
	};

#ifndef MC_FAULT_INJECTION
	print_message("skipped: needs a build with MOECOMM_FAULT_INJECTION\n");
	return 77;
#endif
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, ranks_daemon_start, ranks_daemon_finish);
}
