/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world of rank processes under the real daemon in which links are bad or processes die, and what
 * each of them saw. The tests' own process runs no op: what is injected is read once a process.
 */
#ifndef MC_TESTS_FAULT_LINK_H
#define MC_TESTS_FAULT_LINK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include "client/moecomm.h"
#include "support/daemon_process.h"

#define LINK_WORLD 6
/* Time that a loaded machine of two cores may add to a bound. */
#define LINK_SLACK_MS 1500

struct link_world {
	const char *socket;
	const char *group;
	int world_size;
	const char *inject;        /* MOECOMM_INJECT of every rank; NULL: none */
	const char *inject_client; /* MOECOMM_INJECT_CLIENT */
	int probe_timeout_ms, op_timeout_ms;
	int n_rounds; /* verified rounds, unless an op fails first; 0: until one does */
};

/* What a rank saw; in memory that all processes share. */
struct link_seen {
	pid_t pid;
	_Atomic int n_rounds;     /* verified */
	enum moecomm_status join; /* OK: it joined */
	int status;               /* of the first op that failed; -1: a wrong result */
	int fault_rank;
	uint64_t fault_call;
	int64_t join_ms; /* how long the join took */
	int64_t op_ms;   /* how long the failed op took */
	int64_t at_us;   /* when it failed */
	char text[512];  /* of the failed join or op */
};

int64_t link_now_us(void);
/* Starts the processes. The caller owns *ret_seen [LINK_WORLD] and ends it with link_wait. */
void link_start(const struct link_world *world, struct link_seen **ret_seen);
/* Waits for all of them; those that were not killed must end well. Copies what they saw. */
void link_wait(const struct link_world *world, struct link_seen *seen,
	struct link_seen ret_seen[LINK_WORLD]);
void link_run(const struct link_world *world, struct link_seen ret_seen[LINK_WORLD]);

/* The text that a rank saw has to say that. */
void link_assert_says(const struct link_seen *seen, int rank, const char *text);

#endif
