/* SPDX-License-Identifier: Apache-2.0 */
/* HistoryRequest: what happened lately, and the settings in force; for explain and bug reports. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/groups/history.h"
#include "daemon/handlers.h"
#include "daemon/log.h"
#include "daemon/scratch.h"

/* One reply being built. */
struct building {
	struct mc_scratch scratch;
	Moecomm__Wire__History history;
	const char *group; /* only this one; NULL: all */
	uint64_t now_ms;
	bool out_of_memory;
};

static void *alloc(struct building *building, size_t n_bytes)
{
	void *at = mc_scratch_alloc(&building->scratch, n_bytes);

	building->out_of_memory |= !at;
	return at;
}

static bool is_wanted(const struct building *building, const char *group)
{
	return !building->group || !strcmp(building->group, group);
}

static void add_event(struct building *building, const struct mc_event *event)
{
	Moecomm__Wire__Event *wire = alloc(building, sizeof(*wire));

	if (!wire)
		return;
	moecomm__wire__event__init(wire);
	wire->age_ms = building->now_ms - event->at_ms;
	wire->group = (char *)event->group;
	wire->epoch = event->epoch;
	wire->state = event->state;
	wire->cause = (char *)event->cause;
	building->history.events[building->history.n_events++] = wire;
}

static void add_missing(
	struct building *building, const struct mc_ending *ending, Moecomm__Wire__Ending *wire)
{
	wire->missing = alloc(building, ending->world_size * sizeof(*wire->missing));
	for (uint32_t r = 0; wire->missing && r < ending->world_size; r++)
		if (ending->missing >> r & 1u)
			wire->missing[wire->n_missing++] = r;
}

static void add_blamed(
	struct building *building, const struct mc_ending *ending, Moecomm__Wire__Ending *wire)
{
	Moecomm__Wire__Member *member = alloc(building, sizeof(*member));

	if (!member)
		return;
	moecomm__wire__member__init(member);
	member->rank = ending->rank;
	member->has_pid = member->has_uid = ending->pid != 0;
	member->pid = ending->pid;
	member->uid = ending->uid;
	member->label = (char *)ending->label;
	if (*ending->device_uuid)
		member->device_uuid = (char *)ending->device_uuid;
	wire->blamed = member;
	if (!ending->has_progress)
		return;
	wire->has_op = wire->has_call = wire->has_channel = 1;
	wire->has_first_call = wire->has_op_age_ms = 1;
	wire->op = ending->op;
	wire->call = ending->call;
	wire->channel = ending->channel;
	wire->first_call = ending->first_call;
	wire->op_age_ms = ending->op_age_ms;
}

static void add_ending(struct building *building, const struct mc_ending *ending)
{
	Moecomm__Wire__Ending *wire = alloc(building, sizeof(*wire));

	if (!wire)
		return;
	moecomm__wire__ending__init(wire);
	wire->group = (char *)ending->group;
	wire->epoch = ending->epoch;
	wire->age_ms = building->now_ms - ending->at_ms;
	wire->status = ending->status;
	wire->detail = (char *)ending->detail;
	wire->world_size = ending->world_size;
	wire->has_was_state = 1;
	wire->was_state = ending->was_state;
	if (ending->missing)
		add_missing(building, ending, wire);
	if (ending->rank != MC_NO_RANK)
		add_blamed(building, ending, wire);
	building->history.endings[building->history.n_endings++] = wire;
}

static void add_all(struct building *building, const struct mc_history *history)
{
	uint64_t first;

	building->history.events =
		alloc(building, MC_HISTORY_EVENTS * sizeof(*building->history.events));
	building->history.endings =
		alloc(building, MC_HISTORY_ENDINGS * sizeof(*building->history.endings));
	if (building->out_of_memory)
		return;
	first = history->n_events > MC_HISTORY_EVENTS ? history->n_events - MC_HISTORY_EVENTS : 0;
	for (uint64_t i = first; i < history->n_events; i++) {
		const struct mc_event *event = &history->event[i % MC_HISTORY_EVENTS];

		if (is_wanted(building, event->group))
			add_event(building, event);
	}
	first = history->n_endings > MC_HISTORY_ENDINGS ? history->n_endings - MC_HISTORY_ENDINGS
							: 0;
	for (uint64_t i = first; i < history->n_endings; i++) {
		const struct mc_ending *ending = &history->ending[i % MC_HISTORY_ENDINGS];

		if (is_wanted(building, ending->group))
			add_ending(building, ending);
	}
}

static void add_config(struct building *building, const struct mc_config *config)
{
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	if (out) {
		mc_config_print(config, out);
		fclose(out);
	}
	if (text)
		building->history.config = mc_scratch_text(&building->scratch, text);
	free(text);
	building->out_of_memory |= !building->history.config;
}

void mc_handle_history(
	struct mc_conn *conn, uint32_t serial, const Moecomm__Wire__HistoryRequest *request)
{
	struct mc_daemon *daemon = conn->daemon;
	struct building building = {.now_ms = mc_now_ms()};
	struct timespec now;

	if (request->group && *request->group)
		building.group = request->group;
	moecomm__wire__history__init(&building.history);
	add_all(&building, daemon->groups->history);
	add_config(&building, &daemon->config);
	clock_gettime(CLOCK_REALTIME, &now);
	building.history.has_stall_ms = building.history.has_unix_ms = 1;
	building.history.stall_ms = daemon->config.stall_ms;
	building.history.unix_ms = (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
	if (building.out_of_memory)
		mc_conn_done(conn, serial, MC_STATUS_NO_MEMORY, "the daemon is out of memory");
	else
		mc_conn_send(conn, MC_FRAME_HISTORY, serial, &building.history.base, NULL, 0);
	mc_scratch_clear(&building.scratch);
}
