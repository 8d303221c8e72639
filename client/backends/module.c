/* SPDX-License-Identifier: Apache-2.0 */
#include "client/backends/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CUDA_MODULE "libmoecomm-cuda.so"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct mc_client_backend
	*cuda; /* once loaded; the driver's threads forbid unloading */

/* The module lies beside this library, wherever that was installed or copied to. */
static int module_path(char *ret_path, size_t n_path)
{
	const char *slash;
	Dl_info info;
	int n;

	if (!dladdr((const void *)moecomm_connect, &info) || !info.dli_fname)
		return -1;
	slash = strrchr(info.dli_fname, '/');
	n = snprintf(ret_path, n_path, "%.*s" CUDA_MODULE,
		slash ? (int)(slash - info.dli_fname + 1) : 0, info.dli_fname);
	return n < 0 || (size_t)n >= n_path ? -1 : 0;
}

static enum moecomm_status load_cuda(struct mc_backend_error *ret_error)
{
	const struct mc_client_backend *found;
	char path[PATH_MAX];
	void *module;

	if (module_path(path, sizeof(path))) {
		snprintf(ret_error->text, sizeof(ret_error->text),
			"cannot tell where this library lies, to find " CUDA_MODULE " beside it");
		return MOECOMM_UNSUPPORTED;
	}
	if (strchr(path, '/') && access(path, F_OK) != 0) {
		snprintf(ret_error->text, sizeof(ret_error->text),
			"the cuda backend is not installed: there is no %.300s; install it, or "
			"join with the "
			"host backend",
			path);
		return MOECOMM_UNSUPPORTED;
	}
	module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!module) {
		snprintf(ret_error->text, sizeof(ret_error->text),
			"cannot load the cuda backend: %.400s", dlerror());
		return MOECOMM_UNSUPPORTED;
	}
	found = dlsym(module, MC_CLIENT_BACKEND_SYMBOL);
	if (!found || found->abi != MC_CLIENT_BACKEND_ABI) {
		snprintf(ret_error->text, sizeof(ret_error->text),
			"%.300s is of another release (interface %u, this library has %u): install "
			"both from one",
			path, found ? found->abi : 0, MC_CLIENT_BACKEND_ABI);
		dlclose(module);
		return MOECOMM_UNSUPPORTED;
	}
	cuda = found;
	return MOECOMM_OK;
}

enum moecomm_status mc_module_find(enum moecomm_backend backend,
	const struct mc_client_backend **ret_backend, struct mc_backend_error *ret_error)
{
	enum moecomm_status status = MOECOMM_OK;

	if (backend != MOECOMM_BACKEND_CUDA) {
		*ret_backend = &mc_client_backend_host;
		return MOECOMM_OK;
	}
	pthread_mutex_lock(&lock);
	if (!cuda)
		status = load_cuda(ret_error);
	if (status == MOECOMM_OK)
		*ret_backend = cuda;
	pthread_mutex_unlock(&lock);
	return status;
}
