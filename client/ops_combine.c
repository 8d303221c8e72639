/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "client/ops.h"

static enum moecomm_status check_elements(
	const char *name, const struct moecomm_combine_args *args, uint64_t *ret_row_bytes)
{
	uint64_t row_bytes;

	if (args->dtype != MOECOMM_BF16 && args->dtype != MOECOMM_FP16 &&
		args->dtype != MOECOMM_FP32)
		return mc_error(MOECOMM_INVALID,
			"%s: dtype is %d: it must be one of enum moecomm_dtype", name,
			(int)args->dtype);
	if (args->hidden < 1)
		return mc_error(MOECOMM_INVALID, "%s: hidden is %lld: it must be at least 1", name,
			(long long)args->hidden);
	if (__builtin_mul_overflow((uint64_t)args->hidden,
		    mc_dtype_bytes((enum mc_dtype)args->dtype), &row_bytes) ||
		row_bytes > INT64_MAX)
		return mc_error(MOECOMM_TOO_LARGE, "%s: a row of %lld elements passes 2^63 bytes",
			name, (long long)args->hidden);
	*ret_row_bytes = row_bytes;
	return MOECOMM_OK;
}

static enum moecomm_status is_null(const char *name, const char *field, uint64_t rows)
{
	return mc_error(MOECOMM_INVALID, "%s: %s is NULL, but it has %llu rows", name, field,
		(unsigned long long)rows);
}

static enum moecomm_status check_pointers(const struct moecomm_group *group, const char *name,
	const struct moecomm_combine_args *args, const struct mc_rows *rows, bool fused)
{
	uint64_t mine = rows->rows[group->rank];

	if (!args->input && rows->total)
		return is_null(name, "input", rows->total);
	if (!args->output && mine)
		return is_null(name, "output", mine);
	if (!fused) {
		if (args->residual || args->residual_output || args->gamma || args->eps != 0.0f)
			return mc_error(MOECOMM_INVALID,
				"%s: residual, residual_output, gamma and eps belong to "
				"moecomm_combine_rmsnorm",
				name);
		return MOECOMM_OK;
	}
	if (!args->residual && mine)
		return is_null(name, "residual", mine);
	if (!args->residual_output && mine)
		return is_null(name, "residual_output", mine);
	/* also without rows: it has hidden elements whatever the rows, and tells the kind of op */
	if (!args->gamma)
		return mc_error(
			MOECOMM_INVALID, "%s: gamma is NULL: every rank has to give it", name);
	if (!isfinite(args->eps) || args->eps < 0.0f)
		return mc_error(MOECOMM_INVALID, "%s: eps is %g: it must be finite and at least 0",
			name, (double)args->eps);
	return MOECOMM_OK;
}

static enum moecomm_status combine(moecomm_group *group, const char *name,
	const struct moecomm_combine_args *args, bool fused, void *stream)
{
	struct mc_backend_error error;
	enum moecomm_status status;
	uint64_t row_bytes = 0;
	struct mc_combine op;
	struct mc_fault fault;
	struct mc_rows rows;
	uint32_t channel;
	int outcome;

	if (!args)
		return mc_error(MOECOMM_INVALID, "%s: args is NULL", name);
	status = mc_op_check(group, name, args, args->size, sizeof(*args), args->channel);
	if (status == MOECOMM_OK)
		status = check_elements(name, args, &row_bytes);
	if (status == MOECOMM_OK)
		status = mc_rows_check(
			group, name, args->rows, args->rows_per_rank, row_bytes, &rows);
	if (status == MOECOMM_OK)
		status = check_pointers(group, name, args, &rows, fused);
	if (status != MOECOMM_OK)
		return status;
	op = (struct mc_combine){
		.dtype = (enum mc_dtype)args->dtype,
		.hidden = (uint64_t)args->hidden,
		.input = args->input,
		.output = args->output,
		.counts = args->counts,
		.residual = args->residual,
		.residual_output = args->residual_output,
		.gamma = args->gamma,
		.eps = args->eps,
	};
	for (uint32_t r = 0; r < group->world_size; r++)
		op.rows[r] = rows.rows[r];
	op.digest = mc_combine_digest(&op, group->world_size);

	channel = (uint32_t)args->channel;
	status = mc_op_enter(group, name, channel);
	if (status != MOECOMM_OK)
		return status;
	error.text[0] = '\0';
	outcome = group->ops->combine(group->mapping, channel, &op, stream, &fault, &error);
	return mc_op_finish(group, channel, outcome, &fault, &error);
}

enum moecomm_status moecomm_combine(
	moecomm_group *group, const struct moecomm_combine_args *args, void *stream)
{
	return combine(group, "moecomm_combine", args, false, stream);
}

enum moecomm_status moecomm_combine_rmsnorm(
	moecomm_group *group, const struct moecomm_combine_args *args, void *stream)
{
	return combine(group, "moecomm_combine_rmsnorm", args, true, stream);
}
