/* SPDX-License-Identifier: Apache-2.0 */
/* Results for people (a table in nccl-tests' manner) and programs (JSON). */
#ifndef MC_BENCH_GPU_REPORT_H
#define MC_BENCH_GPU_REPORT_H

#include "bench/gpu/shared.h"

#define BENCH_JSON_SCHEMA 1

/* Median, smallest and largest over the repeats; a repeat counts as its slowest rank. */
struct bench_figure {
	bool there;
	double median_us, min_us, max_us;
	unsigned long long wrong, checked;
	int replays;
};

struct bench_figure bench_figure_of(const struct bench_options *options,
	const struct bench_shared *shared, int size, enum bench_series series,
	enum bench_form form);
/* The fastest NCCL variant; BENCH_N_SERIES when none was measured. */
enum bench_series bench_best_nccl(const struct bench_options *options,
	const struct bench_shared *shared, int size, enum bench_form form);
/* Bytes that an op leaves on (dispatch) or takes from (combine) a rank, as nccl-tests count them.
 */
uint64_t bench_op_bytes(const struct bench_options *options, int size);

void bench_table_print(const struct bench_options *options, const struct bench_shared *shared);
/* Returns 0, or -errno after a line on stderr. */
int bench_json_write(const struct bench_options *options, const struct bench_shared *shared);
/* Draws from the JSON file; a line on stderr when that is not possible. Returns 0 or -1. */
int bench_plot(const char *json_path, const char *plot_path);

#endif
