/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the backend of a number: host is built in, cuda is a module beside the library. */
#ifndef MC_CLIENT_BACKENDS_MODULE_H
#define MC_CLIENT_BACKENDS_MODULE_H

#include "client/backends/backend.h"
#include "client/moecomm.h"

/* OK, or UNSUPPORTED with what is missing in *ret_error. A loaded module stays loaded. Any thread.
 */
enum moecomm_status mc_module_find(enum moecomm_backend backend,
	const struct mc_client_backend **ret_backend, struct mc_backend_error *ret_error);

#endif
