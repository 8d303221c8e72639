/* SPDX-License-Identifier: Apache-2.0 */
/* Holds the declarations of driver.h against the toolkit's cuda.h, where there is one. */
#include "daemon/backends/cuda/arm/driver.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

#define SAME_SIZE(mine, theirs) _Static_assert(sizeof(mine) == sizeof(theirs), #theirs)
#define SAME_OFFSET(mine, my_member, theirs, their_member)                                         \
	_Static_assert(offsetof(mine, my_member) == offsetof(theirs, their_member), #their_member)
#define SAME_VALUE(mine, theirs) _Static_assert((int)(mine) == (int)(theirs), #theirs)

SAME_SIZE(mc_cu_result, CUresult);
SAME_SIZE(mc_cu_device, CUdevice);
SAME_SIZE(mc_cu_context, CUcontext);
SAME_SIZE(mc_cu_ptr, CUdeviceptr);
SAME_SIZE(mc_cu_handle, CUmemGenericAllocationHandle);
SAME_SIZE(struct mc_cu_uuid, CUuuid);
SAME_SIZE(struct mc_cu_allocation, CUmemAllocationProp);
SAME_OFFSET(struct mc_cu_allocation, handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_OFFSET(struct mc_cu_allocation, location, CUmemAllocationProp, location);
SAME_OFFSET(struct mc_cu_allocation, win32_meta, CUmemAllocationProp, win32HandleMetaData);
SAME_OFFSET(struct mc_cu_allocation, flags, CUmemAllocationProp, allocFlags);
SAME_SIZE(struct mc_cu_access, CUmemAccessDesc);
SAME_OFFSET(struct mc_cu_access, flags, CUmemAccessDesc, flags);
SAME_VALUE(MC_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(MC_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME_VALUE(MC_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME_VALUE(MC_CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_VALUE(MC_CU_HANDLE_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME_VALUE(MC_CU_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME_VALUE(MC_CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME_VALUE(MC_CU_ATTR_COMPUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(MC_CU_ATTR_COMPUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(MC_CU_ATTR_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME_VALUE(MC_CU_ATTR_POSIX_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
#endif
