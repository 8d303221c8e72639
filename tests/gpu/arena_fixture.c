/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/arena_fixture.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define CALLS(X)                                                                                   \
	X(cuMemGetAllocationGranularity)                                                           \
	X(cuMemCreate)                                                                             \
	X(cuMemExportToShareableHandle)                                                            \
	X(cuMemAddressReserve)                                                                     \
	X(cuMemMap)                                                                                \
	X(cuMemSetAccess)                                                                          \
	X(cuMemUnmap)                                                                              \
	X(cuMemAddressFree)                                                                        \
	X(cuMemRelease)

static struct {
#define X(name) __typeof__(name) *name;
	CALLS(X)
#undef X
} cu;

void mc_check(int error, const char *call, const char *file, int line)
{
	if (error == 0)
		return;
	fprintf(stderr, "%s:%d: %s: %d (%s)\n", file, line, call, error,
		cudaGetErrorString((cudaError_t)error));
	_exit(3);
}

static void find_calls(void)
{
	enum cudaDriverEntryPointQueryResult answer;

	if (cu.cuMemCreate)
		return;
#define X(name)                                                                                    \
	CHECK(cudaGetDriverEntryPointByVersion(                                                    \
		#name, (void **)&cu.name, 12000, cudaEnableDefault, &answer));                     \
	CHECK(answer != cudaDriverEntryPointSuccess || !cu.name);
	CALLS(X)
#undef X
}

static uint8_t *make_memory(int device, int n_devices, size_t n_bytes, int *ret_fd)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;

	CHECK(cu.cuMemCreate(&handle, n_bytes, &prop, 0));
	CHECK(cu.cuMemExportToShareableHandle(
		ret_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(cu.cuMemAddressReserve(&at, n_bytes, 0, 0, 0));
	CHECK(cu.cuMemMap(at, n_bytes, 0, handle, 0));
	for (int d = 0; d < n_devices; d++) {
		CUmemAccessDesc access = {
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d},
			.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
		};
		CHECK(cu.cuMemSetAccess(at, n_bytes, &access, 1));
	}
	CHECK(cu.cuMemRelease(handle));
	return (uint8_t *)(uintptr_t)at;
}

static void fill(uint8_t *at, size_t n_bytes, const struct mc_vector *sentinel)
{
	size_t done = n_bytes < (4u << 20) ? n_bytes : 4u << 20;
	uint8_t *pattern = malloc(done);

	mc_host_fill(pattern, done, sentinel);
	CHECK(cudaMemcpy(at, pattern, done, cudaMemcpyHostToDevice));
	while (done < n_bytes) {
		size_t n = done < n_bytes - done ? done : n_bytes - done;

		CHECK(cudaMemcpy(at + done, at, n, cudaMemcpyDeviceToDevice));
		done += n;
	}
	CHECK(cudaDeviceSynchronize());
	free(pattern);
}

static size_t round_up(size_t n, size_t unit)
{
	return (n + unit - 1) / unit * unit;
}

struct mc_fixture *mc_fixture_make(const struct mc_layout_spec *spec, int n_devices, uint64_t epoch,
	const struct mc_wait_line *wait, int with_twin)
{
	struct mc_fixture *f = calloc(1, sizeof(*f));
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	struct mc_cuda_turn *turns = calloc(MC_CUDA_TURNS, sizeof(*turns));
	size_t granularity;
	int error;

	for (uint32_t i = 0; i < MC_CUDA_TURNS; i++)
		turns[i].call = 1;
	find_calls();
	error = mc_layout_make(spec, &f->layout);
	if (error) {
		fprintf(stderr, "layout: %s\n", mc_layout_error_text(error));
		_exit(3);
	}
	f->epoch = epoch;
	if (getrandom(&f->sentinel, sizeof(f->sentinel), 0) != sizeof(f->sentinel))
		_exit(3);
	CHECK(cu.cuMemGetAllocationGranularity(
		&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	f->arena_bytes = round_up(f->layout.arena_bytes, granularity);
	f->control_bytes = round_up(MC_CONTROL_BYTES, granularity);
	f->ranks_per_device = (spec->world_size + (uint32_t)n_devices - 1u) / (uint32_t)n_devices;
	f->board_fd = memfd_create("board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(f->board_fd < 0);
	CHECK(ftruncate(f->board_fd, MC_BOARD_BYTES));
	CHECK(fcntl(f->board_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
	f->board = mmap(NULL, MC_BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, f->board_fd, 0);
	CHECK(f->board == MAP_FAILED);
	mc_host_board_init(f->board, spec->world_size, epoch, wait);
	CHECK(cudaHostRegister(
		f->board, MC_BOARD_BYTES, cudaHostRegisterPortable | cudaHostRegisterMapped));
	CHECK(cudaHostGetDevicePointer((void **)&f->device_board, f->board, 0));
	for (uint32_t r = 0; r < spec->world_size; r++) {
		struct mc_control control;
		int device = (int)(r * (uint32_t)n_devices / spec->world_size);

		f->device[r] = device;
		CHECK(cudaSetDevice(device));
		f->arena[r] = make_memory(device, n_devices, f->arena_bytes, &f->arena_fd[r]);
		fill(f->arena[r], f->arena_bytes, &f->sentinel);
		f->control[r] = make_memory(device, n_devices, f->control_bytes, &f->control_fd[r]);
		mc_host_control_init(&control, r, spec->world_size, epoch, &f->sentinel);
		CHECK(cudaMemcpy(f->control[r], &control, sizeof(control), cudaMemcpyHostToDevice));
		CHECK(cudaMemcpy(f->control[r] + MC_CUDA_TURNS_OFFSET, turns, MC_CUDA_TURNS_BYTES,
			cudaMemcpyHostToDevice));
		CHECK(cudaDeviceSynchronize());
	}
	for (uint32_t r = 0; with_twin && r < spec->world_size; r++) {
		struct mc_host_rank *host = &f->host[r];

		host->rank = r;
		host->layout = f->layout;
		for (uint32_t p = 0; p < spec->world_size; p++) {
			if (r > 0) {
				host->arena[p] = f->host[0].arena[p];
				continue;
			}
			host->arena[p] = aligned_alloc(4096, round_up(f->layout.arena_bytes, 4096));
			mc_host_fill(host->arena[p], f->layout.arena_bytes, &f->sentinel);
		}
		host->control = aligned_alloc(4096, MC_CONTROL_BYTES);
		mc_host_control_init(host->control, r, spec->world_size, epoch, &f->sentinel);
		host->board = r ? f->host[0].board : aligned_alloc(4096, MC_BOARD_BYTES);
		if (r == 0)
			mc_host_board_init(host->board, spec->world_size, epoch, wait);
	}
	free(turns);
	return f;
}

static void free_memory(uint8_t *at, size_t n_bytes, int fd)
{
	CHECK(cu.cuMemUnmap((CUdeviceptr)(uintptr_t)at, n_bytes));
	CHECK(cu.cuMemAddressFree((CUdeviceptr)(uintptr_t)at, n_bytes));
	close(fd);
}

struct mc_fixture *mc_fixture_free(struct mc_fixture *f)
{
	if (!f)
		return NULL;
	for (uint32_t r = 0; r < f->layout.world_size; r++) {
		CHECK(cudaSetDevice(f->device[r]));
		CHECK(cudaDeviceSynchronize());
		free_memory(f->arena[r], f->arena_bytes, f->arena_fd[r]);
		free_memory(f->control[r], f->control_bytes, f->control_fd[r]);
		if (f->host[0].board)
			free(f->host[0].arena[r]);
		free(f->host[r].control);
	}
	free(f->host[0].board);
	CHECK(cudaHostUnregister(f->board));
	munmap(f->board, MC_BOARD_BYTES);
	close(f->board_fd);
	free(f);
	return NULL;
}

void mc_fixture_epoch(const struct mc_fixture *f, uint32_t rank, struct mc_backend_epoch *ret_epoch)
{
	memset(ret_epoch, 0, sizeof(*ret_epoch));
	ret_epoch->rank = rank;
	ret_epoch->epoch = f->epoch;
	ret_epoch->layout = f->layout;
	ret_epoch->arena_bytes = f->arena_bytes;
	ret_epoch->sentinel = f->sentinel;
	ret_epoch->board_fd = f->board_fd;
	ret_epoch->control_fd = f->control_fd[rank];
	memcpy(ret_epoch->arena_fd, f->arena_fd, sizeof(f->arena_fd));
	ret_epoch->ranks_per_device = f->ranks_per_device;
}

void mc_fixture_view(const struct mc_fixture *f, uint32_t rank, const struct mc_cuda_device *device,
	struct mc_cuda_rank *ret_view)
{
	memset(ret_view, 0, sizeof(*ret_view));
	ret_view->rank = rank;
	ret_view->layout = f->layout;
	memcpy(ret_view->arena, f->arena, sizeof(f->arena));
	ret_view->control = (struct mc_control *)f->control[rank];
	ret_view->board = f->device_board;
	ret_view->device = device;
	ret_view->ranks_per_device = f->ranks_per_device;
}
