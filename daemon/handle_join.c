/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/handlers.h"

void mc_handle_join(struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__Join *join)
{
	mc_group_join(conn->daemon->groups, conn, serial, join);
}

void mc_handle_vote(struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__Vote *vote)
{
	struct mc_member *member = mc_member_of(conn->daemon->groups, conn, vote->member_id);

	/* one that has not been told of its membership yet can only have guessed */
	if (!member || member->join_pending)
		mc_conn_done(conn, serial, MC_STATUS_NOT_FOUND,
			"this connection has no membership %" PRIu64, vote->member_id);
	else
		mc_member_vote(member, serial, vote);
}
