/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks have seen, against what was done to their group. */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include "fault/soak/daemons.h"
#include "fault/soak/group.h"

#define HALF_OP_US (SOAK_OP_MS * INT64_C(500))

const char *const group_phase_name[] = {
	"starting", "working", "quiet", "hurt", "recovering", "stopping", "over"};

/* For the table: without the daemon's help it is another thing. */
const char *group_event_name(const struct group *group)
{
	static char alone[PLAN_KINDS][48];
	const char *name = plan_kind_name(group->event.kind);

	if (group->known)
		return name;
	snprintf(alone[group->event.kind], sizeof(alone[0]), "%s, no daemon", name);
	return alone[group->event.kind];
}

/*
 * The longest that a rank of the group did not get to run since then, without our doing. On a
 * machine with more to do than processors, bounds can't hold for who does not run.
 */
static int64_t stalled_us(const struct group *group, int64_t since_us)
{
	int64_t longest_us = 0;

	for (uint32_t r = 0; r < group->world_size; r++) {
		const struct soak_slot *slot = &group->shared->slot[r];
		bool ours = r == group->event.victim && group->event.kind >= PLAN_STOP_SHORT &&
			    group->event.kind <= PLAN_STOP_KILL;

		if (!ours && atomic_load(&slot->stall_end_us) >= since_us &&
			atomic_load(&slot->stall_us) > longest_us)
			longest_us = atomic_load(&slot->stall_us);
	}
	return longest_us;
}

/*
 * Something that must not be, unless a rank did not get to run for as long as that since then.
 * Whether it did is known when all of them run again.
 */
static void suspect(struct group *group, int64_t since_us, int64_t needs_us, const char *format,
	...) __attribute__((format(printf, 4, 5)));
static void suspect(
	struct group *group, int64_t since_us, int64_t needs_us, const char *format, ...)
{
	va_list args;

	/* what comes after the first has the same cause */
	if (*group->suspicion)
		return;
	group->suspect_since_us = since_us;
	group->suspect_needs_us = needs_us;
	va_start(args, format);
	vsnprintf(group->suspicion, sizeof(group->suspicion), format, args);
	va_end(args);
}

void group_judge(struct group *group)
{
	int64_t stall_us = stalled_us(group, group->suspect_since_us);

	if (!*group->suspicion)
		return;
	if (stall_us >= group->suspect_needs_us)
		soak_account_add("the machine stalled", "late or TIMEOUT", stall_us);
	else
		soak_problem("%s; no rank was stalled for longer than %" PRId64 " ms",
			group->suspicion, stall_us / 1000);
	*group->suspicion = '\0';
}

/* A failure that the event explains, or not. */
static void take_failure(struct group *group, uint32_t r, const struct soak_failure *failure)
{
	const char *name = moecomm_status_name((enum moecomm_status)failure->status), *why;
	int64_t took_us, late_us;

	/* the first of two that are killed can still be seen by the second */
	if (group->rank[r].killed)
		return;
	if (group->phase == PHASE_HURT && failure->epoch == group->epoch &&
		!group->rank[r].counted) {
		if (group->event.kind == PLAN_DELAY_LONG && r == group->event.victim) {
			group->rank[r].base_us = atomic_load(&group->shared->slot[r].woke_us);
			group->rank[r].bound_us = EXPECT_SOON_MS * 1000;
		}
		/* a stopped rank's clock starts when it may go on */
		took_us = failure->at_us - group->rank[r].base_us;
		late_us = took_us - group->rank[r].bound_us - soak->slack_ms * INT64_C(1000);
		why = expect_check(&group->expect, failure, r, took_us, group->rank[r].bound_us);
		group->rank[r].counted = true;
		soak_account_add(group_event_name(group), name, took_us);
		if (why)
			suspect(group, group->begin_us - HALF_OP_US,
				failure->status == MOECOMM_TIMEOUT ? HALF_OP_US
				: late_us > 0                      ? late_us
								   : NEVER,
				"%s of rank %u in epoch %" PRIu64
				" of g%u (%u ranks): rank %u saw %s of rank %d after %" PRId64
				" ms: %s (%s)",
				group_event_name(group), group->event.victim, group->epoch,
				group->number, group->world_size, r, name, failure->rank,
				took_us / 1000, why, failure->detail);
		return;
	}
	/* an epoch that one rank saw ready and the daemon died before another did */
	if ((group->phase == PHASE_RECOVERING || group->phase == PHASE_STARTING) &&
		group->daemon_serial != daemons_serial()) {
		soak_account_add("daemon, while joining", name, 0);
		return;
	}
	suspect(group, failure->at_us - 4 * HALF_OP_US,
		failure->status == MOECOMM_TIMEOUT ? HALF_OP_US : NEVER,
		"rank %u of %u in epoch %" PRIu64 " of g%u, %s: %s of rank %d at round %" PRIu64
		" without a reason: %s",
		r, group->world_size, failure->epoch, group->number, group_phase_name[group->phase],
		name, failure->rank, failure->round, failure->detail);
	if (group->phase == PHASE_WORKING || group->phase == PHASE_QUIET) {
		group->epoch = failure->epoch;
		group->begin_us = failure->at_us;
		if (group->rank[group->event.victim].stopped)
			group_signal(group, group->event.victim, SIGCONT);
		group_enter(group, PHASE_RECOVERING);
	}
}

void group_take_failures(struct group *group)
{
	for (uint32_t r = 0; r < SOAK_WORLD; r++) {
		struct soak_slot *slot = &group->shared->slot[r];
		uint32_t n = atomic_load(&slot->n_failures);

		for (; group->rank[r].n_seen != n; group->rank[r].n_seen++)
			take_failure(
				group, r, &slot->failure[group->rank[r].n_seen % SOAK_FAILURES]);
	}
}
