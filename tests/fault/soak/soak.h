/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The soak: groups of changing sizes at work under the real daemon while ranks and the daemon are
 * killed, stopped, delayed, aborted and restarted. What all its processes share.
 *
 *   main.c      starts everything, runs the clock, settles the account
 *   plan.c      what happens, drawn from the seed alone
 *   groups.c    lives of groups: which processes run, what was done to them, what they must see
 *   failures.c  what ranks have seen against what was done to them
 *   daemons.c   kills, restarts and floods the daemon
 *   ranks.c     one rank: joins, runs ops, records how they end, rejoins
 *   ops.c       one op with data that only its epoch, round, rank and place have, checked in full
 *   account.c   times to status, problems, the table at the end
 */
#ifndef MC_TESTS_SOAK_H
#define MC_TESTS_SOAK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "client/moecomm.h"

#define SOAK_GROUPS 3u
#define SOAK_WORLD  6u
/* Rank 0 of the groups below this one lives in one process that is never killed. */
#define SOAK_RESIDENT    2u
#define SOAK_FAILURES    16u
#define SOAK_PROBLEMS    32u
#define SOAK_STATUSES    32u
#define SOAK_OP_MS       2000
#define SOAK_WARMUP_MS   4000
#define SOAK_JOIN_MS     5000
#define SOAK_VOTE_ROUNDS 16u
/* Warm-up is over on both channels, whatever was drawn. */
#define SOAK_STEADY_ROUND 96u
/* A process that sleeps for a moment and wakes up later by this did not get to run. */
#define SOAK_STALL_US INT64_C(200000)

enum soak_state {
	SOAK_ABSENT = 0,
	SOAK_JOINING,
	SOAK_RUNNING,
	SOAK_DONE, /* left and will not be back in this life */
};

/* What a rank is told to do; it sets it back to SOAK_GO_ON when it has begun. */
enum soak_command {
	SOAK_GO_ON = 0,
	SOAK_ABORT,    /* another thread of it aborts the group */
	SOAK_SLEEP,    /* sleep argument ms before the next op */
	SOAK_LEAVE,    /* leave in order, then come back as if new */
	SOAK_MISMATCH, /* call another op than the others */
};

/* How an epoch ended for a rank: the first op that did not succeed. */
struct soak_failure {
	uint64_t epoch, round;
	int64_t at_us;
	uint32_t status;
	int32_t rank; /* whom it blames */
	char detail[160];
};

struct soak_slot {
	_Atomic uint32_t state;
	_Atomic uint32_t command;
	_Atomic uint32_t argument;
	_Atomic uint64_t epoch, round; /* of the next op while running */
	_Atomic int64_t first_ok_us; /* when the first op of this epoch had succeeded; 0: not yet */
	_Atomic int64_t woke_us;     /* when it ended its last ordered sleep */
	_Atomic bool attached;       /* the daemon knows this membership */
	_Atomic int64_t stall_us;    /* how long its process did not get to run, lately */
	_Atomic int64_t stall_end_us;
	_Atomic uint64_t n_ops;      /* verified */
	_Atomic uint32_t n_failures; /* ring: written by the rank, read by main */
	struct soak_failure failure[SOAK_FAILURES];
	_Atomic uint32_t joins[SOAK_STATUSES]; /* by outcome */
};

struct soak_group {
	_Atomic uint32_t life; /* counts up when the next one may begin */
	_Atomic uint32_t world_size;
	_Atomic bool stop; /* all ranks leave together at the next vote */
	struct soak_slot slot[SOAK_WORLD];
};

/* What a process holds. */
struct soak_holdings {
	int n_fds, n_maps, n_threads; /* maps: of memfds */
	long rss_kib;
};

/* In memory that all processes share. */
struct soak {
	uint64_t seed;
	int slack_ms;
	bool calm;
	char socket[108];
	_Atomic bool quit;
	_Atomic uint32_t n_problems;
	char problem[SOAK_PROBLEMS][400];
	struct soak_group group[SOAK_GROUPS];
	/* the resident process */
	_Atomic bool resident_ready, resident_done, resident_may_go;
	struct soak_holdings resident_before, resident_after;
};

extern struct soak *soak;

int64_t soak_now_us(void);
/* Something that must not be; any process. */
void soak_problem(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- ranks.c ---- */

/* Starts a process that is one rank for the rest of this life of the group. */
pid_t soak_rank_start(uint32_t group, uint32_t rank);
/* Starts the process that stays from the first life to the last. */
pid_t soak_resident_start(void);

/* ---- ops.c ---- */

/*
 * The round-th op of the epoch, the same on all ranks. Returns its status; a wrong result is a
 * problem and returns -1. In every SOAK_VOTE_ROUNDS-th round *ret_stop is what rank 0 saw of
 * group->stop, on every rank alike.
 */
int soak_round(moecomm_group *group, uint32_t group_number, uint32_t rank, uint32_t world_size,
	uint64_t epoch, uint64_t round, bool *ret_stop);
/* In the place of that round, an op that no other rank calls. */
int soak_odd_op(moecomm_group *group, uint32_t group_number, uint32_t rank, uint32_t world_size,
	uint64_t epoch, uint64_t round);

/* ---- account.c ---- */

/* Of a process; pid 0: this one. */
void soak_holdings_take(pid_t pid, struct soak_holdings *ret_holdings);
/* A time to status, for the table. */
void soak_account_add(const char *event, const char *outcome, int64_t us);
void soak_account_print(int64_t elapsed_us);

#endif
