/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moecommctl dump: everything the daemon tells, as one JSON text for a bug report. It holds names
 * of groups, labels, pids and uids; no data of any op.
 */
#include <stdio.h>
#include <sys/utsname.h>
#include <time.h>
#include "ctl/json.h"
#include "ctl/text.h"
#include "ctl/wire.h"
#include "proto/codec.h"
#include "proto/limits.h"
#include "proto/status.h"
#include "proto/version.h"

static struct json_object *versions(const struct mc_ctl_wire *wire)
{
	const Moecomm__Wire__Welcome *welcome = mc_ctl_wire_welcome(wire);
	struct json_object *ret = mc_json_object();
	struct utsname system;
	char protocol[32];

	mc_json_text(ret, "moecommctl", mc_version_string());
	mc_json_text(ret, "moecommd", welcome->version);
	snprintf(protocol, sizeof(protocol), "%u.%u", MC_PROTO_MAJOR, MC_PROTO_MINOR);
	mc_json_text(ret, "protocol", protocol);
	snprintf(protocol, sizeof(protocol), "%u.%u", welcome->major, welcome->minor);
	mc_json_text(ret, "daemon_protocol", protocol);
	if (!uname(&system)) {
		mc_json_text(ret, "kernel", system.release);
		mc_json_text(ret, "machine", system.machine);
	}
	return ret;
}

static struct json_object *events(const Moecomm__Wire__History *history)
{
	struct json_object *ret = mc_json_list();

	for (size_t i = 0; i < history->n_events; i++) {
		const Moecomm__Wire__Event *event = history->events[i];
		struct json_object *entry = mc_json_object();

		mc_json_number(entry, "age_ms", event->age_ms);
		mc_json_text(entry, "group", event->group);
		mc_json_number(entry, "epoch", event->epoch);
		mc_json_text(entry, "state", mc_group_state_name(event->state));
		mc_json_text(entry, "cause", event->cause);
		mc_json_append(ret, entry);
	}
	return ret;
}

static struct json_object *endings(const Moecomm__Wire__History *history)
{
	struct json_object *ret = mc_json_list();

	for (size_t i = 0; i < history->n_endings; i++) {
		const Moecomm__Wire__Ending *ending = history->endings[i];
		struct json_object *entry = mc_json_object();

		mc_json_number(entry, "age_ms", ending->age_ms);
		mc_json_text(entry, "group", ending->group);
		mc_json_number(entry, "epoch", ending->epoch);
		mc_json_text(entry, "status", mc_status_name(ending->status));
		mc_json_text(entry, "detail", ending->detail);
		mc_json_text(entry, "was_state", mc_group_state_name(ending->was_state));
		mc_json_number(entry, "world_size", ending->world_size);
		if (ending->blamed) {
			mc_json_number(entry, "rank", ending->blamed->rank);
			if (ending->blamed->has_pid)
				mc_json_number(entry, "pid", ending->blamed->pid);
			mc_json_text(entry, "label", ending->blamed->label);
			mc_json_text(entry, "device_uuid", ending->blamed->device_uuid);
		}
		if (ending->has_call) {
			mc_json_text(entry, "op", mc_text_op(ending->op));
			mc_json_number(entry, "channel", ending->channel);
			mc_json_number(entry, "call", ending->call);
			mc_json_number(entry, "first_call", ending->first_call);
			mc_json_number(entry, "op_age_ms", ending->op_age_ms);
		}
		mc_json_append(ret, entry);
	}
	return ret;
}

int mc_ctl_dump(const struct mc_ctl *ctl, int argc, char **argv)
{
	Moecomm__Wire__HistoryRequest request = MOECOMM__WIRE__HISTORY_REQUEST__INIT;
	struct mc_ctl_wire *wire = NULL;
	Moecomm__Wire__Status *status = NULL;
	ProtobufCMessage *reply = NULL;
	int r = mc_ctl_no_arguments(argc, argv);

	if (r)
		return r;
	r = mc_ctl_wire_open(ctl, &wire);
	if (!r)
		r = mc_ctl_wire_status(wire, NULL, true, true, &status);
	if (!r)
		r = mc_ctl_wire_call(
			wire, MC_FRAME_HISTORY_REQUEST, &request.base, MC_FRAME_HISTORY, &reply);
	if (!r) {
		const Moecomm__Wire__History *history = (Moecomm__Wire__History *)reply;
		struct json_object *answer = mc_json_new();

		mc_json_number(answer, "taken_unix_ms", history->unix_ms);
		mc_json_add(answer, "versions", versions(wire));
		mc_json_add(answer, "daemon", mc_json_daemon(status));
		mc_json_text(answer, "config", history->config);
		mc_json_add(answer, "groups", mc_json_groups(status));
		mc_json_add(answer, "clients", mc_json_clients(status));
		mc_json_add(answer, "gpus", mc_json_gpus(status));
		mc_json_add(answer, "events", events(history));
		mc_json_add(answer, "endings", endings(history));
		mc_json_print(answer);
	}
	mc_codec_free(reply);
	if (status)
		mc_codec_free(&status->base);
	mc_ctl_wire_close(wire);
	return r;
}
