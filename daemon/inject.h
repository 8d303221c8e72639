/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Injected faults of the daemon, for tests; compiled in only with MOECOMM_FAULT_INJECTION.
 * MOECOMM_INJECT_DAEMON holds entries "name:N", separated by commas:
 *
 *   block_ms:N     SIGUSR2 blocks the loop for N ms
 *   arm_fail:N     the N-th arming (from 1) fails
 *   memfd_fail:N   the N-th memfd for the daemon's state can't be made
 *   queue_full:N   the N-th message to a client finds its queue full
 */
#ifndef MC_DAEMON_INJECT_H
#define MC_DAEMON_INJECT_H

#include <stdbool.h>

#ifdef MC_FAULT_INJECTION
/* Counts an occasion; true when the entry's N is reached. From any thread. */
bool mc_inject_hit(const char *name);
/* Makes SIGUSR2 block who takes it, if the variable says so. */
void mc_inject_block_on_signal(void);
#else
static inline bool mc_inject_hit(const char *name)
{
	(void)name;
	return false;
}
static inline void mc_inject_block_on_signal(void)
{
}
#endif

#endif
