/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As much of CUDA C++ and its run time as kernels/cuda uses, on the CPU; found in place of the
 * toolkit's header. emulator.h says what it is good for.
 */
#ifndef MC_TEST_EMULATOR_CUDA_RUNTIME_H
#define MC_TEST_EMULATOR_CUDA_RUNTIME_H

#include "emulator.h"

typedef int cudaError_t;
typedef void *cudaStream_t;
enum {
	cudaSuccess = 0,
	cudaErrorCooperativeLaunchTooLarge = 720,
};

enum cudaLaunchAttributeID {
	cudaLaunchAttributeClusterDimension,
	cudaLaunchAttributeProgrammaticStreamSerialization,
};
struct cudaLaunchAttribute {
	cudaLaunchAttributeID id;
	struct {
		struct {
			unsigned x, y, z;
		} clusterDim;
		int programmaticStreamSerializationAllowed;
	} val;
};
struct cudaLaunchConfig_t {
	dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	cudaStream_t stream;
	cudaLaunchAttribute *attrs;
	unsigned numAttrs;
};

/* Runs the kernel to its end on threads of its own. */
template <class Args>
static cudaError_t cudaLaunchKernelEx(
	const cudaLaunchConfig_t *config, void (*kernel)(Args), const Args &args)
{
	unsigned cluster = 1;

	for (unsigned i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == cudaLaunchAttributeClusterDimension)
			cluster = config->attrs[i].val.clusterDim.x;
	emu_launch(config->gridDim.x, config->blockDim.x, cluster, [&]() { kernel(args); });
	return cudaSuccess;
}

/* ---- the device: four multiprocessors with room for two CTAs, or four clusters on all ---- */

#define EMU_SMS 4

struct cudaFuncAttributes {
	int maxThreadsPerBlock;
};
enum cudaDeviceAttr {
	cudaDevAttrMultiProcessorCount,
	cudaDevAttrClusterLaunch,
	cudaDevAttrComputeCapabilityMajor,
};
enum cudaFuncAttribute {
	cudaFuncAttributePreferredSharedMemoryCarveout,
};

static inline cudaError_t cudaGetDevice(int *ret_device)
{
	*ret_device = 0;
	return cudaSuccess;
}

static inline cudaError_t cudaDeviceGetAttribute(int *ret_value, cudaDeviceAttr attribute, int)
{
	*ret_value = attribute == cudaDevAttrMultiProcessorCount      ? EMU_SMS
		     : attribute == cudaDevAttrComputeCapabilityMajor ? 9
								      : 1;
	return cudaSuccess;
}

static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *ret_attributes, const void *)
{
	ret_attributes->maxThreadsPerBlock = 1024;
	return cudaSuccess;
}

static inline cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int)
{
	return cudaSuccess;
}

static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(
	int *ret_n, const void *, int, size_t)
{
	*ret_n = 2;
	return cudaSuccess;
}

static inline cudaError_t cudaOccupancyMaxActiveClusters(
	int *ret_n, const void *, const cudaLaunchConfig_t *)
{
	*ret_n = 4;
	return cudaSuccess;
}

#endif
