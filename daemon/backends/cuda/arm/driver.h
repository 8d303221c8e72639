/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the CUDA driver's interface that the helper uses, opened with dlopen at run time.
 * Declared here rather than taken from cuda.h, so that the helper builds (and its tests run) on
 * machines without a CUDA toolkit; driver_abi.c holds every declaration against cuda.h wherever
 * one is installed. The driver's ABI is stable: versioned symbols never change.
 */
#ifndef MC_CUDA_ARM_DRIVER_H
#define MC_CUDA_ARM_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int mc_cu_result;
typedef int mc_cu_device;
typedef struct mc_cu_context_s *mc_cu_context;
typedef unsigned long long mc_cu_ptr;
typedef unsigned long long mc_cu_handle;

struct mc_cu_uuid {
	unsigned char bytes[16];
};

struct mc_cu_location {
	int type; /* MC_CU_LOCATION_DEVICE */
	int id;
};

struct mc_cu_allocation {
	int type;         /* MC_CU_ALLOCATION_PINNED */
	int handle_types; /* MC_CU_HANDLE_POSIX_FD */
	struct mc_cu_location location;
	void *win32_meta;
	struct {
		unsigned char compression;
		unsigned char gpu_direct_rdma;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};

struct mc_cu_access {
	struct mc_cu_location location;
	int flags; /* MC_CU_ACCESS_READWRITE */
};

enum {
	MC_CU_SUCCESS = 0,
	MC_CU_OUT_OF_MEMORY = 2,
	MC_CU_NO_DEVICE = 100,

	MC_CU_LOCATION_DEVICE = 1,
	MC_CU_ALLOCATION_PINNED = 1,
	MC_CU_HANDLE_POSIX_FD = 1,
	MC_CU_ACCESS_READWRITE = 3,
	MC_CU_GRANULARITY_MINIMUM = 0,

	MC_CU_ATTR_COMPUTE_MAJOR = 75,
	MC_CU_ATTR_COMPUTE_MINOR = 76,
	MC_CU_ATTR_VMM = 102,
	MC_CU_ATTR_POSIX_FD = 103,
};

/* X(member, symbol, arguments) */
#define MC_CU_TABLE(X)                                                                             \
	X(init, "cuInit", (unsigned flags))                                                        \
	X(driver_version, "cuDriverGetVersion", (int *ret_version))                                \
	X(error_name, "cuGetErrorName", (mc_cu_result error, const char **ret_name))               \
	X(error_string, "cuGetErrorString", (mc_cu_result error, const char **ret_text))           \
	X(device_count, "cuDeviceGetCount", (int *ret_count))                                      \
	X(device_get, "cuDeviceGet", (mc_cu_device * ret_device, int ordinal))                     \
	X(device_uuid, "cuDeviceGetUuid_v2", (struct mc_cu_uuid * ret_uuid, mc_cu_device device))  \
	X(device_name, "cuDeviceGetName", (char *ret_name, int n_name, mc_cu_device device))       \
	X(device_memory, "cuDeviceTotalMem_v2", (size_t * ret_bytes, mc_cu_device device))         \
	X(device_attribute, "cuDeviceGetAttribute",                                                \
		(int *ret_value, int attribute, mc_cu_device device))                              \
	X(context_retain, "cuDevicePrimaryCtxRetain",                                              \
		(mc_cu_context * ret_context, mc_cu_device device))                                \
	X(context_set, "cuCtxSetCurrent", (mc_cu_context context))                                 \
	X(context_synchronize, "cuCtxSynchronize", (void))                                         \
	X(memory_info, "cuMemGetInfo_v2", (size_t * ret_free, size_t * ret_total))                 \
	X(granularity, "cuMemGetAllocationGranularity",                                            \
		(size_t * ret_bytes, const struct mc_cu_allocation *allocation, int option))       \
	X(create, "cuMemCreate",                                                                   \
		(mc_cu_handle * ret_handle, size_t n_bytes,                                        \
			const struct mc_cu_allocation *allocation, unsigned long long flags))      \
	X(release, "cuMemRelease", (mc_cu_handle handle))                                          \
	X(reserve, "cuMemAddressReserve",                                                          \
		(mc_cu_ptr * ret_address, size_t n_bytes, size_t alignment, mc_cu_ptr address,     \
			unsigned long long flags))                                                 \
	X(unreserve, "cuMemAddressFree", (mc_cu_ptr address, size_t n_bytes))                      \
	X(map, "cuMemMap",                                                                         \
		(mc_cu_ptr address, size_t n_bytes, size_t offset, mc_cu_handle handle,            \
			unsigned long long flags))                                                 \
	X(unmap, "cuMemUnmap", (mc_cu_ptr address, size_t n_bytes))                                \
	X(set_access, "cuMemSetAccess",                                                            \
		(mc_cu_ptr address, size_t n_bytes, const struct mc_cu_access *access,             \
			size_t n_access))                                                          \
	X(export_fd, "cuMemExportToShareableHandle",                                               \
		(void *ret_fd, mc_cu_handle handle, int handle_type, unsigned long long flags))    \
	X(copy_to_device, "cuMemcpyHtoD_v2", (mc_cu_ptr to, const void *from, size_t n_bytes))     \
	X(copy_to_host, "cuMemcpyDtoH_v2", (void *to, mc_cu_ptr from, size_t n_bytes))             \
	X(copy_on_device, "cuMemcpyDtoD_v2", (mc_cu_ptr to, mc_cu_ptr from, size_t n_bytes))       \
	X(host_alloc, "cuMemAllocHost_v2", (void **ret_memory, size_t n_bytes))

struct mc_cu {
	void *library;
#define MC_CU_MEMBER(member, symbol, arguments) mc_cu_result(*member) arguments;
	MC_CU_TABLE(MC_CU_MEMBER)
#undef MC_CU_MEMBER
};

enum mc_driver_error {
	MC_DRIVER_E_LIBRARY = 1, /* libcuda.so.1 can't be loaded */
	MC_DRIVER_E_SYMBOL = 2,  /* a function is missing: the driver is too old */
};

/*
 * Opens the driver's library; does not initialise it. Returns 0 or a positive enum mc_driver_error
 * with a sentence in detail. Stays open until the process ends.
 */
int mc_driver_open(struct mc_cu *ret_cu, char *detail, size_t n_detail);

/* "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (out of memory)" */
void mc_driver_describe(
	const struct mc_cu *cu, const char *call, mc_cu_result error, char *text, size_t n_text);

#endif
