/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/ring.h"

#include <sched.h>
#include <time.h>
#include "kernels/host/fault.h"
#include "kernels/host/inject.h"

/* Deadlines that stand while the board says 0; a wait without an end is never meant. */
#define DEFAULT_TIMEOUT_MS        10000u
#define DEFAULT_WARMUP_TIMEOUT_MS 120000u

#define NS_PER_MS UINT64_C(1000000)
/*
 * A wait spins a little, then yields for a millisecond, then sleeps between looks. Measured on 2
 * cores with 7 KiB a rank: on a quiet machine 1 to 8192 spins make no difference (2 ranks 8 us, 4
 * ranks 45 us an op). But once the awaited rank shares our core, every spin is its time: 2 ranks
 * then take 15 us with 1 spin, 19 with 128, 49 with 1024 and 390 with 8192. So few spins, whatever
 * the number of CPUs: schedulers do put two busy ranks on one core while another is free.
 */
#define N_SPINS  64u
#define YIELD_NS NS_PER_MS
#define SLEEP_NS 50000L

static inline void cpu_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

uint64_t mc_ring_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static struct mc_halves *slot(const struct mc_ring *ring, uint32_t reader, uint32_t writer)
{
	return (struct mc_halves *)(ring->host->arena[reader] + mc_slot_offset(&ring->host->layout,
									reader, writer,
									ring->channel, ring->call));
}

static struct mc_halves *slot_data(const struct mc_ring *ring, uint32_t reader, uint32_t writer)
{
	return slot(ring, reader, writer) + MC_SLOT_HEADER_BYTES / MC_VECTOR_BYTES;
}

/* ---- enter and leave ---- */

static bool control_intact(const struct mc_ring *ring)
{
	const struct mc_control *control = ring->host->control;

	return control->canary_head == MC_CANARY_HEAD && control->canary_tail == MC_CANARY_TAIL &&
	       control->rank == ring->host->rank &&
	       control->world_size == ring->host->layout.world_size &&
	       control->check == mc_control_check(control->rank, control->world_size,
					 control->epoch, &control->sentinel) &&
	       control->channel[ring->channel].canary == MC_CANARY_HEAD + ring->channel &&
	       control->channel[ring->channel].call != 0;
}

int mc_ring_enter(struct mc_ring *ring, struct mc_host_rank *host, uint32_t channel,
	enum mc_op_kind op, uint32_t digest, struct mc_fault *ret_fault)
{
	struct mc_fault fault;
	uint32_t word;

	*ring = (struct mc_ring){
		.host = host,
		.fault = ret_fault,
		.channel = channel,
		.op = op,
		.digest = digest,
		.call = host->control->channel[channel].call,
		.sentinel = host->control->sentinel,
		.empty = mc_halves_of(&host->control->sentinel),
	};
	word = __atomic_load_n(&host->control->failed, __ATOMIC_ACQUIRE);
	if (word != MC_FAULT_NONE)
		return mc_fault_repeat(ring, word);
	if (!control_intact(ring)) {
		fault = mc_fault_make(ring, MC_FAULT_CORRUPT, host->rank);
		return mc_fault_raise(ring, &fault);
	}
	word = __atomic_load_n(&host->board->wait.abort_word, __ATOMIC_ACQUIRE);
	if (word != 0)
		return mc_fault_adopt(ring, word);
	mc_inject_delay(host->rank, ring->call);
	return MC_FAULT_NONE;
}

static void post(struct mc_ring *ring, uint64_t n_vectors, bool left)
{
	struct mc_board_rank *mine = &ring->host->board->rank[ring->host->rank];
	struct timespec ts;
	struct mc_progress p = {
		.call = (uint32_t)ring->call,
		.op = (uint8_t)ring->op,
		.left = left,
		.n_vectors = n_vectors < UINT32_MAX ? (uint32_t)n_vectors : UINT32_MAX,
	};

	clock_gettime(CLOCK_REALTIME, &ts);
	p.time_ms = (uint32_t)((uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / NS_PER_MS);
	mc_store((struct mc_halves *)&mine->progress[ring->channel], mc_halves_of(&p));
}

void mc_ring_post(struct mc_ring *ring, uint64_t n_vectors)
{
	post(ring, n_vectors, false);
}

/* Adds to what only this thread writes: no locked instruction, which would cost more than the rest.
 */
static void add_own(uint64_t *sum, uint64_t n)
{
	__atomic_store_n(sum, __atomic_load_n(sum, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

int mc_ring_leave(struct mc_ring *ring)
{
	struct mc_board_rank *mine = &ring->host->board->rank[ring->host->rank];
	uint32_t n = __atomic_load_n(&mine->progress[ring->channel].n_vectors, __ATOMIC_RELAXED);
	struct mc_wait_counts *waits = &mine->waits[ring->op % MC_WAIT_OPS];

	/* a channel's sums have one writer at a time; op kinds are shared by channels */
	if (ring->waited_ns != 0) {
		add_own(&mine->wait_ns[ring->channel], ring->waited_ns);
		__atomic_fetch_add(&waits->sum_ns, ring->waited_ns, __ATOMIC_RELAXED);
	}
	__atomic_fetch_add(&waits->bucket[mc_wait_bucket(ring->waited_ns)], 1u, __ATOMIC_RELAXED);
	add_own(&mine->pushed_bytes[ring->channel], (uint64_t)n * MC_VECTOR_BYTES);
	post(ring, n, true);
	ring->host->control->channel[ring->channel].call = ring->call + 1u;
	return MC_FAULT_NONE;
}

/* ---- wait ---- */

/* Fills in how far the awaited rank has come: the one number that tells a skipped op from a stall.
 */
static int time_out(struct mc_ring *ring, uint32_t peer)
{
	struct mc_fault fault = mc_fault_make(ring, MC_FAULT_TIMEOUT, peer);

	fault.mine[0] = (uint32_t)ring->call;
	fault.mine[1] = ring->digest;
	fault.theirs[0] = __atomic_load_n(
		&ring->host->board->rank[peer].progress[ring->channel].call, __ATOMIC_ACQUIRE);
	return mc_fault_raise(ring, &fault);
}

/*
 * Whether the awaited rank waits itself, in a call before ours. Its deadline passes in the same
 * moment as ours, and it knows better whose doing this is.
 */
static bool waits_itself(const struct mc_ring *ring, uint32_t peer)
{
	struct mc_halves low_half = {
		.low = mc_load_low((const struct mc_halves *)&ring->host->board->rank[peer]
					   .progress[ring->channel])};
	struct mc_progress theirs;

	memcpy(&theirs, &low_half, sizeof(theirs));
	return theirs.call != 0 && !theirs.left &&
	       (int32_t)(theirs.call - (uint32_t)ring->call) < 0;
}

/* The wait line and the failed flag; MC_FAULT_NONE: wait on. Sets *ret_late at the deadline. */
static int look(struct mc_ring *ring, uint32_t peer, uint64_t now_ns, bool *ret_late)
{
	const struct mc_wait_line *line = &ring->host->board->wait;
	uint32_t failed = __atomic_load_n(&ring->host->control->failed, __ATOMIC_ACQUIRE);
	uint32_t word = __atomic_load_n(&line->abort_word, __ATOMIC_ACQUIRE);
	bool warmup = ring->call <= __atomic_load_n(&line->warmup_calls, __ATOMIC_RELAXED);
	uint32_t timeout_ms;

	if (word != 0)
		return mc_fault_adopt(ring, word);
	if (failed != MC_FAULT_NONE) /* another channel's op, or the library ended the epoch */
		return mc_fault_repeat(ring, failed);
	if (warmup) {
		timeout_ms = __atomic_load_n(&line->warmup_timeout_ms, __ATOMIC_RELAXED);
		timeout_ms = timeout_ms ? timeout_ms : DEFAULT_WARMUP_TIMEOUT_MS;
	} else {
		timeout_ms = __atomic_load_n(&line->op_timeout_ms, __ATOMIC_RELAXED);
		timeout_ms = timeout_ms ? timeout_ms : DEFAULT_TIMEOUT_MS;
	}
	*ret_late = now_ns - ring->wait_begin_ns >= timeout_ms * NS_PER_MS;
	/* half of the tenth that a deadline may be late by is for its account */
	if (*ret_late && waits_itself(ring, peer))
		*ret_late =
			now_ns - ring->wait_begin_ns >= (timeout_ms + timeout_ms / 20u) * NS_PER_MS;
	return MC_FAULT_NONE;
}

int mc_ring_wait(struct mc_ring *ring, uint32_t peer, const struct mc_halves *place)
{
	const struct timespec pause = {.tv_nsec = SLEEP_NS};
	uint64_t begin_ns, now_ns, before_ns = ring->waited_ns;
	bool late = false;
	int fault;

	for (uint32_t i = 0; i < N_SPINS; i++) {
		if (mc_load_low(place) != ring->empty.low)
			return MC_FAULT_NONE;
		cpu_pause();
	}
	begin_ns = now_ns = mc_ring_now_ns();
	if (ring->wait_begin_ns == 0)
		ring->wait_begin_ns = begin_ns;
	while (mc_load_low(place) == ring->empty.low) {
		/* a rank that was stopped itself finds the deadline past and the data there */
		if (late)
			return time_out(ring, peer);
		fault = look(ring, peer, now_ns, &late);
		if (fault)
			return fault;
		if (now_ns - begin_ns < YIELD_NS)
			sched_yield();
		else
			nanosleep(&pause, NULL);
		now_ns = mc_ring_now_ns();
		ring->waited_ns = before_ns + (now_ns - begin_ns);
	}
	return MC_FAULT_NONE;
}

/* ---- push ---- */

static int fault_at(struct mc_ring *ring, enum mc_fault_status status, uint32_t peer)
{
	struct mc_fault fault = mc_fault_make(ring, status, peer);

	return mc_fault_raise(ring, &fault);
}

int mc_ring_push_header(struct mc_ring *ring, uint32_t peer, uint32_t rows)
{
	struct mc_header header = {
		.call = (uint32_t)ring->call,
		.digest = ring->digest,
		.rows = rows,
		.check = mc_header_check((uint32_t)ring->call, ring->digest, rows, &ring->sentinel),
	};
	struct mc_halves value;

	if (mc_inject_pair(MC_INJECT_DROP_PUSH, ring->host->rank, peer, ring->call))
		return MC_FAULT_NONE;
	if (mc_inject_pair(MC_INJECT_FLIP_PUSH, ring->host->rank, peer, ring->call))
		header.rows ^= 0xff00u;
	value = mc_halves_of(&header);
	if (value.low == ring->empty.low)
		return fault_at(ring, MC_FAULT_SENTINEL, ring->host->rank);
	mc_store(slot(ring, peer, ring->host->rank), value);
	return MC_FAULT_NONE;
}

int mc_ring_push(
	struct mc_ring *ring, uint32_t peer, uint64_t vector, const void *src, uint64_t n_bytes)
{
	const struct mc_halves empty = ring->empty;
	const uint8_t *from = src;
	struct mc_halves *to = slot_data(ring, peer, ring->host->rank) + vector;
	uint64_t n_full = n_bytes / MC_VECTOR_BYTES, n_rest = n_bytes % MC_VECTOR_BYTES;
	uint64_t n_room = ring->host->layout.slot_data_bytes / MC_VECTOR_BYTES;
	struct mc_halves value;

	if (n_bytes == 0)
		return MC_FAULT_NONE;
	/* callers check the capacity first; a slot's end is the next rank's slot, so here once more
	 */
	if (vector > n_room || mc_vectors(n_bytes) > n_room - vector)
		return fault_at(ring, MC_FAULT_BAD_COUNT, ring->host->rank);
	if (mc_inject_pair(MC_INJECT_DROP_PUSH, ring->host->rank, peer, ring->call))
		return MC_FAULT_NONE;
	if (vector == 0 && n_full > 0 &&
		mc_inject_pair(MC_INJECT_FLIP_DATA, ring->host->rank, peer, ring->call)) {
		value = mc_halves_of(from);
		value.high ^= 0xffu;
		mc_store(to++, value);
		from += MC_VECTOR_BYTES;
		n_full--;
	}
	for (uint64_t i = 0; i < n_full; i++) {
		value = mc_halves_of(from + i * MC_VECTOR_BYTES);
		if (value.low == empty.low)
			return fault_at(ring, MC_FAULT_SENTINEL, ring->host->rank);
		mc_store(&to[i], value);
	}
	if (n_rest) {
		value = (struct mc_halves){0, 0};
		memcpy(&value, from + n_full * MC_VECTOR_BYTES, n_rest);
		if (value.low == empty.low)
			return fault_at(ring, MC_FAULT_SENTINEL, ring->host->rank);
		mc_store(&to[n_full], value);
	}
	return MC_FAULT_NONE;
}

/* ---- take ---- */

int mc_ring_take_header(
	struct mc_ring *ring, uint32_t peer, uint32_t rows, bool at_most, uint32_t *ret_rows)
{
	struct mc_halves *place = slot(ring, ring->host->rank, peer), value;
	struct mc_header header;
	struct mc_fault fault;
	int status;

	value.low = mc_load_low(place);
	if (value.low == ring->empty.low) {
		status = mc_ring_wait(ring, peer, place);
		if (status)
			return status;
		value.low = mc_load_low(place);
	}
	value.high = mc_load_high(place);
	memcpy(&header, &value, sizeof(header));
	if (header.check !=
		mc_header_check(header.call, header.digest, header.rows, &ring->sentinel))
		return fault_at(ring, MC_FAULT_CORRUPT, peer);
	if (header.call != (uint32_t)ring->call || header.digest != ring->digest ||
		(at_most ? header.rows > rows : header.rows != rows)) {
		fault = mc_fault_make(ring, MC_FAULT_MISMATCH, peer);
		fault.mine[0] = (uint32_t)ring->call;
		fault.mine[1] = ring->digest;
		fault.mine[2] = rows;
		fault.theirs[0] = header.call;
		fault.theirs[1] = header.digest;
		fault.theirs[2] = header.rows;
		return mc_fault_raise(ring, &fault);
	}
	mc_rearm(place, ring->empty);
	*ret_rows = header.rows;
	return MC_FAULT_NONE;
}

/* One vector, by value; re-armed unless kept. */
static inline int take_vector(struct mc_ring *ring, uint32_t peer, struct mc_halves *place,
	bool keep, struct mc_halves *ret_value)
{
	uint64_t low = mc_load_low(place);
	int status;

	if (__builtin_expect(low == ring->empty.low, 0)) {
		status = mc_ring_wait(ring, peer, place);
		if (status)
			return status;
		low = mc_load_low(place);
	}
	ret_value->low = low;
	ret_value->high = mc_load_high(place);
	if (!keep)
		mc_rearm(place, ring->empty);
	return MC_FAULT_NONE;
}

int mc_ring_take(struct mc_ring *ring, uint32_t peer, uint64_t vector, uint64_t n_bytes,
	uint64_t begin, uint64_t end, bool keep, void *dst)
{
	struct mc_halves *from = slot_data(ring, ring->host->rank, peer) + vector, value;
	uint8_t *to = dst;
	int status;

	while (begin < end) {
		uint64_t i = begin / MC_VECTOR_BYTES, skip = begin % MC_VECTOR_BYTES, n;

		if (skip == 0 && end - begin >= MC_VECTOR_BYTES) {
			status = take_vector(ring, peer, &from[i], keep, &value);
			if (status)
				return status;
			memcpy(to, &value, MC_VECTOR_BYTES);
			to += MC_VECTOR_BYTES;
			begin += MC_VECTOR_BYTES;
			continue;
		}
		n = MC_VECTOR_BYTES - skip;
		if (n > end - begin)
			n = end - begin;
		/* the rest of a cut vector is taken by the next range */
		status = take_vector(ring, peer, &from[i],
			keep || (skip + n < MC_VECTOR_BYTES && begin + n < n_bytes), &value);
		if (status)
			return status;
		memcpy(to, (const uint8_t *)&value + skip, n);
		to += n;
		begin += n;
	}
	return MC_FAULT_NONE;
}
