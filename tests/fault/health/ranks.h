/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are processes of the client library and misbehave on purpose; moecommctl to look at
 * them. */
#ifndef MC_TEST_HEALTH_RANKS_H
#define MC_TEST_HEALTH_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <json-c/json.h>
#include "support/daemon_process.h"
#include "support/fd_count.h"

#define MAX_RANKS 4
/* Generous: a loaded machine with two cores. */
#define SOON_MS 20000

/* What one rank does; the ranks call dispatch over and over, a few hundred times a second. */
struct rank_plan {
	uint32_t skip_call;     /* never enters this call, and sleeps instead; 0: none */
	uint32_t shape_call;    /* has another row count in this call; 0: none */
	uint32_t n_calls;       /* is idle after that many; 0: goes on */
	uint32_t op_timeout_ms; /* 0: 60,000 */
};

/* Shared with the ranks. */
struct rank_report {
	uint32_t n_calls;     /* done */
	uint32_t status;      /* enum moecomm_status of the op that failed */
	char text[512];       /* its sentence */
	uint32_t op_ns[4096]; /* latencies of the last calls */
};

struct ranks {
	uint32_t n;
	pid_t pid[MAX_RANKS]; /* 0: ended */
	struct rank_report *report;
};

/* Starts them; plans: one a rank, or NULL. Waits until all have done calls (unless plan forbids).
 */
void ranks_start(struct ranks *ret_ranks, const char *socket, const char *group, uint32_t n,
	const struct rank_plan *plans, uint32_t wait_calls);
/* Starts one rank of a group that is not complete. */
void ranks_start_one(
	struct ranks *ret_ranks, const char *socket, const char *group, uint32_t world_size);
/* Waits until a rank has done that many calls. */
void ranks_wait_calls(const struct ranks *ranks, uint32_t rank, uint32_t n_calls);
/* Waits until its op has failed; returns the status. */
uint32_t ranks_wait_failure(const struct ranks *ranks, uint32_t rank);
void ranks_kill(struct ranks *ranks, uint32_t rank);
/* Ends all. */
void ranks_end(struct ranks *ranks);
/* Median of the latencies seen since the call number, in ns. */
uint64_t ranks_median_ns(const struct ranks *ranks, uint32_t rank, uint32_t since_call);

/* Runs moecommctl; returns the exit status. free() the output. Arguments end with NULL. */
int ctl(const struct mc_test_daemon *daemon, char **ret_out, char **ret_err, ...);
/* With --json; fails the test unless the status is as given. json_object_put it. */
struct json_object *ctl_json(const struct mc_test_daemon *daemon, int status, ...);
/* Repeats `COMMAND GROUP` until it exits with the status; returns its output. */
char *ctl_until(const struct mc_test_daemon *daemon, int status, const char *command,
	const char *group, int timeout_ms);
/* A field, which must be there. */
struct json_object *field(struct json_object *object, const char *key);
/* Fails the test unless the text holds all of the words (end with NULL). */
void assert_words(const char *text, ...);

#endif
