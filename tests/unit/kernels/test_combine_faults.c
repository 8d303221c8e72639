/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a combine refuses, in each of its forms: payload that looks EMPTY, counts out of range, and
 * an epoch that has ended. Whether a form is right about sums is test_combine.c's business.
 */
#include "world.h"

#include <string.h>

#define POISON  0xcd
#define ROWS    2u
#define MAX_ROW 4096u

/* The forms that take ways of their own: whole vectors or not, with a norm or not. */
struct form {
	uint64_t hidden;
	uint32_t misalign;
	bool norm;
};
static const struct form forms[] = {
	{1024, 0, false},
	{1024, 2, false},
	{1001, 0, false},
	{1024, 0, true},
	{1024, 2, true},
	{1001, 0, true},
};
static const uint32_t world_sizes[] = {2, 3, 4, 5, 8};
#define N_FORMS (sizeof(forms) / sizeof(forms[0]))
#define N_SIZES (sizeof(world_sizes) / sizeof(world_sizes[0]))

struct test {
	struct form form;
	uint32_t n_before; /* calls that succeed: with each the cuda kernels get another grid */
	int32_t count;     /* rank 0's for rank `of` */
	uint32_t of;
};

/* What each rank saw; in world->results. */
struct seen {
	int status, again;
	uint32_t peer;
	uint64_t ms;
	bool untouched; /* the outputs, by the last call */
};

static struct seen *seen_by(struct world *world, uint32_t rank)
{
	return (struct seen *)world->results + rank;
}

/* A rank's tensors. */
struct tensors {
	_Alignas(16) uint8_t input[8 * ROWS * MAX_ROW + 16];
	_Alignas(16) uint8_t residual[ROWS * MAX_ROW + 16], gamma[MAX_ROW + 16];
	_Alignas(16) uint8_t output[ROWS * MAX_ROW + 16], residual_output[ROWS * MAX_ROW + 16];
};

static struct mc_combine op_of(struct tensors *t, const struct form *form, uint32_t n)
{
	struct mc_combine op = {.dtype = MC_DTYPE_BF16,
		.hidden = form->hidden,
		.input = t->input + form->misalign,
		.output = t->output + form->misalign};

	memset(t, 0, sizeof(*t));
	for (uint32_t r = 0; r < n; r++)
		op.rows[r] = ROWS;
	if (form->norm) {
		op.residual = t->residual + form->misalign;
		op.residual_output = t->residual_output + form->misalign;
		op.gamma = t->gamma + form->misalign;
		op.eps = 1e-6f;
	}
	return op;
}

/* All ranks leave them together: whoever is early must not end the epoch under the others. */
static void good_calls(struct world *world, uint32_t rank, uint32_t n, struct mc_combine *op)
{
	struct mc_fault fault;

	for (uint32_t i = 0; i < n; i++)
		WORLD_CHECK(world, world_combine(world, rank, 0, op, &fault) == MC_FAULT_NONE);
	world_meet(world);
}

/* A call that is going to fail, and another one that finds the epoch failed. */
static void bad_call(
	struct world *world, uint32_t rank, struct mc_combine *op, struct tensors *tensors)
{
	struct seen *seen = seen_by(world, rank);
	const uint64_t begin_ms = world_now_ms();
	struct mc_fault fault;

	seen->status = world_combine(world, rank, 0, op, &fault);
	seen->peer = fault.peer;
	seen->ms = world_now_ms() - begin_ms;
	memset(tensors->output, POISON, sizeof(tensors->output));
	memset(tensors->residual_output, POISON, sizeof(tensors->residual_output));
	seen->again = world_combine(world, rank, 0, op, &fault);
	seen->untouched = true;
	for (size_t i = 0; i < sizeof(tensors->output); i++)
		seen->untouched = seen->untouched && tensors->output[i] == POISON &&
				  tensors->residual_output[i] == POISON;
}

static void make(struct world *world, uint32_t n)
{
	struct world_options options = {.max_rows = ROWS,
		.combine_row_bytes = MAX_ROW,
		.wait = {.op_timeout_ms = 8000, .warmup_timeout_ms = 8000}};

	world_make(world, n, &options);
}

/* ---- a payload that looks EMPTY ---- */

static void sentinel_on_rank(struct world *world, uint32_t rank, void *data)
{
	static _Thread_local struct tensors tensors;
	const struct test *test = data;
	struct mc_combine op = op_of(&tensors, &test->form, world->n);
	const uint64_t slice = ROWS * test->form.hidden * 2;
	struct mc_vector empty = world->sentinel;

	good_calls(world, rank, test->n_before, &op);
	if (!world_is_cuda)
		empty.word[3] ^= 1; /* there the low half is enough */
	/* rank 1's part of rank 0's rows, in the last whole vector */
	if (rank == 1)
		memcpy(tensors.input + test->form.misalign + slice / 16 * 16 - 16, &empty, 16);
	bad_call(world, rank, &op, &tensors);
}

static void check_sentinel(struct world *world)
{
	for (uint32_t r = 0; r < world->n; r++) {
		const struct seen *seen = seen_by(world, r);

		assert_int_equal(seen->again, MC_FAULT_SENTINEL);
		assert_true(seen->untouched);
		/* nobody else waits for that vector */
		if (r > 1 && seen->status == MC_FAULT_NONE)
			continue;
		assert_int_equal(seen->status, MC_FAULT_SENTINEL);
		assert_int_equal(seen->peer, 1);
		assert_true(seen->ms < 4000);
	}
}

static void sentinel_payload(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_FORMS * N_SIZES; i++) {
		const struct form *form = &forms[i % N_FORMS];

		/* a norm of few rows has more grids to choose from */
		for (uint32_t before = 0; before < (form->norm ? 3u : 1u); before++) {
			struct test test = {.form = *form, .n_before = before};
			struct world world;

			make(&world, world_sizes[i / N_FORMS]);
			world_run(&world, WORLD_THREADS, sentinel_on_rank, &test);
			check_sentinel(&world);
			world_free(&world);
		}
	}
}

/* ---- counts out of range ---- */

static void count_on_rank(struct world *world, uint32_t rank, void *data)
{
	static _Thread_local struct tensors tensors;
	const struct test *test = data;
	struct mc_combine op = op_of(&tensors, &test->form, world->n);
	int32_t counts[MC_MAX_WORLD_SIZE];

	for (uint32_t r = 0; r < world->n; r++)
		counts[r] = (int32_t)(r % (ROWS + 1));
	op.counts = counts;
	good_calls(world, rank, test->n_before, &op);
	if (rank == 0)
		counts[test->of] = test->count;
	bad_call(world, rank, &op, &tensors);
}

/* Nothing of rank 0 may lie in a peer's arena past that peer's rows. */
static bool is_empty_past_rows(const struct world *world, const struct form *form, uint32_t to)
{
	const uint64_t row_bytes = form->hidden * 2, n_bytes = to % (ROWS + 1) * row_bytes;

	for (uint64_t call = 0; call < MC_SEGMENTS; call++) {
		const uint64_t slot = mc_slot_offset(&world->layout, to, 0, 0, call);

		for (uint64_t v = mc_vectors(n_bytes); v < world->layout.slot_data_bytes / 16; v++)
			if (memcmp(world->rank[0].arena[to] + slot + MC_SLOT_HEADER_BYTES + v * 16,
				    &world->sentinel, 16) != 0)
				return false;
	}
	return true;
}

static void check_count(struct world *world, const struct test *test)
{
	for (uint32_t r = 0; r < world->n; r++) {
		const struct seen *seen = seen_by(world, r);

		/* the others did nothing wrong, and learn who did */
		assert_int_equal(seen->status, r == 0 ? MC_FAULT_BAD_COUNT : MC_FAULT_ABORTED);
		assert_int_equal(seen->again, seen->status);
		assert_int_equal(seen->peer, 0);
		assert_true(seen->untouched);
		assert_true(r == 0 || is_empty_past_rows(world, &test->form, r));
	}
}

static void bad_count(void **state)
{
	static const int32_t bad[] = {ROWS + 1, -1, INT32_MIN};

	(void)state;
	for (size_t i = 0; i < N_FORMS * N_SIZES; i++)
		/* rank 0's own, then a peer's */
		for (uint32_t of = 0; of < 2; of++) {
			struct test test = {.form = forms[i % N_FORMS],
				.n_before = (uint32_t)i % 3,
				.count = bad[(i + of) % 3],
				.of = of};
			struct world world;

			make(&world, world_sizes[i / N_FORMS]);
			world_run(&world, WORLD_THREADS, count_on_rank, &test);
			check_count(&world, &test);
			world_free(&world);
		}
}

/* ---- an epoch that has ended ---- */

static void call_on_rank(struct world *world, uint32_t rank, void *data)
{
	static _Thread_local struct tensors tensors;
	const struct test *test = data;
	struct mc_combine op = op_of(&tensors, &test->form, world->n);

	bad_call(world, rank, &op, &tensors);
}

/* A replay between epochs is such an op: it must not touch what may be another epoch's by then. */
static void ended_epoch(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_FORMS * N_SIZES; i++) {
		struct test test = {.form = forms[i % N_FORMS]};
		struct world world;

		make(&world, world_sizes[i / N_FORMS]);
		world.rank[0].control->failed = MC_FAULT_STALE_EPOCH;
		world_run_ranks(&world, WORLD_THREADS, 1, call_on_rank, &test);
		assert_int_equal(seen_by(&world, 0)->status, MC_FAULT_STALE_EPOCH);
		assert_int_equal(seen_by(&world, 0)->again, MC_FAULT_STALE_EPOCH);
		assert_true(seen_by(&world, 0)->untouched);
		assert_int_equal(world.board->wait.abort_word, 0);
		for (uint32_t a = 0; a < world.n; a++)
			for (uint64_t v = 0; v < world.layout.arena_bytes / 16; v++)
				if (memcmp(world.rank[0].arena[a] + v * 16, &world.sentinel, 16))
					fail_msg("arena %u was written", a);
		world_free(&world);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sentinel_payload),
		cmocka_unit_test(bad_count),
		cmocka_unit_test(ended_epoch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
