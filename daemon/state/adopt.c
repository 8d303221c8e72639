/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/adopt.h"

#include <stdio.h>
#include <string.h>
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/groups/memory.h"
#include "daemon/health/health.h"
#include "daemon/log.h"

static const char *check_members(
	struct mc_groups *groups, const Moecomm__State__StoredEpoch *stored, uint32_t world_size)
{
	bool has[MC_MAX_WORLD_SIZE] = {false};

	for (size_t i = 0; i < stored->n_members; i++) {
		const Moecomm__State__StoredMember *member = stored->members[i];

		if (member->rank >= world_size || has[member->rank])
			return "its ranks make no sense";
		if (member->token.len != MC_TOKEN_BYTES)
			return "a token has the wrong length";
		if (mc_member_find(groups, member->id))
			return "a membership is there twice";
		for (size_t j = 0; j < i; j++)
			if (stored->members[j]->id == member->id)
				return "a membership is there twice";
		has[member->rank] = true;
	}
	if (!stored->n_members ||
		(stored->state == MC_GROUP_READY && stored->n_members != world_size))
		return "members are missing";
	return NULL;
}

const char *mc_adopt_check(struct mc_groups *groups, const Moecomm__State__StoredEpoch *stored,
	struct mc_adopt_plan *ret_plan)
{
	static char detail[256];

	memset(ret_plan, 0, sizeof(*ret_plan));
	ret_plan->memory.board_fd = -1;
	for (uint32_t r = 0; r < MC_MAX_WORLD_SIZE; r++)
		ret_plan->memory.control_fd[r] = ret_plan->memory.arena_fd[r] = -1;
	if (mc_spec_from_wire(stored->spec, stored->spec->backend, &ret_plan->spec,
		    &ret_plan->layout, detail, sizeof(detail)))
		return detail;
	if (stored->state != MC_GROUP_READY && stored->state != MC_GROUP_DRAINING &&
		stored->state != MC_GROUP_FAILED)
		return "its state is none that is stored";
	if (!stored->number || stored->sentinel.len != sizeof(struct mc_vector) ||
		stored->arena_bytes < ret_plan->layout.arena_bytes)
		return "its memory makes no sense";
	if (stored->state == MC_GROUP_DRAINING && stored->n_left_call != ret_plan->spec.n_channels)
		return "its channels make no sense";
	ret_plan->is_live = stored->state != MC_GROUP_FAILED;
	ret_plan->memory.arena_bytes = stored->arena_bytes;
	return check_members(groups, stored, ret_plan->spec.world_size);
}

struct mc_group *mc_adopt_group(
	struct mc_groups *groups, const Moecomm__State__StoredGroup *stored, const char **ret_wrong)
{
	struct mc_quota *quota = groups->daemon->quota;
	struct mc_group *group;

	*ret_wrong = "its name or its lists make no sense";
	if (!mc_spec_name_valid(stored->name) || mc_group_find(groups, stored->name) ||
		stored->n_allow_uid > MC_LIMIT_ACL_ENTRIES ||
		stored->n_allow_gid > MC_LIMIT_ACL_ENTRIES)
		return NULL;
	*ret_wrong = "its user has as many groups as it may have by now";
	if (mc_quota_charge(quota, stored->uid, MC_QUOTA_GROUPS, 1))
		return NULL;
	*ret_wrong = "out of memory";
	group = mc_group_new(groups, stored->name);
	if (!group) {
		mc_quota_release(quota, stored->uid, MC_QUOTA_GROUPS, 1);
		return NULL;
	}
	group->uid = stored->uid;
	group->gid = stored->gid;
	snprintf(group->job, sizeof(group->job), "%s", stored->job ? stored->job : "");
	group->n_allow_uid = (uint32_t)stored->n_allow_uid;
	group->n_allow_gid = (uint32_t)stored->n_allow_gid;
	for (uint32_t i = 0; i < group->n_allow_uid; i++)
		group->allow_uid[i] = stored->allow_uid[i];
	for (uint32_t i = 0; i < group->n_allow_gid; i++)
		group->allow_gid[i] = stored->allow_gid[i];
	if (group->last_epoch < stored->last_epoch)
		group->last_epoch = stored->last_epoch;
	group->created_ms = stored->created_ms;
	return group;
}

static const char *add_members(struct mc_epoch *epoch, const Moecomm__State__StoredEpoch *stored)
{
	for (size_t i = 0; i < stored->n_members; i++) {
		const Moecomm__State__StoredMember *from = stored->members[i];
		struct mc_member *member = mc_member_adopt(epoch, from->rank, from->id);

		if (!member)
			return "out of memory";
		memcpy(member->token, from->token.data, sizeof(member->token));
		member->pid = from->pid;
		member->start_time = from->start_time;
		member->uid = from->uid;
		member->gid = from->gid;
		member->voted = true;
		snprintf(
			member->label, sizeof(member->label), "%s", from->label ? from->label : "");
		snprintf(member->device_uuid, sizeof(member->device_uuid), "%s",
			from->device_uuid ? from->device_uuid : "");
	}
	return NULL;
}

/* Charged as if it were new: a bound that was lowered meanwhile counts. */
static const char *charge(struct mc_epoch *epoch, const struct mc_adopt_plan *plan)
{
	struct mc_groups *groups = epoch->group->groups;
	struct mc_quota *quota = groups->daemon->quota;
	uint32_t uid = epoch->group->uid;
	uint64_t n_bytes = plan->memory.arena_bytes * plan->spec.world_size;
	uint32_t n_fds = 1 + 2 * plan->spec.world_size;

	if (mc_quota_charge(quota, uid, MC_QUOTA_ARENA_BYTES, n_bytes))
		return "its user may not have as much memory any more";
	epoch->charged_bytes = n_bytes;
	groups->arena_bytes += n_bytes;
	if (!plan->is_live)
		return NULL;
	if (mc_quota_charge(quota, uid, MC_QUOTA_FDS, n_fds))
		return "its user may not have as many fds any more";
	epoch->charged_fds = n_fds;
	return NULL;
}

static void set_state(struct mc_epoch *epoch, const Moecomm__State__StoredEpoch *stored)
{
	if (stored->state == MC_GROUP_FAILED) {
		epoch->status = stored->status;
		epoch->fault_rank = stored->has_fault_rank ? stored->fault_rank : MC_NO_RANK;
		epoch->ended_ms = stored->ended_ms;
		snprintf(epoch->detail, sizeof(epoch->detail), "%s",
			stored->detail ? stored->detail : "");
		mc_epoch_set_state(epoch, MC_GROUP_FAILED, LOG_DEBUG, "%s: %s",
			mc_status_name(epoch->status), epoch->detail);
		return;
	}
	epoch->is_stored = true;
	epoch->health = mc_health_new();
	mc_epoch_set_state(epoch, stored->state, LOG_INFO,
		"taken over from the daemon's last run; %u ranks are awaited", epoch->n_members);
	if (stored->state != MC_GROUP_DRAINING)
		return;
	for (uint32_t c = 0; c < epoch->spec.n_channels; c++)
		epoch->left_call[c] = stored->left_call[c];
	epoch->n_left = stored->n_left;
	epoch->last_left_rank = stored->last_left_rank;
	mc_epoch_drain_on(epoch);
}

const char *mc_adopt_epoch(struct mc_group *group, const Moecomm__State__StoredEpoch *stored,
	struct mc_adopt_plan *plan)
{
	struct mc_epoch *epoch = mc_epoch_new(group);
	const char *wrong = NULL;

	if (!epoch) {
		mc_arm_result_clear(&plan->memory);
		return "out of memory";
	}
	epoch->number = stored->number;
	epoch->spec = plan->spec;
	epoch->layout = plan->layout;
	memcpy(&epoch->sentinel, stored->sentinel.data, sizeof(epoch->sentinel));
	epoch->started_ms = stored->started_ms;
	if (plan->is_live && mc_memory_take(epoch, &plan->memory))
		wrong = "its board can't be mapped";
	if (!wrong)
		wrong = charge(epoch, plan);
	if (!wrong)
		wrong = add_members(epoch, stored);
	if (wrong) {
		mc_memory_abort(epoch, MC_STATUS_STALE_EPOCH, MC_NO_RANK, MC_NO_RANK);
		for (uint32_t r = 0; r < MC_MAX_WORLD_SIZE; r++)
			if (epoch->member[r])
				mc_member_drop(epoch->member[r]);
		epoch->state = MC_GROUP_FAILED;
		mc_epoch_collect(epoch);
		return wrong;
	}
	set_state(epoch, stored);
	return NULL;
}
