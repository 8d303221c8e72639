/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's functions, found at run time: libcuda is never linked, so this module loads on a
 * machine without a driver and says so in one line.
 */
#ifndef MC_CLIENT_CUDA_DRIVER_H
#define MC_CLIENT_CUDA_DRIVER_H

#include <cuda.h>
#include "client/backends/backend.h"

#define MC_DRIVER_CALLS(X)                                                                         \
	X(cuCtxPopCurrent)                                                                         \
	X(cuCtxPushCurrent)                                                                        \
	X(cuCtxSynchronize)                                                                        \
	X(cuDeviceCanAccessPeer)                                                                   \
	X(cuDeviceGetName)                                                                         \
	X(cuDeviceGetUuid)                                                                         \
	X(cuDevicePrimaryCtxRelease)                                                               \
	X(cuDevicePrimaryCtxRetain)                                                                \
	X(cuGetErrorName)                                                                          \
	X(cuGetErrorString)                                                                        \
	X(cuMemAddressFree)                                                                        \
	X(cuMemAddressReserve)                                                                     \
	X(cuMemAllocHost)                                                                          \
	X(cuMemCreate)                                                                             \
	X(cuMemFreeHost)                                                                           \
	X(cuMemGetAllocationGranularity)                                                           \
	X(cuMemGetAllocationPropertiesFromHandle)                                                  \
	X(cuMemHostGetDevicePointer)                                                               \
	X(cuMemHostRegister)                                                                       \
	X(cuMemHostUnregister)                                                                     \
	X(cuMemImportFromShareableHandle)                                                          \
	X(cuMemMap)                                                                                \
	X(cuMemRelease)                                                                            \
	X(cuMemSetAccess)                                                                          \
	X(cuMemUnmap)                                                                              \
	X(cuMemcpyDtoHAsync)                                                                       \
	X(cuMemcpyHtoDAsync)                                                                       \
	X(cuStreamCreate)                                                                          \
	X(cuStreamDestroy)                                                                         \
	X(cuStreamQuery)                                                                           \
	X(cuStreamSynchronize)                                                                     \
	X(cuThreadExchangeStreamCaptureMode)

/*
 * Members carry the plain names although cuda.h defines some of them as macros of versioned ones;
 * the entry point query below hands out the version that belongs to the declared type.
 */
struct mc_driver {
#define X(name) __typeof__(name) *name;
	MC_DRIVER_CALLS(X)
#undef X
};

/* Finds all once a process. 0 or an enum moecomm_status number with the reason in words. */
int mc_driver_find(const struct mc_driver **ret_driver, struct mc_backend_error *ret_error);

/*
 * Writes "cannot DO of rank R: CALL: NAME (text)" and returns the enum moecomm_status number.
 * rank UINT32_MAX leaves "of rank" away.
 */
int mc_driver_error(const struct mc_driver *driver, CUresult result, const char *call,
	const char *what, uint32_t rank, struct mc_backend_error *ret_error);

/* Likewise for a runtime call (a cudaError_t number). */
int mc_runtime_error(int error, const char *call, struct mc_backend_error *ret_error);

#endif
