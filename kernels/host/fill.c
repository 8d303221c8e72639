/* SPDX-License-Identifier: Apache-2.0 */
/* What fresh memory holds before any member maps it. */
#include <string.h>
#include "kernels/host/host.h"

/* Copied over and over: fits the second-level cache, and memcpy runs at its best. */
#define FILL_BLOCK (64u << 10)

void mc_host_fill(void *arena, uint64_t n_bytes, const struct mc_vector *sentinel)
{
	uint8_t *to = arena;
	uint64_t done = n_bytes < MC_VECTOR_BYTES ? n_bytes : MC_VECTOR_BYTES;

	memcpy(to, sentinel, done);
	while (done < n_bytes) {
		uint64_t n = done < FILL_BLOCK ? done : FILL_BLOCK;

		if (n > n_bytes - done)
			n = n_bytes - done;
		memcpy(to + done, to, n);
		done += n;
	}
}

void mc_host_control_init(struct mc_control *control, uint32_t rank, uint32_t world_size,
	uint64_t epoch, const struct mc_vector *sentinel)
{
	memset(control, 0, sizeof(*control));
	control->canary_head = MC_CANARY_HEAD;
	control->canary_tail = MC_CANARY_TAIL;
	control->epoch = epoch;
	control->sentinel = *sentinel;
	control->rank = rank;
	control->world_size = world_size;
	control->check = mc_control_check(rank, world_size, epoch, sentinel);
	for (uint32_t i = 0; i < MC_MAX_CHANNELS; i++) {
		control->channel[i].call = 1;
		control->channel[i].canary = MC_CANARY_HEAD + i;
	}
}

void mc_host_board_init(struct mc_board *board, uint32_t world_size, uint64_t epoch,
	const struct mc_wait_line *wait)
{
	memset(board, 0, sizeof(*board));
	board->magic = MC_BOARD_MAGIC;
	board->world_size = world_size;
	board->epoch = epoch;
	board->wait = *wait;
}
