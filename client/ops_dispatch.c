/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ops.h"

static const char name[] = "moecomm_dispatch";

/* Everything about the tensors that does not depend on rows; sums up a row's bytes. */
static enum moecomm_status check_tensors(
	const struct moecomm_dispatch_args *args, uint64_t *ret_row_bytes)
{
	uint64_t sum = 0;

	if (args->n_tensors < 1 || args->n_tensors > (int)MC_MAX_TENSORS)
		return mc_error(MOECOMM_INVALID, "%s: n_tensors is %d: it must be 1 to %u", name,
			args->n_tensors, MC_MAX_TENSORS);
	if (!args->tensors)
		return mc_error(MOECOMM_INVALID, "%s: tensors is NULL", name);
	for (int i = 0; i < args->n_tensors; i++) {
		int64_t row_bytes = args->tensors[i].row_bytes;

		if (row_bytes < 1)
			return mc_error(MOECOMM_INVALID,
				"%s: row_bytes of tensor %d is %lld: it must be at least 1", name,
				i, (long long)row_bytes);
		/* at most 8 times 2^63 - 1: an overflow shows as a sum beyond int64 on the way */
		if (__builtin_add_overflow(sum, (uint64_t)row_bytes, &sum) || sum > INT64_MAX)
			return mc_error(MOECOMM_TOO_LARGE,
				"%s: a row of all tensors passes 2^63 bytes", name);
	}
	if (args->ids_tensor < -1 || args->ids_tensor >= args->n_tensors)
		return mc_error(MOECOMM_INVALID,
			"%s: ids_tensor is %d: it must be -1 or a tensor's index", name,
			args->ids_tensor);
	if (args->ids_tensor >= 0 && args->tensors[args->ids_tensor].row_bytes % 4 != 0)
		return mc_error(MOECOMM_INVALID,
			"%s: row_bytes of the ids tensor is %lld: int32 ids take a multiple of 4",
			name, (long long)args->tensors[args->ids_tensor].row_bytes);
	*ret_row_bytes = sum;
	return MOECOMM_OK;
}

static enum moecomm_status fill_tensors(const struct moecomm_group *group,
	const struct moecomm_dispatch_args *args, const struct mc_rows *rows,
	struct mc_dispatch *ret_op)
{
	ret_op->n_tensors = (uint32_t)args->n_tensors;
	for (uint32_t i = 0; i < ret_op->n_tensors; i++) {
		const struct moecomm_tensor *t = &args->tensors[i];

		if (!t->input && rows->rows[group->rank])
			return mc_error(MOECOMM_INVALID,
				"%s: input of tensor %u is NULL, but it has %u rows", name, i,
				rows->rows[group->rank]);
		if (!t->output && rows->total)
			return mc_error(MOECOMM_INVALID,
				"%s: output of tensor %u is NULL, but it has %llu rows", name, i,
				(unsigned long long)rows->total);
		ret_op->tensor[i] = (struct mc_tensor){.input = t->input,
			.output = t->output,
			.row_bytes = (uint64_t)t->row_bytes};
	}
	return MOECOMM_OK;
}

enum moecomm_status moecomm_dispatch(
	moecomm_group *group, const struct moecomm_dispatch_args *args, void *stream)
{
	struct mc_backend_error error;
	enum moecomm_status status;
	uint64_t row_bytes = 0;
	struct mc_dispatch op;
	struct mc_fault fault;
	struct mc_rows rows;
	uint32_t channel;
	int outcome;

	if (!args)
		return mc_error(MOECOMM_INVALID, "%s: args is NULL", name);
	status = mc_op_check(group, name, args, args->size, sizeof(*args), args->channel);
	if (status == MOECOMM_OK)
		status = check_tensors(args, &row_bytes);
	if (status == MOECOMM_OK)
		status = mc_rows_check(
			group, name, args->rows, args->rows_per_rank, row_bytes, &rows);
	if (status == MOECOMM_OK)
		status = fill_tensors(group, args, &rows, &op);
	if (status != MOECOMM_OK)
		return status;
	for (uint32_t r = 0; r < MC_MAX_WORLD_SIZE; r++)
		op.rows[r] = r < group->world_size ? rows.rows[r] : 0;
	op.count = args->count;
	op.ret_counts = args->ret_counts;
	op.ids_tensor = args->ids_tensor;
	op.digest = mc_dispatch_digest(&op, group->world_size);

	channel = (uint32_t)args->channel;
	status = mc_op_enter(group, name, channel);
	if (status != MOECOMM_OK)
		return status;
	error.text[0] = '\0';
	outcome = group->ops->dispatch(group->mapping, channel, &op, stream, &fault, &error);
	return mc_op_finish(group, channel, outcome, &fault, &error);
}
