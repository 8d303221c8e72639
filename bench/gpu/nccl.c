/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int bench_nccl_open(const char *library, struct bench_nccl *ret_nccl, char *ret_why, size_t n_why)
{
	struct bench_nccl n = {0};
	struct {
		void *place;
		const char *symbol;
		int needed;
	} const table[] = {
		{&n.get_version, "ncclGetVersion", 1},
		{&n.error_string, "ncclGetErrorString", 1},
		{&n.unique_id, "ncclGetUniqueId", 1},
		{&n.init_rank, "ncclCommInitRank", 1},
		{&n.all_gather, "ncclAllGather", 1},
		{&n.reduce_scatter, "ncclReduceScatter", 1},
		{&n.memory_alloc, "ncclMemAlloc", 0},
		{&n.window_register, "ncclCommWindowRegister", 0},
	};

	n.library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!n.library) {
		snprintf(ret_why, n_why, "no NCCL: %s", dlerror());
		return -1;
	}
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		void *found = dlsym(n.library, table[i].symbol);

		if (!found && table[i].needed) {
			snprintf(ret_why, n_why, "%s lacks %s", library, table[i].symbol);
			dlclose(n.library);
			return -1;
		}
		memcpy(table[i].place, &found, sizeof(found));
	}
	n.get_version(&n.version);
	*ret_nccl = n;
	return 0;
}
