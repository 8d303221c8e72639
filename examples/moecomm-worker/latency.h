/* SPDX-License-Identifier: Apache-2.0 */
/* Time of ops: a bounded sample of them, so that a run without end needs no memory without end. */
#ifndef WORKER_LATENCY_H
#define WORKER_LATENCY_H

#include <stdint.h>

#define LATENCY_SAMPLES 65536u

struct latency {
	int64_t n_calls;
	uint32_t sample_ns[LATENCY_SAMPLES];
};

int64_t latency_now_ns(void); /* monotonic */
void latency_add(struct latency *latency, int64_t ns);
/* share 0.5: the median. Sorts a copy: not in a hot path. NAN without calls. In µs. */
double latency_percentile_us(const struct latency *latency, double share);

#endif
