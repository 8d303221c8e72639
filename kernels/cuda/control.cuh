/* SPDX-License-Identifier: Apache-2.0 */
/* The control warp of a CTA: headers, turns, and the posts of CTA 0; see protocol.cuh. */
#ifndef MC_KERNELS_CUDA_CONTROL_CUH
#define MC_KERNELS_CUDA_CONTROL_CUH

#include "kernels/cuda/protocol.cuh"

static_assert(MC_CHECKED_SENTINEL == 4 * MC_ENTRY_SENTINEL, "a word's place is where it lies");
static_assert(MC_CHECKED_RANK == 4 * MC_ENTRY_IDENTITY, "a word's place is where it lies");
static_assert(MC_CHECKED_WORLD_SIZE == MC_CHECKED_RANK + 1, "a word's place is where it lies");
static_assert(MC_CHECKED_EPOCH == 4 * MC_ENTRY_HEAD + 2, "a word's place is where it lies");
static_assert(MC_CHECKED_EPOCH + 1 < 16, "checked words are in the first four vectors");

/*
 * Whether the control block is what it must be in this call. The whole warp; part: this lane's
 * vector of struct mc_entry. A checked word's place is 4 × its lane + its number there.
 */
__device__ __forceinline__ bool mc_control_intact(
	const struct mc_call &c, uint64_t call, uint4 part)
{
	const uint32_t lane = threadIdx.x;
	const uint32_t checked = 0xfu << MC_CHECKED_SENTINEL | 1u << MC_CHECKED_RANK |
				 1u << MC_CHECKED_WORLD_SIZE | 3u << MC_CHECKED_EPOCH;
	const uint32_t words = lane < 4u ? checked >> 4u * lane & 0xfu : 0u;
	uint64_t two = mc_u64(part.x, part.y), right = two;
	uint32_t check = 0;

	if (lane == MC_ENTRY_IDENTITY)
		right = mc_u64(c.rank, c.world_size);
	if (lane == MC_ENTRY_TURN || lane == MC_ENTRY_CHANNEL)
		right = call;
	if (lane == MC_ENTRY_HEAD)
		right = MC_CANARY_HEAD;
	if (lane == MC_ENTRY_CANARY)
		right = MC_CANARY_HEAD + c.channel;
	if (lane == MC_ENTRY_TAIL)
		right = MC_CANARY_TAIL;
	check ^= words & 1u ? mc_checked_word(4u * lane, part.x) : 0u;
	check ^= words & 2u ? mc_checked_word(4u * lane + 1u, part.y) : 0u;
	check ^= words & 4u ? mc_checked_word(4u * lane + 2u, part.z) : 0u;
	check ^= words & 8u ? mc_checked_word(4u * lane + 3u, part.w) : 0u;
	check = __reduce_xor_sync(0xffffffffu, check);
	return __all_sync(0xffffffffu,
		two == right && call != 0 && (lane != MC_ENTRY_IDENTITY || part.w == check));
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
 * Awaits rotated peer j's header and checks it. first: a first look at it. right: what it says when
 * it fits exactly, known before it comes, so that afterwards one comparison is enough. at_most:
 * fewer rows than that fit too. TWICE and late(): as in mc_await_more. False: the op has failed.
 */
template <bool TWICE, class Late>
__device__ __forceinline__ bool mc_await_header(const struct mc_call &c,
	const struct mc_start &start, const uint8_t *slot, uint32_t j, uint4 first, uint4 right,
	bool at_most, uint32_t *ret_rows, Late late)
{
	uint32_t peer = mc_peer(c, j);
	uint4 h[1] = {first};

	mc_keep(right);
	if (!mc_await_more<TWICE>(
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

__device__ __forceinline__ uint4 mc_turn_after(uint64_t call)
{
	return make_uint4((uint32_t)(call + 1u), (uint32_t)((call + 1u) >> 32), 0, 0);
}

/* This CTA's next call number. */
__device__ __forceinline__ void mc_next_turn(const struct mc_call &c, uint64_t call)
{
	if (threadIdx.x == 0)
		*(uint4 *)mc_turn(c, blockIdx.x) = mc_turn_after(call);
}

/* Those of the CTAs that take no part, by the warp of CTA 0. */
__device__ __forceinline__ void mc_next_turn_of_rest(const struct mc_call &c, uint64_t call)
{
	const uint4 next = mc_turn_after(call);

	for (uint32_t i = gridDim.x + threadIdx.x; i < c.n_turns; i += MC_WARP)
		*(uint4 *)mc_turn(c, i) = next;
}

/* The control block's own, with the ticket back at 0. One thread of the grid. */
__device__ __forceinline__ void mc_next_call(const struct mc_call &c, uint64_t call)
{
	*(uint4 *)&c.control->channel[c.channel] = mc_turn_after(call);
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
 * slot(j) is this rank's slot there, segment 0. MANY: more peers than lanes. part: as for
 * mc_control_intact. own_start: the data warps use mc_fetch_start.
 */
template <bool MANY, class Slot, class Send, class Want>
__device__ __forceinline__ void mc_control_exact(const struct mc_call &c,
	const struct mc_start &start, struct mc_bases bases, uint4 part, uint32_t n_vectors,
	Slot slot, Send send, Want want, bool own_start = false)
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
	if (own_start)
		mc_barrier(MC_BARRIER_TURN, blockDim.x);
	mc_next_turn(c, call);
	if (blockIdx.x != 0)
		return;
#ifndef MC_LAB_BARE
	auto place = [&](uint32_t j) { return c.ring + segment + j * c.slot_stride; };
	uint4 first = start.sentinel;
	bool ok = true, waited = false;

	/* what else there is to do has the time of a look at the header */
	if (lane < n_peers)
		first = mc_load(place(lane));
#endif
	mc_next_turn_of_rest(c, call);
	if (lane == 0)
		mc_next_call(c, call);
#ifndef MC_LAB_BARE
	auto hear = [&](uint32_t j, uint4 look, uint32_t base) {
		uint32_t rows;

		ok = mc_await_header<true>(c, start, place(j), j, look,
			mc_header_of(c, call, want(j), base), false, &rows, [&]() {
				waited = true;
				mc_post_progress(c, call, n_vectors, true);
			});
		if (ok)
			mc_store(place(j), start.sentinel);
	};

	if (!mc_control_intact(c, call, part) && lane == 0)
		mc_raise_plain(c, MC_FAULT_CORRUPT, c.rank, call);
	if (mc_is_heartbeat(call) && lane == 0)
		mc_post_progress(c, call, n_vectors, false);
	if (lane < n_peers)
		hear(lane, first, bases.want);
	if (MANY)
		for (uint32_t j = lane + MC_WARP; ok && j < n_peers; j += MC_WARP)
			hear(j, mc_load(place(j)), mc_base_of(c, start.sentinel, want(j)));
	mc_end_wait(c, call, n_vectors, waited, ok);
#endif
}

#endif
