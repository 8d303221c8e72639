/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `moecomm-bench control` share. */
#ifndef MC_BENCH_CONTROL_H
#define MC_BENCH_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include <moecomm.h>
#include "bench/common/report.h"

struct mc_control {
	const char *socket;
	int repeats;
	int64_t rows,
		row_bytes; /* of the groups that are attached: their memory is filled and mapped */
	int n_clients;     /* of the storm */
	int query_ms;      /* how long queries are sent */
	bool json;
	struct mc_report *report;
};

#define MC_CONTROL_MAX_RANKS 16

/*
 * Each appends rows to the report and returns 0, or -1 after telling what failed.
 *
 * Attach: from the first rank's join call to the last rank's ready; connections stand before. With
 * processes, before any thread of this process exists; with threads, ranks are threads with a
 * connection each.
 */
int mc_control_attach_processes(struct mc_control *control, int world_size);
int mc_control_attach_threads(struct mc_control *control, int world_size);
/* Status with all ranks, one connection, one request after the other, while a group of 4 stands. */
int mc_control_queries(struct mc_control *control);
/* n_clients connect at the same moment, each from a thread of its own. */
int mc_control_storm(struct mc_control *control);

/* One row: median, min, p99 and max of samples, which are sorted in place. target NAN: none. */
void mc_control_row(struct mc_control *control, const char *what, int size, const char *unit,
	double *samples, size_t n, double target);

/* Joins as a rank of a group of the bench. */
enum moecomm_status mc_control_join(const struct mc_control *control, moecomm_context *context,
	const char *name, int rank, int world_size, moecomm_group **ret_group);
enum moecomm_status mc_control_connect(
	const struct mc_control *control, const char *label, moecomm_context **ret_context);

#endif
