/* SPDX-License-Identifier: Apache-2.0 */
/* Lives of groups under chaos; only in the main process. */
#ifndef MC_TESTS_SOAK_GROUPS_H
#define MC_TESTS_SOAK_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

void groups_start(void);
/* One look at all groups. quiet: no new events, and no new lives. */
void groups_step(bool quiet);
/* Whether some group waits for its ranks to see what was done to it. */
bool groups_hurt(void);
/* Asks groups not to begin events for the moment. */
void groups_hold(bool hold);
/* All groups have left, all their processes have ended. */
bool groups_over(void);
/* A group hangs: there is no point in going on. */
bool groups_stuck(void);
void groups_print(void);
/* Ends what is left by force. */
void groups_kill(void);

#endif
