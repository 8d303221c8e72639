/* SPDX-License-Identifier: Apache-2.0 */
/* Why an epoch ended, and what to do about it. */
#include <inttypes.h>
#include <stdio.h>
#include "ctl/findings.h"
#include "ctl/text.h"
#include "proto/status.h"

struct ending_text {
	uint32_t status;
	const char *kind;
	bool is_wrong;
	const char *advice;
};

static const struct ending_text endings[] = {
	{MC_STATUS_PEER_LOST, "dead", true,
		"find out why the process ended: its own log, its parent's, dmesg (out of "
		"memory?); "
		"start it again: the others can rejoin in the same processes"},
	{MC_STATUS_TIMEOUT, "late", true,
		"find out what held the rank up at that call: a slow or skipped step before the "
		"op, "
		"or a stopped process; if it only needs more time: a longer op_timeout_ms at join, "
		"or "
		"moecommctl deadline while the group is ready"},
	{MC_STATUS_MISMATCH, "mismatch", true,
		"compare what the two ranks call at that call number: op, element type, number and "
		"size of tensors, row counts; all ranks must call the same ops with the same "
		"shapes "
		"in the same order on a channel"},
	{MC_STATUS_JOIN_TIMEOUT, "missing", true,
		"start what is missing; if it ran, see that it used this daemon's socket, the same "
		"group name and job, its own rank number, and its log for an error before joining"},
	{MC_STATUS_PROBE_FAILED, "probe_failed", true,
		"the two ranks named can't write each other's memory: check the link (nvidia-smi "
		"topo "
		"-m, nvidia-smi nvlink -s), the container's device access, then dmesg"},
	{MC_STATUS_ABORTED, "aborted", true, "it was ended on purpose; all members can rejoin"},
	{MC_STATUS_SPEC_MISMATCH, "spec_mismatch", true,
		"give all ranks the same group options; the first joiner's stand"},
	{MC_STATUS_DEVICE, "device", true,
		"see dmesg for Xid lines and nvidia-smi -q -d ECC,PAGE_RETIREMENT; a GPU that is "
		"off "
		"the bus needs a reset"},
	{MC_STATUS_SENTINEL, "sentinel", true,
		"rejoin: the next epoch draws another sentinel; twice in a row means damaged "
		"memory"},
	{MC_STATUS_CORRUPT, "corrupt", true,
		"something wrote where it must not: run the worker under compute-sanitizer, and "
		"keep "
		"the output of moecommctl dump"},
	{MC_STATUS_LEFT, "left", false, "nothing, unless the members were meant to go on"},
	{MC_STATUS_SHUTDOWN, "shutdown", false, "join again now that the daemon is back"},
};

static const struct ending_text *find(uint32_t status)
{
	static const struct ending_text other = {0, "failed", true,
		"the daemon's log says more (journalctl -u moecommd); all members can rejoin"};

	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
		if (endings[i].status == status)
			return &endings[i];
	return &other;
}

static void tell_where(struct mc_finding *finding, const Moecomm__Wire__Ending *ending)
{
	char age[MC_TEXT_BYTES];

	if (!ending->has_call)
		return;
	finding->call = ending->call;
	finding->op = mc_text_op(ending->op);
	finding->channel = ending->channel;
	finding->age_ms = ending->op_age_ms;
	finding->lag_calls =
		ending->first_call >= ending->call ? ending->first_call - ending->call : 0;
	if (!ending->call)
		mc_finding_text(finding, " Rank %u had not entered an op.", ending->blamed->rank);
	else
		mc_finding_text(finding,
			" Rank %u was last seen at %s, call %" PRIu64 " on channel %u, %s before "
			"that; the group was at call %" PRIu64 ".",
			ending->blamed->rank, mc_text_op(ending->op), ending->call, ending->channel,
			mc_text_age(ending->op_age_ms, age), ending->first_call);
}

void mc_explain_ending(const Moecomm__Wire__Ending *ending, struct mc_findings *findings)
{
	const struct ending_text *text = find(ending->status);
	struct mc_finding *finding = mc_findings_add(findings, text->kind, text->is_wrong);
	char age[MC_TEXT_BYTES], missing[160], who[256];

	finding->status = mc_status_name(ending->status);
	if (ending->epoch)
		mc_finding_text(finding, "epoch %" PRIu64 " ended %s ago", ending->epoch,
			mc_text_age(ending->age_ms, age));
	else
		mc_finding_text(finding, "the group ended %s ago, before it was formed,",
			mc_text_age(ending->age_ms, age));
	mc_finding_text(finding, " with %s (%s): %s.", finding->status,
		mc_status_text(ending->status),
		ending->detail && *ending->detail ? ending->detail : "no detail is known");
	if (ending->n_missing)
		mc_finding_text(finding, " Missing: %s of %u.",
			mc_explain_ranks(
				ending->missing, ending->n_missing, missing, sizeof(missing)),
			ending->world_size);
	if (ending->blamed) {
		finding->rank = ending->blamed->rank;
		if (ending->blamed->has_pid)
			finding->pid = ending->blamed->pid;
		finding->device_uuid = ending->blamed->device_uuid;
		finding->label = ending->blamed->label;
		/* the sentence of a lost peer names it already */
		if (text->is_wrong && ending->status != MC_STATUS_PEER_LOST)
			mc_finding_text(finding,
				ending->status == MC_STATUS_MISMATCH
					? " The one it differs from: %s."
					: " It comes from %s.",
				mc_explain_rank(
					ending->blamed->rank, ending->blamed, who, sizeof(who)));
		tell_where(finding, ending);
	}
	mc_finding_advise(finding, "%s", text->advice);
}
