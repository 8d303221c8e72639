/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon, its fd store, the ranks, and the cases that are played on them. */
#ifndef MC_GPU_LIFE_STAGE_H
#define MC_GPU_LIFE_STAGE_H

#include "gpu/life/life.h"
#include "support/daemon_process.h"
#include "support/fd_count.h"
#include "support/fd_store.h"

#define STAGE_HEARD_MS 1000

struct stage {
	struct mc_fd_store store;
	struct mc_test_daemon daemon;
	struct life life;
	size_t n_daemon_fds;
	long memory_slack_mib;
	char *memory_before; /* free MiB of each GPU */
};
extern struct stage stage;

/* Of the program, and after each case. */
int stage_open(void **state);
int stage_close(void **state);
int stage_clear_ranks(void **state);

double stage_ms(int64_t from_ns, int64_t to_ns);
void stage_expect_within(const char *what, double ms, double bound_ms);
/* Runs moecommctl; returns its exit status and what it prints; free() it. */
int stage_ctl(const char *arguments, char **ret_out);
uint64_t stage_epoch(void);
/* All but one (-1: all) name that rank as the one whose doing it was. */
void stage_expect_blamed(int but, int rank, bool with_call);
/* SIGKILL; all others must hear of it in time. */
void stage_kill_one(int victim);
/* Starts another process in its stead, and lets the others rejoin. */
void stage_replace(int victim, bool use_graph);

/* cases_ranks.c */
void test_killed_between_ops_of_a_stream(void **state);
void test_killed_under_replay(void **state);
void test_stopped(void **state);
void test_stopped_and_continued(void **state);
void test_aborted(void **state);
void test_mismatch(void **state);
void test_replay_between_epochs(void **state);
/* cases_daemon.c; the second leaves no daemon behind */
void test_daemon_restarted_under_replay(void **state);
void test_daemon_killed_for_good(void **state);
void test_memory_is_back(void **state);

#endif
