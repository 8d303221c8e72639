/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of a world by kernels/cuda, compiled for the CPU: emulator/emulator.h. */
#include <stdatomic.h>
#include <mutex>
#include <string.h>

extern "C" {
#include "unit/kernels/world.h"
}

extern "C" const bool world_is_cuda = true;

static const struct mc_cuda_device *the_device()
{
	static struct mc_cuda_device device;
	static std::once_flag once;

	std::call_once(once, []() { mc_cuda_load(&device); });
	return &device;
}

/*
 * A rank of its next call. Every rank may have another grid in every call: so they do here, by the
 * call's number, and all shapes are tried with all ops.
 */
static struct mc_cuda_rank rank_of(const struct world *world, uint32_t rank, uint32_t channel)
{
	static const uint32_t warps[] = {0, 1, 2, 5}, ctas[] = {0, 1, 2, 5, 0},
			      clusters[] = {0, 8, 4, 2, 8, 2, 1};
	const struct mc_host_rank *host = &world->rank[rank];
	const uint64_t n = host->control->channel[channel].call + rank;
	struct mc_cuda_rank cuda = {};

	cuda.rank = rank;
	cuda.layout = host->layout;
	memcpy(cuda.arena, host->arena, sizeof(cuda.arena));
	cuda.control = host->control;
	cuda.board = host->board;
	cuda.device = the_device();
	cuda.ranks_per_device = 1;
	cuda.early_launch = MC_CUDA_EARLY_AUTO;
	cuda.tuning.data_warps = warps[n % 4];
	cuda.tuning.max_ctas = ctas[n % 5];
	cuda.tuning.cluster = clusters[n % 7];
	return cuda;
}

/* As the client does it: a launch that fails is a device's fault; the rest stands on the board. */
static int outcome(const struct world *world, uint32_t rank, int error, uint32_t op,
	struct mc_fault *ret_fault)
{
	const uint32_t failed =
		__atomic_load_n(&world->rank[rank].control->failed, __ATOMIC_ACQUIRE);

	memset(ret_fault, 0, sizeof(*ret_fault));
	if (error) {
		ret_fault->status = MC_FAULT_DEVICE;
		ret_fault->op = op;
	} else if (failed) {
		*ret_fault = world->board->rank[rank].fault;
		/* the flag itself is damaged: what the host ops say then */
		ret_fault->status = mc_fault_is_known(failed) ? failed : MC_FAULT_CORRUPT;
	}
	return (int)ret_fault->status;
}

extern "C" int world_dispatch(struct world *world, uint32_t rank, uint32_t channel,
	struct mc_dispatch *op, struct mc_fault *ret_fault)
{
	const struct mc_cuda_rank cuda = rank_of(world, rank, channel);

	op->digest = mc_dispatch_digest(op, world->n);
	return outcome(
		world, rank, mc_cuda_dispatch(&cuda, channel, op, NULL), MC_OP_DISPATCH, ret_fault);
}

extern "C" int world_combine(struct world *world, uint32_t rank, uint32_t channel,
	struct mc_combine *op, struct mc_fault *ret_fault)
{
	const struct mc_cuda_rank cuda = rank_of(world, rank, channel);

	op->digest = mc_combine_digest(op, world->n);
	return outcome(world, rank, mc_cuda_combine(&cuda, channel, op, NULL), mc_combine_kind(op),
		ret_fault);
}

extern "C" int world_mask_ids(struct world *world, uint32_t rank, const struct mc_mask_ids *op)
{
	const struct mc_cuda_rank cuda = rank_of(world, rank, 0);
	struct mc_fault fault;

	return outcome(world, rank, mc_cuda_mask_ids(&cuda, op, NULL), MC_OP_NONE, &fault);
}

extern "C" int world_probe(struct world *world, uint32_t rank, uint32_t timeout_ms,
	uint8_t ret_result[MC_MAX_WORLD_SIZE])
{
	const struct mc_cuda_rank cuda = rank_of(world, rank, 0);
	int n = 0;

	memset(ret_result, 0, MC_MAX_WORLD_SIZE);
	if (mc_cuda_probe(&cuda, timeout_ms, ret_result, NULL))
		return -1;
	for (uint32_t p = 0; p < world->n; p++)
		n += ret_result[p] != MC_PROBE_OK;
	return n;
}
