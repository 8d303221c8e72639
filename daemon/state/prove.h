/* SPDX-License-Identifier: Apache-2.0 */
/* Whether stored fds are what their names say. */
#ifndef MC_DAEMON_STATE_PROVE_H
#define MC_DAEMON_STATE_PROVE_H

#include <stdbool.h>
#include <stdint.h>
#include "kernels/lamport.h"

/* What an epoch's memory must be. */
struct mc_proof {
	uint64_t epoch;
	uint32_t world_size;
	uint64_t arena_bytes;
	struct mc_vector sentinel;
	bool on_host; /* control blocks and arenas are memfds too, else a driver's */
};

/* Each returns NULL, or what is wrong. */
const char *mc_prove_board(int fd, const struct mc_proof *proof);
const char *mc_prove_control(int fd, const struct mc_proof *proof, uint32_t rank);
const char *mc_prove_arena(int fd, const struct mc_proof *proof);

/* Whether two fds are of one object. */
bool mc_prove_same(int a, int b);

/*
 * The board of an epoch that we can't resume: its ops end with STALE_EPOCH, so that members rejoin.
 * Anything that is no board of ours is left alone.
 */
void mc_prove_abort_board(int fd, uint64_t epoch);

#endif
