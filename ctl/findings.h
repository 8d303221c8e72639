/* SPDX-License-Identifier: Apache-2.0 */
/* What explain has found out about a group: sentences, each with what to do about it. */
#ifndef MC_CTL_FINDINGS_H
#define MC_CTL_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "moecomm.pb-c.h"

#define MC_NO_NUMBER UINT64_MAX

struct mc_finding {
	const char *kind; /* a word for programs: "stopped", "behind", "dead", … */
	bool is_wrong;    /* else it is only told */
	char text[1800];
	char advice[900];
	/* MC_NO_NUMBER or NULL: does not apply */
	uint64_t rank, pid, channel, call, lag_calls, age_ms;
	const char *op, *status, *device_uuid, *label;
};

struct mc_findings {
	struct mc_finding *list;
	size_t n;
};

/* A new, empty one at the end. Ends the program when out of memory. */
struct mc_finding *mc_findings_add(struct mc_findings *findings, const char *kind, bool is_wrong);
void mc_finding_text(struct mc_finding *finding, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void mc_finding_advise(struct mc_finding *finding, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void mc_findings_clear(struct mc_findings *findings);

/* explain_live.c: a group that exists. */
void mc_explain_live(
	const Moecomm__Wire__GroupStatus *group, uint32_t stall_ms, struct mc_findings *findings);
/* explain_ending.c: how an epoch ended. */
void mc_explain_ending(const Moecomm__Wire__Ending *ending, struct mc_findings *findings);

/* "rank 3 (pid 17, trainer)"; member NULL: only the number. */
const char *mc_explain_rank(
	uint32_t rank, const Moecomm__Wire__Member *member, char *ret_text, size_t n_text);
/* "rank 2", "ranks 1 and 2", "ranks 1, 2 and 5"; many are cut off with a count. */
const char *mc_explain_ranks(const uint32_t *ranks, size_t n_ranks, char *ret_text, size_t n_text);

#endif
