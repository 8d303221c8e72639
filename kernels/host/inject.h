/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault injection in the host ops, for tests; compiled in with MC_FAULT_INJECTION only.
 *
 * The environment variable MOECOMM_INJECT, read once a process, is a comma-separated list of
 *
 *   drop_probe:W>R      what rank W writes into rank R's probe area never arrives
 *   flip_probe:W>R      one byte of it arrives flipped
 *   drop_push:W>R[@K]   from call K on (default 1), what W pushes to R never arrives
 *   flip_push:W>R[@K]   from call K on, one byte of the header that W pushes to R is flipped
 *   flip_data:W>R[@K]   from call K on, one byte of the first data vector is flipped
 *   delay_ms:R=N[@K]    rank R sleeps N ms before call K (without @K: before each of its calls)
 *
 * W and R are ranks, or * for any. An entry that can't be read ends the process with a message on
 * stderr: a test whose fault is not injected would pass for the wrong reason.
 */
#ifndef MC_KERNELS_HOST_INJECT_H
#define MC_KERNELS_HOST_INJECT_H

#include <stdbool.h>
#include <stdint.h>

enum mc_inject_kind {
	MC_INJECT_DROP_PROBE,
	MC_INJECT_FLIP_PROBE,
	MC_INJECT_DROP_PUSH,
	MC_INJECT_FLIP_PUSH,
	MC_INJECT_FLIP_DATA,
	MC_INJECT_DELAY,
};

#ifdef MC_FAULT_INJECTION
/* Whether the fault hits what `writer` writes for `reader` in that call (0 for the probe). */
bool mc_inject_pair(enum mc_inject_kind kind, uint32_t writer, uint32_t reader, uint64_t call);
/* Sleeps if told to. */
void mc_inject_delay(uint32_t rank, uint64_t call);
/* Replaces what the environment said; NULL: nothing. Not while ops run. Returns 0 or -EINVAL. */
int mc_inject_set(const char *list);
#else
static inline bool mc_inject_pair(
	enum mc_inject_kind kind, uint32_t writer, uint32_t reader, uint64_t call)
{
	(void)kind, (void)writer, (void)reader, (void)call;
	return false;
}

static inline void mc_inject_delay(uint32_t rank, uint64_t call)
{
	(void)rank, (void)call;
}
#endif

#endif
