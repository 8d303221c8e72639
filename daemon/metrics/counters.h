/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon counts since it started; each is added to where it happens. */
#ifndef MC_DAEMON_METRICS_COUNTERS_H
#define MC_DAEMON_METRICS_COUNTERS_H

#include <stdint.h>
#include "kernels/lamport.h"

/* Statuses and states travel in bytes. */
#define MC_COUNTED_STATUSES 256u

/* Why a group did not take the fast path. */
enum mc_fallback {
	MC_FALLBACK_PROBE_FAILED,
	MC_FALLBACK_OVERRIDE,
	MC_FALLBACK_N,
};

struct mc_wait_totals {
	uint64_t bucket[MC_WAIT_BUCKETS];
	uint64_t sum_ns;
};

struct mc_counters {
	uint64_t requests;
	uint64_t connections;
	uint64_t refused[MC_COUNTED_STATUSES]; /* requests and connections, by enum mc_status */
	uint64_t epochs_ready;
	uint64_t epochs_ended[MC_COUNTED_STATUSES]; /* by enum mc_status */
	uint64_t stalls;                            /* ranks that began to stall */
	uint64_t fallbacks[MC_FALLBACK_N];
	struct mc_wait_totals waits[MC_WAIT_OPS]; /* by enum mc_op_kind; host backend */
};

#endif
