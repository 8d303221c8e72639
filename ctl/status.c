/* SPDX-License-Identifier: Apache-2.0 */
/* moecommctl status */
#include <stdio.h>
#include "ctl/groups.h"
#include "ctl/json.h"
#include "ctl/table.h"
#include "ctl/text.h"
#include "ctl/wire.h"
#include "proto/codec.h"

static void print_gpus(const struct mc_ctl *ctl, const Moecomm__Wire__Status *status)
{
	static const struct mc_table_column columns[] = {{"GPU", false}, {"NAME", false},
		{"ARENAS", true}, {"HELD BY", false}, {NULL, false}};
	struct mc_table *table;

	if (status->n_gpus == 0)
		return;
	putchar('\n');
	table = mc_table_new(ctl, columns);
	for (size_t i = 0; i < status->n_gpus; i++) {
		const Moecomm__Wire__GpuStatus *gpu = status->gpus[i];
		char size[MC_TEXT_BYTES], pids[256] = "";
		size_t n = 0;

		/* what does not fit the cell is in the JSON */
		for (size_t p = 0; p < gpu->n_holder_pid && n + 16 < sizeof(pids); p++)
			n += (size_t)snprintf(pids + n, sizeof(pids) - n, "%s%u", p ? " " : "",
				gpu->holder_pid[p]);
		mc_table_row(table);
		mc_table_cell(table, "%s", gpu->uuid);
		mc_table_cell(table, "%s", gpu->name ? gpu->name : "");
		mc_table_cell(table, "%s", mc_text_size(gpu->arena_bytes, size));
		mc_table_cell(table, "%s", pids);
	}
	mc_table_print(table);
}

static void print(const struct mc_ctl *ctl, const Moecomm__Wire__Status *status)
{
	char up[MC_TEXT_BYTES], arenas[MC_TEXT_BYTES];

	printf("moecommd %s   pid %u   up %s   %s backend   %s\n", status->version, status->pid,
		mc_text_age(status->uptime_ms, up), status->backend,
		status->socket ? status->socket : "");
	if (status->not_ready && *status->not_ready)
		printf("not ready: %s\n", status->not_ready);
	printf("%u group%s   %u client%s   %s of arenas\n\n", status->total_groups,
		status->total_groups == 1 ? "" : "s", status->total_clients,
		status->total_clients == 1 ? "" : "s", mc_text_size(status->arena_bytes, arenas));
	mc_groups_print(ctl, status);
	print_gpus(ctl, status);
	if (status->truncated)
		fprintf(stderr, "moecommctl: there is more than fits an answer\n");
}

int mc_ctl_status(const struct mc_ctl *ctl, int argc, char **argv)
{
	struct mc_ctl_wire *wire = NULL;
	Moecomm__Wire__Status *status = NULL;
	int r = mc_ctl_no_arguments(argc, argv);

	if (r)
		return r;
	r = mc_ctl_wire_open(ctl, &wire);
	if (!r)
		r = mc_ctl_wire_status(wire, NULL, ctl->json, false, &status);
	if (!r && ctl->json) {
		struct json_object *answer = mc_json_new();

		mc_json_add(answer, "daemon", mc_json_daemon(status));
		mc_json_add(answer, "groups", mc_json_groups(status));
		mc_json_add(answer, "gpus", mc_json_gpus(status));
		mc_json_print(answer);
	} else if (!r) {
		print(ctl, status);
	}
	if (status)
		mc_codec_free(&status->base);
	mc_ctl_wire_close(wire);
	return r;
}
