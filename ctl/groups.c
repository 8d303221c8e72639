/* SPDX-License-Identifier: Apache-2.0 */
/* moecommctl groups */
#include "ctl/groups.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "ctl/json.h"
#include "ctl/table.h"
#include "ctl/text.h"
#include "ctl/wire.h"
#include "proto/codec.h"
#include "proto/status.h"

void mc_groups_print(const struct mc_ctl *ctl, const Moecomm__Wire__Status *status)
{
	static const struct mc_table_column columns[] = {{"GROUP", false}, {"JOB", false},
		{"STATE", false}, {"HEALTH", false}, {"RANKS", true}, {"EPOCH", true},
		{"BACKEND", false}, {"PATH", false}, {"ARENAS", true}, {"UID", true}, {"AGE", true},
		{NULL, false}};
	struct mc_table *table;

	if (status->n_groups == 0) {
		puts("no groups");
		return;
	}
	table = mc_table_new(ctl, columns);
	for (size_t i = 0; i < status->n_groups; i++) {
		const Moecomm__Wire__GroupStatus *group = status->groups[i];
		char text[MC_TEXT_BYTES];

		mc_table_row(table);
		mc_table_cell(table, "%s", group->name);
		mc_table_cell(table, "%s", group->spec->job ? group->spec->job : "");
		mc_table_mood_cell(table, mc_table_state_mood(group->state),
			mc_group_state_name(group->state));
		mc_table_mood_cell(
			table, mc_table_health_mood(group->health), mc_health_name(group->health));
		mc_table_cell(table, "%u/%u", group->n_joined, group->spec->world_size);
		mc_table_cell(table, "%" PRIu64, group->epoch);
		mc_table_cell(table, "%s", mc_text_backend(group->spec->backend));
		mc_table_cell(table, "%s", group->path ? mc_text_path(group->path) : "");
		mc_table_cell(table, "%s", mc_text_size(group->arena_bytes, text));
		mc_table_cell(table, "%u", group->uid);
		mc_table_cell(table, "%s", mc_text_age(group->age_ms, text));
	}
	mc_table_print(table);
}

const Moecomm__Wire__RankProgress *mc_groups_progress(
	const Moecomm__Wire__RankStatus *rank, uint32_t channel)
{
	for (size_t i = 0; i < rank->n_progress; i++)
		if (rank->progress[i]->channel == channel)
			return rank->progress[i];
	return NULL;
}

uint64_t mc_groups_lag(
	const Moecomm__Wire__GroupStatus *group, const Moecomm__Wire__RankProgress *progress)
{
	int32_t lag = 0;

	for (size_t i = 0; i < group->n_ranks; i++) {
		const Moecomm__Wire__RankProgress *other =
			mc_groups_progress(group->ranks[i], progress->channel);
		/* call numbers on the board have 32 bits and wrap: only their distance counts */
		int32_t ahead = other ? (int32_t)(uint32_t)(other->call - progress->call) : 0;

		if (ahead > lag)
			lag = ahead;
	}
	return (uint64_t)lag;
}

static void rank_row(struct mc_table *table, const Moecomm__Wire__GroupStatus *group,
	const Moecomm__Wire__RankStatus *rank, const Moecomm__Wire__RankProgress *progress)
{
	const Moecomm__Wire__Member *member = rank->member;
	char text[MC_TEXT_BYTES];

	mc_table_row(table);
	mc_table_cell(table, "%u", rank->rank);
	if (member && member->has_pid)
		mc_table_cell(table, "%u", member->pid);
	else
		mc_table_cell(table, "%s", "");
	mc_table_mood_cell(table, mc_table_health_mood(rank->health),
		member ? mc_health_name(rank->health) : "not joined");
	if (progress) {
		mc_table_cell(table, "%u", progress->channel);
		mc_table_cell(table, "%" PRIu64, progress->call);
		mc_table_cell(table, "%s%s", mc_text_op(progress->op),
			progress->call && !progress->left ? "" : " (done)");
		mc_table_cell(table, "%" PRIu64, mc_groups_lag(group, progress));
		mc_table_cell(table, "%s", mc_text_age(progress->age_ms, text));
		mc_table_cell(table, "%s", mc_text_size(progress->n_bytes, text));
		mc_table_cell(table, "%s", mc_text_age(progress->wait_ns / 1000000, text));
	} else {
		for (int i = 0; i < 7; i++)
			mc_table_cell(table, "%s", "");
	}
	mc_table_cell(table, "%s", member && member->device_uuid ? member->device_uuid : "");
	mc_table_cell(table, "%s", member && member->label ? member->label : "");
}

static void print_ranks(const struct mc_ctl *ctl, const Moecomm__Wire__GroupStatus *group)
{
	static const struct mc_table_column columns[] = {{"RANK", true}, {"PID", true},
		{"HEALTH", false}, {"CHANNEL", true}, {"CALL", true}, {"OP", false}, {"LAG", true},
		{"SINCE", true}, {"PUSHED", true}, {"WAITED", true}, {"DEVICE", false},
		{"LABEL", false}, {NULL, false}};
	struct mc_table *table;

	if (group->n_ranks == 0)
		return;
	table = mc_table_new(ctl, columns);
	for (size_t i = 0; i < group->n_ranks; i++) {
		const Moecomm__Wire__RankStatus *rank = group->ranks[i];

		for (size_t p = 0; p < rank->n_progress; p++)
			rank_row(table, group, rank, rank->progress[p]);
		if (rank->n_progress == 0)
			rank_row(table, group, rank, NULL);
	}
	mc_table_print(table);
	for (size_t i = 0; i < group->n_ranks; i++) {
		const Moecomm__Wire__RankStatus *rank = group->ranks[i];

		if (rank->has_fault_status && rank->fault_status != MC_STATUS_OK)
			printf("rank %u: %s at call %" PRIu64 ": %s\n", rank->rank,
				mc_status_name(rank->fault_status), rank->fault_call,
				rank->fault_detail && *rank->fault_detail
					? rank->fault_detail
					: mc_status_text(rank->fault_status));
	}
}

static void print_holders(const struct mc_ctl *ctl, const Moecomm__Wire__GroupStatus *group)
{
	static const struct mc_table_column columns[] = {{"PID", true}, {"RANK", true},
		{"EPOCH", true}, {"HELD", true}, {"SINCE ITS END", true}, {NULL, false}};
	struct mc_table *table;

	if (group->n_holders == 0)
		return;
	puts("processes that still map memory of ended epochs:");
	table = mc_table_new(ctl, columns);
	for (size_t i = 0; i < group->n_holders; i++) {
		const Moecomm__Wire__Holder *holder = group->holders[i];
		char text[MC_TEXT_BYTES];

		mc_table_row(table);
		mc_table_cell(table, "%u", holder->pid);
		mc_table_cell(table, "%u", holder->rank);
		mc_table_cell(table, "%" PRIu64, holder->epoch);
		mc_table_cell(table, "%s", mc_text_size(holder->n_bytes, text));
		mc_table_cell(table, "%s", mc_text_age(holder->age_ms, text));
	}
	mc_table_print(table);
}

static void print_detail(const struct mc_ctl *ctl, const Moecomm__Wire__GroupStatus *group)
{
	const Moecomm__Wire__GroupSpec *spec = group->spec;
	char dispatch[MC_TEXT_BYTES], combine[MC_TEXT_BYTES], arenas[MC_TEXT_BYTES];
	char op[MC_TEXT_BYTES], warmup[MC_TEXT_BYTES];

	printf("\n%s: %s, epoch %" PRIu64 ", %u of %u ranks, %s backend\n", group->name,
		mc_group_state_name(group->state), group->epoch, group->n_joined, spec->world_size,
		mc_text_backend(spec->backend));
	if (group->cause && *group->cause)
		printf("  cause      %s\n", group->cause);
	if (group->n_missing) {
		printf("  missing    rank%s", group->n_missing > 1 ? "s" : "");
		for (size_t i = 0; i < group->n_missing; i++)
			printf("%s %u", i ? "," : "", group->missing[i]);
		putchar('\n');
	}
	printf("  capacity   %" PRIu64
	       " rows a rank; dispatch row %s, combine row %s; %u channel%s\n",
		spec->max_rows, mc_text_size(spec->dispatch_row_bytes, dispatch),
		mc_text_size(spec->combine_row_bytes, combine), spec->n_channels,
		spec->n_channels == 1 ? "" : "s");
	printf("  memory     %s of arenas\n", mc_text_size(group->arena_bytes, arenas));
	printf("  deadlines  %s an op; %s for a channel's first %u\n",
		mc_text_age(spec->op_timeout_ms, op), mc_text_age(spec->warmup_timeout_ms, warmup),
		spec->warmup_calls);
	print_ranks(ctl, group);
	print_holders(ctl, group);
}

static int print(const struct mc_ctl *ctl, const Moecomm__Wire__Status *status, bool verbose)
{
	if (ctl->json) {
		struct json_object *answer = mc_json_new();

		mc_json_add(answer, "groups", mc_json_groups(status));
		mc_json_flag(answer, "truncated", status->truncated);
		mc_json_print(answer);
		return MC_CTL_OK;
	}
	mc_groups_print(ctl, status);
	for (size_t i = 0; verbose && i < status->n_groups; i++)
		print_detail(ctl, status->groups[i]);
	if (status->truncated)
		fprintf(stderr, "moecommctl: there are more groups than fit an answer; name one\n");
	return MC_CTL_OK;
}

int mc_ctl_groups(const struct mc_ctl *ctl, int argc, char **argv)
{
	static const struct option options[] = {
		{"verbose", no_argument, NULL, 'v'}, {NULL, 0, NULL, 0}};
	struct mc_ctl_wire *wire = NULL;
	Moecomm__Wire__Status *status = NULL;
	const char *name;
	bool verbose = false;
	int option, r;

	while ((option = getopt_long(argc, argv, "v", options, NULL)) != -1) {
		if (option != 'v')
			return mc_ctl_usage("usage: groups [-v] [GROUP]");
		verbose = true;
	}
	if (argc - optind > 1)
		return mc_ctl_usage("groups takes one group, not also '%s'", argv[optind + 1]);
	name = optind < argc ? argv[optind] : NULL;
	r = mc_ctl_wire_open(ctl, &wire);
	if (!r)
		r = mc_ctl_wire_status(wire, name, verbose || ctl->json, false, &status);
	if (!r && name && status->n_groups == 0) {
		fprintf(stderr, "moecommctl: no group named %s; 'moecommctl groups' lists them\n",
			name);
		r = MC_CTL_REFUSED;
	}
	if (!r)
		r = print(ctl, status, verbose);
	if (status)
		mc_codec_free(&status->base);
	mc_ctl_wire_close(wire);
	return r;
}
