/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/soak/groups.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/soak/daemons.h"
#include "fault/soak/group.h"
#include "fault/soak/soak.h"

/* From one state of a group to the next; a replacement that starts on a loaded machine included. */
#define PHASE_LIMIT_US INT64_C(45000000)
/* A status that is late by this much on top of its bound and slack never comes. */
#define OVERDUE_US   INT64_C(2000000)
#define CALM_LIFE_US INT64_C(3000000)

static struct group groups[SOAK_GROUPS];
static bool holding, stuck;

void group_enter(struct group *group, enum phase phase)
{
	group->phase = phase;
	group->since_us = soak_now_us();
	group->daemon_serial = daemons_serial();
}

void group_signal(struct group *group, uint32_t rank, int signal)
{
	if (group->rank[rank].pid <= 0)
		return;
	group->rank[rank].stopped = signal == SIGSTOP;
	if (signal == SIGKILL)
		group->rank[rank].killed = group->rank[rank].counted = true;
	if (kill(group->rank[rank].pid, signal))
		soak_problem(
			"can't send signal %d to rank %u of g%u: %m", signal, rank, group->number);
}

/* ---- lives ---- */

static void start_rank(struct group *group, uint32_t rank)
{
	group->rank[rank].killed = group->rank[rank].may_exit = false;
	group->rank[rank].pid = soak_rank_start(group->number, rank);
}

static void start_life(struct group *group)
{
	struct plan_life life = plan_next_life(&group->plan);

	group->world_size = life.world_size;
	group->events_left = soak->calm ? 0 : life.n_events;
	group->n_lives++;
	atomic_store(&group->shared->world_size, life.world_size);
	atomic_store(&group->shared->stop, false);
	for (uint32_t r = 0; r < SOAK_WORLD; r++) {
		atomic_store(&group->shared->slot[r].state, SOAK_ABSENT);
		atomic_store(&group->shared->slot[r].command, SOAK_GO_ON);
	}
	group_enter(group, PHASE_STARTING);
	/* the resident rank sees this */
	atomic_fetch_add(&group->shared->life, 1);
	for (uint32_t r = group->first_mortal; r < group->world_size; r++)
		start_rank(group, r);
}

void groups_start(void)
{
	for (uint32_t g = 0; g < SOAK_GROUPS; g++) {
		groups[g].number = g;
		groups[g].shared = &soak->group[g];
		groups[g].plan = plan_new(soak->seed, g);
		groups[g].first_mortal = g < SOAK_RESIDENT ? 1 : 0;
		start_life(&groups[g]);
	}
}

static void plan_event(struct group *group)
{
	group->event =
		plan_next_event(&group->plan, group->world_size, group->first_mortal, SOAK_OP_MS);
	group->next_us = soak_now_us() + group->event.wait_ms * INT64_C(1000);
}

/* All ranks run in one epoch and have done so many rounds there. */
static bool all_run(const struct group *group, uint64_t n_rounds)
{
	uint64_t epoch = atomic_load(&group->shared->slot[0].epoch);

	for (uint32_t r = 0; r < group->world_size; r++) {
		const struct soak_slot *slot = &group->shared->slot[r];

		if (atomic_load(&slot->state) != SOAK_RUNNING ||
			atomic_load(&slot->epoch) != epoch ||
			atomic_load(&slot->round) < n_rounds || !atomic_load(&slot->first_ok_us) ||
			atomic_load(&slot->n_failures) != group->rank[r].n_seen)
			return false;
	}
	return true;
}

/* ---- events ---- */

static void command(struct group *group, enum soak_command what)
{
	struct soak_slot *slot = &group->shared->slot[group->event.victim];

	atomic_store(&slot->argument, group->event.hold_ms);
	atomic_store(&slot->woke_us, 0);
	atomic_store(&slot->command, what);
}

/* The daemon knows all members, and has had the time to. */
static bool attached(const struct group *group)
{
	if (!daemons_settled())
		return false;
	for (uint32_t r = 0; r < group->world_size; r++)
		if (!atomic_load(&group->shared->slot[r].attached))
			return false;
	return true;
}

static void begin_event(struct group *group)
{
	struct plan_event *event = &group->event;

	group->known = attached(group);
	/* a daemon that is away, or does not know the group, can't abort it */
	if (event->kind == PLAN_ABORT_CTL && (!group->known || daemons_flooded()))
		event->kind = PLAN_ABORT_MEMBER;
	group->expect = expect_of(event, group->known);
	group->epoch = atomic_load(&group->shared->slot[0].epoch);
	group_enter(group, group->expect.statuses ? PHASE_HURT : PHASE_QUIET);
	group->begin_us = soak_now_us();
	group->resume_us = group->expect.statuses ? NEVER : group->begin_us + event->hold_ms * 1000;
	for (uint32_t r = 0; r < group->world_size; r++) {
		group->rank[r].counted = group->rank[r].late = false;
		group->rank[r].base_us = group->begin_us;
		group->rank[r].bound_us = group->expect.bound_ms * INT64_C(1000);
	}
	switch (event->kind) {
	case PLAN_KILL:
	case PLAN_KILL_TWO:
		group_signal(group, event->victim, SIGKILL);
		if (event->second != event->victim)
			group_signal(group, event->second, SIGKILL);
		break;
	case PLAN_STOP_SHORT:
	case PLAN_STOP_LONG:
	case PLAN_STOP_KILL:
		group_signal(group, event->victim, SIGSTOP);
		group->rank[event->victim].base_us = NEVER;
		break;
	case PLAN_DELAY_SHORT:
	case PLAN_DELAY_LONG:
		command(group, SOAK_SLEEP);
		group->rank[event->victim].base_us = NEVER;
		break;
	case PLAN_ABORT_MEMBER:
		command(group, SOAK_ABORT);
		break;
	case PLAN_ABORT_CTL:
		group->ctl = daemons_abort(group->number);
		break;
	case PLAN_LEAVE:
		command(group, SOAK_LEAVE);
		group->rank[event->victim].counted = group->rank[event->victim].may_exit = true;
		break;
	case PLAN_MISMATCH:
		command(group, SOAK_MISMATCH);
		break;
	default:
		break;
	}
}

/* ---- processes ---- */

static void take_exits(struct group *group)
{
	int status;

	for (uint32_t r = 0; r < SOAK_WORLD; r++) {
		if (group->rank[r].pid <= 0 ||
			waitpid(group->rank[r].pid, &status, WNOHANG) != group->rank[r].pid)
			continue;
		group->rank[r].pid = 0;
		group->rank[r].stopped = false;
		if (group->rank[r].killed ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL
					  : !WIFEXITED(status) || WEXITSTATUS(status) != 0)
			soak_problem("rank %u of g%u ended with wait status %#x", r, group->number,
				(unsigned)status);
		else if (!group->rank[r].killed && !group->rank[r].may_exit &&
			 group->phase != PHASE_STOPPING)
			soak_problem("rank %u of g%u ended on its own", r, group->number);
	}
	if (group->ctl > 0 && waitpid(group->ctl, &status, WNOHANG) == group->ctl) {
		group->ctl = 0;
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			soak_problem("moecommctl abort g%u ended with wait status %#x",
				group->number, (unsigned)status);
	}
}

static void replace(struct group *group)
{
	int64_t after_us = group->since_us + group->event.hold_ms * INT64_C(1000);

	if (soak_now_us() < after_us)
		return;
	for (uint32_t r = group->first_mortal; r < group->world_size; r++)
		if (!group->rank[r].pid)
			start_rank(group, r);
}

/* ---- phases ---- */

static void be_hurt(struct group *group, int64_t now_us)
{
	uint32_t victim = group->event.victim;
	bool all = true, others = true;

	for (uint32_t r = 0; r < group->world_size; r++) {
		int64_t base_us = group->rank[r].base_us;

		if (group->rank[r].counted)
			continue;
		all = false;
		others &= r == victim;
		if (group->rank[r].late || base_us == NEVER ||
			now_us < base_us + group->rank[r].bound_us + soak->slack_ms * 1000 +
					 OVERDUE_US)
			continue;
		group->rank[r].late = group->rank[r].counted = true;
		soak_problem("%s of rank %u in epoch %" PRIu64
			     " of g%u (%u ranks): rank %u has seen nothing of it after %" PRId64
			     " ms",
			group_event_name(group), victim, group->epoch, group->number,
			group->world_size, r, (now_us - base_us) / 1000);
	}
	if (all) {
		group_enter(group, PHASE_RECOVERING);
		return;
	}
	if (!others || !group->rank[victim].stopped)
		return;
	if (group->resume_us == NEVER) {
		group->resume_us = now_us + group->event.hold_ms * 1000;
	} else if (now_us >= group->resume_us) {
		group->rank[victim].base_us = now_us;
		group->rank[victim].bound_us = EXPECT_SOON_MS * 1000;
		group_signal(
			group, victim, group->event.kind == PLAN_STOP_KILL ? SIGKILL : SIGCONT);
	}
}

static void recover(struct group *group)
{
	int64_t last_us = 0, from_us = group->begin_us;

	replace(group);
	if (!all_run(group, 1) || atomic_load(&group->shared->slot[0].epoch) <= group->epoch)
		return;
	for (uint32_t r = 0; r < group->world_size; r++) {
		int64_t ok_us = atomic_load(&group->shared->slot[r].first_ok_us);

		last_us = ok_us > last_us ? ok_us : last_us;
		/* one that was held up can't join before it may go on */
		if (group->rank[r].base_us > from_us && group->rank[r].base_us < last_us)
			from_us = group->rank[r].base_us;
	}
	soak_account_add(group_event_name(group), "next epoch works", last_us - from_us);
	group_judge(group);
	plan_event(group);
	group_enter(group, PHASE_WORKING);
}

static void work(struct group *group, int64_t now_us, bool quiet)
{
	bool ends = quiet ||
		    (soak->calm ? now_us - group->since_us > CALM_LIFE_US : !group->events_left);

	if (ends) {
		if (!all_run(group, 1))
			return;
		atomic_store(&group->shared->stop, true);
		group_enter(group, PHASE_STOPPING);
	} else if (!soak->calm && now_us >= group->next_us && !holding) {
		/* a group that never gets as far hangs */
		if (!all_run(group, SOAK_STEADY_ROUND))
			return;
		group->events_left--;
		begin_event(group);
	} else if (!soak->calm) {
		group->since_us = now_us;
	}
}

static void stop(struct group *group, bool quiet)
{
	for (uint32_t r = 0; r < group->world_size; r++)
		if (atomic_load(&group->shared->slot[r].state) != SOAK_DONE || group->rank[r].pid)
			return;
	if (quiet)
		group_enter(group, PHASE_OVER);
	else
		start_life(group);
}

static void step(struct group *group, bool quiet)
{
	int64_t now_us;

	group_take_failures(group);
	take_exits(group);
	now_us = soak_now_us();
	switch (group->phase) {
	case PHASE_STARTING:
		if (all_run(group, 1)) {
			plan_event(group);
			group_enter(group, PHASE_WORKING);
		}
		break;
	case PHASE_WORKING:
		work(group, now_us, quiet);
		break;
	case PHASE_QUIET:
		if (now_us < group->resume_us)
			break;
		if (group->rank[group->event.victim].stopped)
			group_signal(group, group->event.victim, SIGCONT);
		soak_account_add(group_event_name(group), "nothing seen", now_us - group->begin_us);
		plan_event(group);
		group_enter(group, PHASE_WORKING);
		break;
	case PHASE_HURT:
		be_hurt(group, now_us);
		break;
	case PHASE_RECOVERING:
		recover(group);
		break;
	case PHASE_STOPPING:
		stop(group, quiet);
		break;
	case PHASE_OVER:
		return;
	}
	if (now_us - group->since_us > PHASE_LIMIT_US && !stuck) {
		stuck = true;
		group_judge(group);
		soak_problem("g%u (%u ranks) hangs: %s since %" PRId64
			     " s, last event %s of rank %u",
			group->number, group->world_size, group_phase_name[group->phase],
			(now_us - group->since_us) / 1000000, group_event_name(group),
			group->event.victim);
	}
}

void groups_step(bool quiet)
{
	for (uint32_t g = 0; g < SOAK_GROUPS; g++)
		step(&groups[g], quiet);
}

bool groups_hurt(void)
{
	for (uint32_t g = 0; g < SOAK_GROUPS; g++)
		if (groups[g].phase == PHASE_HURT || groups[g].ctl > 0)
			return true;
	return false;
}

void groups_hold(bool hold)
{
	holding = hold;
}

bool groups_over(void)
{
	for (uint32_t g = 0; g < SOAK_GROUPS; g++)
		if (groups[g].phase != PHASE_OVER)
			return false;
	return true;
}

bool groups_stuck(void)
{
	return stuck;
}

void groups_print(void)
{
	for (uint32_t g = 0; g < SOAK_GROUPS; g++) {
		printf("g%u: life %u, %u ranks, %s\n", g, groups[g].n_lives, groups[g].world_size,
			group_phase_name[groups[g].phase]);
		for (uint32_t r = 0; r < groups[g].world_size; r++) {
			const struct soak_slot *slot = &groups[g].shared->slot[r];

			printf("  rank %u: pid %d%s, state %u, epoch %" PRIu64 ", round %" PRIu64
			       ", attached %d\n",
				r, (int)groups[g].rank[r].pid,
				groups[g].rank[r].stopped ? " (stopped)" : "",
				atomic_load(&slot->state), atomic_load(&slot->epoch),
				atomic_load(&slot->round), atomic_load(&slot->attached));
		}
	}
}

void groups_kill(void)
{
	for (uint32_t g = 0; g < SOAK_GROUPS; g++)
		for (uint32_t r = 0; r < SOAK_WORLD; r++)
			if (groups[g].rank[r].pid > 0)
				kill(groups[g].rank[r].pid, SIGKILL);
}
