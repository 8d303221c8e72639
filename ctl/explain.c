/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moecommctl explain: what is wrong with one group, in sentences. Exit status 0 when nothing is, 4
 * when something is, also for a group that is gone because of it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "ctl/findings.h"
#include "ctl/json.h"
#include "ctl/wire.h"
#include "proto/codec.h"
#include "proto/limits.h"
#include "proto/status.h"

struct explanation {
	const char *name;
	Moecomm__Wire__Status *status;           /* NULL: the group does not exist */
	const Moecomm__Wire__GroupStatus *group; /* of it */
	Moecomm__Wire__History *history;
	const Moecomm__Wire__Ending *last_ending; /* NULL: none is remembered */
	struct mc_findings findings;
};

static void find_out(struct explanation *e)
{
	const Moecomm__Wire__GroupStatus *group = e->group;

	if (group && group->state != MC_GROUP_FAILED) {
		mc_explain_live(group, e->history->stall_ms, &e->findings);
		/* what was before is told, but is no longer wrong */
		if (e->last_ending && e->last_ending->epoch < group->epoch) {
			size_t before = e->findings.n;

			mc_explain_ending(e->last_ending, &e->findings);
			e->findings.list[before].is_wrong = false;
		}
	} else if (e->last_ending) {
		mc_explain_ending(e->last_ending, &e->findings);
	} else {
		struct mc_finding *finding = mc_findings_add(&e->findings, "failed", true);

		mc_finding_text(finding, "its epoch has ended: %s.",
			group->cause && *group->cause ? group->cause : "no cause is known");
		mc_finding_advise(finding, "all members can rejoin");
	}
}

static bool is_wrong(const struct explanation *e)
{
	for (size_t i = 0; i < e->findings.n; i++)
		if (e->findings.list[i].is_wrong)
			return true;
	return false;
}

static void number(struct json_object *object, const char *key, uint64_t value)
{
	if (value != MC_NO_NUMBER)
		mc_json_number(object, key, value);
}

static void text(struct json_object *object, const char *key, const char *value)
{
	if (value && *value)
		mc_json_text(object, key, value);
}

static void print_json(const struct explanation *e)
{
	struct json_object *answer = mc_json_new(), *list = mc_json_list();

	mc_json_text(answer, "group", e->name);
	mc_json_flag(answer, "exists", e->group != NULL);
	mc_json_text(answer, "state", e->group ? mc_group_state_name(e->group->state) : "gone");
	if (e->group)
		mc_json_number(answer, "epoch", e->group->epoch);
	mc_json_flag(answer, "well", !is_wrong(e));
	for (size_t i = 0; i < e->findings.n; i++) {
		const struct mc_finding *finding = &e->findings.list[i];
		struct json_object *entry = mc_json_object();

		mc_json_text(entry, "kind", finding->kind);
		mc_json_flag(entry, "wrong", finding->is_wrong);
		mc_json_text(entry, "text", finding->text);
		text(entry, "advice", finding->advice);
		text(entry, "status", finding->status);
		number(entry, "rank", finding->rank);
		number(entry, "pid", finding->pid);
		text(entry, "device_uuid", finding->device_uuid);
		text(entry, "label", finding->label);
		text(entry, "op", finding->op);
		number(entry, "channel", finding->channel);
		number(entry, "call", finding->call);
		number(entry, "lag_calls", finding->lag_calls);
		number(entry, "age_ms", finding->age_ms);
		mc_json_append(list, entry);
	}
	mc_json_add(answer, "findings", list);
	mc_json_print(answer);
}

static void print(const struct explanation *e)
{
	if (e->group && e->group->state != MC_GROUP_FAILED)
		printf("group %s is %s%s\n", e->name, mc_group_state_name(e->group->state),
			e->group->state == MC_GROUP_READY && is_wrong(e) ? ", but not well" : "");
	else
		printf("group %s is %s\n", e->name, e->group ? "failed" : "gone");
	for (size_t i = 0; i < e->findings.n; i++) {
		const struct mc_finding *finding = &e->findings.list[i];

		if (i > 0 && !finding->is_wrong)
			printf("- before: %s\n", finding->text);
		else
			printf("- %s\n", finding->text);
		if (*finding->advice && (finding->is_wrong || i == 0))
			printf("  what to do: %s.\n", finding->advice);
	}
	for (size_t i = 0; e->group && i < e->group->n_holders; i++) {
		const Moecomm__Wire__Holder *holder = e->group->holders[i];

		printf("- pid %u still maps memory of epoch %" PRIu64
		       " (as rank %u): it has not let go since the end\n",
			holder->pid, holder->epoch, holder->rank);
	}
}

static int ask(struct explanation *e, struct mc_ctl_wire *wire)
{
	Moecomm__Wire__HistoryRequest request = MOECOMM__WIRE__HISTORY_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;
	int r;

	request.group = (char *)e->name;
	r = mc_ctl_wire_find(wire, e->name, &e->status);
	if (!r)
		r = mc_ctl_wire_call(
			wire, MC_FRAME_HISTORY_REQUEST, &request.base, MC_FRAME_HISTORY, &reply);
	if (r)
		return r;
	e->history = (Moecomm__Wire__History *)reply;
	if (e->status && e->status->n_groups)
		e->group = e->status->groups[0];
	if (e->history->n_endings)
		e->last_ending = e->history->endings[e->history->n_endings - 1];
	if (e->group || e->last_ending)
		return MC_CTL_OK;
	fprintf(stderr,
		"moecommctl: no group named %s exists or ended lately; 'moecommctl groups' lists "
		"those that exist\n",
		e->name);
	return MC_CTL_REFUSED;
}

int mc_ctl_explain(const struct mc_ctl *ctl, int argc, char **argv)
{
	struct explanation e = {0};
	struct mc_ctl_wire *wire = NULL;
	int r;

	if (argc != 2)
		return mc_ctl_usage("explain needs one group");
	e.name = argv[1];
	if (!*e.name || strlen(e.name) > MC_LIMIT_NAME_BYTES)
		return mc_ctl_usage("a group's name has 1 to %u bytes", MC_LIMIT_NAME_BYTES);
	r = mc_ctl_wire_open(ctl, &wire);
	if (!r)
		r = ask(&e, wire);
	if (!r) {
		find_out(&e);
		if (ctl->json)
			print_json(&e);
		else
			print(&e);
		r = is_wrong(&e) ? MC_CTL_UNHEALTHY : MC_CTL_OK;
	}
	mc_findings_clear(&e.findings);
	if (e.status)
		mc_codec_free(&e.status->base);
	if (e.history)
		mc_codec_free(&e.history->base);
	mc_ctl_wire_close(wire);
	return r;
}
