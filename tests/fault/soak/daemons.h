/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon under chaos; only in the main process. */
#ifndef MC_TESTS_SOAK_DAEMONS_H
#define MC_TESTS_SOAK_DAEMONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Starts it and sets soak->socket. */
void daemons_start(void);
/* What it holds with nothing but the resident process connected. */
void daemons_take_baseline(void);
/* One look. quiet: brings it up again and does nothing else to it. */
void daemons_step(bool quiet);
/* It runs and no flood is under way. */
bool daemons_calm(void);
/* Holds it against the baseline, stops it, and looks for errors in its log. */
void daemons_finish(void);
/* Counts its ends. */
uint32_t daemons_serial(void);
/* It has been up for long enough that clients have reconnected, or know that they have not. */
bool daemons_settled(void);
/* It may refuse requests of our uid, which asks too often. */
bool daemons_flooded(void);
/* Starts `moecommctl abort gN`. */
pid_t daemons_abort(uint32_t group);
void daemons_print_log(void);

#endif
