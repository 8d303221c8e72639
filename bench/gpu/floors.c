/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/phases.h"

#include <stdio.h>
#include <string.h>

#include "bench/gpu/kernels.h"

#define ROUND_TRIPS 4000u
#define PUSH_BYTES  (UINT64_C(256) << 20)
#define FLAG_BYTES  4096u

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(((struct bench_shared *)0)->ipc[0]), "fits");

static bool push(struct bench_rank *rank, void *to, int ctas, double *ret_gbps)
{
	const int n = 5;
	float ms = 0;

	BENCH_TRY(rank, bench_push(to, PUSH_BYTES, ctas, 1, rank->stream));
	BENCH_TRY(rank, cudaEventRecord(rank->begin, rank->stream));
	for (int i = 0; i < n; i++)
		BENCH_TRY(rank, bench_push(to, PUSH_BYTES, ctas, 2, rank->stream));
	BENCH_TRY(rank, cudaEventRecord(rank->end, rank->stream));
	BENCH_TRY(rank, cudaEventSynchronize(rank->end));
	BENCH_TRY(rank, cudaEventElapsedTime(&ms, rank->begin, rank->end));
	*ret_gbps = (double)PUSH_BYTES * n / (double)ms / 1e6;
	return true;
}

static bool ping_pong(struct bench_rank *rank, unsigned char *mine, unsigned char *peers)
{
	struct bench_floors *floors = &rank->shared->floors;
	unsigned *failed = (unsigned *)(mine + 256), has_failed = 0;
	float ms = 0;

	BENCH_TRY(rank, cudaEventRecord(rank->begin, rank->stream));
	BENCH_TRY(rank, bench_ping_pong((unsigned *)mine, (unsigned *)peers, ROUND_TRIPS,
				rank->rank == 0, failed, rank->stream));
	BENCH_TRY(rank, cudaEventRecord(rank->end, rank->stream));
	BENCH_TRY(rank, cudaEventSynchronize(rank->end));
	BENCH_TRY(rank, cudaEventElapsedTime(&ms, rank->begin, rank->end));
	BENCH_TRY(
		rank, cudaMemcpy(&has_failed, failed, sizeof(has_failed), cudaMemcpyDeviceToHost));
	if (rank->rank == 0 && !has_failed) {
		floors->one_way_us = (double)ms * 1e3 / ROUND_TRIPS / 2;
		floors->have_latency = true;
	}
	return true;
}

/* Ranks 0 and 1 only; what fails here leaves a floor out and ends nothing. */
static bool between_two(struct bench_rank *rank)
{
	struct bench_shared *shared = rank->shared;
	struct bench_floors *floors = &shared->floors;
	unsigned char *mine = NULL, *peers = NULL;
	cudaIpcMemHandle_t handle;
	cudaError_t e;

	BENCH_TRY(rank, cudaMalloc((void **)&mine, PUSH_BYTES + FLAG_BYTES));
	BENCH_TRY(rank, cudaMemset(mine, 0, PUSH_BYTES + FLAG_BYTES));
	BENCH_TRY(rank, cudaDeviceSynchronize());
	e = cudaIpcGetMemHandle(&handle, mine);
	if (e == cudaSuccess)
		memcpy(shared->ipc[rank->rank], &handle, sizeof(handle));
	else if (rank->rank == 0)
		snprintf(floors->why, sizeof(floors->why), "no latency and push floor: %s",
			cudaGetErrorString(e));
	if (!bench_barrier(shared, rank->options->world_size))
		return false;
	if (e == cudaSuccess) {
		memcpy(&handle, shared->ipc[1 - rank->rank], sizeof(handle));
		e = cudaIpcOpenMemHandle((void **)&peers, handle, cudaIpcMemLazyEnablePeerAccess);
		if (e != cudaSuccess)
			snprintf(floors->why, sizeof(floors->why),
				"no latency and push floor: rank %d can't map its peer: %s",
				rank->rank, cudaGetErrorString(e));
	}
	cudaGetLastError();
	if (!bench_barrier(shared, rank->options->world_size))
		return false;
	/* both or none: one alone would wait for nothing */
	if (!floors->why[0] && !ping_pong(rank, mine, peers))
		return false;
	if (!bench_barrier(shared, rank->options->world_size))
		return false;
	if (!floors->why[0] && rank->rank == 0) {
		unsigned char *to = peers + FLAG_BYTES;

		if (!push(rank, to, shared->machine.n_sms, &floors->push_gbps) ||
			!push(rank, to, 16, &floors->push_16_gbps))
			return false;
		floors->have_push = true;
	}
	if (!bench_barrier(shared, rank->options->world_size))
		return false;
	if (peers)
		cudaIpcCloseMemHandle(peers);
	cudaFree(mine);
	return true;
}

bool bench_phase_floors(struct bench_rank *rank)
{
	struct bench_floors *floors = &rank->shared->floors;
	int world_size = rank->options->world_size;
	double ignored;

	if (!bench_rank_open(rank))
		return false;
	if (rank->rank == 0) {
		if (!bench_measure_empty(
			    rank, 1, &floors->empty_one_us, &floors->empty_enqueue_us) ||
			!bench_measure_empty(
				rank, BENCH_GRAPH_OPS, &floors->empty_long_us, &ignored))
			return false;
		floors->have_empty = true;
	}
	if (!bench_barrier(rank->shared, world_size))
		return false;
	if (world_size < 2)
		return true;
	if (rank->rank < 2)
		return between_two(rank);
	/* the others keep step with between_two's barriers */
	for (int i = 0; i < 4; i++) {
		if (!bench_barrier(rank->shared, world_size))
			return false;
	}
	return true;
}
