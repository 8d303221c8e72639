/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of a world by kernels/host. */
#include "world.h"

const bool world_is_cuda = false;

int world_dispatch(struct world *world, uint32_t rank, uint32_t channel, struct mc_dispatch *op,
	struct mc_fault *ret_fault)
{
	op->digest = mc_dispatch_digest(op, world->n);
	return mc_host_dispatch(&world->rank[rank], channel, op, ret_fault);
}

int world_combine(struct world *world, uint32_t rank, uint32_t channel, struct mc_combine *op,
	struct mc_fault *ret_fault)
{
	op->digest = mc_combine_digest(op, world->n);
	return mc_host_combine(&world->rank[rank], channel, op, ret_fault);
}

int world_mask_ids(struct world *world, uint32_t rank, const struct mc_mask_ids *op)
{
	(void)world;
	(void)rank;
	return mc_host_mask_ids(op);
}

int world_probe(struct world *world, uint32_t rank, uint32_t timeout_ms,
	uint8_t ret_result[MC_MAX_WORLD_SIZE])
{
	return mc_host_probe(&world->rank[rank], timeout_ms, ret_result);
}
