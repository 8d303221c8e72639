/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "client/control.h"

static enum moecomm_status wrong(const char *field, uint64_t theirs, uint64_t ours)
{
	return mc_error(MOECOMM_PROTOCOL,
		"the daemon's layout is wrong: %s is %llu, and follows from the group's spec as "
		"%llu",
		field, (unsigned long long)theirs, (unsigned long long)ours);
}

/* A daemon's numbers are never used, only compared: what is mapped follows from the spec. */
#define SAME(field, theirs, ours)                                                                  \
	do {                                                                                       \
		if ((uint64_t)(theirs) != (uint64_t)(ours))                                        \
			return wrong(field, (uint64_t)(theirs), (uint64_t)(ours));                 \
	} while (0)

static enum moecomm_status check_spec(
	const struct moecomm_group *group, const Moecomm__Wire__GroupSpec *spec)
{
	SAME("spec.world_size", spec->world_size, group->world_size);
	SAME("spec.n_channels", spec->n_channels, group->spec.n_channels);
	SAME("spec.max_rows", spec->max_rows, group->spec.max_rows);
	SAME("spec.dispatch_row_bytes", spec->has_dispatch_row_bytes ? spec->dispatch_row_bytes : 0,
		group->spec.dispatch_row_bytes);
	SAME("spec.combine_row_bytes", spec->has_combine_row_bytes ? spec->combine_row_bytes : 0,
		group->spec.combine_row_bytes);
	SAME("spec.backend", spec->backend, group->backend);
	return MOECOMM_OK;
}

static enum moecomm_status check_numbers(
	const struct moecomm_group *group, const Moecomm__Wire__Layout *layout)
{
	const struct mc_layout *mine = &group->layout;

	SAME("slot_data_bytes", layout->slot_data_bytes, mine->slot_data_bytes);
	SAME("slot_stride", layout->slot_stride, mine->slot_stride);
	SAME("segment_stride", layout->segment_stride, mine->segment_stride);
	SAME("channel_stride", layout->channel_stride, mine->channel_stride);
	SAME("ring_offset", layout->ring_offset, mine->ring_offset);
	SAME("capacity_dispatch", layout->capacity_dispatch,
		mc_layout_capacity(mine, group->spec.dispatch_row_bytes));
	SAME("capacity_combine", layout->capacity_combine,
		mc_layout_capacity(mine, group->spec.combine_row_bytes));
	if (layout->arena_bytes < mine->arena_bytes ||
		layout->arena_bytes > MC_LAYOUT_MAX_ARENA_BYTES)
		return wrong("arena_bytes", layout->arena_bytes, mine->arena_bytes);
	if (layout->epoch == 0)
		return mc_error(MOECOMM_PROTOCOL, "the daemon's layout is wrong: epoch is 0");
	if (layout->member_id == 0)
		return mc_error(MOECOMM_PROTOCOL, "the daemon's layout is wrong: member_id is 0");
	if (layout->token.len != sizeof(group->token))
		return wrong("length of token", layout->token.len, sizeof(group->token));
	if (layout->sentinel.len != sizeof(struct mc_vector))
		return wrong("length of sentinel", layout->sentinel.len, sizeof(struct mc_vector));
	if (layout->probe_timeout_ms > MC_LIMIT_TIMEOUT_MS)
		return wrong("probe_timeout_ms", layout->probe_timeout_ms, group->probe_timeout_ms);
	return MOECOMM_OK;
}

/* How many members share this rank's device; 1 where devices are not told (host). */
static uint32_t ranks_on_my_device(
	const struct moecomm_group *group, const Moecomm__Wire__Layout *layout)
{
	const char *mine = NULL;
	uint32_t n = 0;

	for (size_t i = 0; i < layout->n_members; i++)
		if (layout->members[i]->rank == group->rank)
			mine = layout->members[i]->device_uuid;
	if (!mine || !*mine)
		return 1;
	for (size_t i = 0; i < layout->n_members && n < group->world_size; i++) {
		const char *theirs = layout->members[i]->device_uuid;

		n += theirs && strcmp(theirs, mine) == 0;
	}
	return n;
}

enum moecomm_status mc_layout_check(const struct moecomm_group *group, const struct mc_reply *reply,
	struct mc_backend_epoch *ret_epoch, uint32_t *ret_probe_timeout_ms)
{
	const Moecomm__Wire__Layout *layout = (const Moecomm__Wire__Layout *)reply->message;
	enum moecomm_status status = check_spec(group, layout->spec);

	if (status == MOECOMM_OK)
		status = check_numbers(group, layout);
	if (status != MOECOMM_OK)
		return status;
	SAME("number of fds", reply->n_fds, 2 + group->world_size);
	*ret_epoch = (struct mc_backend_epoch){
		.rank = group->rank,
		.epoch = layout->epoch,
		.layout = group->layout,
		.arena_bytes = layout->arena_bytes,
		.board_fd = reply->fds[0],
		.control_fd = reply->fds[1],
		.ranks_per_device = ranks_on_my_device(group, layout),
	};
	memcpy(&ret_epoch->sentinel, layout->sentinel.data, sizeof(ret_epoch->sentinel));
	for (uint32_t i = 0; i < MC_MAX_WORLD_SIZE; i++)
		ret_epoch->arena_fd[i] = i < group->world_size ? reply->fds[2 + i] : -1;
	*ret_probe_timeout_ms = layout->probe_timeout_ms;
	return MOECOMM_OK;
}
