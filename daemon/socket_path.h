/* SPDX-License-Identifier: Apache-2.0 */
/* The socket in the file system: directory, lock file, binding, and removal of only our own. */
#ifndef MC_DAEMON_SOCKET_PATH_H
#define MC_DAEMON_SOCKET_PATH_H

#include <stddef.h>
#include <sys/stat.h>
#include "daemon/config.h"

struct mc_socket_path {
	char path[MC_CONFIG_PATH_BYTES];
	int lock_fd;  /* flock held as long as it is open */
	dev_t device; /* of the socket's file, so that a newer daemon's is never removed */
	ino_t inode;
};

/*
 * Creates the directory (one level) when it is missing, takes the lock, binds a stream socket and
 * listens. Returns the socket (non-blocking, close-on-exec) and fills *ret_path, or -errno with a
 * line in ret_error.
 */
int mc_socket_path_bind(const struct mc_config *config, struct mc_socket_path *ret_path,
	char *ret_error, size_t n_error);
/* Removes the socket's file if it is still ours, then lets the lock go. */
void mc_socket_path_release(struct mc_socket_path *path);

#endif
