/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/common/stats.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

int64_t mc_bench_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double mc_bench_percentile(const double *sorted, size_t n, double share)
{
	double at = share * (double)(n - 1);
	size_t below = (size_t)at;

	if (n == 0)
		return NAN;
	if (below + 1 >= n)
		return sorted[n - 1];
	return sorted[below] + (at - (double)below) * (sorted[below + 1] - sorted[below]);
}

struct mc_bench_stats mc_bench_stats_of(double *samples, size_t n)
{
	struct mc_bench_stats stats = {n, NAN, NAN, NAN, NAN, NAN, NAN};
	double sum = 0;

	if (n == 0)
		return stats;
	qsort(samples, n, sizeof(*samples), ascending);
	for (size_t i = 0; i < n; i++)
		sum += samples[i];
	stats.min = samples[0];
	stats.median = mc_bench_percentile(samples, n, 0.5);
	stats.p90 = mc_bench_percentile(samples, n, 0.9);
	stats.p99 = mc_bench_percentile(samples, n, 0.99);
	stats.max = samples[n - 1];
	stats.mean = sum / (double)n;
	return stats;
}
