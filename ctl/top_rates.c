/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/top_rates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ctl/ctl.h"
#include "ctl/groups.h"
#include "proto/status.h"

bool mc_top_is_unhealthy(const Moecomm__Wire__GroupStatus *group)
{
	return group->state == MC_GROUP_FAILED || group->health == MC_HEALTH_STALLED ||
	       group->health == MC_HEALTH_FAILED;
}

static const Moecomm__Wire__RankStatus *find_before(
	const Moecomm__Wire__Status *before, const Moecomm__Wire__GroupStatus *group, uint32_t rank)
{
	for (size_t g = 0; before && g < before->n_groups; g++) {
		const Moecomm__Wire__GroupStatus *other = before->groups[g];

		/* another epoch counts from the start */
		if (other->epoch != group->epoch || strcmp(other->name, group->name) != 0)
			continue;
		for (size_t r = 0; r < other->n_ranks; r++)
			if (other->ranks[r]->rank == rank)
				return other->ranks[r];
	}
	return NULL;
}

static void rate_rank(
	struct mc_top_row *row, const Moecomm__Wire__RankStatus *before, double seconds)
{
	uint64_t wait_ns = 0;
	bool counted = false;

	row->wait_share = -1;
	row->age_ms = UINT64_MAX;
	for (size_t i = 0; i < row->rank->n_progress; i++) {
		const Moecomm__Wire__RankProgress *now = row->rank->progress[i], *then = NULL;
		uint64_t lag = mc_groups_lag(row->group, now);
		uint32_t calls;

		if (!row->progress || lag > row->lag) {
			row->progress = now;
			row->lag = lag;
		}
		if (now->age_ms < row->age_ms)
			row->age_ms = now->age_ms;
		if (before)
			then = mc_groups_progress(before, now->channel);
		if (!then || seconds <= 0)
			continue;
		calls = (uint32_t)(now->call - then->call);
		if (calls > INT32_MAX)
			continue;
		row->calls_per_s += calls / seconds;
		if (now->has_total_bytes && now->total_bytes >= then->total_bytes)
			row->bytes_per_s +=
				(double)(now->total_bytes - then->total_bytes) / seconds;
		else if (!now->has_total_bytes)
			/* not counted: as if all calls had been like the last */
			row->bytes_per_s += (double)calls * (double)now->n_bytes / seconds;
		if (now->has_total_bytes && now->wait_ns >= then->wait_ns) {
			wait_ns += now->wait_ns - then->wait_ns;
			counted = true;
		}
	}
	if (row->age_ms == UINT64_MAX)
		row->age_ms = row->group->age_ms;
	/* a wait is counted when it ends: this one has lasted longer than the interval */
	if (row->rank->health == MC_HEALTH_WAITING && (double)row->age_ms >= seconds * 1000)
		row->wait_share = 1;
	else if (counted) {
		row->wait_share = (double)wait_ns / 1e9 / seconds;
		if (row->wait_share > 1)
			row->wait_share = 1;
	}
}

/* A call of the group is one that every rank takes part in: the fastest rank's count is its rate.
 */
static void rate_group(struct mc_top_row *group, const struct mc_top_row *ranks, size_t n)
{
	double waits = 0;
	size_t n_counted = 0;

	group->wait_share = -1;
	group->age_ms = n ? UINT64_MAX : group->group->age_ms;
	for (size_t i = 0; i < n; i++) {
		if (ranks[i].calls_per_s > group->calls_per_s)
			group->calls_per_s = ranks[i].calls_per_s;
		group->bytes_per_s += ranks[i].bytes_per_s;
		if (ranks[i].lag > group->lag)
			group->lag = ranks[i].lag;
		if (ranks[i].age_ms < group->age_ms)
			group->age_ms = ranks[i].age_ms;
		if (ranks[i].wait_share >= 0) {
			waits += ranks[i].wait_share;
			n_counted++;
		}
	}
	if (n_counted)
		group->wait_share = waits / (double)n_counted;
}

static int compare(const void *a, const void *b)
{
	const Moecomm__Wire__GroupStatus *one = *(Moecomm__Wire__GroupStatus *const *)a;
	const Moecomm__Wire__GroupStatus *two = *(Moecomm__Wire__GroupStatus *const *)b;
	int sick = mc_top_is_unhealthy(two) - mc_top_is_unhealthy(one);

	return sick ? sick : strcmp(one->name, two->name);
}

static void *need(void *at)
{
	if (!at) {
		fprintf(stderr, "moecommctl: out of memory\n");
		exit(MC_CTL_REFUSED);
	}
	return at;
}

void mc_top_rates(const Moecomm__Wire__Status *before, const Moecomm__Wire__Status *now,
	double seconds, struct mc_top_rows *ret_rows)
{
	struct mc_top_rows rows = {0};
	const Moecomm__Wire__GroupStatus **order = need(calloc(now->n_groups + 1, sizeof(*order)));
	size_t n = 1;

	for (size_t g = 0; g < now->n_groups; g++) {
		order[g] = now->groups[g];
		n += 1 + now->groups[g]->n_ranks;
	}
	if (now->n_groups)
		qsort(order, now->n_groups, sizeof(*order), compare);
	rows.row = need(calloc(n, sizeof(*rows.row)));
	for (size_t g = 0; g < now->n_groups; g++) {
		struct mc_top_row *group = &rows.row[rows.n++];

		group->group = order[g];
		for (size_t r = 0; r < order[g]->n_ranks; r++) {
			struct mc_top_row *rank = &rows.row[rows.n++];

			rank->group = order[g];
			rank->rank = order[g]->ranks[r];
			rate_rank(rank, find_before(before, order[g], rank->rank->rank), seconds);
		}
		rate_group(group, group + 1, order[g]->n_ranks);
		rows.calls_per_s += group->calls_per_s;
		rows.bytes_per_s += group->bytes_per_s;
		rows.n_unhealthy += mc_top_is_unhealthy(order[g]);
	}
	free(order);
	*ret_rows = rows;
}

void mc_top_rows_clear(struct mc_top_rows *rows)
{
	free(rows->row);
	*rows = (struct mc_top_rows){0};
}
