/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures of ranks on GPUs, through the real daemon and the public interface:
 *
 *   gpu-life [--ranks N] [--devices N] [--memory-slack-mib N] [--only PATTERN]
 *
 * Ranks are processes; more of them than GPUs share these. Exits 77 where there are fewer GPUs than
 * asked for. A case's times go to stdout.
 */
#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "gpu/life/stage.h"

/* Returns false after telling what is wrong. */
static bool parse(int argc, char **argv)
{
	static const struct option options[] = {
		{"ranks", required_argument, NULL, 'r'},
		{"devices", required_argument, NULL, 'd'},
		{"memory-slack-mib", required_argument, NULL, 'm'},
		{"only", required_argument, NULL, 'o'},
		{NULL, 0, NULL, 0},
	};
	int option;

	stage.life.world_size = stage.life.n_devices = 2;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'r':
			stage.life.world_size = atoi(optarg);
			break;
		case 'd':
			stage.life.n_devices = atoi(optarg);
			break;
		case 'm':
			stage.memory_slack_mib = atol(optarg);
			break;
		case 'o':
			cmocka_set_test_filter(optarg);
			break;
		default:
			return false;
		}
	}
	if (stage.life.world_size >= 2 && stage.life.world_size <= LIFE_MAX_RANKS &&
		stage.life.n_devices >= 1)
		return true;
	fprintf(stderr, "gpu-life: --ranks must be 2 to %d, --devices at least 1\n",
		LIFE_MAX_RANKS);
	return false;
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_teardown(name, stage_clear_ranks)
	const struct CMUnitTest tests[] = {
		TEST(test_killed_between_ops_of_a_stream),
		TEST(test_killed_under_replay),
		TEST(test_stopped),
		TEST(test_stopped_and_continued),
		TEST(test_aborted),
		TEST(test_mismatch),
		TEST(test_replay_between_epochs),
		TEST(test_daemon_restarted_under_replay),
		TEST(test_daemon_killed_for_good),
		TEST(test_memory_is_back),
	};
	char *count;
	int n;

	if (argc == 9 && !strcmp(argv[1], "--rank"))
		return life_rank_main(argv);
	if (argc == 2 && !strcmp(argv[1], "--count"))
		return life_print_count();
	if (argc == 2 && !strcmp(argv[1], "--memory"))
		return life_print_memory();
	if (!parse(argc, argv))
		return 2;
	count = life_ask_self("--count");
	n = atoi(count);
	free(count);
	if (n < stage.life.n_devices) {
		printf("skipped: %d GPUs are needed, %d are here\n", stage.life.n_devices, n);
		return 77;
	}
	if (stage.life.n_devices > stage.life.world_size)
		stage.life.n_devices = stage.life.world_size;
	return cmocka_run_group_tests(tests, stage_open, stage_close);
}
