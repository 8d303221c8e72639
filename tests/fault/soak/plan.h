/* SPDX-License-Identifier: Apache-2.0 */
/* What happens in a soak: a function of the seed. Only the moments depend on the machine. */
#ifndef MC_TESTS_SOAK_PLAN_H
#define MC_TESTS_SOAK_PLAN_H

#include <stdint.h>

/* Events of a group. */
enum plan_kind {
	PLAN_KILL,
	PLAN_KILL_TWO,
	PLAN_STOP_SHORT, /* SIGSTOP, and SIGCONT well before the deadline: nothing is seen */
	PLAN_STOP_LONG,
	PLAN_STOP_KILL,
	PLAN_DELAY_SHORT,
	PLAN_DELAY_LONG,
	PLAN_ABORT_MEMBER,
	PLAN_ABORT_CTL,
	PLAN_LEAVE,
	PLAN_MISMATCH,
	PLAN_KINDS,
};

/* Events of the daemon. */
enum plan_daemon_kind {
	PLAN_DAEMON_KILL,
	PLAN_DAEMON_TERM,
	PLAN_DAEMON_FORGET, /* kill -9, and what it had stored is lost too */
	PLAN_FLOOD_GARBAGE, /* random bytes on many connections */
	PLAN_FLOOD_STATUS,  /* queries as fast as they are answered */
	PLAN_FLOOD_DEAF,    /* queries whose answers are never read */
	PLAN_DAEMON_KINDS,
};

struct plan {
	uint64_t state;
};

struct plan_life {
	uint32_t world_size;
	uint32_t n_events;
};

struct plan_event {
	enum plan_kind kind;
	uint32_t wait_ms;        /* of undisturbed work before it */
	uint32_t victim, second; /* ranks; equal to each other only when there is one */
	uint32_t hold_ms;        /* of a stop, a delay, or before a replacement starts */
};

struct plan_daemon_event {
	enum plan_daemon_kind kind;
	uint32_t wait_ms, hold_ms;
};

/* stream tells users of one seed apart. */
struct plan plan_new(uint64_t seed, uint32_t stream);
uint32_t plan_draw(struct plan *plan, uint32_t n); /* 0 … n-1 */
struct plan_life plan_next_life(struct plan *plan);
/* first_mortal: ranks below it are never killed or stopped. */
struct plan_event plan_next_event(
	struct plan *plan, uint32_t world_size, uint32_t first_mortal, uint32_t deadline_ms);
struct plan_daemon_event plan_next_daemon_event(struct plan *plan);
const char *plan_kind_name(enum plan_kind kind);
const char *plan_daemon_kind_name(enum plan_daemon_kind kind);

#endif
