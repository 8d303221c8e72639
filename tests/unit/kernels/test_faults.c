/* SPDX-License-Identifier: Apache-2.0 */
/* Every way a call can fail: the status, the culprit, and that nobody hangs. */
#include "world.h"

#include <string.h>
#include <unistd.h>
#include "kernels/host/inject.h"

/* What each rank saw; in world->results. */
struct seen {
	int status;
	struct mc_fault fault;
	int again; /* status of one more op */
	uint64_t ms;
};

static struct seen *seen_by(struct world *world, uint32_t rank)
{
	return (struct seen *)world->results + rank;
}

static struct mc_dispatch bytes_op(const void *in, void *out, uint32_t n, uint32_t rows)
{
	struct mc_dispatch op = {.n_tensors = 1, .tensor = {{in, out, 16}}, .ids_tensor = -1};

	for (uint32_t r = 0; r < n; r++)
		op.rows[r] = rows;
	return op;
}

/*
 * n dispatches that must succeed. All ranks leave them together: whoever is early must not end the
 * epoch under the others.
 */
static void good_calls(struct world *world, uint32_t rank, uint32_t n)
{
	uint8_t in[64] = {1}, out[8 * 64];
	struct mc_fault fault;

	for (uint32_t i = 0; i < n; i++) {
		struct mc_dispatch op = bytes_op(in, out, world->n, 4);

		WORLD_CHECK(world, world_dispatch(world, rank, 0, &op, &fault) == MC_FAULT_NONE);
	}
	world_meet(world);
}

/* A call that is going to fail, and another one after it. */
static void bad_call(struct world *world, uint32_t rank, struct mc_dispatch *op)
{
	struct seen *seen = seen_by(world, rank);
	uint64_t begin_ms = world_now_ms();
	struct mc_fault fault;

	seen->status = world_dispatch(world, rank, 0, op, &seen->fault);
	seen->ms = world_now_ms() - begin_ms;
	begin_ms = world_now_ms();
	seen->again = world_dispatch(world, rank, 0, op, &fault);
	WORLD_CHECK(world, world_now_ms() - begin_ms < 500);
	WORLD_CHECK(world, (int)seen->fault.status == seen->status);
}

static void make(struct world *world, uint32_t n, uint32_t op_ms, uint32_t warmup_ms)
{
	struct world_options options = {.max_rows = 8,
		.dispatch_row_bytes = 64,
		.combine_row_bytes = 64,
		.n_channels = 2,
		.wait = {
			.op_timeout_ms = op_ms, .warmup_timeout_ms = warmup_ms, .warmup_calls = 4}};

	world_make(world, n, &options);
}

#define ALL(world, r) for (uint32_t r = 0; r < (world)->n; r++)

/* ---- a payload that looks EMPTY ---- */

static void sentinel_on_rank(struct world *world, uint32_t rank, void *data)
{
	struct mc_vector in[4] = {{{1, 2, 3, 4}}}, out[16];
	struct mc_dispatch op = bytes_op(in, out, world->n, *(uint32_t *)data);

	good_calls(world, rank, 2);
	if (rank == 1) {
		in[op.rows[0] - 1] = world->sentinel;
		if (!world_is_cuda)
			in[op.rows[0] - 1].word[3] ^= 1; /* there the low half is enough */
	}
	bad_call(world, rank, &op);
}

static void sentinel_payload(void **state)
{
	(void)state;
	for (uint32_t rows = 1; rows <= 4; rows++) {
		struct world world;

		make(&world, 4, 20000, 20000);
		world_run(&world, rows % 2 ? WORLD_PROCESSES : WORLD_THREADS, sentinel_on_rank,
			&rows);
		ALL(&world, r)
		{
			assert_int_equal(seen_by(&world, r)->status, MC_FAULT_SENTINEL);
			assert_int_equal(seen_by(&world, r)->again, MC_FAULT_SENTINEL);
			assert_int_equal(seen_by(&world, r)->fault.peer, 1);
			assert_true(seen_by(&world, r)->ms < 2000);
		}
		world_free(&world);
	}
}

/* ---- ranks that disagree ---- */

enum disagreement {
	OTHER_ROWS,
	OTHER_WIDTH,
	OTHER_KIND,
	SKIPPED,
	N_DISAGREEMENTS,
};

static void disagree_on_rank(struct world *world, uint32_t rank, void *data)
{
	enum disagreement how = *(enum disagreement *)data;
	uint8_t in[64 * 8] = {0}, out[8 * 64];
	struct mc_dispatch op = bytes_op(in, out, world->n, 2);
	struct mc_combine sum = {
		.dtype = MC_DTYPE_BF16, .hidden = 8, .input = in, .output = out, .rows = {2, 2, 2}};
	struct seen *seen = seen_by(world, rank);

	good_calls(world, rank, 3);
	if (rank != 2) {
		/* ranks 0 and 1 do two different ops; rank 2 does not agree on the first */
		bad_call(world, rank, &op);
		return;
	}
	if (how == OTHER_ROWS)
		op.rows[1] = 3;
	else if (how == OTHER_WIDTH)
		op.tensor[0].row_bytes = 8;
	if (how == OTHER_ROWS || how == OTHER_WIDTH) {
		bad_call(world, rank, &op);
		return;
	}
	if (how == SKIPPED)
		sum.dtype = MC_DTYPE_FP16; /* the next layer's op */
	seen->status = world_combine(world, rank, 0, &sum, &seen->fault);
	seen->again = world_combine(world, rank, 0, &sum, &(struct mc_fault){0});
}

static void mismatch(void **state)
{
	(void)state;
	for (int how = 0; how < N_DISAGREEMENTS; how++) {
		enum disagreement which = (enum disagreement)how;
		struct world world;

		make(&world, 3, 20000, 20000);
		world_run(&world, WORLD_PROCESSES, disagree_on_rank, &which);
		ALL(&world, r)
		{
			struct seen *seen = seen_by(&world, r);

			assert_int_equal(seen->status, MC_FAULT_MISMATCH);
			assert_int_equal(seen->again, MC_FAULT_MISMATCH);
			/* whoever found it first, rank 2 is on one side and the digests differ */
			assert_true(seen->fault.peer < 3);
			assert_int_equal(seen->fault.mine[0], 4);
			assert_int_equal(seen->fault.theirs[0], 4);
			assert_int_not_equal(seen->fault.mine[1], seen->fault.theirs[1]);
			assert_true(seen->fault.peer == 2 ||
				    (seen->fault.by ? seen->fault.by - 1 : r) == 2);
		}
		/* rank 2 blames one of the others, never itself */
		assert_int_not_equal(seen_by(&world, 2)->fault.peer, 2);
		world_free(&world);
	}
}

/* Counts are known on the receiving side of a combine only by the header. */
static void counts_on_rank(struct world *world, uint32_t rank, void *data)
{
	uint8_t in[64 * 8] = {0}, out[8 * 64];
	int32_t counts[3] = {1, 2, 2};
	struct mc_combine sum = {.dtype = MC_DTYPE_BF16,
		.hidden = 8,
		.input = in,
		.output = out,
		.rows = {2, 2, 2},
		.counts = counts};
	struct seen *seen = seen_by(world, rank);

	if (rank == 0)
		counts[1] = *(int32_t *)data;
	seen->status = world_combine(world, rank, 0, &sum, &seen->fault);
}

static void counts_differ(void **state)
{
	int32_t bad[] = {1, 3, -1, INT32_MIN};
	struct world world;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		make(&world, 3, 20000, 20000);
		world_run(&world, WORLD_THREADS, counts_on_rank, &bad[i]);
		if (i == 0) {
			assert_int_equal(seen_by(&world, 1)->status, MC_FAULT_MISMATCH);
			assert_int_equal(seen_by(&world, 1)->fault.peer, 0);
			assert_int_equal(seen_by(&world, 1)->fault.mine[2], 2);
			assert_int_equal(seen_by(&world, 1)->fault.theirs[2], 1);
		} else {
			assert_int_equal(seen_by(&world, 0)->status, MC_FAULT_BAD_COUNT);
			/* the others did nothing wrong, and learn who did */
			assert_int_equal(seen_by(&world, 1)->status, MC_FAULT_ABORTED);
			assert_int_equal(seen_by(&world, 1)->fault.peer, 0);
		}
		world_free(&world);
	}
}

/* ---- deadlines ---- */

static void late_on_rank(struct world *world, uint32_t rank, void *data)
{
	uint8_t in[64] = {0}, out[4 * 64];
	struct mc_dispatch op = bytes_op(in, out, world->n, 2);

	good_calls(world, rank, *(uint32_t *)data);
	if (rank != 3) {
		bad_call(world, rank, &op);
		return;
	}
	usleep(900000);
	bad_call(world, rank, &op); /* comes to an epoch that has ended */
}

static void timeout_names_the_rank(void **state)
{
	uint32_t n_good = 6;
	struct world world;

	(void)state;
	make(&world, 4, 300, 20000);
	world_run(&world, WORLD_PROCESSES, late_on_rank, &n_good);
	ALL(&world, r)
	{
		struct seen *seen = seen_by(&world, r);

		assert_int_equal(seen->again, MC_FAULT_TIMEOUT);
		/* a kernel does not look at the board while its data is there */
		if (world_is_cuda && r == 3 && seen->status == MC_FAULT_NONE)
			continue;
		assert_int_equal(seen->status, MC_FAULT_TIMEOUT);
		assert_int_equal(seen->fault.peer, 3);
		assert_int_equal(seen->fault.mine[0], 7);
		assert_int_equal(seen->fault.theirs[0], 6);
		if (r != 3) {
			/* the deadline and 10 %, with slack for a loaded machine */
			assert_in_range(seen->ms, 290, 700);
			assert_in_range(seen->fault.waited_ns, 200000000, 700000000);
		}
		assert_int_equal(world.board->rank[r].fault.status, MC_FAULT_TIMEOUT);
	}
	assert_int_equal(mc_abort_status(world.board->wait.abort_word), MC_FAULT_TIMEOUT);
	world_free(&world);
}

/* During warm-up the same delay is fine. */
static void warmup_on_rank(struct world *world, uint32_t rank, void *data)
{
	(void)data;
	if (rank == 1)
		usleep(600000);
	good_calls(world, rank, 8);
}

static void warmup_deadline(void **state)
{
	struct world world;

	(void)state;
	make(&world, 2, 200, 20000);
	world_run(&world, WORLD_PROCESSES, warmup_on_rank, NULL);
	if (!world_is_cuda) { /* which posts rarely, and does not count */
		assert_true(world.board->rank[0].wait_ns[0] > 300000000);
		assert_int_equal(world.board->rank[0].progress[0].call, 8);
	}
	assert_int_equal(world.board->rank[0].progress[0].left, 1);
	world_free(&world);
}

/* A deadline of 0 is no deadline to speak of, neither none nor at once. */
static void zero_deadline(void **state)
{
	struct world world;

	(void)state;
	make(&world, 2, 1000, 20000);
	world.board->wait.op_timeout_ms = 0;
	world.board->wait.warmup_timeout_ms = 0;
	world_run(&world, WORLD_PROCESSES, warmup_on_rank, NULL);
	world_free(&world);
}

/* ---- abort ---- */

static void wait_on_rank(struct world *world, uint32_t rank, void *data)
{
	uint8_t in[64] = {0}, out[3 * 64];
	struct mc_dispatch op = bytes_op(in, out, world->n, 2);

	if (rank < 2) {
		bad_call(world, rank, &op);
		return;
	}
	usleep(200000);
	if (data)
		__atomic_store_n(
			&world->rank[0].control->failed, *(uint32_t *)data, __ATOMIC_RELEASE);
	else
		__atomic_store_n(&world->board->wait.abort_word, mc_abort_word(MC_FAULT_ABORTED, 0),
			__ATOMIC_RELEASE);
}

static void abort_word(void **state)
{
	uint32_t stale = MC_FAULT_STALE_EPOCH;
	struct world world;

	(void)state;
	make(&world, 3, 20000, 20000);
	world_run(&world, WORLD_PROCESSES, wait_on_rank, NULL);
	for (uint32_t r = 0; r < 2; r++) {
		assert_int_equal(seen_by(&world, r)->status, MC_FAULT_ABORTED);
		assert_int_equal(seen_by(&world, r)->fault.peer, UINT32_MAX);
		assert_true(seen_by(&world, r)->ms < 1000);
	}
	world_free(&world);

	/* the library ends the epoch under a waiting op */
	make(&world, 3, 20000, 20000);
	world_run_ranks(&world, WORLD_PROCESSES, 5, wait_on_rank, &stale);
	assert_int_equal(seen_by(&world, 0)->status, MC_FAULT_STALE_EPOCH);
	assert_int_equal(seen_by(&world, 0)->again, MC_FAULT_STALE_EPOCH);
	world_free(&world);
}

static void lose_rank_2(struct world *world, uint32_t rank, void *data)
{
	struct mc_fault *fault = &world->board->rank[2].fault;

	if (rank < 2) {
		good_calls(world, rank, 3);
		wait_on_rank(world, rank, data);
		return;
	}
	good_calls(world, rank, 3);
	usleep(200000);
	/* as the daemon does */
	fault->peer = 2;
	__atomic_store_n(&fault->status, MC_FAULT_PEER_LOST, __ATOMIC_RELEASE);
	__atomic_store_n(&world->board->wait.abort_word, mc_abort_word(MC_FAULT_PEER_LOST, 3),
		__ATOMIC_RELEASE);
}

/* The daemon knows who has died, the survivor in which call that met it. */
static void told_of_a_death(void **state)
{
	struct world world;

	(void)state;
	make(&world, 3, 20000, 20000);
	world_run(&world, WORLD_PROCESSES, lose_rank_2, NULL);
	for (uint32_t r = 0; r < 2; r++) {
		const struct mc_fault *fault = &seen_by(&world, r)->fault;

		assert_int_equal(seen_by(&world, r)->status, MC_FAULT_PEER_LOST);
		assert_int_equal(fault->peer, 2);
		assert_int_equal(fault->call, 4);
		assert_int_equal(fault->op, MC_OP_DISPATCH);
		assert_int_equal(fault->by, 0);
	}
	world_free(&world);
}

/* Garbage where other processes write must not be believed. */
static void hostile_board(void **state)
{
	static const uint32_t words[] = {
		0xffffffffu, 0x000000ffu, 0x0000ff0eu, 0x00000200u, 0x0000030fu};
	uint8_t in[64] = {0}, out[3 * 64];

	(void)state;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct world world;
		struct mc_dispatch op;

		make(&world, 3, 20000, 20000);
		memset(&world.board->rank[2].fault, 0xff, sizeof(struct mc_fault));
		world.board->rank[2].fault.status = MC_FAULT_MISMATCH;
		world.board->wait.abort_word = words[i];
		op = bytes_op(in, out, 3, 2);
		bad_call(&world, 0, &op);
		assert_int_equal(
			seen_by(&world, 0)->status, (words[i] & 0xff) == 0x0e   ? MC_FAULT_TIMEOUT
						    : (words[i] & 0xff) == 0x0f ? MC_FAULT_MISMATCH
										: MC_FAULT_ABORTED);
		assert_true(seen_by(&world, 0)->fault.peer < 3 ||
			    seen_by(&world, 0)->fault.peer == UINT32_MAX);
		assert_int_equal(*world.n_failed, 0);
		world_free(&world);
	}
}

/* ---- damage ---- */

/* Words of a control block that never change in an epoch: one bit of each in turn. */
#define WORD_AT(member, i) (offsetof(struct mc_control, member) / 4u + (i))
static const size_t fixed_words[] = {WORD_AT(canary_head, 0), WORD_AT(canary_head, 1),
	WORD_AT(epoch, 0), WORD_AT(epoch, 1), WORD_AT(sentinel, 0), WORD_AT(sentinel, 1),
	WORD_AT(sentinel, 2), WORD_AT(sentinel, 3), WORD_AT(rank, 0), WORD_AT(world_size, 0),
	WORD_AT(check, 0), WORD_AT(channel[0].canary, 0), WORD_AT(channel[0].canary, 1),
	WORD_AT(canary_tail, 0), WORD_AT(canary_tail, 1)};

enum {
	N_WORDS = sizeof(fixed_words) / sizeof(fixed_words[0]),
	EXCHANGED = N_WORDS, /* two words of the sentinel */
	UNKNOWN_FAILURE,
	NO_CALL,
	NO_TURN, /* a CTA's call number, which only the cuda kernels have */
};

static void damage(struct mc_control *control, int what)
{
	uint8_t *turn = (uint8_t *)control + MC_CUDA_TURNS_OFFSET;
	uint32_t word;

	switch (what) {
	case EXCHANGED:
		word = control->sentinel.word[0];
		control->sentinel.word[0] = control->sentinel.word[2];
		control->sentinel.word[2] = word;
		break;
	case UNKNOWN_FAILURE:
		control->failed = 0xdeadbeef;
		break;
	case NO_CALL:
		control->channel[0].call = 0;
		break;
	case NO_TURN:
		turn[offsetof(struct mc_cuda_turn, call) + 7] = 0x80;
		break;
	default:
		((uint32_t *)control)[fixed_words[what]] ^= 1u << what;
		break;
	}
}

static void damaged_control(void **state)
{
	uint8_t in[64] = {0}, out[2 * 64];

	(void)state;
	for (int what = 0; what <= (world_is_cuda ? NO_TURN : NO_CALL); what++) {
		struct world world;
		struct mc_dispatch op;

		make(&world, 2, 20000, 20000);
		damage(world.rank[1].control, what);
		op = bytes_op(in, out, 2, 2);
		bad_call(&world, 1, &op);
		assert_int_equal(seen_by(&world, 1)->status, MC_FAULT_CORRUPT);
		if (what != UNKNOWN_FAILURE) {
			assert_int_equal(seen_by(&world, 1)->fault.peer, 1);
			bad_call(&world, 0, &op);
			assert_int_equal(seen_by(&world, 0)->again, MC_FAULT_CORRUPT);
			/* a kernel does not look at the board while its data is there */
			if (!world_is_cuda || seen_by(&world, 0)->status) {
				assert_int_equal(seen_by(&world, 0)->status, MC_FAULT_CORRUPT);
				assert_int_equal(seen_by(&world, 0)->fault.peer, 1);
			}
		}
		assert_int_equal(*world.n_failed, 0);
		world_free(&world);
	}
}

static void damaged_header(void **state)
{
	uint8_t in[64] = {0}, out[2 * 64];
	struct mc_dispatch op = bytes_op(in, out, 2, 2);
	struct mc_vector header[] = {{{1, 2, 3, 4}}, {{1, 0, 2, 0}}};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct world world;

		make(&world, 2, 20000, 20000);
		/* the second is right but for its check */
		if (i == 1) {
			header[i].word[1] = mc_dispatch_digest(&op, 2);
			header[i].word[3] =
				1 ^ mc_header_check(1, header[i].word[1], 2, &world.sentinel);
		}
		memcpy(world.rank[0].arena[0] + mc_slot_offset(&world.layout, 0, 1, 0, 1),
			&header[i], 16);
		bad_call(&world, 0, &op);
		assert_int_equal(seen_by(&world, 0)->status, MC_FAULT_CORRUPT);
		assert_int_equal(seen_by(&world, 0)->fault.peer, 1);
		world_free(&world);
	}
}

/* More than a slot holds must not reach the next rank's slot, even if the caller didn't check. */
static void beyond_capacity(void **state)
{
	static uint8_t in[4096], out[2 * 4096];
	struct mc_dispatch op;
	struct world world;

	(void)state;
	if (world_is_cuda)
		skip(); /* only callers check there, which hand their ops to no kernel then */
	make(&world, 2, 20000, 20000);
	op = bytes_op(in, out, 2, 256);
	bad_call(&world, 0, &op);
	assert_int_equal(seen_by(&world, 0)->status, MC_FAULT_BAD_COUNT);
	world_free(&world);
}

/* ---- injected ---- */

#ifdef MC_FAULT_INJECTION
static void injected_on_rank(struct world *world, uint32_t rank, void *data)
{
	uint8_t in[64] = {0}, out[3 * 64];
	struct mc_dispatch op = bytes_op(in, out, world->n, 2);
	struct seen *seen = seen_by(world, rank);
	struct mc_fault fault;

	(void)data;
	good_calls(world, rank, 4);
	seen->status = world_dispatch(world, rank, 0, &op, &seen->fault);
	/* whoever is done already waits for rank 0 next, whose deadline must come before its own */
	if (rank != 0)
		usleep(100000);
	seen->again = world_dispatch(world, rank, 0, &op, &fault);
}
#endif

static void injected(void **state)
{
#ifdef MC_FAULT_INJECTION
	struct {
		const char *list;
		int status;
	} cases[] = {
		{"drop_push:1>0@5", MC_FAULT_TIMEOUT},
		{"flip_push:1>0@5", MC_FAULT_CORRUPT},
		{"delay_ms:1=1200@5", MC_FAULT_TIMEOUT},
		{"flip_data:1>0@5", MC_FAULT_NONE},
	};

	(void)state;
	if (world_is_cuda)
		skip(); /* no faults are injected into kernels */
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct world world;

		make(&world, 3, 300, 20000);
		assert_int_equal(mc_inject_set(cases[i].list), 0);
		world_run(&world, WORLD_PROCESSES, injected_on_rank, NULL);
		assert_int_equal(mc_inject_set(NULL), 0);
		ALL(&world, r)
		{
			/* rank 2 may have finished the call before the failure */
			if (r == 0 || cases[i].list[0] != 'd')
				assert_int_equal(
					seen_by(&world, r)->status == MC_FAULT_NONE && r != 0
						? seen_by(&world, r)->again
						: seen_by(&world, r)->status,
					cases[i].status);
			if (r == 0 && cases[i].status)
				assert_int_equal(seen_by(&world, r)->fault.peer, 1);
		}
		world_free(&world);
	}
	assert_true(mc_inject_set("drop_push:1") < 0);
	assert_true(mc_inject_set("nonsense:1>0") < 0);
	assert_true(mc_inject_set("drop_push:1>0x") < 0);
	assert_true(mc_inject_set("delay_ms:1=") < 0);
	assert_int_equal(mc_inject_set(NULL), 0);
#else
	(void)state;
	skip(); /* built without MC_FAULT_INJECTION */
#endif
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sentinel_payload),
		cmocka_unit_test(mismatch),
		cmocka_unit_test(counts_differ),
		cmocka_unit_test(timeout_names_the_rank),
		cmocka_unit_test(warmup_deadline),
		cmocka_unit_test(zero_deadline),
		cmocka_unit_test(abort_word),
		cmocka_unit_test(told_of_a_death),
		cmocka_unit_test(hostile_board),
		cmocka_unit_test(damaged_control),
		cmocka_unit_test(damaged_header),
		cmocka_unit_test(beyond_capacity),
		cmocka_unit_test(injected),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
