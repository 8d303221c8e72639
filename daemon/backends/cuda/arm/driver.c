/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/backends/cuda/arm/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int mc_driver_open(struct mc_cu *ret_cu, char *detail, size_t n_detail)
{
	struct mc_cu cu = {0};

	cu.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!cu.library) {
		const char *why = dlerror();

		snprintf(detail, n_detail, "no NVIDIA driver: %s", why ? why : "dlopen failed");
		return MC_DRIVER_E_LIBRARY;
	}
	struct {
		void **place;
		const char *symbol;
	} const table[] = {
#define MC_CU_ENTRY(member, symbol, arguments) {(void **)&cu.member, symbol},
		MC_CU_TABLE(MC_CU_ENTRY)
#undef MC_CU_ENTRY
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		void *found = dlsym(cu.library, table[i].symbol);

		if (!found) {
			snprintf(detail, n_detail,
				"the NVIDIA driver is too old: libcuda.so.1 lacks %s; install "
				"driver 525 or later",
				table[i].symbol);
			dlclose(cu.library);
			return MC_DRIVER_E_SYMBOL;
		}
		memcpy(table[i].place, &found, sizeof(found));
	}
	*ret_cu = cu;
	return 0;
}

void mc_driver_describe(
	const struct mc_cu *cu, const char *call, mc_cu_result error, char *text, size_t n_text)
{
	const char *name = NULL, *sentence = NULL;

	if (cu->error_name(error, &name) != MC_CU_SUCCESS || !name)
		name = "unknown error";
	if (cu->error_string(error, &sentence) != MC_CU_SUCCESS || !sentence)
		sentence = "no text";
	snprintf(text, n_text, "%s: %s (%d, %s)", call, name, error, sentence);
}
