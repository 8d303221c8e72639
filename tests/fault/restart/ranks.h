/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as processes of their own that run verified ops all the time: each round every rank
 * dispatches rows that depend on rank, round and place, and checks every byte of what it gets.
 *
 * A test program that uses them calls ranks_main first thing in main: the processes are the program
 * itself, started anew.
 */
#ifndef MC_TEST_RANKS_H
#define MC_TEST_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RANKS_MAX 8

enum rank_command {
	RANK_RUN = 0,
	RANK_PAUSE, /* between two ops */
	RANK_SKIP,  /* leaves out the op of one round, then goes on */
	RANK_ABORT, /* moecomm_group_abort, then as after a failed op */
	RANK_WRONG, /* an op of another shape, once */
	RANK_REJOIN,
	RANK_STOP, /* leaves in order and exits */
};

/* What a rank tells, in shared memory. */
struct rank_view {
	_Atomic int command; /* the rank puts RANK_RUN back after SKIP, ABORT, WRONG and REJOIN */
	atomic_bool has_joined;
	atomic_int join_status;
	_Atomic uint64_t epoch;
	atomic_bool connected;     /* to the daemon */
	_Atomic uint64_t n_ok;     /* ops */
	_Atomic uint64_t n_failed; /* ops that failed in an epoch that had not failed before */
	_Atomic uint64_t n_wrong;  /* ops whose output was wrong */
	_Atomic uint64_t n_rejoins;
	_Atomic int64_t last_ok_ns;
	_Atomic int64_t failed_ns; /* when the last failure was returned */
	_Atomic int64_t rejoined_ns;
	_Atomic int64_t slowest_ns; /* op since it was set to 0 */
	_Atomic int64_t again_ns;   /* a later op after the failure, how long it took */
	_Atomic int64_t left_ns;    /* how long leave and disconnect took */
	atomic_int status;          /* of the last failure */
	atomic_int fault_rank;
	_Atomic uint64_t fault_call;
	atomic_int rejoin_status;  /* of the last try */
	_Atomic uint64_t pause_at; /* waits before that round until this is 0 again; 0: nowhere */
	atomic_bool is_paused;
	_Atomic uint64_t round;
	char detail[512];
};

struct ranks_options {
	const char *socket;
	const char *group;
	int world_size;
	int op_timeout_ms, warmup_timeout_ms, warmup_calls, join_timeout_ms; /* 0: defaults */
	bool rejoin;   /* after a failed op, again and again; else they wait for a command */
	int pace_us;   /* between two ops */
	int row_bytes; /* 0: 256 */
};

struct ranks {
	struct ranks_options options;
	struct rank_view *view; /* [RANKS_MAX], shared */
	int view_fd;
	pid_t pid[RANKS_MAX]; /* 0: does not run */
};

/* Runs a rank and returns true with *ret_status when the program was started as one. */
bool ranks_main(int argc, char **argv, int *ret_status);

/* Starts all ranks and waits until each has done an op. */
void ranks_start(struct ranks *ret_ranks, const struct ranks_options *options);
/* Makes the structure, starts nobody. */
void ranks_open(struct ranks *ret_ranks, const struct ranks_options *options);
void ranks_start_one(struct ranks *ranks, int rank);
/* SIGKILL, and waits for its end. */
void ranks_kill(struct ranks *ranks, int rank);
/* Commands all to stop; each must exit with 0 within 10 s. */
void ranks_stop(struct ranks *ranks);
/* Kills what is left and frees. */
void ranks_close(struct ranks *ranks);

/* Waits until each running rank has done n ops more than now. */
void ranks_wait_ops(struct ranks *ranks, uint64_t n, int timeout_ms);
/* Waits until every running rank's view has the property; fails with `what`. */
void ranks_wait(struct ranks *ranks, bool (*is)(const struct rank_view *view, const void *data),
	const void *data, const char *what, int timeout_ms);
bool rank_is_connected(const struct rank_view *view, const void *data);
bool rank_is_disconnected(const struct rank_view *view, const void *data);
/* data: uint64_t of how many failures there were. */
bool rank_has_failed(const struct rank_view *view, const void *data);
/* data: uint64_t epoch that is behind; true once it has done an op in a later one. */
bool rank_is_beyond(const struct rank_view *view, const void *data);

/* The memory of moecomm that a process maps: "address inode name", a line each. free() it. */
char *ranks_maps(pid_t pid);
/* The same without the inodes: where, not which. */
char *ranks_places(pid_t pid);

void ranks_command(struct ranks *ranks, int rank, enum rank_command command);
uint64_t ranks_total_failed(const struct ranks *ranks);
int64_t ranks_now_ns(void);

/* "name: median … ms, max … ms over n" of what is collected. */
struct ranks_times {
	double ms[256];
	size_t n;
};
void ranks_time(struct ranks_times *times, int64_t from_ns, int64_t to_ns);
/* Prints; returns the largest. */
double ranks_print_times(struct ranks_times *times, const char *name);
/*
 * Prints; fails the test unless the median is within the bound, and the largest within a minute: a
 * machine that stands still for seconds is no fault of ours, a rank that waits for ever is.
 */
void ranks_check_times(struct ranks_times *times, const char *name, double median_ms);

#endif
