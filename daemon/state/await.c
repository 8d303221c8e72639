/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a resumed group that have not come back yet. */
#include <errno.h>
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/log.h"
#include "daemon/state/state.h"
#include "daemon/state/watch.h"

static void on_ended(void *data)
{
	/* frees the watch with the member */
	mc_member_lost(data);
}

static struct mc_member *find_awaited(struct mc_groups *groups)
{
	struct mc_member *member, *next;

	HASH_ITER (hh, groups->by_id, member, next)
		if (!member->conn)
			return member;
	return NULL;
}

static void give_up(struct mc_member *member, uint32_t timeout_ms)
{
	struct mc_epoch *epoch = member->epoch;
	uint32_t rank = member->rank;
	char text[256];

	if (epoch->state != MC_GROUP_READY && epoch->state != MC_GROUP_DRAINING) {
		mc_member_lost(member);
		return;
	}
	mc_member_text(member, text, sizeof(text));
	mc_member_drop(member);
	mc_epoch_end(epoch, MC_STATUS_PEER_LOST, rank, MC_NO_RANK,
		"%s of group %s did not come back within %u ms of the daemon's restart", text,
		epoch->group->name, timeout_ms);
}

static void on_resume_timeout(uv_timer_t *timer)
{
	struct mc_daemon *daemon = timer->data;
	struct mc_member *member;

	/* from the start each time: ending one epoch can free others' members */
	while ((member = find_awaited(daemon->groups)))
		give_up(member, daemon->config.resume_timeout_ms);
}

/* Returns whether the process is gone. */
static bool is_gone(struct mc_daemon *daemon, struct mc_member *member)
{
	int r = mc_watch_new(
		daemon->loop, member->pid, member->start_time, on_ended, member, &member->watch);

	/* one that can't be watched has until the timer; all other ways to look are guesses */
	return r == -ESRCH;
}

void mc_await_members(struct mc_daemon *daemon)
{
	struct mc_member *member, *next, *gone;
	bool any = false;

	do {
		gone = NULL;
		HASH_ITER (hh, daemon->groups->by_id, member, next) {
			if (member->conn || member->watch)
				continue;
			any = true;
			if (!member->is_unwatchable && is_gone(daemon, member)) {
				gone = member;
				break;
			}
			member->is_unwatchable = !member->watch;
		}
		if (gone)
			mc_member_lost(gone);
	} while (gone);
	if (any)
		uv_timer_start(&daemon->state.resume_timer, on_resume_timeout,
			daemon->config.resume_timeout_ms, 0);
}

void mc_await_drop_all(struct mc_daemon *daemon)
{
	struct mc_member *member;

	while ((member = find_awaited(daemon->groups))) {
		struct mc_epoch *epoch = member->epoch;

		mc_member_drop(member);
		if (!epoch->n_members) {
			epoch->state = MC_GROUP_FAILED;
			mc_epoch_collect(epoch);
		}
	}
}
