/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/report.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/common/stats.h"

struct bench_figure bench_figure_of(const struct bench_options *options,
	const struct bench_shared *shared, int size, enum bench_series series, enum bench_form form)
{
	const struct bench_cell *cell = &shared->cell[size][series][form];
	struct bench_figure figure = {0};
	double slowest[BENCH_MAX_REPEATS];

	if (!cell->measured)
		return figure;
	for (int repeat = 0; repeat < options->repeats; repeat++) {
		slowest[repeat] = 0;
		for (int rank = 0; rank < options->world_size; rank++) {
			if (cell->us[repeat][rank] > slowest[repeat])
				slowest[repeat] = cell->us[repeat][rank];
		}
	}
	for (int rank = 0; rank < options->world_size; rank++) {
		figure.wrong += cell->wrong[rank];
		figure.checked += cell->checked[rank];
	}
	struct mc_bench_stats stats = mc_bench_stats_of(slowest, (size_t)options->repeats);

	figure.there = true;
	figure.median_us = stats.median;
	figure.min_us = stats.min;
	figure.max_us = stats.max;
	figure.replays = cell->replays;
	return figure;
}

enum bench_series bench_best_nccl(const struct bench_options *options,
	const struct bench_shared *shared, int size, enum bench_form form)
{
	enum bench_series best = BENCH_N_SERIES;
	double best_us = 0;

	for (enum bench_series s = BENCH_NCCL; s < BENCH_N_SERIES; s++) {
		struct bench_figure figure = bench_figure_of(options, shared, size, s, form);

		if (figure.there && (best == BENCH_N_SERIES || figure.median_us < best_us)) {
			best = s;
			best_us = figure.median_us;
		}
	}
	return best;
}

uint64_t bench_op_bytes(const struct bench_options *options, int size)
{
	uint64_t rows = (uint64_t)options->sizes[size] * (uint64_t)options->world_size;
	uint64_t gathered = rows * (uint64_t)options->row_bytes;
	uint64_t scattered = rows * (uint64_t)options->hidden * bench_dtype_bytes(options->dtype);

	switch (options->kind) {
	case BENCH_DISPATCH:
		return gathered;
	case BENCH_CHAIN: /* of an average op */
		return (gathered + scattered) / 2;
	default:
		return scattered;
	}
}

static void print_floors(const struct bench_shared *shared)
{
	const struct bench_floors *f = &shared->floors;

	if (f->have_empty)
		printf("# floor: empty kernel %.2f us in a one-kernel graph, %.2f us in a graph of "
		       "%d; bare launch %.2f us of CPU\n",
			f->empty_one_us, f->empty_long_us, BENCH_GRAPH_OPS, f->empty_enqueue_us);
	if (f->have_latency)
		printf("# floor: one-way latency %.2f us\n", f->one_way_us);
	if (f->have_push)
		printf("# floor: push %.0f GB/s (a CTA a multiprocessor), %.0f GB/s (16 CTAs)\n",
			f->push_gbps, f->push_16_gbps);
	if (f->why[0])
		printf("# %s\n", f->why);
}

static void print_nccl(const struct bench_options *options, const struct bench_shared *shared,
	int size, enum bench_form form, double ours_us)
{
	enum bench_series best = bench_best_nccl(options, shared, size, form);

	if (best == BENCH_N_SERIES)
		printf(" %9s %-17s %6s", "-", "-", "-");
	else {
		double us = bench_figure_of(options, shared, size, best, form).median_us;

		printf(" %9.2f %-17s %6.2f", us, bench_series_name(best),
			ours_us > 0 ? us / ours_us : 0);
	}
}

void bench_table_print(const struct bench_options *options, const struct bench_shared *shared)
{
	const struct bench_machine *m = &shared->machine;
	double w = options->world_size;

	printf("# moecomm-bench %s: %d ranks on %d GPU(s) %s%s\n", bench_kind_name(options->kind),
		options->world_size,
		m->n_devices < options->world_size ? m->n_devices : options->world_size,
		m->gpu_name,
		m->gpus_shared ? " - RANKS SHARE GPUS: correctness only, no speed" : "");
	printf("# hidden %lld %s, dispatch rows of %lld bytes, seed %llu, medians of %d repeats\n",
		(long long)options->hidden, bench_dtype_name(options->dtype),
		(long long)options->row_bytes, (unsigned long long)options->seed, options->repeats);
	printf("# CUDA driver %d.%d, runtime %d.%d", m->cuda_driver / 1000,
		m->cuda_driver % 1000 / 10, m->cuda_runtime / 1000, m->cuda_runtime % 1000 / 10);
	if (m->nccl_version)
		printf(", NCCL %d.%d.%d", m->nccl_version / 10000, m->nccl_version / 100 % 100,
			m->nccl_version % 100);
	printf("; arena %.1f MiB a rank\n", (double)m->arena_bytes / (1 << 20));
	if (options->history)
		printf("# after %d calls of mixed sizes\n", options->history);
	print_floors(shared);
	if (shared->nccl_note[0])
		printf("# NCCL: %s\n", shared->nccl_note);
	printf("# %6s %10s | %8s %7s %7s %7s | %8s %7s | %6s %6s | %9s %-17s %6s | %9s %-17s %6s",
		"tokens", "bytes", "one us", "spread", "algbw", "busbw", "graph us", "spread",
		"#wrong", "call", "nccl one", "variant", "ratio", "nccl grph", "variant", "ratio");
	if (options->kind == BENCH_FUSED)
		printf(" | %12s %14s", "separate one", "separate graph");
	printf("\n# %6s %10s | %8s %7s %7s %7s | %8s %7s | %6s %6s |\n", "", "", "", "", "GB/s",
		"GB/s", "", "", "", "us");
	for (int size = 0; size < options->n_sizes; size++) {
		struct bench_figure one =
			bench_figure_of(options, shared, size, BENCH_OURS, BENCH_ONE);
		struct bench_figure graph =
			bench_figure_of(options, shared, size, BENCH_OURS, BENCH_LONG);
		double gbps =
			one.there ? (double)bench_op_bytes(options, size) / one.median_us / 1e3 : 0;

		printf("%8lld %10llu | %8.2f %7.2f %7.2f %7.2f | %8.2f %7.2f | %6llu %6.2f |",
			(long long)options->sizes[size],
			(unsigned long long)bench_op_bytes(options, size), one.median_us,
			one.max_us - one.min_us, gbps, gbps * (w - 1) / w, graph.median_us,
			graph.max_us - graph.min_us, one.wrong + graph.wrong,
			shared->enqueue_us[size]);
		print_nccl(options, shared, size, BENCH_ONE, one.median_us);
		printf(" |");
		print_nccl(options, shared, size, BENCH_LONG, graph.median_us);
		if (options->kind == BENCH_FUSED)
			printf(" | %12.2f %14.2f",
				bench_figure_of(options, shared, size, BENCH_SEPARATE, BENCH_ONE)
					.median_us,
				bench_figure_of(options, shared, size, BENCH_SEPARATE, BENCH_LONG)
					.median_us);
		printf("\n");
	}
	fflush(stdout);
}
