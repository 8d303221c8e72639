/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket: its directory, lock, permissions, and accepting. */
#ifndef MC_DAEMON_SERVER_H
#define MC_DAEMON_SERVER_H

#include <stddef.h>

struct mc_daemon;
struct mc_server;

/*
 * Takes the lock, replaces a stale socket, binds with its final permissions before anybody can
 * connect. Whoever connects waits until mc_server_accept. Returns 0 and sets *ret_server, or -errno
 * with a line in ret_error: -EBUSY when another daemon serves the path (its socket is left alone).
 */
int mc_server_open(
	struct mc_daemon *daemon, struct mc_server **ret_server, char *ret_error, size_t n_error);
/* Serves those who connect, from now on. Any number of times. */
void mc_server_accept(struct mc_server *server);
/*
 * Stops listening, removes the socket if it is still ours and drops the lock. Freed by the loop.
 * NULL is allowed. Returns NULL.
 */
struct mc_server *mc_server_close(struct mc_server *server);

#endif
