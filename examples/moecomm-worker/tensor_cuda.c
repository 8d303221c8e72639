/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device tensors through the CUDA driver, found at run time: the worker builds and starts on
 * machines that have neither the toolkit nor a driver.
 */
#include "tensor.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int cu_result;
typedef unsigned long long cu_pointer;

/* The driver's functions that this file calls, by the names they have had since CUDA 4. */
#define DRIVER_TABLE(X)                                                                            \
	X(init, "cuInit", (unsigned flags))                                                        \
	X(error_string, "cuGetErrorString", (cu_result result, const char **ret_text))             \
	X(device_count, "cuDeviceGetCount", (int *ret_count))                                      \
	X(device_get, "cuDeviceGet", (int *ret_device, int ordinal))                               \
	X(context_retain, "cuDevicePrimaryCtxRetain", (void **ret_context, int device))            \
	X(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))                           \
	X(context_set, "cuCtxSetCurrent", (void *context))                                         \
	X(stream_create, "cuStreamCreate", (void **ret_stream, unsigned flags))                    \
	X(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                    \
	X(stream_wait, "cuStreamSynchronize", (void *stream))                                      \
	X(alloc, "cuMemAlloc_v2", (cu_pointer * ret_pointer, size_t n_bytes))                      \
	X(free, "cuMemFree_v2", (cu_pointer pointer))                                              \
	X(upload, "cuMemcpyHtoDAsync_v2",                                                          \
		(cu_pointer to, const void *from, size_t n, void *stream))                         \
	X(download, "cuMemcpyDtoHAsync_v2", (void *to, cu_pointer from, size_t n, void *stream))

static struct {
	void *library;
#define DRIVER_MEMBER(name, symbol, arguments) cu_result(*name) arguments;
	DRIVER_TABLE(DRIVER_MEMBER)
#undef DRIVER_MEMBER
} driver;

#define STREAM_NON_BLOCKING 1u

struct cuda_space {
	struct tensor_space base;
	int device;
	void *context;
};

static int told(cu_result result, const char *what)
{
	const char *text = NULL;

	if (result == 0)
		return 0;
	if (driver.error_string)
		driver.error_string(result, &text);
	fprintf(stderr, "moecomm-worker: %s: %s (%d)\n", what, text ? text : "unknown error",
		result);
	return -1;
}

/* Returns NULL, or what is missing. */
static const char *driver_load(void)
{
	if (driver.library)
		return NULL;
	driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!driver.library)
		return "libcuda.so.1";
#define DRIVER_FIND(name, symbol, arguments)                                                       \
	*(void **)&driver.name = dlsym(driver.library, symbol);                                    \
	if (!driver.name)                                                                          \
		return symbol;
	DRIVER_TABLE(DRIVER_FIND)
#undef DRIVER_FIND
	return NULL;
}

int tensor_cuda_devices(void)
{
	int count = 0;

	if (driver_load() || driver.init(0) || driver.device_count(&count))
		return 0;
	return count;
}

static void cuda_free(struct tensor_space *space, struct tensor *tensor)
{
	(void)space;
	free(tensor->host);
	if (tensor->device)
		told(driver.free((cu_pointer)(uintptr_t)tensor->device), "cuMemFree");
	*tensor = (struct tensor){0};
}

static int cuda_alloc(struct tensor_space *space, size_t n_bytes, struct tensor *ret_tensor)
{
	struct tensor tensor = {.host = malloc(n_bytes ? n_bytes : 1), .n_bytes = n_bytes};
	cu_pointer pointer = 0;

	if (!tensor.host) {
		fprintf(stderr, "moecomm-worker: out of memory for a tensor of %zu bytes\n",
			n_bytes);
		return -1;
	}
	if (told(driver.alloc(&pointer, n_bytes ? n_bytes : 1), "cuMemAlloc") < 0) {
		cuda_free(space, &tensor);
		return -1;
	}
	tensor.device = (void *)(uintptr_t)pointer;
	*ret_tensor = tensor;
	return 0;
}

static int cuda_wait(struct tensor_space *space)
{
	return told(driver.stream_wait(space->stream), "cuStreamSynchronize");
}

static int cuda_upload(struct tensor_space *space, const struct tensor *tensor, size_t n_bytes)
{
	if (n_bytes == 0)
		return 0;
	return told(driver.upload((cu_pointer)(uintptr_t)tensor->device, tensor->host, n_bytes,
			    space->stream),
		"cuMemcpyHtoDAsync");
}

/* Complete on return, since the CPU reads next. */
static int cuda_download(struct tensor_space *space, const struct tensor *tensor, size_t n_bytes)
{
	if (n_bytes == 0)
		return 0;
	if (told(driver.download(tensor->host, (cu_pointer)(uintptr_t)tensor->device, n_bytes,
			 space->stream),
		    "cuMemcpyDtoHAsync") < 0)
		return -1;
	return cuda_wait(space);
}

static struct tensor_space *cuda_close(struct tensor_space *space)
{
	struct cuda_space *cuda = (struct cuda_space *)space;

	if (space->stream)
		told(driver.stream_destroy(space->stream), "cuStreamDestroy");
	if (cuda->context)
		told(driver.context_release(cuda->device), "cuDevicePrimaryCtxRelease");
	free(cuda);
	return NULL;
}

struct tensor_space *tensor_cuda_open(int device)
{
	const char *missing = driver_load();
	struct cuda_space *cuda;

	if (missing) {
		fprintf(stderr,
			"moecomm-worker: the cuda backend needs the NVIDIA driver: %s not found\n",
			missing);
		return NULL;
	}
	cuda = calloc(1, sizeof(*cuda));
	if (!cuda)
		return NULL;
	cuda->base.alloc = cuda_alloc;
	cuda->base.free = cuda_free;
	cuda->base.upload = cuda_upload;
	cuda->base.download = cuda_download;
	cuda->base.wait = cuda_wait;
	cuda->base.close = cuda_close;
	if (told(driver.init(0), "cuInit") < 0 ||
		told(driver.device_get(&cuda->device, device), "cuDeviceGet") < 0 ||
		told(driver.context_retain(&cuda->context, cuda->device),
			"cuDevicePrimaryCtxRetain") < 0 ||
		told(driver.context_set(cuda->context), "cuCtxSetCurrent") < 0 ||
		told(driver.stream_create(&cuda->base.stream, STREAM_NON_BLOCKING),
			"cuStreamCreate") < 0)
		return cuda_close(&cuda->base);
	return &cuda->base;
}
