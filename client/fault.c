/* SPDX-License-Identifier: Apache-2.0 */
/* What ended an op, in a sentence. The board is written by other processes: read once, checked. */
#include <stdio.h>
#include <string.h>

#include "client/group.h"
#include "proto/status.h"

static const char *op_name(uint32_t op)
{
	switch (op) {
	case MC_OP_DISPATCH:
		return "dispatch";
	case MC_OP_COMBINE:
		return "combine";
	case MC_OP_COMBINE_RMSNORM:
		return "combine_rmsnorm";
	default:
		return "op";
	}
}

/* A status that the data plane may report; anything else a peer left there is an abort. */
static enum moecomm_status believable(uint32_t status)
{
	return mc_fault_is_known(status) ? (enum moecomm_status)status : MOECOMM_ABORTED;
}

static void explain_timeout(const struct mc_fault *fault, struct mc_verdict *ret)
{
	unsigned long long waited_ms = fault->waited_ns / 1000000u;
	uint32_t theirs = fault->theirs[0];
	char where[64];

	if (theirs == 0)
		snprintf(where, sizeof(where), "it has made no call there yet");
	else if (theirs == (uint32_t)fault->call)
		snprintf(where, sizeof(where), "it entered that call, but its data did not come");
	else
		snprintf(where, sizeof(where), "it is at call %u", theirs);
	mc_verdict_set(ret, MOECOMM_TIMEOUT, (int)fault->peer, fault->call,
		"rank %u did not arrive at call %llu (%s, channel %u) within %llu ms: %s",
		fault->peer, (unsigned long long)fault->call, op_name(fault->op), fault->channel,
		waited_ms, where);
}

/* A copy of what others write meanwhile, word by word. Of a record the status is written last, so
 * that the first word is read first. */
static void read_shared(void *to, const void *from, size_t n_bytes)
{
	const uint32_t *word = from;
	uint32_t value = __atomic_load_n(&word[0], __ATOMIC_ACQUIRE);

	memcpy(to, &value, sizeof(value));
	for (size_t i = 1; i < n_bytes / sizeof(value); i++) {
		value = __atomic_load_n(&word[i], __ATOMIC_RELAXED);
		memcpy((uint8_t *)to + i * sizeof(value), &value, sizeof(value));
	}
}

/* What a rank last posted on a channel; call 0: nothing. */
static struct mc_progress read_progress(
	const struct moecomm_group *group, uint32_t rank, uint32_t channel)
{
	struct mc_progress progress = {.call = 0};

	if (rank < group->world_size && channel < MC_MAX_CHANNELS)
		read_shared(
			&progress, &group->board->rank[rank].progress[channel], sizeof(progress));
	return progress;
}

/*
 * A digest says that two calls differ, not in what. Where both ranks have posted this very call
 * (the host backend always does, cuda rarely) their posts say more.
 */
static void explain_digests(const struct moecomm_group *group, const struct mc_fault *fault,
	uint32_t by, char *text, size_t size)
{
	struct mc_progress a = read_progress(group, by, fault->channel);
	struct mc_progress b = read_progress(group, fault->peer, fault->channel);
	int n = snprintf(text, size,
		"op, row counts, row sizes or element types differ (digests %08x and %08x)",
		fault->mine[1], fault->theirs[1]);

	if (a.call == (uint32_t)fault->call && b.call == a.call && n > 0 && (size_t)n < size)
		snprintf(text + n, size - (size_t)n,
			": rank %u sends %llu bytes in %s, rank %u sends %llu bytes in %s", by,
			(unsigned long long)a.n_vectors * MC_VECTOR_BYTES, op_name(a.op),
			fault->peer, (unsigned long long)b.n_vectors * MC_VECTOR_BYTES,
			op_name(b.op));
}

static void explain_mismatch(const struct moecomm_group *group, const struct mc_fault *fault,
	uint32_t by, struct mc_verdict *ret)
{
	const uint32_t *mine = fault->mine, *theirs = fault->theirs;
	char what[256];

	if (mine[0] != theirs[0])
		snprintf(what, sizeof(what), "rank %u is at call %u, rank %u at call %u", by,
			mine[0], fault->peer, theirs[0]);
	else if (mine[1] != theirs[1])
		explain_digests(group, fault, by, what, sizeof(what));
	else
		snprintf(what, sizeof(what), "rank %u expects %u rows, rank %u sends %u", by,
			mine[2], fault->peer, theirs[2]);
	mc_verdict_set(ret, MOECOMM_MISMATCH, (int)fault->peer, fault->call,
		"rank %u and rank %u differ at call %llu (%s, channel %u): %s", by, fault->peer,
		(unsigned long long)fault->call, op_name(fault->op), fault->channel, what);
}

static void explain_damage(
	const struct mc_fault *fault, uint32_t by, bool named, struct mc_verdict *ret)
{
	char what[64];

	if (named && fault->peer != by)
		snprintf(what, sizeof(what), "what rank %u sent, or its control block,",
			fault->peer);
	else
		snprintf(what, sizeof(what), "the control block of rank %u", by);
	mc_verdict_set(ret, MOECOMM_CORRUPT, named ? (int)fault->peer : (int)by, fault->call,
		"%s is damaged at call %llu (%s, channel %u)", what,
		(unsigned long long)fault->call, op_name(fault->op), fault->channel);
}

void mc_fault_explain(const struct moecomm_group *group, const struct mc_fault *fault,
	uint32_t owner, const char *backend_text, struct mc_verdict *ret_verdict)
{
	uint32_t by = fault->by >= 1 && fault->by <= group->world_size ? fault->by - 1 : owner;
	bool named = fault->peer < group->world_size;
	unsigned long long call = fault->call;
	const char *op = op_name(fault->op);
	enum moecomm_status status = believable(fault->status);
	int peer = named ? (int)fault->peer : -1;
	char whose[48] = "";

	if (named)
		snprintf(whose, sizeof(whose), " by rank %u", fault->peer);
	if (status == MOECOMM_TIMEOUT && named)
		explain_timeout(fault, ret_verdict);
	else if (status == MOECOMM_MISMATCH && named)
		explain_mismatch(group, fault, by, ret_verdict);
	else if (status == MOECOMM_ABORTED)
		mc_verdict_set(ret_verdict, status, peer, call,
			"the group was aborted%s during call %llu "
			"(%s, channel %u)",
			whose, call, op, fault->channel);
	else if (status == MOECOMM_PEER_LOST && named && !call)
		/* the daemon's account, read by who was in no op */
		mc_verdict_set(
			ret_verdict, status, peer, 0, "the process of rank %u ended", fault->peer);
	else if (status == MOECOMM_PEER_LOST && named)
		mc_verdict_set(ret_verdict, status, peer, call,
			"the process of rank %u ended; call %llu (%s, channel %u) can't complete",
			fault->peer, call, op, fault->channel);
	else if (status == MOECOMM_SENTINEL)
		mc_verdict_set(ret_verdict, status, peer, call,
			"a payload%s at call %llu (%s, channel %u) equals the epoch's sentinel; "
			"rejoin draws "
			"another",
			whose, call, op, fault->channel);
	else if (status == MOECOMM_CORRUPT)
		explain_damage(fault, by, named, ret_verdict);
	else if (status == MOECOMM_INVALID)
		mc_verdict_set(ret_verdict, status, (int)by, call,
			"a count of valid rows of rank %u is negative or above its maximum at "
			"call %llu (%s, channel %u)",
			by, call, op, fault->channel);
	else
		mc_verdict_set(ret_verdict, status, peer, call, "%s (call %llu, %s, channel %u)",
			backend_text && *backend_text ? backend_text : mc_status_text(status), call,
			op, fault->channel);
}

/* A rank's record; status MC_FAULT_NONE when it holds none. */
static struct mc_fault read_record(const struct mc_board *board, uint32_t rank)
{
	struct mc_fault fault;

	read_shared(&fault, &board->rank[rank].fault, sizeof(fault));
	return fault;
}

void mc_fault_explain_abort(
	const struct moecomm_group *group, uint32_t abort_word, struct mc_verdict *ret_verdict)
{
	enum moecomm_status status = believable(mc_abort_status(abort_word));
	uint32_t reporter = mc_abort_reporter(abort_word);
	uint32_t owner = group->rank;
	struct mc_fault fault;

	/* the data plane knows no leaving: to it that is one way to be aborted */
	if (mc_abort_status(abort_word) == MOECOMM_LEFT && reporter >= 1 &&
		reporter <= group->world_size) {
		mc_verdict_set(ret_verdict, MOECOMM_LEFT, (int)reporter - 1, 0,
			"rank %u has left group %s", reporter - 1, group->name);
		return;
	}
	fault = read_record(group->board, owner);
	/* this rank's own failure first, then the reporter's, whom everybody else quotes too */
	if (fault.status == MC_FAULT_NONE && reporter >= 1 && reporter <= group->world_size) {
		owner = reporter - 1;
		fault = read_record(group->board, owner);
	}
	if (fault.status != MC_FAULT_NONE) {
		mc_fault_explain(group, &fault, owner, NULL, ret_verdict);
		return;
	}
	if (reporter >= 1 && status == MOECOMM_ABORTED && reporter <= group->world_size)
		mc_verdict_set(ret_verdict, status, (int)reporter - 1, 0,
			"the group was aborted by rank %u", reporter - 1);
	else
		mc_verdict_set(ret_verdict, status, -1, 0, "%s%s", mc_status_text(status),
			reporter ? "" : ", says the daemon");
}
