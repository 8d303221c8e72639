/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/backends/module.h"
#include "client/control.h"
#include "client/options.h"

#define OP_TIMEOUT_MS     10000
#define WARMUP_TIMEOUT_MS 120000
#define WARMUP_CALLS      16
#define JOIN_TIMEOUT_MS   60000
#define PROBE_TIMEOUT_MS  10000

/* How long a leave or rejoin waits for this rank's own ops, and for unmapping; within the 5 s. */
#define LEAVE_MS  3000
#define REJOIN_MS 2000
/* How long a leaving rank waits to hear that the daemon knows. */
#define LEAVE_ANSWER_MS 1000

bool mc_group_usable(const moecomm_group *group)
{
	if (!group) {
		mc_error(MOECOMM_INVALID, "the group is NULL");
		return false;
	}
	if (group->generation != mc_context_generation()) {
		mc_error(MOECOMM_INVALID,
			"group %s was joined by the parent of this process: connect and join after "
			"the fork",
			group->name);
		return false;
	}
	return true;
}

/* ---- checking what was asked for ---- */

static bool name_ok(const char *name, bool may_be_empty)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-";
	size_t n = strlen(name);

	return n <= MC_LIMIT_NAME_BYTES && (n || may_be_empty) && strspn(name, letters) == n;
}

static bool timeout_ok(int value)
{
	return value >= 0 && (unsigned)value <= MC_LIMIT_TIMEOUT_MS;
}

static enum moecomm_status check_names(const struct moecomm_group_options *o)
{
	if (!o->name || !name_ok(o->name, false))
		return mc_error(MOECOMM_INVALID,
			"the group's name must be 1 to %u bytes of [A-Za-z0-9._:-]",
			MC_LIMIT_NAME_BYTES);
	if (o->job && !name_ok(o->job, true))
		return mc_error(MOECOMM_INVALID,
			"the job must be at most %u bytes of [A-Za-z0-9._:-]", MC_LIMIT_NAME_BYTES);
	if (o->world_size < 1 || o->world_size > (int)MC_MAX_WORLD_SIZE)
		return mc_error(MOECOMM_INVALID, "world_size is %d: it must be 1 to %u",
			o->world_size, MC_MAX_WORLD_SIZE);
	if (o->rank < 0 || o->rank >= o->world_size)
		return mc_error(MOECOMM_INVALID,
			"rank is %d: with world_size %d it must be 0 to %d", o->rank, o->world_size,
			o->world_size - 1);
	return MOECOMM_OK;
}

static enum moecomm_status check_choices(const struct moecomm_group_options *o)
{
	if ((unsigned)o->backend > MOECOMM_BACKEND_CUDA)
		return mc_error(MOECOMM_INVALID,
			"backend is %d: it must be one of enum moecomm_backend", (int)o->backend);
	if (o->path == MOECOMM_PATH_NCCL)
		return mc_error(MOECOMM_UNSUPPORTED, "the nccl path is not in this release");
	if ((unsigned)o->path > MOECOMM_PATH_NCCL)
		return mc_error(MOECOMM_INVALID, "path is %d: it must be one of enum moecomm_path",
			(int)o->path);
	if (o->device < -1)
		return mc_error(MOECOMM_INVALID,
			"device is %d: it must be an ordinal, or -1 for the current device",
			o->device);
	if (o->shared_gpu != 0 && o->shared_gpu != 1)
		return mc_error(
			MOECOMM_INVALID, "shared_gpu is %d: it must be 0 or 1", o->shared_gpu);
	if (!timeout_ok(o->op_timeout_ms) || !timeout_ok(o->warmup_timeout_ms) ||
		!timeout_ok(o->join_timeout_ms) || !timeout_ok(o->probe_timeout_ms))
		return mc_error(MOECOMM_INVALID, "a timeout is negative or above %u ms",
			MC_LIMIT_TIMEOUT_MS);
	if (o->warmup_calls < 0)
		return mc_error(MOECOMM_INVALID, "warmup_calls is %d: it must be at least 0",
			o->warmup_calls);
	if (o->n_allow_uid < 0 || o->n_allow_uid > (int)MC_LIMIT_ACL_ENTRIES ||
		o->n_allow_gid < 0 || o->n_allow_gid > (int)MC_LIMIT_ACL_ENTRIES)
		return mc_error(MOECOMM_INVALID,
			"allow_uid and allow_gid take 0 to %u entries each", MC_LIMIT_ACL_ENTRIES);
	if ((o->n_allow_uid && !o->allow_uid) || (o->n_allow_gid && !o->allow_gid))
		return mc_error(
			MOECOMM_INVALID, "allow_uid or allow_gid is NULL, but its count is not 0");
	return MOECOMM_OK;
}

static enum moecomm_status check_sizes(const struct moecomm_group_options *o,
	struct mc_layout_spec *ret_spec, struct mc_layout *ret_layout)
{
	int r;

	if (o->n_channels < 0 || o->max_rows < 0 || o->dispatch_row_bytes < 0 ||
		o->combine_row_bytes < 0)
		return mc_error(MOECOMM_INVALID, "n_channels, max_rows, dispatch_row_bytes and "
						 "combine_row_bytes must not be negative");
	*ret_spec = (struct mc_layout_spec){
		.world_size = (uint32_t)o->world_size,
		.n_channels = o->n_channels ? (uint32_t)o->n_channels : 1,
		.max_rows = (uint64_t)o->max_rows,
		.dispatch_row_bytes = (uint64_t)o->dispatch_row_bytes,
		.combine_row_bytes = (uint64_t)o->combine_row_bytes,
	};
	r = mc_layout_make(ret_spec, ret_layout);
	if (r)
		return mc_error(r == MC_LAYOUT_E_TOO_LARGE ? MOECOMM_TOO_LARGE : MOECOMM_INVALID,
			"%s", mc_layout_error_text(r));
	return MOECOMM_OK;
}

/* ---- making a group ---- */

static moecomm_group *group_free(moecomm_group *group)
{
	if (!group)
		return NULL;
	if (group->mapping)
		group->ops->close(group->mapping);
	pthread_cond_destroy(&group->ended);
	pthread_mutex_destroy(&group->lock);
	free(group->allow_uid);
	free(group->allow_gid);
	free(group);
	return NULL;
}

static uint32_t *copy_ids(const uint32_t *ids, int n)
{
	uint32_t *copy = malloc(sizeof(*copy) * (size_t)(n ? n : 1));

	if (copy && n)
		memcpy(copy, ids, sizeof(*copy) * (size_t)n);
	return copy;
}

static uint32_t value_or(int value, uint32_t otherwise)
{
	return value ? (uint32_t)value : otherwise;
}

static moecomm_group *group_new(moecomm_context *context, const struct moecomm_group_options *o)
{
	moecomm_group *group = aligned_alloc(_Alignof(moecomm_group), sizeof(*group));
	pthread_condattr_t attributes;

	if (!group)
		return NULL;
	memset(group, 0, sizeof(*group));
	pthread_mutex_init(&group->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&group->ended, &attributes);
	pthread_condattr_destroy(&attributes);
	group->context = context;
	group->generation = context->generation;
	snprintf(group->name, sizeof(group->name), "%s", o->name);
	snprintf(group->job, sizeof(group->job), "%s", o->job ? o->job : "");
	group->rank = (uint32_t)o->rank;
	group->world_size = (uint32_t)o->world_size;
	group->path_override = o->path;
	group->shared_gpu = o->shared_gpu == 1;
	group->op_timeout_ms = value_or(o->op_timeout_ms, OP_TIMEOUT_MS);
	group->warmup_timeout_ms = value_or(o->warmup_timeout_ms, WARMUP_TIMEOUT_MS);
	group->warmup_calls = value_or(o->warmup_calls, WARMUP_CALLS);
	group->join_timeout_ms = value_or(o->join_timeout_ms, JOIN_TIMEOUT_MS);
	group->probe_timeout_ms = value_or(o->probe_timeout_ms, PROBE_TIMEOUT_MS);
	group->allow_uid = copy_ids(o->allow_uid, o->n_allow_uid);
	group->allow_gid = copy_ids(o->allow_gid, o->n_allow_gid);
	group->n_allow_uid = (uint32_t)o->n_allow_uid;
	group->n_allow_gid = (uint32_t)o->n_allow_gid;
	/* ops on a handle that is not ready yet can only come from a mistaken program */
	mc_verdict_set(&group->verdict, MOECOMM_STALE_EPOCH, -1, 0, "group %s is in no epoch yet",
		group->name);
	atomic_store(&group->failed, MOECOMM_STALE_EPOCH);
	if (!group->allow_uid || !group->allow_gid)
		return group_free(group);
	return group;
}

static enum moecomm_status open_backend(
	moecomm_group *group, enum moecomm_backend wanted, int device)
{
	struct mc_backend_error error = {""};
	enum moecomm_status status;

	pthread_mutex_lock(&group->context->lock);
	/* while the daemon is away this is what it served last, which decides nothing yet */
	group->backend = wanted == MOECOMM_BACKEND_AUTO ? group->context->link.backend : wanted;
	pthread_mutex_unlock(&group->context->lock);
	status = mc_module_find(group->backend, &group->ops, &error);
	if (status == MOECOMM_OK)
		status = (enum moecomm_status)group->ops->open(device, &group->mapping, &error);
	if (status != MOECOMM_OK)
		return mc_error(status, "%s", error.text);
	return MOECOMM_OK;
}

static void list_add(moecomm_group *group)
{
	pthread_mutex_lock(&group->context->lock);
	group->next = group->context->groups;
	group->context->groups = group;
	pthread_mutex_unlock(&group->context->lock);
}

static void list_remove(moecomm_group *group)
{
	moecomm_group **at = &group->context->groups;

	pthread_mutex_lock(&group->context->lock);
	while (*at && *at != group)
		at = &(*at)->next;
	if (*at)
		*at = group->next;
	pthread_mutex_unlock(&group->context->lock);
}

enum moecomm_status moecomm_group_join(moecomm_context *context,
	const struct moecomm_group_options *options, moecomm_group **ret_group)
{
	struct mc_layout_spec spec;
	struct mc_layout layout;
	enum moecomm_status status;
	moecomm_group *group;

	if (!context || !options || !ret_group)
		return mc_error(MOECOMM_INVALID, "moecomm_group_join: %s is NULL",
			!context   ? "context"
			: !options ? "options"
				   : "ret_group");
	if (context->generation != mc_context_generation())
		return mc_error(MOECOMM_INVALID, "the context belongs to the parent of this "
						 "process: connect after the fork");
	if (!mc_options_size_ok(options, options->size, sizeof(*options)))
		return mc_error(MOECOMM_INVALID,
			"moecomm_group_join: options.size is %zu: start from "
			"MOECOMM_GROUP_OPTIONS_INIT",
			options->size);
	status = check_names(options);
	if (status == MOECOMM_OK)
		status = check_choices(options);
	if (status == MOECOMM_OK)
		status = check_sizes(options, &spec, &layout);
	if (status != MOECOMM_OK)
		return status;
	group = group_new(context, options);
	if (!group)
		return mc_error(MOECOMM_NO_MEMORY, "out of memory");
	group->spec = spec;
	group->layout = layout;
	status = open_backend(group, options->backend, options->device);
	if (status == MOECOMM_OK) {
		list_add(group);
		status = mc_membership_enter(group);
		if (status != MOECOMM_OK)
			list_remove(group);
	}
	if (status != MOECOMM_OK) {
		group_free(group);
		return status;
	}
	*ret_group = group;
	return MOECOMM_OK;
}

/* ---- later life ---- */

/* Without a daemon that knows the epoch nobody else would tell the others that it ends. */
static void end_for_all(moecomm_group *group)
{
	struct mc_verdict verdict;

	if (atomic_load(&group->daemon_connected))
		return;
	mc_verdict_set(&verdict, MOECOMM_STALE_EPOCH, (int)group->rank, 0,
		"rank %u has left epoch %llu of group %s for the next one", group->rank,
		(unsigned long long)group->ready_epoch, group->name);
	mc_group_fail(group, mc_group_life(group), &verdict, group->rank + 1);
}

enum moecomm_status moecomm_group_rejoin(moecomm_group *group)
{
	enum moecomm_status status;

	if (!mc_group_usable(group))
		return MOECOMM_INVALID;
	if (atomic_exchange(&group->changing, true))
		return mc_error(MOECOMM_BUSY, "another thread is rejoining group %s", group->name);
	/* no Leave: a Join of a member ends the epoch for all and replaces the membership in one
	 * step */
	end_for_all(group);
	if (!mc_membership_end(group, REJOIN_MS)) {
		atomic_store(&group->changing, false);
		return mc_error(
			MOECOMM_BUSY, "an op of this rank is still running on another thread");
	}
	status = mc_membership_enter(group);
	if (status != MOECOMM_OK) {
		pthread_mutex_lock(&group->lock);
		mc_verdict_set(&group->verdict, status, -1, 0, "the rejoin failed: %.480s",
			moecomm_last_error());
		atomic_store(&group->failed, status);
		pthread_mutex_unlock(&group->lock);
	}
	atomic_store(&group->changing, false);
	return status;
}

void mc_group_leave_within(moecomm_group *group, int timeout_ms)
{
	bool idle = mc_membership_end(group, timeout_ms);

	mc_membership_leave(group, timeout_ms > 0 ? LEAVE_ANSWER_MS : 0);
	list_remove(group);
	/* an op that ignores the abort word still reads the mapping: leaking it is the lesser harm
	 */
	if (idle)
		group_free(group);
}

moecomm_group *moecomm_group_leave(moecomm_group *group)
{
	/* in a forked child neither the memory nor the membership is this process's to end */
	if (group && group->generation == mc_context_generation())
		mc_group_leave_within(group, LEAVE_MS);
	return NULL;
}

enum moecomm_status moecomm_group_abort(moecomm_group *group, const char *reason)
{
	Moecomm__Wire__Abort abort_message = MOECOMM__WIRE__ABORT__INIT;
	char text[MC_LIMIT_DETAIL_BYTES / 4];
	struct mc_verdict verdict;
	uint64_t life;

	if (!mc_group_usable(group))
		return MOECOMM_INVALID;
	/* before it is known to live: a rejoin meanwhile makes it another epoch */
	life = mc_group_life(group);
	if (atomic_load(&group->failed))
		return MOECOMM_OK;
	snprintf(text, sizeof(text), "%s", reason ? reason : "");
	mc_codec_text_fit(text, sizeof(text) - 1);
	mc_verdict_set(&verdict, MOECOMM_ABORTED, (int)group->rank, 0,
		"the group was aborted by this rank (%u)%s%s", group->rank, *text ? ": " : "",
		text);
	/* the board first: it works without a daemon */
	if (!mc_group_fail(group, life, &verdict, group->rank + 1))
		return MOECOMM_OK;
	pthread_mutex_lock(&group->context->lock);
	abort_message.member_id = group->member_id;
	pthread_mutex_unlock(&group->context->lock);
	abort_message.has_member_id = 1;
	abort_message.reason = *text ? text : NULL;
	if (abort_message.member_id)
		mc_control_post(group->context, MC_FRAME_ABORT, &abort_message.base);
	return MOECOMM_OK;
}

enum moecomm_status moecomm_group_set_deadlines(
	moecomm_group *group, int op_timeout_ms, int warmup_timeout_ms, int warmup_calls)
{
	Moecomm__Wire__SetDeadlines set = MOECOMM__WIRE__SET_DEADLINES__INIT;
	struct mc_reply reply = {0};
	enum moecomm_status status;

	if (!mc_group_usable(group))
		return MOECOMM_INVALID;
	if (!timeout_ok(op_timeout_ms) || !timeout_ok(warmup_timeout_ms) || warmup_calls < 0)
		return mc_error(MOECOMM_INVALID,
			"a deadline is negative or above %u ms, or warmup_calls is negative",
			MC_LIMIT_TIMEOUT_MS);
	pthread_mutex_lock(&group->context->lock);
	set.member_id = group->member_id;
	pthread_mutex_unlock(&group->context->lock);
	if (!set.member_id)
		return mc_error(MOECOMM_NOT_FOUND,
			"the daemon does not know this membership of group %s any more: rejoin",
			group->name);
	set.has_member_id = 1;
	set.has_op_timeout_ms = op_timeout_ms > 0;
	set.op_timeout_ms = (uint32_t)op_timeout_ms;
	set.has_warmup_timeout_ms = warmup_timeout_ms > 0;
	set.warmup_timeout_ms = (uint32_t)warmup_timeout_ms;
	set.has_warmup_calls = warmup_calls > 0;
	set.warmup_calls = (uint32_t)warmup_calls;
	status = mc_control_request(
		group->context, MC_FRAME_SET_DEADLINES, &set.base, NULL, PROBE_TIMEOUT_MS, &reply);
	if (status == MOECOMM_OK)
		mc_reply_clear(&reply);
	return status;
}
