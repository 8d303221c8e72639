/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "kernels/host/host.h"

int mc_host_mask_ids(const struct mc_mask_ids *op)
{
	uint64_t row_bytes = op->topk * sizeof(int32_t);
	int32_t count;

	/* it may have any alignment, like every pointer of an op */
	memcpy(&count, op->count, sizeof(count));
	if (count < 0 || (uint64_t)count > op->rows)
		return MC_FAULT_BAD_COUNT;
	/* all bits set is -1 in every int32; byte-wise, so ids may have any alignment */
	if ((uint64_t)count < op->rows)
		memset((uint8_t *)op->ids + (uint64_t)count * row_bytes, 0xff,
			(op->rows - (uint64_t)count) * row_bytes);
	return MC_FAULT_NONE;
}
