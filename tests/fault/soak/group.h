/* SPDX-License-Identifier: Apache-2.0 */
/* One group under chaos, as the main process sees it; of groups.c and failures.c only. */
#ifndef MC_TESTS_SOAK_GROUP_H
#define MC_TESTS_SOAK_GROUP_H

#include "fault/soak/expect.h"
#include "fault/soak/plan.h"
#include "fault/soak/soak.h"

#define NEVER INT64_MAX

enum phase {
	PHASE_STARTING,   /* the life's ranks join */
	PHASE_WORKING,    /* all run */
	PHASE_QUIET,      /* something was done that nobody may see */
	PHASE_HURT,       /* something was done that all must see */
	PHASE_RECOVERING, /* the next epoch forms */
	PHASE_STOPPING,   /* all leave together */
	PHASE_OVER,
};

struct group {
	uint32_t number, world_size, first_mortal;
	struct soak_group *shared;
	struct plan plan;
	uint32_t events_left, n_lives;
	enum phase phase;
	int64_t since_us;
	struct plan_event event;
	struct expect expect;
	bool known;          /* the daemon knew the group then */
	char suspicion[480]; /* what may be the machine's doing */
	int64_t suspect_since_us, suspect_needs_us;
	uint64_t epoch; /* that the event hit */
	int64_t begin_us, next_us, resume_us;
	uint32_t daemon_serial; /* at the beginning of the phase before the ranks run */
	pid_t ctl;
	struct {
		pid_t pid;
		bool killed, stopped, may_exit;
		bool counted;    /* has seen the event, or can't */
		bool late;       /* and a problem of it was told */
		int64_t base_us; /* from when its bound counts */
		int64_t bound_us;
		uint32_t n_seen; /* of its failures */
	} rank[SOAK_WORLD];
};

extern const char *const group_phase_name[];

void group_enter(struct group *group, enum phase phase);
void group_signal(struct group *group, uint32_t rank, int signal);

/* ---- failures.c ---- */

/* For the table. */
const char *group_event_name(const struct group *group);
/* Holds the failures that its ranks have seen since the last time against what was done to it. */
void group_take_failures(struct group *group);
/* Decides about what was suspicious, when all ranks run again. */
void group_judge(struct group *group);

#endif
