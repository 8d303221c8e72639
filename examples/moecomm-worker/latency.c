/* SPDX-License-Identifier: Apache-2.0 */
#include "latency.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int64_t latency_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void latency_add(struct latency *latency, int64_t ns)
{
	/* once full, the latest calls are the sample */
	latency->sample_ns[latency->n_calls++ % LATENCY_SAMPLES] =
		ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

static int ascending(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

double latency_percentile_us(const struct latency *latency, double share)
{
	size_t n = latency->n_calls < LATENCY_SAMPLES ? (size_t)latency->n_calls : LATENCY_SAMPLES;
	uint32_t *sorted = n ? malloc(n * sizeof(*sorted)) : NULL;
	double ret;

	if (!sorted)
		return NAN;
	memcpy(sorted, latency->sample_ns, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), ascending);
	ret = sorted[(size_t)(share * (double)(n - 1) + 0.5)] / 1e3;
	free(sorted);
	return ret;
}
