/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/health/health.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "daemon/daemon.h"
#include "daemon/groups/group.h"
#include "daemon/log.h"
#include "proto/limits.h"

struct mc_health_log {
	struct mc_progress seen[MC_MAX_WORLD_SIZE][MC_MAX_CHANNELS];
	uint64_t changed_ms[MC_MAX_WORLD_SIZE][MC_MAX_CHANNELS];
	uint64_t looked_ms; /* 0: never */
	bool is_logged[MC_MAX_WORLD_SIZE];
	struct mc_wait_counts counted[MC_MAX_WORLD_SIZE][MC_WAIT_OPS];
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

/* Call numbers wrap: only their distance tells which is later. */
static int32_t calls_ahead(uint32_t call, uint32_t of)
{
	return (int32_t)(call - of);
}

/*
 * Fills in how far the rank is behind on each channel, and how long somebody has been in a later
 * call, which the rank has to serve first.
 */
static void measure_lag(
	struct mc_health_view *view, uint32_t rank, uint32_t world_size, uint32_t n_channels)
{
	struct mc_rank_view *mine = &view->rank[rank];

	mine->awaited_ms = 0;
	for (uint32_t c = 0; c < n_channels; c++) {
		mine->lag[c] = 0;
		for (uint32_t r = 0; r < world_size; r++) {
			const struct mc_rank_view *other = &view->rank[r];
			int32_t lag = calls_ahead(other->progress[c].call, mine->progress[c].call);
			uint64_t since_ms = other->age_ms[c] ? other->age_ms[c] : 1;

			if (lag <= 0)
				continue;
			if ((uint32_t)lag > mine->lag[c])
				mine->lag[c] = (uint32_t)lag;
			if (is_in_op(&other->progress[c]) && since_ms > mine->awaited_ms)
				mine->awaited_ms = since_ms;
		}
	}
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

static bool any_call(const struct mc_rank_view *rank, uint32_t n_channels)
{
	for (uint32_t c = 0; c < n_channels; c++)
		if (rank->progress[c].call)
			return true;
	return false;
}

/*
 * Sparse posts: a rank was at least in the call it posted, and whoever is in call k has seen all
 * others enter k - 1. So the others of a waiting rank are one behind it or level. When nobody
 * waits, nobody is known to be behind: then all are shown where all have surely been, and numbers
 * that are counted never go back.
 */
static void raise_calls(struct mc_health_view *view, uint32_t world_size, uint32_t channel)
{
	uint32_t most = 0, least;
	bool any_waits = false, level = true;

	for (uint32_t r = 0; r < world_size; r++) {
		const struct mc_progress *progress = &view->rank[r].progress[channel];

		any_waits |= is_in_op(progress);
		level &= progress->call == view->rank[0].progress[channel].call;
		if (progress->call && (!most || calls_ahead(progress->call, most) > 0))
			most = progress->call;
	}
	if (!most || level)
		return;
	least = any_waits || most > 1u ? most - 1u : most;
	for (uint32_t r = 0; r < world_size; r++) {
		struct mc_progress *progress = &view->rank[r].progress[channel];
		int32_t behind = calls_ahead(least, progress->call);

		if (!is_in_op(progress) && (behind > 0 || !any_waits)) {
			progress->call = least;
			progress->left = 1;
		}
	}
}

void mc_health_judge(struct mc_health_view *view, uint32_t world_size, uint32_t n_channels,
	uint32_t stall_ms, const uint8_t *is_stopped)
{
	bool any_laggard = false;
	bool is_stuck[MC_MAX_WORLD_SIZE] = {false};

	for (uint32_t c = 0; view->is_sparse && c < n_channels; c++)
		raise_calls(view, world_size, c);
	for (uint32_t r = 0; r < world_size; r++)
		measure_lag(view, r, world_size, n_channels);
	for (uint32_t r = 0; r < world_size; r++) {
		struct mc_rank_view *rank = &view->rank[r];
		bool old = youngest_ms(rank, n_channels) >= stall_ms;
		bool in_op = any_in_op(rank, n_channels);

		rank->is_stopped = is_stopped[r];
		if (rank->fault.status)
			rank->health = MC_HEALTH_FAILED;
		else if (old && rank->awaited_ms >= stall_ms)
			rank->health = MC_HEALTH_STALLED;
		else if (old && in_op)
			is_stuck[r] = true;
		else if (in_op || rank->awaited_ms ||
			 (view->is_sparse && !old && any_call(rank, n_channels)))
			rank->health = MC_HEALTH_PROGRESSING;
		else
			rank->health = MC_HEALTH_IDLE;
		any_laggard |=
			rank->health == MC_HEALTH_STALLED || rank->health == MC_HEALTH_FAILED;
	}
	/* all in the same call: a process that does not run is the one the others wait for */
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

/*
 * When a record that is new to us was written. Its writer says so to the millisecond, but can say
 * anything: it is believed within the time since we looked last.
 */
static uint64_t written_ms(const struct mc_health_log *health, uint64_t now_ms, uint32_t unix_ms,
	const struct mc_progress *progress)
{
	uint32_t ago_ms = unix_ms - progress->time_ms;
	uint64_t most_ms = health->looked_ms ? now_ms - health->looked_ms : 0;

	if (!progress->call || (int32_t)ago_ms < 0)
		return now_ms;
	return now_ms - (ago_ms < most_ms ? ago_ms : most_ms);
}

/* What a member wrote, made fit for replies, logs and indexing. */
static void check_fault(struct mc_fault *fault, uint32_t world_size)
{
	if (fault->status > UINT8_MAX)
		fault->status = MC_FAULT_NONE; /* no status: not believed */
	if (fault->peer >= world_size)
		fault->peer = UINT32_MAX;
	if (fault->channel >= MC_MAX_CHANNELS)
		fault->channel = 0;
	if (fault->op > UINT8_MAX)
		fault->op = MC_OP_NONE;
	if (fault->by > world_size)
		fault->by = 0;
}

static void read_board(struct mc_epoch *epoch, uint64_t now_ms, struct mc_health_view *view)
{
	struct mc_health_log *health = epoch->health;
	struct mc_board_rank copy;
	struct timespec now;
	uint32_t unix_ms;

	clock_gettime(CLOCK_REALTIME, &now);
	unix_ms = (uint32_t)((uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u);
	for (uint32_t r = 0; r < epoch->spec.world_size; r++) {
		struct mc_rank_view *rank = &view->rank[r];

		copy_words(&copy, &epoch->board->rank[r], offsetof(struct mc_board_rank, waits));
		memcpy(rank->progress, copy.progress, sizeof(copy.progress));
		memcpy(rank->wait_ns, copy.wait_ns, sizeof(copy.wait_ns));
		memcpy(rank->pushed_bytes, copy.pushed_bytes, sizeof(copy.pushed_bytes));
		rank->fault = copy.fault;
		check_fault(&rank->fault, epoch->spec.world_size);
		for (uint32_t c = 0; c < MC_MAX_CHANNELS; c++) {
			rank->progress[c].left = rank->progress[c].left != 0;
			if (!health->changed_ms[r][c] ||
				memcmp(&health->seen[r][c], &copy.progress[c],
					sizeof(copy.progress[c]))) {
				health->changed_ms[r][c] =
					written_ms(health, now_ms, unix_ms, &copy.progress[c]);
				health->seen[r][c] = copy.progress[c];
			}
			rank->age_ms[c] = now_ms - health->changed_ms[r][c];
		}
	}
	health->looked_ms = now_ms;
}

/* What one member's counters add. A hostile one can only add what its own counts make plausible. */
static void add_waits(struct mc_wait_totals *totals, struct mc_wait_counts *seen,
	const struct mc_wait_counts *now)
{
	uint64_t most_ns = 0, sum_ns = now->sum_ns - seen->sum_ns;

	for (uint32_t i = 0; i < MC_WAIT_BUCKETS; i++) {
		uint32_t n = now->bucket[i] - seen->bucket[i];
		uint64_t bound_ns = i < MC_WAIT_BUCKETS - 1u
					    ? (uint64_t)MC_WAIT_BUCKET_NS << 2u * i
					    : (uint64_t)MC_LIMIT_TIMEOUT_MS * 1000000u;

		if (n > INT32_MAX) /* it went backwards */
			n = 0;
		totals->bucket[i] += n;
		if (__builtin_mul_overflow(n, bound_ns, &bound_ns) ||
			__builtin_add_overflow(most_ns, bound_ns, &most_ns))
			most_ns = UINT64_MAX;
	}
	if (sum_ns <= most_ns)
		totals->sum_ns += sum_ns;
	*seen = *now;
}

void mc_health_count_waits(struct mc_epoch *epoch)
{
	struct mc_health_log *health = epoch->health;
	struct mc_counters *counters = &epoch->group->groups->daemon->counters;
	struct mc_wait_counts now[MC_WAIT_OPS];

	if (!epoch->board || !health || epoch->spec.backend != MC_WIRE_BACKEND_HOST)
		return;
	for (uint32_t r = 0; r < epoch->spec.world_size; r++) {
		copy_words(now, epoch->board->rank[r].waits, sizeof(now));
		for (uint32_t op = 0; op < MC_WAIT_OPS; op++)
			add_waits(&counters->waits[op], &health->counted[r][op], &now[op]);
	}
}

void mc_health_look(struct mc_epoch *epoch, uint64_t now_ms, struct mc_health_view *ret_view)
{
	uint8_t is_stopped[MC_MAX_WORLD_SIZE] = {0};
	uint32_t world_size = epoch->spec.world_size;
	uint32_t stall_ms = epoch->group->groups->daemon->config.stall_ms;

	memset(ret_view, 0, sizeof(*ret_view));
	ret_view->is_sparse = epoch->spec.backend != MC_WIRE_BACKEND_HOST;
	if (epoch->board && epoch->health) {
		read_board(epoch, now_ms, ret_view);
		for (uint32_t r = 0; r < world_size; r++)
			if (epoch->member[r] &&
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

/* The channel on which the rank is furthest behind, else the one that moved last. */
static uint32_t worst_channel(const struct mc_rank_view *rank, uint32_t n_channels)
{
	uint32_t worst = 0;

	for (uint32_t c = 1; c < n_channels; c++)
		if (rank->lag[c] > rank->lag[worst] ||
			(rank->lag[c] == rank->lag[worst] && rank->age_ms[c] < rank->age_ms[worst]))
			worst = c;
	return worst;
}

void mc_health_watch(struct mc_epoch *epoch)
{
	struct mc_health_view view;
	struct mc_log_about about = {.group = epoch->group->name, .epoch = epoch->number};
	struct mc_health_log *health = epoch->health;

	mc_health_look(epoch, mc_now_ms(), &view);
	mc_health_count_waits(epoch);
	for (uint32_t r = 0; health && r < epoch->spec.world_size; r++) {
		const struct mc_rank_view *rank = &view.rank[r];
		bool stalled = rank->health == MC_HEALTH_STALLED;
		uint32_t c = worst_channel(rank, epoch->spec.n_channels);

		if (stalled == health->is_logged[r])
			continue;
		health->is_logged[r] = stalled;
		epoch->group->groups->daemon->counters.stalls += stalled;
		if (stalled)
			mc_log_about(LOG_WARNING, &about,
				"rank %u (pid %u) of group %s is stalled: others wait, and it has "
				"not moved for %" PRIu64
				" ms since call %u on channel %u; the group is at call %u%s",
				r, epoch->member[r] ? epoch->member[r]->pid : 0, epoch->group->name,
				youngest_ms(rank, epoch->spec.n_channels), rank->progress[c].call,
				c, rank->progress[c].call + rank->lag[c],
				rank->is_stopped ? "; its process is stopped" : "");
		else
			mc_log_about(LOG_INFO, &about, "rank %u of group %s moves again", r,
				epoch->group->name);
	}
}
