/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks are there: fresh memory, filled before any fd is handed out, and the layouts. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "daemon/backends/choose.h"
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/groups/memory.h"
#include "daemon/inject.h"
#include "daemon/log.h"

/* fds that the daemon holds for an epoch: board, a control block and an arena a rank. */
static uint32_t count_fds(const struct mc_epoch *epoch)
{
	return 1u + 2u * epoch->spec.world_size;
}

/* fds of one member's layout: board, its control block, all arenas. */
static uint32_t count_layout_fds(const struct mc_epoch *epoch)
{
	return 2u + epoch->spec.world_size;
}

static void send_layout(struct mc_epoch *epoch, struct mc_member *to)
{
	Moecomm__Wire__Layout layout = MOECOMM__WIRE__LAYOUT__INIT;
	Moecomm__Wire__GroupSpec spec;
	Moecomm__Wire__Member members[MC_MAX_WORLD_SIZE], *member_list[MC_MAX_WORLD_SIZE];
	int fds[MC_LIMIT_FRAME_FDS];
	uint32_t n_fds = 0;

	layout.member_id = to->id;
	layout.token.data = to->token;
	layout.token.len = sizeof(to->token);
	layout.epoch = epoch->number;
	layout.sentinel.data = (uint8_t *)&epoch->sentinel;
	layout.sentinel.len = sizeof(epoch->sentinel);
	mc_spec_to_wire(&epoch->spec, &spec);
	layout.spec = &spec;
	layout.slot_data_bytes = epoch->layout.slot_data_bytes;
	layout.slot_stride = epoch->layout.slot_stride;
	layout.segment_stride = epoch->layout.segment_stride;
	layout.channel_stride = epoch->layout.channel_stride;
	layout.ring_offset = epoch->layout.ring_offset;
	layout.arena_bytes = epoch->memory.arena_bytes;
	layout.capacity_dispatch =
		mc_layout_capacity(&epoch->layout, epoch->spec.dispatch_row_bytes);
	layout.capacity_combine = mc_layout_capacity(&epoch->layout, epoch->spec.combine_row_bytes);
	layout.probe_timeout_ms = epoch->spec.probe_timeout_ms;
	for (uint32_t r = 0; r < epoch->spec.world_size; r++) {
		const struct mc_member *member = epoch->member[r];

		moecomm__wire__member__init(&members[r]);
		members[r].rank = r;
		members[r].has_pid = members[r].has_uid = 1;
		members[r].pid = member->pid;
		members[r].uid = member->uid;
		members[r].device_uuid = (char *)member->device_uuid;
		members[r].label = (char *)member->label;
		member_list[r] = &members[r];
	}
	layout.members = member_list;
	layout.n_members = epoch->spec.world_size;
	fds[n_fds++] = epoch->memory.board_fd;
	fds[n_fds++] = epoch->memory.control_fd[to->rank];
	for (uint32_t r = 0; r < epoch->spec.world_size; r++)
		fds[n_fds++] = epoch->memory.arena_fd[r];
	mc_conn_send(to->conn, MC_FRAME_LAYOUT, to->join_serial, &layout.base, fds, n_fds);
	to->join_pending = false;
}

static void on_armed(void *data, int status, const char *detail, struct mc_arm_result *result)
{
	struct mc_epoch *epoch = data;
	struct mc_daemon *daemon = epoch->group->groups->daemon;
	uint64_t more;
	int r;

	epoch->arm = NULL;
	if (status) {
		mc_epoch_end(epoch, (uint32_t)status, MC_NO_RANK, MC_NO_RANK,
			"the memory of group %s could not be made: %s", epoch->group->name, detail);
		return;
	}
	r = mc_memory_take(epoch, result);
	if (r) {
		mc_log(LOG_ERR, "cannot map the board of group %s: %s", epoch->group->name,
			strerror(-r));
		mc_epoch_end(epoch, MC_STATUS_SYSTEM, MC_NO_RANK, MC_NO_RANK,
			"the daemon cannot map the board of group %s: %s", epoch->group->name,
			strerror(-r));
		return;
	}
	/* what the backend rounded up is charged too, but never refused any more */
	more = epoch->memory.arena_bytes * epoch->spec.world_size;
	more = more > epoch->charged_bytes ? more - epoch->charged_bytes : 0;
	if (more &&
		!mc_quota_charge(daemon->quota, epoch->group->uid, MC_QUOTA_ARENA_BYTES, more)) {
		epoch->charged_bytes += more;
		epoch->group->groups->arena_bytes += more;
	}
	mc_epoch_probe(epoch);
	for (uint32_t rank = 0; rank < epoch->spec.world_size; rank++)
		send_layout(epoch, epoch->member[rank]);
}

/* Charges memory and fds to who created the group; false when the epoch ended for it. */
static bool charge(struct mc_epoch *epoch)
{
	struct mc_groups *groups = epoch->group->groups;
	struct mc_quota *quota = groups->daemon->quota;
	uint32_t uid = epoch->group->uid;
	uint64_t n_bytes = epoch->layout.arena_bytes * epoch->spec.world_size;
	enum mc_quota_kind kind = MC_QUOTA_ARENA_BYTES;
	int r;

	r = mc_quota_charge(quota, uid, kind, n_bytes);
	if (!r) {
		epoch->charged_bytes = n_bytes;
		groups->arena_bytes += n_bytes;
		kind = MC_QUOTA_FDS;
		n_bytes = count_fds(epoch) +
			  (uint64_t)epoch->spec.world_size * count_layout_fds(epoch);
		r = mc_quota_charge(quota, uid, kind, n_bytes);
	}
	if (!r) {
		epoch->charged_fds = count_fds(epoch);
		for (uint32_t rank = 0; rank < epoch->spec.world_size; rank++)
			epoch->member[rank]->charged_fds = count_layout_fds(epoch);
		return true;
	}
	mc_epoch_end(epoch, r == -EDQUOT ? MC_STATUS_QUOTA : MC_STATUS_NO_MEMORY, MC_NO_RANK,
		MC_NO_RANK,
		"group %s needs %" PRIu64 " %s more; uid %u has %" PRIu64 " of %" PRIu64,
		epoch->group->name, n_bytes, mc_quota_name(kind), uid,
		mc_quota_used(quota, uid, kind), mc_quota_limit(quota, kind));
	return false;
}

void mc_epoch_arm(struct mc_epoch *epoch)
{
	struct mc_group *group = epoch->group;
	struct mc_daemon *daemon = group->groups->daemon;
	const struct mc_daemon_backend *backend;
	struct mc_arm_request request;
	const char *detail = "";
	int r;

	uv_timer_stop(&epoch->timer);
	if (!charge(epoch))
		return;
	r = mc_memory_draw_sentinel(epoch);
	backend = mc_backend_find(daemon, epoch->spec.backend, &detail);
	if (r || !backend) {
		mc_epoch_end(epoch, r ? MC_STATUS_SYSTEM : MC_STATUS_UNSUPPORTED, MC_NO_RANK,
			MC_NO_RANK, "group %s: %s", group->name, r ? strerror(-r) : detail);
		return;
	}
	/* no two groups ever have the same: what lies in the fd store is known by it alone */
	if (group->last_epoch < group->groups->highest_epoch)
		group->last_epoch = group->groups->highest_epoch;
	epoch->number = ++group->last_epoch;
	group->groups->highest_epoch = epoch->number;
	mc_epoch_set_state(epoch, MC_GROUP_ARMING, LOG_INFO,
		"all %u ranks have joined; making %" PRIu64 " bytes of memory for each",
		epoch->spec.world_size, epoch->layout.arena_bytes);

	memset(&request, 0, sizeof(request));
	request.epoch = epoch->number;
	request.world_size = epoch->spec.world_size;
	request.layout = epoch->layout;
	request.sentinel = epoch->sentinel;
	request.wait.op_timeout_ms = epoch->spec.op_timeout_ms;
	request.wait.warmup_timeout_ms = epoch->spec.warmup_timeout_ms;
	request.wait.warmup_calls = epoch->spec.warmup_calls;
	request.timeout_ms = daemon->config.arm_timeout_ms;
	for (uint32_t rank = 0; rank < epoch->spec.world_size; rank++)
		snprintf(request.device_uuid[rank], sizeof(request.device_uuid[rank]), "%s",
			epoch->member[rank]->device_uuid);
	if (mc_inject_hit("arm_fail")) {
		r = MC_STATUS_SYSTEM;
		detail = "injected failure";
	} else {
		r = backend->arm(daemon->loop, &request, on_armed, epoch, &epoch->arm, &detail);
	}
	if (r)
		mc_epoch_end(epoch, (uint32_t)r, MC_NO_RANK, MC_NO_RANK,
			"the memory of group %s could not be made: %s", group->name, detail);
}
