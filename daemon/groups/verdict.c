/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/groups/verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>
#include "daemon/conn.h"
#include "daemon/groups/group.h"

static void forget(struct mc_verdicts *verdicts, struct mc_verdict *verdict)
{
	DL_DELETE(verdicts->list, verdict);
	verdicts->n--;
	free(verdict);
}

static struct mc_verdict *find(struct mc_verdicts *verdicts, const char *group)
{
	struct mc_verdict *verdict;

	DL_FOREACH (verdicts->list, verdict)
		if (!strcmp(verdict->group, group))
			return verdict;
	return NULL;
}

void mc_verdict_keep(struct mc_verdicts *verdicts, const struct mc_epoch *epoch, uint32_t status,
	const char *detail, uint64_t now_ms)
{
	struct mc_verdict *verdict = find(verdicts, epoch->group->name);
	const struct mc_member *member;

	if (verdict)
		forget(verdicts, verdict);
	if (verdicts->n >= MC_MAX_VERDICTS)
		forget(verdicts, verdicts->list);
	verdict = calloc(1, sizeof(*verdict));
	if (!verdict)
		return;
	snprintf(verdict->group, sizeof(verdict->group), "%s", epoch->group->name);
	snprintf(verdict->detail, sizeof(verdict->detail), "%s", detail);
	verdict->status = status;
	verdict->spec = epoch->spec;
	verdict->expires_ms = now_ms + epoch->spec.join_timeout_ms;
	for (uint32_t r = 0; r < epoch->spec.world_size; r++) {
		member = epoch->member[r];
		if (!member)
			continue;
		verdict->rank[r].told = true;
		verdict->rank[r].pid = member->pid;
		verdict->rank[r].uid = member->uid;
		verdict->rank[r].conn_id = member->conn ? member->conn->id : 0;
	}
	DL_APPEND(verdicts->list, verdict);
	verdicts->n++;
}

const struct mc_verdict *mc_verdict_retry(struct mc_verdicts *verdicts, const char *group,
	uint32_t rank, const struct mc_spec *spec, const struct mc_conn *conn, uint64_t now_ms)
{
	struct mc_verdict *verdict = find(verdicts, group);
	const char *field;
	char a[160], b[160];
	bool same_process;

	if (!verdict)
		return NULL;
	if (now_ms < verdict->expires_ms && verdict->rank[rank].told &&
		!mc_spec_differs(&verdict->spec, spec, &field, a, b, sizeof(a))) {
		/* a pid of 0 is a process that our pid namespace can't see */
		same_process = conn->pid && conn->pid == verdict->rank[rank].pid;
		if (verdict->rank[rank].uid == conn->uid &&
			(same_process || verdict->rank[rank].conn_id == conn->id))
			return verdict;
	}
	forget(verdicts, verdict);
	return NULL;
}

void mc_verdicts_clear(struct mc_verdicts *verdicts)
{
	while (verdicts->list)
		forget(verdicts, verdicts->list);
}
