/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call on a channel's ring: enter, push to every peer, take from every peer, leave. The ops are
 * written in terms of this; the protocol is kernels/lamport.h.
 *
 * Every function that returns int returns an enum mc_fault_status. Once one of them is not
 * MC_FAULT_NONE the call is over: the fault is recorded, the epoch failed and the peers told; the
 * op just returns it.
 */
#ifndef MC_KERNELS_HOST_RING_H
#define MC_KERNELS_HOST_RING_H

#include <stdbool.h>
#include "kernels/host/host.h"
#include "kernels/host/vector.h"

struct mc_ring {
	struct mc_host_rank *host;
	struct mc_fault *fault; /* the caller's, filled on failure */
	uint32_t channel;
	uint32_t op; /* enum mc_op_kind */
	uint32_t digest;
	uint64_t call;
	uint64_t wait_begin_ns; /* when the call first waited; 0: not yet */
	uint64_t waited_ns;
	struct mc_vector sentinel;
	struct mc_halves empty; /* the sentinel by halves */
};

/* Checks the control block and whether the epoch still lives; takes the call number. */
int mc_ring_enter(struct mc_ring *ring, struct mc_host_rank *host, uint32_t channel,
	enum mc_op_kind op, uint32_t digest, struct mc_fault *ret_fault);
/* Posts "entered" with the number of vectors that this rank is going to push. */
void mc_ring_post(struct mc_ring *ring, uint64_t n_vectors);

/* The peer to push to at step 1 … world_size-1: r+1, r+2, …, so that ranks don't all meet at one.
 */
static inline uint32_t mc_ring_push_peer(const struct mc_ring *ring, uint32_t step)
{
	return (ring->host->rank + step) % ring->host->layout.world_size;
}

/* The peer to take from at that step: r-1, r-2, …, the order in which they get round to us. */
static inline uint32_t mc_ring_take_peer(const struct mc_ring *ring, uint32_t step)
{
	uint32_t n = ring->host->layout.world_size;

	return (ring->host->rank + n - step) % n;
}

int mc_ring_push_header(struct mc_ring *ring, uint32_t peer, uint32_t rows);
/* Pushes n_bytes of src to the peer's slot from the given data vector on; the last is zero padded.
 */
int mc_ring_push(
	struct mc_ring *ring, uint32_t peer, uint64_t vector, const void *src, uint64_t n_bytes);

/*
 * Takes and verifies the peer's header before any of its data is trusted. Rows must be `rows`, or
 * with at_most no more than that; sets *ret_rows.
 */
int mc_ring_take_header(
	struct mc_ring *ring, uint32_t peer, uint32_t rows, bool at_most, uint32_t *ret_rows);
/*
 * Takes bytes [begin, end) of a stream of n_bytes that the peer pushed from the given data vector
 * on. A vector is re-armed once its last byte is taken, so consecutive ranges may cut a vector;
 * with keep set nothing is re-armed and the bytes can be taken again.
 */
int mc_ring_take(struct mc_ring *ring, uint32_t peer, uint64_t vector, uint64_t n_bytes,
	uint64_t begin, uint64_t end, bool keep, void *dst);

/* Ends a successful call. */
int mc_ring_leave(struct mc_ring *ring);

/* Waits until the low half of *place is not EMPTY; `peer` writes it. */
int mc_ring_wait(struct mc_ring *ring, uint32_t peer, const struct mc_halves *place);

/* CLOCK_MONOTONIC. */
uint64_t mc_ring_now_ns(void);

#endif
