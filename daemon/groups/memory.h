/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of an epoch as the daemon holds it: fds, the mapped board, what is charged for it. */
#ifndef MC_DAEMON_GROUPS_MEMORY_H
#define MC_DAEMON_GROUPS_MEMORY_H

#include <stdint.h>

struct mc_epoch;
struct mc_arm_result;

/* Takes the armed memory over (also on failure) and maps the board. Returns 0 or -errno. */
int mc_memory_take(struct mc_epoch *epoch, struct mc_arm_result *result);
/* Closes the fds and unmaps the board; members keep what they map. Idempotent. */
void mc_memory_drop(struct mc_epoch *epoch);
/* Sets the board's abort word unless somebody was first. */
void mc_memory_abort(
	struct mc_epoch *epoch, uint32_t status, uint32_t fault_rank, uint32_t reporter);
/* Makes the board show the epoch's deadlines. */
void mc_memory_set_deadlines(struct mc_epoch *epoch);
/* 128 random bits that no ordinary payload consists of. Returns 0 or -errno. */
int mc_memory_draw_sentinel(struct mc_epoch *epoch);

#endif
