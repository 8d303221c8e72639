/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/groups/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/groups/group.h"
#include "daemon/health/health.h"
#include "proto/codec.h"

struct mc_history *mc_history_new(void)
{
	return calloc(1, sizeof(struct mc_history));
}

struct mc_history *mc_history_free(struct mc_history *history)
{
	free(history);
	return NULL;
}

void mc_history_note(struct mc_epoch *epoch, const char *cause, uint64_t now_ms)
{
	struct mc_history *history = epoch->group->groups->history;
	struct mc_event *event = &history->event[history->n_events++ % MC_HISTORY_EVENTS];

	event->at_ms = now_ms;
	event->epoch = epoch->number;
	event->state = epoch->state;
	snprintf(event->group, sizeof(event->group), "%s", epoch->group->name);
	snprintf(event->cause, sizeof(event->cause), "%.*s", (int)sizeof(event->cause) - 1, cause);
	mc_codec_text_fit(event->cause, sizeof(event->cause) - 1);
}

/* Who it was: still a member, or the one that has just been dropped. */
static void note_blamed(struct mc_ending *ending, const struct mc_epoch *epoch, uint32_t rank)
{
	const struct mc_member *member = epoch->member[rank];

	ending->rank = rank;
	if (member) {
		ending->pid = member->pid;
		ending->uid = member->uid;
		snprintf(ending->label, sizeof(ending->label), "%s", member->label);
		snprintf(ending->device_uuid, sizeof(ending->device_uuid), "%s",
			member->device_uuid);
	} else if (epoch->dropped.rank == rank) {
		ending->pid = epoch->dropped.pid;
		ending->uid = epoch->dropped.uid;
		snprintf(ending->label, sizeof(ending->label), "%s", epoch->dropped.label);
		snprintf(ending->device_uuid, sizeof(ending->device_uuid), "%s",
			epoch->dropped.device_uuid);
	}
}

static void note_progress(
	struct mc_ending *ending, struct mc_epoch *epoch, uint32_t rank, uint64_t now_ms)
{
	struct mc_health_view *view = malloc(sizeof(*view));
	const struct mc_rank_view *mine;
	uint32_t worst = 0;

	if (!view)
		return;
	mc_health_look(epoch, now_ms, view);
	mine = &view->rank[rank];
	for (uint32_t c = 1; c < epoch->spec.n_channels; c++)
		if (mine->lag[c] > mine->lag[worst] ||
			(mine->lag[c] == mine->lag[worst] && mine->progress[c].call &&
				mine->age_ms[c] < mine->age_ms[worst]))
			worst = c;
	ending->has_progress = true;
	ending->channel = worst;
	ending->op = mine->progress[worst].op;
	ending->call = mine->progress[worst].call;
	ending->first_call = mine->progress[worst].call + mine->lag[worst];
	ending->op_age_ms = mine->age_ms[worst];
	free(view);
}

void mc_history_end(struct mc_epoch *epoch, uint32_t status, uint32_t fault_rank,
	const char *detail, uint64_t now_ms)
{
	struct mc_history *history = epoch->group->groups->history;
	struct mc_ending *ending = &history->ending[history->n_endings++ % MC_HISTORY_ENDINGS];

	memset(ending, 0, sizeof(*ending));
	ending->at_ms = now_ms;
	ending->epoch = epoch->number;
	ending->status = status;
	ending->was_state = epoch->state;
	ending->world_size = epoch->spec.world_size;
	ending->rank = MC_NO_RANK;
	snprintf(ending->group, sizeof(ending->group), "%s", epoch->group->name);
	snprintf(ending->detail, sizeof(ending->detail), "%s", detail);
	if (epoch->state == MC_GROUP_FORMING)
		for (uint32_t r = 0; r < epoch->spec.world_size; r++)
			if (!epoch->member[r])
				ending->missing |= UINT64_C(1) << r;
	if (fault_rank >= epoch->spec.world_size)
		return;
	note_blamed(ending, epoch, fault_rank);
	if (epoch->board && epoch->health)
		note_progress(ending, epoch, fault_rank, now_ms);
}
