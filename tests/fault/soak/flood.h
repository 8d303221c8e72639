/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that the daemon has to endure. */
#ifndef MC_TESTS_SOAK_FLOOD_H
#define MC_TESTS_SOAK_FLOOD_H

#include <stdint.h>
#include <sys/types.h>
#include "fault/soak/plan.h"

/* Exit status of a flood that the daemon has ended itself. */
#define FLOOD_CUT_OFF 3

/* Starts a process that floods soak->socket for so long. */
pid_t flood_start(enum plan_daemon_kind kind, uint32_t for_ms);

#endif
