/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of what `groups` prints that other commands print as well. */
#ifndef MC_CTL_GROUPS_H
#define MC_CTL_GROUPS_H

#include "ctl/ctl.h"
#include "moecomm.pb-c.h"

/* A line a group; "no groups" when there is none. */
void mc_groups_print(const struct mc_ctl *ctl, const Moecomm__Wire__Status *status);

/* The rank's progress on the channel, or NULL. */
const Moecomm__Wire__RankProgress *mc_groups_progress(
	const Moecomm__Wire__RankStatus *rank, uint32_t channel);
/* How many calls a rank is behind the group's first on a channel. */
uint64_t mc_groups_lag(
	const Moecomm__Wire__GroupStatus *group, const Moecomm__Wire__RankProgress *progress);

#endif
