/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data-plane protocol, stated once in plain C for the CUDA and the host ops.
 *
 * Every rank pushes its data straight into slots of its peers' arenas; the data is its own arrival
 * flag (a Lamport protocol). A vector (16 bytes) is EMPTY while it equals the epoch's sentinel, 128
 * random bits; anything else is data. Reading a vector puts the sentinel back (re-arm on read).
 *
 * Why two ring segments and no clearing pass are enough. Claim: when writer s pushes call k+2 into
 * slot (r, s), reader r has re-armed everything s wrote there in call k:
 *
 *   re-arm(r,k) -> end of op(r,k) -> push(r,k+1) -> s takes it -> end of op(s,k+1) -> push(s,k+2)
 *
 * The first and fourth arrows are program (stream) order; the middle ones hold because EVERY call
 * takes at least the header vector from EVERY peer, rows or no rows. tests/model proves it, and
 * proves that the neighbouring designs fail.
 *
 * This header holds what both sides must agree on: the shared structures, the header vector, the
 * op digest and the addressing. How a vector is loaded and stored belongs to the backend
 * (kernels/host/vector.h, kernels/cuda/vector.cuh).
 */
#ifndef MC_KERNELS_LAMPORT_H
#define MC_KERNELS_LAMPORT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define MC_BOTH __host__ __device__ static inline
#else
#define MC_BOTH static inline
#endif

#ifdef __cplusplus
#define MC_STATIC_ASSERT static_assert
#define MC_ALIGNAS(n)    alignas(n)
#else
#define MC_STATIC_ASSERT _Static_assert
#define MC_ALIGNAS(n)    __attribute__((aligned(n))) /* _Alignas may not follow `struct` */
#endif

/*
 * A host has 8 or 16 GPUs; 64 leaves room for several ranks a GPU and for the host backend. Row
 * offsets of all ranks travel as kernel arguments (4 KiB at most), which bounds it too.
 */
#define MC_MAX_WORLD_SIZE 64u
/* Independent rings of a group. Each costs a whole ring, so nobody wants many. */
#define MC_MAX_CHANNELS 8u
/* Tensors of one dispatch call (activations, scales, ids, weights and room for as many again). */
#define MC_MAX_TENSORS 8u
/* Ring segments; see the argument above. */
#define MC_SEGMENTS 2u
/* Unit of store, load and emptiness. */
#define MC_VECTOR_BYTES 16u
/* The header vector has a line of its own at the start of a slot, so that data stays aligned. */
#define MC_SLOT_HEADER_BYTES 128u
/* Join probe area of one (reader, writer) pair: 8 rounds of 32 vectors. */
#define MC_PROBE_ROUNDS  8u
#define MC_PROBE_VECTORS 32u
#define MC_PROBE_BYTES   (MC_PROBE_ROUNDS * MC_PROBE_VECTORS * MC_VECTOR_BYTES)
/* Rows a rank, per call: they travel as 32 bits in the header. */
#define MC_MAX_ROWS 0x7fffffffu
/* Spins between two looks at the wait line (abort word and deadlines) while a vector is EMPTY. */
#define MC_SPINS_PER_CHECK 1024u

/* One vector. */
struct MC_ALIGNAS(16) mc_vector {
	uint32_t word[4];
};
MC_STATIC_ASSERT(sizeof(struct mc_vector) == MC_VECTOR_BYTES, "a vector is 16 bytes");

/* Kinds of op; on the status board and in digests, so a number never changes. */
enum mc_op_kind {
	MC_OP_NONE = 0,
	MC_OP_DISPATCH = 1,
	MC_OP_COMBINE = 2,
	MC_OP_COMBINE_RMSNORM = 3,
};

/* Element types; in digests, so a number never changes. */
enum mc_dtype {
	MC_DTYPE_BF16 = 1,
	MC_DTYPE_FP16 = 2,
	MC_DTYPE_FP32 = 3,
};

/*
 * What ended an op. The numbers are those of enum moecomm_status (client/status.c asserts it).
 * MC_FAULT_NONE is 0.
 */
enum mc_fault_status {
	MC_FAULT_NONE = 0,
	MC_FAULT_BAD_COUNT = 1, /* a device-side count is negative or above its maximum (INVALID) */
	MC_FAULT_PEER_LOST = 13,
	MC_FAULT_TIMEOUT = 14,
	MC_FAULT_MISMATCH = 15,
	MC_FAULT_ABORTED = 16,
	MC_FAULT_STALE_EPOCH = 17,
	MC_FAULT_DEVICE = 18,
	MC_FAULT_SENTINEL = 19, /* a payload vector equals the epoch's sentinel */
	MC_FAULT_CORRUPT = 20,  /* a canary of the control block or a header's check is damaged */
};

/* A slot's first vector. Every op sends one to every peer. */
struct MC_ALIGNAS(16) mc_header {
	uint32_t call;   /* call number on the channel, low 32 bits */
	uint32_t digest; /* mc_digest of the op: all that sender and receiver must agree on */
	uint32_t rows;   /* valid rows that follow */
	uint32_t check;  /* mc_header_check of the above */
};
MC_STATIC_ASSERT(sizeof(struct mc_header) == MC_VECTOR_BYTES, "a header is one vector");

/* ---- the control block: rank r's own memory, only r maps it ---- */

#define MC_CANARY_HEAD 0x6d6f65636f6d6d01ull
#define MC_CANARY_TAIL 0x6d6f65636f6d6dfeull

struct MC_ALIGNAS(64) mc_control_channel {
	uint64_t call;   /* number of the next call; 1 in a fresh epoch */
	uint32_t ticket; /* CTAs that have finished the current call */
	uint32_t reserved;
	uint64_t canary; /* MC_CANARY_HEAD + channel */
};

struct MC_ALIGNAS(128) mc_control {
	uint64_t canary_head;
	uint64_t epoch;
	struct mc_vector sentinel;
	uint32_t rank;
	uint32_t world_size;
	uint32_t failed; /* enum mc_fault_status; once set every later op of the epoch returns it */
	uint32_t check;  /* mc_control_check of what never changes in an epoch */
	struct mc_control_channel channel[MC_MAX_CHANNELS];
	uint64_t canary_tail;
};
MC_STATIC_ASSERT(offsetof(struct mc_control, sentinel) == 16, "fixed offsets whatever the shapes");
MC_STATIC_ASSERT(offsetof(struct mc_control, channel) == 64, "fixed offsets whatever the shapes");
/* A control block gets a page-sized allocation of its own; backends round up as they must. */
#define MC_CONTROL_BYTES 4096u
MC_STATIC_ASSERT(sizeof(struct mc_control) <= MC_CONTROL_BYTES, "the control block fits its page");

/* ---- the status board: one page set of host memory a group epoch, mapped by all members ---- */

/*
 * What a waiting op looks at every MC_SPINS_PER_CHECK spins; one 16-byte load. abort_word is 0 or
 * (enum mc_fault_status | (reporting rank + 1) << 8); a reporter of 0 is the daemon or an operator.
 * The deadlines stand here, not in kernel arguments, so that they can change at run time.
 */
struct MC_ALIGNAS(16) mc_wait_line {
	uint32_t abort_word;
	uint32_t op_timeout_ms;     /* steady deadline of one call */
	uint32_t warmup_timeout_ms; /* deadline of the first warmup_calls calls of a channel */
	uint32_t warmup_calls;
};
MC_STATIC_ASSERT(sizeof(struct mc_wait_line) == MC_VECTOR_BYTES, "one load reads the wait line");

/*
 * Where a rank is on a channel. The host backend posts when it enters a call and when it leaves it.
 * The cuda backend posts rarely: in the first call of an epoch and every 16th one with left = 1,
 * and when a call has waited for a header for MC_SPINS_PER_CHECK spins (about a millisecond) with
 * left = 0, followed by left = 1 once the headers are there. So there left = 0 means "waits for a
 * peer", left = 1 "was in this call at least", and the true number can be later than the posted
 * one; but a rank that any peer has seen enter call k has itself entered call k - 1, because k - 1
 * can't end without its header. A call that fails while it waits stays with left = 0. A rank that
 * leaves in order posts its last call.
 */
struct MC_ALIGNAS(16) mc_progress {
	uint32_t call; /* call number, low 32 bits */
	uint8_t op;    /* enum mc_op_kind */
	uint8_t left;  /* host: 1: the call has ended; cuda: 1: it is not known to wait */
	uint16_t reserved;
	uint32_t n_vectors; /* vectors this rank pushes in this call, to all peers together */
	uint32_t time_ms;   /* unix time in ms, low 32 bits, by the poster's clock */
};
MC_STATIC_ASSERT(sizeof(struct mc_progress) == MC_VECTOR_BYTES, "progress is posted as one vector");

/* How an op failed; written by the rank it failed on, status last. */
struct MC_ALIGNAS(64) mc_fault {
	uint32_t status; /* enum mc_fault_status */
	uint32_t op;     /* enum mc_op_kind */
	uint32_t channel;
	uint32_t peer; /* rank awaited, or whose data was wrong; UINT32_MAX: nobody in particular */
	uint64_t call;
	uint64_t waited_ns;
	uint32_t mine[3];   /* call, digest, rows expected (MISMATCH) */
	uint32_t theirs[3]; /* call, digest, rows found (MISMATCH) */
	uint32_t segment;
	uint32_t by; /* whose account this is, rank + 1, where a rank quotes another; 0: its own */
};
MC_STATIC_ASSERT(sizeof(struct mc_fault) == 64, "a fault record is one line");

/*
 * How long ops waited for peers, by op kind: bucket i counts ops that waited at most
 * MC_WAIT_BUCKET_NS << 2i ns, the last one all others. Counters wrap; readers go by differences.
 */
#define MC_WAIT_OPS       8u /* op kinds 0 … 7 */
#define MC_WAIT_BUCKETS   14u
#define MC_WAIT_BUCKET_NS 1024u
struct MC_ALIGNAS(64) mc_wait_counts {
	uint32_t bucket[MC_WAIT_BUCKETS];
	uint64_t sum_ns;
};
MC_STATIC_ASSERT(sizeof(struct mc_wait_counts) == 64, "one line an op kind");

struct MC_ALIGNAS(128) mc_board_rank {
	struct mc_progress progress[MC_MAX_CHANNELS];
	struct mc_fault fault;
	/* the rest is counted by the host backend only */
	uint64_t wait_ns[MC_MAX_CHANNELS];      /* time spent waiting for peers */
	uint64_t pushed_bytes[MC_MAX_CHANNELS]; /* in all calls that have ended */
	struct mc_wait_counts waits[MC_WAIT_OPS];
};

/* Changes with what lies where and with how it is checked: a library and a daemon that disagree
 * part. */
#define MC_BOARD_MAGIC 0x6d636266u
struct MC_ALIGNAS(128) mc_board {
	uint32_t magic;
	uint32_t world_size;
	uint64_t epoch;
	MC_ALIGNAS(128) struct mc_wait_line wait;
	MC_ALIGNAS(128) struct mc_board_rank rank[MC_MAX_WORLD_SIZE];
};
#define MC_BOARD_BYTES 65536u
MC_STATIC_ASSERT(sizeof(struct mc_board) <= MC_BOARD_BYTES, "the board fits its pages");

/* The bucket of a wait: the smallest i with waited_ns <= MC_WAIT_BUCKET_NS << 2i, or the last. */
MC_BOTH uint32_t mc_wait_bucket(uint64_t waited_ns)
{
	uint32_t i, n_bits;

	if (waited_ns <= MC_WAIT_BUCKET_NS)
		return 0;
		/* two bits a bucket, without a loop: this is on every op's way out */
#ifdef __CUDA_ARCH__
	n_bits = 64u - (uint32_t)__clzll((long long)((waited_ns - 1u) / MC_WAIT_BUCKET_NS));
#else
	n_bits = 64u - (uint32_t)__builtin_clzll((waited_ns - 1u) / MC_WAIT_BUCKET_NS);
#endif
	i = (n_bits + 1u) / 2u;
	return i < MC_WAIT_BUCKETS ? i : MC_WAIT_BUCKETS - 1u;
}

MC_BOTH uint32_t mc_abort_word(uint32_t status, uint32_t reporter_plus_1)
{
	return (status & 0xffu) | reporter_plus_1 << 8;
}

MC_BOTH uint32_t mc_abort_status(uint32_t word)
{
	return word & 0xffu;
}

/* 0: the daemon or an operator; else rank + 1. */
MC_BOTH uint32_t mc_abort_reporter(uint32_t word)
{
	return word >> 8;
}

/* The statuses that the data plane itself may leave in an abort word or a record. */
MC_BOTH int mc_fault_is_known(uint32_t status)
{
	return status == MC_FAULT_BAD_COUNT ||
	       (status >= MC_FAULT_PEER_LOST && status <= MC_FAULT_CORRUPT);
}

/* ---- emptiness ---- */

MC_BOTH int mc_vector_equal(const struct mc_vector *a, const struct mc_vector *b)
{
	/* bitwise on all four words, never as floats: flush-to-zero would change the answer */
	return ((a->word[0] ^ b->word[0]) | (a->word[1] ^ b->word[1]) | (a->word[2] ^ b->word[2]) |
		       (a->word[3] ^ b->word[3])) == 0;
}

/* ---- hashing: digests and header checks ---- */

/* One round of a 32-bit mix (public-domain murmur3 finaliser constants). */
MC_BOTH uint32_t mc_mix(uint32_t h, uint32_t w)
{
	w *= 0xcc9e2d51u;
	w = w << 15 | w >> 17;
	w *= 0x1b873593u;
	h ^= w;
	h = h << 13 | h >> 19;
	return h * 5u + 0xe6546b64u;
}

MC_BOTH uint32_t mc_mix64(uint32_t h, uint64_t w)
{
	return mc_mix(mc_mix(h, (uint32_t)w), (uint32_t)(w >> 32));
}

/*
 * The check binds a header to the epoch: a leftover of another epoch never passes. The call number
 * comes in last, because it is what a kernel knows last.
 */
MC_BOTH uint32_t mc_header_base(uint32_t digest, uint32_t rows, const struct mc_vector *sentinel)
{
	uint32_t h = mc_mix(mc_mix(0x6d63u, digest), rows);

	return mc_mix(mc_mix(h, sentinel->word[1]), sentinel->word[2]);
}

MC_BOTH uint32_t mc_header_check(
	uint32_t call, uint32_t digest, uint32_t rows, const struct mc_vector *sentinel)
{
	return mc_mix(mc_header_base(digest, rows, sentinel), call);
}

/*
 * Guards what the canaries don't: the fields of a control block that are set once an epoch. Each
 * word is mixed by itself, so that the lanes of a warp can do it side by side, with a place of its
 * own. A mix is a bijection of the word: one wrong word never goes unnoticed.
 */
enum mc_checked_place {
	MC_CHECKED_SENTINEL = 0, /* and the three after it */
	MC_CHECKED_RANK = 4,
	MC_CHECKED_WORLD_SIZE = 5,
	MC_CHECKED_EPOCH = 14, /* low half, then the high one */
};

MC_BOTH uint32_t mc_checked_word(uint32_t place, uint32_t word)
{
	return mc_mix(0x6374726cu + place * 0x9e3779b1u, word);
}

MC_BOTH uint32_t mc_control_check(
	uint32_t rank, uint32_t world_size, uint64_t epoch, const struct mc_vector *sentinel)
{
	uint32_t check = mc_checked_word(MC_CHECKED_RANK, rank) ^
			 mc_checked_word(MC_CHECKED_WORLD_SIZE, world_size) ^
			 mc_checked_word(MC_CHECKED_EPOCH, (uint32_t)epoch) ^
			 mc_checked_word(MC_CHECKED_EPOCH + 1u, (uint32_t)(epoch >> 32));

	for (uint32_t i = 0; i < 4; i++)
		check ^= mc_checked_word(MC_CHECKED_SENTINEL + i, sentinel->word[i]);
	return check;
}

/* ---- addressing ---- */

/*
 * Where things lie in an arena, in bytes; made by mc_layout_make (kernels/layout.h) from the
 * group's spec, the same numbers in the daemon and in every client. All arenas of a group are
 * alike.
 *
 *   [probe area: world_size - 1 pairs][channel 0: segment 0: slots | segment 1: slots][channel 1 …
 *
 * A rank has no slot for itself: its own contribution never leaves its registers.
 */
struct mc_layout {
	uint32_t world_size;
	uint32_t n_channels;
	uint64_t slot_data_bytes; /* payload bytes of one slot, a multiple of 16 */
	uint64_t slot_stride;
	uint64_t segment_stride;
	uint64_t channel_stride;
	uint64_t ring_offset; /* of channel 0 */
	uint64_t arena_bytes;
};

/* Slots are kept in rotated order: the writer after the reader comes first. */
MC_BOTH uint32_t mc_slot_index(uint32_t reader, uint32_t writer, uint32_t world_size)
{
	return (writer + world_size - reader - 1u) % world_size;
}

/* Offset in the reader's arena of the slot that only `writer` writes; writer != reader. */
MC_BOTH uint64_t mc_slot_offset(const struct mc_layout *layout, uint32_t reader, uint32_t writer,
	uint32_t channel, uint64_t call)
{
	return layout->ring_offset + channel * layout->channel_stride +
	       (call % MC_SEGMENTS) * layout->segment_stride +
	       mc_slot_index(reader, writer, layout->world_size) * layout->slot_stride;
}

/* Offset in the reader's arena of the join probe area that only `writer` writes. */
MC_BOTH uint64_t mc_probe_offset(const struct mc_layout *layout, uint32_t reader, uint32_t writer)
{
	return (uint64_t)mc_slot_index(reader, writer, layout->world_size) * MC_PROBE_BYTES;
}

/* The vector that `writer` puts at place i of round n of its probe area in `reader`'s arena. */
MC_BOTH struct mc_vector mc_probe_vector(
	uint64_t epoch, uint32_t reader, uint32_t writer, uint32_t round, uint32_t i)
{
	struct mc_vector v;
	uint32_t h = mc_mix64(
		mc_mix(mc_mix(mc_mix(mc_mix(0x70726f62u, reader), writer), round), i), epoch);

	/* all words differ and each depends on the place: a torn or misplaced vector can't pass */
	v.word[0] = h;
	v.word[1] = mc_mix(h, 1u);
	v.word[2] = mc_mix(h, 2u);
	v.word[3] = mc_mix(h, 3u);
	return v;
}

/* Vectors that carry n bytes. */
MC_BOTH uint64_t mc_vectors(uint64_t n_bytes)
{
	return (n_bytes + MC_VECTOR_BYTES - 1u) / MC_VECTOR_BYTES;
}

#endif
