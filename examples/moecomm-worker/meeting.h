/* SPDX-License-Identifier: Apache-2.0 */
/* Small dispatches in which the ranks tell each other a number. */
#ifndef WORKER_MEETING_H
#define WORKER_MEETING_H

#include <stdint.h>
#include <moecomm.h>
#include "options.h"
#include "tensor.h"

/*
 * Every rank gives a number and gets the largest. Ranks that form a new epoch use it to agree on
 * the round to go on with: a restarted rank offers 0 and follows the others.
 */
enum moecomm_status meeting_largest(const struct options *options, struct tensor_space *space,
	moecomm_group *group, int64_t mine, int64_t *ret_largest);

/*
 * The last thing before leaving. A leave ends the epoch for all members, also for one whose last op
 * is still waiting for a third rank's part. Whoever is through this meeting knows that all ranks
 * are done with the ops before it; that a member left meanwhile is then no failure.
 */
enum moecomm_status meeting_farewell(
	const struct options *options, struct tensor_space *space, moecomm_group *group);

#endif
