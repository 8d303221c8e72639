/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a call fails: the record of what happened, the epoch's failed flag and the word to the peers.
 * All of the board is shared with other processes: read once, checked, then used.
 */
#ifndef MC_KERNELS_HOST_FAULT_H
#define MC_KERNELS_HOST_FAULT_H

#include "kernels/host/ring.h"

#define MC_FAULT_NOBODY UINT32_MAX

/* A record of this call, with nothing but the status and the peer filled in. */
struct mc_fault mc_fault_make(
	const struct mc_ring *ring, enum mc_fault_status status, uint32_t peer);

/* Fails the call as the record says and tells the peers. Returns the record's status. */
int mc_fault_raise(struct mc_ring *ring, const struct mc_fault *fault);

/* Fails the call because the board's abort word is set, with the cause of whoever set it. */
int mc_fault_adopt(struct mc_ring *ring, uint32_t abort_word);

/* Fails the call because the epoch has failed earlier on this rank. */
int mc_fault_repeat(struct mc_ring *ring, uint32_t failed);

#endif
