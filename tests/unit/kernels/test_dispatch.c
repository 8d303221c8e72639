/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch: every byte arrives, whatever the shape; nothing else is touched. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#define POISON 0xcd

static const uint32_t world_sizes[] = {1, 2, 3, 4, 5, 8};
#define N_WORLD_SIZES (sizeof(world_sizes) / sizeof(world_sizes[0]))

/* Byte b of rank r's row of tensor i in round n. */
static uint8_t byte_of(uint32_t n, uint32_t r, uint32_t i, uint64_t b)
{
	uint64_t state = (uint64_t)n << 40 ^ (uint64_t)r << 32 ^ (uint64_t)i << 56 ^ b / 8;

	return (uint8_t)(world_random(&state) >> b % 8 * 8);
}

struct shape {
	uint32_t n_tensors;
	uint64_t row_bytes[MC_MAX_TENSORS];
	uint32_t rows[MC_MAX_WORLD_SIZE];
	int32_t counts[MC_MAX_WORLD_SIZE]; /* -1: exact rows */
	int32_t ids_tensor;
	uint32_t misalign;
};

/* One dispatch with everything around and in the outputs checked. */
static void run_shape(struct world *world, uint32_t rank, uint32_t n, const struct shape *shape)
{
	struct mc_dispatch op = {.n_tensors = shape->n_tensors, .ids_tensor = shape->ids_tensor};
	uint8_t *input[MC_MAX_TENSORS], *output[MC_MAX_TENSORS];
	int32_t ret_counts[MC_MAX_WORLD_SIZE + 1];
	bool counted = shape->counts[0] >= 0, told = counted || n % 2;
	uint64_t total = 0, m = shape->misalign;
	struct mc_fault fault;

	memset(ret_counts, 0x77, sizeof(ret_counts));
	for (uint32_t r = 0; r < world->n; r++) {
		op.rows[r] = shape->rows[r];
		total += shape->rows[r];
	}
	for (uint32_t i = 0; i < shape->n_tensors; i++) {
		uint64_t n_in = shape->rows[rank] * shape->row_bytes[i];
		uint64_t n_out = total * shape->row_bytes[i];

		input[i] = malloc(n_in + m + 1);
		output[i] = malloc(n_out + m + 32);
		memset(output[i], POISON, n_out + m + 32);
		for (uint64_t b = 0; b < n_in; b++)
			input[i][m + b] = byte_of(n, rank, i, b);
		op.tensor[i] = (struct mc_tensor){
			n_in ? input[i] + m : NULL, output[i] + m, shape->row_bytes[i]};
	}
	if (counted)
		op.count = &shape->counts[rank];
	if (told)
		op.ret_counts = ret_counts;
	WORLD_CHECK(world, world_dispatch(world, rank, 0, &op, &fault) == MC_FAULT_NONE);
	for (uint32_t i = 0; i < shape->n_tensors; i++) {
		uint8_t *at = output[i] + m;
		bool right = true;

		for (uint64_t b = 0; b < m; b++)
			right = right && output[i][b] == POISON;
		for (uint32_t r = 0; r < world->n; r++) {
			uint64_t n_bytes = shape->rows[r] * shape->row_bytes[i];
			uint64_t n_valid =
				counted ? (uint64_t)shape->counts[r] * shape->row_bytes[i]
					: n_bytes;
			uint8_t padding = (int32_t)i == shape->ids_tensor ? 0xff : POISON;

			for (uint64_t b = 0; b < n_bytes; b++)
				right = right &&
					at[b] == (b < n_valid ? byte_of(n, r, i, b) : padding);
			at += n_bytes;
		}
		for (uint64_t b = 0; b < 32; b++)
			right = right && at[b] == POISON;
		WORLD_CHECK(world, right);
		free(input[i]);
		free(output[i]);
	}
	for (uint32_t r = 0; told && r < world->n; r++)
		WORLD_CHECK(world,
			ret_counts[r] == (counted ? shape->counts[r] : (int32_t)shape->rows[r]));
	WORLD_CHECK(world, ret_counts[told ? world->n : 0] == 0x77777777);
}

static void shapes_on_rank(struct world *world, uint32_t rank, void *data)
{
	static const uint64_t widths[] = {1, 3, 17, 4096, 16, 32, 100, 8};
	uint64_t state = *(uint64_t *)data;

	for (uint32_t n = 0; n < 60; n++) {
		struct shape shape = {.ids_tensor = -1, .n_tensors = n % MC_MAX_TENSORS + 1};
		bool counted = n % 3 == 2;

		for (uint32_t i = 0; i < shape.n_tensors; i++)
			shape.row_bytes[i] = widths[(i + world_random(&state)) % 8];
		if (shape.row_bytes[0] % 4 == 0)
			shape.ids_tensor = 0;
		for (uint32_t r = 0; r < world->n; r++) {
			uint64_t draw = world_random(&state);

			/* all empty, all equal, ragged with empty ones */
			shape.rows[r] = n % 11 == 0 ? 0 : n % 7 == 0 ? 5 : (uint32_t)(draw % 4 * 3);
			shape.counts[r] =
				counted ? (int32_t)(draw >> 32) % ((int32_t)shape.rows[r] + 1) : -1;
			if (shape.counts[r] < 0 && counted)
				shape.counts[r] = 0;
		}
		shape.misalign = n % 2 ? (uint32_t)(world_random(&state) % 16) : 0;
		run_shape(world, rank, n, &shape);
	}
}

static void shapes(enum world_mode mode)
{
	for (size_t i = 0; i < N_WORLD_SIZES; i++) {
		struct world_options options = {
			.max_rows = 9, .dispatch_row_bytes = 8 * 4096, .combine_row_bytes = 64};
		uint64_t seed = 11 + i;
		struct world world;

		world_make(&world, world_sizes[i], &options);
		world_run(&world, mode, shapes_on_rank, &seed);
		world_free(&world);
	}
}

static void shapes_threads(void **state)
{
	(void)state;
	shapes(WORLD_THREADS);
}

static void shapes_processes(void **state)
{
	int n_fds = world_count_fds();

	(void)state;
	shapes(WORLD_PROCESSES);
	assert_int_equal(world_count_fds(), n_fds);
}

/* Equal rows of whole vectors: few and many of them, in one tensor and in several. */
static void even_on_rank(struct world *world, uint32_t rank, void *data)
{
	static const uint64_t widths[] = {16, 4096, 48, 1600};
	uint64_t state = *(uint64_t *)data;

	for (uint32_t n = 0; n < 24; n++) {
		struct shape shape = {
			.ids_tensor = -1, .n_tensors = n % MC_MAX_TENSORS + 1, .counts = {-1}};
		uint32_t rows = (uint32_t)(world_random(&state) % 5);

		for (uint32_t i = 0; i < shape.n_tensors; i++)
			shape.row_bytes[i] = widths[world_random(&state) % 4];
		for (uint32_t r = 0; r < world->n; r++)
			shape.rows[r] = rows;
		run_shape(world, rank, n, &shape);
	}
}

static void even(void **state)
{
	struct world_options options = {.max_rows = 9, .dispatch_row_bytes = 8 * 4096};

	(void)state;
	for (size_t i = 0; i < N_WORLD_SIZES; i++) {
		uint64_t seed = 31 + i;
		struct world world;

		world_make(&world, world_sizes[i], &options);
		world_run(&world, WORLD_THREADS, even_on_rank, &seed);
		world_free(&world);
	}
}

/* More peers than a warp has lanes; each form once or twice, since so many ranks take their time.
 */
static void many_on_rank(struct world *world, uint32_t rank, void *data)
{
	(void)data;
	for (uint32_t n = 0; n < 6; n++) {
		struct shape shape = {.ids_tensor = n % 2 ? 0 : -1,
			.n_tensors = 2,
			.row_bytes = {16, n < 3 ? 32 : 17},
			.misalign = n < 3 ? 0 : n};

		for (uint32_t r = 0; r < world->n; r++) {
			shape.rows[r] = n < 3 ? n : 1 + r % 2;
			shape.counts[r] = n == 2 || n == 5 ? (int32_t)(r % 2) : -1;
		}
		run_shape(world, rank, n, &shape);
	}
}

static void many_ranks(void **state)
{
	struct world_options options = {.max_rows = 2, .dispatch_row_bytes = 48};
	struct world world;

	(void)state;
	world_make(&world, 36, &options);
	world_run(&world, WORLD_THREADS, many_on_rank, NULL);
	world_free(&world);
}

/* Every 16-bit pattern, fp32 specials and words other designs take for "empty". */
static void bits_on_rank(struct world *world, uint32_t rank, void *data)
{
	static const uint32_t words[] = {0, 0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u,
		0x7f800001u, 0xffffffffu, 1, 0x80000001u, 0x007fffffu, 0x7f7fffffu, 0x7fffffffu};
	uint32_t n_words = sizeof(words) / sizeof(words[0]);
	static _Thread_local uint16_t in[65536], out[3 * 65536];
	static _Thread_local uint32_t wide[4096], wide_out[3 * 4096];
	struct mc_dispatch op = {.n_tensors = 2,
		.tensor = {{in, out, 512}, {wide, wide_out, 64}},
		.rows = {256, 256, 256},
		.ids_tensor = -1};
	struct mc_fault fault;
	bool right = true;

	(void)data;
	for (uint32_t i = 0; i < 65536; i++)
		in[i] = (uint16_t)(i + rank);
	for (uint32_t i = 0; i < 4096; i++)
		wide[i] = i < 2048 ? 0x80000000u : words[(i / (rank + 1)) % n_words];
	if (!WORLD_CHECK(world, world_dispatch(world, rank, 0, &op, &fault) == MC_FAULT_NONE))
		return;
	for (uint32_t r = 0; r < 3; r++) {
		for (uint32_t i = 0; i < 65536; i++)
			right = right && out[r * 65536 + i] == (uint16_t)(i + r);
		for (uint32_t i = 0; i < 4096; i++)
			right = right &&
				wide_out[r * 4096 + i] ==
					(i < 2048 ? 0x80000000u : words[(i / (r + 1)) % n_words]);
	}
	WORLD_CHECK(world, right);
}

static void bits(void **state)
{
	struct world_options options = {.max_rows = 256, .dispatch_row_bytes = 576};
	struct world world;

	(void)state;
	world_make(&world, 3, &options);
	world_run(&world, WORLD_PROCESSES, bits_on_rank, NULL);
	world_free(&world);
}

/* Uniform rows, as a list or not, are one op; a layer's two channels run side by side. */
static void channel_on_rank(struct world *world, uint32_t rank, void *data)
{
	uint32_t channel = *(uint32_t *)data;
	uint64_t state = channel;
	uint8_t in[12 * 40], out[4 * 12 * 40];
	struct mc_fault fault;

	for (uint32_t n = 0; n < 2000; n++) {
		uint32_t rows = (uint32_t)(world_random(&state) % 13);
		struct mc_dispatch op = {
			.n_tensors = 1, .tensor = {{in, out, 40}}, .ids_tensor = -1};
		bool right = true;

		for (uint32_t r = 0; r < world->n; r++)
			op.rows[r] = rows;
		memset(in, (int)(n * 3 + rank * 17 + channel * 101), sizeof(in));
		if (!WORLD_CHECK(world,
			    world_dispatch(world, rank, channel, &op, &fault) == MC_FAULT_NONE))
			return;
		for (uint32_t r = 0; r < world->n; r++)
			for (uint32_t b = 0; b < rows * 40; b++)
				right = right && out[r * rows * 40 + b] ==
							 (uint8_t)(n * 3 + r * 17 + channel * 101);
		if (!WORLD_CHECK(world, right))
			return;
	}
}

static void both_channels(struct world *world, uint32_t index, void *data)
{
	uint32_t channel = index / 2;

	(void)data;
	/* the helper world has a "rank" for each channel of each real rank */
	channel_on_rank(world->results, index % 2, &channel);
}

static void channels(void **state)
{
	struct world_options options = {.n_channels = 2, .max_rows = 12, .dispatch_row_bytes = 40};
	struct world world, threads;

	(void)state;
	world_make(&world, 2, &options);
	world_make(&threads, 4, &options);
	threads.results = &world;
	world_run(&threads, WORLD_THREADS, both_channels, NULL);
	assert_int_equal(*world.n_failed, 0);
	world_free(&threads);
	world_free(&world);
}

static void mask_ids(void **state)
{
	int32_t ids[5 * 3], count;
	struct mc_mask_ids op = {.ids = ids, .rows = 5, .topk = 3, .count = &count};
	struct world_options options = {.max_rows = 4, .dispatch_row_bytes = 64};
	struct world world;

	(void)state;
	world_make(&world, 1, &options);
	for (count = 0; count <= 5; count++) {
		for (int i = 0; i < 15; i++)
			ids[i] = 100 + i;
		assert_int_equal(world_mask_ids(&world, 0, &op), MC_FAULT_NONE);
		for (int i = 0; i < 15; i++)
			assert_int_equal(ids[i], i < count * 3 ? 100 + i : -1);
	}
	count = 6;
	assert_int_equal(world_mask_ids(&world, 0, &op), MC_FAULT_BAD_COUNT);
	world_free(&world);
	world_make(&world, 1, &options);
	count = -1;
	assert_int_equal(world_mask_ids(&world, 0, &op), MC_FAULT_BAD_COUNT);
	world_free(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shapes_threads),
		cmocka_unit_test(shapes_processes),
		cmocka_unit_test(even),
		cmocka_unit_test(many_ranks),
		cmocka_unit_test(bits),
		cmocka_unit_test(channels),
		cmocka_unit_test(mask_ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
