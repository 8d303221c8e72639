/* SPDX-License-Identifier: Apache-2.0 */
/* Which backends this daemon has, and which one AUTO means. */
#ifndef MC_DAEMON_BACKENDS_CHOOSE_H
#define MC_DAEMON_BACKENDS_CHOOSE_H

#include <stdint.h>

struct mc_daemon;
struct mc_daemon_backend;

/*
 * What the configuration asks for (enum mc_backend_choice): auto is cuda where it can serve now,
 * else host. Never NULL.
 */
const struct mc_daemon_backend *mc_backend_choose(uint32_t choice);
/*
 * The backend of a group, by enum moecomm_backend. host is always there; cuda only in a daemon that
 * serves it. Returns NULL and sets *ret_reason (static).
 */
const struct mc_daemon_backend *mc_backend_find(
	const struct mc_daemon *daemon, uint32_t number, const char **ret_reason);

#endif
