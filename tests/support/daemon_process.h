/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real moecommd of this build ($MOECOMM_TEST_BIN/moecommd) in a directory of its own below
 * /tmp, with a stand-in for the service manager at NOTIFY_SOCKET. It dies with the thread that
 * started it.
 *
 *     struct mc_test_daemon daemon;
 *     mc_test_daemon_start(&daemon, NULL);
 *     … connect to daemon.socket …
 *     mc_test_daemon_finish(&daemon);
 *
 * Every function fails the test when something is not as it should be.
 */
#ifndef MC_TEST_DAEMON_PROCESS_H
#define MC_TEST_DAEMON_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MC_TEST_EXPECTED_ERRORS 8

struct mc_test_daemon_options {
	const char *const *args; /* more arguments, ends with NULL; or NULL */
	const char *config;      /* text of a configuration file; or NULL */
	const char *const *env;  /* "NAME=VALUE", ends with NULL; or NULL */
	const char *backend;     /* NULL: host */
	bool do_not_wait;        /* return at once instead of waiting for READY */
	uint32_t uid;            /* runs as this user (only as root); 0: as ours */
	uint32_t max_fds;        /* RLIMIT_NOFILE, soft and hard; 0: as ours */
	void (*in_child)(
		void *data); /* called in its process right before it is executed; or NULL */
	void *in_child_data;
};

struct mc_test_daemon {
	struct mc_test_daemon_options options; /* of the start; their strings must live as long */
	char directory[64];
	char socket[96];
	char log_path[96];
	char config_path[96];
	char notify_path[96];
	int notify_fd;
	pid_t pid; /* 0: not running */
	bool is_ready;
	const char *expected_error[MC_TEST_EXPECTED_ERRORS];
	size_t n_expected_errors;
};

/* Makes the directory, starts the daemon and waits until it says READY. options may be NULL. */
void mc_test_daemon_start(
	struct mc_test_daemon *ret_daemon, const struct mc_test_daemon_options *options);
/* SIGTERM; it must exit with 0 within 5 s, having removed its socket. */
void mc_test_daemon_stop(struct mc_test_daemon *daemon);
/* kill -9. */
void mc_test_daemon_kill(struct mc_test_daemon *daemon);
/* Starts it again with the same options, directory, socket and log. */
void mc_test_daemon_restart(struct mc_test_daemon *daemon);
/*
 * Stops it if it runs, fails the test if its log has a line of level error that was not expected
 * (or a sanitizer's report), and removes the directory.
 */
void mc_test_daemon_finish(struct mc_test_daemon *daemon);
/* Waits for it to end by itself; returns its exit status, or 128 + signal. */
int mc_test_daemon_wait_exit(struct mc_test_daemon *daemon, int timeout_ms);

/* Error lines that contain the text (kept by the caller) are fine. */
void mc_test_daemon_expect_error(struct mc_test_daemon *daemon, const char *text);
/* The log so far, of all starts; free() it. */
char *mc_test_daemon_log(const struct mc_test_daemon *daemon);
bool mc_test_daemon_log_has(const struct mc_test_daemon *daemon, const char *text);
void mc_test_daemon_wait_log(const struct mc_test_daemon *daemon, const char *text, int timeout_ms);

/* The next message to the service manager; false when none comes in time. */
bool mc_test_daemon_next_notify(
	struct mc_test_daemon *daemon, char *ret_text, size_t n_text, int timeout_ms);
/* Waits until a message contains the text. */
void mc_test_daemon_wait_notify(struct mc_test_daemon *daemon, const char *text, int timeout_ms);

#endif
