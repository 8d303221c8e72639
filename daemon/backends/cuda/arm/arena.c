/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/backends/cuda/arm/arena.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TRY(failure, name, expression)                                                             \
	do {                                                                                       \
		mc_cu_result r_ = (expression);                                                    \
		if (r_ != MC_CU_SUCCESS) {                                                         \
			(failure)->call = name;                                                    \
			(failure)->error = r_;                                                     \
			goto out;                                                                  \
		}                                                                                  \
	} while (0)

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void describe_allocation(mc_cu_device device, struct mc_cu_allocation *allocation)
{
	memset(allocation, 0, sizeof(*allocation));
	allocation->type = MC_CU_ALLOCATION_PINNED;
	allocation->handle_types = MC_CU_HANDLE_POSIX_FD;
	allocation->location.type = MC_CU_LOCATION_DEVICE;
	allocation->location.id = device;
}

int mc_arena_granularity(const struct mc_cu *cu, mc_cu_device device, size_t *ret_granularity,
	struct mc_arena_failure *ret_failure)
{
	struct mc_cu_allocation allocation;
	size_t granularity = 0;
	int r = -1;

	describe_allocation(device, &allocation);
	TRY(ret_failure, "cuMemGetAllocationGranularity",
		cu->granularity(&granularity, &allocation, MC_CU_GRANULARITY_MINIMUM));
	/* everything below multiplies and rounds by it */
	if (granularity == 0 || granularity & (granularity - 1) || granularity > (1u << 30)) {
		ret_failure->call = NULL;
		snprintf(ret_failure->text, sizeof(ret_failure->text),
			"cuMemGetAllocationGranularity answered %zu bytes, which is no granularity",
			granularity);
		goto out;
	}
	*ret_granularity = granularity;
	r = 0;
out:
	return r;
}

/* The pattern once by a copy from the host, then doubling on the device: at memory speed. */
static int fill(struct mc_arena_work *work, mc_cu_ptr at, size_t n_bytes, const void *head,
	size_t n_head, struct mc_arena_failure *ret_failure)
{
	const struct mc_cu *cu = work->cu;
	size_t done = n_bytes < MC_ARENA_CHUNK_BYTES ? n_bytes : MC_ARENA_CHUNK_BYTES;
	int r = -1;

	TRY(ret_failure, "cuMemcpyHtoD", cu->copy_to_device(at, work->pattern, done));
	while (done < n_bytes) {
		size_t n = done < n_bytes - done ? done : n_bytes - done;

		TRY(ret_failure, "cuMemcpyDtoD", cu->copy_on_device(at + done, at, n));
		done += n;
	}
	if (head)
		TRY(ret_failure, "cuMemcpyHtoD", cu->copy_to_device(at, head, n_head));
	/* copies on the device are not done when the call returns */
	TRY(ret_failure, "cuCtxSynchronize", cu->context_synchronize());
	r = 0;
out:
	return r;
}

static int verify(struct mc_arena_work *work, mc_cu_ptr at, size_t n_bytes, const void *head,
	size_t n_head, struct mc_arena_failure *ret_failure)
{
	int r = -1;

	for (size_t offset = 0; offset < n_bytes; offset += MC_ARENA_CHUNK_BYTES) {
		size_t n = n_bytes - offset < MC_ARENA_CHUNK_BYTES ? n_bytes - offset
								   : MC_ARENA_CHUNK_BYTES;
		size_t skip = offset == 0 && head ? n_head : 0;

		TRY(ret_failure, "cuMemcpyDtoH",
			work->cu->copy_to_host(work->back, at + offset, n));
		if ((skip && memcmp(work->back, head, skip) != 0) ||
			memcmp(work->back + skip, work->pattern + skip, n - skip) != 0) {
			size_t i = 0;

			while (i < n &&
				work->back[i] == (i < skip ? ((const unsigned char *)head)[i]
							   : work->pattern[i]))
				i++;
			ret_failure->call = NULL;
			snprintf(ret_failure->text, sizeof(ret_failure->text),
				"the memory does not hold what was written: byte %zu of %zu "
				"differs",
				offset + i, n_bytes);
			goto out;
		}
	}
	r = 0;
out:
	return r;
}

int mc_arena_make(struct mc_arena_work *work, mc_cu_device device, size_t n_bytes, const void *head,
	size_t n_head, int *ret_fd, struct mc_arena_failure *ret_failure)
{
	const struct mc_cu *cu = work->cu;
	struct mc_cu_allocation allocation;
	struct mc_cu_access access = {
		.location = {MC_CU_LOCATION_DEVICE, device}, .flags = MC_CU_ACCESS_READWRITE};
	mc_cu_handle handle = 0;
	mc_cu_ptr at = 0;
	int have_handle = 0, mapped = 0, fd = -1, r = -1;
	uint64_t t0, t1, t2;

	describe_allocation(device, &allocation);
	TRY(ret_failure, "cuMemCreate", cu->create(&handle, n_bytes, &allocation, 0));
	have_handle = 1;
	TRY(ret_failure, "cuMemAddressReserve", cu->reserve(&at, n_bytes, 0, 0, 0));
	TRY(ret_failure, "cuMemMap", cu->map(at, n_bytes, 0, handle, 0));
	mapped = 1;
	TRY(ret_failure, "cuMemSetAccess", cu->set_access(at, n_bytes, &access, 1));
	t0 = now_ns();
	if (fill(work, at, n_bytes, head, n_head, ret_failure))
		goto out;
	t1 = now_ns();
	if (verify(work, at, n_bytes, head, n_head, ret_failure))
		goto out;
	t2 = now_ns();
	work->fill_ns += t1 - t0;
	work->verify_ns += t2 - t1;
	TRY(ret_failure, "cuMemExportToShareableHandle",
		cu->export_fd(&fd, handle, MC_CU_HANDLE_POSIX_FD, 0));
	*ret_fd = fd;
	r = 0;
out:
	/* the fd alone keeps the memory; our mapping and handle may go */
	if (mapped)
		cu->unmap(at, n_bytes);
	if (at)
		cu->unreserve(at, n_bytes);
	if (have_handle)
		cu->release(handle);
	return r;
}
