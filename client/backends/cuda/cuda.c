/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda backend: one membership on a GPU, as the library drives it. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/backends/cuda/rank.h"
#include "client/moecomm.h"
#include "kernels/host/host.h"

/* How long a close waits for work on the device; and once a leave has waited in vain. */
#define CLOSE_MS 2000u
#define STUCK_MS 100u

/* Makes the device's context current for the calling thread; every entry but the getters does. */
static int enter(struct mc_backend_rank *rank, struct mc_backend_error *ret_error)
{
	CUresult result = rank->cu->cuCtxPushCurrent(rank->context);

	if (result == CUDA_SUCCESS)
		return 0;
	return mc_driver_error(
		rank->cu, result, "cuCtxPushCurrent", "use the device", UINT32_MAX, ret_error);
}

static void leave(struct mc_backend_rank *rank)
{
	CUcontext old;

	rank->cu->cuCtxPopCurrent(&old);
}

static void cuda_close(struct mc_backend_rank *rank)
{
	struct mc_backend_error ignored;

	if (!rank)
		return;
	if (rank->context) {
		if (enter(rank, &ignored) == 0) {
			mc_rank_unmap(rank, rank->stuck ? STUCK_MS : CLOSE_MS);
			if (!rank->stuck) {
				mc_rank_unreserve(rank);
				if (rank->stream)
					rank->cu->cuStreamDestroy(rank->stream);
				if (rank->pinned)
					rank->cu->cuMemFreeHost(rank->pinned);
			}
			leave(rank);
		}
		rank->cu->cuDevicePrimaryCtxRelease(rank->ordinal);
	}
	pthread_mutex_destroy(&rank->lock);
	free(rank);
}

/* As nvidia-smi prints it; a MIG instance's device name says so. */
static void write_uuid(const CUuuid *uuid, const char *device_name, char *ret_text)
{
	const unsigned char *b = (const unsigned char *)uuid->bytes;
	char *at = ret_text + sprintf(ret_text, strstr(device_name, " MIG ") ? "MIG-" : "GPU-");

	for (int i = 0; i < 16; i++)
		at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", b[i]);
}

/* In the device's context. */
static int prepare(struct mc_backend_rank *rank, struct mc_backend_error *ret_error)
{
	const struct mc_driver *cu = rank->cu;
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = rank->ordinal},
	};
	const char *early = getenv("MOECOMM_CUDA_EARLY_LAUNCH");
	void *pinned = NULL;
	CUresult r;
	int error;

	r = cu->cuMemGetAllocationGranularity(
		&rank->granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (r != CUDA_SUCCESS)
		return mc_driver_error(cu, r, "cuMemGetAllocationGranularity",
			"use memory mapping on the device", UINT32_MAX, ret_error);
	r = cu->cuStreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING);
	if (r != CUDA_SUCCESS)
		return mc_driver_error(
			cu, r, "cuStreamCreate", "make a stream", UINT32_MAX, ret_error);
	r = cu->cuMemAllocHost(&pinned, sizeof(*rank->pinned));
	if (r != CUDA_SUCCESS)
		return mc_driver_error(
			cu, r, "cuMemAllocHost", "allocate pinned memory", UINT32_MAX, ret_error);
	rank->pinned = pinned;
	memset(rank->pinned, 0, sizeof(*rank->pinned));
	error = mc_cuda_load(&rank->device);
	if (error)
		return mc_runtime_error(error, "loading the kernels", ret_error);
	rank->early_launch = !early || !*early         ? MC_CUDA_EARLY_AUTO
			     : strcmp(early, "0") == 0 ? MC_CUDA_EARLY_OFF
						       : MC_CUDA_EARLY_ON;
	return 0;
}

static int cuda_open(
	int device, struct mc_backend_rank **ret_rank, struct mc_backend_error *ret_error)
{
	struct mc_backend_rank *rank = calloc(1, sizeof(*rank));
	int status, n_devices = 0, error;
	char name[256] = "";
	CUuuid uuid;
	CUresult r;

	if (!rank) {
		snprintf(ret_error->text, sizeof(ret_error->text), "out of memory");
		return MOECOMM_NO_MEMORY;
	}
	pthread_mutex_init(&rank->lock, NULL);
	status = mc_driver_find(&rank->cu, ret_error);
	if (status)
		goto fail;
	error = cudaGetDeviceCount(&n_devices);
	if (!error && device < 0)
		error = cudaGetDevice(&device);
	if (error) {
		status = mc_runtime_error(error, "looking for GPUs", ret_error);
		goto fail;
	}
	if (device >= n_devices) {
		snprintf(ret_error->text, sizeof(ret_error->text),
			"there is no GPU %d: this process sees %d", device, n_devices);
		status = MOECOMM_INVALID;
		goto fail;
	}
	rank->ordinal = device;
	r = rank->cu->cuDeviceGetUuid(&uuid, rank->ordinal);
	if (r == CUDA_SUCCESS)
		r = rank->cu->cuDeviceGetName(name, sizeof(name) - 1, rank->ordinal);
	if (r == CUDA_SUCCESS)
		r = rank->cu->cuDevicePrimaryCtxRetain(&rank->context, rank->ordinal);
	if (r != CUDA_SUCCESS) {
		rank->context = NULL;
		status = mc_driver_error(rank->cu, r, "cuDevicePrimaryCtxRetain",
			"make a context on the device", UINT32_MAX, ret_error);
		goto fail;
	}
	write_uuid(&uuid, name, rank->uuid);
	status = enter(rank, ret_error);
	if (status)
		goto fail;
	status = prepare(rank, ret_error);
	leave(rank);
	if (status)
		goto fail;
	*ret_rank = rank;
	return 0;
fail:
	cuda_close(rank);
	return status;
}

static const char *cuda_device_uuid(struct mc_backend_rank *rank)
{
	return rank->uuid;
}

static int cuda_map(struct mc_backend_rank *rank, const struct mc_backend_epoch *epoch,
	uint32_t *ret_failed_peer, struct mc_backend_error *ret_error)
{
	int status = enter(rank, ret_error);

	*ret_failed_peer = UINT32_MAX;
	if (status)
		return status;
	status = mc_rank_map(rank, epoch, ret_failed_peer, ret_error);
	leave(rank);
	return status;
}

static void cuda_unmap(struct mc_backend_rank *rank, uint32_t timeout_ms)
{
	struct mc_backend_error ignored;

	if (enter(rank, &ignored))
		return;
	mc_rank_unmap(rank, timeout_ms);
	leave(rank);
}

static const char *probe_text(uint8_t result)
{
	switch (result) {
	case MC_PROBE_TIMEOUT:
		return "what it wrote never arrived";
	case MC_PROBE_CORRUPT:
		return "something else than it wrote arrived";
	default:
		return "its memory could not be mapped";
	}
}

static int run_probe(
	struct mc_backend_rank *rank, uint32_t timeout_ms, struct mc_backend_error *ret_error)
{
	int error =
		mc_cuda_probe(&rank->view, timeout_ms, rank->pinned->probe_result, rank->stream);
	CUresult r;

	if (error)
		return mc_runtime_error(error, "launching the join probe", ret_error);
	/* the probe ends by its own deadline */
	r = rank->cu->cuStreamSynchronize(rank->stream);
	if (r != CUDA_SUCCESS)
		return mc_driver_error(rank->cu, r, "cuStreamSynchronize", "run the join probe",
			UINT32_MAX, ret_error);
	return 0;
}

static int cuda_probe(struct mc_backend_rank *rank, uint32_t timeout_ms,
	uint8_t ret_result[MC_MAX_WORLD_SIZE], struct mc_backend_error *ret_error)
{
	const uint32_t world_size = rank->view.layout.world_size;
	int status = enter(rank, ret_error);

	memset(ret_result, MC_PROBE_OK, MC_MAX_WORLD_SIZE);
	for (uint32_t p = 0; p < world_size; p++)
		if (p != rank->view.rank)
			ret_result[p] = MC_PROBE_TIMEOUT;
	if (status)
		return status;
	memset(rank->pinned->probe_result, MC_PROBE_TIMEOUT, MC_MAX_WORLD_SIZE);
	status = run_probe(rank, timeout_ms, ret_error);
	leave(rank);
	if (status)
		return status;
	for (uint32_t p = 0; p < world_size; p++)
		if (p != rank->view.rank)
			ret_result[p] = rank->pinned->probe_result[p];
	for (uint32_t p = 0; p < world_size; p++) {
		if (ret_result[p] == MC_PROBE_OK)
			continue;
		snprintf(ret_error->text, sizeof(ret_error->text),
			"rank %u can't exchange data with rank %u: %s", rank->view.rank, p,
			probe_text(ret_result[p]));
		return MOECOMM_PROBE_FAILED;
	}
	return 0;
}

/* What a failed launch leaves to say; the kernel did not run. */
static int launched(
	struct mc_backend_rank *rank, int error, const char *op, struct mc_backend_error *ret_error)
{
	leave(rank);
	if (!error)
		return 0;
	if (error == cudaErrorCooperativeLaunchTooLarge) {
		snprintf(ret_error->text, sizeof(ret_error->text),
			"%s: %u ranks of %u channels on one GPU leave no room for one CTA each; "
			"place fewer there, or take fewer channels",
			op, rank->view.ranks_per_device, rank->view.layout.n_channels);
		return MC_FAULT_DEVICE;
	}
	mc_runtime_error(error, op, ret_error);
	return MC_FAULT_DEVICE;
}

static int cuda_dispatch(struct mc_backend_rank *rank, uint32_t channel,
	const struct mc_dispatch *op, void *stream, struct mc_fault *ret_fault,
	struct mc_backend_error *ret_error)
{
	(void)ret_fault;
	if (enter(rank, ret_error))
		return MC_FAULT_DEVICE;
	return launched(rank, mc_cuda_dispatch(&rank->view, channel, op, stream),
		"launching dispatch", ret_error);
}

static int cuda_combine(struct mc_backend_rank *rank, uint32_t channel, const struct mc_combine *op,
	void *stream, struct mc_fault *ret_fault, struct mc_backend_error *ret_error)
{
	(void)ret_fault;
	if (enter(rank, ret_error))
		return MC_FAULT_DEVICE;
	return launched(rank, mc_cuda_combine(&rank->view, channel, op, stream),
		"launching combine", ret_error);
}

static int cuda_mask_ids(struct mc_backend_rank *rank, const struct mc_mask_ids *op, void *stream,
	struct mc_backend_error *ret_error)
{
	if (enter(rank, ret_error))
		return MC_FAULT_DEVICE;
	return launched(rank, mc_cuda_mask_ids(&rank->view, op, stream),
		"launching the mask of expert ids", ret_error);
}

static struct mc_board *cuda_board(struct mc_backend_rank *rank)
{
	struct mc_board *board;

	pthread_mutex_lock(&rank->lock);
	board = rank->board;
	pthread_mutex_unlock(&rank->lock);
	return board;
}

__attribute__((visibility("default"))) const struct mc_client_backend mc_client_backend = {
	.abi = MC_CLIENT_BACKEND_ABI,
	.name = "cuda",
	.open = cuda_open,
	.device_uuid = cuda_device_uuid,
	.map = cuda_map,
	.probe = cuda_probe,
	.dispatch = cuda_dispatch,
	.combine = cuda_combine,
	.mask_ids = cuda_mask_ids,
	.poison = mc_rank_poison,
	.board = cuda_board,
	.unmap = cuda_unmap,
	.close = cuda_close,
};
