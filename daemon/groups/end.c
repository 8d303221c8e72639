/* SPDX-License-Identifier: Apache-2.0 */
/* How an epoch ends, whatever state it is in. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "daemon/backends/choose.h"
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/groups/history.h"
#include "daemon/groups/memory.h"
#include "daemon/health/health.h"
#include "daemon/log.h"
#include "proto/codec.h"

void mc_member_notice(struct mc_member *member)
{
	Moecomm__Wire__Notice notice = MOECOMM__WIRE__NOTICE__INIT;
	const struct mc_epoch *epoch = member->epoch;

	/* told when it comes back */
	if (!member->conn)
		return;
	notice.member_id = member->id;
	notice.epoch = epoch->number;
	notice.status = epoch->status;
	if (epoch->fault_rank != MC_NO_RANK) {
		notice.has_rank = 1;
		notice.rank = epoch->fault_rank;
	}
	notice.detail = (char *)epoch->detail;
	mc_conn_send(member->conn, MC_FRAME_NOTICE, 0, &notice.base, NULL, 0);
}

/* Tells one member; one that mapped nothing, or says that it lets go, is dropped. */
static void tell(struct mc_epoch *epoch, struct mc_member *member)
{
	if (member->join_pending || member->vote_pending) {
		mc_conn_done(member->conn,
			member->join_pending ? member->join_serial : member->vote_serial,
			epoch->status, "%s", epoch->detail);
		mc_member_drop(member);
		return;
	}
	mc_member_notice(member);
}

static int log_level_of(uint32_t status)
{
	switch (status) {
	case MC_STATUS_LEFT:
	case MC_STATUS_SHUTDOWN:
		return LOG_INFO;
	default:
		return LOG_WARNING;
	}
}

void mc_epoch_end(struct mc_epoch *epoch, uint32_t status, uint32_t fault_rank, uint32_t reporter,
	const char *format, ...)
{
	struct mc_groups *groups = epoch->group->groups;
	const struct mc_daemon_backend *backend;
	enum mc_group_state was = epoch->state;
	const char *reason;
	va_list args;

	if (was == MC_GROUP_FAILED)
		return;
	va_start(args, format);
	vsnprintf(epoch->detail, sizeof(epoch->detail), format, args);
	va_end(args);
	mc_codec_text_fit(epoch->detail, MC_LIMIT_DETAIL_BYTES);
	uv_timer_stop(&epoch->timer);
	if (epoch->arm) {
		backend = mc_backend_find(groups->daemon, epoch->spec.backend, &reason);
		if (backend)
			backend->cancel(epoch->arm);
		epoch->arm = NULL;
	}
	epoch->status = status;
	epoch->fault_rank = fault_rank;
	epoch->ended_ms = mc_now_ms();
	/* ops in flight first: they wait for nothing else */
	mc_memory_abort(epoch, status, fault_rank, reporter);
	mc_health_count_waits(epoch);
	mc_history_end(epoch, status, fault_rank, epoch->detail, epoch->ended_ms);
	groups->daemon->counters.epochs_ended[status % MC_COUNTED_STATUSES]++;
	/* a retry does not make the verdict that it had last longer */
	if ((status == MC_STATUS_JOIN_TIMEOUT && !epoch->is_retry) ||
		status == MC_STATUS_PROBE_FAILED)
		mc_verdict_keep(&groups->verdicts, epoch, status, epoch->detail, epoch->ended_ms);
	mc_epoch_set_state(epoch, MC_GROUP_FAILED, log_level_of(status), "%s: %s",
		mc_status_name(status), epoch->detail);
	for (uint32_t r = 0; r < MC_MAX_WORLD_SIZE; r++)
		if (epoch->member[r])
			tell(epoch, epoch->member[r]);
	mc_memory_drop(epoch);
	mc_epoch_collect(epoch);
}
