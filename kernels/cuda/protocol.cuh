/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of the protocol on the device, apart from the data: enter, headers, waiting, failing,
 * leaving. See kernels/lamport.h for why it is right.
 *
 * Every CTA has one control warp (warp 0) and data warps. The control warp fetches the control
 * block for all and sets the CTA's next call number; in CTA 0 it also sends the headers, posts
 * progress and checks the peers' headers. So none of that stands in the way of the data, which
 * flows at the same time: with exact rows the data warps never wait for a header, since one that
 * does not fit fails the op, whose outputs are then undefined.
 *
 * The call number is kept once a CTA (mc_cuda_turn), because telling the others "I have read it" by
 * an atomic ticket costs an op of several CTAs 0.3 us. Only counted dispatch takes tickets: all its
 * CTAs read the headers, and the last one re-arms them. A relaxed atomic does there: the headers
 * were consumed before it was issued (the GPU does not speculate; of a second look that is still
 * under way nobody takes the result), and what the last CTA writes is read by later kernels only,
 * which stream order brings.
 */
#ifndef MC_KERNELS_CUDA_PROTOCOL_CUH
#define MC_KERNELS_CUDA_PROTOCOL_CUH

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/vector.cuh"

#define MC_WARP           32u
#define MC_FAULT_NOBODY_D 0xffffffffu
/* Deadlines that stand while the board says 0; a wait without an end is never meant. */
#define MC_DEFAULT_TIMEOUT_MS        10000u
#define MC_DEFAULT_WARMUP_TIMEOUT_MS 120000u

/* Barrier numbers; 0 is __syncthreads. */
#define MC_BARRIER_DATA  1
#define MC_BARRIER_PEERS 2
#define MC_BARRIER_TURN  3

/* What all ops hand their kernel. */
struct mc_call {
	struct mc_control *control;
	struct mc_board *board;
	uint8_t *ring; /* this rank's arena, segment 0 of the channel: the slot of rotated peer 0 */
	uint64_t slot_stride;
	uint64_t segment_stride;
	uint32_t rank;
	uint32_t world_size;
	uint32_t channel;
	uint32_t op;
	uint32_t digest;
	uint32_t n_vectors; /* for the progress post */
	uint32_t n_turns;
	uint32_t early_launch;
};

/* What the control warp fetches, a lane a vector; and where it lies in shared memory. */
enum {
	MC_ENTRY_SENTINEL,
	MC_ENTRY_IDENTITY, /* rank, world size, failed, check */
	MC_ENTRY_TURN,     /* call number, as this CTA knows it */
	MC_ENTRY_HEAD,     /* canary, epoch */
	MC_ENTRY_CANARY,   /* of the channel */
	MC_ENTRY_TAIL,
	MC_ENTRY_CHANNEL, /* call number, as the control block says it */
	MC_ENTRY_VECTORS,
};

struct mc_entry {
	uint4 vector[MC_ENTRY_VECTORS];
};

__device__ __forceinline__ uint64_t mc_u64(uint32_t low, uint32_t high)
{
	return (uint64_t)high << 32 | low;
}

/*
 * Before the first look at anything an earlier kernel may have written. The successor is let in
 * only after that: were it before, the successor's successor could come in as well, and so on,
 * until waiting grids fill the device and a rank beside this one finds no room.
 */
__device__ __forceinline__ void mc_wait_predecessor(const struct mc_call &c)
{
#if __CUDA_ARCH__ >= 900
	if (c.early_launch) {
		mc_grid_wait();
		mc_grid_launch_dependents();
	}
#endif
}

/* ---- entering ---- */

/*
 * A store to host memory costs a kernel that has little else to do 0.7 us at its end, so progress
 * is posted rarely: every MC_CUDA_POST_CALLS calls, in the first call of an epoch, and when the
 * control warp really waits for a header (is_waiting), again when it no longer does.
 */
static __device__ __noinline__ void mc_post_progress(
	const struct mc_call &c, uint64_t call, uint32_t n_vectors, bool is_waiting)
{
	const uint32_t left = is_waiting ? 0u : 1u;
	uint4 v;

	v.x = (uint32_t)call;
	v.y = c.op | left << 8;
	v.z = n_vectors;
	v.w = (uint32_t)(mc_now_ns() / 1000000u);
	mc_store(&c.board->rank[c.rank].progress[c.channel], v);
}

__device__ __forceinline__ bool mc_is_heartbeat(uint64_t call)
{
	return call == 1u || call % MC_CUDA_POST_CALLS == 0;
}

__device__ __forceinline__ struct mc_cuda_turn *mc_turn(const struct mc_call &c, uint32_t cta)
{
	return (struct mc_cuda_turn *)((uint8_t *)c.control + MC_CUDA_TURNS_OFFSET) +
	       c.channel * MC_CUDA_MAX_CTAS + cta;
}

/*
 * What nobody writes in an epoch may be read before mc_wait_predecessor, and so be there when the
 * rest comes.
 */
__device__ __forceinline__ uint4 mc_fetch_sentinel(const struct mc_call &c)
{
	return mc_load_own((const uint8_t *)c.control + offsetof(struct mc_control, sentinel));
}

/*
 * The control warp's loads, all at once; all threads meet before anybody uses *entry. Ordinary
 * loads: what they read was written before this kernel began, or by nobody else.
 */
__device__ __forceinline__ const uint8_t *mc_entry_source(const struct mc_call &c)
{
	const uint32_t lane = threadIdx.x;
	const uint8_t *control = (const uint8_t *)c.control;
	const uint8_t *channel = control + offsetof(struct mc_control, channel) +
				 c.channel * sizeof(struct mc_control_channel);
	const uint8_t *at = control + offsetof(struct mc_control, sentinel);

	at = lane == MC_ENTRY_IDENTITY ? control + offsetof(struct mc_control, rank) : at;
	at = lane == MC_ENTRY_TURN ? (const uint8_t *)mc_turn(c, blockIdx.x) : at;
	at = lane == MC_ENTRY_HEAD ? control : at;
	at = lane == MC_ENTRY_CANARY ? channel + MC_VECTOR_BYTES : at;
	at = lane == MC_ENTRY_TAIL ? control + offsetof(struct mc_control, canary_tail) : at;
	at = lane == MC_ENTRY_CHANNEL ? channel : at;
	return at;
}

__device__ __forceinline__ void mc_fill_entry(struct mc_entry *entry, uint4 part)
{
	if (threadIdx.x < MC_ENTRY_VECTORS)
		entry->vector[threadIdx.x] = part;
}

__device__ __forceinline__ void mc_fetch_entry(const struct mc_call &c, struct mc_entry *entry)
{
	mc_fill_entry(entry, mc_load_own(mc_entry_source(c)));
}

__device__ __forceinline__ uint64_t mc_call_number(const struct mc_entry *entry)
{
	const uint4 turn = entry->vector[MC_ENTRY_TURN];

	return mc_u64(turn.x, turn.y);
}

/* What an op goes by. */
struct mc_start {
	uint4 sentinel;
	uint64_t call;
	bool failed;
};

/* Where it stands, for those who fetch it themselves. */
struct mc_start_source {
	const uint8_t *turn;
	const uint8_t *identity;
};

__device__ __forceinline__ struct mc_start_source mc_start_source_of(const struct mc_call &c)
{
	struct mc_start_source source;

	source.turn = (const uint8_t *)mc_turn(c, blockIdx.x);
	source.identity = (const uint8_t *)c.control + offsetof(struct mc_control, rank);
	mc_keep(source.turn, source.identity);
	return source;
}

/*
 * For warps that need not act as one: each fetches it for itself, which spares the way through
 * shared memory. The control warp may set the next turn once all have arrived here; warps can see
 * the failed flag differently.
 */
__device__ __forceinline__ struct mc_start mc_fetch_start(
	const struct mc_start_source &source, uint4 sentinel)
{
	const uint4 turn = mc_load_own(source.turn);
	const uint4 identity = mc_load_own(source.identity);
	struct mc_start start;

	start.sentinel = sentinel;
	start.call = mc_u64(turn.x, turn.y);
	/*
	 * No call has such a number. It makes whoever looks wait for both loads at once: else the
	 * compiler issues one only when it has seen the other.
	 */
	start.failed = (identity.z | (turn.y & 0x80000000u)) != 0;
	return start;
}

/* The same of what is in shared memory. */
__device__ __forceinline__ bool mc_is_over(const struct mc_entry *entry)
{
	return (entry->vector[MC_ENTRY_IDENTITY].z |
		       (entry->vector[MC_ENTRY_TURN].y & 0x80000000u)) != 0;
}

__device__ __forceinline__ struct mc_start mc_start_of(const struct mc_entry *entry)
{
	struct mc_start start;

	start.sentinel = entry->vector[MC_ENTRY_SENTINEL];
	start.call = mc_call_number(entry);
	start.failed = mc_is_over(entry);
	return start;
}

/* The call number is an operand so that it has been loaded by then. */
__device__ __forceinline__ void mc_arrive_start(const struct mc_start &start)
{
	mc_barrier_arrive_with(MC_BARRIER_TURN, blockDim.x, start.call);
}

/* ---- failing ---- */

struct mc_sides {
	uint32_t mine[3];
	uint32_t theirs[3];
	uint32_t by; /* as in struct mc_fault; then the op and channel are told too: */
	uint32_t op;
	uint32_t channel;
};

/*
 * The first failure of an epoch is recorded: flag, record with the status last, abort word. The
 * word is a plain store: atomics on host memory need not exist, and whichever status of several
 * that come at once stands there in the end, it ends the epoch.
 */
static __device__ __noinline__ void mc_raise(const struct mc_call &c, uint32_t status,
	uint32_t peer, uint64_t call, uint64_t waited_ns, struct mc_sides sides, bool tell)
{
	struct mc_fault *place = &c.board->rank[c.rank].fault;

	if (atomicCAS(&c.control->failed, 0u, status) != 0u)
		return;
	mc_store_word(&place->op, sides.by ? sides.op : c.op);
	mc_store_word(&place->channel, sides.by ? sides.channel : c.channel);
	mc_store_word(&place->peer, peer);
	mc_store_word(&place->call, (uint32_t)call);
	mc_store_word((uint32_t *)&place->call + 1, (uint32_t)(call >> 32));
	mc_store_word(&place->waited_ns, (uint32_t)waited_ns);
	mc_store_word((uint32_t *)&place->waited_ns + 1, (uint32_t)(waited_ns >> 32));
	for (uint32_t i = 0; i < 3; i++) {
		mc_store_word(&place->mine[i], sides.mine[i]);
		mc_store_word(&place->theirs[i], sides.theirs[i]);
	}
	mc_store_word(&place->segment, (uint32_t)(call % MC_SEGMENTS));
	mc_store_word(&place->by, sides.by);
	__threadfence_system();
	mc_store_word(&place->status, status);
	__threadfence_system();
	if (tell && mc_load_word(&c.board->wait.abort_word) == 0)
		mc_store_word(&c.board->wait.abort_word, mc_abort_word(status, c.rank + 1u));
}

static __device__ __noinline__ void mc_raise_plain(
	const struct mc_call &c, uint32_t status, uint32_t peer, uint64_t call)
{
	struct mc_sides none = {{0, 0, 0}, {0, 0, 0}, 0, 0, 0};

	mc_raise(c, status, peer, call, 0, none, true);
}

/*
 * The wait was ended by the abort word. The record takes over what the reporter found, all of it,
 * so that every rank tells the same story; only of a death, which the daemon reports, does each
 * rank tell in which call it met it.
 */
static __device__ __noinline__ void mc_adopt(
	const struct mc_call &c, uint32_t word, uint64_t call, uint64_t waited_ns)
{
	uint32_t status = mc_abort_status(word), reporter = mc_abort_reporter(word);
	uint32_t peer = MC_FAULT_NOBODY_D;
	struct mc_sides sides = {{0, 0, 0}, {0, 0, 0}, 0, 0, 0};

	if (!mc_fault_is_known(status))
		status = MC_FAULT_ABORTED; /* not a status that may stand there */
	if (reporter >= 1 && reporter <= c.world_size) {
		const struct mc_fault *theirs = &c.board->rank[reporter - 1u].fault;
		bool shared = status == MC_FAULT_PEER_LOST || status == MC_FAULT_TIMEOUT ||
			      status == MC_FAULT_MISMATCH || status == MC_FAULT_SENTINEL ||
			      status == MC_FAULT_CORRUPT;

		peer = reporter - 1u;
		if (shared && mc_load_word(&theirs->status) == status) {
			uint32_t culprit = mc_load_word(&theirs->peer);
			bool swap = status == MC_FAULT_MISMATCH && culprit == c.rank &&
				    reporter - 1u != c.rank;

			__threadfence_system();
			if (!swap)
				peer = culprit < c.world_size ? culprit : MC_FAULT_NOBODY_D;
			if (!swap && status != MC_FAULT_PEER_LOST) {
				sides.by = reporter;
				sides.op = mc_load_word(&theirs->op);
				sides.channel = mc_load_word(&theirs->channel);
				call = mc_load_word(&theirs->call) |
				       (uint64_t)mc_load_word((const uint32_t *)&theirs->call + 1)
					       << 32;
			}
			for (uint32_t i = 0; i < 3; i++) {
				uint32_t m = mc_load_word(&theirs->mine[i]);
				uint32_t t = mc_load_word(&theirs->theirs[i]);

				/* a mismatch with us, seen from this side */
				sides.mine[i] = swap ? t : m;
				sides.theirs[i] = swap ? m : t;
			}
		}
		if (status == MC_FAULT_BAD_COUNT)
			status = MC_FAULT_ABORTED; /* that rank's argument was wrong, not ours */
	}
	mc_raise(c, status, peer, call, waited_ns, sides, false);
}

/*
 * The look of a waiting thread every MC_SPINS_PER_CHECK spins. begin_ns: what the last look
 * returned, 0 at first. Returns 0 when the op must be left; what ended it has been recorded.
 */
static __device__ __noinline__ uint64_t mc_look(
	const struct mc_call &c, uint64_t call, uint32_t peer, uint64_t begin_ns)
{
	uint4 line = mc_load(&c.board->wait); /* abort word, steady, warm-up, warm-up calls */
	uint64_t now = mc_now_ns(), limit_ms;

	if (begin_ns == 0)
		begin_ns = now;
	if (line.x != 0) {
		mc_adopt(c, line.x, call, now - begin_ns);
		return 0;
	}
	if (mc_load_word(&c.control->failed) != 0)
		return 0; /* another channel's op failed, or the library ended the epoch */
	if (call <= line.w)
		limit_ms = line.z ? line.z : MC_DEFAULT_WARMUP_TIMEOUT_MS;
	else
		limit_ms = line.y ? line.y : MC_DEFAULT_TIMEOUT_MS;
	if (now - begin_ns >= limit_ms * 1000000u) {
		struct mc_sides sides = {{(uint32_t)call, c.digest, 0}, {0, 0, 0}, 0, 0, 0};

		/*
		 * How far the awaited rank has come tells a skipped op from a stall. Its posts are
		 * rare, but it has been in the call before this one: we took its header there.
		 */
		sides.theirs[0] = mc_load_word(&c.board->rank[peer].progress[c.channel].call);
		if ((int32_t)(sides.theirs[0] - (uint32_t)call) < -1)
			sides.theirs[0] = (uint32_t)call - 1u;
		mc_raise(c, MC_FAULT_TIMEOUT, peer, call, now - begin_ns, sides, true);
		return 0;
	}
	return begin_ns;
}

/* ---- waiting ---- */

/* What a waiting thread remembers. */
struct mc_patience {
	uint32_t spins;
	uint64_t begin_ns;
};

/* After a look in vain. late(): before the first mc_look. False: the op must be left. */
template <class Late>
__device__ __forceinline__ bool mc_goes_on(const struct mc_call &c, uint64_t call, uint32_t peer,
	struct mc_patience *patience, Late late)
{
	if (++patience->spins != MC_SPINS_PER_CHECK)
		return true;
	if (patience->begin_ns == 0)
		late();
	patience->begin_ns = mc_look(c, call, peer, patience->begin_ns);
	patience->spins = 0;
	return patience->begin_ns != 0;
}

/*
 * Waits until none of N vectors is EMPTY; v holds a first look at each. valid: one bit each. at(n):
 * where; peer(n): whose; late(): before the first mc_look, when the wait has proved to be one.
 * TWICE: one vector has two loads under way, by turns, so that a look which just missed it does not
 * cost the time of a whole load; not for grids so large that looking would keep the memory busy.
 * False: the op must be left.
 */
template <bool TWICE, int N, class At, class Peer, class Late>
__device__ __forceinline__ bool mc_await_more(const struct mc_call &c, uint64_t call,
	uint4 sentinel, uint32_t valid, uint4 (&v)[N], At at, Peer peer, Late late)
{
	struct mc_patience patience = {0, 0};

	if constexpr (TWICE && N == 1) {
		if (!(valid & 1u) || !mc_same(v[0], sentinel))
			return true;
		for (uint4 other = mc_load(at(0));;) {
			v[0] = mc_load(at(0));
			if (!mc_same(other, sentinel)) {
				v[0] = other;
				return true;
			}
			other = mc_load(at(0));
			if (!mc_same(v[0], sentinel))
				return true;
			if (!mc_goes_on(c, call, peer(0), &patience, late))
				return false;
		}
	} else {
		for (;;) {
			int missing = -1;

#pragma unroll
			for (int n = 0; n < N; n++)
				if ((valid >> n & 1u) && mc_same(v[n], sentinel)) {
					v[n] = mc_load(at(n));
					missing = n;
				}
			if (missing < 0)
				return true;
			if (!mc_goes_on(c, call, peer(missing), &patience, late))
				return false;
		}
	}
}

/* The same from the first look on; all N are in flight together. */
template <bool TWICE = false, int N, class At, class Peer>
__device__ __forceinline__ bool mc_await(const struct mc_call &c, uint64_t call, uint4 sentinel,
	uint32_t valid, uint4 (&v)[N], At at, Peer peer)
{
#pragma unroll
	for (int n = 0; n < N; n++)
		if (valid >> n & 1u)
			v[n] = mc_load(at(n));
	return mc_await_more<TWICE>(c, call, sentinel, valid, v, at, peer, []() {});
}

/* The rank behind rotated place j: 0 is the rank after this one. */
__device__ __forceinline__ uint32_t mc_peer(const struct mc_call &c, uint32_t j)
{
	uint32_t p = c.rank + 1u + j;

	return p >= c.world_size ? p - c.world_size : p;
}

#endif
