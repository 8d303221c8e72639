/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened to groups lately: their transitions, and how their epochs ended with where
 * everybody was at that moment. Bounded, and kept after the groups are gone, so that moecommctl can
 * still explain them.
 */
#ifndef MC_DAEMON_GROUPS_HISTORY_H
#define MC_DAEMON_GROUPS_HISTORY_H

#include <stdbool.h>
#include <stdint.h>
#include "kernels/lamport.h"
#include "proto/limits.h"

/* A few hundred KiB in all; a group's life has five transitions and one end. */
#define MC_HISTORY_EVENTS  512u
#define MC_HISTORY_ENDINGS 64u

struct mc_epoch;

struct mc_event {
	uint64_t at_ms;
	char group[MC_LIMIT_NAME_BYTES + 1];
	uint64_t epoch;
	uint32_t state;
	char cause[256];
};

struct mc_ending {
	uint64_t at_ms;
	char group[MC_LIMIT_NAME_BYTES + 1];
	uint64_t epoch;
	uint32_t status;
	uint32_t was_state;
	uint32_t world_size;
	uint64_t missing; /* bit r: rank r had not joined */
	char detail[MC_LIMIT_DETAIL_BYTES + 1];
	/* whose doing; rank UINT32_MAX: nobody's */
	uint32_t rank, pid, uid;
	char label[MC_LIMIT_LABEL_BYTES + 1];
	char device_uuid[MC_LIMIT_UUID_BYTES + 1];
	/* where that rank was, on the channel where it was furthest behind */
	bool has_progress;
	uint32_t op, call, channel, first_call;
	uint64_t op_age_ms;
};

struct mc_history {
	/* rings: entry i of all that ever was lies at i % size */
	struct mc_event event[MC_HISTORY_EVENTS];
	struct mc_ending ending[MC_HISTORY_ENDINGS];
	uint64_t n_events, n_endings;
};

struct mc_history *mc_history_new(void);
struct mc_history *mc_history_free(struct mc_history *history);

/* A transition of an epoch into its state. */
void mc_history_note(struct mc_epoch *epoch, const char *cause, uint64_t now_ms);
/* The end of an epoch, while its board is still mapped and its state is what it was. */
void mc_history_end(struct mc_epoch *epoch, uint32_t status, uint32_t fault_rank,
	const char *detail, uint64_t now_ms);

#endif
