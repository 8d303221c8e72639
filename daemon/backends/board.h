/* SPDX-License-Identifier: Apache-2.0 */
/* The status board of a group epoch: host memory on every backend, made by the daemon itself. */
#ifndef MC_DAEMON_BACKENDS_BOARD_H
#define MC_DAEMON_BACKENDS_BOARD_H

#include "kernels/lamport.h"

/*
 * Makes a memfd of MC_BOARD_BYTES, initialised, sealed against shrinking and growing (a member that
 * shortened it would have everybody else killed by SIGBUS). Returns 0 and sets *ret_fd, or -errno.
 */
int mc_board_create(
	uint32_t world_size, uint64_t epoch, const struct mc_wait_line *wait, int *ret_fd);

#endif
