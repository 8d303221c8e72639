/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "client/group.h"
#include "client/ops.h"

/* The first fields of moecomm_group_info, without which a query says nothing. */
#define INFO_MIN (offsetof(struct moecomm_group_info, status) + sizeof(enum moecomm_status))

int64_t moecomm_group_capacity(const moecomm_group *group, int64_t row_bytes)
{
	if (!mc_group_usable(group) || row_bytes < 1)
		return 0;
	return (int64_t)mc_layout_capacity(&group->layout, (uint64_t)row_bytes);
}

enum moecomm_path moecomm_group_path(const moecomm_group *group, int64_t rows, int64_t row_bytes)
{
	if (!mc_group_usable(group) || rows < 0 || row_bytes < 1)
		return MOECOMM_PATH_AUTO;
	if (rows > (int64_t)mc_layout_capacity(&group->layout, (uint64_t)row_bytes))
		return MOECOMM_PATH_AUTO;
	return MOECOMM_PATH_LAMPORT;
}

enum moecomm_status moecomm_group_query(
	const moecomm_group *group, struct moecomm_group_info *ret_info)
{
	moecomm_group *mine =
		(moecomm_group *)group; /* the lock and the board; no state of the caller's */
	struct moecomm_group_info info = {0};

	if (!mc_group_usable(group))
		return MOECOMM_INVALID;
	if (!ret_info)
		return mc_error(MOECOMM_INVALID, "moecomm_group_query: ret_info is NULL");
	if (ret_info->size < INFO_MIN)
		return mc_error(MOECOMM_INVALID,
			"moecomm_group_query: ret_info.size is %zu: set it to sizeof(struct "
			"moecomm_group_info)",
			ret_info->size);
	mc_group_look_at_board(mine, false);

	pthread_mutex_lock(&mine->lock);
	info.size = ret_info->size;
	info.status = group->verdict.status;
	info.state = info.status == MOECOMM_OK ? MOECOMM_GROUP_READY : MOECOMM_GROUP_FAILED;
	info.fault_rank = info.status == MOECOMM_OK ? -1 : group->verdict.rank;
	info.fault_call = info.status == MOECOMM_OK ? 0 : group->verdict.call;
	if (info.status != MOECOMM_OK)
		snprintf(info.detail, sizeof(info.detail), "%s", group->verdict.detail);
	info.epoch = group->ready_epoch;
	info.rank = (int)group->rank;
	info.world_size = (int)group->world_size;
	info.backend = group->backend;
	info.path = group->path;
	snprintf(info.path_reason, sizeof(info.path_reason), "%s", group->path_reason);
	info.arena_bytes = group->arena_bytes;
	pthread_mutex_unlock(&mine->lock);
	info.daemon_connected = atomic_load(&mine->daemon_connected);
	for (uint32_t i = 0; i < group->spec.n_channels; i++)
		info.calls += atomic_load_explicit(&mine->channel[i].calls, memory_order_relaxed);

	memcpy(ret_info, &info, ret_info->size < sizeof(info) ? ret_info->size : sizeof(info));
	return MOECOMM_OK;
}
