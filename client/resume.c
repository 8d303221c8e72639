/* SPDX-License-Identifier: Apache-2.0 */
#include "client/resume.h"

#include <string.h>

#include "proto/status.h"

void mc_resume_remember(struct moecomm_group *group, const Moecomm__Wire__Layout *layout)
{
	group->member_id = layout->member_id;
	group->epoch = layout->epoch;
	memset(group->token, 0, sizeof(group->token));
	if (layout->token.len == sizeof(group->token))
		memcpy(group->token, layout->token.data, sizeof(group->token));
	group->attached = true;
	group->resume_serial = 0;
	atomic_store(&group->daemon_connected, true);
}

void mc_resume_lost(moecomm_context *context)
{
	for (struct moecomm_group *group = context->groups; group; group = group->next) {
		group->attached = false;
		group->resume_serial = 0;
		atomic_store(&group->daemon_connected, false);
	}
}

void mc_resume_all(moecomm_context *context)
{
	for (struct moecomm_group *group = context->groups; group; group = group->next) {
		Moecomm__Wire__Resume resume = MOECOMM__WIRE__RESUME__INIT;

		/* none, or one that a rejoin is about to replace */
		if (!group->member_id || !group->epoch)
			continue;
		resume.member_id = group->member_id;
		resume.token.data = group->token;
		resume.token.len = sizeof(group->token);
		resume.group = group->name;
		resume.rank = group->rank;
		resume.epoch = group->epoch;
		if (mc_control_send_locked(
			    context, MC_FRAME_RESUME, &resume.base, &group->resume_serial))
			group->resume_serial = 0;
	}
}

/* Whether a refusal to resume says that the epoch has ended, rather than that nobody knows it. */
static bool ends_epoch(enum moecomm_status status)
{
	switch (status) {
	case MOECOMM_PEER_LOST:
	case MOECOMM_TIMEOUT:
	case MOECOMM_MISMATCH:
	case MOECOMM_ABORTED:
	case MOECOMM_STALE_EPOCH:
	case MOECOMM_DEVICE:
	case MOECOMM_SENTINEL:
	case MOECOMM_CORRUPT:
	case MOECOMM_LEFT:
		return true;
	default:
		return false;
	}
}

void mc_resume_outcome(moecomm_context *context, uint32_t serial, const Moecomm__Wire__Done *done)
{
	enum moecomm_status status = (enum moecomm_status)done->status;
	struct moecomm_group *group = context->groups;
	const char *detail =
		done->detail && *done->detail ? done->detail : mc_status_text(done->status);
	struct mc_verdict verdict;

	while (group && group->resume_serial != serial)
		group = group->next;
	if (!group || !serial)
		return;
	group->resume_serial = 0;
	if (status == MOECOMM_OK) {
		group->attached = true;
		atomic_store(&group->daemon_connected, true);
		mc_log("group %s: the daemon knows rank %u again", group->name, group->rank);
		return;
	}
	mc_log("group %s: the daemon does not take rank %u back: %s: %s", group->name, group->rank,
		mc_status_name(done->status), detail);
	/* the membership goes on without a daemon, which has no part in ops; a rejoin starts afresh
	 */
	group->member_id = 0;
	if (ends_epoch(status)) {
		mc_verdict_set(&verdict, status, -1, 0, "%s", detail);
		mc_group_notice(group, &verdict);
	}
}
