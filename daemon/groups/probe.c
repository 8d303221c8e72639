/* SPDX-License-Identifier: Apache-2.0 */
/* The join probe's votes: all yes and the group is ready, any no and it fails on every rank alike.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/health/health.h"
#include "daemon/state/state.h"
#include "daemon/log.h"
#include "kernels/host/host.h"

/* A vote arrives later than the probe's own deadline: the member has to map and to send. */
#define PROBE_SLACK_MS 2000u
/* Failures that a verdict spells out. */
#define FAILURES_NAMED 4u

static const char *result_text(uint32_t result)
{
	switch (result) {
	case MC_PROBE_TIMEOUT:
		return "what it wrote never arrived";
	case MC_PROBE_CORRUPT:
		return "something else than it wrote arrived";
	case MC_PROBE_IMPORT:
		return "its memory could not be imported";
	default:
		return "the probe failed";
	}
}

static void on_probe_deadline(uv_timer_t *timer)
{
	struct mc_epoch *epoch = timer->data;
	char silent[512];
	size_t n = 0;
	uint32_t first = MC_NO_RANK;

	*silent = 0;
	for (uint32_t r = 0; r < epoch->spec.world_size; r++) {
		if (epoch->member[r] && epoch->member[r]->voted)
			continue;
		if (first == MC_NO_RANK)
			first = r;
		if (n < sizeof(silent))
			n += (size_t)snprintf(
				silent + n, sizeof(silent) - n, "%s%u", n ? ", " : "", r);
	}
	mc_epoch_end(epoch, MC_STATUS_PROBE_FAILED, first, MC_NO_RANK,
		"group %s: rank %s did not tell the outcome of the join probe within %u ms",
		epoch->group->name, silent, epoch->spec.probe_timeout_ms + PROBE_SLACK_MS);
}

void mc_epoch_probe(struct mc_epoch *epoch)
{
	mc_epoch_set_state(epoch, MC_GROUP_PROBING, LOG_INFO,
		"the memory is armed; every pair of ranks is probed");
	uv_timer_start(&epoch->timer, on_probe_deadline,
		(uint64_t)epoch->spec.probe_timeout_ms + PROBE_SLACK_MS, 0);
}

static void become_ready(struct mc_epoch *epoch)
{
	Moecomm__Wire__Ready ready = MOECOMM__WIRE__READY__INIT;

	uv_timer_stop(&epoch->timer);
	epoch->health = mc_health_new();
	mc_epoch_set_state(epoch, MC_GROUP_READY, LOG_INFO, "all %u ranks can reach each other",
		epoch->spec.world_size);
	/* before anybody is told: who knows it to be ready can rely on it */
	mc_state_keep(epoch);
	ready.epoch = epoch->number;
	ready.path = MC_WIRE_PATH_LAMPORT;
	for (uint32_t r = 0; r < epoch->spec.world_size; r++) {
		struct mc_member *member = epoch->member[r];

		member->vote_pending = false;
		mc_conn_send(
			member->conn, MC_FRAME_READY, member->vote_serial, &ready.base, NULL, 0);
	}
}

static void veto(struct mc_member *member, const Moecomm__Wire__Vote *vote)
{
	struct mc_epoch *epoch = member->epoch;
	char text[700];
	size_t n = 0;

	*text = 0;
	for (size_t i = 0; i < vote->n_failures && n < sizeof(text); i++) {
		const Moecomm__Wire__PairFailure *failure = vote->failures[i];

		if (i == FAILURES_NAMED) {
			snprintf(
				text + n, sizeof(text) - n, ", and %zu more", vote->n_failures - i);
			break;
		}
		n += (size_t)snprintf(text + n, sizeof(text) - n,
			"%srank %u from rank %u: %s%s%.100s", i ? ", " : "", member->rank,
			failure->peer, result_text(failure->result),
			failure->detail && *failure->detail ? ": " : "",
			failure->detail ? failure->detail : "");
	}
	epoch->group->groups->daemon->counters.fallbacks[MC_FALLBACK_PROBE_FAILED]++;
	mc_epoch_end(epoch, MC_STATUS_PROBE_FAILED, vote->failures[0]->peer, member->rank,
		"group %s: the join probe failed: %s", epoch->group->name, text);
}

void mc_member_vote(struct mc_member *member, uint32_t serial, const Moecomm__Wire__Vote *vote)
{
	struct mc_epoch *epoch = member->epoch;

	mc_member_release_fds(member);
	if (epoch->state == MC_GROUP_FAILED) {
		/* the formation failed while this member was probing; it maps nothing any more */
		mc_conn_done(member->conn, serial, epoch->status, "%s", epoch->detail);
		mc_member_drop(member);
		mc_epoch_collect(epoch);
		return;
	}
	if (epoch->state != MC_GROUP_PROBING || member->voted) {
		mc_conn_done(member->conn, serial, MC_STATUS_PROTOCOL,
			"rank %u of group %s has no vote to give while the group is %s",
			member->rank, epoch->group->name, mc_group_state_name(epoch->state));
		return;
	}
	for (size_t i = 0; i < vote->n_failures; i++) {
		if (vote->failures[i]->peer < epoch->spec.world_size)
			continue;
		mc_conn_done(member->conn, serial, MC_STATUS_INVALID,
			"the vote names rank %u, but the world size is %u", vote->failures[i]->peer,
			epoch->spec.world_size);
		return;
	}
	member->voted = true;
	member->vote_pending = true;
	member->vote_serial = serial;
	epoch->n_votes++;
	if (vote->n_failures)
		veto(member, vote);
	else if (epoch->n_votes == epoch->spec.world_size)
		become_ready(epoch);
}
