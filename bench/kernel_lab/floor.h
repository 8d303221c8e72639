/* SPDX-License-Identifier: Apache-2.0 */
/* What no op can beat on this machine: launch, one store's way, stores at full width. */
#ifndef MC_BENCH_KERNEL_LAB_FLOOR_H
#define MC_BENCH_KERNEL_LAB_FLOOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each returns a cudaError_t number. */
int mc_floor_empty(uint32_t n_ctas, uint32_t n_threads, void *stream);
int mc_floor_push(void *to, uint64_t n_bytes, uint32_t n_ctas, void *stream);
/*
 * n round trips of a 4-byte store that the other polls. The words must be 0 before; each side
 * counts them up. Gives up after a bounded number of polls.
 */
int mc_floor_ping(uint32_t *mine, uint32_t *peer, uint32_t n, int first, void *stream);
/*
 * Tear test: the writer stores vectors of four equal words over and over into peer memory, the
 * reader counts loads whose words differ. ret_counts: loads, torn ones.
 */
int mc_floor_tear_write(void *to, uint32_t n_vectors, uint32_t n_rounds, void *stream);
int mc_floor_tear_read(const void *from, uint32_t n_vectors, uint32_t n_rounds,
	unsigned long long *ret_counts, void *stream);

#ifdef __cplusplus
}
#endif
#endif
