/* SPDX-License-Identifier: Apache-2.0 */
/* The join probe: right pairs pass; silent and corrupting ones are named, and only they. */
#include "world.h"

#include <string.h>
#include "kernels/host/inject.h"

static const struct world_options options = {.max_rows = 4, .dispatch_row_bytes = 64};

static uint8_t *results_of(struct world *world, uint32_t rank)
{
	return (uint8_t *)world->results + rank * MC_MAX_WORLD_SIZE;
}

static void probe_on_rank(struct world *world, uint32_t rank, void *data)
{
	int n_bad = 0, n = world_probe(world, rank, *(uint32_t *)data, results_of(world, rank));

	for (uint32_t p = 0; p < world->n; p++)
		n_bad += results_of(world, rank)[p] != MC_PROBE_OK;
	WORLD_CHECK(world, n == n_bad);
}

static void check(struct world *world, uint32_t rank, uint32_t peer, int result)
{
	assert_int_equal(results_of(world, rank)[peer], result);
}

static void all_right(void **state)
{
	static const uint32_t sizes[] = {1, 2, 3, 8};
	uint32_t timeout_ms = 10000;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct world world;

		world_make(&world, sizes[i], &options);
		/* twice: reading leaves the area as it was */
		for (int k = 0; k < 2; k++) {
			memset(world.results, 0xaa, 4096);
			world_run(&world, k ? WORLD_THREADS : WORLD_PROCESSES, probe_on_rank,
				&timeout_ms);
			for (uint32_t r = 0; r < sizes[i]; r++)
				for (uint32_t p = 0; p < sizes[i]; p++)
					check(&world, r, p, MC_PROBE_OK);
		}
		world_free(&world);
	}
}

static void absent_rank(void **state)
{
	uint32_t timeout_ms = 200;
	uint64_t begin_ms = world_now_ms();
	struct world world;

	(void)state;
	world_make(&world, 3, &options);
	world_run_ranks(&world, WORLD_PROCESSES, 3, probe_on_rank, &timeout_ms);
	assert_in_range(world_now_ms() - begin_ms, 190, 1500);
	for (uint32_t r = 0; r < 2; r++) {
		check(&world, r, 2, MC_PROBE_TIMEOUT);
		check(&world, r, 1 - r, MC_PROBE_OK);
	}
	world_free(&world);
}

static void garbage(void **state)
{
	uint32_t timeout_ms = 5000;
	struct world world;
	uint8_t *at;

	(void)state;
	world_make(&world, 3, &options);
	at = world.rank[0].arena[0] + mc_probe_offset(&world.layout, 0, 2) + 255 * 16;
	memset(at, 0x11, 16);
	world_run_ranks(&world, WORLD_PROCESSES, 3, probe_on_rank, &(uint32_t){100});
	check(&world, 0, 2, MC_PROBE_TIMEOUT); /* garbage that is never reached is not judged */
	world_free(&world);

	world_make(&world, 2, &options);
	at = world.rank[0].arena[0] + mc_probe_offset(&world.layout, 0, 1);
	memset(at, 0x11, 16);
	world_probe(&world, 0, 100, results_of(&world, 0));
	check(&world, 0, 1, MC_PROBE_CORRUPT);
	/* an abort ends the waiting early */
	world.board->wait.abort_word = mc_abort_word(MC_FAULT_ABORTED, 0);
	mc_host_fill(at, MC_PROBE_BYTES, &world.sentinel);
	world_probe(&world, 0, timeout_ms, results_of(&world, 0));
	check(&world, 0, 1, MC_PROBE_TIMEOUT);
	world_free(&world);
}

static void injected(void **state)
{
#ifdef MC_FAULT_INJECTION
	uint32_t timeout_ms = 400;
	struct world world;

	(void)state;
	if (world_is_cuda)
		skip(); /* no faults are injected into kernels */
	for (int k = 0; k < 2; k++) {
		world_make(&world, 4, &options);
		assert_int_equal(mc_inject_set(k ? "flip_probe:1>3" : "drop_probe:1>3"), 0);
		world_run(&world, WORLD_PROCESSES, probe_on_rank, &timeout_ms);
		assert_int_equal(mc_inject_set(NULL), 0);
		for (uint32_t r = 0; r < 4; r++)
			for (uint32_t p = 0; p < 4; p++)
				check(&world, r, p,
					r == 3 && p == 1 ? (k ? MC_PROBE_CORRUPT : MC_PROBE_TIMEOUT)
							 : MC_PROBE_OK);
		world_free(&world);
	}
#else
	(void)state;
	skip(); /* built without MC_FAULT_INJECTION */
#endif
}

static void fill(void **state)
{
	static uint8_t memory[300000];
	struct mc_vector s = {{1, 2, 3, 4}};

	(void)state;
	for (size_t n = 0; n <= 262160; n = n ? n * 2 + 16 : 16) {
		memset(memory, 0, sizeof(memory));
		mc_host_fill(memory, n, &s);
		for (size_t i = 0; i < sizeof(memory); i += 16)
			if (i < n)
				assert_memory_equal(memory + i, &s, 16);
			else
				assert_int_equal(memory[i], 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_right),
		cmocka_unit_test(absent_rank),
		cmocka_unit_test(garbage),
		cmocka_unit_test(injected),
		cmocka_unit_test(fill),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
