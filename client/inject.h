/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Injected faults of the client, for tests; compiled in only with MOECOMM_FAULT_INJECTION.
 * MOECOMM_INJECT_CLIENT (apart from what the host ops read) holds entries "name:N" or
 * "name:N@RANK", separated by commas:
 *
 *   map_fail:N[@RANK]   the N-th import or map (from 1) fails
 *   slack_ms:N          replaces the time that a join grants the daemon for arming
 *   look_delay_ms:N     who finds an abort on the board takes N ms to say so
 */
#ifndef MC_CLIENT_INJECT_H
#define MC_CLIENT_INJECT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef MC_FAULT_INJECTION
/* Counts an occasion of `name` on a rank; true when the entry's N is reached. */
bool mc_client_inject_hit(const char *name, uint32_t rank);
/* The entry's N, or `otherwise`. */
int mc_client_inject_value(const char *name, int otherwise);
/* Sleeps for the entry's N ms. */
void mc_client_inject_delay(const char *name);
#else
static inline bool mc_client_inject_hit(const char *name, uint32_t rank)
{
	(void)name;
	(void)rank;
	return false;
}
static inline int mc_client_inject_value(const char *name, int otherwise)
{
	(void)name;
	return otherwise;
}
static inline void mc_client_inject_delay(const char *name)
{
	(void)name;
}
#endif
#endif
