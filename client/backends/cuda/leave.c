/* SPDX-License-Identifier: Apache-2.0 */
/* The end of an epoch on the device: waiting ops are told, and its memory goes once none is left.
 */
#include <string.h>
#include <time.h>
#include "client/backends/cuda/rank.h"

/* After the failed flag is set, a waiting kernel leaves within its next look, far below this. */
#define LEAST_LEAVE_MS 250u
/* A 4-byte copy by the copy engine; only a dead device takes longer. */
#define POISON_MS 500u

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/*
 * From any thread, also one that has never used CUDA. The runtime's calls would make the context of
 * GPU 0 for such a one, whichever GPU this rank is on: a tenth of a second, and half a GiB there.
 */
void mc_rank_poison(struct mc_backend_rank *rank, uint32_t fault_status)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	const struct timespec pause = {.tv_nsec = 20000};
	const uint64_t begun_ms = now_ms();
	CUcontext old;

	pthread_mutex_lock(&rank->lock);
	if (rank->mapped) {
		const CUdeviceptr at = rank->control.at + offsetof(struct mc_control, failed);

		rank->cu->cuThreadExchangeStreamCaptureMode(&mode);
		rank->cu->cuCtxPushCurrent(rank->context);
		/* by the copy engine: waiting kernels may hold every SM */
		__atomic_store_n(&rank->pinned->poison, fault_status, __ATOMIC_RELEASE);
		if (rank->cu->cuMemcpyHtoDAsync(at, &rank->pinned->poison, sizeof(uint32_t),
			    rank->stream) == CUDA_SUCCESS)
			while (rank->cu->cuStreamQuery(rank->stream) == CUDA_ERROR_NOT_READY &&
				now_ms() - begun_ms < POISON_MS)
				nanosleep(&pause, NULL);
		rank->cu->cuCtxPopCurrent(&old);
		rank->cu->cuThreadExchangeStreamCaptureMode(&mode);
	}
	pthread_mutex_unlock(&rank->lock);
}

/*
 * Ops post their progress rarely; whoever goes leaves the true numbers behind, so that the daemon
 * can tell whether others have entered a call that nobody will serve. The device is idle.
 */
static void post_last_calls(struct mc_backend_rank *rank)
{
	struct mc_progress *progress;
	struct mc_backend_error ignored;

	if (!rank->board || !rank->mapped || mc_rank_copy_control(rank, false, &ignored))
		return;
	if (rank->pinned->control.failed)
		return; /* where it failed is on the board */
	progress = rank->board->rank[rank->view.rank].progress;
	for (uint32_t c = 0; c < rank->view.layout.n_channels && c < MC_MAX_CHANNELS; c++) {
		struct mc_progress last = progress[c];
		uint64_t half;

		last.call = (uint32_t)rank->pinned->control.channel[c].call - 1u;
		last.left = 1;
		if (!last.call)
			continue;
		/* call and left are in one half, which is read as one */
		memcpy(&half, &last, sizeof(half));
		__atomic_store_n((uint64_t *)&progress[c], half, __ATOMIC_RELEASE);
	}
}

void mc_rank_unmap(struct mc_backend_rank *rank, uint32_t timeout_ms)
{
	uint32_t half_ms = timeout_ms / 2;
	bool idle;

	if (!rank->mapped && !rank->stuck)
		return;
	/* what was stuck has been told already */
	idle = mc_rank_wait_idle(rank, rank->stuck ? timeout_ms : half_ms);
	if (!idle && !rank->stuck) {
		/* ours leave when told; what else may run there is not ours to end */
		mc_rank_poison(rank, MC_FAULT_ABORTED);
		idle = mc_rank_wait_idle(rank, half_ms > LEAST_LEAVE_MS ? half_ms : LEAST_LEAVE_MS);
	}
	pthread_mutex_lock(&rank->lock);
	rank->stuck = !idle;
	if (!rank->stuck)
		post_last_calls(rank);
	rank->mapped = false;
	/* memory that a kernel may still touch stays: a leak is better than a fault that ends the
	 * context */
	if (!rank->stuck)
		mc_rank_unmap_all(rank);
	pthread_mutex_unlock(&rank->lock);
}
