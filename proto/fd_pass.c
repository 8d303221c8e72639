/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/fd_pass.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void mc_fd_pass_close(int *fds, unsigned n_fds)
{
	for (unsigned i = 0; i < n_fds; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

ssize_t mc_fd_pass_recv(int socket_fd, void *ret_data, size_t n, int ret_fds[MC_FD_PASS_MAX],
	unsigned *ret_n_fds, bool *ret_cut)
{
	/* credentials and a security label come along when somebody turned them on for this socket
	 */
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(MC_FD_PASS_MAX * sizeof(int)) +
			   CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(256)];
	} control;
	struct iovec iov = {.iov_base = ret_data, .iov_len = n};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	bool cut;
	unsigned n_fds = 0;
	ssize_t r;

	do
		r = recvmsg(socket_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;

	cut = message.msg_flags & MSG_CTRUNC;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		size_t n_bytes;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n_bytes = c->cmsg_len - CMSG_LEN(0);
		for (size_t i = 0; i < n_bytes / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (n_fds < MC_FD_PASS_MAX) {
				ret_fds[n_fds++] = fd;
			} else {
				close(fd);
				cut = true;
			}
		}
	}
	if (cut) {
		mc_fd_pass_close(ret_fds, n_fds);
		n_fds = 0;
	}
	*ret_n_fds = n_fds;
	*ret_cut = cut;
	return r;
}

ssize_t mc_fd_pass_send(int socket_fd, const void *data, size_t n, const int *fds, unsigned n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(MC_FD_PASS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = (void *)data, .iov_len = n};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t r;

	if (n_fds > MC_FD_PASS_MAX)
		return -EINVAL;
	if (n_fds > 0) {
		struct cmsghdr *c;

		memset(&control, 0, sizeof(control));
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	do
		r = sendmsg(socket_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}
