/* SPDX-License-Identifier: Apache-2.0 */
/* The control warp of a CTA: headers, turns, and the posts of CTA 0; see protocol.cuh. */
#ifndef MC_KERNELS_CUDA_CONTROL_CUH
#define MC_KERNELS_CUDA_CONTROL_CUH

#include "kernels/cuda/protocol.cuh"

__device__ __forceinline__ bool mc_control_intact(const struct mc_call &c, const struct mc_entry *e)
{
	struct mc_vector sentinel = mc_vector_of(e->sentinel);
	uint64_t epoch = mc_u64(e->head.z, e->head.w);

	return mc_u64(e->head.x, e->head.y) == MC_CANARY_HEAD &&
	       mc_u64(e->tail.x, e->tail.y) == MC_CANARY_TAIL &&
	       mc_u64(e->canary.x, e->canary.y) == MC_CANARY_HEAD + c.channel &&
	       e->identity.x == c.rank && e->identity.y == c.world_size &&
	       e->identity.w == mc_control_check(c.rank, c.world_size, epoch, &sentinel) &&
	       mc_call_number(e) != 0 && e->turn.x == e->channel.x && e->turn.y == e->channel.y;
}

/* For who leaves because of start.failed: a turn that is none is no failure of somebody else. */
__device__ __forceinline__ void mc_raise_bad_turn(
	const struct mc_call &c, const struct mc_start &start)
{
	if (threadIdx.x == 0 && start.call >> 63)
		mc_raise_plain(c, MC_FAULT_CORRUPT, c.rank, start.call);
}

/* base: mc_header_base of the digest and the rows. */
__device__ __forceinline__ uint4 mc_header_of(
	const struct mc_call &c, uint64_t call, uint32_t rows, uint32_t base)
{
	return make_uint4((uint32_t)call, c.digest, rows, mc_mix(base, (uint32_t)call));
}

__device__ __forceinline__ uint32_t mc_base_of(
	const struct mc_call &c, uint4 sentinel, uint32_t rows)
{
	const struct mc_vector s = mc_vector_of(sentinel);

	return mc_header_base(c.digest, rows, &s);
}

__device__ __forceinline__ void mc_push_header(
	const struct mc_call &c, const struct mc_start &start, uint8_t *slot, uint4 header)
{
	if (mc_same(header, start.sentinel))
		mc_raise_plain(c, MC_FAULT_SENTINEL, c.rank, start.call);
	mc_store(slot, header);
}

/*
 * Awaits rotated peer j's header and checks it. right: what it says when it fits exactly, known
 * before it comes, so that afterwards one comparison is enough. at_most: fewer rows than that fit
 * too. late(): as in mc_await. False: the op has failed.
 */
template <class Late>
__device__ __forceinline__ bool mc_await_header(const struct mc_call &c,
	const struct mc_start &start, const uint8_t *slot, uint32_t j, uint4 right, bool at_most,
	uint32_t *ret_rows, Late late)
{
	uint32_t peer = mc_peer(c, j);
	uint4 h[1];

	mc_keep(right);
	if (!mc_await(
		    c, start.call, start.sentinel, 1u, h, [&](int) { return slot; },
		    [&](int) { return peer; }, late))
		return false;
	*ret_rows = h[0].z;
	if (mc_same(h[0], right))
		return true;
	struct mc_vector sentinel = mc_vector_of(start.sentinel);

	if (h[0].w != mc_header_check(h[0].x, h[0].y, h[0].z, &sentinel)) {
		mc_raise_plain(c, MC_FAULT_CORRUPT, peer, start.call);
		return false;
	}
	if (h[0].x != right.x || h[0].y != right.y ||
		(at_most ? h[0].z > right.z : h[0].z != right.z)) {
		struct mc_sides sides = {
			{right.x, right.y, right.z}, {h[0].x, h[0].y, h[0].z}, 0, 0, 0};

		mc_raise(c, MC_FAULT_MISMATCH, peer, start.call, 0, sides, true);
		return false;
	}
	return true;
}

/*
 * The control warp's last post of a call in which any lane said that it waits; after the warp has
 * met, so that it is the one that stays. A call that fails leaves its waiting on the board.
 */
__device__ __forceinline__ void mc_end_wait(
	const struct mc_call &c, uint64_t call, uint32_t n_vectors, bool waited, bool ok)
{
	waited = __any_sync(0xffffffffu, waited);
	ok = __all_sync(0xffffffffu, ok);
	__syncwarp();
	if (waited && ok && threadIdx.x == 0)
		mc_post_progress(c, call, n_vectors, false);
}

/* This CTA's next call number; in CTA 0 also the others' that take no part. The whole warp. */
__device__ __forceinline__ void mc_next_turn(const struct mc_call &c, uint64_t call)
{
	const uint4 next = make_uint4((uint32_t)(call + 1u), (uint32_t)((call + 1u) >> 32), 0, 0);

	if (threadIdx.x == 0)
		*(uint4 *)mc_turn(c, blockIdx.x) = next;
	if (blockIdx.x == 0)
		for (uint32_t i = gridDim.x + threadIdx.x; i < c.n_turns; i += MC_WARP)
			*(uint4 *)mc_turn(c, i) = next;
}

/* The control block's own, with the ticket back at 0. One thread of the grid. */
__device__ __forceinline__ void mc_next_call(const struct mc_call &c, uint64_t call)
{
	*(uint4 *)&c.control->channel[c.channel] =
		make_uint4((uint32_t)(call + 1u), (uint32_t)((call + 1u) >> 32), 0, 0);
}

/* mc_base_of what this lane's first peer is told and must say. */
struct mc_bases {
	uint32_t send;
	uint32_t want;
};

__device__ __forceinline__ struct mc_bases mc_bases_of(
	const struct mc_call &c, uint4 sentinel, uint32_t send, uint32_t want)
{
	struct mc_bases bases = {mc_base_of(c, sentinel, send), mc_base_of(c, sentinel, want)};

	mc_keep(bases.send, bases.want);
	return bases;
}

/*
 * The control warp of an op whose receivers know the rows: send(j) and want(j) are the rows that go
 * in the header for rotated peer j and that its header must say, bases those of this lane's number;
 * slot(j) is this rank's slot there, segment 0. MANY: more peers than lanes. *entry is in shared
 * memory by the time that entry_ready() returns, which is called once the headers are away.
 * own_start: the data warps use mc_fetch_start.
 */
template <bool MANY, class Slot, class Send, class Want, class Ready>
__device__ __forceinline__ void mc_control_exact(const struct mc_call &c,
	const struct mc_start &start, struct mc_bases bases, const struct mc_entry *entry,
	uint32_t n_vectors, Slot slot, Send send, Want want, Ready entry_ready,
	bool own_start = false)
{
	const uint32_t lane = threadIdx.x, n_peers = c.world_size - 1u;
	const uint64_t call = start.call;
	const uint64_t segment = (call % MC_SEGMENTS) * c.segment_stride;

#ifndef MC_LAB_BARE
	auto tell = [&](uint32_t j, uint32_t base) {
		mc_push_header(c, start, slot(j) + segment, mc_header_of(c, call, send(j), base));
	};

	if (blockIdx.x == 0) {
		if (lane < n_peers)
			tell(lane, bases.send);
		if (MANY)
			for (uint32_t j = lane + MC_WARP; j < n_peers; j += MC_WARP)
				tell(j, mc_base_of(c, start.sentinel, send(j)));
	}
#endif
	entry_ready();
	if (own_start)
		mc_barrier(MC_BARRIER_TURN, blockDim.x);
	mc_next_turn(c, call);
	if (blockIdx.x != 0)
		return;
	if (lane == 0)
		mc_next_call(c, call);
#ifndef MC_LAB_BARE
	bool ok = true, waited = false;

	auto hear = [&](uint32_t j, uint32_t base) {
		uint8_t *mine = c.ring + segment + j * c.slot_stride;
		uint32_t rows;

		ok = mc_await_header(c, start, mine, j, mc_header_of(c, call, want(j), base), false,
			&rows, [&]() {
				waited = true;
				mc_post_progress(c, call, n_vectors, true);
			});
		if (ok)
			mc_store(mine, start.sentinel);
	};

	if (lane == 0) {
		if (mc_is_heartbeat(call))
			mc_post_progress(c, call, n_vectors, false);
		if (!mc_control_intact(c, entry))
			mc_raise_plain(c, MC_FAULT_CORRUPT, c.rank, call);
	}
	if (lane < n_peers)
		hear(lane, bases.want);
	if (MANY)
		for (uint32_t j = lane + MC_WARP; ok && j < n_peers; j += MC_WARP)
			hear(j, mc_base_of(c, start.sentinel, want(j)));
	mc_end_wait(c, call, n_vectors, waited, ok);
#endif
}

#endif
