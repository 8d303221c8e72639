/* SPDX-License-Identifier: Apache-2.0 */
/* Where the daemon's socket is, and why it can't be reached. */
#ifndef MC_CLIENT_SOCKET_PATH_H
#define MC_CLIENT_SOCKET_PATH_H

#include <stddef.h>
#include <sys/un.h>

/*
 * The socket of `given`, else of $MOECOMM_SOCKET, else this user's default. Returns 0, or
 * -ENAMETOOLONG when it does not fit a socket address.
 */
int mc_socket_path_resolve(const char *given, struct sockaddr_un *ret_address);

/*
 * Explains a refused connect: the first component of the path that this process may not pass, with
 * its mode and owners and the group that would help.
 */
void mc_socket_path_explain_denied(const char *path, char *ret_text, size_t n_text);

#endif
