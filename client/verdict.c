/* SPDX-License-Identifier: Apache-2.0 */
/* How an epoch ends for this rank: whoever tells it first, an op, a Notice or this program. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/control.h"
#include "client/inject.h"
#include "proto/status.h"

/*
 * An op that leaves because the daemon said so waits this long for the Notice, which names the
 * rank; the daemon sends it in the same breath.
 */
#define NOTICE_MS 400

void mc_verdict_set(struct mc_verdict *verdict, enum moecomm_status status, int rank, uint64_t call,
	const char *format, ...)
{
	va_list args;

	verdict->status = status;
	verdict->rank = rank;
	verdict->call = call;
	va_start(args, format);
	vsnprintf(verdict->detail, sizeof(verdict->detail), format, args);
	va_end(args);
}

/* Faults that the data plane knows travel as they are; it takes any other cause as an abort. */
static uint32_t data_plane_status(enum moecomm_status status)
{
	return status >= MOECOMM_PEER_LOST && status <= MOECOMM_CORRUPT
		       ? (uint32_t)status
		       : (uint32_t)MC_FAULT_ABORTED;
}

/* Makes ops leave; with group->lock held. */
static void stop_ops(struct moecomm_group *group, enum moecomm_status status, uint32_t reporter)
{
	uint32_t none = 0;

	if (!group->mapped)
		return;
	/* on the board too: the daemon may be gone before it could */
	__atomic_compare_exchange_n(&group->board->wait.abort_word, &none,
		mc_abort_word(data_plane_status(status), reporter), false, __ATOMIC_ACQ_REL,
		__ATOMIC_ACQUIRE);
	group->ops->poison(group->mapping, data_plane_status(status));
}

uint64_t mc_group_life(struct moecomm_group *group)
{
	uint64_t life;

	pthread_mutex_lock(&group->lock);
	life = group->life;
	pthread_mutex_unlock(&group->lock);
	return life;
}

bool mc_group_fail(struct moecomm_group *group, uint64_t life, const struct mc_verdict *verdict,
	uint32_t reporter)
{
	struct mc_verdict *mine = &group->verdict;
	bool first;

	pthread_mutex_lock(&group->lock);
	if (group->life != life) {
		pthread_mutex_unlock(&group->lock);
		return false;
	}
	first = mine->status == MOECOMM_OK;
	if (first) {
		*mine = *verdict;
		atomic_store(&group->failed, verdict->status);
	} else if (mine->status == verdict->status && mine->rank < 0 && verdict->rank >= 0) {
		mine->rank = verdict->rank;
		memcpy(mine->detail, verdict->detail, sizeof(mine->detail));
	}
	stop_ops(group, verdict->status, reporter);
	pthread_cond_broadcast(&group->ended);
	pthread_mutex_unlock(&group->lock);
	if (first)
		mc_log("group %s, rank %u: epoch %llu has ended: %s: %s", group->name, group->rank,
			(unsigned long long)group->ready_epoch, mc_status_name(verdict->status),
			verdict->detail);
	return first;
}

/* The abort word if it is news; with group->lock held. */
static uint32_t unmet_word(const struct moecomm_group *group)
{
	if (!group->mapped || group->phase != MC_GROUP_PHASE_MEMBER ||
		group->verdict.status != MOECOMM_OK)
		return 0;
	return __atomic_load_n(&group->board->wait.abort_word, __ATOMIC_ACQUIRE);
}

void mc_group_notice(struct moecomm_group *group, const struct mc_verdict *verdict)
{
	struct mc_verdict cause = {.status = MOECOMM_OK};
	enum mc_group_phase phase;
	uint64_t life;
	uint32_t word;

	pthread_mutex_lock(&group->lock);
	phase = group->phase;
	life = group->life;
	if (phase == MC_GROUP_PHASE_JOINING) {
		if (group->join_notice.status == MOECOMM_OK)
			group->join_notice = *verdict;
		/* ends a probe that waits for a peer in vain */
		stop_ops(group, verdict->status, 0);
	}
	/* a daemon that was away hears first that a rank left, which did so because of what stands
	 * on the board */
	word = verdict->status == MOECOMM_LEFT ? unmet_word(group) : 0;
	if (word && mc_abort_reporter(word) != 0 && mc_abort_status(word) != MOECOMM_LEFT) {
		mc_fault_explain_abort(group, word, &cause);
		verdict = &cause;
	}
	pthread_mutex_unlock(&group->lock);
	if (phase == MC_GROUP_PHASE_MEMBER)
		mc_group_fail(group, life, verdict, 0);
}

void mc_group_probe_lost(struct moecomm_group *group, const char *why)
{
	pthread_mutex_lock(&group->lock);
	if (group->phase == MC_GROUP_PHASE_JOINING && group->mapped) {
		if (group->join_notice.status == MOECOMM_OK)
			mc_verdict_set(&group->join_notice, MOECOMM_UNREACHABLE, -1, 0,
				"the daemon went away while group %s formed: %.300s", group->name,
				why);
		stop_ops(group, MOECOMM_UNREACHABLE, 0);
	}
	pthread_mutex_unlock(&group->lock);
}

enum moecomm_status mc_group_explain(struct moecomm_group *group)
{
	char detail[sizeof(group->verdict.detail)];
	enum moecomm_status status;

	pthread_mutex_lock(&group->lock);
	status = group->verdict.status;
	memcpy(detail, group->verdict.detail, sizeof(detail));
	pthread_mutex_unlock(&group->lock);
	if (status == MOECOMM_OK)
		return mc_error(MOECOMM_STALE_EPOCH, "group %s is in no epoch", group->name);
	return mc_error(status, "%s", detail);
}

/* Waits for a verdict that somebody else is about to give. */
static void await_verdict(struct moecomm_group *group)
{
	struct timespec at = mc_clock_timespec(mc_clock_ms() + NOTICE_MS);

	pthread_mutex_lock(&group->lock);
	while (group->verdict.status == MOECOMM_OK)
		if (pthread_cond_timedwait(&group->ended, &group->lock, &at) == ETIMEDOUT)
			break;
	pthread_mutex_unlock(&group->lock);
}

static void tell_daemon(struct moecomm_group *group, const struct mc_verdict *verdict)
{
	Moecomm__Wire__OpFailed failed = MOECOMM__WIRE__OP_FAILED__INIT;
	char detail[sizeof(verdict->detail)];

	pthread_mutex_lock(&group->context->lock);
	failed.member_id = group->member_id;
	pthread_mutex_unlock(&group->context->lock);
	if (!failed.member_id)
		return;
	failed.status = verdict->status;
	failed.has_peer = verdict->rank >= 0;
	failed.peer = failed.has_peer ? (uint32_t)verdict->rank : 0;
	/* a backend's text may quote a driver */
	snprintf(detail, sizeof(detail), "%s", verdict->detail);
	failed.detail = mc_codec_text_fit(detail, sizeof(detail) - 1);
	mc_control_post(group->context, MC_FRAME_OP_FAILED, &failed.base);
}

/* Whether the daemon knows more than the board: who or why, beside that it is over. */
static bool daemon_knows_more(
	const struct moecomm_group *group, const struct mc_fault *fault, uint32_t abort_word)
{
	uint32_t reporter = mc_abort_reporter(abort_word);

	return abort_word && atomic_load(&group->daemon_connected) &&
	       (fault->status == MC_FAULT_ABORTED ||
		       (fault->status == MC_FAULT_PEER_LOST && reporter == fault->peer + 1u) ||
		       (reporter == 0 && fault->peer >= group->world_size));
}

enum moecomm_status mc_group_op_failed(
	struct moecomm_group *group, const struct mc_fault *fault, const char *backend_text)
{
	uint32_t word = __atomic_load_n(&group->board->wait.abort_word, __ATOMIC_ACQUIRE);
	uint32_t reporter = mc_abort_reporter(word);
	struct mc_verdict verdict;

	if (daemon_knows_more(group, fault, word))
		await_verdict(group);
	/* the data plane knows no leaving: to it that is one way to be aborted */
	if (fault->status == MC_FAULT_ABORTED && mc_abort_status(word) == MOECOMM_LEFT &&
		reporter >= 1 && reporter <= group->world_size)
		mc_verdict_set(&verdict, MOECOMM_LEFT, (int)reporter - 1, fault->call,
			"rank %u has left group %s", reporter - 1, group->name);
	else
		mc_fault_explain(group, fault, group->rank, backend_text, &verdict);
	/* the op holds its channel: until it lets go there is no other life */
	if (mc_group_fail(group, mc_group_life(group), &verdict, group->rank + 1))
		tell_daemon(group, &verdict);
	return mc_group_explain(group);
}

void mc_group_look_at_board(struct moecomm_group *group, bool tell)
{
	struct mc_verdict verdict = {.status = MOECOMM_OK};
	uint64_t life;
	uint32_t word;

	pthread_mutex_lock(&group->lock);
	word = unmet_word(group);
	pthread_mutex_unlock(&group->lock);
	if (!word)
		return;
	/* as an op does: a verdict from the word alone would say less, and it would stand */
	if (atomic_load(&group->daemon_connected) &&
		(mc_abort_reporter(word) == 0 || mc_abort_status(word) == MC_FAULT_PEER_LOST ||
			data_plane_status((enum moecomm_status)mc_abort_status(word)) ==
				MC_FAULT_ABORTED))
		await_verdict(group);
	pthread_mutex_lock(&group->lock);
	word = unmet_word(group);
	life = group->life;
	if (word)
		mc_fault_explain_abort(group, word, &verdict);
	pthread_mutex_unlock(&group->lock);
	if (!word)
		return;
	mc_client_inject_delay("look_delay_ms");
	if (mc_group_fail(group, life, &verdict, mc_abort_reporter(word)) && tell)
		tell_daemon(group, &verdict);
}
