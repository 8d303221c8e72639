/* SPDX-License-Identifier: Apache-2.0 */
/* An epoch's memory: imported from fds and mapped at the addresses of the membership. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "client/backends/cuda/rank.h"
#include "client/inject.h"
#include "client/moecomm.h"

/* Before the next epoch can be mapped. */
#define LEAVE_MS 2000u
/* What an object is, for errors, and whose. */
struct what {
	const char *doing;
	uint32_t rank; /* UINT32_MAX: nobody's in particular */
};

#define TRY(rank, what, error, call, ...)                                                          \
	do {                                                                                       \
		CUresult r_ = mc_client_inject_hit("map_fail", (rank)->view.rank)                  \
				      ? CUDA_ERROR_UNKNOWN                                         \
				      : (rank)->cu->call(__VA_ARGS__);                             \
		if (r_ != CUDA_SUCCESS)                                                            \
			return mc_driver_error(                                                    \
				(rank)->cu, r_, #call, (what)->doing, (what)->rank, error);        \
	} while (0)

static size_t round_up(size_t n, size_t unit)
{
	return (n + unit - 1) / unit * unit;
}

static CUmemAllocationProp own_memory(const struct mc_backend_rank *rank)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = rank->ordinal},
	};

	return prop;
}

/* ---- ranges ---- */

static void range_unmap(struct mc_backend_rank *rank, struct mc_range *range)
{
	if (range->mapped)
		rank->cu->cuMemUnmap(range->at, range->n_bytes);
	range->mapped = false;
}

static void range_free(struct mc_backend_rank *rank, struct mc_range *range)
{
	range_unmap(rank, range);
	if (range->at)
		rank->cu->cuMemAddressFree(range->at, range->n_bytes);
	range->at = 0;
	range->n_bytes = 0;
}

static int range_reserve(struct mc_backend_rank *rank, struct mc_range *range, size_t n_bytes,
	const struct what *what, struct mc_backend_error *ret_error)
{
	if (range->at && range->n_bytes == n_bytes)
		return 0;
	range_free(rank, range);
	TRY(rank, what, ret_error, cuMemAddressReserve, &range->at, n_bytes, 0, 0, 0);
	range->n_bytes = n_bytes;
	return 0;
}

/* Maps the handle, which the mapping then keeps alive, for this device. */
static int range_map(struct mc_backend_rank *rank, struct mc_range *range,
	CUmemGenericAllocationHandle handle, const struct what *what,
	struct mc_backend_error *ret_error)
{
	CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = rank->ordinal},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	TRY(rank, what, ret_error, cuMemMap, range->at, range->n_bytes, 0, handle, 0);
	range->mapped = true;
	TRY(rank, what, ret_error, cuMemSetAccess, range->at, range->n_bytes, &access, 1);
	return 0;
}

/* A peer's memory lies on its GPU: say so when this one can't reach it. */
static int check_reach(struct mc_backend_rank *rank, CUmemGenericAllocationHandle handle,
	const struct what *what, struct mc_backend_error *ret_error)
{
	CUmemAllocationProp prop;
	int can = 1;

	TRY(rank, what, ret_error, cuMemGetAllocationPropertiesFromHandle, &prop, handle);
	if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop.location.id == rank->ordinal)
		return 0;
	TRY(rank, what, ret_error, cuDeviceCanAccessPeer, &can, rank->ordinal, prop.location.id);
	if (can)
		return 0;
	snprintf(ret_error->text, sizeof(ret_error->text),
		"GPU %d of rank %u can't access GPU %d of rank %u (cuDeviceCanAccessPeer says no)",
		rank->ordinal, rank->view.rank, prop.location.id, what->rank);
	return MOECOMM_TOPOLOGY;
}

static int import(struct mc_backend_rank *rank, struct mc_range *range, int fd,
	const struct what *what, struct mc_backend_error *ret_error)
{
	CUmemGenericAllocationHandle handle;
	int status;

	TRY(rank, what, ret_error, cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fd,
		CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	status = check_reach(rank, handle, what, ret_error);
	if (!status)
		status = range_map(rank, range, handle, what, ret_error);
	/* the mapping keeps the memory, and goes with it */
	rank->cu->cuMemRelease(handle);
	return status;
}

/* ---- copies on the own stream ---- */

int mc_rank_copy_control(
	struct mc_backend_rank *rank, bool to_device, struct mc_backend_error *ret_error)
{
	const struct what what = {"copy the control block", UINT32_MAX};
	struct mc_control *host = &rank->pinned->control;

	if (to_device)
		TRY(rank, &what, ret_error, cuMemcpyHtoDAsync, rank->control.at, host,
			sizeof(*host), rank->stream);
	else
		TRY(rank, &what, ret_error, cuMemcpyDtoHAsync, host, rank->control.at,
			sizeof(*host), rank->stream);
	TRY(rank, &what, ret_error, cuStreamSynchronize, rank->stream);
	return 0;
}

/* ---- the control block of no epoch ---- */

static int show_stale(struct mc_backend_rank *rank, struct mc_backend_error *ret_error)
{
	const struct what what = {"map the control block of no epoch", UINT32_MAX};
	const CUmemAllocationProp prop = own_memory(rank);
	bool fresh = !rank->stale_control;
	int status;

	if (fresh)
		TRY(rank, &what, ret_error, cuMemCreate, &rank->stale_control,
			rank->control.n_bytes, &prop, 0);
	status = range_map(rank, &rank->control, rank->stale_control, &what, ret_error);
	rank->stale_mapped = status == 0;
	if (status || !fresh)
		return status;
	memset(&rank->pinned->control, 0, sizeof(rank->pinned->control));
	rank->pinned->control.failed = MC_FAULT_STALE_EPOCH;
	return mc_rank_copy_control(rank, true, ret_error);
}

/* The kernels' own call numbers, behind the control block. */
static int begin_turns(struct mc_backend_rank *rank, struct mc_backend_error *ret_error)
{
	const struct what what = {"set the first call numbers", UINT32_MAX};

	for (uint32_t i = 0; i < MC_CUDA_TURNS; i++)
		rank->pinned->turn[i] = (struct mc_cuda_turn){.call = 1};
	TRY(rank, &what, ret_error, cuMemcpyHtoDAsync, rank->control.at + MC_CUDA_TURNS_OFFSET,
		rank->pinned->turn, MC_CUDA_TURNS_BYTES, rank->stream);
	TRY(rank, &what, ret_error, cuStreamSynchronize, rank->stream);
	return 0;
}

/* ---- the board ---- */

static int check_board_fd(int fd, struct mc_backend_error *ret_error)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	/* whoever can shorten it could kill this process: an access past the end raises SIGBUS */
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && seals >= 0 && seals & F_SEAL_SHRINK &&
		st.st_size >= (off_t)MC_BOARD_BYTES)
		return 0;
	snprintf(ret_error->text, sizeof(ret_error->text),
		"cannot map the status board: the daemon handed over something else than a memfd "
		"of "
		"%u bytes that is sealed against shrinking",
		MC_BOARD_BYTES);
	return MOECOMM_PROTOCOL;
}

static void unmap_board(struct mc_backend_rank *rank)
{
	if (rank->board_registered)
		rank->cu->cuMemHostUnregister(rank->board_place);
	rank->board_registered = false;
	/* the addresses stay ours */
	if (rank->board_place)
		mmap(rank->board_place, MC_BOARD_BYTES, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static int map_board(struct mc_backend_rank *rank, const struct mc_backend_epoch *epoch,
	struct mc_backend_error *ret_error)
{
	const struct what what = {"register the status board", UINT32_MAX};
	int status = check_board_fd(epoch->board_fd, ret_error);
	struct mc_board *board;
	CUdeviceptr at = 0;

	if (status)
		return status;
	board = mmap(rank->board_place, MC_BOARD_BYTES, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_FIXED, epoch->board_fd, 0);
	if (board == MAP_FAILED) {
		snprintf(ret_error->text, sizeof(ret_error->text),
			"cannot map the status board: mmap: %s", strerror(errno));
		return MOECOMM_SYSTEM;
	}
	madvise(board, MC_BOARD_BYTES, MADV_DONTFORK);
	TRY(rank, &what, ret_error, cuMemHostRegister, board, MC_BOARD_BYTES,
		CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	rank->board_registered = true;
	TRY(rank, &what, ret_error, cuMemHostGetDevicePointer, &at, board, 0);
	if (rank->view.board && (CUdeviceptr)(uintptr_t)rank->view.board != at) {
		snprintf(ret_error->text, sizeof(ret_error->text),
			"the driver moved the status board: captured graphs would not find it");
		return MOECOMM_DEVICE;
	}
	rank->view.board = (struct mc_board *)(uintptr_t)at;
	if (board->magic != MC_BOARD_MAGIC || board->world_size != epoch->layout.world_size ||
		board->epoch != epoch->epoch) {
		snprintf(ret_error->text, sizeof(ret_error->text),
			"the daemon's status board is not that of epoch %llu with %u ranks",
			(unsigned long long)epoch->epoch, epoch->layout.world_size);
		return MOECOMM_PROTOCOL;
	}
	rank->board = board;
	return 0;
}

/* ---- epochs ---- */

/* Every op that may be on the device at a time needs a CTA there: said now, not in the first op. */
static int check_room(const struct mc_backend_rank *rank, const struct mc_backend_epoch *epoch,
	struct mc_backend_error *ret_error)
{
	const struct mc_cuda_rank view = {.layout = epoch->layout,
		.ranks_per_device = epoch->ranks_per_device,
		.early_launch = rank->early_launch};
	const uint32_t share = mc_device_share(&view);

	if (share <= rank->device.n_sms)
		return 0;
	snprintf(ret_error->text, sizeof(ret_error->text),
		"%u ranks of %u channels on GPU %d can have %u ops there at a time%s, but it has "
		"%u multiprocessors: place fewer ranks there, or take fewer channels",
		epoch->ranks_per_device, epoch->layout.n_channels, rank->ordinal, share,
		rank->early_launch == MC_CUDA_EARLY_ON ? " (with forced early launch)" : "",
		rank->device.n_sms);
	return MOECOMM_TOPOLOGY;
}

static int check_epoch(const struct mc_backend_rank *rank, const struct mc_backend_epoch *epoch,
	struct mc_backend_error *ret_error)
{
	const struct mc_layout *layout = &epoch->layout;
	const char *problem = NULL;

	if (layout->world_size < 1 || layout->world_size > MC_MAX_WORLD_SIZE ||
		epoch->rank >= layout->world_size)
		problem = "rank and world size are out of range";
	else if (epoch->arena_bytes < layout->arena_bytes || epoch->arena_bytes > UINT64_C(1) << 43)
		problem = "the arenas are smaller than their layout";
	else if (epoch->arena_bytes % rank->granularity)
		problem = "the arenas are no multiple of the device's granularity";
	else if (epoch->ranks_per_device < 1)
		problem = "the number of ranks on this device is missing";
	if (problem) {
		snprintf(ret_error->text, sizeof(ret_error->text), "cannot map the epoch: %s",
			problem);
		return MOECOMM_PROTOCOL;
	}
	return check_room(rank, epoch, ret_error);
}

static int check_control(const struct mc_backend_rank *rank, const struct mc_backend_epoch *epoch,
	struct mc_backend_error *ret_error)
{
	const struct mc_control *control = &rank->pinned->control;
	const struct mc_vector *sentinel = &epoch->sentinel;

	if (control->canary_head == MC_CANARY_HEAD && control->canary_tail == MC_CANARY_TAIL &&
		control->epoch == epoch->epoch && control->rank == epoch->rank &&
		control->world_size == epoch->layout.world_size &&
		mc_vector_equal(&control->sentinel, sentinel) &&
		control->check == mc_control_check(epoch->rank, epoch->layout.world_size,
					  epoch->epoch, sentinel))
		return 0;
	snprintf(ret_error->text, sizeof(ret_error->text),
		"the daemon's control block is not that of rank %u in epoch %llu", epoch->rank,
		(unsigned long long)epoch->epoch);
	return MOECOMM_PROTOCOL;
}

static int reserve(struct mc_backend_rank *rank, const struct mc_backend_epoch *epoch,
	struct mc_backend_error *ret_error)
{
	struct what what = {"reserve addresses for the control block", UINT32_MAX};
	int status = range_reserve(rank, &rank->control,
		round_up(MC_CUDA_TURNS_OFFSET + MC_CUDA_TURNS_BYTES, rank->granularity), &what,
		ret_error);

	if (!status && !rank->board_place) {
		void *place = mmap(NULL, MC_BOARD_BYTES, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (place == MAP_FAILED) {
			snprintf(ret_error->text, sizeof(ret_error->text),
				"cannot reserve addresses for the status board: mmap: %s",
				strerror(errno));
			return MOECOMM_SYSTEM;
		}
		rank->board_place = place;
	}
	what.doing = "reserve addresses for the arena";
	for (uint32_t i = 0; !status && i < epoch->layout.world_size; i++) {
		what.rank = i;
		status = range_reserve(
			rank, &rank->arena[i], (size_t)epoch->arena_bytes, &what, ret_error);
	}
	return status;
}

static int map_all(struct mc_backend_rank *rank, const struct mc_backend_epoch *epoch,
	uint32_t *ret_failed_peer, struct mc_backend_error *ret_error)
{
	struct what what = {"import the control block", UINT32_MAX};
	int status = reserve(rank, epoch, ret_error);

	if (!status)
		status = map_board(rank, epoch, ret_error);
	if (status)
		return status;
	range_unmap(rank, &rank->control);
	rank->stale_mapped = false;
	status = import(rank, &rank->control, epoch->control_fd, &what, ret_error);
	if (!status)
		status = mc_rank_copy_control(rank, false, ret_error);
	if (!status)
		status = check_control(rank, epoch, ret_error);
	if (!status)
		status = begin_turns(rank, ret_error);
	what.doing = "import the arena";
	for (uint32_t i = 0; !status && i < epoch->layout.world_size; i++) {
		what.rank = i;
		status = import(rank, &rank->arena[i], epoch->arena_fd[i], &what, ret_error);
		if (status)
			*ret_failed_peer = i;
	}
	return status;
}

void mc_rank_unmap_all(struct mc_backend_rank *rank)
{
	struct mc_backend_error ignored;

	for (uint32_t i = 0; i < MC_MAX_WORLD_SIZE; i++)
		range_unmap(rank, &rank->arena[i]);
	if (rank->control.at && !rank->stale_mapped) {
		range_unmap(rank, &rank->control);
		/* without it a graph replayed between epochs would fault; nobody could be told here
		 */
		show_stale(rank, &ignored);
	}
	unmap_board(rank);
	rank->board = NULL;
}

int mc_rank_map(struct mc_backend_rank *rank, const struct mc_backend_epoch *epoch,
	uint32_t *ret_failed_peer, struct mc_backend_error *ret_error)
{
	int status = check_epoch(rank, epoch, ret_error);
	const char *in_use = NULL;

	*ret_failed_peer = UINT32_MAX;
	if (status)
		return status;
	mc_rank_unmap(rank, LEAVE_MS);
	/*
	 * A graph that was replayed between the epochs leaves at once, but it may not have come to
	 * it yet: its ops must not see half of the one block and half of the other.
	 */
	if (rank->stuck)
		in_use = "the last epoch's memory is still in use";
	else if (rank->stale_mapped && !mc_rank_wait_idle(rank, LEAVE_MS))
		in_use = "ops that were enqueued between the epochs may still be waiting behind it";
	if (in_use) {
		snprintf(ret_error->text, sizeof(ret_error->text),
			"cannot map an epoch: work on GPU %d did not end, so %s", rank->ordinal,
			in_use);
		return MOECOMM_DEVICE;
	}
	pthread_mutex_lock(&rank->lock);
	rank->view.rank = epoch->rank;
	rank->view.layout = epoch->layout;
	status = map_all(rank, epoch, ret_failed_peer, ret_error);
	if (status) {
		mc_rank_unmap_all(rank);
	} else {
		for (uint32_t i = 0; i < epoch->layout.world_size; i++)
			rank->view.arena[i] = (uint8_t *)(uintptr_t)rank->arena[i].at;
		rank->view.control = (struct mc_control *)(uintptr_t)rank->control.at;
		rank->view.device = &rank->device;
		rank->view.ranks_per_device = epoch->ranks_per_device;
		rank->view.early_launch = rank->early_launch;
		rank->mapped = true;
	}
	pthread_mutex_unlock(&rank->lock);
	return status;
}

void mc_rank_unreserve(struct mc_backend_rank *rank)
{
	for (uint32_t i = 0; i < MC_MAX_WORLD_SIZE; i++)
		range_free(rank, &rank->arena[i]);
	range_free(rank, &rank->control);
	if (rank->stale_control)
		rank->cu->cuMemRelease(rank->stale_control);
	rank->stale_control = 0;
	if (rank->board_place)
		munmap(rank->board_place, MC_BOARD_BYTES);
	rank->board_place = NULL;
}
