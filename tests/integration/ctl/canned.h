/* SPDX-License-Identifier: Apache-2.0 */
/* Statuses as a daemon would send them. */
#ifndef MC_TEST_CTL_CANNED_H
#define MC_TEST_CTL_CANNED_H

#include <stdbool.h>
#include "moecomm.pb-c.h"

/* Nothing joined, nothing wrong. Static; the same object each time, reset. */
Moecomm__Wire__Status *canned_empty(void);
/*
 * Group "demo": 4 ranks on two channels, ready and progressing; rank 2 (pid 1002) is at call 41 of
 * channel 0, the others wait in 42. With `stalled` the daemon says so.
 */
Moecomm__Wire__Status *canned_demo(bool stalled);
/* Group "broken": failed because rank 1 (pid 1001) was lost; rank 0 has the fault. A holder is
 * left. */
Moecomm__Wire__Status *canned_broken(void);

#endif
