/* SPDX-License-Identifier: Apache-2.0 */
/* SetDeadlines: of a live group, by a member or an operator, for all members from now on. */
#include <inttypes.h>
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/groups/memory.h"
#include "daemon/handlers.h"
#include "daemon/log.h"
#include "daemon/state/state.h"

static struct mc_epoch *find_epoch(
	struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__SetDeadlines *wire)
{
	struct mc_groups *groups = conn->daemon->groups;
	struct mc_member *member;
	struct mc_group *group;

	if (wire->has_member_id) {
		member = mc_member_of(groups, conn, wire->member_id);
		if (member)
			return member->epoch;
		mc_conn_done(conn, serial, MC_STATUS_NOT_FOUND,
			"this connection has no membership %" PRIu64, wire->member_id);
		return NULL;
	}
	group = wire->group ? mc_group_find(groups, wire->group) : NULL;
	if (!group) {
		mc_conn_done(conn, serial, wire->group ? MC_STATUS_NOT_FOUND : MC_STATUS_INVALID,
			wire->group ? "there is no such group"
				    : "setting deadlines needs a membership or a group's name");
		return NULL;
	}
	if (mc_group_may_operate(group, conn))
		return mc_group_newest(group);
	mc_conn_done(conn, serial, MC_STATUS_DENIED,
		"uid %u may not change the deadlines of group %s: only its creator, root and the "
		"daemon's "
		"user may",
		conn->uid, group->name);
	return NULL;
}

void mc_handle_set_deadlines(
	struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__SetDeadlines *wire)
{
	struct mc_epoch *epoch = find_epoch(conn, serial, wire);

	if (!epoch)
		return;
	if (epoch->state != MC_GROUP_READY && epoch->state != MC_GROUP_DRAINING) {
		mc_conn_done(conn, serial, MC_STATUS_STALE_EPOCH,
			"group %s is %s: deadlines can be changed while it is ready",
			epoch->group->name, mc_group_state_name(epoch->state));
		return;
	}
	if (wire->op_timeout_ms > MC_LIMIT_TIMEOUT_MS ||
		wire->warmup_timeout_ms > MC_LIMIT_TIMEOUT_MS) {
		mc_conn_done(conn, serial, MC_STATUS_INVALID, "a deadline is at most %u ms",
			MC_LIMIT_TIMEOUT_MS);
		return;
	}
	/* 0 leaves one as it is, like a field left out: no op waits for ever */
	if (wire->op_timeout_ms)
		epoch->spec.op_timeout_ms = wire->op_timeout_ms;
	if (wire->warmup_timeout_ms)
		epoch->spec.warmup_timeout_ms = wire->warmup_timeout_ms;
	if (wire->warmup_calls)
		epoch->spec.warmup_calls = wire->warmup_calls;
	mc_memory_set_deadlines(epoch);
	mc_state_changed(conn->daemon);
	mc_log(LOG_INFO, "deadlines of group %s are now %u ms, %u ms for the first %u calls",
		epoch->group->name, epoch->spec.op_timeout_ms, epoch->spec.warmup_timeout_ms,
		epoch->spec.warmup_calls);
	mc_conn_done(conn, serial, MC_STATUS_OK, "%s", "");
}
