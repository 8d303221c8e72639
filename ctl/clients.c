/* SPDX-License-Identifier: Apache-2.0 */
/* moecommctl clients */
#include <inttypes.h>
#include <stdio.h>
#include "ctl/json.h"
#include "ctl/table.h"
#include "ctl/text.h"
#include "ctl/wire.h"
#include "proto/codec.h"

static void print(const struct mc_ctl *ctl, const Moecomm__Wire__Status *status)
{
	static const struct mc_table_column columns[] = {{"CLIENT", true}, {"PID", true},
		{"UID", true}, {"AGE", true}, {"GROUPS", true}, {"REQUESTS", true},
		{"QUEUED", true}, {"LABEL", false}, {NULL, false}};
	struct mc_table *table = mc_table_new(ctl, columns);

	for (size_t i = 0; i < status->n_clients; i++) {
		const Moecomm__Wire__ClientStatus *client = status->clients[i];
		char text[MC_TEXT_BYTES];

		mc_table_row(table);
		mc_table_cell(table, "%" PRIu64, client->id);
		mc_table_cell(table, "%u", client->pid);
		mc_table_cell(table, "%u", client->uid);
		mc_table_cell(table, "%s", mc_text_age(client->age_ms, text));
		mc_table_cell(table, "%u", client->n_members);
		mc_table_cell(table, "%" PRIu64, client->n_requests);
		mc_table_cell(table, "%s", mc_text_size(client->queued_bytes, text));
		mc_table_cell(table, "%s", client->label ? client->label : "");
	}
	mc_table_print(table);
}

int mc_ctl_clients(const struct mc_ctl *ctl, int argc, char **argv)
{
	struct mc_ctl_wire *wire = NULL;
	Moecomm__Wire__Status *status = NULL;
	int r = mc_ctl_no_arguments(argc, argv);

	if (r)
		return r;
	r = mc_ctl_wire_open(ctl, &wire);
	if (!r)
		r = mc_ctl_wire_status(wire, NULL, false, true, &status);
	if (!r && ctl->json) {
		struct json_object *answer = mc_json_new();

		mc_json_add(answer, "clients", mc_json_clients(status));
		mc_json_flag(answer, "truncated", status->truncated);
		mc_json_print(answer);
	} else if (!r) {
		print(ctl, status);
	}
	if (status)
		mc_codec_free(&status->base);
	mc_ctl_wire_close(wire);
	return r;
}
