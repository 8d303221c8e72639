/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verdicts of failed joins, kept for a while: a client that retries without anything having changed
 * does not cost another deadline. After a failed probe it gets the same verdict at once; after a
 * join that timed out it waits a hundredth of the deadline for the ranks that were missing.
 */
#ifndef MC_DAEMON_GROUPS_VERDICT_H
#define MC_DAEMON_GROUPS_VERDICT_H

#include <stdbool.h>
#include <stdint.h>
#include "daemon/groups/spec.h"
#include "proto/limits.h"

/* Names that verdicts are kept for at once; the oldest goes first. */
#define MC_MAX_VERDICTS 1024u

struct mc_verdict {
	char group[MC_LIMIT_NAME_BYTES + 1];
	uint32_t status;
	char detail[MC_LIMIT_DETAIL_BYTES + 1];
	struct mc_spec spec;
	uint64_t expires_ms;
	/* who got it: a retry is known by its process, also on a new connection */
	struct {
		bool told;
		uint32_t pid, uid;
		uint64_t conn_id;
	} rank[MC_LIMIT_WORLD_SIZE];
	struct mc_verdict *prev, *next;
};

struct mc_verdicts {
	struct mc_verdict *list; /* oldest first */
	unsigned n;
};

struct mc_epoch;
struct mc_conn;

/* Remembers how this epoch's formation ended, for its present members. */
void mc_verdict_keep(struct mc_verdicts *verdicts, const struct mc_epoch *epoch, uint32_t status,
	const char *detail, uint64_t now_ms);
/*
 * The verdict that this join is a mere retry of, or NULL. Whatever shows that something has changed
 * (another process, a rank that was missing, another spec, the time) forgets the verdict.
 */
const struct mc_verdict *mc_verdict_retry(struct mc_verdicts *verdicts, const char *group,
	uint32_t rank, const struct mc_spec *spec, const struct mc_conn *conn, uint64_t now_ms);
void mc_verdicts_clear(struct mc_verdicts *verdicts);

#endif
