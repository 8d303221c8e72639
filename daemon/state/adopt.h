/* SPDX-License-Identifier: Apache-2.0 */
/* From a stored epoch back to a living one. */
#ifndef MC_DAEMON_STATE_ADOPT_H
#define MC_DAEMON_STATE_ADOPT_H

#include <stdbool.h>
#include "daemon/backends/backend.h"
#include "daemon/groups/spec.h"
#include "state.pb-c.h"

struct mc_epoch;
struct mc_group;
struct mc_groups;

/* What a stored epoch means, checked. */
struct mc_adopt_plan {
	struct mc_spec spec;
	struct mc_layout layout;
	bool is_live; /* it needs its memory */
	struct mc_arm_result memory;
};

/* Returns NULL, or what is wrong with it. The memory is the caller's to fill in. */
const char *mc_adopt_check(struct mc_groups *groups, const Moecomm__State__StoredEpoch *stored,
	struct mc_adopt_plan *ret_plan);
/* Makes the group; NULL and *ret_wrong when it can't be. */
struct mc_group *mc_adopt_group(struct mc_groups *groups, const Moecomm__State__StoredGroup *stored,
	const char **ret_wrong);
/*
 * Makes the epoch with its members; the plan's memory is taken over, also on failure. Returns NULL,
 * or what was wrong; the group may be gone then.
 */
const char *mc_adopt_epoch(struct mc_group *group, const Moecomm__State__StoredEpoch *stored,
	struct mc_adopt_plan *plan);

#endif
