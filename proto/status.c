/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/status.h"

const char *mc_status_name(unsigned status)
{
	switch (status) {
#define STATUS_NAME(number, name, text)                                                            \
	case (number):                                                                             \
		return #name;
		MC_STATUS_TABLE(STATUS_NAME)
#undef STATUS_NAME
	default:
		return "UNKNOWN";
	}
}

const char *mc_status_text(unsigned status)
{
	switch (status) {
#define STATUS_TEXT(number, name, text)                                                            \
	case (number):                                                                             \
		return text;
		MC_STATUS_TABLE(STATUS_TEXT)
#undef STATUS_TEXT
	default:
		return "an outcome that this release does not know";
	}
}

const char *mc_group_state_name(unsigned state)
{
	switch ((enum mc_group_state)state) {
	case MC_GROUP_FORMING:
		return "forming";
	case MC_GROUP_ARMING:
		return "arming";
	case MC_GROUP_PROBING:
		return "probing";
	case MC_GROUP_READY:
		return "ready";
	case MC_GROUP_FAILED:
		return "failed";
	case MC_GROUP_DRAINING:
		return "draining";
	case MC_GROUP_GONE:
		return "gone";
	}
	return "unknown";
}

const char *mc_health_name(unsigned health)
{
	switch ((enum mc_health)health) {
	case MC_HEALTH_UNKNOWN:
		return "unknown";
	case MC_HEALTH_IDLE:
		return "idle";
	case MC_HEALTH_PROGRESSING:
		return "progressing";
	case MC_HEALTH_STALLED:
		return "stalled";
	case MC_HEALTH_FAILED:
		return "failed";
	case MC_HEALTH_WAITING:
		return "waiting";
	}
	return "unknown";
}
