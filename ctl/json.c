/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/json.h"

#include <stdio.h>
#include <stdlib.h>
#include "ctl/ctl.h"
#include "ctl/text.h"
#include "proto/status.h"

static struct json_object *need(struct json_object *object)
{
	if (!object) {
		fprintf(stderr, "moecommctl: out of memory\n");
		exit(MC_CTL_REFUSED);
	}
	return object;
}

struct json_object *mc_json_new(void)
{
	struct json_object *answer = mc_json_object();

	mc_json_number(answer, "schema", MC_CTL_SCHEMA);
	return answer;
}

void mc_json_print(struct json_object *answer)
{
	const char *text = json_object_to_json_string_ext(answer,
		JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE);

	if (!text)
		need(NULL);
	puts(text);
	json_object_put(answer);
}

void mc_json_text(struct json_object *object, const char *key, const char *text)
{
	mc_json_add(object, key, text ? need(json_object_new_string(text)) : NULL);
}

void mc_json_number(struct json_object *object, const char *key, uint64_t number)
{
	mc_json_add(object, key, need(json_object_new_uint64(number)));
}

void mc_json_flag(struct json_object *object, const char *key, bool flag)
{
	mc_json_add(object, key, need(json_object_new_boolean(flag)));
}

void mc_json_add(struct json_object *object, const char *key, struct json_object *value)
{
	if (json_object_object_add(object, key, value) < 0)
		need(NULL);
}

struct json_object *mc_json_object(void)
{
	return need(json_object_new_object());
}

struct json_object *mc_json_list(void)
{
	return need(json_object_new_array());
}

void mc_json_append(struct json_object *list, struct json_object *value)
{
	if (json_object_array_add(list, value) < 0)
		need(NULL);
}

struct json_object *mc_json_daemon(const Moecomm__Wire__Status *status)
{
	struct json_object *daemon = mc_json_object();
	char instance[33] = "";

	for (size_t i = 0; i < status->instance.len && i < 16; i++)
		snprintf(instance + 2 * i, 3, "%02x", status->instance.data[i]);
	mc_json_text(daemon, "version", status->version);
	mc_json_text(daemon, "backend", status->backend);
	mc_json_number(daemon, "pid", status->pid);
	mc_json_number(daemon, "uptime_ms", status->uptime_ms);
	mc_json_text(daemon, "socket", status->socket);
	mc_json_text(daemon, "instance", instance);
	mc_json_flag(daemon, "ready", !status->not_ready || !*status->not_ready);
	mc_json_text(daemon, "not_ready",
		status->not_ready && *status->not_ready ? status->not_ready : NULL);
	/* of the whole daemon, also those that this answer leaves out */
	mc_json_number(daemon, "n_groups", status->total_groups);
	mc_json_number(daemon, "n_clients", status->total_clients);
	mc_json_number(daemon, "arena_bytes", status->arena_bytes);
	mc_json_flag(daemon, "truncated", status->truncated);
	return daemon;
}

static struct json_object *progress_json(const Moecomm__Wire__RankProgress *progress)
{
	struct json_object *ret = mc_json_object();

	mc_json_number(ret, "channel", progress->channel);
	mc_json_number(ret, "call", progress->call);
	mc_json_text(ret, "op", mc_text_op(progress->op));
	mc_json_flag(ret, "in_op", progress->call > 0 && !progress->left);
	mc_json_number(ret, "age_ms", progress->age_ms);
	mc_json_number(ret, "pushed_bytes", progress->n_bytes);
	mc_json_number(ret, "wait_ns", progress->wait_ns);
	return ret;
}

static struct json_object *rank_json(const Moecomm__Wire__RankStatus *rank)
{
	struct json_object *ret = mc_json_object(), *list = mc_json_list();
	const Moecomm__Wire__Member *member = rank->member;

	mc_json_number(ret, "rank", rank->rank);
	mc_json_flag(ret, "joined", member != NULL);
	if (member) {
		mc_json_number(ret, "pid", member->pid);
		mc_json_number(ret, "uid", member->uid);
		mc_json_text(ret, "label", member->label);
		mc_json_text(ret, "device_uuid",
			member->device_uuid && *member->device_uuid ? member->device_uuid : NULL);
	}
	mc_json_text(ret, "health", mc_health_name(rank->health));
	for (size_t i = 0; i < rank->n_progress; i++)
		mc_json_append(list, progress_json(rank->progress[i]));
	mc_json_add(ret, "progress", list);
	if (rank->has_fault_status && rank->fault_status != MC_STATUS_OK) {
		struct json_object *fault = mc_json_object();

		mc_json_text(fault, "status", mc_status_name(rank->fault_status));
		if (rank->has_fault_peer)
			mc_json_number(fault, "peer", rank->fault_peer);
		mc_json_number(fault, "call", rank->fault_call);
		mc_json_text(fault, "detail", rank->fault_detail);
		mc_json_add(ret, "fault", fault);
	}
	return ret;
}

static struct json_object *holder_json(const Moecomm__Wire__Holder *holder)
{
	struct json_object *ret = mc_json_object();

	mc_json_number(ret, "pid", holder->pid);
	mc_json_number(ret, "rank", holder->rank);
	mc_json_number(ret, "epoch", holder->epoch);
	mc_json_number(ret, "age_ms", holder->age_ms);
	mc_json_number(ret, "held_bytes", holder->n_bytes);
	return ret;
}

static struct json_object *group_json(const Moecomm__Wire__GroupStatus *group)
{
	const Moecomm__Wire__GroupSpec *spec = group->spec;
	struct json_object *ret = mc_json_object();
	struct json_object *missing = mc_json_list();
	struct json_object *ranks = mc_json_list();
	struct json_object *holders = mc_json_list();

	mc_json_text(ret, "name", group->name);
	mc_json_text(ret, "job", spec->job);
	mc_json_text(ret, "state", mc_group_state_name(group->state));
	mc_json_text(ret, "health", mc_health_name(group->health));
	mc_json_number(ret, "epoch", group->epoch);
	mc_json_number(ret, "uid", group->uid);
	mc_json_text(ret, "backend", mc_text_backend(spec->backend));
	mc_json_text(ret, "path", mc_text_path(group->path));
	mc_json_number(ret, "world_size", spec->world_size);
	mc_json_number(ret, "n_joined", group->n_joined);
	for (size_t i = 0; i < group->n_missing; i++)
		mc_json_append(missing, need(json_object_new_uint64(group->missing[i])));
	mc_json_add(ret, "missing", missing);
	mc_json_text(ret, "cause", group->cause);
	mc_json_number(ret, "age_ms", group->age_ms);
	mc_json_number(ret, "arena_bytes", group->arena_bytes);
	mc_json_number(ret, "n_channels", spec->n_channels);
	mc_json_number(ret, "max_rows", spec->max_rows);
	mc_json_number(ret, "dispatch_row_bytes", spec->dispatch_row_bytes);
	mc_json_number(ret, "combine_row_bytes", spec->combine_row_bytes);
	mc_json_number(ret, "op_timeout_ms", spec->op_timeout_ms);
	mc_json_number(ret, "warmup_timeout_ms", spec->warmup_timeout_ms);
	mc_json_number(ret, "warmup_calls", spec->warmup_calls);
	mc_json_number(ret, "join_timeout_ms", spec->join_timeout_ms);
	mc_json_number(ret, "probe_timeout_ms", spec->probe_timeout_ms);
	mc_json_flag(ret, "shared_gpu", spec->shared_gpu);
	for (size_t i = 0; i < group->n_ranks; i++)
		mc_json_append(ranks, rank_json(group->ranks[i]));
	mc_json_add(ret, "ranks", ranks);
	for (size_t i = 0; i < group->n_holders; i++)
		mc_json_append(holders, holder_json(group->holders[i]));
	mc_json_add(ret, "holders", holders);
	return ret;
}

struct json_object *mc_json_groups(const Moecomm__Wire__Status *status)
{
	struct json_object *ret = mc_json_list();

	for (size_t i = 0; i < status->n_groups; i++)
		mc_json_append(ret, group_json(status->groups[i]));
	return ret;
}

struct json_object *mc_json_clients(const Moecomm__Wire__Status *status)
{
	struct json_object *ret = mc_json_list();

	for (size_t i = 0; i < status->n_clients; i++) {
		const Moecomm__Wire__ClientStatus *client = status->clients[i];
		struct json_object *entry = mc_json_object();

		mc_json_number(entry, "id", client->id);
		mc_json_number(entry, "pid", client->pid);
		mc_json_number(entry, "uid", client->uid);
		mc_json_text(entry, "label", client->label);
		mc_json_number(entry, "age_ms", client->age_ms);
		mc_json_number(entry, "n_members", client->n_members);
		mc_json_number(entry, "n_requests", client->n_requests);
		mc_json_number(entry, "queued_bytes", client->queued_bytes);
		mc_json_append(ret, entry);
	}
	return ret;
}

struct json_object *mc_json_gpus(const Moecomm__Wire__Status *status)
{
	struct json_object *ret = mc_json_list();

	for (size_t i = 0; i < status->n_gpus; i++) {
		const Moecomm__Wire__GpuStatus *gpu = status->gpus[i];
		struct json_object *entry = mc_json_object();
		struct json_object *pids = mc_json_list();

		mc_json_text(entry, "uuid", gpu->uuid);
		mc_json_text(entry, "name", gpu->name);
		mc_json_number(entry, "arena_bytes", gpu->arena_bytes);
		for (size_t p = 0; p < gpu->n_holder_pid; p++)
			mc_json_append(pids, need(json_object_new_uint64(gpu->holder_pid[p])));
		mc_json_add(entry, "holder_pids", pids);
		mc_json_append(ret, entry);
	}
	return ret;
}
