/* SPDX-License-Identifier: Apache-2.0 */
/* A client that connected anew takes its memberships over. */
#include <inttypes.h>
#include <string.h>
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/handlers.h"
#include "daemon/log.h"
#include "daemon/state/state.h"
#include "daemon/state/watch.h"

/* In time that does not tell how much of a guess was right. */
static bool token_fits(const struct mc_member *member, const ProtobufCBinaryData *token)
{
	uint8_t differs = 0;

	if (token->len != MC_TOKEN_BYTES)
		return false;
	for (size_t i = 0; i < MC_TOKEN_BYTES; i++)
		differs |= member->token[i] ^ token->data[i];
	return !differs;
}

void mc_handle_resume(struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__Resume *resume)
{
	struct mc_member *member = mc_member_find(conn->daemon->groups, resume->member_id);
	struct mc_log_about about = {.group = NULL};
	struct mc_epoch *epoch;
	struct mc_conn *old;

	/* one answer for every reason: a guess learns nothing */
	if (!member || member->join_pending || !token_fits(member, &resume->token) ||
		member->rank != resume->rank || member->epoch->number != resume->epoch ||
		strcmp(member->epoch->group->name, resume->group) || member->uid != conn->uid) {
		mc_conn_done(conn, serial, MC_STATUS_NOT_FOUND,
			"the daemon does not know this membership: join again");
		return;
	}
	epoch = member->epoch;
	old = member->conn;
	if (old != conn) {
		mc_member_move(member, conn);
		if (member->pid != conn->pid) {
			member->pid = conn->pid;
			member->start_time = mc_process_start_time(conn->pid);
			mc_state_changed(conn->daemon);
		}
		/* a vote on its way went with the old connection; it is told again by its new one
		 */
		if (old && !old->n_members)
			mc_conn_doom(old);
		about.group = epoch->group->name;
		about.epoch = epoch->number;
		mc_log_about(LOG_INFO, &about, "rank %u of group %s has come back (pid %u)",
			member->rank, epoch->group->name, member->pid);
	}
	mc_conn_done(conn, serial, MC_STATUS_OK, "%s", "");
	if (epoch->state == MC_GROUP_FAILED)
		mc_member_notice(member);
}
