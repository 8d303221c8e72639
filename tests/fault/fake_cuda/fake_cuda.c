/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcuda.so.1 without a GPU: device memory is a memfd, mapped where the real driver would map
 * it. Behaves as the environment says, so that the arming helper's every failure can be had:
 *
 *   FAKE_CUDA_GPUS=n            devices (default 2); 0: cuInit finds none
 *   FAKE_CUDA_MIG=1             the devices are MIG slices
 *   FAKE_CUDA_GRANULARITY=n     default 2 MiB
 *   FAKE_CUDA_NO_VMM=1          devices without virtual memory management
 *   FAKE_CUDA_FAIL=call:nth:code    the nth call of that name answers code
 *   FAKE_CUDA_HANG=call:nth     … never returns
 *   FAKE_CUDA_SLOW=call:nth:ms  … takes its time first
 *   FAKE_CUDA_CRASH=call:nth    … dies of SIGSEGV
 *   FAKE_CUDA_FLIP=nth          the nth read-back has one bit wrong
 *   FAKE_CUDA_SHOW=variable     says on stderr whether an environment variable is set at cuInit
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/backends/cuda/arm/driver.h"

#define API __attribute__((visibility("default")))
/* X-macro names carry no types: one prototype a call, as -Wmissing-prototypes wants. */
#define FAKE(name, arguments)                                                                      \
	API mc_cu_result name arguments;                                                           \
	API mc_cu_result name arguments

enum {
	BAD_VALUE = 1,
	NOT_INITIALIZED = 3,
};

static int initialized;

static unsigned long number(const char *variable, unsigned long fallback)
{
	const char *text = getenv(variable);

	return text && *text ? strtoul(text, NULL, 0) : fallback;
}

/* Whether this call of `name` is the one that the variable "name:nth[:code]" means. */
static int hit(const char *variable, const char *name, unsigned nth, mc_cu_result *ret_code)
{
	const char *text = getenv(variable);
	size_t n = strlen(name);
	char *end;

	if (!text || strncmp(text, name, n) != 0 || (text[n] != ':' && text[n]))
		return 0;
	if (text[n] && strtoul(text + n + 1, &end, 10) != nth)
		return 0;
	if (!text[n] && nth != 1)
		return 0;
	*ret_code = text[n] && *end == ':' ? atoi(end + 1) : 999;
	return 1;
}

static mc_cu_result enter(const char *name, unsigned *count)
{
	mc_cu_result code = 0;

	++*count;
	if (hit("FAKE_CUDA_HANG", name, *count, &code)) {
		fprintf(stderr, "fake driver: %s hangs\n", name);
		for (;;)
			pause();
	}
	if (hit("FAKE_CUDA_SLOW", name, *count, &code))
		usleep((useconds_t)code * 1000u);
	if (hit("FAKE_CUDA_CRASH", name, *count, &code)) {
		signal(SIGSEGV, SIG_DFL);
		raise(SIGSEGV);
	}
	if (hit("FAKE_CUDA_FAIL", name, *count, &code))
		return code;
	return 0;
}

#define ENTER(name)                                                                                \
	do {                                                                                       \
		static unsigned count_;                                                            \
		mc_cu_result code_ = enter(name, &count_);                                         \
		if (code_)                                                                         \
			return code_;                                                              \
		if (!initialized)                                                                  \
			return NOT_INITIALIZED;                                                    \
	} while (0)

FAKE(cuInit, (unsigned flags))
{
	static unsigned count;
	const char *show = getenv("FAKE_CUDA_SHOW");
	mc_cu_result code = enter("cuInit", &count);

	if (show)
		fprintf(stderr, "fake driver: %s is %s\n", show,
			getenv(show) ? getenv(show) : "not set");
	if (code)
		return code;
	if (flags)
		return BAD_VALUE;
	if (number("FAKE_CUDA_GPUS", 2) == 0)
		return MC_CU_NO_DEVICE;
	initialized = 1;
	return 0;
}

FAKE(cuDriverGetVersion, (int *ret_version))
{
	*ret_version = 13000;
	return 0;
}

FAKE(cuGetErrorName, (mc_cu_result error, const char **ret_name))
{
	*ret_name = error == MC_CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
		    : error == MC_CU_NO_DEVICE   ? "CUDA_ERROR_NO_DEVICE"
		    : error == 0                 ? "CUDA_SUCCESS"
						 : "CUDA_ERROR_UNKNOWN";
	return 0;
}

FAKE(cuGetErrorString, (mc_cu_result error, const char **ret_text))
{
	*ret_text = error == MC_CU_OUT_OF_MEMORY ? "out of memory"
		    : error == MC_CU_NO_DEVICE   ? "no CUDA-capable device is detected"
						 : "unknown error";
	return 0;
}

FAKE(cuDeviceGetCount, (int *ret_count))
{
	ENTER("cuDeviceGetCount");
	*ret_count = (int)number("FAKE_CUDA_GPUS", 2);
	return 0;
}

FAKE(cuDeviceGet, (mc_cu_device * ret_device, int ordinal))
{
	ENTER("cuDeviceGet");
	if (ordinal < 0 || ordinal >= (int)number("FAKE_CUDA_GPUS", 2))
		return BAD_VALUE;
	*ret_device = ordinal;
	return 0;
}

/* Device n: 00000000-0000-0000-0000-00000000000n */
FAKE(cuDeviceGetUuid_v2, (struct mc_cu_uuid * ret_uuid, mc_cu_device device))
{
	ENTER("cuDeviceGetUuid_v2");
	memset(ret_uuid, 0, sizeof(*ret_uuid));
	ret_uuid->bytes[15] = (unsigned char)device;
	return 0;
}

FAKE(cuDeviceGetName, (char *ret_name, int n_name, mc_cu_device device))
{
	ENTER("cuDeviceGetName");
	snprintf(ret_name, (size_t)n_name, "Fake GPU %d%s", device,
		number("FAKE_CUDA_MIG", 0) ? " MIG 1g.5gb" : "");
	return 0;
}

FAKE(cuDeviceTotalMem_v2, (size_t * ret_bytes, mc_cu_device device))
{
	ENTER("cuDeviceTotalMem_v2");
	*ret_bytes = (size_t)(device + 1) << 30;
	return 0;
}

FAKE(cuDeviceGetAttribute, (int *ret_value, int attribute, mc_cu_device device))
{
	ENTER("cuDeviceGetAttribute");
	(void)device;
	switch (attribute) {
	case MC_CU_ATTR_COMPUTE_MAJOR:
		*ret_value = 9;
		return 0;
	case MC_CU_ATTR_COMPUTE_MINOR:
		*ret_value = 0;
		return 0;
	case MC_CU_ATTR_VMM:
	case MC_CU_ATTR_POSIX_FD:
		*ret_value = !number("FAKE_CUDA_NO_VMM", 0);
		return 0;
	default:
		return BAD_VALUE;
	}
}

static int current = -1;
static char contexts[64];

FAKE(cuDevicePrimaryCtxRetain, (mc_cu_context * ret_context, mc_cu_device device))
{
	ENTER("cuDevicePrimaryCtxRetain");
	*ret_context = (mc_cu_context)&contexts[device];
	return 0;
}

FAKE(cuCtxSetCurrent, (mc_cu_context context))
{
	ENTER("cuCtxSetCurrent");
	current = (int)((char *)context - contexts);
	return 0;
}

FAKE(cuCtxSynchronize, (void))
{
	ENTER("cuCtxSynchronize");
	return 0;
}

FAKE(cuMemGetInfo_v2, (size_t * ret_free, size_t *ret_total))
{
	ENTER("cuMemGetInfo_v2");
	*ret_free = 12345;
	*ret_total = 1u << 30;
	return 0;
}

static int allocation_ok(const struct mc_cu_allocation *a)
{
	return a->type == MC_CU_ALLOCATION_PINNED && a->handle_types == MC_CU_HANDLE_POSIX_FD &&
	       a->location.type == MC_CU_LOCATION_DEVICE && a->location.id >= 0 &&
	       a->location.id < (int)number("FAKE_CUDA_GPUS", 2);
}

FAKE(cuMemGetAllocationGranularity,
	(size_t * ret_bytes, const struct mc_cu_allocation *allocation, int option))
{
	ENTER("cuMemGetAllocationGranularity");
	if (!allocation_ok(allocation) || option != MC_CU_GRANULARITY_MINIMUM)
		return BAD_VALUE;
	*ret_bytes = number("FAKE_CUDA_GRANULARITY", 2u << 20);
	return 0;
}

/* A handle is a memfd + 1. Named by its device, so that a test can see where memory was made. */
FAKE(cuMemCreate, (mc_cu_handle * ret_handle, size_t n_bytes,
			  const struct mc_cu_allocation *allocation, unsigned long long flags))
{
	char name[32];
	int fd;

	ENTER("cuMemCreate");
	if (flags || !allocation_ok(allocation) || n_bytes == 0 ||
		n_bytes % number("FAKE_CUDA_GRANULARITY", 2u << 20))
		return BAD_VALUE;
	snprintf(name, sizeof(name), "fake-gpu-%d", allocation->location.id);
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)n_bytes))
		return MC_CU_OUT_OF_MEMORY;
	*ret_handle = (mc_cu_handle)fd + 1;
	return 0;
}

FAKE(cuMemRelease, (mc_cu_handle handle))
{
	ENTER("cuMemRelease");
	return close((int)handle - 1) ? BAD_VALUE : 0;
}

FAKE(cuMemAddressReserve, (mc_cu_ptr * ret_address, size_t n_bytes, size_t alignment,
				  mc_cu_ptr address, unsigned long long flags))
{
	void *at;

	ENTER("cuMemAddressReserve");
	if (alignment || address || flags)
		return BAD_VALUE;
	at = mmap(NULL, n_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return MC_CU_OUT_OF_MEMORY;
	*ret_address = (mc_cu_ptr)(uintptr_t)at;
	return 0;
}

FAKE(cuMemAddressFree, (mc_cu_ptr address, size_t n_bytes))
{
	ENTER("cuMemAddressFree");
	return munmap((void *)(uintptr_t)address, n_bytes) ? BAD_VALUE : 0;
}

FAKE(cuMemMap, (mc_cu_ptr address, size_t n_bytes, size_t offset, mc_cu_handle handle,
		       unsigned long long flags))
{
	ENTER("cuMemMap");
	if (flags)
		return BAD_VALUE;
	/* no access before cuMemSetAccess, as on a GPU */
	if (mmap((void *)(uintptr_t)address, n_bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
		    (int)handle - 1, (off_t)offset) == MAP_FAILED)
		return BAD_VALUE;
	return 0;
}

FAKE(cuMemUnmap, (mc_cu_ptr address, size_t n_bytes))
{
	ENTER("cuMemUnmap");
	return mmap((void *)(uintptr_t)address, n_bytes, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED
		       ? BAD_VALUE
		       : 0;
}

FAKE(cuMemSetAccess,
	(mc_cu_ptr address, size_t n_bytes, const struct mc_cu_access *access, size_t n_access))
{
	ENTER("cuMemSetAccess");
	if (n_access != 1 || access->flags != MC_CU_ACCESS_READWRITE)
		return BAD_VALUE;
	return mprotect((void *)(uintptr_t)address, n_bytes, PROT_READ | PROT_WRITE) ? BAD_VALUE
										     : 0;
}

FAKE(cuMemExportToShareableHandle,
	(void *ret_fd, mc_cu_handle handle, int handle_type, unsigned long long flags))
{
	int fd;

	ENTER("cuMemExportToShareableHandle");
	if (handle_type != MC_CU_HANDLE_POSIX_FD || flags)
		return BAD_VALUE;
	fd = dup((int)handle - 1);
	if (fd < 0)
		return BAD_VALUE;
	*(int *)ret_fd = fd;
	return 0;
}

FAKE(cuMemcpyHtoD_v2, (mc_cu_ptr to, const void *from, size_t n_bytes))
{
	ENTER("cuMemcpyHtoD_v2");
	if (current < 0)
		return BAD_VALUE;
	memcpy((void *)(uintptr_t)to, from, n_bytes);
	return 0;
}

FAKE(cuMemcpyDtoH_v2, (void *to, mc_cu_ptr from, size_t n_bytes))
{
	static unsigned n_reads;

	ENTER("cuMemcpyDtoH_v2");
	memcpy(to, (void *)(uintptr_t)from, n_bytes);
	if (++n_reads == number("FAKE_CUDA_FLIP", 0))
		((unsigned char *)to)[n_bytes / 2] ^= 0x10;
	return 0;
}

FAKE(cuMemcpyDtoD_v2, (mc_cu_ptr to, mc_cu_ptr from, size_t n_bytes))
{
	ENTER("cuMemcpyDtoD_v2");
	if (from + n_bytes > to)
		return BAD_VALUE;
	memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, n_bytes);
	return 0;
}

FAKE(cuMemAllocHost_v2, (void **ret_memory, size_t n_bytes))
{
	ENTER("cuMemAllocHost_v2");
	*ret_memory = malloc(n_bytes);
	return *ret_memory ? 0 : MC_CU_OUT_OF_MEMORY;
}
