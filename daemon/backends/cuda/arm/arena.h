/* SPDX-License-Identifier: Apache-2.0 */
/* One allocation on one GPU: made, filled, read back, exported. */
#ifndef MC_CUDA_ARM_ARENA_H
#define MC_CUDA_ARM_ARENA_H

#include "daemon/backends/cuda/arm/driver.h"
#include "kernels/lamport.h"

/* Host memory for pattern and read-back; a multiple of every pattern. */
#define MC_ARENA_CHUNK_BYTES (4u << 20)

/* What all allocations of one run share. */
struct mc_arena_work {
	const struct mc_cu *cu;
	unsigned char *pattern; /* MC_ARENA_CHUNK_BYTES of sentinels */
	unsigned char *back;    /* pinned, for read-back */
	uint64_t fill_ns;
	uint64_t verify_ns;
};

/* What failed; call is NULL when it was no driver call. */
struct mc_arena_failure {
	const char *call;
	mc_cu_result error;
	char text[256]; /* beyond the driver's words */
};

/* Bytes to allocate on a device for n_bytes: at least its granularity. */
int mc_arena_granularity(const struct mc_cu *cu, mc_cu_device device, size_t *ret_granularity,
	struct mc_arena_failure *ret_failure);

/*
 * Allocates n_bytes (a multiple of the granularity) on the device, whose context is current, fills
 * it with the pattern, puts `head` (n_head bytes; may be NULL) at its start, reads everything back
 * and compares, and exports it. Returns 0 and sets *ret_fd, or -1 and fills *ret_failure. The
 * memory lives as long as any process holds the fd.
 */
int mc_arena_make(struct mc_arena_work *work, mc_cu_device device, size_t n_bytes, const void *head,
	size_t n_head, int *ret_fd, struct mc_arena_failure *ret_failure);

#endif
