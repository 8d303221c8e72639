/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/measure.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bench/gpu/kernels.h"

/* A repeat is cut short where one replay is slow: time slicing between processes costs
 * milliseconds. */
#define REPEAT_BUDGET_US 300000.0

double bench_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

bool bench_rank_open(struct bench_rank *rank)
{
	struct bench_machine *machine = &rank->shared->machine;
	struct cudaDeviceProp properties;
	int n_devices = 0;

	BENCH_TRY(rank, cudaGetDeviceCount(&n_devices));
	if (n_devices < rank->options->world_size && !rank->options->shared_gpu) {
		bench_abort(rank->shared,
			"%d ranks, but %d GPU(s): use fewer ranks, or --shared-gpu to let ranks "
			"share one",
			rank->options->world_size, n_devices);
		return false;
	}
	rank->device = rank->rank % n_devices;
	BENCH_TRY(rank, cudaSetDevice(rank->device));
	BENCH_TRY(rank, cudaStreamCreateWithFlags(&rank->stream, cudaStreamNonBlocking));
	BENCH_TRY(rank, cudaEventCreate(&rank->begin));
	BENCH_TRY(rank, cudaEventCreate(&rank->end));
	BENCH_TRY(rank, cudaMalloc((void **)&rank->wrong, sizeof(*rank->wrong)));
	BENCH_TRY(rank, cudaGetDeviceProperties(&properties, rank->device));
	const unsigned char *u = (const unsigned char *)properties.uuid.bytes;

	snprintf(machine->gpu_uuid[rank->rank], sizeof(machine->gpu_uuid[0]),
		"GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
		u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
		u[14], u[15]);
	if (rank->rank == 0) {
		snprintf(machine->gpu_name, sizeof(machine->gpu_name), "%.127s", properties.name);
		machine->n_devices = n_devices;
		machine->n_sms = properties.multiProcessorCount;
		machine->gpus_shared = n_devices < rank->options->world_size;
		cudaDriverGetVersion(&machine->cuda_driver);
		cudaRuntimeGetVersion(&machine->cuda_runtime);
	}
	return true;
}

static bool check_once(
	struct bench_rank *rank, const struct bench_subject *subject, struct bench_cell *cell)
{
	unsigned long long wrong = 0, checked;

	BENCH_TRY(rank, cudaMemsetAsync(rank->wrong, 0, sizeof(*rank->wrong), rank->stream));
	checked = subject->check(rank, subject->data);
	if (!checked)
		return false;
	BENCH_TRY(rank, cudaMemcpyAsync(&wrong, rank->wrong, sizeof(wrong), cudaMemcpyDeviceToHost,
				rank->stream));
	BENCH_TRY(rank, cudaStreamSynchronize(rank->stream));
	cell->wrong[rank->rank] += wrong;
	cell->checked[rank->rank] += checked;
	return true;
}

static bool poison(struct bench_rank *rank, const struct bench_subject *subject)
{
	if (!subject->poison(rank, subject->data))
		return false;
	BENCH_TRY(rank, cudaStreamSynchronize(rank->stream));
	return bench_barrier(rank->shared, rank->options->world_size);
}

static bool capture(struct bench_rank *rank, const struct bench_subject *subject, int n_ops,
	cudaGraphExec_t *ret_graph)
{
	cudaGraph_t graph;

	BENCH_TRY(rank, cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < n_ops; i++) {
		if (!subject->enqueue(rank, subject->data, i)) {
			cudaStreamEndCapture(rank->stream, &graph);
			return false;
		}
	}
	BENCH_TRY(rank, cudaStreamEndCapture(rank->stream, &graph));
	BENCH_TRY(rank, cudaGraphInstantiate(ret_graph, graph, 0));
	BENCH_TRY(rank, cudaGraphDestroy(graph));
	/* or the first launch uploads, which can wait for a device that already waits for us */
	BENCH_TRY(rank, cudaGraphUpload(*ret_graph, rank->stream));
	BENCH_TRY(rank, cudaStreamSynchronize(rank->stream));
	return bench_barrier(rank->shared, rank->options->world_size);
}

/* Rank 0 times one replay and decides for all how many a repeat has. */
static bool agree_on_replays(struct bench_rank *rank, cudaGraphExec_t graph, int n_ops, int *ret_n)
{
	double t0, us = 0;
	int n;

	for (int i = 0; i < 2; i++) {
		if (!bench_barrier(rank->shared, rank->options->world_size))
			return false;
		t0 = bench_now_us();
		BENCH_TRY(rank, cudaGraphLaunch(graph, rank->stream));
		BENCH_TRY(rank, cudaStreamSynchronize(rank->stream));
		us = bench_now_us() - t0;
	}
	/* a long graph holds many ops: a fifth of the replays still are thousands of them */
	n = n_ops > 2 ? (rank->options->replays + 4) / 5 : rank->options->replays;
	if (us * n > REPEAT_BUDGET_US)
		n = (int)(REPEAT_BUDGET_US / us);
	if (n < 2)
		n = 2;
	if (rank->rank == 0)
		atomic_store(&rank->shared->n_replays, n);
	if (!bench_barrier(rank->shared, rank->options->world_size))
		return false;
	*ret_n = atomic_load(&rank->shared->n_replays);
	return true;
}

static bool replay(struct bench_rank *rank, cudaGraphExec_t graph, int n)
{
	/* a full launch queue only blocks this process, which has one rank */
	for (int i = 0; i < n; i++)
		BENCH_TRY(rank, cudaGraphLaunch(graph, rank->stream));
	return true;
}

bool bench_measure(struct bench_rank *rank, const struct bench_subject *subject, int n_ops,
	struct bench_cell *cell)
{
	cudaGraphExec_t graph;
	int n_replays;

	/* eager, checked: also loads what is loaded lazily */
	if (!poison(rank, subject))
		return false;
	for (int i = 0; i < (n_ops < 2 ? n_ops : 2); i++) {
		if (!subject->enqueue(rank, subject->data, i))
			return false;
	}
	BENCH_TRY(rank, cudaStreamSynchronize(rank->stream));
	if (!check_once(rank, subject, cell))
		return false;

	if (!capture(rank, subject, n_ops, &graph) ||
		!agree_on_replays(rank, graph, n_ops, &n_replays))
		return false;
	for (int repeat = 0; repeat < rank->options->repeats; repeat++) {
		float ms = 0;

		if (!bench_barrier(rank->shared, rank->options->world_size))
			return false;
		/* the warm-up's exchange also brings the ranks together */
		BENCH_TRY(rank, cudaGraphLaunch(graph, rank->stream));
		BENCH_TRY(rank, cudaEventRecord(rank->begin, rank->stream));
		if (!replay(rank, graph, n_replays))
			return false;
		BENCH_TRY(rank, cudaEventRecord(rank->end, rank->stream));
		BENCH_TRY(rank, cudaEventSynchronize(rank->end));
		BENCH_TRY(rank, cudaEventElapsedTime(&ms, rank->begin, rank->end));
		cell->us[repeat][rank->rank] = (double)ms * 1e3 / n_replays / n_ops;
	}

	if (!poison(rank, subject))
		return false;
	BENCH_TRY(rank, cudaGraphLaunch(graph, rank->stream));
	BENCH_TRY(rank, cudaStreamSynchronize(rank->stream));
	if (!check_once(rank, subject, cell))
		return false;
	BENCH_TRY(rank, cudaGraphExecDestroy(graph));
	if (rank->rank == 0) {
		cell->replays = n_replays;
		cell->measured = true;
	}
	return bench_barrier(rank->shared, rank->options->world_size);
}

bool bench_measure_empty(struct bench_rank *rank, int n, double *ret_us, double *ret_enqueue_us)
{
	const int replays = n > 1 ? 50 : 500;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	double best = 1e9, t0;
	float ms = 0;

	BENCH_TRY(rank, bench_empty(36, 512, rank->stream));
	BENCH_TRY(rank, cudaStreamSynchronize(rank->stream));
	t0 = bench_now_us();
	for (int i = 0; i < 200; i++)
		BENCH_TRY(rank, bench_empty(36, 512, rank->stream));
	*ret_enqueue_us = (bench_now_us() - t0) / 200;
	BENCH_TRY(rank, cudaStreamSynchronize(rank->stream));
	BENCH_TRY(rank, cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < n; i++)
		BENCH_TRY(rank, bench_empty(36, 512, rank->stream));
	BENCH_TRY(rank, cudaStreamEndCapture(rank->stream, &graph));
	BENCH_TRY(rank, cudaGraphInstantiate(&exec, graph, 0));
	BENCH_TRY(rank, cudaGraphDestroy(graph));
	for (int repeat = 0; repeat < 5; repeat++) {
		BENCH_TRY(rank, cudaGraphLaunch(exec, rank->stream));
		BENCH_TRY(rank, cudaEventRecord(rank->begin, rank->stream));
		for (int i = 0; i < replays; i++)
			BENCH_TRY(rank, cudaGraphLaunch(exec, rank->stream));
		BENCH_TRY(rank, cudaEventRecord(rank->end, rank->stream));
		BENCH_TRY(rank, cudaEventSynchronize(rank->end));
		BENCH_TRY(rank, cudaEventElapsedTime(&ms, rank->begin, rank->end));
		if ((double)ms * 1e3 / replays / n < best)
			best = (double)ms * 1e3 / replays / n;
	}
	BENCH_TRY(rank, cudaGraphExecDestroy(exec));
	*ret_us = best;
	return true;
}
