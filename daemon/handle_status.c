/* SPDX-License-Identifier: Apache-2.0 */
/* StatusRequest: everything that moecommctl shows, bounded by what a reply may hold. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>
#include "daemon/backends/cuda/cuda.h"
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/handlers.h"
#include "daemon/health/health.h"
#include "daemon/log.h"
#include "daemon/scratch.h"
#include "proto/version.h"

/* Room left for the fields of the reply itself and for frames of its parts. */
#define REPLY_SLACK_BYTES 4096u

/* One reply being built. */
struct building {
	struct mc_daemon *daemon;
	struct mc_scratch scratch;
	Moecomm__Wire__Status status;
	size_t n_bytes;             /* encoded, so far */
	size_t n_allocated;         /* about what the reader will allocate */
	struct mc_health_view view; /* of the group at hand */
	uint64_t now_ms;
	bool with_ranks;
	bool out_of_memory;
};

static void *alloc(struct building *building, size_t n_bytes)
{
	void *at = mc_scratch_alloc(&building->scratch, n_bytes);

	building->out_of_memory |= !at;
	building->n_allocated += n_bytes;
	return at;
}

/* Whether another part still fits; if not, the reply is marked. */
static bool fits(struct building *building, const ProtobufCMessage *part)
{
	size_t n = protobuf_c_message_get_packed_size(part) + 8;

	/* many ranks without much to tell are short when encoded, but not when decoded */
	if (building->n_bytes + n + REPLY_SLACK_BYTES > MC_LIMIT_REPLY_BYTES ||
		building->n_allocated > MC_LIMIT_DECODE_REPLY_BYTES / 2) {
		building->status.has_truncated = 1;
		building->status.truncated = 1;
		return false;
	}
	building->n_bytes += n;
	return true;
}

static Moecomm__Wire__Member *member_to_wire(
	struct building *building, const struct mc_member *member)
{
	Moecomm__Wire__Member *wire = alloc(building, sizeof(*wire));

	if (!wire)
		return NULL;
	moecomm__wire__member__init(wire);
	wire->rank = member->rank;
	wire->has_pid = wire->has_uid = 1;
	wire->pid = member->pid;
	wire->uid = member->uid;
	if (*member->device_uuid)
		wire->device_uuid = (char *)member->device_uuid;
	wire->label = (char *)member->label;
	return wire;
}

static void add_progress(struct building *building, const struct mc_epoch *epoch,
	const struct mc_rank_view *view, Moecomm__Wire__RankStatus *wire)
{
	uint32_t n = epoch->spec.n_channels;

	wire->progress = alloc(building, n * sizeof(*wire->progress));
	if (!wire->progress)
		return;
	for (uint32_t c = 0; c < n; c++) {
		Moecomm__Wire__RankProgress *progress = alloc(building, sizeof(*progress));

		if (!progress)
			return;
		moecomm__wire__rank_progress__init(progress);
		progress->channel = c;
		progress->call = view->progress[c].call;
		progress->has_op = progress->has_left = progress->has_age_ms = 1;
		progress->has_n_bytes = progress->has_wait_ns = 1;
		progress->op = view->progress[c].op;
		progress->left = view->progress[c].left;
		progress->age_ms = view->age_ms[c];
		progress->n_bytes = (uint64_t)view->progress[c].n_vectors * MC_VECTOR_BYTES;
		progress->wait_ns = view->wait_ns[c];
		/* what the cuda backend does not count */
		progress->has_total_bytes = epoch->spec.backend == MC_WIRE_BACKEND_HOST;
		progress->total_bytes = view->pushed_bytes[c];
		wire->progress[wire->n_progress++] = progress;
	}
}

/* Numbers and texts of the board were checked when it was read: mc_health_look. */
static void add_fault(
	struct building *building, const struct mc_fault *fault, Moecomm__Wire__RankStatus *wire)
{
	char text[352], awaited[48] = "", account[48] = "";

	if (!fault->status)
		return;
	wire->has_fault_status = wire->has_fault_call = 1;
	wire->fault_status = fault->status;
	wire->fault_call = fault->call;
	wire->has_fault_peer = fault->peer < MC_MAX_WORLD_SIZE;
	if (wire->has_fault_peer) {
		wire->fault_peer = fault->peer;
		snprintf(awaited, sizeof(awaited), ", rank %u awaited", fault->peer);
	}
	if (fault->by)
		snprintf(account, sizeof(account), "; the account of rank %u", fault->by - 1);
	snprintf(text, sizeof(text),
		"%s: call %" PRIu64 " (digest %08x, %u rows) on channel %u%s for %" PRIu64
		" ms; found call %u (digest %08x, %u rows)%s",
		mc_status_text(fault->status), fault->call, fault->mine[1], fault->mine[2],
		fault->channel, awaited, fault->waited_ns / 1000000u, fault->theirs[0],
		fault->theirs[1], fault->theirs[2], account);
	wire->fault_detail = mc_scratch_text(&building->scratch, text);
}

static void add_ranks(struct building *building, const struct mc_epoch *epoch,
	const struct mc_health_view *view, Moecomm__Wire__GroupStatus *wire)
{
	wire->ranks = alloc(building, epoch->spec.world_size * sizeof(*wire->ranks));
	if (!wire->ranks)
		return;
	for (uint32_t r = 0; r < epoch->spec.world_size; r++) {
		Moecomm__Wire__RankStatus *rank = alloc(building, sizeof(*rank));

		if (!rank)
			return;
		moecomm__wire__rank_status__init(rank);
		rank->rank = r;
		rank->has_health = 1;
		rank->health = view->rank[r].health;
		if (epoch->member[r])
			rank->member = member_to_wire(building, epoch->member[r]);
		if (epoch->board) {
			rank->has_stopped = rank->has_awaited_ms = 1;
			rank->stopped = view->rank[r].is_stopped;
			rank->awaited_ms = view->rank[r].awaited_ms;
			add_progress(building, epoch, &view->rank[r], rank);
			add_fault(building, &view->rank[r].fault, rank);
		}
		wire->ranks[wire->n_ranks++] = rank;
	}
}

static void add_missing(
	struct building *building, const struct mc_epoch *epoch, Moecomm__Wire__GroupStatus *wire)
{
	if (epoch->state != MC_GROUP_FORMING)
		return;
	wire->missing = alloc(building, epoch->spec.world_size * sizeof(*wire->missing));
	if (!wire->missing)
		return;
	for (uint32_t r = 0; r < epoch->spec.world_size; r++)
		if (!epoch->member[r])
			wire->missing[wire->n_missing++] = r;
}

/* Processes that still map memory of ended epochs. */
static void add_holders(
	struct building *building, const struct mc_group *group, Moecomm__Wire__GroupStatus *wire)
{
	const struct mc_epoch *epoch;
	size_t n = 0;

	DL_FOREACH (group->epochs, epoch)
		if (epoch->state == MC_GROUP_FAILED)
			n += epoch->n_members;
	if (!n)
		return;
	wire->holders = alloc(building, n * sizeof(*wire->holders));
	if (!wire->holders)
		return;
	DL_FOREACH (group->epochs, epoch) {
		if (epoch->state != MC_GROUP_FAILED)
			continue;
		for (uint32_t r = 0; r < epoch->spec.world_size; r++) {
			Moecomm__Wire__Holder *holder;

			if (!epoch->member[r])
				continue;
			holder = alloc(building, sizeof(*holder));
			if (!holder)
				return;
			moecomm__wire__holder__init(holder);
			holder->pid = epoch->member[r]->pid;
			holder->rank = r;
			holder->epoch = epoch->number;
			holder->age_ms = building->now_ms - epoch->ended_ms;
			holder->has_n_bytes = 1;
			holder->n_bytes = epoch->charged_bytes / epoch->spec.world_size;
			wire->holders[wire->n_holders++] = holder;
		}
	}
}

static Moecomm__Wire__GroupStatus *group_to_wire(
	struct building *building, const struct mc_group *group)
{
	Moecomm__Wire__GroupStatus *wire = alloc(building, sizeof(*wire));
	Moecomm__Wire__GroupSpec *spec = alloc(building, sizeof(*spec));
	struct mc_health_view *view = &building->view;
	struct mc_epoch *epoch = mc_group_newest(group);

	if (!wire || !spec)
		return NULL;
	moecomm__wire__group_status__init(wire);
	wire->name = (char *)group->name;
	wire->state = epoch->state;
	wire->epoch = epoch->number ? epoch->number : group->last_epoch;
	mc_spec_to_wire(&epoch->spec, spec);
	wire->spec = spec;
	wire->has_uid = wire->has_health = wire->has_arena_bytes = 1;
	wire->has_age_ms = wire->has_n_joined = 1;
	wire->uid = group->uid;
	if (epoch->state >= MC_GROUP_READY) {
		wire->has_path = 1;
		wire->path = MC_WIRE_PATH_LAMPORT;
	}
	mc_health_look(epoch, building->now_ms, view);
	wire->health = view->health;
	wire->arena_bytes = epoch->charged_bytes;
	wire->age_ms = building->now_ms - group->changed_ms;
	wire->n_joined = epoch->n_members;
	wire->cause = (char *)group->cause;
	add_missing(building, epoch, wire);
	if (building->with_ranks)
		add_ranks(building, epoch, view, wire);
	add_holders(building, group, wire);
	return wire;
}

/* Returns false when the reply is full. */
static bool add_group(struct building *building, const struct mc_group *group)
{
	Moecomm__Wire__GroupStatus *wire = group_to_wire(building, group);

	if (!wire)
		return false;
	if (!fits(building, &wire->base))
		return false;
	building->status.groups[building->status.n_groups++] = wire;
	return true;
}

static void add_clients(struct building *building)
{
	struct mc_daemon *daemon = building->daemon;
	const struct mc_conn *conn;

	building->status.clients =
		alloc(building, daemon->n_conns * sizeof(*building->status.clients));
	if (!building->status.clients)
		return;
	DL_FOREACH (daemon->conns, conn) {
		Moecomm__Wire__ClientStatus *wire = alloc(building, sizeof(*wire));

		if (!wire)
			return;
		moecomm__wire__client_status__init(wire);
		wire->id = conn->id;
		wire->pid = conn->pid;
		wire->uid = conn->uid;
		wire->label = (char *)conn->label;
		wire->has_age_ms = wire->has_n_members = wire->has_n_requests = 1;
		wire->has_queued_bytes = 1;
		wire->age_ms = building->now_ms - conn->opened_ms;
		wire->n_members = conn->n_members;
		wire->n_requests = conn->n_requests;
		wire->queued_bytes = mc_frame_queue_bytes(conn->queue);
		if (!fits(building, &wire->base))
			return;
		building->status.clients[building->status.n_clients++] = wire;
	}
}

static uint64_t member_bytes(const struct mc_epoch *epoch)
{
	return epoch->has_memory ? epoch->memory.arena_bytes
				 : epoch->charged_bytes / epoch->spec.world_size;
}

/* What is armed on one GPU, and for whom; pids may be NULL. Returns the number of holders. */
static size_t count_on_gpu(
	const struct mc_groups *groups, const char *uuid, uint64_t *ret_bytes, uint32_t *pids)
{
	const struct mc_group *group;
	const struct mc_epoch *epoch;
	size_t n = 0;

	*ret_bytes = 0;
	for (group = groups->by_name; group; group = group->hh.next) {
		DL_FOREACH (group->epochs, epoch) {
			if (!epoch->charged_bytes || epoch->spec.backend != MC_WIRE_BACKEND_CUDA)
				continue;
			for (uint32_t r = 0; r < epoch->spec.world_size; r++) {
				if (!epoch->member[r] ||
					strcmp(epoch->member[r]->device_uuid, uuid))
					continue;
				*ret_bytes += member_bytes(epoch);
				if (pids)
					pids[n] = epoch->member[r]->pid;
				n++;
			}
		}
	}
	return n;
}

static void add_gpus(struct building *building)
{
	const struct mc_groups *groups = building->daemon->groups;
	const struct mc_arm_gpu *gpus;
	uint32_t n = building->daemon->cuda_started ? mc_cuda_gpus(&gpus) : 0;

	building->status.gpus = alloc(building, (n + 1) * sizeof(*building->status.gpus));
	if (!building->status.gpus)
		return;
	for (uint32_t i = 0; i < n; i++) {
		Moecomm__Wire__GpuStatus *wire = alloc(building, sizeof(*wire));

		if (!wire)
			return;
		moecomm__wire__gpu_status__init(wire);
		wire->uuid = (char *)gpus[i].uuid;
		wire->name = (char *)gpus[i].name;
		wire->has_arena_bytes = 1;
		wire->n_holder_pid = count_on_gpu(groups, gpus[i].uuid, &wire->arena_bytes, NULL);
		wire->holder_pid =
			alloc(building, (wire->n_holder_pid + 1) * sizeof(*wire->holder_pid));
		if (!wire->holder_pid)
			return;
		count_on_gpu(groups, gpus[i].uuid, &wire->arena_bytes, wire->holder_pid);
		if (!fits(building, &wire->base))
			return;
		building->status.gpus[building->status.n_gpus++] = wire;
	}
}

static void add_daemon(struct building *building)
{
	struct mc_daemon *daemon = building->daemon;
	Moecomm__Wire__Status *status = &building->status;

	status->version = (char *)mc_version_string();
	status->backend = (char *)daemon->backend->name;
	status->uptime_ms = building->now_ms - daemon->start_ms;
	status->instance.data = daemon->instance;
	status->instance.len = sizeof(daemon->instance);
	status->has_pid = status->has_total_groups = status->has_total_clients = 1;
	status->has_arena_bytes = 1;
	status->pid = (uint32_t)getpid();
	status->socket = daemon->config.socket;
	status->total_groups = HASH_COUNT(daemon->groups->by_name);
	status->total_clients = daemon->n_conns;
	status->arena_bytes = daemon->groups->arena_bytes;
	status->not_ready = (char *)daemon->not_ready;
}

void mc_handle_status(
	struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__StatusRequest *request)
{
	struct mc_daemon *daemon = conn->daemon;
	struct building building = {
		.daemon = daemon, .now_ms = mc_now_ms(), .with_ranks = request->ranks};
	struct mc_group *group, *next;

	moecomm__wire__status__init(&building.status);
	if (request->group && *request->group) {
		group = mc_group_find(daemon->groups, request->group);
		if (!group) {
			mc_conn_done(conn, serial, MC_STATUS_NOT_FOUND, "there is no group %.*s",
				(int)MC_LIMIT_NAME_BYTES, request->group);
			return;
		}
		building.status.groups = alloc(&building, sizeof(*building.status.groups));
		if (building.status.groups)
			add_group(&building, group);
	} else {
		building.status.groups =
			alloc(&building, (HASH_COUNT(daemon->groups->by_name) + 1) *
						 sizeof(*building.status.groups));
		if (building.status.groups) {
			HASH_ITER (hh, daemon->groups->by_name, group, next) {
				if (!add_group(&building, group))
					break;
			}
		}
	}
	if (request->clients)
		add_clients(&building);
	add_gpus(&building);
	add_daemon(&building);
	if (building.out_of_memory)
		mc_conn_done(conn, serial, MC_STATUS_NO_MEMORY, "the daemon is out of memory");
	else
		mc_conn_send(conn, MC_FRAME_STATUS, serial, &building.status.base, NULL, 0);
	mc_scratch_clear(&building.scratch);
}
