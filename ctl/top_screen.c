/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/top_screen.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include "ctl/json.h"
#include "ctl/table.h"
#include "ctl/text.h"
#include "proto/status.h"

#define COLUMNS "%-22s %7s %-11s %-15s %10s %9s %10s %5s %5s %8s  %s\n"

static const char *mood_color(const struct mc_ctl *ctl, enum mc_table_mood mood)
{
	static const char *const colors[] = {"", "\033[32m", "\033[33m", "\033[31m"};

	return ctl->color ? colors[mood] : "";
}

/* "812", "1.2k", "3.4M" */
static const char *rate_text(double rate, char ret_text[MC_TEXT_BYTES])
{
	if (rate < 9999.5)
		snprintf(ret_text, MC_TEXT_BYTES, "%.0f", rate);
	else if (rate < 999950)
		snprintf(ret_text, MC_TEXT_BYTES, "%.1fk", rate / 1e3);
	else
		snprintf(ret_text, MC_TEXT_BYTES, "%.1fM", rate / 1e6);
	return ret_text;
}

static void print_row(FILE *out, const struct mc_ctl *ctl, const struct mc_top_row *row)
{
	const Moecomm__Wire__Member *member = row->rank ? row->rank->member : NULL;
	const Moecomm__Wire__GroupStatus *group = row->group;
	char name[32], pid[16], call[24] = "", op[32] = "", lag[24], wait[16] = "-";
	char calls[MC_TEXT_BYTES], bytes[MC_TEXT_BYTES], age[MC_TEXT_BYTES], health[32];
	enum mc_table_mood mood;

	if (row->rank) {
		snprintf(name, sizeof(name), "  rank %u", row->rank->rank);
		snprintf(pid, sizeof(pid), "%u", member ? member->pid : 0);
		snprintf(health, sizeof(health), "%s",
			!member              ? "not joined"
			: row->rank->stopped ? "stopped"
					     : mc_health_name(row->rank->health));
		mood = mc_table_health_mood(row->rank->health);
	} else {
		snprintf(name, sizeof(name), "%.21s%s", group->name,
			strlen(group->name) > 21 ? "~" : "");
		snprintf(pid, sizeof(pid), "%u/%u", group->n_joined, group->spec->world_size);
		snprintf(health, sizeof(health), "%s",
			group->state == MC_GROUP_READY ? mc_health_name(group->health)
						       : mc_group_state_name(group->state));
		mood = group->state == MC_GROUP_READY ? mc_table_health_mood(group->health)
						      : mc_table_state_mood(group->state);
	}
	if (row->progress) {
		snprintf(op, sizeof(op), "%s", mc_text_op(row->progress->op));
		snprintf(call, sizeof(call), "%" PRIu64, row->progress->call);
	}
	if (row->wait_share >= 0)
		snprintf(wait, sizeof(wait), "%.0f%%", row->wait_share * 100);
	snprintf(lag, sizeof(lag), "%" PRIu64, row->lag);
	/* the colour is set around the padded word, as its bytes would count as width */
	fprintf(out, "%-22s %7s %s%-11s%s %-15s %10s %9s %10s %5s %5s %8s  %s\n", name, pid,
		mood_color(ctl, mood), health, ctl->color ? "\033[0m" : "", op, call,
		rate_text(row->calls_per_s, calls), mc_text_size((uint64_t)row->bytes_per_s, bytes),
		wait, lag, mc_text_age(row->age_ms, age),
		member && member->label ? member->label : "");
}

void mc_top_print(FILE *out, const struct mc_ctl *ctl, const Moecomm__Wire__Status *status,
	const struct mc_top_rows *rows, bool with_ranks)
{
	char up[MC_TEXT_BYTES], arenas[MC_TEXT_BYTES], bytes[MC_TEXT_BYTES], calls[MC_TEXT_BYTES];
	char clock[16] = "";
	time_t now = time(NULL);
	struct tm local;

	if (localtime_r(&now, &local))
		strftime(clock, sizeof(clock), "%H:%M:%S", &local);
	fprintf(out, "moecomm top %s   moecommd %s up %s, %s backend%s%s\n", clock, status->version,
		mc_text_age(status->uptime_ms, up), status->backend,
		status->not_ready && *status->not_ready ? ", not ready: " : "",
		status->not_ready ? status->not_ready : "");
	fprintf(out, "%u group%s, %zu unhealthy; %u client%s; %s of arenas; %s calls/s, %s/s\n\n",
		status->total_groups, status->total_groups == 1 ? "" : "s", rows->n_unhealthy,
		status->total_clients, status->total_clients == 1 ? "" : "s",
		mc_text_size(status->arena_bytes, arenas), rate_text(rows->calls_per_s, calls),
		mc_text_size((uint64_t)rows->bytes_per_s, bytes));
	fprintf(out, COLUMNS, "GROUP", "PID", "HEALTH", "OP", "CALL", "CALLS/S", "BYTES/S", "WAIT",
		"LAG", "SINCE", "LABEL");
	for (size_t i = 0; i < rows->n; i++)
		if (with_ranks || !rows->row[i].rank)
			print_row(out, ctl, &rows->row[i]);
	if (status->truncated)
		fputs("there are more groups than fit an answer\n", out);
}

static void add_rates(struct json_object *entry, const struct mc_top_row *row)
{
	mc_json_add(entry, "calls_per_second", json_object_new_double(row->calls_per_s));
	mc_json_add(entry, "bytes_per_second", json_object_new_double(row->bytes_per_s));
	mc_json_add(entry, "wait_share",
		row->wait_share >= 0 ? json_object_new_double(row->wait_share) : NULL);
	mc_json_number(entry, "lag_calls", row->lag);
	mc_json_number(entry, "age_ms", row->age_ms);
}

void mc_top_print_json(
	const Moecomm__Wire__Status *status, const struct mc_top_rows *rows, double seconds)
{
	struct json_object *answer = mc_json_new(), *groups = mc_json_list(), *ranks = NULL;

	mc_json_add(answer, "daemon", mc_json_daemon(status));
	mc_json_add(answer, "seconds", json_object_new_double(seconds));
	for (size_t i = 0; i < rows->n; i++) {
		const struct mc_top_row *row = &rows->row[i];
		struct json_object *entry = mc_json_object();

		if (row->rank) {
			mc_json_number(entry, "rank", row->rank->rank);
			mc_json_text(entry, "health", mc_health_name(row->rank->health));
			mc_json_flag(entry, "stopped", row->rank->stopped);
			if (row->progress) {
				mc_json_text(entry, "op", mc_text_op(row->progress->op));
				mc_json_number(entry, "call", row->progress->call);
			}
			add_rates(entry, row);
			mc_json_append(ranks, entry);
			continue;
		}
		mc_json_text(entry, "name", row->group->name);
		mc_json_text(entry, "state", mc_group_state_name(row->group->state));
		mc_json_text(entry, "health", mc_health_name(row->group->health));
		add_rates(entry, row);
		ranks = mc_json_list();
		mc_json_add(entry, "ranks", ranks);
		mc_json_append(groups, entry);
	}
	mc_json_add(answer, "groups", groups);
	mc_json_print(answer);
}
