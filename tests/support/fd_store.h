/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for the service manager with an fd store: it reads what moecommd says at NOTIFY_SOCKET
 * on a thread of its own, keeps the fds that it is given, and hands them to the next moecommd as
 * systemd does. What it keeps can be tampered with in between.
 *
 *     mc_fd_store_open(&store, 1000);
 *     mc_fd_store_start(&store, &daemon, NULL);
 *     mc_test_daemon_kill(&daemon);
 *     mc_fd_store_restart(&store, &daemon);
 *     mc_test_daemon_finish(&daemon);
 *     mc_fd_store_close(&store);
 *
 * Every function fails the test when something is not as it should be.
 */
#ifndef MC_TEST_FD_STORE_H
#define MC_TEST_FD_STORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "support/daemon_process.h"

#define MC_TEST_STORE_FDS 1024

struct mc_fd_store {
	char path[64];
	int socket_fd;
	unsigned max_fds; /* 0: a manager without a store */
	char fdstore_env[32], socket_env[80];
	const char *env[16];
	pthread_t thread;
	pthread_mutex_t lock;
	bool stop;
	bool is_ready;
	uint64_t last_ping_ms; /* 0: none yet */
	unsigned n_pings;
	unsigned n_refused; /* beyond max_fds */
	char status[256];
	struct {
		char name[256];
		int fd;
	} entry[MC_TEST_STORE_FDS];
	size_t n;
	char *listen_names; /* for the child that is being started */
	int listen_fd[MC_TEST_STORE_FDS];
	size_t n_listen;
};

void mc_fd_store_open(struct mc_fd_store *store, unsigned max_fds);
void mc_fd_store_close(struct mc_fd_store *store);

/* mc_test_daemon_start and _restart with this stand-in as the manager; wait for READY. */
void mc_fd_store_start(struct mc_fd_store *store, struct mc_test_daemon *ret_daemon,
	const struct mc_test_daemon_options *options);
void mc_fd_store_restart(struct mc_fd_store *store, struct mc_test_daemon *daemon);

/* How many are kept whose name begins so ("": all). */
size_t mc_fd_store_count(struct mc_fd_store *store, const char *prefix);
/* Waits until so many are kept. */
void mc_fd_store_wait_count(
	struct mc_fd_store *store, const char *prefix, size_t n, int timeout_ms);
/* The first name that begins so. */
void mc_fd_store_find(struct mc_fd_store *store, const char *prefix, char ret_name[256]);
/* A copy of the fd of that name, and a place for another one in its stead (-1: only takes it out).
 */
int mc_fd_store_dup(struct mc_fd_store *store, const char *name);
void mc_fd_store_replace(struct mc_fd_store *store, const char *name, int fd);
/* Adds one more, whatever is there; the fd is taken over. */
void mc_fd_store_add(struct mc_fd_store *store, const char *name, int fd);
/* Forgets everything, as when the service was stopped. */
void mc_fd_store_clear(struct mc_fd_store *store);
/* Milliseconds since the last watchdog ping; UINT64_MAX: none yet. */
uint64_t mc_fd_store_ping_age(struct mc_fd_store *store);

#endif
