/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "bench/common/stats.h"
#include "bench/control/control.h"
#include "ctl/wire.h"
#include "proto/codec.h"

#define N_RANKS 4

struct member {
	const struct mc_control *control;
	moecomm_context *context;
	moecomm_group *group;
	int rank;
	enum moecomm_status status;
	char failure[512];
	pthread_t thread;
};

static void *join(void *argument)
{
	struct member *member = argument;
	char name[64];

	snprintf(name, sizeof(name), "bench-%d-queried", (int)getpid());
	member->status = mc_control_connect(member->control, "moecomm-bench", &member->context);
	if (!member->status)
		member->status = mc_control_join(member->control, member->context, name,
			member->rank, N_RANKS, &member->group);
	if (member->status)
		snprintf(member->failure, sizeof(member->failure), "%s", moecomm_last_error());
	return NULL;
}

static int query(struct mc_control *control)
{
	struct mc_ctl ctl = {.socket = control->socket};
	struct mc_ctl_wire *wire = NULL;
	int64_t start, now, end;
	size_t n = 0, capacity = 0;
	double *samples_us = NULL, rate;

	if (mc_ctl_wire_open(&ctl, &wire))
		return -1;
	start = now = mc_bench_now_ns();
	end = start + (int64_t)control->query_ms * 1000000;
	while (now < end) {
		Moecomm__Wire__Status *status = NULL;
		int64_t before = now;

		if (mc_ctl_wire_status(wire, NULL, true, false, &status))
			break;
		mc_codec_free(&status->base);
		now = mc_bench_now_ns();
		if (n == capacity) {
			double *more = realloc(samples_us,
				(capacity = capacity ? 2 * capacity : 65536) * sizeof(*samples_us));

			if (!more)
				break;
			samples_us = more;
		}
		samples_us[n++] = (double)(now - before) / 1e3;
	}
	mc_ctl_wire_close(wire);
	if (now >= end && n > 0) {
		rate = (double)n / ((double)(now - start) / 1e9);
		mc_control_row(control, "status queries, one after the other", N_RANKS, "us",
			samples_us, n, (double)NAN);
		mc_control_row(
			control, "status queries a second", N_RANKS, "1/s", &rate, 1, (double)NAN);
	}
	free(samples_us);
	return now >= end && n > 0 ? 0 : -1;
}

int mc_control_queries(struct mc_control *control)
{
	struct member members[N_RANKS] = {0};
	int r = 0;

	for (int rank = 0; rank < N_RANKS; rank++) {
		members[rank].control = control;
		members[rank].rank = rank;
		if (pthread_create(&members[rank].thread, NULL, join, &members[rank]) != 0) {
			fprintf(stderr, "moecomm-bench: cannot make a thread\n");
			exit(1);
		}
	}
	for (int rank = 0; rank < N_RANKS; rank++) {
		pthread_join(members[rank].thread, NULL);
		if (members[rank].status && r == 0) {
			fprintf(stderr, "moecomm-bench: rank %d of the group to query: %s\n", rank,
				members[rank].failure);
			r = -1;
		}
	}
	if (r == 0)
		r = query(control);
	for (int rank = 0; rank < N_RANKS; rank++) {
		moecomm_group_leave(members[rank].group);
		moecomm_disconnect(members[rank].context);
	}
	return r;
}
