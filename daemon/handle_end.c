/* SPDX-License-Identifier: Apache-2.0 */
/* Leave, Abort and OpFailed: requests that end an epoch. */
#include <inttypes.h>
#include <stdio.h>
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/handlers.h"

/* A membership that has not been told about yet is nobody's to name. */
static struct mc_member *find(struct mc_conn *conn, uint32_t serial, uint64_t id)
{
	struct mc_member *member = mc_member_of(conn->daemon->groups, conn, id);

	if (member && !member->join_pending)
		return member;
	mc_conn_done(conn, serial, MC_STATUS_NOT_FOUND,
		"this connection has no membership %" PRIu64, id);
	return NULL;
}

void mc_handle_leave(struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__Leave *leave)
{
	struct mc_member *member = find(conn, serial, leave->member_id);

	if (!member)
		return;
	mc_member_leave(member);
	mc_conn_done(conn, serial, MC_STATUS_OK, "%s", "");
}

static void abort_by_member(
	struct mc_conn *conn, uint32_t serial, uint64_t member_id, const char *reason)
{
	struct mc_member *member = find(conn, serial, member_id);
	char text[256];

	if (!member)
		return;
	/* of an ended epoch too: aborting twice is harmless */
	mc_member_text(member, text, sizeof(text));
	mc_epoch_end(member->epoch, MC_STATUS_ABORTED, member->rank, member->rank,
		"aborted by %s%s%.400s", text, *reason ? ": " : "", reason);
	mc_conn_done(conn, serial, MC_STATUS_OK, "%s", "");
}

/* The newest epoch that still runs; while the next one forms an older one can drain beside it. */
static struct mc_epoch *find_running(const struct mc_group *group)
{
	struct mc_epoch *epoch = mc_group_newest(group);

	while (epoch && (epoch->state == MC_GROUP_FAILED || epoch->state == MC_GROUP_GONE))
		epoch = epoch == group->epochs ? NULL : epoch->prev;
	return epoch;
}

static void abort_by_operator(
	struct mc_conn *conn, uint32_t serial, const char *name, const char *reason)
{
	struct mc_group *group = mc_group_find(conn->daemon->groups, name);
	struct mc_epoch *epoch;

	if (!group) {
		mc_conn_done(conn, serial, MC_STATUS_NOT_FOUND, "there is no group %.*s",
			(int)MC_LIMIT_NAME_BYTES, name);
		return;
	}
	if (!mc_group_may_operate(group, conn)) {
		mc_conn_done(conn, serial, MC_STATUS_DENIED,
			"uid %u may not abort group %s: only its creator, root and the daemon's "
			"user may",
			conn->uid, group->name);
		return;
	}
	if (!find_running(group)) {
		mc_conn_done(conn, serial, MC_STATUS_OK, "the epoch had ended already: %s",
			mc_group_newest(group)->detail);
		return;
	}
	/* the end of one can be the end of the group */
	while (group && (epoch = find_running(group))) {
		mc_epoch_end(epoch, MC_STATUS_ABORTED, MC_NO_RANK, MC_NO_RANK,
			"aborted by %s (pid %u, uid %u)%s%.400s", conn->label, conn->pid, conn->uid,
			*reason ? ": " : "", reason);
		group = mc_group_find(conn->daemon->groups, name);
	}
	mc_conn_done(conn, serial, MC_STATUS_OK, "%s", "");
}

void mc_handle_abort(struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__Abort *abort_)
{
	const char *reason = abort_->reason ? abort_->reason : "";

	if (abort_->has_member_id)
		abort_by_member(conn, serial, abort_->member_id, reason);
	else if (abort_->group)
		abort_by_operator(conn, serial, abort_->group, reason);
	else
		mc_conn_done(conn, serial, MC_STATUS_INVALID,
			"abort needs a membership or a group's name");
}

static bool is_fault(uint32_t status)
{
	switch (status) {
	case MC_STATUS_INVALID:
	case MC_STATUS_PEER_LOST:
	case MC_STATUS_TIMEOUT:
	case MC_STATUS_MISMATCH:
	case MC_STATUS_ABORTED:
	case MC_STATUS_STALE_EPOCH:
	case MC_STATUS_DEVICE:
	case MC_STATUS_SENTINEL:
	case MC_STATUS_CORRUPT:
	case MC_STATUS_LEFT:
		return true;
	default:
		return false;
	}
}

void mc_handle_op_failed(
	struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__OpFailed *failed)
{
	struct mc_member *member = find(conn, serial, failed->member_id);
	const char *detail = failed->detail ? failed->detail : "";
	struct mc_epoch *epoch;
	uint32_t peer;

	if (!member)
		return;
	epoch = member->epoch;
	if (!is_fault(failed->status)) {
		mc_conn_done(conn, serial, MC_STATUS_INVALID, "%u is no outcome of a failed op",
			failed->status);
		return;
	}
	if (epoch->state == MC_GROUP_PROBING) {
		mc_conn_done(conn, serial, MC_STATUS_INVALID,
			"no op can have failed before the group is ready");
		return;
	}
	peer = failed->has_peer && failed->peer < epoch->spec.world_size ? failed->peer
									 : MC_NO_RANK;
	mc_epoch_end(epoch, failed->status, peer != MC_NO_RANK ? peer : member->rank, member->rank,
		"an op failed on rank %u with %s%s%.700s", member->rank,
		mc_status_name(failed->status), *detail ? ": " : "", detail);
	mc_conn_done(conn, serial, MC_STATUS_OK, "%s", "");
}
