/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/log.h"
#include "daemon/scratch.h"
#include "daemon/state/image.h"
#include "daemon/state/state.h"
#include "state.pb-c.h"

/* Changes that come together are saved together. */
#define SAVE_AFTER_MS 10u
/* What could not be saved is tried again. */
#define RETRY_AFTER_MS 500u

static struct mc_log_limit save_limit, full_limit;

/* ---- to the message ---- */

static Moecomm__State__StoredMember *member_of(
	struct mc_scratch *scratch, const struct mc_member *member)
{
	Moecomm__State__StoredMember *stored = mc_scratch_alloc(scratch, sizeof(*stored));

	if (!stored)
		return NULL;
	moecomm__state__stored_member__init(stored);
	stored->id = member->id;
	stored->token.data = (uint8_t *)member->token;
	stored->token.len = sizeof(member->token);
	stored->rank = member->rank;
	stored->pid = member->pid;
	stored->start_time = member->start_time;
	stored->uid = member->uid;
	stored->gid = member->gid;
	stored->label = (char *)member->label;
	stored->device_uuid = (char *)member->device_uuid;
	return stored;
}

static void fill_end(struct mc_epoch *epoch, Moecomm__State__StoredEpoch *stored)
{
	stored->has_status = stored->has_ended_ms = 1;
	stored->status = epoch->status;
	stored->ended_ms = epoch->ended_ms;
	stored->has_fault_rank = epoch->fault_rank != MC_NO_RANK;
	stored->fault_rank = epoch->fault_rank;
	stored->detail = epoch->detail;
}

static void fill_drain(struct mc_epoch *epoch, Moecomm__State__StoredEpoch *stored)
{
	stored->left_call = epoch->left_call;
	stored->n_left_call = epoch->spec.n_channels;
	stored->has_n_left = stored->has_last_left_rank = 1;
	stored->n_left = epoch->n_left;
	stored->last_left_rank = epoch->last_left_rank;
}

/* One that a restart can do something with: with memory in the store, or ended and still held. */
static bool is_kept(const struct mc_epoch *epoch)
{
	if (epoch->freeing || !epoch->number || !epoch->n_members)
		return false;
	if (epoch->state == MC_GROUP_READY || epoch->state == MC_GROUP_DRAINING)
		return epoch->is_stored;
	return epoch->state == MC_GROUP_FAILED;
}

static Moecomm__State__StoredEpoch *epoch_of(struct mc_scratch *scratch, struct mc_epoch *epoch)
{
	Moecomm__State__StoredEpoch *stored = mc_scratch_alloc(scratch, sizeof(*stored));
	Moecomm__Wire__GroupSpec *spec = mc_scratch_alloc(scratch, sizeof(*spec));

	if (!stored || !spec)
		return NULL;
	moecomm__state__stored_epoch__init(stored);
	stored->number = epoch->number;
	stored->state = epoch->state;
	mc_spec_to_wire(&epoch->spec, spec);
	stored->spec = spec;
	stored->sentinel.data = (uint8_t *)&epoch->sentinel;
	stored->sentinel.len = sizeof(epoch->sentinel);
	stored->arena_bytes = epoch->memory.arena_bytes;
	stored->started_ms = epoch->started_ms;
	stored->members = mc_scratch_alloc(scratch, epoch->n_members * sizeof(*stored->members));
	if (!stored->members)
		return NULL;
	for (uint32_t r = 0; r < epoch->spec.world_size; r++) {
		if (!epoch->member[r])
			continue;
		stored->members[stored->n_members] = member_of(scratch, epoch->member[r]);
		if (!stored->members[stored->n_members++])
			return NULL;
	}
	if (epoch->state == MC_GROUP_FAILED)
		fill_end(epoch, stored);
	else if (epoch->state == MC_GROUP_DRAINING)
		fill_drain(epoch, stored);
	return stored;
}

/* NULL when out of memory; *ret_any tells whether it has an epoch to keep. */
static Moecomm__State__StoredGroup *group_of(
	struct mc_scratch *scratch, struct mc_group *group, bool *ret_any)
{
	Moecomm__State__StoredGroup *stored = mc_scratch_alloc(scratch, sizeof(*stored));
	struct mc_epoch *epoch;
	unsigned n = 0;

	if (!stored)
		return NULL;
	moecomm__state__stored_group__init(stored);
	stored->name = group->name;
	stored->uid = group->uid;
	stored->gid = group->gid;
	stored->job = group->job;
	stored->allow_uid = group->allow_uid;
	stored->n_allow_uid = group->n_allow_uid;
	stored->allow_gid = group->allow_gid;
	stored->n_allow_gid = group->n_allow_gid;
	stored->last_epoch = group->last_epoch;
	stored->created_ms = group->created_ms;
	DL_FOREACH (group->epochs, epoch)
		n += is_kept(epoch);
	*ret_any = n;
	stored->epochs = mc_scratch_alloc(scratch, n * sizeof(*stored->epochs) + 1);
	if (!stored->epochs)
		return NULL;
	DL_FOREACH (group->epochs, epoch) {
		if (!is_kept(epoch))
			continue;
		stored->epochs[stored->n_epochs] = epoch_of(scratch, epoch);
		if (!stored->epochs[stored->n_epochs++])
			return NULL;
	}
	return stored;
}

static int encode(struct mc_state *state, uint8_t **ret_payload, size_t *ret_bytes)
{
	struct mc_daemon *daemon = state->daemon;
	struct mc_groups *groups = daemon->groups;
	Moecomm__State__State message = MOECOMM__STATE__STATE__INIT;
	struct mc_scratch scratch = {NULL};
	struct mc_group *group, *next;
	uint8_t *payload;
	int r = -ENOMEM;

	message.boot_id = daemon->boot_id;
	message.instance.data = daemon->instance;
	message.instance.len = sizeof(daemon->instance);
	message.serial = state->serial + 1;
	message.next_member_id = groups->next_member_id;
	message.highest_epoch = groups->highest_epoch;
	message.groups = mc_scratch_alloc(
		&scratch, HASH_COUNT(groups->by_name) * sizeof(*message.groups) + 1);
	if (!message.groups)
		goto out;
	HASH_ITER (hh, groups->by_name, group, next) {
		bool any = false;
		Moecomm__State__StoredGroup *stored = group_of(&scratch, group, &any);

		if (!stored)
			goto out;
		if (any)
			message.groups[message.n_groups++] = stored;
	}
	*ret_bytes = moecomm__state__state__get_packed_size(&message);
	payload = malloc(*ret_bytes ? *ret_bytes : 1);
	if (!payload)
		goto out;
	moecomm__state__state__pack(&message, payload);
	*ret_payload = payload;
	r = 0;
out:
	mc_scratch_clear(&scratch);
	return r;
}

/* ---- into the store ---- */

static void on_save(uv_timer_t *timer);

void mc_state_save(struct mc_state *state)
{
	char name[MC_STORE_NAME_BYTES];
	uint8_t *payload = NULL;
	size_t n_payload = 0;
	int fd = -1, r;

	if (!state->store.is_open)
		return;
	uv_timer_stop(&state->save_timer);
	r = encode(state, &payload, &n_payload);
	if (!r)
		r = mc_image_write(payload, n_payload, &fd);
	free(payload);
	if (!r) {
		mc_store_name(MC_STORE_STATE, state->serial + 1, 0, name);
		r = mc_store_put(&state->store, name, fd);
		close(fd);
	}
	if (r) {
		mc_log_limited(&save_limit, LOG_WARNING, NULL,
			"cannot store the state: %s; after a restart of the daemon it stands as "
			"it was before",
			strerror(-r));
		if (state->handles_open)
			uv_timer_start(&state->save_timer, on_save, RETRY_AFTER_MS, 0);
		return;
	}
	state->serial++;
	/* only now: there is never a moment without a state in the store */
	if (state->serial > 1) {
		mc_store_name(MC_STORE_STATE, state->serial - 1, 0, name);
		mc_store_remove(&state->store, name, 1);
	}
	/* what is left to tell is tried again */
	if (!mc_store_settle(&state->store) && state->handles_open)
		uv_timer_start(&state->save_timer, on_save, RETRY_AFTER_MS, 0);
}

static void on_save(uv_timer_t *timer)
{
	mc_state_save(timer->data);
}

void mc_state_changed(struct mc_daemon *daemon)
{
	struct mc_state *state = &daemon->state;

	/* what stops leaves the state as it is for the next run */
	if (!state->handles_open || !state->store.is_open || daemon->stopping)
		return;
	if (!uv_is_active((uv_handle_t *)&state->save_timer))
		uv_timer_start(&state->save_timer, on_save, SAVE_AFTER_MS, 0);
}

/* Board, then control block and arena of each rank; NULL ends it. */
static bool next_fd(const struct mc_epoch *epoch, uint32_t i, enum mc_store_kind *ret_kind,
	uint32_t *ret_rank, int *ret_fd)
{
	if (i > 2 * epoch->spec.world_size)
		return false;
	*ret_rank = i ? (i - 1) / 2 : 0;
	*ret_kind = !i ? MC_STORE_BOARD : i % 2 ? MC_STORE_CONTROL : MC_STORE_ARENA;
	*ret_fd = !i      ? epoch->memory.board_fd
		  : i % 2 ? epoch->memory.control_fd[*ret_rank]
			  : epoch->memory.arena_fd[*ret_rank];
	return true;
}

static void remove_fds(struct mc_state *state, const struct mc_epoch *epoch, uint32_t n)
{
	char name[MC_STORE_NAME_BYTES];
	enum mc_store_kind kind;
	uint32_t rank;
	int fd;

	for (uint32_t i = 0; i < n && next_fd(epoch, i, &kind, &rank, &fd); i++) {
		mc_store_name(kind, epoch->number, rank, name);
		mc_store_remove(&state->store, name, 1);
	}
}

void mc_state_keep(struct mc_epoch *epoch)
{
	struct mc_state *state = &epoch->group->groups->daemon->state;
	char name[MC_STORE_NAME_BYTES];
	enum mc_store_kind kind;
	uint32_t rank, n = 0;
	int fd, r = 0;

	if (!state->store.is_open || !epoch->has_memory)
		return;
	/* two more for the state and its successor */
	if (!mc_store_has_room(&state->store, 2 * epoch->spec.world_size + 3)) {
		mc_log_limited(&full_limit, LOG_WARNING, NULL,
			"the service manager's fd store is full (%u fds): group %s will not "
			"outlive a restart of the daemon; raise FileDescriptorStoreMax= and "
			"FDSTORE=",
			state->store.n_fds, epoch->group->name);
		return;
	}
	while (!r && next_fd(epoch, n, &kind, &rank, &fd)) {
		mc_store_name(kind, epoch->number, rank, name);
		r = mc_store_put(&state->store, name, fd);
		n += !r;
	}
	if (r) {
		mc_log_limited(&save_limit, LOG_WARNING, NULL,
			"cannot store the memory of group %s: %s; it will not outlive a restart of "
			"the daemon",
			epoch->group->name, strerror(-r));
		remove_fds(state, epoch, n);
		return;
	}
	epoch->is_stored = true;
	mc_state_save(state);
}

void mc_state_forget(struct mc_epoch *epoch)
{
	struct mc_daemon *daemon = epoch->group->groups->daemon;

	if (!epoch->is_stored || daemon->stopping)
		return;
	epoch->is_stored = false;
	/* members that still map it keep it alive; nobody can be handed it any more */
	remove_fds(&daemon->state, epoch, UINT32_MAX);
	mc_state_changed(daemon);
}
