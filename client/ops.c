/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ops.h"

#include "client/options.h"

enum moecomm_status mc_op_check(const struct moecomm_group *group, const char *op, const void *args,
	size_t size, size_t known, int channel)
{
	if (!mc_group_usable(group))
		return MOECOMM_INVALID;
	if (!mc_options_size_ok(args, size, known))
		return mc_error(MOECOMM_INVALID,
			"%s: args.size is %zu: start from the structure's _INIT macro", op, size);
	if (channel < 0 || (uint32_t)channel >= group->spec.n_channels)
		return mc_error(MOECOMM_INVALID, "%s: channel is %d: the group has %u (0 to %u)",
			op, channel, group->spec.n_channels, group->spec.n_channels - 1);
	return MOECOMM_OK;
}

enum moecomm_status mc_rows_check(const struct moecomm_group *group, const char *op, int64_t rows,
	const int64_t *rows_per_rank, uint64_t row_bytes, struct mc_rows *ret_rows)
{
	uint64_t capacity = mc_layout_capacity(&group->layout, row_bytes);
	uint64_t bytes;

	ret_rows->total = 0;
	for (uint32_t r = 0; r < group->world_size; r++) {
		int64_t n = rows_per_rank ? rows_per_rank[r] : rows;

		if (n < 0)
			return mc_error(MOECOMM_INVALID,
				"%s: rows of rank %u are %lld: they must be at least 0", op, r,
				(long long)n);
		if ((uint64_t)n > capacity)
			return mc_error(MOECOMM_TOO_LARGE,
				"%s: %lld rows of rank %u, of %llu bytes each, do not fit: the "
				"group's capacity is "
				"%llu rows of that size (max_rows and the row bytes at join decide "
				"it)",
				op, (long long)n, r, (unsigned long long)row_bytes,
				(unsigned long long)capacity);
		ret_rows->rows[r] = (uint32_t)n;
		ret_rows->total += (uint64_t)n;
	}
	/* offsets into tensors are 64-bit and signed in the callers' languages */
	if (__builtin_mul_overflow(ret_rows->total, row_bytes, &bytes) || bytes > INT64_MAX)
		return mc_error(MOECOMM_TOO_LARGE,
			"%s: a tensor of %llu rows of %llu bytes passes 2^63 bytes", op,
			(unsigned long long)ret_rows->total, (unsigned long long)row_bytes);
	return MOECOMM_OK;
}

enum moecomm_status mc_op_enter(struct moecomm_group *group, const char *op, uint32_t channel)
{
	if (atomic_exchange(&group->channel[channel].busy, true))
		return mc_error(MOECOMM_BUSY,
			"%s: another op runs on channel %u: one op at a time a channel, or use "
			"another channel",
			op, channel);
	/* a fault of an op on a stream is only known from the board; a host op meets it by itself
	 */
	if (group->backend == MOECOMM_BACKEND_CUDA && !atomic_load(&group->failed) &&
		__atomic_load_n(&group->board->wait.abort_word, __ATOMIC_RELAXED))
		mc_group_look_at_board(group, true);
	if (atomic_load(&group->failed)) {
		/* explained while the channel is held: who ends the group waits for that */
		enum moecomm_status status = mc_group_explain(group);

		mc_op_leave(group, channel);
		return status;
	}
	atomic_fetch_add_explicit(&group->channel[channel].calls, 1, memory_order_relaxed);
	return MOECOMM_OK;
}

void mc_op_leave(struct moecomm_group *group, uint32_t channel)
{
	atomic_store(&group->channel[channel].busy, false);
}

enum moecomm_status mc_op_finish(struct moecomm_group *group, uint32_t channel, int outcome,
	const struct mc_fault *fault, const struct mc_backend_error *error)
{
	enum moecomm_status status = MOECOMM_OK;

	/* explained while the channel is still held, so that the board stays mapped */
	if (outcome)
		status = mc_group_op_failed(group, fault, error->text);
	mc_op_leave(group, channel);
	return status;
}
