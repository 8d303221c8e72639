/* SPDX-License-Identifier: Apache-2.0 */
#include "meeting.h"

static enum moecomm_status exchange(
	struct tensor_space *space, moecomm_group *group, struct tensor *mine, struct tensor *all)
{
	struct moecomm_tensor tensor = {mine->device, all->device, sizeof(int64_t)};
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;
	struct moecomm_group_info info = {.size = sizeof(info)};
	enum moecomm_status status;

	args.tensors = &tensor;
	args.n_tensors = 1;
	args.rows = 1;
	if (space->upload(space, mine, mine->n_bytes) < 0)
		return MOECOMM_DEVICE;
	status = moecomm_dispatch(group, &args, space->stream);
	if (status)
		return status;
	if (space->download(space, all, all->n_bytes) < 0)
		return MOECOMM_DEVICE;
	if (!space->stream)
		return MOECOMM_OK;
	status = moecomm_group_query(group, &info);
	return status ? status : info.status;
}

enum moecomm_status meeting_largest(const struct options *options, struct tensor_space *space,
	moecomm_group *group, int64_t mine, int64_t *ret_largest)
{
	struct tensor number = {0}, all = {0};
	enum moecomm_status status = MOECOMM_NO_MEMORY;

	if (space->alloc(space, sizeof(mine), &number) == 0 &&
		space->alloc(space, (size_t)options->world_size * sizeof(mine), &all) == 0) {
		*(int64_t *)number.host = mine;
		status = exchange(space, group, &number, &all);
	}
	if (status == MOECOMM_OK) {
		*ret_largest = mine;
		for (int rank = 0; rank < options->world_size; rank++)
			if (((int64_t *)all.host)[rank] > *ret_largest)
				*ret_largest = ((int64_t *)all.host)[rank];
	}
	space->free(space, &number);
	space->free(space, &all);
	return status;
}

enum moecomm_status meeting_farewell(
	const struct options *options, struct tensor_space *space, moecomm_group *group)
{
	int64_t ignored;
	enum moecomm_status status = meeting_largest(options, space, group, 0, &ignored);

	/* whoever left has come through this meeting, so all ranks had reached it */
	return status == MOECOMM_LEFT ? MOECOMM_OK : status;
}
