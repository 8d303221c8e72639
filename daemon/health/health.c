/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/health/health.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/log.h"

struct mc_health_log {
	struct mc_progress seen[MC_MAX_WORLD_SIZE][MC_MAX_CHANNELS];
	uint64_t changed_ms[MC_MAX_WORLD_SIZE][MC_MAX_CHANNELS];
	bool is_logged[MC_MAX_WORLD_SIZE];
};

struct mc_health_log *mc_health_new(void)
{
	return calloc(1, sizeof(struct mc_health_log));
}

struct mc_health_log *mc_health_free(struct mc_health_log *health)
{
	free(health);
	return NULL;
}

/*
 * Members write while we read: each word is loaded once, by a load that the compiler can't repeat.
 * A torn record (one word old, one new) is possible and harmless: it differs from what was seen,
 * which is all that progress means.
 */
static void copy_words(void *to, const void *from, size_t n_bytes)
{
	const _Atomic uint32_t *source = from;
	uint32_t *target = to;

	for (size_t i = 0; i < n_bytes / sizeof(*target); i++)
		target[i] = atomic_load_explicit(&source[i], memory_order_relaxed);
}

uint32_t mc_health_call(const struct mc_board *board, uint32_t rank, uint32_t channel)
{
	struct mc_progress progress;

	copy_words(&progress, &board->rank[rank].progress[channel], sizeof(progress));
	return progress.call;
}

static bool is_in_op(const struct mc_progress *progress)
{
	return progress->call && !progress->left;
}

/* Whether somebody has entered a later call on some channel, which the rank has to serve first. */
static bool is_awaited(
	const struct mc_health_view *view, uint32_t rank, uint32_t world_size, uint32_t n_channels)
{
	for (uint32_t c = 0; c < n_channels; c++)
		for (uint32_t r = 0; r < world_size; r++)
			if (r != rank && is_in_op(&view->rank[r].progress[c]) &&
				(int32_t)(view->rank[r].progress[c].call -
					  view->rank[rank].progress[c].call) > 0)
				return true;
	return false;
}

static uint64_t youngest_ms(const struct mc_rank_view *rank, uint32_t n_channels)
{
	uint64_t age_ms = UINT64_MAX;

	for (uint32_t c = 0; c < n_channels; c++)
		if (rank->age_ms[c] < age_ms)
			age_ms = rank->age_ms[c];
	return age_ms;
}

static bool any_in_op(const struct mc_rank_view *rank, uint32_t n_channels)
{
	for (uint32_t c = 0; c < n_channels; c++)
		if (is_in_op(&rank->progress[c]))
			return true;
	return false;
}

void mc_health_judge(struct mc_health_view *view, uint32_t world_size, uint32_t n_channels,
	uint32_t stall_ms, const uint8_t *is_stopped)
{
	bool any_laggard = false, any_stuck = false;
	bool is_stuck[MC_MAX_WORLD_SIZE] = {false};

	for (uint32_t r = 0; r < world_size; r++) {
		struct mc_rank_view *rank = &view->rank[r];
		bool old = youngest_ms(rank, n_channels) >= stall_ms;
		bool awaited = is_awaited(view, r, world_size, n_channels);

		if (rank->fault.status)
			rank->health = MC_HEALTH_FAILED;
		else if (awaited && old)
			rank->health = MC_HEALTH_STALLED;
		else if (any_in_op(rank, n_channels) && old)
			is_stuck[r] = true;
		else if (any_in_op(rank, n_channels) || awaited)
			rank->health = MC_HEALTH_PROGRESSING;
		else
			rank->health = MC_HEALTH_IDLE;
		any_laggard |=
			rank->health == MC_HEALTH_STALLED || rank->health == MC_HEALTH_FAILED;
		any_stuck |= is_stuck[r];
	}
	if (any_stuck && !any_laggard)
		/* all in the same call: a process that does not run is the one the others wait for
		 */
		for (uint32_t r = 0; r < world_size; r++)
			if (is_stuck[r] && is_stopped[r]) {
				view->rank[r].health = MC_HEALTH_STALLED;
				is_stuck[r] = false;
				any_laggard = true;
			}
	for (uint32_t r = 0; r < world_size; r++)
		if (is_stuck[r])
			/* nobody to blame: then everybody is */
			view->rank[r].health = any_laggard ? MC_HEALTH_WAITING : MC_HEALTH_STALLED;
}

static enum mc_health worse(enum mc_health a, enum mc_health b)
{
	/* by how much it should worry */
	static const uint8_t order[] = {
		[MC_HEALTH_UNKNOWN] = 0,
		[MC_HEALTH_IDLE] = 1,
		[MC_HEALTH_PROGRESSING] = 2,
		[MC_HEALTH_WAITING] = 3,
		[MC_HEALTH_STALLED] = 4,
		[MC_HEALTH_FAILED] = 5,
	};

	return order[a] >= order[b] ? a : b;
}

/* 'T' or 't' in /proc/PID/stat: stopped by a signal or a debugger; 'Z' and 'X': ended. */
static bool process_is_stopped(uint32_t pid)
{
	char path[64], text[512], *state;
	FILE *file;
	size_t n;

	if (!pid)
		return false;
	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	n = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[n] = 0;
	/* the name before it is in parentheses and may hold any byte */
	state = strrchr(text, ')');
	return state && state[1] == ' ' && strchr("TtZX", state[2]) && state[2];
}

static void read_board(struct mc_epoch *epoch, uint64_t now_ms, struct mc_health_view *view)
{
	struct mc_health_log *health = epoch->health;
	struct mc_board_rank copy;

	for (uint32_t r = 0; r < epoch->spec.world_size; r++) {
		copy_words(&copy, &epoch->board->rank[r], sizeof(copy));
		memcpy(view->rank[r].progress, copy.progress, sizeof(copy.progress));
		memcpy(view->rank[r].wait_ns, copy.wait_ns, sizeof(copy.wait_ns));
		view->rank[r].fault = copy.fault;
		for (uint32_t c = 0; c < MC_MAX_CHANNELS; c++) {
			if (!health->changed_ms[r][c] ||
				memcmp(&health->seen[r][c], &copy.progress[c],
					sizeof(copy.progress[c]))) {
				health->seen[r][c] = copy.progress[c];
				health->changed_ms[r][c] = now_ms;
			}
			view->rank[r].age_ms[c] = now_ms - health->changed_ms[r][c];
		}
	}
}

void mc_health_look(struct mc_epoch *epoch, uint64_t now_ms, struct mc_health_view *ret_view)
{
	uint8_t is_stopped[MC_MAX_WORLD_SIZE] = {0};
	uint32_t world_size = epoch->spec.world_size;
	uint32_t stall_ms = epoch->group->groups->daemon->config.stall_ms;

	memset(ret_view, 0, sizeof(*ret_view));
	if (epoch->board && epoch->health) {
		read_board(epoch, now_ms, ret_view);
		for (uint32_t r = 0; r < world_size; r++)
			if (epoch->member[r] &&
				any_in_op(&ret_view->rank[r], epoch->spec.n_channels) &&
				youngest_ms(&ret_view->rank[r], epoch->spec.n_channels) >= stall_ms)
				is_stopped[r] = process_is_stopped(epoch->member[r]->pid);
		mc_health_judge(ret_view, world_size, epoch->spec.n_channels, stall_ms, is_stopped);
	} else if (epoch->state == MC_GROUP_FAILED && epoch->status != MC_STATUS_LEFT) {
		ret_view->health = MC_HEALTH_FAILED;
		if (epoch->fault_rank < world_size)
			ret_view->rank[epoch->fault_rank].health = MC_HEALTH_FAILED;
	}
	for (uint32_t r = 0; r < world_size; r++)
		ret_view->health = worse(ret_view->health, ret_view->rank[r].health);
}

void mc_health_watch(struct mc_epoch *epoch)
{
	struct mc_health_view view;
	struct mc_log_about about = {.group = epoch->group->name, .epoch = epoch->number};
	struct mc_health_log *health = epoch->health;

	mc_health_look(epoch, mc_now_ms(), &view);
	for (uint32_t r = 0; health && r < epoch->spec.world_size; r++) {
		bool stalled = view.rank[r].health == MC_HEALTH_STALLED;

		if (stalled == health->is_logged[r])
			continue;
		health->is_logged[r] = stalled;
		if (stalled)
			mc_log_about(LOG_WARNING, &about,
				"rank %u (pid %u) of group %s is stalled: others wait, and it has "
				"not moved "
				"for %" PRIu64 " ms since call %u",
				r, epoch->member[r] ? epoch->member[r]->pid : 0, epoch->group->name,
				youngest_ms(&view.rank[r], epoch->spec.n_channels),
				view.rank[r].progress[0].call);
		else
			mc_log_about(LOG_INFO, &about, "rank %u of group %s moves again", r,
				epoch->group->name);
	}
}
