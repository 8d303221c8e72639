/* SPDX-License-Identifier: Apache-2.0 */
/* Whether who answers at the socket is a daemon that this user may trust with his data. */
#ifndef MC_CLIENT_SOCKET_TRUST_H
#define MC_CLIENT_SOCKET_TRUST_H

#include <stddef.h>

/*
 * fd is connected to the socket at path. Root and this user are trusted. Another user is trusted
 * only where nobody but root, this user and he himself could have put a socket: every directory on
 * the way belongs to one of these and none is writable by everybody. Otherwise whoever came first
 * to a predictable path (below /tmp, say) would be handed the data of all who follow.
 *
 * Nothing has to be sent before it is asked. Returns 0, -EPERM with a sentence that says what to
 * do, or another negative errno with one that names the call.
 */
int mc_socket_trust_check(int fd, const char *path, char *ret_text, size_t n_text);

#endif
