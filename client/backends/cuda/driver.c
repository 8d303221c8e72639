/* SPDX-License-Identifier: Apache-2.0 */
#include "client/backends/cuda/driver.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include "client/moecomm.h"

/* The oldest driver interface that has all of them in the form declared here. */
#define INTERFACE 12000u

#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)

static struct mc_driver driver;
static bool found;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int find_one(const char *name, void **ret_function, struct mc_backend_error *ret_error)
{
	enum cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
	cudaError_t error = cudaGetDriverEntryPointByVersion(
		name, ret_function, INTERFACE, cudaEnableDefault, &answer);

	if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ||
		error == cudaErrorInitializationError) {
		cudaGetLastError();
		snprintf(ret_error->text, sizeof(ret_error->text),
			"no NVIDIA driver answers here (%s): install one, or join with the host "
			"backend",
			cudaGetErrorString(error));
		return MOECOMM_DEVICE;
	}
	if (error != cudaSuccess || answer != cudaDriverEntryPointSuccess || !*ret_function) {
		cudaGetLastError();
		snprintf(ret_error->text, sizeof(ret_error->text),
			"the NVIDIA driver has no %s: a driver for CUDA 12.0 or later is needed",
			name);
		return MOECOMM_DEVICE;
	}
	return 0;
}

/* The macro names of cuda.h expand to versioned ones ("cuMemFree_v2"); queries want the plain name.
 */
static const char *plain(const char *name, char *buffer, size_t n_buffer)
{
	snprintf(buffer, n_buffer, "%s", name);
	for (char *at = buffer; *at; at++)
		if (at[0] == '_' && (at[1] == 'v' || at[1] == 'p')) {
			*at = '\0';
			break;
		}
	return buffer;
}

static int find_all(struct mc_backend_error *ret_error)
{
	char name[96];
	int status;

#define X(call)                                                                                    \
	{                                                                                          \
		void *function = NULL;                                                             \
		status = find_one(plain(TEXT_OF(call), name, sizeof(name)), &function, ret_error); \
		if (status)                                                                        \
			return status;                                                             \
		driver.call = (__typeof__(driver.call))function;                                   \
	}
	MC_DRIVER_CALLS(X)
#undef X
	return 0;
}

int mc_driver_find(const struct mc_driver **ret_driver, struct mc_backend_error *ret_error)
{
	int status = 0;

	pthread_mutex_lock(&lock);
	if (!found) {
		status = find_all(ret_error);
		found = status == 0;
	}
	pthread_mutex_unlock(&lock);
	if (status == 0)
		*ret_driver = &driver;
	return status;
}

int mc_driver_error(const struct mc_driver *cu, CUresult result, const char *call, const char *what,
	uint32_t rank, struct mc_backend_error *ret_error)
{
	const char *name = NULL, *text = NULL;
	char of_rank[32] = "";

	if (cu->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
		name = "unknown error";
	if (cu->cuGetErrorString(result, &text) != CUDA_SUCCESS || !text)
		text = "no text";
	if (rank != UINT32_MAX)
		snprintf(of_rank, sizeof(of_rank), " of rank %u", rank);
	snprintf(ret_error->text, sizeof(ret_error->text), "cannot %s%s: %s failed with %s (%s)",
		what, of_rank, call, name, text);
	return result == CUDA_ERROR_OUT_OF_MEMORY ? MOECOMM_NO_MEMORY : MOECOMM_DEVICE;
}

int mc_runtime_error(int error, const char *call, struct mc_backend_error *ret_error)
{
	cudaGetLastError(); /* not left for the caller's next check */
	snprintf(ret_error->text, sizeof(ret_error->text), "%s failed with %s (%s)", call,
		cudaGetErrorName((cudaError_t)error), cudaGetErrorString((cudaError_t)error));
	return error == cudaErrorMemoryAllocation ? MOECOMM_NO_MEMORY : MOECOMM_DEVICE;
}
