/* SPDX-License-Identifier: Apache-2.0 */
/* What each event must look like to the ranks that survive it. */
#ifndef MC_TESTS_SOAK_EXPECT_H
#define MC_TESTS_SOAK_EXPECT_H

#include "fault/soak/plan.h"
#include "fault/soak/soak.h"

#define EXPECT_SOON_MS 1000

struct expect {
	uint64_t statuses; /* bits by enum moecomm_status; 0: nothing may be seen */
	int64_t bound_ms;
	int64_t least_ms; /* of a rank other than the victim: a deadline does not pass early */
	bool names;       /* the victim, or the second one */
	uint32_t victim, second;
};

/* known: the daemon runs and knows all members. */
struct expect expect_of(const struct plan_event *event, bool known);
/* NULL, or what is wrong with a failure that a rank saw. */
const char *expect_check(const struct expect *expect, const struct soak_failure *failure,
	uint32_t rank, int64_t took_us, int64_t bound_us);

#endif
