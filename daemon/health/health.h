/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Health from progress. The board of a ready epoch is read once into a local copy (members write to
 * it), compared with what was seen before, and each rank judged:
 *
 *   idle         in no op, and nobody waits for it
 *   progressing  in an op, or awaited, and it has moved within the threshold
 *   stalled      others have waited for it for the threshold, and it has not moved as long
 *   waiting      in an op for the threshold, because of a rank that is stalled or failed
 *   failed       its op ended with a fault, or it is the one whose end ended the epoch
 *
 * Channels count together: a rank that moves on any of them moves.
 */
#ifndef MC_DAEMON_HEALTH_HEALTH_H
#define MC_DAEMON_HEALTH_HEALTH_H

#include <stdbool.h>
#include <stdint.h>
#include "kernels/lamport.h"
#include "proto/status.h"

struct mc_epoch;
struct mc_health_log; /* what was seen of one epoch */

struct mc_rank_view {
	struct mc_progress progress[MC_MAX_CHANNELS];
	uint64_t age_ms[MC_MAX_CHANNELS]; /* since the daemon saw it change */
	uint64_t wait_ns[MC_MAX_CHANNELS];
	uint64_t pushed_bytes[MC_MAX_CHANNELS];
	uint32_t lag[MC_MAX_CHANNELS]; /* calls behind the first of the group */
	uint64_t awaited_ms; /* how long others have waited for it to enter their call; 0: none does
			      */
	bool is_stopped;     /* the operating system says that its process does not run */
	struct mc_fault fault; /* checked: every number is in its range */
	enum mc_health health;
};

struct mc_health_view {
	struct mc_rank_view rank[MC_MAX_WORLD_SIZE];
	/*
	 * The backend posts rarely (cuda): a posted call number is a lower bound, and a rank that
	 * has not left is one that waits (kernels/lamport.h). mc_health_judge then brings the call
	 * numbers to what the protocol says of them.
	 */
	bool is_sparse;
	enum mc_health health; /* of the group: its worst rank's */
};

struct mc_health_log *mc_health_new(void);
struct mc_health_log *mc_health_free(struct mc_health_log *health);

/* Looks at the board now. An epoch without a board leaves everything unknown, or failed. */
void mc_health_look(struct mc_epoch *epoch, uint64_t now_ms, struct mc_health_view *ret_view);
/* Adds what ops have waited since it was last asked to the daemon's counters. */
void mc_health_count_waits(struct mc_epoch *epoch);
/* Looks, counts waits, and logs a rank that has begun or ceased to stall. */
void mc_health_watch(struct mc_epoch *epoch);

/* Call number that the rank entered last on a channel, low 32 bits. */
uint32_t mc_health_call(const struct mc_board *board, uint32_t rank, uint32_t channel);

/*
 * The judgement alone: from progress and ages to each rank's health; of sparse posts, it also
 * brings the call numbers up. is_stopped tells whether the
 * operating system says that the rank's process does not run.
 */
void mc_health_judge(struct mc_health_view *view, uint32_t world_size, uint32_t n_channels,
	uint32_t stall_ms, const uint8_t *is_stopped);

#endif
