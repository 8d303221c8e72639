/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Release: whether a GPU can be reset, reconfigured or taken out. The daemon itself holds a GPU
 * only by the memory of living epochs (helpers that make CUDA calls end with their task), so there
 * is nothing to let go of once no member is left; while there is one, it is named.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/handlers.h"
#include "daemon/log.h"

/* Named in a refusal; `moecommctl groups -v` lists all. */
#define NAMED 6u

static void add_holder(char *text, size_t n_text, const struct mc_member *member, unsigned i)
{
	size_t n = strlen(text);
	char who[256];

	if (i == NAMED)
		snprintf(text + n, n_text - n, "; and more");
	if (i >= NAMED)
		return;
	snprintf(text + n, n_text - n, "%s%.100s of group %.60s%s", i ? "; " : "",
		mc_member_text(member, who, sizeof(who)), member->epoch->group->name,
		member->epoch->state == MC_GROUP_FAILED ? " (still maps an ended epoch)" : "");
}

/* Rights as for all that does harm: only root and the daemon's own user may look at all holders. */
static bool may_release(const struct mc_conn *conn)
{
	return conn->uid == 0 || conn->uid == geteuid();
}

void mc_handle_release(struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__Release *release)
{
	const struct mc_groups *groups = conn->daemon->groups;
	const struct mc_group *group;
	const struct mc_epoch *epoch;
	char text[800] = "";
	unsigned n = 0;

	if (!may_release(conn)) {
		mc_conn_done(conn, serial, MC_STATUS_DENIED,
			"uid %u may not release GPUs: only root and the daemon's user may",
			conn->uid);
		return;
	}
	for (group = groups->by_name; group; group = group->hh.next)
		DL_FOREACH (group->epochs, epoch)
			for (uint32_t r = 0; r < epoch->spec.world_size; r++)
				if (epoch->member[r] && !strcmp(epoch->member[r]->device_uuid,
								release->device_uuid))
					add_holder(text, sizeof(text), epoch->member[r], n++);
	if (n) {
		mc_conn_done(conn, serial, MC_STATUS_IN_USE,
			"%u process%s hold%s memory of %s: stop %s or abort the groups first: %s",
			n, n == 1 ? "" : "es", n == 1 ? "s" : "", release->device_uuid,
			n == 1 ? "it" : "them", text);
		return;
	}
	mc_log(LOG_INFO, "nothing of %s is held: it may be reset (asked by pid %u, uid %u)",
		release->device_uuid, conn->pid, conn->uid);
	mc_conn_done(conn, serial, MC_STATUS_OK, "nothing of %s is held", release->device_uuid);
}
