/* SPDX-License-Identifier: Apache-2.0 */
/* What each user makes the daemon spend, counted and bounded per uid. */
#ifndef MC_DAEMON_QUOTA_H
#define MC_DAEMON_QUOTA_H

#include <stdbool.h>
#include <stdint.h>
#include "daemon/config.h"

enum mc_quota_kind {
	MC_QUOTA_CONNECTIONS,
	MC_QUOTA_GROUPS,
	MC_QUOTA_ARENA_BYTES,
	MC_QUOTA_FDS,
	MC_QUOTA_QUEUED_BYTES,
	MC_QUOTA_N,
};

struct mc_quota; /* of all users */

/* Returns NULL when out of memory. config stays the caller's and is read at every charge. */
struct mc_quota *mc_quota_new(const struct mc_config *config);
struct mc_quota *mc_quota_free(struct mc_quota *quota);

/* Returns 0, -EDQUOT when the user's bound would be passed (nothing is charged), or -ENOMEM. */
int mc_quota_charge(struct mc_quota *quota, uint32_t uid, enum mc_quota_kind kind, uint64_t n);
/* Gives back what was charged. */
void mc_quota_release(struct mc_quota *quota, uint32_t uid, enum mc_quota_kind kind, uint64_t n);
uint64_t mc_quota_used(struct mc_quota *quota, uint32_t uid, enum mc_quota_kind kind);
uint64_t mc_quota_limit(const struct mc_quota *quota, enum mc_quota_kind kind);
/* "connections", …; for refusals. */
const char *mc_quota_name(enum mc_quota_kind kind);

/* Counts one request against the user's rate. Returns false when it is one too many. */
bool mc_quota_request(struct mc_quota *quota, uint32_t uid, uint64_t now_ms);

/*
 * Time that a user's queries take in one turn of the loop (told apart by its clock): what is over
 * has to wait for the next one, so that others, and the watchdog, come in between.
 */
void mc_quota_spend_turn(struct mc_quota *quota, uint32_t uid, uint64_t turn_ms, uint64_t used_us);
bool mc_quota_turn_is_over(struct mc_quota *quota, uint32_t uid, uint64_t turn_ms);

/* Users known; for tests of what stays behind. */
unsigned mc_quota_n_users(const struct mc_quota *quota);

#endif
