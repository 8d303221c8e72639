/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops on the CPU: the same protocol over shared memory, run to completion on the calling
 * thread. One mc_host_rank is one rank's view of a mapped group epoch.
 *
 * Threads: one op at a time a channel (the caller sees to it); channels are independent.
 */
#ifndef MC_KERNELS_HOST_HOST_H
#define MC_KERNELS_HOST_HOST_H

#include "kernels/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mc_host_rank {
	uint32_t rank;
	struct mc_layout layout;
	uint8_t *arena[MC_MAX_WORLD_SIZE]; /* mapped; arena[rank] is this rank's own */
	struct mc_control *control;
	struct mc_board *board;
};

/*
 * Each runs one call on the channel and returns an enum mc_fault_status; MC_FAULT_NONE is success.
 * On failure *ret_fault says what happened (also posted on the board), the control block's failed
 * flag is set and the board's abort word tells the peers; outputs are undefined.
 */
int mc_host_dispatch(struct mc_host_rank *rank, uint32_t channel, const struct mc_dispatch *op,
	struct mc_fault *ret_fault);
int mc_host_combine(struct mc_host_rank *rank, uint32_t channel, const struct mc_combine *op,
	struct mc_fault *ret_fault);

/* Local; no peers, no call number. Returns MC_FAULT_NONE or MC_FAULT_BAD_COUNT. */
int mc_host_mask_ids(const struct mc_mask_ids *op);

/* What a freshly mapped arena, control block and board must hold; done once by the owner. */
void mc_host_fill(void *arena, uint64_t n_bytes, const struct mc_vector *sentinel);
void mc_host_control_init(struct mc_control *control, uint32_t rank, uint32_t world_size,
	uint64_t epoch, const struct mc_vector *sentinel);
void mc_host_board_init(struct mc_board *board, uint32_t world_size, uint64_t epoch,
	const struct mc_wait_line *wait);

/* How a probe of one peer ended; travels in Vote, so a number never changes. */
enum mc_probe_result {
	MC_PROBE_OK = 0,
	MC_PROBE_TIMEOUT = 1, /* what the peer wrote never arrived */
	MC_PROBE_CORRUPT = 2, /* something else than the peer wrote arrived */
	MC_PROBE_IMPORT = 3,  /* the peer's arena could not be imported or mapped */
};

/*
 * Join probe: writes the pattern into every peer's probe area and verifies what every peer wrote
 * here, MC_PROBE_ROUNDS times, within timeout_ms. Sets ret_result[peer] (enum mc_probe_result) for
 * every peer; returns 0 when all are MC_PROBE_OK, else the number of failed pairs.
 */
int mc_host_probe(
	struct mc_host_rank *rank, uint32_t timeout_ms, uint8_t ret_result[MC_MAX_WORLD_SIZE]);

#ifdef __cplusplus
}
#endif
#endif
