/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/metrics/render.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/health/health.h"
#include "daemon/log.h"
#include "daemon/metrics/exposition.h"
#include "proto/status.h"
#include "proto/version.h"

/* Upper bounds of what a line takes beside the group's name, and of what is not about groups. */
#define LINE_BYTES 112u
#define BASE_BYTES (64u << 10)
/* Lines that each group, each rank and each channel of a rank has. */
#define GROUP_LINES   5u
#define RANK_LINES    1u
#define CHANNEL_LINES 5u

/* One group as it is now. */
struct shown {
	const struct mc_group *group;
	struct mc_epoch *epoch;
	struct mc_health_view *view;
};

struct rendering {
	struct mc_daemon *daemon;
	struct mc_exposition exposition;
	struct shown *shown;
	size_t n_shown;
	uint64_t n_left_out;
};

static const char *const op_names[MC_WAIT_OPS] = {
	[MC_OP_DISPATCH] = "dispatch",
	[MC_OP_COMBINE] = "combine",
	[MC_OP_COMBINE_RMSNORM] = "combine_rmsnorm",
};
static const char *const fallback_names[MC_FALLBACK_N] = {
	[MC_FALLBACK_PROBE_FAILED] = "probe_failed",
	[MC_FALLBACK_OVERRIDE] = "override",
};

static void family(struct rendering *rendering, enum mc_metric_id id)
{
	mc_exposition_family(&rendering->exposition, id);
}

static void single(struct rendering *rendering, enum mc_metric_id id, uint64_t value)
{
	family(rendering, id);
	mc_exposition_number(&rendering->exposition, NULL, value);
}

/* Statuses that were counted, and those that an alert may ask for before the first one happens. */
static void by_status(struct rendering *rendering, enum mc_metric_id id, const char *label,
	const uint64_t *counts, const uint32_t *always, unsigned n_always)
{
	family(rendering, id);
	for (uint32_t status = 1; status < MC_COUNTED_STATUSES; status++) {
		const char *name = mc_status_name(status);
		bool shown = counts[status] != 0;
		char number[16];

		for (unsigned i = 0; i < n_always; i++)
			shown |= always[i] == status;
		if (!shown)
			continue;
		if (!strcmp(name, "UNKNOWN")) {
			snprintf(number, sizeof(number), "%u", status);
			name = number;
		}
		mc_exposition_number(
			&rendering->exposition, MC_LABELS(label, name), counts[status]);
	}
}

static void render_daemon(struct rendering *rendering)
{
	static const uint32_t refusals[] = {
		MC_STATUS_DENIED, MC_STATUS_QUOTA, MC_STATUS_IN_USE, MC_STATUS_PROTOCOL};
	static const uint32_t failures[] = {MC_STATUS_JOIN_TIMEOUT, MC_STATUS_PROBE_FAILED,
		MC_STATUS_PEER_LOST, MC_STATUS_TIMEOUT, MC_STATUS_MISMATCH, MC_STATUS_ABORTED};
	struct mc_daemon *daemon = rendering->daemon;
	struct mc_counters *counters = &daemon->counters;
	uint64_t failed[MC_COUNTED_STATUSES];
	struct timespec now;
	char protocol[32];

	snprintf(protocol, sizeof(protocol), "%u.%u", MC_PROTO_MAJOR, MC_PROTO_MINOR);
	family(rendering, MC_METRIC_BUILD_INFO);
	mc_exposition_number(&rendering->exposition,
		MC_LABELS("version", mc_version_string(), "protocol", protocol, "backend",
			daemon->backend->name),
		1);
	single(rendering, MC_METRIC_READY, !daemon->not_ready);
	clock_gettime(CLOCK_REALTIME, &now);
	single(rendering, MC_METRIC_START_TIME,
		(uint64_t)now.tv_sec - (mc_now_ms() - daemon->start_ms) / 1000u);
	single(rendering, MC_METRIC_CLIENTS, daemon->n_conns);
	single(rendering, MC_METRIC_CONNECTIONS, counters->connections);
	single(rendering, MC_METRIC_REQUESTS, counters->requests);
	by_status(rendering, MC_METRIC_REFUSED, "reason", counters->refused, refusals,
		sizeof(refusals) / sizeof(refusals[0]));
	single(rendering, MC_METRIC_ARENA, daemon->groups->arena_bytes);
	single(rendering, MC_METRIC_EPOCHS_READY, counters->epochs_ready);
	memcpy(failed, counters->epochs_ended, sizeof(failed));
	failed[MC_STATUS_LEFT] = failed[MC_STATUS_SHUTDOWN] = 0; /* in order */
	by_status(rendering, MC_METRIC_FAILURES, "status", failed, failures,
		sizeof(failures) / sizeof(failures[0]));
	single(rendering, MC_METRIC_STALLS, counters->stalls);
	family(rendering, MC_METRIC_FALLBACKS);
	for (unsigned i = 0; i < MC_FALLBACK_N; i++)
		mc_exposition_number(&rendering->exposition, MC_LABELS("reason", fallback_names[i]),
			counters->fallbacks[i]);
}

static void render_waits(struct rendering *rendering)
{
	const struct mc_counters *counters = &rendering->daemon->counters;
	uint64_t bound_ns[MC_WAIT_BUCKETS];

	for (uint32_t i = 0; i < MC_WAIT_BUCKETS; i++)
		bound_ns[i] = (uint64_t)MC_WAIT_BUCKET_NS << 2u * i;
	family(rendering, MC_METRIC_OP_WAIT);
	for (uint32_t op = 0; op < MC_WAIT_OPS; op++)
		if (op_names[op])
			mc_exposition_histogram(&rendering->exposition, "op", op_names[op],
				counters->waits[op].bucket, bound_ns, MC_WAIT_BUCKETS,
				counters->waits[op].sum_ns);
}

static void render_states(struct rendering *rendering)
{
	uint64_t n[MC_GROUP_GONE + 1] = {0};
	const struct mc_group *group;

	for (group = rendering->daemon->groups->by_name; group; group = group->hh.next) {
		uint32_t state = mc_group_newest(group)->state;

		n[state <= MC_GROUP_GONE ? state : MC_GROUP_GONE]++;
	}
	family(rendering, MC_METRIC_GROUPS);
	for (uint32_t state = MC_GROUP_FORMING; state < MC_GROUP_GONE; state++)
		mc_exposition_number(&rendering->exposition,
			MC_LABELS("state", mc_group_state_name(state)), n[state]);
}

static uint32_t n_stalled(const struct shown *shown)
{
	uint32_t n = 0;

	for (uint32_t r = 0; r < shown->epoch->spec.world_size; r++)
		n += shown->view->rank[r].health == MC_HEALTH_STALLED;
	return n;
}

static uint64_t group_value(enum mc_metric_id id, const struct shown *shown)
{
	const struct mc_epoch *epoch = shown->epoch;

	switch (id) {
	case MC_METRIC_GROUP_READY:
		return epoch->state == MC_GROUP_READY;
	case MC_METRIC_GROUP_RANKS:
		return epoch->n_members;
	case MC_METRIC_GROUP_MISSING:
		return epoch->state == MC_GROUP_FORMING ? epoch->spec.world_size - epoch->n_members
							: 0;
	case MC_METRIC_GROUP_STALLED:
		return n_stalled(shown);
	default:
		return epoch->charged_bytes;
	}
}

static void channel_line(struct rendering *rendering, enum mc_metric_id id,
	const struct shown *shown, uint32_t r, uint32_t c)
{
	const struct mc_rank_view *rank = &shown->view->rank[r];
	char rank_text[16], channel_text[16];
	const struct mc_exposition_labels *labels =
		MC_LABELS("group", shown->group->name, "rank", rank_text, "channel", channel_text);

	snprintf(rank_text, sizeof(rank_text), "%u", r);
	snprintf(channel_text, sizeof(channel_text), "%u", c);
	switch (id) {
	case MC_METRIC_RANK_CALLS:
		mc_exposition_number(&rendering->exposition, labels, rank->progress[c].call);
		break;
	case MC_METRIC_RANK_LAG:
		mc_exposition_number(&rendering->exposition, labels, rank->lag[c]);
		break;
	case MC_METRIC_RANK_AGE:
		mc_exposition_nanoseconds(
			&rendering->exposition, labels, rank->age_ms[c] * UINT64_C(1000000));
		break;
	case MC_METRIC_RANK_WAIT:
		mc_exposition_nanoseconds(&rendering->exposition, labels, rank->wait_ns[c]);
		break;
	default:
		mc_exposition_number(&rendering->exposition, labels, rank->pushed_bytes[c]);
		break;
	}
}

static bool is_counted(enum mc_metric_id id, const struct shown *shown)
{
	/* the cuda backend counts neither */
	return (id != MC_METRIC_RANK_WAIT && id != MC_METRIC_RANK_PUSHED) ||
	       shown->epoch->spec.backend == MC_WIRE_BACKEND_HOST;
}

static void render_groups(struct rendering *rendering)
{
	static const enum mc_metric_id of_groups[GROUP_LINES] = {MC_METRIC_GROUP_READY,
		MC_METRIC_GROUP_RANKS, MC_METRIC_GROUP_MISSING, MC_METRIC_GROUP_STALLED,
		MC_METRIC_GROUP_ARENA};
	static const enum mc_metric_id of_channels[CHANNEL_LINES] = {MC_METRIC_RANK_CALLS,
		MC_METRIC_RANK_LAG, MC_METRIC_RANK_AGE, MC_METRIC_RANK_WAIT, MC_METRIC_RANK_PUSHED};

	for (unsigned f = 0; f < GROUP_LINES; f++) {
		family(rendering, of_groups[f]);
		for (size_t g = 0; g < rendering->n_shown; g++)
			mc_exposition_number(&rendering->exposition,
				MC_LABELS("group", rendering->shown[g].group->name),
				group_value(of_groups[f], &rendering->shown[g]));
	}
	family(rendering, MC_METRIC_RANK_STALLED);
	for (size_t g = 0; g < rendering->n_shown; g++) {
		const struct shown *shown = &rendering->shown[g];
		char rank[16];

		for (uint32_t r = 0; shown->epoch->board && r < shown->epoch->spec.world_size;
			r++) {
			snprintf(rank, sizeof(rank), "%u", r);
			mc_exposition_number(&rendering->exposition,
				MC_LABELS("group", shown->group->name, "rank", rank),
				shown->view->rank[r].health == MC_HEALTH_STALLED);
		}
	}
	for (unsigned f = 0; f < CHANNEL_LINES; f++) {
		family(rendering, of_channels[f]);
		for (size_t g = 0; g < rendering->n_shown; g++) {
			const struct shown *shown = &rendering->shown[g];

			if (!shown->epoch->board || !is_counted(of_channels[f], shown))
				continue;
			for (uint32_t r = 0; r < shown->epoch->spec.world_size; r++)
				for (uint32_t c = 0; c < shown->epoch->spec.n_channels; c++)
					channel_line(rendering, of_channels[f], shown, r, c);
		}
	}
}

/* What a group's lines take at most. */
static size_t weight(const struct mc_group *group, const struct mc_epoch *epoch)
{
	size_t n_lines = GROUP_LINES, n_ranks = epoch->spec.world_size;

	if (epoch->board)
		n_lines += n_ranks * RANK_LINES + n_ranks * epoch->spec.n_channels * CHANNEL_LINES;
	return n_lines * (LINE_BYTES + strlen(group->name));
}

/* Looks at the boards, once each, of as many groups as fit. */
static int look(struct rendering *rendering, uint64_t now_ms)
{
	struct mc_groups *groups = rendering->daemon->groups;
	size_t n_bytes = BASE_BYTES;
	const struct mc_group *group;

	rendering->shown = calloc(HASH_COUNT(groups->by_name) + 1, sizeof(*rendering->shown));
	if (!rendering->shown)
		return -ENOMEM;
	for (group = groups->by_name; group; group = group->hh.next) {
		struct shown *shown = &rendering->shown[rendering->n_shown];

		shown->group = group;
		shown->epoch = mc_group_newest(group);
		if (n_bytes + weight(group, shown->epoch) > MC_METRICS_BYTES) {
			rendering->n_left_out++;
			continue;
		}
		n_bytes += weight(group, shown->epoch);
		shown->view = malloc(sizeof(*shown->view));
		if (!shown->view)
			return -ENOMEM;
		mc_health_look(shown->epoch, now_ms, shown->view);
		mc_health_count_waits(shown->epoch);
		rendering->n_shown++;
	}
	return 0;
}

int mc_metrics_render(struct mc_daemon *daemon, char **ret_text, size_t *ret_bytes)
{
	struct rendering rendering = {.daemon = daemon};
	char *text = NULL;
	size_t n = 0;
	int r = look(&rendering, mc_now_ms());

	if (!r) {
		rendering.exposition.out = open_memstream(&text, &n);
		r = rendering.exposition.out ? 0 : -ENOMEM;
	}
	if (!r) {
		render_daemon(&rendering);
		render_states(&rendering);
		render_waits(&rendering);
		render_groups(&rendering);
		single(&rendering, MC_METRIC_LEFT_OUT, rendering.n_left_out);
		if (fclose(rendering.exposition.out))
			r = -ENOMEM;
	}
	for (size_t g = 0; g < rendering.n_shown; g++)
		free(rendering.shown[g].view);
	free(rendering.shown);
	if (r) {
		free(text);
		return r;
	}
	*ret_text = text;
	*ret_bytes = n;
	return 0;
}
