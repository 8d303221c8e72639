/* SPDX-License-Identifier: Apache-2.0 */
/* From samples to figures, table, JSON and picture; and the options that say what is measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/gpu/report.h"

static struct bench_options options(const char *kind)
{
	char *argv[] = {(char *)kind, "--sizes", "1,64", "--repeats", "3", "--seed", "7", NULL};
	struct bench_options o;

	assert_int_equal(bench_options_parse(7, argv, &o), 0);
	return o;
}

static void fill(struct bench_shared *shared, int size, enum bench_series series,
	enum bench_form form, double us)
{
	struct bench_cell *cell = &shared->cell[size][series][form];

	/* rank 1 is the slower one in every repeat; the repeats differ */
	for (int repeat = 0; repeat < 3; repeat++) {
		cell->us[repeat][0] = us / 2;
		cell->us[repeat][1] = us + (repeat == 0 ? 10 : repeat == 1 ? 0 : 1);
	}
	cell->wrong[1] = 2;
	cell->checked[0] = cell->checked[1] = 50;
	cell->replays = 200;
	cell->measured = true;
}

static void figures_are_medians_of_the_slowest_rank(void **state)
{
	struct bench_options o = options("dispatch");
	struct bench_shared *shared = bench_shared_new();
	struct bench_figure f;

	(void)state;
	assert_non_null(shared);
	f = bench_figure_of(&o, shared, 0, BENCH_OURS, BENCH_ONE);
	assert_false(f.there);
	fill(shared, 0, BENCH_OURS, BENCH_ONE, 5);
	f = bench_figure_of(&o, shared, 0, BENCH_OURS, BENCH_ONE);
	assert_true(f.there);
	assert_float_equal(f.median_us, 6, 1e-9);
	assert_float_equal(f.min_us, 5, 1e-9);
	assert_float_equal(f.max_us, 15, 1e-9);
	assert_int_equal(f.wrong, 2);
	assert_int_equal(f.checked, 100);
}

static void best_nccl_is_the_fastest_measured(void **state)
{
	struct bench_options o = options("dispatch");
	struct bench_shared *shared = bench_shared_new();

	(void)state;
	assert_int_equal(bench_best_nccl(&o, shared, 0, BENCH_ONE), BENCH_N_SERIES);
	fill(shared, 0, BENCH_OURS, BENCH_ONE, 1);
	assert_int_equal(bench_best_nccl(&o, shared, 0, BENCH_ONE), BENCH_N_SERIES);
	fill(shared, 0, BENCH_NCCL, BENCH_ONE, 9);
	fill(shared, 0, BENCH_NCCL_WINDOW_NOMIX, BENCH_ONE, 8);
	fill(shared, 0, BENCH_NCCL_NOMIX, BENCH_ONE, 20);
	assert_int_equal(bench_best_nccl(&o, shared, 0, BENCH_ONE), BENCH_NCCL_WINDOW_NOMIX);
	assert_int_equal(bench_best_nccl(&o, shared, 0, BENCH_LONG), BENCH_N_SERIES);
}

static void bytes_are_counted_as_nccl_tests_do(void **state)
{
	struct bench_options o = options("dispatch");

	(void)state;
	assert_int_equal(bench_op_bytes(&o, 1), 2 * 64 * 4096);
	o = options("combine");
	assert_int_equal(bench_op_bytes(&o, 1), 2 * 64 * 7168 * 2);
	o = options("chain");
	assert_int_equal(bench_op_bytes(&o, 1), (2 * 64 * 4096 + 2 * 64 * 7168 * 2) / 2);
}

static json_object *member(json_object *from, const char *key)
{
	json_object *found = NULL;

	if (!json_object_object_get_ex(from, key, &found))
		fail_msg("%s is missing", key);
	return found;
}

static void json_holds_all(void **state)
{
	struct bench_options o = options("fused");
	struct bench_shared *shared = bench_shared_new();
	char json_path[] = "/tmp/moecomm-report.XXXXXX", plot_path[64];
	json_object *root, *point, *figure;
	int fd = mkstemp(json_path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	o.json_path = json_path;
	snprintf(shared->machine.gpu_name, sizeof(shared->machine.gpu_name), "Some \"GPU\"");
	shared->machine.cuda_driver = 13000;
	shared->machine.nccl_version = 22809;
	shared->floors.have_empty = shared->floors.have_latency = true;
	shared->floors.empty_one_us = 2.0;
	shared->floors.empty_long_us = 0.5;
	shared->floors.one_way_us = 0.7;
	for (int size = 0; size < 2; size++) {
		fill(shared, size, BENCH_OURS, BENCH_ONE, 5);
		fill(shared, size, BENCH_OURS, BENCH_LONG, 3);
		fill(shared, size, BENCH_SEPARATE, BENCH_ONE, 12);
		fill(shared, size, BENCH_NCCL, BENCH_ONE, 9);
	}
	assert_int_equal(bench_json_write(&o, shared), 0);
	bench_table_print(&o, shared);

	root = json_object_from_file(json_path);
	assert_non_null(root);
	assert_int_equal(json_object_get_int(member(root, "schema")), BENCH_JSON_SCHEMA);
	assert_string_equal(json_object_get_string(member(root, "bench")), "fused");
	assert_string_equal(
		json_object_get_string(member(member(root, "machine"), "nccl")), "2.28.9");
	assert_string_equal(
		json_object_get_string(member(member(root, "machine"), "cuda_driver")), "13.0");
	assert_int_equal(json_object_get_int64(member(root, "seed")), 7);
	member(root, "commit");
	member(root, "date");
	assert_int_equal(json_object_array_length(member(root, "points")), 2);
	point = json_object_array_get_idx(member(root, "points"), 1);
	assert_int_equal(json_object_get_int(member(point, "tokens")), 64);
	assert_int_equal(json_object_array_length(member(point, "figures")), 4);
	figure = json_object_array_get_idx(member(point, "figures"), 3);
	assert_string_equal(json_object_get_string(member(figure, "series")), "nccl");
	assert_float_equal(json_object_get_double(member(figure, "us")), 10, 1e-9);
	assert_true(json_object_get_boolean(member(figure, "best_nccl")));
	json_object_put(root);

	/* the picture's script reads what is written here */
	if (system("command -v python3 >/dev/null && command -v gnuplot >/dev/null") == 0) {
		snprintf(plot_path, sizeof(plot_path), "%s.svg", json_path);
		assert_int_equal(bench_plot(json_path, plot_path), 0);
		assert_int_equal(access(plot_path, R_OK), 0);
		unlink(plot_path);
	}
	unlink(json_path);
}

static void options_are_checked(void **state)
{
	static const char *const bad[][2] = {
		{"--sizes", "0"},
		{"--sizes", "1,,2"},
		{"--sizes", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25"},
		{"--world-size", "65"},
		{"--world-size", "two"},
		{"--hidden", "0"},
		{"--dtype", "fp8"},
		{"--repeats", "0"},
		{"--plot", "x.svg"}, /* without --json */
		{"--nonsense", "1"},
	};
	struct bench_options o;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *argv[] = {"chain", (char *)bad[i][0], (char *)bad[i][1], NULL};

		if (bench_options_parse(3, argv, &o) != 2)
			fail_msg("%s %s is taken", bad[i][0], bad[i][1]);
	}
	char *argv[] = {
		"chain", "--nccl", "/opt/libnccl.so.2", "--dtype", "fp16", "--shared-gpu", NULL};

	assert_int_equal(bench_options_parse(6, argv, &o), 0);
	assert_int_equal(o.kind, BENCH_CHAIN);
	assert_true(o.nccl);
	assert_string_equal(o.nccl_library, "/opt/libnccl.so.2");
	assert_true(o.shared_gpu);
	assert_int_equal(bench_dtype_bytes(o.dtype), 2);
	assert_string_equal(bench_dtype_name(o.dtype), "fp16");
}

static void barrier_keeps_step_and_ends(void **state)
{
	struct bench_shared *shared = bench_shared_new();
	pid_t pid[3];
	int status;

	(void)state;
	for (int rank = 0; rank < 3; rank++) {
		pid[rank] = fork();
		if (pid[rank] == 0) {
			for (int i = 0; i < 500; i++) {
				/* everyone has counted up before anyone goes on */
				atomic_fetch_add(&shared->n_replays, 1);
				if (!bench_barrier(shared, 3) ||
					atomic_load(&shared->n_replays) < 3 * (i + 1))
					_exit(1);
				/* who is still in the last one may see the failure that follows it
				 */
				if (!bench_barrier(shared, 3) && i < 499)
					_exit(2);
			}
			/* one fails: the others leave a barrier that it never reaches */
			if (rank == 1) {
				bench_abort(shared, "rank %d fails", rank);
				bench_abort(shared, "and says so twice");
				_exit(0);
			}
			_exit(bench_barrier(shared, 3) ? 3 : 0);
		}
	}
	for (int rank = 0; rank < 3; rank++) {
		assert_int_equal(waitpid(pid[rank], &status, 0), pid[rank]);
		assert_int_equal(status, 0);
	}
	assert_string_equal(shared->error, "rank 1 fails");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(figures_are_medians_of_the_slowest_rank),
		cmocka_unit_test(best_nccl_is_the_fastest_measured),
		cmocka_unit_test(bytes_are_counted_as_nccl_tests_do),
		cmocka_unit_test(json_holds_all),
		cmocka_unit_test(options_are_checked),
		cmocka_unit_test(barrier_keeps_step_and_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
