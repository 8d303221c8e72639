/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the host loads and stores a vector: as two 64-bit halves, because no portable C operation
 * moves 16 bytes at once. The low half (words 0 and 1) is the arrival flag: stored last with
 * release, loaded first with acquire, so that whoever sees it sees the high half too. A vector is
 * EMPTY while its low half is the sentinel's; a payload with that very low half can't be sent, and
 * the writer reports it (1 in 2^64).
 */
#ifndef MC_KERNELS_HOST_VECTOR_H
#define MC_KERNELS_HOST_VECTOR_H

#include <string.h>
#include "kernels/lamport.h"

/* A vector by halves, as it lies in memory. */
struct mc_halves {
	uint64_t low;
	uint64_t high;
};
_Static_assert(sizeof(struct mc_halves) == MC_VECTOR_BYTES, "two halves make a vector");

static inline struct mc_halves mc_halves_of(const void *bytes)
{
	struct mc_halves h;

	memcpy(&h, bytes, sizeof(h));
	return h;
}

static inline uint64_t mc_load_low(const struct mc_halves *place)
{
	return __atomic_load_n(&place->low, __ATOMIC_ACQUIRE);
}

/* After mc_load_low has seen data. */
static inline uint64_t mc_load_high(const struct mc_halves *place)
{
	return __atomic_load_n(&place->high, __ATOMIC_RELAXED);
}

static inline void mc_store(struct mc_halves *place, struct mc_halves value)
{
	__atomic_store_n(&place->high, value.high, __ATOMIC_RELAXED);
	__atomic_store_n(&place->low, value.low, __ATOMIC_RELEASE);
}

/*
 * Puts the sentinel back. Relaxed is enough: the writer's next store to this place comes after our
 * next push on the channel (kernels/lamport.h), whose release covers this store too.
 */
static inline void mc_rearm(struct mc_halves *place, struct mc_halves empty)
{
	__atomic_store_n(&place->high, empty.high, __ATOMIC_RELAXED);
	__atomic_store_n(&place->low, empty.low, __ATOMIC_RELAXED);
}

#endif
