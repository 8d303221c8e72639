/* SPDX-License-Identifier: Apache-2.0 */
/* Finding, making and freeing groups, epochs and members; who may do what. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/groups/history.h"
#include "daemon/groups/memory.h"
#include "daemon/health/health.h"
#include "daemon/log.h"
#include "daemon/state/state.h"
#include "daemon/state/watch.h"
#include "proto/codec.h"

/* Looks at progress this many times within the stall threshold. */
#define TICKS_A_STALL 4u

static void on_tick(uv_timer_t *timer)
{
	struct mc_groups *groups = timer->data;
	struct mc_group *group, *next;
	struct mc_epoch *epoch;

	HASH_ITER (hh, groups->by_name, group, next) {
		epoch = mc_group_live(group);
		if (epoch && epoch->state == MC_GROUP_READY)
			mc_health_watch(epoch);
	}
}

struct mc_groups *mc_groups_new(struct mc_daemon *daemon)
{
	struct mc_groups *groups = calloc(1, sizeof(*groups));

	if (groups)
		groups->history = mc_history_new();
	if (!groups || !groups->history) {
		free(groups);
		return NULL;
	}
	groups->daemon = daemon;
	groups->next_member_id = 1;
	uv_timer_init(daemon->loop, &groups->tick);
	groups->tick.data = groups;
	return groups;
}

void mc_groups_update_tick(struct mc_groups *groups)
{
	uint64_t every_ms = groups->daemon->config.stall_ms / TICKS_A_STALL;

	if (uv_is_closing((uv_handle_t *)&groups->tick))
		return;
	if (!groups->n_ready)
		uv_timer_stop(&groups->tick);
	else if (!uv_is_active((uv_handle_t *)&groups->tick))
		uv_timer_start(&groups->tick, on_tick, every_ms, every_ms ? every_ms : 1);
}

void mc_groups_retime_tick(struct mc_groups *groups)
{
	uv_timer_stop(&groups->tick);
	mc_groups_update_tick(groups);
}

void mc_groups_shut(struct mc_groups *groups)
{
	struct mc_group *group, *next;
	struct mc_epoch *epoch, *next_epoch;

	HASH_ITER (hh, groups->by_name, group, next) {
		DL_FOREACH_SAFE (group->epochs, epoch, next_epoch) {
			/* who waits is told; who runs goes on running, as the memory is theirs too
			 */
			bool last = !epoch->next;

			if (epoch->state <= MC_GROUP_PROBING)
				mc_epoch_end(epoch, MC_STATUS_SHUTDOWN, MC_NO_RANK, MC_NO_RANK,
					"the daemon is shutting down: join again when it is back");
			else
				mc_memory_drop(epoch);
			if (last)
				break;
		}
	}
	uv_close((uv_handle_t *)&groups->tick, NULL);
}

struct mc_groups *mc_groups_free(struct mc_groups *groups)
{
	if (!groups)
		return NULL;
	mc_verdicts_clear(&groups->verdicts);
	mc_history_free(groups->history);
	free(groups);
	return NULL;
}

/* ---- finding ---- */

struct mc_group *mc_group_find(struct mc_groups *groups, const char *name)
{
	struct mc_group *group;

	HASH_FIND_STR(groups->by_name, name, group);
	return group;
}

struct mc_member *mc_member_find(struct mc_groups *groups, uint64_t id)
{
	struct mc_member *member;

	HASH_FIND(hh, groups->by_id, &id, sizeof(id), member);
	return member;
}

struct mc_member *mc_member_of(struct mc_groups *groups, const struct mc_conn *conn, uint64_t id)
{
	struct mc_member *member = mc_member_find(groups, id);

	return member && member->conn == conn ? member : NULL;
}

struct mc_epoch *mc_group_newest(const struct mc_group *group)
{
	/* utlist keeps the tail in the head's prev */
	return group->epochs ? group->epochs->prev : NULL;
}

struct mc_epoch *mc_group_live(const struct mc_group *group)
{
	struct mc_epoch *epoch = mc_group_newest(group);

	return epoch && epoch->state <= MC_GROUP_READY ? epoch : NULL;
}

const char *mc_member_text(const struct mc_member *member, char *ret_text, size_t n_text)
{
	snprintf(ret_text, n_text, "rank %u (pid %u, uid %u, %s)", member->rank, member->pid,
		member->uid, *member->label ? member->label : "no label");
	return ret_text;
}

/* ---- rights ---- */

bool mc_group_may_operate(const struct mc_group *group, const struct mc_conn *conn)
{
	return conn->uid == group->uid || conn->uid == 0 || conn->uid == geteuid();
}

bool mc_group_may_join(const struct mc_group *group, const struct mc_conn *conn)
{
	if (conn->uid == group->uid || conn->uid == 0)
		return true;
	for (uint32_t i = 0; i < group->n_allow_uid; i++)
		if (group->allow_uid[i] == conn->uid)
			return true;
	for (uint32_t i = 0; i < group->n_allow_gid; i++)
		if (mc_conn_has_gid(conn, group->allow_gid[i]))
			return true;
	return false;
}

/* ---- making ---- */

/*
 * Where a new name's epoch numbers start: after every number that any earlier life of the name can
 * have had, also under an earlier daemon. A group makes far fewer than 16 epochs a millisecond, and
 * nothing of an earlier boot is left.
 */
static uint64_t epoch_base(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return ((uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u) << 4;
}

struct mc_group *mc_group_new(struct mc_groups *groups, const char *name)
{
	struct mc_group *group = calloc(1, sizeof(*group));

	if (!group)
		return NULL;
	snprintf(group->name, sizeof(group->name), "%s", name);
	group->groups = groups;
	group->last_epoch = epoch_base();
	if (group->last_epoch < groups->highest_epoch)
		group->last_epoch = groups->highest_epoch;
	group->created_ms = group->changed_ms = mc_now_ms();
	HASH_ADD_STR(groups->by_name, name, group);
	return group;
}

struct mc_epoch *mc_epoch_new(struct mc_group *group)
{
	struct mc_epoch *epoch = calloc(1, sizeof(*epoch));

	if (!epoch)
		return NULL;
	epoch->group = group;
	epoch->fault_rank = MC_NO_RANK;
	epoch->started_ms = mc_now_ms();
	uv_timer_init(group->groups->daemon->loop, &epoch->timer);
	epoch->timer.data = epoch;
	DL_APPEND(group->epochs, epoch);
	return epoch;
}

static void add_member(struct mc_epoch *epoch, struct mc_member *member, uint32_t rank, uint64_t id)
{
	struct mc_groups *groups = epoch->group->groups;

	member->id = id;
	member->epoch = epoch;
	member->rank = rank;
	epoch->member[rank] = member;
	epoch->n_members++;
	HASH_ADD(hh, groups->by_id, id, sizeof(member->id), member);
}

struct mc_member *mc_member_new(struct mc_epoch *epoch, uint32_t rank, struct mc_conn *conn)
{
	struct mc_groups *groups = epoch->group->groups;
	struct mc_member *member = calloc(1, sizeof(*member));

	if (!member)
		return NULL;
	if (getrandom(member->token, sizeof(member->token), 0) != (ssize_t)sizeof(member->token)) {
		free(member);
		return NULL;
	}
	member->pid = conn->pid;
	member->start_time = mc_process_start_time(conn->pid);
	member->uid = conn->uid;
	member->gid = conn->gid;
	add_member(epoch, member, rank, groups->next_member_id++);
	mc_member_move(member, conn);
	return member;
}

struct mc_member *mc_member_adopt(struct mc_epoch *epoch, uint32_t rank, uint64_t id)
{
	struct mc_member *member = calloc(1, sizeof(*member));

	if (member)
		add_member(epoch, member, rank, id);
	return member;
}

void mc_member_move(struct mc_member *member, struct mc_conn *conn)
{
	if (member->conn) {
		DL_DELETE2(member->conn->members, member, conn_prev, conn_next);
		member->conn->n_members--;
	}
	member->conn = conn;
	if (conn) {
		/* its end tells the member's end from now on */
		member->watch = mc_watch_free(member->watch);
		DL_APPEND2(conn->members, member, conn_prev, conn_next);
		conn->n_members++;
	}
}

void mc_member_release_fds(struct mc_member *member)
{
	struct mc_group *group = member->epoch->group;

	mc_quota_release(
		group->groups->daemon->quota, group->uid, MC_QUOTA_FDS, member->charged_fds);
	member->charged_fds = 0;
}

void mc_member_drop(struct mc_member *member)
{
	struct mc_epoch *epoch = member->epoch;

	mc_member_release_fds(member);
	epoch->dropped =
		(struct mc_dropped){.rank = member->rank, .pid = member->pid, .uid = member->uid};
	memcpy(epoch->dropped.label, member->label, sizeof(member->label));
	memcpy(epoch->dropped.device_uuid, member->device_uuid, sizeof(member->device_uuid));
	mc_member_move(member, NULL);
	member->watch = mc_watch_free(member->watch);
	mc_state_changed(epoch->group->groups->daemon);
	HASH_DEL(epoch->group->groups->by_id, member);
	epoch->member[member->rank] = NULL;
	epoch->n_members--;
	free(member);
}

void mc_group_discard(struct mc_group *group)
{
	struct mc_groups *groups = group->groups;

	mc_quota_release(groups->daemon->quota, group->uid, MC_QUOTA_GROUPS, 1);
	HASH_DEL(groups->by_name, group);
	free(group);
}

static void on_epoch_closed(uv_handle_t *handle)
{
	struct mc_epoch *epoch = handle->data;

	free(epoch);
}

void mc_epoch_collect(struct mc_epoch *epoch)
{
	struct mc_group *group = epoch->group;
	struct mc_groups *groups = group->groups;
	struct mc_log_about about = {.group = group->name};

	if (epoch->n_members || epoch->state < MC_GROUP_FAILED || epoch->freeing)
		return;
	epoch->freeing = true;
	mc_memory_drop(epoch);
	mc_quota_release(
		groups->daemon->quota, group->uid, MC_QUOTA_ARENA_BYTES, epoch->charged_bytes);
	groups->arena_bytes -= epoch->charged_bytes;
	epoch->health = mc_health_free(epoch->health);
	DL_DELETE(group->epochs, epoch);
	uv_close((uv_handle_t *)&epoch->timer, on_epoch_closed);
	if (group->epochs)
		return;
	mc_log_about(LOG_DEBUG, &about, "group %s is gone: its last member left", group->name);
	mc_quota_release(groups->daemon->quota, group->uid, MC_QUOTA_GROUPS, 1);
	HASH_DEL(groups->by_name, group);
	free(group);
	mc_daemon_update_status(groups->daemon);
}

void mc_epoch_set_state(
	struct mc_epoch *epoch, enum mc_group_state state, int level, const char *format, ...)
{
	struct mc_group *group = epoch->group;
	struct mc_groups *groups = group->groups;
	struct mc_log_about about = {
		.group = group->name, .epoch = epoch->number, .uid_plus_1 = group->uid + 1};
	char cause[MC_LIMIT_DETAIL_BYTES + 1];
	va_list args;

	va_start(args, format);
	vsnprintf(cause, sizeof(cause), format, args);
	va_end(args);
	groups->n_ready -= epoch->state == MC_GROUP_READY;
	groups->n_ready += state == MC_GROUP_READY;
	groups->daemon->counters.epochs_ready += state == MC_GROUP_READY;
	epoch->state = state;
	mc_history_note(epoch, cause, mc_now_ms());
	if (epoch == mc_group_newest(group)) {
		snprintf(group->cause, sizeof(group->cause), "%.*s", (int)sizeof(group->cause) - 1,
			cause);
		mc_codec_text_fit(group->cause, sizeof(group->cause) - 1);
		group->changed_ms = mc_now_ms();
	}
	mc_groups_update_tick(groups);
	mc_state_changed(groups->daemon);
	if (epoch->number)
		mc_log_about(level, &about, "group %s epoch %" PRIu64 " is %s: %s", group->name,
			epoch->number, mc_group_state_name(state), cause);
	else
		mc_log_about(level, &about, "group %s is %s: %s", group->name,
			mc_group_state_name(state), cause);
	mc_daemon_update_status(groups->daemon);
}
