/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/soak/plan.h"

#include "fault/soak/soak.h"

struct plan plan_new(uint64_t seed, uint32_t stream)
{
	struct plan plan = {seed * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)stream << 48};

	plan_draw(&plan, 1);
	return plan;
}

uint32_t plan_draw(struct plan *plan, uint32_t n)
{
	uint64_t z = plan->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z ^ z >> 31) % n);
}

struct plan_life plan_next_life(struct plan *plan)
{
	struct plan_life life;

	life.world_size = 1 + plan_draw(plan, SOAK_WORLD);
	life.n_events = 1 + plan_draw(plan, 6);
	return life;
}

static uint32_t draw_between(struct plan *plan, uint32_t low, uint32_t high)
{
	return low + plan_draw(plan, high - low + 1);
}

/* How often each is drawn; those that cost a deadline are rarer. */
static const uint8_t weight[PLAN_KINDS] = {
	[PLAN_KILL] = 6,
	[PLAN_KILL_TWO] = 2,
	[PLAN_STOP_SHORT] = 2,
	[PLAN_STOP_LONG] = 2,
	[PLAN_STOP_KILL] = 1,
	[PLAN_DELAY_SHORT] = 2,
	[PLAN_DELAY_LONG] = 2,
	[PLAN_ABORT_MEMBER] = 4,
	[PLAN_ABORT_CTL] = 3,
	[PLAN_LEAVE] = 3,
	[PLAN_MISMATCH] = 3,
};

static enum plan_kind draw_kind(struct plan *plan)
{
	uint32_t n = 0, at;

	for (uint32_t i = 0; i < PLAN_KINDS; i++)
		n += weight[i];
	at = plan_draw(plan, n);
	for (uint32_t i = 0; i < PLAN_KINDS; i++) {
		if (at < weight[i])
			return (enum plan_kind)i;
		at -= weight[i];
	}
	return PLAN_KILL;
}

/* Whether the event makes sense for these ranks. */
static bool possible(enum plan_kind kind, uint32_t world_size, uint32_t first_mortal)
{
	uint32_t n_mortal = world_size > first_mortal ? world_size - first_mortal : 0;

	switch (kind) {
	case PLAN_KILL:
		return n_mortal >= 1;
	case PLAN_KILL_TWO:
		return n_mortal >= 2;
	case PLAN_STOP_SHORT:
	case PLAN_STOP_LONG:
	case PLAN_STOP_KILL:
		return n_mortal >= 1 && world_size >= 2;
	case PLAN_ABORT_MEMBER:
	case PLAN_ABORT_CTL:
	case PLAN_DELAY_SHORT:
		return true;
	default:
		return world_size >= 2;
	}
}

struct plan_event plan_next_event(
	struct plan *plan, uint32_t world_size, uint32_t first_mortal, uint32_t deadline_ms)
{
	struct plan_event event;
	bool kills;

	do
		event.kind = draw_kind(plan);
	while (!possible(event.kind, world_size, first_mortal));
	kills = event.kind <= PLAN_STOP_KILL;
	event.wait_ms = draw_between(plan, 50, 1200);
	event.victim = kills ? draw_between(plan, first_mortal, world_size - 1)
			     : plan_draw(plan, world_size);
	event.second = event.victim;
	if (event.kind == PLAN_KILL_TWO)
		while (event.second == event.victim)
			event.second = draw_between(plan, first_mortal, world_size - 1);
	switch (event.kind) {
	case PLAN_STOP_SHORT:
	case PLAN_DELAY_SHORT:
		event.hold_ms = draw_between(plan, 1, deadline_ms / 3);
		break;
	case PLAN_DELAY_LONG:
		event.hold_ms = deadline_ms * 13 / 10 + plan_draw(plan, 500);
		break;
	default:
		event.hold_ms = plan_draw(plan, 300);
		break;
	}
	return event;
}

struct plan_daemon_event plan_next_daemon_event(struct plan *plan)
{
	struct plan_daemon_event event;

	event.kind = (enum plan_daemon_kind)plan_draw(plan, PLAN_DAEMON_KINDS);
	event.wait_ms = draw_between(plan, 500, 5000);
	event.hold_ms = event.kind <= PLAN_DAEMON_FORGET ? draw_between(plan, 10, 1500)
							 : draw_between(plan, 300, 2000);
	return event;
}

const char *plan_kind_name(enum plan_kind kind)
{
	static const char *const names[PLAN_KINDS] = {
		[PLAN_KILL] = "kill",
		[PLAN_KILL_TWO] = "kill two",
		[PLAN_STOP_SHORT] = "short stop",
		[PLAN_STOP_LONG] = "long stop",
		[PLAN_STOP_KILL] = "stop, then kill",
		[PLAN_DELAY_SHORT] = "short delay",
		[PLAN_DELAY_LONG] = "long delay",
		[PLAN_ABORT_MEMBER] = "abort by a member",
		[PLAN_ABORT_CTL] = "moecommctl abort",
		[PLAN_LEAVE] = "leave",
		[PLAN_MISMATCH] = "another op",
	};

	return names[kind];
}

const char *plan_daemon_kind_name(enum plan_daemon_kind kind)
{
	static const char *const names[PLAN_DAEMON_KINDS] = {
		[PLAN_DAEMON_KILL] = "daemon kill -9",
		[PLAN_DAEMON_TERM] = "daemon SIGTERM",
		[PLAN_DAEMON_FORGET] = "daemon loses all",
		[PLAN_FLOOD_GARBAGE] = "flood of garbage",
		[PLAN_FLOOD_STATUS] = "flood of queries",
		[PLAN_FLOOD_DEAF] = "flood, never read",
	};

	return names[kind];
}
