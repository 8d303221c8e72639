/* SPDX-License-Identifier: Apache-2.0 */
/* Time and what is said about many times. */
#ifndef MC_BENCH_STATS_H
#define MC_BENCH_STATS_H

#include <stddef.h>
#include <stdint.h>

int64_t mc_bench_now_ns(void); /* monotonic, the same clock in all processes */

struct mc_bench_stats {
	size_t n;
	double min, median, p90, p99, max, mean; /* NAN when n is 0 */
};
/* Sorts samples in place. */
struct mc_bench_stats mc_bench_stats_of(double *samples, size_t n);
/* Of sorted samples; between two of them by their share. share: 0 … 1. */
double mc_bench_percentile(const double *sorted, size_t n, double share);

#endif
