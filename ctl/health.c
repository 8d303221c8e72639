/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moecommctl health: only what is wrong, and whose doing it is. Ranks that merely wait for a
 * laggard are not listed; groups that are still forming are not wrong (their join deadline sees to
 * them).
 */
#include <inttypes.h>
#include <stdio.h>
#include "ctl/groups.h"
#include "ctl/json.h"
#include "ctl/table.h"
#include "ctl/text.h"
#include "ctl/wire.h"
#include "proto/codec.h"
#include "proto/status.h"

/* One row of the answer. */
struct problem {
	const char *kind;                            /* "stalled", "failed" or "not_ready" */
	const Moecomm__Wire__GroupStatus *group;     /* NULL: the daemon itself */
	const Moecomm__Wire__RankStatus *rank;       /* NULL: nobody's in particular */
	const Moecomm__Wire__RankProgress *progress; /* NULL: none known */
	const char *detail;
};

typedef void (*problem_fn)(const struct problem *problem, void *context);

static const Moecomm__Wire__RankStatus *find_rank(
	const Moecomm__Wire__GroupStatus *group, uint32_t number)
{
	for (size_t i = 0; i < group->n_ranks; i++)
		if (group->ranks[i]->rank == number)
			return group->ranks[i];
	return NULL;
}

/* A channel on which a rank lags, else the one that has not moved for longest. */
static const Moecomm__Wire__RankProgress *worst_progress(
	const Moecomm__Wire__GroupStatus *group, const Moecomm__Wire__RankStatus *rank)
{
	const Moecomm__Wire__RankProgress *worst = NULL;
	uint64_t worst_lag = 0;

	for (size_t i = 0; i < rank->n_progress; i++) {
		const Moecomm__Wire__RankProgress *progress = rank->progress[i];
		uint64_t lag = mc_groups_lag(group, progress);

		if (!worst || lag > worst_lag ||
			(lag == worst_lag && progress->age_ms > worst->age_ms)) {
			worst = progress;
			worst_lag = lag;
		}
	}
	return worst;
}

/* A group that has failed is one problem, put on the rank that the others blame. */
static void failed_group(const Moecomm__Wire__GroupStatus *group, problem_fn tell, void *context)
{
	struct problem problem = {.kind = "failed", .group = group, .detail = group->cause};

	for (size_t i = 0; i < group->n_ranks && !problem.rank; i++) {
		const Moecomm__Wire__RankStatus *rank = group->ranks[i];

		if (rank->fault_status == MC_STATUS_OK)
			continue;
		if (rank->has_fault_peer)
			problem.rank = find_rank(group, rank->fault_peer);
		if (!problem.detail || !*problem.detail)
			problem.detail = rank->fault_detail;
	}
	if (problem.rank)
		problem.progress = worst_progress(group, problem.rank);
	tell(&problem, context);
}

/* Calls tell for each problem. Returns how many there are. */
static size_t each_problem(const Moecomm__Wire__Status *status, problem_fn tell, void *context)
{
	size_t n = 0;

	if (status->not_ready && *status->not_ready) {
		struct problem problem = {.kind = "not_ready", .detail = status->not_ready};

		tell(&problem, context);
		n++;
	}
	for (size_t g = 0; g < status->n_groups; g++) {
		const Moecomm__Wire__GroupStatus *group = status->groups[g];
		size_t before = n;

		if (group->state == MC_GROUP_FAILED) {
			failed_group(group, tell, context);
			n++;
			continue;
		}
		for (size_t i = 0; i < group->n_ranks; i++) {
			struct problem problem = {.group = group, .rank = group->ranks[i]};

			if (problem.rank->health == MC_HEALTH_STALLED)
				problem.kind = "stalled";
			else if (problem.rank->health == MC_HEALTH_FAILED)
				problem.kind = "failed";
			else
				continue;
			problem.progress = worst_progress(group, problem.rank);
			problem.detail = problem.rank->fault_detail;
			tell(&problem, context);
			n++;
		}
		/* the group as a whole is judged so, with no rank to show for it */
		if (n == before &&
			(group->health == MC_HEALTH_STALLED || group->health == MC_HEALTH_FAILED)) {
			struct problem problem = {.kind = mc_health_name(group->health),
				.group = group,
				.detail = group->cause};

			tell(&problem, context);
			n++;
		}
	}
	return n;
}

static void to_json(const struct problem *problem, void *context)
{
	struct json_object *entry = mc_json_object();
	const Moecomm__Wire__Member *member = problem->rank ? problem->rank->member : NULL;

	mc_json_text(entry, "problem", problem->kind);
	if (problem->group) {
		mc_json_text(entry, "group", problem->group->name);
		mc_json_number(entry, "epoch", problem->group->epoch);
		mc_json_text(entry, "state", mc_group_state_name(problem->group->state));
	}
	if (problem->rank)
		mc_json_number(entry, "rank", problem->rank->rank);
	if (member) {
		mc_json_number(entry, "pid", member->pid);
		mc_json_text(entry, "device_uuid",
			member->device_uuid && *member->device_uuid ? member->device_uuid : NULL);
		mc_json_text(entry, "label", member->label);
	}
	if (problem->progress) {
		mc_json_number(entry, "channel", problem->progress->channel);
		mc_json_text(entry, "op", mc_text_op(problem->progress->op));
		mc_json_number(entry, "call", problem->progress->call);
		mc_json_flag(entry, "in_op", !problem->progress->left);
		mc_json_number(
			entry, "lag_calls", mc_groups_lag(problem->group, problem->progress));
		mc_json_number(entry, "pushed_bytes", problem->progress->n_bytes);
		mc_json_number(entry, "age_ms", problem->progress->age_ms);
	}
	mc_json_text(entry, "detail", problem->detail && *problem->detail ? problem->detail : NULL);
	mc_json_append(context, entry);
}

static void to_table(const struct problem *problem, void *context)
{
	struct mc_table *table = context;
	const Moecomm__Wire__RankProgress *progress = problem->progress;
	const Moecomm__Wire__Member *member = problem->rank ? problem->rank->member : NULL;
	char text[MC_TEXT_BYTES];

	mc_table_row(table);
	mc_table_cell(table, "%s", problem->group ? problem->group->name : "");
	if (problem->rank)
		mc_table_cell(table, "%u", problem->rank->rank);
	else
		mc_table_cell(table, "%s", "");
	mc_table_mood_cell(table, MC_TABLE_BAD, problem->kind);
	if (progress) {
		mc_table_cell(
			table, "%s%s", mc_text_op(progress->op), progress->left ? " (done)" : "");
		mc_table_cell(table, "%" PRIu64, progress->call);
		mc_table_cell(table, "%" PRIu64, mc_groups_lag(problem->group, progress));
		mc_table_cell(table, "%s", mc_text_size(progress->n_bytes, text));
		mc_table_cell(table, "%s", mc_text_age(progress->age_ms, text));
	} else {
		for (int i = 0; i < 5; i++)
			mc_table_cell(table, "%s", "");
	}
	if (member && member->has_pid)
		mc_table_cell(table, "%u", member->pid);
	else
		mc_table_cell(table, "%s", "");
	mc_table_cell(table, "%s", member && member->device_uuid ? member->device_uuid : "");
	mc_table_cell(table, "%s", problem->detail ? problem->detail : "");
}

static void count_only(const struct problem *problem, void *context)
{
	(void)problem;
	(void)context;
}

static void print(const struct mc_ctl *ctl, const Moecomm__Wire__Status *status, size_t n)
{
	static const struct mc_table_column columns[] = {{"GROUP", false}, {"RANK", true},
		{"PROBLEM", false}, {"OP", false}, {"CALL", true}, {"LAG", true}, {"PUSHED", true},
		{"SINCE", true}, {"PID", true}, {"DEVICE", false}, {"DETAIL", false},
		{NULL, false}};
	struct mc_table *table;

	if (ctl->json) {
		struct json_object *answer = mc_json_new(), *list = mc_json_list();

		mc_json_flag(answer, "healthy", n == 0);
		mc_json_number(answer, "n_groups", status->total_groups);
		each_problem(status, to_json, list);
		mc_json_add(answer, "problems", list);
		mc_json_flag(answer, "truncated", status->truncated);
		mc_json_print(answer);
		return;
	}
	if (n == 0) {
		printf("healthy: %u group%s, nothing stalled or failed\n", status->total_groups,
			status->total_groups == 1 ? "" : "s");
		return;
	}
	printf("unhealthy: %zu problem%s\n", n, n == 1 ? "" : "s");
	table = mc_table_new(ctl, columns);
	each_problem(status, to_table, table);
	mc_table_print(table);
}

int mc_ctl_health(const struct mc_ctl *ctl, int argc, char **argv)
{
	struct mc_ctl_wire *wire = NULL;
	Moecomm__Wire__Status *status = NULL;
	int r = mc_ctl_no_arguments(argc, argv);

	if (r)
		return r;
	r = mc_ctl_wire_open(ctl, &wire);
	if (!r)
		r = mc_ctl_wire_status(wire, NULL, true, false, &status);
	if (!r) {
		size_t n = each_problem(status, count_only, NULL);

		print(ctl, status, n);
		r = n ? MC_CTL_UNHEALTHY : MC_CTL_OK;
	}
	if (status)
		mc_codec_free(&status->base);
	mc_ctl_wire_close(wire);
	return r;
}
