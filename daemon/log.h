/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines: lower case, a sentence, what and whose. Structured fields go to the journal when
 * stderr is the journal; else plain lines "moecommd: LEVEL: text" go to stderr.
 */
#ifndef MC_DAEMON_LOG_H
#define MC_DAEMON_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <syslog.h>

/* What a line is about; each may be NULL or 0. */
struct mc_log_about {
	const char *group;
	uint64_t epoch;
	uint32_t uid_plus_1;
	uint32_t pid;
};

/* Budget of lines of one kind that a client can cause: 10 at once, then one a second. */
struct mc_log_limit {
	uint64_t refilled_ms;
	uint32_t tokens;
	uint32_t n_left_out;
	bool started;
};

/* Finds out where stderr goes. Lines less important than level (a syslog priority) are dropped. */
void mc_log_open(int level);
void mc_log_set_level(int level);

void mc_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void mc_log_about(int level, const struct mc_log_about *about, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* about may be NULL. */
void mc_log_limited(struct mc_log_limit *limit, int level, const struct mc_log_about *about,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

/*
 * The error that ends the program. journald asks whose process has sent a line only when it reads
 * it, and one that has ended by then has no unit: what matters most would be missing from
 * `systemctl status`. So it goes through stderr, whose unit journald knows.
 */
void mc_log_end(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Milliseconds of CLOCK_MONOTONIC. */
uint64_t mc_now_ms(void);

#endif
