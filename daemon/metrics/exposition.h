/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus text exposition format 0.0.4, written line by line into memory. */
#ifndef MC_DAEMON_METRICS_EXPOSITION_H
#define MC_DAEMON_METRICS_EXPOSITION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "daemon/metrics/registry.h"

#define MC_EXPOSITION_LABELS 4

struct mc_exposition {
	FILE *out;
	const struct mc_metric *family;
};

/* Names and values alternate; ends with NULL. Values are escaped. */
struct mc_exposition_labels {
	const char *pair[2 * MC_EXPOSITION_LABELS + 1];
};
#define MC_LABELS(...) (&(struct mc_exposition_labels){{__VA_ARGS__, NULL}})

/* Starts a family: HELP and TYPE. Its samples must follow at once. */
void mc_exposition_family(struct mc_exposition *exposition, enum mc_metric_id id);
/* A sample of the family; labels may be NULL. */
void mc_exposition_number(struct mc_exposition *exposition,
	const struct mc_exposition_labels *labels, uint64_t value);
/* value / scale, exactly to nine digits behind the point. */
void mc_exposition_nanoseconds(
	struct mc_exposition *exposition, const struct mc_exposition_labels *labels, uint64_t ns);
/* One histogram: counts of its own of n buckets, whose last one has no upper bound. */
void mc_exposition_histogram(struct mc_exposition *exposition, const char *label,
	const char *label_value, const uint64_t *bucket, const uint64_t *bound_ns, uint32_t n,
	uint64_t sum_ns);

#endif
