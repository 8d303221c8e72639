/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The join probe. All pairs are tested side by side and none waits for another, so that one bad
 * pair does not hide or fake the failure of others; nobody's writing waits for anything, so that
 * the failing direction is named by its reader alone.
 */
#include <sched.h>
#include <time.h>
#include "kernels/host/inject.h"
#include "kernels/host/ring.h"

#define N_VECTORS          (MC_PROBE_ROUNDS * MC_PROBE_VECTORS)
#define DEFAULT_TIMEOUT_MS 10000u
#define SLEEP_NS           50000L

struct probe {
	struct mc_host_rank *host;
	uint64_t epoch;
	struct mc_halves empty;
	uint32_t next[MC_MAX_WORLD_SIZE]; /* vector awaited from each peer; N_VECTORS: all were
					     right */
	uint32_t n_pending;
	uint8_t *result;
};

static struct mc_halves *area(const struct probe *probe, uint32_t reader, uint32_t writer)
{
	return (struct mc_halves *)(probe->host->arena[reader] +
				    mc_probe_offset(&probe->host->layout, reader, writer));
}

static struct mc_halves pattern(
	const struct probe *probe, uint32_t reader, uint32_t writer, uint32_t n)
{
	struct mc_vector v = mc_probe_vector(
		probe->epoch, reader, writer, n / MC_PROBE_VECTORS, n % MC_PROBE_VECTORS);

	return mc_halves_of(&v);
}

static void write_round(struct probe *probe, uint32_t reader, uint32_t round)
{
	uint32_t self = probe->host->rank;
	struct mc_halves *to = area(probe, reader, self);

	if (mc_inject_pair(MC_INJECT_DROP_PROBE, self, reader, 0))
		return;
	for (uint32_t i = 0; i < MC_PROBE_VECTORS; i++) {
		uint32_t n = round * MC_PROBE_VECTORS + i;
		struct mc_halves value = pattern(probe, reader, self, n);

		if (n == N_VECTORS / 2 && mc_inject_pair(MC_INJECT_FLIP_PROBE, self, reader, 0))
			value.high ^= 0xff00u;
		mc_store(&to[n], value);
	}
}

/* Takes what has arrived from the peer. */
static void read_some(struct probe *probe, uint32_t peer)
{
	uint32_t self = probe->host->rank;
	struct mc_halves *from = area(probe, self, peer);

	while (probe->result[peer] == MC_PROBE_TIMEOUT) {
		struct mc_halves *place = &from[probe->next[peer]];
		struct mc_halves want = pattern(probe, self, peer, probe->next[peer]), got;

		got.low = mc_load_low(place);
		if (got.low == probe->empty.low)
			return;
		got.high = mc_load_high(place);
		if (got.low != want.low || got.high != want.high) {
			probe->result[peer] = MC_PROBE_CORRUPT;
			probe->n_pending--;
			return;
		}
		mc_rearm(place, probe->empty);
		if (++probe->next[peer] == N_VECTORS) {
			probe->result[peer] = MC_PROBE_OK;
			probe->n_pending--;
		}
	}
}

static void read_all(struct probe *probe)
{
	for (uint32_t p = 0; p < probe->host->layout.world_size; p++)
		read_some(probe, p);
}

static void wait_for_rest(struct probe *probe, uint64_t deadline_ns)
{
	const struct timespec pause = {.tv_nsec = SLEEP_NS};

	for (uint32_t i = 0;; i++) {
		/* clock first: what had arrived by the deadline counts, however late we look */
		bool over = mc_ring_now_ns() >= deadline_ns ||
			    __atomic_load_n(&probe->host->board->wait.abort_word, __ATOMIC_ACQUIRE);

		read_all(probe);
		if (probe->n_pending == 0 || over)
			return;
		if (i < MC_SPINS_PER_CHECK)
			sched_yield();
		else
			nanosleep(&pause, NULL);
	}
}

int mc_host_probe(
	struct mc_host_rank *rank, uint32_t timeout_ms, uint8_t ret_result[MC_MAX_WORLD_SIZE])
{
	struct probe probe = {
		.host = rank,
		.epoch = rank->control->epoch,
		.empty = mc_halves_of(&rank->control->sentinel),
		.result = ret_result,
	};
	uint32_t world_size = rank->layout.world_size;
	uint64_t deadline_ns = mc_ring_now_ns() +
			       (timeout_ms ? timeout_ms : DEFAULT_TIMEOUT_MS) * UINT64_C(1000000);
	int n_failed = 0;

	memset(ret_result, MC_PROBE_OK, MC_MAX_WORLD_SIZE);
	for (uint32_t p = 0; p < world_size; p++)
		if (p != rank->rank) {
			ret_result[p] = MC_PROBE_TIMEOUT; /* until all has arrived */
			probe.n_pending++;
		}
	for (uint32_t round = 0; round < MC_PROBE_ROUNDS; round++) {
		for (uint32_t step = 1; step < world_size; step++)
			write_round(&probe, (rank->rank + step) % world_size, round);
		read_all(&probe);
	}
	wait_for_rest(&probe, deadline_ns);
	for (uint32_t p = 0; p < world_size; p++)
		n_failed += ret_result[p] != MC_PROBE_OK;
	return n_failed;
}
