/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Op digests. What goes in is what sender and receiver must agree on to make sense of each other's
 * bytes; pointers and eps stay out, because they may differ. Rows go in as the list of all ranks,
 * so the uniform form and a list of equal numbers are the same op.
 */
#include "kernels/launch.h"

/* Form of the rows: exact on the host, or maxima with a device-side count. */
enum {
	FORM_EXACT = 0,
	FORM_COUNTED = 1,
};

static uint32_t mix_rows(uint32_t h, const uint32_t *rows, uint32_t world_size)
{
	h = mc_mix(h, world_size);
	for (uint32_t r = 0; r < world_size; r++)
		h = mc_mix(h, rows[r]);
	return h;
}

/* All bits of the hash depend on all inputs (public-domain murmur3 finaliser). */
static uint32_t finish(uint32_t h)
{
	h ^= h >> 16;
	h *= 0x85ebca6bu;
	h ^= h >> 13;
	h *= 0xc2b2ae35u;
	return h ^ h >> 16;
}

uint32_t mc_dispatch_digest(const struct mc_dispatch *op, uint32_t world_size)
{
	uint32_t h = mc_mix(0x6d63u, MC_OP_DISPATCH);

	h = mc_mix(h, op->count ? FORM_COUNTED : FORM_EXACT);
	h = mc_mix(h, op->n_tensors);
	for (uint32_t i = 0; i < op->n_tensors; i++)
		h = mc_mix64(h, op->tensor[i].row_bytes);
	h = mc_mix(h, (uint32_t)op->ids_tensor);
	return finish(mix_rows(h, op->rows, world_size));
}

uint32_t mc_combine_digest(const struct mc_combine *op, uint32_t world_size)
{
	uint32_t kind = mc_combine_kind(op);
	uint32_t h = mc_mix(0x6d63u, kind);

	h = mc_mix(h, op->counts ? FORM_COUNTED : FORM_EXACT);
	h = mc_mix(h, op->dtype);
	h = mc_mix64(h, op->hidden);
	return finish(mix_rows(h, op->rows, world_size));
}
