/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members that go: in order, or by their connection's end.
 *
 * One that leaves in order has pushed the data of its last ops already, so slower peers can still
 * finish theirs. The epoch therefore drains: it ends for the others when one of them has entered a
 * call that the leaver never did (nobody will serve it), when all have finished what the leaver
 * took part in and drain_ms have passed, or when one has not finished it within the op deadline.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/groups/history.h"
#include "daemon/health/health.h"
#include "daemon/log.h"

/* How often progress is looked at while draining. */
#define DRAIN_TICK_MS 20u

enum drain_state {
	DRAIN_CAUGHT_UP,
	DRAIN_BEHIND,
	DRAIN_BEYOND,
};

static uint32_t entered_call(const struct mc_epoch *epoch, uint32_t rank, uint32_t channel)
{
	return epoch->board ? mc_health_call(epoch->board, rank, channel) : 0;
}

/* Whether the rank is still inside its last call; with the cuda backend, whether it waits there. */
static bool is_in_call(const struct mc_epoch *epoch, uint32_t rank, uint32_t channel)
{
	struct mc_progress progress = {0};
	uint64_t half;

	if (!epoch->board)
		return false;
	/* call and left are in one half, which is posted as one */
	half = __atomic_load_n(
		(const uint64_t *)&epoch->board->rank[rank].progress[channel], __ATOMIC_RELAXED);
	memcpy(&progress, &half, sizeof(half));
	return progress.call && !progress.left;
}

static enum drain_state look(const struct mc_epoch *epoch)
{
	enum drain_state state = DRAIN_CAUGHT_UP;

	for (uint32_t r = 0; r < epoch->spec.world_size; r++) {
		if (!epoch->member[r])
			continue;
		for (uint32_t c = 0; c < epoch->spec.n_channels; c++) {
			/* call numbers wrap: only their distance tells which is later */
			int32_t lead = (int32_t)(entered_call(epoch, r, c) - epoch->left_call[c]);

			if (lead > 0)
				return DRAIN_BEYOND;
			if (lead < 0 || is_in_call(epoch, r, c))
				state = DRAIN_BEHIND;
		}
	}
	return state;
}

/* The deadline that the ops which the leavers pushed for have. */
static uint64_t op_deadline_ms(const struct mc_epoch *epoch)
{
	for (uint32_t c = 0; c < epoch->spec.n_channels; c++)
		if (epoch->left_call[c] && epoch->left_call[c] <= epoch->spec.warmup_calls &&
			epoch->spec.warmup_timeout_ms > epoch->spec.op_timeout_ms)
			return epoch->spec.warmup_timeout_ms;
	return epoch->spec.op_timeout_ms;
}

static void on_drain_tick(uv_timer_t *timer)
{
	struct mc_epoch *epoch = timer->data;
	uint64_t waited_ms = mc_now_ms() - epoch->last_left_ms;
	uint64_t drain_ms = epoch->group->groups->daemon->config.drain_ms;
	enum drain_state state = look(epoch);
	uint64_t op_ms = op_deadline_ms(epoch);

	if (state == DRAIN_BEHIND && drain_ms < op_ms)
		drain_ms = op_ms;
	if (state != DRAIN_BEYOND && waited_ms < drain_ms)
		return;
	mc_epoch_end(epoch, MC_STATUS_LEFT, epoch->last_left_rank, epoch->last_left_rank,
		"rank %u has left group %s", epoch->last_left_rank, epoch->group->name);
}

static void drain(struct mc_epoch *epoch, uint32_t rank)
{
	for (uint32_t c = 0; c < epoch->spec.n_channels; c++) {
		uint32_t call = entered_call(epoch, rank, c);

		if (!epoch->n_left || (int32_t)(call - epoch->left_call[c]) < 0)
			epoch->left_call[c] = call;
	}
	epoch->n_left++;
	epoch->last_left_rank = rank;
	epoch->last_left_ms = mc_now_ms();
	if (epoch->state == MC_GROUP_DRAINING)
		return;
	mc_epoch_set_state(epoch, MC_GROUP_DRAINING, LOG_INFO, "rank %u has left", rank);
	uv_timer_start(&epoch->timer, on_drain_tick, 0, DRAIN_TICK_MS);
}

void mc_epoch_drain_on(struct mc_epoch *epoch)
{
	epoch->last_left_ms = mc_now_ms();
	uv_timer_start(&epoch->timer, on_drain_tick, 0, DRAIN_TICK_MS);
}

/* The last one has gone in order. */
static void finish(struct mc_epoch *epoch)
{
	uv_timer_stop(&epoch->timer);
	epoch->status = MC_STATUS_LEFT;
	epoch->ended_ms = mc_now_ms();
	mc_health_count_waits(epoch);
	mc_history_end(epoch, MC_STATUS_LEFT, MC_NO_RANK, "all ranks have left", epoch->ended_ms);
	epoch->group->groups->daemon->counters.epochs_ended[MC_STATUS_LEFT]++;
	mc_epoch_set_state(epoch, MC_GROUP_GONE, LOG_INFO, "all ranks have left");
	mc_epoch_collect(epoch);
}

void mc_member_leave(struct mc_member *member)
{
	struct mc_epoch *epoch = member->epoch;
	uint32_t rank = member->rank;
	enum mc_group_state state = epoch->state;

	mc_member_drop(member);
	if (state == MC_GROUP_FAILED) {
		mc_epoch_collect(epoch);
	} else if (state == MC_GROUP_READY || state == MC_GROUP_DRAINING) {
		drain(epoch, rank);
		if (!epoch->n_members)
			finish(epoch);
	} else if (state == MC_GROUP_FORMING) {
		if (!epoch->n_members)
			mc_epoch_end(
				epoch, MC_STATUS_LEFT, rank, MC_NO_RANK, "nobody waits any more");
	} else {
		mc_epoch_end(epoch, MC_STATUS_LEFT, rank, MC_NO_RANK,
			"rank %u left group %s while it was %s: join again", rank,
			epoch->group->name, mc_group_state_name(state));
	}
}

void mc_member_lost(struct mc_member *member)
{
	struct mc_epoch *epoch = member->epoch;
	enum mc_group_state state = epoch->state;
	uint32_t rank = member->rank;
	/* the process may live on, and its log says nothing: ours does */
	const char *why = member->conn ? member->conn->cut_off : NULL;
	const char *how = why ? "was cut off by the daemon: " : "ended";
	char text[256];

	if (state == MC_GROUP_FAILED || state == MC_GROUP_FORMING) {
		/* a holder has let go, or somebody who waited gave up: nobody else minds */
		mc_member_leave(member);
		return;
	}
	mc_member_text(member, text, sizeof(text));
	mc_member_drop(member);
	if (state <= MC_GROUP_PROBING)
		mc_epoch_end(epoch, MC_STATUS_PEER_LOST, rank, MC_NO_RANK,
			"%s of group %s %s%s while the group was %s: join again", text,
			epoch->group->name, how, why ? why : "", mc_group_state_name(state));
	else
		mc_epoch_end(epoch, MC_STATUS_PEER_LOST, rank, MC_NO_RANK, "%s of group %s %s%s",
			text, epoch->group->name, how, why ? why : "");
}

void mc_groups_conn_gone(struct mc_groups *groups, struct mc_conn *conn)
{
	/* a daemon that stops is no reason for running groups to end */
	if (groups->daemon->stopping) {
		while (conn->members) {
			struct mc_epoch *epoch = conn->members->epoch;

			mc_member_drop(conn->members);
			if (!epoch->n_members) {
				epoch->state = MC_GROUP_FAILED;
				mc_epoch_collect(epoch);
			}
		}
		return;
	}
	/* several ranks may live on one connection; ending one epoch can drop more of them */
	while (conn->members)
		mc_member_lost(conn->members);
}
