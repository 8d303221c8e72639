/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as processes of their own on GPUs: each runs rounds of one dispatch and one combine,
 * enqueued or as a graph that it captured once, and checks every byte of what it gets. The test
 * kills, stops and aborts them through the real daemon.
 */
#ifndef MC_GPU_LIFE_H
#define MC_GPU_LIFE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <moecomm.h>

#define LIFE_MAX_RANKS         8
#define LIFE_OP_TIMEOUT_MS     3000
#define LIFE_WARMUP_TIMEOUT_MS 10000
#define LIFE_WARMUP_CALLS      4
#define LIFE_JOIN_TIMEOUT_MS   8000

enum life_command {
	LIFE_RUN = 0,
	LIFE_PAUSE,  /* between two rounds; looks at the group's state meanwhile */
	LIFE_WRONG,  /* one dispatch of another shape */
	LIFE_ABORT,  /* at once, by another thread than the one that waits for the ops */
	LIFE_REJOIN, /* until it works, or nobody comes */
	LIFE_STOP,   /* leaves and exits */
};

/* What a rank tells, in memory that all share. */
struct life_view {
	_Atomic int command; /* the rank puts LIFE_RUN back after WRONG, ABORT and REJOIN */
	atomic_bool use_graph;
	_Atomic uint64_t epoch;
	atomic_bool connected; /* to the daemon */
	_Atomic uint64_t n_ok; /* rounds whose every byte was right */
	_Atomic uint64_t n_wrong;
	_Atomic uint64_t n_failed; /* epochs that ended with a failure */
	_Atomic uint64_t n_rejoins;
	_Atomic int64_t own_start_ns; /* from the process's begin until it could connect */
	_Atomic int64_t last_ok_ns;
	_Atomic int64_t first_ok_ns; /* of this epoch; 0: none yet */
	_Atomic int64_t begun_ns;    /* the round that failed */
	_Atomic int64_t acted_ns;    /* when WRONG or ABORT was carried out */
	_Atomic int64_t failed_ns;   /* when moecomm_group_query told it */
	_Atomic int64_t slowest_ns;  /* round since it was set to 0 */
	_Atomic int64_t replay_ns;   /* of a graph after the failure */
	_Atomic int64_t left_ns;     /* how long leave and disconnect took */
	atomic_int status, fault_rank;
	_Atomic uint64_t fault_call;
	atomic_int next_status; /* of the first op that was called after the failure */
	atomic_int rejoin_status;
	atomic_int cuda_error; /* of anything but the library; 0: none */
	char detail[512];
};

struct life {
	int world_size, n_devices;
	const char *socket;
	char group[32];
	struct life_view *view; /* [LIFE_MAX_RANKS] */
	int view_fd;
	pid_t pid[LIFE_MAX_RANKS];         /* 0: does not run */
	uint64_t n_failed[LIFE_MAX_RANKS]; /* at the last mark */
};

int64_t life_now_ns(void);
void life_sleep_us(long us);

/* In a rank's process: everything. Returns its exit status. */
int life_rank_main(char **argv);
/* The number of GPUs, or the free memory of each as a line; in processes of their own. */
int life_print_count(void);
int life_print_memory(void);

/* ---- what the test does; each fails it when something is not as it should be ---- */

/* Runs this program with one argument and returns what it prints; free() it. */
char *life_ask_self(const char *argument);
/* Starts all and waits until each has done 20 rounds. */
void life_start(struct life *life, bool use_graph);
void life_start_one(struct life *life, int rank, bool use_graph);
void life_kill(struct life *life, int rank);
void life_command(struct life *life, int rank, enum life_command command);
void life_command_all(struct life *life, enum life_command command);
/* Waits until each running rank has done n more rounds. */
void life_wait_rounds(struct life *life, uint64_t n);
/* Failures from here on are news. */
void life_mark(struct life *life);
/*
 * Waits until all but one (-1: all) have failed with the status since the mark, and checks what
 * must hold then.
 */
void life_expect_failed(struct life *life, int but, enum moecomm_status status);
/* Lets all rejoin and waits until each has done rounds in a later epoch. */
void life_rejoin(struct life *life, uint64_t old_epoch);
void life_wait_connected(struct life *life, bool connected);
/* When the last of them (but one) failed, or did its first round of the epoch. */
int64_t life_last_failed(const struct life *life, int but);
int64_t life_last_first_ok(const struct life *life);
/* All leave and end; none may take 5 s for it. */
void life_stop(struct life *life);
/* Kills what is left. */
void life_clear(struct life *life);

#endif
