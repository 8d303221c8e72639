/* SPDX-License-Identifier: Apache-2.0 */
/* gpu-ops: captured ops, replayed over calls, epochs and graphs. */
#include <stdio.h>
#include <string.h>
#include "tests/gpu/ops.h"

#define MAX_GRAPHS 50u

static const uint64_t four[] = {3584, 448, 32, 32};
static cudaGraphExec_t graphs[MAX_RANKS][MAX_GRAPHS];
static uint32_t n_graphs;

/* Sizes of all kinds; neighbours are a dispatch and a combine. */
static uint32_t rows_of(uint32_t g)
{
	static const uint32_t few[] = {1, 2, 3, 8, 17, 40, 64, 128};

	return n_graphs == 8 ? few[g] : 1u + g * 4u;
}

/*
 * Graph g's op: the same calls of make_ give the same places, in buffers that all graphs share, as
 * the graphs of an engine share their pool.
 */
static size_t make_op(uint32_t g)
{
	if (g % 2)
		return make_combine(
			MC_DTYPE_BF16, 1024, rows_of(g), UNIFORM, g % 4 == 3, false, false, false);
	return make_dispatch(4, four, rows_of(g), UNIFORM, false, false);
}

static void capture(uint32_t g)
{
	make_op(g);
	for (uint32_t r = 0; r < world_size; r++) {
		cudaGraph_t graph;

		CHECK(cudaSetDevice(device_of(r)));
		ranks[r].channel = 0;
		CHECK(cudaStreamBeginCapture(ranks[r].stream, cudaStreamCaptureModeGlobal));
		enqueue(r);
		CHECK(cudaStreamEndCapture(ranks[r].stream, &graph));
		CHECK(cudaGraphInstantiate(&graphs[r][g], graph, 0));
		CHECK(cudaGraphUpload(graphs[r][g], ranks[r].stream));
		CHECK(cudaGraphDestroy(graph));
	}
	wait_streams(5000);
}

static void capture_all(uint32_t n_sizes)
{
	n_graphs = n_sizes < MAX_GRAPHS ? n_sizes : MAX_GRAPHS;
	for (uint32_t g = 0; g < n_graphs; g++)
		capture(g);
}

static void launch_graph(uint32_t g, bool delays)
{
	uint32_t late = delays ? below(64) : UINT32_MAX;

	for (uint32_t r = 0; r < world_size; r++) {
		/* once in a while one rank comes later than the others, up to 2 ms */
		if (r == late)
			usleep(below(2000));
		CHECK(cudaSetDevice(device_of(r)));
		CHECK(cudaGraphLaunch(graphs[r][g], ranks[r].stream));
	}
}

/* In random order; now and then one is checked on fresh inputs and poisoned outputs. */
static void replay_all(uint32_t n_replays, bool delays)
{
	for (uint32_t i = 0; i < n_replays; i++) {
		uint32_t g = below(n_graphs);

		if (i % 100 == 99) {
			size_t n;

			wait_streams(20000);
			n = make_op(g);
			for (uint32_t r = 0; r < world_size; r++)
				ranks[r].channel =
					1; /* the twins keep their own count of calls there */
			upload(n);
			launch_graph(g, delays);
			wait_streams(20000);
			run_twins();
			compare(n, "replayed graph");
		} else {
			launch_graph(g, delays);
			if (i % 16 == 15) /* ranks of one context share its launch queue */
				wait_streams(20000);
		}
	}
	wait_streams(20000);
}

static void destroy_all(void)
{
	for (uint32_t r = 0; r < world_size; r++)
		for (uint32_t g = 0; g < n_graphs; g++)
			CHECK(cudaGraphExecDestroy(graphs[r][g]));
}

void graph_cases(uint32_t n_sizes, uint32_t n_replays, bool delays)
{
	capture_all(n_sizes);
	replay_all(n_replays, delays);
	destroy_all();
}

/* Free bytes of all devices together. */
static size_t free_memory(void)
{
	size_t sum = 0;

	for (int d = 0; d < n_devices; d++) {
		size_t n_free, n_total;

		CHECK(cudaSetDevice(d));
		CHECK(cudaMemGetInfo(&n_free, &n_total));
		sum += n_free;
	}
	return sum;
}

static uint32_t count_mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	uint32_t n = 0;
	int c;

	while (file && (c = fgetc(file)) != EOF)
		n += c == '\n';
	if (file)
		fclose(file);
	return n;
}

void graph_leak_case(void)
{
	size_t n_free = 0;
	uint32_t n_mappings = 0;
	char text[160];

	/* the first rounds fill the driver's own pools, which it keeps */
	for (int round = 0; round < 30; round++) {
		if (round == 5) {
			n_free = free_memory();
			n_mappings = count_mappings();
		}
		capture_all(8);
		for (uint32_t g = 0; g < n_graphs; g++)
			launch_graph(g, false);
		wait_streams(20000);
		destroy_all();
	}
	snprintf(text, sizeof(text), "200 graphs left %lld bytes of device memory, %d mappings",
		(long long)n_free - (long long)free_memory(),
		(int)count_mappings() - (int)n_mappings);
	expect(free_memory() >= n_free && count_mappings() <= n_mappings, text);
}

void epoch_cases(void)
{
	double begin;

	begin_epoch(&relaxed_wait);
	capture_all(8);
	replay_all(200, false);
	end_epoch();
	begin = now_ms();
	for (uint32_t g = 0; g < n_graphs; g++)
		launch_graph(g, false);
	wait_streams(1000);
	expect(now_ms() - begin < 200, "between epochs a graph returns at once");
	for (int i = 0; i < 3; i++) {
		begin_epoch(&relaxed_wait);
		probe_all();
		replay_all(200, false);
		end_epoch();
	}
	destroy_all();
}
