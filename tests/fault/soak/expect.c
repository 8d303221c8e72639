/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/soak/expect.h"

#define BIT(status) (UINT64_C(1) << (status))
/* The deadline and a tenth. */
#define DEADLINE_MS (SOAK_OP_MS * 11 / 10)
/* An op may have waited a little before the event that it waits for. */
#define LEAST_MS (SOAK_OP_MS * 8 / 10)

struct expect expect_of(const struct plan_event *event, bool known)
{
	struct expect expect = {.bound_ms = EXPECT_SOON_MS,
		.names = true,
		.victim = event->victim,
		.second = event->second};

	switch (event->kind) {
	case PLAN_KILL:
	case PLAN_KILL_TWO:
		expect.statuses = BIT(MOECOMM_PEER_LOST);
		break;
	case PLAN_LEAVE:
		expect.statuses = BIT(MOECOMM_LEFT);
		break;
	case PLAN_STOP_LONG:
	case PLAN_STOP_KILL:
	case PLAN_DELAY_LONG:
		expect.statuses = BIT(MOECOMM_TIMEOUT);
		expect.bound_ms = DEADLINE_MS;
		expect.least_ms = LEAST_MS;
		break;
	case PLAN_ABORT_MEMBER:
		expect.statuses = BIT(MOECOMM_ABORTED);
		break;
	case PLAN_ABORT_CTL:
		expect.statuses = BIT(MOECOMM_ABORTED);
		expect.names = false;
		break;
	case PLAN_MISMATCH:
		/* which of two that differ is the odd one is not theirs to tell */
		expect.statuses = BIT(MOECOMM_MISMATCH);
		expect.names = false;
		break;
	default:
		break;
	}
	/* nobody tells who went: the deadline does, or a daemon that is back in time */
	if (!known && (event->kind <= PLAN_KILL_TWO || event->kind == PLAN_LEAVE)) {
		expect.statuses |= BIT(MOECOMM_TIMEOUT) | BIT(MOECOMM_PEER_LOST);
		expect.bound_ms = DEADLINE_MS;
	}
	return expect;
}

const char *expect_check(const struct expect *expect, const struct soak_failure *failure,
	uint32_t rank, int64_t took_us, int64_t bound_us)
{
	if (!(expect->statuses >> failure->status & 1))
		return "that is not the status for it";
	if (took_us > bound_us + soak->slack_ms * INT64_C(1000))
		return "that is too late";
	if (rank != expect->victim && took_us < expect->least_ms * 1000)
		return "that is before the deadline";
	if (expect->names && failure->rank != (int32_t)expect->victim &&
		failure->rank != (int32_t)expect->second)
		return "it blames another rank";
	return NULL;
}
