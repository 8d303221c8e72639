/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/life/work.h"

#include <stdio.h>
#include <string.h>

#define POISON  0xa5
#define N_PLAIN 1000
#define BLOCK   ((size_t)WORK_ROWS * WORK_ROW_BYTES)
#define SUMS    ((size_t)WORK_ROWS * WORK_HIDDEN)

#define TRY(call)                                                                                  \
	do {                                                                                       \
		int e_ = (int)(call);                                                              \
		if (e_) {                                                                          \
			fprintf(stderr, "rank %d: %s: %s\n", work->rank, #call,                    \
				cudaGetErrorString((cudaError_t)e_));                              \
			return e_;                                                                 \
		}                                                                                  \
	} while (0)

static int both(void **ret_host, void **ret_device, size_t n_bytes)
{
	int e = (int)cudaMallocHost(ret_host, n_bytes);

	return e ? e : (int)cudaMalloc(ret_device, n_bytes);
}

int work_open(struct work *work, int rank, int world_size, int device)
{
	size_t w = (size_t)world_size;

	work->rank = rank;
	work->world_size = world_size;
	work->is_first = true;
	TRY(cudaSetDevice(device));
	TRY(cudaStreamCreateWithFlags(&work->stream, cudaStreamNonBlocking));
	TRY(both((void **)&work->rows, (void **)&work->rows_device, BLOCK));
	TRY(both((void **)&work->gathered, (void **)&work->gathered_device, w * BLOCK));
	TRY(both((void **)&work->parts, (void **)&work->parts_device, w * SUMS * 2));
	TRY(both((void **)&work->sums, (void **)&work->sums_device, SUMS * 2));
	TRY(both((void **)&work->plain, (void **)&work->plain_device, N_PLAIN * sizeof(uint32_t)));
	return work_plain(work);
}

void work_close(struct work *work)
{
	if (work->graph)
		cudaGraphExecDestroy(work->graph);
	cudaFreeHost(work->rows);
	cudaFreeHost(work->gathered);
	cudaFreeHost(work->parts);
	cudaFreeHost(work->sums);
	cudaFreeHost(work->plain);
	cudaFree(work->rows_device);
	cudaFree(work->gathered_device);
	cudaFree(work->parts_device);
	cudaFree(work->sums_device);
	cudaFree(work->plain_device);
	if (work->stream)
		cudaStreamDestroy(work->stream);
}

/* ---- what is in them ---- */

static uint8_t byte_of(int rank, uint64_t round, size_t at)
{
	return (uint8_t)(at * 7u + (size_t)rank * 31u + round * 131u + (round >> 8));
}

/* A small whole number, so that sums are exact in bf16 in any order. */
static unsigned part_of(int from, int to, uint64_t round, size_t at)
{
	return (unsigned)((at * 5u + (size_t)from * 11u + (size_t)to * 17u + round * 3u) % 31u);
}

static uint16_t bf16_of(unsigned number)
{
	float value = (float)number;
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)(bits >> 16);
}

/* The first 8 bytes of a block tell its round. */
static void fill(struct work *work)
{
	memcpy(work->rows, &work->round, sizeof(work->round));
	for (size_t i = sizeof(work->round); i < BLOCK; i++)
		work->rows[i] = byte_of(work->rank, work->round, i);
	for (int to = 0; to < work->world_size; to++)
		for (size_t i = 0; i < SUMS; i++)
			work->parts[(size_t)to * SUMS + i] =
				bf16_of(part_of(work->rank, to, work->round, i));
	memset(work->gathered, POISON, (size_t)work->world_size * BLOCK);
	memset(work->sums, POISON, SUMS * 2);
}

bool work_verify(struct work *work)
{
	uint64_t round[64], latest = work->round;

	for (int r = 0; r < work->world_size; r++) {
		const uint8_t *block = work->gathered + (size_t)r * BLOCK;

		memcpy(&round[r], block, sizeof(round[r]));
		if (round[r] != work->round && !work->is_first)
			return false;
		for (size_t i = sizeof(round[r]); i < BLOCK; i++)
			if (block[i] != byte_of(r, round[r], i))
				return false;
		if (round[r] > latest)
			latest = round[r];
	}
	for (size_t i = 0; i < SUMS; i++) {
		unsigned sum = 0;

		for (int r = 0; r < work->world_size; r++)
			sum += part_of(r, work->rank, round[r], i);
		if (work->sums[i] != bf16_of(sum))
			return false;
	}
	/* all go on from the latest that any of them had reached */
	work->round = latest + 1;
	work->is_first = false;
	return true;
}

/* ---- running ---- */

static enum moecomm_status dispatch(struct work *work, moecomm_group *group, int64_t rows)
{
	struct moecomm_tensor tensor = {work->rows_device, work->gathered_device, WORK_ROW_BYTES};
	struct moecomm_dispatch_args args = MOECOMM_DISPATCH_ARGS_INIT;

	args.tensors = &tensor;
	args.n_tensors = 1;
	args.rows = rows;
	return moecomm_dispatch(group, &args, work->stream);
}

static enum moecomm_status combine(struct work *work, moecomm_group *group)
{
	struct moecomm_combine_args args = MOECOMM_COMBINE_ARGS_INIT;

	args.dtype = MOECOMM_BF16;
	args.hidden = WORK_HIDDEN;
	args.input = work->parts_device;
	args.output = work->sums_device;
	args.rows = WORK_ROWS;
	return moecomm_combine(group, &args, work->stream);
}

static int enqueue(struct work *work, moecomm_group *group, enum moecomm_status *ret_status)
{
	size_t w = (size_t)work->world_size;

	TRY(cudaMemcpyAsync(
		work->rows_device, work->rows, BLOCK, cudaMemcpyHostToDevice, work->stream));
	TRY(cudaMemcpyAsync(work->parts_device, work->parts, w * SUMS * 2, cudaMemcpyHostToDevice,
		work->stream));
	TRY(cudaMemsetAsync(work->gathered_device, POISON, w * BLOCK, work->stream));
	TRY(cudaMemsetAsync(work->sums_device, POISON, SUMS * 2, work->stream));
	*ret_status = dispatch(work, group, WORK_ROWS);
	if (!*ret_status)
		*ret_status = combine(work, group);
	TRY(cudaMemcpyAsync(work->gathered, work->gathered_device, w * BLOCK,
		cudaMemcpyDeviceToHost, work->stream));
	TRY(cudaMemcpyAsync(
		work->sums, work->sums_device, SUMS * 2, cudaMemcpyDeviceToHost, work->stream));
	return 0;
}

int work_capture(struct work *work, moecomm_group *group, enum moecomm_status *ret_status)
{
	cudaGraph_t graph;
	int error;

	TRY(cudaStreamBeginCapture(work->stream, cudaStreamCaptureModeGlobal));
	error = enqueue(work, group, ret_status);
	TRY(cudaStreamEndCapture(work->stream, &graph));
	if (error)
		return error;
	TRY(cudaGraphInstantiate(&work->graph, graph, 0));
	TRY(cudaGraphDestroy(graph));
	return 0;
}

int work_replay(struct work *work)
{
	TRY(cudaGraphLaunch(work->graph, work->stream));
	TRY(cudaStreamSynchronize(work->stream));
	return 0;
}

int work_run(
	struct work *work, moecomm_group *group, bool use_graph, enum moecomm_status *ret_status)
{
	*ret_status = MOECOMM_OK;
	fill(work);
	if (use_graph)
		return work_replay(work);
	TRY(enqueue(work, group, ret_status));
	TRY(cudaStreamSynchronize(work->stream));
	return 0;
}

int work_wrong(struct work *work, moecomm_group *group, enum moecomm_status *ret_status)
{
	*ret_status = dispatch(work, group, 1);
	TRY(cudaStreamSynchronize(work->stream));
	return 0;
}

int work_plain(struct work *work)
{
	uint32_t *fresh;

	for (uint32_t i = 0; i < N_PLAIN; i++)
		work->plain[i] = i + 5u;
	TRY(cudaMalloc((void **)&fresh, N_PLAIN * sizeof(uint32_t)));
	TRY(cudaMemcpyAsync(fresh, work->plain, N_PLAIN * sizeof(uint32_t), cudaMemcpyHostToDevice,
		work->stream));
	TRY(work_touch(fresh, N_PLAIN, work->stream));
	TRY(cudaMemcpyAsync(work->plain_device, fresh, N_PLAIN * sizeof(uint32_t),
		cudaMemcpyDeviceToDevice, work->stream));
	TRY(cudaMemsetAsync(fresh, 0, N_PLAIN * sizeof(uint32_t), work->stream));
	TRY(cudaMemcpyAsync(work->plain, work->plain_device, N_PLAIN * sizeof(uint32_t),
		cudaMemcpyDeviceToHost, work->stream));
	TRY(cudaStreamSynchronize(work->stream));
	TRY(cudaFree(fresh));
	/* nothing may be left from earlier, either */
	TRY(cudaGetLastError());
	for (uint32_t i = 0; i < N_PLAIN; i++)
		if (work->plain[i] != (i + 5u) * 3u + i) {
			fprintf(stderr, "rank %d: a plain kernel computes wrongly\n", work->rank);
			return (int)cudaErrorUnknown;
		}
	return 0;
}
