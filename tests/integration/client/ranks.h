/* SPDX-License-Identifier: Apache-2.0 */
/* A real daemon, and ranks as threads or processes under it. */
#ifndef MC_TESTS_CLIENT_RANKS_H
#define MC_TESTS_CLIENT_RANKS_H

#include <pthread.h>
#include "client/moecomm.h"

/* Time that a loaded machine of two cores may add to a bound. */
#define SLACK_MS 2000

/*
 * moecommd with the host backend at test_socket(), as a group's set-up and tear-down. It must end
 * in order, without a line of level error and without a sanitizer's report.
 */
int ranks_daemon_start(void **state);
int ranks_daemon_finish(void **state);
/* kill -9; and once more, at the same socket */
void ranks_daemon_kill(void);
void ranks_daemon_restart(void);

/* One rank of a test. A body returns 0 when all is well; it prints what is not. */
struct rank {
	const char *group;
	int rank, world_size;
	void *data;
	/* of ranks as threads: shared by all; of processes: the rank's own */
	moecomm_context *context;
};
typedef int (*rank_body)(struct rank *rank);

/* Runs the body on every rank and returns how many failed. data may be NULL. */
int run_threads(const char *group, int world_size, rank_body body, void *data);
int run_processes(const char *group, int world_size, rank_body body, void *data);

/* Joins with the harness' options; NULL and a printed sentence when it fails. */
moecomm_group *rank_join(struct rank *rank);

/*
 * One round of an op drawn from (seed, round), the same on all ranks, with data that only this
 * round has, checked in full. Returns the op's status, or -1 after printing what was wrong.
 * channel: -1 draws it too.
 */
int check_round(
	moecomm_group *group, int rank, int world_size, unsigned seed, int round, int channel);

/* Where processes wait for each other, outside of the product; forked ones share it. */
pthread_barrier_t *ranks_barrier(unsigned n);

int64_t now_ms(void);

/* Ends the body when the status is another one. */
#define EXPECT(expression, wanted)                                                                 \
	do {                                                                                       \
		int got_ = (int)(expression);                                                      \
		if (got_ != (int)(wanted)) {                                                       \
			fprintf(stderr, "rank %d, line %d: %s: %s (%s), wanted %s\n", rank->rank,  \
				__LINE__, #expression, moecomm_status_name(got_),                  \
				moecomm_last_error(), moecomm_status_name(wanted));                \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)
#define EXPECT_TRUE(condition)                                                                     \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "rank %d, line %d: not %s (last error: %s)\n", rank->rank, \
				__LINE__, #condition, moecomm_last_error());                       \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

#endif
