/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ops.h"

static const char name[] = "moecomm_mask_expert_ids";

enum moecomm_status moecomm_mask_expert_ids(moecomm_group *group, int32_t *ids, int64_t rows,
	int64_t topk, const int32_t *count, void *stream)
{
	struct mc_backend_error error = {""};
	struct mc_mask_ids op;
	uint64_t n;
	int outcome;

	if (!mc_group_usable(group))
		return MOECOMM_INVALID;
	if (rows < 0)
		return mc_error(MOECOMM_INVALID, "%s: rows is %lld: it must be at least 0", name,
			(long long)rows);
	if (topk < 1)
		return mc_error(MOECOMM_INVALID, "%s: topk is %lld: it must be at least 1", name,
			(long long)topk);
	if (__builtin_mul_overflow((uint64_t)rows, (uint64_t)topk, &n) ||
		n > INT64_MAX / sizeof(int32_t))
		return mc_error(MOECOMM_TOO_LARGE, "%s: ids of %lld rows of %lld pass 2^63 bytes",
			name, (long long)rows, (long long)topk);
	if (!count)
		return mc_error(MOECOMM_INVALID, "%s: count is NULL", name);
	if (!ids && n)
		return mc_error(MOECOMM_INVALID, "%s: ids is NULL", name);
	/* local: needs neither a channel nor a living epoch */
	op = (struct mc_mask_ids){
		.ids = ids, .rows = (uint64_t)rows, .topk = (uint64_t)topk, .count = count};
	outcome = group->ops->mask_ids(group->mapping, &op, stream, &error);
	if (outcome == MC_FAULT_BAD_COUNT)
		return mc_error(MOECOMM_INVALID, "%s: *count is negative or above %lld rows", name,
			(long long)rows);
	if (outcome)
		return mc_error((enum moecomm_status)outcome, "%s: %s", name,
			error.text[0] ? error.text
				      : moecomm_status_text((enum moecomm_status)outcome));
	return MOECOMM_OK;
}
