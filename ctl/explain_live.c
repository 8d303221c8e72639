/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a group that exists, from where its ranks are. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "ctl/findings.h"
#include "ctl/groups.h"
#include "ctl/text.h"
#include "proto/limits.h"
#include "proto/status.h"

/* The channel on which a rank is furthest behind, else where it moved last. */
static const Moecomm__Wire__RankProgress *worst_progress(
	const Moecomm__Wire__GroupStatus *group, const Moecomm__Wire__RankStatus *rank)
{
	const Moecomm__Wire__RankProgress *worst = NULL;

	for (size_t i = 0; i < rank->n_progress; i++) {
		const Moecomm__Wire__RankProgress *progress = rank->progress[i];
		uint64_t lag = mc_groups_lag(group, progress);

		if (!worst || lag > mc_groups_lag(group, worst) ||
			(lag == mc_groups_lag(group, worst) && progress->age_ms < worst->age_ms))
			worst = progress;
	}
	return worst;
}

/* Ranks of one health, as text; the number of them. */
static size_t ranks_of(
	const Moecomm__Wire__GroupStatus *group, unsigned health, char *ret_text, size_t n_text)
{
	uint32_t ranks[MC_LIMIT_WORLD_SIZE];
	size_t n = 0;

	for (size_t i = 0; i < group->n_ranks && n < MC_LIMIT_WORLD_SIZE; i++)
		if (group->ranks[i]->health == health)
			ranks[n++] = group->ranks[i]->rank;
	mc_explain_ranks(ranks, n, ret_text, n_text);
	return n;
}

/* The op that the first ranks of the channel are in. */
static const Moecomm__Wire__RankProgress *first_progress(
	const Moecomm__Wire__GroupStatus *group, uint32_t channel)
{
	for (size_t i = 0; i < group->n_ranks; i++) {
		const Moecomm__Wire__RankProgress *progress =
			mc_groups_progress(group->ranks[i], channel);

		if (progress && progress->call && mc_groups_lag(group, progress) == 0)
			return progress;
	}
	return NULL;
}

static void tell_where(struct mc_finding *finding, const Moecomm__Wire__GroupStatus *group,
	const Moecomm__Wire__RankProgress *progress)
{
	const Moecomm__Wire__RankProgress *first;
	char age[MC_TEXT_BYTES];
	uint64_t lag;

	if (!progress)
		return;
	lag = mc_groups_lag(group, progress);
	finding->channel = progress->channel;
	finding->call = progress->call;
	finding->lag_calls = lag;
	finding->age_ms = progress->age_ms;
	finding->op = mc_text_op(progress->op);
	mc_text_age(progress->age_ms, age);
	if (!progress->call)
		mc_finding_text(finding, " It has not entered an op since it joined, %s ago.", age);
	else
		mc_finding_text(finding,
			" It %s %s, call %" PRIu64 " on channel %u, %s ago, and has not moved "
			"since.",
			progress->left ? "left" : "entered", mc_text_op(progress->op),
			progress->call, progress->channel, age);
	first = first_progress(group, progress->channel);
	if (lag && first)
		mc_finding_text(finding,
			" The group is at call %" PRIu64 " (%s): the rank is %" PRIu64
			" call%s behind.",
			first->call, mc_text_op(first->op), lag, lag == 1 ? "" : "s");
}

/* When those who wait give up. */
static void tell_deadline(struct mc_finding *finding, const Moecomm__Wire__GroupStatus *group,
	const Moecomm__Wire__RankStatus *rank)
{
	const Moecomm__Wire__GroupSpec *spec = group->spec;
	bool warmup = finding->call != MC_NO_NUMBER && finding->call < spec->warmup_calls;
	uint64_t deadline_ms = warmup ? spec->warmup_timeout_ms : spec->op_timeout_ms;
	uint64_t waited_ms = rank->awaited_ms ? rank->awaited_ms : finding->age_ms;
	char waiting[160], left[MC_TEXT_BYTES];
	size_t n;

	n = ranks_of(group, MC_HEALTH_WAITING, waiting, sizeof(waiting));
	if (!n)
		return;
	/* "ranks 0 and 2" begins a sentence here */
	mc_finding_text(finding, " R%s wait%s for it", waiting + 1, n == 1 ? "s" : "");
	if (waited_ms == MC_NO_NUMBER || waited_ms >= deadline_ms)
		mc_finding_text(finding, ".");
	else
		mc_finding_text(finding, "; their wait ends with TIMEOUT in %s.",
			mc_text_age(deadline_ms - waited_ms, left));
}

static void explain_stalled(const Moecomm__Wire__GroupStatus *group,
	const Moecomm__Wire__RankStatus *rank, struct mc_findings *findings)
{
	const Moecomm__Wire__RankProgress *progress = worst_progress(group, rank);
	const Moecomm__Wire__Member *member = rank->member;
	uint64_t lag = progress ? mc_groups_lag(group, progress) : 0;
	struct mc_finding *finding = mc_findings_add(findings,
		rank->stopped ? "stopped"
		: lag         ? "behind"
			      : "stuck",
		true);
	char who[256];

	mc_explain_rank(rank->rank, member, who, sizeof(who));
	finding->rank = rank->rank;
	if (member) {
		finding->pid = member->has_pid ? member->pid : MC_NO_NUMBER;
		finding->device_uuid = member->device_uuid;
		finding->label = member->label;
	}
	if (rank->stopped)
		mc_finding_text(finding,
			"%s is stopped: the operating system does not run its process (a stop "
			"signal, a debugger, or it is a zombie).",
			who);
	else if (lag)
		mc_finding_text(finding, "%s is behind the others.", who);
	else
		mc_finding_text(finding, "%s is stuck in an op.", who);
	tell_where(finding, group, progress);
	tell_deadline(finding, group, rank);
	if (rank->stopped)
		mc_finding_advise(finding,
			"let it go on (kill -CONT %" PRIu64
			", or detach the debugger); if it is a zombie, its parent must reap it",
			finding->pid);
	else if (lag)
		mc_finding_advise(finding,
			"see what the process does instead of entering the op (py-spy dump --pid "
			"%" PRIu64 ", or gdb -p %" PRIu64
			"): a slow step before it, a lock, a failed rank-local step, or a path "
			"through the program that skips an op. All ranks must call the same ops in "
			"the same order",
			finding->pid, finding->pid);
	else
		mc_finding_advise(finding,
			"see where it is (gdb -p %" PRIu64
			"); if it does not end by itself, end the epoch: moecommctl abort %s",
			finding->pid, group->name);
	mc_finding_advise(finding, "; more time: moecommctl deadline %s --op-ms N", group->name);
}

/* Nobody lags and every process runs, but nothing moves. */
static void explain_all_stuck(
	const Moecomm__Wire__GroupStatus *group, size_t n_stuck, struct mc_findings *findings)
{
	struct mc_finding *finding = mc_findings_add(findings, "stuck", true);
	char ranks[160];

	ranks_of(group, MC_HEALTH_STALLED, ranks, sizeof(ranks));
	mc_finding_text(finding,
		"%zu ranks are in the same call, every process runs, and none moves: %s.", n_stuck,
		ranks);
	tell_where(finding, group, worst_progress(group, group->ranks[0]));
	mc_finding_advise(finding,
		"look at one of them (gdb -p PID); data that got lost on its way ends in TIMEOUT "
		"by "
		"itself; to end the epoch now: moecommctl abort %s",
		group->name);
}

/* Ranks that are stalled without lag and without having been stopped. */
static size_t count_stuck(const Moecomm__Wire__GroupStatus *group)
{
	size_t n = 0;

	for (size_t i = 0; i < group->n_ranks; i++) {
		const Moecomm__Wire__RankStatus *rank = group->ranks[i];
		const Moecomm__Wire__RankProgress *progress = worst_progress(group, rank);

		n += rank->health == MC_HEALTH_STALLED && !rank->stopped && progress &&
		     !mc_groups_lag(group, progress);
	}
	return n;
}

static void explain_fault(const Moecomm__Wire__GroupStatus *group,
	const Moecomm__Wire__RankStatus *rank, struct mc_findings *findings)
{
	struct mc_finding *finding = mc_findings_add(findings, "failed", true);
	char who[256];

	finding->rank = rank->rank;
	finding->status = mc_status_name(rank->fault_status);
	if (rank->member && rank->member->has_pid)
		finding->pid = rank->member->pid;
	finding->call = rank->fault_call;
	mc_finding_text(finding, "an op failed on %s with %s: %s.",
		mc_explain_rank(rank->rank, rank->member, who, sizeof(who)), finding->status,
		rank->fault_detail && *rank->fault_detail ? rank->fault_detail
							  : mc_status_text(rank->fault_status));
	mc_finding_advise(finding, "all members rejoin; 'moecommctl explain %s' tells more then",
		group->name);
}

static void explain_forming(const Moecomm__Wire__GroupStatus *group, struct mc_findings *findings)
{
	struct mc_finding *finding = mc_findings_add(findings, "missing", true);
	uint64_t deadline_ms = group->spec->join_timeout_ms;
	char missing[160], age[MC_TEXT_BYTES], left[MC_TEXT_BYTES], who[256];
	bool first = true;

	finding->age_ms = group->age_ms;
	if (group->n_missing == 1)
		finding->rank = group->missing[0];
	mc_explain_ranks(group->missing, group->n_missing, missing, sizeof(missing));
	mc_finding_text(finding, "%s of %u ha%s not joined; the group has waited for %s", missing,
		group->spec->world_size, group->n_missing == 1 ? "s" : "ve",
		mc_text_age(group->age_ms, age));
	if (deadline_ms > group->age_ms)
		mc_finding_text(finding, " and gives up with JOIN_TIMEOUT in %s.",
			mc_text_age(deadline_ms - group->age_ms, left));
	else
		mc_finding_text(finding, ".");
	for (size_t i = 0; i < group->n_ranks; i++) {
		if (!group->ranks[i]->member)
			continue;
		mc_finding_text(finding, "%s%s", first ? " Here: " : ", ",
			mc_explain_rank(
				group->ranks[i]->rank, group->ranks[i]->member, who, sizeof(who)));
		first = false;
	}
	if (!first)
		mc_finding_text(finding, ".");
	mc_finding_advise(finding,
		"start what is missing; if it runs, see that it uses this daemon's socket, the "
		"group name %s%s%s, its own rank number, and has not ended with an error of its "
		"own "
		"before joining",
		group->name, group->spec->job && *group->spec->job ? " and job " : "",
		group->spec->job ? group->spec->job : "");
}

static void explain_well(const Moecomm__Wire__GroupStatus *group, struct mc_findings *findings)
{
	struct mc_finding *finding = mc_findings_add(findings, "well", false);
	const Moecomm__Wire__RankProgress *newest = NULL;
	char age[MC_TEXT_BYTES];

	for (size_t i = 0; i < group->n_ranks; i++)
		for (size_t p = 0; p < group->ranks[i]->n_progress; p++)
			if (group->ranks[i]->progress[p]->call &&
				(!newest || group->ranks[i]->progress[p]->age_ms < newest->age_ms))
				newest = group->ranks[i]->progress[p];
	mc_finding_text(finding, "all is well: %u rank%s, %s.", group->spec->world_size,
		group->spec->world_size == 1 ? "" : "s",
		group->health == MC_HEALTH_PROGRESSING
			? "ops are going on"
			: "no op is in flight, nobody waits for anybody");
	if (newest) {
		finding->call = newest->call;
		finding->op = mc_text_op(newest->op);
		mc_finding_text(finding,
			" The last op entered is %s, call %" PRIu64 " on channel %u, %s ago.",
			mc_text_op(newest->op), newest->call, newest->channel,
			mc_text_age(newest->age_ms, age));
	} else {
		mc_finding_text(finding, " No op has been called yet.");
	}
}

void mc_explain_live(
	const Moecomm__Wire__GroupStatus *group, uint32_t stall_ms, struct mc_findings *findings)
{
	struct mc_finding *finding;
	size_t before = findings->n;
	char age[MC_TEXT_BYTES];

	switch (group->state) {
	case MC_GROUP_FORMING:
		explain_forming(group, findings);
		return;
	case MC_GROUP_ARMING:
	case MC_GROUP_PROBING:
		finding = mc_findings_add(
			findings, mc_group_state_name(group->state), group->age_ms > stall_ms);
		finding->age_ms = group->age_ms;
		mc_finding_text(finding, "all ranks have joined; the group is %s since %s: %s.",
			mc_group_state_name(group->state), mc_text_age(group->age_ms, age),
			group->cause ? group->cause : "");
		if (finding->is_wrong)
			mc_finding_advise(finding,
				"wait for its deadline, which ends it with a reason; the daemon's "
				"log says more (journalctl -u moecommd)");
		return;
	case MC_GROUP_DRAINING:
		finding = mc_findings_add(findings, "draining", false);
		mc_finding_text(finding, "the group is ending: %s.",
			group->cause ? group->cause : "a member has left");
		return;
	default:
		break;
	}
	if (count_stuck(group) > 1) {
		explain_all_stuck(group, count_stuck(group), findings);
		return;
	}
	for (size_t i = 0; i < group->n_ranks; i++) {
		if (group->ranks[i]->health == MC_HEALTH_STALLED)
			explain_stalled(group, group->ranks[i], findings);
		else if (group->ranks[i]->has_fault_status)
			explain_fault(group, group->ranks[i], findings);
	}
	if (findings->n == before)
		explain_well(group, findings);
}
