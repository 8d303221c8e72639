/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/fault.h"

/* The statuses that may stand in an abort word or a record; what else stands there is not believed.
 */
static uint32_t known_status(uint32_t status)
{
	return mc_fault_is_known(status) ? status : MC_FAULT_NONE;
}

struct mc_fault mc_fault_make(
	const struct mc_ring *ring, enum mc_fault_status status, uint32_t peer)
{
	return (struct mc_fault){
		.status = status,
		.op = ring->op,
		.channel = ring->channel,
		.peer = peer,
		.call = ring->call,
		.waited_ns = ring->waited_ns,
		.segment = (uint32_t)(ring->call % MC_SEGMENTS),
	};
}

/* Word by word, because readers look while it is written; the status, word 0, comes last. */
static void record_store(struct mc_fault *place, const struct mc_fault *fault)
{
	uint32_t word[sizeof(*fault) / sizeof(uint32_t)];
	uint32_t *to = (uint32_t *)place;

	memcpy(word, fault, sizeof(word));
	for (size_t i = 1; i < sizeof(word) / sizeof(word[0]); i++)
		__atomic_store_n(&to[i], word[i], __ATOMIC_RELAXED);
	__atomic_store_n(&to[0], word[0], __ATOMIC_RELEASE);
}

/* A checked copy of a rank's record; status MC_FAULT_NONE when there is none that can be believed.
 */
static struct mc_fault record_load(const struct mc_ring *ring, uint32_t rank)
{
	const uint32_t *from = (const uint32_t *)&ring->host->board->rank[rank].fault;
	uint32_t word[sizeof(struct mc_fault) / sizeof(uint32_t)];
	struct mc_fault fault;

	word[0] = __atomic_load_n(&from[0], __ATOMIC_ACQUIRE);
	for (size_t i = 1; i < sizeof(word) / sizeof(word[0]); i++)
		word[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
	memcpy(&fault, word, sizeof(fault));
	fault.status = known_status(fault.status);
	if (fault.op > MC_OP_COMBINE_RMSNORM)
		fault.op = MC_OP_NONE;
	if (fault.channel >= MC_MAX_CHANNELS)
		fault.channel = 0;
	if (fault.peer >= ring->host->layout.world_size)
		fault.peer = MC_FAULT_NOBODY;
	return fault;
}

/*
 * The first failure of an epoch is the one that is recorded: a second channel that fails later only
 * returns its own view. Returns nonzero when this is the first.
 */
static int fail_once(struct mc_ring *ring, const struct mc_fault *fault)
{
	uint32_t none = MC_FAULT_NONE;

	*ring->fault = *fault;
	if (!__atomic_compare_exchange_n(&ring->host->control->failed, &none, fault->status, false,
		    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return 0;
	record_store(&ring->host->board->rank[ring->host->rank].fault, fault);
	return 1;
}

int mc_fault_raise(struct mc_ring *ring, const struct mc_fault *fault)
{
	uint32_t none = 0;

	/* record before word: who sees the word finds the record */
	if (fail_once(ring, fault))
		__atomic_compare_exchange_n(&ring->host->board->wait.abort_word, &none,
			mc_abort_word(fault->status, ring->host->rank + 1u), false,
			__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	return (int)fault->status;
}

int mc_fault_adopt(struct mc_ring *ring, uint32_t abort_word)
{
	uint32_t status = known_status(mc_abort_status(abort_word));
	uint32_t reporter = mc_abort_reporter(abort_word);
	uint32_t self = ring->host->rank;
	struct mc_fault fault, theirs;

	if (status == MC_FAULT_NONE)
		status = MC_FAULT_ABORTED;
	fault = mc_fault_make(ring, status, MC_FAULT_NOBODY);
	if (reporter >= 1 && reporter <= ring->host->layout.world_size) {
		theirs = record_load(ring, reporter - 1u);
		fault.peer = reporter - 1u;
		switch (status) {
		case MC_FAULT_PEER_LOST:
		case MC_FAULT_TIMEOUT:
		case MC_FAULT_MISMATCH:
		case MC_FAULT_SENTINEL:
		case MC_FAULT_CORRUPT:
			/* all ranks name the same culprit; without a record the reporter is it */
			if (theirs.status != status)
				break;
			if (theirs.call == 0) {
				/* the daemon's, for the dead: it knows who, but of no call */
				fault.peer = theirs.peer;
				break;
			}
			theirs.waited_ns = fault.waited_ns;
			fault = theirs;
			fault.by = reporter;
			break;
		case MC_FAULT_BAD_COUNT:
			/* that rank's argument was wrong, not ours */
			fault.status = MC_FAULT_ABORTED;
			break;
		default:
			break;
		}
		if (status == MC_FAULT_MISMATCH && fault.peer == self && reporter - 1u != self) {
			/* the two sides of a mismatch, seen from this one */
			fault.peer = reporter - 1u;
			fault.by = 0;
			memcpy(fault.mine, theirs.theirs, sizeof(fault.mine));
			memcpy(fault.theirs, theirs.mine, sizeof(fault.theirs));
		}
	}
	fail_once(ring, &fault);
	return (int)fault.status;
}

int mc_fault_repeat(struct mc_ring *ring, uint32_t failed)
{
	struct mc_fault fault = record_load(ring, ring->host->rank);

	if (known_status(failed) == MC_FAULT_NONE) /* the flag itself is damaged */
		failed = MC_FAULT_CORRUPT;
	if (fault.status != failed) /* set from outside, or not recorded yet */
		fault = mc_fault_make(ring, failed, MC_FAULT_NOBODY);
	*ring->fault = fault;
	return (int)failed;
}
