/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long failures take to be told: ranks as processes run ops all the time, something is done to
 * one of them or to the daemon, and each rank notes when it heard and what.
 */
#ifndef MC_BENCH_FAILURES_H
#define MC_BENCH_FAILURES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <moecomm.h>

#define MC_FAILURES_MAX_RANKS 16
#define MC_FAILURES_ROWS      8

/* What a rank is told to do next; it goes back to RUN by itself, except from PAUSE and STOP. */
enum mc_failures_command {
	MC_FAILURES_RUN = 0,
	MC_FAILURES_PAUSE, /* stands still between two ops */
	MC_FAILURES_WRONG, /* one op of another shape */
	MC_FAILURES_ABORT,
	MC_FAILURES_STOP,
};

/* What one rank tells, in memory that all share. */
struct mc_failures_rank {
	_Atomic int command;
	atomic_bool may_rejoin; /* after a failure it waits for this */
	atomic_bool is_failed;  /* the last op failed; what follows is valid */
	atomic_int status;
	_Atomic int64_t started_ns;   /* when the process was begun */
	_Atomic int64_t own_start_ns; /* what it took until it could connect */
	_Atomic int64_t acted_ns;     /* when the command was carried out */
	_Atomic int64_t begun_ns;     /* when the op that failed began */
	_Atomic int64_t failed_ns;    /* when it returned */
	_Atomic int64_t verified_ns;  /* when the last op returned whose output was right */
	_Atomic int64_t slowest_ns;   /* op since this was set to 0 */
	_Atomic uint64_t epoch;       /* in which that was */
	_Atomic uint64_t n_ops;
	atomic_bool is_wrong;
	pid_t pid; /* kept by the parent; 0: does not run */
	char detail[256];
};

struct mc_failures {
	/* options */
	const char *socket;
	int n_ranks, repeats, deadline_ms;
	int n_gpus; /* 0: on the host backend */
	int64_t row_bytes;
	int n_watched;   /* ops in which the slowest is looked for */
	uint32_t events; /* to measure: a bit each */
	bool json;

	struct mc_failures_rank *rank; /* shared */
	char group[64];
};

/* In a child: joins, and runs until it is told to stop. Returns its exit status. */
int mc_failures_run_rank(const struct mc_failures *failures, int rank);

/* ---- ranks.c: what the parent does with them; each returns 0, or -1 after telling why ---- */

int mc_failures_start_ranks(struct mc_failures *failures);
int mc_failures_start_rank(struct mc_failures *failures, int rank);
int mc_failures_kill_rank(struct mc_failures *failures, int rank);
/* Ends them all. */
void mc_failures_stop_ranks(struct mc_failures *failures);
/* Waits until all but one (-1: all) have failed with that status. */
int mc_failures_wait_failed(struct mc_failures *failures, int but, enum moecomm_status status);
/* Lets all form the next epoch and waits until each has done a verified op in it. */
int mc_failures_rejoin(struct mc_failures *failures, uint64_t old_epoch);
/* Waits until each has done n more ops. */
int mc_failures_wait_ops(struct mc_failures *failures, uint64_t n);

#endif
