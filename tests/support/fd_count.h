/* SPDX-License-Identifier: Apache-2.0 */
/* Open fds, memory and wake-ups of a process, for before and after. */
#ifndef MC_TEST_FD_COUNT_H
#define MC_TEST_FD_COUNT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Open fds of a process; 0: this one. Fails the test when it can't be told. */
size_t mc_test_count_fds(pid_t pid);
/* A number of /proc/PID/status by its key, e.g. "VmRSS" (KiB) or "voluntary_ctxt_switches". */
uint64_t mc_test_process_number(pid_t pid, const char *key);
/* Waits until the process has at most that many fds; fails the test at the deadline. */
void mc_test_wait_fds(pid_t pid, size_t n_at_most, int timeout_ms);

/* Milliseconds of CLOCK_MONOTONIC. */
uint64_t mc_test_now_ms(void);
void mc_test_sleep_ms(int ms);

#endif
