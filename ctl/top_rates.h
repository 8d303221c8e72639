/* SPDX-License-Identifier: Apache-2.0 */
/* From two answers of the daemon to what happened in between. */
#ifndef MC_CTL_TOP_RATES_H
#define MC_CTL_TOP_RATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "moecomm.pb-c.h"

struct mc_top_row {
	const Moecomm__Wire__GroupStatus *group;
	const Moecomm__Wire__RankStatus *rank;       /* NULL: the group itself */
	const Moecomm__Wire__RankProgress *progress; /* of the rank: where it is furthest behind */
	double calls_per_s;
	double bytes_per_s;
	double wait_share; /* of the time, 0 … 1; negative: not counted by this backend */
	uint64_t lag;
	uint64_t age_ms; /* since it moved; of a group: since any rank did */
};

struct mc_top_rows {
	struct mc_top_row *row;
	size_t n;
	double calls_per_s, bytes_per_s; /* of all groups */
	size_t n_unhealthy;
};

/*
 * Rows of now: each group, unhealthy ones first, then by name, followed by its ranks. before may be
 * NULL. Points into now. Ends the program when out of memory; mc_top_rows_clear frees.
 */
void mc_top_rates(const Moecomm__Wire__Status *before, const Moecomm__Wire__Status *now,
	double seconds, struct mc_top_rows *ret_rows);
void mc_top_rows_clear(struct mc_top_rows *rows);

/* Stalled, failed, or its members wait. */
bool mc_top_is_unhealthy(const Moecomm__Wire__GroupStatus *group);

#endif
