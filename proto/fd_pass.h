/* SPDX-License-Identifier: Apache-2.0 */
/* One sendmsg or recvmsg with fds; internal to proto/. */
#ifndef MC_PROTO_FD_PASS_H
#define MC_PROTO_FD_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * The most fds that the kernel lets one message carry (SCM_MAX_FD). The receiver has room for all
 * of them, so that what a hostile peer sends is received and closed by us; with less room it would
 * be the kernel that cuts off, and we could not tell how much.
 */
#define MC_FD_PASS_MAX 253u

/*
 * Receives at most n bytes without blocking. Returns the bytes (0: end of stream) or -errno. Sets
 * *ret_n_fds to the close-on-exec fds in ret_fds, which the caller owns. *ret_cut: the kernel
 * dropped fds (this process has no free fd); then those that came are closed and *ret_n_fds is 0.
 */
ssize_t mc_fd_pass_recv(int socket_fd, void *ret_data, size_t n, int ret_fds[MC_FD_PASS_MAX],
	unsigned *ret_n_fds, bool *ret_cut);

/* Sends at most n (>= 1) bytes without blocking or SIGPIPE, the fds with the first. Bytes or
 * -errno. */
ssize_t mc_fd_pass_send(int socket_fd, const void *data, size_t n, const int *fds, unsigned n_fds);

/* Closes those that are not -1 and sets them to -1. */
void mc_fd_pass_close(int *fds, unsigned n_fds);

#endif
