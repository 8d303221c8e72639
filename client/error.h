/* SPDX-License-Identifier: Apache-2.0 */
/* The calling thread's last error sentence, and the library's optional log. */
#ifndef MC_CLIENT_ERROR_H
#define MC_CLIENT_ERROR_H

#include <stdarg.h>
#include <stdint.h>
#include "client/moecomm.h"

/* Sentences on their way to mc_error; as long as the wire allows, so that nothing is cut twice. */
#define MC_ERROR_BYTES 1024

/* Remembers a sentence for moecomm_last_error() and returns the status. */
enum moecomm_status mc_error(enum moecomm_status status, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* One line on stderr when MOECOMM_LOG is 1; nothing otherwise. */
void mc_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Reads MOECOMM_LOG; called by each connect. */
void mc_log_setup(void);

/* Monotonic time in ms. */
int64_t mc_clock_ms(void);
/* A monotonic deadline for pthread_cond_timedwait on a CLOCK_MONOTONIC condition. */
struct timespec mc_clock_timespec(int64_t deadline_ms);

#endif
