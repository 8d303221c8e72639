/* SPDX-License-Identifier: Apache-2.0 */
/* Layout arithmetic, capacity and digests. */
#include "world.h"

#include <string.h>

static struct mc_layout_spec spec_of(uint32_t n, uint64_t rows, uint64_t row_bytes)
{
	return (struct mc_layout_spec){.world_size = n,
		.n_channels = 1,
		.max_rows = rows,
		.dispatch_row_bytes = row_bytes};
}

/* Slots must lie apart, aligned, and inside the arena. */
static void check_places(const struct mc_layout *l)
{
	uint64_t end = (uint64_t)(l->world_size - 1) * MC_PROBE_BYTES;

	assert_true(l->arena_bytes >= 4096 && l->arena_bytes % 4096 == 0);
	assert_true(l->ring_offset >= end);
	end = l->ring_offset;
	for (uint32_t c = 0; c < l->n_channels; c++)
		for (uint64_t call = 2; call < 4; call++)
			for (uint32_t i = 1; i < l->world_size; i++) {
				uint64_t at = mc_slot_offset(l, 0, i, c, call);

				assert_true(at >= end && at % 128 == 0);
				end = at + MC_SLOT_HEADER_BYTES + l->slot_data_bytes;
			}
	assert_true(end <= l->arena_bytes);
}

static void places(void **state)
{
	static const uint32_t sizes[] = {1, 2, 3, 4, 5, 8, 64};
	struct mc_layout l;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (uint32_t channels = 1; channels <= MC_MAX_CHANNELS; channels += 7) {
			struct mc_layout_spec spec = spec_of(sizes[i], 33, 4099);

			spec.n_channels = channels;
			assert_int_equal(mc_layout_make(&spec, &l), 0);
			check_places(&l);
		}
	/* every writer has its own slot with every reader */
	for (uint32_t reader = 0; reader < 5; reader++)
		for (uint32_t writer = 0, seen = 0; writer < 5; writer++)
			if (writer != reader) {
				uint32_t index = mc_slot_index(reader, writer, 5);

				assert_true(index < 4 && !(seen >> index & 1));
				seen |= 1u << index;
			}
}

static void around_32_bits(void **state)
{
	static const uint64_t totals[] = {UINT64_C(1) << 31, UINT64_C(1) << 32};
	struct mc_layout l;

	(void)state;
	for (size_t t = 0; t < 2; t++)
		for (int64_t d = -2; d <= 2; d++)
			for (uint64_t row_bytes = 1; row_bytes <= 4096; row_bytes *= 16) {
				uint64_t rows = totals[t] / row_bytes + (uint64_t)d;
				struct mc_layout_spec spec = spec_of(4, rows, row_bytes);

				if (rows > MC_MAX_ROWS) {
					assert_int_equal(
						mc_layout_make(&spec, &l), MC_LAYOUT_E_ROWS);
					continue;
				}
				assert_int_equal(mc_layout_make(&spec, &l), 0);
				check_places(&l);
				assert_true(l.slot_data_bytes >= rows * row_bytes);
				assert_true(mc_layout_capacity(&l, row_bytes) >= rows);
			}
}

static void refusals(void **state)
{
	struct mc_layout l, before;
	struct {
		struct mc_layout_spec spec;
		int error;
	} cases[] = {
		{{0, 1, 1, 1, 0}, MC_LAYOUT_E_WORLD_SIZE},
		{{65, 1, 1, 1, 0}, MC_LAYOUT_E_WORLD_SIZE},
		{{2, 0, 1, 1, 0}, MC_LAYOUT_E_CHANNELS},
		{{2, 9, 1, 1, 0}, MC_LAYOUT_E_CHANNELS},
		{{2, 1, 0, 1, 0}, MC_LAYOUT_E_ROWS},
		{{2, 1, UINT64_C(0x80000000), 1, 0}, MC_LAYOUT_E_ROWS},
		{{2, 1, UINT64_MAX, 1, 0}, MC_LAYOUT_E_ROWS},
		{{2, 1, 1, 0, 0}, MC_LAYOUT_E_ROW_BYTES},
		{{2, 1, 1, UINT64_MAX, 0}, MC_LAYOUT_E_TOO_LARGE},
		{{2, 1, 1, UINT64_MAX - 15, 0}, MC_LAYOUT_E_TOO_LARGE},
		{{2, 1, 1, UINT64_MAX - 300, 0}, MC_LAYOUT_E_TOO_LARGE},
		{{2, 1, 3, UINT64_MAX / 2, 0}, MC_LAYOUT_E_TOO_LARGE},
		{{64, 8, 1, UINT64_C(1) << 54, 0}, MC_LAYOUT_E_TOO_LARGE},
		{{64, 8, 1, 0, UINT64_C(1) << 57}, MC_LAYOUT_E_TOO_LARGE},
		{{1, 1, MC_MAX_ROWS, UINT64_C(1) << 32, 0}, MC_LAYOUT_E_TOO_LARGE},
		{{2, 1, 2, UINT64_C(1) << 40, 0}, MC_LAYOUT_E_TOO_LARGE},
	};

	(void)state;
	memset(&before, 0x5a, sizeof(before));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		l = before;
		assert_int_equal(mc_layout_make(&cases[i].spec, &l), cases[i].error);
		assert_memory_equal(&l, &before, sizeof(l));
		assert_string_not_equal(
			mc_layout_error_text(cases[i].error), mc_layout_error_text(0));
	}
}

/* "It fits" and what an op needs agree for every row count around the limit. */
static void capacity(void **state)
{
	struct mc_layout l;

	(void)state;
	for (uint64_t rows = 1; rows <= 300; rows += rows < 20 ? 1 : 35)
		for (uint64_t row_bytes = 1; row_bytes <= 200; row_bytes++) {
			struct mc_layout_spec spec = spec_of(3, rows, row_bytes);
			uint64_t can;

			assert_int_equal(mc_layout_make(&spec, &l), 0);
			can = mc_layout_capacity(&l, row_bytes);
			assert_true(can >= rows && can < rows + 16);
			for (uint64_t n = can > 2 ? can - 2 : 1; n <= can; n++) {
				/* the worst packing: 8 tensors, each with a started vector */
				uint64_t n_tensors = row_bytes < MC_MAX_TENSORS ? row_bytes
										: MC_MAX_TENSORS,
					 vectors = 0;

				for (uint64_t i = 0; i < n_tensors; i++)
					vectors += mc_vectors(
						n * (i == 0 ? row_bytes - n_tensors + 1 : 1));
				assert_true(vectors * MC_VECTOR_BYTES <= l.slot_data_bytes);
			}
		}
	assert_int_equal(mc_layout_capacity(&l, 0), 0);
	assert_int_equal(mc_layout_capacity(&l, UINT64_MAX), 0);
	l.slot_data_bytes = UINT64_C(1) << 41;
	assert_int_equal(mc_layout_capacity(&l, 1), MC_MAX_ROWS);
	l.slot_data_bytes = 0;
	assert_int_equal(mc_layout_capacity(&l, 1), 0);
}

static void digests(void **state)
{
	int32_t count = 0;
	char a[8];
	struct mc_dispatch d = {.n_tensors = 2,
		.tensor = {{a, a, 16}, {a, a, 4}},
		.rows = {3, 3, 3},
		.ids_tensor = -1};
	struct mc_dispatch other = d;
	struct mc_combine c = {.dtype = MC_DTYPE_BF16, .hidden = 64, .rows = {3, 3, 3}}, e = c;
	uint32_t base = mc_dispatch_digest(&d, 3), sum = mc_combine_digest(&c, 3);

	(void)state;
	other.tensor[0].input = NULL; /* pointers are each rank's own */
	assert_int_equal(mc_dispatch_digest(&other, 3), base);
#define DIFFERS(change)                                                                            \
	do {                                                                                       \
		other = d;                                                                         \
		change;                                                                            \
		assert_int_not_equal(mc_dispatch_digest(&other, 3), base);                         \
	} while (0)
	DIFFERS(other.rows[2] = 4);
	DIFFERS(other.n_tensors = 1);
	DIFFERS(other.tensor[1].row_bytes = 8);
	DIFFERS((other.tensor[0].row_bytes = 4, other.tensor[1].row_bytes = 16));
	DIFFERS(other.ids_tensor = 1);
	DIFFERS(other.count = &count);
	assert_int_not_equal(mc_dispatch_digest(&d, 2), base);
	e.eps = 1.0f;
	assert_int_equal(mc_combine_digest(&e, 3), sum);
	e = c, e.dtype = MC_DTYPE_FP16;
	assert_int_not_equal(mc_combine_digest(&e, 3), sum);
	e = c, e.hidden = 65;
	assert_int_not_equal(mc_combine_digest(&e, 3), sum);
	e = c, e.hidden += UINT64_C(1) << 32;
	assert_int_not_equal(mc_combine_digest(&e, 3), sum);
	e = c, e.gamma = a;
	assert_int_not_equal(mc_combine_digest(&e, 3), sum);
	e = c, e.counts = &count;
	assert_int_not_equal(mc_combine_digest(&e, 3), sum);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places),
		cmocka_unit_test(around_32_bits),
		cmocka_unit_test(refusals),
		cmocka_unit_test(capacity),
		cmocka_unit_test(digests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
