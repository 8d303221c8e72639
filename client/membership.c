/* SPDX-License-Identifier: Apache-2.0 */
/* One life of a membership: join, map, probe, vote; and its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/control.h"
#include "client/inject.h"
#include "kernels/host/host.h"
#include "proto/status.h"

/*
 * What a join grants the daemon beyond the deadlines that it keeps itself: arming (a minute by its
 * default settings) and the slowest peer's map and probe, on a loaded machine. It only matters when
 * the daemon hangs: then the caller gets its thread back.
 */
#define ARM_SLACK_MS  75000
#define VOTE_SLACK_MS 20000

static void read_boot_id(char ret_id[64])
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	ret_id[0] = '\0';
	if (!file)
		return;
	if (fgets(ret_id, 64, file))
		ret_id[strcspn(ret_id, "\n")] = '\0';
	fclose(file);
}

static void fill_spec(const struct moecomm_group *group, Moecomm__Wire__GroupSpec *spec)
{
	moecomm__wire__group_spec__init(spec);
	spec->world_size = group->world_size;
	spec->n_channels = group->spec.n_channels;
	spec->max_rows = group->spec.max_rows;
	spec->has_dispatch_row_bytes = 1;
	spec->dispatch_row_bytes = group->spec.dispatch_row_bytes;
	spec->has_combine_row_bytes = 1;
	spec->combine_row_bytes = group->spec.combine_row_bytes;
	spec->backend = group->backend;
	spec->has_path = 1;
	spec->path = group->path_override;
	spec->has_shared_gpu = 1;
	spec->shared_gpu = group->shared_gpu;
	spec->job = (char *)group->job;
	spec->has_op_timeout_ms = 1;
	spec->op_timeout_ms = group->op_timeout_ms;
	spec->has_warmup_timeout_ms = 1;
	spec->warmup_timeout_ms = group->warmup_timeout_ms;
	spec->has_warmup_calls = 1;
	spec->warmup_calls = group->warmup_calls;
	spec->has_join_timeout_ms = 1;
	spec->join_timeout_ms = group->join_timeout_ms;
	spec->has_probe_timeout_ms = 1;
	spec->probe_timeout_ms = group->probe_timeout_ms;
}

static enum moecomm_status join(struct moecomm_group *group, struct mc_reply *ret_reply)
{
	Moecomm__Wire__Join join = MOECOMM__WIRE__JOIN__INIT;
	Moecomm__Wire__GroupSpec spec;
	enum moecomm_status status;
	char boot_id[64];

	read_boot_id(boot_id);
	if (!boot_id[0])
		return mc_error(MOECOMM_SYSTEM,
			"cannot read /proc/sys/kernel/random/boot_id, which tells hosts apart");
	fill_spec(group, &spec);
	join.group = group->name;
	join.rank = group->rank;
	join.spec = &spec;
	join.boot_id = boot_id;
	join.device_uuid = (char *)group->ops->device_uuid(group->mapping);
	join.label = group->context->label;
	join.n_allow_uid = group->n_allow_uid;
	join.allow_uid = group->allow_uid;
	join.n_allow_gid = group->n_allow_gid;
	join.allow_gid = group->allow_gid;
	status = mc_control_request(group->context, MC_FRAME_JOIN, &join.base, group,
		(int64_t)group->join_timeout_ms + mc_client_inject_value("slack_ms", ARM_SLACK_MS),
		ret_reply);
	if (status != MOECOMM_OK)
		return status;
	if (ret_reply->type != MC_FRAME_LAYOUT) {
		mc_error(MOECOMM_PROTOCOL, "the daemon answered Join with %s",
			mc_frame_type_name(ret_reply->type));
		mc_reply_clear(ret_reply);
		return MOECOMM_PROTOCOL;
	}
	return MOECOMM_OK;
}

/* What this rank found out about its pairs. */
struct findings {
	uint8_t result[MC_MAX_WORLD_SIZE]; /* enum mc_probe_result */
	enum moecomm_status status;        /* OK: all pairs are fine */
	struct mc_backend_error error;
};

static void map_and_probe(struct moecomm_group *group, const struct mc_backend_epoch *epoch,
	uint32_t probe_timeout_ms, struct findings *found)
{
	uint32_t peer = UINT32_MAX;

	found->status =
		(enum moecomm_status)group->ops->map(group->mapping, epoch, &peer, &found->error);
	if (found->status != MOECOMM_OK) {
		/* without a peer to blame it is this rank itself that can't take part */
		found->result[peer < group->world_size ? peer : group->rank] = MC_PROBE_IMPORT;
		return;
	}
	pthread_mutex_lock(&group->lock);
	group->mapped = true;
	group->board = group->ops->board(group->mapping);
	pthread_mutex_unlock(&group->lock);
	found->status = (enum moecomm_status)group->ops->probe(
		group->mapping, probe_timeout_ms, found->result, &found->error);
}

/* A peer that wrote nothing: a bad link, or the end of the formation before it could. */
static bool only_silence(const struct moecomm_group *group, const struct findings *found)
{
	for (uint32_t peer = 0; peer < group->world_size; peer++)
		if (found->result[peer] != MC_PROBE_OK && found->result[peer] != MC_PROBE_TIMEOUT)
			return false;
	return true;
}

static enum moecomm_status vote(struct moecomm_group *group, struct findings *found,
	uint32_t probe_timeout_ms, struct mc_reply *ret_reply)
{
	Moecomm__Wire__PairFailure failure[MC_MAX_WORLD_SIZE];
	Moecomm__Wire__PairFailure *failures[MC_MAX_WORLD_SIZE];
	Moecomm__Wire__Vote vote = MOECOMM__WIRE__VOTE__INIT;
	enum moecomm_status status;

	pthread_mutex_lock(&group->context->lock);
	vote.member_id = group->member_id;
	pthread_mutex_unlock(&group->context->lock);
	vote.failures = failures;
	mc_codec_text_fit(found->error.text, sizeof(found->error.text) - 1);
	for (uint32_t peer = 0; peer < group->world_size; peer++) {
		Moecomm__Wire__PairFailure *f = &failure[vote.n_failures];

		if (found->result[peer] == MC_PROBE_OK)
			continue;
		moecomm__wire__pair_failure__init(f);
		f->peer = peer;
		f->result = found->result[peer];
		f->detail = found->error.text;
		failures[vote.n_failures++] = f;
	}
	status = mc_control_request(group->context, MC_FRAME_VOTE, &vote.base, group,
		(int64_t)probe_timeout_ms + mc_client_inject_value("slack_ms", VOTE_SLACK_MS),
		ret_reply);
	if (status == MOECOMM_NOT_FOUND)
		/* the answer of a daemon that has not handed out this Layout */
		status = mc_error(MOECOMM_UNREACHABLE,
			"the daemon was restarted while group %s formed: join again", group->name);
	if (found->status != MOECOMM_OK && status != MOECOMM_OK) {
		char theirs[MC_ERROR_BYTES];

		snprintf(theirs, sizeof(theirs), "%s", moecomm_last_error());
		if (status != MOECOMM_PROBE_FAILED && only_silence(group, found))
			return mc_error(status, "%s (%s)", theirs, found->error.text);
		/* this rank's own account first: it knows the call that failed */
		return mc_error(status == MOECOMM_PROBE_FAILED ? status : found->status, "%s (%s)",
			found->error.text, theirs);
	}
	return status;
}

static enum moecomm_status check_ready(struct moecomm_group *group, const struct mc_reply *reply,
	uint64_t epoch, const struct findings *found)
{
	const Moecomm__Wire__Ready *ready = (const Moecomm__Wire__Ready *)reply->message;

	if (reply->type != MC_FRAME_READY)
		return mc_error(MOECOMM_PROTOCOL, "the daemon answered Vote with %s",
			mc_frame_type_name(reply->type));
	if (ready->epoch != epoch)
		return mc_error(MOECOMM_PROTOCOL,
			"the daemon made epoch %llu ready, but handed out epoch %llu",
			(unsigned long long)ready->epoch, (unsigned long long)epoch);
	if (ready->path != MOECOMM_PATH_LAMPORT)
		return mc_error(MOECOMM_UNSUPPORTED,
			"the group takes path %u, which this library does not have: %s",
			ready->path, ready->reason ? ready->reason : "no reason given");
	if (found->status != MOECOMM_OK)
		return mc_error(MOECOMM_PROTOCOL,
			"the daemon made the group ready against a veto: %s", found->error.text);
	pthread_mutex_lock(&group->lock);
	group->path = MOECOMM_PATH_LAMPORT;
	snprintf(group->path_reason, sizeof(group->path_reason), "%s",
		ready->reason ? ready->reason : "");
	pthread_mutex_unlock(&group->lock);
	return MOECOMM_OK;
}

/* Everything between the Layout and the Ready. */
static enum moecomm_status take_part(struct moecomm_group *group, struct mc_reply *layout)
{
	uint32_t probe_timeout_ms = 0;
	struct findings found = {0};
	struct mc_backend_epoch epoch;
	struct mc_reply reply = {0};
	enum moecomm_status status = mc_layout_check(group, layout, &epoch, &probe_timeout_ms);

	if (status != MOECOMM_OK)
		return status;
	map_and_probe(group, &epoch, probe_timeout_ms, &found);
	mc_reply_clear(layout);
	status = vote(group, &found, probe_timeout_ms, &reply);
	if (status == MOECOMM_OK) {
		status = check_ready(group, &reply, epoch.epoch, &found);
		mc_reply_clear(&reply);
	}
	if (status == MOECOMM_OK) {
		pthread_mutex_lock(&group->lock);
		group->ready_epoch = epoch.epoch;
		group->arena_bytes = epoch.arena_bytes;
		pthread_mutex_unlock(&group->lock);
	}
	return status;
}

static void unmap(struct moecomm_group *group, int timeout_ms)
{
	bool mapped;

	pthread_mutex_lock(&group->lock);
	mapped = group->mapped;
	group->mapped = false;
	group->board = NULL;
	pthread_mutex_unlock(&group->lock);
	if (mapped)
		group->ops->unmap(group->mapping, timeout_ms > 0 ? (uint32_t)timeout_ms : 0);
}

void mc_membership_leave(struct moecomm_group *group, int wait_ms)
{
	Moecomm__Wire__Leave leave = MOECOMM__WIRE__LEAVE__INIT;
	struct mc_reply reply = {0};
	bool connected;

	pthread_mutex_lock(&group->context->lock);
	leave.member_id = group->member_id;
	group->member_id = 0;
	group->epoch = 0;
	group->resume_serial = 0;
	group->attached = false;
	atomic_store(&group->daemon_connected, false);
	connected = group->context->link.fd >= 0;
	pthread_mutex_unlock(&group->context->lock);
	/* a daemon that is away learns it when the connection does not come back */
	if (!leave.member_id || !connected)
		return;
	if (wait_ms <= 0)
		mc_control_post(group->context, MC_FRAME_LEAVE, &leave.base);
	else if (mc_control_request(group->context, MC_FRAME_LEAVE, &leave.base, NULL, wait_ms,
			 &reply) == MOECOMM_OK)
		mc_reply_clear(&reply);
}

enum moecomm_status mc_membership_enter(struct moecomm_group *group)
{
	struct mc_reply layout = {0};
	enum moecomm_status status;
	struct mc_verdict notice;

	pthread_mutex_lock(&group->lock);
	group->phase = MC_GROUP_PHASE_JOINING;
	group->life++;
	group->join_notice.status = MOECOMM_OK;
	pthread_mutex_unlock(&group->lock);

	status = join(group, &layout);
	if (status == MOECOMM_OK) {
		status = take_part(group, &layout);
		mc_reply_clear(&layout);
	}

	pthread_mutex_lock(&group->lock);
	notice = group->join_notice;
	if (status == MOECOMM_OK && notice.status == MOECOMM_OK) {
		group->phase = MC_GROUP_PHASE_MEMBER;
		group->verdict.status = MOECOMM_OK;
		atomic_store(&group->failed, MOECOMM_OK);
	} else {
		group->phase = MC_GROUP_PHASE_OUT;
	}
	pthread_mutex_unlock(&group->lock);
	if (status == MOECOMM_OK && notice.status != MOECOMM_OK)
		status = mc_error(notice.status, "%s", notice.detail);
	if (status != MOECOMM_OK) {
		unmap(group, 0);
		mc_membership_leave(group, 0);
		mc_log("group %s, rank %u: join failed: %s", group->name, group->rank,
			moecomm_last_error());
		return status;
	}
	mc_log("group %s, rank %u of %u: epoch %llu is ready", group->name, group->rank,
		group->world_size, (unsigned long long)group->ready_epoch);
	return MOECOMM_OK;
}

/* Waits for the ops of this rank that run on other threads. */
static bool wait_for_ops(struct moecomm_group *group, int timeout_ms)
{
	int64_t now = mc_clock_ms();
	int64_t give_up = now + timeout_ms, abort_at = now + timeout_ms / 2;
	uint32_t zero = 0;

	for (;;) {
		bool busy = false;

		for (uint32_t i = 0; i < group->spec.n_channels; i++)
			busy |= atomic_load(&group->channel[i].busy);
		if (!busy)
			return true;
		now = mc_clock_ms();
		if (now >= give_up)
			return false;
		if (now >= abort_at && group->board)
			__atomic_compare_exchange_n(&group->board->wait.abort_word, &zero,
				mc_abort_word(MC_FAULT_ABORTED, group->rank + 1), false,
				__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
	}
}

bool mc_membership_end(struct moecomm_group *group, int timeout_ms)
{
	int64_t deadline = mc_clock_ms() + timeout_ms;
	bool idle;

	/* no new op starts from here on; ops in flight may still come to their end */
	pthread_mutex_lock(&group->lock);
	group->phase = MC_GROUP_PHASE_OUT;
	if (group->verdict.status == MOECOMM_OK)
		mc_verdict_set(&group->verdict, MOECOMM_STALE_EPOCH, (int)group->rank, 0,
			"this rank has left epoch %llu of group %s",
			(unsigned long long)group->ready_epoch, group->name);
	atomic_store(&group->failed, group->verdict.status);
	pthread_mutex_unlock(&group->lock);

	idle = wait_for_ops(group, timeout_ms);
	if (idle)
		unmap(group, (int)(deadline - mc_clock_ms()));
	/* what is still said about the epoch is no news */
	pthread_mutex_lock(&group->context->lock);
	group->epoch = 0;
	pthread_mutex_unlock(&group->context->lock);
	return idle;
}
