/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the last run left in the fd store, back into groups. Everything is proven first: the state's
 * image, that it is of this boot, and of each epoch that every fd is there once and is what its
 * name says. What does not add up is dropped with a line in the log; where a board is left of it,
 * its ops end with STALE_EPOCH, so that members rejoin instead of relying on us.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/log.h"
#include "daemon/state/adopt.h"
#include "daemon/state/image.h"
#include "daemon/state/prove.h"
#include "daemon/state/state.h"
#include "proto/codec.h"
#include "state.pb-c.h"

struct restoring {
	struct mc_state *state;
	struct mc_groups *groups;
	struct mc_store_entry *entries;
	size_t n_entries;
	unsigned n_resumed, n_dropped;
};

static void close_entry(struct mc_store_entry *entry)
{
	if (entry->fd >= 0)
		close(entry->fd);
	entry->fd = -1;
}

/* ---- the state itself ---- */

static Moecomm__State__State *read_state(
	struct restoring *restoring, const struct mc_store_entry *entry, char *ret_wrong, size_t n)
{
	Moecomm__State__State *state;
	uint8_t *payload;
	size_t n_payload;
	int r = mc_image_read(entry->fd, &payload, &n_payload);

	if (r) {
		snprintf(ret_wrong, n, "%s", r > 0 ? mc_image_error_text(r) : strerror(-r));
		return NULL;
	}
	state = moecomm__state__state__unpack(NULL, n_payload, payload);
	free(payload);
	if (!state) {
		snprintf(ret_wrong, n, "it can't be decoded");
		return NULL;
	}
	if (!strcmp(state->boot_id, restoring->groups->daemon->boot_id) &&
		state->serial == entry->number)
		return state;
	snprintf(ret_wrong, n,
		state->serial == entry->number ? "it is of another boot"
					       : "it is not the one its name tells");
	moecomm__state__state__free_unpacked(state, NULL);
	return NULL;
}

/* The latest one that is intact; all others are closed. */
static Moecomm__State__State *find_state(struct restoring *restoring)
{
	Moecomm__State__State *best = NULL, *state;
	char wrong[128];

	for (size_t i = 0; i < restoring->n_entries; i++) {
		struct mc_store_entry *entry = &restoring->entries[i];

		if (entry->kind != MC_STORE_STATE)
			continue;
		state = read_state(restoring, entry, wrong, sizeof(wrong));
		close_entry(entry);
		if (!state)
			mc_log(LOG_WARNING, "the stored state %s is dropped: %s", entry->name,
				wrong);
		if (state && (!best || state->serial > best->serial)) {
			if (best)
				moecomm__state__state__free_unpacked(best, NULL);
			best = state;
		} else if (state) {
			moecomm__state__state__free_unpacked(state, NULL);
		}
	}
	return best;
}

/* ---- the fds of an epoch ---- */

/*
 * The one fd of that name. The same object twice is one too many, and closed; two objects of one
 * name are proof of nothing.
 */
static struct mc_store_entry *find_fd(struct restoring *restoring, enum mc_store_kind kind,
	uint64_t number, uint32_t rank, const char **ret_wrong)
{
	struct mc_store_entry *found = NULL;

	for (size_t i = 0; i < restoring->n_entries; i++) {
		struct mc_store_entry *entry = &restoring->entries[i];

		if (entry->fd < 0 || entry->kind != kind || entry->number != number ||
			entry->rank != rank)
			continue;
		if (!found) {
			found = entry;
		} else if (mc_prove_same(found->fd, entry->fd)) {
			mc_log(LOG_WARNING, "the stored fd %s is there twice: one is closed",
				entry->name);
			close_entry(entry);
		} else {
			*ret_wrong = "there are two of that name";
			return NULL;
		}
	}
	if (!found)
		*ret_wrong = "it is missing";
	return found;
}

static const char *prove(const struct mc_store_entry *entry, const struct mc_proof *proof)
{
	switch (entry->kind) {
	case MC_STORE_BOARD:
		return mc_prove_board(entry->fd, proof);
	case MC_STORE_CONTROL:
		return mc_prove_control(entry->fd, proof, entry->rank);
	default:
		return mc_prove_arena(entry->fd, proof);
	}
}

/* Finds and proves all fds before any is taken. Returns false and says what is wrong. */
static bool take_memory(struct restoring *restoring, const Moecomm__State__StoredEpoch *stored,
	struct mc_adopt_plan *plan, char *ret_wrong, size_t n_wrong)
{
	static const enum mc_store_kind kinds[] = {MC_STORE_CONTROL, MC_STORE_ARENA};
	struct mc_store_entry *found[1 + 2 * MC_MAX_WORLD_SIZE];
	uint32_t world_size = plan->spec.world_size, n = 1 + 2 * world_size;
	struct mc_proof proof = {
		.epoch = stored->number,
		.world_size = world_size,
		.arena_bytes = stored->arena_bytes,
		.on_host = plan->spec.backend == MC_WIRE_BACKEND_HOST,
	};

	memcpy(&proof.sentinel, stored->sentinel.data, sizeof(proof.sentinel));
	for (uint32_t i = 0; i < n; i++) {
		enum mc_store_kind kind = i ? kinds[(i - 1) % 2] : MC_STORE_BOARD;
		uint32_t rank = i ? (i - 1) / 2 : 0;
		const char *wrong = NULL;
		char name[MC_STORE_NAME_BYTES];

		found[i] = find_fd(restoring, kind, stored->number, rank, &wrong);
		if (found[i])
			wrong = prove(found[i], &proof);
		if (!wrong)
			continue;
		mc_store_name(kind, stored->number, rank, name);
		snprintf(ret_wrong, n_wrong, "the stored fd %s can't be used: %s", name, wrong);
		return false;
	}
	plan->memory.board_fd = found[0]->fd;
	for (uint32_t r = 0; r < world_size; r++) {
		plan->memory.control_fd[r] = found[1 + 2 * r]->fd;
		plan->memory.arena_fd[r] = found[2 + 2 * r]->fd;
	}
	for (uint32_t i = 0; i < n; i++)
		found[i]->fd = -1;
	return true;
}

/* ---- groups ---- */

static bool restore_epoch(struct restoring *restoring, struct mc_group *group,
	const Moecomm__State__StoredEpoch *stored)
{
	struct mc_adopt_plan plan;
	struct mc_log_about about = {.group = group->name, .epoch = stored->number};
	char name[sizeof(group->name)], text[512] = "";
	const char *wrong;

	snprintf(name, sizeof(name), "%s", group->name);
	about.group = name;
	wrong = mc_adopt_check(restoring->groups, stored, &plan);
	if (!wrong && plan.is_live && !take_memory(restoring, stored, &plan, text, sizeof(text)))
		wrong = text;
	if (!wrong)
		wrong = mc_adopt_epoch(group, stored, &plan);
	if (wrong) {
		mc_log_about(LOG_WARNING, &about,
			"epoch %" PRIu64
			" of group %s can't be taken over: %s; its members have to "
			"rejoin",
			stored->number, name, wrong);
		restoring->n_dropped++;
		return false;
	}
	restoring->n_resumed += plan.is_live;
	return true;
}

static void restore_group(struct restoring *restoring, const Moecomm__State__StoredGroup *stored)
{
	struct mc_groups *groups = restoring->groups;
	const char *wrong;
	struct mc_group *group = mc_adopt_group(groups, stored, &wrong);

	if (!group) {
		mc_log(LOG_WARNING,
			"group %.*s can't be taken over: %s; its members have to rejoin",
			(int)MC_LIMIT_NAME_BYTES, stored->name, wrong);
		restoring->n_dropped++;
		return;
	}
	for (size_t i = 0; i < stored->n_epochs && group; i++)
		if (!restore_epoch(restoring, group, stored->epochs[i]))
			/* one that could not be finished takes an empty group with it */
			group = mc_group_find(groups, stored->name);
	if (group && !group->epochs)
		mc_group_discard(group);
}

static void restore_state(struct restoring *restoring, const Moecomm__State__State *stored)
{
	struct mc_groups *groups = restoring->groups;

	restoring->state->serial = stored->serial;
	if (groups->next_member_id < stored->next_member_id)
		groups->next_member_id = stored->next_member_id;
	if (groups->highest_epoch < stored->highest_epoch)
		groups->highest_epoch = stored->highest_epoch;
	for (size_t i = 0; i < stored->n_groups; i++)
		restore_group(restoring, stored->groups[i]);
}

/* ---- what is left over ---- */

static bool is_adopted(struct restoring *restoring, uint64_t number)
{
	struct mc_group *group, *next;
	struct mc_epoch *epoch;

	HASH_ITER (hh, restoring->groups->by_name, group, next)
		for (epoch = group->epochs; epoch; epoch = epoch->next)
			if (epoch->number == number && epoch->is_stored)
				return true;
	return false;
}

/* Puts the store right again after the doubles of a name that we keep were taken out. */
static void put_back(struct restoring *restoring, const struct mc_store_entry *entry)
{
	struct mc_group *group, *next;
	struct mc_epoch *epoch;

	HASH_ITER (hh, restoring->groups->by_name, group, next)
		for (epoch = group->epochs; epoch; epoch = epoch->next)
			if (epoch->number == entry->number && epoch->is_stored)
				mc_store_put(&restoring->state->store, entry->name,
					entry->kind == MC_STORE_BOARD ? epoch->memory.board_fd
					: entry->kind == MC_STORE_CONTROL
						? epoch->memory.control_fd[entry->rank]
						: epoch->memory.arena_fd[entry->rank]);
}

static bool is_double(const struct restoring *restoring, size_t at)
{
	for (size_t i = 0; i < at; i++)
		if (!strcmp(restoring->entries[i].name, restoring->entries[at].name))
			return true;
	return false;
}

static void clear_rest(struct restoring *restoring)
{
	struct mc_store *store = &restoring->state->store;
	uint64_t logged = 0;

	for (size_t i = 0; i < restoring->n_entries; i++) {
		struct mc_store_entry *entry = &restoring->entries[i];
		bool of_epoch = entry->kind != MC_STORE_STATE && entry->kind != MC_STORE_UNKNOWN;
		bool kept = of_epoch && is_adopted(restoring, entry->number);

		if (kept) {
			if (is_double(restoring, i)) {
				mc_store_remove(store, entry->name, 1);
				put_back(restoring, entry);
			} else {
				store->n_fds++;
			}
			close_entry(entry);
			continue;
		}
		if (entry->kind == MC_STORE_UNKNOWN) {
			char shown[MC_STORE_NAME_BYTES];

			memcpy(shown, entry->name, sizeof(shown));
			mc_log(LOG_WARNING, "the stored fd '%s' is none of ours: it is closed",
				mc_codec_text_fit(shown, sizeof(shown) - 1));
		} else if (of_epoch && entry->number != logged) {
			logged = entry->number;
			mc_log(LOG_WARNING,
				"stored memory of epoch %" PRIu64
				" belongs to no group that was taken over: it is closed",
				entry->number);
		}
		if (entry->kind == MC_STORE_BOARD && entry->fd >= 0)
			mc_prove_abort_board(entry->fd, entry->number);
		close_entry(entry);
		if (!is_double(restoring, i) && !(entry->kind == MC_STORE_STATE &&
							entry->number == restoring->state->serial))
			mc_store_remove(store, entry->name, 0);
	}
}

unsigned mc_state_restore(struct mc_state *state, struct mc_store_entry *entries, size_t n_entries)
{
	struct restoring restoring = {
		.state = state,
		.groups = state->daemon->groups,
		.entries = entries,
		.n_entries = n_entries,
	};
	Moecomm__State__State *stored = find_state(&restoring);

	if (stored) {
		restore_state(&restoring, stored);
		moecomm__state__state__free_unpacked(stored, NULL);
		state->store.n_fds++; /* it goes when its successor is there */
	} else {
		mc_log(LOG_WARNING,
			"the service manager kept %zu fds, but no state that can be "
			"used: groups start afresh",
			n_entries);
	}
	clear_rest(&restoring);
	mc_log(LOG_INFO, "took %u running groups over from the last run, dropped %u",
		restoring.n_resumed, restoring.n_dropped);
	return restoring.n_resumed;
}
